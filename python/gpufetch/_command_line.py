"""What the command lines of gpufetch and hdf5-gpufetch share: the standard streams and the end."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from typing import TextIO

from gpufetch._text import printable


def run_command(program: str, arguments: argparse.Namespace) -> int:
    """Call `arguments.run(arguments)`, and return the exit status.

    That is what `run` returns, or `arguments.failure` after an error, which is printed. What the
    system refuses to print is an error, too; without that, it would be lost in silence.
    """
    _open_closed_streams()
    if arguments.escapes and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = int(arguments.run(arguments))
        print(end="", flush=True)
    except (ImportError, MemoryError, OSError, RuntimeError, ValueError) as error:
        complain(program, arguments, error)
        return int(arguments.failure)
    return status


def _open_closed_streams() -> None:
    """Open the streams that the caller closed (`>&-`), which Python has as None.

    What is printed then fails as the system says it, and messages go nowhere.
    """
    if sys.stdout is None:
        sys.stdout = _opened_null(os.O_RDONLY)
    if sys.stderr is None:  # print(file=None) would print to stdout
        sys.stderr = _opened_null(os.O_WRONLY)


def _opened_null(flags: int) -> TextIO:
    return open(os.open(os.devnull, flags), "w", encoding="utf-8")


def complain(program: str, arguments: argparse.Namespace, error: BaseException) -> None:
    """Print an error; from then on, what cannot be printed goes nowhere."""
    try:
        print(end="", flush=True)
    except OSError:  # else the flush at exit fails again, and the exit status is Python's
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):  # the reader has gone: gpufetch ls FILE | head
        with contextlib.suppress(OSError):
            print(f"{program} {arguments.command}: {printable(str(error))}", file=sys.stderr)
