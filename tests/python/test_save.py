"""gpufetch.hdf5.save and load: trees that come back, and files that are whole at any time."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
from failing_calls import needs_failing_calls, run_with_failing_calls
from h5py import h5o
from interrupts import interruptions
from sanitizing import needs_deepbind
from trees import check_same_tree, tree_of_everything

import gpufetch as gf


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("device", [None, "host:0"])
@pytest.mark.parametrize("codec", ["gpufetch", None, "bitshuffle-lz4"])
def test_a_tree_comes_back_bit_for_bit(tmp_path: Path, device: str | None, codec: Any) -> None:
    path = tmp_path / "state.h5"
    gf.hdf5.save(path, tree_of_everything(3, device), codec=codec)
    assert names_in(tmp_path) == ["state.h5"]
    check_same_tree(gf.hdf5.load(path), tree_of_everything(3))
    on_device = gf.hdf5.load(path, device="host:0")
    assert on_device["layers"][0]["weights"].device == "host:0"
    check_same_tree(on_device, tree_of_everything(3))


def test_h5py_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "state.h5"
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    gf.hdf5.save(path, {"model": {"weights": weights}, "epoch": 5, "rates": [0.1, None], "a": "ü"})
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["model/weights"][:], weights)
        text = file.attrs["gpufetch_state"]
    tensor = {"tensor": "model/weights", "dtype": "float32", "shape": [3, 4]}
    assert json.loads(text) == {
        "dict": [
            ["model", {"dict": [["weights", tensor]]}],
            ["epoch", 5],
            ["rates", {"list": [0.1, None]}],
            ["a", "ü"],
        ]
    }


@needs_deepbind
def test_a_file_of_a_checkpoint_and_a_tree_of_write_load_too(tmp_path: Path) -> None:
    tree = {"x": np.arange(5, dtype=ml_dtypes.bfloat16), "n": 3, "pair": (1, 2.5)}
    with gf.Checkpoint(tmp_path) as checkpoint:
        checkpoint.save(1, tree)
        check_same_tree(gf.hdf5.load(checkpoint.wait().path), tree)
    with h5py.File(tmp_path / "written.h5", "w") as file:
        group = gf.hdf5.write(file, "last", tree)
        assert isinstance(group, h5py.Group)
        check_same_tree(gf.hdf5.load(group), tree)
        with pytest.raises(ValueError, match="out is for trees that"):
            gf.hdf5.load(group, out=tree)
        with pytest.raises(ValueError, match="has no tree"):
            gf.hdf5.load(file)


def test_a_long_text_of_a_large_tree_comes_back(tmp_path: Path) -> None:
    tree = {"numbers": {i: float(i) / 3 for i in range(50_000)}, "text": "x" * 3_000_000}
    gf.hdf5.save(tmp_path / "state.h5", tree)
    check_same_tree(gf.hdf5.load(tmp_path / "state.h5"), tree)


def test_tensors_are_filled_in_place(tmp_path: Path) -> None:
    path = tmp_path / "state.h5"
    gf.hdf5.save(path, {"a": [np.arange(5.0), np.arange(3)], "n": 7})
    target, array = gf.to_device(np.zeros(5), device="host:0"), np.zeros(3, np.int64)
    found = gf.hdf5.load(path, out={"a": [target, array], "n": 0})
    assert found["a"][0] is target and found["a"][1] is array and found["n"] == 7
    np.testing.assert_array_equal(gf.fetch(target), np.arange(5.0))
    np.testing.assert_array_equal(array, np.arange(3))
    assert gf.hdf5.load(path, device="host:0", out={"a": [None, None], "n": 0})["a"][1].device
    for wrong, text in [
        ({"a": [target], "n": 0}, r"out\['a'\] is nested otherwise"),
        ({"b": [], "n": 0}, "out has no 'a'"),
        ({"a": [np.zeros(4), None], "n": 0}, "5"),
        ({"a": [np.zeros(5, np.float32), None], "n": 0}, "float32"),
    ]:
        with pytest.raises(ValueError, match=text):
            gf.hdf5.load(path, out=wrong)


@pytest.mark.parametrize("device", [None, "host:0"])
def test_tensors_to_fill_that_overlap_are_refused(tmp_path: Path, device: str | None) -> None:
    path = tmp_path / "state.h5"
    gf.hdf5.save(path, {"a": np.arange(5.0), "b": [np.arange(9.0, 14)]})
    array = np.full((2, 5), -1.0)
    memory: Any = array if device is None else gf.to_device(array, device=device)
    row = memory.reshape(10)
    for a, b in [(row[:5], row[4:9]), (row[::2], row[2:7]), (row[:5], row[4::-1])]:
        with pytest.raises(ValueError, match=r"^out\['a'\] and out\['b'\]\[0\] share memory"):
            gf.hdf5.load(path, out={"a": a, "b": [b]})
        assert (gf.fetch(memory) == -1).all()
    gf.hdf5.load(path, out={"a": row[::2], "b": [row[1::2]]})
    assert gf.fetch(row).tolist() == [0, 9, 1, 10, 2, 11, 3, 12, 4, 13]
    with pytest.raises(TypeError, match="a reader of its tensor"):
        gf.hdf5.load(path, out={"a": gf.lazy(gf.to_device(np.zeros(5))), "b": [None]})


def test_tied_weights_are_filled(tmp_path: Path) -> None:
    path = tmp_path / "state.h5"
    gf.hdf5.save(path, {"embedding": np.arange(5.0), "head": np.arange(5.0)})
    weights = np.zeros(5)
    gf.hdf5.load(path, out={"embedding": weights, "head": weights[:]})
    assert (weights == np.arange(5.0)).all()


def test_lazy_arrays_read_on_a_device(tmp_path: Path) -> None:
    path = tmp_path / "state.h5"
    gf.hdf5.save(path, {"x": np.arange(24.0).reshape(4, 6), "n": 1})
    found = gf.hdf5.load(path, device="host:0", lazy=True)
    assert isinstance(found["x"], gf.LazyArray) and found["n"] == 1
    np.testing.assert_array_equal(found["x"][2].fetch(), np.arange(12.0, 18.0))
    for options in ({}, {"device": "host:0", "out": {"x": None, "n": 1}}):
        with pytest.raises(ValueError, match="LazyArrays read tensors on a device"):
            gf.hdf5.load(path, lazy=True, **options)


def test_a_group_is_filled_and_after_a_failure_empty_again(tmp_path: Path) -> None:
    tree = {"a": {"x": np.arange(5)}, "n": 1}
    with h5py.File(tmp_path / "file.h5", "w") as file:
        group = file.create_group("first")
        gf.hdf5.save(group, tree)
        check_same_tree(gf.hdf5.load(group), tree)
        for taken in (group, file):
            with pytest.raises(ValueError, match="is not empty"):
                gf.hdf5.save(taken, tree)
        second = file.create_group("second")
        with pytest.raises(TypeError, match=r"tree\['b'\]"):
            gf.hdf5.save(second, {"a": {"x": np.arange(5)}, "b": object()})
        with pytest.raises(ValueError, match="overwrite is for files"):
            gf.hdf5.save(second, tree, overwrite=True)
        assert len(second) == 0 and not second.attrs
        gf.hdf5.save(second, [])
        assert gf.hdf5.load(second) == []
        file.create_group("third")
    with h5py.File(tmp_path / "file.h5") as file:
        with pytest.raises(ValueError, match="read-only"):
            gf.hdf5.save(file["third"], tree)
        assert len(file["third"]) == 0
    with pytest.raises(ValueError, match="closed"):
        gf.hdf5.save(file, tree)


def test_a_file_is_replaced_only_when_asked_for(tmp_path: Path) -> None:
    path, link = tmp_path / "state.h5", tmp_path / "link.h5"
    gf.hdf5.save(path, {"x": 1})
    path.chmod(0o640)
    link.symlink_to(path)
    with pytest.raises(FileExistsError, match="exists already"):
        gf.hdf5.save(path, {"x": 2})
    gf.hdf5.save(link, {"x": 2}, overwrite=True, sync=False)
    assert link.is_symlink() and gf.hdf5.load(path)["x"] == 2
    assert path.stat().st_mode & 0o777 == 0o640
    with pytest.raises(ValueError, match="no plain file"):
        gf.hdf5.save(tmp_path, {}, overwrite=True)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        gf.hdf5.save(tmp_path / "nowhere" / "state.h5", {})
    assert names_in(tmp_path) == ["link.h5", "state.h5"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "damaged"),
        ("[]", "damaged"),
        ('{"tensor": 3}', "damaged"),
        ('{"dict": [["x", {"tensor": "y"}]]}', "lacks the dataset 'y'"),
        ('{"dict": [["x", {"tensor": "group"}]]}', "lacks the dataset|not a dataset"),
        ('{"set": []}', "newer gpufetch"),
    ],
)
def test_a_damaged_text_is_told(tmp_path: Path, text: str, said: str) -> None:
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file.create_group("group")
        file.attrs["gpufetch_state"] = text
        with pytest.raises((ValueError, TypeError), match=said):
            gf.hdf5.load(file)


@pytest.mark.parametrize("damaged", ["gpufetch_state", "gpufetch_state_crc32"])
def test_another_text_than_was_saved_is_refused(tmp_path: Path, damaged: str) -> None:
    path = tmp_path / "state.h5"
    gf.hdf5.save(path, {"a": np.arange(3), "b": 12})
    with h5py.File(path, "a") as file:
        text = file.attrs["gpufetch_state"]
        assert file.attrs["gpufetch_state_crc32"] == zlib.crc32(text)
        file.attrs[damaged] = text.replace(b"12", b"13") if damaged == "gpufetch_state" else 0
    with pytest.raises(ValueError, match=r"state\.h5.*attribute 'gpufetch_state' is damaged"):
        gf.hdf5.load(path)
    with h5py.File(path, "a") as file:  # as files of versions before
        del file.attrs["gpufetch_state_crc32"]
    assert gf.hdf5.load(path)["b"] == (13 if damaged == "gpufetch_state" else 12)


def test_a_file_of_its_own_has_checksums_of_its_metadata(tmp_path: Path) -> None:
    path = tmp_path / "state.h5"
    gf.hdf5.save(path, {"a": {"x": np.arange(5)}})
    with h5py.File(path) as file:
        assert file.id.get_create_plist().get_version()[0] == 3  # the superblock of HDF5 1.10
        for item in (file, file["a"], file["a/x"]):
            assert h5o.get_info(item.id).hdr.version == 2


@pytest.mark.parametrize("libver", ["earliest", "v110"])
@pytest.mark.parametrize("count", [1, 3000])
def test_the_text_is_of_fixed_length_where_the_format_allows_that(
    tmp_path: Path, libver: str, count: int
) -> None:
    tree = {f"ü{number}": "x" * 40 for number in range(count)}  # or 150 KiB
    with h5py.File(tmp_path / "state.h5", "w", libver=(libver, "v110")) as file:
        gf.hdf5.save(file.create_group("group"), tree)
        kind = file["group"].attrs.get_id("gpufetch_state").get_type()
        assert kind.is_variable_str() == (libver == "earliest")
    with h5py.File(tmp_path / "state.h5") as file:
        assert gf.hdf5.load(file["group"]) == tree
    whole = (tmp_path / "state.h5").read_bytes()
    assert (b"GCOL" in whole) == (libver == "earliest")  # a global heap


def replace(path: Path, make: Callable[[h5py.File], object]) -> None:
    """Put another dataset in the place of "x"."""
    with h5py.File(path, "a") as file:
        del file["x"]
        make(file)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda file: file.create_dataset("x", data=np.ones((2, 3), "f4")), None),
        (lambda file: file.create_dataset("x", data=np.ones((2, 3), "f4"), chunks=(1, 2)), None),
        (lambda file: file.create_dataset("x", data=np.ones((3, 2), "f4")), "'/x' is float32 of"),
        (lambda file: file.create_dataset("x", data=np.ones((2, 3), "i4")), "'/x' is int32 of"),
        (lambda file: file.create_dataset("x", data=np.ones((2, 3), ">f4")), "'/x' is float32 in"),
        (lambda file: file.create_dataset("x", data=h5py.Empty("f4")), "'/x' is not what"),
        (lambda file: file.create_dataset("x", data=["text"]), "'/x' is not what"),
        (lambda file: file.create_dataset("x", (2, 3), "f4"), "'/x' lacks chunks"),
        (lambda file: file.create_dataset("x", (2, 3), "f4", chunks=(1, 3)), "'/x' lacks chunks"),
    ],
)
def test_a_dataset_that_was_replaced_loads_where_it_is_of_the_same_kind(
    tmp_path: Path, make: Callable[[h5py.File], object], said: str | None
) -> None:
    path = tmp_path / "state.h5"
    gf.hdf5.save(path, {"x": np.zeros((2, 3), np.float32), "n": 1})
    replace(path, make)
    if said is None:
        check_same_tree(gf.hdf5.load(path), {"x": np.ones((2, 3), np.float32), "n": 1})
        return
    for lazy in (False, True):
        with pytest.raises(ValueError, match=said):
            gf.hdf5.load(path, device="host:0" if lazy else "cpu", lazy=lazy)
    with h5py.File(path, "a") as file:
        del file.attrs["gpufetch_state_crc32"]
    assert gf.hdf5.load(path)["n"] == 1


def test_a_tree_whose_text_has_no_dtypes_loads(tmp_path: Path) -> None:
    """As versions before wrote it."""
    path = tmp_path / "state.h5"
    gf.hdf5.save(path, {"x": np.arange(3)})
    text = '{"dict":[["x",{"tensor":"x"}]]}'
    with h5py.File(path, "a") as file:
        file.attrs["gpufetch_state"] = text
        file.attrs["gpufetch_state_crc32"] = np.uint32(zlib.crc32(text.encode()))
    assert gf.hdf5.load(path)["x"].tolist() == [0, 1, 2]
    replace(path, lambda file: file.create_dataset("x", data=[1.5]))
    assert gf.hdf5.load(path)["x"].tolist() == [1.5]


def test_a_group_is_empty_again_where_the_sum_of_the_text_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(text: str) -> None:
        raise RuntimeError("no sum")

    with h5py.File(tmp_path / "x.h5", "w") as file:
        monkeypatch.setattr("gpufetch.hdf5._save._sum", fail)
        with pytest.raises(RuntimeError, match="no sum"):
            gf.hdf5.save(file, {"a": np.arange(3)})
        assert not file.attrs and not len(file)
        monkeypatch.undo()
        gf.hdf5.save(file, {"a": np.arange(3)})
        assert gf.hdf5.load(file)["a"].tolist() == [0, 1, 2]


def test_a_bar_shows_the_bytes_of_the_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tqdm = pytest.importorskip("tqdm.auto")
    totals: list[int] = []
    counts: list[int] = []

    class Bar:
        def __init__(self, **options: Any) -> None:
            totals.append(options["total"])

        def update(self, count: int) -> None:
            counts.append(count)

        def close(self) -> None:
            pass

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    path = tmp_path / "state.h5"
    gf.hdf5.save(path, {"x": np.zeros(1000), "y": [np.zeros(10, np.float32)]}, progress=True)
    gf.hdf5.load(path, progress=True)
    assert totals == [8040, 8040] and sum(counts) == 2 * 8040


KILLED = """
path = sys.argv[1]
gf.hdf5.save(path, {"x": np.arange(300_000), "n": 2}, overwrite=True, sync=True)
attempt(WRITE | SYNC | NAME, int(sys.argv[2]), 1, -signal.SIGKILL, os.path.dirname(path),
        lambda: gf.hdf5.save(path, {"x": np.arange(300_000) + 1, "n": 3}, overwrite=True))
