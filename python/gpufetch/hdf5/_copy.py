"""Writing the copy of an HDF5 file, with its datasets stored another way."""

from __future__ import annotations

import atexit
import os
from pathlib import Path
from typing import Any, Literal, TypeAlias

import h5py
import numpy as np
import numpy.typing as npt
from h5py import h5a, h5d, h5f, h5fd, h5g, h5o, h5p, h5r, h5t, h5z
from h5py._objects import phil

from gpufetch import _core
from gpufetch._progress import ProgressBar
from gpufetch.hdf5._asking import naming
from gpufetch.hdf5._attributes import attributes
from gpufetch.hdf5._boxes import chunk_shape
from gpufetch.hdf5._dataset import Dataset
from gpufetch.hdf5._filters import BITSHUFFLE_ID, FILTER_ID
from gpufetch.hdf5._forked import refusal, watched, watched_open
from gpufetch.hdf5._output_file import OutputFile
from gpufetch.hdf5._tree import Entry, Tree
from gpufetch.hdf5._types import has_swapped_sequences
from gpufetch.hdf5._uninterrupted import uninterrupted
from gpufetch.hdf5._virtual import checked_sources

__all__ = ["CODECS", "RepackCodec", "copy_file"]

RepackCodec: TypeAlias = Literal["gpufetch", "bitshuffle-lz4", "gzip", "none"]
CODECS: tuple[RepackCodec, ...] = ("gpufetch", "bitshuffle-lz4", "gzip", "none")

_GZIP_LEVEL = 4
# A dataset of fewer bytes is not worth chunks and a filter, unless it has chunks already.
_CHUNKED_NBYTES_MIN = 2048
# The chunk of an axis that has no elements yet.
_EMPTY = 1024
# Committed types have names that begin so until all that is of them is made.
_TEMPORARY = b".gpufetch-type-"


def copy_file(
    source: Path, dest: Path, codec: RepackCodec, bar: ProgressBar, *, allow_gaps: bool
) -> None:
    """Copy everything in `source` to a new file, which replaces `dest`.

    `bar` advances by the bytes of the elements that are written. On failure `dest` is incomplete.
    `allow_gaps` is that of checked_sources.
    """
    text = refusal(source)
    if text is not None:
        raise OSError(text)
    _core.restart_check_shards(source)
    with h5py.File(source, "r") as file:
        creation = file.id.get_create_plist()
        root = h5g.open(file.id, b"/").get_create_plist()
        creation.set_link_creation_order(root.get_link_creation_order())
        creation.set_attr_creation_order(root.get_attr_creation_order())
        access = h5p.create(h5p.FILE_ACCESS)
        access.set_fclose_degree(h5f.CLOSE_STRONG)
        is_old = creation.get_version()[0] < 2
        low = h5f.LIBVER_EARLIEST if is_old else h5f.LIBVER_V18
        access.set_libver_bounds(low, h5f.LIBVER_LATEST)
        with OutputFile(dest) as output:

            def work() -> None:
                access.set_fileobj_driver(h5fd.fileobj_driver, output)
                with phil:
                    made = h5py.File(h5f.create(os.fsencode(dest), h5f.ACC_TRUNC, creation, access))
                    descriptor = watched_open(made, output.fileno())
                # The end of the process is too late for HDF5 to let go of the file object, also in
                # a child that is forked meanwhile.
                access.close()
                atexit.register(made.close)
                try:
                    with watched(made, descriptor):
                        _Copy(Tree(file), made, output, codec, bar, allow_gaps).run()
                finally:
                    atexit.unregister(made.close)
                output.check()

            uninterrupted(work, output.give_up)
        userblock = creation.get_userblock()
    if userblock:
        with source.open("rb") as before, dest.open("r+b") as after:
            after.write(before.read(userblock))


def _group_properties(group: Any) -> Any:
    """Creation properties of the copy of a group.

    Those of a group of many links also say where the links lie in its file, and HDF5 takes that
    over for a group that is created with them. So each is taken by itself.
    """
    old = group.get_create_plist()
    new = h5p.create(h5p.GROUP_CREATE)
    new.set_link_creation_order(old.get_link_creation_order())
    new.set_attr_creation_order(old.get_attr_creation_order())
    new.set_attr_phase_change(*old.get_attr_phase_change())
    new.set_obj_track_times(old.get_obj_track_times())
    return new


