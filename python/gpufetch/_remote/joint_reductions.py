"""Statistics and overviews of one array, put together from those of its parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufetch._remote.cells import CellRange, cell_sizes, sum_cells
from gpufetch._remote.published_tensor import PublishedTensor
from gpufetch._remote.together import Together
from gpufetch._remote.view import Slices
from gpufetch._view import Counts, OverviewResult

__all__ = ["JointOverview", "Ranges", "Tile", "joint_stats", "read_tiles"]

_AVERAGES = ("mean", "rms")

Ranges = tuple[CellRange, ...]
"""The cells of an overview along each axis that a request gives."""


def joint_stats(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The statistics of all the elements, from those that the parts have of theirs."""
    if len(parts) == 1:
        return parts[0]
    counts = [name for name in parts[0] if name.endswith("count")]
    total: dict[str, Any] = {name: sum(part[name] for part in parts) for name in counts}
    numbers = [part for part in parts if part["count"] > part["nan_count"]] or parts[:1]
    finite = [part for part in parts if part["finite_count"] > 0] or parts[:1]
    total["min"] = min(part["min"] for part in numbers)
    total["max"] = max(part["max"] for part in numbers)
    total["finite_min"] = min(part["finite_min"] for part in finite)
    total["finite_max"] = max(part["finite_max"] for part in finite)
    n = total["finite_count"]
    if n == 0:
        return {**total, "mean": parts[0]["mean"], "variance": parts[0]["variance"]}
    weights = [part["finite_count"] / n for part in finite]
    means = [part["mean"] for part in finite]
    mean = math.fsum(w * m for w, m in zip(weights, means, strict=True))
    mean = min(max(mean, min(means)), max(means))  # the weights are rounded
    variance = math.fsum(
        w * (part["variance"] + (m - mean) * (m - mean))
        for w, m, part in zip(weights, means, finite, strict=True)
    )
    return {**total, "mean": mean, "variance": variance}


@dataclass
class Tile:
    """Some cells of an overview, as one request gave them.

    `ranges` are the cells along each axis. `weights` are the elements that went into each cell,
    for averages the finite ones; None if the cells have no elements in other tiles.
    """

    ranges: Ranges
    values: npt.NDArray[Any]
    high: npt.NDArray[Any] | None
    weights: npt.NDArray[np.float64] | None
    counts: Counts


def read_tiles(
    tensor: PublishedTensor, places: Sequence[tuple[Slices, Ranges]], method: str
) -> list[Tile]:
    """Ask for the cells that selections of one part give, all of them of one publication of it."""

    def read(together: Together | None) -> list[Tile]:
        return [_read_tile(tensor, *place, method, together) for place in places]

    is_one = len(places) == 1 and (method not in _AVERAGES or _are_whole(places[0][1]))
    return read(None) if is_one or tensor.is_read_at_steps else tensor.of_one_publication(read)


def _are_whole(ranges: Ranges) -> bool:
    return all(axis.is_whole for axis in ranges)


def _read_tile(
    tensor: PublishedTensor,
    slices: Slices,
    ranges: Ranges,
    method: str,
    together: Together | None,
) -> Tile:
    """Ask for the cells that a selection of one part gives."""
    shape = tuple(axis.cells for axis in ranges)
    values, high, counts = tensor.overview(slices, shape, method, together)
    if _are_whole(ranges) or method == "first":
        return Tile(ranges, values, high, None, counts)
    lengths = tuple(axis.end - axis.begin for axis in ranges)
    weights = cell_sizes(lengths, values.shape)
    if method in _AVERAGES and any(counts[1:]):
        # The reply does not say which cells have how many finite elements.
        if tensor.is_read_at_steps:
            raise ValueError(
                f"cells of {tensor.name} that several servers share have elements that are not "
                'finite, which takes a second read, of another step: read live (at = "live")'
            )
        elements = tensor.read(slices, lengths, None, together).astype(np.float64)
        weights = sum_cells(np.isfinite(elements).astype(np.float64), values.shape)
    return Tile(ranges, values, high, weights, counts)


class JointOverview:
    """An overview that is filled tile by tile; some cells get values from several tiles."""

    def __init__(self, cells: tuple[int, ...], method: str, dtype: np.dtype[Any]) -> None:
        self._method = method
        averaged = method in _AVERAGES
        wide = np.float32 if dtype.itemsize < (4 if dtype.kind in "iu" else 8) else np.float64
        kind = np.dtype(wide) if averaged else dtype
        self._values = np.full(cells, np.nan, kind) if averaged else np.zeros(cells, kind)
        self._high = np.zeros(cells, kind) if method == "minmax" else None
        # For cells with elements in several tiles: the average so far, and its weight.
        self._sums: npt.NDArray[np.float64] | None = None
        self._weights = np.zeros(cells)
        self._counts = [0, 0, 0, 0]

    def add(self, tile: Tile) -> None:
        """Take in what one request gave."""
        key = tuple(slice(axis.cell, axis.cell + axis.cells) for axis in tile.ranges)
        self._counts = [a + b for a, b in zip(self._counts, tile.counts, strict=True)]
        if tile.weights is None:
            self._values[key] = tile.values
            if self._high is not None:
                self._high[key] = tile.high
        elif self._method in _AVERAGES:
            self._average(key, tile.values.astype(np.float64), tile.weights)
        else:
            is_new = self._weights[key] == 0
            self._weights[key] += tile.weights
            lowest = self._method != "max"
            _keep_extreme(self._values, key, tile.values, is_new, lowest)
            if self._high is not None and tile.high is not None:
                _keep_extreme(self._high, key, tile.high, is_new, False)

    def _average(
        self,
        key: tuple[slice, ...],
        values: npt.NDArray[np.float64],
        weights: npt.NDArray[np.float64],
    ) -> None:
        if self._sums is None:
            self._sums = np.full(self._values.shape, np.nan)
        old, old_weights = self._sums[key], self._weights[key]
        total = old_weights + weights
        with np.errstate(invalid="ignore", divide="ignore"):
            a = np.where(old_weights > 0, old, 0.0)
            b = np.where(weights > 0, values, 0.0)
            if self._method == "rms":  # hypot does not overflow where a square would
                both = np.hypot(a * np.sqrt(old_weights / total), b * np.sqrt(weights / total))
            else:
                both = a * (old_weights / total) + b * (weights / total)
        self._sums[key] = np.where(total > 0, both, np.nan)
        self._weights[key] = total

    def finished(self) -> OverviewResult:
        """The overview, when every tile was added."""
        if self._sums is not None:
            is_average = self._weights > 0
            self._values[is_average] = self._sums[is_average]
        count, nan, posinf, neginf = self._counts
        return self._values, self._high, (count, nan, posinf, neginf)


def _keep_extreme(
    kept: npt.NDArray[Any],
    key: tuple[slice, ...],
    values: npt.NDArray[Any],
    is_new: npt.NDArray[np.bool_],
    lowest: bool,
) -> None:
    """Keep the lower (or higher) of two values for each cell; any value is better than NaN."""
    old = kept[key]
    with np.errstate(invalid="ignore"):  # NaN of bfloat16
        better = (values < old) if lowest else (values > old)
    kept[key] = np.where(is_new | better | (old != old), values, old)
