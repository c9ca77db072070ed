"""The small programs of examples/, which are built with everything else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest

import gpufetch  # noqa: F401  lets h5py decode the files

FOLDER = Path(os.environ.get("GPUFETCH_BUILD_DIR", "")) / "examples"

NEEDS = {"restart": "it needs a C++ compiler", "restart_fortran": "it needs gfortran"}


def run(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    program = FOLDER / name
    if not program.is_file():
        needs = NEEDS.get(name, "meson setup build -Dexamples=true")
        pytest.skip(f"$GPUFETCH_BUILD_DIR has no {program.name}: {needs}")
    return subprocess.run(
        [program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "GPUFETCH_BACKEND": "host"},
    )


@pytest.mark.parametrize("steps", [0, 1, 12])
def test_a_series_is_appended(tmp_path: Path, steps: int) -> None:
    done = run("append", tmp_path / "series.h5", steps)
    assert done.returncode == 0, done.stderr
    with h5py.File(tmp_path / "series.h5") as file:
        series = file["u"]
        assert series.shape == (steps, 256, 256) and series.chunks == (1, 256, 256)
        expected = np.broadcast_to(np.arange(256), (steps, 256, 256))
        np.testing.assert_array_equal(series[:], expected + 1000 * np.arange(steps)[:, None, None])


def test_a_failure_is_told(tmp_path: Path) -> None:
    done = run("append", tmp_path / "nowhere" / "series.h5")
    assert done.returncode == 1 and "append: HDF5 failed: " in done.stderr


@pytest.mark.parametrize("program", ["restart", "restart_fortran"])
def test_a_program_goes_on_where_its_checkpoint_left_it(tmp_path: Path, program: str) -> None:
    done = run(program, tmp_path, 50)
    assert (done.stdout, done.stderr, done.returncode) == ("from step 0\n", "", 0)
    assert [path.name for path in sorted(tmp_path.glob("*.h5"))] == [
        "walk-000000000040.h5",
        "walk-000000000050.h5",
    ]
    whole = tmp_path / "whole"
    whole.mkdir()
    assert run(program, tmp_path, 80).stdout == "from step 50\n"
    assert run(program, whole, 80).stdout == "from step 0\n"
    name = "walk-000000000080.h5"
    with h5py.File(tmp_path / name) as one, h5py.File(whole / name) as other:
        assert one.attrs["step"] == 80
        np.testing.assert_array_equal(one["position"][:], other["position"][:])
    done = run(program, tmp_path / "nowhere", 10)
    assert done.returncode == 1 and f"{program}: " in done.stderr
    assert "nowhere" in done.stderr
