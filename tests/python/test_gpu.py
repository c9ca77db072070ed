"""The GPU itself: what only a real device does."""

from __future__ import annotations

import numpy as np
import pytest
from arrays import assert_same
from framework_data import CUDA, data

import gpufetch as gf

pytestmark = pytest.mark.skipif(not CUDA["available"], reason=f"no GPU: {CUDA['reason']}")


def test_a_gpu_out_of_memory_raises_memory_error() -> None:
    huge = np.broadcast_to(np.float32(1), (1 << 42,))
    with pytest.raises(MemoryError, match="bytes"):
        gf.to_device(huge, device="cuda:0")
    a = data((1000,))
    assert_same(gf.fetch(gf.to_device(a, device="cuda:0")), a)


def test_a_device_that_does_not_exist_is_named() -> None:
    count = len(CUDA["devices"])
    with pytest.raises(ValueError, match=f"cuda:{count} does not exist"):
        gf.to_device(np.zeros(1), device=f"cuda:{count}")


def test_page_locked_memory_of_others_is_read_and_written_in_place() -> None:
    torch = pytest.importorskip("torch")
    locked = torch.empty(1 << 20, dtype=torch.float32, pin_memory=True).numpy()
    for part in (locked, locked[3:], locked[1000:50_000], locked[::2]):
        a = data(part.shape).astype(np.float32)
        part[...] = a
        there = gf.to_device(part, device="cuda:0")
        part[...] = 0
        gf.fetch(there, out=part)
        assert_same(part.copy(), a)


def test_memory_that_is_page_locked_in_two_halves_is_copied_whole() -> None:
    torch = pytest.importorskip("torch")
    cudart, half = torch.cuda.cudart(), 1 << 20
    memory = np.zeros(3 * half, np.uint8)
    start = -memory.ctypes.data % 4096
    first = memory.ctypes.data + start
    for at in (first, first + half):
        assert int(cudart.cudaHostRegister(at, half, 0)) == 0
    try:
        for view in (memory[start : start + 2 * half], memory[start + 100 : start + 2 * half + 99]):
            a = data(view.shape).astype(np.uint8)
            gf.fetch(gf.to_device(a, device="cuda:0"), out=view)
            assert_same(view.copy(), a)
    finally:
        for at in (first, first + half):
            cudart.cudaHostUnregister(at)
