"""Files that gpufetch wrote, in readers that know nothing of it, and several libhdf5 at once."""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import gpufetch as gf
from gpufetch.hdf5 import _plugin


def plugin_path() -> str:
    try:
        return gf.hdf5.plugin_path()
    except FileNotFoundError as error:
        pytest.fail(f"the plugin is part of every installation: {error}")


def run(
    command: list[str], *, plugin: bool, extra: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    environment.pop("HDF5_PLUGIN_PATH", None)
    if plugin:
        environment["HDF5_PLUGIN_PATH"] = plugin_path()
    environment.update(extra or {})
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: hdf5-tools)")
    return found


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    field = rng.normal(size=(70, 50, 33)).cumsum(axis=2)
    return {
        "f8": field,
        "f4": field.astype("f4"),
        "f2": field.astype("f2"),
        "i2": (field * 100).astype("i2"),
        "u8": rng.integers(0, 1 << 63, (9, 400), "u8"),
        "flags": field > 0,
        "c8": (field[0] + 1j * field[1]).astype("c8"),
        "constant": np.full((300, 300), 2.5, "f4"),
        "noise": np.frombuffer(rng.bytes(50_000), "u1"),
        "scalar": np.array(-7.25),
        "empty": np.zeros((0, 4), "f4"),
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, np.ndarray[Any, Any]]) -> Path:
    """A file with every array, written from device memory."""
    path = tmp_path_factory.mktemp("interop") / "x.h5"
    for name, x in arrays.items():
        gf.hdf5.write(path, name, gf.to_device(x))
    return path


# --- h5py -------------------------------------------------------------------------------------


def test_h5py_in_this_process_reads_the_bits(
    path: Path, arrays: dict[str, np.ndarray[Any, Any]]
) -> None:
    with h5py.File(path) as file:
        for name, x in arrays.items():
            stored = np.asarray(file[name][()])
            assert stored.dtype == x.dtype and stored.shape == x.shape
            assert stored.tobytes() == x.tobytes()


PLAIN_H5PY = """
import sys
import h5py, numpy as np
expected = np.load(sys.argv[2])
with h5py.File(sys.argv[1]) as file:
    for name in expected.files:
        stored = np.asarray(file[name][()])
        assert stored.dtype == expected[name].dtype, name
        assert stored.tobytes() == expected[name].tobytes(), name
        print("same", name)
assert "gpufetch" not in sys.modules
"""


