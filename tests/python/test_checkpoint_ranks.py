"""Checkpoints that several processes write together from Python."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from sanitizing import needs_deepbind

import gpufetch as gf

pytestmark = needs_deepbind

SECONDS = 60
SHAPE = (90, 700)

# A rank: it agrees over sockets, of which rank 0 has one to each other rank.
COMMON = """
import socket, struct, sys, threading
import numpy as np
import gpufetch as gf

folder, rank, count, *fds = sys.argv[1], *map(int, sys.argv[2:])
links = [socket.socket(fileno=fd) for fd in fds]
caller = threading.get_ident()
agreements = []


def take(link):
    try:
        found = link.recv(8, socket.MSG_WAITALL)
    except ConnectionError:
        found = b""
    return struct.unpack("q", found)[0] if len(found) == 8 else -1


def give(link, value):
    try:
        link.sendall(struct.pack("q", value))
    except OSError:  # the other one has gone
        pass


def agree(value):
    assert threading.get_ident() == caller
    agreements.append(value)
    if rank > 0:
        give(links[0], value)
        return take(links[0])
    value = min([value, *map(take, links)])
    for link in links:
        give(link, value)
    return value


def writer(**options):
    given = dict(rank=rank, rank_count=count, agree=agree, application="ranks 1")
    return gf.Checkpoint(folder, "run", **{**given, **options})


def rows_of(step, device=None):
    whole = np.arange(90 * 700, dtype=np.float32).reshape(90, 700) * step
    first, end = 90 * rank // count, 90 * (rank + 1) // count
    rows = whole[first:end].copy()
    held = gf.to_device(rows, device=device) if device else rows
    return gf.Part(held, start=(first, 0), global_shape=whole.shape)
"""


def run_ranks(folder: Path, count: int, body: str) -> list[tuple[int, str, str]]:
    """Exit status and output of each rank."""
    pairs = [socket.socketpair() for _ in range(count - 1)]
    running = []
    for rank in range(count):
        links = [pairs[rank - 1][1]] if rank else [one for one, _ in pairs]
        fds = [link.fileno() for link in links]
        command = [sys.executable, "-c", COMMON + body, str(folder), str(rank), str(count)]
        running.append(
            subprocess.Popen(
                [*command, *map(str, fds)],
                pass_fds=fds,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    for pair in pairs:
        for one in pair:
            one.close()
    try:
        outputs = [process.communicate(timeout=SECONDS) for process in running]
    finally:
        for process in running:
            process.kill()
            process.communicate()
    return [
        (process.returncode, out, err) for process, (out, err) in zip(running, outputs, strict=True)
    ]


def check_all(found: list[tuple[int, str, str]], text: str = "") -> None:
    for status, out, err in found:
        assert status == 0 and text in out, out + err


@pytest.mark.parametrize("device", [None, "host:0"])
def test_what_ranks_save_together_comes_back_on_any_number(
    tmp_path: Path, device: str | None
) -> None:
    body = f"""
with writer(keep=1, shards=2) as checkpoint:
    for step in (1, 2):
        tree = {{"u": rows_of(step, {device!r}), "mean": np.float64(step), "all": np.arange(9),
                "few": gf.Part(np.zeros((int(rank == 1), 3)), start=(0, 0), global_shape=(1, 3)),
                "step": step, "text": ["ü", None]}}
        assert checkpoint.save(step, tree)
    report = checkpoint.wait()
    assert report.state == "written" and report.step == 2, report
