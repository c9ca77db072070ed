"""How many bytes a LazyArray pulls without an explicit fetch."""

from __future__ import annotations

import os
import warnings

from gpufetch._text import format_nbytes

__all__ = [
    "WARNING_NBYTES",
    "LargeFetchWarning",
    "check_nbytes",
    "default_max_fetch_nbytes",
    "warn",
]

WARNING_NBYTES = 64 << 20
"""How many bytes are pulled without a word where no fetch was asked for."""

_MAX_FETCH_NBYTES = 8 << 30


def default_max_fetch_nbytes() -> int:
    """A quarter of the host's memory, and at most 8 GiB."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(total // 4, _MAX_FETCH_NBYTES)


class LargeFetchWarning(UserWarning):
    """A function that takes NumPy arrays has pulled a large LazyArray; see `LazyArray`."""


def warn(nbytes: int, shape: tuple[int, ...], device: str) -> None:
    """Say to the caller of `__array__` how much it pulls, and what would do instead."""
    warnings.warn(
        f"this pulls {format_nbytes(nbytes)}, all of a LazyArray of shape {shape} on {device}: "
        "gpufetch.plot draws from reductions on the device, an index or overview() pulls less, and "
        "fetch() as much without this warning",
        LargeFetchWarning,
        stacklevel=3,
    )


def check_nbytes(nbytes: int, limit: int, what: str) -> None:
    """Raise ValueError if `nbytes` is over the limit."""
    if nbytes > limit:
        raise ValueError(
            f"{what} pulls {format_nbytes(nbytes)}, more than max_fetch_nbytes = "
            f"{format_nbytes(limit)}: index fewer elements, go through it with iter_chunks(), pull "
            "it with fetch(), or raise the limit with LazyArray(x, max_fetch_nbytes=...)"
        )
