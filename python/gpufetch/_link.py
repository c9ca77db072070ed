"""One attachment to a server: sockets, a comm, requests and their replies."""

from __future__ import annotations

import time
import uuid
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from gpufetch import _servers

__all__ = ["Link", "LinkLostError", "ReplyError", "dtype_of", "number"]

PROTOCOL = 1
_LOOK_S = 0.25  # how often a wait looks whether the server still lives
_BUSY_PAUSE_S = 0.05

Reply = tuple[dict[str, Any], list[Any]]


class LinkLostError(ConnectionError):
    """The server is gone, or another has taken its place."""


class ReplyError(RuntimeError):
    """The server refused a request; `code` is the protocol's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


# What a refusal is in Python; ReplyError for the rest.
_EXCEPTIONS: dict[str, type[Exception]] = {
    "bad_slice": IndexError,
    "too_large": ValueError,
    "bad_request": ValueError,
    "unknown_name": KeyError,
    "unsupported": TypeError,
}


def dtype_of(name: str) -> np.dtype[Any]:
    """The dtype that the protocol's name stands for."""
    return np.dtype(getattr(ml_dtypes, name, name))


def number(value: Any, exact: bool) -> int | float:
    """A number that JSON may have had to say as a string."""
    return int(value) if exact else float(value)


def _raise(error: dict[str, Any]) -> None:
    code, message = str(error.get("code")), str(error.get("message"))
    kind = _EXCEPTIONS.get(code)
    raise ReplyError(code, message) if kind is None else kind(message)


def _detach(client: Any, shell: Any, iopub: Any, comm_id: str) -> None:
    client.session.send(shell, "comm_close", {"comm_id": comm_id, "data": {}})
    shell.close(linger=200)
    iopub.close(linger=0)
    client.context.destroy(linger=200)


class Link:
    """Not for several threads at once. LinkLostError if the server does not answer in `timeout`."""

    def __init__(self, path: Path, timeout: float) -> None:
        try:
            from jupyter_client.blocking.client import BlockingKernelClient
        except ImportError as error:
            raise ImportError(
                f"connect() needs jupyter_client ({error}): pip install 'gpufetch[jupyter]'"
            ) from error
        self._path = path
        self._comm_id = uuid.uuid4().hex
        self._ready: dict[int, Reply] = {}  # replies that came before their turn, by id
        self._last_id = 0
        self._read_file()
        self._client = BlockingKernelClient(connection_file=str(path))
        self._client.load_connection_file()
        self._session = self._client.session
        self._shell = self._client.connect_shell(identity=self._session.bsession)
        self._iopub = self._client.connect_iopub()
        # Also when nobody refers to the link any more, and at the interpreter's end.
        self._finish = weakref.finalize(
            self, _detach, self._client, self._shell, self._iopub, self._comm_id
        )
        try:
            self._attach(time.monotonic() + timeout)
        except BaseException:
            self.close()
            raise

    def _read_file(self) -> None:
        content = _servers.load(self._path)
        if content is None:
            raise LinkLostError(
                f"{self._path} is no connection file any more: has the server ended?"
            )
        server = content.get("gpufetch")
        self._server: dict[str, Any] = server if isinstance(server, dict) else {}
        if self._server and _servers.is_alive(self._server) is False:
            raise LinkLostError(f"the server of {self._path} has ended (it left the file behind)")
        self._key = content.get("key")
        self.is_local = _servers.is_alive(self._server) is True

    def _attach(self, deadline: float) -> None:
        import zmq

        # Of what is published only this comm's is wanted, not what others read.
        self._iopub.setsockopt(zmq.UNSUBSCRIBE, b"")
        self._iopub.setsockopt(zmq.SUBSCRIBE, f"comm-{self._comm_id}".encode())
        while self._receive(deadline)["msg_type"] != "iopub_welcome":
            pass
        self._send("comm_open", {"target_name": "gpufetch", "data": {"protocol": PROTOCOL}})
        hello: dict[str, Any] = self._receive(deadline)["content"]["data"]
        if "error" in hello:
            _raise(hello["error"])
        self.max_reply_nbytes = int(hello["limits"]["reply_nbytes"])
        self._in_flight = max(1, int(hello["limits"]["in_flight"]))
        self.instance = str(hello["instance"])

    def close(self) -> None:
        """Close the comm; the server forgets this client."""
        self._finish()

    def _send(self, kind: str, content: dict[str, Any]) -> None:
        self._session.send(self._shell, kind, {"comm_id": self._comm_id, **content})

    def _check_alive(self) -> None:
        content = _servers.load(self._path)
        if content is None or content.get("key") != self._key:
            raise LinkLostError(f"the server of {self._path} has ended")
        if self._server and _servers.is_alive(self._server) is False:
            raise LinkLostError(f"the server of {self._path} has ended (it left the file behind)")

    def _receive(self, deadline: float) -> dict[str, Any]:
        while True:
            left = deadline - time.monotonic()
            if self._iopub.poll(int(1000 * max(0.0, min(left, _LOOK_S)))):
                break
            if left <= 0:
                raise LinkLostError(f"the server of {self._path} does not answer")
            self._check_alive()
        frames = self._iopub.recv_multipart(copy=False)
        _, parts = self._session.feed_identities(frames, copy=False)
        message: dict[str, Any] = self._session.deserialize(parts, copy=False)
        if message["msg_type"] == "comm_close":
            raise LinkLostError(f"the server of {self._path} has closed this connection")
        return message

    def _reply(self, request_id: int, deadline: float) -> Reply:
        while request_id not in self._ready:
            message = self._receive(deadline)
            if message["msg_type"] == "comm_msg":
                data = message["content"]["data"]
                self._ready[data.get("id")] = (data, message["buffers"])
        return self._ready.pop(request_id)

    def _ask(self, request: dict[str, Any]) -> int:
        self._last_id += 1
        self._send("comm_msg", {"data": {**request, "id": self._last_id}})
        return self._last_id

    def request(self, requests: list[dict[str, Any]], timeout: float) -> Iterator[Reply]:
        """Send all, give the replies in order. `timeout` is for each.

        As many are under way as the server allows, also while the caller works on a reply: the next
        is asked for before it is handed out.
        """
        self._ready.clear()
        ids = [self._ask(request) for request in requests[: self._in_flight]]
        for done, request in enumerate(requests):
            deadline = time.monotonic() + timeout
            reply = self._reply(ids[done], deadline)
            while reply[0].get("error", {}).get("code") == "busy" and time.monotonic() < deadline:
                time.sleep(_BUSY_PAUSE_S)
                reply = self._reply(self._ask(request), deadline)
            if "error" in reply[0]:
                _raise(reply[0]["error"])
            if len(ids) < len(requests):
                ids.append(self._ask(requests[len(ids)]))
            yield reply
