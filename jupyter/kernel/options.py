"""What is written after `%gpufetch`: options come first, and all that follows is the expression."""

from __future__ import annotations

import re
from dataclasses import dataclass

from IPython.core.error import UsageError

__all__ = ["OPTIONS", "Line", "Place", "misplaced", "parse"]

OPTIONS = {
    "--to": "FILE:/PATH",
    "--from": "FILE:/PATH",
    "--attach": "NAME",
    "--overwrite": "",
    "--help": "",
}
"""The options, and what stands after each."""

_OPTION = re.compile(r"--([A-Za-z][\w-]*)?(?=[\s=]|$)")
_VALUE = re.compile(r"""[=\s]\s*("[^"]*"|'[^']*'|\S+)""")


@dataclass(frozen=True)
class Line:
    """What a line asks for.

    Attributes
    ----------
    options
        The options that are given, with their values; "" for one that takes none.
    expression
        What follows them; "" if nothing does.
    """

    options: dict[str, str]
    expression: str


@dataclass(frozen=True)
class Place:
    """A file, and the path of a dataset or tree in it."""

    file: str
    path: str

    @classmethod
    def parse(cls, option: str, text: str) -> Place:
        """Take FILE:/PATH apart, at its last colon before a slash; UsageError if it is none.

        Names of datasets may have colons; FILE:PATH is taken apart at its last one.
        """
        file, slash, path = text.rpartition(":/")
        if slash:
            path = f"/{path}"
        else:
            file, _, path = text.rpartition(":")
        if not file or not path.strip("/"):
            raise UsageError(
                f"%gpufetch {option} takes FILE:/PATH, as run.h5:/fields/u, and not {text!r}"
            )
        return cls(file, path)


def parse(line: str) -> Line:
    """Take a line apart; UsageError, in one line, for options that do not fit.

    `--` ends the options; what begins otherwise, as `-x` does, is an expression. `-h` alone asks
    for help.
    """
    if line.strip() == "-h":
        return Line({"--help": ""}, "")
    options: dict[str, str] = {}
    rest = line.strip()
    while (found := _OPTION.match(rest)) is not None:
        name, rest = found.group(), rest[found.end() :]
        if name == "--":
            break
        if name not in OPTIONS:
            raise UsageError(
                f"%gpufetch has no option {name}: there are {', '.join(OPTIONS)}, and -- before an "
                "expression that begins so"
            )
        if name in options:
            raise UsageError(f"%gpufetch {name} is given twice: give it once")
        options[name], rest = _value(name, rest)
        rest = rest.lstrip()
    parsed = Line(options, rest.strip())
    _check(parsed)
    return parsed


def misplaced(expression: str) -> str | None:
    """The line that was meant where options stand behind the expression; None if none do."""
    found = re.search(rf"\s({'|'.join(OPTIONS)})(?=[\s=]|$)", expression)
    if found is None:
        return None
    return f"%gpufetch {expression[found.start(1) :]} {expression[: found.start()]}"


def _value(name: str, rest: str) -> tuple[str, str]:
    """The value of an option, and what follows it."""
    if not OPTIONS[name]:
        if rest.startswith("="):
            raise UsageError(f"%gpufetch {name} takes no value: leave out {rest.split()[0]!r}")
        return "", rest
    found = _VALUE.match(rest)
    if found is None:
        raise UsageError(f"%gpufetch {name} takes {OPTIONS[name]} after it")
    value = found.group(1)
    if value[0] in "\"'" and value[0] == value[-1] and len(value) > 1:
        value = value[1:-1]
    return value, rest[found.end() :]


def _check(line: Line) -> None:
    """Raise UsageError for options that do not go together."""
    actions = [name for name in line.options if name != "--overwrite"]
    if len(actions) > 1:
        raise UsageError(f"%gpufetch takes one of {' and '.join(actions)} in a line")
    action = actions[0] if actions else None
    if "--overwrite" in line.options and action != "--to":
        raise UsageError("%gpufetch --overwrite is for --to: give both")
    if action == "--to" and not line.expression:
        raise UsageError(
            f"%gpufetch --to takes what to write: %gpufetch --to {line.options['--to']} EXPRESSION"
        )
    if action in ("--from", "--attach") and line.expression:
        raise UsageError(
            f"%gpufetch {action} takes {OPTIONS[action]} alone: leave out {line.expression!r}"
        )
