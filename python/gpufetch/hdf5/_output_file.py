"""A file for HDF5 to write to by h5py's driver for file objects, which a full disk does not upset.

HDF5 cannot close a file that it cannot write to, and its later calls, or the end of the process,
may then fail by a signal (seen: 2.0.0). So no method that HDF5 calls raises.
"""

from __future__ import annotations

import errno
import io
import os
from typing import Any

__all__ = ["OutputFile"]


class _GivenUpError(Exception):
    """Ends what writes to a file that was given up."""


class OutputFile(io.FileIO):
    """A new file, or an old one emptied. The first error of a write is kept, and HDF5 not told.

    What is written from there on stays in memory, where HDF5 reads it back, until the file is
    closed: call :meth:`check` often. Used by one thread at a time, in which no signal's handler
    runs, but for :meth:`give_up`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(os.fspath(path), "w+")
        self._path = os.fspath(path)
        self._code = 0  # errno of the first error
        self._is_given_up = False
        self._kept: list[tuple[int, bytes]] = []  # behind the error: places and bytes

    def give_up(self) -> None:
        """Let the next :meth:`check` raise. From any thread."""
        self._is_given_up = True

    def check(self) -> None:
        """Raise the first error."""
        if self._is_given_up:
            raise _GivenUpError
        if self._code:
            text = f"{os.strerror(self._code)}: {os.fsdecode(self._path)} cannot be written"
            raise OSError(self._code, text)

    def _note(self, error: OSError | MemoryError) -> None:
        self._code = self._code or getattr(error, "errno", None) or errno.ENOMEM

    def write(self, data: Any, /) -> int:
        """Write all of `data`, which supports the buffer protocol, at the file's position."""
        try:
            self._write(memoryview(data).cast("B"))
        except (OSError, MemoryError) as error:
            self._note(error)
        return len(data)

    def _write(self, view: memoryview) -> None:
        at = self.tell()
        try:
            done = 0
            while done < len(view) and not self._code:
                done += super().write(view[done:]) or 0
        except OSError as error:
            self._note(error)
        if self._code:
            self._kept.append((at, bytes(view)))
            super().seek(at + len(view))

    def readinto(self, buffer: Any, /) -> int:
        """Fill all of `buffer`, with zeros behind the end of the file."""
        try:
            self._readinto(memoryview(buffer).cast("B"))
        except (OSError, MemoryError) as error:
            self._note(error)
        return len(buffer)

    def _readinto(self, view: memoryview) -> None:
        at = self.tell()
        done = 0
        while count := super().readinto(view[done:]):
            done += count
        view[done:] = bytes(len(view) - done)
        for start, kept in self._kept:
            first, end = max(start, at), min(start + len(kept), at + len(view))
            if first < end:
                view[first - at : end - at] = kept[first - start : end - start]
        super().seek(at + len(view))

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """As that of io.FileIO; the end is that of what is in memory, too."""
        try:
            if whence == os.SEEK_END:
                ends = [start + len(kept) for start, kept in self._kept]
                offset += max(super().seek(0, os.SEEK_END), *ends, 0)
                whence = os.SEEK_SET
            return super().seek(offset, whence)
        except (OSError, MemoryError) as error:
            self._note(error)
            return offset

    def truncate(self, nbytes: int | None = None, /) -> int:
        """As that of io.FileIO."""
        nbytes = self.tell() if nbytes is None else nbytes
        try:
            if not self._code:
                super().truncate(nbytes)
        except (OSError, MemoryError) as error:
            self._note(error)
        return nbytes
