"""What NumPy's functions and methods do with a LazyArray and with a DeviceArray.

The tables below list each function by what it does; every other function that NumPy lets types
override computes with the elements. So a function that changes its kind, here or in NumPy, fails.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import io
import operator
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from numpy.testing.overrides import (
    get_overridable_numpy_array_functions,
    get_overridable_numpy_ufuncs,
)
from pulling import Traffic

import gpufetch as gf

Array = npt.NDArray[Any]
Call = Callable[[Any], Any]

# --- The tables -------------------------------------------------------------------------------

# A view of the kind of the argument: no transfer, of a whole tensor either.
VIEWS: dict[str, Call] = {
    "transpose": lambda a: np.transpose(a, (1, 2, 0)),
    "permute_dims": lambda a: np.permute_dims(a, (2, 0, 1)),
    "matrix_transpose": lambda a: np.matrix_transpose(a),
    "reshape": lambda a: np.reshape(a, (8, -1)),
    "ravel": lambda a: np.ravel(a),
    "squeeze": lambda a: np.squeeze(a),
    "moveaxis": lambda a: np.moveaxis(a, [0, 2], [1, -3]),
    "swapaxes": lambda a: np.swapaxes(a, 0, -1),
    "rollaxis": lambda a: np.rollaxis(a, 2),
    "expand_dims": lambda a: np.expand_dims(a, (0, -1)),
    "flip": lambda a: np.flip(a, (0, 2)),
    "fliplr": lambda a: np.fliplr(a),
    "flipud": lambda a: np.flipud(a),
    "rot90": lambda a: np.rot90(a, 3, (1, 2)),
    "atleast_1d": lambda a: np.atleast_1d(a),
    "atleast_2d": lambda a: np.atleast_2d(a),
    "atleast_3d": lambda a: np.atleast_3d(a),
    "real": lambda a: np.real(a),
    "array_split": lambda a: np.array_split(a, 3, 2),
    "split": lambda a: np.split(a, 2),
    "hsplit": lambda a: np.hsplit(a, [1]),
    "vsplit": lambda a: np.vsplit(a, 2),
    "dsplit": lambda a: np.dsplit(a, [2, 3]),
    "unstack": lambda a: np.unstack(a, axis=1),
    "take": lambda a: np.take(a, 1, axis=2),
}
# NumPy uses a method of a DeviceArray for these, and copies it to the host for the other views.
DEVICE_VIEWS = {
    *("transpose", "permute_dims", "reshape", "squeeze", "moveaxis", "swapaxes", "rollaxis"),
    *("flip", "array_split", "split", "hsplit", "vsplit", "dsplit", "unstack"),
}

# An answer from shape and dtype.
FACTS: dict[str, Call] = {
    "shape": np.shape,
    "ndim": np.ndim,
    "size": lambda a: np.size(a, 1),
    "iscomplexobj": np.iscomplexobj,
    "isrealobj": np.isrealobj,
    "result_type": lambda a: np.result_type(a, np.complex64),
    "can_cast": lambda a: np.can_cast(a.dtype, np.float64),
    "common_type": np.common_type,
    "empty_like": lambda a: np.empty_like(a).shape,
    "zeros_like": np.zeros_like,
    "ones_like": lambda a: np.ones_like(a, dtype=np.int8),
    "full_like": lambda a: np.full_like(a, 3),
    "diag_indices_from": lambda a: np.diag_indices_from(a[:, :2, :2][:2]),
    "tril_indices_from": lambda a: np.tril_indices_from(a[0]),
    "triu_indices_from": lambda a: np.triu_indices_from(a[0]),
}
DEVICE_FACTS = {"shape", "ndim", "size", "iscomplexobj", "isrealobj", "can_cast"}


def written(save: Callable[[Any], object]) -> Any:
    file = io.BytesIO()
    save(file)
    return file.getvalue()


def saved_as_npz(save: Any, a: Any) -> Any:
    file = io.BytesIO()
    save(file, a, b=a)
    file.seek(0)
    with np.load(file) as loaded:
        return [loaded["arr_0"], loaded["b"]]


def copied_to(a: Any) -> Array:
    target = np.empty(a.shape, a.dtype)
    np.copyto(target, a)
    return target


# A copy of all elements, which is what the function is for: up to max_fetch_nbytes.
COPIES: dict[str, Call] = {
    "copy": np.copy,
    "copyto": copied_to,
    "save": lambda a: written(lambda file: np.save(file, a)),
    "savez": lambda a: saved_as_npz(np.savez, a),
    "savez_compressed": lambda a: saved_as_npz(np.savez_compressed, a),
    "savetxt": lambda a: written(lambda file: np.savetxt(file, a.reshape(-1, 4))),
    "asarray": np.asarray,
    "array": lambda a: np.array(a, dtype=np.float64),
    "asanyarray": np.asanyarray,
    "ascontiguousarray": np.ascontiguousarray,
}

# Functions that would write to the array.
WRITERS: dict[str, Call] = {
    "copyto (to)": lambda a: np.copyto(a, 1),
    "put": lambda a: np.put(a, 0, 1),
    "place": lambda a: np.place(a, np.ones(a.shape, bool), 1),
    "putmask": lambda a: np.putmask(a, np.ones(a.shape, bool), 1),
    "fill_diagonal": lambda a: np.fill_diagonal(a[:, :2, :2], 1),
    "put_along_axis": lambda a: np.put_along_axis(a, np.zeros((1, 1, 1), int), 1, 0),
    "add.at": lambda a: np.add.at(a, 0, 1),
    "add(out=)": lambda a: np.add(np.ones(a.shape), 1, out=a),
    "sum(out=)": lambda a: np.sum(np.ones((2, *a.shape)), axis=0, out=a),
    "x[...] = y": lambda a: operator.setitem(a, ..., 1),
    "x += y": lambda a: operator.iadd(a, 1),
    "x **= y": lambda a: operator.ipow(a, 2),
}

# A sample of the functions that compute, by their name and what replaces them on the device.
REDUCTIONS: dict[str, tuple[Call, str]] = {
    "mean": (np.mean, "a.stats().mean"),
    "nanmean": (np.nanmean, "a.stats().mean"),
    "mean(axis)": (lambda a: np.mean(a, axis=0), 'a.overview((1, 3, 4), "mean")'),
    "mean(axes)": (lambda a: np.mean(a, (0, -1)), 'a.overview((1, 3, 1), "mean")'),
    "min": (np.min, "a.stats().min"),
    "nanmin": (np.nanmin, "a.stats().min"),
    "amax": (np.amax, "a.stats().max"),
    "max(axis)": (lambda a: np.max(a, 1), 'a.overview((2, 1, 4), "max")'),
    "minimum.reduce": (
        lambda a: np.minimum.reduce(a, axis=None),
        "a.stats().min",
    ),
    "std": (np.std, "a.stats().std"),
    "nanvar": (np.nanvar, "a.stats().variance"),
    "sum": (np.sum, "a.stats().mean times .count"),
    "ptp": (np.ptp, "a.stats().max - a.stats().min"),
    "count_nonzero": (np.count_nonzero, "a.stats().zero_count"),
    "any": (np.any, "a.stats().zero_count"),
    "all": (np.all, "a.stats().zero_count"),
    "isnan": (np.isnan, "a.stats().nan_count"),
    "isfinite": (np.isfinite, "a.stats().finite_count"),
    "histogram": (np.histogram, "a.histogram(bins, range)"),
    "median": (np.median, "a.histogram(bins)"),
    "quantile": (lambda a: np.quantile(a, 0.5), "a.histogram(bins)"),
}
COMPUTING: dict[str, Call] = {
    **{name: call for name, (call, _) in REDUCTIONS.items()},
    "sort": np.sort,
    "argmax": np.argmax,
    "cumsum": np.cumsum,
    "diff": np.diff,
    "clip": lambda a: np.clip(a, 0, 1),
    "where": lambda a: np.where(a > 0, a, -a),
    "concatenate": lambda a: np.concatenate([a, a], axis=1),
    "stack": lambda a: np.stack((a, a)),
    "einsum": lambda a: np.einsum("ijk->k", a),
    "dot": lambda a: np.dot(a, np.ones(4)),
    "linalg.norm": np.linalg.norm,
    "broadcast_to": lambda a: np.broadcast_to(a, (2, 2, 3, 4)),
    "diagonal": np.diagonal,
    "tile": lambda a: np.tile(a, 2),
    "pad": lambda a: np.pad(a, 1),
    "roll": lambda a: np.roll(a, 1),
    "array_equal": lambda a: np.array_equal(a, a),
    "allclose": lambda a: np.allclose(a, 1),
    "nonzero": np.nonzero,
    "take(array)": lambda a: np.take(a, [5, 1], mode="wrap"),
    "sin": np.sin,
    "isfinite.reduce": lambda a: np.logical_and.reduce(a > 0),
    "add.accumulate": np.add.accumulate,
    "modf": np.modf,
    "x + 1": lambda a: a + 1,
    "1 + x": lambda a: 1 + a,
    "x + array": lambda a: a + np.ones(4),
    "array + x": lambda a: np.ones(4) + a,
    "x - x": lambda a: a - a,
    "x * 2": lambda a: a * 2,
    "x / 2": lambda a: a / 2,
    "x // 2": lambda a: a // 2,
    "x % 2": lambda a: a % 2,
    "divmod": lambda a: divmod(a, 2),
    "rdivmod": lambda a: divmod(2, a + 10),
    "x ** 2": lambda a: a**2,
    "2 ** x": lambda a: 2**a,
    "x @ y": lambda a: a @ np.ones(4),
    "y @ x": lambda a: np.ones(3) @ a,
    "-x": lambda a: -a,
    "+x": lambda a: +a,
    "abs": abs,
    "x == 1": lambda a: a == 1,
    "x == None": lambda a: a == None,  # noqa: E711
    "x == text": lambda a: a == "text",
    "x != x": lambda a: a != a,
    "x < 1": lambda a: a < 1,
    "1 <= x": lambda a: 1 <= a,  # noqa: SIM300
    "x > x": lambda a: a > a,
    "x >= 0": lambda a: a >= 0,
}

# Attributes of ndarray: those that both have, LazyArray alone, and DeviceArray alone.
BOTH_HAVE = {
    *("T", "dtype", "nbytes", "ndim", "ravel", "reshape", "shape", "size", "squeeze", "swapaxes"),
    "transpose",
}
LAZY_ARRAY_HAS = {"astype", "item", "tolist"}
DEVICE_ARRAY_HAS = {"device", "strides"}

# --- What they do -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def x() -> Array:
    return np.random.default_rng(5).normal(size=(2, 3, 4))


@pytest.fixture
def lazy(x: Array) -> gf.LazyArray:
    return gf.lazy(gf.to_device(x))


@pytest.fixture
def device_array(x: Array) -> gf.DeviceArray:
    return gf.to_device(x)


@contextlib.contextmanager
def no_copies() -> Iterator[None]:
    """Let every copy from the device fail meanwhile, however it is started."""
    gf._core._host_faults(copy_fail_after_nbytes=0)
    try:
        yield
    finally:
        gf._core._host_faults()


def flattened(value: Any) -> list[Any]:
    return (
        [part for item in value for part in flattened(item)]
        if isinstance(value, list | tuple)
        else [value]
    )


def assert_equal(actual: Any, expected: Any) -> None:
    """Check for NumPy's result: its type, dtype, shape and bits."""
    for found, wanted in zip(flattened(actual), flattened(expected), strict=True):
        assert type(found) is type(wanted)
        if isinstance(wanted, np.ndarray):
            assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
            assert found.tobytes() == wanted.tobytes()
        else:
            assert found == wanted or (found != found and wanted != wanted)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_costs_no_transfer_and_has_numpys_elements(
    x: Array, lazy: gf.LazyArray, device_array: gf.DeviceArray, name: str
) -> None:
    if not hasattr(np, name):
        pytest.skip(f"this NumPy has no {name}")
    expected = flattened(VIEWS[name](x))
    with no_copies():
        views = flattened(VIEWS[name](lazy))
    for view, values in zip(views, expected, strict=True):
        assert isinstance(view, gf.LazyArray)
        assert_equal(view.fetch(), np.ascontiguousarray(values))
    if name in DEVICE_VIEWS:
        with no_copies():
            views = flattened(VIEWS[name](device_array))
        assert all(isinstance(view, gf.DeviceArray) for view in views)
        assert_equal([gf.fetch(view) for view in views], list(map(np.ascontiguousarray, expected)))
    else:
        assert_equal(flattened(VIEWS[name](device_array)), expected)