assert agreements
print("saved")
"""
    check_all(run_ranks(tmp_path, 3, body), "saved")
    reader = gf.Checkpoint(tmp_path, "run")
    found = reader.load()
    whole = np.arange(90 * 700, dtype=np.float32).reshape(SHAPE) * 2
    assert found and found.step == 2 and found.application == "ranks 1" and not found.skipped
    np.testing.assert_array_equal(found.tree["u"], whole)
    np.testing.assert_array_equal(found.tree["all"], np.arange(9))
    np.testing.assert_array_equal(found.tree["few"], np.zeros((1, 3)))
    assert found.tree["mean"] == 2 and found.tree["step"] == 2
    assert found.tree["text"] == ["ü", None]
    with h5py.File(found.path) as file:
        np.testing.assert_array_equal(file["u"][:], whole)
    for start, shape in [((0, 0), (45, 700)), ((45, 0), (45, 700)), ((7, 100), (50, 33))]:
        target = gf.to_device(np.zeros(shape, np.float32), device="host:0")
        part = gf.Part(target, start=start, global_shape=SHAPE)
        boxes = {"u": part, "mean": None, "all": None, "few": None, "step": 0, "text": [0, 0]}
        again = reader.load(out=boxes)
        assert again and again.tree["u"] is part
        box = tuple(slice(a, a + n) for a, n in zip(start, shape, strict=True))
        np.testing.assert_array_equal(gf.fetch(target), whole[box])
    for wrong, text in [
        (gf.Part(np.zeros((45, 700), np.float32), start=(0, 0), global_shape=(91, 700)), "91"),
        (gf.Part(np.zeros((45, 700), np.float32), start=(46, 0), global_shape=SHAPE), "46"),
        (gf.Part(np.zeros(700, np.float32), start=(0,), global_shape=(700,)), "axes"),
    ]:
        with pytest.raises(ValueError, match=text):
            reader.load(out={**boxes, "u": wrong})


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        ('{"u": rows_of(2), "step": rank}', "gpufetch_state"),
        ('{"u": gf.Part(np.zeros((2, 3)), start=(rank, 0), global_shape=(4, 3))}', "overlap"),
        (
            '{"u": gf.Part(np.zeros((1, 3)), start=(rank, 0), global_shape=(4, 3))}',
            "9 of its 12 elements",
        ),
    ],
)
def test_what_ranks_do_not_agree_on_fails_on_all_and_costs_one_checkpoint(
    tmp_path: Path, tree: str, text: str
) -> None:
    body = f"""
import re
checkpoint = writer()
checkpoint.save(1, {{"u": rows_of(1)}})
checkpoint.save(2, {tree})
try:
    checkpoint.wait()
except (RuntimeError, ValueError) as error:
    said = str(error)
    assert rank > 0 or re.search({text!r}, said), said
else:
    raise AssertionError("it was written")
checkpoint.save(3, {{"u": rows_of(3)}})
checkpoint.close()
print("closed")
"""
    check_all(run_ranks(tmp_path, 3, body), "closed")
    assert sorted(path.name for path in tmp_path.glob("run-????????????.h5")) == [
        "run-000000000001.h5",
        "run-000000000003.h5",
    ]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        ('save(2, {"u": rows_of(2), "x": object()})', "TypeError", r"tree\['x'\]"),
        ('save(-2, {"u": rows_of(2)})', "ValueError", "step is -2"),
        ('save("two", {"u": rows_of(2)})', "TypeError", "step"),
        ('save(2, {"u": rows_of(2)}, stream="none")', "TypeError", "stream is 'none'"),
        ('save(2, {"u": Raising()})', "KeyError", "of its own"),
        ('save(2, {"u": Ends()})', "gf.Error", "it has ended"),
    ],
)
def test_a_tree_that_one_rank_cannot_save_is_refused_on_all(
    tmp_path: Path, call: str, kind: str, text: str, first: bool
) -> None:
    body = f"""
import re
class Raising:
    shape, dtype = (3,), np.dtype("f4")
    def __dlpack_device__(self):
        raise KeyError("of its own")
    def __dlpack__(self, **kwargs):
        raise KeyError("of its own")
class Ends:  # is looked at, and then gone
    count = 0
    shape, dtype = (3,), np.dtype("f4")
    def __dlpack_device__(self):
        return 1, 0
    def __dlpack__(self, **kwargs):
        Ends.count += 1
        if Ends.count > 1:
            raise gf.Error("it has ended")
        return np.zeros(3, np.float32).__dlpack__(**kwargs)
checkpoint = writer()
if not {first}:
    checkpoint.save(1, {{"u": rows_of(1)}})
try:
    if rank == 1:
        checkpoint.{call}
    else:
        checkpoint.save(2, {{"u": rows_of(2)}})
except {kind} as error:
    named = "rank 1 could not (open its writer|begin its checkpoint)"
    assert re.search({text!r} if rank == 1 else named, str(error)), error
except gf.Error as error:
    assert rank != 1 and re.search("rank 1 could not", str(error)), error
