"""What a server over tcp withstands from someone on the same host who does not have its key."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import resource
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jupyter_client")

import zmq
from sanitizing import SANITIZED
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
    socket_url,
)

import gpufetch as gf
from gpufetch._remote import servers

pytestmark = needs_server

MIB = 1 << 20
LIMIT = 256  # of the served program's descriptors

# A line of its input makes it open as many files as are left to it at least, and close them.
SERVE = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
with gf.serve("run", ip="127.0.0.1") as server:
    server.publish("x", gf.to_device(np.zeros((64, 1 << 20), np.float32)))
    print("ready", flush=True)
    for line in sys.stdin:
        files = [open("/dev/null") for _ in range({LIMIT} // 8 - 8)]
        [file.close() for file in files]
        print(len(files), flush=True)
"""


class Simulation:
    """A program that serves over tcp, and its connection file."""

    def __init__(self, running: subprocess.Popen[str]) -> None:
        self.running = running
        self.file = servers.find("run")
        self.info: dict[str, Any] = json.loads(self.file.read_text())

    @property
    def descriptor_count(self) -> int:
        return len(list(Path(f"/proc/{self.running.pid}/fd").iterdir()))

    @property
    def resident_nbytes(self) -> int:
        return resident_nbytes(self.running.pid)

    def opens_its_files(self) -> bool:
        assert self.running.stdin is not None and self.running.stdout is not None
        self.running.stdin.write("\n")
        self.running.stdin.flush()
        return self.running.stdout.readline() == f"{LIMIT // 8 - 8}\n"


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    try:
        with process(SERVE) as running:
            yield Simulation(running)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def stranger(simulation: Simulation) -> Iterator[zmq.Context[Any]]:
    with zmq.Context() as context:
        context.max_sockets = 4000
        yield context
        context.destroy(linger=0)


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


def test_nobody_takes_the_place_of_a_client_by_what_is_published(
    server: gf.Server, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        raw_socket(server.connection_file, "iopub", zmq.SUB) as listener,
        gf.connect("test", timeout=5) as run,
        zmq.Context() as context,
    ):
        listener.subscribe(b"")
        assert listener.poll(5000)
        run._sharing = "messages are read here"
        array = run["x"]
        array.fetch()
        published = b"".join(frame for message in received(listener) for frame in message)
        names = {name.decode() for name in re.findall(rb'"session":"([^"]+)"', published)}
        names |= {name.decode() for name in re.findall(rb'"comm_id":"([^"]+)"', published)}
        assert len(names) >= 3  # the server's session, the client's, and its comm
        info = json.loads(Path(server.connection_file).read_text())
        takers = [context.socket(zmq.DEALER) for _ in names]
        for taker, name in zip(takers, names, strict=True):
            taker.identity = name.encode()
            events = taker.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
            taker.connect(socket_url(info, "shell"))
            assert events.poll(5000)
            taker.disable_monitor()
            events.close()
            taker.send(b"x")
        eventually(lambda: any("delimiter" in r.getMessage() for r in caplog.records))
        for _ in range(3):
            np.testing.assert_array_equal(
                array.fetch(), np.arange(24, dtype=np.float32).reshape(4, 6)
            )
        for taker in takers:
            taker.close(linger=0)


# --- What they can use up ---


NAMES = ("hb", "iopub", "shell", "control", "stdin")


