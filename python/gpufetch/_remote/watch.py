"""The screens of `gpufetch attach`: which servers connection, and what some of them publish."""

from __future__ import annotations

import shutil
import sys
import time

from gpufetch._remote.connect import connect
from gpufetch._remote.connection import Connection
from gpufetch._remote.joint_connection import values_text
from gpufetch._remote.servers import running, runtime_folder
from gpufetch._text import format_nbytes, table_lines

__all__ = ["server_lines", "show_once", "watch"]

_STATES = {True: "running", False: "ended (stale file)", None: "on another machine"}
_FACTS = ("tensor", "dtype", "shape", "device", "size")
_STATS = ("min", "mean", "max", "not finite")
_CLEAR = "\x1b[H\x1b[J"
_TIMEOUT_S = 10.0


def server_lines() -> list[str]:
    """List the servers whose connection files are in Jupyter's runtime folder."""
    servers = running()
    if not servers:
        return [f"no servers in {runtime_folder()}"]
    rows = [
        (
            server.name,
            _STATES[server.is_alive],
            str(server.process_id),
            server.host,
            str(server.connection_file),
        )
        for server in servers
    ]
    return table_lines([("name", "state", "process", "host", "connection file"), *rows])


def _columns(with_stats: bool) -> tuple[str, ...]:
    return _FACTS + _STATS if with_stats else _FACTS


def _tensor_row(connection: Connection, name: str, with_stats: bool) -> tuple[str, ...]:
    try:
        array = connection[name]
    except RuntimeError as error:
        return (name, str(error), *[""] * (len(_columns(with_stats)) - 2))
    facts = (name, str(array.dtype), str(array.shape), array.device, format_nbytes(array.nbytes))
    if not with_stats:
        return facts
    try:
        stats = array.stats()
    except TypeError:  # a complex tensor has none
        return (*facts, "", "", "", "")
    except RuntimeError as error:  # a part is missing
        return (*facts, str(error), "", "", "")
    odd = stats.count - stats.finite_count
    return (*facts, f"{stats.min:.6g}", f"{stats.mean:.6g}", f"{stats.max:.6g}", str(odd or ""))


def _screen(connection: Connection, with_stats: bool) -> list[str]:
    names = list(connection)
    lines = [f"{connection.name}: {_step_text(connection)}", ""]
    lines += table_lines(
        [_columns(with_stats), *(_tensor_row(connection, name, with_stats) for name in names)]
    )
    differences = connection.differences
    values = [
        (name, values_text(differences[name]) if name in differences else str(value))
        for name, value in connection.scalars.items()
    ]
    return [*lines, "", *table_lines(values)] if values else lines


def _step_text(connection: Connection) -> str:
    steps = connection.steps
    if len(set(steps.values())) > 1:
        return f"step {values_text(steps)}"
    step = next(iter(steps.values()))
    return "no step yet" if step is None else f"step {step}, time {connection.time:g}"


def show_once(server: str | list[str], *, with_stats: bool) -> None:
    """Print what a server publishes."""
    with connect(server, timeout=_TIMEOUT_S) as connection:
        print("\n".join(_screen(connection, with_stats)))


def watch(server: str | list[str], interval: float, *, with_stats: bool) -> None:
    """Show what a server publishes, anew every `interval` seconds, until Ctrl-C."""
    if not interval > 0:
        raise ValueError(f"--interval {interval:g} is not above 0")
    with connect(server, timeout=_TIMEOUT_S) as connection:
        try:
            while True:
                size = shutil.get_terminal_size()
                lines = [line[: size.columns] for line in _screen(connection, with_stats)]
                clear = _CLEAR if sys.stdout.isatty() else ""
                print(clear + "\n".join(lines[: size.lines - 1]), flush=True)
                time.sleep(interval)
        except KeyboardInterrupt:
            print()
