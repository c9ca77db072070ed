"""gpufetch.Checkpoint: trees that come back, what becomes of failures, and threads."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
from failing_calls import needs_failing_calls, run_with_failing_calls
from sanitizing import needs_deepbind
from trees import check_same_tree, tree_of_everything

import gpufetch as gf
from gpufetch import _core
from gpufetch.hdf5._ls import ls_lines

pytestmark = needs_deepbind


@pytest.mark.parametrize("device", [None, "host:0"])
@pytest.mark.parametrize("compress", [True, False])
def test_a_tree_comes_back_bit_for_bit(tmp_path: Path, device: str | None, compress: bool) -> None:
    with gf.Checkpoint(tmp_path, "run", compress=compress) as checkpoint:
        assert checkpoint.load() is None and checkpoint.report.state == "none"
        for step in (10, 20, 30):
            assert checkpoint.save(step, tree_of_everything(step, device))
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
    check_same_tree(newest.tree, tree_of_everything(30))
    check_same_tree(older.tree, tree_of_everything(20))
    with h5py.File(newest.path) as file:
        assert file["layers/0/weights"].shape == (60, 100)


@pytest.mark.parametrize("device", [None, "host:0"])
def test_a_tree_comes_back_from_shards(tmp_path: Path, device: str | None) -> None:
    values = np.arange(3_000_000, dtype=np.float32).reshape(1500, 2000)
    large = values if device is None else gf.to_device(values, device=device)
    with gf.Checkpoint(tmp_path, "run", shards=3) as checkpoint:
        for step in (10, 20, 30):
            tree = {"all": tree_of_everything(step, device), "large": large}
            assert checkpoint.save(step, tree)
        report = checkpoint.wait()
        files = sorted(tmp_path.glob("run-000000000030.*h5"))
        assert len(files) == 4 and report.path in files and not report.message
        assert report.file_nbytes == sum(file.stat().st_size for file in files)
    assert len(list(tmp_path.glob("*.h5"))) == 8
    newest = gf.Checkpoint(tmp_path, "run").load()
    assert newest and newest.step == 30 and newest.path == report.path
    check_same_tree(newest.tree["all"], tree_of_everything(30))
    assert np.array_equal(newest.tree["large"], values)
    with h5py.File(report.path) as file:  # the master alone, by HDF5
        assert file["large"].is_virtual and np.array_equal(file["large"][:], values)
        assert np.isnan(file["large"].fillvalue)
    loaded = gf.hdf5.load(report.path)
    assert np.array_equal(loaded["large"], values)
    files.remove(report.path)
    files[1].rename(tmp_path / "elsewhere")
    older = gf.Checkpoint(tmp_path, "run").load()
    assert older and older.step == 20 and files[1].name in older.skipped
    with pytest.raises(ValueError, match="shards is 257"):
        gf.Checkpoint(tmp_path, "run", shards=257)


def test_a_mode_that_encodes_is_refused_without_compression(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="compress is False: choose one"):
        gf.Checkpoint(tmp_path, mode="device-encoded", compress=False)


@pytest.mark.parametrize("mode", ["auto", "device-copy", "device-encoded", "pinned"])
def test_the_first_tree_may_have_no_elements_on_the_device(tmp_path: Path, mode: Any) -> None:
    full = np.arange(12, dtype=np.float32)
    with gf.Checkpoint(tmp_path, mode=mode) as checkpoint:
        checkpoint.save(1, {"x": gf.to_device(np.zeros((0, 3), np.float32))})
        checkpoint.save(2, {"x": gf.to_device(full)})
    restart = gf.Checkpoint(tmp_path).load()
    assert restart is not None and restart.step == 2
    np.testing.assert_array_equal(restart.tree["x"], full)


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
    check_same_tree(found.tree, {"x": values, "cpu": values})


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


def test_tensors_to_fill_that_overlap_are_refused(tmp_path: Path) -> None:
    with gf.Checkpoint(tmp_path) as checkpoint:
        checkpoint.save(1, {"a": np.arange(5.0), "b": np.arange(9.0, 14)})
        checkpoint.wait()
        row = np.full(10, -1.0)
        for b in (row[3:8], gf.Part(row[3:8], start=(0,), global_shape=(5,))):
            with pytest.raises(ValueError, match=r"out\['a'\] and out\['b'\] share memory"):
                checkpoint.load(out={"a": row[:5], "b": b})
            assert (row == -1).all()
        checkpoint.load(out={"a": row[:5], "b": row[5:]})
        assert row.tolist() == [0, 1, 2, 3, 4, 9, 10, 11, 12, 13]


def test_a_tensor_that_is_there_twice_is_filled_with_one_box(tmp_path: Path) -> None:
    def part(tensor: Any, start: int) -> gf.Part:
        return gf.Part(tensor, start=(start,), global_shape=(5,))

    with gf.Checkpoint(tmp_path) as checkpoint:
        checkpoint.save(1, {"a": np.arange(5.0), "b": np.arange(5.0)})
        checkpoint.wait()
        row = np.full(5, -1.0)
        for a, b in [
            (part(row[:2], 0), part(row[:2], 3)),
            (part(row, 0), row),
            (row, gf.Part(row, start=(0,), global_shape=(9,))),
        ]:
            with pytest.raises(ValueError, match=r"out\['a'\] and out\['b'\] share memory"):
                checkpoint.load(out={"a": a, "b": b})
            assert (row == -1).all()
        checkpoint.load(out={"a": part(row[:2], 3), "b": part(row[:2], 3)})
        assert row.tolist() == [3, 4, -1, -1, -1]


def test_no_lazy_array_is_filled_since_that_only_reads(tmp_path: Path) -> None:
    with gf.Checkpoint(tmp_path) as checkpoint:
        checkpoint.save(1, {"a": np.arange(1, 6.0), "b": np.arange(1, 6.0)})
        checkpoint.wait()
        a, b = np.zeros(5), gf.to_device(np.zeros(5), device="host:0")
        for reader in (gf.lazy(b), gf.lazy(b)[::-1]):
            for given in (reader, gf.Part(reader, start=(0,), global_shape=(5,))):
                with pytest.raises(TypeError, match="out is a LazyArray, a reader of its tensor"):
                    checkpoint.load(out={"a": a, "b": given})
        assert not a.any() and not gf.fetch(b).any()


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
    with pytest.raises(ValueError, match="nothing expires"):
        gf.Checkpoint(tmp_path, keep=0, recycle=True)
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


def test_expired_files_are_overwritten_when_asked_for(tmp_path: Path) -> None:
    def state(step: int) -> dict[str, Any]:
        return {"x": np.random.default_rng(step).random(100_000 + 5_000 * (step % 3)), "n": step}

    with gf.Checkpoint(tmp_path, "run", keep=2, recycle=True) as checkpoint:
        sizes, inodes = {}, {}
        for step in range(1, 9):
            checkpoint.save(step, state(step))
            report = checkpoint.wait()
            sizes[step] = report.file_nbytes
            inodes[step] = report.path.stat().st_ino
            # the third one is new: nothing has expired before it is finished
            assert report.recycled_nbytes == (sizes[step - 3] if step > 3 else 0)
            assert step <= 3 or inodes[step] == inodes[step - 3]
            newest, older = checkpoint.load(), checkpoint.load(step=step - 1)
            assert newest and newest.step == step and not newest.skipped
            assert (older.step if older else 0) == step - 1
            check_same_tree(newest.tree, state(step))
            if older:
                check_same_tree(older.tree, state(step - 1))
    assert len(list(tmp_path.glob("*.h5"))) == 3  # one more than are kept


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


@pytest.mark.parametrize("recycle", [False, True])
def test_a_killed_program_leaves_the_newest_finished_one(tmp_path: Path, recycle: bool) -> None:
    program = """
