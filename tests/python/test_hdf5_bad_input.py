"""gpufetch.hdf5 on what does not fit: one clear error, and nothing half written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import h5py
import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import gpufetch as gf
from gpufetch import _core
from gpufetch.hdf5._ls import ls_lines


@pytest.fixture
def file(tmp_path: Path) -> Iterator[h5py.File]:
    with h5py.File(tmp_path / "x.h5", "w") as opened:
        yield opened


def smooth(shape: tuple[int, ...], dtype: str = "f4") -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(5)
    return rng.normal(0, 10, shape).cumsum(axis=-1).astype(dtype)


# --- Names ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a\0b", r"name 'a\\x00b' has a NUL"),
        ("\0a", r"name '\\x00a' has a NUL"),
        ("g\0/a", r"name 'g\\x00/a' has a NUL"),
        ("\ud800", r"name '\\ud800' is not UTF-8"),
    ],
)
def test_a_name_that_would_reach_another_dataset_is_refused(
    file: h5py.File, name: str, problem: str
) -> None:
    gf.hdf5.write(file, "a", np.arange(5.0))
    gf.hdf5.write(file, "g/a", np.arange(5.0))
    for x in (np.zeros(2), {"k": np.zeros(2)}):
        for overwrite in (False, True):
            with pytest.raises(ValueError, match=problem):
                gf.hdf5.write(file, name, x, overwrite=overwrite)
            with pytest.raises(ValueError, match=problem):
                gf.hdf5.write(file.filename + ".new", name, x, overwrite=overwrite)
    with pytest.raises(ValueError, match=problem):
        gf.hdf5.read(file, name)
    if "\0" in name:
        with pytest.raises(ValueError, match=problem):
            gf.hdf5.read(file, name.encode())  # type: ignore[call-overload]
    assert list(file) == ["a", "g"]
    assert list(file["g"]) == ["a"]
    assert (gf.hdf5.read(file, "a", device="cpu") == np.arange(5.0)).all()
    assert not Path(file.filename + ".new").exists()


def test_a_name_that_is_not_utf8_in_the_file_is_read(file: h5py.File) -> None:
    gf.hdf5.write(file, "a", np.arange(5.0))
    file.id.links.create_hard(b"\xff", file.id, b"a")
    found = gf.hdf5.read(file, b"\xff", device="cpu")  # type: ignore[call-overload]
    assert (found == np.arange(5.0)).all()


@pytest.mark.parametrize(
    ("attrs", "problem"),
    [
        ({"a\0b": 1}, r"attribute 'a\\x00b' has a NUL"),
        ({b"a\0b": 1}, r"attribute 'a\\x00b' has a NUL"),
        ({"\ud800": 1}, r"attribute '\\ud800' is not UTF-8"),
        ({"a": "x\0y"}, r"attrs\['a'\] 'x\\x00y' has a NUL"),
        ({"a": "\ud800"}, r"attrs\['a'\] '\\ud800' is not UTF-8"),
        ({"a": ["x", "y\0z"]}, r"attrs\['a'\]: .*NUL"),
    ],
)
def test_attributes_that_would_be_cut_are_refused(
    file: h5py.File, attrs: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        gf.hdf5.write(file, "x", np.arange(5.0), attrs=attrs)
    assert list(file) == []


def test_a_path_that_would_reach_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    gf.hdf5.write(path, "a", np.arange(5.0))
    content, cut = path.read_bytes(), f"{path}\0y"
    with pytest.raises(ValueError, match=r"dest '.*x\.h5\\x00y' has a NUL"):
        gf.hdf5.write(cut, "b", np.arange(5.0))
    with pytest.raises(ValueError, match=r"src '.*x\.h5\\x00y' has a NUL"):
        gf.hdf5.read(cut, "a")
    with pytest.raises(ValueError, match=r"source '.*x\.h5\\x00y' has a NUL"):
        gf.hdf5.repack(cut, tmp_path / "new.h5")
    with pytest.raises(ValueError, match=r"dest '.*x\.h5\\x00y' has a NUL"):
        gf.hdf5.repack(path, cut, overwrite=True)
    with pytest.raises(ValueError, match=r"file '.*x\.h5\\x00y' has a NUL"):
        list(ls_lines(Path(cut)))
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


# --- Closed, read-only, taken ---------------------------------------------------------------


def test_a_closed_file_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as opened:
        dataset = gf.hdf5.write(opened, "x", np.arange(5))
    with pytest.raises(ValueError, match=r"dest is closed \(<Closed HDF5 file>\)"):
        gf.hdf5.write(opened, "y", np.arange(5))
    with pytest.raises(ValueError, match=r"src is closed \(<Closed HDF5 file>\)"):
        gf.hdf5.read(opened, "x")
    with pytest.raises(ValueError, match=r"src is closed \(<Closed HDF5 dataset>\)"):
        gf.hdf5.read(dataset)


def test_a_read_only_file_is_refused(tmp_path: Path) -> None:
    gf.hdf5.write(tmp_path / "x.h5", "x", np.arange(5))
    with (
        h5py.File(tmp_path / "x.h5", "r") as opened,
        pytest.raises(ValueError, match="'y' cannot be written: the file was opened read-only"),
    ):
        gf.hdf5.write(opened, "y", np.arange(5))


def test_a_taken_name_is_refused_and_kept(tmp_path: Path) -> None:
    gf.hdf5.write(tmp_path / "x.h5", "g/x", np.arange(5))
    for name in ("g/x", "g"):
        with pytest.raises(ValueError, match=f"'{name}' exists already"):
            gf.hdf5.write(tmp_path / "x.h5", name, np.arange(6))
    assert (gf.hdf5.read(tmp_path / "x.h5", "g/x", device="cpu") == np.arange(5)).all()


def test_a_name_below_a_dataset_is_refused(file: h5py.File) -> None:
    gf.hdf5.write(file, "x", np.arange(5))
    with pytest.raises(ValueError, match=r"'x/y' cannot be created: 'x' is <HDF5 dataset"):
        gf.hdf5.write(file, "x/y", np.arange(5))


def test_the_error_for_a_missing_dataset_says_what_there_is(file: h5py.File) -> None:
    for name in ("state", "u", "g/one", "g/two"):
        gf.hdf5.write(file, name, np.arange(5))
    file.create_group("empty")
    for name, there in (
        ("/stat", "did you mean '/state'?"),
        ("stat", "did you mean 'state'?"),
        ("zzz", "there are 'empty', 'g', 'state', 'u'"),
        ("g/oen", "did you mean 'g/one'?"),
        ("/h/one/x", "there are '/empty', '/g', '/state', '/u'"),
        ("empty/x", "/empty is empty"),
        (b"zzz", "there are 'empty', 'g', 'state', 'u'"),
    ):
        with pytest.raises(KeyError) as raised:
            gf.hdf5.read(file, cast(Any, name))
        said = f"no dataset {os.fsdecode(name)} in {file.filename}: {there}"
        assert raised.value.args == (said,)
    with pytest.raises(KeyError) as raised:
        gf.hdf5.read(file, "u/x")
    assert raised.value.args == (f"no dataset u/x in {file.filename}",)
    for i in range(20):
        file.create_group(f"many/{i:02}")
    with pytest.raises(KeyError, match=r"there are 'many/00', .*'many/09', \.\.\."):
        gf.hdf5.read(file, "many/x")


def test_a_missing_dataset_or_a_group_is_refused(file: h5py.File, tmp_path: Path) -> None:
    file.create_group("g")
    with pytest.raises(KeyError, match=f"no dataset x in {file.filename}"):
        gf.hdf5.read(file, "x")
    with pytest.raises(TypeError, match=r"'g' in .* not a dataset"):
        gf.hdf5.read(file, "g")
    with pytest.raises(ValueError, match="name the dataset"):
        gf.hdf5.read(file)
    with pytest.raises(FileNotFoundError):
        gf.hdf5.read(tmp_path / "none.h5", "x")
    assert not (tmp_path / "none.h5").exists()


def test_a_path_that_is_no_hdf5_file_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not HDF5")
    with pytest.raises(OSError, match="signature"):
        gf.hdf5.write(path, "x", np.arange(5))
    assert path.read_text() == "not HDF5"


@pytest.mark.parametrize("dest", [3, None, np.arange(3)])
def test_a_destination_of_another_type_is_refused(dest: Any) -> None:
    with pytest.raises(TypeError, match=f"dest is {type(dest).__name__}"):
        gf.hdf5.write(dest, "x", np.arange(5))
    with pytest.raises(TypeError, match=f"src is {type(dest).__name__}"):
        gf.hdf5.read(dest, "x")


# --- Arguments ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ((10,), "chunks has 1 value; it must have one for each of 2 axes"),
        ((10, 21), "chunk length 21 of axis 1 does not fit: choose 1 to 20"),
        ((0, 20), "chunk length 0 of axis 0"),
        ((-1, 20), "chunk length -1 of axis 0"),
    ],
)
def test_chunks_that_do_not_fit_are_refused(
    file: h5py.File, chunks: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        gf.hdf5.write(file, "x", gf.to_device(smooth((30, 20))), chunks=chunks)
    assert list(file) == []


def test_chunks_of_4_gib_are_refused(file: h5py.File) -> None:
    x = np.broadcast_to(np.float32(1), (1 << 16, 1 << 14))
    with pytest.raises(ValueError, match="4 GiB"):
        gf.hdf5.write(file, "x", x, chunks=x.shape)
    assert list(file) == []


def test_chunks_that_are_no_integers_are_refused(file: h5py.File) -> None:
    with pytest.raises(TypeError):
        gf.hdf5.write(file, "x", np.arange(5), chunks=(2.5,))  # type: ignore[arg-type]


def test_an_unknown_codec_is_refused(file: h5py.File) -> None:
    with pytest.raises(ValueError, match="codec 'gzip' is unknown"):
        gf.hdf5.write(file, "x", np.arange(5), codec="gzip")  # type: ignore[arg-type]


def test_errors_say_what_to_give_instead(file: h5py.File, tmp_path: Path) -> None:
    x: Any = np.arange(5)
    write: Any = gf.hdf5.write
    with pytest.raises(ValueError, match=r"codec \[\] is unknown"):
        write(file, "x", x, codec=[])
    with pytest.raises(ValueError, match=r"attrs\[''\] is 1: give it a name"):
        write(file, "x", x, attrs={"": 1})
    with pytest.raises(TypeError, match="dest is Dataset: give an h5py File or Group"):
        write(file.create_dataset("y", data=1), "x", x)
    with pytest.raises(ValueError, match="names a folder: give the path of a file"):
        gf.hdf5.save(f"{tmp_path}/new/", {"x": x})
    assert list(file) == ["y"] and not (tmp_path / "new").exists()


@pytest.mark.parametrize("x", [object(), "text", np.array(["a"]), np.array([None])])
def test_what_is_no_tensor_is_refused(file: h5py.File, x: Any) -> None:
    with pytest.raises(TypeError):
        gf.hdf5.write(file, "x", x)
    assert list(file) == []


def test_an_empty_name_is_refused(file: h5py.File) -> None:
    with pytest.raises(ValueError, match="name is empty"):
        gf.hdf5.write(file, "", np.arange(5))


def test_a_bad_attribute_leaves_no_dataset(file: h5py.File) -> None:
    with pytest.raises(TypeError):
        gf.hdf5.write(file, "x", np.arange(5), attrs={"bad": object()})
    assert list(file) == []


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.zeros((20, 30), "f4"), r"shape \(30, 20\).*\(20, 30\)"),
        (np.zeros((30,), "f4"), r"shape \(30, 20\)"),
        (np.zeros((30, 20), "f8"), "float32.*float64"),
        (np.broadcast_to(np.float32(0), (30, 20)), "read-only"),
    ],
)
def test_out_that_does_not_fit_is_refused(file: h5py.File, out: Any, message: str) -> None:
    gf.hdf5.write(file, "x", smooth((30, 20)))
    with pytest.raises(ValueError, match=message):
        gf.hdf5.read(file, "x", out=out)
    assert not np.any(out)


@pytest.mark.parametrize("selection", [None, np.s_[::-1], [1, 0], np.array([True, True])], ids=str)
@pytest.mark.parametrize(
    ("out", "kind", "text"),
    [
        (np.broadcast_to(np.float32(0), (2, 200)), ValueError, "out is read-only: give a writable"),
        (as_strided(np.zeros(200, "f4"), (2, 200), (0, 4)), ValueError, "of out share memory"),
        (as_strided(np.zeros(201, "f4"), (2, 200), (4, 4)), ValueError, "of out share memory"),
        (np.ma.zeros((2, 200), "f4"), TypeError, "masked array"),
    ],
    ids=["read-only", "stride 0", "axes that overlap", "masked"],
)
def test_an_out_that_cannot_be_filled_is_refused_before_anything_is_read(
    file: h5py.File,
    monkeypatch: pytest.MonkeyPatch,
    out: Any,
    kind: type[Exception],
    text: str,
    selection: Any,
) -> None:
    x = np.ones((2, 200), np.float32)
    gf.hdf5.write(file, "x", x)
    layout = h5py.VirtualLayout(x.shape, x.dtype)
    layout[:] = h5py.VirtualSource(file["x"])
    file.create_virtual_dataset("virtual", layout)
    monkeypatch.setattr(_core, "h5_read", None)
    for name in ("x", "virtual"):
        with pytest.raises(kind, match=text):
            gf.hdf5.read(file, name, selection=selection, out=out)
    assert not out.any()


def test_device_and_out_together_are_refused(file: h5py.File) -> None:
    gf.hdf5.write(file, "x", smooth((30, 20)))
    with pytest.raises(ValueError, match="not both"):
        gf.hdf5.read(file, "x", device="cpu", out=np.zeros((30, 20), "f4"))


@pytest.mark.parametrize("device", ["tpu:0", "host:99", "host:-1"])
def test_a_device_that_does_not_exist_is_refused(file: h5py.File, device: str) -> None:
    gf.hdf5.write(file, "x", smooth((30, 20)))
    with pytest.raises((ValueError, gf.Error), match=device.split(":")[-1]):
        gf.hdf5.read(file, "x", device=device)


# --- Datasets that no dtype stands for --------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        (h5py.string_dtype(), "string"),
        ("S5", "string"),
        (h5py.vlen_dtype("i4"), "variable-length"),
        (np.dtype([("a", "i4"), ("b", "f8")]), "compound"),
        ("longdouble", "floating-point type of 16 bytes"),
        (np.dtype((np.int32, (3,))), "array"),
        (np.dtype("V3"), "opaque"),
        (np.dtype(ml_dtypes.bfloat16), "opaque"),
    ],
)
def test_an_unsupported_stored_type_is_named(file: h5py.File, dtype: Any, message: str) -> None:
    file.create_dataset("x", (4,), dtype)
    with pytest.raises(TypeError, match=f"'/x'.*{message}"):
        gf.hdf5.read(file, "x")


def test_a_null_dataspace_is_refused(file: h5py.File) -> None:
    file["x"] = h5py.Empty("f4")
    with pytest.raises(TypeError, match="null dataspace"):
        gf.hdf5.read(file, "x")


# --- Damaged files ------------------------------------------------------------------------------


def damage(path: Path, at: int, replacement: bytes) -> None:
    with path.open("r+b") as raw:
        raw.seek(at)
        raw.write(replacement)


@pytest.mark.parametrize("seed", range(30))
def test_flipped_bits_give_an_error_in_every_reader(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "x.h5"
    x = smooth((64, 96))
    gf.hdf5.write(path, "x", x, chunks=(32, 96))
    with h5py.File(path) as opened:
        info = opened["x"].id.get_chunk_info(1)
    rng = np.random.default_rng(seed)
    at = int(rng.integers(info.size))
    old = path.read_bytes()[info.byte_offset + at]
    damage(path, info.byte_offset + at, bytes([old ^ (1 << int(rng.integers(8)))]))
    with pytest.raises(gf.Error, match=r"chunk at \(32, 0\) of dataset '/x'") as caught:
        gf.hdf5.read(path, "x")
    assert caught.value.status == "GPUF_ERR_CORRUPT"
    with h5py.File(path) as opened:
        assert (opened["x"][:32] == x[:32]).all()
        with pytest.raises(OSError, match="read data"):
            opened["x"][32:]


@pytest.mark.parametrize("keep", [1, 8, 40, 100, 1000])
def test_a_truncated_chunk_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "x.h5"
    gf.hdf5.write(path, "x", smooth((64, 96)), chunks=(32, 96))
    with h5py.File(path, "r+") as opened:
        _, encoded = opened["x"].id.read_direct_chunk((0, 0))
        assert keep < len(encoded)
        opened["x"].id.write_direct_chunk((0, 0), encoded[:keep])
    with pytest.raises(gf.Error, match=r"chunk at \(0, 0\) of dataset '/x'"):
        gf.hdf5.read(path, "x")


def test_a_chunk_longer_than_any_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    gf.hdf5.write(path, "x", smooth((64, 96)), chunks=(32, 96))
    with h5py.File(path, "r+") as opened:
        opened["x"].id.write_direct_chunk((0, 0), bytes(1 << 20))
    with pytest.raises(gf.Error, match="takes 1048576 bytes in the file"):
        gf.hdf5.read(path, "x")


def test_an_unfiltered_chunk_of_wrong_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    gf.hdf5.write(path, "x", smooth((64, 96)), chunks=(32, 96))
    with h5py.File(path, "r+") as opened:
        opened["x"].id.write_direct_chunk((0, 0), bytes(100), filter_mask=1)
    with pytest.raises(gf.Error, match="stored unfiltered in 100 bytes instead of 12288"):
        gf.hdf5.read(path, "x")


def test_a_chunk_moved_within_its_dataset_decodes(tmp_path: Path) -> None:
    x = smooth((64, 96))
    gf.hdf5.write(tmp_path / "x.h5", "x", x, chunks=(32, 96))
    with h5py.File(tmp_path / "x.h5", "r+") as opened:
        chunks = [opened["x"].id.read_direct_chunk((row, 0))[1] for row in (0, 32)]
        opened["x"].id.write_direct_chunk((32, 0), chunks[0])
        opened["x"].id.write_direct_chunk((0, 0), chunks[1])
    swapped = gf.hdf5.read(tmp_path / "x.h5", "x", device="cpu")
    assert (swapped == np.concatenate([x[32:], x[:32]])).all()


@pytest.mark.parametrize(
    ("shape", "chunks", "dtype"),
    [
        ((96, 64), (96, 32), "f4"),
        ((64, 96), (32, 96), "i4"),
        ((64, 96), (32, 48), "f4"),
        ((64, 96), (32, 96), "f8"),
    ],
)
def test_a_chunk_of_another_shape_or_dtype_is_refused(
    tmp_path: Path, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str
) -> None:
    path = tmp_path / "x.h5"
    gf.hdf5.write(path, "x", smooth((64, 96)), chunks=(32, 96))
    gf.hdf5.write(path, "other", smooth(shape, dtype), chunks=chunks)
    with h5py.File(path, "r+") as opened:
        _, encoded = opened["other"].id.read_direct_chunk((0, 0))
        opened["x"].id.write_direct_chunk((0, 0), encoded)
    with pytest.raises(gf.Error, match=r"chunk at \(0, 0\) of dataset '/x'(: it holds| takes)"):
        gf.hdf5.read(path, "x")


# --- Running out ----------------------------------------------------------------------------------


def test_device_memory_running_out_leaves_no_dataset(file: h5py.File) -> None:
    x = gf.to_device(smooth((300, 400)))
    view = x[:, ::-3]
    needed = 0
    while True:
        _core._host_faults(alloc_fail_after=needed)
        try:
            gf.hdf5.write(file, "x", view)
            break
        except MemoryError:
            assert list(file) == []
        needed += 1
    _core._host_faults()
    assert (file["x"][:] == gf.fetch(view)).all()


def test_device_memory_running_out_fails_a_read(file: h5py.File) -> None:
    x = smooth((300, 400))
    gf.hdf5.write(file, "x", x)
    _core._host_faults(alloc_fail_after=0)
    with pytest.raises(MemoryError):
        gf.hdf5.read(file, "x", device="host:0")
    _core._host_faults()
    assert (gf.fetch(gf.hdf5.read(file, "x", device="host:0")) == x).all()


def test_a_failed_copy_leaves_no_dataset_and_no_new_file(tmp_path: Path) -> None:
    x = gf.to_device(smooth((600, 700)), device="host:0")
    _core._host_faults(copy_fail_after_nbytes=1_000_000)
    with pytest.raises(gf.Error, match=r"injected|copy"):
        gf.hdf5.write(tmp_path / "x.h5", "x", x, chunks=(50, 700))
    _core._host_faults()
    assert not (tmp_path / "x.h5").exists()
    gf.hdf5.write(tmp_path / "x.h5", "x", x, chunks=(50, 700))
    assert (gf.hdf5.read(tmp_path / "x.h5", "x", device="cpu") == gf.fetch(x)).all()


FULL_DISK = """
import resource, signal, sys
import h5py, numpy as np
import gpufetch as gf
x = gf.to_device(np.frombuffer(np.random.default_rng(1).bytes(8 << 20), "u1"))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 1 << 30))
with h5py.File(sys.argv[1], "a") as file:
    try:
        gf.hdf5.write(file, "x", x)
    except gf.Error as error:
        print(error.status, error)
    print(list(file), file["kept"][:3])
    # A disk that is full still lets a file be made longer without blocks, as HDF5 does at close.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
