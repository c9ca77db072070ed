"""Forked children: host memory alone works there, and what belongs to the parent says so."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from arrays import pool_used_nbytes
from forking import in_child, refused
from sanitizing import SANITIZED

import gpufetch as gf
import gpufetch.hdf5

# Newer releases of Python, and JAX, warn of a fork beside threads, which these tests are about.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning"),
]

ROWS = np.arange(64 * 32 * 32, dtype=np.float32).reshape(64, 32, 32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of chunks, of which the parent has read some on a device."""
    path = tmp_path / "rows.h5"
    gpufetch.hdf5.write(path, "rows", ROWS, chunks=(4, 32, 32))
    assert (gf.fetch(gpufetch.hdf5.read(path, "rows", device="host:0")) == ROWS).all()
    return path


# --- Host memory alone ---


def _read(path: Path) -> None:
    assert (gpufetch.hdf5.read(path, "rows", device="cpu") == ROWS).all()
    assert (gpufetch.hdf5.read(path, "rows", selection=5, device="cpu") == ROWS[5]).all()
    out = np.zeros_like(ROWS)
    gpufetch.hdf5.read(path, "rows", out=out)
    assert (out == ROWS).all()


def _write(path: Path) -> None:
    values = ROWS.astype(ml_dtypes.bfloat16)
    other = path.with_name("written.h5")
    gpufetch.hdf5.write(other, "values", values, chunks=(4, 32, 32))
    gpufetch.hdf5.write(other, "planes", ROWS[::-1, :, ::2], codec="bitshuffle-lz4")
    assert (gpufetch.hdf5.read(other, "values", device="cpu") == values).all()
    assert (gpufetch.hdf5.read(other, "planes", device="cpu") == ROWS[::-1, :, ::2]).all()


def _copy(path: Path) -> None:
    out = np.zeros((32, 32, 64), np.float64)
    gf.fetch(ROWS.T, out=out, dtype=np.float64)
    assert (out == ROWS.T).all()
    assert (gf.fetch_async(ROWS[1:]).result() == ROWS[1:]).all()
    tree = gf.fetch({"a": ROWS, "b": [ROWS[0], ROWS[::2]]})
    assert (tree["a"] == ROWS).all() and (tree["b"][1] == ROWS[::2]).all()


def _reduce(path: Path) -> None:
    assert gf.stats(ROWS).max == ROWS.max()
    assert gf.lazy(ROWS)[3:5].stats().min == ROWS[3].min()
    assert gf.overview(ROWS, shape=(1, 1, 1), method="max").values.item() == ROWS.max()


def _repack(path: Path) -> None:
    other = path.with_name("repacked.h5")
    gpufetch.hdf5.repack(path, other)
    assert (gpufetch.hdf5.read(other, "rows", device="cpu") == ROWS).all()


@pytest.mark.parametrize("work", [_read, _write, _copy, _reduce, _repack])
def test_a_forked_child_works_with_host_memory(path: Path, work: Callable[[Path], None]) -> None:
    in_child(lambda: work(path))


class _Rows:
    """As a data set of PyTorch's, whose loader reads an item at a time in forked workers."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, index: int) -> np.ndarray[Any, Any]:
        row = gpufetch.hdf5.read(self.path, "rows", selection=index, device="cpu")
        assert isinstance(row, np.ndarray)
        return row


def test_a_data_loaders_workers_read_while_the_parent_uses_the_device(path: Path) -> None:
    x = gf.to_device(ROWS, device="host:0")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        items = pool.imap(_Rows(path), range(64), chunksize=4)
        for index, row in enumerate(items):
            assert (row == ROWS[index]).all()
            assert (gf.fetch(x[index]) == row).all()


# --- What the parent writes meanwhile ---

# A thread of the parent writes, and is held up with the file open while the process forks. The
# child opens the file once it is finished, and ends with HDF5's exit handlers.
FORK_WITHIN_A_WRITE = """
import os, sys, threading
from pathlib import Path
import h5py, numpy as np
import gpufetch as gf
from gpufetch import _core
from gpufetch.hdf5 import _copy, _files

way, path = sys.argv[1], Path(sys.argv[2])
count = 5 if way == "repack" else 30
tree = {"a": np.arange(5000.0), **{f"k{i}": np.full(10, i) for i in range(count)}}
source = path.with_name("source.h5")
gf.hdf5.write(source, "t", tree)
is_open, goes_on = threading.Event(), threading.Event()

def held(call):
    def run(*args, **kwargs):
        done = call(*args, **kwargs)
        is_open.set()
        assert goes_on.wait(60)
        return done
    return run

if way == "repack":
    _copy._Copy._copy_elements = held(_copy._Copy._copy_elements)
else:
    _core.h5_write = held(_core.h5_write)
