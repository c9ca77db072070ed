"""JupyterLab and Chromium for the cases of the viewer: those of `./dev test --jupyterlab`.

GPUFETCH_JUPYTERLAB names their environment; tests/jupyterlab has the programs that use the page.
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness import Session

PROGRAMS = Path(__file__).resolve().parents[2] / "tests" / "jupyterlab"
ENVIRONMENT = "GPUFETCH_JUPYTERLAB"
TOKEN = "a-token-for-this-benchmark"


def why_not(session: Session) -> str:
    """Why the case is left out; empty if it is not."""
    if session.quick:
        return "it takes minutes"
    if not os.environ.get(ENVIRONMENT):
        return f"{ENVIRONMENT} does not name an environment with JupyterLab and selenium"
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        return "there is no chromium with its chromedriver"
    return ""


def seen_in_page(program: str, port: int, *arguments: Any) -> Any:
    """What a program of PROGRAMS has seen of the notebook."""
    python = Path(os.environ[ENVIRONMENT], "bin", "python")
    url = f"http://127.0.0.1:{port}/lab/tree/viewer.ipynb?token={TOKEN}"
    done = subprocess.run(
        [python, PROGRAMS / program, url, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


@contextlib.contextmanager
def started_lab(folder: Path, codes: Sequence[str]) -> Iterator[int]:
    """JupyterLab with a notebook of these cells, whose kernel is this Python's; its port."""
    write_notebook(folder, codes)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    places = {f"JUPYTER_{n.upper()}_DIR": str(folder / n) for n in ("runtime", "data", "config")}
    # The extensions of JupyterLab that packages of the kernel's Python bring.
    paths = [str(Path(sys.prefix, "share", "jupyter")), os.environ.get("JUPYTER_PATH", "")]
    places["JUPYTER_PATH"] = os.pathsep.join(filter(None, paths))
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


def write_notebook(folder: Path, codes: Sequence[str]) -> None:
    kernel = folder / "data" / "kernels" / "this"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    facts = {"argv": command, "display_name": "this", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(facts))
    cells = [
        {"cell_type": "code", "id": f"c{i}", "source": source, "metadata": {}, "outputs": []}
        | {"execution_count": None}
        for i, source in enumerate(codes)
    ]
    metadata = {"kernelspec": {"name": "this", "display_name": "this"}}
    notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    (folder / "viewer.ipynb").write_text(json.dumps(notebook))
