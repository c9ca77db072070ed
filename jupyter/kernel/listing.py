"""What `%gpufetch` alone gives: the device tensors and their memory, as a table."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Any

from gpufetch._address_ranges import nbytes_of
from gpufetch._text import format_nbytes, print_lines, table_lines
from gpufetch.jupyter.inventory import Inventory, TensorInfo
from gpufetch.jupyter.kept import Kept

__all__ = ["ROWS", "TensorListing"]

ROWS = 60
"""Rows that a listing shows unless it is configured otherwise."""

_COLUMNS = ("name", "framework", "shape", "dtype", "size", "device")
_NOTES_MAX = 10
_HOST_NAMES_MAX = 5


class TensorListing:
    """The device tensors of a namespace: iterates over TensorInfo, and is shown as a table.

    Holds no tensor. Memory counts once, also where several tensors lie in it.
    """

    def __init__(
        self, inventory: Inventory, kept: Sequence[Kept] = (), *, rows: int = ROWS
    ) -> None:
        self.tensors = inventory.tensors
        self.remote = inventory.remote
        self.on_host = inventory.on_host
        self.connections = inventory.connections
        self.skipped = inventory.skipped
        self.kept = list(kept)
        self._rows_max = rows

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that the tensors of this process lie in."""
        return _nbytes(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __iter__(self) -> Iterator[TensorInfo]:
        return iter(self.tensors)

    def __repr__(self) -> str:
        lines: list[str] = []
        for title, rows in self._tables():
            lines += [title] if title else []
            lines += table_lines(rows)
        return "\n".join([*lines, *self._notes(), self._footer()])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        print_lines(repr(self), printer)

    def _repr_html_(self) -> str:
        parts = []
        for title, rows in self._tables():
            parts += [f"<p>{html.escape(title)}</p>"] if title else []
            head = _html_row("th", rows[0])
            body = "".join(_html_row("td", row) for row in rows[1:])
            parts.append(f"<table><thead>{head}</thead><tbody>{body}</tbody></table>")
        parts += [f"<p>{html.escape(note)}</p>" for note in [*self._notes(), self._footer()]]
        return "".join(parts)

    def _tables(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        """Titles and rows; the first row is the head."""
        tables = []
        if self.tensors:
            shown = _largest(self.tensors, self._rows_max)
            has_views = any(tensor.view_of for tensor in shown)
            head = (*_COLUMNS, "memory") if has_views else _COLUMNS
            tables.append(("", [head, *(_row(tensor, has_views) for tensor in shown)]))
        if self.remote:
            head = ("name", "server", *_COLUMNS[2:])
            rows = [_row(tensor, False) for tensor in self.remote[: self._rows_max]]
            tables.append(("Of other processes, and not counted:", [head, *rows]))
        return tables

    def _notes(self) -> list[str]:
        notes = [f"{one.name}: {one.problem}" for one in self.tensors if one.problem is not None]
        notes = _cut(notes, "more cannot be read")
        notes += self._left_out() + self._of_host()
        notes += [
            f"{name} is a connection to {server}: show it to see what is published there"
            for name, server in self.connections
        ]
        notes += _cut(
            [f"{name}: only its beginning was looked at" for name in self.skipped], "more as long"
        )
        return notes + _cut([str(one) for one in self.kept], "more keep memory")

    def _left_out(self) -> list[str]:
        notes = []
        count = len(self.tensors) - self._rows_max
        if count > 0:
            rest = self.nbytes - _nbytes(_largest(self.tensors, self._rows_max))
            notes.append(
                f"{count} smaller tensors are not shown, which take {format_nbytes(rest)} more: "
                f"%config GpufetchMagics.list_rows = {len(self.tensors)} shows all"
            )
        if len(self.remote) > self._rows_max:
            notes.append(f"{len(self.remote) - self._rows_max} of other processes are not shown")
        return notes

    def _of_host(self) -> list[str]:
        count = len(self.on_host)
        if count == 0:
            return []
        names = ", ".join(self.on_host[:_HOST_NAMES_MAX])
        rest = f" and {count - _HOST_NAMES_MAX} more" if count > _HOST_NAMES_MAX else ""
        verb = "tensor is" if count == 1 else "tensors are"
        return [f"{count} {verb} in host memory, and not counted: {names}{rest}"]

    def _footer(self) -> str:
        if not self.tensors:
            return "No device tensors in this namespace. Make one with gpufetch.to_device(array)."
        noun = "tensor" if len(self) == 1 else "tensors"
        return (
            f"{len(self)} device {noun}, {format_nbytes(self.nbytes)}; nothing was copied. "
            f"Take one: x_host = %gpufetch {self.tensors[0].name}"
        )


def _nbytes(tensors: Sequence[TensorInfo]) -> int:
    return nbytes_of(one.address_range for one in tensors if one.address_range is not None)


def _largest(tensors: list[TensorInfo], count: int) -> list[TensorInfo]:
    """The tensors of most memory of their own, in the order in which they are."""
    by_size = sorted(
        range(len(tensors)), key=lambda i: (tensors[i].view_of is not None, -tensors[i].nbytes)
    )
    return [tensors[i] for i in sorted(by_size[:count])]


def _cut(notes: list[str], rest: str) -> list[str]:
    left = len(notes) - _NOTES_MAX
    return notes if left <= 0 else [*notes[:_NOTES_MAX], f"... and {left} {rest}"]


def _row(tensor: TensorInfo, has_views: bool) -> tuple[str, ...]:
    size = "?" if tensor.problem else format_nbytes(tensor.nbytes)
    shape = "?" if tensor.problem else str(tensor.shape)
    row = (tensor.name, tensor.framework, shape, tensor.dtype, size, tensor.device)
    note = f"view of {tensor.view_of}" if tensor.view_of else ""
    return (*row, note) if has_views else row


def _html_row(tag: str, texts: tuple[str, ...]) -> str:
    inner = "".join(f"<{tag} style='text-align:left'>{html.escape(text)}</{tag}>" for text in texts)
    return f"<tr>{inner}</tr>"
