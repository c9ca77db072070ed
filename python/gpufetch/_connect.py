"""Connecting: the tensors that another process serves, as LazyArrays."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from gpufetch import _core, _servers, _share
from gpufetch._connection import At, Connection, Value
from gpufetch._joint import JointConnection
from gpufetch._link import Link, LinkLostError, ReplyError, dtype_of, number
from gpufetch._remote_view import Counts, RemoteView, Slices
from gpufetch._text import format_nbytes
from gpufetch.lazy import LazyArray

__all__ = ["Connection", "ServerConnection", "connect"]

# Below this, messages are as quick as opening shared memory.
_SHARE_NBYTES = 8 << 20


@final
class PublishedTensor:
    """One published tensor, as the listing described it; what a LazyArray of it wraps.

    The place of a block in its array was listed too, and must still be true: requests for a block
    name the generation, and the server must not have started anew.
    """

    def __init__(self, connection: ServerConnection, item: Mapping[str, Any]) -> None:
        self._connection = connection
        self.name: str = item["name"]
        self.shape: tuple[int, ...] = tuple(item["shape"])
        self.dtype: np.dtype[Any] = dtype_of(item["dtype"])
        self.device: str = item["device"]
        self.generation: int | None = item["generation"] if "global_shape" in item else None
        self._instance = connection._instance

    def _gpufetch_view(self) -> RemoteView:
        return RemoteView(self)

    def __repr__(self) -> str:
        return f"<tensor {self.name} of {self._connection.name}>"

    def read(
        self, slices: Slices, shape: tuple[int, ...], out: npt.NDArray[Any] | None
    ) -> npt.NDArray[Any]:
        """Pull a part: through shared memory where that pays and works, else in messages."""
        nbytes = int(np.prod(shape, dtype=np.int64)) * self.dtype.itemsize
        if nbytes >= _SHARE_NBYTES:
            shared = self._connection._shared(self)
            if shared is not None:
                key = tuple(i if isinstance(i, int) else slice(*i) for i in slices)
                values = _core.fetch(shared[key], out=out)
                self._check_instance()
                return values
        values = np.empty(shape, self.dtype) if out is None else out
        self._connection._read(self, slices, values)
        self._check_instance()
        return values

    def request(self, op: str, slices: Slices, **more: Any) -> dict[str, Any]:
        """A request for a part."""
        if self.generation is not None:
            more["generation"] = self.generation
        return {"op": op, "name": self.name, "slices": slices, **more}

    @property
    def is_read_at_steps(self) -> bool:
        """Whether each request is of a step of its own."""
        return self._connection.at == "step"

    def _check_instance(self) -> None:
        if self.generation is not None and self._instance != self._connection._instance:
            raise RuntimeError(
                f"{self._connection.name} has started anew: look {self.name} up again"
            )

    def _reduce(self, op: str, slices: Slices, **more: Any) -> tuple[dict[str, Any], list[Any]]:
        reply = self._connection._request(self.request(op, slices, **more))
        self._check_instance()
        return reply

    def reduce(
        self, slices: Slices, shape: tuple[int, ...], how: str
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None, Counts]:
        """An overview of a part."""
        reply, buffers = self._reduce("overview", slices, shape=list(shape), method=how)
        dtype, cells = dtype_of(reply["dtype"]), tuple(reply["shape"])
        arrays = [np.frombuffer(buffer, dtype).reshape(cells).copy() for buffer in buffers]
        counts = reply["counts"]
        return (
            arrays[0],
            arrays[1] if len(arrays) > 1 else None,
            (
                int(counts["count"]),
                int(counts["nan_count"]),
                int(counts["posinf_count"]),
                int(counts["neginf_count"]),
            ),
        )

    def stats(self, slices: Slices) -> dict[str, Any]:
        """Statistics of a part."""
        reply, _ = self._reduce("stats", slices)
        counts = reply["counts"]
        exact = self.dtype.kind in "biu"
        extremes = ("min", "max", "finite_min", "finite_max")
        return {
            "count": int(counts["count"]),
            "nan_count": int(counts["nan_count"]),
            "posinf_count": int(counts["posinf_count"]),
            "neginf_count": int(counts["neginf_count"]),
            "finite_count": int(reply["finite_count"]),
            "zero_count": int(reply["zero_count"]),
            **{name: number(reply[name], exact) for name in extremes},
            "mean": float(reply["mean"]),
            "variance": float(reply["variance"]),
        }

    def histogram(
        self, slices: Slices, bins: int, limits: tuple[float, float] | None
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64], tuple[int, int, int]]:
        """A histogram of a part."""
        more = {} if limits is None else {"range": list(limits)}
        reply, (counts, edges) = self._reduce("histogram", slices, bins=bins, **more)
        rest = (int(reply["nan_count"]), int(reply["under_count"]), int(reply["over_count"]))
        return np.frombuffer(counts, np.uint64), np.frombuffer(edges, np.float64), rest


@final
class ServerConnection(Connection):
    """A connection to one server."""

    def __init__(self, path: Path, timeout: float, at: At) -> None:
        self._path = path
        server = _servers.describe(path)
        self.label = server.name if server else path.stem  # of several, what tells them apart
        self._timeout = timeout
        self._lock = threading.RLock()  # guards all below
        self._link: Link | None = None
        self._is_closed = False
        self._attached: dict[str, _core.DeviceArray] = {}  # by handle; those in use
        self._sharing: str | None = None  # why large reads go by messages; None: they need not
        self._step: int | None = None
        self._time: float | None = None
        self._instance = ""  # tells one start of the server from the next
        self._seen = threading.local()  # .step: that of the last reply to this thread
        self.at: At = at

    # --- The mapping ---

    def __getitem__(self, name: str) -> LazyArray:
        for item in self._list()["tensors"]:
            if item["name"] == name:
                return LazyArray(self._tensor(item))
        raise KeyError(name)

    def _tensor(self, item: Mapping[str, Any]) -> PublishedTensor:
        if problem := item.get("problem"):
            raise ReplyError("unreadable", f"{item['name']} cannot be read: {problem}")
        return PublishedTensor(self, item)

    def __iter__(self) -> Iterator[str]:
        return iter([item["name"] for item in self._list()["tensors"]])

    def __len__(self) -> int:
        return len(self._list()["tensors"])

    @property
    def name(self) -> str:
        return self.label

    @property
    def servers(self) -> Mapping[str, Connection]:
        return {self.name: self}

    @property
    def scalars(self) -> dict[str, Value]:
        values: dict[str, Value] = self._list()["values"]
        return values

    @property
    def steps(self) -> dict[str, int | None]:
        self._list()
        return {self.name: self._step}

    @property
    def time(self) -> float | None:
        self._list()
        return self._time

    def wait_step(self, timeout: float | None = None) -> int:
        reply, _ = self._request({"op": "subscribe"}, timeout=timeout)
        return int(reply["step"])

    @property
    def data_path(self) -> str:
        return "shared memory" if self._sharing is None else f"messages: {self._sharing}"

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._drop()

    def _describe(self) -> list[str]:
        if self._is_closed:
            return [f"<connection to {self._path.stem}, closed>"]
        listing = self._list()
        lines = [f"<connection to {self.name}, step {self._step}, time {self._time}>"]
        lines += [
            self._listing_line(item, format_nbytes(int(item["nbytes"])))
            for item in listing["tensors"]
        ]
        return lines + [f"  {name} = {value!r}" for name, value in listing["values"].items()]

    # --- Requests ---

    def _drop(self) -> None:
        self._attached.clear()
        if self._link is not None:
            self._link.close()
            self._link = None

    def _live_link(self, deadline: float) -> Link:
        if self._is_closed:
            raise ValueError("this connection is closed: connect() again")
        while self._link is None:
            try:
                self._link = Link(self._path, max(0.2, deadline - time.monotonic()))
                self._instance = self._link.instance
            except LinkLostError as error:
                if time.monotonic() >= deadline:
                    raise TimeoutError(str(error)) from error
                time.sleep(0.1)
        return self._link

    def _request_many(
        self, requests: list[dict[str, Any]], timeout: float | None = None
    ) -> Iterator[tuple[dict[str, Any], list[Any]]]:
        """Send all, give the replies in order; connect anew once if the link is lost before one."""
        with self._lock:
            deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
            done = 0
            while done < len(requests):
                link = self._live_link(deadline)
                try:
                    for reply in link.request(requests[done:], timeout or self._timeout):
                        self._step = self._seen.step = reply[0].get("step", self._step)
                        self._time = reply[0].get("time", self._time)
                        done += 1
                        yield reply
                except LinkLostError as error:
                    self._drop()
                    if time.monotonic() >= deadline:
                        raise TimeoutError(str(error)) from error

    def _request(
        self, request: dict[str, Any], timeout: float | None = None
    ) -> tuple[dict[str, Any], list[Any]]:
        if self.at == "step" and request["op"] in ("read", "overview", "stats", "histogram"):
            request["at"] = "step"
        (reply,) = self._request_many([request], timeout)
        return reply

    def _list(self) -> dict[str, Any]:
        listing, _ = self._request({"op": "list"})
        while listing["truncated"]:
            skip = len(listing["tensors"]) + len(listing["values"])
            more, _ = self._request({"op": "list", "skip": skip})
            listing["tensors"] += more["tensors"]
            listing["values"].update(more["values"])
            listing["truncated"] = more["truncated"]
        return listing

    def _read(self, tensor: PublishedTensor, slices: Slices, values: npt.NDArray[Any]) -> None:
        """Pull a part in messages into `values`, which is in C order."""
        flat, shape = values.reshape(-1).view(np.uint8), values.shape
        with self._lock:
            most = self._live_link(time.monotonic() + self._timeout).max_reply_nbytes
            request = tensor.request("read", slices, fragment=0)
            first, (buffer,) = self._request(request)
            if (tuple(first["shape"]), dtype_of(first["dtype"])) != (shape, tensor.dtype):
                raise RuntimeError(
                    f"{tensor.name} is {first['dtype']} {tuple(first['shape'])} there now, not "
                    f"{tensor.dtype} {shape}: look it up anew"
                )
            if first["fragments"] > 1 and self.at == "step":
                raise ValueError(
                    f"{format_nbytes(values.nbytes)} of {tensor.name} do not fit one reply, and "
                    f"fragments would be of several steps: index {format_nbytes(most)} at most, "
                    'take an overview, or read live (at = "live")'
                )
            flat[: len(buffer)] = np.frombuffer(buffer, np.uint8)
            rest = [{**request, "fragment": i} for i in range(1, first["fragments"])]
            for reply, (buffer,) in self._request_many(rest):
                start = reply["offset"]
                flat[start : start + len(buffer)] = np.frombuffer(buffer, np.uint8)

    def _shared(self, tensor: PublishedTensor) -> _core.DeviceArray | None:
        """The tensor's memory itself, where this process can open it."""
        if self._sharing is not None or self.at == "step" or tensor.device == "cpu:0":
            return None
        with self._lock:
            if not self._live_link(time.monotonic() + self._timeout).is_local:
                self._sharing = "the server is on another machine"
                return None
            try:
                reply, _ = self._request({"op": "share", "name": tensor.name})
                if tensor.generation not in (None, reply["generation"]):
                    return None  # the read that follows is told so
                handle = str(reply["handle"])
                shared = self._attached.get(handle)
                if shared is None:
                    self._attached.clear()
                    shared = self._attached[handle] = _share.attach(handle)
            except KeyError:
                return None  # withdrawn, or another buffer took its name meanwhile
            except _core.Error as error:
                if error.status != "GPUF_ERR_STATE":  # which says the same
                    self._sharing = str(error)
                return None
            except (ReplyError, TypeError, MemoryError, OSError) as error:
                self._sharing = str(error)
                return None
        if (shared.shape, shared.dtype) != (tensor.shape, tensor.dtype):
            raise RuntimeError(
                f"{tensor.name} is {shared.dtype} {shared.shape} there now, not {tensor.dtype} "
                f"{tensor.shape}: look it up anew"
            )
        return shared


def connect(
    server: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    timeout: float = 30.0,
    at: At = "live",
) -> Connection:
    """Attach to a program that serves tensors: a C simulation, or a Python one with `serve`.

    `server` is the server's name (`gpufetch attach` lists them) or the path of its connection file.
    The program is not stopped, and does not notice.

    A list of these, or a pattern of names or paths ("run-*"), attaches to all of them: what each
    has published as its block of a larger array (`start` and `global_shape` of `Server.publish` and
    `gpuf_server_publish`) is one array here. A read goes to the servers whose blocks it touches.

    timeout : seconds that a request, with a connection anew if need be, may take.
    at : "live" or "step", see `Connection`.

    Raises FileNotFoundError if there is no such server, TimeoutError if it does not answer, and
    ImportError without jupyter_client.
    """
    if at not in ("live", "step"):
        raise ValueError(f'at={at!r} is neither "live" nor "step"')
    attached = [ServerConnection(path, timeout, at) for path in _servers.find_all(server)]
    several = _servers.is_several(server)
    connection = JointConnection(attached) if several else attached[0]
    try:
        len(connection)  # asks each server
    except BaseException:
        connection.close()
        raise
    return connection