def test_h5py_alone_reads_the_bits_with_the_plugin_path(
    path: Path, tmp_path: Path, arrays: dict[str, np.ndarray[Any, Any]]
) -> None:
    np.savez(tmp_path / "expected.npz", **arrays)
    command = [sys.executable, "-c", PLAIN_H5PY, str(path), str(tmp_path / "expected.npz")]
    done = run(command, plugin=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("same") == len(arrays)


def test_h5py_alone_writes_with_the_plugin_path(tmp_path: Path) -> None:
    program = (
        "import sys, h5py, numpy as np\n"
        "with h5py.File(sys.argv[1], 'w') as f:\n"
        "    f.create_dataset('x', data=np.arange(6000.).reshape(60, 100), chunks=(16, 32),\n"
        f"                     compression={gf.hdf5.FILTER_ID})\n"
        "assert 'gpufetch' not in sys.modules\n"
    )
    done = run([sys.executable, "-c", program, str(tmp_path / "x.h5")], plugin=True)
    assert done.returncode == 0, done.stderr
    read = gf.hdf5.read(tmp_path / "x.h5", "x", device="cpu")
    assert (read == np.arange(6000.0).reshape(60, 100)).all()


def test_h5py_without_the_plugin_fails_cleanly(path: Path) -> None:
    program = "import sys, h5py; h5py.File(sys.argv[1])['f4'][0]"
    done = run([sys.executable, "-c", program, str(path)], plugin=False)
    assert done.returncode == 1
    assert "OSError" in done.stderr
    assert "can't open directory" in done.stderr or "gpufetch" in done.stderr


def test_plain_datasets_need_no_plugin(tmp_path: Path) -> None:
    x = np.arange(5000.0).reshape(50, 100)
    gf.hdf5.write(tmp_path / "x.h5", "x", gf.to_device(x), codec=None)
    program = "import sys, h5py; print(h5py.File(sys.argv[1])['x'][:].sum())"
    done = run([sys.executable, "-c", program, str(tmp_path / "x.h5")], plugin=False)
    assert float(done.stdout) == x.sum()


# --- The system's tools ---------------------------------------------------------------------------


def test_h5dump_gives_the_bits(
    path: Path, tmp_path: Path, arrays: dict[str, np.ndarray[Any, Any]]
) -> None:
    for name in ("f8", "f4", "i2", "u8", "constant", "noise"):
        binary = tmp_path / f"{name}.bin"
        command = [tool("h5dump"), "-d", name, "-b", "LE", "-o", str(binary), str(path)]
        done = run(command, plugin=True)
        assert done.returncode == 0, done.stderr
        assert binary.read_bytes() == arrays[name].tobytes()


def test_h5dump_prints_the_values(path: Path, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    done = run([tool("h5dump"), "-y", "-w", "40", "-d", "i2", str(path)], plugin=True)
    assert done.returncode == 0, done.stderr
    data = done.stdout.split("DATA {")[1].split("}")[0].replace("\n", "")
    values = [int(value) for value in data.split(",")]
    assert values == arrays["i2"].ravel().tolist()


def test_h5dump_without_the_plugin_does_not_crash(path: Path) -> None:
    done = run([tool("h5dump"), "-d", "f4", str(path)], plugin=False)
    assert done.returncode == 1


def test_h5ls_names_the_filter(path: Path) -> None:
    done = run([tool("h5ls"), "-v", f"{path}/f4"], plugin=True)
    assert done.returncode == 0, done.stderr
    assert f"gpufetch-{gf.hdf5.FILTER_ID}" in done.stdout
    assert "{70/70, 50/50, 33/33}" in done.stdout


# --- Two libhdf5 in one process -----------------------------------------------------------------

TWO_LIBRARIES = """
import ctypes, os, sys
order, system = sys.argv[1], sys.argv[2]
if order == "before":
    ctypes.CDLL(system).H5open()
import h5py, numpy as np
import gpufetch as gf
if order == "after":
    ctypes.CDLL(system, mode=ctypes.RTLD_GLOBAL).H5open()
maps = {line.split()[-1] for line in open("/proc/self/maps") if "libhdf5" in line}
assert len({os.path.basename(p) for p in maps if "_hl" not in p}) >= 2, maps
x = np.arange(60_000.0).reshape(300, 200)
with h5py.File(sys.argv[3], "w") as file:
    dataset = gf.hdf5.write(file, "x", gf.to_device(x), chunks=(64, 64))
    assert (dataset[:] == x).all()
    made = file.create_dataset("y", data=x, **gf.hdf5.filter_options())
    assert (gf.hdf5.read(made, device="cpu") == x).all()
    assert (gf.fetch(gf.hdf5.read(dataset)) == x).all()
print("ok")
"""


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_second_libhdf5_in_the_process_is_not_used(tmp_path: Path, order: str) -> None:
    system = ctypes.util.find_library("hdf5_serial") or ctypes.util.find_library("hdf5")
    if system is None:
        pytest.skip("there is no system libhdf5 (Debian: libhdf5-dev)")
    command = [sys.executable, "-c", TWO_LIBRARIES, order, system, str(tmp_path / "x.h5")]
    done = run(command, plugin=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ok\n"


# --- The plugin -----------------------------------------------------------------------------------


def test_plugin_path_holds_the_plugin() -> None:
    assert (Path(plugin_path()) / "libh5z_gpufetch.so").is_file()


def test_a_missing_plugin_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_plugin, "_FOLDER", tmp_path / "plugins")
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "plugins")):
        gf.hdf5.plugin_path()
