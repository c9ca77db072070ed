"""Device tensors to and from HDF5, through the libhdf5 that h5py uses.

A dataset written here opens with plain h5py in any process that has imported gpufetch, and with
any HDF5 tool whose ``HDF5_PLUGIN_PATH`` names :func:`plugin_path`.

Thread-safety: every function may be called from any thread. HDF5 is entered only with h5py's own
lock held; the GIL and that lock are both free while chunks are copied, encoded and decoded.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import h5py
import numpy as np
import numpy.typing as npt
from h5py import _objects

from gpufetch import _core
from gpufetch._repack import repack
from gpufetch._select import select

__all__ = ["FILTER_ID", "filter_options", "plugin_path", "read", "repack", "write"]

FILTER_ID = 49370
"""Identifier of the gpufetch filter, in HDF5's range for private use."""

PLUGIN_NAME = "libh5z_gpufetch.so"

FilePath: TypeAlias = "str | os.PathLike[str]"

Codec: TypeAlias = Literal["gpufetch", "bitshuffle-lz4"] | None

# As in gpufetch/hdf5.h.
_CODECS: dict[str | None, int] = {"gpufetch": 0, None: 1, "bitshuffle-lz4": 2}

_binding_error: Exception | None = None


def _register() -> None:
    """Bind to h5py's libhdf5 and register the filter with it, so that h5py reads our chunks.

    Called once by ``import gpufetch``. Where h5py's libhdf5 cannot be bound this warns, and the
    functions below raise the reason.
    """
    global _binding_error
    try:
        with _objects.phil:
            _core.h5_bind(h5py.defs.__file__)
    except (RuntimeError, TypeError) as error:
        _binding_error = error
        warnings.warn(f"gpufetch.hdf5 is off: {error}", RuntimeWarning, stacklevel=2)
    else:
        _binding_error = None


def _require_binding() -> None:
    if _binding_error is not None:
        raise RuntimeError(f"gpufetch.hdf5 is off: {_binding_error}") from _binding_error


def write(
    dest: h5py.Group | FilePath,
    name: str,
    x: Any,
    *,
    chunks: tuple[int, ...] | None = None,
    codec: Codec = "gpufetch",
    attrs: Mapping[str, Any] | None = None,
) -> h5py.Dataset | None:
    """Create dataset `name` under `dest` and write every element of `x` into it.

    Parameters
    ----------
    dest
        An open, writable ``h5py.File`` or ``h5py.Group``; or the path of a file, which is opened
        for appending, made if it is not there, and closed again.
    name
        Path of the new dataset under `dest`; groups on the way are made. Nothing is overwritten.
    x
        Anything :func:`gpufetch.asdevice` or NumPy wraps, of any shape and layout: a tensor on a
        device, or an ``ndarray``. It may be changed once this returns.
    chunks
        Length of a chunk along each axis of `x`, 1 to that axis's length. By default about 1 MiB
        of elements, with long rows. A 0-d or empty `x` is stored in one piece.
    codec
        ``"gpufetch"`` encodes chunks losslessly; ``None`` stores plain chunks, which any HDF5
        reads without a plugin; ``"bitshuffle-lz4"`` is HDF5's filter 32008, larger, for readers
        that have hdf5plugin and not gpufetch.
    attrs
        Attributes to set on the dataset.

    Returns
    -------
    h5py.Dataset or None
        The new dataset; ``None`` where `dest` is a path.

    Raises
    ------
    ValueError
        `dest` is closed or read-only, `name` exists already, or `chunks` does not fit.
    TypeError
        `x` is no tensor, or has a dtype that cannot be stored.
    gpufetch.Error
        HDF5 or the device failed; HDF5's own messages are quoted. The dataset is then removed
        again, and so is a file that this call made.
    """
    _require_binding()
    if codec not in _CODECS:
        raise ValueError(
            f"codec {codec!r} is unknown: give 'gpufetch', 'bitshuffle-lz4', or None for plain "
            "chunks"
        )
    if chunks is not None:
        chunks = tuple(chunks)
    if isinstance(dest, h5py.Group):
        return _write(dest, name, x, chunks, codec, attrs)
    path = Path(_as_path(dest, "dest"))
    is_new = not path.exists()
    try:
        with h5py.File(path, "a") as file:
            _write(file, name, x, chunks, codec, attrs)
    except BaseException:
        if is_new:
            path.unlink(missing_ok=True)
        raise
    return None


def _write(
    group: h5py.Group,
    name: str,
    x: Any,
    chunks: tuple[int, ...] | None,
    codec: Codec,
    attrs: Mapping[str, Any] | None,
) -> h5py.Dataset:
    if not group:
        raise ValueError(f"dest is closed ({group!r}): open the file again")
    _core.h5_write(group.id.id, name, x, chunks, _CODECS[codec], _objects.phil)
    dataset = group[name]
    try:
        for key, value in (attrs or {}).items():
            dataset.attrs[key] = value
    except BaseException:
        del group[name]
        raise
    return dataset


