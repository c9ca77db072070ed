"""The tensors that this process offers to notebooks by name."""

from __future__ import annotations

from typing import Any

__all__ = ["add", "published", "remove"]

# Each function is one operation of the dict's, which is whole by itself. A lock would be held while
# a finalizer runs: of a tensor that goes, or by the collector.
_tensors: dict[str, Any] = {}
_NOTHING = object()


def add(name: str, x: Any) -> None:
    """Offer a tensor; one that has the name is replaced."""
    _tensors[name] = x


def remove(name: str) -> None:
    """Stop offering a tensor. KeyError for an unknown name."""
    if _tensors.pop(name, _NOTHING) is _NOTHING:
        raise KeyError(f"no tensor is published as {name!r}")


def published() -> dict[str, Any]:
    """The tensors that are offered now, by name."""
    return dict(_tensors)
