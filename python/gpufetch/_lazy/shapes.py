"""The arguments of transpose, reshape, squeeze and swapaxes, checked as NumPy checks them."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Iterable, Iterator
from typing import Any

from numpy.lib.array_utils import normalize_axis_index

from gpufetch._view import View

__all__ = [
    "axis_order",
    "in_reversed_order",
    "memory_order",
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


def shape_order(order: str, view: View) -> str:
    """Check the `order` of reshape(): "C" or "F", which "A" is where NumPy's is."""
    letter = _order_letter(order)
    if letter == "K":
        raise ValueError("order 'K' is for ravel(); that of reshape() is 'C', 'F' or 'A'")
    if letter != "A":
        return letter
    axes = range(view.ndim)
    return "F" if _is_packed(view, reversed(axes)) and not _is_packed(view, axes) else "C"


def memory_order(order: str, view: View) -> tuple[int, ...] | None:
    """Axes from the outermost in memory to the innermost, for ravel("K"); None for other orders."""
    if _order_letter(order) != "K":
        return None
    axes = range(view.ndim)
    if _is_packed(view, axes):
        return tuple(axes)
    if _is_packed(view, reversed(axes)):
        return tuple(reversed(axes))
    # NumPy's insertion sort: an axis without a step has no place of its own in memory.
    steps = [abs(s) if n != 1 else 0 for n, s in zip(view.shape, view.strides, strict=True)]
    inner: list[int] = []
    for axis in reversed(axes):
        at = len(inner)
        for i in range(len(inner) - 1, -1, -1):
            if steps[axis] and steps[inner[i]]:
                if steps[inner[i]] <= steps[axis]:
                    break
                at = i
        inner.insert(at, axis)
    return tuple(reversed(inner))


def _order_letter(order: str) -> str:
    letter = order.upper() if isinstance(order, str) else order
    if letter not in ("C", "F", "A", "K"):
        raise ValueError(f"order is {order!r}; it must be 'C', 'F', 'A' or 'K'")
    return letter


def _is_packed(view: View, axes: Iterable[int]) -> bool:
    """Whether elements lie without gaps in memory, the axes ordered from the outermost on."""
    if 0 in view.shape:
        return True
    expected = view.dtype.itemsize
    for axis in reversed(list(axes)):
        if view.shape[axis] != 1:
            if view.strides[axis] != expected:
                return False
            expected *= view.shape[axis]
    return True


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
