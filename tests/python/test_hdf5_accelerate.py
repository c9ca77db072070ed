"""gpufetch.hdf5.accelerate: h5py's subscripts give what h5py gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import gpufetch as gf
from gpufetch.hdf5 import _accelerate


def _outcome(dataset: h5py.Dataset, args: Any) -> Any:
    try:
        values = dataset[args]
    except Exception as error:
        return type(error), str(error)
    array = np.asarray(values)
    return type(values), array.dtype, array.shape, str(array.flags), array.tobytes()


def _argument(rng: np.random.Generator, extent: int) -> Any:
    low, high = sorted(int(i) for i in rng.integers(-extent - 3, extent + 4, 2))
    return [
        slice(None),
        slice(low, high),
        slice(low, None, int(rng.integers(1, 3))),
        low,
        np.int64(high),
        [0, 1],
        np.arange(extent) % 2 == 0,
        True,
        1.5,
    ][rng.choice(9, p=[0.3, 0.3, 0.1, 0.1, 0.04, 0.04, 0.04, 0.04, 0.04])]


def _arguments(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    args = [_argument(rng, extent) for extent in shape[: rng.integers(0, len(shape) + 1)]]
    if rng.random() < 0.4:
        args.insert(int(rng.integers(0, len(args) + 1)), Ellipsis)
    return args[0] if len(args) == 1 and rng.random() < 0.5 else tuple(args)


def _create(file: h5py.File, rng: np.random.Generator, name: str) -> None:
    ndim = int(rng.integers(1, 4))
    shape = tuple(int(n) for n in rng.integers(1, 40, ndim))
    dtype = np.dtype(rng.choice(["i1", "<u2", "<i4", ">i4", "<u8", "<f2", "<f4", "<f8", ">f8"]))
    chunks = tuple(int(rng.integers(1, n + 1)) for n in shape)
    growing = {"maxshape": (None,) * ndim} if rng.random() < 0.3 else {}
    options = gf.hdf5.filter_options() if rng.random() < 0.8 else {"compression": "gzip"}
    dataset = file.create_dataset(
        name, shape, dtype, chunks=chunks, fillvalue=rng.integers(0, 9), **growing, **options
    )
    rows = int(rng.integers(0, shape[0] + 1))
    dataset[:rows] = rng.integers(0, 100, (rows, *shape[1:])).astype(dtype)


def test_random_subscripts_give_what_h5py_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(16)
    taken = 0
    read = _accelerate._read

    def counted(dataset: h5py.Dataset, args: Any) -> Any:
        nonlocal taken
        values = read(dataset, args)
        taken += values is not None
        return values

    monkeypatch.setattr(_accelerate, "_NBYTES_MIN", 1)
    monkeypatch.setattr(_accelerate, "_read", counted)
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for i in range(60):
            _create(file, rng, str(i))
    with h5py.File(path) as file:
        for dataset in file.values():
            for _ in range(30):
                args = _arguments(rng, dataset.shape)
                expected = _outcome(dataset, args)
                with gf.hdf5.accelerate():
                    assert _outcome(dataset, args) == expected, (dataset, args)
    assert taken > 200


def test_a_file_open_for_writing_gives_what_was_just_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_accelerate, "_NBYTES_MIN", 1)
    with h5py.File(tmp_path / "x.h5", "w") as file, gf.hdf5.accelerate():
        x = file.create_dataset("x", (64,), "<i4", chunks=(8,), **gf.hdf5.filter_options())
        x[:] = 1
        assert (x[:] == 1).all()
        x[3:9] = 2
        assert x[:12].tolist() == [1, 1, 1, 2, 2, 2, 2, 2, 2, 1, 1, 1]


def test_a_damaged_chunk_is_the_error_of_h5py(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_accelerate, "_NBYTES_MIN", 1)
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", (64,), "<i4", chunks=(8,), **gf.hdf5.filter_options())
        x[:] = np.arange(64)
        info = x.id.get_chunk_info(5)
    with path.open("r+b") as raw:
        raw.seek(info.byte_offset + info.size - 1)
        last = raw.read(1)[0]
        raw.seek(-1, 1)
        raw.write(bytes([last ^ 255]))
    with h5py.File(path) as file:
        expected = _outcome(file["x"], slice(None))
        assert expected[0] is OSError
        with gf.hdf5.accelerate():
            assert _outcome(file["x"], slice(None)) == expected
            assert file["x"][:40].tolist() == list(range(40))


def test_it_ends_when_each_of_them_is_stopped() -> None:
    own = h5py.Dataset.__getitem__
    first = gf.hdf5.accelerate()
    with gf.hdf5.accelerate():
        first.stop()
        first.stop()
        assert h5py.Dataset.__getitem__ is not own
    assert h5py.Dataset.__getitem__ is own


def test_a_function_that_another_package_puts_over_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.arange(4)
    monkeypatch.setattr(h5py.Dataset, "__getitem__", h5py.Dataset.__getitem__)
    calls = []
    acceleration = gf.hdf5.accelerate()
    under = h5py.Dataset.__getitem__

    def over(self: h5py.Dataset, args: Any, new_dtype: Any = None) -> Any:
        calls.append(args)
        return under(self, args, new_dtype)

    h5py.Dataset.__getitem__ = over
    acceleration.stop()
    assert h5py.Dataset.__getitem__ is over
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["x"][1:3].tolist() == [1, 2]
    assert calls == [slice(1, 3)]