else:
    raise AssertionError("it was saved")
checkpoint.save(3, {{"u": rows_of(3)}})
checkpoint.close()
print("closed")
"""
    check_all(run_ranks(tmp_path, 3, body), "closed")
    names = [path.name for path in sorted(tmp_path.glob("run-????????????.h5"))]
    assert names == [*["run-000000000001.h5"][first:], "run-000000000003.h5"]
    found = gf.Checkpoint(tmp_path, "run").load()
    assert found and found.step == 3
    whole = np.arange(90 * 700, dtype=np.float32).reshape(SHAPE) * 3
    np.testing.assert_array_equal(found.tree["u"], whole)


def test_a_time_out_that_makes_no_sense_on_one_rank_leaves_no_rank_behind(tmp_path: Path) -> None:
    body = """
checkpoint = writer()
checkpoint.save(1, {"u": rows_of(1)})
try:
    report = checkpoint.wait("soon" if rank == 1 else None)
    assert rank != 1 and report.state == "written"
except TypeError as error:
    assert rank == 1 and "timeout" in str(error), error
checkpoint.close()
print("closed")
"""
    check_all(run_ranks(tmp_path, 3, body), "closed")


def test_a_folder_that_one_rank_does_not_have_is_refused_on_all(tmp_path: Path) -> None:
    body = """
if rank == 1:
    folder += "/none"
checkpoint = writer()
try:
    checkpoint.save(1, {"u": rows_of(1)})
except FileNotFoundError as error:
    assert rank == 1 and "none" in str(error), error
except gf.Error as error:
    assert rank != 1 and "rank 1 could not open its writer" in str(error), error
else:
    raise AssertionError("it was saved")
print("refused")
"""
    check_all(run_ranks(tmp_path, 3, body), "refused")


@pytest.mark.parametrize(
    "call", ["save(9, {})", "wait()", "wait(0)", "report", "close()", "__exit__(None, None, None)"]
)
def test_an_agree_that_calls_its_own_checkpoint_is_refused(tmp_path: Path, call: str) -> None:
    body = f"""
calls = 0
def agree_and_call(value):
    global calls
    if rank != 2 and "checkpoint" in globals():
        calls += 1
        try:
            checkpoint.{call}
        except gf.Error as error:
            assert "agree calls the checkpoint that it agrees for" in str(error), error
        else:
            raise AssertionError("it was called")
    return agree(value)
checkpoint = writer(agree=agree_and_call)
checkpoint.save(1, {{"u": rows_of(1)}})
checkpoint.wait()
checkpoint.save(2, {{"u": rows_of(2)}})
checkpoint.close()
assert calls > 3 or rank == 2, calls
print("closed")
"""
    check_all(run_ranks(tmp_path, 3, body), "closed")
    found = gf.Checkpoint(tmp_path, "run").load()
    assert found and found.step == 2


def test_what_agree_raises_is_raised_by_the_call_and_the_others_learn_of_it(
    tmp_path: Path,
) -> None:
    body = """
checkpoint = writer()
checkpoint.save(1, {"u": rows_of(1)})
checkpoint.wait()
whole = agree
def agree_no_more(value):
    links[0].close()
    raise KeyError("no more")
if rank == 1:
    agree = agree_no_more
try:
    checkpoint.save(2, {"u": rows_of(2)})
    checkpoint.wait()
except KeyError as error:
    assert rank == 1 and error.args == ("no more",)
except gf.Error as error:
    assert rank != 1 and "could not agree" in str(error), error
else:
    raise AssertionError(rank)
print("told")
"""
    body = body.replace("checkpoint = writer()", "checkpoint = writer(agree=lambda v: agree(v))")
    check_all(run_ranks(tmp_path, 3, body), "told")
    assert [path.name for path in tmp_path.glob("run-????????????.h5")] == ["run-000000000001.h5"]
    with gf.Checkpoint(tmp_path, "run") as checkpoint:  # removes what they have left
        checkpoint.save(5, {"x": np.arange(3)})
    names = sorted(path.name for path in tmp_path.glob("run-*"))
    assert sum(name.startswith("run-000000000001") for name in names) == 4
    assert len(names) == 5 and not list(tmp_path.glob(".run-*part"))


@pytest.mark.parametrize("call", [10, 12, 16])
def test_an_agreement_above_the_own_value_is_none(tmp_path: Path, call: int) -> None:
    """No rank is told that there is a checkpoint which there is not."""
    body = f"""