@pytest.mark.parametrize("name", FACTS)
def test_a_fact_costs_no_transfer(
    x: Array, lazy: gf.LazyArray, device_array: gf.DeviceArray, name: str
) -> None:
    expected = FACTS[name](x)
    with no_copies():
        assert_equal(FACTS[name](lazy), expected)
    with no_copies() if name in DEVICE_FACTS else contextlib.nullcontext():
        assert_equal(FACTS[name](device_array), expected)


@pytest.mark.parametrize("name", COPIES)
def test_what_asks_for_a_copy_gets_one_up_to_the_limit(
    x: Array, lazy: gf.LazyArray, device_array: gf.DeviceArray, name: str
) -> None:
    expected = COPIES[name](x)
    assert_equal(COPIES[name](lazy), expected)
    assert_equal(COPIES[name](lazy[...]), expected)
    assert_equal(COPIES[name](device_array), expected)
    bounded = gf.LazyArray(lazy, max_fetch_nbytes=8)
    with no_copies(), pytest.raises(ValueError, match=r"192 B.*max_fetch_nbytes.*iter_chunks\(\)"):
        COPIES[name](bounded)


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_written_to_them(
    x: Array, lazy: gf.LazyArray, device_array: gf.DeviceArray, name: str
) -> None:
    for array in (lazy, lazy[...], device_array):
        with pytest.raises((TypeError, AttributeError)):
            WRITERS[name](array)
    assert_equal(lazy.fetch(), x)


