"""Where the chunks of a dataset lie in its file, and chunks that references hold themselves."""

from __future__ import annotations

import base64
import itertools
import struct
import uuid
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

from gpufetch.hdf5._filters import FILTER_ID
from gpufetch.hdf5._refs_types import Codec, Unexpressed
from gpufetch.hdf5._stored import edge_may_be_plain, stored_chunks

__all__ = ["Places", "encoded", "inline", "split_rows"]

_SPLIT_NBYTES = 32 << 20
"""Unfiltered elements in a row are cut into chunks of at most this, where rows divide them."""

_SMALLER_MAX = 32
"""How many times as small a chunk may be for want of a divisor."""


def inline(data: bytes) -> str:
    """Bytes as a reference holds them."""
    return "base64:" + base64.b64encode(data).decode()


class Places:
    """Where the chunks of a chunked dataset lie: offset and size by their numbers along each axis.

    `shape` is that which the dataset has, or a longer one, in which the other chunks are missing.
    `past` are those that were stored past a filter, and the edge's where they may have been.
    Unexpressed where HDF5 does not say where its chunks are, which is tried by reading some.
    """

    def __init__(self, dataset: h5py.Dataset, shape: tuple[int, ...], file: BinaryIO) -> None:
        self._dataset, self._file = dataset, file
        self.chunk: tuple[int, ...] = dataset.chunks
        ends = zip(shape, self.chunk, strict=True)
        self.counts = tuple(-(-n // c) for n, c in ends)
        self.of: dict[tuple[int, ...], tuple[int, int]] = {}
        self.past: list[tuple[int, ...]] = []
        self._is_filtered = dataset.id.get_create_plist().get_nfilters() > 0
        self._may_be_plain = edge_may_be_plain(dataset.id)
        self._listed_count = 0
        for info in stored_chunks(dataset.id):
            self._note(info)
        self._check()

    def _note(self, info: Any) -> None:
        self._listed_count += 1
        at = tuple(o // c for o, c in zip(info.chunk_offset, self.chunk, strict=True))
        if any(o >= n for o, n in zip(info.chunk_offset, self._dataset.shape, strict=True)):
            return
        if info.filter_mask or (self._is_filtered and self._may_be_plain(info)):
            self.past.append(at)
        else:
            self.of[at] = (info.byte_offset, info.size)

    def _check(self) -> None:
        """HDF5 up to 2.0 misplaces chunks if the one unlimited axis is not the first."""
        shape = self._dataset.maxshape
        is_doubtful = shape.count(None) == 1 and shape[0] is not None
        shift = self._shift()
        if shift:
            self.of = {at: (offset + shift, nbytes) for at, (offset, nbytes) in self.of.items()}
        is_right = shift is not None and self._listed_count == len(self.of) + len(self.past)
        if is_doubtful:
            is_right = is_right and all(self._is_at(at, 0) for at in self.of)
            is_right = is_right and not any(self._stored(at) for at in self.missing())
        if not is_right:
            raise Unexpressed("this HDF5 does not say where its chunks lie: repack the file")

    def _shift(self) -> int | None:
        """What HDF5 leaves out of every offset: 0, or before 2.0 the user block. None for neither.

        The first chunk whose bytes are not at both places says which.
        """
        shifts = {0, self._dataset.file.userblock_size}
        for at in self.of:
            found = {shift for shift in shifts if self._is_at(at, shift)}
            if len(found) < 2:
                return found.pop() if found else None
        return 0

    def _stored(self, at: tuple[int, ...]) -> bytes | None:
        """The bytes of a chunk that HDF5 finds by its place in the dataset; None for no chunk."""
        start = tuple(i * c for i, c in zip(at, self.chunk, strict=True))
        try:
            return bytes(self._dataset.id.read_direct_chunk(start)[1])
        except (OSError, RuntimeError, ValueError, MemoryError):  # the last: of no size
            return None

    def _is_at(self, at: tuple[int, ...], shift: int) -> bool:
        offset, nbytes = self.of[at]
        self._file.seek(offset + shift)
        return self._file.read(nbytes) == self._stored(at)

    @property
    def missing_count(self) -> int:
        """How many chunks were never written."""
        total = int(np.prod(self.counts, dtype=object))
        return total - len(self.of) - len(self.past)

    def missing(self) -> Iterator[tuple[int, ...]]:
        """Those that were never written."""
        there = self.of.keys() | set(self.past)
        return (at for at in itertools.product(*map(range, self.counts)) if at not in there)

    def elements(self, at: tuple[int, ...], fill: np.ndarray[Any, Any]) -> bytes:
        """The elements of a whole chunk, read by HDF5; beyond the dataset's edge the fill value."""
        found = self._dataset.id
        start = [i * c for i, c in zip(at, self.chunk, strict=True)]
        ends = zip(self._dataset.shape, start, self.chunk, strict=True)
        shape = tuple(min(n - s, c) for n, s, c in ends)
        in_file = found.get_space()
        in_file.select_hyperslab(tuple(start), shape)
        kind = found.get_type()
        values = np.zeros(shape, f"V{kind.get_size()}")
        found.read(h5s.create_simple(shape), in_file, values, mtype=kind)
        element = fill.tobytes() * (kind.get_size() // fill.nbytes)
        whole = np.full(self.chunk, np.void(element), values.dtype)
        whole[tuple(map(slice, shape))] = values
        return whole.tobytes()

    def check_bitshuffle(self) -> None:
        """Unexpressed if imagecodecs' LZ4 would take an encoded block for one that is stored.

        It takes any block for such a one that has as many bytes encoded as decoded.
        """
        for offset, nbytes in self.of.values():
            self._file.seek(offset)
            if not _has_unlike_blocks(self._file.read(nbytes)):
                raise Unexpressed(
                    "imagecodecs would decode one of its chunks of bitshuffle wrongly"
                )


def _has_unlike_blocks(chunk: bytes) -> bool:
    if len(chunk) < 12:
        return False
    left, block_nbytes = struct.unpack_from(">QI", chunk)
    at = 12
    while left > 0 and block_nbytes > 0 and at + 4 <= len(chunk):
        raw_nbytes = min(left, block_nbytes)
        (nbytes,) = struct.unpack_from(">I", chunk, at)
        if nbytes in (raw_nbytes, block_nbytes):
            return False
        at += 4 + nbytes
        left -= raw_nbytes
    return left == 0 and at == len(chunk)


def split_rows(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """A chunk shape that divides the shape, for elements that lie in a row in the file.

    Pieces are not much smaller than the most that one may have: an axis that has no such divisor
    stays whole.
    """
    chunk = list(shape)
    nbytes = itemsize * int(np.prod(shape, dtype=object))
    for axis, length in enumerate(shape):
        if nbytes <= _SPLIT_NBYTES or length == 0:
            break
        row = nbytes // length
        most = max(_SPLIT_NBYTES // row, 1)
        pieces = range(min(most, length), max(most // _SMALLER_MAX, 1) - 1, -1)
        chunk[axis] = next((n for n in pieces if length % n == 0), length)
        nbytes = row * chunk[axis]
        if chunk[axis] > 1:
            break
    return tuple(max(n, 1) for n in chunk)


# --- Chunks that are encoded here ------------------------------------------------------------


def encoded(raw: bytes, codecs: list[Codec], dataset: h5py.Dataset) -> bytes:
    """A chunk of the elements `raw`. Unexpressed for codecs that only imagecodecs has."""
    data = raw
    for codec in codecs:
        data = _encoders(dataset).get(codec["id"], _refuse)(data, codec)
    return data


def _refuse(data: bytes, codec: Codec) -> bytes:
    raise Unexpressed(f"chunks that were stored past {codec['id']} cannot be encoded here")


def _encoders(dataset: h5py.Dataset) -> dict[str, Callable[[bytes, Codec], bytes]]:
    def gpufetch(data: bytes, codec: Codec) -> bytes:
        kind = dataset.id.get_type()
        values = np.frombuffer(data, f"V{kind.get_size()}").reshape(dataset.chunks)
        return _by_hdf5(values, kind, lambda plist: plist.set_filter(FILTER_ID, 0))

    def fletcher32(data: bytes, codec: Codec) -> bytes:
        values = np.frombuffer(data, "u1")
        return _by_hdf5(values, h5t.NATIVE_UINT8, lambda plist: plist.set_fletcher32())

    def shuffle(data: bytes, codec: Codec) -> bytes:
        return np.frombuffer(data, "u1").reshape(-1, codec["elementsize"]).T.tobytes()

    def deflate(data: bytes, codec: Codec) -> bytes:
        return zlib.compress(data, codec["level"])

    return {"gpufetch": gpufetch, "fletcher32": fletcher32, "shuffle": shuffle, "zlib": deflate}


def _by_hdf5(values: np.ndarray[Any, Any], kind: Any, add_filter: Callable[[Any], None]) -> bytes:
    """A chunk that HDF5 makes, in memory."""
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_chunk(values.shape)
    add_filter(plist)
    with h5py.File(uuid.uuid4().hex, "w", driver="core", backing_store=False) as file:
        made = h5d.create(file.id, b"x", kind, h5s.create_simple(values.shape), plist)
        made.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(values), mtype=kind)
        file.flush()
        _, chunk = made.read_direct_chunk((0,) * values.ndim)
    return bytes(chunk)
