"""Integers of fewer bits than their bytes hold, in both byte orders: no sign is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t

import gpufetch as gf
from gpufetch import _core
from gpufetch.hdf5._binding import phil

# The dtype that is stored, its precision and its offset in bits.
TYPES = [
    (">i4", 20, 0),
    (">i4", 20, 3),
    (">i4", 31, 0),
    (">i2", 12, 0),
    (">i8", 40, 0),
    (">i1", 5, 0),
    (">u4", 20, 0),
    ("<i4", 20, 0),
    ("<i8", 40, 5),
    ("<i1", 5, 0),
    (">i4", 32, 0),
]


def type_of(dtype: str, precision: int, offset: int) -> Any:
    stored = h5t.py_create(np.dtype(dtype)).copy()
    if stored.get_size() == 1:
        stored.set_order(h5t.ORDER_BE if dtype[0] == ">" else h5t.ORDER_LE)
    stored.set_precision(precision)
    stored.set_offset(offset)
    return stored


def values_of(dtype: str) -> Any:
    values = np.arange(-15, 15).reshape(5, 6)
    return np.abs(values) if np.dtype(dtype).kind == "u" else values


def create(file: h5py.File, stored: Any, chunk: tuple[int, ...] | None, nbit: bool) -> h5py.Dataset:
    plist = h5p.create(h5p.DATASET_CREATE)
    if chunk:
        plist.set_chunk(chunk)
    if nbit:
        plist.set_filter(5, 0, ())
    return h5py.Dataset(h5d.create(file.id, b"x", stored, h5s.create_simple((5, 6)), plist))


def write_as_stored(dataset: h5py.Dataset, values: Any) -> None:
    """Write in the file's own byte order, which HDF5 converts with the sign."""
    memory = h5t.py_create(dataset.dtype)
    if memory.get_size() == 1:
        memory = memory.copy()
        memory.set_order(dataset.id.get_type().get_order())
    array = np.ascontiguousarray(values.astype(dataset.dtype))
    dataset.id.write(h5s.ALL, h5s.ALL, array, mtype=memory)


def read_as_stored(dataset: h5py.Dataset) -> Any:
    memory = h5t.py_create(dataset.dtype)
    if memory.get_size() == 1:
        memory = memory.copy()
        memory.set_order(dataset.id.get_type().get_order())
    array = np.zeros(dataset.shape, dataset.dtype)
    dataset.id.read(h5s.ALL, h5s.ALL, array, mtype=memory)
    return array


@pytest.mark.parametrize("layout", [(None, False), ((2, 4), False), ((2, 4), True)], ids=str)
@pytest.mark.parametrize("stored", TYPES, ids=str)
def test_the_sign_is_kept(
    tmp_path: Path, stored: tuple[str, int, int], layout: tuple[Any, bool]
) -> None:
    values = values_of(stored[0])
    with h5py.File(tmp_path / "x.h5", "w") as file:
        write_as_stored(create(file, type_of(*stored), *layout), values)
    for selection in (np.s_[:], np.s_[1:4, 2:5], np.s_[::2, [1, 5]]):
        expected = values[selection]
        found = gf.hdf5.read(tmp_path / "x.h5", "x", selection=selection, device="cpu")
        assert found.dtype == np.dtype(stored[0]).newbyteorder("=")
        assert (found == expected).all()
        on_device = gf.hdf5.read(tmp_path / "x.h5", "x", selection=selection, device="host:0")
        assert (gf.fetch(on_device) == expected).all()
    for out in (np.zeros((6, 5), found.dtype).T, np.zeros((5, 6), found.dtype)):
        assert (gf.hdf5.read(tmp_path / "x.h5", "x", out=out) == values).all()


@pytest.mark.parametrize("device", ["cpu", "host:0"])
@pytest.mark.parametrize("stored", TYPES, ids=str)
def test_written_values_are_read_by_hdf5(
    tmp_path: Path, stored: tuple[str, int, int], device: str
) -> None:
    values = values_of(stored[0]).astype(np.dtype(stored[0]).newbyteorder("="))
    kept = values.copy()
    source = values if device == "cpu" else gf.to_device(values, device=device)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = create(file, type_of(*stored), (2, 4), False)
        _core.h5_write_region(phil, dataset.id.id, (0, 0), source)
    assert (values == kept).all()
    with h5py.File(tmp_path / "x.h5") as file:
        assert (read_as_stored(file["x"]) == values).all()
    assert (gf.hdf5.read(tmp_path / "x.h5", "x", device="cpu") == values).all()


def test_an_enumeration_keeps_its_sign(tmp_path: Path) -> None:
    base = type_of(">i4", 20, 0)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_fill_value(np.array(-3, ">i4"))
        h5d.create(file.id, b"fill", base, h5s.create_simple((4,)), plist)
        enumeration = h5t.enum_create(base)
        enumeration.enum_insert(b"A", 1)
        dataset = h5d.create(file.id, b"x", enumeration, h5s.create_simple((1,)))
        stored = np.array([b"\0\x0f\xff\xfc"], "V4")
        dataset.write(h5s.ALL, h5s.ALL, stored, mtype=enumeration)
    assert gf.hdf5.read(tmp_path / "x.h5", "x", device="cpu").tolist() == [-4]
    assert gf.hdf5.read(tmp_path / "x.h5", "fill", device="cpu").tolist() == [-3] * 4


@pytest.mark.parametrize("stored", TYPES, ids=str)
def test_a_copy_keeps_the_values(tmp_path: Path, stored: tuple[str, int, int]) -> None:
    values = values_of(stored[0])
    with h5py.File(tmp_path / "x.h5", "w") as file:
        write_as_stored(create(file, type_of(*stored), (2, 4), False), values)
    for codec in ("none", "gpufetch", "gzip"):
        gf.hdf5.repack(tmp_path / "x.h5", tmp_path / "y.h5", codec=codec, overwrite=True)
        with h5py.File(tmp_path / "y.h5") as file:
            assert (read_as_stored(file["x"]) == values).all()
