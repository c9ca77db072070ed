"""Connection files that somebody else made, and servers that a kernel manager starts."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jupyter_client")

from jupyter_client.manager import KernelManager
from serving import client, eventually, needs_server, open_comm, process
from test_gray_scott import find_program

import gpufetch as gf
from gpufetch import _core

pytestmark = needs_server

SPECIFICATION = Path(__file__).resolve().parents[2] / "examples" / "kernels" / "gray_scott"


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runtime"
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(folder))
    return folder


# --- Files that are there ---

SERVE_FILE = """
    with gf.serve("run", connection_file=sys.argv[1]) as server:
        print("ready", flush=True)
        sys.stdin.read()
"""


def given_file(folder: Path) -> tuple[Path, dict[str, Any]]:
    """A connection file as a kernel manager writes it."""
    from jupyter_client.connect import write_connection_file

    path, given = write_connection_file(str(folder / "given.json"), key=b"their key")
    return Path(path), given


def addresses(path: Path) -> dict[str, Any]:
    """What a client takes from a connection file."""
    names = ("transport", "ip", "key", "shell_port", "iopub_port", "stdin_port", "control_port")
    content = json.loads(path.read_text())
    return {name: content[name] for name in (*names, "hb_port")}


def test_what_a_killed_server_wrote_to_the_file_is_obeyed_by_the_next(tmp_path: Path) -> None:
    path, given = given_file(tmp_path)
    with process(SERVE_FILE, str(path)) as first:
        first.kill()
        first.wait()
    assert "gpufetch" in json.loads(path.read_text())
    with gf.serve("run", connection_file=str(path)) as server:
        assert addresses(path)["shell_port"] == given["shell_port"]
        assert addresses(path)["key"] == "their key"
        with client(server.connection_file) as attached:
            attached.wait_for_ready(timeout=10)


def test_a_file_of_a_server_on_another_host_is_obeyed(tmp_path: Path) -> None:
    path, _ = given_file(tmp_path)
    with process(SERVE_FILE, str(path)) as first:
        content = json.loads(path.read_text())
        first.kill()
        first.wait()
    content["gpufetch"] |= {"host": "another", "process_id": os.getpid()}
    path.write_text(json.dumps(content))
    before = addresses(path)
    with gf.serve("run", connection_file=str(path)):
        assert addresses(path) == before


@pytest.mark.parametrize("change", [{"key": ""}, {"key": None}, {"key": 7}, {"ip": ["x"]}])
def test_a_file_that_no_client_could_be_served_by_is_refused(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    path, _ = given_file(tmp_path)
    text = json.dumps(json.loads(path.read_text()) | change)
    path.write_text(text)
    with pytest.raises(ValueError, match="no connection file"):
        gf.serve("run", connection_file=str(path))
    assert path.read_text() == text


def test_a_file_that_others_can_write_is_not_obeyed(tmp_path: Path) -> None:
    path, _ = given_file(tmp_path)
    path.chmod(0o666)
    text = path.read_text()
    with pytest.raises(gf.Error, match="another user"):
        gf.serve("run", connection_file=str(path))
    assert path.read_text() == text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_that_another_user_made_is_not_obeyed(tmp_path: Path, runtime: Path) -> None:
    path, _ = given_file(tmp_path)
    os.chown(path, 12345, -1)
    with pytest.raises(gf.Error, match="another user"):
        gf.serve("run", connection_file=str(path))
    runtime.mkdir()
    os.rename(path, runtime / "kernel-run.json")
    with gf.serve("run") as server:
        assert server.name == "run-2"


def test_a_server_of_a_name_on_another_host_keeps_it(runtime: Path) -> None:
    with gf.serve("run") as server:
        content = json.loads(Path(server.connection_file).read_text())
    content["gpufetch"]["host"] = "another"
    (runtime / "kernel-run.json").write_text(json.dumps(content))
    with gf.serve("run") as server:
        assert server.name == "run-2"
    assert [path.name for path in runtime.iterdir()] == ["kernel-run.json"]


def test_a_lock_on_the_folder_that_nobody_gives_up_does_not_block_the_start(
    runtime: Path,
) -> None:
    runtime.mkdir()
    folder = os.open(runtime, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        began = time.monotonic()
        with gf.serve("run") as server:
            assert server.name == "run" and 1 < time.monotonic() - began < 30
    finally:
        os.close(folder)


def test_the_file_is_gone_before_clients_are_told_of_the_end() -> None:
    server = gf.serve("run")
    path = Path(server.connection_file)
    with client(server.connection_file) as attached:
        attached.wait_for_ready(timeout=10)
        open_comm(attached, "c")
        was_there = []
        receive = attached.iopub_channel.socket

        def stop() -> None:
            server.stop()

        import threading

        stopping = threading.Thread(target=stop)
        stopping.start()
        while True:
            assert receive.poll(10000)
            message = attached.get_iopub_msg(timeout=10)
            if message["msg_type"] == "comm_close":
                was_there.append(path.exists())
                break
        stopping.join()
        assert was_there == [False]


# --- A kernel manager ---


@contextlib.contextmanager
def managed(monkeypatch: pytest.MonkeyPatch, folder: Path, **options: Any) -> Iterator[Any]:
    """The sample kernel specification, as it is, started by jupyter_client."""
    kernels = folder / "jupyter" / "kernels" / "gray_scott"
    shutil.copytree(SPECIFICATION, kernels)
    monkeypatch.setenv("JUPYTER_PATH", str(folder / "jupyter"))
    monkeypatch.setenv("PATH", f"{Path(find_program()).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("GPUFETCH_BACKEND", "host")
    (folder / "output").mkdir()
    (folder / "runtime").mkdir(exist_ok=True)
    manager: Any = KernelManager(kernel_name="gray_scott", **options)
    monkeypatch.chdir(folder / "output")  # jupyter_client names the sockets of ipc relative to it
    log = folder / "kernel.log"
    with log.open("w") as output:
        manager.start_kernel(stdout=output, stderr=output)  # a restart does so too
        try:
            yield manager
        except Exception:
            print(log.read_text())
            raise
        finally:
            manager.shutdown_kernel(now=True)


def until_ready(manager: Any) -> None:
    """Attach a client that has only what the manager knows."""
    attached = manager.client()
    attached.start_channels()
    try:
        attached.wait_for_ready(timeout=20)
        assert (
            "serves the tensors" in attached.kernel_info(reply=True, timeout=5)["content"]["banner"]
        )
    finally:
        attached.stop_channels()


def ask_to_end_long_ago(manager: Any) -> None:
    """Send what ZeroMQ keeps for a program that was killed, and hands to the next."""
    with client(manager.connection_file) as attached:
        attached.wait_for_ready(timeout=20)
        message = attached.session.msg("shutdown_request", {"restart": True})
        message["header"]["date"] = "2020-01-01T00:00:00Z"
        attached.control_channel.send(message)
        assert attached.get_control_msg(timeout=5)["content"]["status"] == "ok"
        attached.kernel_info(reply=True, timeout=5)


def test_a_kernel_managers_restart_leaves_a_server_that_it_reaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with managed(monkeypatch, tmp_path) as manager:
        path = Path(manager.connection_file)
        until_ready(manager)
        before, first = addresses(path), manager.provisioner.pid
        for how in (None, signal.SIGKILL, signal.SIGTERM):
            if how is not None:
                os.kill(manager.provisioner.pid, how)
                eventually(lambda: not manager.is_alive())
            manager.restart_kernel()
            assert manager.provisioner.pid != first
            until_ready(manager)
            assert addresses(path) == before


def test_a_kernel_manager_ends_the_simulation_and_it_writes_its_last_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with managed(monkeypatch, tmp_path) as manager:
        until_ready(manager)
        manager.interrupt_kernel()
        ask_to_end_long_ago(manager)
        assert manager.is_alive()
        began = time.monotonic()
        manager.shutdown_kernel()
        assert time.monotonic() - began < 4.5  # else the manager would have killed it
        assert len(list((tmp_path / "output").glob("gray_scott-*.h5"))) == 1
        assert not Path(manager.connection_file).exists()


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_a_kernel_manager_chooses_the_transport(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    with managed(monkeypatch, tmp_path, transport=transport) as manager:
        until_ready(manager)
        assert addresses(Path(manager.connection_file))["transport"] == transport


# --- The manager's end ---

SERVE_AND_TELL = """
import os, sys, threading
import gpufetch as gf
told = threading.Event()
callback = told.set if sys.argv[2] == "callback" else None
server = gf.serve("run", connection_file=sys.argv[1], on_shutdown=callback)
print(os.getpid(), flush=True)
told.wait()
server.stop()
open(sys.argv[1] + ".told", "w").close()
"""

START_AND_WAIT = """
import os, subprocess, sys, time
if sys.argv[1] == "mine":
    os.environ["JPY_PARENT_PID"] = str(os.getpid())
