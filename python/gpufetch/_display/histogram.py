"""Draws counts in bins, and the lowest and highest values along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufetch._display.thumbnail import between

__all__ = ["bars_text", "edges_text", "envelope_svg", "histogram_svg", "is_logarithmic"]

_WIDTH, _HEIGHT = 200.0, 72.0
_RATIO_MAX = 200  # a bin with so many times the median bin's count would hide all others
_BLOCKS = " ▁▂▃▄▅▆▇█"
_BARS_MAX = 96


def is_logarithmic(counts: npt.NDArray[Any]) -> bool:
    """Whether bars are drawn by the logarithms of the counts."""
    filled = counts[counts > 0]
    return filled.size > 1 and float(filled.max()) > _RATIO_MAX * float(np.median(filled))


def _heights(counts: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Heights from 0 to 1."""
    heights = np.asarray(counts, np.float64)
    if is_logarithmic(counts):
        heights = np.log1p(heights)
    top = heights.max(initial=0.0)
    return heights / top if top > 0 else heights


def _merged(counts: npt.NDArray[Any], most: int) -> npt.NDArray[Any]:
    """Counts of at most `most` bins, each of as many of the given ones; the last may have fewer."""
    each = -(-len(counts) // most)
    return np.add.reduceat(counts, np.arange(0, len(counts), each)) if each > 1 else counts


def _svg(inside: str) -> str:
    width, height = int(_WIDTH), int(_HEIGHT)
    base = f"<path d='M0 {_HEIGHT - 0.5}H{width}' stroke='currentColor' stroke-opacity='.4'/>"
    return (
        f"<svg width='{width}' height='{height}' viewBox='0 0 {width} {height}' role='img' "
        f"fill='none'>{inside}{base}</svg>"
    )


def histogram_svg(counts: npt.NDArray[Any]) -> str:
    """An SVG image of bars; those of bins with few elements are a pixel high at least."""
    counts = _merged(counts, _BARS_MAX)
    step = _WIDTH / len(counts)
    path = []
    for number, (height, count) in enumerate(zip(_heights(counts), counts, strict=True)):
        if count:
            pixels = max(1.0, height * (_HEIGHT - 2))
            wide = max(step - 0.6, step * 0.8)
            path.append(
                f"M{number * step:.1f} {_HEIGHT - 1}v-{pixels:.1f}h{wide:.1f}V{_HEIGHT - 1}z"
            )
    return _svg(f"<path d='{''.join(path)}' fill='var(--gf-bar)'/>")


def bars_text(counts: npt.NDArray[Any], width: int = 32) -> str:
    """The same in a line of text."""
    counts = _merged(counts, width)
    levels = np.ceil(_heights(counts) * (len(_BLOCKS) - 1)).astype(int)
    return "".join(_BLOCKS[level] for level in levels)


def envelope_svg(
    low: npt.NDArray[Any], high: npt.NDArray[Any], limits: tuple[float, float] | None
) -> str:
    """An SVG image of the range of values in each cell along one axis; gaps where all are NaN."""
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    bottom, top = limits or (0.0, 0.0)

    def pixel(value: float) -> float:
        if top <= bottom:
            return _HEIGHT / 2
        place = between(min(max(value, bottom), top), bottom, top)
        return float(_HEIGHT - 3 - place * (_HEIGHT - 6))

    step = _WIDTH / len(low)
    path = "".join(
        _mark(i * step, step, pixel(a), pixel(b))
        for i, (a, b) in enumerate(zip(low, high, strict=True))
        if not np.isnan(a)
    )
    return _svg(f"<path d='{path}' fill='var(--gf-bar)'/>")


def _mark(x: float, step: float, low: float, high: float) -> str:
    return f"M{x:.1f} {high - 0.7:.1f}h{step:.1f}V{low + 0.7:.1f}h-{step:.1f}z"


def edges_text(edges: Sequence[float]) -> str:
    """The ends of a range."""
    return f"{edges[0]:.4g} to {edges[-1]:.4g}"
