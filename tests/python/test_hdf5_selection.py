"""Subscripts against NumPy: what hdf5.read(selection=) and LazyArray give, over random ones."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sanitizing import fewer

import gpufetch as gf


def numbered(shape: tuple[int, ...]) -> npt.NDArray[Any]:
    return np.arange(np.prod(shape, dtype=int), dtype="i4").reshape(shape)


@st.composite
def subscripts(
    draw: st.DrawFn, *, new_axes: bool = False
) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """A shape of 0 to 8 axes, and a subscript of it with an Ellipsis in any place, or none.

    Index arrays are of one shape, so that most subscripts fit; some do not.
    """
    shape = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 3, 3, 4]), min_size=0, max_size=8)))
    points = draw(st.sampled_from([(2,), (1,), (3,), (2, 2), (0,), ()]))
    items: list[Any] = []
    axis = 0
    while axis < len(shape) and draw(st.integers(0, 9)) > 0:
        length = shape[axis]
        kind = draw(st.sampled_from(["int", "slice", "slice", "array", "array", "list", "mask"]))
        inside = st.integers(-length, length - 1) if length else st.just(0)
        if kind == "int":
            items.append(draw(inside))
        elif kind == "slice":
            ends = st.one_of(st.none(), st.integers(-length - 2, length + 2))
            step = draw(st.sampled_from([None, 1, 1, 2, 3, -1, -2, -3]))
            items.append(slice(draw(ends), draw(ends), step))
        elif kind == "mask":
            count = draw(st.integers(1, min(2, len(shape) - axis)))
            if 0 in shape[axis : axis + count]:
                continue  # NumPy takes a mask of no elements on an axis of any length
            bits = draw(st.integers(0, 2**16 - 1))
            lengths = shape[axis : axis + count]
            mask = [bits >> (i % 16) & 1 for i in range(int(np.prod(lengths)))]
            items.append(np.array(mask, bool).reshape(lengths))
            axis += count - 1
        else:
            count = int(np.prod(points))
            values = np.array([draw(inside) for _ in range(count)], np.intp).reshape(points)
            items.append(values.tolist() if kind == "list" and points else values)
        axis += 1
    if draw(st.integers(0, 3)) > 0:
        items.insert(draw(st.integers(0, len(items))), ...)
    elif draw(st.integers(0, 9)) == 0:
        items.append(0)  # perhaps one too many
    if new_axes:
        for _ in range(draw(st.integers(0, 2))):
            items.insert(draw(st.integers(0, len(items))), None)
    return shape, tuple(items)


def numpys(x: npt.NDArray[Any], key: tuple[Any, ...]) -> npt.NDArray[Any] | None:
    """What NumPy gives; None for IndexError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return np.asarray(x[key])
    except (IndexError, DeprecationWarning):
        return None


def given_by(call: Callable[[], Any], expected: npt.NDArray[Any] | None) -> Any:
    """What `call` gives; None for an IndexError where NumPy has one too.

    NumPy does not look at the indices if there are no points. Here one that is out of bounds is
    an error all the same.
    """
    try:
        return call()
    except IndexError as error:
        nothing = expected is not None and expected.size == 0
        if expected is None or (nothing and "out of bounds" in str(error)):
            return None
        raise


# The Ellipsis stands for no axis here, and still separates the integer from the array.
EMPTY_ELLIPSIS = ((2, 3, 5), np.s_[:, 0, ..., np.array([0, 1, 2, 3, 4])])
EMPTY_BETWEEN_ARRAYS = ((4, 4, 3), np.s_[[1, 2], ..., [0, 3]])
EMPTY_AFTER_A_MASK = ((3, 2, 3), np.s_[:, np.ones(2, bool), ..., [0, 2]])


@settings(max_examples=fewer(400), deadline=None)
@given(case=subscripts(new_axes=True))
@example(case=EMPTY_ELLIPSIS)
@example(case=EMPTY_BETWEEN_ARRAYS)
@example(case=EMPTY_AFTER_A_MASK)
def test_any_selection_of_a_dataset_is_what_numpy_indexes(
    case: tuple[tuple[int, ...], tuple[Any, ...]],
) -> None:
    shape, key = case
    x = numbered(shape)
    expected = numpys(x, key)
    with h5py.File(io.BytesIO(), "w") as file:
        dataset = gf.hdf5.write(file, "x", x)
        for device in ("cpu", "host:0"):
            found = given_by(
                lambda device=device: gf.hdf5.read(dataset, selection=key, device=device), expected
            )
            if found is None:
                return
            assert expected is not None
            found = found if device == "cpu" else gf.fetch(found)
            assert found.shape == expected.shape and found.dtype == x.dtype
            assert (found == expected).all()
        out = np.full(expected.shape, -1, x.dtype)
        assert gf.hdf5.read(dataset, selection=key, out=out) is out
        assert (out == expected).all()
        on_device = gf.to_device(np.full(expected.shape, -1, x.dtype).T, device="host:0").T
        assert gf.hdf5.read(dataset, selection=key, out=on_device) is on_device
        assert (gf.fetch(on_device) == expected).all()


@settings(max_examples=fewer(400), deadline=None)
@given(case=subscripts(new_axes=True))
@example(case=EMPTY_ELLIPSIS)
@example(case=EMPTY_BETWEEN_ARRAYS)
@example(case=EMPTY_AFTER_A_MASK)
def test_any_subscript_of_a_lazy_array_is_what_numpy_indexes(
    case: tuple[tuple[int, ...], tuple[Any, ...]],
) -> None:
    shape, key = case
    x = numbered(shape)
    expected = numpys(x, key)
    lazy = gf.lazy(gf.to_device(x, device="host:0"))
    found = given_by(lambda: np.asarray(lazy[key]), expected)
    if found is None:
        return
    assert expected is not None
    assert found.shape == expected.shape and found.dtype == x.dtype
    assert (found == expected).all()


