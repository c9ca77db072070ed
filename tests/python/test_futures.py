"""fetch_async: no array before its copy has ended, nothing freed under a copy, no lost failure."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from arrays import pool_used_nbytes

import gpufetch as gf
from gpufetch import _core


def random_bytes(nbytes: int, seed: int = 3) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


def slow_link(nbytes: int, seconds: float) -> None:
    """Make a host backend copy of `nbytes` take about `seconds`."""
    _core._host_faults(bandwidth=nbytes / seconds)


def test_result_is_the_array_and_the_same_every_time(device: str) -> None:
    expected = random_bytes(3 << 20)
    future = gf.fetch_async(gf.to_device(expected, device=device))
    result = future.result()
    assert future.result() is result
    assert future.done() and future.wait()
    np.testing.assert_array_equal(result, expected)


def test_out_is_filled_and_returned(device: str) -> None:
    expected = random_bytes(3 << 20).reshape(-1, 4)
    out = np.zeros((4, len(expected)), np.uint8).T[::-1]
    future = gf.fetch_async(gf.to_device(expected, device=device), out=out)
    assert future.result() is out
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("shape", [(), (0,), (7, 0)])
def test_tensors_of_no_or_one_element_arrive(device: str, shape: tuple[int, ...]) -> None:
    x = gf.to_device(np.full(shape, 3.5), device=device)
    assert gf.fetch_async(x).result().tobytes() == np.full(shape, 3.5).tobytes()


def test_cpu_arrays_are_copied_too() -> None:
    a = random_bytes(1 << 20)
    result = gf.fetch_async(a[::-1]).result()
    np.testing.assert_array_equal(result, a[::-1])
    assert not np.shares_memory(result, a)


def test_a_timeout_leaves_the_copy_running() -> None:
    expected = random_bytes(4 << 20)
    x = gf.to_device(expected, device="host:0")
    slow_link(x.nbytes, 0.4)
    future = gf.fetch_async(x)
    assert not future.done()
    assert future.wait(0) is False
    assert future.wait(timeout=0.001) is False
    with pytest.raises(TimeoutError, match="still running"):
        future.result(timeout=0.001)
    assert "running" in repr(future)
    np.testing.assert_array_equal(future.result(timeout=60), expected)
    assert "done" in repr(future)


@pytest.mark.parametrize("timeout", [-1, -0.001, float("nan")])
def test_a_senseless_timeout_is_refused(timeout: float) -> None:
    future = gf.fetch_async(np.zeros(3))
    with pytest.raises(ValueError, match="seconds"):
        future.result(timeout)
    with pytest.raises(ValueError, match="seconds"):
        future.wait(timeout=timeout)
    with pytest.raises(TypeError):
        future.result("1")  # type: ignore[arg-type]


def test_an_infinite_timeout_waits_for_ever() -> None:
    assert gf.fetch_async(np.zeros(3)).result(float("inf")).shape == (3,)


def test_the_source_stays_alive_until_the_copy_has_ended() -> None:
    expected = random_bytes(4 << 20)
    x = gf.to_device(expected, device="host:0")
    alive = weakref.ref(x)
    slow_link(x.nbytes, 0.1)
    future = gf.fetch_async(x)
    del x
    gc.collect()
    assert alive() is not None
    np.testing.assert_array_equal(future.result(), expected)
    assert alive() is None


def test_dropping_a_future_waits_and_frees() -> None:
    x = gf.to_device(random_bytes(4 << 20), device="host:0")
    gf.fetch(x)
    used = pool_used_nbytes()
    slow_link(x.nbytes, 0.1)
    start = time.monotonic()
    future = gf.fetch_async(x)
    del future
    assert time.monotonic() - start > 0.05  # the memory was not freed during the copy
    assert gf.pool.stats()["used_nbytes"] == used


def test_the_result_outlives_the_future(device: str) -> None:
    expected = random_bytes(1 << 20)
    result = gf.fetch_async(gf.to_device(expected, device=device)).result()
    gc.collect()
    np.testing.assert_array_equal(result, expected)


def test_a_failure_is_raised_at_every_call_and_not_by_wait() -> None:
    x = gf.to_device(random_bytes(4 << 20), device="host:0")
    _core._host_faults(copy_fail_after_nbytes=1 << 20)
    future = gf.fetch_async(x)
    assert future.wait() is True
    for _ in range(3):
        with pytest.raises(gf.Error) as caught:
            future.result()
        assert caught.value.status == "GPUF_ERR_DEVICE"
    assert future.done()


def test_a_failed_and_dropped_future_leaks_nothing() -> None:
    x = gf.to_device(random_bytes(4 << 20), device="host:0")
    gf.fetch(x)
    used = pool_used_nbytes()
    _core._host_faults(copy_fail_after_nbytes=1000)
    for _ in range(5):
        gf.fetch_async(x)
    assert gf.pool.stats()["used_nbytes"] == used


def test_many_in_flight_each_get_their_own(device: str) -> None:
    arrays = [random_bytes(100_000 + i, seed=i) for i in range(40)]
    on_device = [gf.to_device(a, device=device) for a in arrays]
    futures = [gf.fetch_async(x) for x in on_device]
    for future, expected in zip(reversed(futures), reversed(arrays), strict=True):
        np.testing.assert_array_equal(future.result(), expected)


def test_several_threads_may_wait_for_one_future() -> None:
    expected = random_bytes(4 << 20)
    x = gf.to_device(expected, device="host:0")
    slow_link(x.nbytes, 0.1)
    future = gf.fetch_async(x)
    with ThreadPoolExecutor(6) as threads:
        results = list(threads.map(lambda _: future.result(), range(12)))
    assert all(result is results[0] for result in results)
    np.testing.assert_array_equal(results[0], expected)


def test_a_signal_interrupts_the_wait_and_not_the_copy() -> None:
    class SignalError(Exception):
        pass

    def interrupt(*_: Any) -> None:
        raise SignalError

    expected = random_bytes(4 << 20)
    x = gf.to_device(expected, device="host:0")
    slow_link(x.nbytes, 1.0)
    future = gf.fetch_async(x)
    main = threading.main_thread().ident
    assert main is not None
    # Not SIGALRM: interrupts.py has a timer for that.
    timer = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGUSR1))
    old = signal.signal(signal.SIGUSR1, interrupt)

    def wait() -> None:
        timer.start()
        future.result()

    try:
        with pytest.raises(SignalError):
            wait()
        assert not future.done()
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, old)
    np.testing.assert_array_equal(future.result(), expected)


def test_other_threads_run_while_one_waits() -> None:
    x = gf.to_device(random_bytes(4 << 20), device="host:0")
    slow_link(x.nbytes, 0.2)
    future = gf.fetch_async(x)
    turns = 0
    waiter = threading.Thread(target=future.result)
    waiter.start()
    while waiter.is_alive():
        turns += 1
    assert turns > 100


def test_a_future_cannot_be_made_by_hand() -> None:
    with pytest.raises(TypeError):
        gf.Future()


FORK = """
import os, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
import gpufetch as gf
x = gf.to_device(np.arange(1 << 20), device="host:0")
future = gf.fetch_async(x)
pid = os.fork()
if pid == 0:
    status = 0
    for call in (future.result, future.wait, future.done, lambda: gf.fetch(x)):
        try:
            call()
            status = 1
        except gf.Error as error:
            if error.status != "GPUF_ERR_STATE" or "fork" not in str(error):
                status = 2
    del future, x  # must neither hang nor free what the parent uses
    os._exit(status)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert (future.result() == np.arange(1 << 20)).all()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_fork_the_child_gets_an_error_and_the_parent_its_array() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
