"""Questions about HDF5 types: which classes they contain, and whether NumPy has the same bits."""

from __future__ import annotations

from typing import Any

from h5py import h5t

__all__ = ["holds", "is_native"]


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
