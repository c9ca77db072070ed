"""The attributes of an HDF5 object, with every bit kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from h5py import h5a, h5s, h5t

from gpufetch.hdf5._tree import index_of
from gpufetch.hdf5._types import holds

__all__ = ["Attribute", "attributes"]


@dataclass
class Attribute:
    """An attribute; its values are as Dataset.read gives them, None for a null dataspace."""

    name: bytes
    tid: Any
    space: Any
    values: npt.NDArray[Any] | None
    memory: Any  # HDF5 type of `values`


def attributes(identifier: Any) -> Iterator[Attribute]:
    """Read the attributes of an object, in the order of creation where that is tracked."""
    flags = 0
    if not isinstance(identifier, h5t.TypeID):
        flags = identifier.get_create_plist().get_attr_creation_order()
    order = index_of(flags)
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
