"""The comm target: the dispatcher under hostile messages, and end to end in a real kernel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import hypothesis
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("ipykernel")
pytest.importorskip("jupyter_client")

from jupyter_client.manager import start_new_kernel

import gpufetch as gf
from gpufetch.jupyter.comm import MAX_REPLY_NBYTES, TARGET_NAME, CommTarget, Dispatcher

SHAPE = (6, 5, 7)
TIMEOUT_S = 60


class Poisoned:
    """No client may ever cause an attribute of a variable to be read."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"asked for {name}")


class Sparse:
    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("sparse: call to_dense() first")


@pytest.fixture(scope="module")
def field() -> Any:
    return np.random.default_rng(11).normal(size=SHAPE).astype(np.float32)


@pytest.fixture(scope="module")
def dispatcher(field: Any) -> Dispatcher:
    d_field = gf.to_device(field)
    namespace = {
        "d_field": d_field,
        "lazy": gf.lazy(d_field),
        "lazy_view": gf.lazy(d_field)[1:, ::-1].T,
        "d_half": gf.to_device(np.arange(5, dtype=ml_dtypes.bfloat16)),
        "d_empty": gf.to_device(np.zeros((0, 3), np.int8)),
        "d_point": gf.to_device(np.float64(2.5)),
        "d_large": gf.to_device(np.zeros((3, MAX_REPLY_NBYTES), np.uint8)),
        "_hidden": d_field,
        "array": np.zeros(3),
        "poisoned": Poisoned(),
        "sparse": Sparse(),
        7: d_field,
    }
    return Dispatcher(lambda: namespace)  # type: ignore[arg-type,return-value]


def values_of(reply: dict[str, Any], buffers: list[Any]) -> Any:
    assert "error" not in reply
    (buffer,) = buffers
    assert len(bytes(buffer)) == reply["nbytes"]
    names = {"bfloat16": ml_dtypes.bfloat16}
    dtype = np.dtype(names.get(reply["dtype"], reply["dtype"]))
    return np.frombuffer(bytes(buffer), dtype).reshape(reply["shape"])


def error_of(answer: tuple[dict[str, Any], list[Any]]) -> dict[str, str]:
    reply, buffers = answer
    assert buffers == []
    assert set(reply["error"]) == {"code", "message"}
    assert "Traceback" not in reply["error"]["message"]
    error: dict[str, str] = reply["error"]
    return error


def test_a_list_names_the_device_tensors_alone(dispatcher: Dispatcher) -> None:
    reply, buffers = dispatcher.handle({"op": "list", "id": 3})
    assert (reply["id"], reply["op"], reply["truncated"], buffers) == (3, "list", False, [])
    tensors = {tensor.pop("name"): tensor for tensor in reply["tensors"]}
    names = ["d_empty", "d_field", "d_half", "d_large", "d_point", "lazy", "lazy_view", "sparse"]
    assert sorted(tensors) == names
    assert "problem" in tensors["sparse"]
    assert tensors["d_field"] == {
        "framework": "gpufetch",
        "shape": list(SHAPE),
        "dtype": "float32",
        "nbytes": 840,
        "device": gf.to_device(np.zeros(1)).device,
    }


@pytest.mark.parametrize(
    ("slices", "key"),
    [
        ([], ...),
        ([2], 2),
        ([-1, 0, 6], (-1, 0, 6)),
        ([[None, None, -1]], np.s_[::-1]),
        ([[1, 100, 2], 3, [None, -2, None]], np.s_[1:100:2, 3, :-2]),
        ([[5, 1, 1]], np.s_[5:1:1]),
        ([[-(1 << 63), (1 << 63) - 1, (1 << 63) - 1]], np.s_[:: (1 << 63) - 1]),
    ],
)
def test_a_read_agrees_with_numpy(
    dispatcher: Dispatcher, field: Any, slices: Any, key: Any
) -> None:
    for name in ("d_field", "lazy"):
        reply, buffers = dispatcher.handle({"op": "read", "name": name, "slices": slices})
        values = values_of(reply, buffers)
        assert values.tobytes() == field[key].tobytes()
        assert values.shape == field[key].shape
        json.dumps(reply, allow_nan=False)


