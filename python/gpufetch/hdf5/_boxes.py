"""Chunk shapes, and the boxes in which a dataset's elements are copied."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

__all__ = ["Box", "boxes", "chunk_shape"]

Box: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""A start and a shape."""

_CHUNK_NBYTES = 1 << 20


def chunk_shape(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The chunk shape that gpufetch.hdf5.write chooses: about 1 MiB of elements, in long rows."""
    chunk = list(shape)
    while int(np.prod(chunk)) * itemsize > _CHUNK_NBYTES and max(chunk) > 1:
        weights = [*chunk[:-1], chunk[-1] / 4]
        axis = weights.index(max(weights))
        if chunk[axis] == 1:
            axis = chunk.index(max(chunk))
        chunk[axis] = -(-chunk[axis] // 2)
    return tuple(chunk)


def boxes(
    shape: tuple[int, ...], chunk: tuple[int, ...], itemsize: int, box_nbytes: int
) -> Iterator[Box]:
    """Cut an array of `shape` into boxes of whole chunks, in C order.

    A box has at most `box_nbytes` bytes, or one chunk where that is more. MemoryError, which names
    the shapes, where there are too many of them.
    """
    box = [min(c, n) for c, n in zip(chunk, shape, strict=True)]
    nbytes = int(np.prod(box)) * itemsize
    for axis in reversed(range(len(shape))):
        needed = -(-shape[axis] // box[axis])
        count = max(1, min(box_nbytes // nbytes, needed))
        nbytes *= count
        box[axis] *= count
    steps = (range(0, n, b) for n, b in zip(shape, box, strict=True))
    try:
        starts = itertools.product(*steps)  # holds the places along each axis
    except (MemoryError, OverflowError):
        raise MemoryError(
            f"there is not enough memory for the places of the boxes of shape {tuple(box)} in an "
            f"array of shape {shape}"
        ) from None
    for start in starts:
        yield start, tuple(min(b, n - s) for b, n, s in zip(box, shape, start, strict=True))
