"""Futures as concurrent.futures and asyncio use them: told once, cancelled honestly, never hung."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import logging
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from arrays import pool_used_nbytes
from sanitizing import SANITIZED

import gpufetch as gf
from gpufetch import _core

CancelledError = concurrent.futures.CancelledError
NBYTES = 4 << 20


def random_bytes(seed: int = 3) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, NBYTES, np.uint8)


def slow_link(seconds: float) -> None:
    """Make a host backend copy of NBYTES take about `seconds`."""
    _core._host_faults(bandwidth=NBYTES / seconds)


@pytest.fixture
def expected() -> npt.NDArray[np.uint8]:
    return random_bytes()


@pytest.fixture
def x(expected: npt.NDArray[np.uint8]) -> gf.DeviceArray:
    return gf.to_device(expected, device="host:0")


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll, because no event says so; fails after a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def wait_for_threads() -> None:
    """Wait until every thread of gpufetch's that was told of an end has passed it on."""
    from gpufetch import _futures

    wait_until(lambda: not _futures._watchers._running and not _futures._settlers._running)


# --- concurrent.futures ---------------------------------------------------------------------------


def test_what_runs_in_the_first_use_may_wait_for_another_threads_first_use(
    x: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a finalizer may, which the collector runs there."""
    create = concurrent.futures.Future.__init__
    other = gf.fetch_async(x)
    told = threading.Event()
    waited: list[bool] = []

    def finalize(self: Any) -> None:
        create(self)
        if not waited:
            waited.append(False)
            callback = threading.Thread(
                target=other.add_done_callback, args=(lambda _: told.set(),), daemon=True
            )
            callback.start()
            waited[0] = told.wait(10)

    monkeypatch.setattr(concurrent.futures.Future, "__init__", finalize)
    future = gf.fetch_async(x)
    concurrent.futures.wait([future], timeout=0)
    assert waited == [True]
    np.testing.assert_array_equal(future.result(), expected)


def test_a_callback_is_called_once_when_the_copy_ends(x: Any, expected: Any) -> None:
    slow_link(1)
    future = gf.fetch_async(x)
    calls: list[Any] = []
    called = threading.Event()
    future.add_done_callback(calls.append)
    future.add_done_callback(lambda _: called.set())
    assert calls == []
    assert called.wait(60)
    assert calls == [future]
    np.testing.assert_array_equal(calls[0].result(timeout=0), expected)
    wait_for_threads()
    assert calls == [future]


@pytest.mark.parametrize("watched", [False, True])
def test_a_callback_of_a_copy_that_is_done_is_called_at_once(x: Any, watched: bool) -> None:
    for _ in range(50):
        future = gf.fetch_async(x)
        before: list[Any] = []
        if watched:
            future.add_done_callback(before.append)
        future.result()
        calls: list[Any] = []
        future.add_done_callback(calls.append)
        assert calls == [future]
        wait_for_threads()
        assert calls == [future]
        assert before == [future] * watched


@pytest.mark.parametrize("done", [False, True])
def test_a_callback_that_raises_is_logged_and_the_others_are_called(
    x: Any, done: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: Any) -> None:
        raise KeyError("in a callback")

    future = gf.fetch_async(x)
    if done:
        future.wait()
    called = threading.Event()
    with caplog.at_level(logging.ERROR, "concurrent.futures"):
        future.add_done_callback(fails)
        future.add_done_callback(lambda _: called.set())
        assert called.wait(60)
        wait_for_threads()
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [KeyError]
    assert future.exception() is None


def test_wait_and_as_completed_take_it(x: Any, expected: Any) -> None:
    slow_link(0.05)
    futures = [gf.fetch_async(x) for _ in range(4)]
    done, not_done = concurrent.futures.wait(futures, timeout=60)
    assert done == set(futures) and not not_done
    for future in concurrent.futures.as_completed([gf.fetch_async(x), *futures], timeout=60):
        np.testing.assert_array_equal(future.result(), expected)
    executor = concurrent.futures.ThreadPoolExecutor(1)
    mixed = [executor.submit(lambda: expected), gf.fetch_async(x)]
    assert concurrent.futures.wait(mixed, timeout=60).done == set(mixed)
    executor.shutdown()


def test_wait_returns_with_the_first_that_ends(x: Any) -> None:
    small = gf.to_device(np.arange(3), device="host:0")
    slow_link(0.5)
    slow = gf.fetch_async(x)
    quick = gf.fetch_async(small)
    first = concurrent.futures.FIRST_COMPLETED
    assert quick in concurrent.futures.wait([slow, quick], timeout=60, return_when=first).done


def test_a_copy_that_was_waited_for_counts_as_done(x: Any) -> None:
    for _ in range(50):
        future = gf.fetch_async(x)
        future.result()
        assert concurrent.futures.wait([future], timeout=0).done == {future}


def test_a_failure_reaches_everyone_who_asks(x: Any) -> None:
    _core._host_faults(copy_fail_after_nbytes=1 << 20)
    future = gf.fetch_async(x)
    told: list[Any] = []
    future.add_done_callback(lambda f: told.append(f.exception()))
    error = future.exception(timeout=60)
    assert isinstance(error, gf.Error) and error.status == "GPUF_ERR_DEVICE"
    wait_for_threads()
    assert len(told) == 1 and isinstance(told[0], gf.Error)
    assert concurrent.futures.wait([future], timeout=60).done == {future}
    with pytest.raises(gf.Error, match="injected"):
        future.result()
    assert not future.cancelled() and not future.running() and not future.cancel()
    with pytest.raises(gf.Error, match="injected"):
        asyncio.run(awaited(future))


def test_exception_has_a_timeout(x: Any) -> None:
    slow_link(2)
    gc.disable()  # a collection of what the tests before have left may outlast the copy
    try:
        future = gf.fetch_async(x)
        assert future.running()
        with pytest.raises(TimeoutError, match="still running"):
            future.exception(timeout=0.001)
    finally:
        gc.enable()
    assert future.exception() is None
    assert not future.running()


def test_nobody_else_decides_about_the_outcome(x: Any, expected: Any) -> None:
    future = gf.fetch_async(x)
    for call in (
        lambda: future.set_result(np.zeros(1)),
        lambda: future.set_exception(ValueError()),
        future.set_running_or_notify_cancel,
    ):
        with pytest.raises(RuntimeError, match="copy alone"):
            call()
    np.testing.assert_array_equal(future.result(), expected)
    with pytest.raises(AttributeError, match="nonsense"):
        future.nonsense  # type: ignore[attr-defined]  # noqa: B018


def note(calls: list[int], number: int, _: Any) -> None:
    calls.append(number)


def test_many_threads_ask_to_be_told_at_once(x: Any) -> None:
    for _ in range(20):
        slow_link(0.002)
        future = gf.fetch_async(x)
        calls: list[int] = []
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            for i in range(8):
                threads.submit(future.add_done_callback, partial(note, calls, i))
        future.result()
        wait_for_threads()
        assert sorted(calls) == list(range(8))


def test_more_futures_than_threads_are_all_told(x: Any) -> None:
    small = [gf.to_device(np.arange(i + 1), device="host:0") for i in range(200)]
    slow_link(0.05)
    first = gf.fetch_async(x)
    futures = [gf.fetch_async(a) for a in small]
    assert len(concurrent.futures.wait([first, *futures], timeout=60).done) == 201
    for i, future in enumerate(futures):
        np.testing.assert_array_equal(future.result(), np.arange(i + 1))


@pytest.mark.parametrize("held", ["future", "waiter", "event"])
def test_a_lock_that_stays_held_holds_up_no_other_future(held: str) -> None:
    """As an exception of a signal's handler may leave it, within wait or as_completed."""
    from gpufetch import _outcome

    small = gf.to_device(np.arange(3), device="host:0")
    may_end, all_held = threading.Event(), threading.Event()
    _core._host_faults(latency_us=8e6 if SANITIZED else 2e6)  # all locks are to be held by then
    futures = [gf.fetch_async(small) for _ in range(70)]
    install = concurrent.futures._base._create_and_install_waiters  # type: ignore[attr-defined]
    waiters = [install([future], "_AS_COMPLETED") for future in futures]
    locks = {
        "future": [future._condition for future in futures],
        "waiter": [waiter.lock for waiter in waiters],
        "event": [waiter.event._cond for waiter in waiters],
    }[held]

    def hold() -> None:
        for lock in locks:
            lock.acquire()
        all_held.set()
        may_end.wait(60)
        for lock in locks:
            lock.release()

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert all_held.wait(60)
        _core._host_faults()
        others = [gf.fetch_async(small) for _ in range(70)]
        assert len(concurrent.futures.wait(others, timeout=60).done) == 70
        wait_for_threads()
        assert not any(waiter.finished_futures for waiter in waiters)
        dropped = weakref.ref(futures.pop())
        waiters.pop()
        wait_until(lambda: gc.collect() >= 0 and dropped() is None)
    finally:
        may_end.set()
        holder.join()
    for future, waiter in zip(futures, waiters, strict=True):
        assert waiter.event.wait(60) and waiter.finished_futures == [future]
    assert concurrent.futures.wait(futures, timeout=60).done == set(futures)
    wait_until(lambda: not _outcome._retriers._running)


def test_without_a_thread_the_caller_waits(x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("gpufetch._futures._watchers.start", no_thread)
    monkeypatch.setattr("gpufetch._futures._settlers.start", no_thread)
    slow_link(0.05)
    future = gf.fetch_async(x)
    calls: list[Any] = []
    future.add_done_callback(calls.append)
    assert calls == [future] and future.done()


def test_an_interrupted_start_is_started_again_for_all_that_ask_to_be_told(
    x: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    slow_link(0.05)
    future = gf.fetch_async(x)

    def interrupted(_: Any) -> None:
        with concurrent.futures.ThreadPoolExecutor() as another:
            another.submit(future.add_done_callback, calls.append).result()
        patch.undo()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gpufetch._futures._settlers.start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            concurrent.futures.wait([future])
    assert concurrent.futures.wait([future], timeout=60).done == {future}
    np.testing.assert_array_equal(future.result(), expected)
    wait_for_threads()
    assert calls == [future]


# A finalizer of a cycle asks for a callback at each place where the collector runs.
FINALIZER = """
import gc, time
import numpy as np, gpufetch as gf

x = gf.to_device(np.zeros(1 << 20), device="host:0")
calls = []

class Asks:
    def __init__(self):
        self.self = self
    def __del__(self):
        gf.fetch_async(x).add_done_callback(calls.append)

count = 0
for threshold in range(1, 120):
    future = gf.fetch_async(x)
    gc.disable()
    Asks()
    gc.set_threshold(threshold, 1, 1)
    gc.enable()
    future.add_done_callback(calls.append)
    gc.set_threshold(700, 10, 10)
    gc.collect()
    count += 2
deadline = time.monotonic() + 60
while len(calls) < count and time.monotonic() < deadline:
    time.sleep(0.01)
print(len(calls) - count)
"""


def test_finalizers_may_ask_to_be_told_wherever_they_run() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FINALIZER], capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr


# --- Cancelling -----------------------------------------------------------------------------------


def pageable_out() -> npt.NDArray[np.uint8]:
    return np.full(NBYTES, 0x5A, np.uint8)


STARTS: dict[str, Callable[[Any], gf.Future[Any]]] = {
    "pinned": gf.fetch_async,
    "pageable": lambda x: gf.fetch_async(x, out=pageable_out()),
    "cast": lambda x: gf.fetch_async(x, dtype=np.uint16),
    "tree": lambda x: gf.fetch_async({"a": x, "b": [x[::2], x[:100]]}),
}
starts = pytest.mark.parametrize("start", STARTS.values(), ids=STARTS.keys())


@starts
def test_cancel_gives_the_result_up(x: Any, start: Callable[[Any], gf.Future[Any]]) -> None:
    gf.fetch(x)
    slow_link(1)
    future = start(x)
    told: list[bool] = []
    future.add_done_callback(lambda f: told.append(f.cancelled()))
    assert future.cancel()
    assert not future.done() and not future.cancelled() and told == []  # the device still writes
    with pytest.raises(TimeoutError):
        future.result(timeout=0)
    with pytest.raises(CancelledError):
        future.result(timeout=60)
    with pytest.raises(CancelledError):
        future.exception()
    assert future.done() and future.cancelled() and future.wait() and not future.running()
    assert future.cancel()
    assert "cancelled" in repr(future)
    wait_for_threads()
    assert told == [True]
    assert concurrent.futures.wait([future], timeout=60).done == {future}


@starts
def test_a_copy_that_is_done_cannot_be_cancelled(
    x: Any, start: Callable[[Any], gf.Future[Any]]
) -> None:
    future = start(x)
    result = future.result()
    assert not future.cancel() and not future.cancelled()
    assert future.result() is result


def test_what_has_not_begun_is_not_begun_after_cancel(expected: Any, pool_cap: int) -> None:
    x = gf.to_device(expected[:1000], device="host:0")
    gf.pool.cap_nbytes = 0  # each tensor is copied before the next is begun
    _core._host_faults(latency_us=20_000)
    future = gf.fetch_async([x] * 200)  # takes four seconds at least
    start = time.monotonic()
    assert future.cancel()
    assert future.wait(60)
    assert time.monotonic() - start < 3


def test_out_is_at_rest_once_a_cancelled_copy_is_done(x: Any, expected: Any) -> None:
    for _ in range(20):
        out = ~expected
        slow_link(0.01)
        future = gf.fetch_async(x, out=out)
        future.cancel()
        assert future.wait(60)
        at_rest = out.copy()
        assert ((out == expected) | (out == ~expected)).all()
        _core._host_faults()
        np.testing.assert_array_equal(gf.fetch(x), expected)
        np.testing.assert_array_equal(out, at_rest)


@starts
def test_memory_of_a_cancelled_copy_is_not_reused_before_its_end(
    x: Any, expected: Any, start: Callable[[Any], gf.Future[Any]]
) -> None:
    gc.collect()
    gf.fetch(x)
    used = pool_used_nbytes()
    for _ in range(5):
        slow_link(0.02)
        future = start(x)
        future.cancel()
        del future
        _core._host_faults()
        np.testing.assert_array_equal(gf.fetch(x), expected)
    assert gf.pool.stats()["used_nbytes"] == used


@pytest.mark.parametrize("ends", ["cancelled", "failed"])
def test_a_future_without_a_result_keeps_no_memory(x: Any, ends: str) -> None:
    used = pool_used_nbytes()
    source = gf.to_device(random_bytes(4), device="host:0")
    alive = weakref.ref(source)
    slow_link(0.1)
    if ends == "failed":
        _core._host_faults(copy_fail_after_nbytes=1 << 20)
    future = gf.fetch_async(source)
    del source
    assert gf.pool.stats()["used_nbytes"] > used and alive() is not None
    assert future.cancel() or ends == "failed"
    with pytest.raises((CancelledError, gf.Error)) as first:
        future.result()
    assert alive() is None and gf.pool.stats()["used_nbytes"] == used
    assert ends in repr(future) or future.cancelled()
    with pytest.raises(first.type):
        future.result()
    assert future.done() and future.wait() and future.cancel() == future.cancelled()


def test_cancel_at_any_time_is_right_or_cancelled(x: Any, expected: Any) -> None:
    rng = np.random.default_rng(1)
    outcomes = set()
    slow_link(0.004)
    for i in range(200):
        out = pageable_out() if i % 2 else None
        future = gf.fetch_async(x, out=out)
        if i % 3 == 0:
            future.add_done_callback(lambda _: None)
        if i % 50 == 49:
            future.wait()
        elif i % 50:
            future.wait(rng.uniform(0, 0.012))
        cancelled = future.cancel()
        outcomes.add(cancelled)
        if cancelled:
            with pytest.raises(CancelledError):
                future.result()
        else:
            assert future.result().tobytes() == expected.tobytes()
        assert future.cancelled() == cancelled
    assert outcomes == {True, False}


# --- Abandoned ------------------------------------------------------------------------------------


def test_a_dropped_future_still_tells_and_frees(x: Any, expected: Any) -> None:
    gc.collect()
    gf.fetch(x)
    used = pool_used_nbytes()
    slow_link(0.1)
    right: list[bool] = []
    future = gf.fetch_async(x)
    future.add_done_callback(lambda f: right.append(bool((f.result() == expected).all())))
    gone = weakref.ref(future)
    del future
    wait_until(lambda: gone() is None)
    assert right == [True]
    wait_until(lambda: gf.pool.stats()["used_nbytes"] == used)


def test_a_future_in_a_cycle_is_collected(x: Any) -> None:
    used = pool_used_nbytes()
    slow_link(0.05)
    for watched in (False, True):
        future: Any = gf.fetch_async(x)
        future.itself = future
        if watched:
            future.add_done_callback(lambda f: None)
        gone = weakref.ref(future)
        del future
        wait_for_threads()
        gc.collect()
        assert gone() is None
    assert gf.pool.stats()["used_nbytes"] == used


EXITS = {
    "held": "kept = future",
    "told": "future.add_done_callback(lambda f: print('told', f.cancelled(), flush=True))",
    "told and dropped": (
        "future.add_done_callback(lambda f: print('told', f.cancelled(), flush=True)); del future"
    ),
    "cancelled": (
        "future.add_done_callback(lambda f: print('told', f.cancelled(), flush=True));"
        "future.cancel()"
    ),
    "in a thread": (
        "import threading\nthreading.Thread(target=lambda: future.result(), daemon=True).start()"
    ),
    "in a loop": (
        "import asyncio\n"
        "async def main(): asyncio.ensure_future(wait())\n"
        "async def wait(): await future\n"
        "asyncio.run(main())"
    ),
    "many": "kept = [gf.fetch_async(x) for _ in range(20)]\n"
    "for f in kept[::2]: f.add_done_callback(lambda f: None)",
    "at exit": (
        "import atexit\n"
        "atexit.register(lambda: gf.fetch_async(x).add_done_callback("
        "lambda f: print('told', f.cancelled(), flush=True)))"
    ),
}


@pytest.mark.parametrize("how", EXITS)
def test_the_interpreter_ends_with_a_future_in_flight(how: str) -> None:
    code = (
        "import numpy as np, gpufetch as gf\n"
        "from gpufetch import _core\n"
        "x = gf.to_device(np.random.default_rng(1).random(1 << 19), device='host:0')\n"
        "_core._host_faults(bandwidth=40e6)\n"
        "future = gf.fetch_async(x)\n" + EXITS[how]
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    told = {"told": "False", "told and dropped": "False", "cancelled": "True", "at exit": "False"}
    assert done.stdout == (f"told {told[how]}\n" if how in told else "")


FORK = """
import concurrent.futures, os, warnings
warnings.simplefilter("ignore")
import numpy as np
import gpufetch as gf
from gpufetch import _core
x = gf.to_device(np.arange(1 << 19), device="host:0")
_core._host_faults(bandwidth=40e6)
plain, told = gf.fetch_async(x), gf.fetch_async(x)
calls = []
told.add_done_callback(calls.append)
pid = os.fork()
if pid == 0:
    status = 0
    for future in (plain, told):
        for call in (
            future.result, future.wait, future.done, future.cancel, future.cancelled,
            future.exception, future.running, lambda: future.add_done_callback(print),
            lambda: plain._condition,
        ):
            try:
                call()
                status = 1
            except gf.Error as error:
                if error.status != "GPUF_ERR_STATE" or "fork" not in str(error):
                    status = 2
        if "before fork" not in repr(future):
            status = 3
    try:
        concurrent.futures.wait([plain])
        status = 4
    except gf.Error:
        pass
    del future, plain, told, x
    os._exit(status or len(calls))
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert (told.result() == np.arange(1 << 19)).all()
assert (plain.result() == np.arange(1 << 19)).all()
"""


def test_a_forked_child_is_told_that_it_is_one() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_futures_of_one_thread_are_waited_for_in_another(x: Any, expected: Any) -> None:
    slow_link(0.02)
    with concurrent.futures.ThreadPoolExecutor(4) as makers:
        futures = list(makers.map(lambda _: gf.fetch_async(x), range(12)))
    with concurrent.futures.ThreadPoolExecutor(4) as takers:
        for result in takers.map(lambda future: future.result(), futures):
            np.testing.assert_array_equal(result, expected)


# --- asyncio --------------------------------------------------------------------------------------


async def awaited(future: gf.Future[Any]) -> Any:
    return await future


def test_await_gives_the_result_and_the_loop_goes_on(x: Any, expected: Any) -> None:
    async def main() -> tuple[Any, int]:
        turns = 0

        async def tick() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        ticking = asyncio.ensure_future(tick())
        result = await gf.fetch_async(x)
        ticking.cancel()
        return result, turns

    slow_link(0.1)
    result, turns = asyncio.run(main())
    np.testing.assert_array_equal(result, expected)
    assert turns > 100


def test_awaiting_takes_no_processor_time(x: Any) -> None:
    slow_link(0.5)
    future = gf.fetch_async(x)
    gf.fetch(gf.to_device(np.zeros(3), device="host:0"))
    before = time.process_time()
    asyncio.run(awaited(future))
    assert time.process_time() - before < 0.25


def test_gather_wait_for_shield_and_wrap_future(x: Any, expected: Any) -> None:
    async def main() -> list[Any]:
        results = list(await asyncio.gather(*(gf.fetch_async(x) for _ in range(5))))
        results.append(await asyncio.wait_for(gf.fetch_async(x), 60))
        results.append(await asyncio.shield(gf.fetch_async(x)))
        results.append(await asyncio.wrap_future(gf.fetch_async(x)))
        future = gf.fetch_async(x)
        results += await asyncio.gather(awaited(future), awaited(future), awaited(future))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(awaited(gf.fetch_async(x)))
        return [*results, task.result(), await future]

    slow_link(0.01)
    for result in asyncio.run(main()):
        np.testing.assert_array_equal(result, expected)


@starts
def test_a_cancelled_task_cancels_its_copy_and_leaves_no_memory_in_use(
    x: Any, start: Callable[[Any], gf.Future[Any]]
) -> None:
    async def main() -> gf.Future[Any]:
        future = start(x)
        task = asyncio.ensure_future(awaited(future))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # twice changes nothing
        with pytest.raises(asyncio.CancelledError):
            await task
        assert future.done()  # nothing is written any more
        return future

    slow_link(0.1)
    future = asyncio.run(main())
    assert future.cancelled()


def test_a_time_limit_cancels_the_copy(x: Any, expected: Any) -> None:
    async def main() -> None:
        out = pageable_out()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(gf.fetch_async(x, out=out), 0.01)
        at_rest = out.copy()
        _core._host_faults()
        assert (await gf.fetch_async(x)).tobytes() == expected.tobytes()
        np.testing.assert_array_equal(out, at_rest)

    slow_link(0.3)
    asyncio.run(main())


def test_cancelled_elsewhere_is_asyncios_cancelled_error(x: Any) -> None:
    async def main() -> None:
        future = gf.fetch_async(x)
        threading.Thread(target=future.cancel).start()
        with pytest.raises(asyncio.CancelledError):
            await future
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wrap_future(future)

    slow_link(0.2)
    asyncio.run(main())


def test_a_loop_that_is_closed_before_the_copy_ends_is_left_alone(
    x: Any, caplog: pytest.LogCaptureFixture
) -> None:
    slow_link(0.1)
    future = gf.fetch_async(x)
    loop = asyncio.new_event_loop()
    task = loop.create_task(awaited(future))
    loop.run_until_complete(asyncio.sleep(0))
    task.cancel()
    loop.call_soon(loop.stop)
    loop.run_forever()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task
    loop.close()
    future.wait()
    wait_for_threads()
    assert not caplog.records


def test_await_needs_a_running_loop(x: Any) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        next(gf.fetch_async(x).__await__())


def test_one_future_is_awaited_in_two_loops(x: Any, expected: Any) -> None:
    slow_link(0.1)
    future = gf.fetch_async(x)
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        for result in threads.map(lambda _: asyncio.run(awaited(future)), range(2)):
            np.testing.assert_array_equal(result, expected)


def test_a_lazy_array_can_be_awaited(x: Any, expected: Any) -> None:
    async def main() -> Any:
        future: Any = gf.lazy(x)[::2].fetch_async()
        return await future

    np.testing.assert_array_equal(asyncio.run(main()), expected[::2])


def test_a_plain_fetch_starts_no_thread_of_pythons(x: Any) -> None:
    code = (
        "import threading, numpy as np, gpufetch as gf\n"
        "f = gf.fetch_async(gf.to_device(np.zeros(9), device='host:0'))\n"
        "f.wait(); f.result(); f.done(); f.cancel(); repr(f)\n"
        "import sys; print(threading.active_count(), 'asyncio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "1 False\n", done.stderr
