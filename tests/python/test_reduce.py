"""overview, stats and histogram against NumPy, over random views of every real dtype."""

from __future__ import annotations

import threading
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from arrays import pool_used_nbytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sanitizing import fewer

import gpufetch as gf

INTEGERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SMALL_FLOATS = [
    "bfloat16",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
]
FLOATS = ["float16", "float32", "float64", *SMALL_FLOATS]
DTYPES = INTEGERS + FLOATS
METHODS = ["mean", "rms", "min", "max", "minmax", "first"]

anyone = settings(
    deadline=None,
    max_examples=fewer(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name) if name in SMALL_FLOATS else name)


def elements(rng: np.random.Generator, shape: tuple[int, ...], name: str) -> npt.NDArray[Any]:
    """Any bits for the small types and integers; else normal values with NaN and inf in them."""
    dtype = dtype_of(name)
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if name in ("float32", "float64"):
        values = rng.normal(3.0, 2.0, shape)
        odd = rng.random(shape)
        values[odd < 0.04] = 0.0
        values[odd < 0.03] = np.nan
        values[odd < 0.02] = np.inf
        values[odd < 0.01] = -np.inf
        return values.astype(dtype)
    count = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(rng.bytes(count), dtype).reshape(shape).copy()


@st.composite
def views(draw: st.DrawFn) -> tuple[str, tuple[int, ...], Any, bool, int]:
    """A dtype, a shape, an index that gives a view of such an array, transposed or not, a seed."""
    shape = tuple(draw(st.lists(st.integers(1, 40), min_size=0, max_size=3)))
    key = []
    for length in shape:
        start = draw(st.integers(0, length - 1))
        step = draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
        key.append(slice(start, None, step))
    name = draw(st.sampled_from(DTYPES))
    return name, shape, (*key, ...), draw(st.booleans()), draw(st.integers(0, 2**31))


