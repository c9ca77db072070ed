"""Colour maps, norms and limits of images, and the colours of values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps, rcParams
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize

from gpufetch._display.palettes import NAN_COLOUR
from gpufetch._lazy.array import LazyArray
from gpufetch._planes.picture import picture
from gpufetch._planes.plane import Plane
from gpufetch.plot._limits import element_limits

__all__ = ["colour_map", "colours", "label_colours", "scale", "scaled_norm"]

_LABEL_MAP = "tab20"


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
    scale(plane, scaled, cmap, whole)
    return scaled


def scale(
    plane: Plane,
    norm: Any,
    cmap: Colormap,
    whole: LazyArray | None = None,
    *,
    is_anew: bool = False,
) -> None:
    """Set the limits of a norm that it does not have, or both `is_anew`, as `scaled_norm` does.

    Who uses the norm is told once, when it has both.
    """
    if norm.vmin is not None and norm.vmax is not None and not is_anew:
        return
    needs = (is_anew or norm.vmin is None, is_anew or norm.vmax is None)
    if plane.kind == "colour":
        values = np.array([0.0, 255.0 if plane.dtype.kind in "iu" else 1.0])
    else:
        whole = plane.source.array if whole is None else whole
        with np.errstate(all="ignore"):
            values = np.array(element_limits(plane, norm, cmap, whole, needs))
    with norm.callbacks.blocked(signal="changed"):
        if plane.kind == "colour":  # of which a norm has limits alone, whatever its domain is
            norm.vmin, norm.vmax = np.where(needs, values, [norm.vmin, norm.vmax])
        elif is_anew:
            norm.autoscale(values)
        else:
            # By the norm itself: one that is centred, for one, sets both limits together.
            norm.autoscale_None(values)
        if values[0] < values[1] and norm.vmin == norm.vmax and needs == (True, True):
            norm.vmin = norm.vmax = None
            raise ValueError(
                f"{type(norm).__name__} makes one limit of {values[0]} and {values[1]}, between "
                "which the elements are: give vmin and vmax"
            )
    norm.callbacks.process("changed")


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
