"""A small picture of a plane, as a PNG of 256 colours; NaN has a colour of its own."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufetch._display.palettes import NAN_COLOUR, VIRIDIS

__all__ = ["between", "colour_limits", "coloured", "img_tag", "palette_png", "png"]

_PERCENTILES = (0.5, 99.5)  # a few extremes do not take all of the contrast
_LONG_SIDE = 176  # pixels on the page
_SHORT_SIDE_MIN = 24


def colour_limits(values: npt.NDArray[Any]) -> tuple[float, float] | None:
    """The values that the first and the last colour stand for; None without a finite value."""
    with np.errstate(over="ignore"):
        finite = np.asarray(values, np.float64)
    finite = finite[np.isfinite(finite)]
    if finite.size == 0:
        return None
    low, high = np.percentile(finite, _PERCENTILES)
    if low == high:
        low, high = finite.min(), finite.max()
    return float(low), float(high)


def between(value: Any, low: float, high: float) -> Any:
    """Where values lie from `low`, 0, to `high`, 1."""
    if high - low < np.inf:
        return (value - low) / (high - low)
    return (value / 2 - low / 2) / (high / 2 - low / 2)


def _levels(values: npt.NDArray[Any], limits: tuple[float, float] | None) -> npt.NDArray[np.uint8]:
    """Palette indices: 0 for NaN, 1 to 255 from the lower limit to the upper one."""
    values = np.asarray(values, np.float64)
    levels = np.zeros(values.shape, np.uint8)
    low, high = limits or (0.0, 0.0)
    is_number = ~np.isnan(values)
    if high > low:
        position = between(np.clip(values[is_number], low, high), low, high)
        levels[is_number] = 1 + np.rint(254 * position).astype(np.uint8)
    else:  # one value, and infinities beside it
        numbers = values[is_number]
        levels[is_number] = np.where(numbers > high, 255, np.where(numbers < low, 1, 128))
    return levels


def png(values: npt.NDArray[Any], limits: tuple[float, float] | None) -> bytes:
    """A PNG with a pixel for each value of two axes."""
    return palette_png(_levels(values, limits), _palette(VIRIDIS))


def coloured(
    values: npt.NDArray[Any], limits: tuple[float, float] | None, colours: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
    """Red, green and blue of values, along a further axis."""
    return _palette(colours)[_levels(values, limits)]


def _palette(colours: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return np.vstack([np.array([NAN_COLOUR], np.uint8), colours])


def palette_png(levels: npt.NDArray[np.uint8], palette: npt.NDArray[np.uint8] | None) -> bytes:
    """A PNG of palette indices; without a palette, of red, green and blue along a third axis."""
    rows, columns = levels.shape[:2]
    lines = levels.reshape(rows, -1)
    scanlines = np.zeros((rows, lines.shape[1] + 1), np.uint8)
    scanlines[:, 1:] = lines  # each begins with its filter, 0 for none
    colour_type = 2 if palette is None else 3
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, colour_type, 0, 0, 0))]
    if palette is not None:
        chunks.append((b"PLTE", palette.tobytes()))
    chunks += [(b"IDAT", zlib.compress(scanlines.tobytes(), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def img_tag(values: npt.NDArray[Any], limits: tuple[float, float] | None) -> str:
    """An HTML image of values of two axes, on which a pixel of the page may be part of a cell."""
    rows, columns = values.shape
    scale = _LONG_SIDE / max(rows, columns)
    # Cells of one to two pixels are blurred rather than repeated unevenly.
    rendering = "pixelated" if scale >= 2 else "auto"
    height = max(_SHORT_SIDE_MIN, round(rows * scale))
    width = max(_SHORT_SIDE_MIN, round(columns * scale))
    data = base64.b64encode(png(values, limits)).decode()
    style = f"image-rendering:{rendering}"
    size = f"width='{width}' height='{height}' style='{style}'"
    return f"<img alt='values' {size} src='data:image/png;base64,{data}'>"
