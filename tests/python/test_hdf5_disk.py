"""A full disk, as h5py's files meet it: RLIMIT_FSIZE stands in for it, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Prints a line for each thing that happens. With "room", the limit is lifted before the file is
# closed.
PROGRAM = """
import errno, resource, signal, sys
import h5py, numpy as np, gpufetch as gf

def limit(nbytes):
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, resource.RLIM_INFINITY))

def attempt(group, name, values):
    try:
        gf.hdf5.write(group, name, values)
        print("written")
    except gf.Error as error:
        assert error.native_code == errno.EFBIG, error.native_code
        print("refused" if "earlier write" in str(error) else "failed")

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path, room = sys.argv[1:]
large = np.random.default_rng(0).normal(size=(2000, 1000))
file = h5py.File(path, "w")
file["keep/x"] = np.arange(5.0)
file.flush()
limit(2_000_000)
attempt(file, "keep/new/x", large)
attempt(file, "small", large[:2])
second = h5py.File(path, "r+")
attempt(second, "small", large[:2])
attempt(file["keep"], "small", large[:2])
names = []
file.visit(names.append)
print(*names, *gf.hdf5.read(file, "keep/x", device="cpu"))
if room == "room":
    limit(resource.RLIM_INFINITY)
for opened in (second, file):
    try:
        opened.close()
        print("closed")
    except (OSError, RuntimeError):
        print("not closed")
limit(resource.RLIM_INFINITY)
path = path if room == "room" else path + ".other"
with h5py.File(path, "a") as again:
    attempt(again, "again", large)
with h5py.File(path) as again:
    print((again["again"][()] == large).all())
"""


# Writes to files by their paths.
BY_PATH = """
import errno, os, resource, signal, sys
import h5py, numpy as np, gpufetch as gf

def limit(nbytes):
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, resource.RLIM_INFINITY))

def attempt(call):
    try:
        return call()
    except gf.Error as error:
        assert error.native_code == errno.EFBIG and error.status == "GPUF_ERR_HDF5", error
        return str(error)

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path, how = sys.argv[1:]
large = np.random.default_rng(0).integers(0, 2**62, size=2000)
gf.hdf5.write(path, "old", np.arange(1000))
limit(os.path.getsize(path) + 100)
print(attempt(lambda: gf.hdf5.write(path + ".new", "x", large)))
print(os.path.exists(path + ".new"))
print(attempt(lambda: gf.hdf5.write(path, "x", large)))
limit(resource.RLIM_INFINITY)
print(attempt(lambda: gf.hdf5.write(path, "x", large)))
print(attempt(lambda: gf.hdf5.read(path, "old", device="cpu")))
if how == "other":
    os.replace(path, path + ".bad")
    gf.hdf5.write(path, "x", large)
else:
    with h5py.File(path + ".good", "w") as good:
        good["x"] = large
    with open(path + ".good", "rb") as good, open(path, "r+b") as bad:
        bad.truncate(0)
        bad.write(good.read())
print((attempt(lambda: gf.hdf5.read(path, "x", device="cpu")) == large).all())
sys.stdout.flush()
os._exit(0)
"""


# Values that HDF5 holds in memory until their datasets are closed.
NUMBERS = """
import os, resource, signal, sys
import h5py, numpy as np, gpufetch as gf

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path, what = sys.argv[1:]
file = h5py.File(path, "w", libver=None if what == "number" else "latest")
file["keep/x"] = np.arange(5.0)
file.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
written = {"number": 1.5, "tree": {"lr": 0.1, "steps": [1, 2.5]}}[what]
for name in ("a", "b"):
    try:
        gf.hdf5.write(file, name, written)
    except gf.Error as error:
        print("failed")
