"""`%gpufetch --to` and `--from`: tensors to and from HDF5 files."""

from __future__ import annotations

import os
import time
from typing import Any

import h5py
import numpy as np
from IPython.core.error import UsageError

from gpufetch import _core, hdf5
from gpufetch._lazy.array import LazyArray
from gpufetch._text import format_nbytes
from gpufetch._view import DeviceView
from gpufetch.jupyter.options import Place

__all__ = ["read_from", "write_to"]


def write_to(place: Place, value: Any, *, overwrite: bool) -> str:
    """Write a tensor, or a tree of them, with a progress bar; return a line that reports it."""
    path = os.path.expanduser(place.file)
    if isinstance(value, LazyArray) and not isinstance(value._gpufetch_view(), DeviceView):
        value = np.asarray(value)  # of another process
    start = time.perf_counter()
    _check_free(path, place, overwrite)
    hdf5.write(path, place.path, value, overwrite=overwrite, progress=True)
    seconds = time.perf_counter() - start
    with h5py.File(path, "r") as file:
        report = _report(file[place.path], value)
    return f"{place.file}:{place.path}: {report}, {seconds:.2f} s"


def read_from(place: Place) -> Any:
    """Read a dataset or a tree onto the default device."""
    return hdf5.read(os.path.expanduser(place.file), place.path)


def _check_free(path: str, place: Place, overwrite: bool) -> None:
    """Raise UsageError if there is something of that path already."""
    if overwrite or not os.path.isfile(path) or not h5py.is_hdf5(path):
        return
    with h5py.File(path, "r") as file:
        is_there = place.path in file
    if is_there:
        raise UsageError(
            f"%gpufetch --to: {place.path} exists in {place.file} already: choose another name, or "
            "replace it with --overwrite"
        )


def _report(written: h5py.Dataset | h5py.Group, value: Any) -> str:
    if isinstance(written, h5py.Dataset):
        datasets = [written]
        what = f"{_dtype_name(written, value)} {written.shape}"
    else:
        datasets = []
        written.visititems(
            lambda _, item: datasets.append(item) if isinstance(item, h5py.Dataset) else None
        )
        what = f"tree of {len(datasets)} dataset{'s' * (len(datasets) != 1)}"
    nbytes = sum(dataset.nbytes for dataset in datasets)
    stored = sum(dataset.id.get_storage_size() for dataset in datasets)
    ratio = f" ({nbytes / stored:.2f}:1)" if stored else ""
    return f"{what}, {format_nbytes(nbytes)}, stored in {format_nbytes(stored)}{ratio}"


def _dtype_name(dataset: h5py.Dataset, value: Any) -> str:
    """The tensor's own dtype, for which h5py may have no name; the dataset's for a number."""
    try:
        return str(_core.asdevice(value).dtype)
    except TypeError:
        return str(dataset.dtype)
