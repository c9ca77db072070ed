"""A file for HDF5 to write to by h5py's driver for file objects, which a full disk does not upset.

HDF5 cannot close a file that it cannot write to, and its later calls, or the end of the process,
may then fail by a signal (seen: 2.0.0).
"""

from __future__ import annotations

import errno
import io
import os
from typing import Any

__all__ = ["OutputFile"]


class OutputFile(io.FileIO):
    """A new file, or an old one emptied. The first error of a write is kept, and HDF5 not told.

    What is written from there on stays in memory, where HDF5 reads it back, until the file is
    closed: call :meth:`check` often. Used by one thread at a time.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(os.fspath(path), "w+")
        self._path = os.fspath(path)
        self._code = 0  # errno of the first error of a write
        self._kept: list[tuple[int, bytes]] = []  # behind the error: places and bytes

    def check(self) -> None:
        """Raise the first error of a write."""
        if self._code:
            text = f"{os.strerror(self._code)}: {os.fsdecode(self._path)} cannot be written"
            raise OSError(self._code, text)

    def write(self, data: Any, /) -> int:
        """Write all of `data`, which supports the buffer protocol, at the file's position."""
        view = memoryview(data).cast("B")
        at = self.tell()
        try:
            self.check()
            done = 0
            while done < len(view):
                done += super().write(view[done:]) or 0
        except OSError as error:
            self._code = self._code or error.errno or errno.EIO
            self._kept.append((at, bytes(view)))
            super().seek(at + len(view))
        return len(view)

    def readinto(self, buffer: Any, /) -> int:
        """Fill all of `buffer`, with zeros behind the end of the file."""
        view = memoryview(buffer).cast("B")
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
        return len(view)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """As that of io.FileIO; the end is that of what is in memory, too."""
        if whence == os.SEEK_END:
            ends = [start + len(kept) for start, kept in self._kept]
            return super().seek(max(super().seek(0, os.SEEK_END), *ends, 0) + offset)
        return super().seek(offset, whence)

    def truncate(self, nbytes: int | None = None, /) -> int:
        """As that of io.FileIO."""
        nbytes = self.tell() if nbytes is None else nbytes
        try:
            self.check()
            return super().truncate(nbytes)
        except OSError as error:
            self._code = self._code or error.errno or errno.EIO
            return nbytes
