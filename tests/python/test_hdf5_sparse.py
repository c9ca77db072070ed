"""gpufetch.hdf5.read with index arrays: the rows that they name are read, and not those between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import gpufetch as gf
from gpufetch import _core


@pytest.fixture
def nbytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each box that is read from now on."""
    counted: list[int] = []
    h5_read = _core.h5_read

    def counting(*arguments: Any, **options: Any) -> Any:
        values = h5_read(*arguments, **options)
        counted.append(values.nbytes)
        return values

    monkeypatch.setattr(_core, "h5_read", counting)
    return counted


@pytest.mark.parametrize("chunks", [(16, 50, 600), (1, 100, 300), None])
@pytest.mark.parametrize(
    ("key", "row_count", "width"),
    [
        (np.s_[[0, 399]], 2, 100),
        (np.s_[[399, 0, -1]], 2, 100),
        (np.s_[[[0], [399]], 20:70], 2, 50),
        (np.s_[[0, 399], [99, 0]], 2, 100),
        (np.s_[..., [0, 399], :, :], 2, 100),
        (np.s_[[0, 399], ::-3], 2, 100),
        (np.s_[np.arange(400) % 200 == 5], 2, 100),
        (np.s_[[3, 4, 6]], 4, 100),  # the box itself: 5 costs less than another read
        (np.s_[np.arange(0, 400, 2)], 399, 100),
    ],
    ids=repr,
)
def test_an_array_of_few_indices_reads_their_rows_alone(
    tmp_path: Path, nbytes_read: list[int], chunks: Any, key: Any, row_count: int, width: int
) -> None:
    x = np.random.default_rng(3).integers(0, 100, (400, 100, 600), np.int16)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=x, chunks=chunks)
    selected = gf.hdf5.read(tmp_path / "x.h5", "x", selection=key, device="cpu")
    assert selected.shape == x[key].shape
    assert selected.tobytes() == np.ascontiguousarray(x[key]).tobytes()
    assert sum(nbytes_read) == row_count * width * 600 * 2


def test_indices_along_a_later_axis_are_read_alone_where_that_is_less(
    tmp_path: Path, nbytes_read: list[int]
) -> None:
    x = np.arange(60 * 4000, dtype=np.int32).reshape(60, 4000)
    gf.hdf5.write(tmp_path / "x.h5", "x", x, chunks=(60, 10))
    key = np.s_[[0, 20], [3990, 5]]
    assert (gf.hdf5.read(tmp_path / "x.h5", "x", selection=key, device="cpu") == x[key]).all()
    assert nbytes_read == [21 * 4] * 2


def random_key(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    count = int(rng.integers(1, 5))
    key: list[Any] = []
    for length in shape:
        low = int(rng.integers(length))
        indices = rng.integers(-length, length, (count, 1)[: rng.integers(1, 3)])
        kinds: list[Any] = [indices, indices, slice(low, None, 2), low]
        key.append(kinds[rng.integers(4)])
    if rng.random() < 0.2:
        key[0] = rng.random(shape[0]) < 3 / shape[0]
    if rng.random() < 0.3:
        key.insert(int(rng.integers(4)), ...)
    return tuple(key)


def test_random_index_arrays_of_a_file_agree_with_numpy(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    x = rng.integers(0, 1 << 15, (60, 50, 40), np.int16)
    compared = 0
    with h5py.File(tmp_path / "x.h5", "w") as file:
        datasets = [
            file.create_dataset(f"x{i}", data=x, chunks=chunks)
            for i, chunks in enumerate([None, (7, 50, 9), (60, 5, 1), (1, 50, 40)])
        ]
        for _ in range(500):
            key = random_key(rng, x.shape)
            try:
                expected = x[key]
            except IndexError:  # shapes that do not fit one another
                continue
            for dataset in datasets:
                found = gf.hdf5.read(dataset, selection=key, device="cpu")
                assert found.shape == expected.shape, key
                assert found.tobytes() == np.ascontiguousarray(expected).tobytes(), key
                compared += 1
    assert compared > 1500
