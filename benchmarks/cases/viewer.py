"""The viewer over a slow line: how long until a view of tiles not seen before is complete.

JupyterLab and Chromium are those of `./dev test --jupyterlab`; GPUFETCH_JUPYTERLAB names their
environment. tests/jupyterlab has the line, a proxy, and the program that pans in the page and takes
the times.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cases import Case
from gpufetch import _core
from harness import MICROSECONDS, Array, Row, Session, Timings, make_row, report

PROGRAMS = Path(__file__).resolve().parents[2] / "tests" / "jupyterlab"
ENVIRONMENT = "GPUFETCH_JUPYTERLAB"
TOKEN = "a-token-for-this-benchmark"
NBYTES_PER_S, ROUND_TRIP_S = 10e6, 0.1
SIDE, REPEATED, TILE = 2048, 8, 256
ROUNDS, VIEWS = 2, 8
PLAIN = "plain tiles"


def cases(session: Session) -> list[Case]:
    reason = why_not(session)
    if reason:
        report(f"viewer is left out: {reason}")
        return []
    fields = {"a smooth field": smooth, "turbulence": turbulence}
    return [
        (f"viewer {name}", partial(viewer, session, name, make())) for name, make in fields.items()
    ]


def why_not(session: Session) -> str:
    """Why the case is left out; empty if it is not."""
    if session.quick:
        return "it takes minutes"
    if not os.environ.get(ENVIRONMENT):
        return f"{ENVIRONMENT} does not name an environment with JupyterLab and selenium"
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        return "there is no chromium with its chromedriver"
    return ""


def smooth() -> Array:
    """Waves of some hundred elements."""
    row, column = np.indices((SIDE, SIDE), np.float32)
    return (np.sin(row * 2 * np.pi / 512) * np.cos(column / 500)).astype(np.float32)


def turbulence() -> Array:
    """Noise whose power falls with the wave number as in a turbulent flow."""
    wave = np.hypot(np.fft.fftfreq(SIDE)[:, None], np.fft.rfftfreq(SIDE)[None, :]) * SIDE
    wave[0, 0] = np.inf
    noise = np.fft.rfft2(np.random.default_rng(15).normal(size=(SIDE, SIDE)))
    values = np.fft.irfft2(noise * wave ** (-11 / 6))
    return (values / values.std()).astype(np.float32)


def ratio(field: Array) -> float:
    """By how much tiles get smaller."""
    tiles = [
        np.ascontiguousarray(field[row : row + TILE, column : column + TILE])
        for row in range(0, SIDE, TILE)
        for column in range(0, SIDE, TILE)
    ]
    encoded = sum(len(_core.chunk_encode(t.tobytes(), t.dtype, t.shape)) for t in tiles)
    return field.nbytes / encoded


def viewer(session: Session, name: str, field: Array) -> list[Row]:
    """Pages with and without WebAssembly take turns."""
    seconds: dict[str, list[float]] = {"gpufetch": [], PLAIN: []}
    sys.path.append(str(PROGRAMS))
    from slow_line import slow_line

    folder = session.scratch / name.replace(" ", "-")
    folder.mkdir()
    np.save(folder / "field.npy", np.tile(field, (REPEATED, 1)))
    with started_lab(folder) as to_port, slow_line(to_port, NBYTES_PER_S, ROUND_TRIP_S) as port:
        for number in range(2 * ROUNDS):
            is_plain = number % 2 == 1
            seen = seen_in_page(folder, port, is_plain)
            if seen["tiles"] != ("plain" if is_plain else "encoded"):
                raise RuntimeError(f"tiles have travelled {seen['tiles']}: {seen['note']}")
            seconds[PLAIN if is_plain else "gpufetch"] += [ms / 1e3 for ms in seen["views"]]
    line = f"{NBYTES_PER_S / 1e6:.0f} MB/s, {ROUND_TRIP_S * 1e3:.0f} ms"
    return [
        make_row(
            session,
            f"viewer pans to a view of new tiles of {name}, {line}",
            Timings(seconds),
            nbytes=0,
            unit=MICROSECONDS,
            peers=[PLAIN],
            labels={PLAIN: "the same page without WebAssembly: plain tiles"},
            note=f"ratio of tiles of {TILE}²: {ratio(field):.2f}; load {os.getloadavg()[0]:.1f} of "
            f"{os.cpu_count()} CPUs",
        )
    ]


def seen_in_page(folder: Path, port: int, is_plain: bool) -> Any:
    python = Path(os.environ[ENVIRONMENT], "bin", "python")
    url = f"http://127.0.0.1:{port}/lab/tree/viewer.ipynb?token={TOKEN}"
    command = [python, PROGRAMS / "slow_page.py", url, folder, str(VIEWS)]
    done = subprocess.run(
        [*command, *(["plain"] if is_plain else [])],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


@contextlib.contextmanager
def started_lab(folder: Path) -> Iterator[int]:
    """JupyterLab with a notebook whose cell 1 shows the field, by this Python; its port."""
    write_notebook(folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    places = {f"JUPYTER_{n.upper()}_DIR": str(folder / n) for n in ("runtime", "data", "config")}
    python = str(Path(os.environ[ENVIRONMENT], "bin", "python"))
    command = [python, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    command += [f"--IdentityProvider.token={TOKEN}", f"--port={port}"]
    with (folder / "lab.log").open("w") as log:
        started = subprocess.Popen(
            [*command, f"--ServerApp.root_dir={folder}"],
            stdout=log,
            stderr=log,
            env={**os.environ, **places},
            cwd=folder,
        )
    try:
        while not listens(port):
            if started.poll() is not None:
                raise RuntimeError((folder / "lab.log").read_text())
            time.sleep(0.1)
        yield port
    finally:
        started.terminate()
        started.wait()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def write_notebook(folder: Path) -> None:
    kernel = folder / "data" / "kernels" / "this"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    facts = {"argv": command, "display_name": "this", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(facts))
    load = "import gpufetch as gf, numpy as np\nx = gf.to_device(np.load('field.npy'))"
    cells = [
        {"cell_type": "code", "id": f"c{i}", "source": source, "metadata": {}, "outputs": []}
        | {"execution_count": None}
        for i, source in enumerate((load, "gf.view(x, names=['x'])"))
    ]
    metadata = {"kernelspec": {"name": "this", "display_name": "this"}}
    notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    (folder / "viewer.ipynb").write_text(json.dumps(notebook))
