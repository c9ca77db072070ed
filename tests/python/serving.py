"""What the tests of the server share: servers, clients, and messages by hand."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jupyter_client")

import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from server_build import needs_server as needs_server


@contextlib.contextmanager
def client(connection_file: str | Path, **channels: bool) -> Iterator[BlockingKernelClient]:
    """A client by jupyter_client, attached as users of that attach one."""
    attached = BlockingKernelClient(connection_file=str(connection_file))
    attached.load_connection_file()
    attached.start_channels(**channels)
    try:
        yield attached
    finally:
        attached.stop_channels()
        attached.context.destroy(linger=0)


def drain(attached: BlockingKernelClient, timeout: float = 0.3) -> list[dict[str, Any]]:
    """Return the messages that arrive on iopub, until none has come for `timeout` seconds."""
    messages = []
    with contextlib.suppress(queue.Empty):
        while True:
            messages.append(attached.get_iopub_msg(timeout=timeout))
    return messages


def until_idle(
    attached: BlockingKernelClient, sent: dict[str, Any], timeout: float = 10
) -> list[dict[str, Any]]:
    """Return what is published for the message that was sent, up to its idle."""
    mine = []
    while True:
        message = attached.get_iopub_msg(timeout=timeout)
        if message["parent_header"].get("msg_id") != sent["header"]["msg_id"]:
            continue
        mine.append(message)
        if message["content"].get("execution_state") == "idle":
            return mine


def send(
    attached: BlockingKernelClient, kind: str, content: dict[str, Any], channel: str = "shell"
) -> dict[str, Any]:
    """Send a message of any kind."""
    message: dict[str, Any] = attached.session.msg(kind, content)
    getattr(attached, f"{channel}_channel").send(message)
    return message


def ask(
    attached: BlockingKernelClient, comm_id: str, request: dict[str, Any]
) -> tuple[dict[str, Any], list[Any]]:
    """Send a request on a comm, and return its reply."""
    sent = send(attached, "comm_msg", {"comm_id": comm_id, "data": request})
    (reply,) = (m for m in until_idle(attached, sent) if m["msg_type"] == "comm_msg")
    return reply["content"]["data"], reply["buffers"]


def open_comm(
    attached: BlockingKernelClient, comm_id: str, target: str = "gpufetch", timeout: float = 10
) -> list[str]:
    """Open a comm, and return the types of the messages that are published for it."""
    sent = send(attached, "comm_open", {"comm_id": comm_id, "target_name": target, "data": {}})
    return [message["msg_type"] for message in until_idle(attached, sent, timeout)]


def socket_url(info: dict[str, Any], name: str) -> str:
    """Address of one of the sockets that a connection file names."""
    if info["transport"] == "ipc":
        return f"ipc://{info['ip']}-{info[name + '_port']}"
    return f"tcp://{info['ip']}:{info[name + '_port']}"


@contextlib.contextmanager
def raw_socket(connection_file: str | Path, name: str, kind: int) -> Iterator[zmq.Socket[bytes]]:
    """A socket that is connected to one of the server's, without a key."""
    info = json.loads(Path(connection_file).read_text())
    with zmq.Context() as context, context.socket(kind) as socket:
        socket.linger = 0
        socket.connect(socket_url(info, name))
        yield socket


@contextlib.contextmanager
def process(
    code: str, *arguments: str, stderr: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run a Python process that serves; its first line of output says that it is ready."""
    source = "import sys, time\nimport numpy as np\nimport gpufetch as gf\n" + textwrap.dedent(code)
    started = subprocess.Popen(
        [sys.executable, "-c", source, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={**os.environ, "GPUFETCH_BACKEND": "host"},
    )
    try:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        yield started
    finally:
        started.kill()
        started.communicate()


@contextlib.contextmanager
def simulation(program: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the C example, serving as "gs"; gives the process and its connection file."""
    arguments = ["--n", "32", "--steps", "100000000", "--every", "0", "--serve", "gs"]
    started = subprocess.Popen(
        [program, *arguments, "--output", str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "GPUFETCH_BACKEND": "host"},
    )
    try:
        assert started.stdout is not None
        line = started.stdout.readline()
        assert "gpufetch.connect" in line
        yield started, line.split()[-1]
    finally:
        started.kill()
        started.communicate()


def attach(*arguments: str) -> str:
    """Return what `gpufetch attach` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "gpufetch", "attach", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def resident_nbytes(process_id: int) -> int:
    fields = Path(f"/proc/{process_id}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def stop(child: subprocess.Popen[Any]) -> None:
    """Stop a child's threads; sent alone, the signal leaves them running for a moment."""
    child.send_signal(signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)


def eventually(condition: Any, timeout: float = 10) -> None:
    """Wait until `condition()` is true."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)
