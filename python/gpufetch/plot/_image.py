"""Images of tensors: what the axes show, reduced on the device to their pixels."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from matplotlib import rcParams
from matplotlib.artist import Artist, allow_rasterization
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize
from matplotlib.image import AxesImage

from gpufetch._lazy.array import LazyArray
from gpufetch._planes.plane import Box, Plane, Tile
from gpufetch._planes.source import Axis, Source
from gpufetch._tracebacks import shortened
from gpufetch.plot._artist import Pulling, axes_of, name_axes
from gpufetch.plot._colours import colour_map, colours, scale, scaled_norm
from gpufetch.plot._pull import visible

__all__ = ["DeviceImage", "imshow"]


class DeviceImage(Pulling[Tile], AxesImage):
    """An image that reads what its axes show whenever that changes; from `imshow`.

    Norm, colour map, limits, opacity and extent are set as of any image of Matplotlib's, and
    `Figure.colorbar` takes it. May be drawn by any thread.
    """

    def __init__(
        self,
        axes: Axes,
        plane: Plane,
        plane_of: Callable[[Source], Plane],
        *,
        with_note: bool,
        **options: Any,
    ) -> None:
        self._home = axes
        self._plane = plane  # before Matplotlib's own, since its setters are ours
        self._plane_of = plane_of
        self._whole: LazyArray | None = None
        super().__init__(axes, interpolation="nearest", **options)
        self._begin(axes, with_note)

    def set_data(self, A: Any) -> None:  # noqa: N803
        """Show another tensor of the same shape and dtype; limits and extent stay as they are.

        `refresh` is for the same tensor with other contents. TypeError or ValueError for what
        cannot take its place.
        """
        source = Source(A)
        old, new = self._plane.source.array, source.array
        if (new.shape, new.dtype) != (old.shape, old.dtype):
            raise ValueError(
                f"{new.dtype} of shape {new.shape} cannot take the place of {old.dtype} of shape "
                f"{old.shape}: remove() the image, and draw another with gpufetch.plot.imshow"
            )
        self._plane = self._plane_of(source)
        self._whole = None
        self.stale = True

    def set_interpolation(self, s: Any) -> None:
        """Take "nearest" or "none", as it is drawn; ValueError for others."""
        if not isinstance(s, str) or s.lower() not in ("nearest", "none"):
            raise ValueError(
                f"interpolation is {s!r:.80}: an image of a tensor on a device is drawn in cells "
                'of a pixel or more, by "nearest" alone'
            )
        super().set_interpolation(s)

    def set_alpha(self, alpha: Any) -> None:
        """Set the opacity, one number; TypeError for an array."""
        if np.ndim(alpha):
            raise TypeError(
                f"alpha has {np.ndim(alpha)} axes: give an image of a tensor on a device one number"
            )
        super().set_alpha(alpha)

    def make_image(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise TypeError: the pixels are made anew, and kept by nobody."""
        raise TypeError(
            "this image draws what it reads of its tensor, and keeps no pixels: save a picture by "
            "savefig, or take the cells that were drawn last from get_array()"
        )

    write_png = make_image

    def get_array(self) -> Any:
        """The cells that were read last, None before the first drawing."""
        tile = self._puller.newest
        return None if tile is None else tile.values

    def scale_by(self, whole: LazyArray) -> None:
        """Scale norms by the elements of another array, of which the image shows a part."""
        self._whole = whole

    def changed(self) -> None:
        """Tell colour bars of another norm, colour map or limits.

        Limits that the norm does not have are set before, since colour bars and drawings would set
        them without the tensor.
        """
        self.autoscale_None()
        super().changed()

    def autoscale(self) -> None:
        """Set the limits of colours to those of all finite elements."""
        scale(self._plane, self.norm, self.cmap, self._whole, is_anew=True)

    def autoscale_None(self) -> None:  # noqa: N802
        """Set the limits of colours that are not set."""
        scale(self._plane, self.norm, self.cmap, self._whole)

    def get_size(self) -> tuple[int, int]:
        """Rows and columns of the tensor."""
        return self._plane.shape

    def can_composite(self) -> bool:
        """False: renderers that put images together would take what was read last."""
        return False

    def get_cursor_data(self, event: Any) -> Any:
        """The value of the cell under the pointer, None outside of what was read."""
        tile = self._puller.newest
        if tile is None or tile.values.size == 0:
            return None
        x, y = self.get_transform().inverted().transform([event.x, event.y])
        left, right, bottom, top = self._tile_extent(tile.box)
        rows, columns = tile.values.shape[:2]
        begin, end = (top, bottom) if self.origin == "upper" else (bottom, top)
        column = np.floor((x - left) / (right - left) * columns)
        row = np.floor((y - begin) / (end - begin) * rows)
        if not (0 <= row < rows and 0 <= column < columns):
            return None
        return tile.values[int(row), int(column)]

    def _row_edges(self) -> tuple[float, float]:
        """Where the first row begins and the last one ends."""
        _, _, bottom, top = self.get_extent()
        return (top, bottom) if self.origin == "upper" else (bottom, top)

    def _box(self, renderer: Any) -> Box | None:
        """What the axes show of the plane, in cells of a pixel; None if they show nothing of it."""
        axes = self.axes
        scale = renderer.get_image_magnification()
        left, right, _, _ = self.get_extent()
        width, height = axes.bbox.width * scale, axes.bbox.height * scale
        rows = visible(self._row_edges(), self._plane.shape[0], axes.get_ylim(), height)
        columns = visible((left, right), self._plane.shape[1], axes.get_xlim(), width)
        if rows is None or columns is None:
            return None
        return Box(rows[:2], columns[:2], (rows[2], columns[2]))

    def _tile_extent(self, box: Box) -> tuple[float, float, float, float]:
        left, right, _, _ = self.get_extent()
        begin, end = self._row_edges()
        rows, columns = self._plane.shape
        x = [left + (right - left) * index / columns for index in box.columns]
        y = [begin + (end - begin) * index / rows for index in box.rows]
        return (x[0], x[1], y[1], y[0]) if self.origin == "upper" else (x[0], x[1], y[0], y[1])

    @allow_rasterization  # type: ignore[untyped-decorator]
    def draw(self, renderer: Any, *args: Any, **kwargs: Any) -> None:
        """Draw what the axes show, which is read first if it was not before."""
        box = self._box(renderer) if self.get_visible() else None
        if box is not None:
            self._draw_box(renderer, box)
        self.stale = False

    def _draw_box(self, renderer: Any, box: Box) -> None:
        plane = self._plane
        self.autoscale_None()  # a norm of another Colorizer, of which nobody was told
        tile, error = self._pull((plane, box), functools.partial(plane.read, plane.view(), box))
        # An image of its own for each drawing: nothing that another thread draws is changed.
        drawn = AxesImage(
            self.axes,
            extent=self._tile_extent(tile.box),
            origin=self.origin,
            interpolation="nearest",
            interpolation_stage="data",
            resample=False,
        )
        drawn.set_data(colours(plane, tile.values, self.norm, self.cmap))
        Artist.update_from(drawn, self)
        self._place(drawn)
        drawn.draw(renderer)
        self._draw_note(renderer, tile, error)


