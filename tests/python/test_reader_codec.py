"""The reader's codecs of numcodecs and of Zarr version 3, by their entry points, in processes."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from plugin_files import plugin_folder
from reader_build import install

START = """
    import sys
    import h5py, numcodecs, numpy as np
    from hdf5_gpufetch import FILTER_ID

    x = np.cumsum(np.random.default_rng(0).standard_normal((50, 70)), 0)
    def stored(dtype):
        with h5py.File(sys.argv[1], "w") as file:
            values = x.astype(dtype)
            d = file.create_dataset("x", data=values, chunks=(16, 32), compression=FILTER_ID)
            cd_values = d.id.get_create_plist().get_filter(0)[2]
            config = {"id": "gpufetch", "cd_values": list(cd_values)}
            chunk = bytes(d.id.read_direct_chunk((16, 32))[1])
        return values, chunk, numcodecs.get_codec(config)
    def refused(function, *arguments):
        try:
            function(*arguments)
        except ValueError as error:
            return str(error)
        raise SystemExit(f"accepted: {arguments}")
"""


for needed in ("numcodecs", "zarr"):
    pytest.importorskip(needed)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reader as pip would install it."""
    folder = plugin_folder()
    if folder is None:
        pytest.skip("libh5z_gpufetch.so is not built")
    return install(tmp_path_factory.mktemp("codec"), folder / "libh5z_gpufetch.so")


def python(site: Path, code: str, path: Path) -> None:
    program = textwrap.dedent(START) + textwrap.dedent(code)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_chunks_of_hdf5_and_of_the_codec_are_the_same_bytes(site: Path, tmp_path: Path) -> None:
    code = """
    for dtype in ("<f4", ">f4", ">f8", "<i2", "<c16"):
        values, chunk, codec = stored(dtype)
        want = values[16:32, 32:64].tobytes()
        assert codec.decode(chunk) == want and codec.encode(np.frombuffer(want, dtype)) == chunk
        out = np.empty((16, 32), dtype)
        assert codec.decode(chunk, out).tobytes() == want == out.tobytes()
        assert "out must have" in refused(codec.decode, chunk, out[1:])
    """
    python(site, code, tmp_path / "x.h5")


def test_damaged_chunks_and_wrong_values_are_errors(site: Path, tmp_path: Path) -> None:
    code = """
    values, chunk, codec = stored("<f4")
    for at in range(len(chunk)):
        refused(codec.decode, chunk[:at] + bytes([chunk[at] ^ 1 << at % 8]) + chunk[at + 1 :])
        refused(codec.decode, chunk[:at])
    refused(codec.decode, chunk + bytes(16))
    good = codec.cd_values
    other = numcodecs.get_codec({"id": "gpufetch", "cd_values": [0, 12, 64, 2, 4, 4]})
    assert "decodes to 2048 bytes, but cd_values[2] says 64" in refused(other.decode, chunk)
    assert "bytes of elements" in refused(codec.encode, bytes(2047))
    unknown = numcodecs.get_codec({"id": "gpufetch", "cd_values": [0, 99, *good[2:]]})
    assert "do not describe" in refused(unknown.encode, bytes(2048))
    for wrong in ([], None, [1, *good[1:]], good[:-1], [0, 12, -1, 1, 4], [0, 12, 2**32, 1, 4]):
        refused(numcodecs.get_codec, {"id": "gpufetch", "cd_values": wrong})
    for wrong in (1.0, 1.7, "1", float("inf"), None):
        refused(numcodecs.get_codec, {"id": "gpufetch", "cd_values": [*good[:3], wrong, *good[4:]]})
    """
    python(site, code, tmp_path / "x.h5")


def test_threads_and_zarr_get_every_bit(site: Path, tmp_path: Path) -> None:
    code = """
    from concurrent.futures import ThreadPoolExecutor
    import zarr

    for dtype in ("<f4", ">f8"):
        values, chunk, codec = stored(dtype)
        want = values[16:32, 32:64].tobytes()
        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(codec.decode, [chunk] * 200)) == {want}
        array = zarr.create_array(
            {}, shape=values.shape, chunks=(16, 32), dtype=dtype, zarr_format=2,
            compressors=codec, fill_value=0,
        )
        array[...] = values
        assert array[...].dtype == values.dtype and array[...].tobytes() == values.tobytes()
    """
    python(site, code, tmp_path / "x.h5")


