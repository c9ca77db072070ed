"""A client of one server: its sockets, its comm, and requests with their replies."""

from __future__ import annotations

import os
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpufetch._remote.replies import raise_error
from gpufetch._remote.servers import ConnectionFileError, is_alive, load

__all__ = [
    "Client",
    "NoStepError",
    "Reply",
    "ServerEndedError",
    "ServerGoneError",
    "ServerLostError",
]

PROTOCOL = 1
_CHECK_S = 0.25  # time between checks, while waiting, that the server still lives
_BUSY_PAUSE_S = 0.05
_WELCOME_S = 1.0
_PROBE_S = 2.0  # what a server has to show that it answers, when no step has come

Reply = tuple[dict[str, Any], list[Any]]
"""The JSON of a reply, and its binary buffers."""


class ServerLostError(ConnectionError):
    """The server is gone or does not answer, or another has taken its place."""


class ServerEndedError(ServerLostError):
    """The server has stopped, and removed its connection file: waiting for it is of no use."""


class ServerGoneError(ServerLostError):
    """No server is behind the connection file, which one that starts anew may replace."""


class ServerSilentError(ServerLostError):
    """The server does not answer in time."""


class NoStepError(TimeoutError):
    """The server answers, and its program has completed no step in time."""


class _Wire:
    """The sockets of a client with its comm, and whether it is in the middle of an exchange."""

    def __init__(self, kernel_client: Any, comm_id: str) -> None:
        self._kernel_client = kernel_client
        self._comm_id = comm_id
        self._process_id = os.getpid()
        # Not the session's id, which is published with every reply: over tcp, someone without the
        # key could take this client's place by connecting under the same identity.
        self.shell = self._connect_shell()
        self.iopub = kernel_client.connect_iopub()
        self.is_at_rest = True

    def _connect_shell(self) -> Any:
        import zmq

        shell = self._kernel_client.connect_shell(identity=uuid.uuid4().hex.encode())
        # A server that refuses ZeroMQ's handshake leaves the socket without anyone to send to, for
        # ever, and a send would wait for that.
        shell.setsockopt(zmq.SNDTIMEO, 0)
        return shell

    def send(self, kind: str, content: dict[str, Any]) -> bool:
        """Send a message about the comm; False where none can be sent now."""
        import zmq

        try:
            self._kernel_client.session.send(
                self.shell, kind, {"comm_id": self._comm_id, **content}
            )
        except zmq.Again:
            return False
        return True

    def detach(self) -> None:
        """Close the comm and the sockets."""
        if os.getpid() != self._process_id:  # a forked child: the comm is its parent's
            return
        if not self.is_at_rest:  # half a message may be sent, which another one would continue
            self.shell.close(linger=0)
            self.shell = self._connect_shell()
        self.send("comm_close", {"data": {}})
        self.shell.close(linger=200)
        self.iopub.close(linger=0)
        self._kernel_client.context.destroy(linger=200)


