"""A server that good and bad clients have used holds in the end what it held at first.

GPUFETCH_SOAK_SECONDS says for how long; 2 by default.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jupyter_client")

import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_core.utils import ensure_event_loop
from serving import client, drain, eventually, needs_server, open_comm, process, send, socket_url

import gpufetch as gf
from gpufetch._remote import servers
from gpufetch._remote.client import ServerLostError

pytestmark = needs_server

SECONDS = float(os.environ.get("GPUFETCH_SOAK_SECONDS", "2"))
THREADS = 4
RESTART_S = 20.0
PATIENCE_S = 30  # a client that stops reading may hold up the others for some seconds
MIB = 1 << 20
FIXED = np.arange(6 << 20, dtype=np.float32).reshape(6, 1 << 20)  # six fragments of 4 MiB

# "fixed" does not change. Every element of "u" is the number of the last complete step or, in a
# live read, of the step after that.
SERVER = """
import ctypes, gc, json, os, re, select

class MallInfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost").split()]

libc = ctypes.CDLL(None)
mallinfo2 = getattr(libc, "mallinfo2", None)
if mallinfo2:
    mallinfo2.restype = MallInfo2

def footprint():
    gc.collect()
    pool = gf.pool.stats()
    gf.pool.trim()
    heap = mallinfo2() if mallinfo2 else MallInfo2()
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return {
        "replies": pool["used_nbytes"],
        "heap": heap.hblkhd + heap.uordblks,
        "resident": pages * os.sysconf("SC_PAGE_SIZE") - heap.fordblks,
        "descriptors": sorted(link(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")),
        "threads": sorted(name(task) for task in os.listdir("/proc/self/task")),
    }

def link(path):
    try:
        return re.sub("[0-9]+", "", os.readlink(path))
    except OSError:
        return "that of this list"

def name(task):
    with open(f"/proc/self/task/{task}/comm") as file:
        return file.read().strip()

fixed = gf.to_device(np.arange(6 << 20, dtype=np.float32).reshape(6, 1 << 20), device="host:0")

def start():
    server = gf.serve("soak", step_share=0.5, transport=sys.argv[1])
    server.publish("fixed", fixed)
    server.set("limit", 7)
    return server

server, step = start(), 0
print("ready", flush=True)
while True:
    if select.select([sys.stdin], [], [], 0.02)[0]:
        order = sys.stdin.readline().strip()
        if order == "restart":
            server.stop()
            server = start()
        elif not order:
            break
        print(json.dumps(footprint()), flush=True)
    step += 1
    server.publish("u", gf.to_device(np.full(65536, step, np.float32), device="host:0"))
    server.step(step, step / 2)
server.stop()
"""

READER = """
import sys, gpufetch as gf
run = gf.connect("soak", timeout=20)
run._sharing = "messages are read here"
print("ready", flush=True)
while True:
    run["fixed"].fetch()
"""


# --- The server ---------------------------------------------------------------------------------


@dataclass
class Soak:
    """One server, and counts of what was done with it."""

    running: subprocess.Popen[str]
    restarts: int = 0
    done: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)  # failed because the server restarted
    failures: list[str] = field(default_factory=list)

    def order(self, what: str) -> dict[str, Any]:
        """Have the server do something, and return what it holds then."""
        assert self.running.stdin is not None and self.running.stdout is not None
        self.running.stdin.write(what + "\n")
        self.running.stdin.flush()
        answer: dict[str, Any] = json.loads(self.running.stdout.readline())
        return answer

    def restart(self) -> None:
        self.restarts += 1
        self.order("restart")
        self.restarts += 1  # odd while it restarts

    def settled(self) -> dict[str, Any]:
        """Return what it holds when all clients have left, which ZeroMQ notices one by one."""
        held = self.order("look")
        for _ in range(100):
            time.sleep(0.2)
            before, held = held, self.order("look")
            if held["replies"] == 0 and held["descriptors"] == before["descriptors"]:
                break
        return held


def connection_file() -> Path:
    """Return the server's connection file; while it restarts it has none for a moment."""
    path = servers.runtime_folder() / "kernel-soak.json"
    eventually(path.exists, timeout=60)
    return path


@contextlib.contextmanager
def listener() -> Iterator[BlockingKernelClient]:
    """A client whose subscription has arrived: it receives all that is published from now on."""
    with client(connection_file()) as attached:
        while attached.get_iopub_msg(timeout=PATIENCE_S)["msg_type"] != "iopub_welcome":
            pass
        yield attached


# --- Clients that behave --------------------------------------------------------------------------


def reads(rng: random.Random) -> None:
    with gf.connect(connection_file()) as run:
        run._sharing = "messages are read here"
        fixed = run["fixed"]
        for _ in range(rng.randrange(1, 5)):
            row, start = rng.randrange(6), rng.randrange(1 << 20)
            key = (row, slice(start, None, rng.choice([1, 3, -1])))
            np.testing.assert_array_equal(fixed[key].fetch(), FIXED[key])
        if rng.random() < 0.3:
            np.testing.assert_array_equal(fixed.fetch(), FIXED)


def attaches_to_memory(rng: random.Random) -> None:
    with gf.connect(connection_file()) as run:
        np.testing.assert_array_equal(run["fixed"].fetch(), FIXED)
        assert run.data_path == "shared memory"


def reduces(rng: random.Random) -> None:
    with gf.connect(connection_file()) as run:
        row = rng.randrange(6)
        view, values = run["fixed"][row, :4096], FIXED[row, :4096]
        cells = view.overview((64,)).values
        np.testing.assert_allclose(cells, values.reshape(64, 64).mean(1), rtol=1e-6)
        assert view.stats().max == values.max()
        assert view.histogram(bins=16).counts.sum() == 4096
        assert run.scalars == {"limit": 7}


def reads_at_steps(rng: random.Random) -> None:
    with gf.connect(connection_file(), at="step") as run:
        step = run.wait_step()
        for _ in range(rng.randrange(1, 4)):
            values = run["u"].fetch()
            assert values[0] >= step and (values == values[0]).all()


def supersedes_and_cancels(rng: random.Random) -> None:
    with listener() as attached:
        comm_id = f"quick-{rng.getrandbits(60)}"
        open_comm(attached, comm_id, timeout=PATIENCE_S)
        answered: set[int] = set()
        request = {"op": "read", "name": "u", "supersede": "view", "at": "step"}
        for number in range(20):
            send(attached, "comm_msg", {"comm_id": comm_id, "data": {**request, "id": number}})
        cancel = {"op": "cancel", "id": 20, "request": rng.randrange(20)}
        send(attached, "comm_msg", {"comm_id": comm_id, "data": cancel})
        while len(answered) < 21:
            message = attached.get_iopub_msg(timeout=PATIENCE_S)
            if message["msg_type"] == "comm_msg" and message["content"]["comm_id"] == comm_id:
                answered.add(message["content"]["data"]["id"])
        send(attached, "comm_close", {"comm_id": comm_id, "data": {}})


def asks_as_jupyter_does(rng: random.Random) -> None:
    with client(connection_file()) as attached:
        attached.wait_for_ready(timeout=PATIENCE_S)
        attached.execute("x", reply=True, timeout=PATIENCE_S)
        if rng.random() < 0.5:
            attached.shutdown(reply=True, timeout=PATIENCE_S)


# --- Clients that do not --------------------------------------------------------------------------


def vanishes(rng: random.Random) -> None:
    with client(connection_file()) as attached:
        comm_id = f"gone-{rng.getrandbits(60)}"
        send(attached, "comm_open", {"comm_id": comm_id, "target_name": "gpufetch", "data": {}})
        for fragment in range(4):
            data = {"op": "read", "name": "fixed", "fragment": fragment, "id": fragment}
            send(attached, "comm_msg", {"comm_id": comm_id, "data": data})
        if rng.random() < 0.5:
            data = {"op": "share", "name": "fixed"}
            send(attached, "comm_msg", {"comm_id": comm_id, "data": data})
        time.sleep(rng.random() / 10)


def stops_reading(rng: random.Random) -> None:
    info = json.loads(connection_file().read_text())
    with client(connection_file(), iopub=False) as attached, zmq.Context() as context:
        subscriber = context.socket(zmq.SUB)
        subscriber.linger, subscriber.rcvhwm = 0, 1
        subscriber.subscribe(b"")
        subscriber.connect(socket_url(info, "iopub"))
        assert subscriber.poll(1000 * PATIENCE_S)
        comm_id = f"full-{rng.getrandbits(60)}"
        send(attached, "comm_open", {"comm_id": comm_id, "target_name": "gpufetch", "data": {}})
        for number in range(rng.randrange(10, 120)):
            data = {"op": "read", "name": "fixed", "fragment": number % 6}
            send(attached, "comm_msg", {"comm_id": comm_id, "data": data})
            time.sleep(0.005)
        time.sleep(rng.choice([0.1, 0.5, 2]))
        subscriber.close()


def is_killed(rng: random.Random) -> None:
    command = [sys.executable, "-c", READER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        if reader.stdout.readline():
            time.sleep(rng.random() / 5)
            if rng.random() < 0.5:
                reader.send_signal(signal.SIGSTOP)
                time.sleep(rng.random())
        reader.kill()


def frames_of(attached: Any, rng: random.Random) -> list[bytes]:
    """Return a message that is wrong somewhere; some are signed."""
    session = attached.session
    good: list[bytes] = session.serialize(session.msg("kernel_info_request", {}))
    kind = rng.randrange(5)
    if kind == 0:  # cut, or too long
        return good[: rng.randrange(1, 7)] + [b""] * rng.choice([0, 80])
    if kind == 1:  # no valid signature
        return [good[0], rng.choice([b"", b"0" * 64, good[1][:-1]]), *good[2:]]
    bombs = [b"[" * 90_000, b'{"a":' * 9000, b'"' * 90_000, b"{", b"\xff", b"1" * 90_000, b"[]"]
    if kind == 2:  # JSON that is too deep or too large, and text that is no JSON
        parts = [good[2], b"{}", b"{}", rng.choice(bombs)]
        rng.shuffle(parts)
        return [good[0], session.sign(parts), *parts]
    if kind == 3:  # the same message twice at once: the second is a replay
        return good
    content = {"comm_id": rng.choice(["x", "", "\n", 7]), "data": {"a": list(range(999))}}
    wrong: list[bytes] = session.serialize(session.msg("comm_msg", content))
    return wrong


def sends_nonsense(rng: random.Random) -> None:
    info = json.loads(connection_file().read_text())
    with client(connection_file()) as attached, zmq.Context() as context:
        channel = rng.choice(["shell", "control", "stdin", "hb", "iopub"])
        kind = zmq.SUB if channel == "iopub" else zmq.DEALER
        with context.socket(kind) as wrong:
            wrong.linger = 200
            wrong.connect(socket_url(info, channel))
            for _ in range(rng.randrange(1, 30)):
                if kind == zmq.SUB:
                    wrong.subscribe(rng.randbytes(rng.randrange(400)))
                    continue
                frames = frames_of(attached, rng)
                wrong.send_multipart(frames)
                wrong.send_multipart(frames)
            if kind == zmq.DEALER and rng.random() < 0.2:
                wrong.send(bytes(2 * MIB))
        assert attached.kernel_info(reply=True, timeout=PATIENCE_S)


def asks_for_nonsense(rng: random.Random) -> None:
    with listener() as attached:
        comm_id = f"odd-{rng.getrandbits(60)}"
        open_comm(attached, comm_id, timeout=PATIENCE_S)
        huge = 1 << 62
        for data in [
            {"op": "read", "name": "fixed", "slices": [[-huge, huge, rng.choice([1, -huge])]]},
            {"op": "read", "name": "fixed", "slices": [rng.choice([6, -7, huge])]},
            {"op": "read", "name": "fixed", "fragment": huge},
            {"op": "overview", "name": "fixed", "shape": [huge, huge]},
            {"op": "histogram", "name": "fixed", "bins": rng.choice([0, -1, 65537, huge])},
            {"op": rng.choice(["read", "share", "unshare", "stats"]), "name": "x" * 300},
            {"op": "read", "name": "u", "dtype": "complex128", "generation": huge},
            [[[[[[]]]]]],
            {"op": "x" * 20000},
        ]:
            send(attached, "comm_msg", {"comm_id": comm_id, "data": data})
            time.sleep(0.005)
        drain(attached, 0.2)
        send(attached, "comm_close", {"comm_id": comm_id, "data": {}})


def raw_connection(info: dict[str, Any], channel: str) -> socket.socket:
    """Connect to one of the server's sockets without ZeroMQ."""
    if info["transport"] == "tcp":
        address = info["ip"], info[f"{channel}_port"]
        return socket.create_connection(address, timeout=PATIENCE_S)
    raw = socket.socket(socket.AF_UNIX)
    raw.settimeout(PATIENCE_S)
    raw.connect(socket_url(info, channel).removeprefix("ipc://"))
    return raw


def hangs_up(rng: random.Random) -> None:
    info = json.loads(connection_file().read_text())
    for _ in range(rng.randrange(1, 20)):
        channel = rng.choice(["shell", "iopub", "stdin", "control", "hb"])
        with raw_connection(info, channel) as raw:
            greeting = b"\xff" + bytes(8) + b"\x7f\3\0NULL" + bytes(48)
            raw.sendall(rng.choice([b"", b"GET / HTTP/1.0\r\n\r\n", greeting, rng.randbytes(200)]))
            if rng.random() < 0.5:  # reset the connection instead
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


# How often each is chosen, relative to the others.
DEEDS: dict[Callable[[random.Random], None], int] = {
    reads: 6,
    attaches_to_memory: 2,
    reduces: 4,
    reads_at_steps: 4,
    supersedes_and_cancels: 4,
    asks_as_jupyter_does: 2,
    vanishes: 4,
    stops_reading: 1,
    is_killed: 1,
    sends_nonsense: 4,
    asks_for_nonsense: 4,
    hangs_up: 4,
}
# The exceptions that a restart, or a client that delays the others, may cause. ValueError is
# jupyter_client's for a signature by the key of the restarted server.
LOSSES = (
    ServerLostError,
    TimeoutError,
    OSError,
    zmq.ZMQError,
    queue.Empty,
    RuntimeError,
    ValueError,
)


# --- The test -------------------------------------------------------------------------------------


def attempt(soak: Soak, deed: Callable[[random.Random], None], rng: random.Random) -> None:
    restarts = soak.restarts
    try:
        deed(rng)
    except Exception as error:
        what = f"{deed.__name__}: {type(error).__name__}: {str(error)[:300]}"
        if restarts % 2 == 0 and soak.restarts == restarts:
            soak.failures.append(what)
        elif isinstance(error, LOSSES):
            soak.lost[deed.__name__] += 1
        else:
            soak.failures.append(what)
    else:
        soak.done[deed.__name__] += 1


def busy(soak: Soak, seed: int, deadline: float) -> None:
    rng = random.Random(seed)
    while time.monotonic() < deadline and len(soak.failures) < 20:
        (deed,) = rng.choices(list(DEEDS), list(DEEDS.values()))
        attempt(soak, deed, rng)
    ensure_event_loop().close()  # jupyter_client makes one for each thread


def soak_for(soak: Soak, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    with ThreadPoolExecutor(THREADS) as threads:
        busy_ones = [threads.submit(busy, soak, seed, deadline) for seed in range(THREADS)]
        # A client that is interrupted by a restart waits for PATIENCE_S: too long for a short run.
        while time.monotonic() + RESTART_S < deadline:
            time.sleep(RESTART_S)
            soak.restart()
    for one in busy_ones:
        one.result()


@pytest.fixture(params=["ipc", "tcp"])
def soak(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Soak]:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    with process(SERVER, request.param) as running:
        yield Soak(running)


def short(held: Any) -> Any:
    return dict(Counter(held)) if isinstance(held, list) else held


def kinds(held: dict[str, Any]) -> tuple[Counter[str], int]:
    """Return the names of the threads, except those of streams, and how many of these there are.

    A stream is made where reads meet that are not at the same time as a rule, and kept.
    """
    names = Counter(held["threads"])
    return names, names.pop("gpufetch-stream")


# jupyter_client's thread for heartbeats may use its socket after the context is destroyed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_server_under_good_and_bad_clients_ends_as_it_began(soak: Soak) -> None:
    for deed in DEEDS:  # memory that is allocated once and kept
        attempt(soak, deed, random.Random(1))
    soak.restart()
    soak_for(soak, min(SECONDS, 10))
    before = soak.settled()
    soak_for(soak, SECONDS)
    after = soak.settled()
    print(f"\n{dict(soak.done)}, lost {dict(soak.lost)}, {soak.restarts // 2} restarts")
    for name in before:
        print(f"{name}: {short(before[name])} before, {short(after[name])} after")
    assert soak.failures == []
    assert set(soak.done) == {deed.__name__ for deed in DEEDS}
    assert after["replies"] == before["replies"] == 0
    assert after["descriptors"] == before["descriptors"]
    (threads, streams), (threads_before, streams_before) = kinds(after), kinds(before)
    assert threads == threads_before and streams - streams_before < 8
    if "san.so" not in os.environ.get("LD_PRELOAD", ""):  # sanitizers keep freed memory
        assert after["heap"] - before["heap"] < 8 * MIB
        assert after["resident"] - before["resident"] < 64 * MIB
