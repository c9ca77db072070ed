"""The small programs of examples/, which are built with everything else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from sanitizing import SANITIZED, needs_deepbind

import gpufetch

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("GPUFETCH_BUILD_DIR", "")) / "examples"

NEEDS = {
    "restart": "it needs a C++ compiler",
    "restart_fortran": "it needs gfortran",
    "gray_scott_ranks": "it needs an MPI, such as Debian's libopenmpi-dev",
}


def run(name: str, *arguments: object, ranks: int = 0) -> subprocess.CompletedProcess[str]:
    program = FOLDER / name
    mpirun = shutil.which("mpirun")
    if not program.is_file():
        needs = NEEDS.get(name, "meson setup build -Dexamples=true")
        pytest.skip(f"$GPUFETCH_BUILD_DIR has no {program.name}: {needs}")
    if ranks and not mpirun:
        pytest.skip("there is no mpirun: install an MPI, such as Debian's openmpi-bin")
    if ranks and SANITIZED:
        pytest.skip("a sanitizer watches mpirun, too")
    launcher = [mpirun, "--oversubscribe", "-n", str(ranks)] if ranks and mpirun else []
    return subprocess.run(
        [*launcher, program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={
            **os.environ,
            "GPUFETCH_BACKEND": "host",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",  # in containers; other MPIs do not ask
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        },
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


def test_mpi_ranks_go_on_in_any_number_with_the_same_bits(tmp_path: Path) -> None:
    for ranks, steps, before in [(4, 45, 0), (3, 70, 45), (1, 85, 70), (2, 100, 85)]:
        done = run("gray_scott_ranks", tmp_path, steps, 18, ranks=ranks)
        assert (done.returncode, done.stdout) == (0, f"{ranks} ranks from step {before}\n"), done
    whole = tmp_path / "whole"
    whole.mkdir()
    assert run("gray_scott_ranks", whole, 100, 18, ranks=1).returncode == 0
    assert len(list(tmp_path.glob("gray_scott-000000000100.*.0.h5"))) == 1
    name = "gray_scott-000000000100.h5"
    with h5py.File(tmp_path / name) as one, h5py.File(whole / name) as other:
        assert one.attrs["step"] == 100
        assert one["u"].shape == (18, 18, 18) and np.ptp(one["u"][:]) > 0.1
        np.testing.assert_array_equal(one["u"][:], other["u"][:])
        np.testing.assert_array_equal(one["v"][:], other["v"][:])


@needs_deepbind
@needs_deepbind
def test_a_series_of_shards_is_analysed_by_dask(tmp_path: Path) -> None:
    pytest.importorskip("dask.array")
    rng = np.random.default_rng(1)
    steps = {step: rng.normal(size=(300, 200, 10)).astype(np.float32) for step in (5, 20, 1000)}
    with gpufetch.Checkpoint(tmp_path, prefix="run", keep=0, shards=3, sync=False) as checkpoint:
        for step, values in steps.items():
            checkpoint.save(step, {"u": values})
    analyse = [sys.executable, "examples/series_statistics.py", tmp_path, "run", "u"]
    done = subprocess.run(analyse, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for line, (step, values) in zip(done.stdout.splitlines(), steps.items(), strict=True):
        words = line.replace(":", "").replace(",", "").split()
        found = [float(words[i]) for i in (1, 2, 4, 6)]
        expected = [step, values.min(), values.max(), values.mean(dtype=float)]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    shard = next(tmp_path.glob("run-000000000020.*.1.h5"))
    shard.unlink()
    done = subprocess.run(analyse, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and shard.name in done.stderr and not done.stdout


def test_a_failure_of_a_rank_is_told(tmp_path: Path) -> None:
    done = run("gray_scott_ranks", tmp_path / "nowhere", 1, 8, ranks=2)
    assert done.returncode != 0 and "gray_scott_ranks: " in done.stderr
    assert "nowhere" in done.stderr
