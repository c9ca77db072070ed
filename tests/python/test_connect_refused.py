"""Connections whose sockets the server's side refuses: ZeroMQ drops them without a word."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("jupyter_client")

import zmq
from serving import needs_server, process

import gpufetch as gf

pytestmark = [
    needs_server,
    pytest.mark.skipif(not zmq.has("curve"), reason="this pyzmq has no CurveZMQ"),
]

TIMEOUT_S = 2.0
# What a client that waits for ever would exceed, and one on a busy machine does not.
END_S = 60.0

CLIENT = f"""
import sys
import gpufetch as gf
run = None
for line in sys.stdin:
    try:
        run = run or gf.connect(sys.argv[1], timeout={TIMEOUT_S})
        print(run["x"].fetch().tolist(), flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
"""

SERVE = """
    server = gf.serve("refused", ip="127.0.0.1", port=int(sys.argv[1]), curve=bool(sys.argv[2]))
    server.publish("x", gf.to_device(np.ones(3)))
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def ask(path: Path) -> str:
    """What a client of a connection file says, which ends in time."""
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, str(path)],
        input="\n",
        capture_output=True,
        text=True,
        timeout=END_S,
        check=True,
    )
    return done.stdout


def write(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(json.dumps(content))
    path.chmod(0o600)
    return path


def of_curve(content: dict[str, Any]) -> dict[str, Any]:
    """A connection file's content with keys of CurveZMQ that no server has."""
    public, secret = zmq.curve_keypair()
    return content | {"curve_publickey": public.decode(), "curve_secretkey": secret.decode()}


@pytest.mark.parametrize("is_curve", [False, True])
def test_a_client_of_other_keys_ends_in_time(runtime: Path, is_curve: bool) -> None:
    with gf.serve("keys", ip="127.0.0.1", curve=is_curve) as server:
        content = json.loads(Path(server.connection_file).read_text())
        if is_curve:
            content = {name: content[name] for name in content if not name.startswith("curve_")}
        else:
            content = of_curve(content)
        assert ask(write(runtime / "other.json", content)).startswith("TimeoutError the server of ")


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_a_client_of_exchanged_ports_ends_in_time(runtime: Path, transport: Any) -> None:
    with gf.serve("ports", transport=transport) as server:
        content = json.loads(Path(server.connection_file).read_text())
        shell, iopub = content["shell_port"], content["iopub_port"]
        content |= {"shell_port": iopub, "iopub_port": shell}
        assert ask(write(runtime / "other.json", content)).startswith("TimeoutError the server of ")


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody uses now."""
    for first in range(20000 + time.time_ns() // 1000 % 10000, 40000, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise AssertionError("no ports are free")


@pytest.mark.parametrize("is_curve", [False, True])
def test_an_attached_client_that_the_next_server_refuses_ends_in_time(
    runtime: Path, is_curve: bool
) -> None:
    """As one on another machine, whose copy of the file is the first server's."""
    first_port = free_ports(5)
    path = runtime / "copy.json"
    curve = {True: "1", False: ""}
    with process(SERVE, str(first_port), curve[is_curve]) as first:
        content = json.loads((runtime / "kernel-refused.json").read_text())
        content["gpufetch"]["host"] = "elsewhere"
        client = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(write(path, content))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert client.stdin and client.stdout
            client.stdin.write("\n")
            client.stdin.flush()
            assert client.stdout.readline() == "[1.0, 1.0, 1.0]\n"
            first.kill()
            first.wait()
            with process(SERVE, str(first_port), curve[not is_curve]):
                said, _ = client.communicate("\n\n", timeout=END_S)
        finally:
            client.kill()
            client.wait()
    lines = said.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("TimeoutError the server of ") for line in lines)


def test_a_server_that_is_busy_for_the_whole_time_is_no_silent_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from gpufetch._remote.client import Client
    from gpufetch._remote.replies import ReplyError

    timeout = 0.2
    client = Client.__new__(Client)
    client._ready, client._under_way_max = {}, 1
    client._wire = SimpleNamespace(is_at_rest=True)  # type: ignore[assignment]
    left: list[float] = []

    def ask(request: Any, deadline: float) -> int:
        left.append(deadline - time.monotonic())
        return len(left)

    answer = {"error": {"code": "busy", "message": "replies fill what is allowed"}}
    monkeypatch.setattr(client, "_ask", ask)
    monkeypatch.setattr(client, "_reply", lambda number, deadline: (answer, []))
    with pytest.raises(ReplyError, match="replies fill what is allowed"):
        list(client.request([{"op": "list"}], timeout))
    assert len(left) > 1 and min(left) > 0.9 * timeout and client.is_at_rest
