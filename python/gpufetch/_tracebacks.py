"""Short tracebacks in notebooks: a wrong argument is shown where the user's code passes it."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import traceback
from collections.abc import Iterator

__all__ = ["shorten", "shortened"]

# Frames of this package, of its context manager and of the shell itself are not shown.
_HIDDEN = (os.path.dirname(__file__) + os.sep, str(contextlib.__file__))
_IPYTHON = f"{os.sep}IPython{os.sep}core{os.sep}"


def shorten(error: BaseException) -> None:
    """Let IPython show an exception in three lines at most: where the user's code is, and what.

    IPython calls `_render_traceback_` of an exception that has it; nothing else looks at it.
    """
    if not hasattr(error, "_render_traceback_"):
        error._render_traceback_ = functools.partial(_render, error)  # type: ignore[attr-defined]


@contextlib.contextmanager
def shortened() -> Iterator[None]:
    """Shorten what is raised within."""
    try:
        yield
    except Exception as error:
        shorten(error)
        raise


def _render(error: BaseException) -> list[str]:
    """Two lines at most of where, and one of what."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_HIDDEN) and _IPYTHON not in frame.filename
    ]
    where = frames if len(frames) <= 2 else [frames[0], frames[-1]]
    return [*map(_frame_line, where), f"{type(error).__name__}: {' '.join(str(error).split())}"]


def _frame_line(frame: traceback.FrameSummary) -> str:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    cell = None if shell is None else shell.compile.format_code_name(frame.filename)
    name = f"File {frame.filename}" if cell is None else " ".join(cell)
    return f"{name}, line {frame.lineno}: {frame.line}"
