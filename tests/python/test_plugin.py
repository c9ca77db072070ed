"""The plugin in programs that know nothing of gpufetch: h5py, h5dump, h5ls and h5repack.

Each runs in a process of its own with HDF5_PLUGIN_PATH and nothing else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from plugin_files import FILTER_ID, plugin_folder, second_plugin_folder

import gpufetch as gf

SECOND_ID = 511


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment with HDF5_PLUGIN_PATH set to the plugin's folder."""
    folder = plugin_folder()
    if folder is None:
        pytest.skip("libh5z_gpufetch.so is not built")
    return {**os.environ, "HDF5_PLUGIN_PATH": str(folder)}


def run(arguments: list[str], environment: dict[str, str]) -> str:
    """Standard output of a program that must succeed; skips if it is not installed."""
    if shutil.which(arguments[0]) is None:
        pytest.skip(f"{arguments[0]} is not installed")
    done = subprocess.run(
        arguments, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python(code: str, environment: dict[str, str], *arguments: str) -> str:
    return run([sys.executable, "-c", code, *arguments], environment)


WRITE = """
import sys
import h5py
import numpy as np
x = np.cumsum(np.random.default_rng(5).normal(size=(40, 50, 60)), axis=2).astype(sys.argv[2])
with h5py.File(sys.argv[1], "w") as file:
    file.create_dataset("x", data=x, chunks=(16, 50, 32), compression=int(sys.argv[3]))
np.save(sys.argv[1] + ".npy", x)
assert "gpufetch" not in sys.modules
"""

READ = """
import sys
import h5py
import numpy as np
with h5py.File(sys.argv[1], "r") as file:
    x = file["x"][...]
assert x.tobytes() == np.load(sys.argv[1] + ".npy").astype(x.dtype).tobytes()
assert "gpufetch" not in sys.modules
"""


def write(
    path: Path, environment: dict[str, str], dtype: str = "f4", filter_id: int = FILTER_ID
) -> None:
    python(WRITE, environment, str(path), dtype, str(filter_id))


def assert_reading_fails(path: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert "OSError" in done.stderr


@pytest.mark.parametrize("dtype", ["f4", ">f4", "f8", "i2", "c8"])
def test_h5py_creates_and_reads_with_the_plugin_path_alone(
    tmp_path: Path, environment: dict[str, str], dtype: str
) -> None:
    path = tmp_path / "x.h5"
    write(path, environment, dtype)
    python(READ, environment, str(path))
    with h5py.File(path) as file:
        plist = file["x"].id.get_create_plist()
        filter_id, _, cd_values, name = plist.get_filter(0)
        assert (filter_id, name) == (FILTER_ID, b"gpufetch; pip install hdf5-gpufetch")
        assert cd_values[0] == 0 and cd_values[3:] == (3, 16, 50, 32)
        assert file["x"].id.get_storage_size() < file["x"].nbytes


def assert_h5dump_reads(path: Path, environment: dict[str, str]) -> None:
    out = path.with_suffix(".bin")
    run(["h5dump", "-d", "x", "-b", "LE", "-o", str(out), str(path)], environment)
    assert out.read_bytes() == np.load(f"{path}.npy").tobytes()


def test_h5dump_reads_the_same_numbers(tmp_path: Path, environment: dict[str, str]) -> None:
    path = tmp_path / "x.h5"
    write(path, environment)
    assert_h5dump_reads(path, environment)


@pytest.fixture(params=["a folder each", "one folder"])
def environment_of_two(
    request: pytest.FixtureRequest, tmp_path: Path, environment: dict[str, str]
) -> dict[str, str]:
    """The environment with the plugins of both ids in HDF5_PLUGIN_PATH."""
    second = second_plugin_folder()
    if second is None:
        pytest.skip("libh5z_gpufetch_second.so is not built")
    folders = [environment["HDF5_PLUGIN_PATH"], str(second)]
    if request.param == "one folder":
        both = tmp_path / "plugins"
        both.mkdir()
        for folder in folders:
            for plugin in Path(folder).glob("libh5z_gpufetch*.so"):
                shutil.copy(plugin, both)
        folders = [str(both)]
    return {**environment, "HDF5_PLUGIN_PATH": ":".join(folders)}


def test_either_id_is_written_and_read_where_each_has_its_plugin(
    tmp_path: Path, environment_of_two: dict[str, str]
) -> None:
    for filter_id in (FILTER_ID, SECOND_ID):
        path = tmp_path / f"{filter_id}.h5"
        write(path, environment_of_two, filter_id=filter_id)
        with h5py.File(path) as file:
            found = file["x"].id.get_create_plist().get_filter(0)
            assert found[0] == filter_id and found[2][3:] == (3, 16, 50, 32)
        python(READ, environment_of_two, str(path))
        assert_h5dump_reads(path, environment_of_two)


def test_a_plugin_serves_no_other_id_than_its_own(
    tmp_path: Path, environment: dict[str, str], environment_of_two: dict[str, str]
) -> None:
    path = tmp_path / "x.h5"
    write(path, environment_of_two, filter_id=SECOND_ID)
    assert_reading_fails(path, environment)


def test_import_registers_every_id() -> None:
    ids = ",".join(map(str, gf.hdf5.FILTER_IDS))
    program = (
        "import os, sys; os.environ.pop('HDF5_PLUGIN_PATH', None)\n"
        "import h5py, gpufetch\n"
        "assert all(h5py.h5z.filter_avail(int(id)) for id in sys.argv[1].split(','))"
    )
    python(program, dict(os.environ), ids)
    assert gf.hdf5.FILTER_ID == gf.hdf5.FILTER_IDS[0] == FILTER_ID


def test_h5ls_names_the_filter(tmp_path: Path, environment: dict[str, str]) -> None:
    path = tmp_path / "x.h5"
    write(path, environment)
    assert "gpufetch" in run(["h5ls", "-v", str(path)], environment)


def test_h5repack_adds_and_removes_the_filter(tmp_path: Path, environment: dict[str, str]) -> None:
    path, plain, packed = tmp_path / "x.h5", tmp_path / "plain.h5", tmp_path / "packed.h5"
    write(path, environment)
    run(["h5repack", "-f", "NONE", str(path), str(plain)], environment)
    run(
        ["h5repack", "-l", "CHUNK=8x25x60", "-f", f"UD={FILTER_ID},0,0", str(plain), str(packed)],
        environment,
    )
    expected = np.load(f"{path}.npy")
    with h5py.File(plain) as file:
        assert file["x"].id.get_create_plist().get_nfilters() == 0
        np.testing.assert_array_equal(file["x"][...], expected)
    with h5py.File(packed) as file:
        assert file["x"].id.get_create_plist().get_filter(0)[2] == (0, 12, 48000, 3, 8, 25, 60)
        assert file["x"].id.get_storage_size() < expected.nbytes
    np.save(f"{packed}.npy", expected)
    python(READ, environment, str(packed))


def test_a_missing_plugin_is_an_error_not_wrong_numbers(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    path = tmp_path / "x.h5"
    write(path, environment)
    nowhere = {**environment, "HDF5_PLUGIN_PATH": str(tmp_path)}
    assert_reading_fails(path, nowhere)


@pytest.mark.skipif(shutil.which("h5dump") is None, reason="h5dump is not installed")
def test_a_damaged_chunk_names_its_offset_in_h5dump(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    path = tmp_path / "x.h5"
    write(path, environment)
    with h5py.File(path, "r+") as file:
        mask, chunk = file["x"].id.read_direct_chunk((0, 0, 0))
        damaged = bytearray(chunk)
        damaged[len(damaged) // 2] ^= 1
        file["x"].id.write_direct_chunk((0, 0, 0), bytes(damaged), mask)
    assert_reading_fails(path, environment)
    dumped = subprocess.run(
        ["h5dump", "--enable-error-stack", "-d", "x", str(path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "corrupt chunk at byte 80" in dumped.stdout + dumped.stderr
