"""What to read of a dataset for a subscript: the box around it, and what is left to index then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpufetch._subscript import checked_indices, expanded, index_items, joint_shape

__all__ = ["Selection", "select"]


@dataclass
class Selection:
    """What a subscript takes of a dataset.

    `box` is the start and the shape of the box around it, -1 for the length of an axis that an
    integer indexes and the result lacks. `rest` is the subscript of the box's elements that gives
    the result, with an item for each axis and the Ellipsis, which separates index arrays even
    where it stands for no axis; None if they are the result.
    """

    box: tuple[tuple[int, ...], tuple[int, ...]]
    rest: tuple[Any, ...] | None


@dataclass
class _AxisSelection:
    """What a subscript takes along one axis: `rest` of the `length` elements from `start` on."""

    start: int
    length: int
    rest: Any

    @property
    def is_plain(self) -> bool:
        """Whether the result has these elements, or the one element, and no others."""
        return isinstance(self.rest, int) or (isinstance(self.rest, slice) and self.rest.step == 1)


def select(shape: tuple[int, ...], subscript: Any) -> Selection:
    """Find the box around a subscript of an array of `shape`; IndexError if it does not fit."""
    items = list(expanded(index_items(subscript), shape))
    if any(item is None for item in items):
        raise IndexError("None adds an axis, which a selection cannot: index the result")
    ellipsis_at = next(i for i, item in enumerate(items) if item is Ellipsis)
    del items[ellipsis_at]
    arrays = [item for item in items if isinstance(item, np.ndarray)]
    is_empty = 0 in joint_shape(arrays)
    axes = [
        _AxisSelection(0, 0, item)
        if is_empty and isinstance(item, np.ndarray)
        else _axis_selection(axis, length, item)
        for (axis, length), item in zip(enumerate(shape), items, strict=True)
    ]
    start = tuple(axis.start for axis in axes)
    if all(axis.is_plain for axis in axes):
        lengths = (-1 if isinstance(axis.rest, int) else axis.length for axis in axes)
        return Selection((start, tuple(lengths)), None)
    lengths = (axis.length for axis in axes)
    rest = [axis.rest for axis in axes]
    return Selection((start, tuple(lengths)), (*rest[:ellipsis_at], ..., *rest[ellipsis_at:]))


def _axis_selection(axis: int, length: int, item: Any) -> _AxisSelection:
    if isinstance(item, slice):
        taken = range(length)[item]
        if not taken:
            return _AxisSelection(0, 0, slice(None, None, 1))
        low, high = min(taken[0], taken[-1]), max(taken[0], taken[-1])
        return _AxisSelection(low, high - low + 1, slice(None, None, taken.step))
    indices = checked_indices(np.asarray(item), axis, length)
    if indices.size == 0:
        return _AxisSelection(0, 0, indices)
    low, high = int(indices.min()), int(indices.max())
    rest = indices - low if indices.ndim > 0 else 0
    return _AxisSelection(low, high - low + 1, rest)
