"""Going through a LazyArray chunk by chunk, with bounded memory, and handing it to Dask."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpufetch import _pull
from gpufetch._progress import ProgressBar

if TYPE_CHECKING:
    from gpufetch.lazy import LazyArray

__all__ = ["CHUNK_NBYTES", "iter_chunks", "to_dask"]

CHUNK_NBYTES = 64 << 20

Key = tuple[slice, ...]


def iter_chunks(
    array: LazyArray, nbytes: int, progress: bool
) -> Iterator[tuple[Key, npt.NDArray[Any]]]:
    """Answer LazyArray.iter_chunks. Arguments are checked here, at the call."""
    nbytes = operator.index(nbytes)
    if nbytes < array.dtype.itemsize:
        raise ValueError(
            f"chunks of {nbytes} bytes cannot hold an element of {array.dtype.itemsize}"
        )
    bar = ProgressBar(array.nbytes, is_wanted=progress)
    return _chunks(array, _chunk_keys(array.shape, array.dtype.itemsize, nbytes), bar)


def _chunks(
    array: LazyArray, keys: Iterator[Key], bar: ProgressBar
) -> Iterator[tuple[Key, npt.NDArray[Any]]]:
    # One chunk is on its way while the consumer has another; none is held here meanwhile.
    try:
        pending: tuple[Key, _pull.Future] | None = None
        for key in itertools.chain(keys, [None]):
            arrived = pending
            pending = None if key is None else (key, _pull.fetch_async(array._view()[key]))
            if arrived is None:
                continue
            values = [arrived[1].result()]
            chunk_nbytes, chunk_key = values[0].nbytes, arrived[0]
            del arrived
            yield chunk_key, values.pop()
            bar.advance(chunk_nbytes)
    finally:
        bar.close()


def _chunk_keys(shape: tuple[int, ...], itemsize: int, nbytes: int) -> Iterator[Key]:
    """Cut into C-ordered boxes of at most `nbytes`: single indices, one range, whole axes."""
    if 0 in shape:
        return
    axis, inner = len(shape), itemsize  # the axes from here on are taken whole
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


class _DaskSource:
    """What a Dask graph holds: pulls blocks as NumPy arrays."""

    def __init__(self, array: LazyArray) -> None:
        self._array = array
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def __getitem__(self, key: Any) -> Any:
        values = self._array[key]
        return values if isinstance(values, np.ndarray | np.generic) else values.fetch()


def to_dask(array: LazyArray, chunks: Any) -> Any:
    """Answer LazyArray.to_dask."""
    try:
        import dask.array
        import dask.base
    except ImportError as error:
        raise ImportError(
            f"to_dask() needs dask.array ({error}): pip install 'gpufetch[dask]'"
        ) from error
    return dask.array.from_array(
        _DaskSource(array),
        chunks=chunks,
        name=f"gpufetch-{dask.base.tokenize(array)}",
        asarray=True,
        meta=np.empty((0,) * array.ndim, array.dtype),
    )
