"""Where a dataset is: what the `dest`, `src` and `name` of read and write may be."""

from __future__ import annotations

import difflib
import itertools
import os
from typing import Any, TypeAlias

import h5py

from gpufetch._checks import check_path, check_regular, check_text
from gpufetch.hdf5._asking import FAILURES, has_link, open_object
from gpufetch.hdf5._nested import is_stored_tree

__all__ = ["FilePath", "as_path", "check_open", "check_parent", "item_in", "missing_link"]

FilePath: TypeAlias = "str | os.PathLike[str]"

_NAMES_READ = 1000  # of a group, where a name is missing
_NAMES_SHOWN = 10


def as_path(value: Any, role: str) -> str:
    """Path of a file; TypeError, which names the argument's `role`, for anything else.

    ValueError for a path that HDF5 would cut, OSError for a pipe, a socket or a device.
    """
    if isinstance(value, (str, os.PathLike)):
        check_path(value, role)
        check_regular(value)
        return os.fspath(value)
    raise TypeError(
        f"{role} is {type(value).__name__}: give an h5py File or Group, or a file's path"
    )


def check_open(item: h5py.Group | h5py.Dataset, role: str) -> None:
    """Raise ValueError, which names the argument's `role`, if an h5py object is closed."""
    if not item:
        raise ValueError(f"{role} is closed ({item!r}): open the file again")


def item_in(group: h5py.Group, name: str) -> h5py.Dataset | h5py.Group:
    """Open a dataset to read, or the group of a tree.

    KeyError if there is none of that name, OSError if HDF5 cannot tell, TypeError for another kind
    of object, ValueError for a name that HDF5 would cut. h5py takes a name as bytes, too.
    """
    check_open(group, "src")
    if isinstance(name, bytes):
        check_path(name, "name")  # need not be UTF-8
    else:
        check_text(name, "name")
    found = open_object(group, name)
    if found is None:
        shown = os.fsdecode(name)
        there = _what_there_is(group, shown)
        raise KeyError(f"no dataset {shown} in {group.file.filename}{there}")
    if isinstance(found, h5py.Group) and is_stored_tree(found):
        return found
    if not isinstance(found, h5py.Dataset):
        raise TypeError(
            f"{name!r} in {group!r} is {found!r}, not a dataset, nor a tree that "
            "gpufetch.hdf5.write made"
        )
    return found


def _what_there_is(group: h5py.Group, name: str) -> str:
    """Names like a missing one, or some of those in the group that lacks it; "" if HDF5 fails."""
    try:
        missing = missing_link(group, name) or name
        parent = missing[: missing.rfind("/") + 1]
        holder = open_object(group, parent) if parent else group
        if not isinstance(holder, h5py.Group):
            return ""
        names = list(itertools.islice(holder, _NAMES_READ))
    except FAILURES:
        return ""
    if not names:
        return f": {holder.name} is empty"
    close = difflib.get_close_matches(missing.removeprefix(parent), names, n=3)
    shown = [repr(parent + one) for one in close or names[:_NAMES_SHOWN]]
    if close:
        return f": did you mean {' or '.join(shown)}?"
    return f": there are {', '.join(shown)}{', ...' if len(names) > _NAMES_SHOWN else ''}"


def check_parent(group: h5py.Group, name: str, missing: str) -> None:
    """Raise ValueError if what is to hold `missing`, the first link that `name` lacks, cannot.

    OSError if HDF5 cannot open it.
    """
    parent = missing.rpartition("/")[0]
    found = open_object(group, parent) if parent else group
    if found is None:  # a link that leads nowhere, as HDF5 will say
        return
    if not isinstance(found, h5py.Group):
        raise ValueError(
            f"{name!r} cannot be created: {parent!r} is {found!r}, and only groups hold datasets; "
            "choose another name"
        )


def missing_link(group: h5py.Group, name: str) -> str | None:
    """The path up to the first link that `name` needs and that is not there; None if all are.

    OSError if HDF5 cannot tell.
    """
    path = "/" if name.startswith("/") else ""
    for part in filter(None, name.split("/")):
        path += part
        if not has_link(group, path):
            return path
        path += "/"
    return None
