"""Asking HDF5 for objects, links and attributes: "there is none" is told from "HDF5 failed".

h5py raises KeyError for both, and Mapping.get makes a default of it. Here what HDF5 could not tell,
because a read failed or memory ran out, is OSError with HDF5's message and its errno.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h5py
from h5py import h5a, h5l

from gpufetch import _core

__all__ = [
    "FAILURES",
    "attribute",
    "has_link",
    "io_errno",
    "link_class",
    "naming",
    "open_object",
    "require_object",
]

FAILURES = (KeyError, OSError, RuntimeError, ValueError)
"""What h5py raises where HDF5 fails."""

# HDF5's innermost message where a name leads nowhere: to no link, by a soft link to nothing, or
# through a dataset, as if that were a group.
_NOTHING = re.compile(
    r"\((object '.*' doesn't exist|component not found|message type not found)\)\Z", re.DOTALL
)
# A file that an external link names does not open, for whatever reason: by HDF5 2.0 and by 1.14.
_NO_FILE = re.compile(r"\((can't open file|unable to open external file, .*)\)\Z", re.DOTALL)


def io_errno(*errors: BaseException | None) -> int:
    """The errno that the first of the errors with one tells, else 0."""
    for error in errors:
        code = getattr(error, "errno", 0)
        if getattr(error, "status", "GPUF_ERR_HDF5") == "GPUF_ERR_HDF5":  # else a device's code
            code = code or getattr(error, "native_code", 0)
        found = re.search(r"errno = (\d+)", str(error))
        if code or found:
            return int(code or (found and found[1]) or 0)
    return 0


def _text(error: BaseException) -> str:
    return str(error.args[-1] if error.args else error)


@contextmanager
def naming(path: bytes) -> Iterator[None]:
    """Name the dataset in what h5py raises meanwhile; gpufetch's own errors name it already."""
    try:
        yield
    except _core.Error:
        raise
    except FAILURES as error:
        text = f"dataset {path.decode(errors='replace')}: {_text(error)}"
        if isinstance(error, ValueError):
            raise ValueError(text) from error
        code = io_errno(error)
        raise (OSError(code, text) if code else OSError(text)) from error


def _failure(group: h5py.Group, name: str | bytes, error: BaseException) -> OSError:
    """The error to raise for a name that HDF5 could not follow."""
    text = f"{os.fsdecode(name)!r} in {group.file.filename} cannot be opened: {_text(error)}"
    code = io_errno(error)
    if code:
        return OSError(code, text)
    target = _external_target(group, name)
    if target is None:
        return OSError(text)
    folder = os.path.dirname(os.path.abspath(group.file.filename))
    text += f"; it is, or is below, an external link to the file {target!r}"
    is_there = any(os.path.exists(os.path.join(at, target)) for at in (folder, os.getcwd()))
    if is_there or not _NO_FILE.search(_text(error)):
        return OSError(text)
    # No errno: those are kept for what the file itself suffered.
    return FileNotFoundError(f"{text}, which is neither in {folder} nor in the working directory")


def _external_target(group: h5py.Group, name: str | bytes) -> str | None:
    """The file of the first external link on the way to a name; None if there is none."""
    at = group.id
    path = b"/" if os.fsencode(name).startswith(b"/") else b""
    for part in filter(None, os.fsencode(name).split(b"/")):
        path += part
        try:
            if at.links.get_info(path).type == h5l.TYPE_EXTERNAL:
                return os.fsdecode(at.links.get_val(path)[0])
        except FAILURES:
            return None
        path += b"/"
    return None


def open_object(group: h5py.Group, name: str | bytes) -> Any:
    """Open what a name leads to; None if it leads to nothing, OSError if HDF5 cannot tell."""
    try:
        return group[name]
    except (KeyError, RuntimeError) as error:
        if _NOTHING.search(_text(error)):
            return None
        raise _failure(group, name, error) from error


def require_object(group: h5py.Group, name: str | bytes) -> Any:
    """Open what a name leads to; OSError where HDF5 cannot."""
    try:
        return group[name]
    except (KeyError, RuntimeError) as error:
        raise _failure(group, name, error) from error


def has_link(group: h5py.Group, path: str) -> bool:
    """Whether there is a link at a path; not if a link before it leads nowhere."""
    try:
        return bool(group.id.links.exists(path.encode(errors="surrogateescape")))
    except (KeyError, RuntimeError) as error:
        if _NOTHING.search(_text(error)) or _NO_FILE.search(_text(error)):
            return False
        raise _failure(group, path, error) from error


def link_class(group: h5py.Group, name: str) -> int:
    """The class of a link that is there: h5l.TYPE_HARD and its kin."""
    try:
        return int(group.id.links.get_info(name.encode(errors="surrogateescape")).type)
    except (KeyError, RuntimeError) as error:
        raise _failure(group, name, error) from error


def attribute(item: h5py.Group | h5py.Dataset, name: str) -> Any:
    """The value of an attribute; None if there is none of that name."""
    try:
        if not h5a.exists(item.id, name.encode()):
            return None
        return item.attrs[name]
    except (KeyError, RuntimeError) as error:
        code = io_errno(error)
        text = f"attribute {name!r} of {item.name!r} cannot be read: {_text(error)}"
        raise (OSError(code, text) if code else OSError(text)) from error
