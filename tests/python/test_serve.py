"""The server as Jupyter's own tools see it, and the messages and options that it refuses."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    process,
    raw_socket,
    resident_nbytes,
    send,
    simulation,
    socket_url,
    stop,
    until_idle,
)
from test_gray_scott import find_program

import gpufetch as gf
from gpufetch._remote import servers

pytestmark = needs_server

MIB = 1 << 20


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runtime"
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture
def server() -> Iterator[gf.Server]:
    with gf.serve("test") as started:
        started.publish("x", gf.to_device(np.arange(24, dtype=np.float32).reshape(4, 6)))
        yield started


@pytest.fixture
def running_simulation(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with simulation(find_program(), tmp_path) as started:
        yield started


# --- Jupyter's tools, unmodified ---


def test_wait_for_ready_and_a_comm_round_trip_with_a_c_simulation(
    running_simulation: tuple[subprocess.Popen[str], str],
) -> None:
    running, connection_file = running_simulation
    with client(connection_file) as attached:
        began = time.monotonic()
        attached.wait_for_ready(timeout=10)
        assert time.monotonic() - began < 2
        assert open_comm(attached, "c1") == ["status", "comm_msg", "status"]
        reply, buffers = ask(attached, "c1", {"op": "read", "name": "u", "slices": [0, 0]})
        assert reply["shape"] == [32] and len(buffers[0]) == 128
    assert running.poll() is None


def test_console_attaches_to_a_c_simulation_and_detaches_without_ending_it(
    running_simulation: tuple[subprocess.Popen[str], str],
) -> None:
    pytest.importorskip("jupyter_console")
    pexpect = pytest.importorskip("pexpect")
    running, connection_file = running_simulation
    command = ["-m", "jupyter_console", "--simple-prompt", "--existing", connection_file]
    console = pexpect.spawn(
        sys.executable, command, timeout=60, encoding="utf8", env={**os.environ, "TERM": "dumb"}
    )
    try:
        console.expect(r"In \[\d+\]: ")
        assert "serves the tensors of 'gs'" in console.before
        console.sendline("u.mean()")
        console.expect("It runs no code")
        console.expect(r"In \[\d+\]: ")
        console.sendline("exit")
        console.expect("keeping kernel alive")
        console.expect(pexpect.EOF)
    finally:
        console.close(force=True)
    assert running.poll() is None
    with gf.connect("gs") as run:
        assert set(run) == {"u", "v"}


def test_requests_of_a_front_end_are_answered(server: gf.Server) -> None:
    with client(server.connection_file) as attached:
        attached.wait_for_ready(timeout=10)
        info = attached.kernel_info(reply=True, timeout=5)["content"]
        assert info["status"] == "ok" and info["protocol_version"].startswith("5.")
        assert attached.history(reply=True, timeout=1)["content"]["history"] == []
        assert attached.complete("ex", reply=True, timeout=5)["content"]["matches"] == []
        assert attached.inspect("x", reply=True, timeout=5)["content"]["found"] is False
        assert attached.comm_info(reply=True, timeout=5)["content"]["comms"] == {}
        for kind in ("is_complete", "connect", "interrupt"):
            send(attached, f"{kind}_request", {"code": "1"}, "control")
            reply = attached.get_control_msg(timeout=5)
            assert reply["msg_type"] == f"{kind}_reply"
        assert reply["content"] == {"status": "ok"}


def test_execute_says_what_this_kernel_is_and_exit_keeps_it(server: gf.Server) -> None:
    with client(server.connection_file) as attached:
        attached.wait_for_ready(timeout=10)
        first = attached.execute_interactive("x.sum()", timeout=5, output_hook=lambda message: None)
        assert first["content"]["execution_count"] == 1
        sent = send(attached, "execute_request", {"code": "x", "silent": False})
        (stream,) = (m for m in until_idle(attached, sent) if m["msg_type"] == "stream")
        assert "It runs no code" in stream["content"]["text"]
        for code in ("exit", " quit() ", "exit;"):
            reply = attached.execute(code, reply=True, timeout=5)["content"]
            assert reply["payload"] == [{"source": "ask_exit", "keepkernel": True}]
        for code in ("exited", "exit(1)", ""):
            assert attached.execute(code, reply=True, timeout=5)["content"]["payload"] == []


def test_every_message_is_busy_and_idle_and_nothing_comes_unasked(server: gf.Server) -> None:
    with client(server.connection_file) as attached:
        attached.wait_for_ready(timeout=10)
        drain(attached)
        for kind in ("kernel_info_request", "no_such_request", "comm_msg", "comm_close"):
            sent = send(attached, kind, {"comm_id": "unknown", "data": {}})
            states = [m["content"].get("execution_state") for m in until_idle(attached, sent)]
            assert states[0] == "busy" and states[-1] == "idle"
        server.step(1, 0.5)
        assert drain(attached) == []


def test_iopub_welcomes_each_subscriber_by_its_topic(server: gf.Server) -> None:
    with raw_socket(server.connection_file, "iopub", zmq.SUB) as socket:
        socket.subscribe(b"comm-abc")
        assert socket.poll(5000)
        frames = socket.recv_multipart()
        assert frames[0] == b"comm-abc"
        assert json.loads(frames[3])["msg_type"] == "iopub_welcome"
        assert json.loads(frames[6]) == {"subscription": "comm-abc"}


def test_unknown_comm_targets_are_closed_at_once(server: gf.Server) -> None:
    with client(server.connection_file) as attached:
        attached.wait_for_ready(timeout=10)
        assert open_comm(attached, "c1", "jupyter.widget") == ["status", "comm_close", "status"]
        assert open_comm(attached, "c2") == ["status", "comm_msg", "status"]
        comms = attached.comm_info(reply=True, timeout=5)["content"]["comms"]
        assert comms == {"c2": {"target_name": "gpufetch"}}
        sent = send(attached, "comm_msg", {"comm_id": "c3", "data": {}})
        assert "comm_close" in [message["msg_type"] for message in until_idle(attached, sent)]


@pytest.mark.parametrize("comm_id", ["", "a" * 129, 'a"b', "a\\b", "a b", "é", 7, None])
def test_comm_ids_that_are_no_plain_text_are_refused(server: gf.Server, comm_id: Any) -> None:
    with client(server.connection_file) as attached:
        attached.wait_for_ready(timeout=10)
        sent = send(attached, "comm_open", {"comm_id": comm_id, "target_name": "gpufetch"})
        assert [m["msg_type"] for m in until_idle(attached, sent)] == ["status", "error", "status"]
        assert open_comm(attached, "good")[1] == "comm_msg"


def test_a_heartbeat_comes_back_as_it_was(server: gf.Server) -> None:
    with raw_socket(server.connection_file, "hb", zmq.REQ) as socket:
        socket.send_multipart([b"ping", b"", b"pong"])
        assert socket.poll(5000)
        assert socket.recv_multipart() == [b"ping", b"", b"pong"]


# --- Shutdown and stop ---


def test_shutdown_detaches_and_the_program_goes_on(server: gf.Server) -> None:
    with client(server.connection_file) as attached, client(server.connection_file) as other:
        attached.wait_for_ready(timeout=10)
        other.wait_for_ready(timeout=10)
        open_comm(attached, "mine")
        open_comm(other, "other")
        assert attached.shutdown(reply=True, timeout=5)["content"]["status"] == "ok"
        closed = [m["content"]["comm_id"] for m in drain(attached) if m["msg_type"] == "comm_close"]
        assert closed == ["mine"]
        assert ask(other, "other", {"op": "list"})[0]["tensors"][0]["name"] == "x"


def test_shutdown_tells_a_program_that_wants_to_know() -> None:
    asked: list[bool] = []
    with (
        gf.serve("test", on_shutdown=lambda: asked.append(True)) as server,
        client(server.connection_file) as attached,
    ):
        attached.wait_for_ready(timeout=10)
        attached.shutdown(restart=True, reply=True, timeout=5)
        assert asked == []
        attached.shutdown(reply=True, timeout=5)
        attached.shutdown(reply=True, timeout=5)
        eventually(lambda: asked == [True])


def test_stopping_closes_comms_and_frees_what_was_published() -> None:
    import weakref

    server = gf.serve("test")
    array = gf.to_device(np.zeros(10))
    gone = weakref.ref(array)
    server.publish("x", array)
    del array
    with client(server.connection_file) as attached:
        attached.wait_for_ready(timeout=10)
        open_comm(attached, "c")
        assert gone() is not None
        server.stop()
        assert [m["msg_type"] for m in drain(attached, 1)][-1] == "comm_close"
    assert gone() is None
    server.stop()
    with pytest.raises(gf.Error, match="stopped"):
        server.step(1)


# --- Refused messages ---


def frames_of(attached: Any, kind: str = "kernel_info_request", **content: Any) -> list[bytes]:
    frames: list[bytes] = attached.session.serialize(attached.session.msg(kind, content))
    return frames


def answers(socket: zmq.Socket[bytes], timeout_ms: int = 300) -> list[list[bytes]]:
    received = []
    while socket.poll(timeout_ms):
        received.append(socket.recv_multipart())
    return received


def test_nothing_is_served_without_a_valid_signature(server: gf.Server) -> None:
    with (
        client(server.connection_file) as attached,
        raw_socket(server.connection_file, "shell", zmq.DEALER) as shell,
        raw_socket(server.connection_file, "control", zmq.DEALER) as control,
    ):
        attached.wait_for_ready(timeout=10)
        drain(attached)
        for socket in (shell, control):
            good = frames_of(attached)
            socket.send_multipart([good[0], b"", *good[2:]])
            socket.send_multipart([good[0], b"0" * 64, *good[2:]])
            socket.send_multipart([good[0], good[1][:-1], *good[2:]])
            socket.send_multipart([*good[:2], good[2].replace(b"kernel", b"Kernel"), *good[3:]])
            socket.send_multipart([*good[:5], b'{"changed": 1}'])
            assert answers(socket) == []
            socket.send_multipart(good)
            assert len(answers(socket)) == 1
        replies = [m for m in drain(attached) if m["msg_type"] != "status"]
        assert replies == []


def test_a_replayed_message_is_refused(server: gf.Server) -> None:
    with (
        client(server.connection_file) as attached,
        raw_socket(server.connection_file, "shell", zmq.DEALER) as first,
        raw_socket(server.connection_file, "control", zmq.DEALER) as second,
    ):
        message = frames_of(attached)
        first.send_multipart(message)
        assert len(answers(first)) == 1
        first.send_multipart(message)
        second.send_multipart(message)
        assert answers(first) == [] and answers(second) == []


def test_what_is_no_message_is_dropped_and_a_damaged_one_is_answered_by_an_error(
    server: gf.Server,
) -> None:
    with (
        client(server.connection_file) as attached,
        raw_socket(server.connection_file, "shell", zmq.DEALER) as socket,
    ):
        good = frames_of(attached)
        for count in range(len(good)):
            if count:
                socket.send_multipart(good[:count])
        socket.send_multipart([b""] * 200)
        socket.send_multipart([b"x"] * 60 + good)
        session = attached.session
        damage = (b"[]", b"1", b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 1000)
        for part in damage:
            parts = [part, b"{}", b"{}", b"{}"]
            socket.send_multipart([good[0], session.sign(parts), *parts])
        assert answers(socket) == []
        for part in damage:
            parts = [good[2], b"{}", b"{}", part]
            socket.send_multipart([good[0], session.sign(parts), *parts])
        replies = [[json.loads(text) for text in frames[2:]] for frames in answers(socket)]
        assert [parent for _, parent, _, _ in replies] == [json.loads(good[2])] * len(damage)
        assert {content["status"] for _, _, _, content in replies} == {"error"}
        assert attached.kernel_info(reply=True, timeout=5)


def test_a_frame_that_is_too_large_costs_its_sender_the_connection(server: gf.Server) -> None:
    with (
        client(server.connection_file) as attached,
        raw_socket(server.connection_file, "shell", zmq.DEALER) as socket,
    ):
        attached.wait_for_ready(timeout=10)
        socket.send_multipart([*frames_of(attached), bytes(MIB)])
        assert answers(socket) == []
        assert attached.kernel_info(reply=True, timeout=5)
        socket.send_multipart(frames_of(attached))
        assert len(answers(socket, 2000)) == 1


def test_a_client_of_an_earlier_server_is_logged_as_what_it_may_be(
    runtime: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Over ipc the next server has the same addresses, to which the client connects anew."""
    with process(SERVE_LARGE) as first, client(servers.find("large")) as attached:
        attached.wait_for_ready(timeout=10)
        first.kill()
        first.wait()
        with gf.serve("large"):

            def is_logged() -> bool:
                attached.kernel_info()
                said = "by a client of an earlier server at this address, or altered"
                return caplog.text.count(said) == 1

            eventually(is_logged, 30)


