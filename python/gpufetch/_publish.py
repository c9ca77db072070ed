"""`publish` and `unpublish`: offering tensors by name in an IPython kernel."""

from __future__ import annotations

import sys
from typing import Any

from gpufetch import _core, _published
from gpufetch._checks import check_text

__all__ = ["publish", "unpublish"]

_NAME_MAX_NBYTES = 200


def publish(name: str, x: Any) -> None:
    """Offer the tensor `x` under `name` to the clients of this kernel's comm target `gpufetch`.

    A name is any text of 1 to 200 bytes without control characters, such as "model/layer1"; it
    takes precedence over a variable of that name. The tensor is kept alive until `unpublish`.
    Variables of the user's namespace need no publishing. In a kernel, the comm target is loaded if
    it is not yet. In a program that is no notebook, use `serve`. May be called from any thread.

    Raises TypeError for what `fetch` does not take, and ValueError for the name.
    """
    check_text(name, "name")
    if not 1 <= len(name.encode(errors="replace")) <= _NAME_MAX_NBYTES or not name.isprintable():
        raise ValueError(
            f"name {name!r:.80} must have 1 to {_NAME_MAX_NBYTES} bytes and no control characters"
        )
    _core.asdevice(x)
    _published.add(name, x)
    _load_comm_target()


def unpublish(name: str) -> None:
    """Stop offering what `publish` offered. KeyError for an unknown name."""
    _published.remove(name)


def _load_comm_target() -> None:
    """Load the comm target if this is an IPython kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and getattr(shell, "kernel", None) is not None:
        from gpufetch.jupyter import comm  # imports IPython, which is not always installed

        comm.load(shell)
