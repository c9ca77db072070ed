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
    the result, with an item for each axis, the Ellipsis, which separates index arrays even where it
    stands for no axis, and None for each axis that is added; it is None if they are the result.
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
    of_axes = [item for item in items if item is not None and item is not Ellipsis]
    is_empty = 0 in joint_shape([item for item in of_axes if isinstance(item, np.ndarray)])
    axes = [
        _AxisSelection(0, 0, item)
        if is_empty and isinstance(item, np.ndarray)
        else _axis_selection(axis, length, item)
        for (axis, length), item in zip(enumerate(shape), of_axes, strict=True)
    ]
    start = tuple(axis.start for axis in axes)
    if all(axis.is_plain for axis in axes) and not any(item is None for item in items):
        lengths = (-1 if isinstance(axis.rest, int) else axis.length for axis in axes)
        return Selection((start, tuple(lengths)), None)
    rest = iter([axis.rest for axis in axes])
    return Selection(
        (start, tuple(axis.length for axis in axes)),
        tuple(item if item is None or item is Ellipsis else next(rest) for item in items),
    )


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