print("finished")
"""


@needs_failing_calls
def test_a_kill_at_any_call_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "state.h5"
    found = set()
    for number in range(1, 1000):
        try:
            printed = run_with_failing_calls(KILLED, path, number)
        except AssertionError:
            printed = ""
        n = gf.hdf5.load(path)["n"]
        found.add(n)
        np.testing.assert_array_equal(gf.hdf5.load(path)["x"], np.arange(300_000) + (n == 3))
        if printed:
            break
        gf.hdf5.save(tmp_path / "other.h5", {}, overwrite=True)  # removes what was left
        assert names_in(tmp_path) == ["other.h5", "state.h5"]
    assert printed == "finished\n" and number > 5 and found == {2, 3}


FAILING = """
path = sys.argv[1]
old, new = {"x": np.arange(300_000), "n": 2}, {"x": np.arange(300_000) + 1, "n": 3}
number = 0
while True:
    number += 1
    gf.hdf5.save(path, old, overwrite=True)
    count, _, error = attempt(int(sys.argv[2]), number, 1, errno.ENOSPC, os.path.dirname(path),
                              lambda: gf.hdf5.save(path, new, overwrite=True))
    found = gf.hdf5.load(path)
    assert (found["x"] == old["x"] + (found["n"] == 3)).all()
    if error is None:
        assert found["n"] == 3, number
    else:
        code = getattr(error, "native_code", 0) or getattr(error, "errno", 0)
        assert code == errno.ENOSPC and ".gpufetch-new" not in str(error), repr(error)
    if count == 0:
        break
