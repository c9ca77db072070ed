"""Connections: a tensor that another process serves behaves like one of this process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import json
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("jupyter_client")

from serving import attach, eventually, needs_server, process

import gpufetch as gf
from gpufetch._remote import servers
from gpufetch._remote.client import Client
from gpufetch._remote.view import RemoteView

pytestmark = needs_server

RNG = np.random.default_rng(7)
CUBE = RNG.normal(size=(5, 6, 7)).astype(np.float32)


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def server() -> Iterator[gf.Server]:
    with gf.serve("test") as started:
        yield started


@pytest.fixture
def run(server: gf.Server) -> Iterator[gf.Connection]:
    server.publish("cube", gf.to_device(CUBE, device="host:0"))
    with gf.connect("test", timeout=10) as connection:
        yield connection


# --- As a local LazyArray ---


@pytest.mark.parametrize(
    "key",
    [
        (),
        0,
        -1,
        (1, 2),
        (1, 2, 3),
        (slice(1, 4), slice(None), slice(None, None, 2)),
        (slice(None, None, -1), slice(4, 1, -2)),
        (slice(3, 3),),
        (..., 2),
        (None, 1, ..., None),
        (slice(-3, 100), slice(None), -7),
        ([0, 2, 2],),
        (slice(None), [5, 0], [1, 1]),
        (CUBE[:, 0, 0] > 0,),
        (CUBE > 0.5,),
    ],
)
def test_indices_give_what_numpy_gives(run: gf.Connection, key: Any) -> None:
    got = run["cube"][key]
    expected = CUBE[key]
    np.testing.assert_array_equal(np.asarray(got), expected)
    assert got.shape == expected.shape and got.dtype == expected.dtype


def test_views_of_views_and_other_orders_of_axes(run: gf.Connection) -> None:
    array = run["cube"]
    np.testing.assert_array_equal(array.T.fetch(), CUBE.T)
    np.testing.assert_array_equal(
        array[1:, ::-1].transpose(2, 0, 1)[::3, 1].fetch(),
        CUBE[1:, ::-1].transpose(2, 0, 1)[::3, 1],
    )
    np.testing.assert_array_equal(array[:, 1:2].squeeze().fetch(), CUBE[:, 1])
    np.testing.assert_array_equal(array[2:3].reshape(6, 1, 7, 1).fetch()[:, 0, :, 0], CUBE[2])
    np.testing.assert_array_equal(array[::-2][1:].T[..., 0].fetch(), CUBE[::-2][1:].T[..., 0])
    out = np.zeros((7, 6, 5), np.float32)
    assert array.T.fetch(out=out) is out
    np.testing.assert_array_equal(out, CUBE.T)
    plane = np.zeros((1, 6, 7), np.float32)
    assert array[2, None].fetch(out=plane) is plane
    np.testing.assert_array_equal(plane[0], CUBE[2])
    rows = np.zeros((6, 14), np.float32)[:, ::2]
    assert array[3].fetch(out=rows) is rows
    np.testing.assert_array_equal(rows, CUBE[3])
    overlapping = np.lib.stride_tricks.as_strided(np.zeros(100, np.float32), (6, 7), (4, 4))
    for refused in (overlapping, np.ma.zeros((6, 7), np.float32)):
        for fetch in (array[3].fetch, lambda out: array[3].fetch_async(out=out).result(10)):
            with pytest.raises((TypeError, ValueError), match=r"share memory|masked array"):
                fetch(out=refused)
        assert not refused.any()
    with pytest.raises(ValueError, match="without a copy"):
        array.reshape(30, 7)
    nothing = array[:, :0].reshape(0, 5)[:, 1:].T
    assert nothing.fetch().shape == (4, 0) and nothing.stats().count == 0


def test_numpy_dask_and_chunks(run: gf.Connection) -> None:
    array = run["cube"]
    np.testing.assert_allclose(np.mean(array[1]), CUBE[1].mean(), rtol=1e-6)
    np.testing.assert_array_equal(array[0] + 1, CUBE[0] + 1)
    assert array[1, 2, 3] == CUBE[1, 2, 3]
    filled = np.zeros_like(CUBE)
    for key, values in array.iter_chunks(200):
        filled[key] = values
    np.testing.assert_array_equal(filled, CUBE)
    np.testing.assert_array_equal(array.fetch_async().result(10), CUBE)
    pytest.importorskip("dask")
    np.testing.assert_allclose(array.to_dask((2, 3, 7)).sum().compute(), CUBE.sum(), rtol=1e-5)


def test_reductions_are_those_of_the_tensor_where_it_lies(run: gf.Connection) -> None:
    array, local = run["cube"], gf.lazy(gf.to_device(CUBE, device="host:0"))
    assert array.stats() == local.stats()
    assert array[1:, 2].stats() == local[1:, 2].stats()
    for method in ("mean", "minmax", "first"):
        far, near = array.overview((2, 3, 100), method), local.overview((2, 3, 100), method)
        np.testing.assert_array_equal(np.asarray(far), np.asarray(near))
        assert (far.count, far.source_shape) == (near.count, near.source_shape)
    np.testing.assert_array_equal(
        array.T[:, 1, :, None].overview((2, 3, 1)).values,
        local.T[:, 1, :].overview((2, 3)).values[..., None],
    )
    assert gf.stats(array) == gf.stats(local) == local.stats()
    assert gf.stats(array[1:, 2]) == local[1:, 2].stats()
    np.testing.assert_array_equal(
        gf.overview(array, (2, 3, 100), "max").values, local.overview((2, 3, 100), "max").values
    )
    np.testing.assert_array_equal(gf.histogram(array, 9).counts, local.histogram(9).counts)
    far_bins, near_bins = array.histogram(9, (-1, 1)), local.histogram(9, (-1, 1))
    np.testing.assert_array_equal(far_bins.counts, near_bins.counts)
    np.testing.assert_array_equal(far_bins.edges, near_bins.edges)
    assert far_bins.under_count == near_bins.under_count
    with pytest.raises(ValueError, match="each of 3 axes"):
        array.overview((2, 3))


@pytest.mark.parametrize(
    "values",
    [
        np.array([True, False]),
        np.array([2**64 - 1, 0], np.uint64),
        np.array([-(2**63), 2**63 - 1]),
        np.array([np.nan, np.inf, -np.inf, -0.0]),
        np.array([1.5, -2.0], ml_dtypes.bfloat16),
        np.array([1 + 2j]),
        np.array(3.25, np.float16),
        np.zeros((3, 0, 2), np.int8),
    ],
    ids=lambda values: f"{values.dtype}{values.shape}",
)
def test_every_type_and_value_comes_as_it_is(server: gf.Server, values: Any) -> None:
    server.publish("x", gf.to_device(values, device="host:0"))
    with gf.connect("test") as run:
        got = run["x"].fetch()
        assert got.dtype == values.dtype and got.shape == values.shape
        assert got.tobytes() == values.tobytes()
        if values.dtype.kind != "c":
            assert repr(run["x"].stats()) == repr(gf.stats(gf.to_device(values, device="host:0")))


def test_what_is_larger_than_a_reply_comes_in_fragments(
    server: gf.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = RNG.integers(0, 1 << 30, (3, 1 << 20, 2), dtype=np.int64)
    server.publish("x", gf.to_device(values, device="host:0"))
    with gf.connect("test") as run:
        run.session.sharing_problem = "not in this test"
        np.testing.assert_array_equal(run["x"].fetch(), values)
        np.testing.assert_array_equal(run["x"][:, ::-3, 1].fetch(), values[:, ::-3, 1])
        assert run.data_path == "messages: not in this test"


def test_no_more_requests_are_under_way_than_the_server_allows(
    server: gf.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way: list[int] = []
    ask, reply = Client._ask, Client._reply

    def counted_ask(client: Client, request: dict[str, Any], deadline: float) -> int:
        under_way.append(under_way[-1] + 1 if under_way else 1)
        return ask(client, request, deadline)

    def counted_reply(client: Client, request_id: int, deadline: float) -> Any:
        got = reply(client, request_id, deadline)
        under_way.append(under_way[-1] - 1)
        return got

    server.publish("x", gf.to_device(np.zeros(6 << 20, np.float32), device="host:0"))
    with gf.connect("test") as run:
        run.session.sharing_problem = "not in this test"
        x = run["x"]
        monkeypatch.setattr(Client, "_ask", counted_ask)
        monkeypatch.setattr(Client, "_reply", counted_reply)
        x.fetch()
    assert max(under_way) == 2 and under_way[-1] == 0 and len(under_way) == 2 * 6


def test_large_reads_on_one_machine_go_through_shared_memory() -> None:
    code = """
    with gf.serve("other") as server:
        server.publish("x", gf.to_device(np.arange(6 << 20, dtype=np.float32).reshape(6, -1)))
        print("ready", flush=True)
        sys.stdin.read()
    """
    expected = np.arange(6 << 20, dtype=np.float32).reshape(6, -1)
    with process(code), gf.connect("other") as run:
        np.testing.assert_array_equal(run["x"].fetch(), expected)
        np.testing.assert_array_equal(run["x"][1:, ::2].T.fetch(), expected[1:, ::2].T)
        assert run.data_path == "shared memory" and run.session._attached.is_kept


def test_a_client_that_reads_no_more_lets_go_of_the_memory() -> None:
    """It stays connected, and keeps its array."""
    code = """
    server = gf.serve("other")
    server.publish("x", gf.to_device(np.ones(2 << 20)))
    print("ready", flush=True)
    for line in sys.stdin:
        server.unpublish("x", timeout=20)
        server.publish("x", gf.to_device(np.full(2 << 20, 2.0)))
        print("free", flush=True)
    """
    with process(code) as other, gf.connect("other", timeout=60) as run:
        assert other.stdin is not None and other.stdout is not None
        array = run["x"]
        assert array.fetch()[-1] == 1 and run.session._attached.is_kept
        other.stdin.write("unpublish\n")
        other.stdin.flush()
        assert other.stdout.readline() == "free\n"
        for _ in range(2):  # attached anew, and let go of anew
            assert array.fetch()[-1] == 2 and run.session._attached.is_kept
            eventually(lambda: not run.session._attached.is_kept)


def test_idle_memory_is_let_go_of_beside_other_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from gpufetch._remote import attached

    monkeypatch.setattr(attached._share, "attach", lambda handle: handle)
    idle, *busy = [attached.Attached() for _ in range(81)]
    idle.attach("x")
    began = time.monotonic()
    while idle.is_kept:
        for one in busy:
            one.attach("x")
        assert time.monotonic() - began < 6  # it was 8
        time.sleep(0.02)
    assert all(one.is_kept for one in busy)


def test_memory_that_no_thread_would_let_go_of_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpufetch._remote import attached

    code = """
    with gf.serve("other") as server:
        server.publish("x", gf.to_device(np.ones(2 << 20)))
        print("ready", flush=True)
        sys.stdin.read()
    """

    def start(*arguments: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(attached._releases, "start", start)
    with process(code), gf.connect("other", timeout=60) as run:
        for _ in range(2):
            assert run["x"].fetch()[-1] == 1 and not run.session._attached.is_kept
        assert run.data_path == "shared memory"


def test_large_reads_of_buffers_that_change_places_find_a_way() -> None:
    code = """
    buffers = [gf.to_device(np.full(4 << 20, value, np.float32)) for value in (1, 2)]
    with gf.serve("swapping") as server:
        server.publish("x", buffers[0])
        print("ready", flush=True)
        while True:
            buffers.reverse()
            server.publish("x", buffers[0])
    """
    with process(code), gf.connect("swapping") as run:
        array = run["x"]
        for _ in range(5):
            assert set(np.unique(array.fetch())) <= {1, 2}


def test_a_framework_is_told_that_the_memory_is_elsewhere(run: gf.Connection) -> None:
    with pytest.raises(BufferError, match="another process"):
        np.from_dlpack(run["cube"])


def test_a_views_slices_stay_inside_the_tensor() -> None:
    class Tensor:
        name, shape, dtype, device = "x", (4, 5), np.dtype("f4"), "host:0"

    view = RemoteView(Tensor())  # type: ignore[arg-type]
    assert view[::-1].slices() == [[3, None, -1], [0, 5, 1]]
    assert view[3:0:-2, 4].slices() == [[3, None, -2], 4]
    assert view[4:, None].slices() == [[0, 0, 1], [0, 5, 1]]
    assert view[::-1].strides == (-20, 4)
    for key in ((4,), (0, 0, 0), (..., ...), (0, -6)):
        with pytest.raises(IndexError):
            view[key]


# --- The program's side ---


def test_scalars_and_steps_are_beside_the_tensors(server: gf.Server, run: gf.Connection) -> None:
    assert run.step is None and run.scalars == {}
    server.set("dt", 0.5)
    server.set("file", "out_1.h5")
    server.set("count", -3)
    server.set("dt", 0.25)
    server.step(7, 1.75)
    assert run.scalars == {"dt": 0.25, "file": "out_1.h5", "count": -3}
    assert (run.step, run.time) == (7, 1.75)
    server.unpublish("count")
    assert "count" not in run.scalars


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.float64(-1.5), -1.5),
        (np.float16(2), 2.0),
        (np.int64(-(2**63)), -(2**63)),
        (np.uint8(200), 200),
        (np.bool_(True), 1),
        (True, 1),
        (np.array(7), 7),
        (np.array(0.25, np.float32), 0.25),
        (ml_dtypes.bfloat16(1.5), 1.5),
        (np.str_("out.h5"), "out.h5"),
        (np.array("out.h5"), "out.h5"),
        (np.float64("nan"), "nan"),
    ],
)
def test_a_scalar_of_numpy_is_published_as_the_number_that_it_is(
    server: gf.Server, run: gf.Connection, value: Any, expected: Any
) -> None:
    server.set("loss", value)
    assert run.scalars["loss"] == expected
    assert type(run.scalars["loss"]) is type(expected)


class Scalar:
    """A tensor without axes of a framework, on a device."""

    shape = ()

    def item(self) -> float:
        return 0.125


def test_a_tensor_without_axes_is_published_by_its_item(
    server: gf.Server, run: gf.Connection
) -> None:
    server.set("loss", Scalar())
    assert run.scalars["loss"] == 0.125


@pytest.mark.parametrize("value", [None, 1j, np.complex64(1), np.zeros(1), [1], b"x", {}])
def test_what_is_no_scalar_is_refused_by_its_type(server: gf.Server, value: Any) -> None:
    with pytest.raises(TypeError, match=f"value bad is a {type(value).__name__}.*: give an int"):
        server.set("bad", value)


@pytest.mark.parametrize("value", [2**63, np.uint64(2**63), -(2**63) - 1])
def test_an_integer_beyond_64_bits_is_refused(server: gf.Server, value: Any) -> None:
    with pytest.raises(OverflowError):
        server.set("bad", value)


ATTACH = """
    array = gf.attach(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def attached_by_another(server: gf.Server) -> Iterator[tuple[Any, Any]]:
    """A tensor x that another process has attached to: the process, and a client's requests."""
    from serving import ask, client, open_comm

    server.publish("x", gf.to_device(np.zeros(8), device="host:0"))
    with client(server.connection_file) as attached:
        attached.wait_for_ready(timeout=10)
        open_comm(attached, "c")

        def request(op: str) -> dict[str, Any]:
            return ask(attached, "c", {"op": op, "name": "x"})[0]

        with process(ATTACH, request("share")["handle"]) as other:
            yield other, request


def test_a_wait_for_other_processes_holds_no_other_call_up(server: gf.Server) -> None:
    """While unpublish waits for ever, the server is used by other threads."""
    with attached_by_another(server) as (other, request):
        waiting = threading.Thread(
            target=server.unpublish, args=("x",), kwargs={"timeout": None}, daemon=True
        )
        waiting.start()
        eventually(lambda: "error" in request("stats"))
        called = threading.Event()

        def use() -> None:
            server.step(1)
            server.set("a", 1)
            server.publish("y", gf.to_device(np.zeros(8), device="host:0"))
            server.unpublish("y")
            called.set()

        threading.Thread(target=use, daemon=True).start()
        assert called.wait(10)
        with pytest.raises(TimeoutError, match="keep its memory"):
            server.unpublish("x", timeout=0.05)
        assert waiting.is_alive()
        other.kill()
        waiting.join(20)
        assert not waiting.is_alive()


def test_unpublish_is_asked_again_until_the_memory_is_free(server: gf.Server) -> None:
    with attached_by_another(server) as (other, _):
        for _ in range(2):
            with pytest.raises(TimeoutError, match="call unpublish again"):
                server.unpublish("x")
        other.kill()
        other.wait()

        def is_free() -> bool:
            try:
                server.unpublish("x")
            except TimeoutError:
                return False
            return True

        eventually(is_free)
        with pytest.raises(ValueError, match="nothing is published as x"):
            server.unpublish("x")


def test_a_pull_is_awaited_told_and_cancelled(run: gf.Connection) -> None:
    async def main() -> list[Any]:
        futures = [run["cube"].fetch_async(), run["cube"][1].fetch_async()]
        return [*await asyncio.gather(*futures), await asyncio.wrap_future(cube())]

    def cube() -> Any:
        return run["cube"].fetch_async()

    whole, plane, wrapped = asyncio.run(main())
    np.testing.assert_array_equal(whole, CUBE)
    np.testing.assert_array_equal(plane, CUBE[1])
    np.testing.assert_array_equal(wrapped, CUBE)
    futures = [cube() for _ in range(40)]  # more than are asked for at a time
    cancelled = [future for future in futures if future.cancel()]
    assert cancelled and len(cancelled) < 40
    told: list[Any] = []
    for future in futures:
        future.add_done_callback(told.append)
    assert wait(futures, timeout=60).done == set(futures)
    for future in futures:
        assert future.wait() and future.done() and future.cancelled() == (future in cancelled)
        if future in cancelled:
            with pytest.raises(CancelledError):
                future.result()
        else:
            np.testing.assert_array_equal(future.result(), CUBE)
    eventually(lambda: len(told) == 40)


def test_a_pull_that_fails_says_so_to_all(server: gf.Server) -> None:
    server.publish("gone", gf.to_device(CUBE))
    with gf.connect(server.connection_file) as connection:
        array = connection["gone"]
        server.unpublish("gone")
        future: Any = array.fetch_async()
        error = future.exception(60)
        assert error is not None and "gone" in str(error)

        async def main() -> None:
            await future

        with pytest.raises(type(error), match="gone"):
            asyncio.run(main())


def test_a_name_that_is_published_again_ends_the_wait_for_what_it_was(server: gf.Server) -> None:
    with attached_by_another(server) as (_, request), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.unpublish, "x", timeout=None)
        eventually(lambda: "error" in request("stats"))
        server.publish("x", gf.to_device(np.ones(8), device="host:0"))
        with pytest.raises(RuntimeError, match="published again"):
            waiting.result(20)
        assert request("stats")["mean"] == 1


