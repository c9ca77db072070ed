"""Ctrl-C at each operation: what others wait for still comes, and the next call works."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jupyter_client")

from interrupts import interruptions
from serving import eventually, needs_server

import gpufetch as gf
from gpufetch import _core

pytestmark = [
    needs_server,
    # pyzmq looks for signals where it frees a message, and cannot raise there.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CUBE = np.arange(24.0).reshape(2, 3, 4)


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def run(runtime: None) -> Iterator[gf.Connection]:
    with gf.serve("test") as server:
        server.publish("cube", gf.to_device(CUBE, device="host:0"))
        with gf.connect("test", timeout=20) as run:
            yield run


def elsewhere(call: Callable[[], Any]) -> Any:
    """What `call` returns or raises in another thread; fails if it lasts a minute."""
    ended: list[Any] = []

    def work() -> None:
        try:
            ended.append(call())
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "the other thread still waits"
    return ended[0]


# --- Connections ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "places",
    [
        ["_remote/session.py", "_remote/server_connection.py", "contextlib.py"],
        ["_remote/client.py"],
    ],
)
def test_a_connection_that_was_interrupted_works_for_all_threads(
    run: gf.Connection, places: list[str]
) -> None:
    def use() -> Any:
        return run["cube"].shape

    use()
    for step in interruptions(use, *places):
        assert use() == CUBE.shape, step
        assert elsewhere(use) == CUBE.shape, step
    np.testing.assert_array_equal(run["cube"][1].fetch(), CUBE[1])


def test_no_request_continues_half_a_message(
    run: gf.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    def use() -> int:
        return len(run)

    for step in interruptions(use, "zmq/sugar/socket.py:send_multipart"):
        assert use() == 1, step
    assert caplog.messages == []


def test_a_connection_that_was_interrupted_is_closed_by_other_threads(runtime: None) -> None:
    with gf.serve("test"):
        opened: list[gf.Connection] = []

        def use() -> int:
            opened.append(gf.connect("test", timeout=20))
            return len(opened[-1])

        for step in interruptions(use, "_remote/session.py:hold", "_remote/session.py:_exchange"):
            for one in opened:
                assert elsewhere(one.close) is None, step
            opened.clear()


def test_waiting_for_other_threads_requests_ends_with_the_time_out(runtime: None) -> None:
    with gf.serve("test"), gf.connect("test", timeout=0.2) as run:
        is_held, may_end = threading.Event(), threading.Event()

        def use() -> None:
            is_held.set()
            may_end.wait(60)

        holder = threading.Thread(target=lambda: run.session.hold(use))  # type: ignore[attr-defined]
        holder.start()
        try:
            assert is_held.wait(60)
            with pytest.raises(TimeoutError, match=r"other threads have used .* for 0\.2 s"):
                len(run)
            run.close()  # the holder drops the client
        finally:
            may_end.set()
            holder.join()
        assert run.session._client is None  # type: ignore[attr-defined]


# --- Futures --------------------------------------------------------------------------------------

ASKING = ["/_futures.py", "/_threads.py", "concurrent/futures/_base.py", "/threading.py"]


def test_callbacks_of_other_threads_are_called_though_one_that_asks_is_interrupted() -> None:
    """Also where the copy has ended, and the thread that calls them has not come to it."""
    x = gf.to_device(CUBE, device="host:0")
    may_end = threading.Event()
    _core._host_faults(latency_us=300e3)
    busy = [gf.fetch_async(x) for _ in range(64)]  # all threads that call callbacks
    own = threading.get_ident()  # which calls those of copies that have ended already
    for future in busy:
        future.add_done_callback(lambda _: threading.get_ident() == own or may_end.wait(100))
    _core._host_faults(latency_us=20e3)
    futures: list[gf.Future[Any]] = []
    called: list[list[int]] = []
    interrupted: list[Any] = []

    def ask() -> None:
        futures[-1].add_done_callback(interrupted.append)

    def begin() -> None:
        futures.append(gf.fetch_async(x))
        called.append([])
        for number in range(3):
            elsewhere(
                lambda number=number: futures[-1].add_done_callback(
                    lambda _, mine=called[-1]: mine.append(number)
                )
            )

    try:
        begin()
        for _ in interruptions(ask, *ASKING):
            begin()
            futures[-1].wait()
    finally:
        may_end.set()
    eventually(lambda: all(len(mine) == 3 for mine in called), timeout=60)
    assert all(sorted(mine) == [0, 1, 2] for mine in called) and len(called) > 20
    assert all(interrupted.count(future) <= 1 for future in futures)


PROGRAM = """
import concurrent.futures, contextlib, sys, threading, time
import numpy as np, gpufetch as gf
from gpufetch import _core
from interrupts import interruptions

x = gf.to_device(np.zeros(1 << 10), device="host:0")
_core._host_faults(latency_us=3000.0)
asked = called = 0
future = None

def note(_):
    global called
    called += 1

def register():
    future.add_done_callback(note)

def begin():
    global asked, future
    future = gf.fetch_async(x)
    asked += 1
    thread = threading.Thread(target=register)
    thread.start()
    thread.join()

def wait():
    with contextlib.suppress(RuntimeError):  # a lock that threading has not taken
        concurrent.futures.wait([future])

def add():
    future.add_done_callback(lambda _: None)

ask = {"add_done_callback": add, "wait": wait}[sys.argv[1]]
begin()
for _ in interruptions(ask, *sys.argv[2:]):
    register()
    asked += 1
    begin()
deadline = time.monotonic() + 60
while called < asked and time.monotonic() < deadline:
    time.sleep(0.01)
print(called == asked, asked > 20)
"""


@pytest.mark.parametrize("ask", ["add_done_callback", "wait"])
def test_callbacks_are_called_and_the_program_ends_though_one_that_asks_is_interrupted(
    ask: str,
) -> None:
    """Even if a lock of concurrent.futures stays held."""
    command = [sys.executable, "-c", PROGRAM, ask, *ASKING]
    here = str(Path(__file__).parent)
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path])},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True True\n", "")


# --- Servers --------------------------------------------------------------------------------------


def test_a_server_whose_start_was_interrupted_is_given_again_or_was_not_started(
    runtime: None, tmp_path: Path
) -> None:
    running = 0
    gf.serve("test").stop()
    for step in interruptions(lambda: gf.serve("test"), "_remote/serve.py"):
        running += (tmp_path / "kernel-test.json").exists()
        with gf.serve("test") as server:
            assert server.name == "test", step
        assert list(tmp_path.glob("kernel-*.json")) == [], step
    assert running > 0
