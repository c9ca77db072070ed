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
        self._lock = threading.Lock()  # nobody uses the handle while it is stopped
        self._name = name
        self._connection_file = connection_file
        self._is_stopped = False
        _running.add(self)

    @property
    def name(self) -> str:
        """What `connect` finds it by; numbered if the wanted name was taken."""
        return self._name

    @property
    def connection_file(self) -> str:
        """What `jupyter console --existing` takes."""
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

        x is any tensor that `fetch` takes, and is kept alive until it is withdrawn or replaced and
        nobody reads it any more. Clients read what it holds at that time: nothing is copied now.

        Of a program of several ranks that each serve their own block of an array, `global_shape` is
        the array's and `start` the block's first index along each axis; `connect([...])` then shows
        one array. Blocks must not overlap: publish a view without ghost cells.

        Raises ValueError for one of `start` and `global_shape` without the other, and for a block
        that is not inside its array.
        """
        if (start is None) != (global_shape is None):
            raise ValueError(f"start={start}, global_shape={global_shape}: give both or neither")
        block = [
            None if numbers is None else tuple(map(operator.index, numbers))
            for numbers in (start, global_shape)
        ]
        with self._lock:
            _core.serve_publish(self._handle, name, x, *block)

    def unpublish(self, name: str, *, timeout: float | None = 0) -> None:
        """Withdraw a tensor or value.

        Waits for reads that are under way, and then for at most `timeout` seconds (None = for ever)
        for other processes that have attached to its memory: TimeoutError if some are left.
        ValueError for an unknown name.
        """
        with self._lock:
            _core.serve_unpublish(self._handle, name, -1 if timeout is None else int(timeout * 1e9))

    def set(self, name: str, value: int | float | str) -> None:
        """Offer a value beside the tensors: a parameter, a loss, the file that was written last."""
        if not isinstance(value, int | float | str):
            raise TypeError(f"value {name} is a {type(value).__name__}: give an int, float or str")
        with self._lock:
            _core.serve_publish_value(self._handle, name, value)

    def step(self, step: int, time: float = 0.0) -> None:
        """Say that a step is done; clients that asked for it read now, before this returns."""
        with self._lock:
            _core.serve_step(self._handle, step, time)

    def stop(self) -> None:
        """Detach the clients and stop; does nothing if it is stopped."""
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

    The server looks like a Jupyter kernel, whose connection file it writes; it runs no code. It
    answers on threads of its own, with the GIL held only to let go of a tensor.

    Parameters
    ----------
    name
        1 to 48 of A-Z a-z 0-9 _ . -; numbered if a living server has it. None: the program's.
    connection_file
        None: kernel-NAME.json in Jupyter's runtime folder.
    transport, ip, port
        tcp on 127.0.0.1 and any free ports; `port` is the first of five. ipc: sockets that only
        this user can open, for machines that are shared with others.
    curve
        Encrypt with CurveZMQ (clients need jupyter_client 8.10 or newer).
    jupyterlab
        Link the connection file into external_kernels, for JupyterLab with
        --ServerApp.allow_external_kernels=True.
    step_share
        The most of this program's time that `Server.step` may take for clients.
    on_shutdown
        Called once, on a thread of the server's, when a client asks for the program's end. Without
        it a client can detach and no more. It must not call `Server.stop`.

    Raises ValueError for an argument out of range, OSError if a port is in use or the folder cannot
    be written, TypeError if gpufetch was built without the server, and `Error` if a living server
    has the connection file.
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