@pytest.mark.parametrize("name", COMPUTING)
def test_what_computes_gives_numpys_result_or_is_refused(
    x: Array, lazy: gf.LazyArray, device_array: gf.DeviceArray, name: str
) -> None:
    compute = COMPUTING[name]
    expected = compute(x)
    assert_equal(compute(lazy[...]), expected)
    assert_equal(compute(device_array), expected)
    remedy = r"index what it needs \(a\[\.\.\.\] for everything\), pull it with fetch\(\)"
    kind = ValueError if name.startswith(("x ==", "x !=")) else TypeError
    with no_copies(), pytest.raises(kind, match=f"does not pull a whole LazyArray.*{remedy}"):
        compute(lazy)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_refusal_names_what_the_device_computes_instead(lazy: gf.LazyArray, name: str) -> None:
    compute, remedy = REDUCTIONS[name]
    with pytest.raises(TypeError) as refused:
        compute(lazy)
    assert remedy in str(refused.value)
    assert "is computed on the device" in str(refused.value)


def test_the_remedies_are_what_they_say(x: Array, lazy: gf.LazyArray) -> None:
    assert lazy.overview((1, 3, 4), "mean").values[0] == pytest.approx(np.mean(x, axis=0))
    assert_equal(lazy.overview((2, 1, 4), "max").values[:, 0], np.max(x, 1))
    stats = lazy.stats()
    assert stats.mean * stats.count == pytest.approx(np.sum(x))
    assert stats.max - stats.min == np.ptp(x)
    for name in ("mean", "std", "var", "min", "max", "sum", "any", "all"):
        for array in (lazy, gf.asdevice(lazy)):
            with pytest.raises(AttributeError, match=rf"has no {name}: stats\(\)\..*fetch\("):
                getattr(array, name)