"""


def test_a_full_disk_leaves_no_dataset_and_a_file_that_opens(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    gf.hdf5.write(path, "kept", np.arange(3))
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "GPUF_ERR_HDF5 writing chunk" in done.stdout
    assert "File too large" in done.stdout
    assert "['kept'] [0 1 2]" in done.stdout
    with h5py.File(path) as opened:
        assert list(opened) == ["kept"]


MISSING_FILTER = """
import sys
import gpufetch as gf
try:
    gf.hdf5.read(sys.argv[1], "x")
except gf.Error as error:
    print(error)
"""


def test_a_filter_that_is_not_installed_is_named_with_the_remedy(tmp_path: Path) -> None:
    hdf5plugin = pytest.importorskip("hdf5plugin")
    path = tmp_path / "x.h5"
    make = (
        "import sys, h5py, hdf5plugin, numpy as np\n"
        "with h5py.File(sys.argv[1], 'w') as f:\n"
        "    f.create_dataset('x', data=np.arange(999), **hdf5plugin.LZ4())\n"
    )
    subprocess.run([sys.executable, "-c", make, str(path)], check=True)
    done = subprocess.run(
        [sys.executable, "-c", MISSING_FILTER, str(path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert str(hdf5plugin.LZ4_ID) in done.stdout
    assert "HDF5_PLUGIN_PATH" in done.stdout


@pytest.mark.parametrize("nbytes", [3, 5, 6, 7])
@pytest.mark.parametrize("device", ["cpu", "host:0"])
def test_integers_that_numpy_cannot_hold_are_refused_by_the_datasets_name(
    tmp_path: Path, nbytes: int, device: Any
) -> None:
    path = tmp_path / "odd.h5"
    with h5py.File(path, "w") as file:
        odd = h5py.h5t.STD_I64LE.copy()
        odd.set_precision(8 * nbytes)
        odd.set_size(nbytes)
        h5py.h5d.create(file.id, b"odd", odd, h5py.h5s.create_simple((4,)))
    for selection in (None, slice(1, 3), [0, 2]):
        with pytest.raises(TypeError, match=rf"'/odd' in {path} .* {nbytes} bytes"):
            gf.hdf5.read(path, "odd", selection=selection, device=device)


@pytest.mark.parametrize("name", ["k" * 65520, "a/" + "k" * 65520, "a/" + "k" * 65520 + "/b"])
def test_a_name_that_would_cost_the_file_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        file["old"] = np.arange(5)
    with pytest.raises(ValueError, match="has 65520 bytes without a slash"):
        gf.hdf5.write(path, name, np.ones(3))
    with h5py.File(path, "a") as file, pytest.raises(ValueError, match="of at most 60000"):
        gf.hdf5.save(file.create_group("tree"), {"k" * 65520: np.ones(3)})
    gf.hdf5.write(path, "k" * 60000, np.ones(3))
    with h5py.File(path) as file:
        assert file["old"][:].tolist() == [0, 1, 2, 3, 4]
        assert file["k" * 60000][:].tolist() == [1, 1, 1]
