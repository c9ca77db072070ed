"""Viewers that are open: ipywidgets keeps them, and they their tensors, until they are closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpufetch._viewer.widget import Viewer

__all__ = ["discard", "note", "opened"]

_opened: dict[int, Viewer] = {}  # each operation on it is one of the interpreter's


def note(viewer: Viewer) -> None:
    """Take in a viewer that is open."""
    _opened[id(viewer)] = viewer


def discard(viewer: Viewer) -> None:
    """Forget a viewer, if it is known."""
    _opened.pop(id(viewer), None)


def opened() -> list[Viewer]:
    """Those that are open, the oldest first."""
    return list(_opened.values())