@shortened
def imshow(
    x: Any,
    *,
    ax: Axes | None = None,
    method: str | None = None,
    labels: bool = False,
    part: str | None = None,
    channels: str | None = None,
    cmap: str | Colormap | None = None,
    norm: str | Normalize | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    alpha: float | None = None,
    origin: str | None = None,
    extent: Sequence[float] | None = None,
    aspect: str | float | None = None,
    note: bool = True,
) -> DeviceImage:
    """Show a tensor of two axes, or a picture in colours, as Matplotlib's imshow does.

    Each drawing reads the part that the axes show, reduced on the device to a cell for each pixel;
    where a pixel has no more than an element, the elements themselves. A note on the axes names the
    reduction and counts NaN and infinities, which averages leave out.

    Parameters
    ----------
    x
        What `fetch` takes, a LazyArray, or an xarray.DataArray, whose coordinates and names become
        those of the axes. (rows, columns), or with 3 or 4 channels last or first: red, green, blue
        and opacity, floats from 0 to 1 or integers to 255, or between `vmin` and `vmax`.
    ax
        Axes to draw on; by default pyplot's.
    method
        How a cell's elements are reduced: "mean", "rms", "min", "max" or "first"; by default the
        mean, for a mask the maximum (whether any is True), for labels the first.
    labels
        Whether integers are names: they are never averaged, and take the map's colours in turns.
    part
        Of complex elements: "abs" (root mean square of a cell, the default), "phase" (of the
        cell's mean), "real" or "imag".
    channels
        "first" or "last", where the shape allows both.
    cmap, norm, vmin, vmax, alpha
        As in Matplotlib. Limits are by default those of all finite elements, from the device; a
        norm that is given to several images gives them the same limits. In the default map NaN is
        red.
    origin, extent, aspect
        As in Matplotlib; by default from the coordinates, if `x` has any.
    note
        Whether the reduction is named on the axes.

    Raises
    ------
    ValueError
        The shape is no picture's, or an option does not fit.
    TypeError
        `x` is no tensor, or complex and in another process.
    """
    plane_of = functools.partial(
        Plane, method=method, is_labels=labels, part=part, channels=channels
    )
    plane = plane_of(Source(x))
    if extent is not None:
        extent = _checked_extent(extent)
    chosen = colour_map(plane, cmap)
    scaled = scaled_norm(plane, norm, vmin, vmax, chosen)
    is_pyplots = ax is None
    ax = axes_of(ax)
    origin = _origin(plane, extent) if origin is None else origin
    image = DeviceImage(
        ax, plane, plane_of, with_note=note, cmap=chosen, norm=scaled, alpha=alpha, origin=origin
    )
    has_coordinates = any(axis.first is not None for axis in plane.axes)
    default = "auto" if has_coordinates else rcParams["image.aspect"]
    shape: Any = default if aspect is None else aspect
    ax.set_aspect(shape)
    ax.add_image(image)
    image.set_clip_path(ax.patch)
    left, right, bottom, top = _extent(plane, origin) if extent is None else extent
    image.set_extent((left, right, bottom, top))
    name_axes(ax, plane.axes[1].label, plane.axes[0].label, plane.source.label)
    if is_pyplots:
        from matplotlib import pyplot

        pyplot.sci(image)  # the image that pyplot.colorbar and pyplot.clim mean
    return image


