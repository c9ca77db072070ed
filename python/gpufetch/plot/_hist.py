"""Histograms of tensors, counted on the device."""

from __future__ import annotations

import functools
import math
import sys
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.artist import allow_rasterization
from matplotlib.axes import Axes
from matplotlib.patches import StepPatch

from gpufetch._checks import check_int
from gpufetch._planes.notes import counts_text
from gpufetch._planes.source import Source, part_view
from gpufetch._tracebacks import shortened
from gpufetch._view import View
from gpufetch.plot._artist import Pulling, axes_of, name_axes, next_color, refuse_data

__all__ = ["DeviceHistogram", "hist"]


class _Bars(NamedTuple):
    """Edges and heights, which are counts in the bins of the first drawing's width."""

    edges: npt.NDArray[np.float64]
    heights: npt.NDArray[np.float64]
    note: str


class _Counted:
    """Counts elements in bins of a range. Immutable; for any thread.

    Attributes
    ----------
    bins
        How many there are at most.
    low, high
        The whole range.
    width
        That of a bin of the whole range.
    """

    def __init__(
        self, source: Source, part: str | None, bins: int, limits: tuple[float, float] | None
    ) -> None:
        self._source = source
        self._part = part
        self._is_whole = source.array.dtype.kind in "biu"
        self.bins = bins
        stats = self.view().stats()
        self._rest = counts_text(
            (stats["count"], stats["nan_count"], stats["posinf_count"], stats["neginf_count"])
        )
        if limits is None:
            self.low, self.high, used = self._all_bins(stats)
        else:
            low, high = map(float, limits)
            if not (math.isfinite(high - low) and high > low):
                raise ValueError(
                    f"range is {limits}; it must go from a finite number to a higher one"
                )
            self.low, self.high, used = self._bins(low, high)
        self.width = (self.high - self.low) / used

    def view(self) -> View:
        return part_view(self._source.view(), self._part, ("real", "imag"))

    def _all_bins(self, stats: dict[str, Any]) -> tuple[float, float, int]:
        """A range that has every finite element, and the number of its bins."""
        if not stats["finite_count"]:
            return self._bins(0.0, 1.0)
        if self._is_whole:
            return _whole_bins(int(stats["finite_min"]), int(stats["finite_max"]) + 1, self.bins)
        low, high = float(stats["finite_min"]), float(stats["finite_max"])
        if high - low <= self.least(low, high):
            half = max(0.5, abs(low) * 1e-3)
            low = max(low - half, -sys.float_info.max)
            high = min(high + half, sys.float_info.max)
        if not math.isfinite(high - low):
            raise ValueError(
                f"the elements go from {low} to {high}, and float64 does not hold the difference: "
                "give the range that is to be counted, range=(low, high)"
            )
        return low, high, self.bins

    def _bins(self, low: float, high: float) -> tuple[float, float, int]:
        """A range that whole bins fill, and their number."""
        if not self._is_whole:
            return low, high, self.bins
        # `low + 0.5` is rounded where floats are integers, and there is no half to add.
        is_fine = max(math.ulp(low), math.ulp(high)) <= 0.5
        if not is_fine:
            return _whole_bins(math.floor(low), math.ceil(high), self.bins)
        first = math.floor(low + 0.5)
        return _whole_bins(first, max(first, math.ceil(high - 0.5)) + 1, self.bins)

    def least(self, low: float, high: float) -> float:
        """Where a range of floats is no longer than this, bins would have no width."""
        return 0.0 if self._is_whole else self.bins * math.ulp(max(abs(low), abs(high))) * 4

    def read(self, view: View, low: float, high: float) -> _Bars:
        low, high, used = self._bins(low, high)
        counts, edges, _ = view.histogram(used, (low, high))
        width = (high - low) / used
        note = f"counts in {used} bins of {width:.4g}"
        if not math.isclose(width, self.width, rel_tol=1e-6):
            note += f", scaled to {self.width:.4g}"
        heights: npt.NDArray[np.float64] = counts.astype(np.float64) * (self.width / width)
        return _Bars(edges, heights, note + self._rest)


