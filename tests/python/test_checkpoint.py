"""gpufetch.Checkpoint: trees that come back, what becomes of failures, and threads."""

from __future__ import annotations

import logging
import os
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
from sanitizing import needs_deepbind

import gpufetch as gf

pytestmark = needs_deepbind

DTYPES = [np.float32, np.int16, bool, np.complex128, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]


def state(step: int = 0, device: str | None = None) -> dict[str, Any]:
    """A tree of all that may be in one; with `device`, half of its tensors lie there."""
    arrays = [(np.arange(6000) % 100 + step).astype(dtype).reshape(60, 100) for dtype in DTYPES]
    tensors: list[Any] = list(arrays)
    if device:
        tensors[::2] = [gf.to_device(array, device=device) for array in arrays[::2]]
    return {
        "layers": [{"weights": x, "bias": np.ones(3, np.float32)} for x in tensors],
        "pair": (np.zeros((2, 0)), np.float64(step)),
        "by number": {3: np.array(1), -1: "three"},
        "numbers": [1, 2**80, -7, 0.1, -0.0, float("inf"), 1 - 2j, True, None],
        "nan": struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0],
        "text": "zwölf\nlines",
        "bytes": b"\0\xff",
        "empty": {"dict": {}, "list": [], "tuple": ()},
        "transposed": np.asfortranarray(np.arange(12, dtype=">i4").reshape(3, 4)),
    }


