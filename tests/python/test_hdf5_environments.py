"""The plugin in environments that know nothing of gpufetch: several h5py, netCDF4, xarray, tools.

`./dev test --hdf5` makes the environments of tests/hdf5 and names their folder in
GPUFETCH_HDF5_ENVIRONMENTS. Each process has HDF5_PLUGIN_PATH and nothing else of gpufetch.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from plugin_files import REPOSITORY, plugin_folder
from reader_build import stage

import gpufetch as gf

HERE = REPOSITORY / "tests" / "hdf5"
sys.path.append(str(HERE))
import exchange as exchange_module  # noqa: E402

NAMES = sorted(path.stem for path in HERE.glob("*.txt"))
SYSTEM_LIBHDF5 = Path("/usr/lib/x86_64-linux-gnu/hdf5/serial")


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    folder = plugin_folder()
    if folder is None:
        pytest.skip("libh5z_gpufetch.so is not built")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "HDF5_PLUGIN_PATH": str(folder)}


def python_of(name: str) -> str:
    """The interpreter of an environment that is there and has an h5py."""
    if "GPUFETCH_HDF5_ENVIRONMENTS" not in os.environ:
        pytest.skip("made and run by ./dev test --hdf5")
    folder = Path(os.environ["GPUFETCH_HDF5_ENVIRONMENTS"]) / name
    assert (folder / "bin" / "python").exists(), f"{folder} is no environment"
    if not list(folder.glob("lib/python*/site-packages/h5py")):
        pytest.skip(f"{name}: no such wheel for this Python")
    return str(folder / "bin" / "python")


def run(environment: dict[str, str], *command: str | Path) -> str:
    done = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def exchange(environment: dict[str, str], name: str, *arguments: str | Path) -> str:
    return run(environment, python_of(name), HERE / "exchange.py", *arguments)


def tool(name: str) -> str:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed (Debian: hdf5-tools)")
    return name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("environments")


@pytest.fixture(scope="module")
def written(environment: dict[str, str], folder: Path) -> dict[str, Path]:
    """A file of each environment that is there, and one of the system's h5repack."""
    files = {}
    for name in NAMES:
        try:
            exchange(environment, name, "write", folder / f"{name}.h5")
            files[name] = folder / f"{name}.h5"
        except pytest.skip.Exception:
            continue
    if files and shutil.which("h5repack"):
        files["h5repack"] = folder / "h5repack.h5"
        # Other chunks, so that every chunk is decoded and encoded again.
        again = ["-l", "CHUNK=30x25x40", "-f", f"UD={gf.hdf5.FILTER_ID},0,0"]
        run(environment, "h5repack", *again, next(iter(files.values())), files["h5repack"])
    return files


@pytest.mark.parametrize("name", NAMES)
def test_the_environment_has_the_hdf5_that_it_is_there_for(
    environment: dict[str, str], name: str
) -> None:
    found = dict(line.split() for line in exchange(environment, name, "versions").splitlines())
    if name.startswith("h5py-"):
        assert f"{found['h5py']}.".startswith(f"{name.removeprefix('h5py-')}.")
    else:
        assert found["netCDF4"] != found["h5py"]


@pytest.mark.parametrize("reader", NAMES)
def test_every_h5py_reads_what_every_other_wrote(
    environment: dict[str, str], written: dict[str, Path], reader: str
) -> None:
    exchange(environment, reader, "read", *written.values())
    assert len(written) >= 3


def test_the_systems_h5dump_reads_what_every_h5py_wrote(
    environment: dict[str, str], written: dict[str, Path], folder: Path
) -> None:
    if not written:
        pytest.skip("made and run by ./dev test --hdf5")
    dumps = set()
    for name, path in written.items():
        out = folder / f"{name}.bin"
        run(environment, tool("h5dump"), "-d", "le_f4", "-b", "LE", "-o", out, path)
        dumps.add(out.read_bytes())
    assert len(dumps) == 1 and len(dumps.pop()) == 60 * 50 * 40 * 4


@pytest.mark.parametrize("name", NAMES)
def test_threads_write_and_read_through_the_plugin(
    environment: dict[str, str], folder: Path, name: str
) -> None:
    exchange(environment, name, "threads", folder / f"{name}.threads.h5")


@pytest.mark.parametrize("name", NAMES)
def test_h5py_says_what_is_wrong_with_a_damaged_chunk(
    environment: dict[str, str], folder: Path, name: str
) -> None:
    message = exchange(environment, name, "damage", folder / f"{name}.damaged.h5")
    assert "gpufetch: corrupt chunk at byte 80: the checksum does not match" in message


def test_hdf5plugin_reads_our_bitshuffle(environment: dict[str, str], folder: Path) -> None:
    python_of("h5py-2.0")
    path = folder / "ours.h5"
    for dtype in exchange_module.DTYPES:
        x = exchange_module.field(dtype).astype(np.dtype(dtype).newbyteorder("="))
        name = exchange_module.name_of(dtype)
        gf.hdf5.write(path, name, gf.to_device(x), chunks=(7, 50, 33), codec="bitshuffle-lz4")
    exchange(environment, "h5py-2.0", "plugin_read", path)


# In a process of its own: other tests import hdf5plugin, which then reads these for h5py.
READ_THEIRS = """
import sys
import h5py
import gpufetch as gf
sys.path.append(sys.argv[1])
from exchange import NAMES, field
with h5py.File(sys.argv[2]) as file:
    for name in file:
        # HDF5 converts big-endian elements, and needs the plugin for that.
        if not name.startswith(("noise", "zstd", "be_")):
            for device in ("cpu", "host:0"):
                values = gf.fetch(gf.hdf5.read(file, name, device=device))
                expected = field(NAMES[name.rpartition("_")[0]])
                assert values.shape == expected.shape and (values == expected).all()
                print("same")
    # Blocks of 8 noisy elements take more than any that gpufetch writes: left to the plugin.
    for name in ("noise", "zstd"):
        try:
            gf.hdf5.read(file, name)
        except gf.Error as error:
            print(error)
"""