def test_arrays_are_found_in_every_sequence(x: Array, lazy: gf.LazyArray) -> None:
    pair = collections.namedtuple("pair", "first second")
    containers: list[Callable[[Any, Any], Any]] = [
        lambda *arrays: collections.deque(arrays),
        pair,
        lambda *arrays: type("Arrays", (list,), {})(arrays),
        lambda *arrays: collections.UserList(arrays),
    ]
    for container in containers:
        for function in (np.concatenate, np.stack, np.vstack, np.lexsort):
            found = function(container(lazy[0], lazy[1]))
            np.testing.assert_array_equal(found, function(container(x[0], x[1])))
        with pytest.raises(TypeError, match="does not pull a whole"):
            np.concatenate(container(lazy, lazy))
    objects = np.empty(2, object)
    objects[:] = [lazy[0], lazy[1]]
    for odd in (objects, {0: lazy[0], 1: lazy[1]}.values()):
        with pytest.raises(TypeError, match="give a list of arrays"):
            np.concatenate(odd)  # type: ignore[call-overload, arg-type]
    assert len(np.array_split([1, 2, 3, 4], gf.lazy(np.array(2))[...])) == 2


def test_what_a_function_fills_sizes_or_splits_by_is_read(x: Array, lazy: gf.LazyArray) -> None:
    """Its first argument gives shape and dtype alone; the others are values."""
    calls: list[Call] = [
        lambda a: np.full_like(a, a[1, 2]),
        lambda a: np.full_like(a, fill_value=a[0, 0, 0]),
        lambda a: np.full_like(a=a, fill_value=a[0]),
        lambda a: np.zeros_like(a, shape=[gf.lazy(np.array(2))[...], 3]),
        lambda a: np.size(a, gf.lazy(np.array(1))[...]),
        lambda a: np.min_scalar_type(a[0, 0, 0] if a is x else a[0, 0, 0, ...]),
        lambda a: np.min_scalar_type(a),
        lambda a: np.tril_indices_from(a[0], gf.lazy(np.array(1))[...]),
        lambda a: np.asarray(np.split(a, np.array(2), axis=2)[1]),
    ]
    for number, call in enumerate(calls):
        np.testing.assert_equal(call(lazy), call(x), err_msg=str(number))
    big = gf.lazy(gf.to_device(np.array(300), device="host:0"))
    assert np.min_scalar_type(big[...]) == np.uint16
    with pytest.raises(ValueError, match="has not 3 equal parts"):
        np.split(lazy, np.array(3), axis=2)
    with pytest.raises(TypeError, match=r"np\.full_like does not pull a whole"):
        np.full_like(lazy, lazy)


# What NumPy casts by the rule "safe", and so refuses of an ndarray of floats or complex numbers.
REFUSED_CASTS: dict[str, Call] = {
    "take": lambda f: np.take([10, 20, 30], f),
    "repeat": lambda f: np.repeat([1, 2], f),
    "bincount_weights": lambda f: np.bincount([0, 1], weights=f * 1j),
    "put": lambda f: np.put(np.zeros(4), f, 9),
    "interp": lambda f: np.interp(f * 1j, [0, 3], [0, 3]),
    "putmask": lambda f: np.putmask(np.zeros(2), [True, True], f * 1j),
    "reduceat": lambda f: np.add.reduceat(np.arange(5), f),
    "binomial": lambda f: np.random.default_rng(1).binomial(f, 0.5),
    "busday_offset": lambda f: np.busday_offset("2020-01-01", f),
    "putmask_narrow": lambda f: np.putmask(np.zeros(2, np.float32), [True, True], f),
    "place_narrow": lambda f: np.place(np.zeros(2, np.float32), [True, True], f),
}


@pytest.mark.parametrize("name", REFUSED_CASTS)
def test_what_numpy_does_not_cast_is_not_cast(name: str) -> None:
    f = np.array([1.7, 2.2])
    device_array = gf.to_device(f, device="host:0")
    for values in (f, device_array, gf.lazy(device_array)[...]):
        with pytest.raises(TypeError):
            REFUSED_CASTS[name](values)


def test_what_numpy_casts_by_force_is_cast() -> None:
    f = np.array([1.7, 2.2])
    device_array = gf.to_device(f, device="host:0")
    for values in (device_array, gf.lazy(device_array)[...]):
        assert np.array(values, int).tolist() == [1, 2]
        assert np.asarray(values, "f2").tolist() == f.astype("f2").tolist()
        filled = np.zeros(2, np.uint8)
        filled[:] = values
        assert filled.tolist() == [1, 2]


def test_a_lazy_array_is_made_like_none(lazy: gf.LazyArray) -> None:
    with pytest.raises(TypeError, match="like="):
        np.zeros(3, like=lazy)  # type: ignore[call-overload]


def test_every_other_function_of_numpy_refuses_a_whole_tensor(lazy: gf.LazyArray) -> None:
    listed = {getattr(np, name, None) for name in (*VIEWS, *FACTS, *COPIES)}
    functions = get_overridable_numpy_array_functions() - listed - {np.min_scalar_type}
    assert len(functions) > 200
    with no_copies():
        for function in functions:
            with pytest.raises(TypeError, match=r"does not pull a whole|cannot write into"):
                lazy.__array_function__(function, (gf.LazyArray,), (lazy,), {})
        for ufunc in get_overridable_numpy_ufuncs():
            with pytest.raises((TypeError, ValueError), match="does not pull a whole"):
                lazy.__array_ufunc__(ufunc, "__call__", lazy)


