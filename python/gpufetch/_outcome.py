"""Outcomes of futures, which come to all who wait for them even where memory runs out.

The methods of concurrent.futures that do the same need memory between what they change and those
whom they wake, and even to give back a lock (`Condition.__exit__` is a function of Python's).
"""

from __future__ import annotations

import concurrent.futures
import threading
from concurrent.futures._base import _AllCompletedWaiter
from functools import partial
from typing import Any, TypeVar

from gpufetch import _core

__all__ = ["settle"]

_T = TypeVar("_T")


def settle(
    future: concurrent.futures.Future[_T], result: _T | None, error: BaseException | None
) -> None:
    """Give a future its outcome, unless it has one, or was cancelled; callbacks are not called.

    MemoryError where nothing has changed: call it again.
    """
    told = partial(_tell, future, error is not None)

    def change() -> None:
        if future._state == "CANCELLED":
            future._state = "CANCELLED_AND_NOTIFIED"
        elif future._state in ("PENDING", "RUNNING"):
            future._result, future._exception = result, error
            future._state = "FINISHED"
        else:
            return
        _core.run_insistently(told)

    _core.run_locked(future._condition, -1, "", change)


def _tell(future: concurrent.futures.Future[Any], has_failed: bool) -> None:
    """Wake all who wait; called again after a MemoryError."""
    for waiter in future._waiters:
        lock = getattr(waiter, "lock", None) or threading.Lock()
        _core.run_locked(lock, -1, "", partial(_add, waiter, future, has_failed))
        is_early = isinstance(waiter, _AllCompletedWaiter) and (
            waiter.num_pending_calls > 0 and not (has_failed and waiter.stop_on_exception)
        )
        if not is_early:
            event: Any = waiter.event
            _core.run_locked(event._cond, -1, "", partial(_set, event))
    future._condition.notify_all()


def _add(waiter: Any, future: concurrent.futures.Future[Any], has_failed: bool) -> None:
    """As the waiter's methods; changes nothing where it raises, or is called a second time."""
    if future in waiter.finished_futures:
        return
    is_counted = isinstance(waiter, _AllCompletedWaiter)
    left = waiter.num_pending_calls - 1 if is_counted else 0
    waiter.finished_futures.append(future)
    if is_counted and not (has_failed and waiter.stop_on_exception):
        waiter.num_pending_calls = left


def _set(event: Any) -> None:
    event._flag = True
    event._cond.notify_all()
