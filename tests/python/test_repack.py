"""gpufetch repack: the copy has other filters and nothing else that is different."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from h5py import h5s, h5t

import gpufetch as gf
from gpufetch.__main__ import main
from gpufetch.hdf5 import _copy, _dataset, _ls
from gpufetch.hdf5._boxes import boxes, chunk_shape

CODECS = list(_copy.CODECS)
FILTERS = {"gpufetch": [gf.hdf5.FILTER_ID], "bitshuffle-lz4": [32008], "gzip": [2, 1], "none": []}


def field() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=(60, 50)).cumsum(axis=1).astype("f4")


def fill_numbers(group: h5py.Group, x: np.ndarray[Any, Any]) -> None:
    gf.hdf5.write(group, "ours", x, chunks=(16, 50))
    gf.hdf5.write(group, "bits", x, chunks=(16, 16), codec="bitshuffle-lz4")
    group.create_dataset("be", data=x.astype(">f8"), compression="gzip", shuffle=True)
    group.create_dataset("plain", data=x)
    group.create_dataset("bool", data=x > 0, chunks=(10, 50))
    group.create_dataset("complex", data=x + 1j, chunks=(10, 50))
    group.create_dataset("tiny", data=[1, 2])
    group.create_dataset("scalar", data=3.5)
    group.create_dataset("null", data=h5py.Empty("f4"))
    group.create_dataset("empty", data=np.zeros((0, 3)))
    group.create_dataset("long", data=np.ones(500, "longdouble"), chunks=(100,))
    sparse = group.create_dataset(
        "sparse", (1000, 1000), "i4", chunks=(100, 100), fillvalue=7, maxshape=(None, 2000)
    )
    sparse[250:300, 10] = 1


def fill_others(group: h5py.Group) -> None:
    group.create_dataset("text", data=["a", "bcd", ""], dtype=h5py.string_dtype())
    group.create_dataset("fixed", data=np.array([b"ab", b"c"] * 2000))
    ragged = group.create_dataset("ragged", (3,), h5py.vlen_dtype("i4"), chunks=(2,))
    ragged[0], ragged[2] = [1, 2], [5]
    mixed = [("a", "<i4"), ("b", ">f8"), ("c", "S3")]
    group.create_dataset("mixed", data=np.array([(1, 2.5, b"ab")] * 900, mixed), chunks=(100,))
    group.create_dataset("opaque", data=np.array([b"abc"] * 3000, "V3"))
    enum = h5py.enum_dtype({"a": 0, "b": 1, "c": 2}, "u1")
    group.create_dataset("enum", data=np.arange(9000) % 3, dtype=enum, chunks=(1000,))


def fill_references(file: h5py.File) -> None:
    """Everything that holds addresses: references, links, scales, committed types."""
    a, x = file["a"], file["a/ours"]
    references = a.create_dataset("references", (4,), h5py.ref_dtype)
    references[0], references[1], references[2] = x.ref, file["z"].ref, file.ref
    regions = a.create_dataset("regions", (2,), h5py.regionref_dtype)
    regions[0] = x.regionref[2:5, ::3]
    pair = a.create_dataset("pair", (2,), np.dtype([("r", h5py.ref_dtype), ("i", "i4")]))
    pair[0] = (x.ref, 3)
    a.attrs["reference"] = x.ref
    file["alias"], file["loop"] = x, file["z"]
    file["soft"], file["gone"] = h5py.SoftLink("/z/b"), h5py.SoftLink("/nowhere")
    file["outside"] = h5py.ExternalLink("other.h5", "/q")
    file["type"] = np.dtype([("a", "i4"), ("b", "f4")])
    file["type"].attrs["reference"] = file["z"].ref
    a.create_dataset("committed", (50,), file["type"], chunks=(10,))[3] = (1, 2)
    for axis, name in enumerate(["lat", "lon"]):
        file[name] = np.arange(float(x.shape[axis]))
        file[name].make_scale(name)
        x.dims[axis].attach_scale(file[name])
    x.dims[0].label = "y"


def make(path: Path, **options: Any) -> None:
    with h5py.File(path, "w", track_order=True, **options) as file:
        file.attrs["title"], file.attrs["n"] = "x", np.arange(3, dtype=">i2")
        file.attrs["none"] = h5py.Empty("f8")
        file.create_group("z/b/c", track_order=True).attrs["names"] = ["é", "b"]
        fill_numbers(file.create_group("a"), field())
        fill_others(file["a"])
        fill_references(file)
        layout = h5py.VirtualLayout((120, 50), "f4")
        layout[:60] = h5py.VirtualSource(".", "/a/plain", (60, 50))
        file["a"].create_virtual_dataset("virtual", layout, fillvalue=-5)
        outside = [(str(path.with_suffix(".raw")), 0, h5py.h5f.UNLIMITED)]
        file["a"].create_dataset("external", data=field(), external=outside)


def filters(dataset: h5py.Dataset) -> list[int]:
    plist = dataset.id.get_create_plist()
    return [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("repack") / "in.h5"
    make(path)
    return path


def check_numbers(file: h5py.File, names: set[str]) -> None:
    x = field()
    expected = {
        "ours": x, "bits": x, "plain": x, "be": x.astype(">f8"), "bool": x > 0, "complex": x + 1j,
        "virtual": np.concatenate([x, np.full((60, 50), -5)]), "external": x,
        "enum": np.arange(9000) % 3,
    }  # fmt: skip
    for name in names & expected.keys():
        assert (gf.hdf5.read(file["a"], name, device="cpu") == expected[name]).all(), name


def check_references(file: h5py.File) -> None:
    a, x = file["a"], file["a/ours"]
    assert file[a["references"][0]] == x and file[a["references"][1]] == file["z"]
    assert file[a["references"][2]] == file["/"] and not a["references"][3]
    assert x.regionref.selection(a["regions"][0]) == (3, 17) and not a["regions"][1]
    assert file[a["pair"][0]["r"]] == x and a["pair"][0]["i"] == 3
    assert file[a.attrs["reference"]] == x
    assert file["alias"] == x and file["loop"] == file["z"]
    assert file.get("soft", getlink=True).path == "/z/b"
    assert file.get("outside", getlink=True).filename == "other.h5"
    assert a["committed"].id.get_type().committed() and a["committed"][3]["b"] == 2
    assert file[file["type"].attrs["reference"]] == file["z"]
    assert [x.dims[i][0].name for i in (0, 1)] == ["/lat", "/lon"] and x.dims[0].label == "y"
    assert file["lat"].is_scale


@pytest.mark.parametrize("codec", CODECS)
def test_a_repacked_file_has_everything_and_the_filter(
    source: Path, tmp_path: Path, codec: Any
) -> None:
    before = source.read_bytes()
    gf.hdf5.repack(source, tmp_path / "out.h5", codec=codec)
    assert source.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out.h5"]
    with h5py.File(source) as old, h5py.File(tmp_path / "out.h5") as new:
        names = set(old["a"])
        assert list(new) == list(old) and list(new["a"]) == list(old["a"])
        assert list(new.attrs) == ["title", "n", "none"] and new.attrs["n"].dtype == ">i2"
        check_numbers(new, names)
        check_references(new)
        for name in ("ours", "bits", "plain", "bool", "complex", "virtual", "external", "enum"):
            one_byte = name in ("bool", "enum")  # which shuffling does nothing for
            expected = [f for f in FILTERS[codec] if not (one_byte and f == 2)]
            assert filters(new["a"][name]) == expected, name
        for name in ("text", "ragged", "references", "tiny", "scalar", "null"):
            assert filters(new["a"][name]) == [], name
        assert new["a/ours"].chunks == (16, 50) and new["a/bits"].chunks == (16, 16)
        assert new["a/plain"].chunks == (None if codec == "none" else (60, 50))
        assert new["a/sparse"].maxshape == (None, 2000) and new["a/sparse"].fillvalue == 7
        assert new["a/sparse"].id.get_num_chunks() == old["a/sparse"].id.get_num_chunks() == 1
        assert list(new["a/ragged"][0]) == [1, 2] and new["a/text"].asstr()[1] == "bcd"
        assert new["z/b/c"].attrs["names"].tolist() == ["é", "b"]


@pytest.mark.parametrize("codec", CODECS)
def test_there_and_back_gives_the_same_file(source: Path, tmp_path: Path, codec: Any) -> None:
    gf.hdf5.repack(source, tmp_path / "there.h5", codec=codec)
    gf.hdf5.repack(tmp_path / "there.h5", tmp_path / "back.h5", codec="gpufetch")
    gf.hdf5.repack(source, tmp_path / "straight.h5", codec="gpufetch")
    with h5py.File(tmp_path / "back.h5") as back, h5py.File(tmp_path / "straight.h5") as straight:
        check_references(back)
        for name, dataset in straight["a"].items():
            assert filters(back["a"][name]) == filters(dataset)
            assert repr(back["a"][name][()]) == repr(dataset[()])


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_any_hdf5_reads_the_plain_form(source: Path, tmp_path: Path, codec: Any) -> None:
    gf.hdf5.repack(source, tmp_path / "out.h5", codec=codec)
    program = (
        "import sys, h5py\n"
        "with h5py.File(sys.argv[1]) as file:\n"
        "    print(sum(dataset[()] is not None for dataset in file['a'].values()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "out.h5")],
        env={k: v for k, v in os.environ.items() if k != "HDF5_PLUGIN_PATH"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20
    if shutil.which("h5dump"):
        dumped = subprocess.run(["h5dump", str(tmp_path / "out.h5")], capture_output=True)
        assert dumped.returncode == 0


def test_old_and_new_superblocks_and_a_user_block_are_kept(tmp_path: Path) -> None:
    for libver in ("earliest", "latest"):
        path, out = tmp_path / f"{libver}.h5", tmp_path / f"{libver}.out.h5"
        with h5py.File(path, "w", libver=libver, userblock_size=1024) as file:
            gf.hdf5.write(file, "x", field(), chunks=(7, 50))
            file.attrs["many"] = np.zeros(3000)
        with path.open("r+b") as raw:
            raw.write(b"#!/bin/sh\n")
        gf.hdf5.repack(path, out, codec="none")
        assert out.read_bytes()[:10] == b"#!/bin/sh\n"
        with h5py.File(path) as old, h5py.File(out) as new:
            versions = [f.id.get_create_plist().get_version()[0] for f in (old, new)]
            assert (versions[0] >= 2) == (versions[1] >= 2) == (libver == "latest")
            assert (new["x"][:] == field()).all() and new.userblock_size == 1024


def test_elements_larger_than_the_boxes_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_dataset, "BOX_NBYTES", 5000)
    make(tmp_path / "in.h5")
    gf.hdf5.repack(tmp_path / "in.h5", tmp_path / "out.h5", codec="gzip")
    with h5py.File(tmp_path / "out.h5") as file:
        check_numbers(file, {"ours", "bits", "be", "virtual", "external"})


def test_boxes_tile_the_shape_along_the_chunks() -> None:
    for shape, chunk in [((10, 7), (4, 3)), ((5,), (8,)), ((3, 4, 5), (1, 1, 1)), ((), ())]:
        for nbytes in (0, 40, 200, 10**6):
            seen = np.zeros(shape, int)
            for start, extent in boxes(shape, chunk, 8, nbytes):
                seen[tuple(slice(s, s + n) for s, n in zip(start, extent, strict=True))] += 1
                assert all(s % c == 0 for s, c in zip(start, chunk, strict=True))
            assert (seen == 1).all()
    for shape in [(1 << 22,), (3000, 3000), (1, 1 << 24), (1 << 24, 1)]:
        chunk = chunk_shape(shape, 4)
        assert 1 << 18 <= 4 * int(np.prod(chunk)) <= 1 << 20
        assert all(c <= n for c, n in zip(chunk, shape, strict=True))


EXTENSIBLE: list[tuple[tuple[int, ...], tuple[int | None, ...]]] = [
    ((10,), (None,)),
    ((4, 500), (None, 500)),
    ((0, 3), (None, 3)),
    ((0,), (5,)),
    ((2, 0), (2, 7)),
]


@pytest.mark.parametrize("codec", ["gpufetch", "gzip", "none"])
def test_virtual_and_external_datasets_stay_extensible(tmp_path: Path, codec: Any) -> None:
    path, once, twice = (tmp_path / f"{name}.h5" for name in ("x", "once", "twice"))
    with h5py.File(path, "w") as file:
        for number, (shape, most) in enumerate(EXTENSIBLE):
            values = np.arange(np.prod(shape, dtype=int), dtype="f4").reshape(shape)
            file[f"source {number}"] = values
            layout = h5py.VirtualLayout(shape, "f4", maxshape=most)
            if values.size:
                layout[...] = h5py.VirtualSource(file[f"source {number}"])
            file.create_virtual_dataset(f"virtual {number}", layout)
            if most[1:] == shape[1:]:  # HDF5 lets files outside extend along the first axis alone
                outside = [(str(tmp_path / f"{number}.raw"), 0, h5py.h5f.UNLIMITED)]
                made = file.create_dataset(
                    f"external {number}", shape, "f4", maxshape=most, external=outside
                )
                made[...] = values
        text = h5py.VirtualLayout((2,), h5py.string_dtype(), maxshape=(None,))
        file["text"] = ["a", "bc"]
        text[...] = h5py.VirtualSource(file["text"])
        file.create_virtual_dataset("virtual text", text)
    gf.hdf5.repack(path, once, codec=codec)
    gf.hdf5.repack(once, twice, codec=codec)
    with h5py.File(path) as old, h5py.File(twice, "r+") as new:
        for name, dataset in old.items():
            assert new[name].maxshape == dataset.maxshape, name
            assert np.array_equal(new[name][...], dataset[...]), name
        for number, (shape, most) in enumerate(EXTENSIBLE):
            longer = tuple(m or n + 2 for n, m in zip(shape, most, strict=True))
            new[f"virtual {number}"].resize(longer)
            new[f"virtual {number}"][...] = 7
    with h5py.File(twice) as new:
        assert all((new[f"virtual {number}"][...] == 7).all() for number in range(len(EXTENSIBLE)))


# --- What does not fit ----------------------------------------------------------------------------


def test_an_existing_file_is_kept_unless_told(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    out.write_text("mine")
    with pytest.raises(FileExistsError, match=r"out\.h5 exists already"):
        gf.hdf5.repack(source, out)
    assert out.read_text() == "mine"
    gf.hdf5.repack(source, out, overwrite=True)
    assert h5py.is_hdf5(out)


def test_the_source_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.h5"
    gf.hdf5.write(path, "x", field())
    (tmp_path / "link.h5").symlink_to(path)
    for dest in (path, tmp_path / "link.h5"):
        with pytest.raises(ValueError, match="is the source itself"):
            gf.hdf5.repack(path, dest, overwrite=True)


def test_a_copy_that_differs_is_never_given_its_name(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = _dataset.Dataset.write

    def altered(self: Any, start: Any, values: Any) -> None:
        if values.dtype == np.float32:
            values = values.copy()
            values.flat[-1] += 1
        real(self, start, values)

    monkeypatch.setattr(_dataset.Dataset, "write", altered)
    with pytest.raises(RuntimeError, match=r"differs from the source: an element .* of /"):
        gf.hdf5.repack(source, tmp_path / "out.h5")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_chunk_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "in.h5"
    gf.hdf5.write(path, "x", field(), chunks=(16, 50))
    with h5py.File(path, "r+") as file:
        file["x"].id.write_direct_chunk((16, 0), b"nonsense")
    with pytest.raises((OSError, gf.Error), match="chunk"):
        gf.hdf5.repack(path, tmp_path / "out.h5")
    assert [p.name for p in tmp_path.iterdir()] == ["in.h5"]


def test_a_dataset_that_hdf5_cannot_read_is_named(tmp_path: Path) -> None:
    damaged, outside = tmp_path / "damaged.h5", tmp_path / "outside.h5"
    with h5py.File(damaged, "w") as file:  # of the other byte order, which h5py reads
        dataset = file.create_dataset("g/x", data=field().astype(">f8"), compression="gzip")
        dataset.id.write_direct_chunk((0, 0), b"nonsense")
    with h5py.File(outside, "w") as file:
        file.create_dataset("e", (20,), "f8", external=[(str(tmp_path / "gone"), 0, 160)])
    for path, name in ((damaged, "/g/x"), (outside, "/e")):
        with pytest.raises(OSError, match=f"^dataset {name}: .*read"):
            gf.hdf5.repack(path, tmp_path / "out.h5")


def test_what_cannot_be_repacked_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="codec 'zip' is unknown: give one of gpufetch"):
        gf.hdf5.repack(tmp_path / "in.h5", tmp_path / "out.h5", codec="zip")  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        gf.hdf5.repack(tmp_path / "in.h5", tmp_path / "out.h5")
    (tmp_path / "text.h5").write_text("no HDF5")
    with pytest.raises(OSError, match="signature"):
        gf.hdf5.repack(tmp_path / "text.h5", tmp_path / "out.h5")
    assert not (tmp_path / "out.h5").exists()


def test_a_missing_filter_is_named(tmp_path: Path) -> None:
    path = tmp_path / "in.h5"
    with h5py.File(path, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4,))
        plist.set_filter(32099, h5py.h5z.FLAG_OPTIONAL, ())
        space = h5py.h5s.create_simple((4,))
        h5py.h5d.create(file.id, b"odd", h5py.h5t.IEEE_F32LE, space, plist)
    with pytest.raises(OSError, match="dataset /odd is stored with filter 32099"):
        gf.hdf5.repack(path, tmp_path / "out.h5")


# --- The command line -----------------------------------------------------------------------------


def test_the_command_repacks_and_says_what_it_gained(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.h5"
    assert main(["repack", "--codec", "none", str(source), str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: ")
    assert main(["repack", str(source), str(out)]) == 1
    assert "exists already" in capsys.readouterr().err
    assert main(["repack", "--overwrite", str(source), str(out)]) == 0
    with pytest.raises(SystemExit):
        main(["repack", "--codec", "zip", str(source), str(out)])


def test_ls_names_every_kind_of_link_layout_and_filter(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gf.hdf5.repack(source, tmp_path / "gzip.h5", codec="gzip")
    assert main(["ls", str(source), str(tmp_path / "gzip.h5")]) == 0
    ours, gzip = capsys.readouterr().out.split(f"{tmp_path / 'gzip.h5'}: ")
    rows = {line.split()[0]: line.split() for line in ours.splitlines()[1:]}
    assert rows["a/"] == ["a/", "group"]
    assert rows["soft"] == ["soft", "->", "/z/b"]
    assert rows["outside"] == ["outside", "->", "other.h5:/q"]
    assert rows["alias"][:2] == ["alias", "(60,"] and rows["alias"][-1] == "gpufetch"
    assert rows["a/ours"] == ["a/ours", "=", "/alias"]
    assert "bitshuffle-lz4" in rows["a/bits"] and rows["a/bits"][-1] == "hdf5plugin"
    assert "shuffle+deflate" in rows["a/be"] and rows["a/be"][-1] == "-"
    assert "virtual" in rows["a/virtual"] and "external" in rows["a/external"]
    assert "utf-8" in rows["a/text"] and "int32[]" in rows["a/ragged"]
    assert "enum" in rows["a/enum"] and "Reference" in rows["a/references"]
    assert "null" in rows["a/null"]
    assert "needs gpufetch: import gpufetch" in ours and "needs hdf5plugin" in ours
    assert "any HDF5 reads every dataset" in gzip


def test_ls_names_a_filter_that_it_does_not_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for name, number in [(b"odd", 32099), (b"zfp", 32013)]:
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk((4,))
            plist.set_filter(number, h5py.h5z.FLAG_OPTIONAL, ())
            space = h5py.h5s.create_simple((4,))
            h5py.h5d.create(file.id, name, h5py.h5t.IEEE_F32LE, space, plist)
    assert main(["ls", str(path)]) == 0
    out = capsys.readouterr().out
    assert "needs the plugin of filter 32099; it is not found here" in out
    assert "needs hdf5plugin" in out and " zfp " in out


@pytest.mark.parametrize("is_installed", [True, False])
def test_ls_tells_a_package_to_import_from_one_to_install(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_installed: bool,
) -> None:
    monkeypatch.setattr(_ls, "find_spec", lambda name: is_installed or None)
    monkeypatch.setattr(_ls.h5z, "filter_avail", lambda number: False)
    gf.hdf5.write(tmp_path / "x.h5", "x", field(), codec="bitshuffle-lz4")
    assert main(["ls", str(tmp_path / "x.h5")]) == 0
    why = "it is installed here: import hdf5plugin before" if is_installed else "it is not found"
    assert f"needs hdf5plugin; {why}" in capsys.readouterr().out


NEVER_WRITTEN: dict[str, tuple[Any, bool]] = {
    "compound": (np.dtype([("a", "<i4"), ("b", "<f8")]), False),
    "big_endian": (np.dtype(">f8"), False),
    "chunked": (np.dtype("S8"), True),
}


@pytest.mark.parametrize("name", NEVER_WRITTEN)
def test_elements_never_written_are_copied_as_h5py_reads_them(tmp_path: Path, name: str) -> None:
    dtype, is_chunked = NEVER_WRITTEN[name]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        if is_chunked:
            plist.set_chunk((500,))
        space, tid = h5py.h5s.create_simple((5000,)), h5py.h5t.py_create(dtype)
        made = h5py.Dataset(h5py.h5d.create(file.id, b"x", tid, space, plist))
        if is_chunked:
            made[:700] = b"written"
        expected = made[...]
    for _ in range(3):
        np.full(5000 * dtype.itemsize, 7, "u1")  # memory that holds no zeros
        gf.hdf5.repack(tmp_path / "x.h5", tmp_path / "y.h5", overwrite=True)
        with h5py.File(tmp_path / "y.h5") as file:
            assert file["x"][...].tobytes() == expected.tobytes()


@pytest.mark.parametrize("codec", ["none", "gzip", "gpufetch", "bitshuffle-lz4"])
@pytest.mark.parametrize("alloc", ["EARLY", "LATE", "INCR"])
def test_elements_never_written_of_a_dataset_that_grew_are_copied(
    tmp_path: Path, alloc: str, codec: Any
) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((2, 6))
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        plist.set_fill_value(np.array(71, "u1"))
        plist.set_alloc_time(getattr(h5py.h5d, f"ALLOC_TIME_{alloc}"))
        space = h5py.h5s.create_simple((4, 6), (h5py.h5s.UNLIMITED,) * 2)
        made = h5py.Dataset(h5py.h5d.create(file.id, b"x", h5py.h5t.STD_U8LE, space, plist))
        made[:1, :1] = 5
        made.resize((6, 20))
        expected = made[...]
    gf.hdf5.repack(tmp_path / "x.h5", tmp_path / "y.h5", codec=codec)
    with h5py.File(tmp_path / "y.h5") as file:
        assert np.array_equal(gf.hdf5.read(file["x"], device="cpu"), expected)


def test_repack_compresses_what_is_allocated_early(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((1 << 16,))
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        space = h5py.h5s.create_simple((1 << 18,))
        h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F64LE, space, plist)
    gf.hdf5.repack(tmp_path / "x.h5", tmp_path / "y.h5", codec="bitshuffle-lz4")
    assert (tmp_path / "y.h5").stat().st_size < (tmp_path / "x.h5").stat().st_size / 10


@pytest.mark.parametrize("where", ["/", "g", "a", "z", "ct"])
def test_attributes_of_a_committed_type_are_copied(tmp_path: Path, where: str) -> None:
    kind = np.dtype([("a", "<i4")])
    with h5py.File(tmp_path / "x.h5", "w", track_order=True) as file:
        file["a"], file["z"] = 1.0, 2.0
        file["ct"] = kind
        file["gone"] = np.dtype("<f8")
        file.create_group("g")
        file[where].attrs.create("k", np.array((7,), kind), dtype=file["ct"])
        file[where].attrs.create("n", np.zeros(2), dtype=file["gone"])
        del file["gone"]
    gf.hdf5.repack(tmp_path / "x.h5", tmp_path / "y.h5")
    with h5py.File(tmp_path / "y.h5") as file:
        assert list(file) == ["a", "z", "ct", "g"]
        found = file[where].attrs.get_id("k")
        assert found.get_type().committed() and file[where].attrs["k"]["a"] == 7
        assert h5py.h5o.get_info(found.get_type()).addr == h5py.h5o.get_info(file["ct"].id).addr


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_groups_of_many_links_and_attributes_are_copied(tmp_path: Path, libver: str) -> None:
    """Such a group's creation properties say where its links lie in the file."""
    values = {f"k{i}": np.full(10, i) for i in range(30)}
    gf.hdf5.write(tmp_path / "tree.h5", "deep/t", values)
    with h5py.File(tmp_path / "tree.h5", "a", libver=libver) as file:
        group = file.create_group("ordered", track_order=True)
        for i in reversed(range(30)):
            group[f"k{i}"] = np.full(10, i)
            group.attrs[f"a{i}"] = i
    gf.hdf5.repack(tmp_path / "tree.h5", tmp_path / "copy.h5")
    with h5py.File(tmp_path / "copy.h5") as copy:
        assert list(copy["ordered"]) == [f"k{i}" for i in reversed(range(30))]
        for name, expected in values.items():
            np.testing.assert_array_equal(copy["deep/t"][name], expected)
            np.testing.assert_array_equal(copy["ordered"][name], expected)
        assert dict(copy["ordered"].attrs) == {f"a{i}": i for i in range(30)}


