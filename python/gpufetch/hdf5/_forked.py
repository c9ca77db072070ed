"""Files that gpufetch opens by their paths and writes, in a process that is forked meanwhile.

HDF5 in the child has such a file open as it was then. At exit it would write what it holds of it,
into the file that the parent has finished since; and it would give the old contents to whoever
opens the file again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import h5py
from h5py import h5f
from h5py._objects import phil

__all__ = ["inherited_refusal", "refusal", "watched", "watched_close", "watched_open"]

# By descriptor: device and inode. Changed while h5py's lock is held, which h5py holds at forks.
_written: dict[int, tuple[int, int]] = {}
_inherited: set[tuple[int, int]] = set()


def watched_open(file: h5py.File, descriptor: int | None = None) -> int | None:
    """Let forked children give up a file that was just opened, while h5py's lock is held since.

    `descriptor` is that of the file, by default HDF5's. Returns what watched_close takes. A file
    that others in this process have open is theirs.
    """
    if h5f.get_obj_count(file.id, h5f.OBJ_ALL) > 1:
        return None
    descriptor = file.id.get_vfd_handle() if descriptor is None else descriptor
    status = os.fstat(descriptor)
    _written[descriptor] = status.st_dev, status.st_ino
    return descriptor


def watched_close(descriptor: int | None) -> None:
    """The file is closed, in the same turn of h5py's lock."""
    if descriptor is not None:
        _written.pop(descriptor, None)


@contextlib.contextmanager
def watched(file: h5py.File, descriptor: int | None) -> Iterator[None]:
    """Close a file that watched_open was told of, at the end of the `with`."""
    try:
        yield
    finally:
        with phil:
            try:
                file.close()
            finally:
                watched_close(descriptor)


def refusal(path: str | os.PathLike[str]) -> str | None:
    """Why this process cannot open the file, if it was forked while the file was written."""
    return _refusal(path, path)


def inherited_refusal(file: h5py.File, path: str) -> str | None:
    """The same for the open file that HDF5 gave for the path."""
    return _refusal(file.id.get_vfd_handle(), path) if _inherited else None


def _refusal(file: int | str | os.PathLike[str], path: str | os.PathLike[str]) -> str | None:
    if not _inherited:
        return None
    try:
        status = os.stat(file)
    except OSError:
        return None
    if (status.st_dev, status.st_ino) not in _inherited:
        return None
    return (
        f"this process was forked while {os.fspath(path)} was written, and HDF5 would take the "
        "file for what it was then: start workers with spawn or forkserver, or fork while no "
        "thread writes"
    )


def _give_up() -> None:
    """Keep the child's HDF5 from writing. It may read, and the inode stays in use."""
    for descriptor, identity in _written.items():
        with contextlib.suppress(OSError):
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) == identity:
                _inherited.add(identity)
                _replace(descriptor)
    _written.clear()


def _replace(descriptor: int) -> None:
    try:
        other = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
    except OSError:
        other = os.open(os.devnull, os.O_RDONLY)
    os.dup2(other, descriptor, inheritable=False)
    os.close(other)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_give_up)
