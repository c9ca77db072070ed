"""The cells of an overview, some of which have elements in several parts of the array."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpufetch._remote.parts import Window

__all__ = ["CellRange", "cell_ranges", "cell_sizes", "edge", "sum_cells"]


class CellRange(NamedTuple):
    """`cells` cells of an axis, from number `cell` on, as far as they lie in [begin, end).

    An overview of [begin, end) in that many cells has exactly these cells. is_whole is False for a
    single cell of which only some elements lie in [begin, end); has_first says whether its first
    element does.
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


def cell_ranges(length: int, cell_count: int, held: Window) -> list[CellRange]:
    """Divide a window of an axis, which has `length` elements and `cell_count` cells, into ranges.

    Cell i of m begins at floor(i*n/m). A range of m' cells with n' elements, from any cell on, is
    an overview of its own only if its edges, counted from its first one, are floor(i*n'/m'). They
    are if the widths of its cells are a Christoffel word, or one such word several times. A Lyndon
    word in the sequence of all widths is a Christoffel word, and every sequence is a product of
    Lyndon words that do not increase: here a few different ones, each repeated.
    """
    begin, end = held
    if begin == end:
        return []
    ranges = []
    cell = ((begin + 1) * cell_count - 1) // length
    last = (end * cell_count - 1) // length
    if edge(cell, length, cell_count) < begin or (
        cell == last and edge(cell + 1, length, cell_count) > end
    ):
        stop = min(edge(cell + 1, length, cell_count), end)
        has_first = edge(cell, length, cell_count) == begin
        ranges.append(CellRange(begin, stop, cell, 1, False, has_first))
        cell += 1
    beyond = last if edge(last + 1, length, cell_count) > end else last + 1
    for count in _exact_counts(length, cell_count, cell, beyond):
        edges = (edge(cell, length, cell_count), edge(cell + count, length, cell_count))
        ranges.append(CellRange(*edges, cell, count, True, True))
        cell += count
    if cell == last:
        ranges.append(CellRange(edge(cell, length, cell_count), end, cell, 1, False, True))
    return ranges


def _exact_counts(length: int, cell_count: int, first: int, beyond: int) -> Iterator[int]:
    """The number of cells in each range of whole cells, from `first` to before `beyond`."""
    if first >= beyond:
        return
    if first * length % cell_count == 0 and beyond * length % cell_count == 0:
        yield beyond - first  # the usual case: equal parts, of whole cells
        return
    edges = [edge(cell, length, cell_count) for cell in range(first, beyond + 1)]
    widths = [b - a for a, b in itertools.pairwise(edges)]
    for _, equal in itertools.groupby(_lyndon_words(widths)):
        yield sum(map(len, equal))


def _lyndon_words(word: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Factorise into Lyndon words, none greater than the one before (Duval's algorithm)."""
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
    """The number of elements in each of `cells` cells along axes of `lengths` elements."""
    sizes = np.ones(())
    for length, count in zip(lengths, cells, strict=True):
        widths = np.diff([edge(cell, length, count) for cell in range(count + 1)])
        sizes = np.multiply.outer(sizes, widths.astype(np.float64))
    return sizes


def sum_cells(values: npt.NDArray[np.float64], cells: Sequence[int]) -> npt.NDArray[np.float64]:
    """Add up the elements of each of `cells` cells along the axes."""
    for axis, count in enumerate(cells):
        edges = [edge(cell, values.shape[axis], count) for cell in range(count)]
        values = np.add.reduceat(values, edges, axis=axis)
    return values
