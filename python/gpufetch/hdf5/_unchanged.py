"""Whether a dataset is still what `gpufetch.hdf5.save` wrote, where no checksum of HDF5's tells.

In HDF5's older formats a changed bit may give a dataset another shape or type, or hide a chunk from
those who look for it, whose elements are then zeros. None of that is an error to HDF5.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import h5py
from h5py import h5d

from gpufetch import _core
from gpufetch.hdf5._binding import phil
from gpufetch.hdf5._flat import Stored
from gpufetch.hdf5._stored import stored_chunks

__all__ = ["check_unchanged", "inspected"]


class Inspected(NamedTuple):
    """What an open dataset is now."""

    dtype: str
    shape: tuple[int, ...]
    finds_chunks: bool
    """Whether HDF5 finds each chunk where it looks for it to read elements."""


def inspected(identifier: h5d.DatasetID) -> Inspected:
    """Look at an open dataset; TypeError for elements that gpufetch has no dtype for."""
    dtype, is_native, shape, missing = _core.h5_inspect(phil, identifier.id)
    return Inspected(dtype if is_native else f"{dtype} in other bits", shape, missing is None)


def check_unchanged(dataset: h5py.Dataset, stored: Stored) -> None:
    """ValueError where a dataset has another dtype or shape than was saved, or lacks chunks."""
    try:
        now = inspected(dataset.id)
    except TypeError as error:
        raise ValueError(
            f"dataset {dataset.name!r} is not what gpufetch.hdf5.save wrote: {error}"
        ) from error
    if stored.dtype is not None and (now.dtype, now.shape) != (stored.dtype, stored.shape):
        raise ValueError(
            f"dataset {dataset.name!r} is {now.dtype} of shape {now.shape}, and "
            f"gpufetch.hdf5.save wrote {stored.dtype} of shape {stored.shape}"
        )
    if not (now.finds_chunks and _is_stored(dataset.id, now.shape)):
        raise ValueError(
            f"dataset {dataset.name!r} lacks chunks, or has others than gpufetch.hdf5.save wrote"
        )


def _is_stored(identifier: h5d.DatasetID, shape: tuple[int, ...]) -> bool:
    """Whether elements have a place in the file, and each chunk one of its own, of a size it has.

    HDF5 before 2.0 reads memory of others where a chunk without filters is shorter.
    """
    plist = identifier.get_create_plist()
    layout: int = plist.get_layout()
    if layout != h5d.CHUNKED:
        return layout != h5d.CONTIGUOUS or identifier.get_offset() is not None or 0 in shape
    chunk = plist.get_chunk()
    stored = list(stored_chunks(identifier))
    nbytes = math.prod(chunk) * identifier.get_type().get_size()
    if plist.get_nfilters() == 0 and any(info.size != nbytes for info in stored):
        return False
    count: int = math.prod(-(-n // c) for n, c in zip(shape, chunk, strict=True))
    return len(stored) == len({info.byte_offset for info in stored}) == count
