"""Shapes and strides of views; strides are in bytes. Nothing here touches a tensor."""

from __future__ import annotations

__all__ = ["first_axes_joined", "reshaped_strides"]


def reshaped_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], new_shape: tuple[int, ...], itemsize: int
) -> tuple[int, ...] | None:
    """Strides with which a tensor has `new_shape` in C order; None where that takes a copy.

    `new_shape` has as many elements as `shape`.
    """
    axes = _merged(shape, strides) if 0 not in shape else []
    new_strides = []
    # Of the last axis that is left: the elements that new axes have taken, and the step there.
    taken, stride = 1, itemsize
    for length in reversed(new_shape):
        if length > 1 and axes:
            axis_length, axis_stride = axes[-1]
            stride = axis_stride * taken
            taken *= length
            if axis_length % taken != 0:
                return None
            if axis_length == taken:
                axes.pop()
                taken = 1
        new_strides.append(stride)
    return tuple(reversed(new_strides))


def _merged(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[tuple[int, int]]:
    """Join axes that step through memory as one would: (length, stride), from first to last."""
    axes: list[tuple[int, int]] = []
    for length, stride in zip(shape, strides, strict=True):
        if length == 1:
            continue
        if axes and axes[-1][1] == length * stride:
            axes[-1] = (axes[-1][0] * length, stride)
        else:
            axes.append((length, stride))
    return axes


def first_axes_joined(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Shape and strides with the first two axes as one; None where they are not one in memory."""
    (length, inner_length, *rest), (stride, inner_stride, *rest_strides) = shape, strides
    if inner_length == 1:
        inner_stride = stride
    elif length > 1 and stride != inner_length * inner_stride:
        return None
    return (length * inner_length, *rest), (inner_stride, *rest_strides)
