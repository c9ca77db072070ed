"""A dataset whose elements go in and out in boxes with every bit kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from h5py import h5d, h5s, h5t, h5z

from gpufetch import _core
from gpufetch.hdf5._binding import phil
from gpufetch.hdf5._boxes import Box, boxes
from gpufetch.hdf5._filters import BITSHUFFLE_ID, Filter
from gpufetch.hdf5._stored import has_short_chunks, is_short
from gpufetch.hdf5._types import fill_value, holds, is_native

__all__ = ["BOX_NBYTES", "Dataset"]

BOX_NBYTES = 32 << 20
"""Elements are read in boxes of at most this, or of one chunk where that is more."""


class Dataset:
    """An open dataset, whose elements are read and written in boxes with every bit kept.

    `memory` says how the elements lie in the arrays: "bytes" are opaque elements as they are
    stored; "numbers" go through gpufetch, which codes chunks in several threads and needs no
    plugin for bitshuffle; "objects" are what h5py makes of text, of variable lengths and of
    references.
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
        self._may_have_short_chunks: bool | None = None  # None: not known yet
        self.memory = memory or self._choose()

    def _choose(self) -> str:
        if holds(self.tid, h5t.VLEN, h5t.REFERENCE):
            return "objects"
        if not self.is_null and self.layout == h5d.CHUNKED and is_native(self.tid):
            try:
                region = (0,) * len(self.shape), (0,) * len(self.shape)
                _core.h5_read(phil, self.id.id, region=region, device="cpu")
            except (TypeError, _core.Error):
                return "bytes"
            return "numbers"
        return "bytes"

    @property
    def filters(self) -> list[Filter]:
        """The filters that chunks go through, in the order of writing."""
        return [self.plist.get_filter(i) for i in range(self.plist.get_nfilters())]

    def is_readable(self) -> bool:
        """Whether HDF5 finds every filter."""
        return all(h5z.filter_avail(number) for number, *_ in self.filters)

    def missing_filter(self) -> str | None:
        """The words for a filter that neither HDF5 nor gpufetch has; None if there is none."""
        for number, _, _, label in self.filters:
            is_ours = number == BITSHUFFLE_ID and self.memory == "numbers"
            if not is_ours and not h5z.filter_avail(number):
                named = f"{number} ({label.decode(errors='replace')})"
                return (
                    f"is stored with filter {named}, which this HDF5 does not find: name its "
                    "plugin's folder in HDF5_PLUGIN_PATH, or import hdf5plugin"
                )
        return None

    def boxes(
        self, chunk: tuple[int, ...] | None = None, *, one_chunk: bool = False
    ) -> Iterator[Box]:
        """Cut the dataset into boxes along its chunks, or along `chunk`.

        A box has at most BOX_NBYTES bytes; with `one_chunk`, each box is a chunk.
        """
        if self.size == 0:
            return iter(())
        if chunk is None:
            chunked = self.layout == h5d.CHUNKED
            chunk = self.plist.get_chunk() if chunked else (1,) * len(self.shape)
        return boxes(self.shape, chunk, self.itemsize, 0 if one_chunk else BOX_NBYTES)

    def is_sparse(self) -> bool:
        """Whether some chunks may not have been written."""
        if self.layout != h5d.CHUNKED or not hasattr(self.id, "get_num_chunks"):
            return False
        counts = (-(-n // c) for n, c in zip(self.shape, self.plist.get_chunk(), strict=True))
        return bool(self.id.get_num_chunks() < int(np.prod(list(counts), dtype=object)))

    def has_chunk(self, start: tuple[int, ...]) -> bool:
        """Whether the chunk from `start` on was written.

        HDF5 is asked for the chunk's bytes, since it does not tell where chunks are: the offsets
        that it gives for those of an extensible array (one unlimited axis that is not the first)
        are wrong up to HDF5 2.0, those that get_chunk_info_by_coord compares among them.
        """
        try:
            self.id.read_direct_chunk(start)
        except (OSError, RuntimeError, ValueError, MemoryError):
            # It was not written, or cannot be read: reading its elements fails then.
            ends = zip(start, self.plist.get_chunk(), self.shape, strict=True)
            self.read(start, tuple(min(c, n - at) for at, c, n in ends))
            return False
        return True

    def read_by_hdf5(self) -> None:
        """Read by HDF5 itself from now on, without gpufetch, if it finds every filter."""
        if self.memory == "numbers" and self.is_readable():
            self.memory = "bytes"

    def read(self, start: tuple[int, ...], shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Read a box, as a new array in C order."""
        if self.memory == "numbers":
            region = start, shape
            return np.asarray(_core.h5_read(phil, self.id.id, region=region, device="cpu"))
        self._refuse_short_chunks(start, shape)
        values, tid = self._empty(shape)
        in_memory, in_file = _spaces(start, shape, self.space)
        self.id.read(in_memory, in_file, values, mtype=tid)
        return values

    def _refuse_short_chunks(self, start: tuple[int, ...], shape: tuple[int, ...]) -> None:
        if self._may_have_short_chunks is None:
            self._may_have_short_chunks = self.layout == h5d.CHUNKED and has_short_chunks(self.id)
        if not self._may_have_short_chunks:
            return
        for offset, _ in boxes(shape, self.plist.get_chunk(), self.itemsize, 0):
            place = tuple(a + b for a, b in zip(start, offset, strict=True))
            mask, stored = self.id.read_direct_chunk(place)
            if is_short(self.id, mask, len(stored)):
                at = ", ".join(map(str, place))
                raise OSError(
                    f"chunk at ({at}) takes {len(stored)} bytes in the file, and its fletcher32 "
                    "checksum alone takes 4: the file is damaged"
                )

    def write(self, start: tuple[int, ...], values: npt.NDArray[Any]) -> None:
        """Write a box that read() gave, for this dataset or one of the same type."""
        if self.memory == "numbers":
            _core.h5_write_region(phil, self.id.id, start, values)
            return
        in_memory, in_file = _spaces(start, values.shape, self.space)
        tid = self.tid if self.memory == "bytes" else h5t.py_create(values.dtype)
        self.id.write(in_memory, in_file, values, mtype=tid)

    def _empty(self, shape: tuple[int, ...]) -> tuple[npt.NDArray[Any], Any]:
        # Zeros, because HDF5 leaves out what was never written where the fill time is NEVER; and
        # the fill value, because it may leave out what no source of a virtual dataset covers.
        if self.memory == "bytes":
            values = np.zeros(shape, f"V{self.itemsize}")
            fill = fill_value(self.id) if self.layout == h5d.VIRTUAL else None
            if fill is not None:
                values[...] = np.void(fill.tobytes())
            return values, self.tid
        return np.zeros(shape, self.tid.dtype), h5t.py_create(self.tid.dtype)


def _spaces(start: tuple[int, ...], shape: tuple[int, ...], whole: Any) -> tuple[Any, Any]:
    """Make the dataspaces of a box: in memory, and in the file."""
    if not shape:
        return h5s.ALL, h5s.ALL
    in_file = whole.copy()
    in_file.select_hyperslab(start, shape)
    return h5s.create_simple(shape), in_file
