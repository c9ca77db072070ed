"""What `gpufetch verify` finds beside the elements: attributes, and trees that are not whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import h5py

from gpufetch.hdf5._attributes import attributes
from gpufetch.hdf5._flat import Stored, restore
from gpufetch.hdf5._nested import is_stored_tree, read_tree
from gpufetch.hdf5._save import dataset_of_tree, text_of_tree
from gpufetch.hdf5._stored import is_header_checked
from gpufetch.hdf5._tree import Tree

__all__ = ["ERRORS", "has_checksums", "read_attributes", "tree_errors"]

ERRORS = (KeyError, MemoryError, OSError, RuntimeError, TypeError, ValueError)
"""What reading something that is damaged raises, and what the system refuses."""


def has_checksums(tree: Tree) -> bool:
    """Whether a file's metadata has checksums: by the format of HDF5 1.10, in all objects.

    The format of 1.8 has none of the indexes of chunks. What HDF5 2.0 adds to a file is in its
    oldest format unless it is told otherwise, as by h5py's libver.
    """
    superblock, *_ = tree.file.id.get_create_plist().get_version()
    paths = (b"/", *tree.paths("group", "dataset", "type"))
    return superblock >= 3 and all(_has_checked_header(tree, path) for path in paths)


def _has_checked_header(tree: Tree, path: bytes) -> bool:
    try:
        return is_header_checked(tree.open(path))
    except ERRORS:  # reading says what is damaged
        return True


def read_attributes(identifier: Any) -> None:
    """Read every attribute of an open object; what it raises is one of ERRORS."""
    for _ in attributes(identifier):
        pass


def tree_errors(tree: Tree, path: bytes) -> Iterator[BaseException]:
    """What reading the tree of a group raises, if that is one: of save, or the top one of write."""
    group = h5py.Group(tree.open(path))
    try:
        _read_written(tree, path, group)
        yield from _saved_errors(group)
    except ERRORS as error:
        yield error


def _read_written(tree: Tree, path: bytes, group: h5py.Group) -> None:
    above = path.rpartition(b"/")[0] or b"/"
    if not is_stored_tree(group):
        return
    if path == b"/" or not is_stored_tree(h5py.Group(tree.open(above))):
        read_tree(group, lambda dataset: None, lambda dataset: dataset[()])


def _saved_errors(group: h5py.Group) -> Iterator[BaseException]:
    text, is_saved = text_of_tree(group)
    if text is None:
        return
    lost: list[BaseException] = []

    def look(stored: Stored, into: Any) -> None:
        try:
            dataset_of_tree(group, stored, is_saved=is_saved)
        except ERRORS as error:
            lost.append(error)

    restore(text, look, where=repr(group))
    yield from lost
