"""Chunks in memory, coded by the plugin's own filter function, without an HDF5 library.

Any thread may call these functions; the GIL is free while a chunk is coded.
"""

from __future__ import annotations

import ctypes
import operator
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from hdf5_gpufetch._plugin import FILTER_ID, filter_classes

__all__ = ["check_cd_values", "decode_chunk", "encode_chunk", "stored_dims"]

_HEADER_NBYTES = 96
_REVERSE = 0x100  # H5Z_FLAG_REVERSE: decode

_Filter = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.c_uint,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_uint),
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_void_p),
)


class _Class(ctypes.Structure):
    """HDF5's H5Z_class2_t."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("id", ctypes.c_int),
        ("encoder_present", ctypes.c_uint),
        ("decoder_present", ctypes.c_uint),
        ("name", ctypes.c_char_p),
        ("can_apply", ctypes.c_void_p),
        ("set_local", ctypes.c_void_p),
        ("filter", _Filter),
    )


@lru_cache(maxsize=1)
def _functions() -> tuple[Any, Any, Any]:
    """The filter function, and malloc and free of the C library that it allocates with."""
    library = ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None)
    malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(("malloc", library))
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(("free", library))
    return _Class.from_address(filter_classes()[0]).filter, malloc, free


def check_cd_values(values: Sequence[int]) -> tuple[int, ...]:
    """The filter's values as integers of Python; ValueError unless docs/format.md knows them."""
    try:
        found = tuple(operator.index(value) for value in values)
    except TypeError:
        found = ()
    if (
        not 5 <= len(found) <= 12
        or found[0] != 0
        or len(found) != 4 + found[3]
        or not all(0 <= value < 2**32 for value in found)
    ):
        raise ValueError(
            f"cd_values {values!r}: give 0, dtype code, bytes of a chunk, rank and the chunk's "
            f"dimensions, as the HDF5 dataset has them for filter {FILTER_ID}"
        )
    return found


def stored_dims(chunk: bytes) -> tuple[int, ...]:
    """The dimensions that a chunk says it has, which :func:`decode_chunk` has decoded."""
    dims = (chunk[at : at + 4] for at in range(32, 32 + 4 * chunk[9], 4))
    return tuple(int.from_bytes(data, "little") for data in dims)


def decode_chunk(chunk: Any, cd_values: tuple[int, ...]) -> bytes:
    """The bytes of a chunk's elements: cd_values[2] of them.

    Raises ValueError where the chunk is damaged, or decodes to another size. No more memory is
    taken than cd_values[2] and twice the chunk, whatever the chunk claims.
    """
    data = bytes(chunk)
    if len(data) < _HEADER_NBYTES or data[:4] != b"GPFC":
        raise ValueError(f"{len(data)} bytes that are no chunk of gpufetch: they lack its header")
    claimed = int.from_bytes(data[16:24], "little")
    if claimed != cd_values[2]:
        raise ValueError(
            f"the chunk decodes to {claimed} bytes, but cd_values[2] says {cd_values[2]}"
        )
    decoded = _run(_REVERSE, data, cd_values)
    if decoded is None:
        raise ValueError(
            f"corrupt chunk of {len(data)} bytes (version {data[4]}): its bytes were altered, or "
            "a newer hdf5-gpufetch is needed, or there is no memory for its elements"
        )
    return decoded


def encode_chunk(raw: Any, cd_values: tuple[int, ...]) -> bytes:
    """A chunk of the elements whose bytes these are, in C order. ValueError if they do not fit."""
    data = bytes(raw)
    if len(data) != cd_values[2]:
        raise ValueError(f"{len(data)} bytes of elements, but cd_values[2] says {cd_values[2]}")
    encoded = _run(0, data, cd_values)
    if encoded is None:
        raise ValueError(
            f"cd_values {cd_values} do not describe a chunk: the dtype code or the dimensions are "
            "wrong, or there is no memory"
        )
    return encoded


def _run(flags: int, data: bytes, cd_values: tuple[int, ...]) -> bytes | None:
    """Call the filter; None where it fails."""
    run, malloc, free = _functions()
    # The filter frees what it is given, and gives another buffer, unless it fails.
    buffer = ctypes.c_void_p(malloc(max(len(data), 1)))
    if not buffer:
        raise MemoryError(f"no memory for a chunk of {len(data)} bytes")
    try:
        ctypes.memmove(buffer, data, len(data))
        capacity = ctypes.c_size_t(len(data))
        values = (ctypes.c_uint * len(cd_values))(*cd_values)
        nbytes = run(flags, len(values), values, len(data), capacity, buffer)
        return ctypes.string_at(buffer, nbytes) if nbytes else None
    finally:
        free(buffer)