def test_what_a_function_writes_into_a_pulled_copy_is_not_lost_in_silence(
    x: Array, lazy: gf.LazyArray
) -> None:
    view = lazy[...]
    with pytest.raises(ValueError, match="read-only"):
        np.nan_to_num(view, copy=False)
    with pytest.raises(ValueError, match="read-only"):
        np.cumsum(x.reshape(-1), None, None, view.ravel())
    result = np.diff(view)
    result[...] = 0  # a result is the caller's
    real = np.imag(gf.lazy(gf.to_device(x + 1j))[...])
    real[...] = 0
    assert_equal(lazy.fetch(), x)


def test_attributes_of_ndarray_are_had_by_both_or_listed(
    lazy: gf.LazyArray, device_array: gf.DeviceArray
) -> None:
    names = {name for name in dir(np.ndarray) if not name.startswith("_")} | {"device"}
    have = {array: {n for n in names if hasattr(array, n)} for array in ("lazy", "device")}
    have = {
        "lazy": {name for name in names if hasattr(lazy, name)},
        "device": {name for name in names if hasattr(device_array, name)},
    }
    assert have["lazy"] & have["device"] - {"device"} == BOTH_HAVE
    assert have["lazy"] - have["device"] == LAZY_ARRAY_HAS
    assert have["device"] - have["lazy"] == DEVICE_ARRAY_HAS - {"device"}
    for name in names - have["lazy"] - have["device"]:
        for array in (lazy, device_array):
            with pytest.raises(AttributeError, match=rf"has no {name}: .*fetch\("):
                getattr(array, name)
    for array in (lazy, device_array):
        with pytest.raises(AttributeError, match="no attribute nonsense"):
            _ = array.nonsense  # type: ignore[union-attr]
        with pytest.raises(TypeError, match="unhashable"):
            hash(array)


def test_copies_and_pickles(x: Array, lazy: gf.LazyArray, device_array: gf.DeviceArray) -> None:
    shallow = copy.copy(lazy)
    assert isinstance(shallow, gf.LazyArray) and shallow.source is lazy.source
    for made in (copy.deepcopy(lazy), pickle.loads(pickle.dumps(lazy))):
        assert_equal(made, x)
        made[...] = 0
    assert_equal(copy.deepcopy([lazy[0]]), [x[0]])
    assert_equal(lazy.fetch(), x)
    bounded = gf.LazyArray(lazy, max_fetch_nbytes=8)
    for refused in (copy.deepcopy, pickle.dumps):
        with pytest.raises(ValueError, match="max_fetch_nbytes"):
            refused(bounded)
    for refused in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"cannot be pickled or copied.*fetch\(x\).*share\(x\)"):
            refused(device_array)


def test_membership_is_numpys_or_refused(x: Array, lazy: gf.LazyArray) -> None:
    assert (x[0, 1, 2] in lazy[...]) is True
    assert (100.0 in lazy[...]) is False
    with no_copies(), pytest.raises(TypeError, match="in does not pull a whole LazyArray"):
        assert 1.0 in lazy
    for a in (x, x[0], x[0, 0, 0], np.zeros((0, 3)), x > 0):
        d = gf.to_device(a)
        for value in (x[0, 0, 0], 1.0, True, a.reshape(-1)[:1], d):
            expected = outcome(lambda a: value in a, np.asarray(a))  # noqa: B023
            found = outcome(lambda d: value in d, d)  # noqa: B023
            assert type(found) is type(expected), (found, expected)
            assert isinstance(expected, Exception) or found == expected


NUMBERS_OF_PYTHON: tuple[Call, ...] = (bool, int, float, complex, operator.index)


@pytest.mark.parametrize("convert", NUMBERS_OF_PYTHON)
@pytest.mark.filterwarnings("ignore")
def test_one_element_is_a_number_as_in_numpy(convert: Call) -> None:
    for dtype in (*OPERATOR_DTYPES, np.dtype(np.uint64)):
        for shape in ((), (1,), (1, 1), (0,), (2,), (2, 0), (3, 2)):
            for value in (0, 1, 77, 0.5, np.nan, 3 - 2j):
                a = np.full(shape, value).astype(dtype)
                expected = outcome(convert, a)
                d = gf.to_device(a)
                arrays = (d, gf.lazy(d), gf.lazy(d)[...])
                with no_copies() if a.size != 1 else contextlib.nullcontext():
                    found = [outcome(convert, array) for array in arrays]
                for one in found:
                    assert type(one) is type(expected), (dtype, shape, value, one, expected)
                    if isinstance(expected, Exception):
                        assert a.size == 1 or "Array" in str(one)
                    else:
                        assert one == expected or (one != one and expected != expected)


def test_an_axis_that_is_named_twice_or_is_not_there(x: Array) -> None:
    d = gf.to_device(x)
    scalar = gf.to_device(np.float32(3))
    for array in (d, gf.lazy(d)):
        with pytest.raises(ValueError, match=r"axes \(0, 1, -3\) name axis 0 twice"):
            array.transpose(0, 1, -3)
        with pytest.raises(ValueError, match=r"axes \(0, 0\) name axis 0 twice"):
            array[:1].squeeze((0, 0))
    for array in (scalar, gf.lazy(scalar)):
        for axis in (0, -1, None):
            assert array.squeeze(axis).shape == np.squeeze(array, axis).shape == ()
        for axis in (1, -2, (0,)):
            with pytest.raises(np.exceptions.AxisError):
                array.squeeze(axis)
            with pytest.raises(np.exceptions.AxisError):
                np.float32(3).squeeze(axis)


