"""What is in an HDF5 file: its links in order, its objects once each, its elements in boxes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
from h5py import h5, h5a, h5d, h5g, h5l, h5o, h5p, h5r, h5s, h5t, h5z

from gpufetch import _core

__all__ = ["BOX_NBYTES", "Dataset", "Entry", "Tree", "attributes", "boxes", "chunk_shape", "holds"]

BOX_NBYTES = 32 << 20
"""Elements are read in boxes of at most this, or of one chunk where that is more."""

_Box = tuple[tuple[int, ...], tuple[int, ...]]  # start, shape


@dataclass(frozen=True)
class Entry:
    """A link, at `path`: to an object met first here, or again (`hard`), or to a name."""

    path: bytes
    kind: str  # group, dataset, type, hard, soft, external, other
    target: Any = None  # of hard: the object's first path; of soft and external: its value
    charset: int = 0


def _join(parent: bytes, name: bytes) -> bytes:
    return parent.rstrip(b"/") + b"/" + name


def _order(flags: int) -> int:
    return int(h5.INDEX_CRT_ORDER if flags & h5p.CRT_ORDER_TRACKED else h5.INDEX_NAME)


_KINDS = {h5o.TYPE_GROUP: "group", h5o.TYPE_DATASET: "dataset", h5o.TYPE_NAMED_DATATYPE: "type"}


class Tree:
    """Every link below the root; a group's are in the order of creation where that is tracked."""

    def __init__(self, file: h5py.File) -> None:
        self.file = file
        self.entries: list[Entry] = []
        self._paths: dict[tuple[int, int], bytes] = {self.key(file["/"].id): b"/"}
        groups = [b"/"]
        while groups:
            path = groups.pop()
            for entry in self._links(path):
                self.entries.append(entry)
                if entry.kind == "group":
                    groups.append(entry.path)

    def key(self, identifier: Any) -> tuple[int, int]:
        """What tells an object of the file from another."""
        info = h5o.get_info(identifier)
        return info.fileno, info.addr

    def _links(self, path: bytes) -> Iterator[Entry]:
        group = h5g.open(self.file.id, path)
        names: list[bytes] = []
        order = _order(group.get_create_plist().get_link_creation_order())
        group.links.iterate(names.append, idx_type=order)
        for name in names:
            info = group.links.get_info(name)
            at = _join(path, name)
            if info.type == h5l.TYPE_SOFT:
                yield Entry(at, "soft", group.links.get_val(name), info.cset)
            elif info.type == h5l.TYPE_EXTERNAL:
                yield Entry(at, "external", group.links.get_val(name), info.cset)
            elif info.type == h5l.TYPE_HARD:
                yield self._object(group, name, at, info.cset)
            else:
                yield Entry(at, "other", info.type, info.cset)

    def _object(self, group: Any, name: bytes, path: bytes, charset: int) -> Entry:
        info = h5o.get_info(group, name)
        key = info.fileno, info.addr
        if key in self._paths:
            return Entry(path, "hard", self._paths[key], charset)
        self._paths[key] = path
        return Entry(path, _KINDS[info.type], None, charset)

    def path_of(self, identifier: Any) -> bytes | None:
        """Path at which an open object was met first; None for one that has no name."""
        return self._paths.get(self.key(identifier))

    def target_of(self, reference: Any) -> Any:
        """What a reference points to, in words that mean the same in a copy of this file."""
        if not reference:
            return None
        try:
            identifier = h5r.dereference(reference, self.file.id)
        except (RuntimeError, ValueError, OSError):
            return None  # dangling
        path = self.path_of(identifier)
        if path is None:
            raise ValueError(
                f"a reference points to an object without a name in {self.file.filename}"
            )
        if not isinstance(reference, h5py.RegionReference):
            return path
        return path, h5r.get_region(reference, self.file.id)

    def open(self, path: bytes) -> Any:
        """Open the object at a path."""
        return h5o.open(self.file.id, path)


# --- Types ------------------------------------------------------------------------------------


