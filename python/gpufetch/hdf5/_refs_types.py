"""Types of HDF5 as Zarr's version 2 has them, and what a pipeline of filters is to numcodecs."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
from h5py import h5d, h5t, h5z

from gpufetch.hdf5._filters import BITSHUFFLE_ID, FILTER_IDS, Filter, filter_name
from gpufetch.hdf5._types import type_name

__all__ = [
    "Codec",
    "Unexpressed",
    "codecs_of",
    "dtype_json",
    "fill_json",
    "fitting",
    "has_fill",
    "stored_dtype",
]

Codec = dict[str, Any]
"""A codec as .zarray names it: its id and settings."""

_LZ4 = 2  # the fifth value of bitshuffle's


class Unexpressed(ValueError):  # noqa: N818  # it is a finding, which is collected
    """What references cannot express, and why."""


def stored_dtype(tid: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The dtype whose elements have the file's bytes, and the axes that an array type adds.

    Unexpressed where HDF5 has to convert the elements for NumPy, or NumPy has no such type.
    """
    if tid.get_class() == h5t.ARRAY:
        dtype, inner = stored_dtype(tid.get_super())
        return dtype, (*tid.get_array_dims(), *inner)
    try:
        dtype = tid.dtype
        is_same = tid.get_class() == h5t.OPAQUE or h5t.py_create(dtype, logical=True).equal(tid)
    except (TypeError, ValueError) as error:
        raise Unexpressed(f"NumPy has no type for its {type_name(tid)} elements") from error
    if not is_same:
        raise Unexpressed(f"its {type_name(tid)} elements are stored in another way than NumPy's")
    dtype_json(dtype)
    return dtype, ()


def dtype_json(dtype: np.dtype[Any]) -> Any:
    """A dtype as .zarray names it; Unexpressed for one that Zarr does not have."""
    if dtype.names is not None:
        fields = [(name, dtype.fields[name]) for name in dtype.names] if dtype.fields else []
        at = 0
        for _, (field, offset, *_) in fields:
            if offset != at or field.subdtype is not None:
                raise Unexpressed(f"its compound {dtype} has gaps, or fields that are arrays")
            at += field.itemsize
        if at != dtype.itemsize:
            raise Unexpressed(f"its compound {dtype} has a gap at the end")
        return [[name, dtype_json(field)] for name, (field, *_) in fields]
    if dtype.kind not in "biufcSVmM" or dtype.itemsize == 0 or dtype.char in "gG":
        raise Unexpressed(f"Zarr has no dtype {dtype}")
    return dtype.str


def fitting(value: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any] | None:
    """A number or text, of no axes, as an element of `dtype`; None where no element equals it.

    A floating-point number may be rounded, though neither to infinity nor to zero.
    """
    if dtype.kind == "S" and value.dtype.kind in "SUO":
        text = value.astype(dtype)
        return text if text == value.astype("S") else None
    if dtype.kind not in "biufc" or value.dtype.kind not in "biufc":
        return None
    with np.errstate(all="ignore"):
        made = value.astype(dtype)
    if dtype.kind in "fc":
        is_same = np.isfinite(made) == np.isfinite(value) and (made == 0) == (value == 0)
    else:
        is_same = made == value
    return made if is_same else None


def fill_json(dtype: np.dtype[Any], value: np.ndarray[Any, Any]) -> Any:
    """A fill value, of no axes, as .zarray has it; Unexpressed where bits would be lost."""
    if dtype.names is not None or dtype.kind in "SV":
        return base64.b64encode(value.tobytes()).decode()
    if dtype.kind == "c":
        parts = np.atleast_1d(value).view(f"{dtype.byteorder}f{dtype.itemsize // 2}")
        return [fill_json(parts.dtype, parts[i, ...]) for i in (0, 1)]
    if dtype.kind == "f":
        return _float_json(dtype, value)
    return int(value.view("i8")) if dtype.kind in "mM" else value.item()


def _float_json(dtype: np.dtype[Any], value: Any) -> Any:
    number = float(value)
    if math.isfinite(number):
        return number
    if not math.isnan(number):
        return "Infinity" if number > 0 else "-Infinity"
    if np.array(np.nan, dtype).tobytes() != value.tobytes():
        raise Unexpressed(
            "its fill value is a NaN with a sign or a payload, which JSON has no text for"
        )
    return "NaN"


def codecs_of(filters: list[Filter], dtype: np.dtype[Any], chunk_nbytes: int) -> list[Codec]:
    """The codecs of a pipeline, in the order of writing; Unexpressed if one has none."""
    made: list[Codec] = []
    for index, found in enumerate(filters):
        made += _codecs_of(found, dtype, chunk_nbytes, is_first=index == 0)
    return made


def _codecs_of(
    found: Filter, dtype: np.dtype[Any], chunk_nbytes: int, *, is_first: bool
) -> list[Codec]:
    number, _, values, _ = found
    if number in FILTER_IDS:
        return [_gpufetch(values)]
    if number == h5z.FILTER_DEFLATE:
        return [{"id": "zlib", "level": values[0] if values else 1}]
    if number == h5z.FILTER_FLETCHER32:
        return [{"id": "fletcher32"}]
    if number == h5z.FILTER_SHUFFLE and values and is_first and chunk_nbytes % values[0] == 0:
        return [{"id": "shuffle", "elementsize": values[0]}]
    if number == BITSHUFFLE_ID and is_first and len(values) > 4 and values[4] == _LZ4:
        return _bitshuffle(values, dtype, chunk_nbytes)
    raise Unexpressed(f"numcodecs has nothing for its filter {filter_name(found)}")


def _gpufetch(values: tuple[int, ...]) -> Codec:
    if len(values) < 5 or values[0] != 0 or len(values) != 4 + values[3]:
        raise Unexpressed(f"its gpufetch filter has the cd_values {values}, which say no shape")
    return {"id": "gpufetch", "cd_values": list(values)}


def _bitshuffle(values: tuple[int, ...], dtype: np.dtype[Any], chunk_nbytes: int) -> list[Codec]:
    itemsize = values[2]
    if itemsize == 0 or chunk_nbytes % (8 * itemsize):
        raise Unexpressed(
            "its chunks of bitshuffle have elements behind the last eight, which imagecodecs' LZ4 "
            "does not know"
        )
    block = values[3] or max(8192 // itemsize // 8 * 8, 128)
    return [
        {"id": "imagecodecs_bitshuffle", "itemsize": itemsize, "blocksize": block},
        {"id": "imagecodecs_lz4h5", "level": None, "blocksize": None},
    ]


def fill_bytes(dataset: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The element that HDF5 reads where no chunk was written, of no axes."""
    plist = dataset.id.get_create_plist()
    value = np.zeros((), dtype)
    is_defined = plist.fill_value_defined() != h5d.FILL_VALUE_UNDEFINED
    if is_defined and plist.get_fill_time() != h5d.FILL_TIME_NEVER:
        plist.get_fill_value(value)
    return value


def has_fill(dataset: Any) -> bool:
    """Whether elements of netCDF's that were never written have the fill value of HDF5."""
    plist = dataset.id.get_create_plist()
    is_defined = plist.fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED
    return bool(is_defined and plist.get_fill_time() != h5d.FILL_TIME_NEVER)
