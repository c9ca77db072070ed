"""Reading the rows that an index array names, and not the box around them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufetch.hdf5._boxes import Box
from gpufetch.hdf5._selection import Selection

__all__ = ["GAP_NBYTES_MAX", "read_around"]

GAP_NBYTES_MAX = 64 << 10
"""Most bytes between two rows of a dataset without chunks that are read with them."""


@dataclass(frozen=True)
class _Rows:
    """The rows of an axis to read: ranges of the box's indices, in order and apart."""

    axis: int
    starts: npt.NDArray[np.intp]
    stops: npt.NDArray[np.intp]

    @property
    def count(self) -> int:
        return int(np.sum(self.stops - self.starts))

    def places(self, indices: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Where the rows of these indices are among those that are read."""
        before = np.concatenate(([0], np.cumsum(self.stops - self.starts)[:-1]))
        which = np.searchsorted(self.starts, indices, side="right") - 1
        found: npt.NDArray[np.intp] = indices - self.starts[which] + before[which]
        return found


def read_around(
    selected: Selection,
    chunks: tuple[int, ...] | None,
    itemsize: int,
    read: Callable[[Box], npt.NDArray[Any]],
) -> npt.NDArray[Any]:
    """Read a selection, whose `rest` is not None: the box, or its rows if these are at most half.

    `read` reads a box. Rows share a read if no chunk lies between them, or, in a dataset without
    chunks, at most GAP_NBYTES_MAX bytes.
    """
    assert selected.rest is not None
    rows = _sparsest(selected, chunks, itemsize)
    if rows is None:
        box: npt.NDArray[Any] = read(selected.box)[selected.rest]
        return box
    (start, shape), axis = selected.box, rows.axis
    parts = []
    for first, stop in zip(rows.starts.tolist(), rows.stops.tolist(), strict=True):
        low = (*start[:axis], start[axis] + first, *start[axis + 1 :])
        parts.append(read((low, (*shape[:axis], stop - first, *shape[axis + 1 :]))))
    rest = list(selected.rest)
    at = [i for i, item in enumerate(rest) if item is not Ellipsis and item is not None][axis]
    rest[at] = rows.places(rest[at])
    named: npt.NDArray[Any] = np.concatenate(parts, axis)[tuple(rest)]
    return named


def _sparsest(selected: Selection, chunks: tuple[int, ...] | None, itemsize: int) -> _Rows | None:
    """The axis of whose box the smallest share must be read; None if all need more than half."""
    assert selected.rest is not None
    start, shape = selected.box
    best, least = None, 0.5
    items = [item for item in selected.rest if item is not Ellipsis and item is not None]
    for axis, item in enumerate(items):
        if not isinstance(item, np.ndarray) or item.size == 0 or shape[axis] == 0:
            continue
        indices = np.unique(item)
        if chunks is None:
            row_nbytes = math.prod(shape) // shape[axis] * itemsize
            apart = (np.diff(indices) - 1) * row_nbytes > GAP_NBYTES_MAX
        else:
            apart = np.diff((indices + start[axis]) // chunks[axis]) > 1
        cuts = np.flatnonzero(apart) + 1
        ends = np.concatenate((cuts, [len(indices)]))
        rows = _Rows(axis, indices[np.concatenate(([0], cuts))], indices[ends - 1] + 1)
        if rows.count / shape[axis] <= least:
            best, least = rows, rows.count / shape[axis]
    return best
