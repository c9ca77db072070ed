"""gpufetch.hdf5.write of numbers and lists, of every byte order, and over what is there."""

from __future__ import annotations

import dis
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import gpufetch as gf
from gpufetch import _core


@pytest.fixture
def file(tmp_path: Path) -> Iterator[h5py.File]:
    with h5py.File(tmp_path / "x.h5", "w") as opened:
        yield opened


def field(seed: int = 0, shape: tuple[int, ...] = (300, 200)) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape).cumsum(axis=-1).astype("f4")


# --- Numbers, lists, byte orders ------------------------------------------------------------------


@pytest.mark.parametrize(
    "x",
    [
        3,
        -(2**63),
        2**64 - 1,
        2.5,
        True,
        1 - 2j,
        np.float32(0.1),
        np.uint8(7),
        np.bool_(True),
        np.array(2.0, ">f8")[()],
        [1, 2, 3],
        [2**63, 1],
        (1.5, 2),
        [[1, 2], [3, 4]],
        ([True, False],),
        [np.float64(1.5), np.float64(2)],
        [],
        [[], []],
    ],
    ids=repr,
)
def test_numbers_and_lists_are_stored_as_numpys_array(file: h5py.File, x: Any) -> None:
    gf.hdf5.write(file, "x", x)
    expected = np.asarray(x, "u8" if isinstance(x, list) and x[:1] == [2**63] else None)
    for device in ("cpu", "host:0"):
        values = gf.hdf5.read(file, "x", device=device)
        values = values if isinstance(values, np.ndarray) else gf.fetch(values)
        assert values.dtype == expected.dtype.newbyteorder("=") and values.shape == expected.shape
        assert values.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([[1, 2], [3]], "no array of numbers"),
        (2**64, "neither int64 nor uint64"),
        ([-1, 2**63], "neither int64 nor uint64"),
    ],
)
def test_lists_that_are_no_array_are_refused(file: h5py.File, x: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gf.hdf5.write(file, "a/x", x)
    assert list(file) == []


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i2", ">u8", ">c8", ">c16", ">f2"])
def test_big_endian_arrays_are_stored_as_their_numbers(file: h5py.File, dtype: str) -> None:
    x = (field() * 10).astype(dtype)
    for name, source in (("x", x), ("view", x[::-2, 3:])):
        dataset = gf.hdf5.write(file, name, source)
        assert isinstance(dataset, h5py.Dataset)
        assert (dataset[...] == source).all() and dataset.dtype == np.dtype(dtype).newbyteorder("<")
        assert (gf.hdf5.read(dataset, device="cpu") == source).all()


# --- Overwriting --------------------------------------------------------------------------------


def test_a_cell_that_is_run_twice_works(file: h5py.File, tmp_path: Path) -> None:
    gf.hdf5.write(file, "a/x", field())
    with pytest.raises(ValueError, match=r"'a/x' exists already in .*x\.h5.*overwrite=True"):
        gf.hdf5.write(file, "a/x", field())
    for seed in range(3):
        dataset = gf.hdf5.write(file, "a/x", gf.to_device(field(seed)), overwrite=True)
        assert isinstance(dataset, h5py.Dataset) and dataset.name == "/a/x"
        assert (dataset[...] == field(seed)).all() and list(file["a"]) == ["x"]
    for seed in range(2):
        gf.hdf5.write(tmp_path / "y.h5", "y", field(seed), overwrite=True)
        assert (gf.hdf5.read(tmp_path / "y.h5", "y", device="cpu") == field(seed)).all()


def test_what_is_written_may_have_another_shape_and_dtype(file: h5py.File) -> None:
    gf.hdf5.write(file, "x", field(), attrs={"unit": "m", "step": 1})
    gf.hdf5.write(file, "x", np.arange(5), attrs={"unit": "s"}, overwrite=True, codec=None)
    assert file["x"][...].tolist() == [0, 1, 2, 3, 4] and file["x"].dtype == np.int64
    assert dict(file["x"].attrs) == {"unit": "s"}


def test_other_links_and_open_objects_keep_the_old_dataset(file: h5py.File) -> None:
    old = gf.hdf5.write(file, "x", field(0))
    file["also"] = old
    gf.hdf5.write(file, "x", field(1), overwrite=True)
    assert isinstance(old, h5py.Dataset)
    assert (old[...] == field(0)).all() and (file["also"][...] == field(0)).all()
    assert (file["x"][...] == field(1)).all()


@pytest.mark.parametrize(
    "link", [h5py.SoftLink("/target"), h5py.SoftLink("/none"), h5py.ExternalLink("none.h5", "/x")]
)
def test_a_link_is_replaced_and_its_target_stays(file: h5py.File, link: Any) -> None:
    file["target"] = np.arange(3)
    file["x"] = link
    with pytest.raises(ValueError, match="'x' exists already"):
        gf.hdf5.write(file, "x", field())
    gf.hdf5.write(file, "x", field(), overwrite=True)
    assert isinstance(file.get("x", getlink=True), h5py.HardLink)
    assert (file["x"][...] == field()).all() and file["target"][...].tolist() == [0, 1, 2]


def test_groups_and_types_are_not_overwritten(file: h5py.File) -> None:
    file["g/inside"] = 1
    file["t"] = np.dtype("f4")
    for name in ("g", "t"):
        with pytest.raises(ValueError, match=rf"'{name}' exists already and is <HDF5 .*datasets"):
            gf.hdf5.write(file, name, field(), overwrite=True)
    assert file["g/inside"][()] == 1 and sorted(file) == ["g", "t"]


@pytest.mark.parametrize("on_device", [False, True])
def test_a_failed_write_keeps_the_old_dataset(tmp_path: Path, on_device: bool) -> None:
    path = tmp_path / "x.h5"
    gf.hdf5.write(path, "g/x", field(0), attrs={"step": 1})
    new = gf.to_device(field(1, (600, 700)), device="host:0")

    def check() -> None:
        with h5py.File(path) as file:
            assert list(file["g"]) == ["x"] and dict(file["g/x"].attrs) == {"step": 1}
            assert (file["g/x"][...] == field(0)).all()

    _core._host_faults(copy_fail_after_nbytes=1_000_000)
    with pytest.raises(gf.Error):
        gf.hdf5.write(path, "g/x", new, chunks=(50, 700), overwrite=True)
    _core._host_faults()
    check()
    with pytest.raises(TypeError):
        gf.hdf5.write(path, "g/x", new, attrs={"bad": object()}, overwrite=True)
    check()
    with pytest.raises(ValueError, match="chunk"):
        gf.hdf5.write(path, "g/x", new, chunks=(1,), overwrite=True)
    check()
    with h5py.File(path, "r") as file, pytest.raises(ValueError, match="read-only"):
        gf.hdf5.write(file, "g/x", new, overwrite=True)
    check()


@pytest.mark.parametrize("failing", [1, 2])
def test_a_failed_change_of_names_keeps_the_old_dataset(
    file: h5py.File, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    gf.hdf5.write(file, "x", field(0))
    move, calls = h5py.Group.move, 0

    def fail(group: h5py.Group, source: str, dest: str) -> None:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError("no more names")
        move(group, source, dest)

    monkeypatch.setattr(h5py.Group, "move", fail)
    with pytest.raises(OSError, match="no more names"):
        gf.hdf5.write(file, "x", field(1), overwrite=True)
    assert list(file) == ["x"] and (file["x"][...] == field(0)).all()


def test_what_cannot_be_deleted_after_a_failure_is_noted(
    file: h5py.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(group: h5py.Group, name: str) -> None:
        raise OSError("no space")

    monkeypatch.setattr(h5py.Group, "__delitem__", fail)
    with pytest.raises(TypeError) as caught:
        gf.hdf5.write(file, "x", {"a": object()})
    assert re.fullmatch(
        r"'\.gpufetch-new-\w+' could not be deleted again: no space", *caught.value.__notes__
    )


def test_a_failed_write_leaves_no_new_group(file: h5py.File) -> None:
    file.create_group("kept")
    for name in ("a/b/x", "kept/c/x"):
        with pytest.raises(TypeError):
            gf.hdf5.write(file, name, field(), attrs={"bad": object()})
        with pytest.raises(TypeError):
            gf.hdf5.write(file, name, {"x": object()})
    assert list(file) == ["kept"] and list(file["kept"]) == []


def test_a_failed_write_keeps_what_others_have_written_meanwhile(
    file: h5py.File, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late:
        """An attribute that cannot be stored, and a dataset that appears while it is tried."""

        def __array__(self, *arguments: Any, **options: Any) -> Any:
            file["a/b/other"] = 1
            raise TypeError("no array")

    for overwrite in (False, True):
        with pytest.raises(TypeError):
            gf.hdf5.write(file, "a/b/c/x", field(), attrs={"bad": Late()}, overwrite=overwrite)
        assert file["a/b/other"][()] == 1 and list(file["a/b"]) == ["other"]
        del file["a"]


def test_threads_overwrite_one_name_and_read_it(tmp_path: Path) -> None:
    """Whoever reads finds one of the datasets, whole."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        gf.hdf5.write(file, "g/x", np.full(5000, -1))

        def work(number: int) -> None:
            for _ in range(10):
                gf.hdf5.write(file, "g/x", np.full(5000, number), overwrite=True)
                values = gf.hdf5.read(file, "g/x", device="cpu")
                assert (values == values[0]).all() and 0 <= values[0] < 4

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(work, range(4))) == [None] * 4
        assert list(file["g"]) == ["x"]


# --- Messages -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "x", "options", "kind", "message"),
    [
        (3, 1, {}, TypeError, "name is of type int: give text"),
        ("y", 1, {"attrs": {"gpufetch_tree": "list"}}, ValueError, "is 'list': that name is res"),
        ("y", [1, "a"], {"attrs": {b"gpufetch_tree": 3}}, ValueError, "is 3: that name is reserv"),
        ("y", 1, {"attrs": [1]}, TypeError, "attrs is of type list: give a dict"),
        ("y", 1, {"attrs": {"a": object()}}, TypeError, r"attrs\['a'\] is of type object"),
        ("y", 1, {"attrs": {3: 1}}, TypeError, r"attrs\[3\].*names are text"),
        ("y", [1], {"chunks": 3}, TypeError, "chunks is 3: give a tuple"),
        ("y", [1], {"chunks": (1.5,)}, TypeError, r"chunks is \(1\.5,\): give a tuple"),
        ("y", 2**70, {}, ValueError, "the number 1180591620717411303424 cannot be stored"),
        ("x/y/z", 1, {}, ValueError, "'x/y/z' cannot be created: 'x' is <HDF5 dataset"),
        ("x/y", {"a": 1}, {"overwrite": True}, ValueError, "'x/y' cannot be created: 'x' is"),
    ],
)
def test_an_error_names_the_argument_and_the_remedy(
    file: h5py.File, name: Any, x: Any, options: Any, kind: type[Exception], message: str
) -> None:
    file["x"] = 1
    with pytest.raises(kind, match=message):
        gf.hdf5.write(file, name, x, **options)
    assert list(file) == ["x"]


def test_an_error_has_no_temporary_name(file: h5py.File) -> None:
    device = gf.to_device(field(1, (600, 700)), device="host:0")
    for x in (device, {"a": device}):
        gf.hdf5.write(file, "g/x", 1, overwrite=True)
        _core._host_faults(copy_fail_after_nbytes=1_000_000)
        with pytest.raises(gf.Error) as caught:
            gf.hdf5.write(file, "g/x", x, overwrite=True, codec=None)
        _core._host_faults()
        assert ".gpufetch-" not in str(caught.value)


# --- Interruptions --------------------------------------------------------------------------------


@pytest.mark.parametrize("interrupted", [1, 2])
def test_ctrl_c_during_a_change_of_names_leaves_one_dataset_under_the_name(
    file: h5py.File, monkeypatch: pytest.MonkeyPatch, interrupted: int
) -> None:
    gf.hdf5.write(file, "x", field(0))
    move, calls = h5py.Group.move, 0

    def interrupt(group: h5py.Group, source: str, dest: str) -> None:
        nonlocal calls
        move(group, source, dest)
        calls += 1
        if calls == interrupted:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(h5py.Group, "move", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        gf.hdf5.write(file, "x", field(1), overwrite=True)
    assert list(file) == ["x"] and not hasattr(caught.value, "__notes__")
    assert any((file["x"][...] == field(seed)).all() for seed in (0, 1))


# Python runs no handler here, and one that raised would leave a wrong exception as the current one.
UNINTERRUPTED = {"PUSH_EXC_INFO", "POP_EXCEPT", "COPY", "RERAISE"}


def interrupt_at(step: int, call: Callable[[], object]) -> bool:
    """Raise SIGINT at the operation of number `step` in gpufetch.hdf5; whether there is one."""
    count = 0

    def trace(frame: Any, event: str, argument: object) -> Any:
        nonlocal count
        if f"{os.sep}gpufetch{os.sep}hdf5{os.sep}" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        code, at = frame.f_code.co_code, frame.f_lasti
        if event == "opcode" and dis.opname[code[at]] not in UNINTERRUPTED:
            count += 1
            if count == step:
                signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # else Python 3.12 tells of no operation at first
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        assert count >= step
    finally:
        sys.settrace(before)
    return count >= step


@pytest.mark.parametrize("kind", ["new", "over", "tree", "path", "new path"])
def test_ctrl_c_between_any_two_operations_leaves_what_was_there_or_the_new_one(
    tmp_path: Path, kind: str
) -> None:
    path, step, old, new = tmp_path / "x.h5", 0, np.arange(3), np.arange(5)
    x: Any = {"a": new, "b": [1]} if kind == "tree" else new
    is_more = True
    while is_more:
        step += 1
        path.unlink(missing_ok=True)
        if kind != "new path":
            with h5py.File(path, "w") as file:
                if kind != "new":
                    gf.hdf5.write(file, "g/x", old)
        if kind in ("path", "new path"):
            is_more = interrupt_at(
                step, lambda: gf.hdf5.write(path, "g/x", x, overwrite=kind == "path")
            )
        else:
            with h5py.File(path, "r+") as file:
                is_more = interrupt_at(
                    step,
                    lambda file=file: gf.hdf5.write(file, "g/x", x, overwrite=kind != "new"),
                )
        if kind == "new path" and not path.exists():
            continue
        with h5py.File(path) as file:
            if kind == "new" and not list(file):
                continue
            assert list(file) == ["g"] and list(file["g"]) == ["x"], step
        found = gf.hdf5.read(path, "g/x", device="cpu")
        if isinstance(found, dict):
            assert found["a"].tolist() == new.tolist() and found["b"] == [1]
        else:
            assert found.tolist() in ([old.tolist()] if kind == "tree" else [old.tolist(), [*new]])
    assert step > 50 and sys.exc_info() == (None, None, None)


def test_ctrl_c_while_elements_are_written_removes_the_dataset(file: h5py.File) -> None:
    x = np.random.default_rng(0).normal(size=(2000, 1000))
    is_done = threading.Event()

    def interrupt() -> None:
        while "x" not in file.get("g", {}) and not is_done.is_set():
            time.sleep(0.0001)
        signal.raise_signal(signal.SIGINT)

    device = gf.to_device(x, device="host:0")
    thread = threading.Thread(target=interrupt)
    _core._host_faults(bandwidth=2e7)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            gf.hdf5.write(file, "g/x", device)
    finally:
        is_done.set()
        thread.join()
        _core._host_faults()
    assert list(file) == []


def test_a_file_that_is_closed_meanwhile_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    gf.hdf5.write(path, "x", np.arange(3))
    opened = h5py.File(path, "r+")

    class Closing:
        """A value that closes the file when it is stored."""

        def __array__(self, *arguments: Any, **options: Any) -> Any:
            opened.close()
            raise TypeError("no array")

    with pytest.raises(TypeError, match="the file was closed while") as caught:
        gf.hdf5.write(opened, "x", field(), attrs={"bad": Closing()}, overwrite=True)
    (note,) = caught.value.__notes__
    with h5py.File(path) as file:
        (left,) = set(file) - {"x"}
        assert note.startswith(f"'{left}' may still be in the file")
        assert file["x"][...].tolist() == [0, 1, 2]


# --- Files of others ------------------------------------------------------------------------------


def test_a_file_that_another_process_makes_meanwhile_is_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one creates it at the moment when this one opens it."""
    path = tmp_path / "x.h5"
    program = "import sys, h5py; h5py.File(sys.argv[1], 'w')['theirs'] = 1"
    real, calls = h5py.File, 0

    def late(*arguments: Any, **options: Any) -> h5py.File:
        nonlocal calls
        calls += 1
        if calls == late_call:
            subprocess.run([sys.executable, "-c", program, str(path)], check=True, timeout=60)
        return real(*arguments, **options)

    for late_call in (1, 2):
        calls = 0
        path.unlink(missing_ok=True)
        # Only open and create are seen: isinstance(dest, h5py.Group) must go on to work.
        monkeypatch.setattr(h5py, "File", late)
        with pytest.raises(TypeError):
            gf.hdf5.write(path, "x", field(), attrs={"bad": object()})
        monkeypatch.undo()
        with h5py.File(path) as file:
            assert list(file) == ["theirs"], late_call


def test_a_link_that_leads_nowhere_is_kept(tmp_path: Path) -> None:
    target, link = tmp_path / "target.h5", tmp_path / "link.h5"
    link.symlink_to(target)
    with pytest.raises(TypeError):
        gf.hdf5.write(link, "x", object())
    assert link.is_symlink() and not target.exists()
    gf.hdf5.write(link, "x", np.arange(3))
    assert link.is_symlink()
    assert gf.hdf5.read(target, "x", device="cpu").tolist() == [0, 1, 2]
