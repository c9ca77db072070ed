"""Colour maps, norms and limits of images, and the colours of values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps, rcParams
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LogNorm, Normalize

from gpufetch._display.palettes import NAN_COLOUR
from gpufetch._lazy.array import LazyArray
from gpufetch._planes.picture import picture
from gpufetch._planes.plane import Plane
from gpufetch._planes.source import part_view
from gpufetch._view import View

__all__ = ["colour_map", "colours", "label_colours", "scaled_norm"]

_LABEL_MAP = "tab20"
_SURVEY_CELLS = 1 << 18  # in which limits are looked for that statistics do not have


def colour_map(plane: Plane, cmap: str | Colormap | None) -> Colormap:
    """A colour map; NaN is red in the default one, as in displays."""
    if cmap is not None:
        return cmap if isinstance(cmap, Colormap) else colormaps[cmap]
    if plane.kind == "label":
        return colormaps[_LABEL_MAP]
    name = "twilight" if plane.kind == "phase" else rcParams["image.cmap"]
    chosen: Colormap = colormaps[name]
    red, green, blue = (level / 255 for level in NAN_COLOUR)
    return chosen.with_extremes(bad=(red, green, blue))


def scaled_norm(
    plane: Plane,
    norm: str | Normalize | None,
    vmin: float | None,
    vmax: float | None,
    cmap: Colormap,
    whole: LazyArray | None = None,
) -> Normalize:
    """A norm with limits: those that are given, else of all finite elements of `whole`.

    That is the plane's own array if it is None. A norm that is given keeps the limits that it has,
    and is shared with whoever else uses it.
    """
    if isinstance(norm, Normalize):
        if vmin is not None or vmax is not None:
            raise ValueError("the norm has the limits: leave out vmin and vmax")
        scaled = norm
    else:
        named: Any = ScalarMappable(norm=norm).norm  # type: ignore[arg-type]
        scaled = named
        scaled.vmin, scaled.vmax = vmin, vmax
    if plane.kind == "colour":
        return scaled
    if scaled.vmin is None or scaled.vmax is None:
        whole = plane.source.array if whole is None else whole
        low, high = _limits(plane, scaled, cmap, whole)
        # By the norm itself: one that is centred, for one, sets both limits together.
        scaled.autoscale_None(np.array([low, high]))
    return scaled


def _limits(plane: Plane, norm: Normalize, cmap: Colormap, whole: LazyArray) -> tuple[float, float]:
    if plane.kind == "label":
        return -0.5, cmap.N - 0.5
    if plane.kind == "phase":
        return -math.pi, math.pi
    view = part_view(whole._gpufetch_view(), plane.part)
    if plane.dtype.kind == "b" or 0 in view.shape:
        return 0.0, 1.0
    if plane.kind == "abs":
        low, high = 0.0, _highest_magnitude(view)
    else:
        stats = view.stats()
        if not stats["finite_count"]:
            return (1.0, 10.0) if isinstance(norm, LogNorm) else (0.0, 1.0)
        low, high = float(stats["finite_min"]), float(stats["finite_max"])
    if isinstance(norm, LogNorm) and low <= 0:
        high = high if high > 0 else 1.0
        low = _lowest_positive(view, high)
    return low, high


def _survey(view: View, method: str, ndim: int) -> npt.NDArray[Any]:
    """Cells of a whole view, one along the axes behind the first `ndim`."""
    most = int(_SURVEY_CELLS ** (1 / max(1, ndim)))
    cells = tuple(min(n, most) if i < ndim else 1 for i, n in enumerate(view.shape))
    return np.asarray(view.overview(cells, method)[0], np.float64)


def _highest_magnitude(components: View) -> float:
    """The highest magnitude, or, of many elements, up to sqrt(2) more than it.

    That is the highest that the extremes of both components in a cell would make.
    """
    ndim = components.ndim - 1
    most = max(1, int(_SURVEY_CELLS ** (1 / max(1, ndim))))
    cells = (*(min(n, most) for n in components.shape[:-1]), 2)
    low, high, _ = components.overview(cells, "minmax")
    if high is None:
        raise RuntimeError("an overview by minmax has no maxima")
    largest = np.maximum(np.abs(low.astype(np.float64)), np.abs(high.astype(np.float64)))
    bounds = np.hypot(largest[..., 0], largest[..., 1])
    found = float(np.max(bounds, where=np.isfinite(bounds), initial=0.0))
    if cells != components.shape and not np.isfinite(bounds).all():
        # Beside infinities or NaN in a cell there may be higher finite elements.
        return max(found, math.hypot(*(_largest(components[..., i]) for i in (0, 1))))
    return found


def _largest(view: View) -> float:
    stats = view.stats()
    if not stats["finite_count"]:
        return 0.0
    return max(abs(float(stats["finite_min"])), abs(float(stats["finite_max"])))


def _lowest_positive(view: View, high: float) -> float:
    """The lowest positive mean of a cell; a thousandth of the highest value where there is none."""
    values = _survey(view, "mean", view.ndim)
    found = np.min(values, where=values > 0, initial=np.inf)
    return float(found) if np.isfinite(found) else high / 1000


def label_colours(values: npt.NDArray[Any], cmap: Colormap) -> npt.NDArray[np.uint8]:
    """RGBA of labels, which take the map's colours in turns; whole however large they are."""
    table = np.asarray(cmap(np.arange(cmap.N), bytes=True))
    if values.dtype.itemsize < 8:  # a dtype of few bits may not hold the number of colours
        values = values.astype(np.int64)
    found: npt.NDArray[np.uint8] = table[np.mod(values, values.dtype.type(cmap.N))]
    return found


def colours(plane: Plane, values: npt.NDArray[Any], norm: Any, cmap: Colormap) -> Any:
    """RGBA, 8 bits each, of what a plane reads."""
    if plane.kind == "label":
        return label_colours(values, cmap)
    with np.errstate(all="ignore"):
        numbers = _plain(values)
        if plane.kind == "colour":
            bad = np.asarray(cmap.get_bad()) * 255
            return picture(numbers, plane.dtype, norm.vmin, norm.vmax, bad)
        # Masked, since a norm whose limits are equal makes 0 of everything, also of NaN.
        return cmap(norm(_without_nan(numbers)), bytes=True)


def _without_nan(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values, masked where they are NaN."""
    if values.dtype.kind != "f":
        return values
    return np.ma.masked_where(np.isnan(values), values)


def _plain(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Values of a dtype that Matplotlib knows."""
    if values.dtype.kind == "b":
        return values.view(np.uint8)
    if values.dtype.kind in "iu":
        return values
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float32)
