"""Virtual datasets: a source that is missing, unreadable or of another dtype is an error."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from h5py import h5d, h5f, h5p, h5s, h5t
from hypothesis import given, settings
from hypothesis import strategies as st
from sanitizing import fewer

import gpufetch as gf
from gpufetch.__main__ import main

DEVICES = ["cpu", "host:0"]
UNLIMITED = h5s.UNLIMITED


def rows(number: int, count: int = 10, dtype: Any = "f8") -> np.ndarray[Any, Any]:
    return (100 * number + np.arange(count * 6).reshape(count, 6)).astype(dtype)


def write_shards(folder: Path, count: int = 3, **options: Any) -> np.ndarray[Any, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        gf.hdf5.write(folder / f"shard{number}.h5", "g/x", rows(number), **options)
    return np.concatenate([rows(number) for number in range(count)])


def write_master(path: Path, names: list[str], dtype: Any = "f8", count: int = 10) -> None:
    """A file with a dataset x whose rows are those of g/x in each source, one behind the other."""
    layout = h5py.VirtualLayout((count * len(names), 6), dtype)
    for number, name in enumerate(names):
        layout[count * number : count * (number + 1)] = h5py.VirtualSource(name, "g/x", (count, 6))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("x", layout, fillvalue=-1)


@pytest.fixture
def master(tmp_path: Path) -> Path:
    """A master file and three shards beside it, which it names without a folder."""
    write_shards(tmp_path)
    write_master(tmp_path / "master.h5", [f"shard{number}.h5" for number in range(3)])
    return tmp_path / "master.h5"


def on_host(*arguments: Any, **options: Any) -> Any:
    values = gf.hdf5.read(*arguments, **options)
    return gf.fetch(values) if isinstance(values, gf.DeviceArray) else values


WHOLE = np.concatenate([rows(number) for number in range(3)])


@pytest.mark.parametrize("device", DEVICES)
def test_complete_sources_are_read(master: Path, device: str) -> None:
    assert (on_host(master, "x", device=device) == WHOLE).all()
    key = np.s_[::-1, [4, 0]]
    assert (on_host(master, "x", device=device, selection=key) == WHOLE[key]).all()
    with h5py.File(master) as file:
        for _ in range(2):
            assert (on_host(file["x"], device=device) == WHOLE).all()


@pytest.mark.parametrize("device", DEVICES)
def test_a_missing_file_is_an_error_that_names_it(master: Path, device: str) -> None:
    (master.parent / "shard1.h5").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        gf.hdf5.read(master, "x", device=device)
    text = str(caught.value)
    assert "virtual dataset '/x' of" in text and "dataset 'g/x' of shard1.h5" in text
    assert f"looked for {master.parent / 'shard1.h5'}" in text and "HDF5_VDS_PREFIX" in text
    out = np.full(WHOLE.shape, 7.0)
    with pytest.raises(FileNotFoundError):
        gf.hdf5.read(master, "x", out=out)
    assert (out == 7).all()
    gaps = on_host(master, "x", device=device, allow_gaps=True)
    assert (gaps[10:20] == -1).all() and (gaps[:10] == WHOLE[:10]).all()


def test_sources_that_a_selection_does_not_need_may_be_missing(master: Path) -> None:
    (master.parent / "shard1.h5").unlink()
    for key in (np.s_[:10], np.s_[20:], np.s_[3], np.s_[25, 1:]):
        assert (gf.hdf5.read(master, "x", device="cpu", selection=key) == WHOLE[key]).all()
    for key in (np.s_[9:11], np.s_[:, 0], np.s_[[0, 29]], np.s_[19]):
        with pytest.raises(FileNotFoundError, match="shard1"):
            gf.hdf5.read(master, "x", device="cpu", selection=key)


def leave_nothing(path: Path) -> None:
    path.write_bytes(b"")


def damage_signature(path: Path) -> None:
    path.write_bytes(b"not HDF5" * 100)


def cut_short(path: Path) -> None:
    with path.open("r+b") as raw:
        raw.truncate(path.stat().st_size // 2)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_group(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        del file["g/x"]
        file.create_group("g/x")


@pytest.mark.parametrize(
    "spoil",
    [leave_nothing, damage_signature, cut_short, make_folder, make_group],
)
def test_a_source_that_does_not_open_is_an_error(master: Path, spoil: Any) -> None:
    spoil(master.parent / "shard2.h5")
    for allow_gaps in (False, True):
        with pytest.raises(OSError, match=r"'g/x' of shard2\.h5, which cannot be opened: "):
            gf.hdf5.read(master, "x", allow_gaps=allow_gaps)


@pytest.mark.parametrize("name", ["g/x", "g"])
def test_a_dataset_that_is_missing_in_its_file_is_an_error(master: Path, name: str) -> None:
    with h5py.File(master.parent / "shard2.h5", "r+") as file:
        del file[name]
    with pytest.raises(FileNotFoundError, match=r"'g/x' of shard2\.h5, which does not exist in"):
        gf.hdf5.read(master, "x")
    if name == "g/x":  # HDF5 2.0 fails where the group is missing too
        gaps = gf.hdf5.read(master, "x", device="cpu", allow_gaps=True)
        assert (gaps[20:] == -1).all() and (gaps[:20] == WHOLE[:20]).all()


@pytest.mark.parametrize("dtype", ["f4", "i8", "u1", "c16", "?"])
def test_a_source_of_another_dtype_is_an_error(master: Path, dtype: str) -> None:
    with h5py.File(master.parent / "shard1.h5", "w") as file:
        file["g/x"] = rows(1, dtype=dtype)
    for allow_gaps in (False, True):
        with pytest.raises(ValueError, match=r"dtype float64, and its source .*shard1") as caught:
            gf.hdf5.read(master, "x", allow_gaps=allow_gaps)
        assert "HDF5 would convert" in str(caught.value)


def test_small_floats_are_not_taken_for_larger_ones(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    gf.hdf5.write(tmp_path / "narrow.h5", "g/x", rows(0).astype(ml_dtypes.bfloat16))
    write_master(tmp_path / "master.h5", ["narrow.h5"], "f4")
    with pytest.raises(ValueError, match=r"dtype float32, and its source .* has bfloat16"):
        gf.hdf5.read(tmp_path / "master.h5", "x")


def test_a_source_of_the_other_byte_order_is_read(master: Path) -> None:
    with h5py.File(master.parent / "shard1.h5", "w") as file:
        file["g/x"] = rows(1, dtype=">f8")
    assert (on_host(master, "x") == WHOLE).all()


@pytest.mark.parametrize("count", [0, 9])
def test_a_source_that_is_too_short_is_an_error(master: Path, count: int) -> None:
    with h5py.File(master.parent / "shard1.h5", "w") as file:
        file["g/x"] = rows(1, count)
    with pytest.raises(ValueError, match=r"takes 60 elements from .*shard1.*shape \(\d, 6\)"):
        gf.hdf5.read(master, "x")


@pytest.mark.parametrize("shape", [(9, 6), (20, 5), (10,)])
def test_a_source_that_does_not_cover_its_part_is_an_error(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    layout = h5py.VirtualLayout((4, 3), "f8")
    layout[:, ::2] = h5py.VirtualSource("s.h5", "x", (20, 6))[6:10, 1:6:4]
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["x"] = np.zeros(shape)
    with pytest.raises(ValueError, match=r"takes 8 elements from dataset 'x' of s\.h5"):
        gf.hdf5.read(tmp_path / "m.h5", "x")
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["x"] = source = np.arange(120.0).reshape(20, 6)
    expected = np.zeros((4, 3))
    expected[:, ::2] = source[6:10, 1:6:4]
    assert (on_host(tmp_path / "m.h5", "x") == expected).all()


def test_what_no_source_covers_is_the_fill_value(tmp_path: Path) -> None:
    write_shards(tmp_path, 1)
    layout = h5py.VirtualLayout((12, 6), "f8")
    layout[1:11] = h5py.VirtualSource(tmp_path / "shard0.h5", "g/x", (10, 6))
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.create_virtual_dataset("x", layout, fillvalue=9)
    values = on_host(tmp_path / "m.h5", "x")
    assert (values[1:11] == rows(0)).all() and (values[[0, 11]] == 9).all()


# --- Where sources are looked for ---------------------------------------------------------------


@pytest.fixture
def apart(tmp_path: Path) -> tuple[Path, Path]:
    """A master file in one folder, and its shards in another one."""
    (tmp_path / "masters").mkdir()
    write_shards(tmp_path / "shards")
    write_master(tmp_path / "masters" / "m.h5", [f"shard{number}.h5" for number in range(3)])
    return tmp_path / "masters" / "m.h5", tmp_path / "shards"


def test_a_prefix_from_the_environment_is_searched(
    apart: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    master, shards = apart
    monkeypatch.setenv("HDF5_VDS_PREFIX", f"/nowhere:{master}")
    with pytest.raises(FileNotFoundError, match=r"looked for /nowhere/shard0\.h5, "):
        gf.hdf5.read(master, "x")
    monkeypatch.setenv("HDF5_VDS_PREFIX", f"/nowhere:{shards}")
    assert (on_host(master, "x") == WHOLE).all()


@pytest.mark.parametrize("prefix", ["{shards}", "${{ORIGIN}}/../shards"])
def test_a_prefix_of_the_dataset_is_searched(apart: tuple[Path, Path], prefix: str) -> None:
    master, shards = apart
    access = h5p.create(h5p.DATASET_ACCESS)
    access.set_virtual_prefix(os.fsencode(prefix.format(shards=shards)))
    with h5py.File(master) as file:
        dataset = h5py.Dataset(h5d.open(file.id, b"x", access))
        assert (dataset[...] == WHOLE).all()
        assert (on_host(dataset) == WHOLE).all()


def test_the_working_folder_is_searched(
    apart: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    master, shards = apart
    monkeypatch.chdir(shards)
    assert (on_host(master, "x") == WHOLE).all()


def test_the_folder_of_the_file_is_found_after_a_change_of_the_working_folder(
    master: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.chdir(master.parent)
    with h5py.File("master.h5") as file:
        monkeypatch.chdir(tmp_path_factory.mktemp("other"))
        assert (on_host(file, "x") == WHOLE).all()


def test_a_link_to_the_master_leads_to_its_folder(
    master: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    link = tmp_path_factory.mktemp("link") / "m.h5"
    link.symlink_to(master)
    assert (on_host(link, "x") == WHOLE).all()


def test_an_absolute_name_that_is_gone_is_looked_for_beside_the_master(tmp_path: Path) -> None:
    write_shards(tmp_path, 1)
    write_master(tmp_path / "m.h5", ["/nowhere/shard0.h5"])
    assert (on_host(tmp_path / "m.h5", "x") == rows(0)).all()
    (tmp_path / "shard0.h5").unlink()
    with pytest.raises(FileNotFoundError, match=r"looked for /nowhere/shard0\.h5, "):
        gf.hdf5.read(tmp_path / "m.h5", "x")


def test_sources_that_are_open_in_this_process_are_read(master: Path) -> None:
    for mode in ("r", "r+"):
        with h5py.File(master.parent / "shard1.h5", mode):
            assert (on_host(master, "x") == WHOLE).all()


# --- Sources in the same file, nested ones, patterns --------------------------------------------


@pytest.mark.parametrize("name", [".", "own.h5"])
def test_sources_in_the_same_file_are_read(tmp_path: Path, name: str) -> None:
    write_master(tmp_path / "own.h5", [name])
    with pytest.raises(OSError, match=r"dataset 'g/x' of (the same file|own\.h5), which does"):
        gf.hdf5.read(tmp_path / "own.h5", "x")
    gf.hdf5.write(tmp_path / "own.h5", "g/x", rows(4))
    assert (on_host(tmp_path / "own.h5", "x") == rows(4)).all()


def write_upper(path: Path, below: str, count: int) -> None:
    layout = h5py.VirtualLayout((count, 6), "f8")
    layout[:] = h5py.VirtualSource(below, "x", (count, 6))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("x", layout)


def test_sources_of_sources_are_checked(master: Path) -> None:
    upper = master.parent / "upper.h5"
    write_upper(upper, "master.h5", 30)
    assert (on_host(upper, "x") == WHOLE).all()
    (master.parent / "shard2.h5").unlink()
    with pytest.raises(FileNotFoundError, match=r"virtual dataset '/x' of .*master\.h5.*shard2"):
        gf.hdf5.read(upper, "x")
    assert (on_host(upper, "x", selection=np.s_[:20]) == WHOLE[:20]).all()


@pytest.mark.parametrize("name", [".", "loop.h5", "second.h5"])
def test_a_dataset_that_is_its_own_source_is_an_error(tmp_path: Path, name: str) -> None:
    write_upper(tmp_path / "loop.h5", name, 5)
    write_upper(tmp_path / "second.h5", "loop.h5", 5)
    for allow_gaps in (False, True):
        with pytest.raises(ValueError, match="takes elements from itself"):
            gf.hdf5.read(tmp_path / "loop.h5", "x", allow_gaps=allow_gaps)


def write_mapped(path: Path, virtual: Any, source: Any, file_name: str, shape: Any) -> None:
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_fill_value(np.array(-1.0))
    plist.set_virtual(virtual, file_name.encode(), b"g/x", source)
    with h5py.File(path, "w") as file:
        space = h5s.create_simple(shape, (UNLIMITED, *shape[1:]))
        h5d.create(file.id, b"x", h5t.IEEE_F64LE, space, plist)


def write_pattern(path: Path, file_name: str = "shard%b.h5") -> None:
    """Block n of rows comes from the file with n in its name."""
    virtual = h5s.create_simple((0, 6), (UNLIMITED, 6))
    virtual.select_hyperslab((0, 0), (UNLIMITED, 1), (10, 1), (10, 6))
    write_mapped(path, virtual, h5s.create_simple((10, 6)), file_name, (0, 6))


@pytest.mark.parametrize("file_name", ["shard%b.h5", "100%% of %b/../shard%b.h5"])
def test_files_with_numbered_names_are_read(tmp_path: Path, file_name: str) -> None:
    write_shards(tmp_path)
    for number in range(3):
        (tmp_path / f"100% of {number}").mkdir()
    write_pattern(tmp_path / "m.h5", file_name)
    assert (on_host(tmp_path / "m.h5", "x") == WHOLE).all()


def test_a_numbered_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    write_shards(tmp_path)
    write_pattern(tmp_path / "m.h5")
    access = h5p.create(h5p.DATASET_ACCESS)
    access.set_virtual_printf_gap(5)
    (tmp_path / "shard1.h5").unlink()
    with h5py.File(tmp_path / "m.h5") as file:
        dataset = h5py.Dataset(h5d.open(file.id, b"x", access))
        assert dataset.shape == (30, 6)
        with pytest.raises(FileNotFoundError, match=r"shard1\.h5"):
            gf.hdf5.read(dataset)
        for key in (np.s_[:10], np.s_[20:]):
            assert (on_host(dataset, selection=key) == WHOLE[key]).all()
        assert (on_host(dataset, allow_gaps=True)[10:20] == -1).all()


def test_growing_sources_side_by_side_must_be_of_one_length(tmp_path: Path) -> None:
    plist = h5p.create(h5p.DATASET_CREATE)
    for number in range(2):
        with h5py.File(tmp_path / f"s{number}.h5", "w") as file:
            file.create_dataset("x", data=rows(number), maxshape=(None, 6), chunks=(5, 6))
        virtual = h5s.create_simple((0, 12), (UNLIMITED, 12))
        virtual.select_hyperslab((0, 6 * number), (1, 1), (1, 1), (UNLIMITED, 6))
        source = h5s.create_simple((0, 6), (UNLIMITED, 6))
        source.select_hyperslab((0, 0), (1, 1), (1, 1), (UNLIMITED, 6))
        plist.set_virtual(virtual, f"s{number}.h5".encode(), b"x", source)
    with h5py.File(tmp_path / "m.h5", "w") as file:
        space = h5s.create_simple((0, 12), (UNLIMITED, 12))
        h5d.create(file.id, b"x", h5t.IEEE_F64LE, space, plist)
    expected = np.concatenate([rows(0), rows(1)], axis=1)
    assert (on_host(tmp_path / "m.h5", "x") == expected).all()
    with h5py.File(tmp_path / "s0.h5", "r+") as file:
        file["x"].resize(13, axis=0)
    with pytest.raises(ValueError, match=r"takes 78 elements from dataset 'x' of s1\.h5"):
        gf.hdf5.read(tmp_path / "m.h5", "x")
    first = on_host(tmp_path / "m.h5", "x", selection=np.s_[:10, :6])
    assert (first == rows(0)).all()
    gaps = on_host(tmp_path / "m.h5", "x", allow_gaps=True)
    assert (gaps[:10, 6:] == rows(1)).all() and not gaps[10:, 6:].any()


# --- Descriptors, text, tools -------------------------------------------------------------------


FEW_DESCRIPTORS = """
import resource, sys
import numpy as np
import gpufetch as gf
most = resource.getrlimit(resource.RLIMIT_NOFILE)
for limit in range(6, 90):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most[1]))
    try:
        values = gf.hdf5.read(sys.argv[1], "x", device="cpu")
        print("read", (values == -1).any())
    except (OSError, gf.Error) as error:
        print("error", error.errno if isinstance(error, OSError) else error)
    resource.setrlimit(resource.RLIMIT_NOFILE, most)
