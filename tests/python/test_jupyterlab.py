"""JupyterLab, unchanged, lists a C simulation that serves and opens a console on it.

The suite by which Jupyter tests kernels passes on it too.

`./dev test --jupyterlab` makes an environment with JupyterLab and names it in GPUFETCH_JUPYTERLAB;
without that, the JupyterLab of this Python is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import itertools
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jupyter_client")

from serving import eventually, needs_server, simulation
from test_gray_scott import find_program
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

import gpufetch as gf

pytestmark = needs_server

PAGE = Path(__file__).resolve().parents[1] / "jupyterlab" / "page.py"
SUITE = PAGE.with_name("kernel_suite.py")
SPECIFICATION = PAGE.parents[2] / "examples" / "kernels" / "gray_scott"
TIMEOUT_S = 120
TOKEN = "a-token-for-this-test"


def python_with_jupyterlab() -> str:
    """The interpreter of an environment that has JupyterLab."""
    if named := os.environ.get("GPUFETCH_JUPYTERLAB"):
        found = Path(named, "bin", "python")
        assert found.exists(), f"GPUFETCH_JUPYTERLAB={named} is no environment"
        return str(found)
    if importlib.util.find_spec("jupyterlab") is None:
        pytest.skip("no JupyterLab: made and run by ./dev test --jupyterlab")
    return sys.executable


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Lab:
    """A running JupyterLab, and the simulation that it lists, if there is one."""

    url: str
    simulation: subprocess.Popen[str] | None
    folder: Path

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

    def kernel_ids(self) -> list[str]:
        """Return the kernels that it lists by the simulation's name."""
        return [found["id"] for found in self.ask("kernels") if found["name"] == "gpufetch-gs"]

    def step(self) -> int:
        """Return the simulation's last step, as the simulation says."""
        with gf.connect(self.folder / "runtime" / "kernel-gs.json") as run:
            assert set(run) == {"u", "v"} and run.step is not None
            return run.step

    def assert_simulation_goes_on(self) -> None:
        before = self.step()
        eventually(lambda: self.step() > before, TIMEOUT_S)
        assert self.simulation is not None and self.simulation.poll() is None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that holds all of Jupyter's, for every process of a test."""
    for name in ("runtime", "data", "config"):
        monkeypatch.setenv(f"JUPYTER_{name.upper()}_DIR", str(tmp_path / name))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def running_simulation(folder: Path) -> Iterator[subprocess.Popen[str]]:
    with simulation(find_program(), folder) as (started, _):
        yield started


@contextlib.contextmanager
def started_lab(folder: Path, running: subprocess.Popen[str] | None) -> Iterator[Lab]:
    """JupyterLab, started as docs/serving.md says; perhaps beside a simulation."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [python_with_jupyterlab(), "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += ["--ServerApp.allow_external_kernels=True", f"--IdentityProvider.token={TOKEN}"]
    command += ["--ip=127.0.0.1", f"--port={free_port()}", f"--ServerApp.root_dir={folder}"]
    with (folder / "lab.log").open("w") as log:
        started = subprocess.Popen(command, stdout=log, stderr=log, env=kept, cwd=folder)
    lab = Lab("", running, folder)

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


@pytest.fixture
def lab(folder: Path, running_simulation: subprocess.Popen[str]) -> Iterator[Lab]:
    with started_lab(folder, running_simulation) as lab:
        yield lab


# --- The web socket that its page uses ---


def unpacked(frame: str | bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Split a message; a binary one has buffers: a count, offsets, JSON, buffers."""
    buffers: list[bytes] = []
    if isinstance(frame, bytes):
        (count,) = struct.unpack_from("!I", frame)
        edges = [*struct.unpack_from(f"!{count}I", frame, 4), len(frame)]
        frame, *buffers = (frame[a:b] for a, b in itertools.pairwise(edges))
    return json.loads(frame), buffers


class Channels:
    """A kernel's sockets, which JupyterLab's server gives to a page as one web socket."""

    def __init__(self, socket: WebSocketClientConnection) -> None:
        self.socket = socket
        self.session = uuid.uuid4().hex
        self.received: list[tuple[dict[str, Any], list[bytes]]] = []

    async def send(self, kind: str, content: dict[str, Any]) -> str:
        """Send a message on shell, and return its id."""
        header = {"msg_id": uuid.uuid4().hex, "msg_type": kind, "session": self.session}
        header |= {"username": "", "version": "5.4", "date": "2026-01-01T00:00:00Z"}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
        await self.socket.write_message(json.dumps({**message, "channel": "shell", "buffers": []}))
        return header["msg_id"]

    async def receive(self, parent: str, kind: str) -> tuple[dict[str, Any], list[bytes]]:
        """Return content and buffers of the message of a kind that answers `parent`.

        Messages of different channels come in any order.
        """
        while True:
            for message, buffers in self.received:
                found = (message["parent_header"].get("msg_id"), message["msg_type"])
                if found == (parent, kind):
                    return message["content"], buffers
            frame = await asyncio.wait_for(self.socket.read_message(), TIMEOUT_S)
            assert frame is not None, "JupyterLab closed the channels"
            self.received.append(unpacked(frame))


