"""The command line and the demo: what they print, and that their checks can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from sanitizing import needs_deepbind

import gpufetch as gf
from gpufetch.__main__ import main


def run(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    status = main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_module_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpufetch", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"gpufetch {gf.__version__}"


@pytest.mark.parametrize("arguments", [[], ["fetch"], ["ls"], ["info", "more"]])
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_info_says_version_and_backend(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "info")
    assert status == 0
    assert gf.__version__ in out
    assert gf.to_device(np.zeros(1)).device.partition(":")[0] in out


def test_plugin_path_is_where_the_plugin_is(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "plugin-path")
    assert status == 0
    assert (Path(out.strip()) / "libh5z_gpufetch.so").is_file()


def test_ls_shows_a_table_of_datasets(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "fields.h5"
    with h5py.File(path, "w") as file:
        gf.hdf5.write(file, "run/u", gf.to_device(np.zeros((64, 128), np.float32)))
        file.create_dataset("plain", data=np.arange(3))
        file.create_dataset("zipped", data=np.zeros(9000), compression="gzip", shuffle=True)
        file.create_dataset("empty", data=h5py.Empty("f4"))
        file.create_group("group")
    status, out, _ = run(capsys, "ls", path)
    assert status == 0
    lines = out.splitlines()
    assert lines[0].startswith(f"{path}: ")
    columns = ["name", "shape", "dtype", "chunks", "filter", "size", "stored", "ratio", "needs"]
    assert lines[1].split() == columns
    rows = {line.split()[0]: line for line in lines[2:]}
    assert {"empty", "plain", "run/u", "zipped", "group/", "run/"} <= rows.keys()
    assert "(64, 128)" in rows["run/u"]
    assert "gpufetch" in rows["run/u"]
    assert float(rows["run/u"].split()[-2]) > 10
    assert "shuffle+deflate" in rows["zipped"]


def test_ls_of_a_bad_file_names_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for path in (tmp_path / "missing.h5", tmp_path / "text.h5"):
        (tmp_path / "text.h5").write_text("no HDF5 file")
        status, _, err = run(capsys, "ls", path)
        assert status == 1
        assert path.name in err
        assert "Traceback" not in err


@needs_deepbind
@pytest.mark.parametrize(
    ("place", "why"),
    [(100, "checksum"), (-35, "has version 17592186044417")],  # the root's header; the seal
)
def test_ls_of_a_damaged_checkpoint_says_so_and_lists_the_others(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, place: int, why: str
) -> None:
    with gf.Checkpoint(tmp_path, keep=0) as checkpoint:
        for step in (1, 2):
            checkpoint.save(step, {"x": np.arange(10_000)})
    damaged, whole = sorted(tmp_path.glob("*.h5"))
    content = bytearray(damaged.read_bytes())
    content[place] ^= 1 if place > 0 else 16
    damaged.write_bytes(content)
    status = main(["ls", str(damaged), str(whole)])
    captured = capsys.readouterr()
    said = [line for line in (captured.out + captured.err).splitlines() if why in line]
    assert len(said) == 1 and str(damaged) in said[0]
    assert status == (1 if place > 0 else 0)  # what HDF5 reads is listed, and called damaged
    rows = [line for line in captured.out.splitlines() if line.split()[:2] == ["x", "(10000,)"]]
    assert f"{whole}: " in captured.out and len(rows) == 2 - status


# --- The demo ---

# Stands in for examples/gray_scott: same options and files, other physics. A restart from any
# checkpoint adds ERROR to the result.
SIMULATION = """#!{python}
import sys
import h5py, numpy as np
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if {status}:
    sys.exit("no such device")
every, steps = int(options["--every"]), int(options["--steps"])
error = {error} if "--restart" in options else 0
for step in range(every, steps + 1, every) if every else [steps]:
    with h5py.File(options["--output"] + f"/gray_scott-{{step:012}}.h5", "w") as file:
        file.attrs["step"], file.attrs["time"] = step, float(step)
        for name in "uv":
            file[name] = np.full((8, 8, 8), step + error, np.float32)
