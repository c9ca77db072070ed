"""Serving: a Python program whose tensors notebooks can attach to."""

from __future__ import annotations

import atexit
import logging
import operator
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal, final

from gpufetch import _core, _share  # noqa: F401  (the order of what runs at exit)

__all__ = ["Server", "serve"]

_logger = logging.getLogger("gpufetch.serve")
_running: weakref.WeakSet[Server] = weakref.WeakSet()


@final
class Server:
    """A running server; from `serve`. As a context manager it stops at the end of the block.

    May be used from any thread.
    """

    def __init__(self, handle: Any, name: str, connection_file: str) -> None:
        self._handle = handle
        self._lock = threading.Lock()  # held while the handle is used
        self._name = name
        self._connection_file = connection_file
        self._is_stopped = False
        _running.add(self)

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
        with self._lock:
            _core.serve_publish(self._handle, name, x, *part)

    def unpublish(self, name: str, *, timeout: float | None = 0) -> None:
        """Stop offering a tensor or value.

        Waits for reads that are under way; then at most `timeout` seconds (None: without a limit)
        until no other process is attached to its memory, and raises TimeoutError if one still is.
        ValueError for an unknown name.
        """
        with self._lock:
            _core.serve_unpublish(self._handle, name, -1 if timeout is None else int(timeout * 1e9))

    def set(self, name: str, value: int | float | str) -> None:
        """Publish a value beside the tensors, such as a parameter or the last file's name."""
        if not isinstance(value, int | float | str):
            raise TypeError(f"value {name} is a {type(value).__name__}: give an int, float or str")
        with self._lock:
            _core.serve_publish_value(self._handle, name, value)

    def step(self, step: int, time: float = 0.0) -> None:
        """Say that a step is complete, at simulated `time`.

        Clients that asked for reads at a step are answered before this returns.
        """
        with self._lock:
            _core.serve_step(self._handle, step, time)

    def stop(self) -> None:
        """Detach the clients and stop; may be called again."""
        with self._lock:
            if not self._is_stopped:
                self._is_stopped = True
                _running.discard(self)
                _core.serve_stop(self._handle)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *reason: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "stopped" if self._is_stopped else self._connection_file
        return f"Server('{self._name}', {state})"


def serve(
    name: str | None = None,
    *,
    connection_file: str | None = None,
    transport: Literal["tcp", "ipc"] = "tcp",
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

    Parameters
    ----------
    name
        1 to 48 of the characters A-Z a-z 0-9 _ . -; a number is added if a living server has the
        name. By default the program's name.
    connection_file
        Path of the file to write. By default kernel-NAME.json in Jupyter's runtime folder.
    transport
        "tcp", or "ipc" for sockets that only this user can open, on machines that are shared with
        others.
    ip, port
        Address for "tcp", and the first of five ports in a row; 0 takes any five free ports.
    curve
        Whether to encrypt with CurveZMQ. Clients then need jupyter_client 8.10 or newer.
    jupyterlab
        Whether to link the connection file into external_kernels, for JupyterLab with
        --ServerApp.allow_external_kernels=True.
    step_share
        The largest share of this program's time that `Server.step` may take for clients.
    on_shutdown
        Called once, on a thread of the server's, when a client asks for the end of the program.
        It must not call `Server.stop`. By default a client can detach, but not end the program.

    Raises
    ------
    ValueError
        An argument is out of range.
    OSError
        A port is in use, or the folder cannot be written.
    TypeError
        gpufetch was built without the server.
    gpufetch.Error
        A living server has the connection file.
    """
    handle, name, connection_file = _core.serve_start(
        name=name,
        connection_file=connection_file,
        transport=transport,
        ip=ip,
        first_port=port,
        curve=curve,
        jupyterlab=jupyterlab,
        step_share=step_share,
        log=_logger.warning,
        shutdown=on_shutdown,
    )
    return Server(handle, name, connection_file)


def _stop_all() -> None:
    for server in list(_running):
        try:
            server.stop()
        except Exception:
            _logger.exception("a server did not stop well")


# Registered after _core.share_stop, and so called before it, while objects can still be released.
atexit.register(_stop_all)
