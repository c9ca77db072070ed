"""Ending a server where it cannot be: in its own callbacks, on its own threads."""

from __future__ import annotations

import contextlib
import gc
import logging
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jupyter_client")

import zmq
from serving import client, eventually, needs_server, raw_socket

import gpufetch as gf
from gpufetch import _core

pytestmark = needs_server


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runtime"
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(folder))
    return folder


def ask_for_the_end(connection_file: str) -> None:
    with client(connection_file) as attached:
        attached.wait_for_ready(timeout=10)
        attached.shutdown(reply=True, timeout=5)
        attached.kernel_info(reply=True, timeout=5)


def count_server_threads() -> int:
    names = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            names.append((task / "comm").read_text().strip())
    return sum(name in ("gpufetch-serve", "gpufetch-reads", "gpufetch-stop") for name in names)


def note_outcome(told: list[str], call: Callable[[], object]) -> None:
    try:
        call()
    except RuntimeError as error:
        told.append(str(error))
    else:
        told.append("returned")


def test_on_shutdown_cannot_stop_the_server_and_is_told_what_to_do() -> None:
    told: list[str] = []
    with gf.serve("run", on_shutdown=lambda: note_outcome(told, server.stop)) as server:
        ask_for_the_end(server.connection_file)
        eventually(lambda: len(told) == 1)
        assert "server run" in told[0] and "threading.Event" in told[0]
        server.set("n", 1)  # it goes on
        with gf.connect("run") as run:
            assert run.scalars["n"] == 1
    with pytest.raises(gf.Error, match="stopped"):
        server.set("n", 2)


def test_on_shutdown_may_tell_another_thread_to_stop_the_server() -> None:
    ended = threading.Event()
    with gf.serve("run", on_shutdown=ended.set) as server:
        ask_for_the_end(server.connection_file)
        assert ended.wait(10)


def test_a_handler_of_the_log_cannot_stop_the_server() -> None:
    told: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note_outcome(told, server.stop)

    logger, handler = logging.getLogger("gpufetch.serve"), Handler()
    logger.addHandler(handler)
    try:
        with gf.serve("run") as server:
            with raw_socket(server.connection_file, "shell", zmq.DEALER) as socket:
                socket.send(b"junk")
                eventually(lambda: len(told) == 1)
            assert "threading.Event" in told[0]
            server.set("n", 1)
    finally:
        logger.removeHandler(handler)


def test_a_callback_that_stops_a_server_that_is_stopping_does_not_wait_for_itself() -> None:
    told: list[str] = []
    called, stopping = threading.Event(), threading.Event()

    def on_shutdown() -> None:
        called.set()
        assert stopping.wait(10)
        eventually(lambda: "stopped" in repr(server))
        note_outcome(told, server.stop)

    server = gf.serve("run", on_shutdown=on_shutdown)
    with client(server.connection_file) as attached:
        attached.wait_for_ready(timeout=10)
        attached.shutdown(reply=True, timeout=5)
        assert called.wait(10)
        stopping.set()
        server.stop()
    assert told == ["returned"]


def test_a_tensors_finalizer_on_a_thread_of_the_server_cannot_stop_it() -> None:
    told: list[str] = []
    own = threading.get_ident()
    over = threading.Event()

    def finalize() -> None:
        if threading.get_ident() != own and not over.is_set():
            note_outcome(told, server.stop)
            over.set()

    def array() -> Any:
        x = gf.to_device(np.zeros((8, 1 << 16), np.float32))
        weakref.finalize(x, finalize)
        return x

    def read() -> None:
        with gf.connect("run", at="live") as run:
            while not over.is_set():
                run["x"].stats()

    with gf.serve("run") as server:
        server.publish("x", array())
        reader = threading.Thread(target=read)
        reader.start()

        def replaced() -> bool:
            server.publish("x", array())
            return over.is_set()

        try:
            eventually(replaced)
        finally:
            over.set()
            reader.join()
        assert "threading.Event" in told[0]
        server.set("n", 1)


@pytest.mark.parametrize("where", ["shutdown", "log"])
def test_the_last_reference_may_go_on_a_thread_of_the_server(runtime: Path, where: str) -> None:
    """The handle that Python's servers are made of: another thread stops its server then."""
    held: dict[str, Any] = {}
    before = count_server_threads()
    dropped = threading.Event()

    def drop(*line: str) -> None:
        if held:
            held.clear()
            gc.collect()
            dropped.set()

    held["handle"] = _core.serve_create(*((drop, None) if where == "log" else (None, drop)))
    _core.serve_start(held["handle"], name="run")
    _, path = _core.serve_describe(held["handle"])
    if where == "shutdown":
        with client(path) as attached:
            attached.wait_for_ready(timeout=10)
            attached.shutdown(reply=False)
            assert dropped.wait(10)
    else:
        with raw_socket(path, "shell", zmq.DEALER) as socket:
            socket.send(b"junk")
            assert dropped.wait(10)
    eventually(lambda: not Path(path).exists())
    eventually(lambda: count_server_threads() == before)


def test_a_stop_of_the_handle_that_is_refused_leaves_the_server_running() -> None:
    told: list[str] = []
    held: dict[str, Any] = {}

    def stop(*line: str) -> None:
        note_outcome(told, lambda: _core.serve_stop(held["handle"]))

    held["handle"] = _core.serve_create(None, stop)
    _core.serve_start(held["handle"], name="run")
    _, path = _core.serve_describe(held["handle"])
    ask_for_the_end(path)
    eventually(lambda: len(told) == 1)
    assert "callback" in told[0]
    _core.serve_publish_value(held["handle"], "n", 1)
    _core.serve_stop(held["handle"])
    assert not Path(path).exists()


def test_a_server_that_the_program_does_not_keep_runs_until_it_is_stopped() -> None:
    x = gf.to_device(np.arange(6.0))
    gf.serve("run").publish("x", x)
    gc.collect()
    with gf.connect("run") as run:
        np.testing.assert_array_equal(run["x"].fetch(), np.arange(6.0))
    path = Path(gf.serve("run").connection_file)
    gf.serve("run").stop()
    assert not path.exists()


def test_a_server_that_the_program_does_not_keep_ends_with_the_process(runtime: Path) -> None:
    code = "import gpufetch as gf; gf.serve('run').set('n', 1); print('ready', flush=True)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("ready\n", "")
    assert list(runtime.iterdir()) == []
