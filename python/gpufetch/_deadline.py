"""A time by which what a thread asks of other processes must be answered.

It is beside the time-outs of connections, and shortens them: a display that waits for a second
leaves no request behind that holds its connection up for longer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["carried", "shortened", "until"]

_T = TypeVar("_T")

_of_thread = threading.local()  # .deadline, by time.monotonic()


def shortened(timeout: float) -> float:
    """A time-out in seconds, or what is left to this thread if that is less; 0 at least."""
    deadline: float | None = getattr(_of_thread, "deadline", None)
    return timeout if deadline is None else max(0.0, min(timeout, deadline - time.monotonic()))


def until(deadline: float | None, work: Callable[[], _T]) -> _T:
    """Call `work`, whose requests must be answered by `deadline` (None: by none of its own)."""
    before: float | None = getattr(_of_thread, "deadline", None)
    _of_thread.deadline = deadline
    try:
        return work()
    finally:
        _of_thread.deadline = before


def carried(work: Callable[[], _T]) -> Callable[[], _T]:
    """The same work with this thread's deadline, for another thread to call."""
    deadline: float | None = getattr(_of_thread, "deadline", None)
    return lambda: until(deadline, work)
