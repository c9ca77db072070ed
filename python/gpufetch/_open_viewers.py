"""Viewers that are open: ipywidgets keeps them, and they their tensors, until they are closed.

A page's request passes through many threads of the kernel, each of which waits for the interpreter:
beside a cell that computes in Python for `sys.getswitchinterval()`, 5 ms if nobody has changed it.
While a viewer is open, it is 1 ms.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

__all__ = ["add", "discard", "open_viewers"]

SWITCH_INTERVAL_S = 0.001

_lock = threading.RLock()  # a viewer may be closed by the garbage collector, within `add`
_viewers: dict[int, Any] = {}
_callers_interval_s: float | None = None  # the interval before; None if it is not changed


def add(viewer: Any) -> None:
    """Take in a viewer that is open."""
    global _callers_interval_s
    with _lock:
        _viewers[id(viewer)] = viewer
        interval_s = sys.getswitchinterval()
        if interval_s > SWITCH_INTERVAL_S:
            _callers_interval_s = interval_s
            sys.setswitchinterval(SWITCH_INTERVAL_S)


def discard(viewer: Any) -> None:
    """Forget a viewer, if it is known."""
    global _callers_interval_s
    with _lock:
        _viewers.pop(id(viewer), None)
        if _viewers or _callers_interval_s is None:
            return
        if sys.getswitchinterval() == SWITCH_INTERVAL_S:  # else somebody has changed it since
            sys.setswitchinterval(_callers_interval_s)
        _callers_interval_s = None


def open_viewers() -> list[Any]:
    """Those that are open, the oldest first."""
    return list(_viewers.values())
