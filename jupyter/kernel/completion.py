"""Completion after `%gpufetch `: options, tensors' names, and the names of servers to attach to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,
)

from gpufetch._remote.servers import running
from gpufetch.jupyter.namespace import visible_variables
from gpufetch.jupyter.options import OPTIONS
from gpufetch.jupyter.walk import walk

__all__ = ["load", "unload"]

_MATCHES_MAX = 200
# A line of the cell up to the cursor: `%gpufetch ...`, or `name = %gpufetch ...`.
_LINE = re.compile(r"\s*(?:[^=%]+=\s*%|%?)gpufetch\s+(.*)", re.DOTALL)
_OPTION = re.compile(r"(--[\w-]+)[\s=]+")
_VALUE = re.compile(r"""("[^"]*"|'[^']*'|\S+)\s+""")

# The matchers that are loaded, by the id of their shell.
_matchers: dict[int, Any] = {}


def load(shell: Any) -> None:
    """Complete what follows the magic in the shell."""
    if id(shell) in _matchers:
        return

    @context_matcher(identifier="gpufetch")  # type: ignore[untyped-decorator]
    def match(context: CompletionContext) -> SimpleMatcherResult:
        found = _LINE.fullmatch(context.text_until_cursor)
        if found is None:
            return _result([], "", False)
        return _complete(shell, *_place(found.group(1)))

    _matchers[id(shell)] = match
    shell.Completer.custom_matchers.append(match)


def unload(shell: Any) -> None:
    """Complete no more; does nothing if it is not loaded."""
    match = _matchers.pop(id(shell), None)
    if match is not None and match in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.remove(match)


def _place(rest: str) -> tuple[str, str]:
    """What the cursor is in, an option's name or value or the expression, and its text so far."""
    while True:
        if re.fullmatch(r"--[\w-]*", rest):
            return "option", rest
        if rest.startswith("-- "):
            return "expression", rest[3:].lstrip()
        found = _OPTION.match(rest)
        if found is None:
            return "expression", rest
        name, rest = found.group(1), rest[found.end() :]
        if OPTIONS.get(name):
            value = _VALUE.match(rest)
            if value is None:
                return name, rest
            rest = rest[value.end() :]


def _complete(shell: Any, place: str, typed: str) -> SimpleMatcherResult:
    if place == "option":
        return _result(OPTIONS, typed, True)
    if place == "--attach":
        return _result([server.name for server in running() if server.is_alive], typed, True)
    if place != "expression":  # a file: IPython completes it
        return _result([], "", False)
    variables = visible_variables(shell.user_ns).items()
    hidden = shell.user_ns_hidden
    walked = walk((name, obj) for name, obj in variables if name not in hidden)
    names = [found.root for found in walked.tensors]
    names += [name for name, _ in walked.connections]
    is_name = re.fullmatch(r"\w*", typed) is not None
    if typed:
        names += [found.name for found in walked.tensors]
    return _result(names, typed, is_name)


def _result(names: Iterable[str], typed: str, is_all: bool) -> SimpleMatcherResult:
    """The names that begin with what is typed; `is_all` keeps IPython's own matches out."""
    matches = [name for name in dict.fromkeys(names) if name.startswith(typed)]
    return {
        "completions": [SimpleCompletion(name) for name in matches[:_MATCHES_MAX]],
        "matched_fragment": typed,
        "suppress": is_all,
        "ordered": True,
    }