@pytest.mark.parametrize(
    "key",
    [
        np.s_[:, 0, ..., [0, 2]],
        np.s_[[1, 0], :, [0, 2]],
        np.s_[0, :, [2, 1, 0]],
        np.s_[::-1, [0, 1, 1]],
        np.s_[1, ..., 2],
        np.s_[np.array([True, False])],
        np.s_[1:1, [0]],
        (),
    ],
    ids=repr,
)
@pytest.mark.parametrize("kind", ["text", "compound", "vectors"])
def test_elements_without_a_dtype_are_selected_as_numpy_indexes(kind: str, key: Any) -> None:
    numbers = numbered((2, 3, 4))
    dtype: Any
    if kind == "text":
        dtype, x = h5py.string_dtype(), np.array([str(n).encode() for n in numbers.flat], object)
        x = x.reshape(numbers.shape)
    elif kind == "compound":
        dtype = np.dtype([("a", "i4"), ("b", "f8")])
        x = np.zeros(numbers.shape, dtype)
        x["a"] = numbers
    else:
        dtype, x = np.dtype((np.int32, (3,))), numbers[..., None] + np.arange(3, dtype="i4")
    with h5py.File(io.BytesIO(), "w") as file:
        dataset = file.create_dataset("x", numbers.shape, dtype)
        dataset[...] = x
        found = gf.hdf5.read(dataset, selection=key, device="cpu")
    # The axis of a vector's elements is none of the dataset's, and comes last.
    places = np.arange(numbers.size).reshape(numbers.shape)[key]
    expected = x.reshape(numbers.size, *x.shape[3:])[places]
    assert np.shape(found) == np.shape(expected)
    assert np.all(np.asarray(found) == expected)


MIXED = np.dtype([("i", "<i4"), ("f", ">f8"), ("s", "S3")])


@pytest.mark.parametrize(
    "key",
    ["i", "f", "s", ("i", np.s_[1:3]), (np.s_[:, 2], "f"), ("f", np.s_[::2, [0, 3]]), ("i", "f")],
)
def test_a_field_of_a_compound_is_what_h5py_gives(tmp_path: Path, key: Any) -> None:
    x = np.zeros((5, 4), MIXED)
    x["i"], x["f"], x["s"] = np.arange(20).reshape(5, 4), 0.5, b"ab"
    items = []
    for item in key if isinstance(key, tuple) else (key,):
        items += item if isinstance(item, tuple) else [item]
    names = [item for item in items if isinstance(item, str)]
    rest = tuple(item for item in items if not isinstance(item, str))
    expected = x[names[0] if len(names) == 1 else names][rest]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = x
        found = gf.hdf5.read(file, "x", selection=tuple(items), device="cpu")
        assert found.dtype.names == expected.dtype.names and found.tolist() == expected.tolist()
        if names in (["i"], ["f"]):
            assert found.dtype.isnative
            on_device = gf.hdf5.read(file, "x", selection=tuple(items), device="host:0")
            assert (gf.fetch(on_device) == expected).all()
            out = np.zeros(expected.shape, expected.dtype.newbyteorder("="))
            assert gf.hdf5.read(file, "x", selection=tuple(items), out=out) is out
            assert (out == expected).all()
        else:
            with pytest.raises(TypeError, match="device='cpu'"):
                gf.hdf5.read(file, "x", selection=tuple(items), device="host:0")


def test_what_selects_no_elements_is_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"], file["c"] = np.arange(6.0).reshape(2, 3), np.zeros(3, MIXED)
        for name, key, message in [
            ("c", "q", r"'/c' has no field 'q': its fields are i, f, s"),
            ("x", "i", "'i' of type str is not known"),
            ("x", True, "True of type bool is not known: use integers, slices, ..., None, arrays"),
        ]:
            with pytest.raises(IndexError, match=message):
                gf.hdf5.read(file, name, selection=key, device="cpu")
        scalar = file.create_dataset("s", data=np.zeros((), MIXED))
        assert gf.hdf5.read(scalar, selection=(None,), device="cpu").shape == (1,)


def test_new_axes_of_a_scalar_stand_before_the_axes_of_its_elements(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        pair = np.dtype(("<i2", (2,)))
        file.create_dataset("pair", (), pair)[...] = [7, 8]
        file.create_dataset("fields", (), [("pair", pair), ("text", h5py.string_dtype())])
        file.create_dataset("many", (), h5py.vlen_dtype("i4"))[()] = np.arange(3, dtype="i4")
        for name, key, shape in [
            ("pair", (..., None), (1, 2)),
            ("pair", (None, ..., None), (1, 1, 2)),
            ("fields", ("pair", ..., None), (1, 2)),
            ("fields", ("text", ..., None), (1,)),
            ("fields", (..., None), (1,)),
            ("many", (..., None), (1,)),
        ]:
            assert gf.hdf5.read(file, name, selection=key, device="cpu").shape == shape, name
        assert gf.hdf5.read(file, "pair", selection=(..., None), device="cpu").tolist() == [[7, 8]]
        many = gf.hdf5.read(file, "many", selection=(None,), device="cpu")
        assert many[0].tolist() == [0, 1, 2]
