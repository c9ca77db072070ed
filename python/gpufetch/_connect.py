"""Connecting: the tensors that another process serves, as LazyArrays."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from gpufetch import _core, _servers, _share
from gpufetch._link import Link, LinkLostError, ReplyError, dtype_of, number
from gpufetch._remote_view import Counts, RemoteView, Slices
from gpufetch._text import format_nbytes
from gpufetch.lazy import LazyArray

__all__ = ["Connection", "connect"]

At = Literal["live", "step"]

# Below this, messages are as quick as opening shared memory.
_SHARE_NBYTES = 8 << 20


@final
class _Tensor:
    """One published tensor, as the listing described it; what a LazyArray of it wraps."""

    def __init__(self, connection: Connection, item: Mapping[str, Any]) -> None:
        self._connection = connection
        self.name: str = item["name"]
        self.shape: tuple[int, ...] = tuple(item["shape"])
        self.dtype: np.dtype[Any] = dtype_of(item["dtype"])
        self.device: str = item["device"]

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
                return _core.fetch(shared[key], out=out)
        values = np.empty(shape, self.dtype) if out is None else out
        self._connection._read(self, slices, values)
        return values

    def _reduce(self, op: str, slices: Slices, **more: Any) -> tuple[dict[str, Any], list[Any]]:
        return self._connection._request({"op": op, "name": self.name, "slices": slices, **more})

    def reduce(
        self, slices: Slices, shape: tuple[int, ...], how: str
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None, Counts]:
        """An overview of a part."""
        reply, buffers = self._reduce("reduce", slices, shape=list(shape), how=how)
        dtype, cells = dtype_of(reply["dtype"]), tuple(reply["shape"])
        arrays = [np.frombuffer(buffer, dtype).reshape(cells).copy() for buffer in buffers]
        counts = reply["counts"]
        return (
            arrays[0],
            arrays[1] if len(arrays) > 1 else None,
            (
                int(counts["count"]),
                int(counts["nan"]),
                int(counts["posinf"]),
                int(counts["neginf"]),
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
            "nan_count": int(counts["nan"]),
            "posinf_count": int(counts["posinf"]),
            "neginf_count": int(counts["neginf"]),
            "finite_count": int(reply["finite"]),
            "zero_count": int(reply["zero"]),
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
        rest = (int(reply["nan"]), int(reply["under"]), int(reply["over"]))
        return np.frombuffer(counts, np.uint64), np.frombuffer(edges, np.float64), rest


@final
class Connection(Mapping[str, LazyArray]):
    """What a server publishes: a mapping from names to LazyArrays; from `connect`.

    `run["u"]` is a LazyArray like a local one: slices, `overview`, `stats`, `histogram`, NumPy
    functions and Dask pull what they need, when they need it. Contents are live; with
    `at="step"` each read is done where the program has completed a step (`gpuf_publish_step`,
    `Server.step`), one read at most 4 MiB.

    When the server restarts, or the network fails, the next access connects anew.

    May be used from any thread; requests go one after the other. As a context manager it closes at
    the end of the block.
    """

    def __init__(self, path: Path, timeout: float, at: At) -> None:
        self._path = path
        self._timeout = timeout
        self._lock = threading.RLock()  # guards all below
        self._link: Link | None = None
        self._is_closed = False
        self._attached: dict[str, _core.DeviceArray] = {}  # by handle; those in use
        self._sharing: str | None = None  # why large reads go by messages; None: they need not
        self._step: int | None = None
        self._time: float | None = None
        self.at: At = at

    # --- The mapping ---

    def __getitem__(self, name: str) -> LazyArray:
        for item in self._list()["tensors"]:
            if item["name"] == name:
                if problem := item.get("problem"):
                    raise ReplyError("unreadable", f"{name} cannot be read: {problem}")
                return LazyArray(_Tensor(self, item))
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter([item["name"] for item in self._list()["tensors"]])

    def __len__(self) -> int:
        return len(self._list()["tensors"])

    @property
    def name(self) -> str:
        """The server's name."""
        server = _servers.describe(self._path)
        return server.name if server else self._path.stem

    @property
    def scalars(self) -> dict[str, int | float | str]:
        """The values that are published beside the tensors."""
        values: dict[str, int | float | str] = self._list()["values"]
        return values

    @property
    def step(self) -> int | None:
        """The step that the program completed last; None if it has said none."""
        self._list()
        return self._step

    @property
    def time(self) -> float | None:
        """The simulated time of that step."""
        self._list()
        return self._time

    def wait_step(self, timeout: float | None = None) -> int:
        """Wait until the program completes a step that it has not yet, and return its number.

        TimeoutError after `timeout` seconds (None: as `connect` was told).
        """
        reply, _ = self._request({"op": "subscribe"}, timeout=timeout)
        return int(reply["step"])

    @property
    def data_path(self) -> str:
        """How large reads travel: "shared memory", or "messages" and why."""
        return "shared memory" if self._sharing is None else f"messages: {self._sharing}"

    def close(self) -> None:
        """Detach. The arrays that came from here cannot be read any more."""
        with self._lock:
            self._is_closed = True
            self._drop()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._is_closed:
            return f"<connection to {self._path.stem}, closed>"
        try:
            listing = self._list()
        except Exception as error:  # a repr that raises hides the object
            return f"<connection to {self._path.stem}: {error}>"
        lines = [f"<connection to {self.name}, step {self._step}, time {self._time}>"]
        lines += [
            f"  {item['name']}: {item['dtype']} {tuple(item['shape'])}, {item['device']}, "
            f"{format_nbytes(int(item['nbytes']))}"
            for item in listing["tensors"]
        ]
        lines += [f"  {name} = {value!r}" for name, value in listing["values"].items()]
        return "\n".join(lines)

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
                        self._step = reply[0].get("step", self._step)
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
        if self.at == "step" and request["op"] in ("read", "reduce", "stats", "histogram"):
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

    def _read(self, tensor: _Tensor, slices: Slices, values: npt.NDArray[Any]) -> None:
        """Pull a part in messages into `values`, which is in C order."""
        flat, shape = values.reshape(-1).view(np.uint8), values.shape
        with self._lock:
            most = self._live_link(time.monotonic() + self._timeout).max_reply_nbytes
            request = {"op": "read", "name": tensor.name, "slices": slices, "part": 0}
            first, (buffer,) = self._request(request)
            if (tuple(first["shape"]), dtype_of(first["dtype"])) != (shape, tensor.dtype):
                raise RuntimeError(
                    f"{tensor.name} is {first['dtype']} {tuple(first['shape'])} there now, not "
                    f"{tensor.dtype} {shape}: look it up anew"
                )
            if first["parts"] > 1 and self.at == "step":
                raise ValueError(
                    f"{format_nbytes(values.nbytes)} of {tensor.name} do not fit one reply, and "
                    f"parts would be of several steps: index {format_nbytes(most)} at most, take "
                    'an overview, or read live (at = "live")'
                )
            flat[: len(buffer)] = np.frombuffer(buffer, np.uint8)
            rest = [{**request, "part": part} for part in range(1, first["parts"])]
            for reply, (buffer,) in self._request_many(rest):
                start = reply["offset"]
                flat[start : start + len(buffer)] = np.frombuffer(buffer, np.uint8)

    def _shared(self, tensor: _Tensor) -> _core.DeviceArray | None:
        """The tensor's memory itself, where this process can open it."""
        if self._sharing is not None or self.at == "step" or tensor.device == "cpu:0":
            return None
        with self._lock:
            if not self._live_link(time.monotonic() + self._timeout).is_local:
                self._sharing = "the server is on another machine"
                return None
            try:
                reply, _ = self._request({"op": "share", "name": tensor.name})
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
    server: str | os.PathLike[str], *, timeout: float = 30.0, at: At = "live"
) -> Connection:
    """Attach to a program that serves tensors: a C simulation, or a Python one with `serve`.

    `server` is the server's name (`gpufetch attach` lists them) or the path of its connection file.
    The program is not stopped, and does not notice.

    timeout : seconds that a request, with a connection anew if need be, may take.
    at : "live" or "step", see `Connection.at`.

    Raises FileNotFoundError if there is no such server, TimeoutError if it does not answer, and
    ImportError without jupyter_client.
    """
    if at not in ("live", "step"):
        raise ValueError(f'at={at!r} is neither "live" nor "step"')
    connection = Connection(_servers.find(server), timeout, at)
    try:
        connection._list()
    except BaseException:
        connection.close()
        raise
    return connection
