"""The picture that stands for a viewer where there are no widgets: what it shows, in few pixels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpufetch._display.palettes import PALETTES
from gpufetch._display.thumbnail import between, colour_limits, coloured, palette_png
from gpufetch._planes.source import indices_between
from gpufetch._viewer.tiles import Panel

__all__ = ["scaled", "shown_box", "viewer_png"]

_PIXELS_MAX = 30_000  # 90 KB where they cannot be compressed
_SIDE_MIN = 160  # fewer cells are drawn larger
_LINE_SHAPE = (150, 200)
_GAP = 4
_PAPER = 255


class Limits(NamedTuple):
    """The lower and the upper limit on the state's scale, and up to where "symlog" is linear."""

    low: float
    high: float
    linear: float


def shown_box(shape: Sequence[int], window: Sequence[float] | None) -> list[tuple[int, int]]:
    """For each axis the first index in a window and the one behind the last; at least one index."""
    if window is None:
        return [(0, length) for length in shape]
    edges = [window[2:], window[:2]] if len(shape) == 2 else [window[:2]]
    box = []
    for length, (low, high) in zip(shape, edges, strict=True):
        first, last = indices_between(low * length, high * length, length)
        first = min(first, length - 1)
        box.append((first, max(first + 1, last)))
    return box


def scaled(values: npt.NDArray[Any], scale: str, linear: float) -> npt.NDArray[np.float64]:
    """Values on a scale, as the page has them: "symlog" is linear up to `linear`."""
    numbers = np.asarray(values, np.float64)
    with np.errstate(all="ignore"):
        if scale == "log":
            return np.where(numbers > 0, np.log10(numbers), np.where(numbers <= 0, -np.inf, np.nan))
        if scale == "symlog":
            return np.asarray(np.arcsinh(numbers / linear))
    return numbers


def viewer_png(panels: Sequence[Panel], state: dict[str, Any]) -> bytes:
    """The panels of a viewer beside each other. Raises what reading them raises."""
    cells = [_cells(panel, state, _PIXELS_MAX // len(panels)) for panel in panels]
    limits = _limits(
        [values for panel, values in zip(panels, cells, strict=True) if panel.kind != "colour"],
        state,
        is_line=panels[0].kind == "line",
    )
    pictures = [
        _DRAWN[panel.kind](values, limits, state)
        for panel, values in zip(panels, cells, strict=True)
    ]
    height = max(len(picture) for picture in pictures)
    columns = []
    for picture in pictures:
        padding = ((0, height - len(picture)), (0, _GAP), (0, 0))
        columns.append(np.pad(picture, padding, constant_values=_PAPER))
    return palette_png(np.hstack(columns)[:, :-_GAP], None)


def _cells(panel: Panel, state: dict[str, Any], most: int) -> npt.NDArray[Any]:
    """What one panel shows: values, pairs of a line, or RGBA of a picture."""
    box = shown_box(panel.shape, state["window"])
    source = panel.at(state["index"])
    lengths = [last - first for first, last in box]
    if panel.kind == "line":
        pairs, _ = panel.cells(source, [(*box[0], min(lengths[0], _LINE_SHAPE[1]))])
        return pairs.astype(np.float64)
    scale = min(1.0, math.sqrt(most / math.prod(lengths)))
    rows, columns = (max(1, min(n, int(n * scale), most)) for n in lengths)
    ranges = [(*box[0], rows), (*box[1], columns)]
    if panel.kind == "colour":
        tile = panel.read(source, ranges)
        return np.frombuffer(tile.data, np.uint8).reshape(*tile.cells, 4)
    values, _ = panel.cells(source, ranges)
    return values.astype(np.float64)


def _limits(
    cells: Sequence[npt.NDArray[np.float64]], state: dict[str, Any], is_line: bool
) -> Limits:
    """The limits that all panels share: as they were chosen, or found in their cells."""
    is_log = state["scale"] == "log"
    values = np.concatenate([np.zeros(0), *(values.ravel() for values in cells)])
    shown = values[np.isfinite(values) & ((values > 0) | (not is_log))]
    extremes = (float(shown.min()), float(shown.max())) if shown.size else None
    found = extremes if is_line else colour_limits(shown)
    found = found or ((1.0, 10.0) if is_log else (0.0, 1.0))
    # A logarithm has no limit at 0 or below.
    chosen = [None if n is None or (is_log and n <= 0) else float(n) for n in state["limits"]]
    low, high = (a if b is None else b for a, b in zip(found, chosen, strict=True))
    if low > high:  # all values are beyond the one that was chosen
        low = high = low if chosen[1] is None else high
    linear = max(abs(low), abs(high), 1e-300) / 100
    low, high = scaled(np.array([low, high]), state["scale"], linear).tolist()
    return Limits(low, high, linear)


def _enlarged(rgb: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    larger = max(1, _SIDE_MIN // max(rgb.shape[:2]))
    return np.repeat(np.repeat(rgb, larger, axis=0), larger, axis=1)


def _on_paper(
    rgba: npt.NDArray[np.uint8], limits: Limits, state: dict[str, Any]
) -> npt.NDArray[np.uint8]:
    opacity = rgba[..., 3:] / 255
    return _enlarged(np.rint(rgba[..., :3] * opacity + _PAPER * (1 - opacity)).astype(np.uint8))


def _coloured(
    values: npt.NDArray[np.float64], limits: Limits, state: dict[str, Any]
) -> npt.NDArray[np.uint8]:
    numbers = scaled(values, state["scale"], limits.linear)
    return _enlarged(coloured(numbers, (limits.low, limits.high), PALETTES[state["cmap"]]))


def _line(
    pairs: npt.NDArray[np.float64], limits: Limits, state: dict[str, Any]
) -> npt.NDArray[np.uint8]:
    """A black line of the lowest and highest values on white, between the limits."""
    height, width = _LINE_SHAPE
    result = np.full((height, width, 3), _PAPER, np.uint8)
    low, high, linear = limits
    of_columns = scaled(pairs[np.arange(width) * len(pairs) // width], state["scale"], linear)
    with np.errstate(all="ignore"):
        places = between(of_columns, low, high) if high > low else of_columns - low
        rows = np.rint((1 - np.nan_to_num(places, nan=0, posinf=1e9, neginf=-1e9)) * (height - 1))
    down = np.arange(height)[:, None]
    drawn = (down >= rows[None, :, 1]) & (down <= np.maximum(rows[None, :, 0], rows[None, :, 1]))
    result[drawn & ~np.isnan(of_columns).any(axis=1)] = 0
    return result


_DRAWN: dict[str, Callable[[Any, Limits, dict[str, Any]], npt.NDArray[np.uint8]]] = {
    "line": _line,
    "image": _coloured,
    "colour": _on_paper,
}
