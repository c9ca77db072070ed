"""Where blocks of an array lie, what of a selection they hold, and how its cells fall on them.

A selection is a range for each axis of the whole array. A window is the part [begin, end) of the
numbers 0, 1, ... of a range that one block holds; blocks are boxes, so it is one run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpufetch._remote_view import Slices

__all__ = [
    "Box",
    "Run",
    "Window",
    "cell_runs",
    "cell_sizes",
    "edge",
    "local_slices",
    "overlap",
    "selection",
    "sum_cells",
    "uncovered",
    "window",
]

Window = tuple[int, int]

_GAP_CELLS_MAX = 1 << 20  # of the grid that is searched for a gap


class Box(NamedTuple):
    """A block: its first index along each axis, and the first beyond it."""

    start: tuple[int, ...]
    stop: tuple[int, ...]

    def __str__(self) -> str:
        return f"[{', '.join(f'{a}:{b}' for a, b in zip(self.start, self.stop, strict=True))}]"


def overlap(boxes: Sequence[Box]) -> tuple[int, int] | None:
    """Two boxes that have elements in common; None if there are none."""
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
    """A box of the whole that no block holds; None if there is none, or it is not found."""
    cuts = [
        sorted({0, length, *(box.start[axis] for box in boxes), *(box.stop[axis] for box in boxes)})
        for axis, length in enumerate(shape)
    ]
    if math.prod(len(axis) - 1 for axis in cuts) > _GAP_CELLS_MAX:
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
    """The numbers of the indices in `taken` that are in [start, stop)."""
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
    """What to ask a block for: `slices`, of the windows alone, in the block's own indices."""
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


# --- Cells of an overview ---


class Run(NamedTuple):
    """`cells` cells of an axis, from number `cell` on, as far as they lie in [begin, end).

    An overview of [begin, end) in so many cells has just these. Only of a run of one cell may a
    part be missing: then is_whole is False. has_first: the first element of the cell is there.
    """

    begin: int
    end: int
    cell: int
    cells: int
    is_whole: bool
    has_first: bool


def edge(cell: int, length: int, cell_count: int) -> int:
    """First index of a cell, as overviews lay cells out."""
    return cell * length // cell_count


def cell_runs(length: int, cell_count: int, part: Window) -> list[Run]:
    """Divide a window of an axis of `length` elements in `cell_count` cells into runs.

    Cell i of m begins at floor(i*n/m). A run of cells inside, from any cell on, is an overview of
    its own only if these edges, seen from its first, are those of floor(i*n'/m'). They are if the
    widths of its cells are a Christoffel word, or several times the same one. A Lyndon word in such
    a sequence of widths is one, and every sequence is Lyndon words that do not increase: a few
    different ones, each some times.
    """
    begin, end = part
    if begin == end:
        return []
    runs = []
    cell = ((begin + 1) * cell_count - 1) // length
    last = (end * cell_count - 1) // length
    if edge(cell, length, cell_count) < begin or (
        cell == last and edge(cell + 1, length, cell_count) > end
    ):
        stop = min(edge(cell + 1, length, cell_count), end)
        has_first = edge(cell, length, cell_count) == begin
        runs.append(Run(begin, stop, cell, 1, False, has_first))
        cell += 1
    beyond = last if edge(last + 1, length, cell_count) > end else last + 1
    for count in _exact_counts(length, cell_count, cell, beyond):
        edges = (edge(cell, length, cell_count), edge(cell + count, length, cell_count))
        runs.append(Run(*edges, cell, count, True, True))
        cell += count
    if cell == last:
        runs.append(Run(edge(cell, length, cell_count), end, cell, 1, False, True))
    return runs


def _exact_counts(length: int, cell_count: int, first: int, beyond: int) -> Iterator[int]:
    """How many cells each run of whole ones has, from cell `first` to before cell `beyond`."""
    if first >= beyond:
        return
    if first * length % cell_count == 0 and beyond * length % cell_count == 0:
        yield beyond - first  # the usual case: equal blocks, of whole cells
        return
    edges = [edge(cell, length, cell_count) for cell in range(first, beyond + 1)]
    widths = [b - a for a, b in itertools.pairwise(edges)]
    for _, equal in itertools.groupby(_lyndon_words(widths)):
        yield sum(map(len, equal))


def _lyndon_words(word: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The one factorisation into Lyndon words of which none is greater than the one before."""
    start = 0
    while start < len(word):
        compared, ahead = start, start + 1
        while ahead < len(word) and word[compared] <= word[ahead]:
            compared = start if word[compared] < word[ahead] else compared + 1
            ahead += 1
        factor = ahead - compared
        while start <= compared:
            yield tuple(word[start : start + factor])
            start += factor


def cell_sizes(lengths: Sequence[int], cells: Sequence[int]) -> npt.NDArray[np.float64]:
    """How many elements each cell has, of so many along each axis."""
    sizes = np.ones(())
    for length, count in zip(lengths, cells, strict=True):
        widths = np.diff([edge(cell, length, count) for cell in range(count + 1)])
        sizes = np.multiply.outer(sizes, widths.astype(np.float64))
    return sizes


def sum_cells(values: npt.NDArray[np.float64], cells: Sequence[int]) -> npt.NDArray[np.float64]:
    """Add up the elements of each cell, of so many along each axis."""
    for axis, count in enumerate(cells):
        edges = [edge(cell, values.shape[axis], count) for cell in range(count)]
        values = np.add.reduceat(values, edges, axis=axis)
    return values
