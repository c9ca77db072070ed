"""Serving: a Python program whose tensors notebooks can attach to."""

from __future__ import annotations

import atexit
import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NoReturn, final

from gpufetch import _core, _share  # noqa: F401  (the order of what runs at exit)
from gpufetch._address_ranges import AddressRange, range_of
from gpufetch._checks import check_int, check_text, check_timeout

__all__ = ["Server", "serve", "servers"]

_logger = logging.getLogger("gpufetch.serve")
# The servers of this process by the name that they were asked for. They stay until they are
# stopped, whoever else keeps them; changed by serve_start and serve_forget alone.
_servers: dict[str | None, Server] = {}
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
        options: Mapping[str, Any],
        shutdown: _Shutdown | None,
    ) -> None:
        self._handle = handle  # counts the calls that use the server; no lock is held meanwhile
        self._options = options  # as serve() was called, the wanted name among them
        self._shutdown = shutdown
        self._process_id = os.getpid()
        # What is published, by name; changed by single operations.
        self._ranges: dict[str, AddressRange | None] = {}

    @property
    def wanted_name(self) -> str | None:
        """The name with which `serve` was called, and gives this server again."""
        name: str | None = self._options["name"]
        return name

    @property
    def published_ranges(self) -> dict[str, AddressRange]:
        """The device memory in which the published tensors lie, by their names."""
        return {name: where for name, where in list(self._ranges.items()) if where is not None}

    @property
    def _is_stopped(self) -> bool:
        return not _core.serve_runs(self._handle)

    @property
    def name(self) -> str:
        """The name that `connect` takes; with a number if the wanted name was in use."""
        name, _ = _core.serve_describe(self._handle)
        return name

    @property
    def connection_file(self) -> str:
        """Path of the connection file, which `jupyter console --existing` takes too."""
        _, path = _core.serve_describe(self._handle)
        return path

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
        part = [_indices(start, "start"), _indices(global_shape, "global_shape")]
        check_text(name, "name")
        tensor = _core.serve_tensor(x)
        _core.serve_publish(self._handle, name, tensor, *part)
        self._ranges[name] = range_of(tensor)

    def unpublish(self, name: str, *, timeout: float | None = 0) -> None:
        """Stop offering a tensor or value.

        Waits for reads that are under way; then at most `timeout` seconds (None: without a limit)
        until no other process is attached to its memory, and raises TimeoutError if one still is.
        It may be called again then, to wait further; once it has returned, the memory is free.
        Other threads may use the server meanwhile. ValueError for an unknown name; RuntimeError
        where another thread publishes the name again meanwhile.
        """
        check_timeout(timeout)
        end = math.inf if timeout is None else time.monotonic() + timeout
        check_text(name, "name")
        is_free = _succeeds(_core.serve_unpublish, self._handle, name, 0)
        while not is_free and time.monotonic() < end:
            time.sleep(_POLL_S)
            is_free = _succeeds(_core.serve_await_unpublished, self._handle, name, 0)
        if not is_free:
            raise TimeoutError(
                f"other processes are attached to {name}: keep its memory until they let go, and "
                "call unpublish again to wait for that"
            )
        self._ranges.pop(name, None)

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
        _core.serve_publish_value(self._handle, name, number)

    def step(self, step: int, time: float = 0.0) -> None:
        """Say that a step is complete, at simulated `time`.

        Clients that asked for reads at a step are answered before this returns. Numbers need not
        rise: each call is a new step, also where a program goes back to a checkpoint.
        """
        step = check_int(step, "step")
        if isinstance(time, str) or not hasattr(time, "__float__"):
            raise TypeError(f"time is {time!r:.80}, of type {type(time).__name__}: give a number")
        _core.serve_step(self._handle, step, time)

    def stop(self) -> None:
        """Detach the clients and stop; may be called again.

        Takes at most about 6 seconds, and the time of the read and of the calls that are under way,
        with what they run: hold no lock here for which a finalizer or a callback waits. Raises
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
                f"stop() within another call of server {self.name}, or on a thread of its own as "
                "in on_shutdown: set a threading.Event there, and stop it on the thread that waits"
            )
        try:
            _core.serve_stop(self._handle)
        finally:
            _core.serve_forget(_servers, self._options["name"], self)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *reason: object) -> None:
        self.stop()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a Server cannot be pickled or copied: give its name, {self.name!r}, to "
            "gpufetch.connect in the other process"
        )

    def __repr__(self) -> str:
        state = "stopped" if self._is_stopped else self.connection_file
        return f"Server('{self.name}', {state})"


def _indices(numbers: Sequence[int] | None, what: str) -> tuple[int, ...] | None:
    if numbers is None:
        return None
    try:
        listed = list(numbers)
    except TypeError:
        kind = type(numbers).__name__
        raise TypeError(f"{what} is {numbers!r:.80}, of type {kind}: give a sequence") from None
    return tuple(check_int(number, f"{what}[{i}]") for i, number in enumerate(listed))


def _succeeds(call: Callable[..., None], *arguments: Any) -> bool:
    """Call; False where that raises TimeoutError."""
    try:
        call(*arguments)
    except TimeoutError:
        return False
    return True


def serve(
    name: str | None = None,
    *,
    connection_file: str | os.PathLike[str] | None = None,
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
    runs no code. It answers on threads of its own, which hold the GIL only to release a
    tensor and to log what they refused.

    It runs until `Server.stop` is called or the process ends, also if the Server that is returned
    is not kept; `serve` by the same name gives it again.

    Where this process has a running server that was asked for by the same name, it is given again,
    so that a cell of a notebook may run twice: the options must be the same, and `on_shutdown`
    takes the place of the one before. So it is after Ctrl-C in `serve`, if the server had started.

    Parameters
    ----------
    name
        1 to 48 of the characters A-Z a-z 0-9 _ . -; a number is added if a living server has the
        name. By default the program's name.
    connection_file
        Path of the file to write. By default kernel-NAME.json in Jupyter's runtime folder.
    transport
        "ipc" for sockets that only this user can open, on this machine; "tcp" for ports. By default
        "tcp" if `ip`, `port` or `curve` is given, else "ipc".
    ip, port
        Address for "tcp", by default 127.0.0.1, and the first of five ports in a row; 0 takes any
        five free ports.
    curve
        Whether to encrypt with CurveZMQ, over "tcp". Clients then need jupyter_client 8.10 or
        newer.
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
        if text is not None:
            check_text(text, what)
    if connection_file is not None:
        connection_file = os.fspath(connection_file)
        check_text(connection_file, "connection_file")
    if isinstance(port, bool):
        raise TypeError(f"port is {port}: give the first of five ports, or 0 for any that are free")
    check_int(port, "port, the first of five,", 0, _FIRST_PORT_MAX)
    if on_shutdown is not None and not callable(on_shutdown):
        kind = type(on_shutdown).__name__
        raise TypeError(f"on_shutdown is {on_shutdown!r:.80}, of type {kind}: give a callable")
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
    # No lock: a handler of the logger may call serve(), and wait for what another thread holds.
    while True:
        shutdown = None if on_shutdown is None else _Shutdown(on_shutdown)
        fresh = Server(_core.serve_create(_logger.warning, shutdown), options, shutdown)
        try:
            server: Server = _core.serve_start(
                fresh._handle,
                claims=(_servers, name, fresh),
                name=name,
                connection_file=connection_file,
                transport=transport,
                ip=ip,
                first_port=port,
                curve=curve,
                jupyterlab=jupyterlab,
                step_share=step_share,
            )
        except BaseException:
            if fresh._is_stopped:  # else it has started before Ctrl-C, and serve() gives it again
                _core.serve_forget(_servers, name, fresh)
            raise
        if server is fresh:
            return fresh
        if not server._is_stopped:  # else it has failed to start, or was stopped meanwhile
            _check_same(server, options, on_shutdown)
            return server


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


def servers() -> list[Server]:
    """The servers of this process that run."""
    own = [server for server in list(_servers.values()) if server._process_id == os.getpid()]
    return [server for server in own if not server._is_stopped]


def _stop_all() -> None:
    for server in list(_servers.values()):
        if os.getpid() != server._process_id:  # a forked child: its parent stops it
            continue
        try:
            server.stop()
        except TimeoutError as error:  # the memory ends with this process
            _logger.warning("server %s: %s", server.name, error)
        except Exception:
            _logger.exception("a server did not stop well")


# Registered after _core.share_stop, and so called before it, while objects can still be released.
atexit.register(_stop_all)
