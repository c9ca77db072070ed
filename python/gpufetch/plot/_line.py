"""Lines of tensors with one axis: the lowest and highest value under each pixel."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.artist import allow_rasterization
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from gpufetch._planes.samples import Points, Samples
from gpufetch._planes.source import Source
from gpufetch._tracebacks import shortened
from gpufetch.plot._artist import Pulling, axes_of, name_axes, next_color, refuse_data
from gpufetch.plot._pull import visible

__all__ = ["DeviceLine", "line"]

_SAMPLES_PER_PIXEL = 2  # as few are drawn one by one
_BEYOND = 10.0  # an infinity is drawn so many heights of the axes beyond their limits


class DeviceLine(Pulling[Points], Line2D):
    """A line that reads what its axes show whenever that changes; from `line`.

    Its style is set as of any line of Matplotlib's. Its own two points span the tensor's extremes,
    by which axes are scaled. May be drawn by any thread.
    """

    def __init__(
        self,
        axes: Axes,
        samples: Samples,
        limits: tuple[float, float],
        with_note: bool,
        **style: Any,
    ) -> None:
        self._home = axes
        super().__init__(np.array(samples.ends), np.array(limits), **style)
        self._samples = samples
        self._begin(axes, with_note)

    def set_xdata(self, x: Any) -> None:
        """Take the ends that the first drawing has; TypeError from then on."""
        if hasattr(self, "_samples"):
            refuse_data("line")
        super().set_xdata(x)

    def set_ydata(self, y: Any) -> None:
        """Take the extremes that the first drawing has; TypeError from then on."""
        if hasattr(self, "_samples"):
            refuse_data("line")
        super().set_ydata(y)

    def contains(self, mouseevent: Any) -> tuple[bool, dict[str, Any]]:
        """False: the two points between which Matplotlib would look are not the line."""
        return False, {}

    def _range(self, renderer: Any) -> tuple[int, int, int] | None:
        """The first sample in view, the one behind the last, and the cells of them to draw."""
        axes = self.axes
        width = axes.bbox.width * renderer.get_image_magnification()
        found = visible(self._samples.edges(), self._samples.size, axes.get_xlim(), width)
        if found is None:
            return None
        first, last, cells = found
        if last - first <= _SAMPLES_PER_PIXEL * cells:  # and those that the line comes from
            first, last = max(0, first - 1), min(self._samples.size, last + 1)
            cells = last - first
        return first, last, cells

    @allow_rasterization  # type: ignore[untyped-decorator]
    def draw(self, renderer: Any) -> None:
        """Draw what the axes show, which is read first if it was not before."""
        found = self._range(renderer) if self.get_visible() else None
        if found is not None:
            self._draw_range(renderer, found)
        self.stale = False

    def _draw_range(self, renderer: Any, found: tuple[int, int, int]) -> None:
        read = functools.partial(self._samples.read, self._samples.view(), *found)
        points, error = self._pull(found, read)
        y = self._within(points.y)
        self._drawn(points.x, y).draw(renderer)
        alone = _alone(points.x, points.y)
        if alone.size and self.get_linestyle() != "None":
            self._stroke(renderer, points.x[alone], y[alone])
        self._draw_note(renderer, points, error)

    def _drawn(self, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> Line2D:
        """A line of its own for each drawing: nothing that another thread draws is changed."""
        drawn = Line2D(x, y)
        drawn.update_from(self)
        drawn.set_antialiased(self.get_antialiased())  # update_from leaves these out
        drawn.set_markevery(self.get_markevery())
        self._place(drawn)
        drawn.set_transform(self.get_transform())
        return drawn

    def _stroke(self, renderer: Any, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> None:
        """Draw points each as a stroke, as long as the line is wide and a pixel at least."""
        low, high = self.axes.get_xlim()
        pixels = max(1.0, renderer.points_to_pixels(self.get_linewidth()))
        half = (high - low) / self.axes.bbox.width * pixels / 2
        gaps = np.full_like(x, np.nan)
        drawn = self._drawn(np.stack([x - half, x + half, gaps], axis=1).ravel(), np.repeat(y, 3))
        drawn.set(marker="None", linestyle="-", drawstyle="default", solid_capstyle="butt")
        drawn.draw(renderer)

    def _within(self, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Infinities are drawn far outside of the axes, since Matplotlib leaves them out."""
        low, high = sorted(self.axes.get_ylim())
        span = (high - low) * _BEYOND
        top = high * 10**_BEYOND if self.axes.get_yscale() == "log" else high + span
        return np.where(y == np.inf, top, np.where(y == -np.inf, low - span, y))


def _alone(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """The numbers of points with gaps on both sides, of which a line alone has no length."""
    is_gap = np.concatenate([[True], np.isnan(y), [True]])
    begins = np.flatnonzero(is_gap[:-2] & ~is_gap[1:-1])
    ends = np.flatnonzero(~is_gap[1:-1] & is_gap[2:])
    alone: npt.NDArray[np.intp] = ends[x[begins] == x[ends]]  # a cell's two values have one x
    return alone


def _checked(ends: Any, size: int) -> tuple[float, float]:
    """Where the first and the last of so many samples lie."""
    try:
        first, last = map(float, ends)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"ends is {ends!r:.80}: give two numbers, (first, last)") from None
    if not math.isfinite(last - first) or (first == last and size > 1):
        raise ValueError(
            f"ends is {ends!r:.80}: give two finite numbers, of which float64 holds the "
            "difference, and which differ if there are several samples"
        )
    return first, last


@shortened
def line(
    y: Any,
    *,
    ax: Axes | None = None,
    ends: tuple[float, float] | None = None,
    part: str | None = None,
    note: bool = True,
    **style: Any,
) -> DeviceLine:
    """Draw a tensor of one axis as a line.

    Where a pixel has several samples, a drawing reads the lowest and the highest value under each
    from the device, so that no spike is lost; zoomed in, it reads the samples. A note on the axes
    says which, and counts NaN, where the line has gaps, and infinities, where it leaves the axes.

    Parameters
    ----------
    y
        What `fetch` takes, a LazyArray, or an xarray.DataArray, whose coordinate is the x axis.
    ax
        Axes to draw on, whose x axis is linear; by default pyplot's.
    ends
        The x of the first and of the last sample; by default the coordinate's, else the indices.
    part
        Of complex samples: "real" (the default) or "imag".
    note
        Whether the reduction is named on the axes.
    style
        Properties of Matplotlib's Line2D, such as `color`, `linewidth` and `label`.

    Raises
    ------
    ValueError
        `y` has not one axis, no sample, or an option does not fit.
    TypeError
        `y` is no tensor, or complex and in another process.
    """
    source = Source(y)
    if source.array.ndim != 1 or source.array.size == 0:
        raise ValueError(
            f"shape {source.array.shape} is no line: give one axis with samples, such as x[0]"
        )
    if part is None and source.array.dtype.kind == "c":
        part = "real"
    axis = source.axes[0]
    size = source.array.size
    samples = Samples(source, part, axis.ends(size) if ends is None else _checked(ends, size))
    stats = samples.view().stats()
    limits = (float(stats["finite_min"]), float(stats["finite_max"]))
    if not stats["finite_count"]:
        limits = (np.nan, np.nan)
    ax = axes_of(ax)
    if "color" not in style and "c" not in style:
        style["color"] = next_color(ax)
    made = DeviceLine(ax, samples, limits, note, **style)
    ax.add_line(made)
    ax.autoscale_view()
    name_axes(ax, axis.label, source.label)
    return made
