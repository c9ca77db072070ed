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
