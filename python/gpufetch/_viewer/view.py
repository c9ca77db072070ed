"""`gpufetch.view`: a viewer in a notebook's page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from gpufetch._tracebacks import shortened

if TYPE_CHECKING:
    from gpufetch._viewer.widget import Viewer

__all__ = ["view"]


@shortened
def view(
    *arrays: Any,
    names: Sequence[str] | None = None,
    cmap: str | None = None,
    scale: Literal["linear", "log", "symlog"] = "linear",
    vmin: float | None = None,
    vmax: float | None = None,
    method: str | None = None,
    part: str | None = None,
    channels: Literal["first", "last"] | None = None,
) -> Viewer:
    """Look at tensors in a notebook: pan, zoom, exact values, with no more read than is seen.

    The page asks for tiles of values, which are reduced where the tensor lies: an overview at once,
    and where one stays, cells of a pixel each, down to the elements. Several tensors are shown side
    by side, and share window, colours and limits. Press `?` in the viewer for its keys.

    Parameters
    ----------
    arrays
        What `fetch` takes, LazyArrays, tensors of `connect`, or xarray.DataArrays. The last two
        axes are an image, and each axis before them gets a slider; a tensor of one axis is a line
        of the lowest and highest values under each pixel.
    names
        What to call them.
    cmap
        "viridis", "magma", "gray", "RdBu_r" or "twilight". NaN is red.
    scale
        "linear", "log" or "symlog", which is linear about 0.
    vmin, vmax
        Values of the first and the last colour; by default percentiles 0.5 and 99.5 of what is
        seen first.
    method
        How a cell's elements are reduced: "mean" (the default; for masks "max"), "rms", "min",
        "max" or "first".
    part
        Of complex elements: "abs" (the default), "phase", "real" or "imag".
    channels
        "first" or "last" if an axis before or behind those of the image is red, green, blue and
        perhaps opacity. Three axes of uint8 that can be a picture are one.

    Returns
    -------
    Viewer
        A widget, which the last line of a cell shows. `fetch()` gives the elements that it shows.

    Raises
    ------
    ImportError
        anywidget is missing: the extra `jupyter` has it.
    ValueError, TypeError
        A tensor has no shape that can be shown, those given together do not fit each other, or an
        option does not fit, as `vmin` above `vmax`.
    """
    try:
        import anywidget  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"gpufetch.view needs anywidget ({error}): pip install 'gpufetch[jupyter]', and start "
            "the kernel anew"
        ) from error
    # Not before something is viewed: displays, too, are imported when something is shown.
    from gpufetch._viewer.state import checked_state, first_state
    from gpufetch._viewer.tiles import Options, make_panels
    from gpufetch._viewer.widget import Viewer

    panels = make_panels(arrays, names, Options(method, part, channels, (vmin, vmax)))
    default = "twilight" if part == "phase" else "viridis"
    state = first_state(panels[0].leading) | {
        "cmap": default if cmap is None else cmap,
        "scale": scale,
        "limits": [_limit("vmin", vmin), _limit("vmax", vmax)],
    }
    return Viewer(panels, checked_state(state, panels[0].leading))


def _limit(name: str, value: Any) -> float | None:
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name} is {value!r}: give a finite number")
    return number
