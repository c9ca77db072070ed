"""Fetches in flight, for threads (concurrent.futures) and for asyncio."""

from __future__ import annotations

import atexit
import collections
import concurrent.futures
import logging
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, Generic, Literal, NoReturn, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from gpufetch import _core
from gpufetch._dtypes import DTypeLike
from gpufetch._outcome import settle
from gpufetch._threads import Workers, log_exception

__all__ = ["Future", "fetch_async"]

_T = TypeVar("_T")
_K = TypeVar("_K")
_Scalar = TypeVar("_Scalar", bound=np.generic)
_Array = TypeVar("_Array", bound=npt.NDArray[Any])
_Order = Literal["C", "F", "A", "K"]

# Logs what callbacks raise, where concurrent.futures does.
_logger = logging.getLogger("concurrent.futures")

_watchers = Workers(64)
"""Each thread waits for one copy that somebody wants to be told of, and calls the callbacks."""
_settlers = Workers(64)
"""Each thread waits for one copy of which the base class is to be told. Nobody waits for them at
exit: they may come to a lock that is held."""

atexit.register(_watchers.end)

_BASE_ATTRIBUTES = frozenset(vars(concurrent.futures.Future()))
"""What the base class's __init__ sets."""


class Future(concurrent.futures.Future[_T], Generic[_T]):
    """A fetch in flight, from `fetch_async`.

    It is a `concurrent.futures.Future`, which `concurrent.futures.wait`, `as_completed` and
    `asyncio.wrap_future` take, and it can be awaited. It keeps the source and the destination alive
    until the copy has ended; dropping the last reference waits for that, unless somebody is to be
    told of the end. May be used from any thread. In a forked child the methods raise
    `gpufetch.Error`. At exit, copies that somebody is to be told of are waited for.

    The copy runs without Python. A thread waits for it only once a callback, an `await` or
    `concurrent.futures.wait` asks to be told.
    """

    __module__ = "gpufetch"
    _copy: _core.Future

    def __init__(self, copy: _core.Future) -> None:
        if type(copy) is not _core.Future:
            raise TypeError("a Future comes from fetch_async")
        self._copy = copy
        # Whoever takes one out calls it. The base class would keep them under a lock of Python's,
        # which Ctrl-C may leave held.
        self._callbacks: collections.deque[Callable[[Any], object]] = collections.deque()
        # Has an item while a thread waits for the end of the copy, and will call them all then.
        self._watched: list[object] = []

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Future cannot be pickled or copied: pass on its result(), or call fetch_async there"
        )

    def __getattr__(self, name: str) -> Any:
        """Set the base class up when one of its attributes is used, and see that it is told."""
        if name not in _BASE_ATTRIBUTES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        own: concurrent.futures.Future[_T] = concurrent.futures.Future()
        if self._copy.done():  # raises in a forked child, which would wait for ever
            self._tell(own)
        else:
            # Each thread that comes here sees to it that the base class is told, before others can
            # see the state that has yet to change: Ctrl-C in one thread may not lose it for them.
            try:
                _settlers.start(partial(self._settle, own))
            except (MemoryError, RuntimeError):  # no more threads, or the interpreter ends
                self._copy.join()
                self._tell(own)
        self._set_base_up(own)
        return self.__dict__[name]

    def _set_base_up(self, own: concurrent.futures.Future[_T]) -> None:
        # Without a lock, as finalizers may run here: the first value of each attribute stays.
        for attribute, value in vars(own).items():
            self.__dict__.setdefault(attribute, value)

    def _settle(self, own: concurrent.futures.Future[_T]) -> None:
        """On a thread of gpufetch's: wait for the copy, and tell the base class the outcome."""
        self._copy.join()
        self._set_base_up(own)
        self._tell(self)

    def _tell(self, base: concurrent.futures.Future[_T]) -> None:
        """Give the outcome of a copy that has ended to `base`, if that has none."""
        try:
            result = cast(_T, self._copy.result())
        except Exception as error:
            settle(base, None, error.with_traceback(None))
        else:
            settle(base, result, None)

    def result(self, timeout: float | None = None) -> _T:
        """Wait for the copy and return the array or the tree, the same one at every call.

        A failure of the copy is raised here, at every call. TimeoutError after `timeout` seconds
        leaves the copy running. `concurrent.futures.CancelledError` after `cancel`.
        """
        return cast(_T, self._copy.result(timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the copy and return what `result` would raise, or None."""
        if not self._copy.wait(timeout):
            raise TimeoutError("the fetch is still running: wait longer, or cancel() it")
        try:
            self._copy.result()
        except concurrent.futures.CancelledError:
            raise
        except Exception as error:
            return error
        return None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the copy has ended, well or not; False after `timeout` seconds.

        A failure of the copy is raised by `result`, not here.
        """
        return self._copy.wait(timeout)

    def done(self) -> bool:
        """Whether the copy has ended, well or not: the memory of both sides is at rest."""
        return self._copy.done()

    def running(self) -> bool:
        """Whether the copy has not ended yet."""
        return not self._copy.done()

    def cancel(self) -> bool:
        """Give the result up, and stop what has not begun; False if the copy was done.

        Does not wait. The device ends the pieces that it has; a copy into pinned memory, which is
        the default, is with the device as a whole from the start. Until `done`, the source is read
        and `out` is written to; then `result` raises `concurrent.futures.CancelledError`.
        """
        return self._copy.cancel()

    def cancelled(self) -> bool:
        """Whether the copy was cancelled and has ended."""
        return self._copy.cancelled()

    def add_done_callback(self, fn: Callable[[concurrent.futures.Future[_T]], object]) -> None:
        """Call `fn` with this future when the copy has ended, or now if it has.

        It is called once, on a thread of gpufetch's or, if the copy has ended, on this one. What it
        raises is logged. After Ctrl-C here `fn` may not be called; those of other calls are.
        TypeError where `fn` cannot be called.
        """
        if not callable(fn):
            raise TypeError(f"fn is {fn!r:.80}, which cannot be called: give a function")
        if self._copy.done():
            self._call(fn, Exception)
            return
        call = partial(fn)  # unlike fn, equal to itself alone
        self._callbacks.append(call)
        if self._watched:
            return
        try:
            _watchers.start(self._watch, self._watched)
        except (MemoryError, RuntimeError):  # no more threads, or the interpreter ends
            self._copy.join()
            try:
                self._callbacks.remove(call)
            except ValueError:  # a thread that another call has started has taken it
                return
            self._call(call, Exception)

    def _watch(self) -> None:
        """On a thread of gpufetch's: wait for the copy, and call those who want to be told."""
        self._copy.join()
        self._watched.clear()  # first: whoever is late for the loop starts another thread
        call = self._call  # which needs memory, so before a callback is taken out
        while self._callbacks:
            try:
                fn = self._callbacks.popleft()
            except IndexError:
                return
            call(fn, BaseException)

    def _call(self, fn: Callable[[Any], object], caught: type[BaseException]) -> None:
        try:
            fn(self)
        except caught:
            log_exception(_logger, "exception calling callback for %r", self)

    def set_running_or_notify_cancel(self) -> bool:
        """Not for callers: raises RuntimeError."""
        raise RuntimeError("the copy alone decides about the state of this future")

    def set_result(self, result: _T) -> None:
        """Not for callers: raises RuntimeError."""
        raise RuntimeError("the copy alone decides about the result of this future")

    def set_exception(self, exception: BaseException | None) -> None:
        """Not for callers: raises RuntimeError."""
        raise RuntimeError("the copy alone decides about the outcome of this future")

    def __await__(self) -> Generator[Any, None, _T]:
        """Wait in an asyncio event loop, which goes on with its other tasks.

        If the awaiting task is cancelled, so is the copy, and the task's CancelledError is raised
        once nothing reads the source and writes to `out` any more.
        """
        from gpufetch._await import in_event_loop

        return in_event_loop(self).__await__()

    def __repr__(self) -> str:
        return repr(self._copy)


@overload
def fetch_async(
    x: dict[_K, Any],
    /,
    *,
    out: None = None,
    dtype: DTypeLike | None = None,
    order: _Order | None = None,
) -> Future[dict[_K, Any]]: ...
@overload
def fetch_async(
    x: list[Any],
    /,
    *,
    out: None = None,
    dtype: DTypeLike | None = None,
    order: _Order | None = None,
) -> Future[list[Any]]: ...
@overload
def fetch_async(
    x: tuple[Any, ...],
    /,
    *,
    out: None = None,
    dtype: DTypeLike | None = None,
    order: _Order | None = None,
) -> Future[tuple[Any, ...]]: ...
@overload
def fetch_async(
    x: Any,
    /,
    *,
    out: _Array,
    dtype: DTypeLike | None = None,
    order: None = None,
) -> Future[_Array]: ...
@overload
def fetch_async(
    x: Any,
    /,
    *,
    out: None = None,
    dtype: type[_Scalar] | np.dtype[_Scalar],
    order: _Order | None = None,
) -> Future[npt.NDArray[_Scalar]]: ...
@overload
def fetch_async(
    x: Any,
    /,
    *,
    out: npt.NDArray[Any] | None = None,
    dtype: DTypeLike | None = None,
    order: _Order | None = None,
) -> Future[npt.NDArray[Any]]: ...
def fetch_async(
    x: Any,
    /,
    *,
    out: npt.NDArray[Any] | None = None,
    dtype: DTypeLike | None = None,
    order: _Order | None = None,
) -> Future[Any]:
    """Start a fetch, and return its Future.

    The arguments and the errors that they raise are those of `fetch`; a failure of the copy is
    raised by the future's `result`. A tree's tensors are copied one after another by a thread of
    the library's, and the future's result is the tree.

    The Future keeps x and the destination alive. Until it is done, do not change x nor read `out`.
    Both hold after `cancel`, too.

    Where x is or holds a LazyArray of another process's tensor, it is a future of `LazyArray`'s
    `fetch_async`, and also the errors of the arguments are raised by `result`.
    """
    try:
        return Future(_core.fetch_async(x, out=out, dtype=dtype, order=order))
    except BufferError:
        future = _pull_async(x, partial(_core.fetch, x, out=out, dtype=dtype, order=order))
        if future is None:
            raise
        return future


def _pull_async(x: Any, read: Callable[[], Any]) -> Future[Any] | None:
    """Have a thread call `read`, which pulls x; None where no other process has a tensor of it."""
    if hasattr(type(x), "_gpufetch_pull_async"):
        return cast("Future[Any] | None", x._gpufetch_pull_async(read))
    if isinstance(x, Mapping):
        x = list(x.values())
    if not isinstance(x, list | tuple):
        return None
    return next(filter(None, (_pull_async(item, read) for item in x)), None)