def test_reads_at_a_step_wait_for_it_and_see_no_half(server: gf.Server) -> None:
    x = gf.to_device(np.zeros(1000), device="host:0")
    server.publish("x", x)
    stop = threading.Event()

    def simulate() -> None:
        step = 0
        while not stop.is_set():
            step += 1
            server.publish("x", gf.to_device(np.full(1000, float(step)), device="host:0"))
            server.step(step, step / 2)
            time.sleep(0.002)

    thread = threading.Thread(target=simulate)
    thread.start()
    try:
        with gf.connect("test", at="step") as run:
            for _ in range(5):
                values = run["x"].fetch()
                assert np.all(values == run.session.step)
                assert run.session.time == run.session.step / 2
            first = run.wait_step()
            assert run.wait_step() > first
    finally:
        stop.set()
        thread.join()


def test_a_read_at_a_step_that_never_comes_times_out(run: gf.Connection) -> None:
    array = run["cube"]
    run.at = "step"
    run.session.timeout = 0.3
    with pytest.raises(TimeoutError):
        array.fetch()
    run.at = "live"
    run.session.timeout = 10
    assert array.fetch().shape == CUBE.shape


def test_a_step_consistent_read_of_several_fragments_is_refused(server: gf.Server) -> None:
    server.publish("x", gf.to_device(np.zeros(1 << 20), device="host:0"))
    with gf.connect("test", at="step") as run:
        stepper = threading.Timer(0.1, lambda: server.step(1))
        stepper.start()
        with pytest.raises(ValueError, match="several steps"):
            run["x"].fetch()
        stepper.join()


