"""Every message that is signed and says which one it is gets one answer and idle, however damaged.

The client here is made of plain ZeroMQ sockets, since jupyter_client does not send what is no JSON.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import random
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jupyter_client")

import zmq
from serving import needs_server

import gpufetch as gf

pytestmark = needs_server

COUNT = int(os.environ.get("GPUFETCH_REQUESTS_COUNT", "20000"))
WINDOW = 16  # messages without an answer
TIMEOUT_S = 30
DELIMITER = b"<IDS|MSG>"


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))


class PlainClient:
    """Sends sections as they are, and counts what comes back for each message.

    `answers` holds, by message id, the types of what was published or sent back for it in order,
    without busy and idle; a message that became idle is in `idle`.
    """

    def __init__(self, connection_file: str, context: zmq.Context[Any]) -> None:
        info = json.loads(Path(connection_file).read_text())
        self.key = info["key"].encode()
        self.session = uuid.uuid4().hex
        self.shell: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        self.iopub: zmq.Socket[bytes] = context.socket(zmq.SUB)
        self.iopub.subscribe(b"")
        for socket, name in ((self.shell, "shell"), (self.iopub, "iopub")):
            socket.linger = 0
            port = info[f"{name}_port"]
            is_tcp = info["transport"] == "tcp"
            socket.connect(f"tcp://{info['ip']}:{port}" if is_tcp else f"ipc://{info['ip']}-{port}")
        self.answers: dict[str, list[dict[str, Any]]] = {}
        self.idle: list[str] = []
        self.wait(lambda: "" in self.answers)  # iopub_welcome, which has no parent

    def header(self, kind: str, message_id: str) -> dict[str, Any]:
        header = {"msg_id": message_id, "msg_type": kind, "session": self.session}
        return {**header, "username": "u", "version": "5.3", "date": "2026-01-01T00:00:00Z"}

    def send(
        self, kind: str, content: bytes, header: bytes | None = None, message_id: str | None = None
    ) -> str:
        message_id = message_id or uuid.uuid4().hex
        if header is None:
            header = json.dumps(self.header(kind, message_id)).encode()
        sections = [header, b"{}", b"{}", content]
        digest = hmac.new(self.key, b"".join(sections), hashlib.sha256).hexdigest().encode()
        self.shell.send_multipart([DELIMITER, digest, *sections])
        return message_id

    def _take(self, frames: list[bytes]) -> None:
        sections = frames[frames.index(DELIMITER) + 2 :]
        header, parent, _, content = (json.loads(text) for text in sections[:4])
        message_id = parent.get("msg_id", "")
        if header["msg_type"] == "status":
            if content["execution_state"] == "idle":
                self.idle.append(message_id)
        else:
            found = {"type": header["msg_type"], "content": content}
            self.answers.setdefault(message_id, []).append(found)

    def wait(self, condition: Any) -> None:
        """Take messages until a condition is true."""
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, "not answered in time"
            for socket in (self.iopub, self.shell):
                while socket.poll(5 if socket is self.iopub else 0):
                    self._take(socket.recv_multipart())

    def ask(self, kind: str, content: bytes, header: bytes | None = None, **more: Any) -> Any:
        """Send a message and return its one answer; it must be idle too."""
        message_id = self.send(kind, content, header, **more)
        self.wait(lambda: message_id in self.idle and message_id in self.answers)
        (answer,) = self.answers[message_id]
        return answer


@contextlib.contextmanager
def stepping(server: gf.Server) -> Iterator[None]:
    """A program that completes steps all the time."""
    ends = threading.Event()

    def run() -> None:
        step = 0
        while not ends.wait(0.001):
            step += 1
            server.step(step)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


@pytest.fixture
def served() -> Iterator[gf.Server]:
    with gf.serve("requests", step_share=1) as server:
        server.publish("x", gf.to_device(np.arange(24, dtype=np.float32).reshape(4, 6)))
        with stepping(server):
            yield server


@pytest.fixture
def attached(served: gf.Server) -> Iterator[PlainClient]:
    with zmq.Context() as context:
        client = PlainClient(served.connection_file, context)
        try:
            opened = {"comm_id": "c", "target_name": "gpufetch", "data": {}}
            assert client.ask("comm_open", json.dumps(opened).encode())["type"] == "comm_msg"
            yield client
        finally:
            client.shell.close()
            client.iopub.close()


def on_comm(data: bytes) -> bytes:
    return b'{"comm_id": "c", "data": ' + data + b"}"


# --- What jansson, or Python's json, does not hold ---


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"op": "histogram", "id": 5, "name": "x", "bins": 1' + b"0" * 30 + b"}", "bins 1000000"),
        (b'{"op": "list", "id": 5, "skip": 18446744073709551616}', "skip 18446744073709551616"),
        (b'{"op": "read", "id": 5, "name": "x", "slices": [NaN]}', "slices [NaN]"),
        (b'{"op": "histogram", "id": 5, "name": "x", "range": [0, 1e999]}', "range [0, 1e999]"),
        (b'{"op": "read", "id": 5, "name": "\\u0000"}', 'name "\\u0000"'),
        (b'{"op": "read", "id": 5, "name": "\\ud800"}', 'name "\\ud800"'),
        (b'{"op": "read", "id": 5, "name": "\xff"}', 'name "?"'),
        (b'{"op": "read", "id": 5, "name": "x", "name": "x"}', "twice"),
        (b'{"op": "read", "id": 5, "name": "x", "slices": [{"a": 1, "a": 2}]}', "duplicate"),
    ],
)
def test_a_value_that_cannot_be_read_is_named_in_the_reply(
    attached: PlainClient, data: bytes, message: str
) -> None:
    answer = attached.ask("comm_msg", on_comm(data))
    reply = answer["content"]["data"]
    assert (answer["type"], reply["id"], reply["error"]["code"]) == ("comm_msg", 5, "bad_request")
    assert message in reply["error"]["message"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"code": "\\ud800"}',
        b'{"code": "\xff\xfe"}',
        b'{"cursor_pos": 1' + b"0" * 40 + b"}",
        b'{"silent": NaN}',
        b'{"code": "1", "code": "2"}',
        b'{"code": "1"',
    ],
)
def test_a_request_that_cannot_be_read_is_answered_by_an_error(
    attached: PlainClient, content: bytes
) -> None:
    for kind in ("execute", "complete", "kernel_info", "shutdown"):
        answer = attached.ask(f"{kind}_request", content)
        assert answer["type"] == f"{kind}_reply" and answer["content"]["status"] == "error"
        assert answer["content"]["ename"] == "ValueError" and answer["content"]["evalue"]
    answer = attached.ask("comm_msg", on_comm(b'{"op": "list"}'))
    assert "error" not in answer["content"]["data"]


def test_a_comm_message_that_cannot_be_told_is_answered(attached: PlainClient) -> None:
    assert attached.ask("comm_msg", b"")["type"] == "error"
    assert attached.ask("comm_msg", b'{"comm_id": 7, "data": {}}')["type"] == "error"
    assert attached.ask("comm_msg", b'{"comm_id": "other", "data": {}}')["type"] == "comm_close"
    answer = attached.ask(
        "comm_msg", b'{"comm_id": "c", "x": NaN, "data": {"op": "list", "id": 1}}'
    )
    assert answer["content"]["data"]["id"] == 1
    assert answer["content"]["data"]["error"]["code"] == "bad_request"


def test_a_header_with_a_member_that_cannot_be_read_is_answered(attached: PlainClient) -> None:
    for username in (b'"\\udc80"', b"NaN", b'"\xff"'):
        message_id = uuid.uuid4().hex
        header = json.dumps(attached.header("kernel_info_request", message_id)).encode()
        header = header.replace(b'"u"', username)
        answer = attached.ask("kernel_info_request", b"{}", header, message_id=message_id)
        assert answer["content"]["status"] == "error"


# --- Random requests ---

RANDOM = random.Random(14)
OPS = ("list", "read", "overview", "stats", "histogram", "subscribe", "share", "unshare", "cancel")
KINDS = ("kernel_info", "complete", "inspect", "history", "is_complete", "comm_info", "execute")
ODD = (
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"18446744073709551616",
    b"-9223372036854775809",
    b"1" + b"0" * 400,
    b'"\\u0000"',
    b'"\\ud800"',
    b'"\\udfff\\ud800"',
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b"[[[[[[[[]]]]]]]]",
    b'{"a": 1, "a": 2}',
    b"9223372036854775807",
    b"-9223372036854775808",
    b"5e-324",
    b"-0.0",
    b"",
    b"\x00",
    b"tru",
)


def odd_value() -> bytes:
    if RANDOM.random() < 0.5:
        return RANDOM.choice(ODD)
    value = RANDOM.choice(
        [None, True, 0, -1, 3, 0.5, "x", "live", "step", [], [1, 2], {}, [[0, 4, 2]]]
    )
    return json.dumps(value).encode()


def random_data() -> bytes:
    members = [(b'"op"', json.dumps(RANDOM.choice(OPS)).encode()), (b'"name"', b'"x"')]
    names = (
        "id",
        "slices",
        "at",
        "supersede",
        "dtype",
        "shape",
        "method",
        "range",
        "after",
        "bins",
    )
    names += ("request", "generation", "publication", "hold", "fragment", "skip", "op", "name")
    names += ("b\\u0069ns", "\\ud800")
    for _ in range(RANDOM.randrange(4)):
        members.append((f'"{RANDOM.choice(names)}"'.encode(), odd_value()))
    RANDOM.shuffle(members)
    return b"{" + b", ".join(name + b": " + value for name, value in members) + b"}"


def damaged(text: bytes) -> bytes:
    for _ in range(RANDOM.randrange(3)):
        at = RANDOM.randrange(len(text) + 1)
        change = RANDOM.randrange(4)
        if change == 0:
            text = text[:at]
        elif change == 1:
            text = text[:at] + bytes([RANDOM.randrange(256)]) + text[at + 1 :]
        elif change == 2:
            text = text[:at] + text[at + 1 :]
        else:
            text = text[:at] + RANDOM.choice(ODD) + text[at:]
    return text


def random_message() -> tuple[str, bytes]:
    if RANDOM.random() < 0.7:
        data = random_data()
        content = on_comm(damaged(data) if RANDOM.random() < 0.5 else data)
        return "comm_msg", damaged(content) if RANDOM.random() < 0.2 else content
    text = b'{"code": "x", "cursor_pos": 1, "silent": true, "target_name": "gpufetch"}'
    return f"{RANDOM.choice(KINDS)}_request", damaged(text)


def test_each_of_many_random_and_damaged_requests_has_one_answer_and_idle(
    attached: PlainClient,
) -> None:
    sent: dict[str, tuple[str, bytes]] = {}
    errors = 0

    def under_way() -> int:
        return len(sent) - len(set(attached.idle) & sent.keys())

    def check() -> None:
        nonlocal errors
        for message_id, (kind, content) in sent.items():
            answers = attached.answers.pop(message_id, [])
            of_comm = ("comm_msg", "error", "comm_close")
            expected = of_comm if kind == "comm_msg" else (kind.replace("_request", "_reply"),)
            found = [answer for answer in answers if answer["type"] in expected]
            assert len(found) == 1, (kind, content, answers)
            errors += "error" in json.dumps(found[0]["content"])
        assert sorted(attached.idle) == sorted(sent)
        sent.clear()
        attached.idle.clear()

    attached.idle.clear()
    for number in range(COUNT):
        kind, content = random_message()
        sent[attached.send(kind, content)] = kind, content
        attached.wait(lambda: under_way() < WINDOW)
        if number % 500 == 499:
            attached.wait(
                lambda: under_way() == 0 and all(found in attached.answers for found in sent)
            )
            check()
    attached.wait(lambda: under_way() == 0 and all(found in attached.answers for found in sent))
    check()
    assert COUNT // 10 < errors < COUNT * 9 // 10
