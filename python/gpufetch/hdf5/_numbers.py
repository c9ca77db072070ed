"""Python's numbers and lists of numbers as arrays, without a value that changes on the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufetch._checks import int_text

__all__ = ["as_tensor", "int_array", "is_numbers"]

_NUMBERS = (bool, int, float, complex)
# Scalars of NumPy that are no numbers. All others are, those of ml_dtypes too.
_NO_NUMBERS = (np.flexible, np.object_, np.datetime64, np.timedelta64)
_NDIM_MAX = 64  # of NumPy's arrays


def is_numbers(x: Any, ndim: int = 0) -> bool:
    """Whether `x` is a number, or a list or tuple that holds numbers at every depth, or nothing.

    `ndim` counts the lists around it: one that is deeper than any array, as a list that holds
    itself, is no list of numbers.
    """
    if type(x) in (list, tuple):
        return ndim < _NDIM_MAX and all(is_numbers(item, ndim + 1) for item in x)
    if isinstance(x, np.generic):
        return not isinstance(x, _NO_NUMBERS)
    return isinstance(x, _NUMBERS)


def as_tensor(x: Any) -> Any:
    """What to store for `x`: an array for numbers and lists of them, in native byte order.

    A LazyArray of another process's tensor is pulled. Other objects are returned as they are.
    Raises ValueError for a list that is no array of
    numbers, as a ragged one or one with an integer that no 64 bits hold.
    """
    if is_numbers(x):
        return _array(x)
    if isinstance(x, np.ndarray) and not x.dtype.isnative:
        return x.astype(x.dtype.newbyteorder("="))
    if hasattr(type(x), "_gpufetch_pull"):
        pulled = x._gpufetch_pull()
        return x if pulled is None else pulled
    return x


def _array(x: Any) -> npt.NDArray[Any]:
    if isinstance(x, np.generic):
        return np.asarray(x, x.dtype.newbyteorder("="))
    try:
        found = list(_leaves(x))
        # NumPy would make float64 of integers of which some are negative and some above 2**63.
        if found and all(type(value) is int for value in found):
            return int_array(x)
        return np.asarray(x)
    except (OverflowError, ValueError) as error:
        if not isinstance(x, list | tuple):
            text = f"the number {x!r} cannot be stored: {error}; float() of it can, rounded"
            raise ValueError(text) from error
        raise ValueError(f"the list is no array of numbers: {error}") from error


def _leaves(x: Any) -> Iterator[Any]:
    if isinstance(x, list | tuple):
        for item in x:
            yield from _leaves(item)
    else:
        yield x


def int_array(x: Any) -> npt.NDArray[Any]:
    """Integers as int64, or as uint64 where that holds all; OverflowError where neither does."""
    try:
        return np.asarray(x, np.int64)
    except OverflowError:
        pass
    try:
        return np.asarray(x, np.uint64)
    except OverflowError:
        found = [int(value) for value in _leaves(x)]
        low, high = int_text(min(found)), int_text(max(found))
        values = high if len(found) == 1 else f"the values from {low} to {high}"
        raise OverflowError(f"neither int64 nor uint64 holds {values}: give text") from None