@pytest.mark.parametrize(
    ("key", "dtype"), [(np.array([1.5]), "float64"), ([0.5], "float64"), (["a"], "<U1")]
)
def test_an_index_array_of_another_dtype_is_refused_by_its_dtype(
    x: Array, lazy: gf.LazyArray, key: Any, dtype: str
) -> None:
    with pytest.raises(IndexError):
        x[key]
    with pytest.raises(IndexError, match=rf"has dtype {dtype}: use integers"):
        lazy[key]


def test_a_mask_without_elements_fits_any_axis_as_in_numpy(x: Array, lazy: gf.LazyArray) -> None:
    for shape in ((0,), (2, 0), (0, 0), (0, 3)):
        for key in (np.zeros(shape, bool), (0, np.zeros(shape, bool))):
            expected, found = (outcome(lambda a: a[key], a) for a in (x, lazy))  # noqa: B023
            assert_same_outcome(found, expected, (shape, key))
    with pytest.raises(IndexError, match="does not fit axis 0 of length 2"):
        lazy[np.zeros((3, 0), bool)]


# --- Operators --------------------------------------------------------------------------------

BINARY: tuple[Callable[[Any, Any], Any], ...] = (
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod),
    *(divmod, operator.pow, operator.matmul, operator.lshift, operator.rshift),
    *(operator.and_, operator.or_, operator.xor),
    *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
)
UNARY: tuple[Call, ...] = (operator.neg, operator.pos, abs, operator.invert)
IN_PLACE: tuple[Callable[[Any, Any], Any], ...] = (
    *(operator.iadd, operator.isub, operator.imul, operator.imatmul, operator.itruediv),
    *(operator.ifloordiv, operator.imod, operator.ipow, operator.ilshift, operator.irshift),
    *(operator.iand, operator.ior, operator.ixor),
)
OPERATOR_DTYPES = [
    np.dtype(t) for t in ("?", "i1", "u2", "i4", "i8", "f2", "f4", "f8", "c8", "c16")
]
OPERATOR_DTYPES.append(np.dtype(ml_dtypes.bfloat16))
# NumPy has fast paths for some exponents, which give other dtypes and last bits than numpy.power.
NUMBERS = (2, 0.5, -1, 0, 1, 2.0, 3, True, 1j, np.float32(2), np.int8(2), "text", None)


def random_operand(rng: np.random.Generator, dtype: np.dtype[Any]) -> Array:
    """99 elements of every magnitude; and a last axis as long as the first, for `@`."""
    magnitudes = np.round(10 ** rng.uniform(-30, 30, (33, 33)), 3)
    values = rng.normal(size=(33, 33)) * np.where(rng.random((33, 33)) < 0.5, magnitudes, 4)
    if dtype.kind == "c":
        values = values * (1 + 1j * rng.normal(size=values.shape))
    return values.astype(dtype)


def assert_same_outcome(found: Any, expected: Any, story: Any) -> None:
    """Check for the same type of exception, or bit for bit the same result."""
    if isinstance(expected, Exception):
        assert type(found) is type(expected), (story, found, expected)
        return
    for one, other in zip(flattened(found), flattened(expected), strict=True):
        assert type(one) is type(other), (story, found)
        if isinstance(other, np.ndarray | np.generic):
            assert (one.dtype, one.shape) == (other.dtype, other.shape), story
            assert one.tobytes() == other.tobytes(), story
        else:
            assert one == other, story