work = {
    "save": lambda: gf.hdf5.save(path, tree),
    "write": lambda: gf.hdf5.write(path, "t", tree),
    "repack": lambda: gf.hdf5.repack(source, path),
}[way]
read = {
    "save": lambda: gf.hdf5.load(path),
    "write": lambda: gf.hdf5.read(path, "t", device="cpu"),
    "repack": lambda: gf.hdf5.read(path, "t", device="cpu"),
}[way]
thread = threading.Thread(target=work)
thread.start()
assert is_open.wait(60)
finished, finish = os.pipe()
child = os.fork()
if child == 0:
    os.read(finished, 1)
    told_count = 0
    for check in (_files.check_readable, lambda path: None):  # or the name is given after the check
        _files.check_readable = check
        try:
            read()
        except gf.Error as error:
            told_count += "forked while" in str(error) and error.status == "GPUF_ERR_STATE"
    sys.exit(0 if told_count == 2 and gf.hdf5.read(source, "t/k3", device="cpu")[0] == 3 else 2)
goes_on.set()
thread.join()
before = path.read_bytes()
os.write(finish, b"x")
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert path.read_bytes() == before, "the child wrote to the file"
found = read()
assert all((found[key] == tree[key]).all() for key in tree)
"""


@pytest.mark.parametrize("way", ["save", "write", "repack"])
def test_a_child_that_was_forked_within_a_write_leaves_the_file_alone(
    tmp_path: Path, way: str
) -> None:
    program = [sys.executable, "-c", FORK_WITHIN_A_WRITE, way, str(tmp_path / "x.h5")]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


# --- What belongs to the parent ---


def test_a_forked_child_is_told_to_use_spawn(path: Path) -> None:
    x = gf.to_device(ROWS, device="host:0")
    lazy, handle = gf.lazy(x), gf.share(x)
    future = gf.fetch_async(x)
    calls: list[Callable[[], Any]] = [
        lambda: gf.fetch(x),
        lambda: gf.fetch([x]),
        lambda: gf.fetch_async(x),
        lambda: gf.to_device(ROWS),
        lambda: gf.stats(x),
        lambda: lazy.fetch(),
        lambda: lazy.overview(shape=(1, 1, 1)),
        future.result,
        future.wait,
        future.done,
        lambda: gpufetch.hdf5.read(path, "rows", device="host:0"),
        lambda: gpufetch.hdf5.write(path.with_name("x.h5"), "x", x),
        lambda: gf.share(x),
        lambda: gf.attach(handle),
        lambda: gf.unshare(handle),
    ]

    def work() -> None:
        for call in calls:
            refused(call)

    in_child(work)
    assert (future.result() == ROWS).all()
    assert gf.unshare(handle) == 0


def test_the_parents_pinned_memory_stays_the_parents() -> None:
    x = gf.to_device(ROWS, device="host:0")
    array = gf.fetch(x)
    used = pool_used_nbytes()
    assert used > 0

    def work() -> None:
        nonlocal array
        assert (array == ROWS).all()
        array[:] = -1
        del array
        gf.pool.trim()
        gf.pool.cap_nbytes = 0
        refused(lambda: gf.fetch(x))

    in_child(work)
    assert gf.pool.stats()["used_nbytes"] == used
    assert (array == ROWS).all() and (gf.fetch(x) == ROWS).all()


# --- While other threads are in the middle of copies ---

STRESS = """
import os, sys, threading
import numpy as np
import gpufetch as gf, gpufetch.hdf5
from forking import in_child, refused

path, count = sys.argv[1], int(sys.argv[2])
rows = np.arange(1 << 16, dtype="f4").reshape(64, -1)
x = gf.to_device(rows, device="host:0")
gpufetch.hdf5.write(path, "rows", rows, chunks=(4, 1024))
stop = threading.Event()
problems = []

def pinned(): assert (gf.fetch(x) == rows).all()
def pageable():
    out = np.zeros_like(rows)
    assert (gf.fetch(x, out=out) == rows).all()
def gathered(): assert (gf.fetch(x[:, ::-3]) == rows[:, ::-3]).all()
def uploaded(): gf.to_device(rows, device="host:1")
def read(): assert (gpufetch.hdf5.read(path, "rows", device="cpu") == rows).all()
def decoded(): gpufetch.hdf5.read(path, "rows", device="host:0")
def shared(): gf.unshare(gf.share(x))

def again(*calls):
    try:
        while not stop.wait(0.002):
            for call in calls:
                call()
    except BaseException as problem:
        problems.append(problem)

def child():
    refused(lambda: gf.fetch(x))
    assert (gf.fetch(rows[::-1]) == rows[::-1]).all()
    assert (gpufetch.hdf5.read(path, "rows", device="cpu") == rows).all()
    own = f"{path}.{os.getpid()}"
    gpufetch.hdf5.write(own, "rows", rows[:16], chunks=(4, 1024))
    assert (gpufetch.hdf5.read(own, "rows", device="cpu") == rows[:16]).all()
    os.unlink(own)

pairs = [(pinned, gathered), (pageable,), (read, uploaded), (decoded, shared)]
threads = [threading.Thread(target=again, args=pair) for pair in pairs]
for thread in threads:
    thread.start()
try:
    for _ in range(count):
        in_child(child)
finally:
    stop.set()
    for thread in threads:
        thread.join()
assert not problems, problems
"""


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's own locks do not survive such forks")
def test_forks_in_the_middle_of_copies_leave_working_children(tmp_path: Path) -> None:
    count = "200" if "GPUFETCH_TEST_ALL" in os.environ else "40"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", STRESS, str(tmp_path / "rows.h5"), count],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
