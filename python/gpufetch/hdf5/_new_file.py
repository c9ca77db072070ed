"""A file that is written under another name, and gets its own when it is whole and on the disk.

The other name is `.gpufetch-new-….h5` in the same folder. Beside it there is a file that is locked
while its process lives: what dead processes have left is removed by the next one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import stat
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from gpufetch import _core
from gpufetch.hdf5._names import say_name
from gpufetch.hdf5._uninterrupted import uninterrupted

__all__ = ["new_file"]

_PREFIX = ".gpufetch-new-"  # gpufetch verify knows it, too
_LOCK = ".lock"


@contextlib.contextmanager
def new_file(
    dest: str | os.PathLike[str], *, overwrite: bool, sync: bool = True, mode: int | None = None
) -> Iterator[Path]:
    """Give the path at which to write the file; at the end of the `with` it becomes `dest`.

    After an exception `dest` is as it was, and so it is after a crash of the process or, with
    `sync`, of the machine. A link at `dest` stays, and what it leads to is replaced. `mode` are the
    file's permissions; by default those of the file that it replaces.

    Raises FileExistsError where `dest` exists, unless `overwrite`; ValueError where it is no plain
    file, or ends with a slash as a folder does; OSError where the system refuses.
    """
    if os.fsdecode(dest).endswith(os.sep):
        raise ValueError(f"{os.fsdecode(dest)} names a folder: give the path of a file")
    path = Path(os.path.realpath(dest))
    if not path.parent.exists():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.parent))
    old_mode = _check_replaceable(path, overwrite=overwrite)
    mode = old_mode if mode is None else mode
    _sweep(path.parent)
    with _temporary(path.parent) as unnamed:
        try:
            yield unnamed
            if mode is not None:
                unnamed.chmod(mode)
            _core.publish_file(unnamed, path, path.parent, overwrite, sync)
        except FileExistsError:
            raise FileExistsError(f"{path} was made by someone else meanwhile") from None
        except Exception as error:
            say_name(error, str(unnamed), str(path))
            raise


def _check_replaceable(path: Path, *, overwrite: bool) -> int | None:
    """The permissions of the file that is to be replaced; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    if not overwrite:
        raise FileExistsError(
            f"{path} exists already: choose another name, or let it be replaced (overwrite=True, "
            "--overwrite)"
        )
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path} is no plain file, and is not replaced: give another name")
    return stat.S_IMODE(status.st_mode)


@contextlib.contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    """A name that is this call's alone; what has it in the end is removed.

    Where a signal's handler raises before that is begun, a later sweep removes it: the lock goes
    with the object that holds it.
    """
    held: list[io.FileIO] = []
    take, give_back = partial(_lock_new, folder, held), partial(_remove_held, held)
    try:
        uninterrupted(take)
        yield _unlocked(held[0])
    finally:
        uninterrupted(give_back)


def _unlocked(lock: io.FileIO) -> Path:
    """The path of the file that a lock stands for."""
    return Path(os.fsdecode(lock.name)).with_suffix(".h5")


def _remove_held(held: list[io.FileIO]) -> None:
    for lock in held:
        path = _unlocked(lock)
        _remove(path, path.with_suffix(_LOCK))
        lock.close()


def _remove(path: Path, locked: Path) -> None:
    """Remove both; what the system keeps is removed by a later sweep, which finds the lock."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
        locked.unlink(missing_ok=True)


def _lock_new(folder: Path, held: list[io.FileIO]) -> None:
    """Make a file, lock it, and append it to `held`."""
    while not held:
        path = folder / f"{_PREFIX}{uuid.uuid4().hex}{_LOCK}"
        lock = io.FileIO(os.fspath(path), "x+")
        # Until it is locked, another process may take it for a dead one's, and remove it.
        if _lock(lock.fileno()) is not False and path.exists():
            held.append(lock)
        else:
            lock.close()


def _lock(descriptor: int) -> bool | None:
    """Whether the file is locked now; None where the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _sweep(folder: Path) -> None:
    """Remove what dead processes have left, as far as the system allows it."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for name in [entry.name for entry in entries if entry.name.startswith(_PREFIX)]:
            if name.endswith(_LOCK):
                with contextlib.suppress(OSError):
                    _remove_dead(folder / name)


def _remove_dead(locked: Path) -> None:
    descriptor = os.open(locked, os.O_RDWR | os.O_NOFOLLOW)
    try:
        if _lock(descriptor):
            _remove(locked.with_suffix(".h5"), locked)
    finally:
        os.close(descriptor)