async def use_channels(lab: Lab, kernel_id: str) -> None:
    """Do what a console does, and what a viewer in the page would do."""
    url = f"{lab.url.replace('http', 'ws')}api/kernels/{kernel_id}/channels"
    headers = {"Authorization": f"token {TOKEN}"}
    socket = await websocket_connect(HTTPRequest(url, headers=headers, request_timeout=TIMEOUT_S))
    channels = Channels(socket)

    sent = await channels.send("kernel_info_request", {})
    info, _ = await channels.receive(sent, "kernel_info_reply")
    assert info["status"] == "ok" and "serves the tensors of 'gs'" in info["banner"]

    sent = await channels.send("execute_request", {"code": "u.mean()", "silent": False})
    stream, _ = await channels.receive(sent, "stream")
    assert "It runs no code" in stream["text"] and "Tensors published: 2" in stream["text"]
    reply, _ = await channels.receive(sent, "execute_reply")
    assert reply["status"] == "ok"

    sent = await channels.send("comm_open", {"comm_id": "page", "target_name": "gpufetch"})
    hello, _ = await channels.receive(sent, "comm_msg")
    assert hello["data"]["op"] == "hello"
    request = {"op": "overview", "name": "u", "shape": [4, 4, 4], "method": "max"}
    sent = await channels.send("comm_msg", {"comm_id": "page", "data": request})
    tile, (cells,) = await channels.receive(sent, "comm_msg")
    assert tile["data"]["shape"] == [4, 4, 4]
    values = np.frombuffer(cells, np.float32)
    assert values.size == 64 and values.min() > 0 and values.max() < 1.1
    socket.close()


# --- Tests ---


def test_a_console_of_jupyterlab_reaches_the_simulation_and_its_end_is_not_the_simulations(
    lab: Lab,
) -> None:
    (kernel_id,) = lab.kernel_ids()
    console = {"path": "console", "type": "console", "name": "", "kernel": {"id": kernel_id}}
    session = lab.ask("sessions", "POST", console)
    assert session["kernel"]["id"] == kernel_id
    asyncio.run(use_channels(lab, kernel_id))
    lab.assert_simulation_goes_on()
    lab.ask(f"sessions/{session['id']}", "DELETE")
    assert lab.kernel_ids() == []
    lab.assert_simulation_goes_on()


def test_a_simulation_that_ends_leaves_jupyterlabs_list(lab: Lab) -> None:
    assert len(lab.kernel_ids()) == 1
    with gf.serve("gs", jupyterlab=True):
        assert {"gpufetch-gs", "gpufetch-gs-2"} == {found["name"] for found in lab.ask("kernels")}
    assert len(lab.ask("kernels")) == 1


