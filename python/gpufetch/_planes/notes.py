"""Words for how cells were reduced, and for the elements that a reduction left out."""

from __future__ import annotations

from collections.abc import Sequence

from gpufetch._view import Counts

__all__ = ["cells_text", "counts_text"]


def cells_text(lengths: Sequence[int], cells: Sequence[int]) -> str:
    """How many elements a cell has along each axis."""
    each = (a / b for a, b in zip(lengths, cells, strict=True))
    return " × ".join(f"{count:.3g}" if count < 100 else f"{count:,.0f}" for count in each)


def counts_text(counts: Counts | None) -> str:
    """The elements that are not finite, if there are any."""
    if counts is None:
        return ""
    names = zip(("NaN", "+inf", "-inf"), counts[1:], strict=True)
    return "".join(f", {count:,} {name}" for name, count in names if count)
