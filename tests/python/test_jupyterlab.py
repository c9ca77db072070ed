"""JupyterLab, unchanged, lists a C simulation that serves and opens a console on it.

The suite by which Jupyter tests kernels passes on it too. jupyter_pages.py says which JupyterLab.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import struct
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jupyter_client")

from jupyter_pages import (
    PROGRAMS,
    TIMEOUT_S,
    TOKEN,
    Lab,
    jupyters,
    needs_browser,
    python_with_jupyterlab,
    started_lab,
)
from serving import eventually, needs_server, simulation
from test_gray_scott import find_program
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

import gpufetch as gf

pytestmark = needs_server

SUITE = PROGRAMS / "kernel_suite.py"
SPECIFICATION = PROGRAMS.parents[1] / "examples" / "kernels" / "gray_scott"


@dataclass
class SimulationLab(Lab):
    """JupyterLab beside a simulation, which it lists."""

    simulation: subprocess.Popen[str]

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
        assert self.simulation.poll() is None


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with jupyters(tmp_path):
        yield tmp_path


@pytest.fixture
def lab(folder: Path) -> Iterator[SimulationLab]:
    with simulation(find_program(), folder) as (running, _), started_lab(folder) as lab:
        yield SimulationLab(lab.url, lab.folder, running)


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


async def use_channels(lab: SimulationLab, kernel_id: str) -> None:
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
    lab: SimulationLab,
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


def test_a_simulation_that_ends_leaves_jupyterlabs_list(lab: SimulationLab) -> None:
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


def test_the_page_opens_a_console_on_the_simulation_and_shuts_it_down(lab: SimulationLab) -> None:
    needs_browser()
    assert len(lab.kernel_ids()) == 1
    picture = lab.folder / "page.png"
    url = f"{lab.url}lab?token={TOKEN}"
    seen = lab.use("page.py", url, "gpufetch-gs", "u.mean()", picture)
    assert "serves the tensors of 'gs'" in seen["opened"]
    answer = seen["answered"].removeprefix(seen["opened"].split("[")[0])
    assert "u.mean()" in answer and "It runs no code" in answer
    assert "Tensors published: 2" in answer
    assert picture.stat().st_size > 10_000
    assert lab.kernel_ids() == []
    lab.assert_simulation_goes_on()
