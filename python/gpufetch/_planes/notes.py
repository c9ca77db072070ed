"""Words for how cells were reduced, and for the elements that a reduction left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpufetch._view import Counts

__all__ = ["Note", "cells_text", "counts_text", "left_out"]


class Note(NamedTuple):
    """How cells were reduced, "" for elements as they are, and what that left out, by its name."""

    reduction: str
    left_out: dict[str, int]

    def text(self) -> str:
        return self.reduction + _listed(self.left_out)


def cells_text(lengths: Sequence[int], cells: Sequence[int]) -> str:
    """How many elements a cell has along each axis."""
    each = (a / b for a, b in zip(lengths, cells, strict=True))
    return " × ".join(f"{count:.3g}" if count < 100 else f"{count:,.0f}" for count in each)


def counts_text(counts: Counts | None) -> str:
    """The elements that are not finite, if there are any."""
    return _listed(left_out(counts))


def left_out(counts: Counts | None, what: str = "") -> dict[str, int]:
    """The elements that are not finite by name, to which `what` is added; those that there are."""
    if counts is None:
        return {}
    names = zip(("NaN", "+inf", "-inf"), counts[1:], strict=True)
    return {name + what: count for name, count in names if count}


def _listed(left_out: dict[str, int]) -> str:
    return "".join(f", {count:,} {name}" for name, count in left_out.items())
