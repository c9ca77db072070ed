"""The tensors that this process offers to notebooks by name."""

from __future__ import annotations

import os
import threading
from typing import Any

__all__ = ["add", "published", "remove"]

_lock = threading.Lock()
_tensors: dict[str, Any] = {}  # guarded by _lock

# A forked child gets the lock free, whatever other threads did.
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)


def add(name: str, x: Any) -> None:
    """Offer a tensor; one that has the name is replaced."""
    with _lock:
        replaced = _tensors.get(name)
        _tensors[name] = x
    del replaced  # may be the last reference, and run code of the tensor's


def remove(name: str) -> None:
    """Stop offering a tensor. KeyError for an unknown name."""
    with _lock:
        if name not in _tensors:
            raise KeyError(f"nothing is published as {name!r}")
        removed = _tensors.pop(name)
    del removed


def published() -> dict[str, Any]:
    """The tensors that are offered now, by name."""
    with _lock:
        return dict(_tensors)
