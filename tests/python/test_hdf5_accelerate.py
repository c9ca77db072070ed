"""gpufetch.hdf5.accelerate: h5py's subscripts give what h5py gives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import h5py
import numpy as np
import pytest
from forking import in_child

import gpufetch as gf
from gpufetch.hdf5 import _accelerate

# More random datasets, of thirty subscripts each, after a change to what is accelerated.
DATASET_COUNT = int(os.environ.get("GPUFETCH_SUBSCRIPT_DATASETS", "40"))


@pytest.fixture(autouse=True)
def _of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_accelerate, "_NBYTES_MIN", 1)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many elements each accelerated read gave."""
    counts: list[int] = []
    read = _accelerate._read

    def counted(dataset: h5py.Dataset, args: Any) -> Any:
        values = read(dataset, args)
        if values is not None:
            counts.append(values.size)
        return values

    monkeypatch.setattr(_accelerate, "_read", counted)
    return counts


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
    names = ["?", "i1", "<u2", "<i4", ">i4", "<u8", "<f2", "<f4", "<f8", ">f8", "<c8", "<c16"]
    dtype = np.dtype(rng.choice(names))
    chunks = tuple(int(rng.integers(1, n + 1)) for n in shape)
    growing = {"maxshape": (None,) * ndim} if rng.random() < 0.3 else {}
    dataset = file.create_dataset(
        name,
        shape,
        dtype,
        chunks=chunks,
        fillvalue=dtype.type(rng.integers(0, 2)),
        fill_time=rng.choice(["alloc", "ifset", "never"]),
        **growing,
        **_filters(rng),
    )
    rows = int(rng.integers(0, shape[0] + 1))
    dataset[:rows] = rng.integers(0, 100, (rows, *shape[1:])).astype(dtype)


def _filters(rng: np.random.Generator) -> dict[str, Any]:
    if rng.random() < 0.4:
        return gf.hdf5.filter_options() | {"fletcher32": bool(rng.random() < 0.1)}
    kind = [{}, {"compression": "gzip"}, {"compression": "lzf"}][rng.choice(3, p=[0.2, 0.7, 0.1])]
    return kind | {name: bool(rng.random() < 0.4) for name in ("shuffle", "fletcher32")}


def test_random_subscripts_give_what_h5py_gives(tmp_path: Path, taken: list[int]) -> None:
    rng = np.random.default_rng(16)
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for i in range(DATASET_COUNT):
            _create(file, rng, str(i))
    with h5py.File(path) as file:
        for dataset in file.values():
            for _ in range(30):
                args = _arguments(rng, dataset.shape)
                expected = _outcome(dataset, args)
                with gf.hdf5.accelerate():
                    assert _outcome(dataset, args) == expected, (dataset, args)
    assert len(taken) > 5 * DATASET_COUNT