def test_what_is_refused_is_logged_once(
    server: gf.Server, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.ExitStack() as stack:
        attached = stack.enter_context(client(server.connection_file))
        for _ in range(10):  # eight messages in a row would cost one of them the connection
            socket = stack.enter_context(raw_socket(server.connection_file, "shell", zmq.DEALER))
            for _ in range(5):
                socket.send_multipart([b"<IDS|MSG>", b"0" * 64, b"{}", b"{}", b"{}", b"{}"])
        eventually(lambda: len(caplog.records) == 1)
        socket.send_multipart([b"junk"])
        assert attached.kernel_info(reply=True, timeout=5)
        eventually(lambda: len(caplog.records) == 2)
    lines = [record.getMessage() for record in caplog.records]
    assert "signature is wrong" in lines[0] and "delimiter" in lines[1]


# --- Many clients, and clients that do not read ---

SERVE_LARGE = """
    import resource
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    with gf.serve("large", transport=(*sys.argv[1:], None)[0]) as server:
        server.publish("x", gf.to_device(np.zeros((64, 1 << 20), np.float32)))
        print("ready", flush=True)
        sys.stdin.read()
"""


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 8192, reason="few descriptors are allowed here"
)
def test_a_thousand_clients_are_served_and_leave_nothing_behind() -> None:
    with process(SERVE_LARGE) as running:
        file = servers.find("large")
        with client(file) as attached:
            attached.wait_for_ready(timeout=10)
        descriptors = Path(f"/proc/{running.pid}/fd")
        before = len(list(descriptors.iterdir())), resident_nbytes(running.pid)
        info = json.loads(file.read_text())
        with zmq.Context() as context:
            context.max_sockets = 2000
            sockets = []
            for _ in range(1000):
                socket = context.socket(zmq.DEALER)
                socket.linger = 0
                socket.connect(socket_url(info, "shell"))
                sockets.append(socket)
            for number, socket in enumerate(sockets):
                opened = {"comm_id": f"c{number}", "target_name": "gpufetch", "data": {}}
                socket.send_multipart(frames_of(attached, "comm_open", **opened))
                socket.send_multipart(frames_of(attached))
            assert all(socket.poll(30_000) for socket in sockets)
            for socket in sockets:
                socket.close()
        eventually(lambda: len(list(descriptors.iterdir())) <= before[0] + 3)
        assert resident_nbytes(running.pid) - before[1] < 128 * MIB
        with gf.connect("large") as run:
            assert run["x"].shape == (64, 1 << 20)


