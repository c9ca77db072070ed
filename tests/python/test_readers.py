"""Every program that reads HDF5, over one file of every dtype, chunk form and codec mode.

docs/reading.md has the table that these tests back. Programs of Python are in environments that
`./dev test --install` and `./dev test --hdf5` make; those of the system run where they are
installed. Each process has HDF5_PLUGIN_PATH and nothing else of gpufetch.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import fixture_values
import numpy as np
import pytest
from plugin_files import FILTER_ID, REPOSITORY, plugin_folder
from reader_files import write_every
from sanitizing import SANITIZED

pytestmark = pytest.mark.skipif(
    SANITIZED, reason="Debian's h5repack hangs at its exit under libasan"
)

SCRIPT = REPOSITORY / "tests" / "install" / "read_with.py"
# netCDF takes these types for text, reads their elements as addresses, and the process dies.
NETCDF_DIES = ("float16", "float8_e4m3", "float8_e5m2")
# Debian's ncdump (netCDF 4.9.0) also dies at text of a fixed length, with a filter and without one.
NCDUMP_DIES = (*NETCDF_DIES, "text")
# NumPy has no such type: the numbers come in a wider one.
WIDENED = ("bfloat16", "float8_e3m4", "float8_e4m3", "float8_e5m2")


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    folder = plugin_folder()
    if folder is None:
        pytest.skip("libh5z_gpufetch.so is not built")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "HDF5_PLUGIN_PATH": str(folder), "HDF5_USE_FILE_LOCKING": "FALSE"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The file, and those without the types at which netCDF dies; their .npz lie beside them."""
    folder = tmp_path_factory.mktemp("readers")
    made = {}
    for name, without in (("every", ()), ("netcdf", NETCDF_DIES), ("ncdump", NCDUMP_DIES)):
        made[name] = folder / f"{name}.h5"
        write_every(made[name], made[name].with_suffix(".npz"), without=without)
    return made


def dtype_of(name: str) -> str:
    """The dtype of a dataset of the file; its own name for those of the group."""
    cases = {case.name: case.dtype for case in fixture_values.FILES[2]}
    return cases.get(name, name)


def expected_of(reader: str, name: str, shape: tuple[int, ...]) -> str:
    """What docs/reading.md says of a dataset and a reader."""
    dtype = dtype_of(name)
    if reader == "pytables":
        if dtype == "bfloat16":
            return "other"  # it takes them for float16
        is_compound = dtype.startswith("float8") and dtype not in WIDENED
        if is_compound and len(shape) > 1:
            return "HDF5ExtError"  # it has compounds in tables of one axis
        return "values" if dtype in ("bool", *WIDENED) else "bits"
    if dtype in WIDENED:
        return "values"
    if reader.endswith("netcdf4"):
        as_others = {"bool", "forms/text", "forms/compound"}  # int8; str; the same with padding
        if reader == "xarray-netcdf4":
            as_others |= {"complex64", "complex128"}  # a compound of two floats
        return "values" if dtype in as_others else "bits"
    return "bits"