print(number > 1, sorted(os.listdir(os.path.dirname(path))))
"""


@needs_failing_calls
@pytest.mark.parametrize("kind", [16, 32, 64])
def test_a_failing_call_leaves_the_old_file_or_the_new_one(tmp_path: Path, kind: int) -> None:
    printed = run_with_failing_calls(FAILING, tmp_path / "state.h5", kind)
    assert printed.startswith("True") and "state.h5" in printed


FULL_DISK = """
import os, resource, signal, sys
import numpy as np
import gpufetch as gf
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = sys.argv[1]
gf.hdf5.save(path, {"n": 1})
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
x = np.random.default_rng(1).integers(0, 256, 4_000_000, np.uint8)
try:
    gf.hdf5.save(path, {"x": x}, overwrite=True)
except gf.Error as error:
    print(error.native_code, gf.hdf5.load(path)["n"], os.listdir(os.path.dirname(path)))
"""


def test_a_full_disk_costs_the_new_file_alone(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, tmp_path / "state.h5"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.splitlines() == [f"{errno.EFBIG} 1 ['state.h5']"]


def test_what_a_living_process_writes_is_not_removed(tmp_path: Path) -> None:
    program = """
import sys
import numpy as np
from pathlib import Path
from gpufetch.hdf5._new_file import new_file
with new_file(sys.argv[1], overwrite=False) as unnamed:
    unnamed.write_text("half")
    print("begun", flush=True)
    sys.stdin.readline()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "slow"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout and process.stdin and process.stdout.readline() == "begun\n"
        gf.hdf5.save(tmp_path / "state.h5", {})
        assert len(names_in(tmp_path)) == 3
        process.stdin.write("\n")
        process.stdin.flush()
    assert (tmp_path / "slow").read_text() == "half"
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "killed"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGKILL)
    assert len(names_in(tmp_path)) == 4
    gf.hdf5.save(tmp_path / "state.h5", {}, overwrite=True)
    assert names_in(tmp_path) == ["slow", "state.h5"]


