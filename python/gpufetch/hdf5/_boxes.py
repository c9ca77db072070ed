"""Chunk shapes, and the boxes in which a dataset's elements are copied."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

__all__ = ["Box", "boxes", "chunk_shape"]

Box: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""A start and a shape."""

_CHUNK_NBYTES = 1 << 20
_BOXES_MAX = 1 << 32


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
    the shapes, where there are more than 2³².
    """
    box = [min(c, n) for c, n in zip(chunk, shape, strict=True)]
    nbytes = int(np.prod(box)) * itemsize
    for axis in reversed(range(len(shape))):
        needed = -(-shape[axis] // box[axis])
        count = max(1, min(box_nbytes // nbytes, needed))
        nbytes *= count
        box[axis] *= count
    counts = [-(-n // b) for n, b in zip(shape, box, strict=True)]
    total = math.prod(counts)
    if total > _BOXES_MAX:
        raise MemoryError(
            f"{total} boxes of shape {tuple(box)} in an array of shape {shape} are too many to go "
            f"through; at most {_BOXES_MAX}"
        )
    for number in range(total):
        start: list[int] = []
        for count, b in zip(reversed(counts), reversed(box), strict=True):
            number, place = divmod(number, count)
            start.insert(0, place * b)
        yield (
            tuple(start),
            tuple(min(b, n - s) for b, n, s in zip(box, shape, start, strict=True)),
        )