class _Copy:
    """One copy of a file. Elements and attributes follow the objects to which they may refer."""

    def __init__(
        self,
        tree: Tree,
        made: h5py.File,
        output: OutputFile,
        codec: RepackCodec,
        bar: ProgressBar,
        allow_gaps: bool,
    ) -> None:
        self._tree = tree
        self._made = made
        self._output = output
        self._codec = codec
        self._bar = bar
        self._allow_gaps = allow_gaps
        self._root = h5g.open(made.id, b"/")
        # Temporary names of the copies of committed types, by the key of the original.
        self._types: dict[tuple[int, int], bytes] = {}

    def run(self) -> None:
        """Copy everything but the user block."""
        for entry in self._tree.entries:
            self._create(entry)
            self._output.check()
        for path in self._tree.paths("dataset"):
            old = Dataset(self._tree.open(path))
            with checked_sources(old.id, None, allow_gaps=self._allow_gaps) as sources:
                if sources:
                    sources.require_filled(has_zeros=old.memory == "objects")
                self._copy_elements(path, old)
        for path in [b"/", *self._tree.paths("group", "dataset", "type")]:
            self._copy_attributes(path)
            self._output.check()
        for name in self._types.values():
            self._root.unlink(name)

    def _create(self, entry: Entry) -> None:
        folder, _, name = entry.path.rpartition(b"/")
        group = h5g.open(self._made.id, folder or b"/")
        links = h5p.create(h5p.LINK_CREATE)
        links.set_char_encoding(entry.charset)
        if entry.kind == "other":
            raise ValueError(f"{_path(entry.path)} is a user-defined link, which cannot be copied")
        if entry.kind == "soft":
            group.links.create_soft(name, entry.target, links)
        elif entry.kind == "external":
            group.links.create_external(name, *entry.target, links)
        elif entry.kind == "hard":
            group.links.create_hard(name, self._root, entry.target, links)
        else:
            self._create_object(entry, group, name, links)

    def _create_object(self, entry: Entry, group: Any, name: bytes, links: Any) -> None:
        found = self._tree.open(entry.path)
        if entry.kind == "group":
            h5g.create(group, name, lcpl=links, gcpl=_group_properties(found))
        elif entry.kind == "type":
            group.links.create_hard(name, self._root, self._committed(found), links)
        else:
            self._create_dataset(Dataset(found), group, name, links)

    def _committed(self, tid: Any) -> bytes:
        """Copy a committed type if that is not done yet; the temporary name of the copy."""
        key = self._tree.key(tid)
        if key not in self._types:
            name = _TEMPORARY + str(len(self._types)).encode()
            bare = h5p.create(h5p.OBJECT_COPY)
            bare.set_copy_object(h5o.COPY_WITHOUT_ATTR_FLAG)
            h5o.copy(tid, b".", self._root, name, bare)
            self._types[key] = name
        return self._types[key]

    def _type(self, tid: Any) -> Any:
        return h5t.open(self._root, self._committed(tid)) if tid.committed() else tid

    def _create_dataset(self, old: Dataset, group: Any, name: bytes, links: Any) -> None:
        path = h5py.h5i.get_name(old.id)
        missing = old.missing_filter()
        if missing is not None:
            raise OSError(f"dataset {_path(path)} {missing}")
        if old.size:
            _check_sequences(old.tid, f"dataset {_path(path)}")
        with naming(path):
            plist = self._layout(old)
            tid = self._type(old.tid)
            made = h5d.create(group, name, tid, old.space, plist, links)
            new = Dataset(made)
            if not new.is_readable() and new.memory != "numbers":
                del new, made
                group.unlink(name)
                h5d.create(group, name, tid, old.space, self._layout(old, "gzip"), links)

    def _layout(self, old: Dataset, codec: str | None = None) -> Any:
        """Creation properties of the copy of a dataset."""
        codec = codec or self._codec
        own = old.layout in (h5d.CONTIGUOUS, h5d.CHUNKED, h5d.COMPACT)
        if own and old.plist.get_external_count() == 0:
            plist = old.plist.copy()
            for number, *_ in old.filters:
                plist.remove_filter(number)
        else:
            plist = _like(old)
        is_large = bool(old.shape) and old.nbytes >= _CHUNKED_NBYTES_MIN
        is_filtered = old.memory != "objects" and (old.layout == h5d.CHUNKED or is_large)
        longest = old.space.get_simple_extent_dims(maxdims=True) if old.shape else ()
        # An extensible dataset cannot have its elements in a row in the copy.
        has_chunks = old.shape != longest or (is_filtered and codec != "none")
        if has_chunks and old.layout != h5d.CHUNKED:
            shape = (
                n or min(most, _EMPTY) or 1 for n, most in zip(old.shape, longest, strict=True)
            )
            plist.set_chunk(chunk_shape(tuple(shape), old.itemsize))
        if is_filtered:
            _set_filter(plist, codec, old.itemsize)
        return plist

    def _copy_elements(self, path: bytes, old: Dataset) -> None:
        new = Dataset(h5o.open(self._made.id, path))
        if "numbers" in (old.memory, new.memory):
            old.memory = "numbers"
        is_sparse = old.is_sparse() and not _has_all_chunks(new)
        chunk = new.plist.get_chunk() if new.layout == h5d.CHUNKED else None
        for start, shape in old.boxes(chunk, one_chunk=is_sparse):
            with naming(path):
                if not is_sparse or old.has_chunk(start):
                    values = self._translated(old.read(start, shape))
                    if old.memory != new.memory:
                        values = values.view(f"V{old.itemsize}")
                    new.write(start, values)
            self._output.check()
            self._bar.advance(int(np.prod(shape)) * old.itemsize)

    def _translated(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The same values, with references to the copy's objects in place of the source's."""
        if values.dtype.names is not None:
            if not values.dtype.hasobject:
                return values
            made = values.copy()
            for name in values.dtype.names:
                made[name] = self._translated(values[name])
            return made
        if values.dtype != object:
            return values
        made = np.empty_like(values)
        for index, value in np.ndenumerate(values):
            made[index] = self._translated_one(value)
        return made

    def _translated_one(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self._translated(value)
        if not isinstance(value, h5py.Reference):
            return value
        target = self._tree.target_of(value)
        if target is None:
            return type(value)()
        if isinstance(target, bytes):
            return h5r.create(self._made.id, target, h5r.OBJECT)
        return h5r.create(self._made.id, target[0], h5r.DATASET_REGION, target[1])

    def _copy_attributes(self, path: bytes) -> None:
        made = h5o.open(self._made.id, path)
        for found in attributes(self._tree.open(path)):
            new = h5a.create(made, found.name, self._type(found.tid), found.space)
            if found.values is not None and found.values.size:
                _check_sequences(found.tid, f"attribute {_path(found.name)} of {_path(path)}")
                new.write(self._translated(found.values), mtype=found.memory)


def _check_sequences(tid: Any, what: str) -> None:
    if has_swapped_sequences(tid):
        raise ValueError(
            f"{what} holds sequences of big-endian numbers, which h5py gives byte-swapped: copy "
            "the file by h5repack"
        )


def _path(path: bytes) -> str:
    return path.decode(errors="replace")


def _like(old: Dataset) -> Any:
    """Creation properties of an ordinary dataset that replaces a virtual or external one."""
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_fill_time(old.plist.get_fill_time())
    plist.set_attr_creation_order(old.plist.get_attr_creation_order())
    plist.set_obj_track_times(old.plist.get_obj_track_times())
    if old.plist.fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED and old.memory != "objects":
        value = np.zeros((), old.tid.dtype)
        old.plist.get_fill_value(value)
        plist.set_fill_value(value)
    return plist


def _has_all_chunks(new: Dataset) -> bool:
    """Whether a chunk that is not written has other elements than one that does not exist.

    Where HDF5 allocates all chunks at once, those of a filter hold the fill value, though the fill
    time is NEVER; elements of a chunk that does not exist are 0 then.
    """
    is_never = new.plist.get_fill_time() == h5d.FILL_TIME_NEVER
    return bool(is_never and new.plist.get_alloc_time() != h5d.ALLOC_TIME_INCR)


def _set_filter(plist: Any, codec: str, itemsize: int) -> None:
    if codec == "gpufetch":
        # A chunk for whose encoding there is no memory stays as it is. A filter that must not fail
        # would leave HDF5 a dataset that it cannot close, and ends the process by that.
        plist.set_filter(FILTER_ID, h5z.FLAG_OPTIONAL, ())
    elif codec == "bitshuffle-lz4":
        # The plugin fills in the first three values; without a plugin they are given here.
        has_plugin = h5z.filter_avail(BITSHUFFLE_ID)
        values = (0, 2) if has_plugin else (0, 4, itemsize, 0, 2)
        plist.set_filter(BITSHUFFLE_ID, h5z.FLAG_OPTIONAL, values)
        if not has_plugin:  # or HDF5 stores chunks past the filter now, and they stay so
            plist.set_alloc_time(h5d.ALLOC_TIME_INCR)
    elif codec == "gzip":
        if itemsize > 1:
            plist.set_shuffle()
        plist.set_deflate(_GZIP_LEVEL)
