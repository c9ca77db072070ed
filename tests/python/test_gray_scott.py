"""examples/gray_scott: its arithmetic, its checkpoints, and restarts from them, bit for bit.

The program is looked for in $GPUFETCH_BUILD_DIR (./dev sets it), else in the newest build
directory that has it. It runs as users run it: in a process of its own, on the backend that
GPUFETCH_BACKEND names.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt
import pytest

import gpufetch  # also lets h5py decode the checkpoints

Array = npt.NDArray[np.float32]
PARAMETERS = {"Du": 0.12, "Dv": 0.06, "F": 0.035, "k": 0.06, "dt": 1.0}
ROOT = Path(__file__).resolve().parents[2]


def find_program() -> str:
    named = os.environ.get("GPUFETCH_BUILD_DIR")
    folders = [Path(named)] if named else ROOT.glob("build*")
    built = [path / "examples" / "gray_scott" for path in folders]
    built = [path for path in built if os.access(path, os.X_OK)]
    if not built:
        pytest.skip("gray_scott is not built: meson setup build -Dexamples=true")
    return str(max(built, key=lambda path: path.stat().st_mtime))


def gpu_absence() -> str:
    """Why nothing can run on a GPU here, or "" when one is there."""
    cuda = gpufetch.info()["backends"]["cuda"]
    return "" if cuda["available"] else str(cuda["reason"])


def run(
    backend: str, arguments: Sequence[object], expect: int = 0
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [find_program(), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "GPUFETCH_BACKEND": backend},
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done


def read(path: Path) -> tuple[Array, Array]:
    with h5py.File(path, "r") as file:
        u: Array = file["u"][()]
        v: Array = file["v"][()]
    return u, v


def checkpoint(folder: Path, step: int) -> Path:
    return folder / f"gray_scott-{step:012d}.h5"


def assert_same_bits(left: Path, right: Path) -> None:
    for a, b in zip(read(left), read(right), strict=True):
        np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))
    with h5py.File(left, "r") as a, h5py.File(right, "r") as b:
        assert dict(a.attrs) == dict(b.attrs)


def numpy_step(u: Array, v: Array) -> tuple[Array, Array]:
    """One step in the kernel's order of operations, all in float32."""
    p = {name: np.float32(value) for name, value in PARAMETERS.items()}

    def laplacian(a: Array) -> Array:
        x, y, z = (np.roll(a, 1, axis) + np.roll(a, -1, axis) for axis in range(3))
        total: Array = (x + y) + z - np.float32(6) * a
        return total

    reaction = u * v * v
    du = p["Du"] * laplacian(u) - reaction + p["F"] * (np.float32(1) - u)
    dv = p["Dv"] * laplacian(v) + reaction - (p["F"] + p["k"]) * v
    return u + p["dt"] * du, v + p["dt"] * dv


@pytest.fixture(params=["host", "cuda"])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and (reason := gpu_absence()):
        pytest.skip(f"no GPU: {reason}")
    return str(request.param)


@pytest.mark.parametrize("shape", [(9, 6, 7), (1, 2, 70), (5, 1, 1)])
def test_the_kernel_computes_what_numpy_computes(
    backend: str, tmp_path: Path, shape: tuple[int, int, int]
) -> None:
    run(backend, ["--shape", *shape, "--steps", 12, "--every", 1, "--output", tmp_path])
    u, v = read(checkpoint(tmp_path, 1))
    assert u.shape == shape and u.dtype == np.float32
    assert u.size == 5 or (np.ptp(u) > 0.1 and np.ptp(v) > 0.05)
    for step in range(2, 13):
        u, v = numpy_step(u, v)
        written_u, written_v = read(checkpoint(tmp_path, step))
        np.testing.assert_array_equal(written_u, u)
        np.testing.assert_array_equal(written_v, v)


def test_a_restart_continues_bit_for_bit(backend: str, tmp_path: Path) -> None:
    size = ["--shape", 24, 20, 33]
    one, two = tmp_path / "one", tmp_path / "two"
    run(backend, [*size, "--steps", 200, "--every", 50, "--output", one])
    assert sorted(path.name for path in one.glob("*.h5")) == [
        checkpoint(one, step).name for step in (50, 100, 150, 200)
    ]
    for start in (50, 100, 150):
        folder = two / str(start)
        two.mkdir(exist_ok=True)
        arguments = ["--restart", checkpoint(one, start), "--steps", 200, "--every", 0]
        run(backend, [*arguments, "--output", folder])
        assert [path.name for path in folder.glob("*.h5")] == ["gray_scott-000000000200.h5"]
        assert_same_bits(checkpoint(one, 200), checkpoint(folder, 200))
    u, v = read(checkpoint(one, 200))
    assert np.isfinite(u).all() and np.ptp(v) > 0.2