ZARR = """
    import warnings, zarr
    from zarr.core.buffer.cpu import Buffer
    warnings.simplefilter("ignore")
    MemoryStore = zarr.storage.MemoryStore

    def made(stored, values, chunks, endian):
        return zarr.create_array(
            MemoryStore(stored), shape=values.shape, chunks=chunks,
            dtype=values.dtype.newbyteorder("="), zarr_format=3, fill_value=None, compressors=None,
            serializer={"name": "gpufetch", "configuration": {"endian": endian}},
        )
    def native(values):
        return values.astype(values.dtype.newbyteorder("="))
"""


def test_zarr_version_3_has_the_chunks_of_hdf5(site: Path, tmp_path: Path) -> None:
    code = """
    names = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16", ">f4", ">i8", ">c16"]
    nine = (2, 1, 1, 1, 3, 1, 1, 4, 2)
    forms = {(50, 70): (16, 32), (3,): (2,), nine: (1, 1, 1, 1, 2, 1, 1, 3, 2)}
    for dtype in map(np.dtype, [*names, "S3", "V5", [("a", "<i4"), ("b", "<f8")]]):
        for shape, chunks in forms.items():
            raw = np.random.default_rng(1).integers(0, 2, np.prod(shape) * dtype.itemsize, "u1")
            values = raw.view(dtype).reshape(shape)
            stored, endian = {}, "big" if dtype.byteorder == ">" else "little"
            made(stored, values, chunks, endian)[...] = native(values)
            key = "c/" + "/".join("0" * len(shape))
            with h5py.File("x", "w", driver="core", backing_store=False) as file:
                d = file.create_dataset("x", data=values, chunks=chunks, compression=FILTER_ID)
                assert stored[key].to_bytes() == bytes(d.id.read_direct_chunk((0,) * len(shape))[1])
            found = zarr.open_array(MemoryStore(stored), mode="r")[...]
            assert native(found).tobytes() == native(values).tobytes(), (dtype, shape)
    values = np.array(1.5)
    stored = {}
    made(stored, values, (), "little")[...] = values
    assert zarr.open_array(MemoryStore(stored), mode="r")[...] == 1.5
    """
    python(site, textwrap.dedent(ZARR) + textwrap.dedent(code), tmp_path / "x.h5")


def test_zarr_version_3_refuses_damaged_and_other_chunks(site: Path, tmp_path: Path) -> None:
    code = """
    values, stored = x.astype("f4"), {}
    array = made(stored, values, (16, 32), "little")
    array[...] = values
    good = stored["c/1/1"].to_bytes()
    for at in range(0, len(good), 7):
        stored["c/1/1"] = Buffer.from_bytes(good[:at] + bytes([good[at] ^ 16]) + good[at + 1 :])
        refused(lambda: array[16:32, 32:64])
        stored["c/1/1"] = Buffer.from_bytes(good[:at])
        refused(lambda: array[16:32, 32:64])
    other = {}
    made(other, values, (32, 16), "little")[...] = values
    stored["c/1/1"] = other["c/1/1"]
    assert "the chunk has the dimensions (32, 16)" in refused(lambda: array[16:32, 32:64])
    refused(made, {}, values, (16, 32), "middle")
    """
    python(site, textwrap.dedent(ZARR) + textwrap.dedent(code), tmp_path / "x.h5")


def test_a_thread_in_h5py_that_waits_for_the_import_gets_it(site: Path, tmp_path: Path) -> None:
    """As where it reads by references: Zarr imports the codec on a thread of its own."""
    code = """
import sys, threading, h5py
done = threading.Event()
def load():
    import hdf5_gpufetch
    done.set()
with h5py._objects.phil:
    thread = threading.Thread(target=load)
    thread.start()
    assert done.wait(60)
thread.join()
for other in threading.enumerate():
    if other.name == "hdf5_gpufetch":
        other.join()
import hdf5_gpufetch
assert h5py.h5z.filter_avail(hdf5_gpufetch.FILTER_ID)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(site)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_the_examples_of_the_page_work(site: Path, tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "reading.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    by_references, made, grid = blocks[:3]
    assert "cd_values" in made and "serializer" in grid and "reference" in by_references
    code = f"""{made}
import numcodecs
assert numcodecs.get_codec(compressor).cd_values == list(cd_values)
{grid}
assert (zarr.open_array("grid.zarr", mode="r")[...] == np.eye(64)).all()
"""
    if all(map(importlib.util.find_spec, ("fsspec", "xarray", "dask"))):
        code += f"""
import json
with open("run.json", "w") as file:
    json.dump(gpufetch.hdf5.references("grid.h5"), file)
{by_references}
assert (run["x"].to_numpy() == np.eye(64)).all()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *filter(None, sys.path)])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