def test_who_asks_while_its_thread_waits_for_a_reply_is_refused_and_the_wait_goes_on(
    run: gf.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a signal handler or a finalizer does: it would take the reply."""
    told: list[str] = []
    receive = Client._receive

    def interrupted(self: Client, deadline: float) -> Any:
        try:
            assert not run["cube"]
        except RuntimeError as error:
            told.append(str(error))
        return receive(self, deadline)

    with monkeypatch.context() as patch:
        patch.setattr(Client, "_receive", interrupted)
        np.testing.assert_array_equal(run["cube"][1].fetch(), CUBE[1])
    assert told and all("waits for a reply on this thread" in text for text in told)
    np.testing.assert_array_equal(run["cube"][2].fetch(), CUBE[2])


def test_a_connection_that_is_closed_while_its_thread_waits_ends_the_wait(
    run: gf.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = Client._receive

    def closing(self: Client, deadline: float) -> Any:
        run.close()
        return receive(self, deadline)

    cube = run["cube"]
    with monkeypatch.context() as patch:
        patch.setattr(Client, "_receive", closing)
        with pytest.raises(ValueError, match="closed"):
            cube[1].fetch()
    with pytest.raises(ValueError, match="closed"):
        cube[1].fetch()


def test_withdrawn_and_changed_tensors_are_told(server: gf.Server, run: gf.Connection) -> None:
    array = run["cube"]
    server.publish("cube", gf.to_device(np.zeros(3), device="host:0"))
    with pytest.raises((RuntimeError, IndexError)):
        array.fetch()
    server.unpublish("cube")
    with pytest.raises(KeyError, match="cube"):
        array.fetch()
    assert "cube" not in run
    with pytest.raises(KeyError):
        run["cube"]
    with pytest.raises(ValueError, match="cube"):
        server.unpublish("cube")


def uses(array: Any) -> list[Any]:
    """Every kind of read."""
    return [
        array.fetch,
        array[1:3, :2].fetch,
        array.stats,
        lambda: array.overview((2, 2)),
        lambda: array.histogram(4),
        lambda: np.asarray(array),
        array.fetch_async().result,
    ]


@pytest.mark.parametrize("device", ["cpu", "host:0"])
@pytest.mark.parametrize("shape", [(4, 6), (1500, 2000)])
def test_a_tensor_of_another_shape_is_never_read_as_the_old_one(
    server: gf.Server, device: str, shape: tuple[int, int]
) -> None:
    """A part of it would be of the shape that was asked for."""

    def make(shape: tuple[int, ...], value: float) -> Any:
        array = np.full(shape, value, np.float32)
        return array if device == "cpu" else gf.to_device(array, device=device)

    server.publish("x", make(shape, 1))
    with gf.connect("test", timeout=20) as run:
        array = run["x"]
        assert array.fetch().max() == 1
        server.publish("x", make((shape[0] + 1, shape[1] + 1), 2))
        for use in uses(array):
            with pytest.raises(RuntimeError, match="look it up anew"):
                use()
        assert run["x"].fetch().shape == (shape[0] + 1, shape[1] + 1)
        with contextlib.suppress(TimeoutError):  # this process is attached to large ones
            server.unpublish("x")
        with pytest.raises(KeyError, match="list gives the names"):
            array.fetch()
        server.publish("x", make(shape, 3))
        assert array.fetch().max() == 3 and array.stats().max == 3
        with contextlib.suppress(TimeoutError):
            server.stop()
        with contextlib.suppress(TimeoutError), gf.serve("test") as again:
            again.publish("x", make((*shape, 1), 4))
            with pytest.raises(RuntimeError, match="look it up anew"):
                array.fetch()
            again.publish("y", make(shape, 5))
            again.publish("x", make(shape, 6))
            assert array.fetch().max() == 6 and array.stats().max == 6


def after_first_fragment(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[], object], times: int = 1
) -> None:
    """Call `change` after the first fragment of each of the next `times` reads."""
    from gpufetch._remote.session import Session

    given = Session.requests
    left = list(range(times))

    def requests(self: Session, wanted: list[Any], take: Any, timeout: float | None = None) -> None:
        if wanted and wanted[0].get("fragment", 0) > 0 and left:
            left.pop()
            change()
        given(self, wanted, take, timeout)

    monkeypatch.setattr(Session, "requests", requests)


@pytest.mark.parametrize("length", [3, 4])
def test_a_read_in_fragments_goes_on_in_the_tensor_it_began_with(
    server: gf.Server, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """Another tensor takes the name's place after the first fragment, of the same shape or not."""
    held = np.full((3, 1 << 20), 1.0)
    server.publish("x", held)
    gone = weakref.ref(held)
    del held
    second = np.full((length, 1 << 20), 2.0)
    after_first_fragment(monkeypatch, lambda: server.publish("x", second))
    with gf.connect("test", timeout=20) as run:
        array = run["x"]
        assert (array.fetch() == 1).all()
        eventually(lambda: gone() is None)  # with the last fragment
        if length == 3:
            assert (array.fetch() == 2).all()
        else:
            with pytest.raises(RuntimeError, match="look it up anew"):
                array.fetch()
        assert (run["x"].fetch() == 2).all()


@pytest.mark.parametrize("length", [3, 4])
def test_fragments_of_two_tensors_are_never_mixed(
    server: gf.Server, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """The tensor is withdrawn after the first fragment, and another one published by its name."""
    second = np.full((length, 1 << 20), 2.0)

    def change() -> None:
        server.unpublish("x", timeout=20)
        server.publish("x", second)

    server.publish("x", np.full((3, 1 << 20), 1.0))
    after_first_fragment(monkeypatch, change)
    with gf.connect("test", timeout=20) as run:
        array = run["x"]
        if length == 3:
            assert (array.fetch() == 2).all()
        else:
            with pytest.raises(RuntimeError, match="look it up anew"):
                array.fetch()
        assert (run["x"].fetch() == 2).all()


def test_a_tensor_that_is_withdrawn_at_each_read_in_fragments_is_an_error(
    server: gf.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = [np.full((3, 1 << 20), value) for value in (1.0, 2.0)]

    def change() -> None:
        server.unpublish("x", timeout=20)
        arrays.reverse()
        server.publish("x", arrays[0])

    server.publish("x", arrays[0])
    after_first_fragment(monkeypatch, change, times=1000)
    with gf.connect("test", timeout=20) as run:
        array = run["x"]
        with pytest.raises(RuntimeError, match="published anew at each of"):
            array.fetch()


def after_reads(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[], object], times: int = 1
) -> None:
    """Call `change` after each of the next `times` reads or attachments have begun."""
    from gpufetch._remote.session import Session

    given = Session.request, Session.shared
    left = list(range(times))

    def changed(reply: Any) -> Any:
        if left:
            left.pop()
            change()
        return reply

    def request(self: Session, wanted: Any, timeout: float | None = None) -> Any:
        reply = given[0](self, wanted, timeout)
        return changed(reply) if wanted["op"] == "read" else reply

    def shared(self: Session, name: str, generation: int | None) -> Any:
        memory = given[1](self, name, generation)
        return memory if memory is None else changed(memory)

    monkeypatch.setattr(Session, "request", request)
    monkeypatch.setattr(Session, "shared", shared)


ROWS = [0, 2999, 1000, 1700, 1000]


@pytest.mark.parametrize("is_device", [False, True])
@pytest.mark.parametrize("times", [1, 1000])
@pytest.mark.parametrize(
    ("shape", "key"),
    [
        ((3000, 100), (ROWS,)),  # the box around them is small
        ((3000, 1000), (ROWS,)),
        ((3000, 1000), (slice(None), [999, 0, 500])),
        ((3000, 100, 10), (ROWS, slice(None), [0, 9, 5, 2, 2])),
        ((3000, 1000), (np.sin(np.arange(3000)) < 0.5,)),  # shared, on a device
    ],
)
def test_an_index_by_arrays_is_of_one_publication(
    server: gf.Server,
    monkeypatch: pytest.MonkeyPatch,
    shape: tuple[int, ...],
    key: Any,
    times: int,
    is_device: bool,
) -> None:
    values = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    current = [values]

    def change() -> None:
        current[0] = current[0] + 1.0
        at = gf.to_device(current[0], device="host:0") if is_device else current[0]
        server.publish("x", at)

    change()
    after_reads(monkeypatch, change, times)
    with gf.connect("test", timeout=20) as run:
        read = run["x"][key]
        more = read - values[key]
        assert np.unique(more).size == 1, "rows of several tensors"
        assert read.flags.c_contiguous and read.shape == values[key].shape


def test_indices_that_only_a_box_beyond_the_limit_has_are_refused(
    server: gf.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tensor is published anew between any two ranges."""
    after_reads(monkeypatch, lambda: server.publish("x", np.zeros((3000, 1000))), 1000)
    server.publish("x", np.zeros((3000, 1000)))
    with gf.connect("test", timeout=20) as run:
        array = gf.lazy(run["x"], max_fetch_nbytes=20 << 20)
        with pytest.raises(ValueError, match=r"the box around the indices.*22\.9 MiB, more than"):
            array[ROWS]
        assert array[1000:1700][[0, 3, 699]].shape == (3, 1000)


def test_an_index_by_arrays_is_of_one_step(server: gf.Server) -> None:
    stop = threading.Event()

    def publish(step: int) -> None:
        server.publish("x", gf.to_device(np.full((1200, 1300), step, "f4"), device="host:0"))
        server.step(step)

    def simulate() -> None:
        for step in itertools.count(1):
            if stop.wait(0.002):
                return
            publish(step)

    publish(0)
    mask = np.isin(np.arange(1200), [100, 180, 600])
    thread = threading.Thread(target=simulate)
    thread.start()
    try:
        with gf.connect("test", timeout=20, at="step") as run:
            array = run["x"]
            for key in ([0, 300, 590], [0, 1199], ([3, 700, 1], [0, 5, 9]), mask):
                assert np.unique(array[key]).tolist() == [run.session.step]
            with pytest.raises(ValueError, match=r"index arrays read the box.*read live"):
                array[[0, 600, 1199]]
            run.at = "live"
            assert np.unique(array[[0, 600, 1199]]).size == 1
    finally:
        stop.set()
        thread.join()


PUBLISHING = """
    with gf.serve("steps") as server:
        server.publish("u", np.full(1500000, 0, np.float32))
        print("ready", flush=True)
        for step in range(1, 1 << 24):
            server.publish("u", np.full(1500000, step, np.float32))
            server.step(step)
"""


def test_a_program_that_publishes_a_new_tensor_at_each_step_is_read_whole() -> None:
    """As JAX's do. Nothing writes to a tensor that was published."""
    with process(PUBLISHING), gf.connect("steps", timeout=20) as run:
        array = run["u"]
        began = time.monotonic()
        values = []
        while len(values) < 40 or (len(set(values)) < 10 and time.monotonic() < began + 60):
            read = array.fetch()
            assert (read == read[0]).all(), "fragments of two tensors"
            values.append(read[0])
        assert len(set(values)) >= 10 and values == sorted(values)


def test_many_names_are_listed_whole(server: gf.Server) -> None:
    x = gf.to_device(np.zeros(1), device="host:0")
    names = {f"{'n' * 150}{number:04}" for number in range(1500)}
    for name in names:
        server.publish(name, x)
    with gf.connect("test") as run:
        assert set(run) == names and len(run) == 1500


# --- Restarts, failures and the end ---

SERVE_VALUE = """
    with gf.serve("again") as server:
        server.publish("x", gf.to_device(np.full(4, float(sys.argv[1]))))
        print("ready", flush=True)
        sys.stdin.read()
"""


def kill(running: subprocess.Popen[str]) -> None:
    """Kill a process, which is gone when this returns."""
    running.kill()
    running.wait()


def test_a_client_reconnects_after_the_server_restarts() -> None:
    with process(SERVE_VALUE, "1") as first:
        run = gf.connect("again", timeout=20)
        array = run["x"]
        assert array.fetch().tolist() == [1] * 4
        kill(first)
        with process(SERVE_VALUE, "2"):
            assert array.fetch().tolist() == [2] * 4
        run.close()
    with pytest.raises(ValueError, match="closed"):
        array.fetch()


def test_unix_sockets_of_another_host_are_an_error_that_names_it(
    server: gf.Server, runtime: Path
) -> None:
    info = json.loads(Path(server.connection_file).read_text())
    info["gpufetch"]["host"] = "elsewhere"
    (runtime / "kernel-far.json").write_text(json.dumps(info))
    with pytest.raises(ConnectionError, match=r"own host, elsewhere.*ip="):
        gf.connect("far", timeout=10)


def test_an_end_in_the_middle_of_a_read_is_an_error_in_time() -> None:
    with process(SERVE_VALUE, "1") as running, gf.connect("again", timeout=1.5) as run:
        array = run["x"]
        array.fetch()
        kill(running)
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="ended"):
            array.fetch()
        assert time.monotonic() - began < 10


def test_a_server_that_was_killed_is_waited_for_by_one_request_alone() -> None:
    with process(SERVE_VALUE, "1") as running:
        run = gf.connect("again", timeout=3)
        array = run["x"]
        kill(running)
        with pytest.raises(TimeoutError, match="ended"):
            array.fetch()
        run.session.timeout = 600
        for _ in range(3):
            with pytest.raises(ConnectionError, match="ended"):
                array.fetch()
        with process(SERVE_VALUE, "2"):
            assert array.fetch().tolist() == [2] * 4
        run.close()


def test_a_wait_for_a_step_of_a_server_that_was_killed_is_the_only_one() -> None:
    with process(SERVE_VALUE, "1") as running, gf.connect("again", timeout=3) as run:
        array = run["x"]
        kill(running)
        with pytest.raises(TimeoutError, match="ended"):
            run.wait_step(timeout=1)
        run.session.timeout = 600
        with pytest.raises(ConnectionError, match="ended"):
            array.fetch()


def test_a_large_read_waits_for_a_server_that_is_gone_once() -> None:
    """Not for the shared memory first, and then for the messages."""
    publishing = SERVE_VALUE.replace("np.full(4,", "np.full(2 << 20,")
    assert publishing != SERVE_VALUE
    with process(publishing, "1") as running, gf.connect("again", timeout=4) as run:
        array = run["x"]
        array.fetch()
        kill(running)
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="ended"):
            array.fetch()
        assert time.monotonic() - began < 7.5
        assert run.session.sharing_problem is None


def test_a_read_after_a_clean_end_fails_at_once() -> None:
    """Whether the end is met by the next request or in the middle of one."""
    server = gf.serve("ending")
    server.publish("x", gf.to_device(np.zeros(4), device="host:0"))
    with gf.connect("ending", timeout=60) as run, gf.connect("ending", timeout=60) as other:
        array, remote = run["x"], other["x"]
        other.at = "step"  # and no step comes
        with ThreadPoolExecutor(2) as pool:
            reading, waiting = pool.submit(remote.fetch), pool.submit(run.wait_step)
            eventually(lambda: len(run.session._waiters) == 1)
            array.fetch()
            server.stop()
            began = time.monotonic()
            for ended in (reading, waiting):
                with pytest.raises(
                    ConnectionError, match=r"kernel-ending.json has ended: start it again"
                ):
                    ended.result(20)
        for _ in range(3):
            with pytest.raises(ConnectionError, match="has ended"):
                array.fetch()
        with pytest.raises(ConnectionError, match="has ended"):
            run._describe()
        assert time.monotonic() - began < 10
        with gf.serve("ending") as again:
            again.publish("x", gf.to_device(np.ones(4), device="host:0"))
            assert array.fetch().tolist() == [1] * 4


def test_waiting_for_a_step_holds_no_other_thread_up(server: gf.Server) -> None:
    server.publish("cube", gf.to_device(CUBE, device="host:0"))
    with gf.connect("test", timeout=60) as run, ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(run.wait_step) for _ in range(3)]
        began = time.monotonic()
        for _ in range(5):
            np.testing.assert_array_equal(run["cube"].fetch(), CUBE)
            assert run.step is None
        assert time.monotonic() - began < 20
        assert not any(future.done() for future in waiting)
        steps = iter(range(1, 1000))

        def stepped() -> bool:
            server.step(next(steps))
            return all(future.done() for future in waiting)

        eventually(stepped, 30)
        assert all(future.result() >= 1 for future in waiting)
        assert len(run.session._waiters) <= 3
        with pytest.raises(TimeoutError):
            run.wait_step(timeout=0.3)