def wide(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Exactly, in a type that NumPy reduces: object for integers of 8 bytes."""
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        return array.astype(object)
    return as_float64(array)


def as_float64(array: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    with np.errstate(invalid="ignore"):  # random bits hold signalling NaNs
        return array.astype(np.float64)


def cells_of(array: npt.NDArray[Any], shape: tuple[int, ...]) -> Any:
    for index in np.ndindex(shape):
        key: tuple[Any, ...] = tuple(
            slice(i * n // m, (i + 1) * n // m)
            for i, n, m in zip(index, array.shape, shape, strict=True)
        )
        yield index, array[(*key, ...)]


def expected_cell(cell: npt.NDArray[Any], method: str) -> Any:
    if cell.dtype == object:
        flat = cell.ravel()
        if method == "mean":
            return float(sum(flat)) / flat.size
        if method == "rms":
            return float(np.sqrt(sum(float(x) ** 2 for x in flat) / flat.size))
        return min(flat) if method == "min" else max(flat)
    if method in ("mean", "rms"):
        finite = cell[np.isfinite(cell)]
        if finite.size == 0:
            return np.nan
        return finite.mean() if method == "mean" else np.sqrt(np.mean(finite**2))
    usable = cell[~np.isnan(cell)]
    if usable.size == 0:
        return np.nan
    return usable.min() if method == "min" else usable.max()


def check_cells(
    result: npt.NDArray[Any], array: npt.NDArray[Any], shape: tuple[int, ...], method: str
) -> None:
    array, values = wide(array), wide(result)
    assert result.shape == shape
    for index, cell in cells_of(array, shape):
        expected = expected_cell(cell, method)
        if method in ("min", "max"):
            assert values[index] == expected or (np.isnan(expected) and np.isnan(values[index]))
        else:
            finite = np.abs(cell[np.isfinite(cell)]) if cell.dtype != object else np.abs(cell)
            scale = float(np.max(finite, initial=0))
            relative = 1e-12 if result.dtype == np.float64 else 1e-6
            assert values[index] == pytest.approx(
                expected, rel=relative, abs=relative * scale, nan_ok=True
            )


def check_overview(x: Any, array: npt.NDArray[Any], shape: tuple[int, ...], method: Any) -> None:
    got = gf.overview(x, shape, method)
    assert got.method == method and got.source_shape == array.shape
    if method == "first":
        starts = [np.arange(m) * n // m for n, m in zip(array.shape, shape, strict=True)]
        picked = array[np.ix_(*starts)] if shape else array
        assert got.values.tobytes() == picked.tobytes()
        assert got.count == picked.size
        return
    assert got.count == array.size
    numbers = as_float64(array)
    assert got.nan_count == np.isnan(numbers).sum()
    assert got.posinf_count == np.isposinf(numbers).sum()
    assert got.neginf_count == np.isneginf(numbers).sum()
    if method == "minmax":
        assert got.high is not None and got.high.dtype == array.dtype
        check_cells(got.values, array, shape, "min")
        check_cells(got.high, array, shape, "max")
    else:
        wide = ("int32", "uint32", "int64", "uint64", "float64")
        of_sums = np.float64 if array.dtype in wide else np.float32
        assert got.values.dtype == (array.dtype if method in ("min", "max") else of_sums)
        check_cells(got.values, array, shape, method)


@anyone
@given(case=views(), method=st.sampled_from(METHODS), data=st.data())
def test_overview_of_any_view_agrees_with_numpy(
    device: str, case: Any, method: str, data: st.DataObject
) -> None:
    name, shape, key, transposed, seed = case
    array = elements(np.random.default_rng(seed), shape, name)
    x = gf.to_device(array, device=device)[key]
    view = array[key]
    if transposed:
        x, view = x.T, view.T
    cells = tuple(data.draw(st.integers(1, n)) for n in view.shape)
    check_overview(x, view, cells, method)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("method", METHODS)
def test_overview_of_each_dtype_agrees_with_numpy(device: str, name: str, method: str) -> None:
    array = elements(np.random.default_rng(7), (50, 300), name)
    check_overview(gf.to_device(array, device=device), array, (7, 23), method)
    check_overview(array, array, (7, 23), method)  # a CPU array, on the calling thread


def check_stats(got: gf.Stats, array: npt.NDArray[Any]) -> None:
    numbers = as_float64(array)
    finite = numbers[np.isfinite(numbers)]
    exact = wide(array)
    usable = exact[~np.isnan(numbers)]
    assert got.count == array.size
    assert got.nan_count == np.isnan(numbers).sum()
    assert got.posinf_count == np.isposinf(numbers).sum()
    assert got.neginf_count == np.isneginf(numbers).sum()
    assert got.finite_count == finite.size
    assert got.zero_count == (numbers == 0).sum()
    if usable.size:
        assert got.min == usable.min() and got.max == usable.max()
    if finite.size:
        scale = np.abs(finite).max()
        assert got.mean == pytest.approx(finite.mean(), abs=1e-11 * scale)
        assert got.variance == pytest.approx(finite.var(), rel=1e-9, abs=1e-13 * scale**2)
    else:
        assert np.isnan(got.mean) and np.isnan(got.std)


@anyone
@given(case=views())
def test_stats_of_any_view_agree_with_numpy(device: str, case: Any) -> None:
    name, shape, key, transposed, seed = case
    array = elements(np.random.default_rng(seed), shape, name)
    x = gf.to_device(array, device=device)[key]
    check_stats((x.T if transposed else x).stats(), array[key])


@pytest.mark.parametrize("name", DTYPES)
def test_stats_of_each_dtype_agree_with_numpy(device: str, name: str) -> None:
    array = elements(np.random.default_rng(8), (70, 999), name)
    check_stats(gf.to_device(array, device=device).stats(), array)
    check_stats(gf.stats(array), array)


def test_64_bit_extremes_are_exact(device: str) -> None:
    array = np.array([2**63 - 1, 2**63 - 2, -(2**63), 5])
    got = gf.to_device(array, device=device).stats()
    assert (got.min, got.max) == (-(2**63), 2**63 - 1)
    unsigned = gf.to_device(np.array([2**64 - 1, 2**63 + 1], np.uint64), device=device)
    assert (unsigned.stats().min, unsigned.stats().max) == (2**63 + 1, 2**64 - 1)


def check_histogram(got: gf.Histogram, array: npt.NDArray[Any], bins: int, limits: Any) -> None:
    numbers = as_float64(array).ravel()
    finite = numbers[np.isfinite(numbers)]
    counts, edges = np.histogram(finite, bins, limits)
    assert got.counts.dtype == np.uint64 and got.edges.dtype == np.float64
    np.testing.assert_array_equal(got.edges, edges)
    np.testing.assert_array_equal(got.counts, counts)
    assert got.nan_count == np.isnan(numbers).sum()
    assert got.under_count == (numbers < edges[0]).sum()
    assert got.over_count == (numbers > edges[-1]).sum()


@anyone
@given(
    case=views().filter(lambda case: case[0] in ("float32", "float64", "int8", "uint16", "int32")),
    bins=st.sampled_from([1, 2, 10, 64, 257, 5000]),
    limits=st.sampled_from([None, (0.0, 5.0), (-1.0, 1.0), (2.0, 2.0), (-3, 120)]),
)
def test_histogram_of_any_view_counts_as_numpy(
    device: str, case: Any, bins: int, limits: Any
) -> None:
    name, shape, key, transposed, seed = case
    array = elements(np.random.default_rng(seed), shape, name)
    x = gf.to_device(array, device=device)[key]
    check_histogram((x.T if transposed else x).histogram(bins, limits), array[key], bins, limits)


def test_values_on_the_edges_fall_where_numpy_puts_them(device: str) -> None:
    edges = np.linspace(0.1, 0.7, 38)
    array = np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 1)])
    got = gf.to_device(array, device=device).histogram(37, (0.1, 0.7))
    check_histogram(got, array, 37, (0.1, 0.7))


def test_histogram_of_half_precision_counts_as_numpy(device: str) -> None:
    array = np.random.default_rng(3).normal(size=(64, 500)).astype(dtype_of("bfloat16"))
    check_histogram(gf.to_device(array, device=device).histogram(100), array, 100, None)


def test_a_lazy_array_is_reduced_on_its_device(device: str) -> None:
    array = elements(np.random.default_rng(5), (40, 60), "float32")
    lazy = gf.lazy(gf.to_device(array, device=device))
    check_stats(lazy.stats(), array)
    check_stats(gf.stats(lazy), array)
    check_cells(lazy.overview((5, 6)).values, array, (5, 6), "mean")
    check_histogram(lazy.histogram(9, (0.0, 4.0)), array, 9, (0.0, 4.0))


def test_a_shape_beyond_the_tensor_is_the_tensors(device: str) -> None:
    array = elements(np.random.default_rng(6), (30, 5), "float32")
    x = gf.to_device(array, device=device)
    check_cells(x.overview((10, 1000)).values, array, (10, 5), "mean")
    assert x[:, 0].overview(4).values.shape == (4,)


def test_empty_tensors_reduce_to_nothing(device: str) -> None:
    x = gf.to_device(np.zeros((0, 3), np.float32), device=device)
    assert x.overview((4, 2)).values.shape == (0, 2)
    assert x.overview((0, 2)).values.shape == (0, 2)
    assert x.stats().count == 0 and np.isnan(x.stats().min)
    got = x.histogram(4)
    assert got.counts.sum() == 0 and got.edges[-1] == 1.0


def test_minmax_becomes_one_array_of_both(device: str) -> None:
    x = gf.to_device(np.arange(12.0), device=device)
    np.testing.assert_array_equal(np.asarray(x.overview(3, "minmax")), [[0, 4, 8], [3, 7, 11]])
    assert repr(x.overview(3, "minmax")) == "Overview(minmax of (12,) in (3,), dtype=float64)"


@pytest.mark.parametrize("method", METHODS)
def test_large_overviews_own_memory_of_the_pool(device: str, method: Any) -> None:
    array = np.random.default_rng(10).integers(-99, 99, (1200, 700)).astype(np.float64)
    x = gf.to_device(array, device=device)
    before = pool_used_nbytes()
    one, other = x.overview((1200, 350), method), x.overview((1200, 350), method)
    assert not np.shares_memory(one.values, other.values)
    assert gf.pool.stats()["used_nbytes"] >= before + one.values.nbytes + other.values.nbytes
    pairs = array.reshape(1200, 350, 2)
    expected = {
        "mean": pairs.mean(2),
        "rms": np.sqrt((pairs**2).mean(2)),
        "max": pairs.max(2),
        "first": pairs[..., 0],
    }.get(method, pairs.min(2))
    for got in (one, other):
        assert got.values.flags.c_contiguous and got.values.flags.writeable
        np.testing.assert_array_equal(got.values, expected)
        if got.high is not None:
            np.testing.assert_array_equal(got.high, pairs.max(2))
    del one, other, got
    assert gf.pool.stats()["used_nbytes"] <= before


def test_an_overview_over_the_cap_of_the_pool_is_pageable(device: str, pool_cap: int) -> None:
    array = np.random.default_rng(11).normal(size=(600, 1500)).astype(np.float32)
    x = gf.to_device(array, device=device)
    gf.pool.trim()
    gf.pool.cap_nbytes = 0
    np.testing.assert_array_equal(x.overview((600, 1500), "max").values, array)


def test_arguments_that_do_not_fit_are_refused(device: str) -> None:
    x = gf.to_device(np.ones((4, 4), np.float32), device=device)
    method: Any = "median"
    with pytest.raises(ValueError, match="median"):
        x.overview((2, 2), method)
    with pytest.raises(ValueError, match="2 axes"):
        x.overview((2,))
    with pytest.raises(ValueError, match=r"\(2, 0\), 0 cells along axis 1; give 1 or more"):
        x.overview((2, 0))
    with pytest.raises(ValueError, match="bins is 0"):
        x.histogram(0)
    with pytest.raises(ValueError, match="range"):
        x.histogram(4, (1.0, 0.0))
    with pytest.raises(ValueError, match="range"):
        x.histogram(4, (0.0, np.inf))
    with pytest.raises(TypeError, match=r"x\.real"):
        gf.to_device(np.ones(3, np.complex64), device=device).stats()
    with pytest.raises(TypeError, match=r"x\.real"):
        gf.overview(np.ones(3, np.complex128), 2)


def test_threads_reduce_at_once(device: str) -> None:
    array = elements(np.random.default_rng(9), (200, 300), "float32")
    x = gf.to_device(array, device=device)
    expected = x.stats()
    found: list[gf.Stats] = []

    def work() -> None:
        found.extend(x.stats() for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 60


@pytest.mark.parametrize("limits", [(0,), 3, ("a", 1), (10**400, 1), (0, 1, 2)])
def test_a_range_that_is_not_two_numbers_is_a_type_error(limits: Any) -> None:
    with pytest.raises(TypeError, match=r"range is .*: give two numbers, \(low, high\)"):
        gf.histogram(np.arange(3.0), 3, limits)


def test_a_device_whose_name_has_a_nul_is_refused() -> None:
    with pytest.raises(ValueError, match=r"device 'host:0\\x00x' is not understood"):
        gf.to_device([1.0], device="host:0\0x")
