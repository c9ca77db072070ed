"""The parts of an array that servers hold: their boxes, and what they hold of a selection.

A selection is a range for each axis of the whole array. Its indices along an axis are numbered 0,
1, ...; a window is the numbers [begin, end) of those that one part holds. They are consecutive,
because a part is a box.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpufetch._remote.view import Slices

__all__ = [
    "Box",
    "Window",
    "local_slices",
    "overlap",
    "selection",
    "uncovered",
    "window",
]

Window = tuple[int, int]

# Largest grid that is searched for a gap.
_GRID_SIZE_MAX = 1 << 20


class Box(NamedTuple):
    """The first index along each axis, and the first index beyond the box."""

    start: tuple[int, ...]
    stop: tuple[int, ...]

    def __str__(self) -> str:
        return f"[{', '.join(f'{a}:{b}' for a, b in zip(self.start, self.stop, strict=True))}]"


def overlap(boxes: Sequence[Box]) -> tuple[int, int] | None:
    """The positions of two boxes that have elements in common; None if no two have."""
    start = np.array([box.start for box in boxes], np.int64).reshape(len(boxes), -1)
    stop = np.array([box.stop for box in boxes], np.int64).reshape(len(boxes), -1)
    filled = np.all(start < stop, axis=1)
    for i in range(len(boxes) - 1):
        shared = np.all((start[i] < stop[i + 1 :]) & (start[i + 1 :] < stop[i]), axis=1)
        hits = np.flatnonzero(shared & filled[i] & filled[i + 1 :])
        if len(hits):
            return i, i + 1 + int(hits[0])
    return None


def uncovered(shape: Sequence[int], boxes: Sequence[Box]) -> Box | None:
    """A box of an array of `shape` that none of `boxes` holds.

    None if there is none, or if the boxes make a grid that is too large to search.
    """
    cuts = [
        sorted({0, length, *(box.start[axis] for box in boxes), *(box.stop[axis] for box in boxes)})
        for axis, length in enumerate(shape)
    ]
    if math.prod(len(axis) - 1 for axis in cuts) > _GRID_SIZE_MAX:
        return None
    held = np.zeros([len(axis) - 1 for axis in cuts], bool)
    for box in boxes:
        key = [
            slice(axis.index(a), axis.index(b))
            for axis, a, b in zip(cuts, box.start, box.stop, strict=True)
        ]
        held[tuple(key)] = True
    gaps = np.argwhere(~held)
    if len(gaps) == 0:
        return None
    first = [int(i) for i in gaps[0]]
    return Box(
        tuple(axis[i] for axis, i in zip(cuts, first, strict=True)),
        tuple(axis[i + 1] for axis, i in zip(cuts, first, strict=True)),
    )


def selection(slices: Slices, shape: Sequence[int]) -> list[range]:
    """The indices that slices take along each axis."""
    return [
        range(item, item + 1) if isinstance(item, int) else range(*slice(*item).indices(length))
        for item, length in zip(slices, shape, strict=True)
    ]


def window(taken: range, start: int, stop: int) -> Window:
    """The window of the indices in `taken` that are in [start, stop); (0, 0) if none is."""
    if taken.step > 0:
        begin = -((taken.start - start) // taken.step)
        end = -((taken.start - stop) // taken.step)
    else:
        begin = (taken.start - stop) // -taken.step + 1
        end = (taken.start - start) // -taken.step + 1
    begin, end = max(begin, 0), min(end, len(taken))
    return (begin, end) if begin < end else (0, 0)


def local_slices(
    slices: Slices, taken: Sequence[range], box: Box, windows: Sequence[Window]
) -> Slices:
    """The part of `slices` that the windows are, in the indices of the part with that box."""
    local: Slices = []
    for item, axis, start, (begin, end) in zip(slices, taken, box.start, windows, strict=True):
        if isinstance(item, int):
            local.append(item - start)
        elif begin == end:
            local.append([0, 0, 1])
        else:
            first = axis.start + begin * axis.step - start
            stop = first + (end - begin) * axis.step
            local.append([first, stop if stop >= 0 else None, axis.step])
    return local
