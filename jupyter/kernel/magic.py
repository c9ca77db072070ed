"""The line magic `%gpufetch`: list the device tensors, or wrap one as a LazyArray."""

from __future__ import annotations

import difflib
import html
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class, needs_local_scope, no_var_expand

from gpufetch._lazy.array import LazyArray
from gpufetch._text import format_nbytes, print_lines, table_lines
from gpufetch._tracebacks import shortened
from gpufetch.jupyter.namespace import (
    TensorInfo,
    device_tensors,
    is_device_tensor,
    visible_variables,
)

__all__ = ["GpufetchMagics", "TensorListing", "load", "unload"]

_COLUMNS = ("name", "framework", "shape", "dtype", "size", "device")
_COMPLETION_KEY = "%gpufetch"


class TensorListing:
    """The device tensors of a namespace: iterates over TensorInfo, and is shown as a table."""

    def __init__(self, tensors: list[TensorInfo]) -> None:
        self.tensors = tensors

    def __len__(self) -> int:
        return len(self.tensors)

    def __iter__(self) -> Iterator[TensorInfo]:
        return iter(self.tensors)

    def __repr__(self) -> str:
        if not self.tensors:
            return self._footer()
        lines = table_lines([_COLUMNS, *(_row(tensor) for tensor in self.tensors)])
        lines += [f"{tensor.name}: {tensor.problem}" for tensor in self._problems()]
        return "\n".join([*lines, self._footer()])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        print_lines(repr(self), printer)

    def _repr_html_(self) -> str:
        if not self.tensors:
            return f"<p>{html.escape(self._footer())}</p>"
        head = _html_row("th", _COLUMNS)
        body = "".join(_html_row("td", _row(tensor)) for tensor in self.tensors)
        notes = "".join(
            f"<p>{html.escape(f'{tensor.name}: {tensor.problem}')}</p>"
            for tensor in self._problems()
        )
        return (
            f"<table><thead>{head}</thead><tbody>{body}</tbody></table>{notes}"
            f"<p>{html.escape(self._footer())}</p>"
        )

    def _problems(self) -> list[TensorInfo]:
        return [tensor for tensor in self.tensors if tensor.problem is not None]

    def _footer(self) -> str:
        if not self.tensors:
            return "No device tensors in this namespace. Make one with gpufetch.to_device(array)."
        total = sum(tensor.nbytes for tensor in self.tensors)
        noun = "tensor" if len(self) == 1 else "tensors"
        return (
            f"{len(self)} device {noun}, {format_nbytes(total)}; nothing was copied. "
            f"Take one: x_host = %gpufetch {self.tensors[0].name}"
        )


def _row(tensor: TensorInfo) -> tuple[str, ...]:
    size = "?" if tensor.problem else format_nbytes(tensor.nbytes)
    shape = "?" if tensor.problem else str(tensor.shape)
    return (tensor.name, tensor.framework, shape, tensor.dtype, size, tensor.device)


def _html_row(tag: str, texts: tuple[str, ...]) -> str:
    inner = "".join(f"<{tag} style='text-align:left'>{html.escape(text)}</{tag}>" for text in texts)
    return f"<tr>{inner}</tr>"


@magics_class
class GpufetchMagics(Magics):
    """Holds `%gpufetch`."""

    @no_var_expand
    @needs_local_scope
    @line_magic
    def gpufetch(
        self, line: str, local_ns: Mapping[str, Any] | None = None
    ) -> TensorListing | LazyArray:
        """List the device tensors, or wrap one for reading on the host.

        %gpufetch
            Lists the device tensors among your variables: name, framework, shape, dtype, size,
            device. Copies nothing.

        x_host = %gpufetch x
        w_host = %gpufetch model.weight[0]
            Evaluates the expression and gives a gpufetch.LazyArray of it. x_host[0, ::4] is a view
            without a copy. Plotting it, or x_host[0, ::4].fetch(), copies only what was indexed.
        """
        with shortened():
            expression = line.strip()
            if not expression:
                return self._list()
            if expression.startswith("--"):
                raise UsageError(
                    f"%gpufetch takes no option, got {expression.split()[0]!r}: write %gpufetch "
                    "alone to list tensors, or %gpufetch EXPRESSION to wrap one"
                )
            return _as_lazy(expression, self._evaluate(expression, local_ns))

    def _list(self) -> TensorListing:
        assert self.shell is not None
        variables, hidden = self.shell.user_ns, self.shell.user_ns_hidden
        return TensorListing(device_tensors(variables, hidden=hidden))

    def _evaluate(self, expression: str, local_ns: Mapping[str, Any] | None) -> Any:
        assert self.shell is not None
        namespace = self.shell.user_ns
        try:
            code = compile(expression, "<%gpufetch>", "eval")
        except (SyntaxError, ValueError) as error:
            raise UsageError(
                f"%gpufetch takes one Python expression, got {expression!r} ({error})"
            ) from None
        try:
            return eval(code, namespace, local_ns)  # the user wrote the line, as for %timeit
        except NameError as error:
            names = list(visible_variables({**namespace, **(local_ns or {})}))
            raise UsageError(f"%gpufetch: {_unknown_name(error, names)}") from None


def _unknown_name(error: NameError, names: list[str]) -> str:
    name = error.name
    if name is None:
        return str(error)
    close = difflib.get_close_matches(name, names, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "%gpufetch alone lists the tensors"
    return f"name {name!r} is not defined: {hint}"


def _as_lazy(expression: str, value: Any) -> LazyArray:
    if isinstance(value, LazyArray):
        return value
    if isinstance(value, np.ndarray | np.generic):
        raise UsageError(
            f"%gpufetch: {expression} is NumPy data in host memory already: use it as it is"
        )
    try:
        return LazyArray(value)
    except (TypeError, ValueError, BufferError) as error:
        raise UsageError(f"%gpufetch: {expression} cannot be wrapped: {error}") from error


def _complete(shell: Any, event: Any) -> list[str]:
    """Complete the names of device tensors after `%gpufetch `."""
    variables = visible_variables(shell.user_ns)
    return [name for name, obj in variables.items() if is_device_tensor(obj)]


def load(shell: Any) -> None:
    """Register the magic and its completer with the shell."""
    shell.register_magics(GpufetchMagics(shell))
    shell.set_hook("complete_command", _complete, str_key=_COMPLETION_KEY)


def unload(shell: Any) -> None:
    """Remove the magic and its completer; does nothing if they are not loaded."""
    shell.magics_manager.magics["line"].pop("gpufetch", None)
    dispatcher = shell.strdispatchers.get("complete_command")
    if dispatcher is not None:
        dispatcher.strs.pop(_COMPLETION_KEY, None)