import sys
import numpy as np
import gpufetch as gf
checkpoint = gf.Checkpoint(sys.argv[1], recycle=sys.argv[2] == "True")
for step in range(100_000):
    checkpoint.save(step, {"x": np.full(300_000, step)})
    checkpoint.wait()
    print(step, flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path, str(recycle)], stdout=subprocess.PIPE, text=True
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


@pytest.mark.parametrize("mode", ["device-copy", "device-encoded", "pinned"])
def test_a_snapshot_is_taken_behind_the_work_on_a_stream(tmp_path: Path, mode: Any) -> None:
    """In other modes than a copy within the device, save waits for the stream."""
    gc.collect()  # freeing device memory waits for all streams
    values = np.full(300_000, 7, np.float32)
    x = gf.to_device(np.zeros_like(values), device="host:0")
    owner = weakref.ref(x)
    go_on = threading.Event()
    stream = _core._host_stream(lambda: go_on.wait(60))
    with gf.Checkpoint(tmp_path, mode=mode) as checkpoint:
        tree = {"x": x}
        saving = threading.Thread(target=checkpoint.save, args=(1, tree), kwargs={"stream": stream})
        saving.start()
        if mode == "device-copy":
            saving.join(60)
            assert not saving.is_alive()
        _core._copy_into(x, values)  # stands for a kernel on the stream
        tree.clear()
        del x
        assert owner() is not None  # the copy is still to come
        go_on.set()
        saving.join(60)
        assert checkpoint.wait(60).mode == mode
        found = checkpoint.load()
    _core._host_stream_destroy(stream)
    assert found
    np.testing.assert_array_equal(found.tree["x"], values)


