"""Several planes of a tensor, in the same colours."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from gpufetch._lazy.array import lazy
from gpufetch._planes.plane import Plane
from gpufetch._planes.source import Axis, Source, is_labelled
from gpufetch._tracebacks import shortened
from gpufetch.plot._colours import colour_map, scaled_norm
from gpufetch.plot._image import DeviceImage, imshow

__all__ = ["slices"]


@shortened
def slices(
    x: Any,
    axis: int | str = 0,
    *,
    indices: Sequence[int] | None = None,
    count: int = 9,
    columns: int | None = None,
    figure: Figure | None = None,
    **options: Any,
) -> list[DeviceImage]:
    """Show planes across one axis of a tensor of three axes, each as `imshow` does.

    All have the same limits of colours, those of the whole tensor, and are zoomed and panned
    together.

    Parameters
    ----------
    x
        What `imshow` takes, with one axis more: three axes, or four where `channels` says which of
        a plane's are its colours.
    axis
        The axis across which planes are taken; its name, where `x` is an xarray.DataArray.
    indices
        Which planes; by default `count` of them, evenly spaced from the first to the last.
    columns
        How many stand side by side; by default about as many as are below each other.
    figure
        An empty figure to draw on; by default a new one of pyplot's.
    options
        Those of `imshow`, but for `ax`.

    Returns
    -------
    list of DeviceImage
        One for each plane.

    Raises
    ------
    ValueError
        The shape has other axes, or an option does not fit.
    IndexError
        The axis has no such index.
    TypeError
        `x` is no tensor, an index no integer, or `ax` is given.
    """
    if "ax" in options:
        raise TypeError("slices draws on axes of its own: give figure, and leave out ax")
    if columns is not None and columns < 1:
        raise ValueError(f"columns is {columns}; it must be 1 or more")
    if isinstance(axis, str):
        names = [str(name) for name in x.dims] if is_labelled(x) else []
        if axis not in names:
            raise ValueError(f"axis is {axis!r}; the axes' names are {names}: give a number")
        axis = list(x.dims).index(axis)
    x = x if is_labelled(x) else lazy(x)
    shape = tuple(x.shape)
    _check_axes(shape, options.get("channels"))
    axis = operator.index(axis)
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"axis is {axis}; shape {shape} has {len(shape)} axes")
    axis %= len(shape)
    length = shape[axis]
    chosen = _indices(length, count) if indices is None else _checked(indices, length)
    if not chosen:
        raise ValueError("no plane is chosen: give one index or more")
    options, kind = _shared_colours(x, axis, dict(options))
    across = math.ceil(math.sqrt(len(chosen))) if columns is None else columns
    down = math.ceil(len(chosen) / across)
    if figure is not None:
        return _drawn(x, axis, chosen, (down, across), figure, options, kind)
    from matplotlib import pyplot

    figure = pyplot.figure(layout="constrained")
    try:
        return _drawn(x, axis, chosen, (down, across), figure, options, kind)
    except BaseException:
        pyplot.close(figure)
        raise


def _drawn(
    x: Any,
    axis: int,
    chosen: list[int],
    grid: tuple[int, int],
    figure: Figure,
    options: dict[str, Any],
    kind: str,
) -> list[DeviceImage]:
    """The images of the planes that are chosen, on a grid of so many rows and columns."""
    panels = list(figure.subplots(*grid, sharex=True, sharey=True, squeeze=False).flat)
    source = Source(x)
    images = []
    for panel, index in zip(panels, chosen, strict=False):
        key = (slice(None),) * axis + (index,)
        panel.set_title(
            _title(source.axes[axis], axis, index, source.array.shape[axis]), fontsize="small"
        )
        images.append(imshow(x[key], ax=panel, **options))
        images[-1].scale_by(source.array)
    for panel in panels[len(chosen) :]:
        panel.set_visible(False)
    for panel in panels:
        panel.label_outer()
    if kind not in ("colour", "label"):
        figure.colorbar(images[0], ax=panels, label=source.label)
    return images


def _check_axes(shape: tuple[int, ...], channels: str | None) -> None:
    """Refuse other than three axes: one more is of colours only where `channels` says so."""
    count = 3 if channels is None else 4
    if len(shape) == count:
        return
    remedy = "gpufetch.plot.imshow shows one picture"
    if len(shape) > count:
        remedy = "index one, as x[0], or use gpufetch.view(x), which has a slider for each"
    if len(shape) == 4:
        remedy += '; for pictures in colours give channels="last" or "first"'
    which = "" if channels is None else f' with channels="{channels}"'
    raise ValueError(f"slices takes {count} axes{which}, not shape {shape}: {remedy}")


def _checked(indices: Sequence[int], length: int) -> list[int]:
    """The indices that are asked for, of an axis of that length."""
    chosen = [operator.index(index) for index in indices]
    for index in chosen:
        if not -length <= index < length:
            raise IndexError(f"indices has {index}; the axis has {length} planes")
    return chosen


def _indices(length: int, count: int) -> list[int]:
    """So many indices of an axis, evenly spaced, with both ends."""
    count = min(count, length)
    return [i * (length - 1) // max(1, count - 1) for i in range(count)]


def _title(axis: Axis, number: int, index: int, length: int) -> str:
    if axis.first is None:
        return f"{axis.label or f'axis {number}'} = {index % length}"
    first, last = axis.ends(length)
    place = first + (last - first) * (index % length) / max(1, length - 1)
    return f"{axis.label} = {place:.4g}"


def _shared_colours(x: Any, axis: int, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The options with one norm, which has the limits of all planes, and what the planes are."""
    source = Source(x)
    keep = ("method", "part", "channels")
    named = {name: options.get(name) for name in keep}
    first = Source(x[(slice(None),) * axis + (0,)])
    plane = Plane(first, is_labels=options.get("labels", False), **named)
    limits = {name: options.pop(name, None) for name in ("norm", "vmin", "vmax")}
    options["norm"] = scaled_norm(
        plane,
        limits["norm"],
        limits["vmin"],
        limits["vmax"],
        colour_map(plane, options.get("cmap")),
        whole=source.array,
    )
    return options, plane.kind
