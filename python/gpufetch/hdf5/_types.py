"""Questions about HDF5 types: which classes they contain, which bits and numbers they stand for."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
from h5py import h5d, h5t

__all__ = [
    "fill_value",
    "has_swapped_sequences",
    "holds",
    "is_native",
    "same_but_order",
    "type_name",
]


def holds(tid: Any, *classes: int) -> bool:
    """Whether a type is of one of the classes, or has a member or base type that is.

    VLEN also stands for text of variable length.
    """
    kind = tid.get_class()
    if kind in classes or (kind == h5t.STRING and h5t.VLEN in classes and tid.is_variable_str()):
        return True
    if kind in (h5t.ARRAY, h5t.VLEN):
        return holds(tid.get_super(), *classes)
    if kind == h5t.COMPOUND:
        return any(holds(tid.get_member_type(i), *classes) for i in range(tid.get_nmembers()))
    return False


def has_swapped_sequences(tid: Any) -> bool:
    """Whether a type has sequences of variable length of big-endian numbers.

    h5py gives their numbers byte-swapped (up to 3.16).
    """
    kind = tid.get_class()
    if kind == h5t.COMPOUND:
        return any(has_swapped_sequences(tid.get_member_type(i)) for i in range(tid.get_nmembers()))
    if kind not in (h5t.ARRAY, h5t.VLEN):
        return False
    base = tid.get_super()
    return has_swapped_sequences(base) or (kind == h5t.VLEN and _is_big_endian(base))


def _is_big_endian(tid: Any) -> bool:
    kind = tid.get_class()
    if kind in (h5t.ENUM, h5t.ARRAY) or kind == getattr(h5t, "COMPLEX", None):
        return _is_big_endian(tid.get_super())
    if kind == h5t.COMPOUND:
        return any(_is_big_endian(tid.get_member_type(i)) for i in range(tid.get_nmembers()))
    is_number = kind in (h5t.INTEGER, h5t.FLOAT)
    return bool(is_number and tid.get_size() > 1 and tid.get_order() == h5t.ORDER_BE)


def fill_value(identifier: Any) -> npt.NDArray[Any] | None:
    """The fill value of an open dataset, of no axes; None where it has none, or NumPy has no type.

    Its bytes are those that the file's type has.
    """
    plist, tid = identifier.get_create_plist(), identifier.get_type()
    if plist.fill_value_defined() == h5d.FILL_VALUE_UNDEFINED or holds(
        tid, h5t.VLEN, h5t.REFERENCE
    ):
        return None
    try:
        value = np.zeros((), tid.dtype)
    except TypeError:
        return None
    if value.dtype.subdtype is not None or value.dtype.itemsize != tid.get_size():
        return None
    plist.get_fill_value(value)
    return value


def is_native(tid: Any) -> bool:
    """Whether NumPy holds the elements as the same bits: little-endian, and no bit unused."""
    kind = tid.get_class()
    if kind in (h5t.ENUM, h5t.ARRAY) or kind == getattr(h5t, "COMPLEX", None):
        return is_native(tid.get_super())
    if kind == h5t.COMPOUND:
        members = [tid.get_member_type(i) for i in range(tid.get_nmembers())]
        is_packed = sum(member.get_size() for member in members) == tid.get_size()
        return is_packed and all(map(is_native, members))
    if kind not in (h5t.INTEGER, h5t.FLOAT):
        return False
    nbytes = tid.get_size()
    is_whole = tid.get_precision() == 8 * nbytes and tid.get_offset() == 0
    return bool(is_whole and (nbytes == 1 or tid.get_order() == h5t.ORDER_LE))


def same_but_order(a: Any, b: Any) -> bool:
    """Whether two types are the same, or differ in the byte order of their numbers alone."""
    if a.equal(b):
        return True
    kind = a.get_class()
    if kind != b.get_class() or a.get_size() != b.get_size():
        return False
    if kind in (h5t.INTEGER, h5t.FLOAT):
        a, b = a.copy(), b.copy()
        a.set_order(h5t.ORDER_LE)
        b.set_order(h5t.ORDER_LE)
        return bool(a.equal(b))
    if kind == h5t.ARRAY and a.get_array_dims() != b.get_array_dims():
        return False
    if kind in (h5t.ARRAY, getattr(h5t, "COMPLEX", None)):
        return same_but_order(a.get_super(), b.get_super())
    if kind == h5t.ENUM:
        return _members_of_enum(a) == _members_of_enum(b) and same_but_order(
            a.get_super(), b.get_super()
        )
    return kind == h5t.COMPOUND and _same_members(a, b)


def _members_of_enum(tid: Any) -> list[tuple[bytes, int]]:
    count = tid.get_nmembers()
    return sorted((tid.get_member_name(i), tid.get_member_value(i)) for i in range(count))


def _same_members(a: Any, b: Any) -> bool:
    return a.get_nmembers() == b.get_nmembers() and all(
        a.get_member_name(i) == b.get_member_name(i)
        and a.get_member_offset(i) == b.get_member_offset(i)
        and same_but_order(a.get_member_type(i), b.get_member_type(i))
        for i in range(a.get_nmembers())
    )


# By bytes, and bits of exponent and mantissa. h5py takes them for the next larger of NumPy's.
_SMALL_FLOATS = {
    (2, 8, 7): "bfloat16",
    (1, 3, 4): "float8_e3m4",
    (1, 4, 3): "float8_e4m3",
    (1, 5, 2): "float8_e5m2",
}


def type_name(tid: Any) -> str:
    """Name a type in a message or a listing."""
    if tid.get_class() == h5t.FLOAT:
        _, _, exponent, _, mantissa = tid.get_fields()
        small = _SMALL_FLOATS.get((tid.get_size(), exponent, mantissa))
        if small is not None:
            return small
    try:
        dtype = tid.dtype
    except (TypeError, ValueError):
        return f"HDF5 type of class {tid.get_class()}, {tid.get_size()} bytes"
    text = h5py.check_string_dtype(dtype)
    if text is not None:
        return f"{text.encoding} text" + (f" of {text.length}" if text.length else "")
    if h5py.check_vlen_dtype(dtype) is not None:
        return f"{h5py.check_vlen_dtype(dtype)}[]"
    if h5py.check_ref_dtype(dtype) is not None:
        return str(h5py.check_ref_dtype(dtype).__name__)
    if h5py.check_enum_dtype(dtype) is not None:
        return f"enum of {dtype}"
    return str(dtype)