@pytest.mark.parametrize("dtype", OPERATOR_DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_operators_are_those_of_ndarray_bit_for_bit(dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(dtype.num)
    a = random_operand(rng, dtype)
    other = random_operand(rng, OPERATOR_DTYPES[rng.integers(len(OPERATOR_DTYPES))])
    d = gf.to_device(a)
    for x in (gf.lazy(d)[...], d):
        for unary in UNARY:
            expected = outcome(unary, a)
            assert_same_outcome(outcome(unary, x), expected, (type(x), unary))
        for binary in BINARY:
            for y in (*NUMBERS, other, a.tolist(), a[0, 0]):
                story = (type(x), dtype, binary, type(y), y)
                call, reflected = lambda a: binary(a, y), lambda a: binary(y, a)  # noqa: B023
                assert_same_outcome(outcome(call, x), outcome(call, a), story)
                assert_same_outcome(outcome(reflected, x), outcome(reflected, a), story)
            for y in (x, x[0], x[0, 0, ...]):
                values = values_of(y)
                found = outcome(lambda a: binary(a, y), x)  # noqa: B023
                expected = outcome(lambda a: binary(a, values), a)  # noqa: B023
                assert_same_outcome(found, expected, (type(x), dtype, binary, y))


@pytest.mark.parametrize("change", IN_PLACE)
def test_no_operator_writes_in_place(x: Array, change: Callable[[Any, Any], Any]) -> None:
    d = gf.to_device(x)
    with no_copies():
        for array in (gf.lazy(d), gf.lazy(d)[...], d):
            with pytest.raises(TypeError, match=r"cannot write into|is not written to"):
                change(array, 1)
    assert_equal(gf.fetch(d), x)


def test_an_operand_that_wants_the_operator_gets_it(lazy: gf.LazyArray) -> None:
    class Wants:
        __array_ufunc__ = None

        def answer(self, other: object) -> tuple[str, object]:
            return "answered", other

        __add__ = __radd__ = __rpow__ = __eq__ = __gt__ = answer  # type: ignore[assignment]

    for array in (lazy, lazy[...]):
        with no_copies():
            results = [array + Wants(), Wants() + array, array ** Wants(), array < Wants()]
            results.append(array == Wants())
        assert all(result[0] == "answered" and result[1] is array for result in results)


# --- Random cases -----------------------------------------------------------------------------

DTYPES = [np.dtype(t) for t in ("?", "i1", "u2", "i4", "f2", "f4", "f8", "c8", "c16")]
DTYPES.append(np.dtype(ml_dtypes.bfloat16))
RANDOM_CASES = 4000


def random_axis(rng: np.random.Generator, ndim: int) -> int:
    """Mostly an axis, at times one that there is not."""
    return int(rng.integers(-ndim - 1, ndim + 2)) if rng.random() < 0.1 else random_valid(rng, ndim)


def random_valid(rng: np.random.Generator, ndim: int) -> int:
    return int(rng.integers(-ndim, ndim)) if ndim else 0


def random_shape(rng: np.random.Generator, size: int) -> list[int]:
    """Lengths whose product is `size`, at times with a -1 or wrong."""
    shape = []
    rest = size
    while rest > 1 and len(shape) < 4:
        divisors = [d for d in range(1, rest + 1) if rest % d == 0]
        shape.append(int(rng.choice(divisors)))
        rest //= shape[-1]
    shape.append(rest)
    if rng.random() < 0.2:
        shape[rng.integers(len(shape))] = -1
    if rng.random() < 0.05:
        shape.append(int(rng.integers(0, 3)))
    return shape


def random_key(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    key: list[Any] = []
    for length in shape[: rng.integers(0, len(shape) + 1)]:
        bounds = [None if rng.random() < 0.3 else int(n) for n in rng.integers(-6, 7, 2)]
        step = int(rng.choice([-3, -2, -1, 1, 1, 2]))
        is_int = rng.random() < 0.25
        key.append(int(rng.integers(-length - 1, length + 1)) if is_int else slice(*bounds, step))
    for item in (None, Ellipsis):
        if rng.random() < 0.2:
            key.insert(int(rng.integers(0, len(key) + 1)), item)
    return tuple(key)


def random_call(rng: np.random.Generator, a: Array) -> tuple[str, Call]:
    """A function that gives a view of an array like `a`, with arguments that mostly fit."""
    n = a.ndim
    axes = [random_axis(rng, n) for _ in range(int(rng.integers(1, 3)))]
    to = [random_axis(rng, n) for _ in axes]
    order = [int(i) for i in rng.permutation(n)]
    shape = random_shape(rng, a.size)
    letter = str(rng.choice(["C", "F"]))
    key = random_key(rng, a.shape)
    turns = int(rng.integers(-4, 5))
    sections = int(rng.integers(1, 4))
    cuts = sorted(int(i) for i in rng.integers(0, 5, 2))
    calls: dict[str, Call] = {
        f"transpose {order}": lambda a: np.transpose(a, order),
        "transpose": np.transpose,
        f"moveaxis {axes} {to}": lambda a: np.moveaxis(a, axes, to),
        f"swapaxes {axes} {to}": lambda a: np.swapaxes(a, axes[0], to[0]),
        f"rollaxis {axes} {to}": lambda a: np.rollaxis(a, axes[0], to[0]),
        f"expand_dims {tuple(axes)}": lambda a: np.expand_dims(a, tuple(axes)),
        f"squeeze {axes}": lambda a: np.squeeze(a, tuple(axes)),
        "squeeze": np.squeeze,
        f"flip {axes}": lambda a: np.flip(a, tuple(axes)),
        "flip": np.flip,
        "fliplr": np.fliplr,
        "flipud": np.flipud,
        f"rot90 {turns} {axes} {to}": lambda a: np.rot90(a, turns, (axes[0], to[0])),
        "atleast_1d": np.atleast_1d,
        "atleast_2d": np.atleast_2d,
        "atleast_3d": np.atleast_3d,
        "matrix_transpose": np.matrix_transpose,
        f"reshape {shape} {letter}": lambda a: np.reshape(a, shape, order=letter),
        f"ravel {letter}": lambda a: np.ravel(a, order=letter),
        f"[{key}]": lambda a: a[key],
        f"array_split {sections} {axes}": lambda a: np.array_split(a, sections, axes[0])[-1],
        f"array_split {cuts} {axes}": lambda a: np.array_split(a, cuts, axes[0])[1],
        f"split {sections} {axes}": lambda a: np.split(a, sections, axes[0])[0],
        f"hsplit {cuts}": lambda a: np.hsplit(a, cuts)[0],
        f"vsplit {cuts}": lambda a: np.vsplit(a, cuts)[1],
        f"dsplit {cuts}": lambda a: np.dsplit(a, cuts)[0],
        f"take {axes}": lambda a: np.take(a, 0, axis=axes[0]),
    }
    name = str(rng.choice(list(calls)))
    return name, calls[name]


def outcome(call: Call, a: Any) -> Any:
    """What a call gives, or the exception that it raises."""
    try:
        return call(a)
    except Exception as error:
        return error


def is_of_kind(error: Exception, expected: Exception) -> bool:
    kinds = (TypeError, ValueError, IndexError, ZeroDivisionError)
    return any(isinstance(error, kind) and isinstance(expected, kind) for kind in kinds)


def values_of(array: Any) -> Any:
    if isinstance(array, gf.LazyArray):
        return array.fetch()
    return gf.fetch(array) if isinstance(array, gf.DeviceArray) else np.asarray(array)


def is_view_in_numpy(call: Call, a: Array) -> bool:
    result = call(a)
    return isinstance(result, np.ndarray) and (result.size == 0 or np.shares_memory(result, a))


def check_random_case(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(0, 6, rng.integers(0, 5)))
    dtype = DTYPES[rng.integers(len(DTYPES))]
    a = rng.integers(0, 2 if dtype == np.bool_ else 100, shape).astype(dtype)
    arrays = {"lazy": gf.lazy(gf.to_device(a)), "device": gf.to_device(a)}
    story = [f"seed {seed}: {shape} {dtype}"]
    for _ in range(int(rng.integers(1, 4))):
        name, call = random_call(rng, a)
        story.append(name)
        expected = outcome(call, a)
        for kind, array in list(arrays.items()):
            found = outcome(call, array)
            if isinstance(expected, Exception):
                assert isinstance(found, Exception), (story, kind, found)
                assert is_of_kind(found, expected), (story, kind, found, expected)
            elif "does not pull a whole" in str(found) and name.startswith("take"):
                assert a.ndim == 0, (story, kind, found)
                del arrays[kind]
            elif isinstance(found, Exception):
                assert "without a copy" in str(found), (story, kind, found)
                # take copies in NumPy, and a view of the copy may be none of the tensor
                taken = any(step.startswith("take") for step in story)
                assert taken or not is_view_in_numpy(call, a), (story, kind, found)
                del arrays[kind]
            else:
                values = values_of(found)
                assert values.dtype == expected.dtype, (story, kind)
                assert values.shape == expected.shape, (story, kind)
                assert values.tobytes() == expected.tobytes(), (story, kind)
                arrays[kind] = found
                if not isinstance(found, gf.LazyArray | gf.DeviceArray):
                    del arrays[kind]
        if isinstance(expected, Exception) or not isinstance(expected, np.ndarray):
            return
        a = expected


@pytest.mark.parametrize("start", range(0, RANDOM_CASES, 500))
def test_random_chains_of_views_agree_with_numpy(start: int) -> None:
    for seed in range(start, start + 500):
        check_random_case(seed)


def random_indices(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A subscript with index arrays and masks among slices and integers."""
    key: list[Any] = []
    count = int(rng.integers(0, 4))
    for length in shape[: rng.integers(0, len(shape) + 1)]:
        kind = rng.integers(4)
        if kind == 0:
            key.append(rng.integers(-length - (rng.random() < 0.02), max(length, 1), count))
        elif kind == 1:
            key.append(rng.random(length) < 0.5)
        elif kind == 2:
            key.append(slice(None, None, int(rng.choice([-1, 1, 2]))))
        else:
            key.append(int(rng.integers(-length - (rng.random() < 0.05), max(length, 1))))
    if rng.random() < 0.2:
        key.insert(int(rng.integers(0, len(key) + 1)), None)
    if rng.random() < 0.3:
        key.insert(int(rng.integers(0, len(key) + 1)), Ellipsis)
    return tuple(key)


def test_random_index_arrays_agree_with_numpy() -> None:
    for seed in range(2000):
        rng = np.random.default_rng(seed)
        shape = tuple(int(n) for n in rng.integers(0, 6, rng.integers(1, 5)))
        a = rng.integers(0, 1000, shape).astype(np.int16)
        order = rng.permutation(len(shape))
        key = random_indices(rng, tuple(shape[i] for i in order))
        expected = outcome(lambda a: a[key], a.transpose(order))  # noqa: B023
        found = outcome(lambda a: a[key], gf.lazy(gf.to_device(a)).transpose(order))  # noqa: B023
        story = (seed, shape, order, key)
        if isinstance(expected, Exception):
            assert isinstance(found, Exception), (story, expected)
            assert is_of_kind(found, expected), (story, found, expected)
            continue
        if isinstance(found, IndexError):
            assert expected.size == 0, (story, found)  # NumPy looks at no index then
            continue
        assert not isinstance(found, Exception), (story, found)
        values = values_of(found)
        assert (values.shape, values.dtype) == (expected.shape, expected.dtype), story
        assert values.tobytes() == np.ascontiguousarray(expected).tobytes(), story


# --- Bytes that cross -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "rows"),
    [
        (np.s_[[0, 399]], 2),
        (np.s_[[399, 0, 399]], 2),
        (np.s_[[-1, 0]], 2),
        (np.s_[[0, 200, 399]], 3),
        (np.s_[np.arange(400) % 399 == 0], 2),
    ],
)
def test_a_selection_reads_its_rows_and_not_the_box_around_them(
    key: Any, rows: int, traffic: Traffic
) -> None:
    x = np.random.default_rng(1).normal(size=(400, 1000))
    values = gf.lazy(gf.to_device(x))[key]
    assert_equal(values, x[key])
    assert traffic.nbytes == rows * x[0].nbytes
