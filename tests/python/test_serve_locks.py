"""What runs in a call of a server may wait for another thread that uses the server, too.

Finalizers of tensors, handlers of logging and callbacks take locks of their own, such as a
handler's, whose owner may just be calling the server.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jupyter_client")

from serving import client, needs_server, open_comm, send

import gpufetch as gf

pytestmark = needs_server

DEADLINE_S = 10


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))


def note_outcome_elsewhere(outcomes: list[str], call: Callable[[], object]) -> None:
    """Let another thread make a call, wait for it, and note how it ended."""
    ended: list[str] = []

    def run() -> None:
        try:
            call()
        except gf.Error as error:
            ended.append(str(error))
        else:
            ended.append("returned")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(DEADLINE_S)
    outcomes.append(ended[0] if ended else "still waiting")


def array_that_calls(at_end: Callable[[], object]) -> Any:
    x = gf.to_device(np.zeros(8), device="host:0")
    weakref.finalize(x, at_end).atexit = False
    return x


@contextmanager
def logged(handle: Callable[[str], object]) -> Iterator[None]:
    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            handle(record.getMessage())

    logger, handler = logging.getLogger("gpufetch.serve"), Handler()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@pytest.mark.parametrize("how", ["publish", "unpublish"])
@pytest.mark.parametrize("use", ["set", "publish", "step"])
def test_a_finalizer_may_wait_for_another_thread_that_uses_the_server(how: str, use: str) -> None:
    outcomes: list[str] = []
    uses: dict[str, Callable[[], object]] = {
        "set": lambda: server.set("n", 1),
        "publish": lambda: server.publish("y", np.zeros(4)),
        "step": lambda: server.step(1),
    }
    with gf.serve("run") as server:
        server.publish("x", array_that_calls(lambda: note_outcome_elsewhere(outcomes, uses[use])))
        if how == "publish":
            server.publish("x", np.zeros(3))
        else:
            server.unpublish("x")
        assert outcomes == ["returned"]


def test_a_finalizer_that_runs_while_the_server_stops_waits_for_no_other_call() -> None:
    outcomes: list[str] = []
    server = gf.serve("run")
    server.publish(
        "x", array_that_calls(lambda: note_outcome_elsewhere(outcomes, lambda: server.set("n", 1)))
    )
    server.stop()
    assert outcomes == ["this server is stopped: serve() starts another"]


def test_a_handler_of_what_a_step_logs_may_wait_for_another_thread() -> None:
    outcomes: list[str] = []

    def handle(line: str) -> None:
        if "nope" in line:
            note_outcome_elsewhere(outcomes, lambda: server.set("last_log", line))
            note_outcome_elsewhere(outcomes, lambda: server.step(0))

    with gf.serve("run") as server, logged(handle), client(server.connection_file) as attached:
        attached.wait_for_ready(timeout=10)
        open_comm(attached, "c")
        request = {"op": "stats", "name": "nope", "at": "step"}
        send(attached, "comm_msg", {"comm_id": "c", "data": request})
        deadline = threading.Event()
        for step in range(1000):
            server.step(step)
            if outcomes:
                break
            deadline.wait(0.01)  # the request is not there yet
        assert outcomes == ["returned", "returned"]


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_handler_of_what_a_start_logs_may_ask_for_the_server(is_elsewhere: bool) -> None:
    lines: list[str] = []
    outcomes: list[str] = []

    def use() -> None:
        gf.serve("run", ip="0.0.0.0").set("last_log", lines[-1])

    def handle(line: str) -> None:
        lines.append(line)
        if is_elsewhere:
            note_outcome_elsewhere(outcomes, use)
        else:
            use()
            outcomes.append("returned")

    def serve() -> None:
        with gf.serve("run", ip="0.0.0.0") as server, gf.connect(server.connection_file) as run:
            assert run.scalars["last_log"] == lines[0]

    with logged(handle):
        thread = threading.Thread(target=serve, daemon=True)  # which a lock would hold for ever
        thread.start()
        thread.join(30)
    assert not thread.is_alive() and outcomes == ["returned"]
    assert "without CurveZMQ" in lines[0]


def test_servers_that_threads_ask_for_by_one_name_are_one() -> None:
    barrier = threading.Barrier(8)
    found: list[gf.Server] = []

    def ask() -> None:
        barrier.wait(DEADLINE_S)
        found.append(gf.serve("run"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with found[0]:
        assert len(found) == 8 and all(server is found[0] for server in found)
        assert found[0].name == "run"


def test_what_cannot_start_leaves_the_name_to_the_next(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        gf.serve("run", connection_file=str(tmp_path / "missing" / "kernel.json"))
    with gf.serve("run") as server:
        assert server.name == "run" and gf.serve("run") is server
