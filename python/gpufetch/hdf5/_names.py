"""Changing the names of what is in a file, and removing what a failed write created."""

from __future__ import annotations

from functools import partial
from typing import Any

import h5py
from h5py import h5a, h5l

from gpufetch.hdf5._asking import FAILURES, io_errno, link_class, require_object
from gpufetch.hdf5._binding import phil
from gpufetch.hdf5._location import missing_link
from gpufetch.hdf5._nested import is_stored_tree
from gpufetch.hdf5._uninterrupted import uninterrupted

__all__ = ["check_replaceable", "give_name", "remove", "remove_attributes", "say_name"]


def check_replaceable(group: h5py.Group, name: str) -> None:
    """Raise ValueError unless `name`, which is there, is a dataset, a tree, or no hard link.

    OSError if HDF5 cannot tell.
    """
    if link_class(group, name) != h5l.TYPE_HARD:
        return
    found = require_object(group, name)
    if not (
        isinstance(found, h5py.Dataset) or (isinstance(found, h5py.Group) and is_stored_tree(found))
    ):
        raise ValueError(
            f"{name!r} exists already and is {found!r}: overwrite=True replaces datasets, and "
            "groups that gpufetch.hdf5.write made of a tree"
        )


def give_name(group: h5py.Group, new: str, name: str) -> None:
    """Give what is called `new` another name, in place of what has it now.

    No other thread sees the file without that name. After an error, a signal's among them, the name
    is that of the old one or of the new one, and the other one is gone or is called `new`. After
    one with errno nothing more is done to the file, and the old one may have the name that a note
    of the error says.
    """
    uninterrupted(partial(_give_name, group, new, name))


def _give_name(group: h5py.Group, new: str, name: str) -> None:
    with phil:
        if missing_link(group, name) is not None:
            group.move(new, name)
            return
        check_replaceable(group, name)
        old = new.replace(".gpufetch-new-", ".gpufetch-old-")
        try:
            group.move(name, old)
            group.move(new, name)
            del group[old]
        except BaseException as error:
            if io_errno(error):
                error.add_note(f"what {name!r} was may be called {old!r} now")
            else:
                _take_back(group, new, name, old, error)
            raise


def _take_back(group: h5py.Group, new: str, name: str, old: str, error: BaseException) -> None:
    """Give the old one its name again. What cannot be done is noted in `error`."""
    try:
        if missing_link(group, old) is None:
            if missing_link(group, name) is None:
                group.move(name, new)
            group.move(old, name)
    except FAILURES as second:
        error.add_note(f"what {name!r} was is called {old!r} now: {second}")


def remove(group: h5py.Group, name: str, missing: str | None, error: BaseException) -> None:
    """Delete a link if it is there, and the groups from `missing` on that are empty then.

    What cannot be deleted, as on a full disk, is noted in `error`.
    """
    uninterrupted(partial(_remove, group, name, missing, error))


def _remove(group: h5py.Group, name: str, missing: str | None, error: BaseException) -> None:
    try:
        with phil:
            if not group:
                _say_closed(error, name)
                return
            if missing_link(group, name) is None:
                del group[name]
            while missing is not None and len(name) > len(missing):
                name = name.rpartition("/")[0]
                if len(require_object(group, name)) > 0:
                    break
                del group[name]
    except FAILURES as second:
        error.add_note(f"{name!r} could not be deleted again: {second}")


def remove_attributes(group: h5py.Group, names: tuple[str, ...], error: BaseException) -> None:
    """Delete the attributes that are there. What cannot be deleted is noted in `error`."""
    uninterrupted(partial(_remove_attributes, group, names, error))


def _remove_attributes(group: h5py.Group, names: tuple[str, ...], error: BaseException) -> None:
    try:
        with phil:
            for name in names:
                if h5a.exists(group.id, name.encode()):
                    h5a.delete(group.id, name.encode())
    except FAILURES as second:
        error.add_note(f"attribute {name!r} could not be deleted again: {second}")


def _say_closed(error: BaseException, name: str) -> None:
    if error.args and isinstance(error.args[0], str):
        text = f"{error.args[0]}; the file was closed while this call wrote to it"
        error.args = (text, *error.args[1:])
    error.add_note(f"{name!r} may still be in the file, incomplete: open it and delete that")


def say_name(error: BaseException, new: str, name: str) -> None:
    """Replace the temporary name `new` in an error's message by the name of the caller's."""
    folder, slash, temporary = new.rpartition("/")
    name = name.removeprefix(folder + slash).rstrip("/")

    def said(text: object) -> Any:
        return text.replace(temporary, name) if isinstance(text, str) else text

    error.args = tuple(map(said, error.args))
    if isinstance(error, OSError) and error.strerror:  # whose text is not made of its args
        error.strerror = said(error.strerror)
        if error.filename is not None:  # else the message would end with "None"
            error.filename = said(error.filename)