class Client:
    """An open comm to one server. Not for several threads at once.

    The constructor and every request raise ServerLostError if the server has ended or does not
    answer within `timeout` seconds, and ValueError soon after `is_abandoned()` has become true; the
    constructor raises ConnectionError if the server can only be reached on another host.

    Attributes
    ----------
    sharing_problem
        Why memory cannot be shared; None where the server is known to run on this machine.
    instance
        Names this start of the server; another start has another one.
    max_reply_nbytes
        Most bytes of the buffers of one reply.
    """

    def __init__(
        self, path: Path, timeout: float, is_abandoned: Callable[[], bool] = lambda: False
    ) -> None:
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
        self._is_open = False  # whether the server has accepted the comm
        self._is_abandoned = is_abandoned
        content = self._read_file()
        self._client = BlockingKernelClient(connection_file=str(path))
        self._client.load_connection_info(content)
        self._session = self._client.session
        self._wire = self._wired(content)
        # Called by close(), else when this object is collected or the interpreter ends.
        self._finish = weakref.finalize(self, self._wire.detach)
        try:
            self._attach(time.monotonic() + timeout)
        except BaseException:
            self.close()
            raise

    def _wired(self, content: dict[str, Any]) -> _Wire:
        import zmq

        try:
            return _Wire(self._client, self._comm_id)
        except zmq.ZMQError as error:
            self._client.context.destroy(linger=0)
            raise ServerGoneError(
                f"{self._path} is no connection file: ZeroMQ cannot connect to its ip "
                f"{content.get('ip')!r} ({error})"
            ) from error

    def _read_file(self) -> Any:
        content = self._load()
        server: dict[str, Any] | None = content.get("gpufetch")
        self._server = server
        lives = None if server is None else is_alive(server)
        if lives is False:
            raise self._gone()
        if server is not None and lives is None and content.get("transport") == "ipc":
            raise ConnectionError(
                f"the server of {self._path} can only be reached on its own host, "
                f"{server['host']}: start it with ip= to serve other hosts"
            )
        self._key = content.get("key")
        self.sharing_problem = None
        if server is None:
            self.sharing_problem = "an IPython kernel's connection file does not say where it is"
        elif lives is not True:
            self.sharing_problem = "the server is on another machine"
        return content

    def _attach(self, deadline: float) -> None:
        import zmq

        # Receive what is published for this comm alone, not for those of other clients.
        self._wire.iopub.setsockopt(zmq.UNSUBSCRIBE, b"")
        topic = f"comm-{self._comm_id}".encode()
        self._wire.iopub.setsockopt(zmq.SUBSCRIBE, topic)
        self._welcomes_due = 1
        while not self._is_welcome(min(deadline, time.monotonic() + _WELCOME_S)):
            if time.monotonic() >= deadline:
                raise self._silent()
            # An IPython kernel may overlook a subscription until another one comes.
            self._wire.iopub.setsockopt(zmq.UNSUBSCRIBE, topic)
            self._wire.iopub.setsockopt(zmq.SUBSCRIBE, topic)
            self._welcomes_due += 1
        self._wire.is_at_rest = False
        opening = {"target_name": "gpufetch", "data": {"protocol": PROTOCOL}}
        self._send("comm_open", opening, deadline)
        while (message := self._receive(deadline))["msg_type"] == "iopub_welcome":
            pass
        hello: dict[str, Any] = message["content"]["data"]
        self._wire.is_at_rest = True
        if "error" in hello:
            raise_error(hello["error"])
        self._is_open = True
        self.max_reply_nbytes = int(hello["limits"]["reply_nbytes"])
        self._under_way_max = max(1, int(hello["limits"]["in_flight"]))
        self.instance = str(hello["instance"])

    def _is_welcome(self, deadline: float) -> bool:
        """Wait until the subscription is in force; False if it is not in time."""
        try:
            while self._receive(deadline)["msg_type"] != "iopub_welcome":
                pass
        except ServerSilentError:
            return False
        return True

    @property
    def is_at_rest(self) -> bool:
        """False from a request to its reply, for ever where an exception came between."""
        return self._wire.is_at_rest

    def close(self) -> None:
        """Close the comm; may be called again."""
        self._finish()

    def _send(self, kind: str, content: dict[str, Any], deadline: float) -> None:
        import zmq

        while not self._wire.send(kind, content):
            is_ready = self._poll(self._wire.shell, zmq.POLLOUT, deadline)
            if not is_ready or time.monotonic() >= deadline:
                raise ServerSilentError(
                    f"the server of {self._path} takes no messages: it may have other ports or "
                    "other keys of CurveZMQ than the file says"
                )

    def _load(self) -> dict[str, Any]:
        try:
            return load(self._path)
        except FileNotFoundError as error:
            raise ServerEndedError(
                f"the server of {self._path} has ended: start it again, and the next access "
                "attaches to it"
            ) from error
        except ConnectionFileError as error:
            raise ServerGoneError(str(error)) from error

    def _silent(self) -> ServerSilentError:
        return ServerSilentError(f"the server of {self._path} does not answer")

    def _gone(self) -> ServerGoneError:
        return ServerGoneError(
            f"the server of {self._path} has ended and left the file behind: start it again"
        )

    def _check_open(self) -> None:
        if self._wire.iopub.closed:
            raise ServerEndedError(
                f"the connection to the server of {self._path} was closed while the interpreter "
                "ended: wait for reads before the program's last line"
            )

    def _check_alive(self) -> None:
        try:
            content = self._load()
        except OSError as error:
            if isinstance(error, ServerLostError):
                raise
            return  # that the file cannot be read now says nothing of the server
        if content.get("key") != self._key:
            raise ServerLostError(f"the server of {self._path} has ended")
        if self._server is not None and is_alive(self._server) is False:
            raise self._gone()

    def _poll(self, socket: Any, event: int, deadline: float) -> bool:
        """Wait until a socket is ready; False if it is not in time."""
        while True:
            if self._is_abandoned():
                raise ValueError("this connection is closed: connect() again")
            self._check_open()
            left = deadline - time.monotonic()
            if socket.poll(int(1000 * max(0.0, min(left, _CHECK_S))), event):
                return True
            self._check_alive()
            if left <= 0:
                return False

    def _receive(self, deadline: float) -> dict[str, Any]:
        import zmq

        if not self._poll(self._wire.iopub, zmq.POLLIN, deadline):
            raise self._silent()
        frames = self._wire.iopub.recv_multipart(copy=False)
        try:
            _, rest = self._session.feed_identities(frames, copy=False)
            message: dict[str, Any] = self._session.deserialize(rest, copy=False)
        except ValueError as error:  # signed with another key
            raise ServerLostError(
                f"another server has the address of {self._path} now ({error})"
            ) from error
        if message["msg_type"] == "iopub_welcome":
            self._welcomes_due -= 1
            if self._welcomes_due < 0:  # the sockets have found a new start by themselves
                raise ServerLostError(f"the server of {self._path} has started anew")
        if message["msg_type"] == "comm_close":
            if self._server is None and not self._is_open:
                raise ServerGoneError(
                    f"the kernel of {self._path} has no comm target gpufetch: run "
                    "%load_ext gpufetch in it"
                )
            raise ServerLostError(f"the server of {self._path} has closed this connection")
        return message

    def _reply(self, request_id: int, deadline: float) -> Reply:
        while request_id not in self._ready:
            message = self._receive(deadline)
            if message["msg_type"] == "comm_msg":
                data = message["content"]["data"]
                self._ready[data.get("id")] = (data, message["buffers"])
        return self._ready.pop(request_id)

    def _reply_at(self, request_id: int, request: dict[str, Any], timeout: float) -> Reply:
        """Wait for a reply; NoStepError if it waits for a step, and the server answers others."""
        try:
            return self._reply(request_id, time.monotonic() + timeout)
        except ServerSilentError:
            if request["op"] != "subscribe" and request.get("at") != "step":
                raise
            deadline = time.monotonic() + _PROBE_S
            self._reply(self._ask({"op": "list"}, deadline), deadline)
        if request_id in self._ready:
            return self._ready.pop(request_id)
        raise NoStepError(
            f"no step was completed within {timeout:g} s by the program of {self._path}, whose "
            'server answers: wait longer (timeout=), or read live (at = "live")'
        )

    def _ask(self, request: dict[str, Any], deadline: float) -> int:
        self._last_id += 1
        self._send("comm_msg", {"data": {**request, "id": self._last_id}}, deadline)
        return self._last_id

    def request(self, requests: list[dict[str, Any]], timeout: float) -> Iterator[Reply]:
        """Send requests, and yield their replies in order; `timeout` seconds are for each one.

        As many requests are under way as the server allows, also while the caller works on a
        reply: the next one is sent before the reply is yielded. Raises what a refusal stands for,
        and NoStepError where a request waits for a step that does not come. Where anything else is
        raised, the client is not at rest, and of no further use.
        """
        self._ready.clear()
        self._wire.is_at_rest = False
        deadline = time.monotonic() + timeout
        ids = [self._ask(request, deadline) for request in requests[: self._under_way_max]]
        for done, request in enumerate(requests):
            deadline = time.monotonic() + timeout
            reply = self._reply_at(ids[done], request, timeout)
            while reply[0].get("error", {}).get("code") == "busy" and time.monotonic() < deadline:
                time.sleep(_BUSY_PAUSE_S)
                again = self._ask(request, time.monotonic() + timeout)
                reply = self._reply_at(again, request, timeout)
            if "error" in reply[0]:
                self._wire.is_at_rest = True
                raise_error(reply[0]["error"])
            if len(ids) < len(requests):
                ids.append(self._ask(requests[len(ids)], time.monotonic() + timeout))
            if done == len(requests) - 1:
                self._wire.is_at_rest = True
            yield reply
