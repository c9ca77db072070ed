"""How a file has an object: the chunks of a dataset as HDF5 lists them, and the format."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from h5py import h5d, h5o, h5z

__all__ = [
    "edge_may_be_plain",
    "has_short_chunks",
    "is_header_checked",
    "is_short",
    "stored_chunks",
]

_CHECKSUM_NBYTES = 4  # of fletcher32


def stored_chunks(dataset: h5d.DatasetID) -> Iterator[Any]:
    """Yield h5py's StoreInfo of each chunk: its offsets in dataset and file, mask and size."""
    if hasattr(dataset, "chunk_iter"):
        listed: list[Any] = []
        dataset.chunk_iter(listed.append)
        return iter(listed)
    return (dataset.get_chunk_info(i) for i in range(dataset.get_num_chunks()))


def is_short(dataset: h5d.DatasetID, mask: int, nbytes: int) -> bool:
    """Whether a stored chunk has less bytes than the checksum that fletcher32 has put last.

    HDF5 reads beyond the end of such a chunk, and the process ends.
    """
    if not 0 < nbytes < _CHECKSUM_NBYTES:
        return False
    plist = dataset.get_create_plist()
    applied = (i for i in reversed(range(plist.get_nfilters())) if not mask >> i & 1)
    last = next(applied, None)
    return last is not None and plist.get_filter(last)[0] == h5z.FILTER_FLETCHER32


def has_short_chunks(dataset: h5d.DatasetID) -> bool:
    """Whether a chunk is as `is_short` says, as far as this HDF5 lists them."""
    plist = dataset.get_create_plist()
    numbers = [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]
    if h5z.FILTER_FLETCHER32 not in numbers or not hasattr(dataset, "get_num_chunks"):
        return False
    return any(is_short(dataset, i.filter_mask, i.size) for i in stored_chunks(dataset))


def edge_may_be_plain(dataset: h5d.DatasetID) -> Callable[[Any], bool]:
    """Whether a chunk of `stored_chunks` may have been stored past the filters, without a mask.

    HDF5 may leave filters out at the dataset's edge. Such a chunk has all of its elements' bytes.
    """
    chunk = dataset.get_create_plist().get_chunk()
    shape = dataset.shape
    nbytes = dataset.get_type().get_size() * math.prod(chunk)

    def may_be_plain(info: Any) -> bool:
        ends = zip(info.chunk_offset, chunk, shape, strict=True)
        return info.size == nbytes and any(start + length > end for start, length, end in ends)

    return may_be_plain


def is_header_checked(identifier: Any) -> bool:
    """Whether an open object's header has a checksum, as in HDF5's newer formats.

    It holds a compact dataset's elements, and attributes.
    """
    return bool(h5o.get_info(identifier).hdr.version >= 2)
