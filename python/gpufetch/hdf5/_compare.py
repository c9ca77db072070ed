"""Comparing two HDF5 files: everything but how the elements are stored."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5s

from gpufetch._progress import ProgressBar
from gpufetch.hdf5._asking import naming
from gpufetch.hdf5._attributes import attributes
from gpufetch.hdf5._dataset import Dataset
from gpufetch.hdf5._tree import Tree
from gpufetch.hdf5._virtual import checked_sources

__all__ = ["compare_files"]


def compare_files(source: Path, copy: Path, bar: ProgressBar, *, allow_gaps: bool) -> None:
    """Compare a file with the copy that was made of it, bit for bit.

    HDF5 itself reads the elements of both, so that no fault of gpufetch's own reader passes twice;
    gpufetch reads those alone for which HDF5 finds no filter (bitshuffle without its plugin).
    `bar` advances by the bytes of the elements that are compared. `allow_gaps` is that of
    checked_sources. Raises RuntimeError, which names the first difference; it is a fault of
    gpufetch.
    """
    with h5py.File(source, "r") as before, h5py.File(copy, "r") as after:
        old, new = Tree(before), Tree(after)
        if old.entries != new.entries:
            raise _difference(b"/", "the links")
        for path in [b"/", *old.paths("group", "dataset", "type")]:
            if isinstance(old.open(path), h5d.DatasetID):
                a = Dataset(old.open(path))
                with checked_sources(a.id, None, allow_gaps=allow_gaps):
                    _compare_dataset(old, new, path, a, bar)
            _compare_attributes(old, new, path)


def _compare_dataset(old: Tree, new: Tree, path: bytes, a: Dataset, bar: ProgressBar) -> None:
    b = Dataset(new.open(path))
    if not a.tid.equal(b.tid):
        raise _difference(path, "the type")
    if a.is_null != b.is_null or not _same_space(a.space, b.space):
        raise _difference(path, "the shape")
    a.read_by_hdf5()
    b.read_by_hdf5()
    for start, shape in b.boxes():
        with naming(path):
            x, y = a.read(start, shape), b.read(start, shape)
        if not _same(old, new, x, y):
            raise _difference(path, f"an element of the box from {start} on")
        bar.advance(int(np.prod(shape)) * a.itemsize)


def _compare_attributes(old: Tree, new: Tree, path: bytes) -> None:
    a, b = attributes(old.open(path)), attributes(new.open(path))
    for x, y in itertools.zip_longest(a, b):
        if x is None or y is None or x.name != y.name:
            raise _difference(path, "the attributes' names")
        if not (x.tid.equal(y.tid) and _same_space(x.space, y.space)):
            raise _difference(path, f"type or shape of the attribute {x.name.decode()}")
        if x.values is not None and not _same(old, new, x.values, y.values):
            raise _difference(path, f"a value of the attribute {x.name.decode()}")


def _same_space(a: Any, b: Any) -> bool:
    if a.get_simple_extent_type() != b.get_simple_extent_type():
        return False
    if a.get_simple_extent_type() != h5s.SIMPLE:
        return True
    return bool(a.get_simple_extent_dims(True) == b.get_simple_extent_dims(True)) and bool(
        a.get_simple_extent_dims() == b.get_simple_extent_dims()
    )


def _same(old: Tree, new: Tree, a: Any, b: Any) -> bool:
    """Whether values are the same bits, and references point to the same names."""
    if isinstance(a, h5py.Reference):
        x, y = old.target_of(a), new.target_of(b)
        if isinstance(x, tuple) and isinstance(y, tuple):
            return x[0] == y[0] and bool(x[1].get_select_bounds() == y[1].get_select_bounds())
        return bool(x == y)
    if not isinstance(a, np.ndarray):
        return type(a) is type(b) and bool(a == b)
    if a.shape != b.shape:
        return False
    if a.dtype.names is not None and a.dtype.hasobject:
        return all(_same(old, new, a[name], b[name]) for name in a.dtype.names)
    if a.dtype == object:
        return all(_same(old, new, x, y) for x, y in zip(a.flat, b.flat, strict=True))
    return bool(a.tobytes() == b.tobytes())


def _difference(path: bytes, what: str) -> RuntimeError:
    return RuntimeError(
        f"the copy differs from the source: {what} of {path.decode(errors='replace')}; nothing was "
        "written"
    )
