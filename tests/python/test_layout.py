"""fetch's order= and dtype=: the layout and the values that NumPy and ml_dtypes give."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from arrays import CASTABLE, E8M0, Array, assert_same, pool_used_nbytes

import gpufetch as gf

SOURCES = [*CASTABLE, E8M0]
PAIRS = [(a, b) for a, b in itertools.product(SOURCES, CASTABLE) if a != b]


def views() -> dict[str, Array]:
    a = np.arange(7 * 5 * 6, dtype=np.float32).reshape(7, 5, 6)
    return {
        "C": a,
        "F": a.T,
        "permuted": a.transpose(1, 2, 0),
        "permuted and sliced": a.transpose(2, 0, 1)[::2, :, 1:],
        "reversed": a[::-1, :, ::-1],
        "one column": a[:, 1:2, 3],
        "vector": a[0, 0],
        "strided vector": a[0, ::2, 1],
        "scalar": a[1, 2, 3, ...],
        "empty": a[:, 3:3].T,
        "length 1": a[:1].transpose(2, 0, 1),
    }


@pytest.mark.parametrize("order", ["C", "F", "A", "K", "k"])
@pytest.mark.parametrize("view", views())
def test_order_is_as_in_numpy(device: str, view: str, order: Any) -> None:
    a = views()[view]
    base = gf.to_device(np.ascontiguousarray(views()["C"]), device=device)
    x = {
        "C": lambda: base,
        "F": lambda: base.T,
        "reversed": lambda: base[::-1, :, ::-1],
        "one column": lambda: base[:, 1:2, 3],
        "vector": lambda: base[0, 0],
        "strided vector": lambda: base[0, ::2, 1],
        "scalar": lambda: base[1, 2, 3, ...],
        "empty": lambda: base[:, 3:3].T,
    }.get(view, lambda: a)()
    expected = np.array(a, order=order)
    for result in (gf.fetch(x, order=order), gf.fetch_async(x, order=order).result()):
        assert result.shape == expected.shape
        assert result.flags.c_contiguous == expected.flags.c_contiguous
        assert result.flags.f_contiguous == expected.flags.f_contiguous
        if expected.size and 1 not in expected.shape:
            assert result.strides == expected.strides
        assert result.flags.writeable
        np.testing.assert_array_equal(result, expected)


def test_a_large_fortran_array_keeps_its_order(device: str) -> None:
    a = np.random.default_rng(1).random((1100, 1300), dtype=np.float32)
    x = gf.to_device(a, device=device).T
    result = gf.fetch(x, order="K")
    assert result.flags.f_contiguous and not result.flags.c_contiguous
    np.testing.assert_array_equal(result, a.T)
    np.testing.assert_array_equal(gf.fetch(x), a.T)


def samples(dtype: np.dtype[Any], target: np.dtype[Any]) -> Array:
    """Values that `target` can hold where it is an integer type; else every kind of value."""
    generator = np.random.default_rng(dtype.num * 100 + target.num)
    if dtype == np.bool_:
        return generator.integers(0, 2, 400).astype(np.bool_)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        spread = generator.integers(info.min, info.max, 4000, dtype, endpoint=True)
        shift = generator.integers(0, 8 * dtype.itemsize, 4000).astype(dtype)
        return np.concatenate([spread, spread >> shift, np.array([info.min, info.max], dtype)])
    bits = np.dtype(f"u{dtype.itemsize}")
    if dtype.itemsize <= 2:
        a = np.arange(1 << (8 * dtype.itemsize), dtype=np.uint32).astype(bits).view(dtype)
    else:
        exponents = generator.uniform(-60, 60, 20000)
        near = (generator.standard_normal(20000) * 2.0**exponents).astype(dtype)
        wild = generator.integers(0, np.iinfo(bits).max, 20000, bits).view(dtype)
        ties = (np.arange(-2048, 2048) / 64.0).astype(dtype)
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 65519.99, 65520], dtype)
        a = np.concatenate([near, wild, ties, special])
    if target.kind in "iu":
        wide = a.astype(np.float64)
        info = np.iinfo(target)
        a = a[(wide > max(float(info.min) - 1, -(2.0**63))) & (wide < float(info.max))]
    return a


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy: overflow and NaN in a cast
@pytest.mark.parametrize(("dtype", "target"), PAIRS, ids=str)
def test_a_cast_agrees_with_astype_bit_for_bit(
    device: str, dtype: np.dtype[Any], target: np.dtype[Any]
) -> None:
    a = samples(dtype, target)
    # ml_dtypes has no cast between some pairs of its types; float32 holds every value of both.
    expected = (a.astype(np.float32) if dtype == E8M0 else a).astype(target)
    result = gf.fetch(gf.to_device(a, device=device), dtype=target)
    assert result.dtype == target
    if target.kind not in "?iu":  # a NaN stays one; its payload is not kept
        was_nan = np.isnan(expected.astype(np.float64))
        assert (np.isnan(result.astype(np.float64)) == was_nan).all()
        expected, result = expected[~was_nan], result[~was_nan]
    same = expected.view(np.uint8) == result.view(np.uint8)
    wrong = np.flatnonzero(~same.reshape(len(expected), -1).all(axis=1))
    assert wrong.size == 0, (a[~was_nan] if target.kind not in "?iu" else a)[wrong[:5]]


def test_a_view_is_cast_in_any_order_and_into_out(device: str) -> None:
    a = np.random.default_rng(3).standard_normal((300, 40, 70)).astype(np.float32)
    view = gf.to_device(a, device=device)[::-1, 1::3].T
    expected = a[::-1, 1::3].T.astype(np.float16)
    np.testing.assert_array_equal(gf.fetch(view, dtype="f2"), expected)
    kept = gf.fetch(view, dtype=np.float16, order="K")
    assert kept.flags.f_contiguous
    np.testing.assert_array_equal(kept, expected)
    out = np.zeros(expected.shape, np.float16, order="F")
    assert gf.fetch(view, dtype=np.float16, out=out) is out
    np.testing.assert_array_equal(out, expected)
    assert gf.fetch_async(view, dtype=np.float64).result().dtype == np.float64
    np.testing.assert_array_equal(gf.fetch(a, dtype=np.float16), a.astype(np.float16))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("dtype", "target"), PAIRS, ids=str)
def test_an_upload_casts_as_a_fetch_does(
    device: str, dtype: np.dtype[Any], target: np.dtype[Any]
) -> None:
    a = samples(dtype, target)
    for source in (a, gf.fetch(gf.to_device(a, device=device))[::-1]):  # pageable, page-locked
        x = gf.to_device(source, device=device, dtype=target)
        assert x.dtype == target
        assert_same(gf.fetch(x), gf.fetch(gf.to_device(source, device=device), dtype=target))


def test_a_large_view_is_cast_on_its_way_to_a_device(device: str) -> None:
    a = np.random.default_rng(3).standard_normal((300, 40, 170)).astype(np.float32)
    view = a[::-1, 1::3].T
    for dtype in ("f2", "f8"):
        assert_same(gf.fetch(gf.to_device(view, device=device, dtype=dtype)), view.astype(dtype))
    like = gf.to_device(np.zeros(1), device=device)
    assert gf.to_device(a, like=like, dtype="f2").dtype == np.float16
    assert gf.to_device(a, like=a, dtype="f2").dtype == np.float16
    assert gf.to_device(np.zeros((0, 3)), device=device, dtype="f4").shape == (0, 3)


def test_an_upload_that_cannot_be_cast_is_refused(device: str) -> None:
    with pytest.raises(TypeError, match="complex64 to float32"):
        gf.to_device(np.ones(3, np.complex64), device=device, dtype=np.float32)
    with pytest.raises(TypeError, match="float8_e8m0fnu"):
        gf.to_device(np.ones(3), device=device, dtype=E8M0)
    with pytest.raises(TypeError, match="not supported"):
        gf.to_device(np.ones(3), device=device, dtype="U3")


def test_the_tensors_own_dtype_is_no_cast(device: str) -> None:
    a = np.array([0x7F800001, 0x7FC12345], np.uint32).view(np.float32)  # NaNs with payloads
    x = gf.to_device(a, device=device)
    assert gf.fetch(x, dtype=np.float32).tobytes() == a.tobytes()
    z = gf.to_device(np.array([1 + 2j]), device=device)
    assert gf.fetch(z, dtype=np.complex128)[0] == 1 + 2j


def test_what_cannot_be_cast_or_ordered_is_refused(device: str) -> None:
    x = gf.to_device(np.ones((3, 4), np.float32), device=device)
    z = gf.to_device(np.ones(3, np.complex64), device=device)
    used = pool_used_nbytes()
    with pytest.raises(TypeError, match="complex64 to float32"):
        gf.fetch(z, dtype=np.float32)
    with pytest.raises(TypeError, match="float8_e8m0fnu"):
        gf.fetch_async(x, dtype=E8M0)
    with pytest.raises(TypeError):
        gf.fetch(x, dtype="no such type")
    with pytest.raises(TypeError, match="not supported"):
        gf.fetch(x, dtype="U3")
    with pytest.raises(ValueError, match="order is 'X'; it must be \"C\""):
        gf.fetch(x, order="X")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="order is 3"):
        gf.fetch(x, order=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="leave order out"):
        gf.fetch(x, out=np.empty((3, 4), np.float32), order="C")
    with pytest.raises(ValueError, match="out has dtype float64, but dtype is float16"):
        gf.fetch(x, out=np.empty((3, 4)), dtype=np.float16)
    with pytest.raises(ValueError, match="out has dtype float16, but the tensor has dtype float32"):
        gf.fetch(x, out=np.empty((3, 4), np.float16))
    assert gf.pool.stats()["used_nbytes"] == used