def test_clients_past_the_limit_take_the_place_of_the_longest_unused(server: gf.Server) -> None:
    with client(server.connection_file) as attached:
        attached.wait_for_ready(timeout=10)
        open_comm(attached, "kept")
        for number in range(1100):
            opened = {"comm_id": f"c{number}", "target_name": "gpufetch", "data": {}}
            send(attached, "comm_open", opened)
            if number % 20 == 0:  # so that what is published can be read as fast
                send(attached, "comm_msg", {"comm_id": "kept", "data": {"op": "list"}})
                attached.comm_info(reply=True, timeout=20)
                drain(attached, 0)
        comms = attached.comm_info(reply=True, timeout=20)["content"]["comms"]
        assert len(comms) == 1024 and {"kept", "c1099"} <= set(comms) and "c0" not in comms


def test_a_comm_open_that_is_refused_closes_no_other_comm(server: gf.Server) -> None:
    with client(server.connection_file) as attached:
        attached.wait_for_ready(timeout=10)
        for number in range(1024):
            opened = {"comm_id": f"c{number}", "target_name": "gpufetch", "data": {}}
            send(attached, "comm_open", opened)
            if number % 20 == 0:  # so that what is published can be read as fast
                attached.comm_info(reply=True, timeout=20)
                drain(attached, 0)
        for data in ({"protocol": 99}, [], "text"):
            refused = {"comm_id": "refused", "target_name": "gpufetch", "data": data}
            sent = send(attached, "comm_open", refused)
            closed = [m["content"] for m in until_idle(attached, sent) if "close" in m["msg_type"]]
            assert [content["comm_id"] for content in closed] == ["refused"]
        comms = attached.comm_info(reply=True, timeout=20)["content"]["comms"]
        assert set(comms) == {f"c{number}" for number in range(1024)}


SUBSCRIBER = """
import sys, signal
from jupyter_client.blocking.client import BlockingKernelClient
client = BlockingKernelClient(connection_file=sys.argv[1])
client.load_connection_file()
socket = client.connect_iopub()
assert socket.poll(10000)
print("ready", flush=True)
signal.pause()
"""


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_a_subscriber_that_stops_reading_bounds_memory_and_holds_up_nobody_for_long(
    transport: str,
) -> None:
    with process(SERVE_LARGE, transport) as running:
        file = servers.find("large")
        stalled = subprocess.Popen(
            [sys.executable, "-c", SUBSCRIBER, str(file)], stdout=subprocess.PIPE, text=True
        )
        try:
            assert stalled.stdout is not None
            assert stalled.stdout.readline() == "ready\n"
            with gf.connect("large", timeout=60) as run:
                array = run["x"]
                array[0].fetch()
                before = resident_nbytes(running.pid)
                stop(stalled)
                most = 0
                for row in [*range(64), *range(64)]:
                    array[row].fetch()
                    most = max(most, resident_nbytes(running.pid))
                assert (
                    128 * MIB < most - before < 400 * MIB
                )  # it stopped reading, and was disconnected
        finally:
            stalled.kill()
            stalled.communicate()


