"""What of a dataset to read for a subscript: the box around it, and what is then left to index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpufetch._take import index_items

__all__ = ["Box", "select"]


@dataclass
class Box:
    """A box of a dataset.

    `region` is its start and its length along each axis; -1 for an axis that an integer indexes,
    which the result lacks. `rest` indexes what was read of the region, or is None.
    """

    region: tuple[tuple[int, ...], tuple[int, ...]]
    rest: tuple[Any, ...] | None


@dataclass
class _Axis:
    start: int
    length: int
    rest: Any  # an index into the `length` elements from `start` on

    @property
    def is_plain(self) -> bool:
        """Whether the result has these elements, or the one element, and no others."""
        return isinstance(self.rest, int) or (isinstance(self.rest, slice) and self.rest.step == 1)


def select(shape: tuple[int, ...], selection: Any) -> Box:
    """Find the box around a subscript of an array of `shape`; IndexError if it does not fit."""
    items = _one_for_each_axis(index_items(selection), len(shape))
    axes = [_axis(axis, shape[axis], item) for axis, item in enumerate(items)]
    start = tuple(axis.start for axis in axes)
    if all(axis.is_plain for axis in axes):
        lengths = (-1 if isinstance(axis.rest, int) else axis.length for axis in axes)
        return Box((start, tuple(lengths)), None)
    return Box((start, tuple(axis.length for axis in axes)), tuple(axis.rest for axis in axes))


def _one_for_each_axis(items: tuple[Any, ...], ndim: int) -> list[Any]:
    """Fill up with whole axes, where ... is or at the end; a mask of n axes becomes n arrays."""
    given: list[Any] = []
    for item in items:
        if item is None:
            raise IndexError("None adds an axis, which a selection cannot: index the result")
        is_mask = isinstance(item, np.ndarray) and item.dtype == np.bool_
        given += item.nonzero() if is_mask else [item]
    ellipses = [index for index, item in enumerate(given) if item is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("selection has more than one '...'")
    missing = ndim - (len(given) - len(ellipses))
    if missing < 0:
        raise IndexError(f"selection has {ndim - missing} indices, but the dataset {ndim} axes")
    at = ellipses[0] if ellipses else len(given)
    return [*given[:at], *[slice(None)] * missing, *given[at + 1 :]]


def _axis(axis: int, length: int, item: Any) -> _Axis:
    if isinstance(item, slice):
        indices = range(length)[item]
        if not indices:
            return _Axis(0, 0, slice(None, None, 1))
        low, high = min(indices[0], indices[-1]), max(indices[0], indices[-1])
        return _Axis(low, high - low + 1, slice(None, None, indices.step))
    array = np.asarray(item)
    if array.size == 0:
        return _Axis(0, 0, array)
    low, high = int(array.min()), int(array.max())
    if low < -length or high >= length:
        outside = low if low < -length else high
        raise IndexError(f"index {outside} does not fit axis {axis}, which has {length} elements")
    if array.ndim == 0:
        return _Axis(low % length, 1, 0)
    array = array % length
    low = int(array.min())
    return _Axis(low, int(array.max()) - low + 1, array - low)
