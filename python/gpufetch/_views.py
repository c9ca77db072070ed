"""Views of a DeviceArray that basic indexing does not give: other axis orders and shapes.

Nothing here copies.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from gpufetch import _core
from gpufetch._pull import View
from gpufetch._remote_view import RemoteView

__all__ = ["axis_order", "reshaped", "resolve_shape", "squeezed_axes", "transposed"]


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
    """Check the arguments of transpose(); none, or None, reverses the axes."""
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
    """Check the argument of squeeze(): the axes that go."""
    if axis is None:
        return tuple(i for i, length in enumerate(shape) if length == 1)
    axes = tuple(_axis(i, len(shape)) for i in _flat_arguments((axis,)))
    long = [i for i in axes if shape[i] != 1]
    if long:
        raise ValueError(f"axis {long[0]} of shape {shape} has not length 1: it cannot be squeezed")
    return axes


def transposed(view: View, order: Sequence[int]) -> View:
    """View with axis i taken from axis order[i]."""
    if isinstance(view, RemoteView):
        return view.transposed(order)
    shape, strides = view.shape, view.strides
    return _core._restride(
        view, tuple(shape[axis] for axis in order), tuple(strides[axis] for axis in order)
    )


def reshaped(view: View, shape: tuple[int, ...]) -> View:
    """View with another shape of as many elements; ValueError where that takes a copy."""
    if isinstance(view, RemoteView):
        return view.reshaped(shape)
    strides = _reshaped_strides(view.shape, view.strides, shape, view.dtype.itemsize)
    if strides is None:
        raise ValueError(
            f"shape {view.shape} with strides {view.strides} (bytes) cannot be seen as shape "
            f"{shape} without a copy: fetch() first and reshape the result"
        )
    return _core._restride(view, shape, strides)


def _reshaped_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], new_shape: tuple[int, ...], itemsize: int
) -> tuple[int, ...] | None:
    blocks = _blocks(shape, strides) if 0 not in shape else []
    new_strides = []
    done, stride = 1, itemsize  # elements of the last block that are given out, and the step there
    for length in reversed(new_shape):
        if length > 1 and blocks:
            block_length, block_stride = blocks[-1]
            stride = block_stride * done
            done *= length
            if block_length % done != 0:
                return None
            if block_length == done:
                blocks.pop()
                done = 1
        new_strides.append(stride)
    return tuple(reversed(new_strides))


def _blocks(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[tuple[int, int]]:
    """Join axes that step through memory as one axis would; (length, stride) from first to last."""
    blocks: list[tuple[int, int]] = []
    for length, stride in zip(shape, strides, strict=True):
        if length == 1:
            continue
        if blocks and blocks[-1][1] == length * stride:
            blocks[-1] = (blocks[-1][0] * length, stride)
        else:
            blocks.append((length, stride))
    return blocks
