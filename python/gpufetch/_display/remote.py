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


def print_connection(
    plain: Callable[[], str], describe: Callable[[], Sequence[str]], printer: Any
) -> None:
    """Print the lines of `describe`, or what is known and why there is no more. Raises nothing.

    Inside of a list or dict it prints what `plain` gives, and asks nobody.
    """
    if len(getattr(printer, "stack", ())) > 1:
        lines: Sequence[str] = [plain()]
    else:
        try:
            lines = within_deadline(describe)
        except Exception as error:
            lines = [plain(), f"  not shown: {type(error).__name__}: {error}"]
    print_lines("\n".join(lines), printer)
