"""The display of a connection: what is published there, asked for within a short time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gpufetch._display.html import frame, safely, table
from gpufetch._display.summary import within_deadline
from gpufetch._text import print_lines

__all__ = ["CLOSED", "Published", "connection_html", "print_connection"]

CLOSED = "closed"
"""The state of a connection that was closed."""

_ROWS_MAX = 100
_HEAD = ("name", "dtype", "shape", "device", "size", "")


class Published(NamedTuple):
    """What servers say: their progress, a row for each tensor, and values by their names."""

    state: str
    tensors: Sequence[Sequence[str]]
    values: Sequence[tuple[str, str]]


def connection_html(name: str, ask: Callable[[], Published]) -> str:
    """HTML for a connection; `ask` asks its servers. Raises nothing."""

    def make() -> str:
        published = within_deadline(ask)
        parts = []
        if published.tensors:
            parts.append(table(published.tensors[:_ROWS_MAX], _HEAD))
        left = len(published.tensors) - _ROWS_MAX
        if left > 0:
            parts.append(f"<div class='gf-dim'>and {left} more tensors</div>")
        parts.append(table(published.values[:_ROWS_MAX]))
        if not published.tensors and not published.values and published.state != CLOSED:
            parts.append("<div class='gf-dim'>nothing is published</div>")
        return frame("Connection", f"to {name}, {published.state}", *parts)

    return safely(make, lambda: f"<connection to {name}>")


def print_connection(name: str, describe: Callable[[], str], printer: Any) -> None:
    """Print what `describe` gives, or that it takes too long. Raises nothing."""
    try:
        text = within_deadline(describe)
    except Exception as error:
        text = f"<connection to {name}: {error}>"
    print_lines(text, printer)
