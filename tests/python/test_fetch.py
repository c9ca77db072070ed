"""fetch and to_device: the right elements, memory that is owned, failures that leave nothing."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from arrays import DTYPES, assert_same, free_nbytes, pool_used_nbytes, random_array

import gpufetch as gf
from gpufetch import _core


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_keeps_its_bits(device: str, dtype: np.dtype[Any]) -> None:
    expected = random_array((5, 67), dtype)
    x = gf.to_device(expected, device=device)
    assert (x.dtype, x.device) == (dtype, device)
    assert_same(gf.fetch(x), expected)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (1, 1, 1), (2,) * 10, (1,) * 32])
def test_shapes_without_or_with_one_element_arrive(device: str, shape: tuple[int, ...]) -> None:
    expected = random_array(shape, np.float64)
    assert_same(gf.fetch(gf.to_device(expected, device=device)), expected)
    assert_same(gf.fetch(expected), expected)


# Sizes around the pieces of a copy: one piece, several, and a last one that is not full.
@pytest.mark.parametrize("nbytes", [1, 4095, 4096, 1 << 20, (8 << 20) + 3, (40 << 20) + 1])
def test_sizes_around_chunks_arrive_whole(device: str, nbytes: int) -> None:
    expected = random_array((nbytes,), np.uint8)
    assert_same(gf.fetch(gf.to_device(expected, device=device)), expected)


LAYOUTS: dict[str, Any] = {
    "transposed": lambda a: a.T,
    "reversed": lambda a: a[::-1, ::-1, ::-1],
    "strided": lambda a: a[1::2, :, ::3],
    "one plane": lambda a: a[:, 3],
    "rows": lambda a: a[:, :, 2:-1],
    "column": lambda a: a[:, 0, 0],
    "backwards by 2": lambda a: a[-1:0:-2, ..., ::-2],
    "new axis": lambda a: a[None, :, None, 2],
    "element": lambda a: a[1, 2, 3, ...],
    "empty slice": lambda a: a[:, 5:2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "c16"])
def test_views_are_gathered_in_order(device: str, layout: str, dtype: str) -> None:
    a = random_array((12, 9, 31), dtype)
    view = LAYOUTS[layout](gf.to_device(a, device=device))
    expected = np.ascontiguousarray(LAYOUTS[layout](a)).reshape(LAYOUTS[layout](a).shape)
    assert view.strides == LAYOUTS[layout](a).strides or layout in ("new axis", "empty slice")
    assert_same(gf.fetch(view), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_to_device_takes_any_layout(device: str, layout: str) -> None:
    a = LAYOUTS[layout](random_array((12, 9, 31), np.float32))
    assert_same(gf.fetch(gf.to_device(a, device=device)), np.array(a, order="C"))


def test_to_device_takes_repeated_and_unaligned_elements(device: str) -> None:
    repeated = np.broadcast_to(random_array((7,), np.int32), (1000, 7))
    assert_same(gf.fetch(gf.to_device(repeated, device=device)), np.array(repeated, order="C"))
    unaligned = random_array((1 + 8 * 999,), np.uint8)[1:].view(np.float64)
    assert not unaligned.flags.aligned
    assert_same(gf.fetch(gf.to_device(unaligned, device=device)), np.array(unaligned))


def test_to_device_takes_what_asarray_takes(device: str) -> None:
    assert_same(gf.fetch(gf.to_device([[1, 2], [3, 4]], device=device)), np.array([[1, 2], [3, 4]]))
    assert_same(gf.fetch(gf.to_device(2.5, device=device)), np.array(2.5))
    assert_same(gf.fetch(gf.to_device(np.float32(3), device=device)), np.array(3, np.float32))


def test_without_a_device_the_default_one_is_used() -> None:
    assert gf.to_device(np.zeros(3)).device == gf.info()["default_device"]
    assert gf.to_device(np.zeros(3), device="host").device == "host:0"
    assert gf.to_device(np.zeros(3), device="host:1").device == "host:1"


def test_result_is_a_fresh_writable_c_order_array(device: str) -> None:
    x = gf.to_device(random_array((100, 200), np.float32), device=device)
    first, second = gf.fetch(x), gf.fetch(x.T)
    assert first.flags.writeable and first.flags.c_contiguous and first.flags.aligned
    assert second.flags.writeable and second.flags.c_contiguous
    assert not np.shares_memory(first, second)
    before = second.copy()
    first[...] = 0
    assert_same(second, before)
    assert_same(gf.fetch(x.T), before)


def test_result_outlives_its_source(device: str) -> None:
    expected = random_array((1 << 20,), np.uint8)
    x = gf.to_device(expected, device=device)
    view = gf.fetch(x)[100:]
    del x
    gf.to_device(np.zeros(1 << 20, np.uint8), device=device)  # may reuse the device memory
    gc.collect()
    assert_same(np.array(view), expected[100:])


def test_the_pool_takes_the_memory_back(device: str) -> None:
    x = gf.to_device(random_array((3 << 20,), np.uint8), device=device)
    used = pool_used_nbytes()
    result = gf.fetch(x)
    view = result[5:]
    assert gf.pool.stats()["used_nbytes"] >= used + x.nbytes
    del result
    assert gf.pool.stats()["used_nbytes"] >= used + x.nbytes
    del view
    assert gf.pool.stats()["used_nbytes"] == used


def test_a_second_fetch_pins_nothing_new(device: str) -> None:
    x = gf.to_device(random_array((5 << 20,), np.uint8), device=device)
    gf.fetch(x)
    misses = gf.pool.stats()["miss_count"]
    for _ in range(10):
        gf.fetch(x)
    assert gf.pool.stats()["miss_count"] == misses


def test_trim_gives_unused_memory_back(device: str) -> None:
    kept = gf.fetch(gf.to_device(random_array((3 << 20,), np.uint8), device=device))
    before = kept.copy()
    gf.fetch(gf.to_device(random_array((6 << 20,), np.uint8), device=device))
    gf.pool.trim()
    stats = gf.pool.stats()
    assert kept.nbytes <= stats["used_nbytes"] <= stats["reserved_nbytes"]
    assert_same(kept, before)


@pytest.mark.parametrize("nbytes", [100, 6 << 20])
def test_over_the_cap_results_are_pageable(device: str, nbytes: int, pool_cap: int) -> None:
    expected = random_array((nbytes,), np.uint8)
    x = gf.to_device(expected, device=device)
    gf.pool.trim()
    gf.pool.cap_nbytes = 0
    used = pool_used_nbytes()
    result = gf.fetch(x)
    assert_same(result, expected)
    assert gf.pool.stats()["used_nbytes"] == used
    result[:] = 0
    assert_same(gf.fetch_async(x).result(), expected)


OUT_LAYOUTS: dict[str, Any] = {
    "C": lambda shape, dtype: np.zeros(shape, dtype),
    "F": lambda shape, dtype: np.zeros(shape, dtype, order="F"),
    "reversed": lambda shape, dtype: np.zeros(shape, dtype)[::-1, ::-1],
    "strided": lambda shape, dtype: np.zeros((shape[0] * 2, shape[1] * 3), dtype)[::2, 1::3],
    "unaligned": lambda shape, dtype: (
        np.zeros(1 + shape[0] * shape[1] * np.dtype(dtype).itemsize, np.uint8)[1:]
        .view(dtype)
        .reshape(shape)
    ),
}


@pytest.mark.parametrize("layout", OUT_LAYOUTS)
@pytest.mark.parametrize("shape", [(3, 5), (700, 1500), (0, 4)])
def test_out_of_any_layout_is_filled(device: str, layout: str, shape: tuple[int, int]) -> None:
    expected = random_array(shape, np.float32)
    x = gf.to_device(expected, device=device)
    for source in (x, expected):
        out = OUT_LAYOUTS[layout](shape, np.float32)
        assert gf.fetch(source, out=out) is out
        assert np.array(out, order="C").tobytes() == expected.tobytes()


def test_out_leaves_what_lies_between_its_elements(device: str) -> None:
    surround = np.full((20, 30), 77, np.int16)
    gf.fetch(gf.to_device(random_array((10, 10), np.int16), device=device), out=surround[::2, ::3])
    surround[::2, ::3] = 77
    assert (surround == 77).all()


def test_out_may_be_a_fetched_array(device: str) -> None:
    a, b = random_array((9000,), np.int64, 1), random_array((9000,), np.int64, 2)
    out = gf.fetch(gf.to_device(a, device=device))
    gf.fetch(gf.to_device(b, device=device), out=out)
    assert_same(out, b)


def test_out_none_is_as_if_it_were_not_given(device: str) -> None:
    a = random_array((5,), np.int64)
    assert_same(gf.fetch(gf.to_device(a, device=device), out=None), a)


def test_a_cpu_array_is_copied() -> None:
    a = random_array((300, 40), np.float32)
    for source in (a, a.T, a[::-1, ::2], np.broadcast_to(a[0], (9, 40))):
        result = gf.fetch(source)
        assert_same(result, np.array(source, order="C"))
        assert not np.shares_memory(result, a)
        assert result.flags.writeable


def test_a_readonly_source_can_be_fetched() -> None:
    a = random_array((30,), np.float32)
    a.flags.writeable = False
    result = gf.fetch(a)
    result[0] = 0
    assert gf.asdevice(a).readonly


def test_a_failed_copy_gives_no_array_and_no_leak() -> None:
    expected = random_array((4 << 20,), np.uint8)
    x = gf.to_device(expected, device="host:0")
    gf.fetch(x)
    used = pool_used_nbytes()
    _core._host_faults(copy_fail_after_nbytes=1 << 20)
    with pytest.raises(gf.Error) as caught:
        gf.fetch(x)
    assert caught.value.status == "GPUF_ERR_DEVICE"
    assert isinstance(caught.value.native_code, int)
    with pytest.raises(gf.Error):
        gf.fetch(x, out=np.empty(4 << 20, np.uint8))
    with pytest.raises(gf.Error):
        gf.fetch(x[::-1])
    del caught
    _core._host_faults()
    assert gf.pool.stats()["used_nbytes"] == used
    assert_same(gf.fetch(x), expected)


def test_a_failed_upload_frees_the_device_memory() -> None:
    gc.collect()  # arrays that other tests' exceptions still hold
    free = free_nbytes("host:0")
    _core._host_faults(copy_fail_after_nbytes=1000)
    with pytest.raises(gf.Error):
        gf.to_device(random_array((1 << 20,), np.uint8), device="host:0")
    _core._host_faults()
    assert free_nbytes("host:0") >= free  # also frees what the channels have kept


def test_a_full_device_raises_memory_error() -> None:
    free = free_nbytes("host:0")
    _core._host_faults(alloc_fail_after=0)
    with pytest.raises(MemoryError):
        gf.to_device(np.zeros(1000), device="host:0")
    _core._host_faults()
    assert free_nbytes("host:0") == free


def test_an_allocation_failure_at_any_point_leaks_nothing() -> None:
    a = random_array((600, 700), np.float32)
    x = gf.to_device(a, device="host:0")
    free, used = free_nbytes("host:0"), pool_used_nbytes()
    for allowed in range(4):
        _core._host_faults(alloc_fail_after=allowed)
        with contextlib.suppress(MemoryError):
            assert_same(gf.fetch(gf.to_device(a, device="host:0").T), np.array(a.T, order="C"))
        _core._host_faults()
        gc.collect()
        assert gf.pool.stats()["used_nbytes"] == used
    assert free_nbytes("host:0") >= free - (64 << 20)  # bounded device scratch may stay
    assert_same(gf.fetch(x), a)


def test_fetching_again_and_again_keeps_no_reference(device: str) -> None:
    x = gf.to_device(random_array((50, 50), np.float32), device=device)
    out = np.empty((50, 50), np.float32)
    dtype = x.dtype
    counts = [sys.getrefcount(o) for o in (x, out, dtype, None)]
    for _ in range(200):
        gf.fetch(x)
        gf.fetch(x, out=out)
        gf.fetch(x.T)
        gf.fetch_async(x, out=out).result()
        with pytest.raises(ValueError, match="shape"):
            gf.fetch(x, out=out[:1])
    after = [sys.getrefcount(o) for o in (x, out, dtype, None)]
    assert max(abs(a - b) for a, b in zip(counts, after, strict=True)) < 20


def test_threads_that_fetch_at_once_get_their_own_arrays(device: str) -> None:
    arrays = [random_array((1000 + 999 * i,), np.int32, i) for i in range(8)]
    on_device = [gf.to_device(a, device=device) for a in arrays]

    def work(i: int) -> None:
        for _ in range(20):
            assert_same(gf.fetch(on_device[i]), arrays[i])
            assert_same(gf.fetch(on_device[i][::-2]), np.array(arrays[i][::-2]))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))


def test_other_python_threads_run_during_a_fetch() -> None:
    x = gf.to_device(np.zeros(4 << 20, np.uint8), device="host:0")
    _core._host_faults(bandwidth=20e6)  # 0.2 s
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(gf.fetch, x)
        turns = 0
        while not running.done():
            turns += 1
    assert turns > 100


def test_a_null_pointer_with_no_elements_is_fine(device: str) -> None:
    x = gf.to_device(np.zeros((4, 0)), device=device)
    assert ctypes.c_void_p(x.data_ptr).value is None
    assert gf.fetch(x).shape == (4, 0)