elif sys.argv[1] == "none":
    os.environ.pop("JPY_PARENT_PID", None)
else:
    os.environ["JPY_PARENT_PID"] = sys.argv[1]
command = ["/bin/sh", "-c", '"$@"; exit', "sh", sys.executable, *sys.argv[2:]]
started = subprocess.Popen(command, stderr=subprocess.DEVNULL)
time.sleep(600)
"""


@contextlib.contextmanager
def started_by_another(parent: str, how: str, path: Path) -> Iterator[tuple[Any, int]]:
    """A program that serves, started through a shell by a process that is given too."""
    command = [sys.executable, "-c", START_AND_WAIT, parent, "-c", SERVE_AND_TELL, str(path), how]
    manager = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "GPUFETCH_BACKEND": "host"}
    )
    process_id = 0
    try:
        assert manager.stdout is not None
        process_id = int(manager.stdout.readline())
        yield manager, process_id
    finally:
        manager.kill()
        manager.wait()
        manager.stdout.close()
        if _core.process_start_time(process_id):
            os.kill(process_id, signal.SIGKILL)


def test_a_program_ends_with_the_manager_that_started_it(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    with started_by_another("mine", "callback", path) as (manager, process_id):
        manager.kill()
        manager.wait()
        eventually(lambda: not _core.process_start_time(process_id), 20)
        assert Path(f"{path}.told").exists() and not path.exists()


def test_a_program_without_a_callback_ends_with_its_manager_by_sigterm(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    with started_by_another("mine", "none", path) as (manager, process_id):
        manager.kill()
        manager.wait()
        eventually(lambda: not _core.process_start_time(process_id), 20)
        assert not Path(f"{path}.told").exists()


@pytest.mark.parametrize("parent", ["none", "other"])
def test_a_program_that_no_manager_started_outlives_whoever_started_it(
    tmp_path: Path, parent: str
) -> None:
    """JPY_PARENT_PID of an environment that was copied names a process that is no ancestor."""
    path = tmp_path / "file.json"
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            named = str(other.pid) if parent == "other" else parent
            with started_by_another(named, "callback", path) as (manager, process_id):
                manager.kill()
                manager.wait()
                other.kill()
                other.wait()
                with client(path) as attached:
                    attached.wait_for_ready(timeout=10)
                    # The server looks each second, when something wakes it too.
                    end = time.monotonic() + 2.5
                    while time.monotonic() < end:
                        attached.kernel_info(reply=True, timeout=5)
                assert _core.process_start_time(process_id)
        finally:
            other.kill()
