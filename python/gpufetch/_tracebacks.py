"""Short tracebacks in notebooks: a wrong argument is shown where the user's code passes it."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback

__all__ = ["shorten", "shortened"]

# Frames of this package, of its context manager and of the shell itself are not shown.
_HIDDEN = (os.path.dirname(__file__) + os.sep, str(contextlib.__file__))
_IPYTHON = f"{os.sep}IPython{os.sep}core{os.sep}"


def shorten(error: BaseException) -> None:
    """Let IPython show an exception in three lines at most: where the user's code is, and what.

    IPython calls `_render_traceback_` of an exception that has it; nothing else looks at it.
    """
    with contextlib.suppress(Exception):  # of an exception that takes no attributes
        if not hasattr(error, "_render_traceback_"):
            # Not a method of this error: that would be a circle, and keep what its frames hold.
            error._render_traceback_ = _render_shown  # type: ignore[attr-defined]


class _Shortened(contextlib.ContextDecorator):
    """Has no state: one is for all threads, and may be within itself."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if isinstance(error, Exception | KeyboardInterrupt):
            shorten(error)


shortened = _Shortened()
"""Shortens what is raised within, or by the function that it decorates; Ctrl-C as well."""


def _render_shown() -> list[str]:
    """Render the exception that IPython shows, which it has put there."""
    error = sys.last_value
    assert error is not None
    return _render(error)


def _render(error: BaseException) -> list[str]:
    """Two lines at most of where, and one of what."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_HIDDEN) and _IPYTHON not in frame.filename
    ]
    where = frames if len(frames) <= 2 else [frames[0], frames[-1]]
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return [*map(_frame_line, where), what.removesuffix(":")]


def _frame_line(frame: traceback.FrameSummary) -> str:
    ipython = sys.modules.get("IPython")  # None where its import is blocked, too
    shell = None if ipython is None else ipython.get_ipython()
    cell = None if shell is None else shell.compile.format_code_name(frame.filename)
    name = f"File {frame.filename}" if cell is None else " ".join(cell)
    return f"{name}, line {frame.lineno}: {frame.line}"