def test_a_flood_of_connections_leaves_the_program_its_descriptors(simulation: Simulation) -> None:
    before = simulation.descriptor_count
    with contextlib.ExitStack() as stack, gf.connect("run", timeout=20) as run:
        run._sharing = "messages are read here"
        run["x"][0].fetch()
        for number in range(2000):
            idle = stack.enter_context(socket.socket())
            idle.setblocking(False)
            address = (simulation.info["ip"], simulation.info[f"{NAMES[number % 5]}_port"])
            idle.connect_ex(address)  # where the server takes no more, it stays under way
            if number % 100 == 99:
                assert simulation.opens_its_files()
        assert run["x"][1, :3].fetch().tolist() == [0, 0, 0]
        eventually(lambda: simulation.descriptor_count <= before + LIMIT // 4)
        assert simulation.opens_its_files()
    eventually(lambda: simulation.descriptor_count <= before + 1, timeout=20)
    with gf.connect("run", timeout=20) as run:
        assert run["x"][2, :3].fetch().tolist() == [0, 0, 0]


def test_connections_that_say_nothing_are_closed_soon(simulation: Simulation) -> None:
    before = simulation.descriptor_count
    with contextlib.ExitStack() as stack:
        for number in range(40):
            address = (simulation.info["ip"], simulation.info[f"{NAMES[number % 5]}_port"])
            stack.enter_context(socket.create_connection(address, timeout=20))
        eventually(lambda: simulation.descriptor_count >= before + 40)
        eventually(lambda: simulation.descriptor_count <= before, timeout=20)


def test_clients_past_the_limit_wait_and_those_before_it_are_served(
    simulation: Simulation,
) -> None:
    before = simulation.descriptor_count
    with stranger(simulation) as context, client(simulation.file) as attached:
        attached.wait_for_ready(timeout=10)
        others = [context.socket((zmq.SUB, zmq.DEALER)[number % 2]) for number in range(400)]
        for number, one in enumerate(others):
            one.connect(socket_url(simulation.info, ("iopub", "shell")[number % 2]))
        eventually(lambda: simulation.descriptor_count >= before + LIMIT // 4)
        for _ in range(20):
            assert attached.kernel_info(reply=True, timeout=10)["content"]["status"] == "ok"
            assert simulation.opens_its_files()
        eventually(lambda: simulation.descriptor_count <= before + LIMIT // 4)
    eventually(lambda: simulation.descriptor_count <= before + 1)
    with gf.connect("run", timeout=20) as run:
        assert run["x"].shape == (64, 1 << 20)


@pytest.mark.skipif(SANITIZED, reason="a sanitizer keeps memory that was freed")
@pytest.mark.parametrize(
    ("count", "nbytes"), [(400, 100_000), (20_000, 1000), (100_000, 150)], ids=str
)
def test_subscriptions_take_little_memory(simulation: Simulation, count: int, nbytes: int) -> None:
    with gf.connect("run", timeout=20) as run, stranger(simulation) as context:
        run._sharing = "messages are read here"
        run["x"][0].fetch()
        before = simulation.resident_nbytes
        greedy = context.socket(zmq.XSUB)
        greedy.sndhwm = 0
        greedy.reconnect_ivl = 2000  # it sends all subscriptions anew with each connection
        greedy.connect(socket_url(simulation.info, "iopub"))
        for number in range(count):
            greedy.send(b"\1" + str(number).encode().ljust(nbytes, b"x"))
        most = 0
        for row in range(20):
            assert run["x"][row, :3].fetch().tolist() == [0, 0, 0]
            most = max(most, simulation.resident_nbytes)
            time.sleep(0.05)  # while subscriptions come in
        assert most - before < 48 * MIB


# --- What they can disturb ---


def by_hand(address: tuple[str, int], socket_type: bytes) -> socket.socket:
    """Connect by hand, so that no thread of ZeroMQ's reads or limits anything."""
    connection = socket.socket()
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        connection.settimeout(20)
        connection.connect(address)
        connection.sendall(b"\xff" + bytes(8) + b"\x7f\3\0NULL" + bytes(48))
        ready = b"\5READY\x0bSocket-Type" + struct.pack(">I", len(socket_type)) + socket_type
        connection.sendall(b"\4" + bytes([len(ready)]) + ready)
        answer = b""
        while len(answer) < 64 + 28:  # the server's greeting and READY
            part = connection.recv(64 + 28 - len(answer))
            if not part:
                raise ConnectionResetError("the server has closed the connection")
            answer += part
    except OSError:
        connection.close()
        raise
    return connection


def slow_subscriber(address: tuple[str, int]) -> socket.socket:
    slow = by_hand(address, b"SUB")
    slow.sendall(b"\0\1\1")
    return slow


def test_subscribers_that_flood_and_reset_end_no_program(simulation: Simulation) -> None:
    address = (simulation.info["ip"], simulation.info["iopub_port"])
    one = b"\0\2\1t\4\7\4PING\0\0"  # a subscription and a ping of ZeroMQ's
    with gf.connect("run", timeout=20) as run:
        for number in range(200):
            with slow_subscriber(address) as rude:
                rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                with contextlib.suppress(OSError):  # it is cut off
                    rude.sendall(one * (1, 10, 100, 10_000)[number % 4])
            if number % 20 == 0:
                assert run["x"][number // 20, :3].fetch().tolist() == [0, 0, 0]
        assert simulation.running.poll() is None
        assert simulation.opens_its_files()


def is_established(port: int, peer_port: int) -> bool:
    """Whether a TCP connection from `peer_port` to `port` is open on the side of `port`."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = (line.split()[1:4] for line in lines)
    return any(
        (int(local[-4:], 16), int(remote[-4:], 16), state) == (port, peer_port, "01")
        for local, remote, state in fields
    )


@pytest.mark.parametrize("sock", ["shell", "control", "stdin"])
def test_who_sends_nothing_but_what_is_refused_loses_the_connection(
    server: gf.Server, sock: str
) -> None:
    forged = [b"<IDS|MSG>", b"0" * 64, b"{}", b"{}", b"{}", b"{}"]
    ended = {}
    for count in (7, 8):
        with raw_socket(server.connection_file, sock, zmq.DEALER) as socket:
            events = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            for _ in range(count):
                socket.send_multipart(forged)
            ended[count] = events.poll(10_000 if count == 8 else 300)
            events.close()
            socket.disable_monitor()
    assert ended[8] and not ended[7]


def test_what_a_connection_has_left_is_not_charged_to_the_next_one(
    simulation: Simulation,
) -> None:
    """The next one gets its descriptor, while the messages still wait to be looked at."""
    address = (simulation.info["ip"], simulation.info["shell_port"])
    is_over = threading.Event()

    cut_early = []

    def come_and_go() -> None:
        while not is_over.is_set():
            try:
                rude = by_hand(address, b"DEALER")
            except OSError as error:
                cut_early.append(error)
                return
            with contextlib.suppress(OSError), rude:
                rude.sendall(b"\0\1x" * 20_000)
                rude.shutdown(socket.SHUT_WR)
                while rude.recv(1 << 16):
                    pass

    strangers = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in strangers:
        thread.start()
    try:
        for _ in range(20):
            with gf.connect("run", timeout=20) as run:
                assert run["x"][3, :3].fetch().tolist() == [0, 0, 0]
    finally:
        is_over.set()
        for thread in strangers:
            thread.join()
    assert not cut_early


def test_pings_that_come_too_fast_cost_the_connection(server: gf.Server) -> None:
    with (
        raw_socket(server.connection_file, "hb", zmq.DEALER) as fast,
        raw_socket(server.connection_file, "hb", zmq.REQ) as honest,
    ):
        events = fast.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        for number in range(60):
            fast.send(b"%d" % number)
        for number in range(60):
            assert fast.poll(10_000) and fast.recv() == b"%d" % number
        assert not events.poll(0)
        for _ in range(200):
            fast.send(b"ping")
        assert events.poll(10_000)
        honest.send(b"ping")
        assert honest.poll(10_000) and honest.recv() == b"ping"
        events.close()
        fast.disable_monitor()


@pytest.mark.parametrize("sock", ["shell", "hb"])
def test_a_message_without_an_end_costs_the_connection(server: gf.Server, sock: str) -> None:
    info = json.loads(Path(server.connection_file).read_text())
    frame = b"\3" + struct.pack(">Q", 1 << 18) + bytes(1 << 18)  # and more to come
    port = info[f"{sock}_port"]
    with (
        by_hand((info["ip"], port), b"DEALER") as endless,
        raw_socket(server.connection_file, "hb", zmq.REQ) as honest,
    ):
        endless.settimeout(1)
        stream = memoryview(frame * 512)
        sent = 0

        def is_closed() -> bool:
            nonlocal sent
            with contextlib.suppress(OSError):
                sent += endless.send(stream[sent : sent + MIB])
            return not is_established(port, endless.getsockname()[1])

        eventually(is_closed, timeout=30)
        assert sent < len(stream)
        honest.send(b"ping")
        assert honest.poll(10_000) and honest.recv() == b"ping"


def test_what_the_system_holds_for_a_connection_that_is_closed_is_not_read() -> None:
    """In ZeroMQ's memory, these frames of four bytes take ten times what came."""
    part = b"\1\4ping" * 70_000
    serve = 'gf.serve("many", ip="127.0.0.1"); print("ready", flush=True); sys.stdin.read()'
    with process(serve) as running, contextlib.ExitStack() as stack:
        info = json.loads(servers.find("many").read_text())
        address = (info["ip"], info["control_port"])
        strangers = [stack.enter_context(by_hand(address, b"DEALER")) for _ in range(200)]
        before = resident_nbytes(running.pid)
        for stranger in strangers:
            stranger.setblocking(False)
            with contextlib.suppress(OSError):
                stranger.send(part)
        time.sleep(1)
        assert any(not is_established(address[1], x.getsockname()[1]) for x in strangers)
        assert resident_nbytes(running.pid) - before < 450 * MIB
        with gf.connect("many", timeout=20) as many:
            assert list(many) == []


def test_a_client_with_the_key_keeps_its_connection_beside_messages_without_an_end(
    server: gf.Server,
) -> None:
    """Strangers hold what all may hold, each less than a request of the client's."""
    info = json.loads(Path(server.connection_file).read_text())
    part = b"\2" + struct.pack(">Q", 1 << 18) + bytes((1 << 18) - 1)  # of a frame
    with contextlib.ExitStack() as stack, client(server.connection_file) as attached:
        attached.wait_for_ready(timeout=10)
        shell = attached.shell_channel.socket
        events = shell.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        for _ in range(127):
            stranger = by_hand((info["ip"], info["shell_port"]), b"DEALER")
            stack.enter_context(stranger).sendall(part)
        for _ in range(20):
            request = attached.session.send(
                shell, "kernel_info_request", buffers=[bytes(250_000)] * 8
            )
            reply = attached.get_shell_msg(timeout=10)
            assert reply["parent_header"]["msg_id"] == request["header"]["msg_id"]
        assert not events.poll(0)
        events.close()
        shell.disable_monitor()


def test_a_client_with_the_key_keeps_its_connection_beside_what_is_refused(
    server: gf.Server,
) -> None:
    forged = [b"<IDS|MSG>", b"0" * 64, b"{}", b"{}", b"{}", b"{}"]
    with client(server.connection_file) as attached:
        attached.wait_for_ready(timeout=10)
        events = attached.shell_channel.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        open_comm(attached, "c")
        for number in range(12):
            attached.shell_channel.socket.send_multipart(forged)
            reply, _ = ask(attached, "c", {"op": "list"})
            assert "error" not in reply, number
        assert not events.poll(0)
        events.close()
        attached.shell_channel.socket.disable_monitor()


@pytest.mark.parametrize(
    ("nbytes", "pause_s"),
    [(2000, 0.1), (9 * MIB // 2, 4.0)],
    ids=["bytes", "a reply now and then"],
)
def test_a_slow_subscriber_is_cut_off_and_the_port_is_never_given_up(
    simulation: Simulation, nbytes: int, pause_s: float
) -> None:
    address = (simulation.info["ip"], simulation.info["iopub_port"])
    slow = slow_subscriber(address)
    slow_port = slow.getsockname()[1]
    ended, stolen = threading.Event(), threading.Event()

    def read_slowly() -> None:
        with contextlib.suppress(OSError), slow:
            left = nbytes
            while not ended.is_set() and (part := slow.recv(left)):
                left -= len(part)
                if left == 0:
                    ended.wait(pause_s)
                    left = nbytes

    def steal() -> None:
        while not ended.is_set():
            with socket.socket() as thief, contextlib.suppress(OSError):
                thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                thief.bind(address)
                thief.listen()
                stolen.set()
            time.sleep(0.001)

    threads = [threading.Thread(target=read_slowly), threading.Thread(target=steal)]
    try:
        for thread in threads:
            thread.start()
        with gf.connect("run", timeout=60) as run:
            run._sharing = "messages are read here"
            x = run["x"]
            # The subscriber's 64 replies of 4 MiB fill the memory for all replies, before 256
            # messages wait for it, from where on it would miss messages and hold up nobody.
            deadline = time.monotonic() + 40  # it takes 6 to 12 s
            cut_off = False
            while not cut_off and time.monotonic() < deadline:
                x[0].fetch()
                # The reader still gets what the system holds for it when its connection is closed.
                cut_off = not is_established(address[1], slow_port)
            assert x[63, :3].fetch().tolist() == [0, 0, 0]
            assert x[:20, 0].fetch().tolist() == [0] * 20
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert cut_off and not stolen.is_set()
    with gf.connect("run", timeout=20) as run:
        assert run["x"].shape == (64, 1 << 20)