def _whole_bins(first: int, behind: int, most: int) -> tuple[float, float, int]:
    """Edges and number of bins for the integers first to behind - 1, each with as many.

    Edges lie between integers up to 2**52. Beyond, elements are counted by their float64, so edges
    are multiples of what neighbouring floats differ by there: then every edge is exact, and no
    element is rounded past the first or the last.
    """
    unit = 1
    while True:
        low = first // unit * unit
        width = -(-(behind - low) // (most * unit)) * unit
        used = -(-(behind - low) // width)
        high = low + used * width
        spacing = math.ulp(float(max(abs(low), abs(high))))
        if spacing <= 0.5:
            return low - 0.5, high - 0.5, used
        if spacing <= unit:
            return float(low), float(high), used
        unit = int(spacing)


class DeviceHistogram(Pulling[_Bars], StepPatch):
    """A histogram that counts what its axes show whenever that changes; from `hist`.

    Heights are counts in bins of the first drawing's width, so that zooming in makes bins narrower
    and leaves heights comparable. May be drawn by any thread.
    """

    def __init__(
        self, axes: Axes, counted: _Counted, bars: _Bars, with_note: bool, **style: Any
    ) -> None:
        self._home = axes
        super().__init__(bars.heights, bars.edges, **style)
        self._counted = counted
        self._begin(axes, with_note)
        self._puller.put(((counted.low, counted.high), self._revision), bars)

    def set_data(self, values: Any = None, edges: Any = None, baseline: Any = None) -> None:
        """Set the baseline; TypeError for heights and edges."""
        if values is not None or edges is not None:
            refuse_data("hist")
        super().set_data(baseline=baseline)

    def _range(self) -> tuple[float, float] | None:
        """What is in view of the whole range; None if nothing is, or too little for bins."""
        axes = self.axes
        limits = axes.get_xlim() if self.orientation == "vertical" else axes.get_ylim()
        left, right = sorted(limits)
        low, high = max(left, self._counted.low), min(right, self._counted.high)
        return (low, high) if high - low > self._counted.least(low, high) else None

    @allow_rasterization  # type: ignore[untyped-decorator]
    def draw(self, renderer: Any) -> None:
        """Draw what the axes show, which is counted first if it was not before."""
        found = self._range() if self.get_visible() else None
        if found is not None:
            self._draw_range(renderer, found)
        self.stale = False

    def _draw_range(self, renderer: Any, found: tuple[float, float]) -> None:
        read = functools.partial(self._counted.read, self._counted.view(), *found)
        bars, error = self._pull(found, read)
        # A patch of its own for each drawing: nothing that another thread draws is changed.
        drawn = StepPatch(
            bars.heights,
            bars.edges,
            orientation=self.orientation,
            baseline=self.get_data()[2],
        )
        drawn.update_from(self)
        drawn.set_antialiased(self.get_antialiased())  # update_from leaves it out
        self._place(drawn)
        drawn.draw(renderer)
        self._draw_note(renderer, bars, error)


@shortened
def hist(
    x: Any,
    bins: int = 64,
    *,
    range: tuple[float, float] | None = None,
    ax: Axes | None = None,
    log: bool = False,
    orientation: str = "vertical",
    part: str | None = None,
    note: bool = True,
    **style: Any,
) -> DeviceHistogram:
    """Draw how many elements of a tensor have which values, counted on the device.

    Zoomed in, the elements in view are counted anew, in as many bins. A note on the axes says how
    wide these are, and counts NaN and infinities, which are in none. Of integers, each bin has as
    many; beyond 2**52 edges are multiples of what float64 can tell apart.

    Parameters
    ----------
    x
        What `fetch` takes, of any shape, a LazyArray, or an xarray.DataArray.
    bins
        How many there are, at most 65536.
    range
        The lowest and the highest edge; by default those of the finite elements.
    ax
        Axes to draw on; by default pyplot's.
    log
        Whether counts are drawn by their logarithms.
    orientation
        "vertical", or "horizontal" with the values along the y axis.
    part
        Of complex elements: "real" (the default) or "imag".
    note
        Whether the bins are named on the axes.
    style
        Properties of Matplotlib's StepPatch, such as `color`, `fill` and `label`.

    Raises
    ------
    ValueError
        `bins`, `range` or `orientation` does not fit.
    TypeError
        `x` is no tensor, or complex and in another process.
    """
    source = Source(x)
    if check_int(bins, "bins") < 1:
        raise ValueError(f"bins is {bins}; it must be 1 or more")
    if orientation not in ("vertical", "horizontal"):
        raise ValueError(f'orientation is {orientation!r:.80}; give "vertical" or "horizontal"')
    if part is None and source.array.dtype.kind == "c":
        part = "real"
    counted = _Counted(source, part, bins, range)
    bars = counted.read(counted.view(), counted.low, counted.high)
    ax = axes_of(ax)
    if not {"color", "facecolor", "edgecolor"} & style.keys():
        style["color"] = next_color(ax)
    style.setdefault("fill", True)
    made = DeviceHistogram(ax, counted, bars, note, orientation=orientation, **style)
    ax.add_patch(made)
    is_vertical = orientation == "vertical"
    (made.sticky_edges.y if is_vertical else made.sticky_edges.x).append(0)
    if log:
        (ax.set_yscale if is_vertical else ax.set_xscale)("log", nonpositive="clip")
    ax.autoscale_view()
    if log:
        (ax.set_ylim if is_vertical else ax.set_xlim)(0.5, None)
    names = (source.label, "elements")
    name_axes(ax, *(names if is_vertical else names[::-1]))
    return made
