"""The values that a repr shows, for which it pulls a few KiB at most."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufetch._view import View

__all__ = ["REPR_NBYTES", "values_text"]

REPR_NBYTES = 4096
"""Most bytes that a repr pulls."""

# An array of up to _REPR_SIZE values is shown in full. Of a larger one, a repr shows _EDGE_COUNT
# values at both ends of the last two axes, in the middle of the others: at most 36.
_REPR_SIZE = 200
_EDGE_COUNT = 3
_REPR_NDIM = 2
_LINE_WIDTH = 96


def values_text(view: View) -> str:
    """Format the values as NumPy does, pulling at most REPR_NBYTES from the device."""
    if view.size <= _REPR_SIZE and view.nbytes <= REPR_NBYTES:
        return np.array2string(view.fetch(), separator=", ", max_line_width=_LINE_WIDTH)
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


def _corners(view: View) -> npt.NDArray[Any]:
    """Pull the ends of each long axis into an array one element longer than the ends.

    The element between the ends is never printed: array2string puts "..." in its place.
    """
    ends = slice(0, _EDGE_COUNT), slice(-_EDGE_COUNT, None)
    limit = 2 * _EDGE_COUNT
    values = np.zeros([min(length, limit + 1) for length in view.shape], view.dtype)
    axes = [ends if length > limit else (slice(None),) for length in view.shape]
    for key in itertools.product(*axes):
        values[key] = view[key].fetch()
    return values