def test_a_wait_may_be_for_a_step_of_at_least_a_number(server: gf.Server) -> None:
    server.step(7)
    with (
        gf.connect("test", timeout=60) as run,
        gf.connect(["test"], timeout=60) as joint,
        ThreadPoolExecutor(2) as pool,
    ):
        for connection in (run, joint):
            assert connection.wait_step(at_least=7) == 7  # no step is completed meanwhile
            assert connection.wait_step(at_least=-3, timeout=0) == 7
        waiting = [pool.submit(one.wait_step, at_least=12) for one in (run, joint)]
        steps = iter([*range(8, 12), *[20] * 1000])

        def stepped() -> bool:
            server.step(next(steps))
            return all(future.done() for future in waiting)

        eventually(stepped, 30)
        assert [future.result() for future in waiting] == [20, 20]
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="at step 20, and has not come to step 21"):
            run.wait_step(at_least=21, timeout=0.3)
        assert time.monotonic() - began < 10
        ended = threading.Event()

        def step_quickly() -> None:
            number = 100
            while not ended.wait(0.0002):
                number += 1
                server.step(number)

        stepping = threading.Thread(target=step_quickly)
        stepping.start()
        try:
            for timeout in (0.0, 0.2):
                began = time.monotonic()
                with pytest.raises(TimeoutError, match=r"is at step \d+, and has not come to step"):
                    run.wait_step(at_least=10**9, timeout=timeout)
                assert time.monotonic() - began < timeout + 5
        finally:
            ended.set()
            stepping.join()
        for connection in (run, joint):
            for wrong in ("x", True, 2.0):
                with pytest.raises(TypeError, match=f"at_least is {wrong!r}"):
                    connection.wait_step(at_least=cast(Any, wrong), timeout=0)
        with pytest.raises(TypeError, match="positional"):
            cast(Any, run).wait_step(100_000)


