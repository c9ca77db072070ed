"""Sizes and values as text, for reprs that copy a few KiB at most."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufetch import _pull

__all__ = ["REPR_NBYTES", "format_nbytes", "print_lines", "table_lines", "values_text"]

# A repr shows this many values at both ends of the last two axes, in the middle of the others: at
# most 36 values, and an array of up to _REPR_SIZE values in full.
_EDGE_COUNT = 3
_REPR_NDIM = 2
REPR_NBYTES = 4096
_REPR_SIZE = 200
_LINE_WIDTH = 96


def format_nbytes(nbytes: int) -> str:
    """Write a size in bytes for people: "0 B", "960 B", "64.0 MiB"."""
    if nbytes < 1024:
        return f"{nbytes} B"
    size = float(nbytes)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1023.95:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} PiB"


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Write rows of cells in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def print_lines(text: str, printer: Any) -> None:
    """Give a text of several lines to IPython's pretty printer, as `_repr_pretty_` must."""
    for index, line in enumerate(text.split("\n")):
        if index:
            printer.break_()
        printer.text(line)


def values_text(view: _pull.View) -> str:
    """Format the values as NumPy does, pulling at most REPR_NBYTES from the device."""
    if view.size <= _REPR_SIZE and view.nbytes <= REPR_NBYTES:
        return np.array2string(_pull.fetch(view), separator=", ", max_line_width=_LINE_WIDTH)
    middle = tuple(length // 2 for length in view.shape[: max(0, view.ndim - _REPR_NDIM)])
    text = np.array2string(
        _corners(view[middle] if middle else view),
        separator=", ",
        max_line_width=_LINE_WIDTH,
        threshold=0,
        edgeitems=_EDGE_COUNT,
    )
    if not middle:
        return text
    where = ", ".join([*map(str, middle), *":" * _REPR_NDIM])
    return f"values at [{where}]:\n{text}"


def _corners(view: _pull.View) -> npt.NDArray[Any]:
    """Pull the ends of each long axis into an array one element longer than the ends.

    The element between the ends is never printed: array2string puts "..." in its place.
    """
    ends = slice(0, _EDGE_COUNT), slice(-_EDGE_COUNT, None)
    limit = 2 * _EDGE_COUNT
    values = np.zeros([min(length, limit + 1) for length in view.shape], view.dtype)
    axes = [ends if length > limit else (slice(None),) for length in view.shape]
    for key in itertools.product(*axes):
        values[key] = _pull.fetch(view[key])
    return values
