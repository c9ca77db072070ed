"""How many bytes a LazyArray pulls without an explicit fetch."""

from __future__ import annotations

import os

from gpufetch._text import format_nbytes

__all__ = ["check_nbytes", "default_max_fetch_nbytes"]

_MAX_FETCH_NBYTES = 8 << 30


def default_max_fetch_nbytes() -> int:
    """A quarter of the host's memory, and at most 8 GiB."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(total // 4, _MAX_FETCH_NBYTES)


def check_nbytes(nbytes: int, limit: int, what: str) -> None:
    """Raise ValueError if `nbytes` is over the limit."""
    if nbytes > limit:
        raise ValueError(
            f"{what} pulls {format_nbytes(nbytes)}, more than max_fetch_nbytes = "
            f"{format_nbytes(limit)}: index fewer elements, go through it with iter_chunks(), pull "
            "it with fetch(), or raise the limit with LazyArray(x, max_fetch_nbytes=...)"
        )
