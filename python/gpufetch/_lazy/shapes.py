"""The arguments of transpose, reshape, squeeze and swapaxes, checked as NumPy checks them."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Iterable, Iterator
from typing import Any

from numpy.lib.array_utils import normalize_axis_index

__all__ = [
    "axis_order",
    "in_reversed_order",
    "resolve_shape",
    "shape_order",
    "squeezed_axes",
    "swapped_axes",
]


def _flat_arguments(arguments: tuple[Any, ...]) -> tuple[int, ...]:
    """Give the integers of f(1, 2) and of f((1, 2))."""
    if len(arguments) == 1 and isinstance(arguments[0], Iterable):
        arguments = tuple(arguments[0])
    return tuple(operator.index(argument) for argument in arguments)


def axis_order(arguments: tuple[Any, ...], ndim: int) -> tuple[int, ...]:
    """Check the arguments of transpose(); without any, or with None, the axes are reversed."""
    if not arguments or (len(arguments) == 1 and arguments[0] is None):
        return tuple(reversed(range(ndim)))
    axes = _flat_arguments(arguments)
    if len(axes) != ndim:
        raise ValueError(f"axes {axes} do not name each of the {ndim} axes once")
    return _distinct_axes(axes, ndim)


def _distinct_axes(axes: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """The axes counted from the front; ValueError for one that is named twice."""
    counted = tuple(normalize_axis_index(axis, ndim) for axis in axes)
    for i, axis in enumerate(counted):
        if axis in counted[:i]:
            raise ValueError(f"axes {axes} name axis {axis} twice")
    return counted


def swapped_axes(axis1: Any, axis2: Any, ndim: int) -> tuple[int, ...]:
    """Check the arguments of swapaxes(); the order of the axes that it gives."""
    order = list(range(ndim))
    first, second = normalize_axis_index(axis1, ndim), normalize_axis_index(axis2, ndim)
    order[first], order[second] = order[second], order[first]
    return tuple(order)


def shape_order(order: str) -> str:
    """Check the `order` of reshape() and ravel(): "C" or "F". In C order arrays are fetched."""
    letter = order.upper() if isinstance(order, str) else order
    if letter not in ("C", "F", "A", "K"):
        raise ValueError(f"order is {order!r}; it must be 'C', 'F', 'A' or 'K'")
    return "F" if letter == "F" else "C"


@contextlib.contextmanager
def in_reversed_order() -> Iterator[None]:
    """What is raised within is of the array with its axes reversed; say so."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"order='F', with the axes reversed: {error}") from None


def resolve_shape(arguments: tuple[Any, ...], size: int) -> tuple[int, ...]:
    """Check the arguments of reshape() for `size` elements, and work out a -1."""
    shape = _flat_arguments(arguments)
    negative = [length for length in shape if length < 0]
    known = math.prod(length for length in shape if length >= 0)
    if not negative and known == size:
        return shape
    if negative == [-1] and known > 0 and size % known == 0:
        return tuple(size // known if length < 0 else length for length in shape)
    raise ValueError(f"an array of {size} elements cannot have shape {shape}")


def squeezed_axes(axis: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Check the argument of squeeze(), and give the axes that it removes."""
    if axis is None:
        return tuple(i for i, length in enumerate(shape) if length == 1)
    if not shape and not isinstance(axis, Iterable) and operator.index(axis) in (0, -1):
        return ()  # as NumPy allows it
    axes = _distinct_axes(_flat_arguments((axis,)), len(shape))
    long = [i for i in axes if shape[i] != 1]
    if long:
        raise ValueError(f"axis {long[0]} of shape {shape} has not length 1: it cannot be squeezed")
    return axes