def check_same(found: Any, expected: Any) -> None:
    """The same nesting, types and bits; tensors wherever they lie."""
    if isinstance(expected, dict):
        assert type(found) is dict and list(found) == list(expected)
        for key in expected:
            check_same(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert type(found) is type(expected) and len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            check_same(one, other)
    elif isinstance(expected, float):
        assert type(found) is type(expected) or isinstance(expected, np.generic)
        assert struct.pack("<d", found) == struct.pack("<d", expected)
    elif isinstance(expected, np.ndarray | gf.DeviceArray):
        one = gf.fetch(found) if isinstance(found, gf.DeviceArray) else found
        other = gf.fetch(expected) if isinstance(expected, gf.DeviceArray) else expected
        assert one.dtype == other.dtype.newbyteorder("=") and one.shape == other.shape
        assert one.tobytes() == other.astype(one.dtype).tobytes()
    else:
        assert type(found) is type(expected) and found == expected


@pytest.mark.parametrize("device", [None, "host:0"])
@pytest.mark.parametrize("compress", [True, False])
def test_a_tree_comes_back_bit_for_bit(tmp_path: Path, device: str | None, compress: bool) -> None:
    with gf.Checkpoint(tmp_path, "run", compress=compress) as checkpoint:
        assert checkpoint.load() is None and checkpoint.report.state == "none"
        for step in (10, 20, 30):
            assert checkpoint.save(step, state(step, device))
        report = checkpoint.wait()
        assert report.step == 30 and report.state == "written" and not report.message
        assert report.path == tmp_path / "run-000000000030.h5"
        assert report.file_nbytes == report.path.stat().st_size and report.ratio > 0
        assert report.stall > 0 and report.seconds > 0
        assert (report.device_nbytes > 0) == (report.mode == "device-copy") == (device is not None)
    assert sorted(path.name for path in tmp_path.glob("*.h5")) == [
        "run-000000000020.h5",
        "run-000000000030.h5",
    ]
    reader = gf.Checkpoint(tmp_path, "run")
    newest, older = reader.load(), reader.load(step=29)
    assert newest and older and (newest.step, older.step) == (30, 20) and not newest.skipped
    check_same(newest.tree, state(30))
    check_same(older.tree, state(20))
    with h5py.File(newest.path) as file:
        assert file["layers/0/weights"].shape == (60, 100)


@pytest.mark.parametrize("mode", ["device-copy", "device-encoded", "pinned"])
def test_what_is_saved_may_be_overwritten_at_once(tmp_path: Path, mode: Any) -> None:
    values = np.arange(300_000, dtype=np.float32)
    x = gf.to_device(values, device="host:0")
    on_cpu = values.copy()
    with gf.Checkpoint(tmp_path, "zeros") as zeros:
        zeros.save(0, {"x": np.zeros_like(values)})
    with gf.Checkpoint(tmp_path, mode=mode) as checkpoint:
        checkpoint.save(1, {"x": x, "cpu": on_cpu})
        on_cpu[:] = 0
        zeros.load(out={"x": x})
        assert checkpoint.wait().mode == mode
        found = checkpoint.load()
    np.testing.assert_array_equal(gf.fetch(x), 0)
    assert found
    check_same(found.tree, {"x": values, "cpu": values})


def test_tensors_are_filled_in_place(tmp_path: Path) -> None:
    with gf.Checkpoint(tmp_path) as checkpoint:
        checkpoint.save(5, {"a": [np.arange(5.0), np.arange(3)], "n": 7})
        checkpoint.wait()
        target = gf.to_device(np.zeros(5), device="host:0")
        found = checkpoint.load(device="host:0", out={"a": [target, None], "n": 0})
        assert found and found.tree["a"][0] is target and found.tree["n"] == 7
        np.testing.assert_array_equal(gf.fetch(target), np.arange(5.0))
        assert found.tree["a"][1].device == "host:0"
        for wrong, text in [
            ({"a": [target], "n": 0}, r"out\['a'\] is nested otherwise"),
            ({"b": [], "n": 0}, "out has no 'a'"),
            ({"a": {0: target, 1: None}, "n": 0}, r"out\['a'\] is nested otherwise"),
            ({"a": [np.zeros(4), None], "n": 0}, "5"),
            ({"a": [np.zeros(5, np.float32), None], "n": 0}, "float32"),
        ]:
            with pytest.raises(ValueError, match=text):
                checkpoint.load(out=wrong)


@pytest.mark.parametrize(
    ("tree", "kind", "text"),
    [
        (np.zeros(3), TypeError, "give a dict, list or tuple"),
        ({"a": [1, {"b": object()}]}, TypeError, r"tree\['a'\]\[1\]\['b'\]: "),
        ({"a/b": 1}, ValueError, "'a/b' cannot be the name"),
        ({"": 1}, ValueError, "cannot be the name"),
        ({1: 2, "a": 3}, TypeError, "all keys"),
        ({"gpufetch_checkpoint": np.zeros(3)}, ValueError, "the file's own dataset"),
        ({"x": "a\0b"}, ValueError, r"tree\['x'\]: the text .* NUL"),
        ([np.array(["text"])], TypeError, r"tree\[0\]: "),
    ],
)
def test_what_cannot_be_saved_is_named_and_costs_nothing(
    tmp_path: Path, tree: Any, kind: type[Exception], text: str
) -> None:
    with gf.Checkpoint(tmp_path) as checkpoint:
        with pytest.raises(kind, match=text):
            checkpoint.save(1, tree)
        loop: list[Any] = []
        loop.append(loop)
        with pytest.raises(ValueError, match="holds itself"):
            checkpoint.save(1, loop)
        assert checkpoint.save(1, {"x": np.zeros(3)})


def test_arguments_are_checked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        gf.Checkpoint(tmp_path / "nowhere")
    for wrong in ({"keep": -1}, {"mode": "fast"}, {"prefix": "a\0"}, {"host_max_nbytes": -1}):
        with pytest.raises(ValueError, match=r"keep|mode|prefix|host_max_nbytes"):
            gf.Checkpoint(tmp_path, **wrong)
    with gf.Checkpoint(tmp_path, "a/b") as checkpoint, pytest.raises(ValueError, match="slash"):
        checkpoint.save(0, {"x": 1})
    with gf.Checkpoint(tmp_path) as checkpoint:
        with pytest.raises(ValueError, match="step"):
            checkpoint.save(-1, {})
        checkpoint.save(3, {})
        with pytest.raises(ValueError, match=r"step 3 .* or set replace"):
            checkpoint.save(3, {"x": 1})
        with gf.Checkpoint(tmp_path) as second, pytest.raises(gf.Error, match="being written by"):
            second.save(4, {})


def test_a_step_is_replaced_when_asked_for(tmp_path: Path) -> None:
    with gf.Checkpoint(tmp_path, replace=True) as checkpoint:
        for value in range(3):
            checkpoint.save(1, {"x": np.full(3, value)})
        checkpoint.wait()
        found = checkpoint.load()
        assert found
        np.testing.assert_array_equal(found.tree["x"], [2, 2, 2])


def test_a_closed_one_is_closed(tmp_path: Path) -> None:
    checkpoint = gf.Checkpoint(tmp_path)
    checkpoint.save(1, {"x": 1})
    checkpoint.close()
    checkpoint.close()
    for use in (lambda: checkpoint.save(2, {}), checkpoint.wait, lambda: checkpoint.report):
        with pytest.raises(gf.Error, match="checkpoint is closed"):
            use()
    assert checkpoint.load() is not None  # reading needs no writer


FULL_DISK = """
import resource, signal, sys
import numpy as np
import gpufetch as gf
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
x = np.random.default_rng(1).integers(0, 256, 4_000_000, np.uint8)
checkpoint = gf.Checkpoint(sys.argv[1])
checkpoint.save(1, {"x": x})
checkpoint.wait()
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
checkpoint.save(2, {"x": x})
try:
    checkpoint.wait()
except OSError as error:
    print(error.errno, "000000000002" in str(error), checkpoint.report.state)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
checkpoint.save(3, {"x": x})
checkpoint.close()
print(checkpoint.load().step)
"""


def test_a_full_disk_costs_one_checkpoint(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, tmp_path],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.splitlines() == ["27 True failed", "3"]
    assert "checkpoint of step 2 failed" in done.stderr  # logged by the save after it


def test_a_damaged_one_is_skipped_and_told(tmp_path: Path) -> None:
    with gf.Checkpoint(tmp_path) as checkpoint:
        for step in (1, 2):
            checkpoint.save(step, {"x": np.arange(10_000) + step})
    newest = tmp_path / "checkpoint-000000000002.h5"
    content = bytearray(newest.read_bytes())
    with h5py.File(newest) as file:
        content[file["x"].id.get_chunk_info(0).byte_offset + 40] ^= 1
    newest.write_bytes(content)
    found = gf.Checkpoint(tmp_path).load()
    assert found and found.step == 1 and "step 2: " in found.skipped
    (tmp_path / "checkpoint-000000000001.h5").write_bytes(b"")
    with pytest.raises(gf.Error, match="none of the 2 checkpoints"):
        gf.Checkpoint(tmp_path).load()


def test_threads_that_save_take_turns_and_closing_waits_for_them(tmp_path: Path) -> None:
    checkpoint = gf.Checkpoint(tmp_path, keep=0, sync=False)
    x = np.arange(100_000)
    saved: list[int] = []
    ends: list[str] = []

    def save(first: int) -> None:
        for step in range(first, 10_000, 4):
            try:
                checkpoint.save(step, {"x": x + step})
            except gf.Error as error:
                ends.append(str(error))
                return
            saved.append(step)

    threads = [threading.Thread(target=save, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    while len(saved) < 20:
        checkpoint.wait(60)
    checkpoint.close()
    for thread in threads:
        thread.join(60)
    assert len(ends) == 4 and all("closed" in text for text in ends)
    assert len(list(tmp_path.glob("*.h5"))) == len(saved)
    found = checkpoint.load()
    assert found and found.step == max(saved)
    np.testing.assert_array_equal(found.tree["x"], x + found.step)


def test_a_killed_program_leaves_the_newest_finished_one(tmp_path: Path) -> None:
    program = """
import sys
import numpy as np
import gpufetch as gf
checkpoint = gf.Checkpoint(sys.argv[1])
for step in range(100_000):
    checkpoint.save(step, {"x": np.full(300_000, step)})
    checkpoint.wait()
    print(step, flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        finished = [int(process.stdout.readline()) for _ in range(5)][-1]
        process.send_signal(signal.SIGKILL)
    found = gf.Checkpoint(tmp_path).load()
    assert found and found.step >= finished and not found.skipped
    np.testing.assert_array_equal(found.tree["x"], np.full(300_000, found.step))


def test_a_forked_child_is_refused_and_disturbs_nothing(tmp_path: Path) -> None:
    checkpoint = gf.Checkpoint(tmp_path)
    checkpoint.save(1, {"x": np.arange(10)})
    child = os.fork()
    if child == 0:
        try:
            checkpoint.save(2, {})
        except gf.Error as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    checkpoint.save(2, {"x": np.arange(11)})
    checkpoint.close()
    found = checkpoint.load()
    assert found and found.step == 2


def test_a_failure_is_raised_at_the_end_of_a_with_unless_another_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(error: Exception | None) -> None:
        with gf.Checkpoint(tmp_path, "run") as checkpoint:
            (tmp_path / ".run-000000000007.h5.tmp").mkdir()
            try:
                checkpoint.save(7, {"x": np.zeros(3)})
                if error:
                    raise error
            finally:
                report = None
                while not report or report.state == "being written":
                    report = checkpoint.report
                (tmp_path / ".run-000000000007.h5.tmp").rmdir()

    with pytest.raises(OSError, match=r"\.run-000000000007"):
        fail(None)
    with caplog.at_level(logging.WARNING), pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError())
    assert ".run-000000000007" in caplog.text


def test_a_busy_writer_is_skipped_when_asked_for(tmp_path: Path) -> None:
    x = np.random.default_rng(1).integers(0, 256, 8_000_000, np.uint8)
    with gf.Checkpoint(tmp_path, skip_if_busy=True) as checkpoint:
        step = 0
        while checkpoint.save(step, {"x": x}):  # until it comes while one is being written
            step += 1
            assert step < 200
        assert step > 0 and checkpoint.wait().step == step - 1
    found = checkpoint.load()
    assert found and found.step == step - 1


ENDS = """
import sys
import numpy as np
import gpufetch as gf
checkpoint = gf.Checkpoint(sys.argv[1], sync=False)
x = np.random.default_rng(0).integers(0, 256, 10_000_000, np.uint8)
d_x = gf.to_device(x, device="host:0")
for step in range(2):
    checkpoint.save(step, {"x": x, "y": d_x})
holder = [checkpoint]
if sys.argv[2] == "cycle":
    holder.append(holder)
    del checkpoint
if sys.argv[2] == "exit":
    sys.exit(0)
"""


@pytest.mark.parametrize("way", ["end", "exit", "cycle"])
def test_a_program_that_ends_without_closing_leaves_what_is_finished(
    tmp_path: Path, way: str
) -> None:
    subprocess.run([sys.executable, "-c", ENDS, tmp_path, way], check=True, timeout=120)
    with gf.Checkpoint(tmp_path) as checkpoint:
        found = checkpoint.load()
        assert found and found.step >= 0 and not found.skipped
        checkpoint.save(7, {})  # the prefix is free
    assert not list(tmp_path.glob(".*.tmp"))


def test_tensors_of_a_checkpoint_are_datasets_like_others(tmp_path: Path) -> None:
    with gf.Checkpoint(tmp_path) as checkpoint:
        checkpoint.save(1, {"a": {"x": np.arange(5, dtype=ml_dtypes.bfloat16)}, "n": 3})
        path = checkpoint.wait().path
    found = gf.hdf5.read(path, "a/x", device="cpu")
    np.testing.assert_array_equal(found, np.arange(5, dtype=ml_dtypes.bfloat16))
    for group in ("a", "/"):  # which are no trees of gpufetch.hdf5.write's
        with pytest.raises(TypeError, match="not a dataset, nor a tree"):
            gf.hdf5.read(path, group)
