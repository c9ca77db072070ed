"""The demo: real data from device memory to HDF5, back, and to a notebook, checked bit by bit.

Needs matplotlib, and nbclient with ipykernel to execute a notebook.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import h5py
import numpy as np
import numpy.typing as npt

import gpufetch as gf
from gpufetch._text import format_nbytes

__all__ = ["DemoError", "run"]

Result = TypeVar("Result")

_CELL_COUNT = 80  # along each axis of the simulation
_STEP_COUNT = 3000
_STEPS_BETWEEN_CHECKPOINTS = 250
_FETCH_NBYTES = 64 << 20
_TIMEOUT_S = 600

# A program for a process that has HDF5_PLUGIN_PATH set and does not import gpufetch. It prints, as
# JSON, a hash of each dataset of the files that its command line names.
_READER = """
import hashlib, json, sys
import h5py

hashes = {}
for path in sys.argv[1:]:
    with h5py.File(path, "r") as file:
        file.visititems(
            lambda name, item: hashes.update(
                {path + ":" + name: hashlib.sha256(item[()].tobytes()).hexdigest()}
            )
            if isinstance(item, h5py.Dataset) else None
        )
assert not any(name.partition(".")[0] == "gpufetch" for name in sys.modules)
print(json.dumps({"h5py": h5py.version.version, "hashes": hashes}))
"""


class DemoError(RuntimeError):
    """A step of the demo failed, or a check found a difference."""


def run(
    directory: str | os.PathLike[str],
    *,
    simulation: str | os.PathLike[str] | None = None,
    notebook: str | os.PathLike[str] | None = None,
) -> None:
    """Fill `directory` with HDF5 files, an executed notebook and figures, and print what was done.

    `simulation` is the compiled example gray_scott, and `notebook` is quickstart.ipynb. Each is
    skipped if it is not given; the notebook also if there are no checkpoints for it to read.
    Checkpoints that an earlier simulation left in `directory` are replaced. Raises DemoError, which
    names what failed, if a program fails or a check finds a difference.
    """
    directory = Path(directory).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    probe = gf.to_device(np.zeros(1, np.uint8))
    _say("gpufetch", f"{gf.__version__} on {_device_text(probe.device)}")

    sample = _elevation_sample()
    checkpoints: list[Path] = []
    if simulation is None:
        _say("simulation", "skipped: no --simulation given")
    else:
        program = Path(simulation).resolve()
        checkpoints = _simulate(program, directory)
        _check_restart(program, checkpoints)
    exported = _export_elevation(directory, sample)
    _time_fetch(sample["elevation"])
    _check_readback([exported, *checkpoints], sample["elevation"])
    if notebook is not None and checkpoints:
        _execute_notebook(Path(notebook).resolve(), directory)
    else:
        _say("notebook", "skipped: it needs --notebook and --simulation")
    _draw(directory, exported, checkpoints)
    _say("all checks", f"passed; see {_short(directory)}{os.sep}")


def _say(what: str, text: str) -> None:
    print(f"{what:<11} {text}", flush=True)


def _short(path: Path) -> str:
    """The path relative to the working directory, if it is below that."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _device_text(device: str) -> str:
    return f"{device}, a fake GPU on the host" if device.startswith("host") else device


