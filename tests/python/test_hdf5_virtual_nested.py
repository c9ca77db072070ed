"""Virtual datasets of virtual ones, whose mappings overlap and leave elements without a source."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import gpufetch as gf

FILL = -1


def write_inner(folder: Path, shape: tuple[int, ...] = (600,), fill: Any = FILL) -> Any:
    """A dataset v of 1,000 elements, 400 of which have two sources and 200 none."""
    for name, first, stored in (("a", 0, shape), ("b", 200, (600,))):
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file["x"] = np.arange(first, first + 600, dtype="i4").reshape(stored)
    layout = h5py.VirtualLayout((1000,), "i4")
    layout[:600] = h5py.VirtualSource("a.h5", "x", shape)
    layout[200:800] = h5py.VirtualSource("b.h5", "x", (600,))
    with h5py.File(folder / "inner.h5", "w") as file:
        file.create_virtual_dataset("v", layout, fillvalue=fill)
    return np.r_[:800, np.full(200, fill)].astype("i4")


def write_outer(path: Path, fill: Any) -> None:
    """A dataset v of two rows, each of which is that of inner.h5."""
    layout = h5py.VirtualLayout((2, 1000), "i4")
    for row in range(2):
        layout[row] = h5py.VirtualSource("inner.h5", "v", (1000,))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("v", layout, fillvalue=fill)


def check_read(path: Path, expected: Any) -> None:
    for key in (np.s_[:], np.s_[1, ::2], np.s_[:, 700:], np.s_[1:, [3, 900]]):
        got = gf.hdf5.read(path, "v", selection=key, device="cpu")
        np.testing.assert_array_equal(got, expected[key])
    np.testing.assert_array_equal(gf.fetch(gf.hdf5.read(path, "v", device="host:0")), expected)
    for out in (np.full((2, 1000), 77, "i4"), gf.to_device(np.full((2, 1000), 77, "i4"))):
        np.testing.assert_array_equal(gf.fetch(gf.hdf5.read(path, "v", out=out)), expected)


@pytest.mark.parametrize("fill", [0, None, -7, FILL])
def test_gaps_of_a_source_are_its_own_fill_value(tmp_path: Path, fill: int | None) -> None:
    row = write_inner(tmp_path)
    write_outer(tmp_path / "outer.h5", fill)
    check_read(tmp_path / "outer.h5", np.stack([row, row]))


def test_what_hdf5_alone_could_read_is_refused_and_read_from_a_copy(tmp_path: Path) -> None:
    """The mapping of a.h5 selects elements of another shape, which gpufetch leaves to HDF5."""
    row = write_inner(tmp_path, (20, 30))
    outer = tmp_path / "outer.h5"
    write_outer(outer, -7)
    named = r"virtual dataset '/v' of .*inner\.h5 .*gpufetch repack"
    with pytest.raises(ValueError, match=named):
        gf.hdf5.read(outer, "v")
    for out in (np.zeros((2, 1000), "i4"), gf.to_device(np.zeros((2, 1000), "i4"))):
        with pytest.raises(ValueError, match=named):
            gf.hdf5.read(outer, "v", out=out)
        assert not gf.fetch(out).any()
    with pytest.raises(ValueError, match=named):
        gf.hdf5.repack(outer, tmp_path / "copy.h5")
    assert not (tmp_path / "copy.h5").exists()
    gf.hdf5.repack(tmp_path / "inner.h5", tmp_path / "copy.h5")
    os.replace(tmp_path / "copy.h5", tmp_path / "inner.h5")
    check_read(outer, np.stack([row, row]))


@pytest.mark.parametrize("codec", ["none", "gzip", "gpufetch"])
def test_repack_copies_no_gaps_of_a_source_with_another_fill_value(
    tmp_path: Path, codec: Any
) -> None:
    row = write_inner(tmp_path)
    for fill in (0, None, -7):
        write_outer(tmp_path / "outer.h5", fill)
        with pytest.raises(ValueError, match=r"inner\.h5"):
            gf.hdf5.repack(tmp_path / "outer.h5", tmp_path / "copy.h5", codec=codec)
    write_outer(tmp_path / "outer.h5", FILL)
    gf.hdf5.repack(tmp_path / "outer.h5", tmp_path / "copy.h5", codec=codec)
    check_read(tmp_path / "copy.h5", np.stack([row, row]))


def test_elements_that_an_overlapped_source_had_are_not_those_of_a_gap(tmp_path: Path) -> None:
    """HDF5 leaves those of the first mapping where the second is of a gap."""
    row = write_inner(tmp_path, (20, 30), fill=0)
    layout = h5py.VirtualLayout((1000,), "i4")
    with h5py.File(tmp_path / "outer.h5", "w") as file:
        file["c"] = np.full(1000, 5, "i4")
        layout[:] = h5py.VirtualSource(".", "c", (1000,))
        layout[:] = h5py.VirtualSource("inner.h5", "v", (1000,))
        file.create_virtual_dataset("v", layout)
    with pytest.raises(ValueError, match=r"inner\.h5"):
        gf.hdf5.read(tmp_path / "outer.h5", "v", device="cpu")
    write_inner(tmp_path, fill=0)
    got = gf.hdf5.read(tmp_path / "outer.h5", "v", device="cpu")
    np.testing.assert_array_equal(got, row)


def test_gaps_are_read_where_a_source_is_missing(tmp_path: Path) -> None:
    """HDF5 counts the elements of sources that are there, none of which are named twice."""
    row = write_inner(tmp_path)
    (tmp_path / "b.h5").unlink()
    row[600:] = FILL
    for fill in (0, -7, FILL):
        write_outer(tmp_path / "outer.h5", fill)
        got = gf.hdf5.read(tmp_path / "outer.h5", "v", device="cpu", allow_gaps=True)
        np.testing.assert_array_equal(got, np.stack([row, row]))
    gf.hdf5.repack(tmp_path / "outer.h5", tmp_path / "copy.h5", allow_gaps=True)
    check_read(tmp_path / "copy.h5", np.stack([row, row]))


def test_compounds_with_gaps_are_refused_and_copied(tmp_path: Path) -> None:
    """h5py reads them into zeros."""
    dtype = np.dtype([("a", "i4"), ("b", "f4")])
    layout = h5py.VirtualLayout((1000,), dtype)
    with h5py.File(tmp_path / "m.h5", "w") as file:
        for name in ("x", "y"):
            file[name] = np.ones(500, dtype)
            layout[1:501] = h5py.VirtualSource(".", name, (500,), dtype)
        file.create_virtual_dataset("v", layout, fillvalue=np.array((7, 8), dtype))
    for key in (None, "a", np.s_["b", 400:]):
        with pytest.raises(ValueError, match=r"m\.h5"):
            gf.hdf5.read(tmp_path / "m.h5", "v", selection=key, device="cpu")
    assert (gf.hdf5.read(tmp_path / "m.h5", "v", selection=np.s_["a", 1:501]).shape) == (500,)
    gf.hdf5.repack(tmp_path / "m.h5", tmp_path / "copy.h5")
    got = gf.hdf5.read(tmp_path / "copy.h5", "v", device="cpu")
    assert got[0].tolist() == got[501].tolist() == (7, 8) and got[1].tolist() == (1, 1)
