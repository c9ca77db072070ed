"""Writes in flight: copying and encoding begin at once; polling and waiting enter HDF5."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import queue
import time
import warnings
import weakref
from collections.abc import Sequence
from functools import partial
from operator import index
from typing import Any, NoReturn, final

import h5py

from gpufetch import _core
from gpufetch._checks import check_int, check_text, check_timeout
from gpufetch._threads import Workers
from gpufetch.hdf5._asking import require_object
from gpufetch.hdf5._binding import phil, require_binding
from gpufetch.hdf5._location import check_open
from gpufetch.hdf5._numbers import as_tensor
from gpufetch.hdf5._write import Codec, chunk_shape, codec_number

__all__ = ["WriteFuture", "write_async"]

_logger = logging.getLogger("gpufetch")

_SLICE_NS = 50_000_000  # Ctrl-C is noticed between two calls of C

_finishers = Workers(16)
"""Each thread finishes one write whose caller has asked for a thread."""

_unfinished: weakref.WeakSet[WriteFuture] = weakref.WeakSet()
"""Those that their callers finish."""


def _give_up_all() -> None:
    for future in list(_unfinished):
        _core.h5_write_close(future._write)


atexit.register(_give_up_all)
atexit.register(_finishers.end)


class _Finisher:
    """Finishes a write on a thread. It does not hold the future, which may be dropped."""

    def __init__(self, write: Any, what: str) -> None:
        self.is_copied = False
        self.is_done = False
        self._write = write
        self._what = what
        self._changed: queue.SimpleQueue[None] = queue.SimpleQueue()

    def run(self) -> None:
        try:
            _core.h5_write_wait(self._write, -1, True)
            self.is_copied = True
            self._wake()
            _core.h5_write_wait(self._write, -1, False)
        except Exception as error:
            with contextlib.suppress(MemoryError):
                _logger.warning("writing %s failed: %s", self._what, error)
        finally:
            self.is_copied = self.is_done = True
            self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(MemoryError):  # then those who wait look a moment later
            self._changed.put(None)

    def check_may_wait(self, until_copied: bool = False) -> None:
        """RuntimeError where what this thread would wait for waits for this thread."""
        if phil._is_owned() and not (self.is_copied if until_copied else self.is_done):
            raise RuntimeError(
                f"{self._what} is finished by a thread that needs h5py's lock, which "
                "this thread holds, as in a function that visititems calls: wait after that, or "
                "write without thread=True"
            )

    def wait(self, timeout_ns: int, until_copied: bool) -> bool:
        """As _core.h5_write_wait. An item of the queue only says that it is time to look."""
        end = time.monotonic_ns() + timeout_ns
        while not (self.is_copied if until_copied else self.is_done):
            left = end - time.monotonic_ns()
            if left <= 0:
                return False
            try:
                self._changed.get(timeout=min(left, _SLICE_NS) / 1e9)
            except queue.Empty:
                continue
        return _core.h5_write_wait(self._write, 0, False) if self.is_done else True

    def wait_done(self) -> None:
        """Wait for the end, whatever it is."""
        self.check_may_wait()
        while not self.is_done:
            try:
                self._changed.get(timeout=_SLICE_NS / 1e9)
            except queue.Empty:
                continue


@final
class WriteFuture:
    """A write in flight, which :func:`write_async` has begun.

    HDF5 is entered by the methods, on the thread that calls them, while h5py's lock is held; with
    ``thread=True`` by a thread of gpufetch instead. Then ``result``, ``wait_copied`` and ``close``
    of an unfinished write raise RuntimeError on a thread that holds h5py's lock itself, as in a
    function that ``visititems`` calls. One thread at a time uses a future. Where the process has no
    memory left, the thread tries again until there is some, which a `timeout` of ``result`` bounds.

    A future that is dropped before it is done is given up, with a ResourceWarning, unless it has a
    thread: a new dataset is removed again, and a region is left partly written. The same holds at
    the end of the interpreter, which waits for those with a thread.
    """

    __slots__ = ("__weakref__", "_dest", "_finisher", "_is_done", "_name", "_process_id", "_write")

    def __init__(
        self, write: Any, dest: h5py.Group | h5py.Dataset, name: str | None, *, thread: bool
    ) -> None:
        self._write = write
        self._dest = dest
        self._name = name
        self._process_id = os.getpid()
        self._is_done = False
        self._finisher: _Finisher | None = None
        if thread:
            finisher = _Finisher(write, repr(self))
            _finishers.start(finisher.run)
            self._finisher = finisher
        else:
            _unfinished.add(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a WriteFuture cannot be pickled or copied: pass on the file's name and the dataset's "
            "once result() has returned"
        )

    def done(self) -> bool:
        """Hand to HDF5 what is ready, and say whether the write is finished, or has failed."""
        _core.check_process(self._process_id)  # a forked child lacks the thread
        if not self._is_done:
            try:
                self._is_done = self._wait(0, False)
            except Exception:
                self._is_done = True
        return self._is_done

    def result(self, timeout: float | None = None) -> h5py.Dataset:
        """Finish the write, and return the dataset.

        Raises TimeoutError where it is not finished after `timeout` seconds (None: no limit), and
        otherwise what :func:`write` would raise, each time. gpufetch.Error, too, where the file
        was closed meanwhile or the write was given up.
        """
        self._await(timeout, until_copied=False)
        if self._name is None:
            return self._dest
        return require_object(self._dest, self._name)

    def wait_copied(self, timeout: float | None = None) -> None:
        """Wait until the tensor may be overwritten, where more may be left to hand to HDF5.

        Raises TimeoutError, or the write's failure.
        """
        self._await(timeout, until_copied=True)

    def close(self) -> None:
        """Give the write up where it is not finished; with a thread, wait for that instead."""
        _core.check_process(self._process_id)
        if self._finisher is not None:
            self._finisher.wait_done()
        self._is_done = True
        _core.h5_write_close(self._write)

    def _wait(self, timeout_ns: int, until_copied: bool) -> bool:
        if self._finisher is not None:
            return self._finisher.wait(timeout_ns, until_copied)
        return _core.h5_write_wait(self._write, timeout_ns, until_copied)

    def _await(self, timeout: float | None, *, until_copied: bool) -> None:
        check_timeout(timeout)
        _core.check_process(self._process_id)
        if self._finisher is not None:
            self._finisher.check_may_wait(until_copied)
        end = None if timeout is None else time.monotonic_ns() + int(min(timeout * 1e9, 2**62))
        while True:
            left = _SLICE_NS if end is None else max(end - time.monotonic_ns(), 0)
            try:
                is_over = self._wait(min(left, _SLICE_NS), until_copied)
            except Exception:
                self._is_done = True
                raise
            if is_over:
                self._is_done = self._is_done or not until_copied
                return
            if left == 0:
                raise TimeoutError(f"{self!r} is not finished after {timeout} s")

    def __del__(self) -> None:
        if not getattr(self, "_is_done", True) and self._finisher is None:
            warnings.warn(
                f"{self!r} was dropped before it was done, and is given up: call result()",
                ResourceWarning,
                stacklevel=2,
            )

    def __repr__(self) -> str:
        what = "a region" if self._name is None else repr(self._name)
        return f"<gpufetch.hdf5.WriteFuture of {what}>"


def write_async(
    dest: h5py.Group | h5py.Dataset,
    name: str | None,
    x: Any,
    *,
    start: Sequence[int] | None = None,
    chunks: tuple[int, ...] | None = None,
    codec: Codec = "gpufetch",
    max_nbytes: int = 0,
    thread: bool = False,
) -> WriteFuture:
    """Begin to write `x`, and return while threads of gpufetch copy and encode it.

    They do not enter HDF5: what they have made is handed to it by the future's methods, on the
    thread that calls them. The call itself enters HDF5 to create or to look at the dataset, so
    that wrong arguments fail at once.

    >>> future = gf.hdf5.write_async(file, "step 7/u", u)
    >>> ...  # the next step, which may overwrite u after future.wait_copied()
    >>> future.result()

    Parameters
    ----------
    dest
        An open ``h5py.File`` or ``h5py.Group``, in which a dataset is created; or an open
        ``h5py.Dataset``, in which a region is overwritten.
    name
        Path of the new dataset below `dest`; None where `dest` is the dataset.
    x
        A tensor as for :func:`write`, and no tree. It must not change until the future's
        ``wait_copied`` or ``result`` has returned.
    start
        Where the region begins, an index for each axis of the dataset; by default `x` is all of
        it. Where `x` has fewer axes, those that it lacks come first and have one element:
        ``start=(step, 0, 0)`` writes a plane. The dataset may be resized while writes to it are in
        flight: appending is ``resize`` and ``write_async``.
    chunks, codec
        Of a new dataset, as for :func:`write`.
    max_nbytes
        Memory at most for what is encoded and HDF5 has not got yet, or that of one chunk; 0: 256
        MiB. When it is full, encoding goes on with the future's next method.
    thread
        Whether a thread of gpufetch finishes the write, which takes h5py's lock for one chunk after
        another. The future's methods then only wait. A failure that `result` does not raise is in
        the log, too.

    Raises
    ------
    ValueError, TypeError, gpufetch.Error
        As :func:`write`.
    """
    require_binding()
    number = codec_number(codec)
    max_nbytes = check_int(max_nbytes, "max_nbytes", 0)
    if not isinstance(dest, h5py.Group | h5py.Dataset):
        raise TypeError(
            f"dest is of type {type(dest).__name__}: give an open h5py.File, Group or Dataset"
        )
    check_open(dest, "dest")
    if isinstance(dest, h5py.Dataset):
        write = _begin_region(dest, name, as_tensor(x), start, max_nbytes)
    else:
        if not isinstance(name, str):
            raise TypeError(f"name is of type {type(name).__name__}: give text, as 'group/x'")
        check_text(name, "name")
        if start is not None:
            raise ValueError("start is for writes to a dataset, and dest is a group")
        shape = None if chunks is None else chunk_shape(chunks)
        begin = partial(_core.h5_write_async, phil, dest.id.id, name)
        write = begin(as_tensor(x), shape, number, max_nbytes)
    return WriteFuture(write, dest, name, thread=thread)


def _begin_region(
    dataset: h5py.Dataset, name: str | None, x: Any, start: Sequence[int] | None, max_nbytes: int
) -> Any:
    if name is not None:
        raise ValueError(f"name {name!r} was given, but dest is a dataset already")
    with phil:
        ndim, dataset_id = dataset.ndim, dataset.id.id
    begins = None if start is None else tuple(map(index, start))
    if begins is not None and len(begins) != ndim:
        raise ValueError(f"start has {len(begins)} indices, and the dataset {ndim} axes")
    return _core.h5_write_region_async(phil, dataset_id, begins, x, max_nbytes)
