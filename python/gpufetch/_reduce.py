"""Overviews, statistics and histograms, computed where the tensor lies."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gpufetch._view import as_view

__all__ = ["Histogram", "Method", "Overview", "Stats", "histogram", "overview", "stats"]

Method = Literal["mean", "rms", "min", "max", "minmax", "first"]


@dataclass(frozen=True, eq=False)
class Overview:
    """A tensor reduced to few cells, and what of it could not be shown.

    values : the cells; of method="minmax" the minima.
    high : of method="minmax" the maxima, else None.
    method : the reduction.
    source_shape : the tensor's shape.
    count, nan_count, posinf_count, neginf_count : elements read, and those of them that are not
        finite; of method="first" only the elements that were taken are read.
    """

    values: npt.NDArray[Any]
    high: npt.NDArray[Any] | None
    method: str
    source_shape: tuple[int, ...]
    count: int
    nan_count: int
    posinf_count: int
    neginf_count: int

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """`values`; for method="minmax" both arrays, stacked along a new first axis."""
        if self.high is None:
            return np.array(self.values, dtype=dtype, copy=copy)
        if copy is False:
            raise ValueError('method="minmax" gives two arrays: leave out copy=False')
        return np.array([self.values, self.high], dtype=dtype)

    def __repr__(self) -> str:
        odd = {"NaN": self.nan_count, "+inf": self.posinf_count, "-inf": self.neginf_count}
        notes = "".join(f", {count} {name}" for name, count in odd.items() if count)
        return (
            f"Overview({self.method} of {self.source_shape} in {self.values.shape}, "
            f"dtype={self.values.dtype}{notes})"
        )


@dataclass(frozen=True)
class Stats:
    """Statistics of all elements of a tensor.

    min and max are of the elements that are not NaN (int for integers and bool, else float);
    finite_min, finite_max, mean and variance of the finite ones. variance divides by their count.
    NaN (0 for the extremes of integers) where there is none.
    """

    count: int
    nan_count: int
    posinf_count: int
    neginf_count: int
    finite_count: int
    zero_count: int
    min: int | float
    max: int | float
    finite_min: int | float
    finite_max: int | float
    mean: float
    variance: float

    @property
    def std(self) -> float:
        """Standard deviation: the square root of the variance."""
        return math.sqrt(self.variance)


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts of elements in bins of equal width.

    counts : uint64, one a bin.
    edges : float64, one more; bin i holds edges[i] <= x < edges[i + 1], the last also its end.
    nan_count, under_count, over_count : elements in no bin; infinities are under or over.
    """

    counts: npt.NDArray[np.uint64]
    edges: npt.NDArray[np.float64]
    nan_count: int
    under_count: int
    over_count: int


def overview(x: Any, shape: int | Sequence[int], method: Method = "mean") -> Overview:
    """Reduce a tensor to at most `shape` cells, on its device, and fetch these.

    `shape` has a length for each axis (an int for a tensor of one axis); one beyond the tensor's
    is taken as the tensor's. Cell i of m along an axis of n elements covers the indices
    i*n//m to (i+1)*n//m - 1, so each element counts in exactly one cell.

    method : "mean" and "rms" are of the finite elements of a cell (float64 for 8-byte types, else
    float32); "min", "max" and "minmax" of those that are not NaN, in the tensor's dtype; "first"
    is the element at the cell's lowest indices. A cell with nothing to take is NaN. Arrays from
    64 KiB on lie in the pinned pool, as fetched ones do.

    Takes what `fetch` takes, in any layout, of every real dtype. Raises ValueError for a shape
    that does not fit and TypeError for a complex tensor. Releases the GIL.
    """
    lengths = tuple(shape) if isinstance(shape, Sequence) else (operator.index(shape),)
    view = as_view(x)
    values, high, counts = view.overview(tuple(map(operator.index, lengths)), method)
    return Overview(values, high, method, view.shape, *counts)


def stats(x: Any) -> Stats:
    """Count, extremes, mean and variance of a tensor, in one read of it on its device.

    Takes what `fetch` takes, of every real dtype. The result is the same at every run.
    """
    return Stats(**as_view(x).stats())


def histogram(x: Any, bins: int = 64, range: tuple[float, float] | None = None) -> Histogram:
    """Count a tensor's elements in `bins` equal bins, on its device, as numpy.histogram does.

    `range` is (low, high); None takes that of the finite elements, by a read of its own. Elements
    are compared as float64. Takes what `fetch` takes, of every real dtype. Raises ValueError for
    a range that is not finite or too narrow for so many bins (at most 65536).
    """
    limits = None if range is None else (float(range[0]), float(range[1]))
    counts, edges, rest = as_view(x).histogram(operator.index(bins), limits)
    return Histogram(counts, edges, *rest)
