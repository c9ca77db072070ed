"""Chunks by every index that HDF5 has for them, on each axis: each is read at its own place."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t

import gpufetch as gf
from gpufetch import _core
from gpufetch.hdf5._binding import phil
from gpufetch.hdf5._dataset import Dataset

SHAPE = (5, 9, 4, 3)
CHUNK = (2, 2, 3, 1)
FILTERS = ["plain", "gpufetch", "bitshuffle-lz4", "gzip"]
DEVICES = ["cpu", "host:0"]


def maxshapes(shape: tuple[int, ...]) -> list[tuple[int | None, ...]]:
    """Fixed arrays, extensible arrays on each axis, and trees, with room on the other axes too."""
    ndim = len(shape)
    found: list[tuple[int | None, ...]] = []
    for unlimited in itertools.product((False, True), repeat=ndim):
        for room in (0, 4):
            lengths = zip(shape, unlimited, strict=True)
            found.append(tuple(None if u else n + room for n, u in lengths))
    return found


def create(
    file: h5py.File,
    shape: tuple[int, ...],
    maxshape: tuple[int | None, ...],
    chunk: tuple[int, ...],
    how: str,
) -> h5py.Dataset:
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_chunk(chunk)
    if how == "gpufetch":
        plist.set_filter(gf.hdf5.FILTER_ID, 0, ())
    elif how == "bitshuffle-lz4":
        plist.set_filter(32008, 1, (0, 4, 4, 0, 2))
    elif how == "gzip":
        plist.set_deflate(1)
    elif how == "implicit":
        plist.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    limits = tuple(h5s.UNLIMITED if n is None else n for n in maxshape)
    space = h5s.create_simple(shape, limits)
    return h5py.Dataset(h5d.create(file.id, b"x", h5t.STD_I32LE, space, plist))


def numbers(shape: tuple[int, ...]) -> Any:
    return np.arange(1, 1 + int(np.prod(shape)), dtype="i4").reshape(shape)


def write(dataset: h5py.Dataset, x: Any, how: str) -> None:
    if how == "bitshuffle-lz4":
        _core.h5_write_region(phil, dataset.id.id, (0,) * x.ndim, x)
    else:
        dataset[...] = x


def fetched(path: Path, device: str, **options: Any) -> Any:
    values = gf.hdf5.read(path, "x", device=device, **options)
    return values if device == "cpu" else gf.fetch(values)


@pytest.mark.parametrize("how", FILTERS)
@pytest.mark.parametrize("libver", ["earliest", "v110", "latest"])
@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
def test_every_index_on_every_axis(tmp_path: Path, ndim: int, libver: str, how: str) -> None:
    shape, chunk = SHAPE[:ndim], CHUNK[:ndim]
    x = numbers(shape)
    key = (np.s_[1:4], np.s_[::2], np.s_[2:], np.s_[[0, 2]])[:ndim]
    path = tmp_path / "x.h5"
    for maxshape in maxshapes(shape):
        with h5py.File(path, "w", libver=libver) as file:
            write(create(file, shape, maxshape, chunk, how), x, how)
        for device in DEVICES:
            assert (fetched(path, device) == x).all(), (maxshape, device)
            assert (fetched(path, device, selection=key) == x[key]).all(), (maxshape, device)
        with h5py.File(path, "r+") as file:
            assert (gf.hdf5.read(file, "x", device="cpu") == x).all(), maxshape


@pytest.mark.parametrize("how", ["plain", "gpufetch"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_dataset_that_grew_and_shrank(tmp_path: Path, axis: int, how: str) -> None:
    path = tmp_path / "x.h5"
    maxshape = tuple(None if i == axis else n for i, n in enumerate(SHAPE[:3]))
    grown = tuple(n + 11 if i == axis else n for i, n in enumerate(SHAPE[:3]))
    x = np.zeros(grown, "i4")
    x[tuple(map(slice, SHAPE[:3]))] = numbers(SHAPE[:3])
    with h5py.File(path, "w", libver="latest") as file:
        dataset = create(file, SHAPE[:3], maxshape, CHUNK[:3], how)
        dataset[...] = numbers(SHAPE[:3])
        dataset.resize(grown)
    assert (fetched(path, "cpu") == x).all()
    with h5py.File(path, "r+") as file:
        file["x"][...] = x = numbers(grown)
    assert (fetched(path, "cpu") == x).all()
    with h5py.File(path, "r+") as file:
        file["x"].resize(grown[axis] - 7, axis)
        x = file["x"][()]
    assert (fetched(path, "cpu") == x).all()


@pytest.mark.parametrize("form", ["single", "implicit"])
def test_indexes_without_a_list_of_chunks(tmp_path: Path, form: str) -> None:
    x = numbers(SHAPE)
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="latest") as file:
        create(file, SHAPE, SHAPE, SHAPE if form == "single" else CHUNK, form)[...] = x
    for device in DEVICES:
        assert (fetched(path, device) == x).all()


@pytest.mark.parametrize("how", FILTERS)
def test_a_virtual_dataset_of_such_a_source(tmp_path: Path, how: str) -> None:
    x = numbers((6, 9))
    with h5py.File(tmp_path / "source.h5", "w", libver="latest") as file:
        write(create(file, (6, 9), (6, None), (2, 2), how), x, how)
    layout = h5py.VirtualLayout((6, 5), "i4")
    layout[...] = h5py.VirtualSource("source.h5", "x", (6, 9))[:, ::2]
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    for device in DEVICES:
        assert (fetched(tmp_path / "v.h5", device) == x[:, ::2]).all()
        key = np.s_[1:5, [0, 4]]
        assert (fetched(tmp_path / "v.h5", device, selection=key) == x[:, ::2][key]).all()


@pytest.mark.parametrize("how", FILTERS)
@pytest.mark.parametrize("maxshape", [(6, None), (None, 9), (6, 30), (None, None)], ids=str)
def test_sparse_chunks_are_copied_to_their_places(
    tmp_path: Path, maxshape: tuple[int | None, ...], how: str
) -> None:
    source, dest = tmp_path / "source.h5", tmp_path / "dest.h5"
    with h5py.File(source, "w", libver="latest") as file:
        dataset = create(file, (6, 9), maxshape, (2, 2), how)
        x = np.zeros((6, 9), "i4")
        x[2:4, 4:8] = numbers((2, 4))
        _core.h5_write_region(phil, dataset.id.id, (2, 4), x[2:4, 4:8])
    for codec in ("none", "gpufetch"):
        gf.hdf5.repack(source, dest, codec=codec, overwrite=True)
        with h5py.File(dest) as file:
            assert (file["x"][()] == x).all()
            assert file["x"].id.get_num_chunks() == 2


def test_a_copy_is_not_compared_by_the_reader_that_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, dest = tmp_path / "source.h5", tmp_path / "dest.h5"
    with h5py.File(source, "w") as file:
        create(file, (6, 9), (6, 9), (2, 2), "gpufetch")[...] = numbers((6, 9))
    read = Dataset.read

    def misread(self: Dataset, start: tuple[int, ...], shape: tuple[int, ...]) -> Any:
        values = read(self, start, shape)
        return values + 1 if self.memory == "numbers" else values

    monkeypatch.setattr(Dataset, "read", misread)
    with pytest.raises(RuntimeError, match="the copy differs from the source"):
        gf.hdf5.repack(source, dest)
    assert not dest.exists()
