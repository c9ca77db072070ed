"""References by which Zarr reads HDF5 files: every element is h5py's; nothing is left out unsaid.

Zarr reads in processes of its own, with hdf5_gpufetch and without gpufetch. Over HTTP, with xarray
and with imagecodecs' bitshuffle, `./dev test --install` has the packages.
"""

from __future__ import annotations

import base64
import http.server
import json
import math
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from plugin_files import REPOSITORY, plugin_folder
from reader_build import install
from reader_files import write_every
from reference_files import INEXPRESSIBLE, write_expressible, write_inexpressible

import gpufetch as gf
from gpufetch.__main__ import main
from gpufetch.hdf5._refs_chunks import split_rows

SCRIPT = REPOSITORY / "tests" / "install" / "read_refs.py"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reader as pip would install it."""
    folder = plugin_folder()
    if folder is None:
        pytest.skip("libh5z_gpufetch.so is not built")
    return install(tmp_path_factory.mktemp("refs"), folder / "libh5z_gpufetch.so")


@pytest.fixture(scope="module")
def expressible(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "expressible.h5"
    write_expressible(path)
    return path


def read(site: Path, python: str | Path, *arguments: str | Path) -> int:
    """How many arrays read_refs.py found, all of them right."""
    if python == sys.executable:
        pytest.importorskip("zarr")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [python, SCRIPT, *arguments],
        env={**kept, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout)


def written(references: dict[str, Any], path: Path) -> Path:
    path.write_text(json.dumps(references))
    return path


def test_every_dtype_and_mode_of_the_codec_is_what_h5py_reads(site: Path, tmp_path: Path) -> None:
    path = tmp_path / "every.h5"
    write_every(path, tmp_path / "every.npz")
    references = written(gf.hdf5.references(path), tmp_path / "every.json")
    assert read(site, sys.executable, path, references) > 200


def test_every_form_of_chunks_is_what_h5py_reads(
    site: Path, tmp_path: Path, expressible: Path
) -> None:
    references = written(gf.hdf5.references(expressible), tmp_path / "refs.json")
    assert read(site, sys.executable, expressible, references, "xarray") > 80


def test_elements_that_were_never_written_come_from_the_fill_value(
    site: Path, tmp_path: Path, expressible: Path
) -> None:
    left: list[str] = []
    made = gf.hdf5.references(expressible, inline_nbytes=0, leave_out=left.append)
    held = ("/bits/", "/types/", "/noise", "/soft")  # what the references hold otherwise
    assert left and all(text.startswith(held) for text in left), left
    assert sum("unwritten" in key and key.endswith(".zarray") for key in made["refs"]) > 20
    assert read(site, sys.executable, expressible, written(made, tmp_path / "refs.json")) > 50


def test_what_cannot_be_expressed_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    write_inexpressible(path)
    with pytest.raises(ValueError, match="cannot have 9 things") as refused:
        gf.hdf5.references(path)
    left: list[str] = []
    made = gf.hdf5.references(path, leave_out=left.append)
    assert {text.split(":")[0] for text in left} == INEXPRESSIBLE.keys()
    for text in left:
        assert text in str(refused.value) and INEXPRESSIBLE[text.split(":")[0]] in text
    assert "x/.zarray" in made["refs"] and "virtual/.zarray" not in made["refs"]


def test_the_limit_of_what_is_held_is_the_callers(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(100), chunks=(10,), compression="lzf")
    with pytest.raises(ValueError, match="800 bytes are too many"):
        gf.hdf5.references(path, inline_nbytes=799)
    assert gf.hdf5.references(path, inline_nbytes=800)["refs"]["x/0"].startswith("base64:")


@pytest.mark.parametrize("written", [60, 25, 0])
def test_places_that_hdf5_misreports_are_not_written(tmp_path: Path, written: int) -> None:
    path = tmp_path / "x.h5"
    values = np.zeros((40, 60), "i4")
    values[:, :written] = np.arange(2400).reshape(40, 60)[:, :written] + 1
    with h5py.File(path, "w", libver="latest") as file:
        x = file.create_dataset("x", (40, 60), "i4", chunks=(10, 10), maxshape=(40, None))
        if written:
            x[:, :written] = values[:, :written]
    left: list[str] = []
    made = gf.hdf5.references(path, inline_nbytes=0, leave_out=left.append)["refs"]
    assert "x/.zarray" in made or "does not say where its chunks lie" in left[0]
    data = path.read_bytes()
    for i, j in np.ndindex(4, 6 if "x/.zarray" in made else 0):
        chunk = np.zeros((10, 10), "<i4")
        if f"x/{i}.{j}" in made:
            _, offset, nbytes = made[f"x/{i}.{j}"]
            chunk = np.frombuffer(data[offset : offset + nbytes], "<i4").reshape(10, 10)
        assert (chunk == values[10 * i : 10 * i + 10, 10 * j : 10 * j + 10]).all()


@pytest.mark.parametrize("options", [{"chunks": (3,)}, {}])
def test_a_user_block_shifts_every_place(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", userblock_size=1024) as file:
        file.create_dataset("x", data=np.arange(3) + 7, **options)
    _, offset, nbytes = gf.hdf5.references(path)["refs"]["x/0"]
    assert np.frombuffer(path.read_bytes()[offset : offset + nbytes], "i8").tolist() == [7, 8, 9]


@pytest.mark.parametrize("user_block", [512, 4096])
def test_a_user_block_is_not_guessed_from_chunks_that_are_alike(
    tmp_path: Path, user_block: int
) -> None:
    """The first chunks are zeros, beside zeros; the contiguous dataset was never written."""
    path = tmp_path / "x.h5"
    values = np.random.default_rng(1).normal(size=(64, 64))
    values[:32] = 0
    with h5py.File(path, "w", userblock_size=user_block) as file:
        file.create_dataset("x", data=values, chunks=(16, 16))
        file.create_dataset("never", (64, 64), "f8", fillvalue=3)
        file["after"] = np.arange(5000.0)
    refs = gf.hdf5.references(path)["refs"]
    data = path.read_bytes()
    for i, j in np.ndindex(4, 4):
        _, offset, nbytes = refs[f"x/{i}.{j}"]
        chunk = np.frombuffer(data[offset : offset + nbytes]).reshape(16, 16)
        assert (chunk == values[16 * i : 16 * i + 16, 16 * j : 16 * j + 16]).all()
    held = refs["never/0.0"]
    assert (np.frombuffer(base64.b64decode(held.removeprefix("base64:"))) == 3).all()


def test_a_block_that_imagecodecs_would_take_for_a_stored_one_is_refused(tmp_path: Path) -> None:
    """An LZ4 block that has as many bytes as the elements: 64 of them, found by trying."""
    path = tmp_path / "x.h5"
    rng = np.random.default_rng(0)
    for _ in range(4000):
        x = rng.integers(0, 256, 256, "u1")
        x[: rng.integers(0, 256)] &= 15
        gf.hdf5.write(path, "x", x, chunks=(256,), codec="bitshuffle-lz4", overwrite=True)
        with h5py.File(path) as file:
            chunk = file["x"].id.read_direct_chunk((0,))[1]
        is_alike = int.from_bytes(chunk[12:16], "big") == 256
        if is_alike:
            with pytest.raises(ValueError, match="decode one of its chunks of bitshuffle wrongly"):
                gf.hdf5.references(path, inline_nbytes=0)
            return
        path.unlink()
    raise AssertionError("no such block was found")


def test_the_commands_write_the_same(
    site: Path, tmp_path: Path, expressible: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "https://example.org/x.h5"
    arguments = ["refs", str(expressible), "--url", url]
    assert main(arguments) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(gf.hdf5.references(expressible, url=url)))
    assert main([*arguments, "-o", str(tmp_path / "a.json")]) == 0
    assert main([*arguments, "-o", str(tmp_path / "a.json")]) == 1
    assert "exists already" in capsys.readouterr().err
    subprocess.run(
        [sys.executable, "-m", "hdf5_gpufetch", *arguments, "-o", tmp_path / "b.json"],
        env={**os.environ, "PYTHONPATH": str(site)},
        check=True,
        timeout=120,
    )
    assert json.loads((tmp_path / "a.json").read_text()) == printed
    assert json.loads((tmp_path / "b.json").read_text()) == printed


def test_the_command_says_what_it_leaves_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_inexpressible(tmp_path / "x.h5")
    assert main(["refs", str(tmp_path / "x.h5")]) == 1
    assert main(["refs", "--skip", str(tmp_path / "x.h5")]) == 0
    assert capsys.readouterr().err.count("left out: /") == len(INEXPRESSIBLE)


@pytest.mark.parametrize("link", ["", "symlink_to", "hardlink_to"])
def test_references_never_replace_their_own_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], link: str
) -> None:
    path = out = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(9)
    if link:
        out = tmp_path / "y.h5"
        getattr(out, link)(path)
    before = path.read_bytes()
    assert main(["refs", str(path), "-o", str(out), "--overwrite"]) == 1
    assert "is the source itself: give another name" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_elements_in_a_row_are_few_references_whatever_their_number() -> None:
    most = 32 << 20
    for shape in [(8388617,), (8388593,), (1_000_000_007,), (2039, 4099, 3), (7, 1009, 8209)]:
        chunk = split_rows(shape, 4)
        nbytes, whole = 4 * math.prod(chunk), 4 * math.prod(shape)
        assert all(n % c == 0 for n, c in zip(shape, chunk, strict=True))
        assert nbytes == whole or most // 64 <= nbytes, (shape, chunk)
    assert split_rows((1 << 25,), 4) == (1 << 23,) and split_rows((4, 1 << 24), 4) == (1, 1 << 23)


def test_what_would_mislead_zarr_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["a\\b"] = np.arange(3)
        file["t"] = np.arange(3)
        file["t"].attrs["_FillValue"] = "by hand"
    with pytest.raises(ValueError, match="backslash of its name") as raised:
        gf.hdf5.references(path)
    assert "its attribute _FillValue is text, 'by hand'" in str(raised.value)
    with pytest.raises(ValueError, match="inline_nbytes is -5: give an integer from 0"):
        gf.hdf5.references(path, inline_nbytes=-5)


MARKED: list[tuple[Any, Any]] = [  # elements, and a _FillValue that no element equals
    (np.array([1, 255, 3], "u1"), np.int64(-1)),
    (np.array([1, 55537, 3], "u2"), np.int64(-9999)),
    (np.array([0, 1, 2], "i1"), np.int64(256)),
    (np.array([0, 5, -3], "i2"), np.nan),
    (np.array([1, 2, 3], ">i4"), 2.5),
    (np.array([True, False]), np.int8(-127)),
    (np.array([1, np.inf, 3], "f4"), 1e300),
    (np.array([1, 0, 3], ">f4"), 1e-300),
]


def test_elements_that_no_fill_value_equals_are_not_missing(site: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        for number, (values, mark) in enumerate(MARKED):
            file[str(number)] = values
            file[str(number)].attrs["_FillValue"] = mark
        file["equal"] = np.array([1, 2, 3], "i2")
        file["equal"].attrs["_FillValue"] = 2.0
        file["unsigned"] = np.array([1, -1, 3], "i1")
        file["unsigned"].attrs.update({"_FillValue": np.uint8(255), "_Unsigned": "true"})
    references = gf.hdf5.references(path)
    assert read(site, sys.executable, path, written(references, tmp_path / "r.json"), "decoded")
    with h5py.File(path, "r+") as file:
        file["rounded"] = np.array([1, 1e20, 3], "f4")
        file["rounded"].attrs["_FillValue"] = 1e20
        file["text"] = np.array([b"ab", b"c"])
        file["text"].attrs["_FillValue"] = np.bytes_(b"abc")
    refs = gf.hdf5.references(path)["refs"]
    rounded, text = (json.loads(refs[f"{name}/.zarray"]) for name in ("rounded", "text"))
    assert np.float32(rounded["fill_value"]) == np.float32(1e20) and text["fill_value"] is None


def test_chunks_never_written_that_no_fill_value_equals_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", (6,), "u1", chunks=(2,), fillvalue=255)
        x[:2] = 1
        x.attrs["_FillValue"] = np.int64(-1)
    with pytest.raises(ValueError, match="never written, whose elements are not its _FillValue"):
        gf.hdf5.references(path, inline_nbytes=0)


def test_a_name_of_a_dimension_has_one_length(site: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["a"] = np.zeros((3, 4))
        file["b"] = np.ones((5, 4))  # with labels that the axes of `a` have as names by then
        file["b"].dims[0].label, file["b"].dims[1].label = "phony_dim_0", "phony_dim_1"
        file["c"] = np.ones((6, 6))
    references = gf.hdf5.references(path)
    names = [json.loads(references["refs"][f"{name}/.zattrs"]) for name in "abc"]
    assert [attributes["_ARRAY_DIMENSIONS"] for attributes in names] == [
        ["phony_dim_0", "phony_dim_1"],
        ["phony_dim_2", "phony_dim_1"],
        ["phony_dim_3", "phony_dim_4"],
    ]
    assert read(site, sys.executable, path, written(references, tmp_path / "r.json"), "decoded")


RECORDS: dict[str, tuple[int, dict[str, Any]]] = {  # how many of nine, and how they are stored
    "longest": (9, {"chunks": (2, 5)}),
    "none": (0, {"chunks": (4, 5)}),
    "chunk cut": (6, {"chunks": (4, 3)}),
    "whole chunks": (4, {"chunks": (2, 5), "compression": "gzip", "shuffle": True}),
    "codec": (3, {"chunks": (2, 5), **gf.hdf5.filter_options()}),
    "held": (3, {"chunks": (2, 5), "compression": "lzf"}),
}


def write_records(path: Path) -> None:
    """Variables of an unlimited dimension as netCDF stores them; the dimension itself has three."""
    with h5py.File(path, "w") as file:
        file.create_dataset("t", data=np.arange(3), chunks=(2,), maxshape=(None,), fillvalue=-1)
        file["t"].make_scale("t")
        file["t"].attrs["_Netcdf4Dimid"] = np.int32(0)
        for name, (count, options) in RECORDS.items():
            made = file.create_dataset(
                name, (count, 5), "i2", maxshape=(None, 5), fillvalue=-7, **options
            )
            made[...] = np.arange(count * 5).reshape(count, 5)
            made.dims[0].attach_scale(file["t"])


def test_records_that_a_variable_of_netcdf_lacks_are_its_fill_value(
    site: Path, tmp_path: Path
) -> None:
    path, grown = tmp_path / "x.h5", tmp_path / "grown.h5"
    write_records(path)
    references = gf.hdf5.references(path)
    small = gf.hdf5.references(path, inline_nbytes=100)  # which hold no chunk of codec
    write_records(grown)
    with h5py.File(grown, "r+") as file:
        for name in ("t", *RECORDS):
            file[name].resize(9, axis=0)
            attributes = json.loads(references["refs"][f"{name}/.zattrs"])
            assert attributes["_ARRAY_DIMENSIONS"][0] == "t"
    assert json.loads(small["refs"]["none/.zarray"])["fill_value"] == -7
    for made in (references, small):
        assert read(site, sys.executable, grown, written(made, tmp_path / "refs.json")) == 7


def test_records_that_a_variable_of_netcdf_lacks_and_has_no_fill_value_for_are_named(
    tmp_path: Path,
) -> None:
    write_records(tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        bare = file.create_dataset("bare", (4, 5), "i2", maxshape=(None, 5), chunks=(2, 5))
        bare.dims[0].attach_scale(file["t"])
    left: list[str] = []
    refs = gf.hdf5.references(tmp_path / "x.h5", leave_out=left.append)["refs"]
    assert len(left) == 1 and "t/0" in refs
    assert left[0].startswith("/bare: it has the records of (4, 5), in netCDF it has the shape (9,")


# --- Over HTTP -------------------------------------------------------------------------------


class _Ranges(http.server.BaseHTTPRequestHandler):
    """Serves one file, by ranges of bytes alone; counts them."""

    data = b""
    counts: list[int] = []  # noqa: RUF012  # each test has a class of its own

    def do_GET(self) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if wanted is None:
            self.send_error(416)
            return
        first, last = int(wanted[1]), int(wanted[2])
        part = self.data[first : last + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(self.data)}")
        self.end_headers()
        self.wfile.write(part)
        self.counts.append(len(part))

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


@pytest.mark.parametrize("bits", [0x7FC00000, 0xFFC00000, 0x7FC007A2])
def test_a_nan_with_a_sign_or_a_payload_is_held_or_refused(tmp_path: Path, bits: int) -> None:
    path = tmp_path / "x.h5"
    nan = np.array(bits, "<u4").view("<f4")
    with h5py.File(path, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4,))
        plist.set_fill_value(nan)
        space = h5py.h5s.create_simple((400,))
        h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32LE, space, plist)
        file["x"][:4] = 1
        file["marked"] = np.ones(3, "<f4")
        file["marked"].attrs["_FillValue"] = nan
    refs = gf.hdf5.references(path)["refs"]
    assert json.loads(refs["marked/.zarray"])["fill_value"] == "NaN"
    held = base64.b64decode(refs["x/99"].removeprefix("base64:"))
    assert np.frombuffer(held, "<u4").tolist() == [bits] * 4
    if bits == 0x7FC00000:
        refs = gf.hdf5.references(path, inline_nbytes=0)["refs"]
        assert json.loads(refs["x/.zarray"])["fill_value"] == "NaN"
    else:
        with pytest.raises(ValueError, match="/x: its fill value is a NaN with a sign or"):
            gf.hdf5.references(path, inline_nbytes=0)


def test_a_second_link_to_a_group_is_named_as_one(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_group("a/b")
        file["c"] = file["a/b"]
    with pytest.raises(ValueError, match="second link to a group, which is there as /"):
        gf.hdf5.references(tmp_path / "x.h5")


@pytest.fixture
def server(expressible: Path) -> Iterator[tuple[str, list[int]]]:
    """The URL of the file on a server of this machine, and the sizes of the parts it sent."""
    counts: list[int] = []
    handler = type("Ranges", (_Ranges,), {"data": expressible.read_bytes(), "counts": counts})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/x.h5", counts
        server.shutdown()
        thread.join()


def test_zarr_and_xarray_read_over_http_by_ranges(
    site: Path, tmp_path: Path, expressible: Path, server: tuple[str, list[int]]
) -> None:
    if "GPUFETCH_READER_WHEELS" not in os.environ:
        pytest.skip("made and run by ./dev test --install")
    python = Path(os.environ["GPUFETCH_READER_WHEELS"]).parent / "site" / "bin" / "python"
    url, counts = server
    references = written(gf.hdf5.references(expressible, url=url), tmp_path / "refs.json")
    assert read(site, python, expressible, references, "xarray") > 80
    assert len(counts) > 1000 and max(counts) <= 32 << 20
