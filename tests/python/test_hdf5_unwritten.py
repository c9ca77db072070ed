"""Elements that were never written: the fill value, or 0 as in h5py, and no stale memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t

import gpufetch as gf

SHAPE = (400, 300)
CHUNK = (50, 300)
SELECTIONS: list[Any] = [None, np.s_[100:250], np.s_[::7, 10:200:3], np.s_[[0, 60, 399]], 120]
FILTERS = ["gpufetch", "gzip", "plain"]


def create(path: Path, filters: str, fill: float | None) -> np.ndarray[Any, Any]:
    """A dataset of which the first chunk is written, as netCDF's set_fill_off makes it."""
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_chunk(CHUNK)
    plist.set_fill_time(h5d.FILL_TIME_NEVER if fill is None else h5d.FILL_TIME_IFSET)
    if fill is not None:
        plist.set_fill_value(np.array(fill, "f4"))
    if filters == "gpufetch":
        plist.set_filter(gf.hdf5.FILTER_ID)
    elif filters == "gzip":
        plist.set_deflate(1)
    with h5py.File(path, "w") as file:
        made = h5d.create(file.id, b"x", h5t.IEEE_F32LE, h5s.create_simple(SHAPE), plist)
        h5py.Dataset(made)[: CHUNK[0]] = 1
    with h5py.File(path) as file:
        return np.asarray(file["x"][()])


def soil() -> None:
    """Leave memory that holds no zeros to whoever allocates next."""
    for _ in range(3):
        np.full(SHAPE, 7, "f4")
        gf.fetch(gf.to_device(np.full(SHAPE, 7, "f4"), device="host:0"))


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("fill", [None, -2.5])
@pytest.mark.parametrize("filters", FILTERS)
def test_chunks_never_written_are_read_as_h5py_reads_them(
    tmp_path: Path, filters: str, fill: float | None, mode: str
) -> None:
    whole = create(tmp_path / "x.h5", filters, fill)
    assert (whole[CHUNK[0] :] == (fill or 0)).all()
    with h5py.File(tmp_path / "x.h5", mode) as file:
        for selection in SELECTIONS:
            expected = whole[() if selection is None else selection]
            soil()
            read = gf.hdf5.read(file, "x", selection=selection, device="cpu")
            assert np.array_equal(read, expected)
            on_device = gf.hdf5.read(file, "x", selection=selection, device="host:0")
            assert np.array_equal(gf.fetch(on_device), expected)
            out = np.full(expected.shape, 7, "f4")
            assert gf.hdf5.read(file, "x", selection=selection, out=out) is out
            assert np.array_equal(out, expected)


@pytest.mark.parametrize("filters", FILTERS)
def test_a_device_tensor_as_out_keeps_nothing(tmp_path: Path, filters: str) -> None:
    whole = create(tmp_path / "x.h5", filters, None)
    out = gf.to_device(np.full(SHAPE, 7, "f4"), device="host:0")
    gf.hdf5.read(tmp_path / "x.h5", "x", out=out)
    assert np.array_equal(gf.fetch(out), whole)


def test_netcdf_without_fill_values_holds_no_stale_memory(tmp_path: Path) -> None:
    netcdf = pytest.importorskip("netCDF4")
    with netcdf.Dataset(tmp_path / "x.nc", "w") as file:
        file.set_fill_off()
        file.createDimension("t", SHAPE[0])
        file.createDimension("x", SHAPE[1])
        file.createVariable("v", "f4", ("t", "x"), chunksizes=CHUNK)[: CHUNK[0]] = 1
    for device in ("cpu", "host:0"):
        soil()
        read = gf.fetch(gf.hdf5.read(tmp_path / "x.nc", "v", device=device))
        assert (read[: CHUNK[0]] == 1).all() and (read[CHUNK[0] :] == 0).all()