def test_a_client_that_vanishes_in_the_middle_of_a_read_is_forgotten() -> None:
    code = """
import sys, gpufetch as gf
run = gf.connect("large", timeout=20)
array = run["x"]
run._sharing = "not wanted here"
array[0].fetch()
print("ready", flush=True)
while True:
    array.fetch()
"""
    with process(SERVE_LARGE):
        for _ in range(3):
            reader = subprocess.Popen(
                [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
            )
            assert reader.stdout is not None
            assert reader.stdout.readline() == "ready\n"
            time.sleep(0.1)
            reader.kill()
            reader.communicate()
        with gf.connect("large") as run:
            assert run["x"][3, :5].fetch().tolist() == [0] * 5


# --- The connection file ---


def test_the_file_is_the_owners_and_goes_with_the_server(runtime: Path) -> None:
    with gf.serve("run") as server:
        path = Path(server.connection_file)
        assert path == runtime / "kernel-run.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
        info = json.loads(path.read_text())
        assert info["kernel_name"] == "gpufetch-run" and len(info["key"]) == 64
        assert {p.name for p in runtime.iterdir()} == {"kernel-run.json", "kernel-run-ipc"}
    assert list(runtime.iterdir()) == []


def test_a_second_server_of_a_name_is_numbered() -> None:
    code = """
    with gf.serve("run") as server:
        server.set("who", 1)
        print("ready", flush=True)
        sys.stdin.read()
    """
    with process(code), gf.serve("run") as second:
        assert second.name == "run-2"
        second.set("who", 2)
        with gf.connect("run") as one, gf.connect("run-2") as two:
            assert (one.scalars["who"], two.scalars["who"]) == (1, 2)


def test_serving_twice_by_one_name_in_a_process_gives_the_running_server(runtime: Path) -> None:
    x = gf.to_device(np.zeros(3))
    with gf.serve("run", step_share=0.5) as first:
        for _ in range(3):  # a cell of a notebook that is run again
            again = gf.serve("run", step_share=0.5)
            again.publish("x", x)
            assert again is first
            with gf.connect("run") as run:
                assert list(run) == ["x"]
        assert [path.name for path in runtime.glob("*.json")] == ["kernel-run.json"]
        with gf.serve("other") as other:
            assert other is not first
    with gf.serve("run", step_share=0.5) as after:
        assert after is not first and after.name == "run"


def test_serving_twice_with_other_options_is_an_error_that_names_them(tmp_path: Path) -> None:
    with gf.serve("run", jupyterlab=True) as running:
        with pytest.raises(ValueError, match=r"run runs .* with jupyterlab=True, not False"):
            gf.serve("run")
        with pytest.raises(ValueError, match=r"step_share=0.05, not 0.5; on_shutdown not given"):
            gf.serve("run", jupyterlab=True, step_share=0.5, on_shutdown=print)
        with pytest.raises(ValueError, match="connection_file=None, not"):
            gf.serve("run", jupyterlab=True, connection_file=str(tmp_path / "k.json"))
        assert gf.serve("run", jupyterlab=True) is running


def test_serving_twice_takes_the_newer_callback() -> None:
    called: list[int] = []
    with (
        gf.serve("run", on_shutdown=lambda: called.append(1)) as server,
        client(server.connection_file) as attached,
    ):
        assert gf.serve("run", on_shutdown=lambda: called.append(2)) is server
        attached.wait_for_ready(timeout=10)
        attached.shutdown(reply=True, timeout=5)
        eventually(lambda: called == [2])


def test_a_crashed_servers_file_is_known_to_be_stale_and_replaced(runtime: Path) -> None:
    with process(SERVE_LARGE) as running:
        running.kill()
        running.wait()
        assert (runtime / "kernel-large.json").exists()
        (found,) = servers.running()
        assert found.name == "large" and found.is_alive is False
        with pytest.raises(ConnectionError, match="ended"):
            gf.connect("large", timeout=0.3)
        with gf.serve("large") as server:
            assert server.name == "large"


def test_the_file_goes_when_the_program_exits_without_stopping(runtime: Path) -> None:
    code = 'import gpufetch as gf; server = gf.serve("run"); gf._core.keep = server._handle'
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert list(runtime.iterdir()) == []


def test_a_file_in_use_is_refused(server: gf.Server) -> None:
    with pytest.raises(gf.Error, match=f"process {os.getpid()}"):
        gf.serve("other", connection_file=server.connection_file)
    assert Path(server.connection_file).exists()


def test_a_file_of_a_kernel_manager_is_obeyed(tmp_path: Path) -> None:
    from jupyter_client.connect import write_connection_file

    path = str(tmp_path / "given.json")
    path, given = write_connection_file(path, key=b"their key", kernel_name="sim")
    with gf.serve("run", connection_file=path) as server:
        written = json.loads(Path(path).read_text())
        assert written["key"] == "their key"
        assert written["shell_port"] == given["shell_port"]
        with client(server.connection_file) as attached:
            attached.wait_for_ready(timeout=10)


def test_a_server_does_not_remove_the_file_of_the_next_of_its_name(runtime: Path) -> None:
    """Its own was removed by somebody, and the next one's may have the inode that it had."""
    code = """
    server = gf.serve("run", transport="tcp")
    print("ready", flush=True)
    sys.stdin.readline()
    """
    file = runtime / "kernel-run.json"
    for _ in range(4):
        with process(code) as first:
            file.unlink()
            with gf.serve("run", transport="tcp") as server:
                assert server.connection_file == str(file) and first.stdin is not None
                first.stdin.write("\n")
                first.stdin.flush()
                assert first.wait(30) == 0
                assert json.loads(file.read_text())["gpufetch"]["process_id"] == os.getpid()


def test_a_link_to_no_file_is_never_replaced(runtime: Path, tmp_path: Path) -> None:
    runtime.mkdir()
    for link in (runtime / "kernel-run.json", tmp_path / "given.json"):
        link.symlink_to(tmp_path / "missing.json")
    with gf.serve("run") as server:
        assert server.name == "run-2"
    with pytest.raises(ValueError, match=r"given\.json is a link to a file that does not exist"):
        gf.serve("run", connection_file=str(tmp_path / "given.json"))
    assert (runtime / "kernel-run.json").is_symlink() and (tmp_path / "given.json").is_symlink()
    assert not (tmp_path / "missing.json").exists()


@pytest.mark.parametrize("number", [1, 5])
def test_what_is_no_socket_is_never_removed_for_one(runtime: Path, number: int) -> None:
    folder = runtime / "kernel-run-ipc"
    folder.mkdir(parents=True, mode=0o700)
    (folder / f"s-{number}").write_text("mine")
    with pytest.raises(OSError, match=rf"kernel-run-ipc/s-{number}: what is there is no socket"):
        gf.serve("run", transport="ipc")
    assert [path.name for path in folder.iterdir()] == [f"s-{number}"]
    assert (folder / f"s-{number}").read_text() == "mine"
    (folder / f"s-{number}").unlink()
    with gf.serve("run", transport="ipc") as server:
        assert server.name == "run"


def test_files_that_are_there_are_obeyed_whole_replaced_when_stale_or_left_alone(
    tmp_path: Path, runtime: Path
) -> None:
    """One rule for given files, one for names; never more than that is replaced."""
    with process(SERVE_LARGE) as running:
        running.kill()
        running.wait()
    stale = json.loads((runtime / "kernel-large.json").read_text())
    (runtime / "kernel-large.json").unlink()
    of = stale["gpufetch"]
    public, secret = ("0" * 40, "0" * 40)
    if zmq.has("curve"):
        public, secret = (key.decode() for key in zmq.curve_keypair())
    pair = [{"curve_publickey": public, "curve_secretkey": secret}] if zmq.has("curve") else []
    curve_keys = [  # of which none are a pair
        {"curve_publickey": public},
        {"curve_secretkey": secret},
        {"curve_publickey": public[:39], "curve_secretkey": secret[:39]},
        {"curve_publickey": public[::-1], "curve_secretkey": secret},
        {"curve_publickey": "~" * 40, "curve_secretkey": "~" * 40},
    ]
    cases: list[tuple[str, bool, bool, str]] = [  # text, replaced under a name, obeyed, problem
        (json.dumps(stale), True, True, ""),
        (json.dumps({k: v for k, v in stale.items() if k != "gpufetch"}), False, True, ""),
        (json.dumps(stale | {"gpufetch": [1]}), False, True, ""),
        (json.dumps(stale | {"gpufetch": of | {"process_id": "1"}}), False, True, ""),
        (json.dumps(stale | {"gpufetch": of | {"host": 5}}), False, True, ""),
        (json.dumps({k: v for k, v in stale.items() if k != "hb_port"}), True, False, "five ports"),
        (json.dumps(stale | {"hb_port": -1}), True, False, "five ports"),
        (json.dumps(stale | {"hb_port": 0}), True, False, "from 1 on"),
        (json.dumps(stale | {"hb_port": 1}), True, False, "five different"),
        (json.dumps(stale | {"key": ""}), True, False, "no key"),
        (json.dumps(stale | {"transport": "udp"}), True, False, "neither tcp nor ipc"),
        (json.dumps(stale | {"transport": "tcp", "ip": "::1"}), True, False, "IPv6"),
        (json.dumps(stale | {"signature_scheme": "hmac-md5"}), True, False, "hmac-sha256"),
        *((json.dumps(stale | keys), True, False, "not a pair") for keys in curve_keys),
        *((json.dumps(stale | keys), True, False, "are for tcp") for keys in pair),
        ("", False, False, "no JSON object"),
        ("[]", False, False, "no JSON object"),
        (json.dumps(stale)[:99], False, False, "no JSON object"),
        (" " * 65536 + json.dumps(stale), False, False, "64 KiB"),
    ]
    for text, is_replaced, is_obeyed, problem in cases:
        named, given = runtime / "kernel-run.json", tmp_path / "given.json"
        named.write_text(text)
        with gf.serve("run") as server:
            assert server.name == ("run" if is_replaced else "run-2"), text
        assert named.exists() != is_replaced and (is_replaced or named.read_text() == text)
        given.write_text(text)
        if is_obeyed:
            with gf.serve("run", connection_file=str(given)):
                written = json.loads(given.read_text())
                assert {k: written[k] for k in ("key", "ip", "hb_port")} == {
                    k: stale[k] for k in ("key", "ip", "hb_port")
                }
        else:
            with pytest.raises(ValueError, match=f"no connection file.*{problem}"):
                gf.serve("run", connection_file=str(given))
            assert given.read_text() == text
        named.unlink(missing_ok=True)


def test_what_is_no_file_is_refused_as_a_connection_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, problem in (
        (tmp_path, "is a folder: name a file in it"),
        (tmp_path / "pipe", "a pipe or a device"),
        ("", "connection_file is empty"),
    ):
        with pytest.raises(ValueError, match=problem):
            gf.serve("run", connection_file=str(path))
    with pytest.raises(OSError, match=r"missing of the connection file.*make it"):
        gf.serve("run", connection_file=str(tmp_path / "missing" / "run.json"))


def test_an_interface_is_listened_on_and_its_address_told() -> None:
    with gf.serve("run", ip="lo") as server:
        assert json.loads(Path(server.connection_file).read_text())["ip"] == "127.0.0.1"
        with client(server.connection_file) as attached:
            attached.wait_for_ready(timeout=10)
    with pytest.raises(OSError, match="name of a network interface"):
        gf.serve("run", ip="localhost")


def test_a_folder_that_cannot_be_made_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "file" / "runtime"))
    with pytest.raises(OSError, match="JUPYTER_RUNTIME_DIR"):
        gf.serve("run")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_read_only_folder_is_an_error_with_a_remedy(runtime: Path) -> None:
    runtime.mkdir(mode=0o500)
    with pytest.raises(OSError, match="JUPYTER_RUNTIME_DIR"):
        gf.serve("run")