whole = agree
def agree(value):
    found = whole(value)
    return found + 5 if rank == 0 and len(agreements) == {call} else found
written = []
try:
    checkpoint = writer(keep=9)
    for step in (1, 2, 3, 4):
        checkpoint.save(step, {{"u": rows_of(step)}})
        checkpoint.wait()
        written.append(step)
except gf.Error as error:
    assert "could not agree" in str(error), error
print("written", *written)
"""
    found = run_ranks(tmp_path, 3, body)
    check_all(found, "written")
    there = {int(path.stem[-12:]) for path in tmp_path.glob("run-????????????.h5")}
    for _, out, _ in found:
        assert {int(step) for step in out.split()[1:]} <= there


def test_an_agreement_beyond_64_bits_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="agree returned 1180591620717411303424"):
        gf.Checkpoint(tmp_path, "run", rank=0, rank_count=2, agree=lambda value: 2**70).save(
            1, {"x": np.arange(3)}
        )


def test_a_with_that_ends_by_an_exception_does_not_wait_for_the_other_ranks(
    tmp_path: Path,
) -> None:
    body = """
with writer() as checkpoint:
    checkpoint.save(1, {"u": rows_of(1)})
    checkpoint.wait()
    if rank == 1:
        raise RuntimeError("no more steps")
    try:
        checkpoint.save(2, {"u": rows_of(2)})
    except gf.Error as error:
        assert "could not agree" in str(error), error
        print("told")
"""
    first, second, third = run_ranks(tmp_path, 3, body)
    assert second[0] == 1 and "no more steps" in second[2]
    assert "told" in first[1] and "told" in third[1], first[2] + third[2]
    assert [path.name for path in tmp_path.glob("run-????????????.h5")] == ["run-000000000001.h5"]


def test_a_part_is_the_whole_where_there_are_no_ranks(tmp_path: Path) -> None:
    values = np.arange(12.0).reshape(3, 4)
    with gf.Checkpoint(tmp_path) as checkpoint:
        tree: dict[str, Any] = {"u": gf.Part(values, start=(0, 0), global_shape=(3, 4))}
        checkpoint.save(1, tree)
        checkpoint.wait()
        found = checkpoint.load()
        assert found
        np.testing.assert_array_equal(found.tree["u"], values)
        with pytest.raises(ValueError, match=r"tree\['u'\].* axes"):
            checkpoint.save(2, {"u": gf.Part(values, start=(0,), global_shape=(3,))})
        with pytest.raises(ValueError, match="'u' hold 8 of its 12 elements"):
            checkpoint.save(2, {"u": gf.Part(values[:2], start=(0, 0), global_shape=(3, 4))})
        assert checkpoint.report.state == "failed"
        checkpoint.save(3, tree)
    with pytest.raises(TypeError, match=r"tree\['u'\].*Part"):
        gf.hdf5.save(tmp_path / "file.h5", tree)


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"rank": 1}, ValueError, "rank is 1"),
        ({"rank": 2, "rank_count": 2, "agree": min}, ValueError, "rank is 2"),
        ({"rank_count": 0}, ValueError, "rank_count is 0"),
        ({"rank_count": 2}, TypeError, "agree None"),
        ({"rank_count": 2, "agree": 3}, TypeError, "agree 3"),
        ({"rank_count": 2, "agree": min, "recycle": True}, ValueError, "recycle"),
    ],
)
def test_options_of_ranks_that_make_no_sense_are_refused(
    tmp_path: Path, options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        gf.Checkpoint(tmp_path, **options)


def test_a_part_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="not as many axes"):
        gf.Part(np.zeros(3), start=(0,), global_shape=(3, 3))
    with pytest.raises(ValueError, match="start is -1"):
        gf.Part(np.zeros(3), start=(-1,), global_shape=(3,))
    with pytest.raises(TypeError, match="global_shape"):
        gf.Part(np.zeros(3), start=(0,), global_shape=("a",))  # type: ignore[arg-type]
    assert "at (1,) of (3,)" in repr(gf.Part(np.zeros(2), start=(1,), global_shape=(3,)))