def holds(tid: Any, *classes: int) -> bool:
    """Whether a type is of one of the classes, or has a part that is; VLEN stands for text too."""
    kind = tid.get_class()
    if kind in classes or (kind == h5t.STRING and h5t.VLEN in classes and tid.is_variable_str()):
        return True
    if kind in (h5t.ARRAY, h5t.VLEN):
        return holds(tid.get_super(), *classes)
    if kind == h5t.COMPOUND:
        return any(holds(tid.get_member_type(i), *classes) for i in range(tid.get_nmembers()))
    return False


def is_native(tid: Any) -> bool:
    """Whether elements are the bits that NumPy has of them: little-endian, and nothing unused."""
    kind = tid.get_class()
    if kind in (h5t.ENUM, h5t.ARRAY) or kind == getattr(h5t, "COMPLEX", None):
        return is_native(tid.get_super())
    if kind == h5t.COMPOUND:
        parts = [tid.get_member_type(i) for i in range(tid.get_nmembers())]
        return sum(part.get_size() for part in parts) == tid.get_size() and all(
            map(is_native, parts)
        )
    if kind not in (h5t.INTEGER, h5t.FLOAT):
        return False
    nbytes = tid.get_size()
    is_whole = tid.get_precision() == 8 * nbytes and tid.get_offset() == 0
    return bool(is_whole and (nbytes == 1 or tid.get_order() == h5t.ORDER_LE))


# --- Elements ---------------------------------------------------------------------------------


