"""Text for people: sizes, tables, and reprs of several lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["format_nbytes", "print_lines", "printable", "table_lines"]


def format_nbytes(nbytes: int) -> str:
    """Write a size in bytes for people: "0 B", "960 B", "64.0 MiB"."""
    if nbytes < 1024:
        return f"{nbytes} B"
    size = float(nbytes)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1023.95:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} PiB"


def printable(text: str) -> str:
    """Escape what a terminal obeys or hides, such as control characters in a name from a file."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Write rows of texts in columns, two spaces apart; control characters are escaped."""
    rows = [[printable(text) for text in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def print_lines(text: str, printer: Any) -> None:
    """Give a text of several lines to IPython's pretty printer, as `_repr_pretty_` must do."""
    for index, line in enumerate(text.split("\n")):
        if index:
            printer.break_()
        printer.text(line)