def test_a_stream_is_that_of_a_framework_or_an_integer(tmp_path: Path) -> None:
    class Torch:
        cuda_stream = 0

    class CuPy:
        ptr = 1

    with gf.Checkpoint(tmp_path) as checkpoint:
        for step, stream in enumerate((Torch(), CuPy(), 0, 1, None)):
            assert checkpoint.save(step, {"x": np.arange(3)}, stream=stream)
        for wrong in ("0", 1.5, True, object()):
            with pytest.raises(TypeError, match="stream is"):
                checkpoint.save(9, {}, stream=wrong)
        with pytest.raises(ValueError, match="stream"):
            checkpoint.save(9, {}, stream=-1)
    with (
        pytest.raises(ValueError, match="stream is 0x1234, and device is the CPU"),
        gf.Checkpoint(tmp_path) as checkpoint,
    ):
        checkpoint.save(9, {"x": np.arange(3)}, stream=0x1234)


# Calls outcome(number, count) in a process of its own, where the n-th call fails or all from there
# on, until none fails: 0 is right, 3 is right without a failure. Prints how many were wrong, the
# last status, and how many there were.
IN_PROCESSES = """
wrong = tried = 0
for count in (1, ALL):
    for number in range(1, 3000):
        child = os.fork()
        if child == 0:
            os._exit(outcome(number, count))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 3:
            break
        wrong += is_wrong(status)
        tried += 1
print(wrong, status, tried)
"""

# Each allocation of the thread in turn fails, once and from there on, in a process of its own.
ALLOCATIONS = """
folder, where = sys.argv[1:]
x = np.arange(20_000, dtype=np.float32)
old, new = {"x": x, "n": 1}, {"x": x + 1, "n": 2}

def outcome(number, count):
    tree = {**new, "x": gf.to_device(new["x"], device="host:0")} if where == "device" else new
    checkpoint = gf.Checkpoint(folder, sync=False, keep=0, replace=True)
    checkpoint.save(1, {**old, "x": tree["x"]} if where == "device" else old)
    checkpoint.wait()

    def use():
        checkpoint.save(2, tree, stream=1)
        checkpoint.report
        return checkpoint.wait()

    failed, report, raised = attempt(ALLOCATION | OWN_THREAD, number, count, errno.ENOMEM, "", use)
    checkpoint.save(3, tree)
    checkpoint.close()
    found = checkpoint.load()
    if found.step != 3 or found.skipped or not (found.tree["x"] == new["x"]).all():
        return 2
    if raised is None:
        found = checkpoint.load(step=2)
        if (report.step, found.step) != (2, 2) or not (found.tree["x"] == new["x"]).all():
            return 2
    elif not isinstance(raised, (MemoryError, OSError, gf.Error)):
        return 2
    return 0 if failed else 3

def is_wrong(status):
    return status != 0
"""


@needs_failing_calls
@pytest.mark.parametrize("where", ["cpu", "device"])
def test_a_save_without_memory_fails_and_the_next_one_works(tmp_path: Path, where: str) -> None:
    printed = run_with_failing_calls(ALLOCATIONS + IN_PROCESSES, tmp_path, where)
    wrong, status, tried = map(int, printed.splitlines()[-1].split())
    assert (wrong, status) == (0, 3)
    assert tried > 5