def chunk_shape(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Chunks of about 1 MiB with long rows, as gpufetch.hdf5.write chooses them."""
    chunk = list(shape)
    while int(np.prod(chunk)) * itemsize > 1 << 20 and max(chunk) > 1:
        weights = [*chunk[:-1], chunk[-1] / 4]
        axis = weights.index(max(weights))
        if chunk[axis] == 1:
            axis = chunk.index(max(chunk))
        chunk[axis] = -(-chunk[axis] // 2)
    return tuple(chunk)


def boxes(
    shape: tuple[int, ...], chunk: tuple[int, ...], itemsize: int, box_nbytes: int = BOX_NBYTES
) -> Iterator[_Box]:
    """Cut into boxes of whole chunks, at most `box_nbytes` or one chunk."""
    box = [min(c, n) for c, n in zip(chunk, shape, strict=True)]
    nbytes = int(np.prod(box)) * itemsize
    for axis in reversed(range(len(shape))):
        needed = -(-shape[axis] // box[axis])
        count = max(1, min(box_nbytes // nbytes, needed))
        nbytes *= count
        box[axis] *= count
    steps = (range(0, n, b) for n, b in zip(shape, box, strict=True))
    for start in itertools.product(*steps):
        yield start, tuple(min(b, n - s) for b, n, s in zip(box, shape, start, strict=True))


def space_of(start: tuple[int, ...], shape: tuple[int, ...], whole: Any) -> tuple[Any, Any]:
    """Make the dataspaces in memory and in the file of a box."""
    if not shape:
        return h5s.ALL, h5s.ALL
    in_file = whole.copy()
    in_file.select_hyperslab(start, shape)
    return h5s.create_simple(shape), in_file


class Dataset:
    """An open dataset, whose elements go in and out in boxes with every bit kept.

    `memory` is how they lie in arrays: "bytes", opaque elements as they are stored; "numbers",
    through gpufetch, which codes chunks in threads and needs no plugin for bitshuffle; "objects",
    what h5py makes of text, variable lengths and references.
    """

    def __init__(self, identifier: Any, memory: str | None = None) -> None:
        self.id = identifier
        self.tid = identifier.get_type()
        self.space = identifier.get_space()
        self.plist = identifier.get_create_plist()
        self.is_null = self.space.get_simple_extent_type() == h5s.NULL
        self.shape: tuple[int, ...] = () if self.is_null else self.space.get_simple_extent_dims()
        self.itemsize: int = self.tid.get_size()
        self.size = 0 if self.is_null else int(np.prod(self.shape, dtype=object))
        self.nbytes = self.size * self.itemsize
        self.layout: int = self.plist.get_layout()
        self.memory = memory or self._choose()

    def _choose(self) -> str:
        if holds(self.tid, h5t.VLEN, h5t.REFERENCE):
            return "objects"
        if not self.is_null and self.layout == h5d.CHUNKED and is_native(self.tid):
            try:
                region = (0,) * len(self.shape), (0,) * len(self.shape)
                _core.h5_read(self.id.id, region, "cpu", None, h5py._objects.phil)
            except (TypeError, _core.Error):
                return "bytes"
            return "numbers"
        return "bytes"

    @property
    def filters(self) -> list[tuple[int, int, tuple[int, ...], bytes]]:
        """Id, flags, values and name of each filter."""
        return [self.plist.get_filter(i) for i in range(self.plist.get_nfilters())]

    def is_readable(self) -> bool:
        """Whether HDF5 has every filter."""
        return all(h5z.filter_avail(number) for number, *_ in self.filters)

    def boxes(
        self, chunk: tuple[int, ...] | None = None, *, one_chunk: bool = False
    ) -> Iterator[_Box]:
        """Boxes that hold every element; along the chunks, or those given."""
        if self.size == 0:
            return iter(())
        if chunk is None:
            chunked = self.layout == h5d.CHUNKED
            chunk = self.plist.get_chunk() if chunked else (1,) * len(self.shape)
        return boxes(self.shape, chunk, self.itemsize, 0 if one_chunk else BOX_NBYTES)

    def present_chunks(self) -> set[tuple[int, ...]] | None:
        """Where chunks that were written start; None if all were, or if that cannot be told."""
        if self.layout != h5d.CHUNKED or not hasattr(self.id, "chunk_iter"):
            return None
        found: set[tuple[int, ...]] = set()
        self.id.chunk_iter(lambda info: found.add(tuple(info.chunk_offset)))
        counts = (-(-n // c) for n, c in zip(self.shape, self.plist.get_chunk(), strict=True))
        return None if len(found) == int(np.prod(list(counts), dtype=object)) else found

    def read(self, start: tuple[int, ...], shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Read a box."""
        if self.memory == "numbers":
            region = start, shape
            return np.asarray(_core.h5_read(self.id.id, region, "cpu", None, h5py._objects.phil))
        values, tid = self._empty(shape)
        in_memory, in_file = space_of(start, shape, self.space)
        self.id.read(in_memory, in_file, values, mtype=tid)
        return values

    def write(self, start: tuple[int, ...], values: npt.NDArray[Any]) -> None:
        """Write a box that read() gave, of this dataset or of one with the same type."""
        if self.memory == "numbers":
            _core.h5_write_region(self.id.id, start, values, h5py._objects.phil)
            return
        in_memory, in_file = space_of(start, values.shape, self.space)
        tid = self.tid if self.memory == "bytes" else h5t.py_create(values.dtype)
        self.id.write(in_memory, in_file, values, mtype=tid)

    def _empty(self, shape: tuple[int, ...]) -> tuple[npt.NDArray[Any], Any]:
        if self.memory == "bytes":
            return np.empty(shape, f"V{self.itemsize}"), self.tid
        return np.zeros(shape, self.tid.dtype), h5t.py_create(self.tid.dtype)


# --- Attributes -------------------------------------------------------------------------------


@dataclass
class Attribute:
    """A name, a type, a dataspace and values as Dataset.read gives them; None for a null space."""

    name: bytes
    tid: Any
    space: Any
    values: npt.NDArray[Any] | None
    memory: Any  # the type of `values`


def attributes(identifier: Any) -> Iterator[Attribute]:
    """Attributes of an object, in the order of creation where that is tracked."""
    flags = 0
    if not isinstance(identifier, h5t.TypeID):
        flags = identifier.get_create_plist().get_attr_creation_order()
    order = _order(flags)
    for index in range(h5a.get_num_attrs(identifier)):
        found = h5a.open(identifier, index=index, index_type=order)
        tid, space = found.get_type(), found.get_space()
        if space.get_simple_extent_type() == h5s.NULL:
            yield Attribute(found.name, tid, space, None, tid)
            continue
        if holds(tid, h5t.VLEN, h5t.REFERENCE):
            memory = h5t.py_create(tid.dtype)
            values = np.zeros(space.get_simple_extent_dims(), tid.dtype)
        else:
            memory = tid
            values = np.empty(space.get_simple_extent_dims(), f"V{tid.get_size()}")
        if values.size:
            found.read(values, mtype=memory)
        yield Attribute(found.name, tid, space, values, memory)
