"""Checks of arguments that many functions take."""

from __future__ import annotations

import operator
import os
import stat
from numbers import Integral, Real
from typing import Any

import numpy as np

__all__ = [
    "check_copy",
    "check_int",
    "check_path",
    "check_regular",
    "check_text",
    "check_timeout",
    "int_text",
]


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


_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def check_regular(path: Any) -> None:
    """Raise OSError for a path that leads to a pipe, a socket or a device: opening it may wait.

    What does not exist, and folders, are left to whoever opens them.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    for is_kind, kind in _KINDS:
        if is_kind(mode):
            raise OSError(f"{os.fsdecode(path)} is {kind}: give the path of a regular file")


def check_timeout(timeout: Any, *, is_needed: bool = False) -> None:
    """Raise TypeError or ValueError unless `timeout` is a number of seconds >= 0, or None.

    With `is_needed`, it must be above 0, and is not None.
    """
    if timeout is None and not is_needed:
        return
    wanted = "a number of seconds " + ("above 0" if is_needed else ">= 0, or None")
    if not isinstance(timeout, Real) or isinstance(timeout, bool):
        kind = type(timeout).__name__
        raise TypeError(f"timeout is {timeout!r:.80}, of type {kind}: give {wanted}")
    seconds = float(timeout)
    if not (seconds > 0 or (seconds == 0 and not is_needed)):  # NaN is neither
        raise ValueError(f"timeout {timeout!r} is not {wanted}")


def check_copy(copy: Any) -> bool | None:
    """The argument `copy` of many protocols: a bool, also NumPy's, 0 or 1, or None. TypeError."""
    if copy is None or isinstance(copy, bool):
        return copy
    if isinstance(copy, np.bool_ | Integral) and copy in (0, 1):
        return bool(copy)
    kind = type(copy).__name__
    raise TypeError(f"copy is {copy!r:.80}, of type {kind}: give True, False or None")


def check_int(value: Any, what: str, low: int = -(2**63), high: int = 2**63 - 1) -> int:
    """An integer from `low` to `high`; else TypeError or ValueError, which names it.

    OverflowError for one that int64 does not hold, whose limits are the default.
    """
    try:
        number = operator.index(value)
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"{what} is {value!r:.80}, of type {kind}: give an integer") from None
    if not low <= number <= high:
        error = ValueError if -(2**63) <= number < 2**63 else OverflowError
        raise error(f"{what} is {int_text(number)}: give an integer from {low} to {high}")
    return number


def int_text(number: int) -> str:
    """Write an integer for a message, also one of more digits than Python writes."""
    bits = number.bit_length()
    return str(number) if bits <= 256 else f"an integer of {bits} bits"
