"""gpufetch verify: whole files are called whole, and every damaged chunk is named."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from sanitizing import needs_deepbind

import gpufetch as gf
from gpufetch import _core
from gpufetch.__main__ import main
from gpufetch.hdf5._new_file import new_file
from gpufetch.hdf5._verify import Verification


def run(capsys: pytest.CaptureFixture[str], *paths: Path) -> tuple[int, list[str]]:
    status = main(["verify", *map(str, paths)])
    return status, capsys.readouterr().out.splitlines()


OLDER = "the metadata (HDF5's older formats)"
REPLACED = "could not be checked: it was removed, replaced or changed meanwhile"


def write(path: Path) -> None:
    """In a format whose metadata has checksums."""
    with h5py.File(path, "w", libver="v110") as file:
        gf.hdf5.write(file, "u", np.arange(40_000.0).reshape(200, 200), chunks=(64, 200))
        gf.hdf5.write(file, "plain", np.arange(9), codec=None)
        gf.hdf5.write(file, "group/tree", {"a": [1, 2.5], "b": np.zeros((3, 0))})
        file.create_dataset("text", data=["a", "b"], dtype=h5py.string_dtype())
        file.create_dataset("sum", data=np.arange(100), chunks=(10,), fletcher32=True)


def damage(path: Path, name: str, *chunks: int) -> None:
    """Change a byte in some chunks of a dataset."""
    content = bytearray(path.read_bytes())
    with h5py.File(path) as file:
        for chunk in chunks:
            info = file[name].id.get_chunk_info(chunk)
            content[info.byte_offset + info.size // 2] ^= 1
    path.write_bytes(content)


def test_a_whole_file_is_called_whole(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    write(path)
    status, lines = run(capsys, path)
    assert status == 0
    assert lines[0].startswith(f"{path}: 7 datasets, ") and lines[0].endswith(": whole")
    assert lines[1].startswith(f"{path}: without checksums") and "/plain" in lines[1]
    assert "/u" not in lines[1].split() and "/sum" not in lines[1] and len(lines) == 2


def test_every_damaged_chunk_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    write(path)
    damage(path, "u", 0, 2)
    damage(path, "sum", 7)
    status, lines = run(capsys, path)
    assert status == 1 and len(lines) == 4
    for part in ("'/u', chunk at (0, 0)", "'/u', chunk at (128, 0)", "'/sum', chunk at (70)"):
        assert sum(part in line and "damaged: dataset" in line for line in lines) == 1
    assert lines[-1].endswith(": 3 damaged")


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_that_loses_its_name_meanwhile_is_not_called_damaged(
    tmp_path: Path, is_replaced: bool
) -> None:
    path = tmp_path / "run.h5"
    write(path)
    damage(path, "u", 0, 2)
    verification = Verification(path)
    lines = verification.lines()
    assert "damaged: dataset '/u', chunk at (0, 0)" in next(lines)
    path.rename(tmp_path / "older.h5")
    if is_replaced:
        write(path)
    assert next(lines) == f"{path}: {REPLACED}"
    assert "1 damaged, 1 could not be checked" in next(lines)
    assert next(lines, None) is None


def test_a_file_that_has_the_inode_of_the_one_before_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.h5"
    path.write_bytes(b"damaged")

    def replace(_: Path) -> bool:
        path.unlink()
        path.write_bytes(b"another")  # which ext4 gives the inode, if nobody holds it
        raise gf.Error("its seal is damaged")

    monkeypatch.setattr(_core, "restart_check_seal", replace)
    assert next(Verification(path).lines()) == f"{path}: {REPLACED}"


@needs_deepbind
def test_a_folder_of_checkpoints(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with gf.Checkpoint(tmp_path, keep=0, compress=False) as checkpoint:
        for step in (1, 2, 3):
            checkpoint.save(step, {"x": np.arange(10_000) + step})
    status, lines = run(capsys, tmp_path)
    assert status == 0 and len(lines) == 3 and all(line.endswith("whole") for line in lines)
    # Plain chunks have no checksums, but the manifest does.
    damage(tmp_path / "checkpoint-000000000002.h5", "x", 0)
    (tmp_path / "checkpoint-000000000003.h5").rename(tmp_path / "other.h5")
    (tmp_path / "empty.h5").write_bytes(b"")
    status, lines = run(capsys, tmp_path)
    text = "\n".join(lines)
    assert status == 1 and "000000000001.h5: 2 datasets" in text
    assert "000000000002.h5: damaged: step 2: " in text and "dataset 'x'" in text
    assert "other.h5: damaged: a checkpoint under another name" in text
    assert "empty.h5: damaged: it cannot be opened" in text


@needs_deepbind
def test_a_checkpoint_whose_metadata_is_damaged_is_not_given_to_hdf5(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gf.Checkpoint(tmp_path) as checkpoint:
        checkpoint.save(1, {"x": np.arange(10_000)})
    path = tmp_path / "checkpoint-000000000001.h5"
    content = bytearray(path.read_bytes())
    content[100] ^= 1  # of the root group's header
    path.write_bytes(content)

    def refuse(*args: Any) -> None:
        raise AssertionError("HDF5 was given a damaged checkpoint")

    monkeypatch.setattr(h5py, "File", refuse)
    status, lines = run(capsys, path)
    assert status == 1 and "not those that were sealed" in lines[0]
    assert lines[-1].endswith(": 1 damaged")


@needs_deepbind
def test_a_checkpoint_of_a_newer_version_is_not_called_damaged(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with gf.Checkpoint(tmp_path) as checkpoint:
        checkpoint.save(1, {"x": np.arange(10_000)})
    path = tmp_path / "checkpoint-000000000001.h5"
    content = bytearray(path.read_bytes())
    content[-40] = 9  # of the seal's version
    path.write_bytes(content)
    status, lines = run(capsys, path)
    assert status == 3 and "could not be checked: the seal of" in lines[0]
    assert "has version 9" in lines[0] and "install a newer one" in lines[0]


@pytest.mark.parametrize("name", ["nowhere.h5", "folder"])
def test_where_there_is_nothing_it_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    (tmp_path / "folder").mkdir()
    other = tmp_path / "other.h5"
    write(other)
    assert main(["verify", str(tmp_path / name), str(other)]) == 3
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{tmp_path / name}: could not be checked: ")
    assert "damaged" not in first and any(line.endswith(": whole") for line in rest)
    damage(other, "u", 0)
    assert main(["verify", str(tmp_path / name), str(other)]) == 1


LIMITED = """
import os, resource, sys
from gpufetch.__main__ import main
first = os.open(os.devnull, os.O_RDONLY)
os.close(first)
resource.setrlimit(resource.RLIMIT_NOFILE, (first + int(sys.argv[1]), 4096))
sys.exit(main(["verify", sys.argv[2]]))
"""


@needs_deepbind
@pytest.mark.parametrize("spare", [1, 2, 3, 4, 6])
def test_what_the_system_refuses_is_not_called_damaged(tmp_path: Path, spare: int) -> None:
    """Descriptors run out, at several places, while a checkpoint of shards is checked."""
    with gf.Checkpoint(tmp_path, "run", shards=3) as checkpoint:
        checkpoint.save(1, {name: np.arange(10_000) for name in "abc"})
    path = tmp_path / "run-000000000001.h5"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(spare), str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"{path}: could not be checked: " in done.stdout
    assert "Too many open files" in done.stdout or "too few descriptors" in done.stdout
    assert "damaged" not in done.stdout and "whole" not in done.stdout


def test_a_dataset_too_large_to_walk_is_named_and_not_called_damaged(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "sparse.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("huge", shape=(1 << 62,), chunks=(16,), dtype="u1")
        file["small"] = np.arange(3)
    status, lines = run(capsys, path)
    assert status == 3 and len(lines) == 2
    assert lines[0].startswith(f"{path}: could not be checked: dataset '/huge': ")
    assert "are too many to go through; at most 4294967296" in lines[0]
    assert lines[1].endswith(": 1 could not be checked")


def test_a_filter_that_is_not_found_is_no_damage(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "foreign.h5"
    with h5py.File(path, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4,))
        plist.set_filter(300, h5py.h5z.FLAG_OPTIONAL, ())
        space = h5py.h5s.create_simple((8,))
        dataset = h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I32LE, space, plist)
        dataset.write_direct_chunk((0,), bytes(16))
        # The filter is optional, and the only chunk went past it.
        dataset = h5py.h5d.create(file.id, b"passed", h5py.h5t.STD_I32BE, space, plist)
        dataset.write_direct_chunk((0,), bytes(16), filter_mask=1)
        file["small"] = np.arange(3)
    status, lines = run(capsys, path)
    assert status == 3 and len(lines) == 2
    assert lines[0].startswith(
        f"{path}: could not be checked: dataset '/x' is stored with filter 300"
    )
    assert "HDF5_PLUGIN_PATH, or import hdf5plugin" in lines[0]
    assert lines[1].endswith(": 1 could not be checked")


def test_a_lost_source_of_a_virtual_dataset_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    source: Any = tmp_path / "source.h5"
    with h5py.File(source, "w") as file:
        file["x"] = np.arange(5)
    path = tmp_path / "virtual.h5"
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout((5,), "i8")
        layout[:] = h5py.VirtualSource(source, "x", (5,))
        file.create_virtual_dataset("v", layout)
    assert run(capsys, path)[0] == 0
    source.unlink()
    status, lines = run(capsys, path)
    assert status == 1 and "dataset '/v'" in lines[0] and "source.h5" in lines[0]


@needs_deepbind
def test_what_a_killed_process_left_unfinished_is_not_called_damaged(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    gf.hdf5.save(tmp_path / "state.h5", {"x": np.arange(5)})
    with new_file(tmp_path / "other.h5", overwrite=False) as unnamed:
        unnamed.write_bytes(b"half")
        status, lines = run(capsys, tmp_path)
        assert status == 0 and len(lines) == 1
        assert lines[0].endswith("state.h5: 1 dataset, 40 B: whole")
        assert run(capsys, unnamed)[0] == 1  # by its name it is looked at
        with h5py.File(unnamed, "w"):
            pass


@needs_deepbind
def test_shards_are_compared_by_their_master(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    values = np.arange(3_000_000, dtype=np.float32).reshape(1500, 2000)
    with gf.Checkpoint(tmp_path, "run", shards=2, compress=False) as checkpoint:
        checkpoint.save(1, {"u": values})
        checkpoint.save(2, {"u": values})
    status, lines = run(capsys, tmp_path)
    assert status == 0 and len(lines) == 2
    assert all(line.endswith(": whole") for line in lines)
    master = tmp_path / "run-000000000002.h5"
    shards = sorted(tmp_path.glob("run-000000000002.*.1.h5"))
    others = sorted(tmp_path.glob("run-000000000001.*.1.h5"))
    whole = shards[0].read_bytes()
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1
    for content, why in [
        (None, "is missing"),
        (whole[:-1], "has no seal"),
        (others[0].read_bytes(), "no shard of this checkpoint"),
        (bytes(changed), "are not those that were written"),
    ]:
        shards[0].unlink()
        if content is not None:
            shards[0].write_bytes(content)
        else:
            shards[0].with_suffix(".old").write_bytes(whole)
        status, lines = run(capsys, master)
        assert status == 1 and any(shards[0].name in line and why in line for line in lines), lines
        if content is None:
            assert main(["ls", str(master)]) == 0
            assert "is missing: bring it back" in capsys.readouterr().out
            shards[0].write_bytes(b"")


def test_chunks_stored_past_their_filter_are_named_as_without_checksums(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "run.h5"
    pipelines: dict[str, dict[str, Any]] = {
        "gzip": {"compression": "gzip"},
        "sum": {"fletcher32": True},
        "both": {"compression": "gzip", "fletcher32": True},
        "gpufetch": gf.hdf5.filter_options(),
    }
    masks = {"gzip": 1, "sum": 1, "both": 2, "gpufetch": 1}
    values = np.arange(64.0)
    with h5py.File(path, "w", libver="v110") as file:
        for name, options in pipelines.items():
            for last in ("whole", "past"):
                x = file.create_dataset(f"{name}-{last}", data=values, chunks=(16,), **options)
                # fletcher32 is the first of "both": gzip alone is skipped
                if last == "past" and name != "both":
                    x.id.write_direct_chunk((32,), values[32:48].tobytes(), masks[name])
    status, lines = run(capsys, path)
    assert status == 0 and lines[0].endswith(": whole")
    named = lines[1].partition("may not show: ")[2].split(", ")
    assert named == ["/gpufetch-past", "/gzip-past", "/sum-past"]


def test_a_folder_is_searched_for_hdf5_files_of_any_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write(tmp_path / "run.backup")
    (tmp_path / "junk.HE5").write_bytes(b"no HDF5 file any more")
    (tmp_path / "notes.txt").write_text("no HDF5 file")
    status, lines = run(capsys, tmp_path)
    assert status == 1
    assert any(line.startswith(f"{tmp_path / 'run.backup'}: ") for line in lines)
    assert any(line.startswith(f"{tmp_path / 'junk.HE5'}: ") for line in lines)
    assert not any("notes" in line for line in lines)


@pytest.mark.parametrize(
    ("libver", "later", "is_checked"),
    [
        ("v110", "v110", True),
        # As h5py opens files; HDF5 before 2.0 keeps to the format of the file.
        ("v110", "earliest", h5py.version.hdf5_version_tuple < (2, 0, 0)),
        ("v108", "v108", False),  # netCDF's: no checksums of indexes of chunks
        ("earliest", "earliest", False),
    ],
)
def test_metadata_without_checksums_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, libver: str, later: str, is_checked: bool
) -> None:
    path = tmp_path / "run.h5"
    with h5py.File(path, "w", libver=libver) as file:
        gf.hdf5.write(file, "number", 1.5)
    with h5py.File(path, "a", libver=later) as file:
        gf.hdf5.write(file, "group/x", np.arange(9.0))
    status, lines = run(capsys, path)
    assert status == 0 and lines[0].endswith(": whole")
    assert (len(lines) == 1) == is_checked and all(OLDER in line for line in lines[1:])


TREE = {"a": np.arange(300.0).reshape(30, 10), "l": [np.zeros(3, np.float32), 1.5], "text": "text"}


def save_in_the_oldest_format(path: Path, tree: Any) -> None:
    with h5py.File(path, "w", libver="earliest") as file:
        gf.hdf5.save(file, tree)


def loaded(path: Path) -> str | None:
    """What load gives, as text; None where it raises."""
    try:
        tree = gf.hdf5.load(path)
    except (OSError, RuntimeError, TypeError, ValueError):
        return None
    return repr([tree["a"].dtype, tree["a"].shape, tree["a"].tobytes(), tree["l"], tree["text"]])


def flipped(path: Path, step: int) -> Iterator[int]:
    """Change a bit of every `step`th byte of a file in turn.

    The heap of texts of variable length is left out, in which HDF5 2.0 goes on for ever at a wrong
    length. Files of save in the newer format have none.
    """
    whole = path.read_bytes()
    heap = whole.find(b"GCOL")
    left_out = range(heap, heap + 4096) if heap >= 0 else ()
    for at in sorted(set(range(0, len(whole), step)).difference(left_out)):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 7
        path.write_bytes(changed)
        yield at
    path.write_bytes(whole)


@needs_deepbind
def test_no_flipped_bit_of_a_saved_file_passes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "state.h5"
    gf.hdf5.save(path, TREE)
    expected = loaded(path)
    damaged = 0
    for at in flipped(path, 5):
        found = loaded(path)
        status, lines = run(capsys, path)
        assert found in (None, expected) and (status == 0) == (found == expected), (at, lines)
        damaged += found is None
    assert damaged > 100


@needs_deepbind
def test_no_flipped_bit_of_the_oldest_format_gives_other_tensors(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "state.h5"
    save_in_the_oldest_format(path, TREE)
    expected = loaded(path)
    whole = path.read_bytes()
    # The last number of the key of the only chunk of "a", in a B-tree of version 1: where it is not
    # 0, HDF5 lists the chunk, and does not find it.
    key = whole.index(b"TREE\x01\x00\x01\x00") + 24 + 8 + 16
    for at in range(key, key + 8):
        changed = bytearray(whole)
        changed[at] ^= 8
        path.write_bytes(changed)
        assert loaded(path) is None, at
        status, lines = run(capsys, path)
        assert status == 1, (at, lines)
    path.write_bytes(whole)
    for at in flipped(path, 11):
        found = loaded(path)
        assert found in (None, expected), at
        status, lines = run(capsys, path)
        assert status == 1 or found == expected or OLDER in lines[1], (at, lines)


@needs_deepbind
def test_every_flipped_bit_of_a_saved_trees_text_and_a_lost_chunk_are_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "state.h5"
    save_in_the_oldest_format(path, TREE)
    status, lines = run(capsys, path)
    assert status == 0 and lines[0].endswith(": whole") and OLDER in lines[1]
    whole = path.read_bytes()
    begin = whole.index(b'{"dict":[["a"')
    # The chunks of "a" are in a B-tree of version 1, which is to have no entries.
    node = whole.index(b"TREE\x01\x00\x01\x00")
    flips = [(at, bit) for at in range(begin, whole.index(b"\0", begin)) for bit in (0, 3, 6)]
    for at, bit in [*flips, (node + 6, 0), (node + 6, 1)]:
        changed = bytearray(whole)
        changed[at] ^= 1 << bit
        path.write_bytes(changed)
        status, lines = run(capsys, path)
        said = "chunk" if at > node > begin or at < begin else "gpufetch_state"
        assert status == 1 and any(said in line for line in lines), (at, bit, lines)


@needs_deepbind
def test_what_a_saved_tree_lacks_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "state.h5"
    gf.hdf5.save(path, TREE)
    with h5py.File(path, "a") as file:
        file.move("l/0", "other")
        file.create_group("group")
        gf.hdf5.save(file["group"], TREE)
        del file["group"].attrs["gpufetch_state"]
    status, lines = run(capsys, path)
    assert status == 1 and len(lines) == 3
    assert "damaged: tree '/': " in lines[0] and "lacks the dataset 'l/0'" in lines[0]
    assert "damaged: tree '/group': " in lines[1] and "is missing" in lines[1]


def test_damaged_attributes_and_trees_of_write_are_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "run.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file["x"] = np.arange(3)
        file["x"].attrs["note"] = "some text that is long enough to be found"
        gf.hdf5.write(file, "group/tree", {"a": [1, 2.5], "b": {"c": np.zeros(3)}})
    whole = path.read_bytes()
    status, lines = run(capsys, path)
    assert status == 0 and OLDER in lines[1]
    changed = bytearray(whole)
    changed[whole.index(b"GCOL")] ^= 1  # the heap of texts
    path.write_bytes(changed)
    status, lines = run(capsys, path)
    assert status == 1 and any("attributes of '/x': " in line for line in lines)
    path.write_bytes(whole)
    for name, kind in [("group/tree/b", "set"), ("group/tree/a", "dict of int")]:
        with h5py.File(path, "a") as file:
            file[name].attrs["gpufetch_tree"] = kind
    with h5py.File(path, "a") as file:
        file["group/tree/a"].move("0", "zero")
    status, lines = run(capsys, path)
    assert status == 1 and len(lines) == 2 and "damaged: tree '/group/tree': " in lines[0]


def test_what_a_folder_has_that_is_no_file_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write(tmp_path / "run.h5")
    (tmp_path / "link.h5").symlink_to("run.h5")
    (tmp_path / "lost.h5").symlink_to("nowhere.h5")
    (tmp_path / "lost.txt").symlink_to("nowhere.h5")
    (tmp_path / "folder.h5").mkdir()
    os.mkfifo(tmp_path / "pipe.nc")
    status, lines = run(capsys, tmp_path)
    assert status == 0 and len(lines) == 6
    assert lines[0] == f"{tmp_path / 'lost.h5'}: not looked at: it is a link that leads to nothing"
    assert lines[1] == f"{tmp_path / 'pipe.nc'}: not looked at: it is a pipe, a socket or a device"
