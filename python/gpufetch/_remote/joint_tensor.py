"""One array whose parts several servers hold: what a LazyArray of it asks, put together."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, final

import numpy as np
import numpy.typing as npt

from gpufetch._remote.cells import cell_ranges
from gpufetch._remote.joint_reductions import JointOverview, Ranges, Tile, joint_stats, read_tiles
from gpufetch._remote.parts import Box, Window, local_slices, selection, uncovered, window
from gpufetch._remote.published_tensor import PublishedTensor, of_one_publication
from gpufetch._remote.session import Session
from gpufetch._remote.together import Together
from gpufetch._remote.view import RemoteView, Slices
from gpufetch._view import HistogramResult, OverviewResult, as_view

__all__ = ["Gather", "JointTensor", "Part"]

T = TypeVar("T")


class Gather(Protocol):
    """Does jobs, each of which asks a server of its own, at the same time."""

    def __call__(self, jobs: Sequence[tuple[Session, Callable[[], T]]]) -> list[T]: ...


class Part(NamedTuple):
    """The box of the array that one server holds."""

    session: Session
    tensor: PublishedTensor
    box: Box

    @staticmethod
    def listed(session: Session, item: Mapping[str, Any]) -> Part:
        """The part that an item of the server's listing describes."""
        stop = tuple(a + n for a, n in zip(item["start"], item["shape"], strict=True))
        return Part(session, PublishedTensor(session, item), Box(tuple(item["start"]), stop))


class _Held(NamedTuple):
    """What a part holds of a selection: a window along each of the selection's axes."""

    part: Part
    windows: list[Window]


