"""The line magic `%gpufetch`: list device tensors, wrap them, write them, read them, attach."""

from __future__ import annotations

import ast
import copy
import difflib
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class, needs_local_scope, no_var_expand
from traitlets import Bool, Int, observe

from gpufetch._display.settings import HOST_NBYTES, settings
from gpufetch._lazy.array import LazyArray
from gpufetch._remote.connect import connect
from gpufetch._remote.connection import Connection
from gpufetch._tracebacks import shortened
from gpufetch.jupyter import completion
from gpufetch.jupyter.files import read_from, write_to
from gpufetch.jupyter.inventory import inventory
from gpufetch.jupyter.kept import holders, kept
from gpufetch.jupyter.listing import ROWS, TensorListing
from gpufetch.jupyter.namespace import is_a, visible_variables
from gpufetch.jupyter.options import Line, Place, misplaced, parse
from gpufetch.jupyter.walk import walk

__all__ = ["GpufetchMagics", "load", "unload"]


_FILE = "<%gpufetch>"  # of the expression, in tracebacks


@magics_class
class GpufetchMagics(Magics):
    """Holds `%gpufetch`, and what `%config GpufetchMagics` sets."""

    list_rows = Int(ROWS, min=1, help="Rows that a listing shows at most.").tag(config=True)
    displays_read = Bool(
        True, help="Whether displays of tensors read statistics, a picture and values."
    ).tag(config=True)
    host_display_nbytes = Int(
        HOST_NBYTES,
        min=1,
        help="Bytes of a tensor that a display reads where no GPU does it; of more, a sample.",
    ).tag(config=True)

    @observe("displays_read", "host_display_nbytes")
    def _set_displays(self, change: Any) -> None:
        settings.reads_device = self.displays_read
        settings.host_nbytes = self.host_display_nbytes

    @no_var_expand
    @needs_local_scope
    @line_magic
    def gpufetch(self, line: str, local_ns: Mapping[str, Any] | None = None) -> Any:
        """See the tensors on the GPU, and take, write, read or attach to them.

        %gpufetch
            Lists the device tensors among your variables, also those in dicts, lists, tuples and
            modules: name, framework, shape, dtype, size, device. Memory that several share counts
            once. Says which memory is kept alive by outputs, shares and published tensors alone.
            Copies nothing.

        x_host = %gpufetch x
        w_host = %gpufetch model.weight[0]
            Evaluates the expression and gives a gpufetch.LazyArray of it. x_host[0, ::4] is a view
            without a copy. Plotting it, or x_host[0, ::4].fetch(), copies only what was indexed.

        %gpufetch --to run.h5:/fields/u x
        %gpufetch --to run.h5:/fields/u --overwrite x
            Writes a tensor, or a dict, list or tuple of them, into an HDF5 file and says how large
            it became. The file is created if it is not there; --overwrite replaces what has the
            name, so that a cell may run twice.

        x = %gpufetch --from run.h5:/fields/u
            Reads it onto the default device.

        run = %gpufetch --attach NAME
            Attaches to a program that serves tensors: gpufetch.connect(NAME).

        Options come first. What follows them is the expression; -- ends the options. A file whose
        name has spaces is quoted. %config GpufetchMagics shows what can be set.
        """
        with shortened:
            return self._run(parse(line), local_ns)

    def _run(self, line: Line, local_ns: Mapping[str, Any] | None) -> Any:
        options = line.options
        if "--help" in options:
            print(inspect.getdoc(type(self).gpufetch))
            return None
        if "--attach" in options:
            return connect(options["--attach"])
        if "--from" in options:
            return read_from(Place.parse("--from", options["--from"]))
        if "--to" in options:
            place = Place.parse("--to", options["--to"])
            value = self._evaluate(line.expression, local_ns)
            print(write_to(place, value, overwrite="--overwrite" in options))
            return None
        if not line.expression:
            return self._list()
        return _as_lazy(line.expression, self._evaluate(line.expression, local_ns))

    def _list(self) -> TensorListing:
        shell: Any = self.shell
        variables, hidden = shell.user_ns, shell.user_ns_hidden
        found = inventory(variables, hidden=hidden)
        ranges = [one.address_range for one in found.tensors if one.address_range is not None]
        others = kept(ranges, holders(variables, hidden))
        return TensorListing(found, others, rows=self.list_rows)

    def _evaluate(self, expression: str, local_ns: Mapping[str, Any] | None) -> Any:
        assert self.shell is not None
        namespace = self.shell.user_ns
        try:
            code = compile(expression, _FILE, "eval")
        except (SyntaxError, ValueError) as error:
            _check_order(expression)
            raise UsageError(
                f"%gpufetch takes one Python expression, got {expression!r} ({error})"
            ) from None
        try:
            return eval(code, namespace, local_ns)  # the user wrote the line, as for %timeit
        except (NameError, TypeError) as error:
            if not _is_of_expression(error):
                raise
            _check_order(expression)
            if not isinstance(error, NameError):
                raise
            names = list(visible_variables({**namespace, **(local_ns or {})}))
            raise UsageError(f"%gpufetch: {_unknown_name(error, names)}") from None