def _timed(call: Callable[[], Result]) -> tuple[Result, float]:
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def _rate(nbytes: int, seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms, {nbytes / seconds / 1e9:.2f} GB/s"


# --- The simulation ---


def _simulate(program: Path, directory: Path) -> list[Path]:
    for stale in _checkpoints(directory):
        stale.unlink()
    options = ["--n", _CELL_COUNT, "--every", _STEPS_BETWEEN_CHECKPOINTS]
    output = _run_program(
        [program, *options, "--steps", _STEP_COUNT, "--output", directory], "simulation"
    )
    for line in output.splitlines():
        if not line.startswith("step "):  # there is such a line for each checkpoint
            _say("simulation", line.removeprefix("gray_scott "))
    checkpoints = _checkpoints(directory)
    expected = _STEP_COUNT // _STEPS_BETWEEN_CHECKPOINTS
    if len(checkpoints) < expected:
        raise DemoError(
            f"{program} left {len(checkpoints)} checkpoints in {directory}, "
            f"at least {expected} were expected"
        )
    raw = sum(sum(_dataset_sizes(path)) for path in checkpoints)
    stored = sum(path.stat().st_size for path in checkpoints)
    _say("checkpoints", f"{len(checkpoints)} files: {_ratio_text(raw, stored)}")
    return checkpoints


def _checkpoints(directory: Path) -> list[Path]:
    return sorted(directory.glob("gray_scott-[0-9]*.h5"))


def _dataset_sizes(path: Path) -> list[int]:
    with h5py.File(path, "r") as file:
        return [item.nbytes for item in file.values() if isinstance(item, h5py.Dataset)]


def _ratio_text(raw: int, stored: int) -> str:
    return f"{format_nbytes(raw)} stored in {format_nbytes(stored)}, ratio {raw / stored:.2f}"


def _run_program(command: list[Any], what: str, **options: Any) -> str:
    arguments = list(map(str, command))
    try:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            arguments, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, **options
        )
    except OSError as error:
        raise DemoError(f"{what}: cannot run {arguments[0]}: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise DemoError(f"{what}: not done after {_TIMEOUT_S} s: {arguments[0]}") from error
    if done.returncode != 0:
        raise DemoError(
            f"{what}: {arguments[0]} ended with {done.returncode}: {done.stderr.strip()}"
        )
    return done.stdout


def _check_restart(program: Path, checkpoints: list[Path]) -> None:
    """Restart from a middle checkpoint, and compare the last one with that of the first run."""
    middle, last = checkpoints[(len(checkpoints) - 1) // 2], checkpoints[-1]
    with tempfile.TemporaryDirectory(dir=last.parent, prefix="restart-") as directory:
        command = [program, "--restart", middle, "--steps", _STEP_COUNT, "--every", 0]
        _run_program([*command, "--output", directory], "restart")
        difference = _difference(last, Path(directory) / last.name)
    if difference:
        raise DemoError(f"restart from {middle.name} does not give {last.name}: {difference}")
    _say("restart", f"from {middle.name} to {last.name}: bit for bit the same")


def _difference(expected: Path, actual: Path) -> str | None:
    """Name the first dataset or root attribute whose bits differ, or return None."""
    if not actual.exists():
        return f"{actual.name} was not written"
    with h5py.File(expected, "r") as a, h5py.File(actual, "r") as b:
        for kind, left, right in (("dataset", a, b), ("attribute", a.attrs, b.attrs)):
            if set(left) != set(right):
                return f"{kind}s {sorted(left)} against {sorted(right)}"
            for name in left:
                one, other = (_values(left[name]), _values(right[name]))
                if (one.shape, one.dtype) != (other.shape, other.dtype):
                    return f"{kind} {name}: {one.shape} {one.dtype}, {other.shape} {other.dtype}"
                if one.tobytes() != other.tobytes():
                    return f"{kind} {name}: other bits"
    return None


def _values(item: Any) -> npt.NDArray[Any]:
    return np.asarray(item[()] if isinstance(item, h5py.Dataset) else item)


# --- The elevation field ---


def _elevation_sample() -> dict[str, npt.NDArray[Any]]:
    """Matplotlib's elevation model of the Jacksboro fault: metres, rows from north to south."""
    try:
        from matplotlib import cbook
    except ImportError as error:
        raise DemoError(f"the demo's data and figures: {error}; pip install matplotlib") from error
    sample: Any = cbook.get_sample_data("jacksboro_fault_dem.npz")
    with sample:
        return {name: sample[name] for name in sample}


def _export_elevation(directory: Path, sample: dict[str, npt.NDArray[Any]]) -> Path:
    path = directory / "elevation.h5"
    d_elevation = gf.to_device(sample["elevation"])
    with h5py.File(path, "w") as file:
        _, seconds = _timed(lambda: gf.hdf5.write(file, "elevation", d_elevation))
        dataset = file["elevation"]
        dataset.attrs["units"] = "m"
        # The sample's rows are from north to south, and its ymin is the northern edge.
        file.attrs.update(
            {
                "west": float(sample["xmin"]),
                "east": float(sample["xmax"]),
                "north": float(sample["ymin"]),
                "south": float(sample["ymax"]),
            }
        )
        stored = dataset.id.get_storage_size()
    nbytes = sample["elevation"].nbytes
    rows, columns = sample["elevation"].shape
    _say(
        "elevation",
        f"{rows} x {columns} {sample['elevation'].dtype} from {d_elevation.device} to "
        f"{_short(path)} in {_rate(nbytes, seconds)}",
    )
    _say("", _ratio_text(nbytes, stored))
    return path


def _time_fetch(elevation: npt.NDArray[Any]) -> None:
    """Repeat the field until it is large enough to measure a rate, and fetch it a second time."""
    count = -(-_FETCH_NBYTES // elevation.nbytes)
    expected = np.tile(elevation, (count, 1))
    d_tiled = gf.to_device(expected)
    gf.fetch(d_tiled)
    values, seconds = _timed(lambda: gf.fetch(d_tiled))
    if not np.array_equal(values, expected):
        raise DemoError(f"fetch from {d_tiled.device} gave other values than were put there")
    _say(
        "fetch",
        f"{format_nbytes(values.nbytes)} of it, repeated, from {d_tiled.device} to NumPy in "
        f"{_rate(values.nbytes, seconds)}",
    )


# --- Reading back ---


def _check_readback(paths: list[Path], elevation: npt.NDArray[Any]) -> None:
    """Compare what plain h5py reads with what gpufetch reads into device memory."""
    environment = {**os.environ, "HDF5_PLUGIN_PATH": str(gf.hdf5.plugin_path())}
    command = [sys.executable, "-c", _READER, *paths]
    report = json.loads(_run_program(command, "read back", env=environment))
    hashes: dict[str, str] = report["hashes"]
    nbytes = 0
    expected: dict[str, str] = {}
    for path in paths:
        with h5py.File(path, "r") as file:
            for name, dataset in file.items():
                values = gf.fetch(gf.hdf5.read(dataset))
                expected[f"{path}:{name}"] = hashlib.sha256(values.tobytes()).hexdigest()
                nbytes += values.nbytes
    expected_elevation = hashlib.sha256(elevation.tobytes()).hexdigest()
    if expected.get(f"{paths[0]}:elevation") != expected_elevation:
        raise DemoError(f"{paths[0]}: elevation read to the device is not what was written")
    if hashes != expected:
        names = sorted(
            name for name in {*hashes, *expected} if hashes.get(name) != expected.get(name)
        )
        raise DemoError(f"plain h5py and the device read differ in {', '.join(names)}")
    _say(
        "read back",
        f"{len(hashes)} datasets, {format_nbytes(nbytes)}, by h5py {report['h5py']} with only "
        "HDF5_PLUGIN_PATH",
    )
    _say("", "and by gpufetch into device memory: bit for bit the same")


# --- Notebook and figures ---


def _execute_notebook(source: Path, directory: Path) -> None:
    try:
        import nbformat
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError
    except ImportError as error:
        raise DemoError(f"notebook: {error}; pip install nbclient ipykernel") from error
    notebook: Any = nbformat.read(source, as_version=4)  # type: ignore[no-untyped-call]
    target = directory / source.name
    client = NotebookClient(
        notebook,
        timeout=_TIMEOUT_S,
        resources={"metadata": {"path": str(directory)}},
        extra_arguments=["--log-level=ERROR"],
    )
    environment = {**os.environ, "GPUFETCH_DEMO_DIR": str(directory)}
    try:
        _, seconds = _timed(lambda: client.execute(env=environment))
    except CellExecutionError as error:
        raise DemoError(f"notebook {source.name}: {error}") from error
    finally:
        nbformat.write(notebook, target)  # type: ignore[no-untyped-call]
    figures = sum(
        "image/png" in output.get("data", {})
        for cell in notebook.cells
        for output in cell.get("outputs", ())
    )
    _say("notebook", f"{_short(target)}: {figures} figures, executed in {seconds:.1f} s")


def _draw(directory: Path, exported: Path, checkpoints: list[Path]) -> None:
    from matplotlib.figure import Figure

    def save(figure: Figure, name: str) -> None:
        path = directory / name
        figure.savefig(path, dpi=150)
        _say("figure", _short(path))

    save(_elevation_figure(exported), "elevation.png")
    if checkpoints:
        save(_evolution_figure(checkpoints), "gray_scott.png")


def _elevation_figure(path: Path) -> Any:
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LightSource, Normalize
    from matplotlib.figure import Figure

    with h5py.File(path, "r") as file:
        values = file["elevation"][()].astype(np.float64)
        west, east = float(file.attrs["west"]), float(file.attrs["east"])
        north, south = float(file.attrs["north"]), float(file.attrs["south"])
    metres_per_degree = 111_200.0
    shrink = np.cos(np.radians((north + south) / 2))
    dx = metres_per_degree * shrink * (east - west) / values.shape[1]
    dy = metres_per_degree * (north - south) / values.shape[0]
    norm = Normalize(values.min(), values.max())
    shaded = LightSource(azdeg=315, altdeg=45).shade(
        values, colormaps["cividis"], norm=norm, blend_mode="soft", vert_exag=4, dx=dx, dy=dy
    )
    figure = Figure(figsize=(7.4, 6.4), layout="constrained")
    axes = figure.subplots()
    axes.imshow(shaded, extent=(west, east, south, north), aspect=1 / shrink)
    axes.set(
        title="Elevation around the Jacksboro fault, Tennessee (hillshade, heights × 4)",
        xlabel="longitude (°)",
        ylabel="latitude (°)",
    )
    figure.colorbar(ScalarMappable(norm, "cividis"), ax=axes, label="elevation (m)")
    return figure


def _evolution_figure(checkpoints: list[Path]) -> Any:
    from matplotlib.figure import Figure

    chosen = [checkpoints[0], checkpoints[len(checkpoints) // 4], checkpoints[-1]]
    panels = []
    for path in chosen:
        with h5py.File(path, "r") as file:
            plane = file["v"].shape[0] // 2
            panels.append((int(file.attrs["step"]), float(file.attrs["time"]), file["v"][plane]))
    top = max(values.max() for *_, values in panels)
    figure = Figure(figsize=(12, 4.3), layout="constrained")
    all_axes = figure.subplots(1, 3, sharey=True)
    for axes, (step, t, values) in zip(all_axes, panels, strict=True):
        image = axes.imshow(values.T, origin="lower", cmap="magma", vmin=0, vmax=top)
        axes.set(title=f"step {step}, t = {t:g}", xlabel="y (cells)")
    all_axes[0].set_ylabel("z (cells)")
    figure.colorbar(image, ax=all_axes, label="concentration v (dimensionless)")
    figure.suptitle(
        f"Gray-Scott reaction-diffusion in three dimensions: v in the plane x = {plane}"
    )
    return figure
