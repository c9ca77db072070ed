"""R, Octave and GDAL over the file of test_readers.py: each number of each dataset, as a double.

`./dev test --install` installs Debian's programs. Each process has HDF5_PLUGIN_PATH and nothing
else of gpufetch.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plugin_files import REPOSITORY, plugin_folder
from reader_files import write_every
from sanitizing import SANITIZED
from test_readers import WIDENED, dtype_of

pytestmark = pytest.mark.skipif(SANITIZED, reason="foreign programs do not bring a sanitizer")

INSTALL = REPOSITORY / "tests" / "install"


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    if "GPUFETCH_READER_WHEELS" not in os.environ:
        pytest.skip("made and run by ./dev test --install")
    folder = plugin_folder()
    if folder is None:
        pytest.skip("libh5z_gpufetch.so is not built")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "HDF5_PLUGIN_PATH": str(folder), "HDF5_USE_FILE_LOCKING": "FALSE"}


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file; what is in it is beside it as an .npz."""
    path = tmp_path_factory.mktemp("programs") / "every.h5"
    write_every(path, path.with_suffix(".npz"))
    return path


def doubles(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The numbers of an array, in C order; those of a complex number or a compound side by side."""
    if values.dtype.names is not None:
        fields = [values[name].reshape(-1).astype("f8") for name in values.dtype.names]
        return np.stack(fields, 1).reshape(-1)
    if values.dtype.kind == "c":
        values = values.reshape(-1).view(f"f{values.dtype.itemsize // 2}")
    return values.reshape(-1).astype("f8")


def outcomes(path: Path, found: dict[str, Any]) -> dict[str, str]:
    """What came of each dataset: "numbers", "other" (other numbers), or why there are none."""
    said = {}
    with np.load(path.with_suffix(".npz")) as expected, np.errstate(all="ignore"):
        for name in expected:
            got = found[name]
            if isinstance(got, str):
                said[name] = got
            elif isinstance(got, list):
                is_same = got == expected[name].astype("U").tolist()
                said[name] = "text" if is_same else "other"
            else:
                said[name] = "numbers" if are_alike(got, expected[name]) else "other"
    assert len(said) > 200
    return said


def are_alike(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> bool:
    """Whether these doubles are the numbers, of float32 with as many digits as it has."""
    if expected.dtype.kind == "S":
        return False
    wanted = doubles(expected)
    if expected.dtype in ("f2", "f4", "c8"):
        got, wanted = got.astype("f4"), wanted.astype("f4")
    return np.array_equal(got, wanted, equal_nan=True)


def names_in(path: Path) -> list[str]:
    with np.load(path.with_suffix(".npz")) as expected:
        return list(expected)


def run_script(
    environment: dict[str, str], command: list[str], path: Path, folder: Path
) -> dict[str, Any]:
    """What a script of tests/install wrote of each dataset."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed (Debian: r-cran-hdf5r, octave)")
    names = names_in(path)
    (folder / "names").write_text("\n".join(names) + "\n")
    done = subprocess.run(
        [*command, path, folder / "names", folder],
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found: dict[str, Any] = {}
    for number, name in enumerate(names):
        text = folder / f"{number}.text"
        is_there = not text.exists()
        found[name] = np.fromfile(folder / f"{number}.f8") if is_there else text.read_text()
    return found


def by_dtype(said: dict[str, str]) -> dict[str, set[str]]:
    """Outcomes other than "numbers", by the dtype of the dataset, or the name of one of a group."""
    found: dict[str, set[str]] = {}
    for name, outcome in said.items():
        if outcome != "numbers":
            found.setdefault(dtype_of(name), set()).add(outcome.strip().split("\n")[0])
    return found


def test_r_reads_what_the_table_says(
    environment: dict[str, str], every: Path, tmp_path: Path
) -> None:
    command = ["Rscript", str(INSTALL / "read_every.R")]
    said = outcomes(every, run_script(environment, command, every, tmp_path))
    # Its integers of 64 bits have no -2^63, which is NA, and none from 2^63 on.
    with np.load(every.with_suffix(".npz")) as values:
        beyond = {
            name
            for name in values
            if (values[name].dtype == "i8" and (values[name] == -(2**63)).any())
            or (values[name].dtype == "u8" and (values[name] >= 2**63).any())
        }
    wanted = dict.fromkeys(said, "numbers") | dict.fromkeys(beyond, "other")
    assert beyond and said == wanted | {"forms/text": "text\n"}


def test_octave_reads_what_the_table_says(
    environment: dict[str, str], every: Path, tmp_path: Path
) -> None:
    command = ["octave-cli", "--no-init-file", str(INSTALL / "read_every.m")]
    said = by_dtype(outcomes(every, run_script(environment, command, every, tmp_path)))
    # It reads no enumerations and no compounds but its own complex numbers, which have members of
    # other names: HDF5 gives zeros for them.
    bytes_of_a_name = {name for name in said if name.startswith("float8")}
    assert said.pop("complex64") == said.pop("complex128") == {"other"}
    assert said.pop("forms/text") == {"text"}
    assert said.keys() == {"bool", "forms/compound"} | bytes_of_a_name
    assert not bytes_of_a_name & set(WIDENED)
    assert "other" not in set().union(*said.values())


# --- GDAL ------------------------------------------------------------------------------------


def numbers_of(value: Any) -> Iterator[float]:
    """The numbers of nested lists, and of compounds, which are objects."""
    if isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers_of(item)
    else:
        yield float(value)  # "NaN" and "-Infinity" too


def test_gdal_reads_what_the_table_says(environment: dict[str, str], every: Path) -> None:
    if shutil.which("gdalmdiminfo") is None:
        pytest.skip("gdalmdiminfo is not installed (Debian: gdal-bin)")
    done = subprocess.run(
        ["gdalmdiminfo", "-detailed", every],
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    root = json.loads(done.stdout)
    arrays = dict(root["arrays"])
    for group, inside in root["groups"].items():
        arrays |= {f"{group}/{name}": array for name, array in inside["arrays"].items()}
    found: dict[str, Any] = {}
    for name, array in arrays.items():
        if "values" not in array:
            found[name] = "no values"
        elif array["datatype"] == "String":
            found[name] = array["values"]
        else:
            found[name] = np.array(list(numbers_of(array["values"])))
    assert by_dtype(outcomes(every, found)) == {"forms/text": {"text"}}
