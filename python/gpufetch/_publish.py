"""Tensors that are offered to notebooks by name: `publish` and `unpublish` in an IPython kernel."""

from __future__ import annotations

import sys
import threading
from typing import Any

from gpufetch import _core

__all__ = ["publish", "published", "unpublish"]

_NAME_MAX_NBYTES = 200

_lock = threading.Lock()
_published: dict[str, Any] = {}  # guarded by _lock


def publish(name: str, x: Any) -> None:
    """Offer the tensor `x` under `name` to the clients of this kernel's comm target `gpufetch`.

    A name may be any text of 1 to 200 bytes without control characters, so "model/layer1" too; it
    comes before a variable of that name. The tensor is kept alive until `unpublish`. Variables of
    the user's namespace need no publishing. In a kernel, the comm target is loaded if it is not
    yet. From another program than a notebook, use `serve`.

    Raises TypeError for what `fetch` does not take and ValueError for the name.
    """
    if not 1 <= len(name.encode(errors="replace")) <= _NAME_MAX_NBYTES or not name.isprintable():
        raise ValueError(
            f"name {name!r:.80} must have 1 to {_NAME_MAX_NBYTES} bytes and no control characters"
        )
    _core.asdevice(x)
    with _lock:
        _published[name] = x
    _load_comm_target()


def unpublish(name: str) -> None:
    """Withdraw what `publish` offered. KeyError for an unknown name."""
    with _lock:
        if name not in _published:
            raise KeyError(f"nothing is published as {name!r}")
        del _published[name]


def published() -> dict[str, Any]:
    """Return the tensors that are offered now, by name."""
    with _lock:
        return dict(_published)


def _load_comm_target() -> None:
    """Load the comm target if this is an IPython kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and getattr(shell, "kernel", None) is not None:
        from gpufetch.jupyter import comm  # imports IPython

        comm.load(shell)