def test_numbers_of_steps_need_not_rise(server: gf.Server) -> None:
    """As where a program goes back to a checkpoint; each call is a step to those who wait."""
    server.step(7)
    with gf.connect("test", timeout=60) as run, ThreadPoolExecutor(1) as pool:
        for number in (7, 7, 3, -(1 << 63), (1 << 63) - 1, 0):
            waiting = pool.submit(run.wait_step)

            def stepped(number: int = number, waiting: Future[int] = waiting) -> bool:
                server.step(number)
                return waiting.done()

            eventually(stepped, 30)
            assert waiting.result() == number and run.step == number


def test_stopping_takes_no_longer_than_is_promised() -> None:
    """Six seconds, with a process that has attached to memory and a client that reads nothing."""
    from serving import client, open_comm, send

    server = gf.serve("slow", ip="127.0.0.1")
    server.publish("big", gf.to_device(np.zeros(4 << 20, np.uint8), device="host:0"))
    with attached_by_another(server), client(server.connection_file) as stalled:
        stalled.wait_for_ready(timeout=10)
        open_comm(stalled, "stalled")
        for number in range(4):  # 16 MiB, which its sockets do not hold and it does not read
            request = {"op": "read", "name": "big", "slices": [], "id": number}
            send(stalled, "comm_msg", {"comm_id": "stalled", "data": request})
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="other processes still use 1 shares"):
            server.stop()
        assert 4 < time.monotonic() - began < 12


