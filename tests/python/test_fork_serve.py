"""Forked children of programs that serve, or that are connected to a server."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jupyter_client")

from forking import in_child, refused
from serving import needs_server, socket_url

import gpufetch as gf

pytestmark = [
    needs_server,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

ROWS = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)


def test_a_forked_child_cannot_use_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    with gf.serve("first") as server, gf.serve("second") as second:
        server.publish("rows", ROWS)
        second.publish("other", ROWS)
        with gf.connect("first", timeout=10) as run, gf.connect(["first", "second"]) as both:
            rows, joint = run["rows"], both["rows"]
            future = rows.fetch_async()
            assert (future.result() == ROWS).all() and (joint.fetch() == ROWS).all()
            # A thread that holds the connection's lock is not in the child.
            waiting = threading.Thread(target=lambda: run.wait_step(timeout=20), daemon=True)
            waiting.start()
            calls: list[Callable[[], Any]] = [
                lambda: run["rows"],
                lambda: list(run),
                lambda: run.step,
                lambda: run.wait_step(timeout=1),
                lambda: rows.fetch(),
                lambda: rows[3].stats(),
                lambda: rows.fetch_async().result(),
                future.result,
                lambda: list(both),
                lambda: joint.fetch(),
                lambda: server.publish("rows", ROWS),
                lambda: server.step(1),
                lambda: server.stop(),
                lambda: gf.serve("third"),
            ]

            def work() -> None:
                for call in calls:
                    refused(call)
                repr(run), repr(both), repr(rows)
                run.close()
                both.close()

            in_child(work)
            while waiting.is_alive():
                server.step(1)
                waiting.join(0.01)
            assert (rows.fetch() == ROWS).all() and (joint.fetch() == ROWS).all()


@contextlib.contextmanager
def living_child() -> Iterator[None]:
    """A forked child that does nothing until the end of the block."""
    end, keep = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(keep)
        os.read(end, 1)
        os._exit(0)
    os.close(end)
    try:
        yield
    finally:
        os.close(keep)
        os.waitpid(child, 0)


def serve_at_ports(name: str) -> tuple[gf.Server, int]:
    """A server at five ports that were free."""
    for first in range(20000 + os.getpid() % 4000, 60000, 5):
        with contextlib.suppress(OSError):
            return gf.serve(name, ip="127.0.0.1", port=first), first
    raise AssertionError("no free ports")


def test_a_server_starts_again_at_its_ports_while_a_forked_child_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    server, port = serve_at_ports("run")
    with gf.serve("other") as other:
        other.publish("rows", ROWS)
        with gf.connect("other", timeout=20) as run, living_child():
            assert (run["rows"].fetch() == ROWS).all()  # what the child gave up was its own
            server.stop()
            with gf.serve("run", ip="127.0.0.1", port=port) as again:
                again.publish("rows", ROWS)
                with gf.connect("run", timeout=20) as run_again:
                    assert (run_again["rows"].fetch() == ROWS).all()


def connect_to(url: str) -> socket.socket:
    transport, _, address = url.partition("://")
    if transport == "tcp":
        ip, port = address.split(":")
        return socket.create_connection((ip, int(port)), timeout=20)
    connected = socket.socket(socket.AF_UNIX)
    connected.settimeout(20)
    connected.connect(address)
    return connected


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_connections_end_with_the_server_while_a_forked_child_lives(
    transport: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    with gf.serve("run", transport=transport) as server, contextlib.ExitStack() as stack:
        info = json.loads(Path(server.connection_file).read_text())
        sockets = {
            name: stack.enter_context(connect_to(socket_url(info, name)))
            for name in ("shell", "iopub", "stdin", "control", "hb")
        }
        # ZeroMQ greets each connection that it has accepted.
        assert all(connected.recv(1) for connected in sockets.values())
        with living_child():
            server.stop()
            for name, connected in sockets.items():
                while connected.recv(4096):  # TimeoutError where it stays open
                    pass
                assert connected.recv(1) == b"", name
