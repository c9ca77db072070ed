"""Clients for the benchmark of the comm that do little beyond using sockets."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import zmq
from jupyter_client.session import Session

from harness import Array

CLIENT, BARE = "minimal pyzmq client", "bare ZeroMQ"
_PATIENCE_MS = 60_000


def floats(frame: Any) -> Array:
    return np.frombuffer(frame, np.float32)


def _sockets(context: zmq.Context[Any], shell: str, replies: str, topic: str) -> tuple[Any, Any]:
    """A DEALER and a SUB, connected and subscribed as a Jupyter client's are."""
    requests, answers = context.socket(zmq.DEALER), context.socket(zmq.SUB)
    for socket in (requests, answers):
        socket.linger, socket.rcvtimeo = 0, _PATIENCE_MS
    answers.rcvhwm = 0
    requests.connect(shell)
    answers.subscribe(topic)
    answers.connect(replies)
    answers.recv_multipart()  # the server's message that the subscription has arrived
    return requests, answers


class CommClient:
    """Opens a comm and signs its requests. Does not verify replies."""

    def __init__(self, context: zmq.Context[Any], connection_file: str) -> None:
        info = json.loads(Path(connection_file).read_text())
        urls = [f"tcp://{info['ip']}:{info[port]}" for port in ("shell_port", "iopub_port")]
        self._session = Session(key=info["key"].encode())
        self._comm_id = uuid.uuid4().hex
        self._shell, self.replies = _sockets(context, *urls, f"comm-{self._comm_id}")
        self._send("comm_open", {"target_name": "gpufetch", "data": {"protocol": 1}})
        self.replies.recv_multipart()

    def _send(self, kind: str, content: dict[str, Any]) -> None:
        self._session.send(self._shell, kind, {"comm_id": self._comm_id, **content})

    def ask(self, request: dict[str, Any]) -> None:
        self._send("comm_msg", {"data": request})

    def take(self) -> Any:
        """Return the next reply's buffer."""
        frames = self.replies.recv_multipart(copy=False)
        if len(frames) != 8:
            raise RuntimeError(f"refused: {frames[6].bytes.decode()}")
        return frames[7]

    def close(self) -> None:
        self._send("comm_close", {"data": {}})
        self._shell.close(linger=1000)
        self.replies.close()


class BareClient:
    """Asks for messages of some length and receives them, by ZeroMQ's protocol alone."""

    def __init__(self, context: zmq.Context[Any], urls: tuple[str, str]) -> None:
        self._topic = f"bare-{uuid.uuid4().hex}"
        self._shell, self.replies = _sockets(context, *urls, self._topic)

    def ask(self, nbytes: int, message_nbytes: int) -> None:
        """Ask for `nbytes` in all, from the beginning of what the server holds."""
        request = [self._topic, str(nbytes), str(message_nbytes)]
        self._shell.send_multipart([frame.encode() for frame in request])

    def take(self) -> Any:
        """Return the next message."""
        _, frame = self.replies.recv_multipart(copy=False)
        return frame

    def close(self) -> None:
        self._shell.close()
        self.replies.close()