"""


def test_too_few_descriptors_are_an_error(tmp_path: Path) -> None:
    """For every limit there is an error or all of the elements."""
    write_shards(tmp_path, 30)
    write_master(tmp_path / "m.h5", [f"shard{number}.h5" for number in range(30)])
    done = subprocess.run(
        [sys.executable, "-c", FEW_DESCRIPTORS, str(tmp_path / "m.h5")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) == {"read False", "error 24"}


def test_no_descriptor_stays_open(master: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    gf.hdf5.read(master, "x", device="cpu")
    (master.parent / "shard2.h5").unlink()
    with pytest.raises(FileNotFoundError):
        gf.hdf5.read(master, "x", device="cpu")
    assert len(os.listdir("/proc/self/fd")) == before
    assert h5f.get_obj_count(h5f.OBJ_ALL, h5f.OBJ_FILE) == 0


def test_text_from_sources_is_checked_too(tmp_path: Path) -> None:
    text = np.array([b"one", b"two"], "S5")
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["g/x"] = text
    layout = h5py.VirtualLayout((2,), "S5")
    layout[:] = h5py.VirtualSource("s.h5", "g/x", (2,))
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    assert gf.hdf5.read(tmp_path / "m.h5", "x", device="cpu").tolist() == text.tolist()
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["g/x"] = text.astype("S3")
    with pytest.raises(ValueError, match=r"dtype ascii text of 5, and its source .* text of 3"):
        gf.hdf5.read(tmp_path / "m.h5", "x", device="cpu")


def test_ls_says_what_the_sources_need_and_which_are_missing(
    master: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ls", str(master)]) == 0
    out = capsys.readouterr().out
    assert "virtual of 3 " in out and "needs gpufetch: import gpufetch, or hdf5_gpufetch" in out
    row = next(line for line in out.splitlines() if line.startswith("  x "))
    assert row.split()[-1] == "gpufetch"
    (master.parent / "shard1.h5").unlink()
    with h5py.File(master.parent / "shard2.h5", "w") as file:
        file["g/x"] = rows(2, dtype="f4")
    assert main(["ls", str(master)]) == 0
    out = capsys.readouterr().out
    assert "virtual of 3, 2 missing or wrong" in out
    assert "dataset 'g/x' of shard1.h5, which does not exist" in out
    assert "dataset 'g/x' of shard2.h5 has float32" in out


def test_repack_copies_complete_sources_only(
    master: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = master.parent / "copy.h5"
    assert main(["repack", str(master), str(copy)]) == 0
    assert (on_host(copy, "x") == WHOLE).all()
    (master.parent / "shard1.h5").unlink()
    capsys.readouterr()
    assert main(["repack", "--overwrite", str(master), str(copy)]) == 1
    assert "shard1.h5, which does not exist" in capsys.readouterr().err
    assert (on_host(copy, "x") == WHOLE).all()
    assert main(["repack", "--overwrite", "--allow-gaps", str(master), str(copy)]) == 0
    assert (on_host(copy, "x")[10:20] == -1).all()


# --- Random mappings ------------------------------------------------------------------------------


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[tuple[slice, ...]], tuple[slice, ...], int]:
    """Stepped parts of a (12, 10) array that do not overlap, a box to read, and a part to lose."""
    bands, row = [], 0
    while row < 12 and len(bands) < 4:
        row += draw(st.integers(0, 1))
        count, step = draw(st.integers(1, 4)), draw(st.integers(1, 2))
        stop = min(12, row + (count - 1) * step + 1)
        if row < 12:
            bands.append(slice(row, stop, step))
        row = stop
    parts = []
    for band in bands:
        cut = draw(st.integers(1, 9))
        steps = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([1, 2, 3]))
        parts += [(band, slice(0, cut, steps[0])), (band, slice(cut, 10, steps[1]))]
    low, high = sorted(draw(st.tuples(st.integers(0, 12), st.integers(0, 12))))
    left, right = sorted(draw(st.tuples(st.integers(0, 10), st.integers(0, 10))))
    box = slice(low, high, draw(st.sampled_from([1, 1, 3]))), slice(left, right)
    return parts, box, draw(st.integers(0, len(parts) - 1))


@settings(max_examples=fewer(60), deadline=None)
@given(layout=layouts(), padding=st.integers(0, 2), nested=st.booleans())
def test_a_selection_fails_exactly_if_it_needs_what_is_lost(
    tmp_path_factory: pytest.TempPathFactory,
    layout: tuple[list[tuple[slice, ...]], tuple[slice, ...], int],
    padding: int,
    nested: bool,
) -> None:
    parts, box, lost = layout
    folder = tmp_path_factory.mktemp("random")
    whole = np.arange(120, dtype="i4").reshape(12, 10) + 1
    expected = np.zeros_like(whole)
    made = h5py.VirtualLayout(whole.shape, "i4")
    for number, part in enumerate(parts):
        expected[part] = whole[part]
        inside = whole[part].shape
        stored = np.pad(whole[part], padding)
        gf.hdf5.write(folder / f"{number}.h5", "x", stored)
        middle = tuple(slice(padding, padding + length) for length in inside)
        made[part] = h5py.VirtualSource(f"{number}.h5", "x", stored.shape)[middle]
    with h5py.File(folder / "m.h5", "w") as file:
        file.create_virtual_dataset("x", made)
    name = "m.h5"
    if nested:
        upper = h5py.VirtualLayout(whole.shape, "i4")
        upper[...] = h5py.VirtualSource("m.h5", "x", whole.shape)
        with h5py.File(folder / "upper.h5", "w") as file:
            file.create_virtual_dataset("x", upper)
        name = "upper.h5"
    with h5py.File(folder / name) as file:
        assert (file["x"][...] == expected).all()
    assert (on_host(folder / name, "x", selection=box) == expected[box]).all()
    (folder / f"{lost}.h5").unlink()
    is_lost = np.zeros(whole.shape, bool)
    is_lost[parts[lost]] = True
    around = tuple(slice(s.start, s.stop) for s in box)
    if box[0].start < box[0].stop:  # a stepped selection reads the box up to its last row
        last = range(12)[box[0]][-1]
        around = slice(box[0].start, last + 1), around[1]
    if is_lost[around].any():
        with pytest.raises(FileNotFoundError, match=rf"{lost}\.h5"):
            gf.hdf5.read(folder / name, "x", selection=box)
    else:
        assert (on_host(folder / name, "x", selection=box) == expected[box]).all()


def test_threads_read_virtual_datasets_at_once(master: Path) -> None:
    def work(number: int) -> None:
        for turn in range(5):
            key = np.s_[(number + turn) % 20 :]
            assert (gf.hdf5.read(master, "x", device="cpu", selection=key) == WHOLE[key]).all()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [None] * 4


def test_a_source_that_appears_is_read_by_the_dataset_that_is_open(master: Path) -> None:
    shard = master.parent / "shard1.h5"
    shard.rename(master.parent / "away.h5")
    with h5py.File(master) as file:
        for _ in range(2):
            with pytest.raises(FileNotFoundError):
                gf.hdf5.read(file["x"])
        (master.parent / "away.h5").rename(shard)
        assert (on_host(file["x"]) == WHOLE).all()


def write_overlapping(path: Path, dtype: str) -> np.ndarray[Any, Any]:
    """A virtual dataset x whose two mappings name 1,000 elements of 1,000, half of them twice."""
    layout = h5py.VirtualLayout((1000,), dtype)
    with h5py.File(path, "w") as file:
        for name, first in (("a", 10), ("b", 500)):
            file[name] = np.arange(first, first + 500, dtype=dtype)
            layout[1:501] = h5py.VirtualSource(".", name, (500,), dtype)
        file.create_virtual_dataset("x", layout, fillvalue=7)
    expected = np.full(1000, 7, dtype)
    expected[1:501] = np.arange(500, 1000)
    return expected


@pytest.mark.parametrize("dtype", ["<i4", ">f8"])
def test_gaps_beside_sources_that_overlap_are_the_fill_value(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "overlap.h5"
    expected = write_overlapping(path, dtype)
    native = expected.astype(expected.dtype.newbyteorder("="))
    for device in DEVICES:
        assert np.array_equal(on_host(path, "x", device=device), expected)
        for selection in (np.s_[1:], np.s_[-600:], np.s_[::7], np.s_[[3, 900]]):
            got = on_host(path, "x", device=device, selection=selection)
            assert np.array_equal(got, expected[selection])
        out = np.full(1000, 77, native.dtype)
        where = out if device == "cpu" else gf.to_device(out)
        assert np.array_equal(on_host(path, "x", out=where), expected)


@pytest.mark.parametrize("dtype", ["<i4", ">f8"])
@pytest.mark.parametrize("codec", ["none", "gpufetch"])
def test_repack_fills_gaps_beside_sources_that_overlap(
    tmp_path: Path, dtype: str, codec: Any
) -> None:
    expected = write_overlapping(tmp_path / "overlap.h5", dtype)
    gf.hdf5.repack(tmp_path / "overlap.h5", tmp_path / "copy.h5", codec=codec)
    with h5py.File(tmp_path / "copy.h5") as file:
        assert np.array_equal(file["x"][()], expected)


def test_writing_to_a_virtual_dataset_of_the_other_byte_order_is_refused(tmp_path: Path) -> None:
    """HDF5 itself, h5py's assignment too, leaves other values there without an error."""
    values = np.arange(60.0).reshape(10, 6)
    for dtype in ("<f8", ">f8"):
        with h5py.File(tmp_path / "shard.h5", "w") as file:
            file.create_dataset("g/x", data=np.zeros((10, 6), "<f8"))
        write_master(tmp_path / "master.h5", ["shard.h5"], dtype)
        with h5py.File(tmp_path / "master.h5", "r+") as file:
            for x in (values, gf.to_device(values, device="host:0")):
                if dtype == "<f8":
                    gf.hdf5.write_async(file["x"], None, x).result()
                    np.testing.assert_array_equal(file["x"][:], values)
                else:
                    with pytest.raises(TypeError, match="write to its sources"):
                        gf.hdf5.write_async(file["x"], None, x)
                    assert not file["x"][:].any()