def test_the_newest_are_kept_and_restarted_from_shards(backend: str, tmp_path: Path) -> None:
    whole, sharded, restarted = (tmp_path / name for name in ("whole", "sharded", "restarted"))
    size = ["--shape", 24, 20, 33, "--steps", 50]
    run(backend, [*size, "--every", 0, "--output", whole])
    run(backend, [*size, "--every", 10, "--keep", 2, "--shards", 2, "--output", sharded])
    masters = [path for path in sorted(sharded.glob("*.h5")) if path.name.count(".") == 1]
    # One more than are kept: the next checkpoint would be written over it.
    assert masters == [checkpoint(sharded, step) for step in (30, 40, 50)]
    assert len(list(sharded.glob("*-000000000050.*.*.h5"))) == 2
    assert_same_bits(checkpoint(whole, 50), checkpoint(sharded, 50))
    restart = ["--restart", checkpoint(sharded, 40), "--steps", 50, "--output", restarted]
    run(backend, restart)
    assert_same_bits(checkpoint(whole, 50), checkpoint(restarted, 50))


def test_parameters_are_kept_and_restarted_with(backend: str, tmp_path: Path) -> None:
    changed = {"Du": 0.1, "Dv": 0.05, "F": 0.03, "k": 0.062, "dt": 0.5}
    options = [word for name, value in changed.items() for word in (f"--{name}", value)]
    run(backend, ["--n", 12, *options, "--steps", 7, "--every", 3, "--output", tmp_path])
    with h5py.File(checkpoint(tmp_path, 3), "r") as file:
        attributes = dict(file.attrs)
    assert attributes["step"] == 3 and attributes["time"] == 1.5
    assert attributes["model"] == "Gray-Scott" and isinstance(attributes["model"], str)
    assert isinstance(attributes["step"], np.int64)
    for name, value in changed.items():
        assert attributes[name] == np.float32(value) and isinstance(attributes[name], np.float64)
    folder = tmp_path / "restarted"
    restart = ["--restart", checkpoint(tmp_path, 3), "--steps", 7, "--output", folder]
    run(backend, restart)
    assert_same_bits(checkpoint(tmp_path, 7), checkpoint(folder, 7))


def test_host_and_gpu_give_the_same_bits(tmp_path: Path) -> None:
    if reason := gpu_absence():
        pytest.skip(f"no GPU: {reason}")
    for name in ("host", "cuda"):
        run(name, ["--n", 40, "--steps", 300, "--every", 0, "--output", tmp_path / name])
    assert_same_bits(checkpoint(tmp_path / "host", 300), checkpoint(tmp_path / "cuda", 300))