def run_in_process(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `program` with the paths of a source and of a copy in sys.argv."""
    return subprocess.run(
        [sys.executable, "-c", program, folder / "source.h5", folder / "copy.h5"],
        capture_output=True,
        text=True,
        timeout=300,
    )


FULL_DISK = """
import errno, os, resource, sys
import h5py
import numpy as np
import gpufetch as gf
random = np.random.default_rng(1)
source, dest = sys.argv[1:]
kinds = {
    "numbers": {"data": random.integers(0, 256, (600, 1000), np.uint8), "chunks": (100, 1000)},
    "big-endian": {"data": random.normal(size=60_000).astype(">f8"), "chunks": (5000,)},
    "compounds": {"data": random.bytes(600_000), "dtype": [("a", "<i4"), ("b", "S8")]},
    "text": {"data": [random.bytes(300).hex() for i in range(1000)]},
    "fixed": {"data": np.frombuffer(random.bytes(600_000), "S100"), "chunks": (500,)},
}
kinds["compounds"]["data"] = np.frombuffer(
    kinds["compounds"]["data"], kinds["compounds"].pop("dtype")
)
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
for kind, options in kinds.items():
    for codec in ["gpufetch", "bitshuffle-lz4", "gzip", "none"]:
        with h5py.File(source, "w") as file:
            file.create_dataset("x", **options)
        for nbytes in [1000, 20_000, 100_000, 250_000]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, unlimited[1]))
            try:
                gf.hdf5.repack(source, dest, codec=codec)
                print("done in", nbytes, kind, codec)
            except OSError as error:
                text = f"{os.strerror(errno.EFBIG)}: {dest} cannot be written"
                if (error.errno, error.strerror) != (errno.EFBIG, text) or os.path.exists(dest):
                    print(kind, codec, repr(error))
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        gf.hdf5.repack(source, dest, codec=codec)
        os.remove(dest)
        os.remove(source)
