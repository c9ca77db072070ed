"""gpufetch.hdf5.write_async: futures that are polled, waited for, dropped, or have a thread."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest

import gpufetch as gf
from gpufetch.hdf5._binding import phil


@pytest.fixture
def file(tmp_path: Path) -> Any:
    with h5py.File(tmp_path / "file.h5", "w") as opened:
        yield opened


def values(step: int = 0) -> Any:
    x = np.arange(200 * 3000, dtype=np.float32).reshape(200, 3000)
    return np.sin(x / 100) + np.float32(step)


def finish(future: gf.hdf5.WriteFuture, way: str) -> h5py.Dataset:
    if way == "poll":
        while not future.done():
            pass
    if way == "copied":
        future.wait_copied(60)
    found = future.result(60)
    assert future.done()
    return found


@pytest.mark.parametrize("way", ["poll", "wait", "copied"])
@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize("device", [None, "host:0"])
def test_a_write_is_that_of_write(
    file: h5py.File, way: str, thread: bool, device: str | None
) -> None:
    x: Any = values()
    if device:
        x = gf.to_device(x, device=device)
    future = gf.hdf5.write_async(file, "a/x", x, chunks=(16, 3000), thread=thread)
    found = finish(future, way)
    assert found.name == "/a/x" and found.chunks == (16, 3000)
    np.testing.assert_array_equal(found[:], values())
    typed = np.arange(9).astype(ml_dtypes.bfloat16)
    finish(gf.hdf5.write_async(file, "typed", typed, codec=None, thread=thread), way)
    np.testing.assert_array_equal(gf.hdf5.read(file, "typed", device="cpu"), typed)
    assert finish(gf.hdf5.write_async(file, "n", 7, thread=thread), way)[()] == 7


@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
def test_steps_are_appended_while_earlier_ones_are_written(
    file: h5py.File, thread: bool, rows: int
) -> None:
    dataset = file.create_dataset(
        "u", (0, 300, 40), np.float32, maxshape=(None, 300, 40), chunks=(rows, 300, 40)
    )
    state = gf.to_device(np.zeros((300, 40), np.float32), device="host:0")
    futures = []
    for step in range(8):
        gf.hdf5.read(_constant(file, step), out=state)
        dataset.resize(step + 1, axis=0)
        futures.append(gf.hdf5.write_async(dataset, None, state, start=(step, 0, 0), thread=thread))
        futures[-1].wait_copied(60)
    for future in reversed(futures):
        assert future.result(60) == dataset
    np.testing.assert_array_equal(dataset[:, 7, 3], np.arange(8))
    assert (dataset[:] == np.arange(8)[:, None, None]).all()


def _constant(file: h5py.File, value: int) -> h5py.Dataset:
    return file.create_dataset(f"constant {value}", data=np.full((300, 40), value, np.float32))


def test_arguments_are_checked_at_once(file: h5py.File) -> None:
    dataset = file.create_dataset("there", (4, 5), np.float32)
    x = np.zeros((4, 5), np.float32)
    wrong: list[tuple[type[Exception], str, tuple[Any, ...], dict[str, Any]]] = [
        (ValueError, "exists already", (file, "there", x), {}),
        (TypeError, "name is of type", (file, None, x), {}),
        (ValueError, "dataset already", (dataset, "there", x), {}),
        (ValueError, "start is for", (file, "x", x), {"start": (0, 0)}),
        (ValueError, "2 axes", (dataset, None, x), {"start": (0,)}),
        (ValueError, "do not lie", (dataset, None, x), {"start": (1, 0)}),
        (ValueError, "3 axes", (dataset, None, x[None]), {"start": (0, 0)}),
        (ValueError, "shape", (dataset, None, x[:2]), {}),
        (ValueError, "float64", (dataset, None, x.astype(float)), {}),
        (ValueError, "codec", (file, "x", x), {"codec": "zip"}),
        (ValueError, "max_nbytes", (file, "x", x), {"max_nbytes": -1}),
        (TypeError, "dest is of type", ("file.h5", "x", x), {}),
        (TypeError, "dict", (file, "x", {"a": x}), {}),
    ]
    for kind, text, arguments, options in wrong:
        with pytest.raises(kind, match=text):
            gf.hdf5.write_async(*arguments, **options)
    assert list(file) == ["there"]


def test_a_future_that_is_dropped_is_given_up(file: h5py.File) -> None:
    held = [gf.hdf5.write_async(file, "x", values(), max_nbytes=1)]
    with pytest.warns(ResourceWarning, match="of 'x'> was dropped"):
        held.clear()
    assert "x" not in file
    future = gf.hdf5.write_async(file, "x", values(), max_nbytes=1)
    future.close()
    future.close()
    assert "x" not in file and future.done()
    with pytest.raises(gf.Error, match="write is closed"):
        future.result()


def test_what_others_put_under_the_name_stays(file: h5py.File) -> None:
    x, other = values(), values() + 1
    future = gf.hdf5.write_async(file, "x", x, max_nbytes=1)
    gf.hdf5.write(file, "x", other, overwrite=True)
    with pytest.warns(ResourceWarning, match="was dropped"):
        del future
    np.testing.assert_array_equal(file["x"][()], other)
    future = gf.hdf5.write_async(file, "y", x, max_nbytes=1)
    gf.hdf5.write(file, "y", other, overwrite=True)
    with pytest.raises(gf.Error, match="'y' was deleted while it was written"):
        future.result()
    np.testing.assert_array_equal(file["y"][()], other)


def test_a_future_that_an_exception_drops_leaves_it_and_the_lock(file: h5py.File) -> None:
    found: list[float] = []

    def fail() -> object:
        return [gf.hdf5.write_async(file, "x", values()), 1 / 0]

    file["y"] = 7.0
    with pytest.warns(ResourceWarning), pytest.raises(ZeroDivisionError):
        fail()
    thread = threading.Thread(target=lambda: found.append(file["y"][()]), daemon=True)
    thread.start()
    thread.join(30)
    assert found == [7.0]
    assert "x" not in file


def test_a_thread_finishes_what_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    file = h5py.File(path, "w")
    future = gf.hdf5.write_async(file, "x", values(), thread=True)
    finisher = future._finisher
    assert finisher
    del future
    finisher.wait_done()
    file.close()
    np.testing.assert_array_equal(gf.hdf5.read(path, "x", device="cpu"), values())


def test_a_file_that_is_closed_meanwhile_is_told(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "file.h5", "w") as file:
        future = gf.hdf5.write_async(file, "x", values(), max_nbytes=1)
        second = gf.hdf5.write_async(file, "y", values(), max_nbytes=1)
    for _ in range(2):
        with pytest.raises(gf.Error, match="'/x' was closed before its write was finished"):
            future.result()
    assert future.done()
    second.close()
    with h5py.File(tmp_path / "file.h5") as again:
        assert set(again) == {"x", "y"}


def test_a_failure_of_a_thread_is_logged_and_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = h5py.File(tmp_path / "file.h5", "w")
    dataset = file.create_dataset("x", (200, 3000), np.float32, maxshape=(None, 3000), chunks=True)
    with phil:  # the thread hands nothing over before the dataset has shrunk
        future = gf.hdf5.write_async(dataset, None, values(), thread=True, max_nbytes=1)
        dataset.resize(10, axis=0)
    with pytest.raises(ValueError, match="made smaller"):
        future.result(60)
    assert "writing <gpufetch.hdf5.WriteFuture of a region> failed: dataset" in caplog.text
    file.close()


HELD = """
import sys
import h5py, numpy as np
import gpufetch as gf
from gpufetch.hdf5._binding import phil
x = np.sin(np.arange(600_000, dtype=np.float32)).reshape(200, 3000)
with h5py.File(sys.argv[1], "w") as file:
    file["y"] = 1
    def wait(*_):
        future = gf.hdf5.write_async(file, "x", x, thread=True, max_nbytes=1)
        for call in (future.result, lambda: future.wait_copied(20), future.close):
            try:
                call()
            except RuntimeError as error:
                print(error)
        print(future.done())
        return future
    if sys.argv[2] == "visititems":
        future = file.visititems(wait)
    else:
        with phil:
            future = wait()
    assert np.array_equal(future.result(60)[:], x)
    with phil:  # which no thread needs any more
        future.wait_copied()
        future.result()
        future.close()
