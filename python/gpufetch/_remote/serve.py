"""Serving: a Python program whose tensors notebooks can attach to."""

from __future__ import annotations

import atexit
import logging
import math
import operator
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NoReturn, final

from gpufetch import _core, _share  # noqa: F401  (the order of what runs at exit)
from gpufetch._checks import check_int, check_path, check_text, check_timeout

__all__ = ["Server", "serve"]

_logger = logging.getLogger("gpufetch.serve")
_running: set[Server] = set()  # which stay until they are stopped, whoever else keeps them
_start_lock = threading.Lock()  # one server starts at a time
os.register_at_fork(  # a forked child gets it free, whatever other threads did
    before=_start_lock.acquire,
    after_in_parent=_start_lock.release,
    after_in_child=_start_lock.release,
)
_FIRST_PORT_MAX = 65535 - 4
_POLL_S = 0.01  # between looks whether other processes have let go of a tensor


class _Shutdown:
    """What a client's shutdown request calls."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback

    def __call__(self) -> None:
        self.callback()


@final
class Server:
    """A running server; from `serve`. As a context manager it stops at the end of the block.

    It runs until `stop` is called or the process ends, also where the program keeps no reference to
    it, and keeps what it publishes alive. May be used from any thread.
    """

    def __init__(
        self,
        handle: Any,
        name: str,
        connection_file: str,
        options: Mapping[str, Any],
        shutdown: _Shutdown | None,
    ) -> None:
        self._handle = handle
        self._options = options  # as serve() was called, the wanted name among them
        self._shutdown = shutdown
        self._process_id = os.getpid()
        # Held while the handle is used, which is never for long. What a tensor that is let go runs
        # meanwhile, such as __del__, may use the server on the same thread, but not stop it.
        self._mutex = threading.RLock()
        self._stopping = threading.RLock()  # held by the call that stops the server
        self._use_count = 0  # how many calls on this thread hold the mutex
        self._name = name
        self._connection_file = connection_file
        self._is_stopped = False
        self._published: set[str] = set()  # names of tensors; guarded by _mutex
        _running.add(self)

    @contextmanager
    def _using(self) -> Iterator[int]:
        """Hold the handle; how many calls hold it already, all of them on this thread.

        `Error` in a forked child, which has no server.
        """
        _core.check_process(self._process_id)
        with self._mutex:
            self._use_count += 1
            try:
                yield self._use_count - 1
            finally:
                self._use_count -= 1

    @property
    def name(self) -> str:
        """The name that `connect` takes; with a number if the wanted name was in use."""
        return self._name

    @property
    def connection_file(self) -> str:
        """Path of the connection file, which `jupyter console --existing` takes too."""
        return self._connection_file

    def publish(
        self,
        name: str,
        x: Any,
        *,
        start: Sequence[int] | None = None,
        global_shape: Sequence[int] | None = None,
    ) -> None:
        """Offer the tensor `x` under `name`; one that has the name is replaced.

        x is any tensor that `fetch` takes. It is kept alive until it is unpublished or replaced,
        and until reads of it have ended. Nothing is copied now: clients read what it holds then.

        A program of several ranks, each of which serves its part of an array, gives the array's
        shape as `global_shape` and the part's first index along each axis as `start`;
        `connect([...])` then shows one array. Parts must not overlap: publish a view without ghost
        cells.

        Raises ValueError for one of `start` and `global_shape` without the other, and for a part
        that is not inside its array.
        """
        if (start is None) != (global_shape is None):
            raise ValueError(f"start={start}, global_shape={global_shape}: give both or neither")
        part = [
            None if numbers is None else tuple(map(operator.index, numbers))
            for numbers in (start, global_shape)
        ]
        check_text(name, "name")
        tensor = _core.serve_tensor(x)  # runs code of the producer's: without the mutex
        with self._using():
            _core.serve_publish(self._handle, name, tensor, *part)
            self._published.add(name)

    def unpublish(self, name: str, *, timeout: float | None = 0) -> None:
        """Stop offering a tensor or value.

        Waits for reads that are under way; then at most `timeout` seconds (None: without a limit)
        until no other process is attached to its memory, and raises TimeoutError if one still is.
        Other threads may use the server meanwhile. ValueError for an unknown name; RuntimeError
        where another thread publishes the name again meanwhile.
        """
        check_timeout(timeout)
        end = math.inf if timeout is None else time.monotonic() + timeout
        check_text(name, "name")
        with self._using():
            self._published.discard(name)
            if self._withdraw(name):
                return
        while time.monotonic() < end:
            time.sleep(_POLL_S)
            with self._using():
                if name in self._published:
                    raise RuntimeError(
                        f"{name} was published again, while unpublish waited for other processes "
                        "to let go of what it was before"
                    )
                try:
                    if self._withdraw(name):
                        return
                except ValueError:
                    return  # nothing of that name is in use any more
        raise TimeoutError(
            f"other processes are attached to {name}: keep its memory until they let go"
        )

    def _withdraw(self, name: str) -> bool:
        """Withdraw a name; False while other processes are attached. Call with the lock held."""
        try:
            _core.serve_unpublish(self._handle, name, 0)
        except TimeoutError:
            return False
        return True

    def set(self, name: str, value: Any) -> None:
        """Publish a value beside the tensors, such as a parameter or the last file's name.

        An int of 64 bits, a float, a bool (as 0 or 1), a str, or what has one of these as its only
        element: a NumPy scalar, an array or a framework's tensor without axes.
        """
        number = value
        if not isinstance(value, int | float | str) and getattr(value, "shape", None) == ():
            number = value.item()
        if not isinstance(number, int | float | str):
            raise TypeError(
                f"value {name} is a {type(value).__name__}"
                f"{f' of shape {tuple(value.shape)}' if getattr(value, 'shape', ()) else ''}: give "
                "an int, float or str, or a scalar of NumPy or of a framework"
            )
        check_text(name, "name")
        if isinstance(number, str):
            check_text(number, f"value {name}:")
        if isinstance(number, int):
            check_int(number, f"value {name}")
        with self._using():
            _core.serve_publish_value(self._handle, name, number)

    def step(self, step: int, time: float = 0.0) -> None:
        """Say that a step is complete, at simulated `time`.

        Clients that asked for reads at a step are answered before this returns. Numbers need not
        rise: each call is a new step, also where a program goes back to a checkpoint.
        """
        step = check_int(step, "step")
        if isinstance(time, str) or not hasattr(time, "__float__"):
            raise TypeError(f"time is {time!r:.80}, of type {type(time).__name__}: give a number")
        with self._using():
            _core.serve_step(self._handle, step, time)

    def stop(self) -> None:
        """Detach the clients and stop; may be called again.

        Takes at most about 6 seconds, and the time that the read takes that is under way. Raises
        TimeoutError where other processes are still attached to memory that was published: the
        server is stopped then, and the memory must be kept.

        Raises RuntimeError within another call of the server and on the server's own threads,
        which cannot wait for their own end: in `on_shutdown`, in a handler of the logger
        `gpufetch.serve`, and in what a tensor runs when it is let go. Set a `threading.Event`
        there, and stop the server on the thread that waits for it. On the server's threads, a call
        does nothing once another thread stops the server.
        """
        if _core.serve_is_inside(self._handle):
            if self._is_stopped:
                return
            raise RuntimeError(
                f"stop() within another call of server {self._name}, or on a thread of its own as "
                "in on_shutdown: set a threading.Event there, and stop it on the thread that waits"
            )
        with self._using() as outer_count:
            if outer_count > 0:
                raise RuntimeError(f"stop() within another call of server {self._name}")
        with self._stopping:
            with self._using():
                taken = None if self._is_stopped else _core.serve_take(self._handle)
                self._is_stopped = True
                _running.discard(self)
            # Without the mutex: callbacks, whose end is waited for, may call the server. They are
            # told that it is stopped.
            if taken is not None:
                _core.serve_stop(taken)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *reason: object) -> None:
        self.stop()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a Server cannot be pickled or copied: give its name, {self._name!r}, to "
            "gpufetch.connect in the other process"
        )

    def __repr__(self) -> str:
        state = "stopped" if self._is_stopped else self._connection_file
        return f"Server('{self._name}', {state})"


def serve(
    name: str | None = None,
    *,
    connection_file: str | None = None,
    transport: Literal["tcp", "ipc"] | None = None,
    ip: str | None = None,
    port: int = 0,
    curve: bool = False,
    jupyterlab: bool = False,
    step_share: float = 0.05,
    on_shutdown: Callable[[], object] | None = None,
) -> Server:
    """Let notebooks attach to this process: `gpufetch.connect(name)` in another one.

    The server presents itself as a Jupyter kernel and writes that kernel's connection file; it
    runs no code. It answers on threads of its own, which hold the GIL only to release a tensor.

    It runs until `Server.stop` is called or the process ends, also if the Server that is returned
    is not kept; `serve` by the same name gives it again.

    Where this process has a running server that was asked for by the same name, it is given again,
    so that a cell of a notebook may run twice: the options must be the same, and `on_shutdown`
    takes the place of the one before.

    Parameters
    ----------
    name
        1 to 48 of the characters A-Z a-z 0-9 _ . -; a number is added if a living server has the
        name. By default the program's name.
    connection_file
        Path of the file to write. By default kernel-NAME.json in Jupyter's runtime folder.
    transport
        "ipc" for sockets that only this user can open, on this machine; "tcp" for ports. By default
        "tcp" if `ip` or `port` is given, else "ipc".
    ip, port
        Address for "tcp", by default 127.0.0.1, and the first of five ports in a row; 0 takes any
        five free ports.
    curve
        Whether to encrypt with CurveZMQ. Clients then need jupyter_client 8.10 or newer.
    jupyterlab
        Whether to link the connection file into external_kernels, for JupyterLab with
        --ServerApp.allow_external_kernels=True.
    step_share
        The largest share of this program's time that `Server.step` may take for clients.
    on_shutdown
        Called once, on a thread of the server's, when a client asks for the end of the program.
        `Server.stop` raises RuntimeError there: set a `threading.Event` for which the program
        waits, and stop the server then. By default a client can detach, but not end the program.

    Raises
    ------
    ValueError
        An argument is out of range, or the running server of that name has other options.
    OSError
        A port is in use, or the folder cannot be written.
    TypeError
        gpufetch was built without the server.
    gpufetch.Error
        A living server has the connection file.
    """
    for what, text in (("name", name), ("transport", transport), ("ip", ip)):
        if isinstance(text, str):
            check_text(text, what)
    if connection_file is not None:
        check_path(connection_file, "connection_file")
    check_int(port, "port, the first of five,", 0, _FIRST_PORT_MAX)
    if transport == "ipc" and port != 0:
        raise ValueError(f'port={port} is for tcp: leave it out, or transport="ipc"')
    options = {
        "name": name,
        "connection_file": connection_file,
        "transport": transport,
        "ip": ip,
        "port": port,
        "curve": curve,
        "jupyterlab": jupyterlab,
        "step_share": step_share,
    }
    with _start_lock:
        running = _find_running(name)
        if running is not None:
            _check_same(running, options, on_shutdown)
            return running
        shutdown = None if on_shutdown is None else _Shutdown(on_shutdown)
        handle, given_name, path = _core.serve_start(
            name=name,
            connection_file=connection_file,
            transport=transport,
            ip=ip,
            first_port=port,
            curve=curve,
            jupyterlab=jupyterlab,
            step_share=step_share,
            log=_logger.warning,
            shutdown=shutdown,
        )
        return Server(handle, given_name, path, options, shutdown)


def _find_running(name: str | None) -> Server | None:
    """The running server of this process that was asked for by a name."""
    for server in list(_running):
        is_own = server._process_id == os.getpid() and not server._is_stopped
        if is_own and server._options["name"] == name:
            return server
    return None


def _check_same(
    server: Server, options: Mapping[str, Any], on_shutdown: Callable[[], object] | None
) -> None:
    """Raise ValueError unless a running server has the options; take over `on_shutdown`."""
    others = [
        f"{key}={server._options[key]!r}, not {value!r}"
        for key, value in options.items()
        if server._options[key] != value
    ]
    if (server._shutdown is None) != (on_shutdown is None):
        others.append(f"on_shutdown{' not' if server._shutdown is None else ''} given")
    if others:
        raise ValueError(
            f"server {server.name} runs in this process, with {'; '.join(others)}: stop() it "
            "first, or choose another name"
        )
    if server._shutdown is not None and on_shutdown is not None:
        server._shutdown.callback = on_shutdown


def _stop_all() -> None:
    for server in list(_running):
        if os.getpid() != server._process_id:  # a forked child: its parent stops it
            continue
        try:
            server.stop()
        except Exception:
            _logger.exception("a server did not stop well")


# Registered after _core.share_stop, and so called before it, while objects can still be released.
atexit.register(_stop_all)