def test_a_lazy_view_is_read_as_the_view(dispatcher: Dispatcher, field: Any) -> None:
    reply, buffers = dispatcher.handle({"op": "read", "name": "lazy_view", "slices": [[1, 5, 2]]})
    assert np.array_equal(values_of(reply, buffers), field[1:, ::-1].T[1:5:2])


@pytest.mark.parametrize(
    ("name", "dtype", "shape"),
    [("d_half", "bfloat16", [5]), ("d_empty", "int8", [0, 3]), ("d_point", "float64", [])],
)
def test_an_odd_tensor_is_read(
    dispatcher: Dispatcher, name: str, dtype: str, shape: list[int]
) -> None:
    reply, buffers = dispatcher.handle({"op": "read", "name": name})
    values_of(reply, buffers)
    assert (reply["dtype"], reply["shape"], reply["byteorder"]) == (dtype, shape, "little")


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (None, "bad_request", "object"),
        ([], "bad_request", "object"),
        ({}, "unknown_op", "None"),
        ({"op": "drop"}, "unknown_op", "'drop'"),
        ({"op": ["read"]}, "unknown_op", "read"),
        ({"op": "list", "id": 1.5}, "bad_request", "1.5"),
        ({"op": "list", "id": "x" * 65}, "bad_request", "64"),
        ({"op": "list", "id": "\ud800"}, "bad_request", "ASCII"),
        ({"op": "list", "id": 1 << 64}, "bad_request", "64-bit"),
        ({"op": "list", "id": True}, "bad_request", "True"),
        ({"op": "read"}, "bad_request", "None"),
        ({"op": "read", "name": "d_field[0]"}, "bad_request", "identifiers"),
        ({"op": "read", "name": "__import__('os')"}, "bad_request", "identifiers"),
        ({"op": "read", "name": "_hidden"}, "bad_request", "underscore"),
        ({"op": "read", "name": "x" * 201}, "bad_request", "200"),
        ({"op": "read", "name": 7}, "bad_request", "7"),
        ({"op": "read", "name": "d_gone"}, "unknown_name", "d_gone"),
        ({"op": "read", "name": "array"}, "unknown_name", "ndarray"),
        ({"op": "read", "name": "poisoned"}, "unknown_name", "Poisoned"),
        ({"op": "read", "name": "sparse"}, "unreadable", "sparse"),
        ({"op": "read", "name": "d_field", "slices": "0"}, "bad_slice", "'0'"),
        ({"op": "read", "name": "d_field", "slices": {"0": 1}}, "bad_slice", "list"),
        ({"op": "read", "name": "d_field", "slices": [0] * 33}, "bad_slice", "32"),
        ({"op": "read", "name": "d_field", "slices": [0, 0, 0, 0]}, "bad_slice", "(6, 5, 7)"),
        ({"op": "read", "name": "d_field", "slices": [6]}, "bad_slice", "length 6"),
        ({"op": "read", "name": "d_field", "slices": [0, -6]}, "bad_slice", "axis 1"),
        ({"op": "read", "name": "d_field", "slices": [True]}, "bad_slice", "True"),
        ({"op": "read", "name": "d_field", "slices": [1.0]}, "bad_slice", "1.0"),
        ({"op": "read", "name": "d_field", "slices": [None]}, "bad_slice", "None"),
        ({"op": "read", "name": "d_field", "slices": [[0, 1]]}, "bad_slice", "[0, 1]"),
        ({"op": "read", "name": "d_field", "slices": [[0, 1, 0]]}, "bad_slice", "step 0"),
        ({"op": "read", "name": "d_field", "slices": [[0, 1.5, 1]]}, "bad_slice", "1.5"),
        ({"op": "read", "name": "d_field", "slices": [1 << 63]}, "bad_slice", "64-bit"),
        ({"op": "read", "name": "d_point", "slices": [0]}, "bad_slice", "shape ()"),
    ],
)
def test_a_bad_request_is_refused_by_name(
    dispatcher: Dispatcher, request_: Any, code: str, message: str
) -> None:
    error = error_of(dispatcher.handle(request_))
    assert error["code"] == code
    assert message in error["message"]
    assert len(error["message"]) < 500
    error["message"].encode()