def test_of_two_that_save_at_once_the_first_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "state.h5"

    class Late:
        """A tensor that is exported once another file has taken the name."""

        def __init__(self) -> None:
            self.count = 0

        def __dlpack__(self, **options: Any) -> Any:
            self.count += 1
            if self.count == 2:  # 1: the check of the tree
                gf.hdf5.save(path, {"n": 1})
            return np.arange(3).__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    with pytest.raises(FileExistsError, match="meanwhile"):
        gf.hdf5.save(path, {"x": Late()})
    assert gf.hdf5.load(path) == {"n": 1} and names_in(tmp_path) == ["state.h5"]


# A lock that the interrupted call had no chance to close goes with its object.
@pytest.mark.filterwarnings("ignore:.*gpufetch-new-:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed file .*gpufetch-new-:ResourceWarning")
def test_ctrl_c_leaves_nothing_that_the_next_one_does_not_remove(tmp_path: Path) -> None:
    path = tmp_path / "state.h5"
    gf.hdf5.save(path, {"x": 1})
    for step in interruptions(
        lambda: gf.hdf5.save(path, {"x": 2}, overwrite=True, sync=False), "_new_file.py:"
    ):
        sys.last_value = None  # nobody keeps the interrupted call's frames
        assert gf.hdf5.load(path)["x"] in (1, 2)
        gf.hdf5.save(path, {"x": 1}, overwrite=True, sync=False)
        assert names_in(tmp_path) == ["state.h5"], step
