"""A file that is written under another name, and gets its own when it is whole.

gpufetch itself does this in C, and locks the file against those who clean up; here is what every
system has, also with file systems that have no hard links (FAT, exFAT).
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

__all__ = ["new_file"]

_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)


@contextlib.contextmanager
def new_file(dest: Path, *, overwrite: bool, mode: int | None = None) -> Iterator[Path]:
    """Give the path at which to write the file; at the end of the `with` it becomes `dest`.

    After an exception `dest` is as it was. `mode` are the file's permissions.

    Raises FileExistsError where `dest` exists, unless `overwrite`; ValueError where it is no plain
    file; OSError where the system refuses.
    """
    path = Path(os.path.realpath(dest))
    if path.exists() and not overwrite:
        raise FileExistsError(
            f"{path} exists already: choose another name, or let it be replaced (--overwrite)"
        )
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no plain file, and is not replaced: give another name")
    unnamed = path.with_name(f".gpufetch-new-{uuid.uuid4().hex}.h5")
    try:
        yield unnamed
        if mode is not None:
            unnamed.chmod(mode)
        _flush(unnamed)
        _give_name(unnamed, path, overwrite=overwrite)
    finally:
        with contextlib.suppress(OSError):
            unnamed.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _give_name(unnamed: Path, path: Path, *, overwrite: bool) -> None:
    if overwrite:
        os.replace(unnamed, path)
    elif os.name == "nt":
        os.rename(unnamed, path)  # where there is a file of that name, this fails on Windows alone
    else:
        try:
            _give_new_name(unnamed, path)
        except FileExistsError:
            raise FileExistsError(f"{path} was made by someone else meanwhile") from None


def _give_new_name(unnamed: Path, path: Path) -> None:
    """Raise FileExistsError where another file has the name."""
    try:
        os.link(unnamed, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        path.open("x").close()  # an empty file of this call's, which may be replaced
        try:
            os.replace(unnamed, path)
        except BaseException:
            path.unlink()
            raise
