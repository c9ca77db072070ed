"""Writing a tensor as a new dataset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import h5py

from gpufetch import _core
from gpufetch.hdf5._binding import phil, require_binding
from gpufetch.hdf5._location import FilePath, as_path, check_open

__all__ = ["Codec", "write"]

Codec: TypeAlias = Literal["gpufetch", "bitshuffle-lz4"] | None

# As in gpufetch/hdf5.h.
_CODECS: dict[str | None, int] = {"gpufetch": 0, None: 1, "bitshuffle-lz4": 2}


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
        An open, writable ``h5py.File`` or ``h5py.Group``; or the path of a file, which is created
        if it does not exist, and is closed again before this returns.
    name
        Path of the new dataset below `dest`. Missing groups are created; nothing is overwritten.
    x
        Any tensor that :func:`gpufetch.asdevice` takes, or an ``ndarray``, of any shape and
        layout. It may be changed once this returns.
    chunks
        Length of a chunk along each axis of `x`, from 1 to that axis's length. By default a chunk
        holds about 1 MiB of elements, in long rows. A 0-d or empty `x` is stored without chunks.
    codec
        ``"gpufetch"`` encodes chunks losslessly. ``None`` stores plain chunks, which any HDF5
        reads without a plugin. ``"bitshuffle-lz4"`` is HDF5's filter 32008: its chunks are larger,
        and readers need hdf5plugin instead of gpufetch.
    attrs
        Attributes to set on the dataset.

    Returns
    -------
    h5py.Dataset or None
        The new dataset; ``None`` if `dest` is a path.

    Raises
    ------
    ValueError
        `dest` is closed or read-only, `name` exists already, or `chunks` does not fit.
    TypeError
        `x` is no tensor, or has a dtype that cannot be stored.
    gpufetch.Error
        HDF5 or the device failed; HDF5's own messages are quoted. The dataset is removed again,
        and so is a file that this call created.
    """
    require_binding()
    if codec not in _CODECS:
        raise ValueError(
            f"codec {codec!r} is unknown: give 'gpufetch', 'bitshuffle-lz4', or None for plain "
            "chunks"
        )
    if chunks is not None:
        chunks = tuple(chunks)
    if isinstance(dest, h5py.Group):
        return _write(dest, name, x, chunks, codec, attrs)
    path = Path(as_path(dest, "dest"))
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
    check_open(group, "dest")
    _core.h5_write(phil, group.id.id, name, x, chunks=chunks, codec=_CODECS[codec])
    dataset = group[name]
    try:
        for key, value in (attrs or {}).items():
            dataset.attrs[key] = value
    except BaseException:
        del group[name]
        raise
    return dataset
