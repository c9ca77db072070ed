"""The comm target in a kernel: the look-up of tensors, untrusted messages, the transport."""

from __future__ import annotations

import gc
import json
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hypothesis
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("IPython")

from comm_build import needs_comm
from sanitizing import fewer

import gpufetch as gf
from gpufetch.jupyter.comm import MAX_REPLY_NBYTES, TARGET_NAME, CommTarget, Dispatcher

pytestmark = needs_comm

SHAPE = (6, 5, 7)


class Poisoned:
    """A variable whose attributes no client may cause to be read."""

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


class Asker:
    """A dispatcher with one client."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self.client, (self.hello, _) = dispatcher.open({})

    def handle(self, request: Any, buffer_count: int = 0) -> tuple[dict[str, Any], list[Any]]:
        answer = self.dispatcher.handle(self.client, request, buffer_count)
        assert answer is not None
        return answer


@pytest.fixture(scope="module")
def namespace(field: Any) -> Any:
    d_field = gf.to_device(field)
    return {
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


@pytest.fixture
def dispatcher(namespace: Any) -> Asker:
    return Asker(Dispatcher(lambda: namespace))


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


def test_a_list_names_the_device_tensors_alone(dispatcher: Asker) -> None:
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
def test_a_read_agrees_with_numpy(dispatcher: Asker, field: Any, slices: Any, key: Any) -> None:
    for name in ("d_field", "lazy"):
        reply, buffers = dispatcher.handle({"op": "read", "name": name, "slices": slices})
        values = values_of(reply, buffers)
        assert values.tobytes() == field[key].tobytes()
        assert values.shape == field[key].shape
        json.dumps(reply, allow_nan=False)


def test_a_lazy_view_is_read_as_the_view(dispatcher: Asker, field: Any) -> None:
    reply, buffers = dispatcher.handle({"op": "read", "name": "lazy_view", "slices": [[1, 5, 2]]})
    assert np.array_equal(values_of(reply, buffers), field[1:, ::-1].T[1:5:2])


@pytest.mark.parametrize(
    ("name", "dtype", "shape"),
    [("d_half", "bfloat16", [5]), ("d_empty", "int8", [0, 3]), ("d_point", "float64", [])],
)
def test_an_odd_tensor_is_read(dispatcher: Asker, name: str, dtype: str, shape: list[int]) -> None:
    reply, buffers = dispatcher.handle({"op": "read", "name": name})
    values_of(reply, buffers)
    assert (reply["dtype"], reply["shape"], reply["byteorder"]) == (dtype, shape, "little")


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (None, "bad_request", "object"),
        ([], "bad_request", "object"),
        ({}, "unknown_op", "missing"),
        ({"op": "drop"}, "unknown_op", "drop"),
        ({"op": ["read"]}, "unknown_op", "read"),
        ({"op": "list", "id": 1.5}, "bad_request", "1.5"),
        ({"op": "list", "id": "x" * 65}, "bad_request", "64"),
        ({"op": "list", "id": "\ud800"}, "bad_request", "UTF-8"),
        ({"op": "list", "id": 1 << 64}, "bad_request", "64 bits"),
        ({"op": "list", "id": True}, "bad_request", "true"),
        ({"op": "read"}, "bad_request", "name"),
        ({"op": "read", "name": "d_field[0]"}, "unknown_name", "no such variable"),
        ({"op": "read", "name": "__import__('os')"}, "unknown_name", "no such variable"),
        ({"op": "read", "name": "_hidden"}, "unknown_name", "no such variable; list gives"),
        ({"op": "read", "name": "x" * 201}, "bad_request", "200"),
        ({"op": "read", "name": 7}, "bad_request", "7"),
        ({"op": "read", "name": "d_gone"}, "unknown_name", "d_gone"),
        ({"op": "read", "name": "array"}, "unknown_name", "ndarray"),
        ({"op": "read", "name": "poisoned"}, "unknown_name", "Poisoned"),
        ({"op": "read", "name": "sparse"}, "unreadable", "sparse"),
        ({"op": "read", "name": "d_field", "slices": "0"}, "bad_slice", '"0"'),
        ({"op": "read", "name": "d_field", "slices": {"0": 1}}, "bad_slice", "list"),
        ({"op": "read", "name": "d_field", "slices": [0] * 33}, "bad_slice", "32"),
        ({"op": "read", "name": "d_field", "slices": [0, 0, 0, 0]}, "bad_slice", "3 axes"),
        ({"op": "read", "name": "d_field", "slices": [6]}, "bad_slice", "length 6"),
        ({"op": "read", "name": "d_field", "slices": [0, -6]}, "bad_slice", "axis 1"),
        ({"op": "read", "name": "d_field", "slices": [True]}, "bad_slice", "true"),
        ({"op": "read", "name": "d_field", "slices": [1.0]}, "bad_slice", "1.0"),
        ({"op": "read", "name": "d_field", "slices": [None]}, "bad_slice", "null"),
        ({"op": "read", "name": "d_field", "slices": [[0, 1]]}, "bad_slice", "[0,1]"),
        ({"op": "read", "name": "d_field", "slices": [[0, 1, 0]]}, "bad_slice", "step 0"),
        ({"op": "read", "name": "d_field", "slices": [[0, 1.5, 1]]}, "bad_slice", "1.5"),
        ({"op": "read", "name": "d_field", "slices": [1 << 63]}, "bad_request", "64 bits"),
        ({"op": "read", "name": "d_point", "slices": [0]}, "bad_slice", "0 axes"),
    ],
)
def test_a_bad_request_is_refused_by_name(
    dispatcher: Asker, request_: Any, code: str, message: str
) -> None:
    error = error_of(dispatcher.handle(request_))
    assert error["code"] == code
    assert message in error["message"]
    assert len(error["message"]) < 500
    error["message"].encode()


def test_a_large_read_comes_in_parts(dispatcher: Asker) -> None:
    request = {"op": "read", "name": "d_large"}
    error = error_of(dispatcher.handle(request))
    assert error["code"] == "too_large"
    assert str(3 * MAX_REPLY_NBYTES) in error["message"]
    assert "in fragments" in error["message"]
    offsets = [dispatcher.handle({**request, "fragment": i})[0]["offset"] for i in range(3)]
    assert offsets == [0, MAX_REPLY_NBYTES, 2 * MAX_REPLY_NBYTES]
    reply, _ = dispatcher.handle({**request, "slices": [1]})
    assert (reply["nbytes"], reply["fragments"]) == (MAX_REPLY_NBYTES, 1)


def test_reductions_are_those_of_the_package(dispatcher: Asker, field: Any) -> None:
    d_field = gf.to_device(field)
    reply, (low, high) = dispatcher.handle(
        {"op": "overview", "name": "d_field", "shape": [2, 2, 2], "method": "minmax"}
    )
    overview = gf.overview(d_field, (2, 2, 2), "minmax")
    assert (reply["shape"], reply["source_shape"]) == ([2, 2, 2], list(SHAPE))
    assert bytes(low) == overview.values.tobytes()
    assert overview.high is not None
    assert bytes(high) == overview.high.tobytes()

    reply, _ = dispatcher.handle({"op": "stats", "name": "d_field"})
    assert (reply["mean"], reply["min"]) == (gf.stats(d_field).mean, gf.stats(d_field).min)

    reply, (counts, edges) = dispatcher.handle({"op": "histogram", "name": "d_field", "bins": 9})
    histogram = gf.histogram(d_field, 9)
    assert bytes(counts) == histogram.counts.tobytes()
    assert bytes(edges) == histogram.edges.tobytes()


def test_replies_say_what_tensor_the_slices_were_taken_of(dispatcher: Asker, field: Any) -> None:
    asked: list[dict[str, Any]] = [
        {"op": "read", "dtype": "float64"},
        {"op": "overview", "shape": [1, 1]},
        {"op": "stats"},
        {"op": "histogram"},
    ]
    for more in asked:
        reply, _ = dispatcher.handle({"name": "d_field", "slices": [1, [0, 2, 1]], **more})
        assert reply["tensor"] == {"shape": list(SHAPE), "dtype": str(field.dtype)}


def test_a_share_holds_the_tensor_until_the_client_closes() -> None:
    d_x = gf.to_device(np.arange(8))
    namespace = {"d_x": d_x}
    asker = Asker(Dispatcher(lambda: namespace))
    reply, _ = asker.handle({"op": "share", "name": "d_x"})
    assert np.array_equal(gf.fetch(gf.attach(reply["handle"])), np.arange(8))
    alive = weakref.ref(d_x)
    namespace.clear()
    del d_x
    gc.collect()
    assert alive() is not None
    asker.dispatcher.close(asker.client)
    gc.collect()
    assert alive() is None


def test_a_share_ends_when_its_name_stands_for_other_memory() -> None:
    x, y = gf.to_device(np.arange(8)), gf.to_device(np.arange(9))
    namespace = {"x": x, "y": y}
    dispatcher = Dispatcher(lambda: namespace)
    one, other = Asker(dispatcher), Asker(dispatcher)
    handles = [asker.handle({"op": "share", "name": "x"})[0]["handle"] for asker in (one, other)]
    kept = one.handle({"op": "share", "name": "y"})[0]["handle"]
    dispatcher.end_stale_shares()
    assert one.handle({"op": "share", "name": "x"})[0]["handle"] == handles[0]
    alive = weakref.ref(x)
    namespace["x"] = gf.to_device(np.arange(8))
    del x
    dispatcher.end_stale_shares()
    gc.collect()
    assert alive() is None
    assert one.handle({"op": "share", "name": "x"})[0]["handle"] not in handles
    assert one.handle({"op": "share", "name": "y"})[0]["handle"] == kept
    assert error_of(other.handle({"op": "unshare", "name": "x"}))["code"] == "unknown_name"
    alive = weakref.ref(y)
    namespace.clear()
    del y
    dispatcher.end_stale_shares()
    gc.collect()
    assert alive() is None


def test_a_published_tensor_comes_before_a_variable(dispatcher: Asker) -> None:
    gf.publish("d_field", gf.to_device(np.arange(4)))
    gf.publish("model/layer 1", gf.to_device(np.arange(5)))
    try:
        reply, _ = dispatcher.handle({"op": "read", "name": "d_field"})
        assert reply["shape"] == [4]
        reply, _ = dispatcher.handle({"op": "read", "name": "model/layer 1"})
        assert reply["shape"] == [5]
        names = [tensor["name"] for tensor in dispatcher.handle({"op": "list"})[0]["tensors"]]
        assert names.count("d_field") == 1
        assert "model/layer 1" in names
    finally:
        gf.unpublish("d_field")
        gf.unpublish("model/layer 1")
    assert dispatcher.handle({"op": "read", "name": "d_field"})[0]["shape"] == list(SHAPE)
    with pytest.raises(KeyError, match="d_field"):
        gf.unpublish("d_field")
    with pytest.raises(ValueError, match="1 to 200"):
        gf.publish("", gf.to_device(np.arange(4)))
    with pytest.raises(TypeError):
        gf.publish("text", "no tensor")


def test_replies_that_are_kept_are_limited(dispatcher: Asker) -> None:
    request = {"op": "read", "name": "d_large", "fragment": 0}
    kept = [dispatcher.handle(request) for _ in range(20)]
    answers = ["error" in reply for reply, _ in kept]
    assert answers == sorted(answers)
    assert 10 < answers.count(False) < 20
    assert kept[-1][0]["error"]["code"] == "busy"
    kept.clear()
    assert "error" not in dispatcher.handle(request)[0]


def test_another_protocol_is_refused(namespace: Any) -> None:
    client, (reply, _) = Dispatcher(lambda: namespace).open({"protocol": 0})
    assert client == 0
    assert reply["error"]["code"] == "unsupported_protocol"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("the device is gone \udc80"), "the device is gone \\udc80"),
        (MemoryError(), "MemoryError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (OSError(5, "two arguments"), "two arguments"),
    ],
)
def test_whatever_a_look_up_raises_is_answered(error: BaseException, message: str) -> None:
    def fail() -> Any:
        raise error

    answer = Asker(Dispatcher(fail)).handle({"op": "read", "name": "x"})
    assert error_of(answer)["code"] == "unreadable"
    assert message in answer[0]["error"]["message"]


def test_a_failure_is_logged_once_a_kind(namespace: Any, caplog: pytest.LogCaptureFixture) -> None:
    asker = Asker(Dispatcher(lambda: namespace))
    with caplog.at_level("INFO", logger="gpufetch.comm"):
        for _ in range(5):
            asker.handle({"op": "read", "name": "nobody"})
            asker.handle([])
    assert [record.name for record in caplog.records] == ["gpufetch.comm"] * 2


def test_threads_are_answered_each_by_itself(namespace: Any, field: Any) -> None:
    asker = Asker(Dispatcher(lambda: namespace))

    def ask(i: int) -> bool:
        _, (buffer,) = asker.handle({"op": "read", "name": "d_field", "slices": [i % 6]})
        return bytes(buffer) == field[i % 6].tobytes()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(200)))


def test_a_namespace_that_fails_is_answered() -> None:
    def fail() -> Any:
        raise KeyError("no namespace")

    assert error_of(Asker(Dispatcher(fail)).handle({"op": "list"}))["code"] == "internal"


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
        "op": st.sampled_from(["list", "read", "overview", "stats", "histogram", "cancel"])
        | json_values,
        "id": st.integers() | st.text() | json_values,
        "name": st.sampled_from(["d_field", "d_large", "d_point", "_hidden", "poisoned"])
        | json_values,
        "slices": plausible_slices | json_values,
        "shape": st.lists(st.integers(), max_size=4) | json_values,
        "fragment": st.integers() | json_values,
        "range": st.lists(st.floats() | st.integers(), max_size=3),
    },
)


@hypothesis.given(request=requests)
@hypothesis.settings(max_examples=fewer(400), deadline=None)
def test_any_request_is_answered(namespace: Any, request: Any) -> None:
    reply, buffers = Asker(Dispatcher(lambda: namespace)).handle(request)
    text = json.dumps(reply, allow_nan=False, ensure_ascii=False).encode()
    assert len(text) + sum(len(buffer) for buffer in buffers) < MAX_REPLY_NBYTES + 4096
    if "error" in reply:
        error_of((reply, buffers))
        assert reply["error"]["code"] != "internal"
    else:
        assert reply["op"] == request["op"]
        assert len(buffers) == {"read": 1, "overview": 1, "histogram": 2}.get(reply["op"], 0)
    if isinstance(request, dict) and "id" in reply:
        assert reply["id"] == request["id"]


class FakeComm:
    """A comm that its manager has registered, as ipykernel does before it calls the target."""

    comm_id = "c1"

    def __init__(self, manager: FakeManager) -> None:
        self.sent: list[tuple[Any, Any]] = []
        self.closed = self._closed = False
        self.manager = manager
        manager.comms[self.comm_id] = self

    def on_msg(self, callback: Any) -> None:
        self.receive = callback

    def on_close(self, callback: Any) -> None:
        self.end = callback

    def send(self, data: Any, buffers: Any = None) -> None:
        self.sent.append((data, buffers))

    def close(self) -> None:
        self.closed = self._closed = True
        del self.manager.comms[self.comm_id]


class FakeManager:
    def __init__(self) -> None:
        self.targets: dict[str, Any] = {}
        self.comms: dict[str, FakeComm] = {}

    def register_target(self, name: str, callback: Any) -> None:
        self.targets[name] = callback

    def unregister_target(self, name: str, callback: Any) -> None:
        assert self.targets.pop(name) == callback


def test_nothing_is_sent_unasked(dispatcher: Asker) -> None:
    kernel = FakeManager()
    comm = FakeComm(kernel)
    target = CommTarget(dispatcher.dispatcher, kernel)
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


def test_a_comm_that_the_client_closed_is_forgotten(dispatcher: Asker) -> None:
    kernel = FakeManager()
    comm = FakeComm(kernel)
    target = CommTarget(dispatcher.dispatcher, kernel)
    target.register()
    kernel.targets[TARGET_NAME](comm, {"content": {"data": {}}})
    comm.end({"content": {"data": {}}})
    target.unregister()
    assert not comm.closed


def test_a_comm_that_is_opened_again_takes_the_place_of_the_first(dispatcher: Asker) -> None:
    kernel = FakeManager()
    target = CommTarget(dispatcher.dispatcher, kernel)
    target.register()
    opened = []
    for _ in range(300):
        opened.append(FakeComm(kernel))
        kernel.targets[TARGET_NAME](opened[-1], {"content": {"data": {}}})
    assert {comm.sent[0][0]["op"] for comm in opened} == {"hello"}
    # The manager knows the last one alone: the others must not close it, nor when they are freed.
    assert not any(comm.closed for comm in opened) and all(comm._closed for comm in opened[:-1])
    opened[0].receive({"content": {"data": {"op": "list"}}})
    opened[0].end({"content": {"data": {}}})
    opened[-1].receive({"content": {"data": {"op": "list"}}})
    assert (len(opened[0].sent), len(opened[-1].sent)) == (1, 2)
    target.unregister()
    assert opened[-1].closed and kernel.comms == {}


def test_a_comm_that_another_target_took_the_id_of_is_left_alone(dispatcher: Asker) -> None:
    kernel = FakeManager()
    comm = FakeComm(kernel)
    target = CommTarget(dispatcher.dispatcher, kernel)
    target.register()
    kernel.targets[TARGET_NAME](comm, {"content": {"data": {}}})
    other = FakeComm(kernel)
    target.unregister()
    assert kernel.comms == {"c1": other} and not comm.closed and comm._closed
