"""JupyterLab, whose server has Notebook 7, too; notebooks for them, and programs that use pages.

`./dev test --jupyterlab` makes an environment with both and names it in GPUFETCH_JUPYTERLAB;
without that, the JupyterLab of this Python is used.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from serving import eventually

PROGRAMS = Path(__file__).resolve().parents[1] / "jupyterlab"
ENVIRONMENT = "GPUFETCH_JUPYTERLAB"
TIMEOUT_S = 120
TOKEN = "a-token-for-this-test"
KERNEL = "of-this-test"

# The addresses of their pages. "reset" lets JupyterLab open no other notebook beside.
APPLICATIONS = {"lab": "lab/tree/{}?reset&token={}", "notebook": "notebooks/{}?token={}"}


def python_with_jupyterlab() -> str:
    """The interpreter of an environment that has JupyterLab."""
    if named := os.environ.get(ENVIRONMENT):
        found = Path(named, "bin", "python")
        assert found.exists(), f"{ENVIRONMENT}={named} is no environment"
        return str(found)
    if importlib.util.find_spec("jupyterlab") is None:
        pytest.skip("no JupyterLab: made and run by ./dev test --jupyterlab")
    return sys.executable


def needs_browser() -> None:
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        pytest.skip("no chromium with its chromedriver")


def pictures_of(folder: Path) -> Path:
    """Where screenshots go."""
    pictures = Path(os.environ.get("GPUFETCH_TEST_PICTURES", folder / "pictures"))
    pictures.mkdir(exist_ok=True)
    return pictures


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Lab:
    """A running JupyterLab."""

    url: str
    folder: Path  # of its files, and of all that is Jupyter's

    def ask(self, path: str, method: str = "GET", body: Any = None) -> Any:
        """Return the answer of its REST interface; None for one without content."""
        request = urllib.request.Request(
            f"{self.url}api/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {TOKEN}"},
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
            text = reply.read()
        return json.loads(text) if text else None

    def page(self, application: str, notebook: str) -> str:
        return self.url + APPLICATIONS[application].format(notebook, TOKEN)

    @contextlib.contextmanager
    def session(self, notebook: str, kernel: str = KERNEL) -> Iterator[None]:
        """A notebook's kernel, which runs before a page asks for it, and ends behind the block.

        While a kernel is being started, jupyter_server may answer with an error who lists them.
        """
        made = {"path": notebook, "name": notebook, "type": "notebook", "kernel": {"name": kernel}}
        session = self.ask("sessions", "POST", made)
        try:
            yield
        finally:
            with contextlib.suppress(urllib.error.HTTPError):  # where the kernel ends too slowly
                self.ask(f"sessions/{session['id']}", "DELETE")

    def use(self, program: str, *arguments: Any) -> Any:
        """What a program of PROGRAMS has seen in a page: the object that it prints."""
        done = subprocess.run(
            [python_with_jupyterlab(), PROGRAMS / program, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{done.stderr}\n{(self.folder / 'lab.log').read_text()}"
        return json.loads(done.stdout)


@contextlib.contextmanager
def jupyters(folder: Path) -> Iterator[Path]:
    """Let a folder hold all of Jupyter's, for every process that is started meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("runtime", "data", "config"):
            patch.setenv(f"JUPYTER_{name.upper()}_DIR", str(folder / name))
        patch.setenv("HOME", str(folder))
        yield folder


@contextlib.contextmanager
def started_lab(folder: Path) -> Iterator[Lab]:
    """JupyterLab, started as docs/serving.md says."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [python_with_jupyterlab(), "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += ["--ServerApp.allow_external_kernels=True", f"--IdentityProvider.token={TOKEN}"]
    command += ["--ip=127.0.0.1", f"--port={free_port()}", f"--ServerApp.root_dir={folder}"]
    with (folder / "lab.log").open("w") as log:
        started = subprocess.Popen(command, stdout=log, stderr=log, env=kept, cwd=folder)
    lab = Lab("", folder)

    def is_up() -> bool:
        """Whether it listens: it writes the file before that."""
        assert started.poll() is None, (folder / "lab.log").read_text()
        for file in folder.glob("runtime/jpserver-*.json"):
            with contextlib.suppress(OSError, ValueError):
                lab.url = json.loads(file.read_text())["url"]
                lab.ask("status")
                return True
        return False

    try:
        eventually(is_up, TIMEOUT_S)
        yield lab
    finally:
        started.kill()
        started.wait()


@pytest.fixture(scope="module")
def notebook_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab with KERNEL, for all tests of a module."""
    needs_browser()
    with jupyters(tmp_path_factory.mktemp("jupyter")) as folder:
        add_kernel(folder, KERNEL)
        with started_lab(folder) as lab:
            yield lab


def add_kernel(folder: Path, name: str, *before: Path) -> None:
    """A kernel that is this Python's, which finds modules in these folders first."""
    kernel = folder / "data" / "kernels" / name
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    search = os.pathsep.join([*map(str, before), os.environ.get("PYTHONPATH", "")])
    environment = {"PYTHONPATH": search, "GPUFETCH_BACKEND": "host"}
    facts = {"argv": command, "display_name": name, "language": "python", "env": environment}
    (kernel / "kernel.json").write_text(json.dumps(facts))


def notebook_in(folder: Path, codes: Sequence[str], kernel: str = KERNEL) -> Path:
    """A notebook of code cells, in a folder of its own, in which its kernel runs."""
    folder.mkdir(exist_ok=True)
    cells = [
        {"cell_type": "code", "id": f"c{i}", "source": source, "metadata": {}, "outputs": []}
        | {"execution_count": None}
        for i, source in enumerate(codes)
    ]
    metadata = {"kernelspec": {"name": kernel, "display_name": kernel}}
    notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    path = folder / "test.ipynb"
    path.write_text(json.dumps(notebook))
    return path
