"""The library's own HDF5 file driver with each libhdf5 at hand, and what h5py reads of its files.

The programs of tests/c take the path of a libhdf5. They get that of this environment's h5py here,
and those of the environments that `./dev test --hdf5` makes; meson runs them with the system's.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
from sanitizing import SANITIZED

ROOT = Path(__file__).resolve().parents[2]
BUNDLED = ("h5py.libs", "netcdf4.libs")  # where wheels keep the libraries that they bring


def libraries() -> list[Path]:
    folders = [Path(h5py.__file__).parents[1]]
    environments = Path(os.environ.get("GPUFETCH_HDF5_ENVIRONMENTS", "nowhere"))
    folders += sorted(environments.glob("*/lib/python*/site-packages"))
    found = [path for folder in folders for name in BUNDLED for path in (folder / name).glob("*")]
    paths = [path for path in found if path.name.startswith("libhdf5-")]
    return list({path.name: path for path in paths}.values())


def name_of(library: Path) -> str:
    return library.name.partition(".so.")[2]


def program(name: str) -> Path:
    if SANITIZED:
        pytest.skip("meson runs those that a sanitizer is to watch")
    build = os.environ.get("GPUFETCH_BUILD_DIR")
    path = Path(build or ROOT / "build-dev") / "tests" / "c" / name
    if not path.exists():
        pytest.skip(f"{name} is not built here: ./dev build")
    return path


def run(name: str, library: Path, *arguments: str | Path, cwd: Path) -> None:
    done = subprocess.run(
        [program(name), library, *map(str, arguments)],
        env={**os.environ, "LD_LIBRARY_PATH": str(library.parent)},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0 and "\nok 1" in done.stdout, done.stdout + done.stderr


def test_there_is_a_library_to_test() -> None:
    if not libraries():
        pytest.skip("this h5py is not a wheel, which brings a libhdf5")
    assert all(path.is_file() for path in libraries())


@pytest.mark.parametrize("library", libraries(), ids=name_of)
@pytest.mark.parametrize(
    "name", ["test_hdf5_driver", "test_hdf5_driver_failures", "test_hdf5_driver_shared"]
)
def test_the_driver_with_another_libhdf5(name: str, library: Path, tmp_path: Path) -> None:
    run(name, library, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("library", libraries(), ids=name_of)
def test_h5py_reads_what_the_driver_wrote(library: Path, tmp_path: Path) -> None:
    run("test_hdf5_driver_random", library, tmp_path, 7, cwd=tmp_path)
    with h5py.File(tmp_path / "file.h5") as file:
        assert len(file) > 2
        for name, dataset in file.items():
            np.testing.assert_array_equal(dataset[:], np.fromfile(tmp_path / f"{name}.bin", "u1"))
        assert {path.stem for path in tmp_path.glob("*.bin")} == set(file)