def test_a_program_that_ends_while_its_memory_is_attached_says_so_in_a_line() -> None:
    publishing = """
    server = gf.serve("ending")
    server.publish("x", gf.to_device(np.ones(2 << 20)))
    print("ready", flush=True)
    sys.stdin.read()
    """
    with (
        process(publishing, stderr=subprocess.PIPE) as ending,
        gf.connect("ending", timeout=60) as run,
    ):
        held = run.session.shared("x", None)
        assert held is not None
        _, said = ending.communicate(timeout=60)
        assert ending.returncode == 0
    assert said.count("\n") == 1 and "other processes still use 1 shares" in said, said


class Calling:
    """A tensor whose producer uses the server, and lets another thread use it, meanwhile."""

    def __init__(self, server: gf.Server, array: Any) -> None:
        self.server, self.array = server, array
        self.calls: list[str] = []

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        self.server.set("own", 1)
        other = threading.Thread(target=self.server.set, args=("other", 2), daemon=True)
        other.start()
        other.join(20)
        self.calls.append("hung" if other.is_alive() else "went on")
        return self.array.__dlpack__(**options)


def test_publishing_waits_for_a_producer_without_holding_others_up(server: gf.Server) -> None:
    x = Calling(server, gf.to_device(CUBE, device="host:0"))
    publishing = threading.Thread(target=server.publish, args=("x", x), daemon=True)
    publishing.start()
    publishing.join(60)
    assert not publishing.is_alive() and x.calls == ["went on"]
    with gf.connect("test", timeout=60) as run:
        np.testing.assert_array_equal(run["x"].fetch(), CUBE)
        assert run.scalars == {"other": 2, "own": 1}


