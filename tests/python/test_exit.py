"""Programs that end in the middle of their work, with daemon threads that go on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import h5py
import pytest
from sanitizing import SANITIZED

COPIES = """
import gpufetch as gf, gpufetch.hdf5, h5py

rows = np.arange(1 << 18, dtype="f4").reshape(64, -1)
os.chdir(sys.argv[1])

def start():
    x = gf.to_device(rows, device="host:0")
    path = f"{os.getpid()}.h5"
    gpufetch.hdf5.write(path, "rows", rows, chunks=(1, 1 << 10))
    kept = [h5py.File(path), gf.share(x), gf.fetch(x)]
    kept += [gf.fetch_async(x, out=np.empty_like(rows)) for _ in range(8)]
    globals().update(kept=kept)

    def write():
        own = f"{os.getpid()}-{threading.get_ident()}.h5"
        gpufetch.hdf5.write(own, "rows", rows, chunks=(1, 1 << 10))
        os.unlink(own)

    def read(): gpufetch.hdf5.read(path, "rows", device="cpu")
    def decode(): gpufetch.hdf5.read(path, "rows", device="host:0")
    def fetch(): gf.fetch(x, out=np.empty_like(rows))
    def share(): gf.unshare(gf.share(x[::2], copy=True))
    def lend(): np.from_dlpack(gf.lazy(rows).fetch())

    return [(write, read), (read,), (decode, write), (fetch,), (share, lend)]
"""

SERVING = """
import gpufetch as gf
from gpufetch._remote import client  # what takes long to import

rows = np.arange(1 << 16, dtype="f4").reshape(64, -1)
os.environ["JUPYTER_RUNTIME_DIR"] = sys.argv[1]

def start():
    name = f"run{os.getpid()}"
    server = gf.serve(name)
    server.publish("rows", rows)
    run = gf.connect(name, timeout=10)
    array = run["rows"]
    globals().update(kept=[server, run])

    def fetch(): array.fetch()
    def stats(): run["rows"].stats()
    def step(): server.step(1)

    return [(fetch, stats), (step,)]
"""

# Each child ends as a program does that comes to its last line.
PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
{start}
def again(calls):
    while True:
        for call in calls:
            call()

for i in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        break
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGABRT)
            deadline += 60
        time.sleep(0.005)
    assert os.waitstatus_to_exitcode(ended[1]) == 0, (i, ended[1])
else:
    os._exit(0)
threading.excepthook = lambda _: None  # the main thread takes what the others use
for calls in start():
    threading.Thread(target=again, args=[calls], daemon=True).start()
time.sleep(0.01 + 0.01 * (i % 5))
"""


@pytest.mark.parametrize(
    ("start", "count"), [(COPIES, 50), (SERVING, 10)], ids=["copies", "serving"]
)
def test_a_program_ends_in_the_middle_of_its_work(tmp_path: Path, start: str, count: int) -> None:
    if start is SERVING:
        pytest.importorskip("jupyter_client")
        from server_build import built_with_server

        if not built_with_server():
            pytest.skip("built without libzmq, jansson or libcrypto")
    if SANITIZED:
        count //= 5
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            PROGRAM.format(start=start),
            str(tmp_path),
            str(count),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr


FINALIZING = """
import os, sys
import numpy as np
import gpufetch.hdf5

os.chdir(sys.argv[1])
old, new = np.zeros(10), np.ones(10)
for path in ("save.h5", "write.h5", "repack.h5"):
    gpufetch.hdf5.save(path, {"x": old})
gpufetch.hdf5.save("source.h5", {"x": new})

def save(): gpufetch.hdf5.save("save.h5", {"x": new}, overwrite=True)
def write(): gpufetch.hdf5.write("write.h5", "x", new, overwrite=True)
def repack(): gpufetch.hdf5.repack("source.h5", "repack.h5", overwrite=True)

class AtTheEnd:
    def __del__(self, is_finalizing=sys.is_finalizing, works=(save, write, repack)):
        assert is_finalizing()
        for work in works:
            try:
                work()
            except Exception as error:
                print(f"{work.__name__}.h5 failed: {error}", flush=True)
            else:
                print(f"{work.__name__}.h5 done", flush=True)

kept = AtTheEnd()
"""


def test_files_that_finalizers_write_at_exit_are_whole_or_as_they_were(tmp_path: Path) -> None:
    """No other thread runs any more, and waiting for one hung the program."""
    done = subprocess.run(
        [sys.executable, "-c", FINALIZING, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stderr
    for line in lines:
        path, outcome = line.split()[:2]
        with h5py.File(tmp_path / path) as file:
            assert file["x"][()].tolist() == [outcome == "done"] * 10, line
