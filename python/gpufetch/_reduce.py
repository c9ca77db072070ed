"""Overviews, statistics and histograms, computed on the device of the tensor."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gpufetch._checks import check_copy, check_int
from gpufetch._view import as_view

__all__ = ["Histogram", "Method", "Overview", "Stats", "histogram", "overview", "stats"]

Method = Literal["mean", "rms", "min", "max", "minmax", "first"]


@dataclass(frozen=True, eq=False)
class Overview:
    """A tensor reduced to few cells, and its elements that are not finite.

    Attributes
    ----------
    values
        The cells; the minima if `method` is "minmax".
    high
        The maxima if `method` is "minmax", else None.
    method
        The reduction.
    source_shape
        The tensor's shape.
    count, nan_count, posinf_count, neginf_count
        The elements that were read, and those of them that are NaN, +inf and -inf. "first" reads
        one element of each cell, every other method all elements.
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
        """`values`; for "minmax", `values` and `high` stacked along a new first axis."""
        if self.high is None:
            return np.array(self.values, dtype=dtype, copy=copy)
        if check_copy(copy) is False:
            raise ValueError('method="minmax" gives two arrays: leave out copy=False')
        return np.array([self.values, self.high], dtype=dtype)

    def __repr__(self) -> str:
        odd = {"NaN": self.nan_count, "+inf": self.posinf_count, "-inf": self.neginf_count}
        notes = "".join(f", {count} {name}" for name, count in odd.items() if count)
        return (
            f"Overview({self.method} of {self.source_shape} in {self.values.shape}, "
            f"dtype={self.values.dtype}{notes})"
        )

    def _repr_html_(self) -> str:
        from gpufetch._display.results import overview_html  # not before something is shown

        return overview_html(self)


@dataclass(frozen=True)
class Stats:
    """Statistics of all elements of a tensor.

    min and max are of the elements that are not NaN; finite_min, finite_max, mean and variance are
    of the finite elements. Extremes are int for integers and bool, else float. The variance is the
    mean squared deviation: it divides by the number of finite elements. Without an element to take,
    these are NaN, and 0 for the extremes of integers. Where sums of finite elements leave float64's
    range, mean and variance may be infinite or NaN, too.
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

    def _repr_html_(self) -> str:
        from gpufetch._display.results import stats_html  # not before something is shown

        return stats_html(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        from gpufetch._display.results import print_stats

        print_stats(self, printer)


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts of elements in bins of equal width.

    Attributes
    ----------
    counts
        The elements in each bin, uint64.
    edges
        float64, one more than there are bins: bin i holds edges[i] <= x < edges[i + 1], the last
        bin also x == edges[-1].
    nan_count, under_count, over_count
        The elements that are in no bin. Infinities are under or over.
    """

    counts: npt.NDArray[np.uint64]
    edges: npt.NDArray[np.float64]
    nan_count: int
    under_count: int
    over_count: int

    def _repr_html_(self) -> str:
        from gpufetch._display.results import histogram_html  # not before something is shown

        return histogram_html(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        from gpufetch._display.results import print_histogram

        print_histogram(self, printer)


def overview(x: Any, shape: int | Sequence[int], method: Method = "mean") -> Overview:
    """Reduce a tensor to at most `shape` cells on its device, and fetch the cells.

    Cell i of m along an axis of n elements has the indices i*n//m to (i+1)*n//m - 1, so that each
    element is in exactly one cell.

    Parameters
    ----------
    x
        A tensor that `fetch` takes, in any layout, of any real dtype.
    shape
        The number of cells along each axis; an int for a tensor of one axis. A number that is
        larger than the axis is taken as its length.
    method
        "mean" and "rms" are of the finite elements of a cell, in float64 for 8-byte types and
        4-byte integers, and else in float32. "min", "max" and "minmax" are of the elements that are
        not NaN, in the tensor's dtype. "first" is the element at the cell's lowest indices. A cell
        without an element to take is NaN. Where sums leave float64's range, "mean" and "rms" may be
        infinite or NaN; below magnitudes of 1.5e-154 "rms" loses digits.

    Returns
    -------
    Overview
        Arrays of at least 64 KiB lie in the pinned pool, as fetched ones do.

    Raises
    ------
    ValueError
        `shape` or `method` does not fit.
    TypeError
        The tensor is complex.

    Releases the GIL; may be called from any thread.
    """
    lengths = tuple(shape) if isinstance(shape, Sequence) else (operator.index(shape),)
    view = as_view(x)
    values, high, counts = view.overview(tuple(map(operator.index, lengths)), method)
    return Overview(values, high, method, view.shape, *counts)


def stats(x: Any) -> Stats:
    """Compute count, extremes, mean and variance of a tensor, which its device reads once.

    Takes what `fetch` takes, of any real dtype; TypeError for a complex tensor. The result is the
    same each time. Releases the GIL; may be called from any thread.
    """
    return Stats(**as_view(x).stats())


def histogram(x: Any, bins: int = 64, range: tuple[float, float] | None = None) -> Histogram:
    """Count a tensor's elements in bins on its device, as numpy.histogram does.

    Elements are compared as float64. Releases the GIL; may be called from any thread.

    Parameters
    ----------
    x
        A tensor that `fetch` takes, of any real dtype.
    bins
        The number of bins, all of one width; at most 65536.
    range
        Lowest and highest edge. By default those of the finite elements, for which the tensor is
        read once more.

    Raises
    ------
    ValueError
        The range is not finite, or too narrow for so many bins.
    TypeError
        The tensor is complex, or the range is not two numbers.
    """
    limits = None if range is None else _limits(range)
    counts, edges, rest = as_view(x).histogram(check_int(bins, "bins"), limits)
    return Histogram(counts, edges, *rest)


def _limits(range: Any) -> tuple[float, float]:
    try:
        low, high = map(float, range)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"range is {range!r:.80}: give two numbers, (low, high)") from None
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"range ({low}, {high}) is not finite: give two finite numbers")
    return low, high