print("gray_scott on paper: done")
"""


def simulation(directory: Path, *, error: float = 0, status: int = 0) -> Path:
    path = directory / "simulation"
    path.write_text(SIMULATION.format(python=sys.executable, error=error, status=status))
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("with_simulation", [False, True])
def test_the_demo_leaves_files_and_figures(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, with_simulation: bool
) -> None:
    pytest.importorskip("matplotlib")
    directory = tmp_path / "demo"
    arguments = ["--simulation", simulation(tmp_path)] if with_simulation else []
    status, out, err = run(capsys, "demo", "--directory", directory, *arguments)
    assert (status, err) == (0, "")
    assert "all checks  passed" in out
    assert ("simulation  on paper" in out) == with_simulation
    with h5py.File(directory / "elevation.h5") as file:
        assert file["elevation"].shape == (344, 403)
        assert file["elevation"].attrs["units"] == "m"
    figures = {"elevation.png", "gray_scott.png"} if with_simulation else {"elevation.png"}
    assert {path.name for path in directory.glob("*.png")} == figures
    assert not list(directory.glob("restart-*"))


def test_a_restart_with_other_bits_fails_the_demo(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program = simulation(tmp_path, error=1e-3)
    status, _, err = run(capsys, "demo", "--directory", tmp_path, "--simulation", program)
    assert status == 1
    assert "gray_scott-000000003000.h5: dataset u: other bits" in err


def test_a_failing_simulation_fails_the_demo(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program = simulation(tmp_path, status=1)
    status, _, err = run(capsys, "demo", "--directory", tmp_path, "--simulation", program)
    assert status == 1
    assert "no such device" in err
    status, _, err = run(capsys, "demo", "--directory", tmp_path, "--simulation", tmp_path / "no")
    assert status == 1
    assert "cannot run" in err


def test_bits_that_differ_on_reading_fail_the_demo(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = gf.hdf5.read

    def altered(*arguments: Any, **options: Any) -> Any:
        values = gf.fetch(read(*arguments, **options))
        values.flat[0] += 1
        return gf.to_device(values)

    monkeypatch.setattr(gf.hdf5, "read", altered)
    status, _, err = run(capsys, "demo", "--directory", tmp_path)
    assert status == 1
    assert "elevation" in err


USES_OF_A_PIPE = """
import os, sys, h5py, numpy as np, gpufetch as gf
from gpufetch.__main__ import main
os.chdir(sys.argv[1])
with h5py.File("in.h5", "w") as file:
    file["x"] = np.arange(5)
    layout = h5py.VirtualLayout((5,), "i8")
    layout[:] = h5py.VirtualSource("pipe", "x", (5,))
    file.create_virtual_dataset("v", layout)
os.mkfifo("pipe")
x, h5 = np.ones(3), gf.hdf5
for use in (
    lambda: h5.read("pipe", "x"),
    lambda: h5.read("in.h5", "v"),
    lambda: h5.load("pipe"),
    lambda: h5.write("pipe", "x", x),
    lambda: h5.write("pipe", "x", x, overwrite=True),
    lambda: h5.save("pipe", {"x": x}, overwrite=True),
    lambda: h5.repack("pipe", "out.h5"),
    lambda: h5.repack("in.h5", "pipe", overwrite=True),
):
    try:
        use()
    except OSError as error:
        assert "pipe is a pipe: give" in str(error), error
    else:
        raise AssertionError("not refused")
for arguments in (["ls", "pipe"], ["verify", "pipe"], ["repack", "pipe", "out.h5"],
                  ["repack", "--overwrite", "in.h5", "pipe"]):
    assert main(arguments) == (3 if arguments[0] == "verify" else 1)
