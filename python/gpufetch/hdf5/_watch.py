"""A progress bar for a write: another thread looks how many chunks are in the file already."""

from __future__ import annotations

import atexit
import contextlib
import math
import queue
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import h5py

from gpufetch import _core
from gpufetch._progress import ProgressBar
from gpufetch._threads import Workers
from gpufetch.hdf5._binding import phil

__all__ = ["Watch"]

_DELAY_S = 0.5  # what takes less needs no bar
_PERIOD_S = 0.1
_SHARE = 0.02  # of the time, at most, is for looking: h5py's lock is held then
_DEPTH_MAX = 100

_workers = Workers(4)
atexit.register(_workers.end)


class Watch:
    """The bar of one write of a tensor or a tree; as a context manager it is closed at the end."""

    def __init__(self, x: Any, *, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        nbytes = _nbytes(x) if is_wanted else 0
        self._bar = ProgressBar(nbytes, is_wanted=is_wanted, delay_s=_DELAY_S)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *reason: object) -> None:
        self._bar.close()

    @contextlib.contextmanager
    def written(self, group: h5py.Group, name: str, x: Any) -> Iterator[None]:
        """Watch the write of the dataset `name`, which is created within."""
        if not self._is_wanted:
            yield
            return
        ended: queue.SimpleQueue[None] = queue.SimpleQueue()
        done: queue.SimpleQueue[None] = queue.SimpleQueue()
        shown = [0]
        try:
            _workers.start(
                partial(self._follow, group, name, ended, shown, partial(done.put, None))
            )
        except (MemoryError, RuntimeError):  # no more threads
            done.put(None)
        try:
            yield
        finally:
            ended.put(None)
            done.get()
        self._bar.advance(_nbytes(x) - shown[0])

    def _follow(
        self,
        group: h5py.Group,
        name: str,
        ended: queue.SimpleQueue[None],
        shown: list[int],
        tell: Callable[[], None],
    ) -> None:
        """Advance the bar until the write has ended or there is no memory, and tell so.

        `shown[0]` is by how much it was advanced.
        """
        period = _PERIOD_S
        try:
            while True:
                try:
                    ended.get(timeout=period)
                    return
                except queue.Empty:
                    start = time.monotonic()
                    there = max(shown[0], _written_nbytes(group, name))
                    self._bar.advance(there - shown[0])
                    shown[0] = there
                    period = max(_PERIOD_S, (time.monotonic() - start) / _SHARE)
        except MemoryError:
            return
        finally:
            _core.run_insistently(tell)


def _written_nbytes(group: h5py.Group, name: str) -> int:
    """Bytes of the elements whose chunks are in the file; 0 where that cannot be told."""
    with contextlib.suppress(Exception), phil:
        if name in group:
            dataset = group[name]
            if isinstance(dataset, h5py.Dataset) and dataset.chunks:
                chunk_nbytes = math.prod(dataset.chunks) * dataset.dtype.itemsize
                nbytes: int = min(dataset.id.get_num_chunks() * chunk_nbytes, dataset.nbytes)
                return nbytes
    return 0


def _nbytes(x: Any, depth: int = 0) -> int:
    """Bytes of the tensors of a tree; what is none, and is refused when it is written, has none."""
    if isinstance(x, Mapping | list | tuple):
        items = x.values() if isinstance(x, Mapping) else x
        return sum(_nbytes(item, depth + 1) for item in items) if depth < _DEPTH_MAX else 0
    try:
        return _core.asdevice(x).nbytes
    except Exception:
        return 0