class LastWords:
    """Memory that uses the server when it is let go."""

    def __init__(self, say: Any) -> None:
        self.array, self.say = np.zeros(8), say

    def __del__(self) -> None:
        self.say()

    @property
    def __array_interface__(self) -> Any:
        return self.array.__array_interface__


def test_what_a_replaced_tensor_runs_may_use_the_server(server: gf.Server) -> None:
    told: list[str] = []

    def say() -> None:
        server.set("last", 5)
        server.step(4)
        try:
            server.stop()
        except RuntimeError as error:
            told.append(str(error))

    def replace() -> None:
        server.publish("x", np.asarray(LastWords(say)))
        server.publish("x", np.zeros(4))
        server.publish("x", np.asarray(LastWords(say)))
        server.unpublish("x")

    replacing = threading.Thread(target=replace, daemon=True)
    replacing.start()
    replacing.join(60)
    assert not replacing.is_alive()
    (said,) = set(told)
    assert len(told) == 2 and said.startswith("stop() within another call of server test")
    with gf.connect("test", timeout=60) as run:
        assert run.scalars == {"last": 5} and run.step == 4


def test_a_callback_may_call_a_server_that_is_being_stopped() -> None:
    """As where on_shutdown tells the program to stop, and then says something of the end."""
    from serving import client

    asked, told = threading.Event(), []

    def ended() -> None:
        asked.set()
        eventually(lambda: server._is_stopped, 60)
        try:
            server.set("state", "ending")
        except gf.Error as error:
            told.append(str(error))

    server = gf.serve("callback", on_shutdown=ended)
    with client(server.connection_file) as attached:
        attached.wait_for_ready(timeout=10)
        attached.shutdown(reply=False)
        assert asked.wait(30)
    stopping = threading.Thread(target=server.stop, daemon=True)
    stopping.start()
    stopping.join(60)
    assert not stopping.is_alive() and len(told) == 1 and "is stopped" in told[0]


def test_closing_ends_what_other_threads_wait_for(server: gf.Server) -> None:
    server.publish("cube", gf.to_device(CUBE, device="host:0"))
    run = gf.connect("test", timeout=60)
    array = run["cube"]
    run.at = "step"
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(run.wait_step), pool.submit(array.fetch)]
        eventually(lambda: len(run.session._waiters) == 1 and run.session._client is not None)
        began = time.monotonic()
        run.close()
        for ended in waiting:
            with pytest.raises(ValueError, match="closed"):
                ended.result(20)
        assert time.monotonic() - began < 10
    with pytest.raises(ValueError, match="closed"):
        run.wait_step()