def test_jupyter_kernel_tests_suite_passes_on_the_sample_kernel_specification(
    folder: Path,
) -> None:
    shutil.copytree(SPECIFICATION, folder / "path" / "kernels" / "gray_scott")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    search = f"{Path(find_program()).parent}:{os.environ['PATH']}"
    more = {"JUPYTER_PATH": str(folder / "path"), "PATH": search, "GPUFETCH_BACKEND": "host"}
    (folder / "runtime").mkdir()
    done = subprocess.run(
        [python_with_jupyterlab(), SUITE, "--verbose"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=folder,
        env=kept | more,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    passed = [line.split()[0] for line in done.stderr.splitlines() if line.endswith("... ok")]
    assert {"test_kernel_info", "test_completion", "test_is_complete"} <= set(passed)
    assert len(passed) == 6, done.stderr


# A notebook: the last cell but two makes a figure that is zoomed, of which the last one tells; in
# the one between, a name is completed.
CELLS = (
    """%load_ext gpufetch
import warnings
import numpy as np
import matplotlib.pyplot as plt
import gpufetch as gf
values = np.arange(4_000_000, dtype=np.float32).reshape(2000, 2000)
values[:100, :100] = np.nan
state = {"w": gf.to_device(values)}
bias = gf.to_device(np.zeros(512, np.float32))""",
    "%gpufetch",
    "state['w']",
    """x_host = %gpufetch state["w"][::2]
x_host""",
    """%matplotlib inline
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
gf.plot.imshow(state["w"], ax=left)
gf.plot.hist(state["w"], ax=right)
plt.show()""",
    """%matplotlib ipympl
figure, axes = plt.subplots()
image = gf.plot.imshow(state["w"], ax=axes)
figure.canvas.toolbar_visible = True
plt.show()""",
    "",
    """import json
view = [*axes.get_xlim(), *axes.get_ylim()]
print("whole" if image.note else "zoomed", image.get_array().shape[0], json.dumps(view))""",
)


def notebook_in(folder: Path, codes: Sequence[str]) -> str:
    """A notebook of code cells, and a kernel for it that is this Python's; the notebook's name."""
    kernel = folder / "data" / "kernels" / "of-this-test"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    search = os.environ.get("PYTHONPATH", "")
    environment = {"PYTHONPATH": search, "GPUFETCH_BACKEND": "host"}
    facts = {"argv": command, "display_name": "this", "language": "python", "env": environment}
    (kernel / "kernel.json").write_text(json.dumps(facts))
    cells = [
        {"cell_type": "code", "id": f"c{i}", "source": source, "metadata": {}, "outputs": []}
        for i, source in enumerate(codes)
    ]
    for cell in cells:
        cell["execution_count"] = None
    metadata = {"kernelspec": {"name": "of-this-test", "display_name": "this"}}
    notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    (folder / "test.ipynb").write_text(json.dumps(notebook))
    return "test.ipynb"


def test_displays_completion_and_plots_work_in_a_notebooks_page(lab: Lab) -> None:
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        pytest.skip("no chromium with its chromedriver")
    for module in ("ipykernel", "ipympl"):
        pytest.importorskip(module)
    from matplotlib import colormaps  # of the extra that ipympl needs

    name = notebook_in(lab.folder, CELLS)
    pictures = Path(os.environ.get("GPUFETCH_TEST_PICTURES", lab.folder / "pictures"))
    pictures.mkdir(exist_ok=True)
    done = subprocess.run(
        [
            python_with_jupyterlab(),
            PAGE.with_name("notebook_page.py"),
            f"{lab.url}lab/tree/{name}?token={TOKEN}",
            str(len(CELLS) - 2),
            pictures,
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{(lab.folder / 'lab.log').read_text()}"
    seen = json.loads(done.stdout)
    assert seen["console"] == []
    _, listed, shown, view, *_ = seen["outputs"]
    assert "state['w'] gpufetch (2000, 2000) float32 15.3 MiB" in listed
    assert "2 device tensors, 15.3 MiB; nothing was copied" in listed
    assert "DeviceArray" in shown and "NaN 10,000" in shown and "layout C order" in shown
    assert "LazyArray" in view and "shape (1000, 2000)" in view
    assert seen["completed"] == ["state", "state['w']"]
    _, rows, view = seen["zoomed"].split(maxsplit=2)
    left, right, bottom, top = json.loads(view)
    assert int(rows) < 600 and 0 < left < right < 2000 and 0 < top < bottom < 2000
    place = ((top + bottom) / 2 * 2000 + (left + right) / 2) / 4_000_000
    expected = colormaps["viridis"](place, bytes=True)
    np.testing.assert_allclose(seen["colour"], expected, atol=6)
    for number in (*range(len(CELLS) - 2), "zoomed", "dark", "completion"):
        picture = f"cell-{number}.png" if isinstance(number, int) else f"{number}.png"
        assert (pictures / picture).stat().st_size > 2000


def test_the_page_opens_a_console_on_the_simulation_and_shuts_it_down(lab: Lab) -> None:
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        pytest.skip("no chromium with its chromedriver")
    assert len(lab.kernel_ids()) == 1
    picture = lab.folder / "page.png"
    url = f"{lab.url}lab?token={TOKEN}"
    done = subprocess.run(
        [python_with_jupyterlab(), PAGE, url, "gpufetch-gs", "u.mean()", picture],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{(lab.folder / 'lab.log').read_text()}"
    seen = json.loads(done.stdout)
    assert "serves the tensors of 'gs'" in seen["opened"]
    answer = seen["answered"].removeprefix(seen["opened"].split("[")[0])
    assert "u.mean()" in answer and "It runs no code" in answer
    assert "Tensors published: 2" in answer
    assert picture.stat().st_size > 10_000
    assert lab.kernel_ids() == []
    lab.assert_simulation_goes_on()