def test_we_read_hdf5plugins_bitshuffle(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "theirs.h5"
    exchange(environment, "h5py-2.0", "plugin_write", path)
    out = run(dict(os.environ), sys.executable, "-c", READ_THEIRS, HERE, path)
    assert out.count("same") == 2 * 3 * 7
    for name in ("noise", "zstd"):  # HDF5 would have to read these
        assert f"dataset '/{name}' is stored with HDF5 filter 32008" in out
    assert out.count("HDF5_PLUGIN_PATH") == 2


def test_netcdf4_and_xarray_read_and_write(environment: dict[str, str], folder: Path) -> None:
    netcdf, xarray = folder / "netcdf.nc", folder / "xarray.nc"
    exchange(environment, "netcdf", "netcdf_write", netcdf)
    exchange(environment, "netcdf", "xarray_write", xarray)
    exchange(environment, "netcdf", "netcdf_read", netcdf, xarray)
    exchange(environment, "netcdf", "xarray_read", netcdf, xarray)


@pytest.mark.parametrize("engine", ["netcdf4", "h5netcdf"])
def test_xarray_reads_with_the_readers_import_alone(
    environment: dict[str, str], tmp_path: Path, engine: str
) -> None:
    """The library of netCDF4, which xarray imports after the reader, gets the filter, too."""
    path = tmp_path / "x.nc"
    exchange(environment, "netcdf", "netcdf_write", path)
    site = stage(tmp_path / "site", Path(environment["HDF5_PLUGIN_PATH"]) / "libh5z_gpufetch.so")
    names = {"PYTHONPATH": str(site), "HDF5_PLUGIN_PATH": str(tmp_path)}
    code = """
import sys
import hdf5_gpufetch, xarray
assert "netCDF4" not in sys.modules
found = xarray.open_dataset(sys.argv[1], engine=sys.argv[2])["x"].values
sys.path.append(sys.argv[3])
import exchange
assert (found == exchange.grid()).all()
"""
    run({**environment, **names}, python_of("netcdf"), "-c", code, path, engine, HERE)


def test_two_libhdf5_in_one_process_both_use_the_plugin(
    environment: dict[str, str], folder: Path
) -> None:
    exchange(environment, "netcdf", "two_libraries", folder / "two")


@pytest.mark.parametrize("cd_values", ["explicit", "filled"])
def test_a_program_with_a_static_libhdf5(
    environment: dict[str, str], tmp_path: Path, cd_values: str
) -> None:
    cc = shutil.which("cc") or shutil.which("gcc")
    if cc is None or not (SYSTEM_LIBHDF5 / "libhdf5.a").exists():
        pytest.skip("no compiler, or no static libhdf5 (Debian: libhdf5-dev)")
    library = SYSTEM_LIBHDF5 / "libhdf5.a"
    if cd_values == "filled":  # all of libhdf5, and its functions shown to the plugin
        objects = ["-rdynamic", f"-Wl,--whole-archive,{library},--no-whole-archive"]
    else:
        objects = [str(library)]
    libraries = [f"-l{name}" for name in ("crypto", "curl", "sz", "z", "m", "dl", "pthread")]
    headers = ["-I/usr/include/hdf5/serial", f"-I{REPOSITORY / 'src' / 'include'}"]
    flags = [*headers, HERE / "static.c", "-o", tmp_path / "a"]
    linked = subprocess.run([cc, *flags, *objects, *libraries], capture_output=True, text=True)
    if linked.returncode != 0:
        pytest.skip(f"libhdf5.a cannot be linked here: {linked.stderr[-200:]}")
    clean = {name: value for name, value in environment.items() if name != "LD_PRELOAD"}
    run(clean, tmp_path / "a", "write", cd_values, tmp_path / "x.h5")
    run(clean, tmp_path / "a", "read", cd_values, tmp_path / "x.h5")
    if shutil.which("h5dump"):
        out = run(clean, "h5dump", "-H", "-p", tmp_path / "x.h5")
        assert f"FILTER_ID {gf.hdf5.FILTER_ID}" in out


def test_files_that_mpi_processes_share(tmp_path: Path) -> None:
    """With a parallel libhdf5 and MPI (Debian: libhdf5-openmpi-dev, openmpi-bin)."""
    h5pcc, mpirun = shutil.which("h5pcc"), shutil.which("mpirun")
    library = Path(os.environ.get("GPUFETCH_BUILD_DIR", "")) / "src" / "libgpufetch.so"
    if h5pcc is None or mpirun is None:
        pytest.skip("no h5pcc or no mpirun (Debian: libhdf5-openmpi-dev, openmpi-bin)")
    if not library.exists():
        pytest.skip("$GPUFETCH_BUILD_DIR has no libgpufetch.so")
    flags = [f"-I{REPOSITORY / 'src' / 'include'}", f"-Wl,-rpath,{library.parent}"]
    program = tmp_path / "parallel"
    allowed = ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM", "MCA_rmaps_base_oversubscribe")
    environment = {**os.environ, **{f"OMPI_{name}": "1" for name in allowed}}
    run(environment, h5pcc, *flags, HERE / "parallel.c", library, "-o", program)
    for count in ("1", "3"):
        command = (mpirun, "-n", count, program, tmp_path / "x.h5")
        assert "every part arrived" in run(environment, *command)
