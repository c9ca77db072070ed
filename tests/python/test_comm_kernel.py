"""The comm target in a real kernel: on its main thread, in subshells, while code runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zmq

pytest.importorskip("ipykernel")
pytest.importorskip("jupyter_client")

from comm_build import needs_comm
from jupyter_client.manager import start_new_kernel

import gpufetch as gf
from gpufetch._remote import published_tensor

pytestmark = needs_comm

TIMEOUT_S = 60
SHAPE = (3, 4, 5)

SETUP = """
import time
import numpy as np
import gpufetch as gf
%load_ext gpufetch
d_field = gf.to_device(np.arange(60, dtype=np.float32).reshape(3, 4, 5))
d_large = gf.to_device(np.zeros((3, 1 << 22), np.uint8))
gf.publish("model/weight", gf.to_device(np.ones(7)))
"""


class Client:
    """A front end with one comm. Sending a message returns the comm messages up to its idle."""

    def __init__(self, channels: Any, comm_id: str = "test-comm") -> None:
        self.channels = channels
        self.comm_id = comm_id

    def send(
        self, kind: str, content: dict[str, Any], subshell: str | None = None, buffers: Any = None
    ) -> list[Any]:
        message = self.channels.session.msg(kind, {"comm_id": self.comm_id, **content})
        message["buffers"] = buffers or []
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        self.channels.shell_channel.send(message)
        answers = []
        while True:
            answer = self.channels.get_iopub_msg(timeout=TIMEOUT_S)
            if answer["parent_header"].get("msg_id") != message["header"]["msg_id"]:
                assert not answer["msg_type"].startswith("comm_"), "sent unasked"
            elif answer["msg_type"].startswith("comm_"):
                answers.append(answer)
            elif answer["content"].get("execution_state") == "idle":
                return answers

    def open(self, data: Any = None, subshell: str | None = None) -> list[Any]:
        return self.send("comm_open", {"target_name": "gpufetch", "data": data or {}}, subshell)

    def close(self) -> list[Any]:
        return self.send("comm_close", {"data": {}})

    def ask(self, request: Any, subshell: str | None = None) -> tuple[dict[str, Any], list[Any]]:
        (answer,) = self.send("comm_msg", {"data": request}, subshell)
        assert answer["msg_type"] == "comm_msg"
        assert answer["content"]["comm_id"] == self.comm_id
        return answer["content"]["data"], [bytes(buffer) for buffer in answer["buffers"]]


@pytest.fixture(scope="module")
def channels() -> Iterator[Any]:
    kernel, channels = start_new_kernel(kernel_name="python3", startup_timeout=TIMEOUT_S)
    try:
        reply = channels.execute_interactive(SETUP, timeout=TIMEOUT_S)
        assert reply["content"]["status"] == "ok", reply["content"]
        yield channels
    finally:
        channels.stop_channels()
        kernel.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def subshell(channels: Any) -> str:
    """Return the id of a new subshell, which is another thread that handles messages."""
    info = channels.kernel_info(reply=True, timeout=TIMEOUT_S)["content"]
    if "kernel subshells" not in info.get("supported_features", []):
        pytest.skip("this ipykernel has no subshells")
    message = channels.session.msg("create_subshell_request", {})
    channels.control_channel.send(message)
    while True:
        reply = channels.get_control_msg(timeout=TIMEOUT_S)
        if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
            return str(reply["content"]["subshell_id"])


def field_of(reply: dict[str, Any], buffers: list[bytes]) -> Any:
    assert "error" not in reply, reply
    return np.frombuffer(buffers[0], reply["dtype"]).reshape(reply["shape"])


FIELD = np.arange(60, dtype=np.float32).reshape(SHAPE)


def test_a_kernel_answers_a_front_end(channels: Any) -> None:
    client = Client(channels)
    (hello,) = client.open()
    data = hello["content"]["data"]
    assert (data["op"], data["protocol"], data["version"]) == ("hello", 1, gf.__version__)
    assert "subscribe" not in data["operations"]
    assert not data["steps"]

    reply, _ = client.ask({"op": "list", "id": "a"})
    assert reply["id"] == "a"
    assert [t["name"] for t in reply["tensors"]] == ["model/weight", "d_field", "d_large"]

    request = {"op": "read", "name": "d_field", "slices": [1, [None, None, -2]]}
    assert np.array_equal(field_of(*client.ask(request)), FIELD[1, ::-2])
    assert np.array_equal(field_of(*client.ask({"op": "read", "name": "model/weight"})), np.ones(7))
    reply, (part,) = client.ask({"op": "read", "name": "d_large", "fragment": 2})
    assert (reply["fragments"], len(part)) == (3, 4 << 20)
    reply, _ = client.ask({"op": "stats", "name": "d_field"})
    assert reply["mean"] == FIELD.mean()
    assert client.close() == []


def test_a_kernel_refuses_what_does_not_fit(channels: Any) -> None:
    client = Client(channels)
    refusal, close = client.open({"protocol": 2})
    assert refusal["content"]["data"]["error"]["code"] == "unsupported_protocol"
    assert close["msg_type"] == "comm_close"
    client.open()
    refused = [
        ({"op": "read", "name": "nobody"}, "unknown_name"),
        ({"op": "read", "name": "d_field", "slices": [[0, 1, 0]]}, "bad_slice"),
        ({"op": "read", "name": "d_field", "at": "step"}, "unsupported"),
        ({"op": "read", "name": "d_large"}, "too_large"),
        ("list", "bad_request"),
    ]
    for request, code in refused:
        reply, buffers = client.ask(request)
        assert (reply["error"]["code"], buffers) == (code, [])
    (answer,) = client.send("comm_msg", {"data": {"op": "list"}}, buffers=[b"junk"])
    assert answer["content"]["data"]["error"]["code"] == "bad_request"
    assert client.close() == []
    assert client.send("comm_msg", {"data": {"op": "list"}}) == []
    (hello,) = client.open()
    assert hello["content"]["data"]["op"] == "hello"
    assert client.close() == []


def test_comms_are_served_from_the_main_thread_and_a_subshell(channels: Any, subshell: str) -> None:
    clients = [(Client(channels, "main"), None), (Client(channels, "aside"), subshell)]
    for client, thread in clients:
        client.open(subshell=thread)
    for i in range(6):
        for client, thread in clients:
            request = {"op": "read", "name": "d_field", "slices": [i % 3]}
            assert np.array_equal(field_of(*client.ask(request, thread)), FIELD[i % 3])
    for client, _ in clients:
        client.close()


def test_a_subshell_answers_while_a_cell_runs(channels: Any, subshell: str) -> None:
    client = Client(channels, "busy")
    client.open()
    cell = "running = True\nwhile running:\n    time.sleep(0.01)\n"
    message_id = channels.execute(cell)
    reply, buffers = client.ask({"op": "read", "name": "d_field"}, subshell)
    assert np.array_equal(field_of(reply, buffers), FIELD)
    reply, _ = client.ask({"op": "stats", "name": "model/weight"}, subshell)
    assert reply["mean"] == 1.0

    stop = channels.session.msg("execute_request", {"code": "running = False", "silent": False})
    stop["header"]["subshell_id"] = subshell
    channels.shell_channel.send(stop)
    ended = {}
    while message_id not in ended:
        reply = channels.get_shell_msg(timeout=TIMEOUT_S)
        ended[reply["parent_header"]["msg_id"]] = reply["content"]["status"]
    assert set(ended.values()) == {"ok"}
    client.close()


def test_a_viewer_answers_beside_the_cell_that_refreshes_it(channels: Any, subshell: str) -> None:
    """Also if it was not asked before the cell began."""
    pytest.importorskip("anywidget")
    comm_id = run(channels, "viewer = gf.view(d_field); print(viewer.comm.comm_id)").strip()
    cell = "running = True\nwhile running:\n    viewer.refresh()\n    time.sleep(0.01)\n"
    running = channels.execute(cell)
    request = {"id": "1", "op": "tile", "panel": 0, "index": [1], "levels": [0, 0], "place": [0, 0]}
    data = {"comm_id": comm_id, "data": {"method": "custom", "content": request}}
    for _ in range(3):
        sent = send_aside(channels, subshell, "comm_msg", data)
        (reply,) = [one for one in until_idle(channels, sent) if one["msg_type"] == "comm_msg"]
        values = np.frombuffer(bytes(reply["buffers"][0]), np.float32)
        assert np.array_equal(values.reshape(SHAPE[1:]), FIELD[1])
    send_aside(channels, subshell, "execute_request", {"code": "running = False", "silent": True})
    until_idle(channels, running)
    kept = run(channels, "print(len(getattr(viewer.comm, '_reply_subshell_ids', ())))")
    assert int(kept) <= 1


def send_aside(channels: Any, subshell: str, kind: str, content: dict[str, Any]) -> str:
    """Send a message to a subshell, and return its id."""
    message = channels.session.msg(kind, content)
    message["header"]["subshell_id"] = subshell
    channels.shell_channel.send(message)
    return str(message["header"]["msg_id"])


def until_idle(channels: Any, sent: str) -> list[Any]:
    """The messages that belong to one that was sent, until it has been handled."""
    answers: list[Any] = []
    while not answers or answers[-1]["content"].get("execution_state") != "idle":
        answer = channels.get_iopub_msg(timeout=TIMEOUT_S)
        if answer["parent_header"].get("msg_id") == sent:
            answers.append(answer)
    return answers


def run(channels: Any, code: str) -> str:
    """Run a cell, and return what it printed."""
    printed: list[str] = []

    def take(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    reply = channels.execute_interactive(code, timeout=TIMEOUT_S, output_hook=take)
    assert reply["content"]["status"] == "ok", reply["content"]
    return "".join(printed)


def test_a_comm_id_may_be_opened_again_and_the_extension_reloaded(channels: Any) -> None:
    again = Client(channels, "again")
    for _ in range(3):
        (hello,) = again.open()
        assert hello["content"]["data"]["op"] == "hello"
    # Those that were replaced do not close the last one when they are freed.
    sent = until_idle(channels, channels.execute("import gc; _ = gc.collect()"))
    assert not any(message["msg_type"] == "comm_close" for message in sent)
    assert "error" not in again.ask({"op": "list"})[0]
    refusal, close = again.open({"protocol": 2})
    assert "error" in refusal["content"]["data"] and close["msg_type"] == "comm_close"
    run(channels, "%reload_ext gpufetch")
    (hello,) = again.open()
    assert hello["content"]["data"]["op"] == "hello"
    again.close()


def test_comms_of_closed_pages_make_way_for_new_ones(channels: Any) -> None:
    used = Client(channels, "used")
    used.open()
    for number in range(300):
        messages = Client(channels, f"page-{number}").open()
        hello = next(m for m in messages if m["content"]["comm_id"] == f"page-{number}")
        assert hello["content"]["data"]["op"] == "hello", number
        closed = [m["content"]["comm_id"] for m in messages if m["msg_type"] == "comm_close"]
        assert closed == ([f"page-{number - 255}"] if number >= 255 else [])
        if number % 50 == 0:
            assert "error" not in used.ask({"op": "list"})[0]
    comms = channels.comm_info(target_name="gpufetch", reply=True, timeout=TIMEOUT_S)
    assert len(comms["content"]["comms"]) == 256
    assert "error" not in used.ask({"op": "read", "name": "d_field"})[0]
    assert "error" not in Client(channels, "page-299").ask({"op": "list"})[0]


@pytest.mark.parametrize(
    "how", ["del d_shared", "d_shared = gf.to_device(np.ones(9))", "%reset -f"]
)
def test_a_share_lets_go_of_a_tensor_that_is_gone(how: str) -> None:
    kernel, channels = start_new_kernel(kernel_name="python3", startup_timeout=TIMEOUT_S)
    try:
        run(channels, SETUP)
        run(
            channels,
            "import builtins, weakref\n"
            "d_shared, d_kept = gf.to_device(np.ones(8)), gf.to_device(np.ones(8))\n"
            "builtins.refs = [weakref.ref(d_shared), weakref.ref(d_kept)]",
        )
        client = Client(channels)
        client.open()
        shared, _ = client.ask({"op": "share", "name": "d_shared"})
        kept, _ = client.ask({"op": "share", "name": "d_kept"})
        assert "handle" in shared and "handle" in kept
        run(channels, how)
        alive = run(channels, "import gc; gc.collect(); print([ref() is not None for ref in refs])")
        assert alive == f"[False, {how != '%reset -f'}]\n"
        with pytest.raises(gf.Error, match="has withdrawn it"):
            gf.attach(shared["handle"])
        if how != "%reset -f":
            assert client.ask({"op": "share", "name": "d_kept"})[0]["handle"] == kept["handle"]
    finally:
        channels.stop_channels()
        kernel.shutdown_kernel(now=True)


def test_publishing_alone_makes_a_comm_target() -> None:
    kernel, channels = start_new_kernel(kernel_name="python3", startup_timeout=TIMEOUT_S)
    try:
        code = "import gpufetch as gf, numpy as np\ngf.publish('w', gf.to_device(np.ones(3)))"
        reply = channels.execute_interactive(code, timeout=TIMEOUT_S)
        assert reply["content"]["status"] == "ok", reply["content"]
        client = Client(channels)
        client.open()
        assert np.array_equal(field_of(*client.ask({"op": "read", "name": "w"})), np.ones(3))
    finally:
        channels.stop_channels()
        kernel.shutdown_kernel(now=True)


def test_connect_reads_the_tensors_of_a_kernel() -> None:
    kernel, channels = start_new_kernel(kernel_name="python3", startup_timeout=TIMEOUT_S)
    field = np.arange(60, dtype=np.float32).reshape(3, 4, 5)

    def run_cell(code: str) -> None:
        reply = channels.execute_interactive(code, timeout=TIMEOUT_S)
        assert reply["content"]["status"] == "ok", reply["content"]

    try:
        run_cell(SETUP)
        with gf.connect(kernel.connection_file, timeout=TIMEOUT_S) as run:
            assert {"d_field", "d_large", "model/weight"} <= set(run)
            d_field = run["d_field"]
            assert (d_field[:, None, 1:, ::2].fetch() == field[:, None, 1:, ::2]).all()
            assert d_field.stats().mean == field.mean()
            large = run["d_large"]  # in several fragments, or through shared memory
            assert not large.fetch().any() and large.shape == (3, 1 << 22)
            assert (run["model/weight"].fetch() == 1).all()
            # As soon as the name stands for a tensor of another shape, its indices mean something
            # else; one of the same shape is what the name stands for.
            run_cell("d_field = gf.to_device(np.full((3, 4, 5), 7, np.float32))")
            assert (d_field[1:].fetch() == 7).all()
            run_cell("d_field = gf.to_device(np.zeros((6, 4, 5), np.float32))")
            for read in (d_field[1:2].fetch, d_field.stats, lambda: d_field.overview((1, 1, 1))):
                with pytest.raises(RuntimeError, match="look it up anew"):
                    read()
            run_cell("del d_field")
            with pytest.raises(KeyError, match="d_field"):
                d_field.fetch()
    finally:
        channels.stop_channels()
        kernel.shutdown_kernel(now=True)


def test_what_a_name_stands_for_while_it_is_read_is_not_taken_for_another(
    channels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(channels, "d_kept = d_swapped = gf.to_device(np.zeros((4, 6), np.float32))")
    with gf.connect(channels.connection_file, timeout=TIMEOUT_S) as connection:
        swapped = connection["d_swapped"]
        ask = connection.session.request

        def ask_meanwhile(request: dict[str, Any], timeout: float | None = None) -> Any:
            if request["op"] != "list":
                run(channels, "d_swapped = gf.to_device(np.ones((8, 9), np.float32))")
            try:
                return ask(request, timeout)
            finally:
                run(channels, "d_swapped = d_kept")

        monkeypatch.setattr(connection.session, "request", ask_meanwhile)
        reads = (
            swapped[1, :2].fetch,
            swapped[:2, :2].stats,
            lambda: swapped.overview((2, 2)),
            swapped.histogram,
        )
        for read in reads:
            with pytest.raises(RuntimeError, match=r"\(8, 9\) there now, .*look it up anew"):
                read()
    run(channels, "del d_kept, d_swapped")


def test_connect_finds_a_kernel_again_that_was_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_tensor, "_SHARE_NBYTES_MIN", 1)
    kernel, channels = start_new_kernel(kernel_name="python3", startup_timeout=TIMEOUT_S)
    cell = (
        "%load_ext gpufetch\nimport gpufetch as gf, numpy as np\nx = gf.to_device(np.ones(3) * {})"
    )
    try:
        channels.execute_interactive(cell.format(1), timeout=TIMEOUT_S)
        with gf.connect(kernel.connection_file, timeout=TIMEOUT_S) as run:
            x = run["x"]
            assert x.fetch().tolist() == [1, 1, 1]
            assert run.data_path.startswith("messages: an IPython kernel")
            kernel.restart_kernel(now=True)
            channels.wait_for_ready(timeout=TIMEOUT_S)
            channels.execute_interactive(cell.format(2), timeout=TIMEOUT_S)
            assert x.fetch().tolist() == [2, 2, 2]
    finally:
        channels.stop_channels()
        kernel.shutdown_kernel(now=True)


def test_a_subscription_that_a_kernel_overlooked_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from gpufetch._remote.client import Client, ServerSilentError

    options: list[int] = []
    client = Client.__new__(Client)
    iopub = SimpleNamespace(setsockopt=lambda option, value: options.append(option))
    client._wire = SimpleNamespace(iopub=iopub, is_at_rest=True)  # type: ignore[assignment]
    client._comm_id = "1"
    hello = {"limits": {"reply_nbytes": 1, "in_flight": 1}, "instance": "i"}
    messages: list[Any] = [
        None,  # nothing, for a second
        {"msg_type": "iopub_welcome"},
        {"msg_type": "iopub_welcome"},  # the one that was overlooked
        {"msg_type": "comm_msg", "content": {"data": hello}},
    ]

    def receive(deadline: float) -> Any:
        message = messages.pop(0)
        if message is None:
            raise ServerSilentError("nothing came")
        return message

    monkeypatch.setattr(client, "_receive", receive)
    monkeypatch.setattr(client, "_send", lambda *arguments: None)
    client._attach(time.monotonic() + TIMEOUT_S)
    assert options.count(zmq.SUBSCRIBE) == 2 and client.instance == "i" and not messages
