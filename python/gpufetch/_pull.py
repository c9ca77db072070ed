"""Pulling from a view, whether its tensor is in this process or behind a connection."""

from __future__ import annotations

from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gpufetch import _core
from gpufetch._remote_view import Counts, RemoteView

__all__ = [
    "Future",
    "Via",
    "View",
    "as_view",
    "fetch",
    "fetch_async",
    "histogram",
    "overview",
    "stats",
]

View = _core.DeviceArray | RemoteView
Via = Literal["auto", "link", "codec"]


class RemoteFuture:
    """As `Future`, of a tensor in another process."""

    __slots__ = ("_future",)

    def __init__(self, future: ThreadFuture[npt.NDArray[Any]]) -> None:
        self._future = future

    def result(self, timeout: float | None = None) -> npt.NDArray[Any]:
        """Wait for the array; TimeoutError after `timeout` seconds."""
        return self._future.result(timeout)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for at most `timeout` seconds: whether it is done."""
        try:
            self._future.exception(timeout)
        except TimeoutError:
            return False
        return True

    def done(self) -> bool:
        """Whether result() would return at once."""
        return self._future.done()


Future = _core.Future | RemoteFuture

_executor = ThreadPoolExecutor(4, "gpufetch-pull")  # starts no thread before it is used


def as_view(x: Any) -> View:
    """A view of all of a tensor."""
    view = getattr(type(x), "_gpufetch_view", None)
    if view is not None:
        remote: RemoteView = view(x)
        return remote
    return x if isinstance(x, RemoteView) else _core.asdevice(x)


def fetch(
    view: View, *, out: npt.NDArray[Any] | None = None, via: Via = "auto"
) -> npt.NDArray[Any]:
    """Pull every element."""
    if isinstance(view, RemoteView):
        _check_remote_via(via)
        return view.fetch(out)
    return _core.fetch(view, out=out, via=via)


def fetch_async(view: View, *, out: npt.NDArray[Any] | None = None, via: Via = "auto") -> Future:
    """Start to pull every element."""
    if isinstance(view, RemoteView):
        _check_remote_via(via)
        return RemoteFuture(_executor.submit(view.fetch, out))
    return _core.fetch_async(view, out=out, via=via)


def _check_remote_via(via: Via) -> None:
    if via != "auto":
        raise ValueError(
            f"via={via!r}: this tensor is in another process and comes through a connection to it; "
            "leave via out"
        )


def overview(
    view: View, shape: tuple[int, ...], how: str
) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None, Counts]:
    """Reduce to at most `shape` cells where the tensor is."""
    if isinstance(view, RemoteView):
        return view.overview(shape, how)
    return _core.overview(view, shape, how)


def stats(view: View) -> dict[str, Any]:
    """Statistics, computed where the tensor is."""
    return view.stats() if isinstance(view, RemoteView) else _core.stats(view)


def histogram(
    view: View, bins: int, limits: tuple[float, float] | None
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64], tuple[int, int, int]]:
    """Count elements in bins, where the tensor is."""
    if isinstance(view, RemoteView):
        return view.histogram(bins, limits)
    return _core.histogram(view, bins, limits)
