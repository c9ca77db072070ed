"""Copy an HDF5 file with its datasets stored another way, and check the copy bit for bit."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal, TypeAlias

import h5py
import numpy as np
import numpy.typing as npt
from h5py import h5a, h5d, h5f, h5g, h5o, h5p, h5r, h5s, h5t, h5z

from gpufetch._h5tree import Dataset, Entry, Tree, attributes, chunk_shape

__all__ = ["CODECS", "RepackCodec", "repack"]

RepackCodec: TypeAlias = Literal["gpufetch", "bitshuffle-lz4", "gzip", "none"]
CODECS: tuple[RepackCodec, ...] = ("gpufetch", "bitshuffle-lz4", "gzip", "none")

_FILTER_ID = 49370
_BITSHUFFLE_ID = 32008
_GZIP_LEVEL = 4
# A dataset of fewer bytes is not worth chunks and a filter, unless it has chunks already.
_CHUNKED_NBYTES_MIN = 2048
# Where committed types stay until their links are made.
_TEMPORARY = b".gpufetch-type-"


def repack(
    source: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    *,
    codec: RepackCodec = "gpufetch",
    overwrite: bool = False,
    progress: bool = False,
) -> None:
    """Copy the HDF5 file `source` to `dest` with every dataset stored by `codec`.

    Groups, links and their order, attributes, types, fill values, extensible shapes, dimension
    scales, references and a user block are kept, chunk shapes where there are any. What is read
    from `dest` is compared with `source`, bit for bit, before `dest` gets its name, so that `dest`
    is whole or not there. `source` is only read. Elements are in memory in boxes of 32 MiB, or of
    one chunk where that is more, and a few times as much beside.

    Virtual datasets, and those whose elements are in other files, become ordinary ones with the
    elements that they show. External links stay links. Text and elements of variable length, and
    references, are stored without a filter; with ``"bitshuffle-lz4"``, elements that gpufetch has
    no dtype for, or of the other byte order, are compressed by gzip unless hdf5plugin is imported.

    Parameters
    ----------
    codec
        ``"gpufetch"``; ``"bitshuffle-lz4"``, which hdf5plugin reads; ``"gzip"`` (with shuffle) and
        ``"none"``, which every HDF5 reads.
    overwrite
        Whether `dest` may exist; it is replaced at the end.
    progress
        Show a tqdm bar, if tqdm is installed.

    Raises
    ------
    FileExistsError
        `dest` exists and `overwrite` is false.
    ValueError
        `codec` is unknown, `dest` is `source`, or something in `source` cannot be copied: the
        message says what.
    OSError
        `source` cannot be read (a filter's plugin that is missing is named), or `dest` written.
    """
    if codec not in CODECS:
        raise ValueError(f"codec {codec!r} is unknown: give one of {', '.join(CODECS)}")
    source, dest = Path(source), Path(dest)
    if dest.exists():
        if dest.samefile(source):
            raise ValueError(f"{dest} is the source itself: give another name")
        if not overwrite:
            raise FileExistsError(f"{dest} exists already: choose another name, or overwrite it")
    handle, name = tempfile.mkstemp(prefix=f".{dest.name}.", suffix=".part", dir=dest.parent)
    os.close(handle)
    part = Path(name)
    try:
        with _Bar(progress) as bar:
            _write(source, part, codec, bar)
            _check(source, part, bar)
        shutil.copymode(source, part)
        _sync(part)
        _give_name(part, dest, overwrite)
        _sync(dest.parent)
    finally:
        part.unlink(missing_ok=True)


class _Bar:
    """A progress bar whose total grows, or nothing."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._bar: Any = None

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *reason: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def begin(self, nbytes: int) -> None:
        """Say how much there is to do."""
        from gpufetch._chunks import _progress_bar

        if self._wanted:
            self._bar = _progress_bar(nbytes)

    def advance(self, nbytes: int) -> None:
        """Say how much more was done."""
        if self._bar is not None:
            self._bar.update(nbytes)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _give_name(part: Path, dest: Path, overwrite: bool) -> None:
    """Rename; where `dest` may not be overwritten, one that came meanwhile is kept."""
    if not overwrite:
        try:
            os.link(part, dest)
        except FileExistsError:
            raise FileExistsError(f"{dest} was made by someone else meanwhile") from None
        except OSError:  # a file system without hard links
            if dest.exists():
                raise FileExistsError(f"{dest} was made by someone else meanwhile") from None
        else:
            return
    os.replace(part, dest)


# --- Writing ----------------------------------------------------------------------------------


def _write(source: Path, part: Path, codec: RepackCodec, bar: _Bar) -> None:
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
        made = h5py.File(h5f.create(os.fsencode(part), h5f.ACC_TRUNC, creation, access))
        with made:
            _Copy(Tree(file), made, codec, bar).run()
        userblock = creation.get_userblock()
    if userblock:
        with source.open("rb") as before, part.open("r+b") as after:
            after.write(before.read(userblock))


class _Copy:
    """One copy: objects first, then what may refer to any of them."""

    def __init__(self, tree: Tree, made: h5py.File, codec: RepackCodec, bar: _Bar) -> None:
        self._tree = tree
        self._made = made
        self._codec = codec
        self._bar = bar
        self._root = h5g.open(made.id, b"/")
        self._types: dict[tuple[int, int], bytes] = {}  # where the copies of committed types are

    def run(self) -> None:
        for entry in self._tree.entries:
            self._create(entry)
        for name in self._types.values():
            self._root.unlink(name)
        objects = [e for e in self._tree.entries if e.kind in ("group", "dataset", "type")]
        datasets = [e.path for e in objects if e.kind == "dataset"]
        self._bar.begin(2 * sum(Dataset(self._tree.open(path)).nbytes for path in datasets))
        for path in datasets:
            self._copy_elements(path)
        for path in [b"/", *(entry.path for entry in objects)]:
            self._copy_attributes(path)

    # --- Objects

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
            h5g.create(group, name, lcpl=links, gcpl=found.get_create_plist())
        elif entry.kind == "type":
            group.links.create_hard(name, self._root, self._committed(found), links)
        else:
            self._create_dataset(Dataset(found), group, name, links)

    def _committed(self, tid: Any) -> bytes:
        """Where the copy of a committed type is until all links are made."""
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
        if not old.is_readable():
            number, _, _, label = next(f for f in old.filters if not h5z.filter_avail(f[0]))
            if not (number == _BITSHUFFLE_ID and old.memory == "numbers"):
                raise OSError(
                    f"dataset {_path(path)} is stored with filter {number} ({label.decode()}), "
                    "which this HDF5 does not find: name its plugin's folder in HDF5_PLUGIN_PATH, "
                    "or import hdf5plugin"
                )
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
        large = old.shape and old.size and old.nbytes >= _CHUNKED_NBYTES_MIN
        if old.memory == "objects" or not (old.layout == h5d.CHUNKED or large):
            return plist
        if old.layout != h5d.CHUNKED and codec != "none":
            plist.set_chunk(chunk_shape(old.shape, old.itemsize))
        _set_filter(plist, codec, old.itemsize)
        return plist

    # --- Elements

    def _copy_elements(self, path: bytes) -> None:
        old = Dataset(self._tree.open(path))
        new = Dataset(h5o.open(self._made.id, path))
        if "numbers" in (old.memory, new.memory):
            old.memory = "numbers"
        present = old.present_chunks()
        chunk = new.plist.get_chunk() if new.layout == h5d.CHUNKED else None
        for start, shape in old.boxes(chunk, one_chunk=present is not None):
            if present is None or start in present:
                values = self._translated(old.read(start, shape))
                if old.memory != new.memory:
                    values = values.view(f"V{old.itemsize}")
                new.write(start, values)
            self._bar.advance(int(np.prod(shape)) * old.itemsize)

    # --- What refers to objects

    def _translated(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The same values with references to the copy's objects."""
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
                new.write(self._translated(found.values), mtype=found.memory)


def _path(path: bytes) -> str:
    return path.decode(errors="replace")


def _like(old: Dataset) -> Any:
    """Creation properties for an ordinary dataset in place of a virtual or external one."""
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_fill_time(old.plist.get_fill_time())
    plist.set_attr_creation_order(old.plist.get_attr_creation_order())
    plist.set_obj_track_times(old.plist.get_obj_track_times())
    if old.plist.fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED and old.memory != "objects":
        value = np.zeros((), old.tid.dtype)
        old.plist.get_fill_value(value)
        plist.set_fill_value(value)
    return plist


def _set_filter(plist: Any, codec: str, itemsize: int) -> None:
    if codec == "gpufetch":
        plist.set_filter(_FILTER_ID, h5z.FLAG_MANDATORY, ())
    elif codec == "bitshuffle-lz4":
        # A plugin fills in the first three values; where there is none, they are given.
        has_plugin = h5z.filter_avail(_BITSHUFFLE_ID)
        values = (0, 2) if has_plugin else (0, 4, itemsize, 0, 2)
        plist.set_filter(_BITSHUFFLE_ID, h5z.FLAG_OPTIONAL, values)
    elif codec == "gzip":
        if itemsize > 1:
            plist.set_shuffle()
        plist.set_deflate(_GZIP_LEVEL)


# --- Checking ---------------------------------------------------------------------------------


def _check(source: Path, part: Path, bar: _Bar) -> None:
    """Compare everything but how elements are stored. A difference is an error of ours."""
    with h5py.File(source, "r") as before, h5py.File(part, "r") as after:
        old, new = Tree(before), Tree(after)
        if old.entries != new.entries:
            raise _difference(b"/", "the links")
        for path in [
            b"/",
            *(e.path for e in old.entries if e.kind in ("group", "dataset", "type")),
        ]:
            a, b = old.open(path), new.open(path)
            if isinstance(a, h5d.DatasetID):
                _check_dataset(old, new, path, bar)
            _check_attributes(old, new, path)
            del a, b


def _check_dataset(old: Tree, new: Tree, path: bytes, bar: _Bar) -> None:
    a, b = Dataset(old.open(path)), Dataset(new.open(path))
    if not a.tid.equal(b.tid):
        raise _difference(path, "the type")
    if a.is_null != b.is_null or not _same_space(a.space, b.space):
        raise _difference(path, "the shape")
    for start, shape in b.boxes():
        x, y = a.read(start, shape), b.read(start, shape)
        if not _same(old, new, x, y):
            raise _difference(path, f"an element of the box from {start} on")
        bar.advance(int(np.prod(shape)) * a.itemsize)


def _check_attributes(old: Tree, new: Tree, path: bytes) -> None:
    a, b = attributes(old.open(path)), attributes(new.open(path))
    for x, y in itertools.zip_longest(a, b):
        if x is None or y is None or x.name != y.name:
            raise _difference(path, "the attributes' names")
        if not (x.tid.equal(y.tid) and _same_space(x.space, y.space)):
            raise _difference(path, f"type or shape of the attribute {x.name.decode()}")
        if x.values is not None and not _same(old, new, x.values, y.values):
            raise _difference(path, f"a value of the attribute {x.name.decode()}")


def _same_space(a: Any, b: Any) -> bool:
    if a.get_simple_extent_type() != b.get_simple_extent_type():
        return False
    if a.get_simple_extent_type() != h5s.SIMPLE:
        return True
    return bool(a.get_simple_extent_dims(True) == b.get_simple_extent_dims(True)) and bool(
        a.get_simple_extent_dims() == b.get_simple_extent_dims()
    )


def _same(old: Tree, new: Tree, a: Any, b: Any) -> bool:
    """Whether values are the same bits, and references point to the same names."""
    if isinstance(a, h5py.Reference):
        x, y = old.target_of(a), new.target_of(b)
        if isinstance(x, tuple) and isinstance(y, tuple):
            return x[0] == y[0] and bool(x[1].get_select_bounds() == y[1].get_select_bounds())
        return bool(x == y)
    if not isinstance(a, np.ndarray):
        return type(a) is type(b) and bool(a == b)
    if a.shape != b.shape:
        return False
    if a.dtype.names is not None and a.dtype.hasobject:
        return all(_same(old, new, a[name], b[name]) for name in a.dtype.names)
    if a.dtype == object:
        return all(_same(old, new, x, y) for x, y in zip(a.flat, b.flat, strict=True))
    return bool(a.tobytes() == b.tobytes())


def _difference(path: bytes, what: str) -> RuntimeError:
    return RuntimeError(
        f"the copy differs from the source: {what} of {_path(path)}; nothing was written"
    )
