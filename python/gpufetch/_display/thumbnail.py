"""A small picture of a plane, as a PNG of 256 colours; NaN has a colour of its own."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["NAN_COLOUR", "VIRIDIS", "colour_limits", "img_tag", "png"]

NAN_COLOUR = (230, 60, 60)
_PERCENTILES = (0.5, 99.5)  # a few extremes do not take all of the contrast
_LONG_SIDE = 176  # pixels on the page
_SHORT_SIDE_MIN = 24

# Polynomials in the position from 0 to 1 of viridis's red, green and blue.
_COEFFICIENTS = (
    (0.2777273272234177, 0.005407344544966578, 0.3340998053353061),
    (0.1050930431085774, 1.404613529898575, 1.384590162594685),
    (-0.3308618287255563, 0.214847559468213, 0.09509516302823659),
    (-4.634230498983486, -5.799100973351585, -19.33244095627987),
    (6.228269936347081, 14.17993336680509, 56.69055260068105),
    (4.776384997670288, -13.74514537774601, -65.35303263337234),
    (-5.435455855934631, 4.645852612178535, 26.3124352495832),
)


def _viridis() -> npt.NDArray[np.uint8]:
    powers = np.linspace(0, 1, 255)[:, None] ** np.arange(len(_COEFFICIENTS))
    colours: npt.NDArray[np.float64] = powers @ np.array(_COEFFICIENTS)
    return np.rint(255 * np.clip(colours, 0, 1)).astype(np.uint8)


VIRIDIS = _viridis()
"""255 colours from low to high, as evenly spaced to the eye as they are in value."""


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


def _levels(values: npt.NDArray[Any], limits: tuple[float, float] | None) -> npt.NDArray[np.uint8]:
    """Palette indices: 0 for NaN, 1 to 255 from the lower limit to the upper one."""
    values = np.asarray(values, np.float64)
    levels = np.zeros(values.shape, np.uint8)
    low, high = limits or (0.0, 0.0)
    is_number = ~np.isnan(values)
    if high > low:
        clipped = np.clip(values[is_number], low, high)
        # Each is halved first: their difference may be above the largest float.
        position = (clipped / 2 - low / 2) / (high / 2 - low / 2)
        levels[is_number] = 1 + np.rint(254 * position).astype(np.uint8)
    else:  # one value, and infinities beside it
        numbers = values[is_number]
        levels[is_number] = np.where(numbers > high, 255, np.where(numbers < low, 1, 128))
    return levels


def png(values: npt.NDArray[Any], limits: tuple[float, float] | None) -> bytes:
    """A PNG with a pixel for each value of two axes."""
    levels = _levels(values, limits)
    rows, columns = levels.shape
    scanlines = np.zeros((rows, columns + 1), np.uint8)  # each begins with its filter, 0 for none
    scanlines[:, 1:] = levels
    palette = np.vstack([np.array([NAN_COLOUR], np.uint8), VIRIDIS])
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)),
        (b"PLTE", palette.tobytes()),
        (b"IDAT", zlib.compress(scanlines.tobytes(), 9)),
        (b"IEND", b""),
    )
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