sys.stdout.flush()
os._exit(0)
"""


# Small objects that are overwritten in files that stay open, one after another, each of which may
# grow to another size.
OVERWRITTEN = """
import os, resource, signal, sys
import h5py, numpy as np, gpufetch as gf

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path, what = sys.argv[1:]
small = {
    "number": 1.5,
    "tree": {"lr": 0.1, "steps": [1, 2.5], "x": np.arange(4)},
    "text": {"name": "u", "none": None, "bytes": b"xy"},
}[what]
files = []
for most in range(100, 8001, 100):
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    files.append(h5py.File(f"{path}.{most}", "w"))
    files[-1]["keep"] = np.arange(5.0)
    files[-1].flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    failed = []
    for name in 8 * ("a", "b", "c"):
        try:
            gf.hdf5.write(files[-1], name, small, overwrite=True)
            failed.append(False)
        except (OSError, gf.Error):
            failed.append(True)
    if failed != sorted(failed):
        print("written after a failure")
print("lives")
sys.stdout.flush()
os._exit(0)
"""


# A file that takes a number of bytes: "write" to a new one, or "repack" to it.
SMALL = """
import errno, os, resource, signal, sys
import numpy as np, gpufetch as gf

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path, what = sys.argv[1:]
gf.hdf5.write(path, "x", np.random.default_rng(0).normal(size=20_000))
for most in (0, 1000, 50_000, 100_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    try:
        if what == "write":
            gf.hdf5.write(path + ".new", "x", np.arange(50_000.0) ** 0.5)
        else:
            gf.hdf5.repack(path, path + ".new")
    except (OSError, gf.Error) as error:
        code = error.errno if isinstance(error, OSError) else error.native_code
        print(code == errno.EFBIG, sorted(os.listdir(os.path.dirname(path))))
sys.stdout.flush()
os._exit(0)
"""


def run(path: Path, room: str, program: str = PROGRAM) -> list[str]:
    command = [sys.executable, "-c", program, str(path), room]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


SEEN = ["failed", "refused", "refused", "refused", "keep keep/x 0.0 1.0 2.0 3.0 4.0"]


def test_a_file_takes_no_more_writes_until_it_is_closed_and_opened_again(tmp_path: Path) -> None:
    assert run(tmp_path / "x.h5", "room") == [*SEEN, "closed", "closed", "written", "True"]


def test_without_room_another_file_can_still_be_written(tmp_path: Path) -> None:
    seen = run(tmp_path / "x.h5", "none")
    assert seen[: len(SEEN)] == SEEN and "not closed" in seen
    assert seen[-2:] == ["written", "True"]


@pytest.mark.parametrize("how", ["other", "same"])
def test_a_file_that_cannot_be_closed_is_refused_until_it_is_replaced(
    tmp_path: Path, how: str
) -> None:
    """By another file, or by other contents."""
    path = tmp_path / "x.h5"
    new, is_there, failed, *later, again = run(path, how, BY_PATH)
    assert "File too large" in new and is_there == "False"
    assert failed.startswith(f"writing 'x' to {path} failed (File too large)")
    assert "may be damaged" in failed and "write to a new file" in failed
    for message in later:
        assert message.startswith(f"{path} may be damaged") and "writing 'x'" in message
    assert len(later) == 2 and again == "True"


@pytest.mark.parametrize("what", ["number", "tree"])
def test_a_number_on_a_full_disk_is_refused_and_ends_nothing(tmp_path: Path, what: str) -> None:
    assert run(tmp_path / "numbers.h5", what, NUMBERS) == ["failed", "failed"]


@pytest.mark.parametrize("what", ["number", "tree", "text"])
def test_overwriting_on_a_full_disk_ends_nothing(tmp_path: Path, what: str) -> None:
    assert run(tmp_path / "small", what, OVERWRITTEN) == ["lives"]


@pytest.mark.parametrize("what", ["write", "repack"])
def test_a_new_file_without_room_is_an_error_with_errno_and_is_deleted(
    tmp_path: Path, what: str
) -> None:
    assert run(tmp_path / "old.h5", what, SMALL) == ["True ['old.h5']"] * 4
