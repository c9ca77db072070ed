"""What `gpufetch verify` finds beside the elements: attributes, and trees that are not whole."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import h5py
from h5py import h5d

from gpufetch.hdf5._asking import attribute
from gpufetch.hdf5._attributes import attributes
from gpufetch.hdf5._flat import restore
from gpufetch.hdf5._nested import is_stored_tree, read_tree
from gpufetch.hdf5._save import SUM, dataset_of_tree, text_of_tree
from gpufetch.hdf5._stored import stored_chunks
from gpufetch.hdf5._tree import Tree

__all__ = ["ERRORS", "has_checksums", "read_attributes", "tree_errors"]

ERRORS = (KeyError, MemoryError, OSError, RuntimeError, TypeError, ValueError)
"""What reading something that is damaged raises, and what the system refuses."""


def has_checksums(file: h5py.File) -> bool:
    """Whether the file's metadata has checksums: not in the oldest of HDF5's formats."""
    superblock, *_ = file.id.get_create_plist().get_version()
    return bool(superblock >= 2)


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
    text = text_of_tree(group)
    if text is None:
        return
    is_saved = attribute(group, SUM) is not None  # and by hdf5.save, which writes all chunks
    lost: list[BaseException] = []

    def look(name: str, into: Any) -> None:
        try:
            _check_tensor(dataset_of_tree(group, name), is_complete=is_saved)
        except ERRORS as error:
            lost.append(error)

    restore(text, look, where=repr(group))
    yield from lost


def _check_tensor(dataset: h5py.Dataset, *, is_complete: bool) -> None:
    """ValueError where the chunks that the file has are not those that were written."""
    layout = dataset.id.get_create_plist().get_layout()
    if not is_complete or not dataset.size:
        return
    is_lost = layout == h5d.CONTIGUOUS and dataset.id.get_offset() is None
    if is_lost or (layout == h5d.CHUNKED and not _has_every_chunk(dataset)):
        raise ValueError(
            f"dataset {dataset.name!r} lacks chunks, or has others than gpufetch.hdf5.save wrote"
        )


def _has_every_chunk(dataset: h5py.Dataset) -> bool:
    """Whether each chunk of a dataset is there once, and no other."""
    ends = list(zip(dataset.shape, dataset.chunks, strict=True))
    places = [info.chunk_offset for info in stored_chunks(dataset.id)]

    def is_one(place: tuple[int, ...]) -> bool:
        return all(at < n and at % c == 0 for at, (n, c) in zip(place, ends, strict=True))

    count = math.prod(-(-n // c) for n, c in ends)
    return len(places) == len(set(places)) == count and all(map(is_one, places))
