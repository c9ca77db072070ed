"""Draws an array's shape: a bar, a rectangle or a cuboid; for more axes, a row of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpufetch._display.html import escape

__all__ = ["layout_svg"]

_SIZE = 110.0  # pixels of the longest axis
_SLANT = 0.5  # how far a cuboid's depth goes to the right and up
_BAR = 16.0
_AXES_MAX = 12  # of more, the last are drawn
_CHARACTER = 6.4  # pixels of a label's character


def layout_svg(shape: Sequence[int]) -> str:
    """An SVG image of the axes, with their lengths; "" for an array without axes."""
    shape = tuple(shape)
    if not shape:
        return ""
    drawn = shape[-_AXES_MAX:]
    first = len(drawn) % 3 or 3
    groups = [drawn[:first], *(drawn[i : i + 3] for i in range(first, len(drawn), 3))]
    left, height, parts = 2.0, 0.0, []
    longest = max(drawn)
    for group in groups:
        body, width, tall = _GROUPS[len(group)](group, longest)
        parts.append((left, tall, body))
        left += width + 10
        height = max(height, tall)
    inside = "".join(
        f"<g transform='translate({x:.1f},{height - tall + 4:.1f})'>{body}</g>"
        for x, tall, body in parts
    )
    width, tall = math.ceil(left), math.ceil(height + 6)
    return (
        f"<svg width='{width}' height='{tall}' viewBox='0 0 {width} {tall}' role='img' "
        f"aria-label='shape {escape(shape)}' fill='var(--gf-fill)' stroke='currentColor'>"
        f"{inside}</svg>"
    )


def _pixels(length: int, longest: int) -> float:
    """The drawn length of an axis: much shorter ones are drawn longer than they are."""
    ratio = max(longest, 1) / max(length, 0.1)
    if ratio > math.e:
        ratio = min(math.log(ratio + 12.4), math.log(112.4))
    return _SIZE / ratio


def _polygon(points: Sequence[tuple[float, float]], opacity: float = 1.0) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f"<polygon points='{path}' fill-opacity='{opacity}'/>"


def _text(x: float, y: float, text: int, anchor: str) -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'>{text}</text>"


def _label_width(length: int) -> float:
    return _CHARACTER * len(str(length))


def _bar(shape: Sequence[int], longest: int) -> tuple[str, float, float]:
    (length,) = shape
    wide = _pixels(length, longest)
    body = _polygon([(0, 0), (wide, 0), (wide, _BAR), (0, _BAR)])
    body += _text(wide / 2, _BAR + 13, length, "middle")
    return body, max(wide, _label_width(length)), _BAR + 16


def _rectangle(shape: Sequence[int], longest: int) -> tuple[str, float, float]:
    rows, columns = shape
    tall, wide = _pixels(rows, longest), _pixels(columns, longest)
    body = _polygon([(0, 0), (wide, 0), (wide, tall), (0, tall)])
    body += _text(wide / 2, tall + 13, columns, "middle")
    body += _text(wide + 5, tall / 2 + 4, rows, "start")
    return body, wide + 5 + _label_width(rows), tall + 16


def _cuboid(shape: Sequence[int], longest: int) -> tuple[str, float, float]:
    depth, rows, columns = shape
    tall, wide = _pixels(rows, longest), _pixels(columns, longest)
    slant = _SLANT * _pixels(depth, longest)
    front = [(0, slant), (wide, slant), (wide, slant + tall), (0, slant + tall)]
    top = [(0, slant), (slant, 0), (wide + slant, 0), (wide, slant)]
    side = [(wide, slant), (wide + slant, 0), (wide + slant, tall), (wide, slant + tall)]
    body = _polygon(front) + _polygon(top, 0.65) + _polygon(side, 0.4)
    body += _text(wide / 2, slant + tall + 13, columns, "middle")
    body += _text(wide + slant + 5, tall / 2 + 4, rows, "start")
    body += _text(wide + slant / 2 + 5, slant / 2 + tall + 10, depth, "start")
    right = max(slant + 5 + _label_width(rows), slant / 2 + 5 + _label_width(depth))
    return body, wide + right, slant + tall + 16


_GROUPS = {1: _bar, 2: _rectangle, 3: _cuboid}
