"""Viewers that are open: ipywidgets keeps them, and they their tensors, until they are closed."""

from __future__ import annotations

from typing import Any

__all__ = ["add", "discard", "open_viewers"]

# Each function is one operation of the dict's, as in _published.
_viewers: dict[int, Any] = {}


def add(viewer: Any) -> None:
    """Take in a viewer that is open."""
    _viewers[id(viewer)] = viewer


def discard(viewer: Any) -> None:
    """Forget a viewer, if it is known."""
    _viewers.pop(id(viewer), None)


def open_viewers() -> list[Any]:
    """Those that are open, the oldest first."""
    return list(_viewers.values())