def _is_of_expression(error: BaseException) -> bool:
    """Whether the line itself raised it, and not what the line calls."""
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    return where is not None and where.tb_frame.f_code.co_filename == _FILE


def _check_order(expression: str) -> None:
    """Raise UsageError where an option, which Python may take for a subtraction, comes last."""
    meant = misplaced(expression)
    if meant is not None:
        raise UsageError(f"%gpufetch: options come first: {meant}") from None


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
    if is_a(type(value), dict, list, tuple, Connection):
        raise UsageError(f"%gpufetch: {_take_one(_in_brackets(expression), value)}")
    try:
        return LazyArray(value)
    except (TypeError, ValueError, BufferError) as error:
        raise UsageError(f"%gpufetch: {expression} cannot be wrapped: {error}") from error


def _take_one(expression: str, value: Any) -> str:
    """What to write for one of the tensors that a container or a connection holds."""
    if is_a(type(value), Connection):
        return f"{expression} is a connection: take one of its tensors, as {expression}['NAME']"
    kind = next(one.__name__ for one in (dict, list, tuple) if is_a(type(value), one))
    walked = walk([(expression, value)])
    found = [*walked.tensors, *walked.on_host]
    if not found:
        return f"{expression} is a {kind} without a tensor: name a tensor"
    return f"{expression} is a {kind} of tensors: take one, as {found[0].name}"


def _in_brackets(expression: str) -> str:
    """The expression so that an index may follow it."""
    whole = ast.parse(expression, mode="eval").body
    indexed = ast.parse(f"{expression}[0]", mode="eval").body
    binds = isinstance(indexed, ast.Subscript) and ast.dump(indexed.value) == ast.dump(whole)
    return expression if binds else f"({expression})"


# What was loaded, by the id of its shell, with the configuration before %config changed it.
_loaded: dict[int, tuple[GpufetchMagics, Any]] = {}
_SECTION = GpufetchMagics.__name__


def load(shell: Any) -> None:
    """Register the magic and its completion with the shell."""
    unload(shell)
    configured = copy.deepcopy(shell.config.get(_SECTION))
    magics = GpufetchMagics(shell)
    _loaded[id(shell)] = magics, configured
    shell.register_magics(magics)
    completion.load(shell)


def unload(shell: Any) -> None:
    """Remove the magic, its settings and its completion; does nothing if they are not loaded."""
    completion.unload(shell)
    if id(shell) not in _loaded:
        return
    magics, configured = _loaded.pop(id(shell))
    settings.reads_device, settings.host_nbytes = True, HOST_NBYTES
    shell.magics_manager.magics["line"].pop("gpufetch", None)
    shell.magics_manager.registry.pop(_SECTION, None)
    shell.config.pop(_SECTION, None)
    if configured is not None:
        shell.config[_SECTION] = configured
    if magics in shell.configurables:
        shell.configurables.remove(magics)