# A load in which each allocation of the thread fails in turn, once and from there on: a process of
# its own for each, in which HDF5 has no memory yet that it could use again.
LOADS = """
folder = sys.argv[1]

def outcome(number, count):
    checkpoint = gf.Checkpoint(folder)
    failed, found, raised = attempt(
        ALLOCATION | OWN_THREAD, number, count, errno.ENOMEM, "", checkpoint.load
    )
    if raised is None and (found is None or found.step != 2 or found.skipped):
        print(number, count, found and (found.step, found.skipped), flush=True)
        return 2
    if raised is not None and (not failed or "none of the" in str(raised)):
        print(number, count, raised, flush=True)
        return 2
    return 0 if failed else 3

def is_wrong(status):
    return status == 2  # HDF5 may end the process
"""


@needs_failing_calls
def test_a_lack_of_memory_makes_no_checkpoint_a_damaged_one(tmp_path: Path) -> None:
    with gf.Checkpoint(tmp_path) as checkpoint:
        for step in (1, 2):
            checkpoint.save(step, {"x": np.arange(600_000, dtype=np.float32) + step})
    printed = run_with_failing_calls(LOADS + IN_PROCESSES, tmp_path)
    wrong, status, tried = map(int, printed.splitlines()[-1].split())
    assert (wrong, status) == (0, 3), printed
    assert tried > 100


def test_a_shard_of_another_step_is_read_by_nobody(tmp_path: Path) -> None:
    """Its name, shape and dtype are those of the one in whose place it is."""
    with gf.Checkpoint(tmp_path, "run", shards=2) as checkpoint:
        for step in (1, 2):
            checkpoint.save(step, {"x": np.full(300_000, step, np.float32)})
            checkpoint.wait()
    old, new = sorted(path for path in tmp_path.glob("run-*.h5") if path.name.count(".") == 1)
    (shard,) = tmp_path.glob(f"{old.stem}.*.1.h5")
    (place,) = tmp_path.glob(f"{new.stem}.*.1.h5")
    assert gf.hdf5.load(new)["x"].min() == 2
    place.unlink()
    place.write_bytes(shard.read_bytes())
    for read in (
        lambda: gf.hdf5.load(new),
        lambda: gf.hdf5.read(new, "x", device="cpu"),
        lambda: gf.hdf5.repack(new, tmp_path / "copy.h5"),
    ):
        with pytest.raises(gf.Error, match="another file than the one that was written"):
            read()
    assert not (tmp_path / "copy.h5").exists()
    found = gf.Checkpoint(tmp_path, "run").load()
    assert found and found.step == 1


def test_the_application_is_told_by_a_restart_and_by_ls(tmp_path: Path) -> None:
    with gf.Checkpoint(tmp_path, "run", application="waves 1.2 ü", shards=2) as checkpoint:
        checkpoint.save(1, {"x": np.arange(100_000)})
    with gf.Checkpoint(tmp_path, "none") as checkpoint:
        checkpoint.save(1, {"x": np.arange(5)})
    found, none = (gf.Checkpoint(tmp_path, prefix).load() for prefix in ("run", "none"))
    assert found and found.application == "waves 1.2 ü"
    assert none and none.application == ""
    with h5py.File(found.path) as file:
        assert file.attrs["gpufetch_application"] == "waves 1.2 ü"
    assert next(ls_lines(found.path)).endswith(", written by 'waves 1.2 ü'")
    assert "written" not in next(ls_lines(none.path))
    with pytest.raises(ValueError, match=r"application is 'üüü.*at most 255 bytes"):
        gf.Checkpoint(tmp_path, application="ü" * 128)
    with pytest.raises(ValueError, match="application"):
        gf.Checkpoint(tmp_path, application="a\0b")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '{"dict": 3}',
        '{"dict": ["ab"]}',
        '{"dict": [[[], 1]]}',
        '{"dict of int": [["a", 1]]}',
        '{"list": {"a": 1}}',
        '{"tensor": 3}',
        '{"float": "xyz"}',
        '{"float": "3ff0"}',
        '{"complex": ["3ff0000000000000"]}',
        '{"int": 3}',
        '{"bytes": "é"}',
        '{"bytes": "a"}',
        '{"list": ' * 3000 + "[]" + "}" * 3000,
    ],
)
def test_a_damaged_text_of_the_tree_is_one_error_that_names_file_and_attribute(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        file.attrs["gpufetch_state"] = text
    with pytest.raises(ValueError, match=r"file\.h5.*attribute 'gpufetch_state' is damaged"):
        gf.hdf5.load(path)
