"""Attaching to programs that serve tensors."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gpufetch._checks import check_timeout
from gpufetch._remote.connection import Connection
from gpufetch._remote.joint_connection import JointConnection
from gpufetch._remote.server_connection import ServerConnection
from gpufetch._remote.servers import find_all, is_several
from gpufetch._remote.session import At, Session
from gpufetch._tracebacks import shortened

__all__ = ["connect"]


@shortened
def connect(
    server: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    timeout: float = 30.0,
    at: At = "live",
) -> Connection:
    """Attach to a program that serves tensors: a C simulation, or a Python one with `serve`.

    The program is not stopped, and need not know. May be used from any thread; a thread's request
    waits for those of others. The first call in a process imports jupyter_client: a fork by another
    thread meanwhile leaves a child in which importing it waits for ever.

    Parameters
    ----------
    server
        The server's name (`gpufetch attach` lists them), or else the path of its
        connection file. A list of these, or a pattern of names or paths ("run-*"), attaches to
        several servers: where each has published its part of a larger array (`start` and
        `global_shape` of `Server.publish` and `gpuf_server_publish`), there is one array here. A
        read goes to the servers whose parts it touches.
    timeout
        Seconds that a request may take, a new connection included if that is needed; also for a
        read to wait for the step that `at="step"` asks for. Above 0.
    at
        "live" or "step", see `Connection`.

    Raises
    ------
    FileNotFoundError
        There is no such server.
    ConnectionError
        The process that wrote the connection file has ended, or the file is no connection file;
        known at once.
    TimeoutError
        A server does not answer.
    ImportError
        jupyter_client is not installed.
    """
    if at not in ("live", "step"):
        raise ValueError(f'at={at!r} is neither "live" nor "step"')
    check_timeout(timeout, is_needed=True)
    attached = [ServerConnection(Session(path, timeout, at)) for path in find_all(server)]
    connection = JointConnection(attached) if is_several(server) else attached[0]
    try:
        len(connection)  # asks each server
    except BaseException:
        connection.close()
        raise
    return connection
