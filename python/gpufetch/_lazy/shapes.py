"""The arguments of transpose, reshape and squeeze, checked as NumPy checks them."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

__all__ = ["axis_order", "resolve_shape", "squeezed_axes"]


def _flat_arguments(arguments: tuple[Any, ...]) -> tuple[int, ...]:
    """Give the integers of f(1, 2) and of f((1, 2))."""
    if len(arguments) == 1 and isinstance(arguments[0], Sequence):
        arguments = tuple(arguments[0])
    return tuple(operator.index(argument) for argument in arguments)


def _axis(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise ValueError(f"axis {axis} is out of bounds for an array with {ndim} axes")
    return axis % ndim


def axis_order(arguments: tuple[Any, ...], ndim: int) -> tuple[int, ...]:
    """Check the arguments of transpose(); without any, or with None, the axes are reversed."""
    if arguments in ((), (None,)):
        return tuple(reversed(range(ndim)))
    axes = _flat_arguments(arguments)
    order = tuple(_axis(axis, ndim) for axis in axes)
    if sorted(order) != list(range(ndim)):
        raise ValueError(f"axes {axes} do not name each of the {ndim} axes once")
    return order


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


def squeezed_axes(axis: int | Sequence[int] | None, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Check the argument of squeeze(), and give the axes that it removes."""
    if axis is None:
        return tuple(i for i, length in enumerate(shape) if length == 1)
    axes = tuple(_axis(i, len(shape)) for i in _flat_arguments((axis,)))
    long = [i for i in axes if shape[i] != 1]
    if long:
        raise ValueError(f"axis {long[0]} of shape {shape} has not length 1: it cannot be squeezed")
    return axes