def test_a_connection_file_may_be_a_path_and_a_name_is_text(runtime: Path, tmp_path: Path) -> None:
    file = tmp_path / "here.json"
    with gf.serve("run", connection_file=file) as server:
        assert server.connection_file == str(file)
    bad: Any
    for bad in (b"run", 3):
        with pytest.raises(TypeError, match=r"name is .*: give text"):
            gf.serve(bad)
    with pytest.raises(ValueError, match=r"connection_file .* is not UTF-8"):
        gf.serve("run", connection_file="a\udcff.json")


def test_a_port_in_use_is_an_error_with_a_remedy(runtime: Path) -> None:
    with gf.serve("test", transport="tcp") as server:
        port = json.loads(Path(server.connection_file).read_text())["shell_port"]
        with pytest.raises(OSError, match="choose another port"):
            gf.serve("other", port=port)
    assert not (runtime / "kernel-other.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": "n" * 49}, "name"),
        ({"transport": "udp"}, "transport"),
        ({"port": 65533}, "port.* is 65533: give .* 0 to 65531"),
        ({"port": -1}, "port.* is -1: give"),
        ({"ip": ""}, "ip '': it is empty"),
        ({"ip": "::1"}, "ip '::1': it is an IPv6 address"),
        ({"ip": "[fe80::1%eth0]"}, "it is an IPv6 address"),
        ({"ip": "127.0.0.1:80"}, "holds no colon"),
        ({"step_share": 1.5}, "step_share"),
        ({"step_share": float("nan")}, "step_share"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gf.serve(**{"name": "run", **options})


def test_a_forked_child_leaves_the_server_to_its_parent(runtime: Path) -> None:
    code = """
import os, sys, gpufetch as gf
server = gf.serve("run")
child = os.fork()
if child == 0:
    try:
        gf.serve("child")
    except gf.Error as error:
        sys.exit(0 if "was forked" in str(error) else 1)
    sys.exit(1)
_, status = os.waitpid(child, 0)
print(os.path.exists(server.connection_file), status)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "True 0\n"


# --- Transports ---


@pytest.mark.parametrize(
    ("options", "transport"),
    [
        ({}, "ipc"),
        ({"ip": "127.0.0.1"}, "tcp"),
        ({"transport": "tcp"}, "tcp"),
        ({"transport": "ipc", "ip": "127.0.0.1"}, "ipc"),
        pytest.param(
            {"curve": True},
            "tcp",
            marks=pytest.mark.skipif(not zmq.has("curve"), reason="this pyzmq has no CurveZMQ"),
        ),
    ],
)
def test_a_server_is_reached_by_ports_only_where_the_program_asks_for_them(
    options: dict[str, Any], transport: str
) -> None:
    with gf.serve("run", **options) as server:
        info = json.loads(Path(server.connection_file).read_text())
        assert info["transport"] == transport
        listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        ports = {int(address.rpartition(":")[2], 16) for address in listening}
        assert (info["shell_port"] in ports) == (transport == "tcp")
        with client(server.connection_file) as attached:
            attached.wait_for_ready(timeout=10)
            open_comm(attached, "c")


def socket_modes(info: dict[str, Any]) -> set[tuple[bool, int]]:
    names = ("shell", "iopub", "stdin", "control", "hb")
    stats = [os.stat(socket_url(info, name).removeprefix("ipc://")) for name in names]
    return {(stat.S_ISSOCK(s.st_mode), stat.S_IMODE(s.st_mode)) for s in stats}


def test_ipc_sockets_are_the_owners_and_go_with_the_server(runtime: Path) -> None:
    old = os.umask(0)
    try:
        server = gf.serve("run")
    finally:
        os.umask(old)
    with server:
        info = json.loads(Path(server.connection_file).read_text())
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in runtime.iterdir()}
        assert modes == {"kernel-run.json": 0o600, "kernel-run-ipc": 0o700}
        assert Path(info["ip"]).parent == runtime / "kernel-run-ipc"
        assert socket_modes(info) == {(True, 0o600)}
        with client(server.connection_file) as attached:
            attached.wait_for_ready(timeout=10)
            open_comm(attached, "c")
    assert list(runtime.iterdir()) == []


def test_where_the_path_is_too_long_for_sockets_they_lie_in_a_folder_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / ("long" * 30)))
    with gf.serve("run") as server:
        info = json.loads(Path(server.connection_file).read_text())
        folder = Path(info["ip"]).parent
        assert folder.parent == Path("/tmp") and stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert socket_modes(info) == {(True, 0o600)}
        with client(server.connection_file) as attached:
            attached.wait_for_ready(timeout=10)
    assert not folder.exists() and list((tmp_path / ("long" * 30)).iterdir()) == []


def given_ipc(folder: Path, ip: str) -> str:
    """The path of a kernel manager's connection file, which asks for ipc."""
    folder.mkdir(exist_ok=True)
    path = folder / "given.json"
    names = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
    ports = {name: number for number, name in enumerate(names, 1)}
    path.write_text(json.dumps({"transport": "ipc", "ip": ip, "key": "k", **ports}))
    return str(path)


def test_an_ipc_path_that_is_too_long_is_an_error_with_a_remedy(runtime: Path) -> None:
    path = given_ipc(runtime, str(runtime / ("long" * 30)))
    with pytest.raises(OSError, match="shorter"):
        gf.serve("run", connection_file=path)


@pytest.mark.parametrize("ip", ["s", "./s", "made/s", "there/s"])
def test_sockets_of_a_relative_path_go_with_the_server_wherever_the_program_is_then(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ip: str
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with gf.serve("run", connection_file=given_ipc(runtime, ip)):
        assert len(list(Path(ip).parent.glob("s-?"))) == 5
        monkeypatch.chdir("elsewhere")
    runtime.rmdir()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_of_sockets_that_lies_in_none_is_not_made(runtime: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"cannot make the folder .*/no/such for .*sockets: No such"):
        gf.serve("run", connection_file=given_ipc(runtime, str(tmp_path / "no" / "such" / "s")))
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("how", ["file", "runtime folder"])
def test_a_relative_file_goes_with_the_server_wherever_the_program_is_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", "relative")
    options = {"connection_file": "given.json"} if how == "file" else {}
    with gf.serve("run", jupyterlab=True, **options) as server:
        file = Path(server.connection_file)
        assert file.is_absolute() and file.is_relative_to(tmp_path)
        with client(str(file)) as attached:
            attached.wait_for_ready(timeout=10)
        monkeypatch.chdir("elsewhere")
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []


def test_a_given_file_outlives_a_start_that_fails(runtime: Path) -> None:
    path = Path(given_ipc(runtime, str(runtime / "s")))
    given = path.read_text()
    (runtime / "external_kernels").write_text("in the way")
    with pytest.raises(OSError, match=r"cannot write .*/external_kernels/given\.json.*jupyterlab"):
        gf.serve("run", connection_file=str(path), jupyterlab=True)
    assert path.read_text() == given
    assert {p.name for p in runtime.iterdir()} == {"given.json", "external_kernels"}


def test_what_a_killed_program_has_not_finished_is_removed(runtime: Path) -> None:
    folder = runtime / "external_kernels"
    folder.mkdir(parents=True)
    old, new = (folder / f"kernel-{name}.json.77.new" for name in ("old", "new"))
    old.write_text("{")
    new.write_text("{")
    os.utime(old, (time.time() - 7200,) * 2)
    with gf.serve("run", jupyterlab=True):
        assert not old.exists() and new.exists()


def test_where_a_living_server_has_the_sockets_of_a_name_the_next_is_numbered(
    runtime: Path,
) -> None:
    code = """
    server = gf.serve("run")
    print("ready", flush=True)
    sys.stdin.read()
    """
    with process(code):
        file = servers.find("run")
        info = file.read_text()
        file.unlink()
        with gf.serve("run") as second:
            assert second.name == "run-2"
        (runtime / "first.json").write_text(info)
        with client(str(runtime / "first.json")) as attached:
            attached.wait_for_ready(timeout=10)


@pytest.mark.parametrize("name", ["run", "long" * 12])
def test_sockets_of_a_killed_server_are_replaced_by_the_next_of_its_name(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name != "run":
        monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / ("long" * 30)))
    code = """
    server = gf.serve(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.read()
    """
    with process(code, name) as running:
        info = json.loads(servers.find(name).read_text())
        running.kill()
        running.wait()
    left = Path(info["ip"]).parent
    assert len(list(left.iterdir())) == 5
    with gf.serve(name) as server, client(server.connection_file) as attached:
        attached.wait_for_ready(timeout=10)
        fresh = json.loads(Path(server.connection_file).read_text())
        assert len(list(Path(fresh["ip"]).parent.iterdir())) == 5
        assert left.exists() == (name == "run")
    assert not left.exists()


def test_a_folder_of_someone_elses_is_not_used_for_sockets(runtime: Path) -> None:
    runtime.mkdir()
    (runtime / "kernel-run-ipc").symlink_to(runtime)
    with pytest.raises(OSError, match="tcp"):
        gf.serve("run")
    assert [path.name for path in runtime.iterdir()] == ["kernel-run-ipc"]


def test_curve_keeps_out_who_does_not_know_the_key() -> None:
    if not zmq.has("curve"):
        pytest.skip("this pyzmq has no CurveZMQ")
    with gf.serve("run", curve=True) as server:
        with client(server.connection_file) as attached:
            attached.wait_for_ready(timeout=10)
            open_comm(attached, "c")
        with raw_socket(server.connection_file, "iopub", zmq.SUB) as plain:
            plain.subscribe(b"")
            assert not plain.poll(500)


def test_jupyterlab_finds_the_file_among_external_kernels(runtime: Path) -> None:
    """The manager of jupyter_client, on which JupyterLab's server builds, starts the server."""
    from jupyter_client.multikernelmanager import MultiKernelManager

    with gf.serve("run", jupyterlab=True) as server:
        manager = MultiKernelManager(external_connection_dir=str(runtime / "external_kernels"))
        (kernel_id,) = manager.list_kernel_ids()
        kernel = manager.get_kernel(kernel_id)
        assert kernel.kernel_name == "gpufetch-run" and not kernel.owns_kernel
        attached = kernel.blocking_client()
        attached.start_channels()
        attached.wait_for_ready(timeout=10)
        attached.stop_channels()
        for context in (attached.context, manager.context):
            context.destroy(linger=0)
        linked = runtime / "external_kernels" / "kernel-run.json"
        assert linked.read_text() == Path(server.connection_file).read_text()
        assert stat.S_IMODE(linked.stat().st_mode) == 0o600
    assert not linked.exists()


def test_what_killed_servers_left_for_jupyterlab_goes_with_the_next_start(runtime: Path) -> None:
    code = """
    server = gf.serve(sys.argv[1], jupyterlab=True)
    print("ready", flush=True)
    sys.stdin.read()
    """
    folder = runtime / "external_kernels"
    with process(code, "killed"):
        pass
    (folder / "kernel-other.json").write_text('{"kernel_name": "other", "key": ""}')
    (folder / "kernel-broken.json").write_text("{")
    with process(code, "lives"), gf.serve("run", jupyterlab=True):
        left = {path.stem.removeprefix("kernel-") for path in folder.iterdir()}
        assert left == {"other", "broken", "lives", "run"}


@pytest.mark.parametrize(
    ("text", "problem"), [("x\0y", r"'x\\x00y' has a NUL"), ("\ud800", r"'\\ud800' is not UTF-8")]
)
def test_text_that_clients_would_read_cut_is_refused(
    runtime: Path, text: str, problem: str
) -> None:
    with gf.serve("uncut") as server:
        server.publish("x", np.arange(3))
        server.set("n", 1)
        for call in (
            lambda: server.publish(text, np.arange(3)),
            lambda: server.unpublish(text),
            lambda: server.set(text, 1),
            lambda: server.set("n", text),
            lambda: gf.attach(text),
            lambda: gf.connect(text),
            lambda: gf.connect([server.connection_file, text]),
            lambda: gf.serve(text),
            lambda: gf.serve("other", ip=text),
            lambda: gf.serve("other", transport=text),  # type: ignore[arg-type]
            lambda: gf.serve("other", connection_file=str(runtime / text)),
            lambda: gf.publish(text, np.arange(3)),
        ):
            with pytest.raises(ValueError, match=r"\\x00y|\\ud800"):
                call()
        with pytest.raises(ValueError, match=f"value n: {problem}"):
            server.set("n", text)
        with gf.connect("uncut") as run:
            assert (list(run), run.scalars) == (["x"], {"n": 1})


@pytest.fixture
def shown(runtime: Path) -> Iterator[dict[str, Any]]:
    """What the messages below are about."""
    x = gf.to_device(np.arange(4.0))
    with gf.serve("shown") as server:
        server.publish("x", x)
        with gf.connect("shown") as run, gf.connect(["shown"]) as joint:
            yield {"server": server, "run": run, "joint": joint, "x": x, "gf": gf, "np": np}


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            "server.set('a', 1 << 65)",
            OverflowError,
            "value a is 36893488147419103232: give .* from -9",
        ),
        (
            "server.set('a', np.uint64(2**64 - 1))",
            OverflowError,
            "value a is 18446744073709551615: ",
        ),
        ("server.set('a', 10**5000)", OverflowError, "value a is an integer of 16610 bits: give"),
        ("server.step(1 << 64)", OverflowError, "step is 18446744073709551616: give an integer"),
        ("server.step(1.5)", TypeError, "step is 1.5, of type float: give an integer"),
        ("server.step(1, 'a')", TypeError, "time is 'a', of type str: give a number"),
        ("server.publish(3, x)", TypeError, "name is 3, of type int: give text"),
        ("gf.publish(3, x)", TypeError, "name is 3, of type int: give text"),
        ("x.histogram(bins=1.5)", TypeError, "bins is 1.5, of type float: give an integer"),
        ("run['x'].histogram(bins=1.5)", TypeError, "bins is 1.5, of type float"),
        ("gf.connect(3)", TypeError, "server is 3, of type int: give a name, the path"),
        ("gf.connect(b'x')", TypeError, "server is b'x', of type bytes: give a name"),
        ("run['nope']", KeyError, "no tensor is published as 'nope': there are 'x'"),
        ("joint['nope']", KeyError, "no tensor is published as 'nope': there are 'x'"),
        ("gf.serve('s', port=70000)", ValueError, "port, .*, is 70000: give .* from 0 to 65531"),
        ("gf.serve('s', transport='ipc', port=5000)", ValueError, "port=5000 is for tcp: leave"),
        ("gf.serve('s', transport='ipc', curve=True)", ValueError, "curve is for tcp: the sockets"),
        ("gf.serve('s', port=True)", TypeError, "port is True: give the first of five ports"),
        ("gf.serve('s', on_shutdown=5)", TypeError, "on_shutdown is 5, of type int: give a callab"),
        (
            "server.publish('p', x, start=(0.5,), global_shape=(9,))",
            TypeError,
            r"start\[0\] is 0.5, of type float: give an integer",
        ),
        ("server.publish('p', x, start=(0,), global_shape=5)", TypeError, "global_shape is 5"),
        ("gf.unpublish('nope')", KeyError, "no tensor is published as 'nope'"),
        ("gf.attach('hello')", ValueError, "it does not begin with .*; pass the whole text"),
        (
            "pickle.dumps(server)",
            TypeError,
            "a Server cannot be pickled .* 'shown', to gpufetch.con",
        ),
        (
            "pickle.dumps(run)",
            TypeError,
            "a connection cannot be pickled .*: call gpufetch.connect",
        ),
        ("pickle.dumps(joint)", TypeError, "a connection cannot be pickled"),
        ("gf.hdf5.write(path, 't', {'a': 2**70})", ValueError, f"int64 nor uint64 holds {2**70}: "),
        ("gf.hdf5.write(path, 't', [-1, 2**70])", ValueError, f"values from -1 to {2**70}"),
        ("x.numpy()", AttributeError, r"no numpy: gpufetch.fetch\(x\) gives it as a NumPy array"),
        ("x.cpu()", AttributeError, r"no cpu: gpufetch.fetch\(x\) gives"),
        ("x.get()", AttributeError, r"no get: gpufetch.fetch\(x\) gives"),
        ("f'{x:.2f}'", TypeError, "unsupported format string"),
    ],
)
def test_a_message_names_the_value_and_the_remedy(
    shown: dict[str, Any], tmp_path: Path, call: str, error: type[Exception], message: str
) -> None:
    import pickle

    with pytest.raises(error, match=message):
        eval(call, {**shown, "pickle": pickle, "path": tmp_path / "x.h5"})


def test_the_element_of_an_array_without_axes_is_formatted(shown: dict[str, Any]) -> None:
    x, lazy = shown["x"], shown["run"]["x"]
    assert (f"{x[1]:.2f}", f"{lazy[1:2].reshape(()):.2f}") == ("1.00", "1.00")
    assert (f"{x}", f"{x[1]}") == (str(x), str(x[1]))