@final
class JointTensor:
    """An array of parts that do not overlap. Reading elements that no server holds is an error.

    Satisfies RemoteTensor. May be used from any thread. `gather` asks the servers; `connection` is
    the name of the connection that the array is from.
    """

    def __init__(
        self,
        gather: Gather,
        connection: str,
        name: str,
        shape: tuple[int, ...],
        parts: Sequence[Part],
    ) -> None:
        self._gather = gather
        self.server = connection
        self._parts = parts
        self.name = name
        self.shape = shape
        self.dtype: np.dtype[Any] = parts[0].tensor.dtype
        self.device: str = ", ".join(dict.fromkeys(part.tensor.device for part in parts))

    def _gpufetch_view(self) -> RemoteView:
        return RemoteView(self)

    def __repr__(self) -> str:
        return f"<tensor {self.name} of {self.server}>"

    @property
    def is_read_at_steps(self) -> bool:
        """Whether each request is of a step of its own."""
        return self._parts[0].tensor.is_read_at_steps

    def last_step(self) -> int | None:
        """The lowest of the steps that the parts' programs completed last; None if one has none."""
        steps = {part.tensor.last_step() for part in self._parts}
        known = [step for step in steps if step is not None]
        return min(known) if len(known) == len(steps) else None

    def _held(self, taken: Sequence[range]) -> list[_Held]:
        """What the parts hold of a selection. RuntimeError if that is not all of it."""
        held = []
        for part in self._parts:
            box = zip(taken, part.box.start, part.box.stop, strict=True)
            windows = [window(axis, start, stop) for axis, start, stop in box]
            if all(begin < end for begin, end in windows):
                held.append(_Held(part, windows))
        size = sum(math.prod(b - a for a, b in one.windows) for one in held)
        if size < math.prod(map(len, taken)):
            raise self._gap()
        return held

    def _gap(self) -> RuntimeError:
        gap = uncovered(self.shape, [part.box for part in self._parts])
        names = [part.session.label for part in self._parts]
        there = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
        return RuntimeError(
            f"{self.name}{gap or ''} of {self.shape} is held by no server (there are {there}): "
            "connect to every rank, and publish a part at each"
        )

    def _ask(self, slices: Slices, call: Callable[[PublishedTensor, Slices], T]) -> list[T]:
        """Ask each part for what it holds; the first for no element, if none is selected."""
        taken = selection(slices, self.shape)
        held = self._held(taken) or [_Held(self._parts[0], [(0, 0)] * len(taken))]
        jobs = []
        for part, windows in held:
            if windows and windows[0] == (0, 0):
                local: Slices = [[0, 0, 1]] * len(taken)
            else:
                local = local_slices(slices, taken, part.box, windows)
            jobs.append((part.session, functools.partial(call, part.tensor, local)))
        return self._gather(jobs)

    # --- Elements ---

    def read(
        self,
        slices: Slices,
        shape: tuple[int, ...],
        out: npt.NDArray[Any] | None,
        together: Together | None,
    ) -> npt.NDArray[Any]:
        """Pull the elements of a selection."""
        taken = selection(slices, self.shape)
        kept = [not isinstance(item, int) for item in slices]
        values: npt.NDArray[Any] = np.empty(shape, self.dtype) if out is None else out
        jobs = []
        for part, windows in self._held(taken):
            local = local_slices(slices, taken, part.box, windows)
            axes = itertools.compress(windows, kept)
            key: tuple[Any, ...] = (*(slice(*axis) for axis in axes), ...)
            job = functools.partial(_read_into, part.tensor, local, values[key], together)
            jobs.append((part.session, job))
        self._gather(jobs)
        return values

    # --- Reductions ---

    def overview(self, slices: Slices, shape: tuple[int, ...], method: str) -> OverviewResult:
        """Reduce a selection to the cells that an overview by one server would have."""
        taken = selection(slices, self.shape)
        kept = [not isinstance(item, int) for item in slices]
        lengths = [len(axis) for axis in itertools.compress(taken, kept)]
        if 0 in lengths:  # no server is asked, which would look at the method
            return as_view(np.empty(lengths, self.dtype)).overview(shape, method)
        cells = tuple(map(min, shape, lengths))
        jobs: list[tuple[Session, Callable[[], list[Tile]]]] = []
        for part, windows in self._held(taken):
            axes = zip(lengths, cells, itertools.compress(windows, kept), strict=True)
            places = [
                (_tile_slices(slices, taken, part.box, ranges), ranges)
                for ranges in itertools.product(*itertools.starmap(cell_ranges, axes))
                if method != "first" or all(axis.has_first for axis in ranges)
            ]
            if len(places) > 1 and self.is_read_at_steps:
                raise _of_several_steps(part, "give an overview other cells")
            if places:
                job = functools.partial(read_tiles, part.tensor, places, method)
                jobs.append((part.session, job))
        overview = JointOverview(cells, method, self.dtype)
        for tile in itertools.chain.from_iterable(self._gather(jobs)):
            overview.add(tile)
        return overview.finished()

    def stats(self, slices: Slices) -> dict[str, Any]:
        """Statistics of a selection."""
        return joint_stats(self._ask(slices, lambda tensor, local: tensor.stats(local)))

    def histogram(
        self, slices: Slices, bins: int, limits: tuple[float, float] | None
    ) -> HistogramResult:
        """Count the elements of a selection in bins."""
        held = self._held(selection(slices, self.shape))
        if limits is not None or len(held) <= 1:  # the range of one part's is its server's to find
            return self._histogram(slices, bins, limits, None)
        if self.is_read_at_steps:
            raise _of_several_steps(held[0].part, "give a histogram its range")

        def work() -> HistogramResult:
            together = Together(0, holds=True)
            found = self._ask(slices, lambda tensor, local: tensor.stats(local, together))
            together.holds = False  # the histograms let go
            return self._histogram(slices, bins, _limits(joint_stats(found)), together)

        return of_one_publication(self.name, work)

    def _histogram(
        self,
        slices: Slices,
        bins: int,
        limits: tuple[float, float] | None,
        together: Together | None,
    ) -> HistogramResult:
        found = self._ask(
            slices, lambda tensor, local: tensor.histogram(local, bins, limits, together)
        )
        counts = np.zeros(bins, np.uint64)
        for one in found:
            counts += one[0]
        nan_count, under_count, over_count = (sum(one[2][i] for one in found) for i in range(3))
        return counts, found[0][1], (nan_count, under_count, over_count)


def _limits(stats: Mapping[str, Any]) -> tuple[float, float]:
    """The range of a histogram of all the elements, as one server would take it."""
    if stats["finite_count"] == 0:
        return 0.0, 1.0
    return float(stats["finite_min"]), float(stats["finite_max"])


def _of_several_steps(part: Part, remedy: str) -> ValueError:
    return ValueError(
        f"this takes several requests to {part.session.label}, which would be of several steps: "
        f'{remedy}, or read live (at = "live")'
    )


def _read_into(
    tensor: PublishedTensor,
    slices: Slices,
    place: npt.NDArray[Any],
    together: Together | None,
) -> None:
    """Pull into a view of an array, without another copy if it is in C order."""
    if place.flags.c_contiguous:
        tensor.read(slices, place.shape, place, together)
    else:
        place[...] = tensor.read(slices, place.shape, None, together)


def _tile_slices(slices: Slices, taken: Sequence[range], box: Box, ranges: Ranges) -> Slices:
    """What to ask a part for: a range of cells along each axis that is kept."""
    of_kept = iter(ranges)
    windows = [(0, 1) if isinstance(item, int) else next(of_kept)[:2] for item in slices]
    return local_slices(slices, taken, box, windows)
