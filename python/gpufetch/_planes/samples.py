"""Ranges of a tensor with one axis: samples, or the lowest and the highest value of each cell."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpufetch._planes.notes import Note, cells_text, left_out
from gpufetch._planes.source import Source, part_view
from gpufetch._view import View

__all__ = ["Points", "Samples", "envelope"]


class Points(NamedTuple):
    """Points of a line, and how they were reduced."""

    x: npt.NDArray[np.float64]
    y: npt.NDArray[Any]
    note: str


class Samples:
    """Reads ranges of samples. Immutable; for any thread."""

    def __init__(self, source: Source, part: str | None, ends: tuple[float, float]) -> None:
        self._source = source
        self._part = part
        self.ends = ends  # where the first and the last sample lie
        self.size = source.array.size

    def view(self) -> View:
        return part_view(self._source.view(), self._part, ("real", "imag"))

    def edges(self) -> tuple[float, float]:
        """Where the first sample begins and the last one ends, half a step beyond their middles."""
        first, last = self.ends
        half = (last - first) / (2 * (self.size - 1)) if self.size > 1 else 0.5
        return first - half, last + half

    def _positions(self, indices: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        first, last = self.ends
        return first + (last - first) * (np.asarray(indices, np.float64) / max(1, self.size - 1))

    def read(self, view: View, first: int, last: int, cells: int) -> Points:
        """The samples first to last - 1, or the envelope of so many cells."""
        count = last - first
        low, high, note = envelope(view, first, last, cells)
        if high is None:
            return Points(self._positions(np.arange(first, last)), _plain(low), "")
        starts = first + np.arange(cells + 1) * count // cells
        middles = self._positions((starts[:-1] + starts[1:] - 1) / 2)
        pairs = np.stack([_plain(low), _plain(high)], axis=1)
        pairs[1::2] = pairs[1::2, ::-1]  # neighbours meet at the side where both have a value
        return Points(np.repeat(middles, 2), pairs.reshape(-1), note.text())


def envelope(
    view: View, first: int, last: int, cells: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None, Note]:
    """The lowest and the highest value in each of so many cells, and how they were reduced.

    With a cell for each sample, the samples first to last - 1, and None.
    """
    part = view[first:last]
    if cells == last - first:
        return part.fetch(), None, Note("", {})
    low, high, counts = part.overview((cells,), "minmax")
    if high is None:
        raise RuntimeError("an overview by minmax has no maxima")
    name = f"lowest to highest of {cells_text((last - first,), (cells,))}"
    return low, high, Note(name, left_out(counts))


def _plain(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return np.asarray(values, np.float64)
