"""Finding and opening the file that a virtual dataset names as a source, as HDF5 does it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from h5py import h5f, h5fd

from gpufetch._checks import check_regular

__all__ = ["NotOpened", "open_source_file"]

_INTENT_KEPT = h5f.ACC_RDWR | h5f.ACC_SWMR_WRITE | h5f.ACC_SWMR_READ
_ORIGIN = "${ORIGIN}"


@dataclass
class NotOpened:
    """Why no file of that name could be opened.

    `errno` is ENOENT if there is none at any of `paths`, else that of the first that is there and
    does not open (None if HDF5 gave no number); `reason` is HDF5's message about it.
    """

    paths: list[str]
    errno: int | None = errno.ENOENT
    reason: str = ""


def open_source_file(file: Any, name: str, dataset_access: Any) -> Any:
    """Open the file `name` that a virtual dataset in an open `file` names; or a NotOpened.

    HDF5 opens it with the driver and the mode of `file`, and goes on to the next place where one
    does not open.
    """
    flags = file.get_intent() & _INTENT_KEPT
    access = file.get_access_plist()
    access.set_fclose_degree(h5f.CLOSE_WEAK)
    failure = NotOpened([])
    for path in dict.fromkeys(_paths(file, name, dataset_access)):
        failure.paths.append(path)
        try:
            check_regular(path)
            return h5f.open(os.fsencode(path), flags, access)
        except OSError as error:
            is_there = error.errno not in (errno.ENOENT, errno.ENOTDIR)
            if is_there and failure.errno == errno.ENOENT:
                failure.errno = error.errno
                failure.reason = f"{path}: {error.args[-1]}"
    return failure


def _paths(file: Any, name: str, dataset_access: Any) -> Iterator[str]:
    """The places where HDF5 looks for a source, in its order."""
    folder = _folder_of(file)
    if os.path.isabs(name):
        yield name
        name = os.path.basename(name)
    from_environment = os.environ.get("HDF5_VDS_PREFIX", "")
    for prefix in filter(None, from_environment.split(os.pathsep)):
        yield os.path.join(prefix, name)
    prefix = from_environment or os.fsdecode(dataset_access.get_virtual_prefix())
    if prefix not in ("", "."):
        if prefix.startswith(_ORIGIN):
            prefix = os.path.join(folder, prefix.removeprefix(_ORIGIN).lstrip("/"))
        yield os.path.join(prefix, name)
    yield os.path.join(folder, name)
    yield name
    yield os.path.join(os.path.dirname(os.path.realpath(_path_of(file, folder))), name)


def _path_of(file: Any, folder: str) -> str:
    return os.path.join(folder, os.path.basename(os.fsdecode(h5f.get_name(file))))


def _folder_of(file: Any) -> str:
    """The folder in which `file` was opened, also where the process has changed its own since."""
    path = os.path.abspath(os.fsdecode(h5f.get_name(file)))
    if file.get_access_plist().get_driver() == h5fd.SEC2:
        opened = f"/proc/self/fd/{file.get_vfd_handle()}"
        # Only Linux tells the path of an open file; the reader's package is for other systems, too.
        is_told = os.path.exists(opened)
        if is_told and not (os.path.exists(path) and os.path.samefile(path, opened)):
            path = os.readlink(opened)
    return os.path.dirname(path)