assert sorted(os.listdir()) == ["in.h5", "pipe"]
print("refused")
"""


def test_a_pipe_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", USES_OF_A_PIPE, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.endswith("\nrefused\n") and "pipe: could not be checked: " in done.stdout
    assert (tmp_path / "pipe").is_fifo()


def test_names_from_a_file_are_printed_without_control_characters(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "names.h5"
    with h5py.File(path, "w") as file:
        file["a\nb\x1b[2J\u202e"] = np.arange(3)
        file["soft\r"] = h5py.SoftLink("/to\x07")
        file.create_group("é ü")
    for command in ("ls", "verify"):
        status, out, _ = run(capsys, command, path)
        assert status == 0
        assert not [c for c in out.replace("\n", "") if not c.isprintable()]
        assert "a\\nb\\x1b[2J\\u202e" in out
    status, out, _ = run(capsys, "ls", path)
    assert "soft\\r" in out
    assert "-> /to\\x07" in out
    assert "é ü/" in out


def in_a_shell(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    gpufetch = f"{sys.executable} -m gpufetch"
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.replace("gpufetch", gpufetch)],
        capture_output=True,
        text=True,
        errors="replace",
        cwd=folder,
        env={**os.environ, **variables},
        timeout=120,
    )


@pytest.fixture
def umlaut(tmp_path: Path) -> Path:
    """A folder with two whole files, the first of which has a name beyond ASCII, and a bad one."""
    for name in ("a.h5", "b.h5", "bad.h5"):
        with h5py.File(tmp_path / name, "w") as file:
            file["\u00fc" if name == "a.h5" else "x"] = np.arange(3)
    content = bytearray((tmp_path / "bad.h5").read_bytes())
    content[:8] = bytes(8)
    (tmp_path / "bad.h5").write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_names_that_stdout_cannot_encode_are_escaped(umlaut: Path, encoding: str) -> None:
    done = in_a_shell("gpufetch verify a.h5 b.h5", umlaut, PYTHONIOENCODING=f"{encoding}:strict")
    assert done.returncode == 0, done.stderr
    assert "a.h5: 1 dataset, 24 B: whole" in done.stdout and "b.h5: 1 dataset" in done.stdout
    with h5py.File(umlaut / "a.h5", "a") as file:
        file["\u65e5"] = 1
    done = in_a_shell("gpufetch ls a.h5 b.h5", umlaut, PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and done.stderr == ""
    assert "\n  \\xfc " in done.stdout and "\n  \\u65e5 " in done.stdout
    assert done.stdout.count("any HDF5 reads every dataset") == 2


@pytest.mark.parametrize("where", ["> /dev/full", "| true", ">&-"])
def test_what_cannot_be_printed_is_not_called_damaged(umlaut: Path, where: str) -> None:
    """And what follows is checked: the exit status is that of the damage in the last file."""
    for files, status in (("a.h5 b.h5", 3), ("a.h5 bad.h5", 1)):
        done = in_a_shell(f"gpufetch verify {files} {where}", umlaut)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    for command in ("ls a.h5 b.h5", "info", "plugin-path", "refs a.h5"):
        done = in_a_shell(f"gpufetch {command} {where}", umlaut)
        assert done.returncode == 1, done.stderr
        assert ("No space left" in done.stderr) == (where == "> /dev/full")
        assert ("Bad file descriptor" in done.stderr) == (where == ">&-")
        assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_messages_without_a_place_do_not_mix_with_the_output(umlaut: Path) -> None:
    with h5py.File(umlaut / "a.h5", "a") as file:
        file["nowhere"] = h5py.SoftLink("/to")
    done = in_a_shell("gpufetch refs --skip a.h5", umlaut)
    assert done.returncode == 0 and "left out: " in done.stderr
    closed = in_a_shell("gpufetch refs --skip a.h5 2>&-", umlaut)
    assert closed.returncode == 0 and closed.stdout == done.stdout
