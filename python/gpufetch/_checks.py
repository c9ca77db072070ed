"""Checks of arguments that many functions take."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["check_path", "check_text"]


def check_text(text: object, what: str, *, errors: str = "strict") -> None:
    """Raise ValueError for text that C would cut at a NUL, or that is not UTF-8; `what` names it.

    TypeError for what is no text. `errors="surrogateescape"` allows the surrogates that stand for
    bytes of a name that exists already.
    """
    if not isinstance(text, str):
        raise TypeError(f"{what} is {text!r:.200}, of type {type(text).__name__}: give text")
    if "\0" in text:
        raise ValueError(
            f"{what} {text!r:.200} has a NUL in it, where HDF5 and C end text: leave it out"
        )
    try:
        text.encode(errors=errors)
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} {text!r:.200} is not UTF-8: character {error.start} is a lone surrogate; "
            "leave it out"
        ) from None


def check_path(path: Any, what: str) -> None:
    """Raise ValueError for the path of a file that C would cut at a NUL, or cannot encode."""
    check_text(os.fsdecode(path), what, errors="surrogateescape")