def _checked_extent(extent: Any) -> tuple[float, float, float, float]:
    """Left, right, bottom and top; checked before axes are changed."""
    try:
        left, right, bottom, top = map(float, extent)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"extent is {extent!r:.80}: give four numbers, (left, right, bottom, top)"
        ) from None
    if not (math.isfinite(right - left) and math.isfinite(top - bottom)):
        raise ValueError(f"extent is {extent!r:.80}: give finite numbers")
    return left, right, bottom, top


def _origin(plane: Plane, extent: Sequence[float] | None) -> str:
    """Coordinates that rise with the rows begin at the bottom."""
    rows = plane.axes[0]
    if rows.first is None or extent is not None:
        return str(rcParams["image.origin"])
    return "lower" if rows.last > rows.first else "upper"


def _edges(axis: Axis, length: int) -> tuple[float, float]:
    """Where the first element begins and the last one ends: half a step beyond their middles."""
    first, last = axis.ends(length)
    half = (last - first) / (2 * (length - 1)) if length > 1 else 0.5
    return first - half, last + half


def _extent(plane: Plane, origin: str) -> tuple[float, float, float, float]:
    left, right = _edges(plane.axes[1], plane.shape[1])
    begin, end = _edges(plane.axes[0], plane.shape[0])
    return (left, right, end, begin) if origin == "upper" else (left, right, begin, end)
