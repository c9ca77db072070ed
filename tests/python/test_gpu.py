"""The GPU itself: what only a real device does."""

from __future__ import annotations

import subprocess
import sys

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


ONE_OF_TWO = """
import ctypes, tempfile, threading
import numpy as np
import gpufetch as gf

driver = ctypes.CDLL("libcuda.so.1")

def has_context(index):
    device, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    assert driver.cuDeviceGet(ctypes.byref(device), index) == 0
    state = driver.cuDevicePrimaryCtxGetState
    assert state(device, ctypes.byref(flags), ctypes.byref(active)) == 0
    return bool(active.value)

def current_context():
    context = ctypes.c_void_p()
    assert driver.cuCtxGetCurrent(ctypes.byref(context)) == 0
    return context.value

a = np.arange(1 << 22, dtype=np.float32).reshape(1 << 11, -1)

def work():
    x = gf.to_device(a, device="cuda:1")
    out = np.empty_like(a)
    assert (gf.fetch(x) == a).all() and (gf.fetch(x, out=out) == a).all()
    assert (gf.fetch(x.T) == a.T).all()
    assert gf.fetch_async(x).result(timeout=60)[-1, -1] == a[-1, -1]
    assert gf.stats(x).max == a.max()
    gf.unshare(gf.share(x))
    with tempfile.TemporaryDirectory() as folder:
        gf.hdf5.write(folder + "/x.h5", "x", x)
        assert (gf.fetch(gf.hdf5.read(folder + "/x.h5", "x", device="cuda:1")) == a).all()
        for mode in ("device-copy", "device-encoded", "pinned"):
            with gf.Checkpoint(folder, mode, mode=mode, shards=2) as checkpoint:
                checkpoint.save(1, {"x": x})
                checkpoint.wait()
                found = checkpoint.load(device="cuda:1")
            assert (gf.fetch(found.tree["x"]) == a).all()
            del found
    del x
    gf.pool.trim()
    seen.append((has_context(0), has_context(1), current_context()))

seen = []
work()
thread = threading.Thread(target=work)
thread.start()
thread.join()
assert seen == [(False, True, None)] * 2, seen
"""


@pytest.mark.skipif(len(CUDA["devices"]) < 2, reason="one GPU: this takes two")
def test_a_program_that_uses_the_second_gpu_alone_has_no_context_on_the_first() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ONE_OF_TWO], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