def read(
    src: h5py.Dataset | h5py.Group | FilePath,
    name: str | None = None,
    *,
    selection: Any = None,
    device: str | None = None,
    out: Any = None,
) -> Any:
    """Read a dataset, or a part of one, of any layout and filter, into device or host memory.

    Chunks of gpufetch, of bitshuffle with LZ4 and plain ones are read and decoded by several
    threads at once, everything else by HDF5.

    Parameters
    ----------
    src
        An open ``h5py.Dataset``; or an ``h5py.File``, ``h5py.Group`` or path of a file, with the
        dataset's `name` in it.
    selection
        What to read of it, as NumPy indexes: integers, slices, ``...``, arrays of integers, masks;
        by default all. Only the box around it is read; steps and arrays are applied in host
        memory.
    device
        ``"cuda:0"``, ``"host:0"``; ``"cpu"`` for an ndarray; by default the default device.
    out
        Where to read to instead of a fresh array: a writable ndarray or device tensor of the
        result's shape and dtype, in any layout. On failure it may be partly overwritten.

    Returns
    -------
    DeviceArray or numpy.ndarray
        Of the selection's shape, in C order and of native byte order; or `out`. Enumerations
        come as their integers. With ``device="cpu"`` what no dtype here stands for (strings,
        compounds, opaque bytes, ``h5py.Empty``, ...) comes as h5py gives it.

    Raises
    ------
    ValueError
        `src` is closed, or `out` does not fit or is read-only.
    IndexError
        `selection` does not fit.
    KeyError
        There is no `name` in `src`.
    TypeError
        The dataset's type has no dtype on a device; the message says what it is.
    gpufetch.Error
        HDF5 or the device failed, or a chunk is damaged; the message names the chunk.
    """
    _require_binding()
    if device is not None and out is not None:
        raise ValueError("give device or out, not both: out is on a device already")
    if isinstance(src, h5py.Dataset):
        if name is not None:
            raise ValueError(f"name {name!r} was given, but src is a dataset already")
        return _read(src, selection, device, out)
    if name is None:
        raise ValueError("name the dataset to read: src is a file or group")
    if isinstance(src, h5py.Group):
        return _read(_dataset(src, name), selection, device, out)
    with h5py.File(_as_path(src, "src"), "r") as file:
        return _read(_dataset(file, name), selection, device, out)


def _dataset(group: h5py.Group, name: str) -> h5py.Dataset:
    if not group:
        raise ValueError(f"src is closed ({group!r}): open the file again")
    found = group.get(name)
    if found is None:
        raise KeyError(f"no dataset {name} in {group.file.filename}")
    if not isinstance(found, h5py.Dataset):
        raise TypeError(f"{name!r} in {group!r} is {found!r}, not a dataset")
    return found


def _read(dataset: h5py.Dataset, selection: Any, device: str | None, out: Any) -> Any:
    if not dataset:
        raise ValueError(f"src is closed ({dataset!r}): open the file again")
    with _objects.phil:
        dataset_id = dataset.id.id
    try:
        if selection is None:
            return _core.h5_read(dataset_id, None, device, out, _objects.phil)
        if dataset.shape is None:
            raise TypeError(f"{dataset.name!r} has a null dataspace: nothing in it can be selected")
        box = select(dataset.shape, selection)
        if box.rest is None:
            return _core.h5_read(dataset_id, box.region, device, out, _objects.phil)
        around = _core.h5_read(dataset_id, box.region, "cpu", None, _objects.phil)
    except TypeError:
        if device != "cpu":
            raise
        return dataset[() if selection is None else selection]
    return _deliver(around[box.rest], device, out)


def _deliver(values: npt.NDArray[Any], device: str | None, out: Any) -> Any:
    """Put selected elements where the caller wants them."""
    if out is None:
        values = np.ascontiguousarray(values).reshape(values.shape)
        return values if device == "cpu" else _core.to_device(values, device=device)
    if not isinstance(out, np.ndarray):
        raise ValueError("steps, arrays and masks in selection need an ndarray as out")
    if (out.shape, out.dtype) != (values.shape, values.dtype):
        raise ValueError(
            f"the selection has shape {values.shape} and dtype {values.dtype}, out {out.shape} and "
            f"{out.dtype}: they must be equal"
        )
    out[...] = values
    return out


def _as_path(value: Any, role: str) -> str:
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    raise TypeError(f"{role} is {type(value).__name__}: give an h5py object or a file's path")


def filter_options() -> dict[str, int]:
    """Keyword arguments with which h5py itself writes chunks through the gpufetch filter.

    ``file.create_dataset("x", data=x, **gpufetch.hdf5.filter_options())``
    """
    return {"compression": FILTER_ID}


def plugin_path() -> str:
    """Folder that holds the HDF5 plugin: the value for ``HDF5_PLUGIN_PATH``.

    Raises ``FileNotFoundError``, naming the folder, where the plugin is not installed.
    """
    folder = Path(__file__).resolve().parent / "plugins"
    if not (folder / PLUGIN_NAME).is_file():
        raise FileNotFoundError(
            f"{PLUGIN_NAME} is not in {folder}: install gpufetch with pip, built with HDF5's "
            "headers (in a Meson build tree the plugin lies in hdf5_filter/)"
        )
    return str(folder)