def test_several_threads_and_connections_read_at_once(server: gf.Server) -> None:
    server.publish("cube", gf.to_device(CUBE, device="host:0"))
    wrong: list[Any] = []

    def read(run: gf.Connection, number: int) -> None:
        array = run["cube"]
        for i in range(20):
            row = (number + i) % 5
            if not np.array_equal(array[row].fetch(), CUBE[row]):
                wrong.append((number, i))

    connections = [gf.connect("test") for _ in range(4)]
    threads = [
        threading.Thread(target=read, args=(connections[number % 4], number)) for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for connection in connections:
        connection.close()
    assert wrong == []


def test_a_name_that_nobody_has_is_an_error_that_lists_those_there_are(server: gf.Server) -> None:
    with pytest.raises(FileNotFoundError, match="these are: test"):
        gf.connect("missing")
    with pytest.raises(ValueError, match="live"):
        gf.connect("test", at="never")  # type: ignore[arg-type]


def test_a_dead_servers_file_is_known_at_once(runtime: Path) -> None:
    with process(SERVE_VALUE, "1") as running:
        kill(running)
        file = runtime / "kernel-again.json"
        for named in ("again", file, ["again"], str(runtime / "*.json")):
            began = time.monotonic()
            with pytest.raises(ConnectionError, match=r"again.json has ended and left"):
                gf.connect(named, timeout=60)
            assert time.monotonic() - began < 10
        content = json.loads(file.read_text())
        content["gpufetch"] |= {"process_id": os.getpid()}  # whose number is in use again
        file.write_text(json.dumps(content))
        with pytest.raises(ConnectionError, match=r"again.json has ended and left"):
            gf.connect("again", timeout=60)


def damaged(server: gf.Server) -> dict[str, tuple[bytes, str]]:
    """What is in files that are no connection files, and what is said of them."""
    whole = json.loads(Path(server.connection_file).read_text())

    def other(**changes: Any) -> bytes:
        return json.dumps(whole | changes).encode()

    return {
        "empty": (b"", "no JSON object"),
        "text": (b"hello", "no JSON object"),
        "bytes": (b"\xff\xfe\0", "no JSON object"),
        "list": (b"[1]", "no JSON object"),
        "nested": (b"[" * 60000, "no JSON object"),
        "part": (json.dumps(whole).encode()[:100], "no JSON object"),
        "large": (b" " * 65536 + json.dumps(whole).encode(), "64 KiB"),
        "other": (b"{}", "shell_port is missing"),
        "port": (other(iopub_port="5"), "iopub_port is no port number"),
        "zero": (other(hb_port=0), "hb_port is no port number"),
        "transport": (other(transport="udp"), "'udp' is neither tcp nor ipc"),
        "key": (other(key=5), "key is no text"),
        "scheme": (other(signature_scheme="hmac-rot13"), "'hmac-rot13' is unknown"),
        "md5": (other(signature_scheme="hmac-md5"), "'hmac-md5', where gpufetch writes"),
        "nokey": (other(key=""), "its key is missing"),
        "curve": (other(curve_publickey="abc"), "curve_publickey is no key of CurveZMQ's"),
        "who": (other(gpufetch=[1]), "says of its server is damaged"),
        "when": (other(gpufetch=whole["gpufetch"] | {"start_time": "x"}), "its server is damaged"),
    }


def test_what_is_no_connection_file_is_named_as_such_at_once(
    server: gf.Server, runtime: Path
) -> None:
    for name, (content, problem) in damaged(server).items():
        (runtime / f"kernel-{name}.json").write_bytes(content)
        began = time.monotonic()
        with pytest.raises(ConnectionError, match=f"{name}.json is no connection file.*{problem}"):
            gf.connect(name, timeout=60)
        assert time.monotonic() - began < 10
    assert [found.name for found in servers.running()] == ["test"]


def test_an_ip_that_is_no_address_is_named(server: gf.Server, runtime: Path) -> None:
    whole = json.loads(Path(server.connection_file).read_text())
    changed = whole | {"ip": "no address!", "transport": "tcp"}
    (runtime / "kernel-ip.json").write_text(json.dumps(changed))
    with pytest.raises(ConnectionError, match=r"ip\.json is no .*connect to its ip 'no address!'"):
        gf.connect("ip", timeout=60)


def test_links_in_a_circle_are_named(runtime: Path) -> None:
    (runtime / "a.json").symlink_to("b.json")
    (runtime / "b.json").symlink_to("a.json")
    with pytest.raises(OSError, match=r"symbolic links.*[ab]\.json"):
        gf.connect(f"{runtime}/*.json", timeout=60)
    with pytest.raises(FileNotFoundError, match="file nope, and no server nope or any other is ru"):
        gf.connect("nope")


def test_what_is_no_file_is_named_as_such_at_once(server: gf.Server, runtime: Path) -> None:
    os.mkfifo(runtime / "kernel-pipe.json")
    with pytest.raises(FileNotFoundError, match="these are: test"):
        gf.connect("pipe", timeout=60)
    with pytest.raises(ConnectionError, match="it is a pipe or a device"):
        gf.connect(runtime / "kernel-pipe.json", timeout=60)
    with pytest.raises(IsADirectoryError, match="is a folder: name a connection file in it"):
        gf.connect(runtime, timeout=60)
    with pytest.raises(ValueError, match="name is empty"):
        gf.connect("", timeout=60)


def test_a_server_comes_before_a_file_of_its_name(
    server: gf.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the program that serves, which is often in the working folder."""
    monkeypatch.chdir(tmp_path)
    Path("test").write_bytes(b"\x7fELF")
    gf.connect("test", timeout=60).close()
    Path("absent").write_bytes(b"\x7fELF")
    Path("folder").mkdir()
    for name in ("absent", "folder"):
        with pytest.raises(FileNotFoundError, match=f"no server .*{name} is running: these are: t"):
            gf.connect(name, timeout=60)


def test_a_kernel_that_serves_no_tensors_says_so_at_once() -> None:
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel()
    try:
        began = time.monotonic()
        with pytest.raises(ConnectionError, match="has no comm target gpufetch"):
            gf.connect(manager.connection_file, timeout=60)
        assert time.monotonic() - began < 30
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_closing_and_forgetting_tell_the_server(server: gf.Server) -> None:
    from serving import client

    server.publish("cube", gf.to_device(CUBE, device="host:0"))
    with client(server.connection_file) as attached:
        attached.wait_for_ready(timeout=10)

        def count() -> int:
            return len(attached.comm_info(reply=True, timeout=5)["content"]["comms"])

        with gf.connect("test"):
            assert count() == 1
        eventually(lambda: count() == 0)
        array = gf.connect("test")["cube"]
        assert array[0, 0, 0] == CUBE[0, 0, 0] and count() == 1
        del array
        gc.collect()
        eventually(lambda: count() == 0)


def test_a_program_ends_well_with_a_connection_open(server: gf.Server) -> None:
    server.publish("cube", gf.to_device(CUBE, device="host:0"))
    code = """
import gpufetch as gf
array = gf.connect("test")["cube"]
print(array[1, 2, 3])
"""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


# --- The command line ---


def test_attach_lists_servers_and_shows_one(server: gf.Server, run: gf.Connection) -> None:
    server.set("dt", 0.25)
    server.step(12, 3.0)
    listed = attach()
    assert "test" in listed and "running" in listed and server.connection_file in listed
    shown = attach("test", "--once")
    assert "step 12, time 3" in shown and "dt" in shown
    assert f"{CUBE.min():.6g}" in shown and "float32  (5, 6, 7)" in shown
    assert f"{CUBE.min():.6g}" not in attach("test", "--once", "--no-stats")


def test_attach_without_servers_says_where_it_looked(runtime: Path) -> None:
    assert str(runtime) in attach()


def test_no_step_is_told_from_no_answer(server: gf.Server) -> None:
    server.publish("x", np.arange(3))
    with gf.connect("test", timeout=60) as run:
        for timeout in (0, 0.1):
            with pytest.raises(
                TimeoutError, match=f"no step was completed within {timeout:g} s .*"
            ):
                run.wait_step(timeout=timeout)
        assert run["x"].fetch().tolist() == [0, 1, 2]
    with gf.connect("test", timeout=0.5, at="step") as run:
        array = run["x"]
        for read in (array.fetch, array.stats):
            with pytest.raises(TimeoutError, match=r"within 0\.5 s .*: wait longer .*or read live"):
                read()
    with (
        gf.connect(["test"], timeout=60) as run,
        pytest.raises(TimeoutError, match="no step was completed"),
    ):
        run.wait_step(timeout=0)


@pytest.mark.parametrize(
    ("timeout", "error"),
    [
        (-1, ValueError),
        (float("nan"), ValueError),
        ("1", TypeError),
        (True, TypeError),
        (1j, TypeError),
        (b"1", TypeError),
    ],
)
def test_a_time_out_that_is_none_is_refused(
    server: gf.Server, run: gf.Connection, timeout: Any, error: type[Exception]
) -> None:
    server.publish("y", gf.to_device(np.arange(3)))
    share = gf.share(gf.to_device(np.arange(3)))
    done = gf.fetch_async(gf.to_device(np.arange(3)))
    with gf.connect(["test"]) as joint:
        for call in (
            lambda: gf.connect("test", timeout=timeout),
            lambda: run.wait_step(timeout=timeout),
            lambda: joint.wait_step(timeout=timeout),
            lambda: server.unpublish("y", timeout=timeout),
            lambda: gf.unshare(share, timeout=timeout),
            lambda: done.result(timeout=timeout),
            lambda: done.wait(timeout=timeout),
            lambda: run["y"].fetch_async().result(timeout=timeout),
            lambda: run["y"].fetch_async().exception(timeout=timeout),
        ):
            with pytest.raises(error, match="timeout"):
                call()
    with pytest.raises(ValueError, match="timeout 0 is not a number of seconds above 0"):
        gf.connect("test", timeout=0)
    assert gf.unshare(share) == 0
    server.unpublish("y")
