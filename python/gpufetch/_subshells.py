"""Comms of an IPython kernel whose requests are handled by the subshell that the page has named."""

from __future__ import annotations

from typing import Any

__all__ = ["handle_where_asked"]


def handle_where_asked(comm: Any) -> None:
    """Let each request to a comm be handled by the subshell that it names; for any thread.

    ipykernel 7.4 hands a request to the thread that has sent something over the comm last, which
    may wait for it. Once a cell has made or changed what the comm is of, that is the main thread,
    on which requests would wait for the cell that runs. gpufetch waits for no request. Comms of
    other versions are left as they are.
    """
    if not hasattr(comm, "_reply_subshell_for"):
        return

    def named(data: object, subshell: str | None) -> str | None:
        # One entry for each answer is kept there for the request that would answer it.
        comm._reply_subshell_ids.clear()
        return subshell

    comm._reply_subshell_for = named
