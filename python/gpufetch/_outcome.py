"""Outcomes of futures, which come to all who wait for them even where memory runs out.

The methods of concurrent.futures that do the same need memory between what they change and those
whom they wake, and even to give back a lock (`Condition.__exit__` is a function of Python's).

They also wait for locks that an exception of a signal's handler may leave held for ever, within
`concurrent.futures.wait` or `as_completed`. Here one thread looks at these again until they are
free, or nobody has the future any more.
"""

from __future__ import annotations

import collections
import concurrent.futures
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures._base import _AllCompletedWaiter
from functools import partial
from typing import Any, TypeVar

from gpufetch import _core
from gpufetch._threads import Workers

__all__ = ["LOCK_S", "settle"]

_T = TypeVar("_T")

LOCK_S = 0.1
"""How long a lock of concurrent.futures is waited for; its own code holds none for so long."""

_PAUSE_S = 0.05

_late: collections.deque[weakref.ref[concurrent.futures.Future[Any]]] = collections.deque()
"""Futures with a lock that was not to be had. Only the thread of _retriers takes them out."""
_retriers = Workers(1)  # nobody waits for it at exit


class _Untold:
    """What is left to do for a future's outcome. The future holds it, and nothing else does."""

    def __init__(self, result: Any, error: BaseException | None, then: Callable[[], object]):
        self.result, self.error, self.then = result, error, then
        self.waiters: list[Any] = []  # those that are to be told; set with the future's state


def settle(
    future: concurrent.futures.Future[_T],
    result: _T | None,
    error: BaseException | None,
    then: Callable[[], object] = lambda: None,
) -> None:
    """Give a future its outcome, unless it has one, or was cancelled; then call `then`.

    Where a lock that this needs is not to be had, a thread does the rest later, as long as somebody
    else has the future. `then` may be called several times. MemoryError: call this again.
    """
    vars(future).setdefault("_untold", _Untold(result, error, then))
    if _tell(future, LOCK_S):
        return
    _late.append(weakref.ref(future))
    try:
        _retriers.start(_retry)
    except RuntimeError:  # no more threads
        while not _tell(future, LOCK_S):
            pass


def _retry() -> None:
    """On one thread: tell those that are late, while there are any."""
    while _late:
        time.sleep(_PAUSE_S)
        for _ in range(len(_late)):
            future = _late[0]()
            if future is None or _tell(future, 0):
                _late.popleft()
            else:
                _late.rotate(-1)
            del future


def _tell(future: concurrent.futures.Future[Any], timeout: float) -> bool:
    """Do what is left, waiting for locks for `timeout` seconds in all; whether nothing is left."""
    end = time.monotonic() + timeout
    untold: _Untold = vars(future)["_untold"]
    try:
        _core.run_locked(future._condition, timeout, "", partial(_finish, future, untold))
    except TimeoutError:
        return False
    for waiter in tuple(untold.waiters):
        lock = getattr(waiter, "lock", None) or threading.Lock()
        change = partial(_add, future, untold, waiter)
        # In the order of concurrent.futures, and both: nobody takes the future out in between.
        for_event = partial(_run_locked_until, end, waiter.event._cond, change)
        try:
            _run_locked_until(end, lock, for_event)
        except TimeoutError:
            continue
    untold.then()
    return not untold.waiters


def _run_locked_until(end: float, lock: Any, work: Callable[[], object]) -> None:
    left = max(end - time.monotonic(), 0)
    _core.run_locked(lock, left, "", partial(_core.run_insistently, work))


def _finish(future: concurrent.futures.Future[Any], untold: _Untold) -> None:
    """With the future's lock: change its state, if it has no outcome; changes all or nothing."""
    waiters, notify = list(future._waiters), future._condition.notify_all
    if future._state == "CANCELLED":
        untold.waiters, future._state = waiters, "CANCELLED_AND_NOTIFIED"
    elif future._state in ("PENDING", "RUNNING"):
        future._result, future._exception = untold.result, untold.error
        untold.waiters, future._state = waiters, "FINISHED"
    else:
        return
    _core.run_insistently(notify)


def _add(future: concurrent.futures.Future[Any], untold: _Untold, waiter: Any) -> None:
    """With the waiter's locks: as its methods. Called again after a MemoryError."""
    if waiter not in untold.waiters:  # another thread was here
        return
    is_counted = isinstance(waiter, _AllCompletedWaiter)
    stops = is_counted and untold.error is not None and waiter.stop_on_exception
    if future not in waiter.finished_futures:
        left = waiter.num_pending_calls - 1 if is_counted else 0
        waiter.finished_futures.append(future)
        if is_counted and not stops:
            waiter.num_pending_calls = left
    if not is_counted or stops or waiter.num_pending_calls <= 0:
        waiter.event._flag = True
        waiter.event._cond.notify_all()
    untold.waiters.remove(waiter)
