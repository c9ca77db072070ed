"""The reader's codec for numcodecs, by its entry point, and in Zarr: in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from plugin_files import plugin_folder
from reader_build import build_reader, stage

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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reader as pip would install it."""
    folder = plugin_folder()
    if folder is None:
        pytest.skip("libh5z_gpufetch.so is not built")
    site = stage(tmp_path_factory.mktemp("codec"), folder / "libh5z_gpufetch.so")
    info = site / f"hdf5_gpufetch-{build_reader.version()}.dist-info"
    info.mkdir()
    files = build_reader.dist_info_files(build_reader.PLATFORMS["linux-x86_64"])
    for name in ("METADATA", "entry_points.txt"):
        (info / name).write_bytes(files[name])
    return site


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
