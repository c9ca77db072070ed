"""Files that are given by their paths: created or opened for one write, and closed again."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from functools import partial

import h5py
from h5py import h5f

from gpufetch import _core
from gpufetch.hdf5._asking import FAILURES, io_errno
from gpufetch.hdf5._binding import phil
from gpufetch.hdf5._forked import inherited_refusal, refusal, watched_close, watched_open
from gpufetch.hdf5._uninterrupted import uninterrupted

__all__ = ["check_undamaged", "make_error", "opened", "write_file"]

_TRIES = 5
_DAMAGED_MAX = 64

# Files that HDF5 could not close, by device and inode: their size and time of change then, and the
# message and errno for those who use them again.
_damaged: dict[tuple[int, int], tuple[int, int, str, int]] = {}


def write_file(
    path: str,
    name: str,
    write: Callable[[h5py.File], object],
    *,
    libver: tuple[str, str] | None = None,
) -> None:
    """Call `write` with a file, which is created if it is not there and is closed afterwards.

    A file that this call created is deleted after an error. `name` is what is written, for
    messages; `libver` are h5py's bounds of the format of a file that is created. Raises
    gpufetch.Error with errno as native_code if HDF5 cannot close the file.
    """
    check_undamaged(path)
    file = _File(path, libver)
    try:
        uninterrupted(file.open)
        write(file.opened)
    except BaseException as error:
        uninterrupted(partial(file.discard, error))
        if file.failure is None or file.is_deleted:
            raise
        damage = file.damage(name, error)
        if not isinstance(error, Exception):
            error.add_note(str(damage))
            raise
        raise damage from error
    uninterrupted(file.close)
    if file.failure is not None:
        raise file.damage(name, file.failure) from file.failure


class _File:
    """A file that is open for one write."""

    opened: h5py.File
    failure: Exception | None = None
    """Why HDF5 could not close it."""
    is_deleted = False

    def __init__(self, path: str, libver: tuple[str, str] | None) -> None:
        is_dangling = os.path.islink(path) and not os.path.exists(path)
        self.path = os.path.realpath(path) if is_dangling else path
        self._libver = libver
        self._is_made = False
        self._identity: tuple[int, int] | None = None
        self._watched: int | None = None

    def open(self) -> None:
        """Create the file, or open it if it is there. Nobody else's file is taken for a new one."""
        for left in reversed(range(_TRIES)):
            with phil:
                opened = self._try(left)
                if opened is None:
                    continue
                status = os.fstat(opened.id.get_vfd_handle())
                self._identity = status.st_dev, status.st_ino
                # Another process may have deleted it before it was locked.
                if self.is_in_place() or not left:
                    self._watched = watched_open(opened)
                    self.opened = opened
                    return
                opened.close()

    def _try(self, left: int) -> h5py.File | None:
        """Open it, or create it; None where another process makes it and there are tries left."""
        self._is_made = False
        try:
            return h5py.File(self.path, "r+")
        except FileNotFoundError:
            pass
        try:
            opened = h5py.File(self.path, "x", libver=self._libver)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.EAGAIN) and left:
                return None
            self._delete_empty(error)
            raise
        self._is_made = True
        return opened

    def _delete_empty(self, error: OSError) -> None:
        """Delete a new file that is still empty, because HDF5 could not write to it."""
        if error.errno not in (errno.EEXIST, errno.EAGAIN):
            with contextlib.suppress(OSError):
                if os.lstat(self.path).st_size == 0:
                    os.unlink(self.path)

    def is_in_place(self) -> bool:
        """Whether the path still leads to the file that was opened."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity

    def discard(self, error: BaseException) -> None:
        """Close the file after an error, and delete it if this object created it.

        It is deleted first, while HDF5's lock keeps other processes from writing to it.
        """
        if not hasattr(self, "opened"):
            return
        with phil:
            if self._is_made and self._is_unused(error):
                self._delete()
            self.close()

    def _is_unused(self, error: BaseException) -> bool:
        """Whether nobody else has the file open or has written to it."""
        try:
            if h5f.get_obj_count(self.opened.id, h5f.OBJ_FILE) > 1:
                return False
            return bool(getattr(error, "native_code", 0)) or len(self.opened) == 0
        except FAILURES:
            return True

    def _delete(self) -> None:
        if self.is_in_place():
            os.unlink(self.path)
        self.is_deleted = True

    def close(self) -> None:
        """Close the file. If HDF5 cannot, `failure` says why, and a new file is deleted."""
        with phil:
            try:
                self.opened.close()
            except FAILURES as error:
                self.failure = error
                if self._is_made and not self.is_deleted:
                    self._delete()
            finally:
                watched_close(self._watched)
                self._watched = None

    def damage(self, name: str, cause: BaseException) -> _core.Error:
        """The error to raise for a file that HDF5 could not close; the file is remembered."""
        code = io_errno(cause, self.failure)
        system = f" ({os.strerror(code)})" if code else ""
        if self.is_deleted:
            text = (
                f"writing {name!r} to the new file {self.path} failed{system}, and the file was "
                f"deleted again; HDF5 says: {self.failure}"
            )
            return make_error(text, code)
        text = (
            f"writing {name!r} to {self.path} failed{system}, and HDF5 could not close the file, "
            "which may be damaged"
        )
        remedy = "make room, restore the file from a copy, or write to a new file"
        if self.is_in_place():
            status = os.stat(self.path)
            while len(_damaged) >= _DAMAGED_MAX:
                _damaged.pop(next(iter(_damaged)), None)
            refusal = (
                f"{self.path} may be damaged, and is used again by this process when it has been "
                f"replaced: {text}; {remedy}"
            )
            known = status.st_size, status.st_mtime_ns, refusal, code
            _damaged[status.st_dev, status.st_ino] = known
        return make_error(f"{text}: {remedy}; HDF5 says: {self.failure}", code)


def make_error(text: str, code: int) -> _core.Error:
    """Make a gpufetch.Error of HDF5, with errno as native_code."""
    error = _core.Error(text)
    error.status, error.native_code = "GPUF_ERR_HDF5", code
    return error


def check_readable(path: str) -> None:
    """Raise gpufetch.Error for what `check_undamaged` refuses, and for shards that do not fit."""
    check_undamaged(path)
    _core.restart_check_shards(path)


@contextlib.contextmanager
def opened(path: str) -> Iterator[h5py.File]:
    """Open a file to read it; gpufetch.Error as of `check_readable`."""
    check_readable(path)
    file = h5py.File(path, "r")
    text = inherited_refusal(file, path)  # the parent may have given it its name just now
    if text is not None:
        with contextlib.suppress(OSError, RuntimeError):  # it cannot be written
            file.close()
        raise _forked(text)
    with file:
        yield file


def _forked(text: str) -> _core.Error:
    error = make_error(text, 0)
    error.status = "GPUF_ERR_STATE"
    return error


def check_undamaged(path: str) -> None:
    """Raise gpufetch.Error if this process has written to a file that HDF5 could not close.

    The same if it was forked while the file was written.
    """
    text = refusal(path)
    if text is not None:
        raise _forked(text)
    try:
        status = os.stat(path)
    except OSError:
        return
    found = _damaged.get((status.st_dev, status.st_ino))
    if found is not None and found[:2] == (status.st_size, status.st_mtime_ns):
        raise make_error(*found[2:])