def test_a_huge_read_is_refused_before_it_is_copied(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = {"op": "read", "name": "d_large"}
    with monkeypatch.context() as patch:
        patch.setattr("gpufetch._core.fetch", lambda x: pytest.fail("it was copied"))
        error = error_of(dispatcher.handle(request))
    assert error["code"] == "too_large"
    assert str(3 * MAX_REPLY_NBYTES) in error["message"]
    assert "in parts" in error["message"]
    reply, _ = dispatcher.handle({**request, "slices": [1]})
    assert reply["nbytes"] == MAX_REPLY_NBYTES


def test_a_failing_copy_is_answered(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(x: Any) -> Any:
        raise RuntimeError("the device is gone \udc80")

    monkeypatch.setattr("gpufetch._core.fetch", fail)
    error = error_of(dispatcher.handle({"op": "read", "name": "d_field"}))
    assert error["code"] == "unreadable"
    assert "the device is gone" in error["message"]
    error["message"].encode()


def test_a_namespace_that_fails_is_answered() -> None:
    def fail() -> Any:
        raise KeyError("no namespace")

    assert error_of(Dispatcher(fail).handle({"op": "list"}))["code"] == "internal"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
plausible_slices = st.lists(
    st.integers(-8, 8)
    | st.lists(st.none() | st.integers(-9, 9) | st.integers(), min_size=3, max_size=3)
    | json_values,
    max_size=5,
)
requests = json_values | st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from(["list", "read"]) | json_values,
        "id": st.integers() | st.text() | json_values,
        "name": st.sampled_from(["d_field", "d_large", "d_point", "_hidden", "poisoned"])
        | json_values,
        "slices": plausible_slices | json_values,
    },
)


@hypothesis.given(request=requests)
@hypothesis.settings(max_examples=400, deadline=None)
def test_a_hostile_request_is_answered(dispatcher: Dispatcher, request: Any) -> None:
    reply, buffers = dispatcher.handle(request)
    text = json.dumps(reply, allow_nan=False, ensure_ascii=False).encode()
    assert len(text) + sum(len(buffer) for buffer in buffers) < MAX_REPLY_NBYTES + 4096
    if "error" in reply:
        error_of((reply, buffers))
        assert reply["error"]["code"] != "internal"
    else:
        assert reply["op"] == request["op"]
        assert len(buffers) == (reply["op"] == "read")
    if isinstance(request, dict) and "id" in reply:
        assert reply["id"] == request["id"]


class FakeComm:
    comm_id = "c1"

    def __init__(self) -> None:
        self.sent: list[tuple[Any, Any]] = []
        self.closed = False

    def on_msg(self, callback: Any) -> None:
        self.receive = callback

    def on_close(self, callback: Any) -> None:
        self.end = callback

    def send(self, data: Any, buffers: Any = None) -> None:
        self.sent.append((data, buffers))

    def close(self) -> None:
        self.closed = True


class FakeManager:
    def __init__(self) -> None:
        self.targets: dict[str, Any] = {}

    def register_target(self, name: str, callback: Any) -> None:
        self.targets[name] = callback

    def unregister_target(self, name: str, callback: Any) -> None:
        assert self.targets.pop(name) == callback


def test_nothing_is_sent_unasked(dispatcher: Dispatcher) -> None:
    kernel, comm = FakeManager(), FakeComm()
    target = CommTarget(dispatcher, kernel)
    target.register()
    kernel.targets[TARGET_NAME](comm, {"content": {"data": {}}})
    assert [data["op"] for data, _ in comm.sent] == ["hello"]
    comm.receive({"content": {"data": {"op": "list"}}, "buffers": []})
    comm.receive({"content": {}, "buffers": []})
    comm.receive({"content": {"data": {"op": "list"}}, "buffers": [b"junk"]})
    assert ["error" in data for data, _ in comm.sent] == [False, False, True, True]
    target.unregister()
    assert comm.closed
    assert kernel.targets == {}
    assert len(comm.sent) == 4