print(os.listdir(os.path.dirname(dest)))
"""


def test_a_full_disk_is_an_error_with_its_errno_and_nothing_else(tmp_path: Path) -> None:
    done = run_in_process(FULL_DISK, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


INTERRUPTED = """
import os, signal, sys
import h5py
import numpy as np
import gpufetch as gf
from gpufetch.hdf5._output_file import OutputFile
source, dest = sys.argv[1:]
with h5py.File(source, "w") as file:
    file["small"] = np.random.default_rng(1).integers(0, 256, (600, 1000), np.uint8)
    file["text"] = [f"x{i}" for i in range(500)]
    for i in range(20):
        file[f"group/{i}"] = np.arange(700, dtype=">f4")
count = signal_at = 0

def counted(call):
    def run(self, *arguments):
        global count
        count += 1
        if count == signal_at:
            signal.raise_signal(signal.SIGINT)
        return call(self, *arguments)
    return run

for name in ("write", "seek", "truncate"):
    setattr(OutputFile, name, counted(getattr(OutputFile, name)))
gf.hdf5.repack(source, dest, codec="gzip")
calls, interrupted = count, 0
for signal_at in [*range(1, calls, max(1, calls // 40)), calls]:
    os.remove(dest)
    count = 0
    try:
        gf.hdf5.repack(source, dest, codec="gzip")
    except KeyboardInterrupt:
        interrupted += 1
        assert not os.path.exists(dest)
        signal_at = 0
        gf.hdf5.repack(source, dest, codec="gzip")
print(calls > 40 and interrupted > 30, os.listdir(os.path.dirname(dest)))
"""


def test_ctrl_c_while_hdf5_writes_ends_the_copy_and_nothing_else(tmp_path: Path) -> None:
    done = run_in_process(INTERRUPTED, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split(" ", 1)[0] == "True" and done.stdout.count(".h5") == 2, done.stdout


@pytest.mark.parametrize("base", [h5t.STD_I8BE, h5t.STD_U8LE], ids=["i8be", "u8"])
@pytest.mark.parametrize("options", [{}, {"chunks": (2,), "compression": "gzip"}])
def test_booleans_keep_bytes_that_have_no_name(
    tmp_path: Path, base: Any, options: dict[str, Any]
) -> None:
    path = tmp_path / "a.h5"
    values = np.array([2, 1, 255, 0], np.uint8)
    tid = h5t.enum_create(base)
    tid.enum_insert(b"FALSE", 0)
    tid.enum_insert(b"TRUE", 1)

    def stored(file: h5py.File) -> list[int]:
        found = np.zeros(4, np.uint8)
        file["x"].id.read(h5s.ALL, h5s.ALL, found, mtype=tid)
        return found.tolist()

    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (4,), h5py.Datatype(tid), **options)
        dataset.id.write(h5s.ALL, h5s.ALL, values, mtype=tid)
    gf.hdf5.repack(path, tmp_path / "b.h5", codec="gzip")
    with h5py.File(tmp_path / "b.h5", "r+") as file:
        assert stored(file) == values.tolist()
        read = np.asarray(gf.hdf5.read(file["x"]))
        assert read.dtype == bool and read.view(np.uint8).tolist() == values.tolist()
        dataset = _dataset.Dataset(file["x"].id, "numbers")  # by gpuf_h5_write_region
        dataset.write((0,), values[::-1].copy().view(bool))
        assert stored(file) == values[::-1].tolist()


def test_a_folder_that_there_is_not_is_named(tmp_path: Path) -> None:
    source = tmp_path / "in.h5"
    with h5py.File(source, "w") as file:
        file["x"] = np.arange(3)
    with pytest.raises(FileNotFoundError, match=r"there is no such folder: '.*nope'$"):
        gf.hdf5.repack(source, tmp_path / "nope" / "out.h5")


@pytest.mark.parametrize("where", ["dataset", "attribute"])
def test_sequences_of_big_endian_numbers_are_refused(tmp_path: Path, where: str) -> None:
    source, dest = tmp_path / "a.h5", tmp_path / "b.h5"
    with h5py.File(source, "w") as file:
        if where == "dataset":
            file.create_dataset("r", (2,), h5py.vlen_dtype(">f8"))[0] = np.array([1, 2], ">f8")
        else:
            values = np.empty(1, object)
            values[0] = np.array([1], ">i4")
            file.attrs.create("r", values, dtype=h5py.vlen_dtype(">i4"))
    with pytest.raises(ValueError, match=f"{where} /?r .*sequences of big-endian.*h5repack"):
        gf.hdf5.repack(source, dest)
    assert not dest.exists()
    with h5py.File(source, "w") as file:
        file.create_dataset("none", (0,), h5py.vlen_dtype(">f8"))
    gf.hdf5.repack(source, dest)


def test_a_damaged_object_is_an_error_that_names_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    source = tmp_path / "a.h5"
    with h5py.File(source, "w") as file:
        file["x"] = np.zeros(3, "f4")
    whole = source.read_bytes()
    float32 = b"\x11\x20\x1f\x00\x04\x00\x00\x00\x00\x00\x20\x00"
    assert whole.count(float32) == 1
    source.write_bytes(whole.replace(float32, float32[:-2] + b"\x00\x00"))
    assert main(["repack", str(source), str(tmp_path / "b.h5")]) == 1
    assert "/x does not open: " in capsys.readouterr().err
