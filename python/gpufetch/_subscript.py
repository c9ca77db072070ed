"""Subscripts as NumPy has them: checked, and written out to one item for each axis."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Indices", "checked_indices", "expanded", "index_items", "is_basic", "joint_shape"]

Indices = npt.NDArray[np.intp]

_REMEDY = (
    "use integers, slices, ..., None, arrays of integers, and boolean masks with at least one axis"
)


def index_items(key: Any) -> tuple[Any, ...]:
    """Check what stands between the brackets of a subscript.

    Returns a tuple of int, slice, Ellipsis, None, and arrays of intp or bool. Raises IndexError
    for an item of another type, ValueError for a ragged list.
    """
    items = key if isinstance(key, tuple) else (key,)
    return tuple(_index_item(item) for item in items)


def is_basic(items: tuple[Any, ...]) -> bool:
    """Whether there is no array among the items, so that a view answers the subscript."""
    return not any(isinstance(item, np.ndarray) for item in items)


def _index_item(item: Any) -> Any:
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if not isinstance(item, bool | np.bool_ | str | bytes):
        try:
            return operator.index(item)
        except TypeError:
            pass
        array = _index_array(item)
        if array is not None and (array.dtype.kind in "iu" or _is_mask(array)):
            return array
        if array is not None and array.ndim > 0 and array.dtype.kind != "O":
            raise IndexError(f"index {reprlib.repr(item)} has dtype {array.dtype}: {_REMEDY}")
    raise IndexError(
        f"index {reprlib.repr(item)} of type {type(item).__name__} is not known: {_REMEDY}"
    )


def _index_array(item: Any) -> npt.NDArray[Any] | None:
    try:
        array = np.asarray(item)
    except ValueError as error:
        if isinstance(item, list):  # a ragged one, for which NumPy has ValueError, too
            raise ValueError(f"index {reprlib.repr(item)} is no array: {error}") from None
        return None
    except TypeError:
        return None
    if array.size == 0 and not isinstance(item, np.ndarray):
        return array.astype(np.intp)
    return array.astype(np.intp, copy=False) if array.dtype.kind in "iu" else array


def expanded(items: tuple[Any, ...], shape: tuple[int, ...]) -> Iterator[Any]:
    """Write checked items out, so that apart from None and Ellipsis there is one for each axis.

    A mask of n axes becomes n index arrays. Whole slices follow the Ellipsis, which stays: it
    separates index arrays even where it stands for no axis. Where there is none, one is added at
    the end.

    Raises IndexError for too many items and for a mask that does not fit `shape`.
    """
    used = sum(
        item.ndim if _is_mask(item) else 1
        for item in items
        if item is not None and item is not Ellipsis
    )
    ellipsis_count = sum(item is Ellipsis for item in items)
    if ellipsis_count > 1:
        raise IndexError("an index can have only one ellipsis ('...')")
    if used > len(shape):
        raise IndexError(f"too many indices: the array has {len(shape)} axes, {used} were indexed")
    if ellipsis_count == 0:
        items = (*items, Ellipsis)
    axis = 0
    for item in items:
        if item is Ellipsis:
            yield item
            yield from [slice(None)] * (len(shape) - used)
            axis += len(shape) - used
        elif _is_mask(item):
            _check_mask(item, axis, shape)
            yield from item.nonzero()
            axis += item.ndim
        else:
            yield item
            axis += item is not None


def _is_mask(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.dtype == np.bool_ and item.ndim > 0


def _check_mask(mask: npt.NDArray[Any], axis: int, shape: tuple[int, ...]) -> None:
    """Check that a mask fits `shape` from `axis` on. As in NumPy, a length of 0 fits any axis."""
    for i, length in enumerate(mask.shape):
        if length not in (0, shape[axis + i]):
            raise IndexError(
                f"a boolean mask of shape {mask.shape} does not fit axis {axis + i} of length "
                f"{shape[axis + i]}"
            )


def joint_shape(arrays: Sequence[Indices]) -> tuple[int, ...]:
    """The shape to which index arrays are broadcast; IndexError if there is none.

    Where it has no elements, indices outside of their axes do not matter, as in NumPy.
    """
    try:
        return np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        shapes = " ".join(str(array.shape) for array in arrays)
        raise IndexError(
            f"shape mismatch: index arrays of shapes {shapes} cannot be broadcast together"
        ) from None


def checked_indices(indices: Indices, axis: int, length: int) -> Indices:
    """The indices counted from the front; IndexError for one outside an axis of `length`."""
    if indices.size > 0:
        low, high = int(indices.min()), int(indices.max())
        if low < -length or high >= length:
            wrong = high if high >= length else low
            raise IndexError(f"index {wrong} is out of bounds for axis {axis} with size {length}")
        if low < 0:
            return np.where(indices < 0, indices + length, indices)
    return indices
