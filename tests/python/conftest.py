"""Fixtures for every test: devices, faults, and the pool left as it was found."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import interrupts
import pytest
from arrays import pool_used_nbytes
from pulling import Traffic
from sanitizing import SANITIZED, left_out

import gpufetch as gf
from gpufetch import _core

interrupts.start_if_asked()
# Tests interrupt themselves. A process that a shell started in the background ignores SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)


# The files that take longest start first: none is what the others' processes wait for in the end.
LONG_FILES = (
    "test_hdf5_suites",
    "test_codebase_install",
    "test_viewer_slow",
    "test_viewer_page",
    "test_viewer_timed",
    "test_jupyterlab",
    "test_stress",
    "test_interrupted",
    "test_connect",
    "test_notebook",
    "test_benchmarks",
    "test_soak",
    "test_fork",
    "test_futures_shared",
    "test_exit",
    "test_checkpoint",
    "test_hdf5_failures",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the files, and leave out what sanitizing.py names or test_interrupted.py asks for."""
    rank = {name: number for number, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))
    step = int(os.environ.get("GPUFETCH_TEST_ONE_OF", 1))
    if SANITIZED or step > 1:
        spared = set(left_out(items)) if SANITIZED else set(items) - set(items[::step])
        config.hook.pytest_deselected(items=list(spared))
        items[:] = [item for item in items if item not in spared]


def _devices() -> list[Any]:
    """Return host:0 and every GPU; where there is none, cuda:0 as a skip with the reason.

    The reason starts with "no GPU:", so that skips for want of one can be counted.
    """
    cuda = gf.info()["backends"]["cuda"]
    names: list[Any] = ["host:0", *(found["device"] for found in cuda["devices"])]
    if not cuda["available"]:
        skip = pytest.mark.skip(reason=f"no GPU: {cuda['reason']}")
        names.append(pytest.param("cuda:0", marks=skip))
    return names


@pytest.fixture(params=_devices())
def device(request: pytest.FixtureRequest) -> str:
    """Name of a device: the test runs once on each."""
    return str(request.param)


@pytest.fixture(autouse=True)
def _no_faults_left() -> Iterator[None]:
    """Take injected faults away after each test."""
    yield
    _core._host_faults()


@pytest.fixture
def pool_cap() -> Iterator[int]:
    """The pool's cap, which is put back after the test."""
    cap = gf.pool.cap_nbytes
    yield cap
    gf.pool.cap_nbytes = cap


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Traffic:
    """A count of what is pulled during the test."""
    return Traffic(monkeypatch)


_used_by_workers: list[int] = []  # where pytest-xdist runs tests in several processes


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Keep what a process of pytest-xdist says at its end."""
    _used_by_workers.append(getattr(node, "workeroutput", {}).get("used_nbytes", 0))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run that passed but left pinned memory in use."""
    used = pool_used_nbytes()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["used_nbytes"] = used
        return
    used += sum(_used_by_workers)
    if exitstatus == pytest.ExitCode.OK and used != 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\nafter all tests {used} bytes of pinned memory are still in use: a leak")


@pytest.fixture
def shell() -> Iterator[Any]:
    """An IPython shell with the extension loaded."""
    interactive = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
    interactive.clear_instance()
    shell = interactive.instance(history_length=0)
    shell.extension_manager.load_extension("gpufetch")
    yield shell
    shell.extension_manager.unload_extension("gpufetch")
    interactive.clear_instance()
