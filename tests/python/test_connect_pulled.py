"""What takes a tensor and reads its elements takes one of another process, which it pulls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("jupyter_client")

from sanitizing import needs_deepbind
from serving import needs_server

import gpufetch as gf

pytestmark = needs_server

CUBE = np.random.default_rng(5).normal(size=(4, 5, 6)).astype(np.float32)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[gf.Connection]:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    with gf.serve("pulled") as server:
        server.publish("u", gf.to_device(CUBE, device="host:0"))
        server.publish("b", gf.to_device(CUBE.astype(ml_dtypes.bfloat16), device="host:0"))
        server.publish("i", np.arange(7, dtype=np.int16))
        server.publish("0-d", gf.to_device(np.array(2.5), device="host:0"))
        with gf.connect("pulled", timeout=20) as connection:
            yield connection


def same(found: Any, expected: Any) -> bool:
    """Whether two arrays have the same shape, dtype and bytes."""
    return (
        type(found) is np.ndarray
        and (found.shape, found.dtype) == (expected.shape, expected.dtype)
        and found.tobytes() == np.ascontiguousarray(expected).tobytes()
    )


VIEWS = [
    lambda a: a,
    lambda a: a[1:, ::-2],
    lambda a: a.T,
    lambda a: a[:, 2].T[None],
    lambda a: a[1:1],
    lambda a: a[1:2, 2:3, 3:4].reshape(()),
]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", [None, "float64", "float16", "bfloat16", "int32", "float32"])
def test_fetch_pulls_and_converts(run: gf.Connection, view: Any, dtype: str | None) -> None:
    wanted = None if dtype is None else np.dtype(getattr(ml_dtypes, dtype, dtype))
    expected = view(CUBE) if wanted is None else view(CUBE).astype(wanted)
    array = view(run["u"])
    for order in (None, "C", "F", "A", "K"):
        found = gf.fetch(array, dtype=wanted, order=order)
        assert same(found, expected)
        assert found.flags.writeable
        if order in ("C", "F"):
            assert found.flags[f"{order}_CONTIGUOUS"]
    out = np.empty(expected.shape, expected.dtype)
    assert gf.fetch(array, out=out, dtype=wanted) is out
    assert same(out, expected)
    assert same(gf.fetch_async(array, dtype=wanted).result(timeout=20), expected)
    rows = np.zeros((*expected.shape, 2), expected.dtype)[..., 0]
    assert gf.fetch_async(array, out=rows, dtype=wanted).result(timeout=20) is rows
    assert same(np.array(rows), expected)


def test_dtypes_without_a_counterpart_stay(run: gf.Connection) -> None:
    assert same(gf.fetch(run["b"]), CUBE.astype(ml_dtypes.bfloat16))
    widened = CUBE.astype(ml_dtypes.bfloat16).astype(np.float64)
    assert same(gf.fetch(run["b"], dtype="float64"), widened)
    assert same(gf.fetch(run["i"], dtype="uint8"), np.arange(7, dtype=np.uint8))


def test_what_astype_advises_works(run: gf.Connection) -> None:
    with pytest.raises(TypeError, match=r"gpufetch.fetch\(a, dtype=\.\.\.\)"):
        run["u"].astype("float64")
    assert same(gf.fetch(run["u"], dtype="float64"), CUBE.astype(np.float64))


def test_what_does_not_fit_is_refused(run: gf.Connection) -> None:
    array = run["u"]
    with pytest.raises(ValueError, match="out has shape"):
        gf.fetch(array, out=np.empty((4, 5, 7), np.float32))
    with pytest.raises(ValueError, match="out has dtype"):
        gf.fetch(array, out=np.empty((4, 5, 6), np.float64))
    for fetch in (lambda out: gf.fetch(array, out=out), lambda out: array.fetch(out=out)):
        with pytest.raises(TypeError, match=r"list.*numpy\.ndarray"):
            fetch([1.0])
    read_only = np.empty((4, 5, 6), np.float32)
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        gf.fetch(array, out=read_only)
    with pytest.raises(ValueError, match="out has shape"):
        gf.fetch_async(array, out=np.empty(3, np.float32)).result(timeout=20)
    with pytest.raises(BufferError, match="fetch"):  # nobody can have the memory itself
        gf.asdevice(array)


def test_trees_pull(run: gf.Connection) -> None:
    local = np.arange(3)
    tree = {"u": run["u"], "rest": [run["b"][0], local, (None, "text", run["i"])]}
    expected = {
        "u": CUBE,
        "rest": [
            CUBE[0].astype(ml_dtypes.bfloat16),
            local,
            (None, "text", np.arange(7, dtype="i2")),
        ],
    }

    def check(found: Any, wanted: Any) -> None:
        if isinstance(wanted, np.ndarray):
            assert same(found, wanted)
            return
        assert type(found) is type(wanted)
        if isinstance(wanted, dict):
            assert list(found) == list(wanted)
            found, wanted = list(found.values()), list(wanted.values())
        if isinstance(wanted, list | tuple):
            for one, other in zip(found, wanted, strict=True):
                check(one, other)
        else:
            assert found == wanted

    check(gf.fetch(tree), expected)
    check(gf.fetch_async(tree).result(timeout=20), expected)
    check(gf.fetch_async([run["i"]]).result(timeout=20), [np.arange(7, dtype="i2")])
    wide = gf.fetch({"u": run["u"], "i": run["i"]}, dtype="float64")
    assert same(wide["u"], CUBE.astype(np.float64)) and same(wide["i"], np.arange(7.0))


def test_a_pull_in_flight_is_awaited(run: gf.Connection) -> None:
    async def wait() -> Any:
        return await asyncio.wait_for(gf.fetch_async({"u": run["u"][1]}), 20)

    assert same(asyncio.run(wait())["u"], CUBE[1])


def test_a_lost_server_is_named_by_what_pulls(run: gf.Connection) -> None:
    array = run["u"]
    run.close()
    for pull in (
        lambda: gf.fetch(array),
        lambda: gf.fetch([array]),
        lambda: gf.fetch_async(array).result(timeout=20),
    ):
        with pytest.raises(ValueError, match="closed: connect"):
            pull()


def test_files_take_what_another_process_has(run: gf.Connection, tmp_path: Path) -> None:
    path = tmp_path / "out.h5"
    gf.hdf5.write(path, "u", run["u"])
    gf.hdf5.write(path, "view", run["u"].T[::2], codec=None)
    gf.hdf5.write(path, "u", run["u"][:2], overwrite=True)
    gf.hdf5.write(path, "tree", {"b": run["b"], "n": 3})
    gf.hdf5.save(tmp_path / "saved.h5", {"u": run["u"], "list": [run["b"], 1.5]})
    with h5py.File(path) as file:
        assert same(file["u"][...], CUBE[:2])
        assert same(file["view"][...], np.ascontiguousarray(CUBE.T[::2]))
    assert same(gf.hdf5.read(path, "tree/b", device="cpu"), CUBE.astype(ml_dtypes.bfloat16))
    loaded = gf.hdf5.load(tmp_path / "saved.h5", device="cpu")
    assert same(loaded["u"], CUBE) and loaded["list"][1] == 1.5
    assert same(loaded["list"][0], CUBE.astype(ml_dtypes.bfloat16))
    with h5py.File(tmp_path / "async.h5", "w") as file:
        gf.hdf5.write_async(file, "u", run["u"]).result()
        assert same(file["u"][...], CUBE)


@needs_deepbind
def test_checkpoints_take_what_another_process_has(run: gf.Connection, tmp_path: Path) -> None:
    with gf.Checkpoint(tmp_path, "run") as checkpoint:
        checkpoint.save(1, {"u": run["u"], "b": [run["b"][::2]]})
        checkpoint.wait()
        state = checkpoint.load(device="cpu").tree
    assert same(state["u"], CUBE) and same(state["b"][0], CUBE[::2].astype(ml_dtypes.bfloat16))


def test_an_array_of_several_servers_is_pulled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    with gf.serve("rank-0") as first, gf.serve("rank-1") as second:
        for server, begin in ((first, 0), (second, 2)):
            part = gf.to_device(CUBE[begin : begin + 2], device="host:0")
            server.publish("u", part, start=(begin, 0, 0), global_shape=CUBE.shape)
        with gf.connect("rank-*", timeout=20) as run:
            assert same(gf.fetch(run["u"].T, dtype="float64"), CUBE.T.astype(np.float64))
            gf.hdf5.write(tmp_path / "joint.h5", "u", run["u"])
    assert same(gf.hdf5.read(tmp_path / "joint.h5", "u", device="cpu"), CUBE)


def test_a_callback_that_cannot_be_called_is_not_registered(run: gf.Connection) -> None:
    for future in (gf.fetch_async(CUBE), gf.fetch_async(run["u"])):
        with pytest.raises(TypeError, match="fn is None, which cannot be called"):
            future.add_done_callback(None)  # type: ignore[arg-type]
        assert same(future.result(timeout=20), CUBE)


def random_step(rng: np.random.Generator, shape: tuple[int, ...]) -> Callable[[Any], Any]:
    """Basic indexing, another order of the axes, or axes of length 1 more or fewer."""
    kind = rng.integers(8)
    if kind == 0:
        order = tuple(map(int, rng.permutation(len(shape))))
        return lambda a: a.transpose(order)
    if kind == 1 and 0 not in shape:
        ones = [length for length in shape if length != 1]
        for _ in range(int(rng.integers(3))):
            ones.insert(int(rng.integers(len(ones) + 1)), 1)
        return lambda a: a.reshape(tuple(ones))
    key: list[Any] = []
    for length in shape:
        if len(key) < 7 and rng.integers(3) == 0:
            key.append(None)
        step = int(rng.choice([1, 1, 1, 2, -1, -2, 10**30, -(2**62)]))
        ends = [None if rng.integers(2) else int(rng.integers(-2, length + 2)) for _ in "ab"]
        is_index = length > 0 and rng.integers(4) == 0
        key.append(int(rng.integers(-length, length)) if is_index else slice(*ends, step))
    if rng.integers(2):
        del key[int(rng.integers(len(key) + 1)) :]
    return lambda a: a[(*key, ...)]  # and so never a scalar


@pytest.mark.parametrize("seed", range(8))
def test_a_random_view_is_what_numpy_makes_of_it(run: gf.Connection, seed: int) -> None:
    """Axes that None made are sliced, emptied, and moved, too."""
    rng = np.random.default_rng(seed)
    tensors = {"u": CUBE, "i": np.arange(7, dtype=np.int16), "0-d": np.array(2.5)}
    emptied = 0
    for _ in range(60):
        name = str(rng.choice(list(tensors)))
        found, expected = run[name], tensors[name]
        for _ in range(int(rng.integers(1, 5))):
            step = random_step(rng, expected.shape)
            found, expected = step(found), step(expected)
            assert found.shape == expected.shape
        emptied += expected.size == 0
        assert same(gf.fetch(found), expected) and same(found.fetch(), expected)
        assert same(np.asarray(found), expected) and same(found.fetch_async().result(60), expected)
        assert same(found.fetch(out=np.full_like(expected, 9, order="C")), expected)
        assert same(gf.fetch(found, dtype="float64"), expected.astype("float64"))
        assert found.stats().count == expected.size
        assert found.histogram(3, range=(0, 1)).counts.sum() <= expected.size
        cells = found.overview(tuple(max(1, length) for length in expected.shape), "max").values
        assert cells.shape == expected.shape and (cells == expected).all()
    assert emptied