def test_a_kill_leaves_whole_checkpoints_only(backend: str, tmp_path: Path) -> None:
    size = ["--n", "32", "--steps", "1000000", "--every", "1"]
    command = [find_program(), *size, "--output", str(tmp_path)]
    env = {**os.environ, "GPUFETCH_BACKEND": backend}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        for _ in range(8):
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    finished = sorted(tmp_path.glob("*.h5"))
    assert len(finished) >= 7
    others = {path.name for path in tmp_path.iterdir() if path not in finished}
    assert len(others - {".gray_scott.lock"}) <= 1
    for path in finished:
        u, v = read(path)
        assert u.shape == v.shape == (32, 32, 32) and np.isfinite(u).all()
    last = len(finished)
    run(backend, ["--restart", finished[-1], "--steps", last + 1, "--output", tmp_path])
    expected = numpy_step(*read(finished[-1]))
    for written, computed in zip(read(checkpoint(tmp_path, last + 1)), expected, strict=True):
        np.testing.assert_array_equal(written, computed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shap", "3"], "unknown option --shap"),
        (["64"], "unknown option 64"),
        (["--n"], "--n needs a value"),
        (["--shape", "8", "8"], "--shape needs three values"),
        (["--n", "0"], "--n 0: expected an integer from 1"),
        (["--n", "8x"], "--n 8x: expected an integer"),
        (["--n", "99999999999999999999"], "expected an integer"),
        (["--shape", "2147483647", "2147483647", "2147483647"], "span more than"),
        (["--steps", "-5"], "--steps -5: expected an integer"),
        (["--every", ""], "--every : expected an integer"),
        (["--keep", "-1"], "--keep -1: expected an integer from 0"),
        (["--shards", "0"], "--shards 0: expected an integer from 1"),
        (["--shards", "300"], "300"),
        (["--F", "nan"], "--F nan: expected a number"),
        (["--dt", "4"], "dt = 4 is unstable with Du = 0.12"),
        (["--dt", "0"], "dt = 0 is unstable"),
        (["--output", "/dev/null/x"], "--output /dev/null/x: Not a directory"),
        (["--restart", "no-such-file.h5"], "cannot open no-such-file.h5"),
        (["--restart", "x.h5", "--n", "8"], "--n: the restart file decides that"),
        (["--restart", "x.h5", "--k", "0.06"], "--k: the restart file decides that"),
    ],
)
def test_a_bad_option_is_one_clear_error(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    if "--output" not in arguments:
        arguments = ["--output", str(tmp_path), *arguments]
    failed = run("host", arguments, expect=1)
    assert failed.stdout == ""
    assert failed.stderr.startswith("gray_scott: ") and failed.stderr.count("\n") == 1
    assert message in failed.stderr
    assert not list(tmp_path.iterdir())


def damage(path: Path, how: str) -> None:
    if how == "truncated":
        os.truncate(path, path.stat().st_size // 2)
        return
    if how == "not HDF5":
        path.write_bytes(b"u, v\n1.0, 0.0\n" * 100)
        return
    if how == "a chunk is altered":
        with h5py.File(path, "r") as file:
            chunk = file["u"].id.get_chunk_info(0)
        with path.open("r+b") as raw:
            raw.seek(chunk.byte_offset + chunk.size // 2)
            byte = raw.read(1)[0]
            raw.seek(-1, os.SEEK_CUR)
            raw.write(bytes([byte ^ 0x10]))
        return
    with h5py.File(path, "r+") as file:
        u = file["u"][()]
        if how == "no v":
            del file["v"]
        elif how == "no step":
            del file.attrs["step"]
        elif how == "no Du":
            del file.attrs["Du"]
        elif how == "no model":
            del file.attrs["model"]
        elif how == "another model":
            file.attrs["model"] = "Brusselator"
        elif how == "step is text":
            file.attrs["step"] = "twenty"
        elif how == "step is an array":
            file.attrs["step"] = np.arange(4096)
        elif how == "step is negative":
            file.attrs["step"] = np.int64(-1)
        elif how == "dt is not finite":
            file.attrs["dt"] = np.float32("nan")
        elif how == "F is infinite":
            file.attrs["F"] = np.float32("inf")
        elif how == "u is a group":
            del file["u"]
            file.create_group("u")
        else:
            replacement = {
                "u is 2-D": u[0],
                "u is smaller": u[:-1],
                "u is float64": u.astype(np.float64),
                "u is empty": u[:0],
            }[how]
            del file["u"]
            file["u"] = replacement
            if how == "u is empty":
                del file["v"]
                file["v"] = replacement


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("truncated", "truncated or not an HDF5 file"),
        ("not HDF5", "truncated or not an HDF5 file"),
        ("no v", "no dataset v"),
        ("no step", "no attribute 'step'"),
        ("no Du", "no attribute 'Du'"),
        ("no model", "no attribute 'model'"),
        ("another model", "a checkpoint of 'Brusselator'"),
        ("step is text", "attribute 'step' of object '/' is text, not an integer"),
        ("step is an array", "attribute 'step' of object '/' has 4096 elements"),
        ("step is negative", "step -1 is negative"),
        ("dt is not finite", "dt = nan is not a number"),
        ("F is infinite", "F = inf is not a number"),
        ("a chunk is altered", "chunk at (0, 0, 0) of dataset"),
        ("u is a group", "no dataset u"),
        ("u is 2-D", "2-D float32"),
        ("u is float64", "3-D float64"),
        ("u is smaller", "u and v differ in shape"),
        ("u is empty", "no cells"),
    ],
)
def test_a_bad_restart_file_is_one_clear_error(tmp_path: Path, how: str, message: str) -> None:
    run("host", ["--shape", 8, 6, 5, "--steps", 2, "--output", tmp_path])
    path = checkpoint(tmp_path, 2)
    damage(path, how)
    out = tmp_path / "out"
    failed = run("host", ["--restart", path, "--steps", 5, "--output", out], expect=1)
    assert failed.stdout == ""
    assert failed.stderr.startswith("gray_scott: ") and failed.stderr.count("\n") == 1
    assert message in failed.stderr and path.name in failed.stderr
    assert not out.exists()


def test_a_restart_with_nothing_left_to_do_is_refused(tmp_path: Path) -> None:
    run("host", ["--n", 6, "--steps", 4, "--output", tmp_path])
    path = checkpoint(tmp_path, 4)
    failed = run("host", ["--restart", path, "--steps", 4, "--output", tmp_path], expect=1)
    assert "is at step 4 already" in failed.stderr
