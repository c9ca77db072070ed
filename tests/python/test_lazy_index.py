"""LazyArray's views, and indices with arrays and masks: NumPy's results from few transfers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
import pytest
from pulling import ReplaceableTensor, Traffic
from sanitizing import fewer

import gpufetch as gf
from gpufetch import _core
from gpufetch._lazy import index_arrays

SHAPE = (6, 5, 7)

Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def field() -> Array:
    return np.random.default_rng(3).normal(size=SHAPE)


@pytest.fixture(scope="module")
def d_field(field: Array) -> Any:
    return gf.to_device(field)


def assert_same(values: Any, expected: Any) -> None:
    assert type(values) is type(expected)
    assert values.dtype == expected.dtype
    assert values.shape == expected.shape
    assert values.tobytes() == expected.tobytes()


# --- Views ---


@st.composite
def view_steps(draw: st.DrawFn) -> list[Any]:
    """Steps that NumPy takes without a copy, from SHAPE."""
    x = np.empty(SHAPE)
    steps: list[Any] = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["index", "transpose", "reshape", "squeeze"]))
        if kind == "index":
            key = draw(hnp.basic_indices(x.shape, allow_newaxis=True, max_dims=5))
            if not isinstance(x[key], np.ndarray):
                continue
            step = ("index", key)
        elif kind == "transpose":
            step = ("transpose", draw(st.permutations(range(x.ndim))))
        elif kind == "reshape":
            step = ("reshape", draw(st.sampled_from(factorings(x.size))))
        else:
            step = ("squeeze", None)
        steps.append(step)
        x = apply_step(x, step)
    return steps


def factorings(size: int) -> list[tuple[int, ...]]:
    pairs = [(n, size // n) for n in range(1, size + 1) if size % n == 0]
    return [(-1,), (1, size, 1), *pairs, *((a, 1, b) for a, b in pairs)] if size else [(0, 3), (0,)]


def apply_step(x: Any, step: Any) -> Any:
    kind, argument = step
    if kind == "index":
        return x[argument]
    if kind == "transpose":
        return x.transpose(argument)
    return x.squeeze() if kind == "squeeze" else x.reshape(argument)


@hypothesis.given(steps=view_steps())
@hypothesis.settings(max_examples=fewer(300), deadline=None)
def test_every_chain_of_views_agrees_with_numpy(field: Array, d_field: Any, steps: Any) -> None:
    a, expected = gf.lazy(d_field), field
    for step in steps:
        if step[0] == "reshape":
            try:
                step = ("reshape", expected.reshape(step[1], copy=False).shape)
            except ValueError:
                with pytest.raises(ValueError, match=r"without a copy.*fetch\(\)"):
                    apply_step(a, step)
                return
        a, expected = apply_step(a, step), apply_step(expected, step)
        assert (a.shape, a.ndim, a.size) == (expected.shape, expected.ndim, expected.size)
    assert_same(a.fetch(), np.ascontiguousarray(expected).reshape(expected.shape))


def test_views_transfer_nothing(d_field: Any, traffic: Traffic) -> None:
    a = gf.lazy(d_field)
    for view in (a[2:], a[0], a.T, a.reshape(-1, 7), a[None].squeeze(), a.ravel(), a[1:].T[::-1]):
        assert isinstance(view, gf.LazyArray)
        assert _core.asdevice(view).shape == view.shape
    assert traffic.transfers == []


def test_a_view_sees_a_change_on_the_device(device: str) -> None:
    tensor = ReplaceableTensor(np.zeros((4, 3), np.int32), device)
    view = gf.lazy(tensor).T[1:]
    tensor.replace(np.arange(12, dtype=np.int32).reshape(4, 3), device)
    assert view.fetch().tolist() == [[1, 4, 7, 10], [2, 5, 8, 11]]
    tensor.replace(np.zeros((3, 3), np.int32), device)
    with pytest.raises(RuntimeError, match="new LazyArray"):
        view.fetch()


@pytest.mark.parametrize("axes", [(0, 1), (0, 1, 1), (0, 1, 3), ((0, 1, 2, 3),)])
def test_axes_that_are_no_order_are_refused(d_field: Any, axes: Any) -> None:
    with pytest.raises(ValueError, match="ax"):
        gf.lazy(d_field).transpose(*axes)


@pytest.mark.parametrize("shape", [(4,), (-1, -1), (-1, 11), (-2, 105), (0, -1)])
def test_a_shape_of_another_size_is_refused(d_field: Any, shape: Any) -> None:
    with pytest.raises(ValueError, match="210 elements"):
        gf.lazy(d_field).reshape(shape)


def test_an_axis_that_is_not_1_is_not_squeezed(d_field: Any) -> None:
    assert gf.lazy(d_field)[:1, :, :1].squeeze(-1).shape == (1, 5)
    with pytest.raises(ValueError, match="length 1"):
        gf.lazy(d_field).squeeze(1)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((7,), (8,)), ((2,), (-8,)), ((2, 2), (32, 32)), ((3,), (1 << 62,)), ((2,), (8, 8))],
)
def test_strides_that_leave_the_memory_are_refused(shape: Any, strides: Any) -> None:
    array = gf.to_device(np.arange(6.0))
    with pytest.raises((ValueError, OverflowError)):
        _core._restride(array, shape, strides)
    with pytest.raises(ValueError, match="outside"):
        _core._restride(array[:0], (1,), (0,))


# --- Arrays and masks ---


@st.composite
def keys_with_arrays(draw: st.DrawFn) -> tuple[Any, ...]:
    """Subscripts of SHAPE in which at least one item is an array of integers or a mask."""
    points = draw(st.sampled_from([(4,), (1,), (0,), (3, 2)]))
    items: list[Any] = []
    axis, has_array = 0, False
    stop = draw(st.integers(1, 3))
    while axis < stop or not has_array:
        kind = draw(st.sampled_from(["array", "mask", "slice", "int", "new"]))
        length = SHAPE[axis] if axis < 3 else 0
        if axis >= 3:
            return (np.array([0, -1, 2]),)
        if kind == "array":
            shape = draw(st.sampled_from([points, points[-1:], (1,)]))
            items.append(
                draw(hnp.arrays(np.int64, shape, elements=st.integers(-length, length - 1)))
            )
            has_array = True
        elif kind == "mask":
            chosen = draw(st.sets(st.integers(0, length - 1), max_size=points[-1]))
            mask = np.zeros(length, bool)
            mask[sorted(chosen)[:1] if len(chosen) != points[-1] else sorted(chosen)] = True
            items.append(mask)
            has_array = True
        elif kind == "slice":
            items.append(draw(st.slices(length)))
        elif kind == "int":
            items.append(draw(st.integers(-length, length - 1)))
        else:
            items.append(None)
            continue
        axis += 1
    if draw(st.booleans()):  # what follows ... belongs to the last axes, and may not fit there
        items.insert(draw(st.integers(0, len(items))), Ellipsis)
    return tuple(items)


@hypothesis.given(key=keys_with_arrays(), order=st.permutations(range(3)))
@hypothesis.settings(max_examples=fewer(500), deadline=None)
def test_every_index_with_arrays_agrees_with_numpy(
    field: Array, d_field: Any, key: Any, order: Any
) -> None:
    inverse = np.argsort(order)
    # The same array, in every order that its axes can have in memory.
    stored = np.ascontiguousarray(field.transpose(order))
    a = gf.lazy(gf.to_device(stored)).transpose(*map(int, inverse))
    try:
        expected = field[key]
    except IndexError:
        with pytest.raises(IndexError):
            a[key]
        return
    values = a[key]
    assert_same(values, np.ascontiguousarray(expected).reshape(expected.shape))
    assert values.flags.c_contiguous


@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=fewer(60), deadline=None)
def test_masks_of_several_axes_agree_with_numpy(field: Array, d_field: Any, data: Any) -> None:
    axes = data.draw(st.sampled_from([slice(0, 2), slice(1, 3), slice(0, 3)]))
    mask = data.draw(hnp.arrays(bool, SHAPE[axes]))
    key = (slice(None),) * axes.start + (mask,)
    assert_same(gf.lazy(d_field)[key], np.ascontiguousarray(field[key]))


@pytest.mark.parametrize("key", [[0, 2], [], ([1, 2], slice(None), [0, 3]), (0, [[1], [2]], [3])])
def test_lists_index_as_arrays_do(field: Array, device: str, key: Any) -> None:
    a = gf.lazy(gf.to_device(field, device=device))
    assert_same(a[key], np.ascontiguousarray(field[key]))


@pytest.mark.parametrize("shape", [(4, 3), (4, 0), (0, 3), (3, 4, 5)])
@pytest.mark.parametrize(
    "key",
    [
        ([9], np.zeros((0, 1), int)),
        (np.zeros((0, 1), int), [9]),
        (np.zeros((2, 0), int), [[9], [1]]),
        ([9], slice(0, 0)),
        (slice(0, 0), [9]),
        ([2], [1]),
        (9, np.zeros(0, int)),
        (np.zeros(0, int), 9),
        (np.zeros(0, int), [1, 2]),
        np.zeros(0, int),
    ],
)
def test_where_nothing_is_selected_indices_fit_where_numpys_do(
    tmp_path: Path, device: str, shape: tuple[int, ...], key: Any
) -> None:
    """A wrong index is none where the index arrays together select no points."""
    array = np.zeros(shape, np.float32)
    gf.hdf5.write(tmp_path / "x.h5", "x", array)
    lazy = gf.lazy(gf.to_device(array, device=device))
    try:
        expected = array[key].shape
    except IndexError:
        with pytest.raises(IndexError):
            lazy[key]
        with pytest.raises(IndexError):
            gf.hdf5.read(tmp_path / "x.h5", "x", selection=key, device="cpu")
        return
    assert lazy[key].shape == expected
    got = gf.hdf5.read(tmp_path / "x.h5", "x", selection=key, device="cpu")
    assert got.shape == expected


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ([6], "index 6 is out of bounds for axis 0 with size 6"),
        ((0, [-6]), "index -6 is out of bounds for axis 1 with size 5"),
        (([0, 1], [0, 1, 2]), "shape mismatch"),
        (np.ones(5, bool), "mask.*axis 0 of length 6"),
        ((slice(None), np.ones((5, 6), bool)), "mask.*axis 2 of length 7"),
        (([0], 0, 0, 0), "too many indices"),
        ((..., [0], ...), "one ellipsis"),
        (([0], 5), "axis 1"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(d_field: Any, key: Any, message: str) -> None:
    with pytest.raises(IndexError, match=message):
        gf.lazy(d_field)[key]


def test_indices_in_even_steps_pull_only_their_rows(traffic: Traffic) -> None:
    x = np.random.default_rng(5).integers(0, 1 << 30, (4000, 64), np.int32)
    a = gf.lazy(gf.to_device(x))
    assert np.array_equal(a[np.arange(3990, 3, -7)], x[np.arange(3990, 3, -7)])
    assert traffic.transfers == [len(range(3990, 3, -7)) * 256]


def test_close_indices_share_a_transfer_and_far_ones_do_not(traffic: Traffic) -> None:
    x = np.random.default_rng(5).integers(0, 1 << 30, (4000, 64), np.int32)  # rows of 256 bytes
    a = gf.lazy(gf.to_device(x))
    far = index_arrays.GAP_NBYTES_MAX // 256 + 2
    key = [3 * far + 1, 0, 3, 4, far + 4, 3 * far, 0]
    assert np.array_equal(a[key], x[key])
    assert traffic.transfers == [5 * 256, 256, 2 * 256]


def test_scratch_is_bounded_however_many_indices_there_are(
    traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_arrays, "RANGE_NBYTES_MAX", 4096)
    x = np.random.default_rng(6).normal(size=(2000, 16))
    a = gf.lazy(gf.to_device(x))
    for key in (np.flatnonzero(np.random.default_rng(7).random(2000) < 0.6), np.arange(2000)):
        assert np.array_equal(a[key], x[key])
    assert max(traffic.transfers) <= 4096
    assert sum(traffic.transfers) <= 2 * x.nbytes


def test_a_large_row_that_is_named_twice_travels_once(traffic: Traffic) -> None:
    x = np.random.default_rng(8).integers(0, 255, (5, 3, 1 << 19), np.uint8)
    a = gf.lazy(gf.to_device(x))
    key = np.array([4, 1, 4, 0])
    assert np.array_equal(a[key], x[key])
    assert traffic.transfers == [2 * x[0].nbytes, x[0].nbytes]


def test_points_of_a_packed_array_are_found_by_one_axis(traffic: Traffic) -> None:
    x = np.random.default_rng(9).normal(size=(30, 40, 50))
    points = np.random.default_rng(10).integers(0, 30, (3, 200))
    for order in [(0, 1, 2), (1, 0, 2), (2, 1, 0)]:
        traffic.transfers.clear()
        values = gf.lazy(gf.to_device(x)).transpose(order)[tuple(points)]
        assert np.array_equal(values, x.transpose(order)[tuple(points)])
        assert len(traffic.transfers) <= 30


def test_an_index_over_the_limit_is_refused_before_it_pulls(traffic: Traffic) -> None:
    a = gf.LazyArray(gf.to_device(np.zeros((10, 100))), max_fetch_nbytes=1600)
    assert a[[1, 5]].shape == (2, 100)
    traffic.transfers.clear()
    with pytest.raises(ValueError, match="max_fetch_nbytes"):
        a[[1, 2, 3]]
    assert traffic.transfers == []
