"""Connection files: finding those of servers, and telling whether the servers still live."""

from __future__ import annotations

import fnmatch
import glob
import json
import os
import re
import socket
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpufetch import _core

__all__ = [
    "ServerInfo",
    "describe",
    "find",
    "find_all",
    "is_alive",
    "is_several",
    "load",
    "running",
    "runtime_folder",
]

_FILE_MAX_NBYTES = 65536


@dataclass(frozen=True)
class ServerInfo:
    """What a connection file says of a server.

    is_alive is None for a server on another machine, whose processes cannot be seen from here.
    """

    name: str
    connection_file: Path
    process_id: int
    host: str
    transport: str
    version: str
    is_alive: bool | None


def runtime_folder() -> Path:
    """Jupyter's runtime folder."""
    if folder := os.environ.get("JUPYTER_RUNTIME_DIR"):
        return Path(folder)
    if folder := os.environ.get("JUPYTER_DATA_DIR"):
        return Path(folder, "runtime")
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data, "jupyter", "runtime")


def is_alive(server: Mapping[str, Any]) -> bool | None:
    """Whether the process that wrote `server` into a connection file lives; None: unknown."""
    if server.get("host") != socket.gethostname():
        return None
    start_time = _core.process_start_time(int(server.get("process_id", 0)))
    return start_time != 0 and start_time == server.get("start_time")


def load(path: Path) -> dict[str, Any] | None:
    """Read a connection file; None if it cannot be read or is something else, such as a pipe."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            content = json.loads(file.read(_FILE_MAX_NBYTES)) if regular else None
    except (OSError, ValueError, RecursionError):
        return None
    fits = isinstance(content, dict) and isinstance(content.get("key", ""), str)
    return content if fits else None


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def describe(path: Path) -> ServerInfo | None:
    """Describe the server of a connection file; None if gpufetch did not write the file."""
    content = load(path)
    server = (content or {}).get("gpufetch")
    if content is None or not isinstance(server, dict):
        return None
    try:
        return ServerInfo(
            name=str(server["name"]),
            connection_file=path,
            process_id=int(server["process_id"]),
            host=str(server["host"]),
            transport=str(content["transport"]),
            version=str(server["version"]),
            is_alive=is_alive(server),
        )
    except (KeyError, TypeError, ValueError):
        return None


def running() -> list[ServerInfo]:
    """Servers whose connection files lie in Jupyter's runtime folder, stale ones too."""
    found = (describe(path) for path in sorted(runtime_folder().glob("kernel-*.json")))
    return [server for server in found if server is not None]


def find(name: str | os.PathLike[str]) -> Path:
    """The connection file at a path, or that of the server of that name.

    Raises FileNotFoundError, which lists the names of the servers that run.
    """
    path = Path(name)
    if path.is_file():
        return path.resolve()
    in_folder = runtime_folder() / f"kernel-{name}.json"
    if in_folder.is_file():
        return in_folder
    raise _not_found(name)


def _not_found(name: str | os.PathLike[str]) -> FileNotFoundError:
    names = [server.name for server in running() if server.is_alive is not False]
    there = f"these are: {', '.join(names)}" if names else "none is"
    return FileNotFoundError(f"no server or connection file {name!s} is running: {there}")


Names = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def is_several(name: Names) -> bool:
    """Whether several servers are meant: by a list, or a pattern with *, ? or [...]."""
    if isinstance(name, str | os.PathLike):
        return glob.has_magic(os.fspath(name)) and not Path(name).is_file()
    return True


def _by_number(path: Path) -> list[tuple[str, int]]:
    """A key for sorting, by which run-10 comes after run-2."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", path.stem)]


def _matching(pattern: str) -> list[Path]:
    if "/" in pattern:
        found = [Path(path) for path in glob.glob(os.path.expanduser(pattern))]
    else:
        found = [
            server.connection_file
            for server in running()
            if server.is_alive is not False and fnmatch.fnmatchcase(server.name, pattern)
        ]
    if not found:
        raise _not_found(pattern)
    return sorted((path.resolve() for path in found), key=_by_number)


def find_all(name: Names) -> list[Path]:
    """The connection files that a name, a pattern, or a list of these stands for; each once."""
    if isinstance(name, str | os.PathLike):
        return _matching(os.fspath(name)) if is_several(name) else [find(name)]
    paths = [path.resolve() for one in name for path in find_all(one)]
    if not paths:
        raise ValueError("no server is named: the list is empty")
    return list(dict.fromkeys(paths))
