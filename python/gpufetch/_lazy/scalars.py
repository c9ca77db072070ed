"""Python's bool, int, float, complex and index of an array of one element, as in NumPy."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeVar

import numpy.typing as npt

from gpufetch._view import ArrayFacts

__all__ = ["converted"]

_Number = TypeVar("_Number")


def converted(
    convert: Callable[[Any], _Number], array: Any, fetch: Callable[[], npt.NDArray[Any]]
) -> _Number:
    """What `convert` gives of the fetched array; nothing is fetched unless it has one element.

    `array` tells shape and dtype. Raises what NumPy raises: ValueError for the truth value of an
    array that has not one element, otherwise TypeError.
    """
    facts: ArrayFacts = array
    name, kind = convert.__name__, type(array).__name__
    if convert is operator.index and (facts.ndim > 0 or facts.dtype.kind not in "iu"):
        raise TypeError(
            f"a {kind} of shape {facts.shape} and dtype {facts.dtype} is no integer: only one "
            "without axes and of an integer dtype is"
        )
    if facts.size == 1:
        return convert(fetch())
    if convert is bool:
        raise ValueError(
            f"the truth value of a {kind} with {facts.size} elements is ambiguous: "
            "reduce the fetched array with any() or all()"
        )
    raise TypeError(
        f"{name}() needs one element; this {kind} of shape {facts.shape} has {facts.size}"
    )