def read_with(python: Path, reader: str, path: Path, environment: dict[str, str]) -> dict[str, str]:
    done = subprocess.run(
        [python, SCRIPT, reader, path, path.with_suffix(".npz")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def check(python: Path, reader: str, path: Path, environment: dict[str, str]) -> None:
    found = read_with(python, reader, path, environment)
    with np.load(path.with_suffix(".npz")) as values:
        shapes = {name: values[name].shape for name in values}
    assert found.keys() == shapes.keys() and len(found) > 200
    wrong = {}
    for name, said in found.items():
        wanted = expected_of(reader, name, shapes[name])
        is_so = said.startswith(wanted) or (said, wanted) == ("bits", "values")
        if not is_so:
            wrong[name] = said, wanted
    assert wrong == {}


def site_python() -> Path:
    if "GPUFETCH_READER_WHEELS" not in os.environ:
        pytest.skip("made and run by ./dev test --install")
    return Path(os.environ["GPUFETCH_READER_WHEELS"]).parent / "site" / "bin" / "python"


READERS = ("h5py", "dask", "h5grove", "netcdf4", "xarray-netcdf4", "xarray-h5netcdf", "pytables")


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_of_python_reads_what_the_table_says(
    environment: dict[str, str], files: dict[str, Path], reader: str
) -> None:
    path = files["netcdf" if reader.endswith("netcdf4") else "every"]
    check(site_python(), reader, path, environment)


def test_netcdf4_dies_at_float16(environment: dict[str, str], files: dict[str, Path]) -> None:
    """Where this fails, netCDF was mended: say so in docs/reading.md."""
    found = read_with(site_python(), "netcdf4", files["every"], environment)
    died = {dtype_of(name) for name, said in found.items() if said == "crash"}
    assert "float16" in died and died <= set(NETCDF_DIES)


@pytest.mark.parametrize("name", ["h5py-1.12", "h5py-1.14", "h5py-2.0"])
def test_every_h5py_reads_what_the_table_says(
    environment: dict[str, str], files: dict[str, Path], name: str
) -> None:
    if "GPUFETCH_HDF5_ENVIRONMENTS" not in os.environ:
        pytest.skip("made and run by ./dev test --hdf5")
    folder = Path(os.environ["GPUFETCH_HDF5_ENVIRONMENTS"]) / name
    if not list(folder.glob("lib/python*/site-packages/h5py")):
        pytest.skip(f"{name}: no such wheel for this Python")
    check(folder / "bin" / "python", "h5py", files["every"], environment)


# --- Programs of the system ------------------------------------------------------------------


def run(environment: dict[str, str], *command: str | Path) -> str:
    if shutil.which(str(command[0])) is None:
        pytest.skip(f"{command[0]} is not installed (Debian: hdf5-tools, netcdf-bin)")
    done = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def plain(
    environment: dict[str, str], files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Copies without filters, by h5repack."""
    folder = tmp_path_factory.mktemp("plain")
    made = {name: folder / files[name].name for name in ("every", "ncdump")}
    for name, path in made.items():
        run(environment, "h5repack", "-f", "NONE", files[name], path)
    return made


COMPARE = """
import sys
import h5py
import numpy as np
def stored(dataset):
    kind = dataset.id.get_type()
    found = np.zeros(dataset.size * kind.get_size(), "u1")
    dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, found, kind)
    return kind, found.tobytes()
names = []
with h5py.File(sys.argv[1]) as one, h5py.File(sys.argv[2]) as two:
    def compare(name, dataset):
        if isinstance(dataset, h5py.Dataset):
            (a, x), (b, y) = stored(dataset), stored(two[name])
            assert a == b and x == y, name
            assert two[name].id.get_create_plist().get_nfilters() == 0, name
            names.append(name)
    one.visititems(compare)
print(len(names))
"""


def test_h5repack_decodes_every_dataset(
    environment: dict[str, str], files: dict[str, Path], plain: dict[str, Path]
) -> None:
    """h5py reads both, so that the bytes that two releases of HDF5 decode are compared."""
    done = subprocess.run(
        [sys.executable, "-c", COMPARE, files["every"], plain["every"]],
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 200


def test_h5repack_encodes_every_dataset(
    environment: dict[str, str], files: dict[str, Path], tmp_path: Path
) -> None:
    again = tmp_path / "again.h5"
    run(environment, "h5repack", "-f", f"UD={FILTER_ID},0,0", files["every"], again)
    run(environment, "h5diff", files["every"], again)


def test_h5diff_finds_no_difference(
    environment: dict[str, str], files: dict[str, Path], plain: dict[str, Path]
) -> None:
    run(environment, "h5diff", files["every"], plain["every"])


def test_h5dump_shows_the_same_numbers(
    environment: dict[str, str], files: dict[str, Path], plain: dict[str, Path]
) -> None:
    shown = [
        run(environment, "h5dump", path).split("\n", 1)[1]
        for path in (files["every"], plain["every"])
    ]
    assert shown[0] == shown[1] and shown[0].count("DATASET ") > 200


def test_ncdump_shows_the_same_numbers(
    environment: dict[str, str], files: dict[str, Path], plain: dict[str, Path]
) -> None:
    shown = [run(environment, "ncdump", path) for path in (files["ncdump"], plain["ncdump"])]
    assert shown[0].split("\n", 1)[1] == shown[1].split("\n", 1)[1]
    assert len(shown[0]) > 100_000


def test_the_tables_name_tests_that_exist() -> None:
    page = (REPOSITORY / "docs" / "reading.md").read_text()
    tables = "\n".join(line for line in page.splitlines() if line.startswith("| "))
    named = set(re.findall(r"`(test_\w+?)(?:\[[^`]*\])?`", tables))
    texts = [path.read_text() for path in Path(__file__).parent.glob("test_reader*.py")]
    assert len(named) > 10
    assert {name for name in named if not any(f"def {name}(" in text for text in texts)} == set()
