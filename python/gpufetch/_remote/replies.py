"""The contents of replies in Python's terms: dtypes, numbers, counts, and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from gpufetch._view import Counts

__all__ = ["ReplyError", "counts_of", "dtype_of", "number", "raise_error"]


class ReplyError(RuntimeError):
    """The server refused a request; `code` is the protocol's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


# The exceptions that a refusal's code becomes; ReplyError for any other code.
_EXCEPTIONS: dict[str, type[Exception]] = {
    "bad_slice": IndexError,
    "too_large": ValueError,
    "bad_request": ValueError,
    "unknown_name": KeyError,
    "unsupported": TypeError,
}


def raise_error(error: Mapping[str, Any]) -> None:
    """Raise what the `error` of a reply says."""
    code, message = str(error.get("code")), str(error.get("message"))
    kind = _EXCEPTIONS.get(code)
    raise ReplyError(code, message) if kind is None else kind(message)


def dtype_of(name: str) -> np.dtype[Any]:
    """The dtype that the protocol's name stands for."""
    return np.dtype(getattr(ml_dtypes, name, name))


def number(value: Any, exact: bool) -> int | float:
    """A number, which comes as a string where JSON cannot say it; an int if it is `exact`."""
    return int(value) if exact else float(value)


def counts_of(reply: Mapping[str, Any]) -> Counts:
    """The elements that a reduction read, and those that are NaN, +inf and -inf."""
    counts = reply["counts"]
    return (
        int(counts["count"]),
        int(counts["nan_count"]),
        int(counts["posinf_count"]),
        int(counts["neginf_count"]),
    )