def test_a_comm_that_the_client_closed_is_forgotten(dispatcher: Dispatcher) -> None:
    kernel, comm = FakeManager(), FakeComm()
    target = CommTarget(dispatcher, kernel)
    target.register()
    kernel.targets[TARGET_NAME](comm, {"content": {"data": {}}})
    comm.end({"content": {"data": {}}})
    target.unregister()
    assert not comm.closed


# --- In a kernel ---


class Client:
    """A front end with one comm: sends a message, returns the comm messages up to idle."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.comm_id = "test-comm"

    def send(self, kind: str, content: dict[str, Any]) -> list[Any]:
        message = self.client.session.msg(kind, {"comm_id": self.comm_id, **content})
        self.client.shell_channel.send(message)
        answers = []
        while True:
            answer = self.client.get_iopub_msg(timeout=TIMEOUT_S)
            if answer["parent_header"].get("msg_id") != message["header"]["msg_id"]:
                assert not answer["msg_type"].startswith("comm_"), "sent unasked"
            elif answer["msg_type"].startswith("comm_"):
                answers.append(answer)
            elif answer["content"].get("execution_state") == "idle":
                return answers

    def open(self) -> list[Any]:
        return self.send("comm_open", {"target_name": TARGET_NAME, "data": {}})

    def ask(self, request: Any) -> tuple[dict[str, Any], list[Any]]:
        (answer,) = self.send("comm_msg", {"data": request})
        assert answer["msg_type"] == "comm_msg"
        assert answer["content"]["comm_id"] == self.comm_id
        return answer["content"]["data"], [bytes(buffer) for buffer in answer["buffers"]]


SETUP = """
import numpy as np
import gpufetch as gf
%load_ext gpufetch
d_field = gf.to_device(np.arange(60, dtype=np.float32).reshape(3, 4, 5))
d_large = gf.to_device(np.zeros((3, 1 << 22), np.uint8))
"""


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    kernel, channels = start_new_kernel(kernel_name="python3", startup_timeout=TIMEOUT_S)
    try:
        reply = channels.execute_interactive(SETUP, timeout=TIMEOUT_S)
        assert reply["content"]["status"] == "ok", reply["content"]
        yield Client(channels)
    finally:
        channels.stop_channels()
        kernel.shutdown_kernel(now=True)


def test_a_kernel_answers_a_front_end(client: Client) -> None:
    (hello,) = client.open()
    assert hello["msg_type"] == "comm_msg"
    data = hello["content"]["data"]
    assert (data["op"], data["version"]) == ("hello", gf.__version__)
    assert data["operations"] == ["list", "read"]

    reply, _ = client.ask({"op": "list", "id": "a"})
    assert reply["id"] == "a"
    assert [tensor["name"] for tensor in reply["tensors"]] == ["d_field", "d_large"]

    request = {"op": "read", "name": "d_field", "slices": [1, [None, None, -2]]}
    reply, buffers = client.ask(request)
    expected = np.arange(60, dtype=np.float32).reshape(3, 4, 5)[1, ::-2]
    assert np.array_equal(values_of(reply, buffers), expected)

    reply, buffers = client.ask({"op": "read", "name": "d_large", "slices": [2]})
    assert values_of(reply, buffers).shape == (MAX_REPLY_NBYTES,)

    refused = [
        ({"op": "read", "name": "nobody"}, "unknown_name"),
        ({"op": "read", "name": "d_field", "slices": [[0, 1, 0]]}, "bad_slice"),
        ({"op": "read", "name": "d_large"}, "too_large"),
        ("list", "bad_request"),
    ]
    for request_, code in refused:
        assert error_of(client.ask(request_))["code"] == code

    assert client.send("comm_close", {"data": {}}) == []
    assert client.send("comm_msg", {"data": {"op": "list"}}) == []
    (hello,) = client.open()
    assert hello["content"]["data"]["op"] == "hello"
    assert client.send("comm_close", {"data": {}}) == []
