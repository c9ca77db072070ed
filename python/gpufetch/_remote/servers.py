"""Connection files: finding those of servers, and telling whether the servers still live."""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import json
import os
import re
import socket
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpufetch import _core
from gpufetch._checks import check_path

__all__ = [
    "ConnectionFileError",
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
_TEXTS = ("ip", "key", "signature_scheme", "curve_publickey", "curve_secretkey")
_CURVE_KEYS = ("curve_publickey", "curve_secretkey")
_CURVE_KEY = re.compile(r"[0-9a-zA-Z.:+=^!/*?&<>()\[\]{}@%$#-]{40}|")  # Z85; empty: no CurveZMQ
_PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")


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
    if server["host"] != socket.gethostname():
        return None
    start_time = _core.process_start_time(server["process_id"])
    return bool(start_time != 0 and start_time == server["start_time"])


class ConnectionFileError(ValueError):
    """A file is no connection file; the text says which one, and why."""


def load(path: Path) -> dict[str, Any]:
    """Read a connection file.

    Raises ConnectionFileError for anything else, such as a pipe, and OSError where there is no such
    file or it cannot be read.
    """
    with open(path, "rb", opener=_open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise _no_connection_file(path, "it is a pipe or a device")
        text = file.read(_FILE_MAX_NBYTES + 1)
    try:
        content = json.loads(text) if len(text) <= _FILE_MAX_NBYTES else None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise _no_connection_file(path, "it holds no JSON object of at most 64 KiB")
    if problem := _problem(content):
        raise _no_connection_file(path, problem)
    return content


def _no_connection_file(path: Path, problem: str) -> ConnectionFileError:
    return ConnectionFileError(f"{path} is no connection file: {problem}")


def _problem(content: Mapping[str, Any]) -> str | None:
    """What keeps a client from using a file of this content."""
    if content.get("transport", "tcp") not in ("tcp", "ipc"):
        return f"its transport {content['transport']!r} is neither tcp nor ipc"
    for name in _TEXTS:
        if not isinstance(content.get(name, ""), str):
            return f"its {name} is no text"
    scheme = content.get("signature_scheme", "hmac-sha256")
    if not scheme.startswith("hmac-") or scheme[5:] not in hashlib.algorithms_available:
        return f"its signature_scheme {scheme!r} is unknown"
    for name in _PORTS:
        if not (type(port := content.get(name)) is int and 0 < port <= 65535):
            return f"its {name} is {'missing' if port is None else 'no port number'}"
    for name in _CURVE_KEYS:
        if name in content and not _CURVE_KEY.fullmatch(content[name]):
            return f"its {name} is no key of CurveZMQ's, of 40 characters"
    server = content.get("gpufetch")
    if server is None:
        return None
    if not content.get("key"):
        return "its key is missing"
    if scheme != "hmac-sha256":
        return f"its signature_scheme is {scheme!r}, where gpufetch writes 'hmac-sha256'"
    types = {"name": str, "version": str, "host": str, "process_id": int, "start_time": int}
    is_whole = isinstance(server, dict) and all(
        type(server.get(name)) is kind for name, kind in types.items()
    )
    return None if is_whole else "what it says of its server is damaged"


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def describe(path: Path) -> ServerInfo | None:
    """Describe the server of a connection file; None if gpufetch did not write the file."""
    try:
        content = load(path)
    except (OSError, ConnectionFileError):
        return None
    server = content.get("gpufetch")
    if server is None:
        return None
    return ServerInfo(
        name=server["name"],
        connection_file=path,
        process_id=server["process_id"],
        host=server["host"],
        transport=content.get("transport", "tcp"),
        version=server["version"],
        is_alive=is_alive(server),
    )


def running() -> list[ServerInfo]:
    """Servers whose connection files lie in Jupyter's runtime folder, stale ones too."""
    found = (describe(path) for path in sorted(runtime_folder().glob("kernel-*.json")))
    return [server for server in found if server is not None]


def find(name: str | os.PathLike[str]) -> Path:
    """The connection file of the server of that name, or else the file at that path.

    Raises FileNotFoundError, which lists the names of the servers that run, IsADirectoryError for a
    folder, and ValueError for an empty text and one with a NUL.
    """
    check_path(name, "server")
    if not os.fspath(name):
        raise ValueError("the server's name is empty: give a name, or the path of its file")
    in_folder = runtime_folder() / f"kernel-{name}.json"
    if in_folder.is_file():
        return in_folder
    path = Path(name)
    if path.exists() and isinstance(name, str) and os.sep not in name and not _is_whole(path):
        raise _not_found(name, f"; {path} in the working folder is no connection file")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a connection file in it, or a server")
    if path.exists():
        return _resolved(path)
    raise _not_found(name)


def _is_whole(path: Path) -> bool:
    try:
        load(path)
    except (OSError, ConnectionFileError):
        return False
    return True


def _not_found(name: str | os.PathLike[str], more: str = "") -> FileNotFoundError:
    names = [server.name for server in running() if server.is_alive is not False]
    there = f"is running: these are: {', '.join(names)}" if names else "or any other is running"
    return FileNotFoundError(
        f"there is no connection file {name!s}, and no server {name!s} {there}{more}"
    )


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
    return sorted(map(_resolved, found), key=_by_number)


def _resolved(path: Path) -> Path:
    """Without links; of a circle of links itself, which reading it names, as far as it leads."""
    return Path(os.path.realpath(path))


def find_all(name: Names) -> list[Path]:
    """The connection files that a name, a pattern, or a list of these stands for; each once."""
    if isinstance(name, str | os.PathLike):
        return _matching(os.fspath(name)) if is_several(name) else [find(name)]
    if isinstance(name, bytes) or not isinstance(name, Iterable):
        raise TypeError(
            f"server is {name!r:.80}, of type {type(name).__name__}: give a name, the path of a "
            "connection file, or a list of these"
        )
    paths = [_resolved(path) for one in name for path in find_all(one)]
    if not paths:
        raise ValueError("no server is named: the list is empty")
    return list(dict.fromkeys(paths))
