"""One array whose blocks several servers hold: what a LazyArray of it asks, put together."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from gpufetch._blocks import (
    Box,
    Run,
    Window,
    cell_runs,
    cell_sizes,
    local_slices,
    selection,
    sum_cells,
    uncovered,
    window,
)
from gpufetch._remote_view import Counts, RemoteView, Slices

if TYPE_CHECKING:
    from gpufetch._connect import PublishedTensor, ServerConnection
    from gpufetch._joint import JointConnection

__all__ = ["Block", "JointTensor"]


class Block(NamedTuple):
    """What one server holds of the array."""

    server: ServerConnection
    tensor: PublishedTensor
    box: Box

    @staticmethod
    def listed(server: ServerConnection, item: Mapping[str, Any]) -> Block:
        """As the server lists it."""
        tensor = server._tensor(item)
        stop = tuple(a + n for a, n in zip(item["start"], item["shape"], strict=True))
        return Block(server, tensor, Box(tuple(item["start"]), stop))


@dataclass
class _Piece:
    """What a block holds of a selection: a window along each of the selection's axes."""

    block: Block
    windows: list[Window]


@final
class JointTensor:
    """Blocks that do not overlap; elements that no server holds are refused when they are read.

    Satisfies RemoteTensor. May be used from any thread.
    """

    def __init__(
        self,
        connection: JointConnection,
        name: str,
        shape: tuple[int, ...],
        blocks: Sequence[Block],
    ) -> None:
        self._connection = connection
        self._blocks = blocks
        self.name = name
        self.shape = shape
        self.dtype: np.dtype[Any] = blocks[0].tensor.dtype
        self.device: str = ", ".join(dict.fromkeys(block.tensor.device for block in blocks))

    def _gpufetch_view(self) -> RemoteView:
        return RemoteView(self)

    def __repr__(self) -> str:
        return f"<tensor {self.name} of {self._connection.name}>"

    # --- Pieces ---

    def _pieces(self, taken: Sequence[range]) -> list[_Piece]:
        """What each block holds of a selection; together they are all of it."""
        pieces = []
        for block in self._blocks:
            box = zip(taken, block.box.start, block.box.stop, strict=True)
            windows = [window(axis, start, stop) for axis, start, stop in box]
            if all(begin < end for begin, end in windows):
                pieces.append(_Piece(block, windows))
        held = sum(math.prod(b - a for a, b in piece.windows) for piece in pieces)
        if held < math.prod(map(len, taken)):
            raise self._gap()
        return pieces

    def _gap(self) -> RuntimeError:
        gap = uncovered(self.shape, [block.box for block in self._blocks])
        names = [block.server.label for block in self._blocks]
        there = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
        return RuntimeError(
            f"{self.name}{gap or ''} of {self.shape} is held by no server (there are {there}): "
            "connect to every rank, and publish a block at each"
        )

    def _ask(
        self, slices: Slices, call: Callable[[PublishedTensor, Slices], dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Ask each block for what it holds; the first one for nothing, if nothing is selected."""
        taken = selection(slices, self.shape)
        pieces = self._pieces(taken) or [_Piece(self._blocks[0], [(0, 0)] * len(taken))]
        jobs = []
        for piece in pieces:
            if piece.windows and piece.windows[0] == (0, 0):
                local: Slices = [[0, 0, 1]] * len(taken)
            else:
                local = local_slices(slices, taken, piece.block.box, piece.windows)
            jobs.append((piece.block.server, functools.partial(call, piece.block.tensor, local)))
        return self._connection.gather(jobs)

    # --- Elements ---

    def read(
        self, slices: Slices, shape: tuple[int, ...], out: npt.NDArray[Any] | None
    ) -> npt.NDArray[Any]:
        """Pull a part."""
        taken = selection(slices, self.shape)
        kept = [not isinstance(item, int) for item in slices]
        values: npt.NDArray[Any] = np.empty(shape, self.dtype) if out is None else out
        jobs = []
        for piece in self._pieces(taken):
            local = local_slices(slices, taken, piece.block.box, piece.windows)
            windows = itertools.compress(piece.windows, kept)
            key: tuple[Any, ...] = (*(slice(*axis) for axis in windows), ...)
            job = functools.partial(_fetch, piece.block.tensor, local, values[key])
            jobs.append((piece.block.server, job))
        self._connection.gather(jobs)
        return values

    # --- Reductions ---

    def reduce(
        self, slices: Slices, shape: tuple[int, ...], how: str
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None, Counts]:
        """An overview of a part, of the cells that one server's would have."""
        taken = selection(slices, self.shape)
        kept = [not isinstance(item, int) for item in slices]
        lengths = [len(axis) for axis in itertools.compress(taken, kept)]
        cells = tuple(map(min, shape, lengths))
        jobs: list[tuple[ServerConnection, Callable[[], _Tile]]] = []
        for piece in self._pieces(taken):
            windows = itertools.compress(piece.windows, kept)
            runs = [cell_runs(*axis) for axis in zip(lengths, cells, windows, strict=True)]
            for some in itertools.product(*runs):
                if how == "first" and not all(run.has_first for run in some):
                    continue
                asked = self._run_slices(slices, taken, piece, some)
                job = functools.partial(_tile, piece.block.tensor, asked, some, how)
                jobs.append((piece.block.server, job))
        overview = _Overview(cells, how, self.dtype)
        for tile in self._connection.gather(jobs):
            overview.add(tile)
        return overview.finished()

    def _run_slices(
        self, slices: Slices, taken: Sequence[range], piece: _Piece, runs: Sequence[Run]
    ) -> Slices:
        """What to ask a block for: a run of cells along each axis that is kept."""
        of_kept = iter(runs)
        windows = [(0, 1) if isinstance(item, int) else next(of_kept)[:2] for item in slices]
        return local_slices(slices, taken, piece.block.box, windows)

    def stats(self, slices: Slices) -> dict[str, Any]:
        """Statistics of a part."""
        return joined_stats(self._ask(slices, lambda tensor, local: tensor.stats(local)))

    def histogram(
        self, slices: Slices, bins: int, limits: tuple[float, float] | None
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64], tuple[int, int, int]]:
        """A histogram of a part."""
        if limits is None:  # that of all the elements, as one server would take it
            stats = self.stats(slices)
            some = stats["finite_count"] > 0
            ends = (stats["finite_min"], stats["finite_max"]) if some else (0.0, 1.0)
            limits = (float(ends[0]), float(ends[1]))
        parts = self._ask(
            slices, lambda tensor, local: {"histogram": tensor.histogram(local, bins, limits)}
        )
        found = [part["histogram"] for part in parts]
        counts = np.zeros(bins, np.uint64)
        for part in found:
            counts += part[0]
        nan, under, over = (sum(part[2][i] for part in found) for i in range(3))
        return counts, found[0][1], (nan, under, over)


# --- Putting together ---


def _fetch(tensor: PublishedTensor, slices: Slices, part: npt.NDArray[Any]) -> None:
    """Pull into a part of an array, where it can without another copy."""
    if part.flags.c_contiguous:
        tensor.read(slices, part.shape, part)
    else:
        part[...] = tensor.read(slices, part.shape, None)


def joined_stats(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The statistics of all the elements from those of parts of them."""
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
class _Tile:
    """What one request gave: some cells of an overview, and the finite elements in each."""

    runs: tuple[Run, ...]
    values: npt.NDArray[Any]
    high: npt.NDArray[Any] | None
    weights: npt.NDArray[np.float64] | None  # None: the cells are whole, and have no others
    counts: Counts


def _tile(tensor: PublishedTensor, slices: Slices, runs: tuple[Run, ...], how: str) -> _Tile:
    values, high, counts = tensor.reduce(slices, tuple(run.cells for run in runs), how)
    if all(run.is_whole for run in runs) or how == "first":
        return _Tile(runs, values, high, None, counts)
    lengths = tuple(run.end - run.begin for run in runs)
    weights = cell_sizes(lengths, values.shape)
    if how in ("mean", "rms") and any(counts[1:]):
        # How many elements of a cell are finite only the elements tell.
        if tensor.is_read_at_steps:
            raise ValueError(
                f"cells of {tensor.name} that several servers share have elements that are not "
                'finite, which takes a second read, of another step: read live (at = "live")'
            )
        elements = tensor.read(slices, lengths, None).astype(np.float64)
        weights = sum_cells(np.isfinite(elements).astype(np.float64), values.shape)
    return _Tile(runs, values, high, weights, counts)


class _Overview:
    """Cells of which some come from several servers."""

    def __init__(self, cells: tuple[int, ...], how: str, dtype: np.dtype[Any]) -> None:
        self._how = how
        averaged = how in ("mean", "rms")
        wide = np.float64 if dtype.itemsize == 8 else np.float32
        kind = np.dtype(wide) if averaged else dtype
        self._values = np.full(cells, np.nan, kind) if averaged else np.zeros(cells, kind)
        self._high = np.zeros(cells, kind) if how == "minmax" else None
        # Of cells that come in parts: the average so far in float64, and its weight.
        self._sums: npt.NDArray[np.float64] | None = None
        self._weights = np.zeros(cells)
        self._counts = [0, 0, 0, 0]

    def add(self, tile: _Tile) -> None:
        """Take in what one request gave."""
        key = tuple(slice(run.cell, run.cell + run.cells) for run in tile.runs)
        self._counts = [a + b for a, b in zip(self._counts, tile.counts, strict=True)]
        if tile.weights is None:
            self._values[key] = tile.values
            if self._high is not None:
                self._high[key] = tile.high
        elif self._how in ("mean", "rms"):
            self._average(key, tile.values.astype(np.float64), tile.weights)
        else:
            is_new = self._weights[key] == 0
            self._weights[key] += tile.weights
            lowest = self._how != "max"
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
            if self._how == "rms":  # without squares that float64 cannot hold
                both = np.hypot(a * np.sqrt(old_weights / total), b * np.sqrt(weights / total))
            else:
                both = a * (old_weights / total) + b * (weights / total)
        self._sums[key] = np.where(total > 0, both, np.nan)
        self._weights[key] = total

    def finished(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None, Counts]:
        """The whole overview."""
        if self._sums is not None:
            in_parts = self._weights > 0
            self._values[in_parts] = self._sums[in_parts]
        count, nan, posinf, neginf = self._counts
        return self._values, self._high, (count, nan, posinf, neginf)


def _keep_extreme(
    kept: npt.NDArray[Any],
    key: tuple[slice, ...],
    values: npt.NDArray[Any],
    is_new: npt.NDArray[np.bool_],
    lowest: bool,
) -> None:
    """Of each cell the lesser (greater) of what is kept and what came; NaN is neither."""
    old = kept[key]
    better = (values < old) if lowest else (values > old)
    kept[key] = np.where(is_new | better | (old != old), values, old)