def test_a_file_open_for_writing_gives_what_was_just_written(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file, gf.hdf5.accelerate():
        x = file.create_dataset("x", (64,), "<i4", chunks=(8,), **gf.hdf5.filter_options())
        x[:] = 1
        assert (x[:] == 1).all()
        x[3:9] = 2
        assert x[:12].tolist() == [1, 1, 1, 2, 2, 2, 2, 2, 2, 1, 1, 1]


def test_one_handle_reads_what_another_one_of_the_file_has_just_written(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (64,), "<i4", chunks=(8,), compression="gzip")[:] = 1
    path = tmp_path / "x.h5"
    with h5py.File(path, "r+") as writer, h5py.File(path) as reader, gf.hdf5.accelerate():
        assert (reader["x"][:] == 1).all()
        writer["x"][3:9] = 2
        assert reader["x"][:12].tolist() == [1, 1, 1, 2, 2, 2, 2, 2, 2, 1, 1, 1]


KINDS = {
    "gpufetch": gf.hdf5.filter_options(),
    "gzip": {"compression": "gzip"},
    "shuffle and gzip": {"compression": "gzip", "shuffle": True},
    "fletcher32": {"fletcher32": True},
}


@pytest.fixture
def files(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """A file of each kind of chunks, whose elements are 0, 1, 2, ...; nothing is accelerated."""
    made = {}
    for kind, options in KINDS.items():
        made[kind] = tmp_path / f"{kind}.h5"
        with h5py.File(made[kind], "w") as file:
            x = file.create_dataset("x", (4096,), "<i4", chunks=(512,), **options)
            x[:] = np.arange(4096)
    yield made
    assert not _accelerate._running


def _damage(path: Path, rng: np.random.Generator) -> None:
    """Alter a byte of a chunk, or cut the file within one."""
    with h5py.File(path) as file:
        info = file["x"].id.get_chunk_info(int(rng.integers(8)))
    at = info.byte_offset + int(rng.integers(info.size))
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << int(rng.integers(8))
    path.write_bytes(data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_chunk_is_the_error_of_h5py(
    files: dict[str, Path], kind: str, taken: list[int]
) -> None:
    rng = np.random.default_rng(5)
    whole = files[kind].read_bytes()
    outcomes = set()
    for _ in range(40):
        files[kind].write_bytes(whole)
        _damage(files[kind], rng)
        with h5py.File(files[kind]) as file:
            expected = _outcome(file["x"], slice(None))
        with h5py.File(files[kind]) as file, gf.hdf5.accelerate():
            assert _outcome(file["x"], slice(None)) == expected
            assert _outcome(file["x"], slice(None)) == expected
        outcomes.add(expected[0])
    assert OSError in outcomes
    assert not taken or np.ndarray in outcomes


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_was_cut_short_is_the_error_of_h5py(
    files: dict[str, Path], kind: str, taken: list[int]
) -> None:
    path = files[kind]
    with h5py.File(path) as file, gf.hdf5.accelerate():
        last = max(file["x"].id.get_chunk_info(i).byte_offset for i in range(8))
        os.truncate(path, last + 3)
        with pytest.raises(OSError, match=r"(?i)read"):
            file["x"][:]
    assert not taken


def test_a_closed_file_is_the_error_of_h5py(files: dict[str, Path], taken: list[int]) -> None:
    def after_closing() -> Any:
        with h5py.File(files["gzip"]) as file:
            x = file["x"]
            x[:]
        return _outcome(x, slice(None))

    expected = after_closing()
    assert issubclass(expected[0], Exception)
    with gf.hdf5.accelerate():
        assert after_closing() == expected
    assert taken == [4096]


def test_threads_read_at_once_while_others_start_and_stop_it(
    files: dict[str, Path], taken: list[int]
) -> None:
    wrong: list[Any] = []

    def read(path: Path, seed: int) -> None:
        rng = np.random.default_rng(seed)
        with h5py.File(path) as file:
            x = file["x"]
            for _ in range(60):
                low, high = sorted(int(i) for i in rng.integers(0, 4097, 2))
                with gf.hdf5.accelerate():
                    if not np.array_equal(x[low:high], np.arange(low, high)):
                        wrong.append((path, low, high))

    paths = [path for path in files.values() for _ in range(2)]
    threads = [threading.Thread(target=read, args=(path, i)) for i, path in enumerate(paths)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and len(taken) > 300


def test_a_forked_child_reads_on(files: dict[str, Path], taken: list[int]) -> None:
    with gf.hdf5.accelerate(), h5py.File(files["gzip"]) as file:
        x = file["x"]
        assert x[:].sum() == sum(range(4096))

        def child() -> None:
            assert np.array_equal(x[1:], np.arange(1, 4096))
            assert np.array_equal(h5py.File(files["gpufetch"])["x"][:], np.arange(4096))

        in_child(child)
        assert np.array_equal(x[5:], np.arange(5, 4096))
    assert taken == [4096, 4091]


def test_what_else_reads_a_dataset_is_h5pys(files: dict[str, Path], taken: list[int]) -> None:
    with gf.hdf5.accelerate(), h5py.File(files["gzip"]) as file:
        x = file["x"]
        out = np.zeros(4096, "<i4")
        x.read_direct(out)
        assert out[-1] == 4095 and x.astype("f8")[1:].dtype == "f8" and len(list(x)) == 4096
        assert x[[3, 5]].tolist() == [3, 5] and x[np.arange(4096) < 3].tolist() == [0, 1, 2]
        assert x[::2].sum() == sum(range(0, 4096, 2)) and x[4095] == 4095
    assert taken == []


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


@pytest.mark.parametrize("kind", [TimeoutError, RuntimeError, LookupError])
def test_what_a_signals_handler_raises_comes_through(kind: type[Exception], tmp_path: Path) -> None:
    raised = 0

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal raised
        # Elsewhere, as in a weak reference's callback, Python itself may ignore what it raises.
        if frame is not None and frame.f_code is _accelerate._read.__code__:
            raised += 1
            raise kind("the handler's")

    values = np.arange(1 << 20, dtype="<i4").reshape(64, -1)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(1, 1 << 12), **gf.hdf5.filter_options())
    caught = 0
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with gf.hdf5.accelerate(), h5py.File(tmp_path / "x.h5") as file:
            x = file["x"]
            for number in range(400):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-4 + 2e-5 * (number % 100))
                    found = x[...]
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    assert np.array_equal(found, values)
                except kind as error:
                    caught += str(error) == "the handler's"
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert caught == raised > 0


@pytest.mark.parametrize("codec", ["gpufetch", "bitshuffle-lz4"])
def test_what_gpufetch_writes_is_accelerated(
    codec: Any, tmp_path: Path, taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_accelerate.h5z, "filter_avail", lambda number: True)
    values = np.arange(4096.0)
    gf.hdf5.write(tmp_path / "x.h5", "x", values, codec=codec)
    with gf.hdf5.accelerate(), h5py.File(tmp_path / "x.h5") as file:
        assert np.array_equal(file["x"][:], values)
    assert taken == [4096]


def test_a_filter_that_h5py_lacks_is_missing_when_accelerated_too(tmp_path: Path) -> None:
    """Where h5py finds no plugin of bitshuffle, it reads no chunk of it, large or small."""
    path = tmp_path / "x.h5"
    gf.hdf5.write(path, "x", np.arange(4096.0), codec="bitshuffle-lz4")
    program = (
        "import sys, h5py, numpy as np, gpufetch as gf\n"
        "from gpufetch.hdf5 import _accelerate\n"
        "_accelerate._NBYTES_MIN = 1\n"
        "for file in h5py.File(sys.argv[1]), h5py.File(sys.argv[1]):\n"
        "    try:\n"
        "        print(file['x'][:].sum())\n"
        "    except OSError as error:\n"
        "        print(error)\n"
        "    gf.hdf5.accelerate()\n"
    )
    environment = {**os.environ, "HDF5_PLUGIN_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    plain, accelerated = done.stdout.splitlines()
    assert plain == accelerated


def test_a_subclass_of_tuple_is_as_h5py_has_it(files: dict[str, Path], taken: list[int]) -> None:
    class Index(tuple[Any, ...]):
        pass

    with h5py.File(files["gzip"]) as file:
        expected = _outcome(file["x"], Index((slice(2, 4),)))
        with gf.hdf5.accelerate():
            assert _outcome(file["x"], Index((slice(2, 4),))) == expected
    assert taken == []