"""


@pytest.mark.parametrize("way", ["visititems", "phil"])
def test_waiting_for_a_thread_with_the_lock_that_it_needs_is_refused(
    tmp_path: Path, way: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELD, tmp_path / "file.h5", way],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    *refused, is_done = done.stdout.splitlines()
    assert len(refused) == 3 and is_done == "False"
    for line in refused:
        assert line.startswith("<gpufetch.hdf5.WriteFuture of 'x'> is finished by a thread that")
        assert line.endswith("wait after that, or write without thread=True")


EXIT = """
import sys
import h5py, numpy as np
import gpufetch as gf
file = h5py.File(sys.argv[1], "w")
x = np.arange(600_000, dtype=np.float32).reshape(200, 3000)
d_x = gf.to_device(x, device="host:0")
kept = [gf.hdf5.write_async(file, f"given up {i}", y, max_nbytes=1) for i, y in enumerate((x, d_x))]
if sys.argv[2] == "threads":
    for i, y in enumerate((x, d_x)):
        gf.hdf5.write_async(file, f"finished {i}", y, thread=True)
if sys.argv[2] == "error":
    raise SystemError("on purpose")
"""


@pytest.mark.parametrize("way", ["end", "threads", "error"])
def test_the_interpreters_end_finishes_those_with_a_thread(tmp_path: Path, way: str) -> None:
    path = tmp_path / "file.h5"
    done = subprocess.run(
        [sys.executable, "-c", EXIT, path, way], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == (way == "error"), done.stderr
    assert ("on purpose" in done.stderr) == (way == "error") and "core" not in done.stderr
    with h5py.File(path) as file:
        finished = ["finished 0", "finished 1"] if way == "threads" else []
        assert list(file) == finished
        for name in finished:
            np.testing.assert_array_equal(file[name][-1], np.arange(597_000, 600_000))


FORK = """
import os, sys
import h5py, numpy as np
import gpufetch as gf
file = h5py.File(sys.argv[1], "w")
x = np.arange(600_000, dtype=np.float32).reshape(200, 3000)
future = gf.hdf5.write_async(file, "x", x, max_nbytes=1)
futures = [future, gf.hdf5.write_async(file, "y", x, thread=True)]
child = os.fork()
if child == 0:
    for future in futures:
        for use in (future.result, future.done, future.wait_copied, future.close):
            try:
                use()
            except gf.Error as error:
                if "forked" in str(error):
                    continue
            os._exit(1)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(all((future.result()[:] == x).all() for future in futures))
"""


def test_a_forked_child_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, tmp_path / "file.h5"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "0\nTrue\n", done.stderr


def test_other_threads_use_h5py_meanwhile(file: h5py.File) -> None:
    other = file.create_dataset("other", data=np.arange(1000))
    ended = threading.Event()
    counts: list[int] = []

    def read() -> None:
        while not ended.is_set():
            counts.append(int(other[::7].sum()))

    reader = threading.Thread(target=read)
    reader.start()
    futures = [
        gf.hdf5.write_async(file, f"x{i}", values(i), thread=i % 2 == 0, max_nbytes=100_000)
        for i in range(8)
    ]
    for i, future in enumerate(futures):
        np.testing.assert_array_equal(future.result(120)[:], values(i))
    ended.set()
    reader.join(60)
    assert counts and set(counts) == {int(np.arange(1000)[::7].sum())}
