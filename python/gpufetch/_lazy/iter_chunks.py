"""Going through an array box by box, with bounded memory."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufetch._progress import ProgressBar
from gpufetch._view import Future, View

__all__ = ["CHUNK_NBYTES", "Key", "iter_chunks"]

CHUNK_NBYTES = 64 << 20

Key = tuple[slice, ...]


def iter_chunks(
    view: Callable[[], View],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    nbytes: int,
    progress: bool,
) -> Iterator[tuple[Key, npt.NDArray[Any]]]:
    """Pull an array in boxes of at most `nbytes` bytes, in C order; yield (index, values).

    `view` gives the array, of `shape` and `dtype`, as it is at that time; it is called for each
    box. The arguments are checked at the call, not at the first step.
    """
    nbytes = operator.index(nbytes)
    if nbytes < dtype.itemsize:
        raise ValueError(f"chunks of {nbytes} bytes cannot hold an element of {dtype.itemsize}")
    bar = ProgressBar(math.prod(shape) * dtype.itemsize, is_wanted=progress)
    return _pulled(view, _boxes(shape, dtype.itemsize, nbytes), bar)


def _pulled(
    view: Callable[[], View], keys: Iterator[Key], bar: ProgressBar
) -> Iterator[tuple[Key, npt.NDArray[Any]]]:
    # While the consumer has the values of one box, those of the next are on their way, and this
    # generator holds a reference to neither.
    try:
        pending: tuple[Key, Future] | None = None
        for key in itertools.chain(keys, [None]):
            arrived = pending
            pending = None if key is None else (key, view()[key].fetch_async())
            if arrived is None:
                continue
            values = [arrived[1].result()]
            nbytes, arrived_key = values[0].nbytes, arrived[0]
            del arrived
            yield arrived_key, values.pop()
            bar.advance(nbytes)
    finally:
        bar.close()


def _boxes(shape: tuple[int, ...], itemsize: int, nbytes: int) -> Iterator[Key]:
    """Cut into boxes of at most `nbytes`: single indices, then one range, then whole axes."""
    if 0 in shape:
        return
    axis, inner = len(shape), itemsize  # the axes from this one on are taken whole
    while axis > 0 and inner * shape[axis - 1] <= nbytes:
        axis -= 1
        inner *= shape[axis]
    whole = (slice(None),) * (len(shape) - axis)
    if axis == 0:
        yield whole
        return
    length, step = shape[axis - 1], nbytes // inner
    for outer in itertools.product(*map(range, shape[: axis - 1])):
        single = tuple(slice(i, i + 1) for i in outer)
        for start in range(0, length, step):
            yield (*single, slice(start, min(start + step, length)), *whole)
