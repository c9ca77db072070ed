"""What a server over tcp withstands from someone on the same host who does not have its key."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jupyter_client")

import zmq
from serving import (
    ask,
    client,
    drain,
    eventually,
    needs_server,
    open_comm,
    raw_socket,
)

import gpufetch as gf

pytestmark = needs_server


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runtime"
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture
def server() -> Iterator[gf.Server]:
    with gf.serve("test", transport="tcp") as started:
        started.publish("x", gf.to_device(np.arange(24, dtype=np.float32).reshape(4, 6)))
        yield started


def received(socket: zmq.Socket[bytes], timeout_ms: int = 300) -> list[list[bytes]]:
    """Return the messages that arrive, until none has come for `timeout_ms`."""
    messages = []
    while socket.poll(timeout_ms):
        messages.append(socket.recv_multipart())
    return messages


def test_what_the_server_has_published_is_not_executed_when_it_is_sent_back(
    server: gf.Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with (
        client(server.connection_file) as attached,
        raw_socket(server.connection_file, "iopub", zmq.SUB) as listener,
        raw_socket(server.connection_file, "shell", zmq.DEALER) as shell,
        raw_socket(server.connection_file, "control", zmq.DEALER) as control,
    ):
        attached.wait_for_ready(timeout=10)
        listener.subscribe(b"")
        assert listener.poll(5000)
        open_comm(attached, "c")
        ask(attached, "c", {"op": "list"})
        shared, _ = ask(attached, "c", {"op": "share", "name": "x"})
        ask(attached, "c", {"op": "unshare", "name": "x"})
        again, _ = ask(attached, "c", {"op": "share", "name": "x"})
        assert "error" not in shared and "error" not in again
        captured = received(listener)
        assert len([m for m in captured if b'"comm_msg"' in m[3]]) == 5
        for message in captured:
            shell.send_multipart(message[1:])
            control.send_multipart(message[1:])
        assert received(shell) == [] and received(control) == []
        assert drain(attached) == []
        reply, _ = ask(attached, "c", {"op": "unshare", "name": "x"})
        assert "error" not in reply
        eventually(lambda: any("own message" in r.getMessage() for r in caplog.records))
