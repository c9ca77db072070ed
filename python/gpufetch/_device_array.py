"""What DeviceArray leaves to Python: the methods that give views, and what it has not.

NumPy's functions use such a method where there is one (moveaxis, flip, reshape, split ...), and
copy nothing then. For all others the elements are copied to the host, as by numpy.asarray.
"""

from __future__ import annotations

import itertools
import operator
import reprlib
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from gpufetch._core import DeviceArray, fetch
from gpufetch._lazy.remedies import TO_HOST, method_remedy
from gpufetch._lazy.scalars import converted
from gpufetch._lazy.shapes import (
    axis_order,
    in_reversed_order,
    memory_order,
    resolve_shape,
    shape_order,
    squeezed_axes,
    swapped_axes,
)
from gpufetch._subscript import index_items
from gpufetch._view import DeviceView

__all__ = [
    "contains",
    "format_value",
    "iterate",
    "missing",
    "number",
    "ravel",
    "reduce_ex",
    "refuse_index",
    "repr_html",
    "repr_pretty",
    "reshape",
    "squeeze",
    "swapaxes",
    "transpose",
]


_ITERATION_NBYTES = 1 << 20
# What frameworks call the copy to the host.
_NUMBERS = {
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "index": operator.index,
}


def transpose(self: DeviceArray, *axes: Any) -> DeviceArray:
    return DeviceView(self).transposed(axis_order(axes, self.ndim)).array


def swapaxes(self: DeviceArray, axis1: Any, axis2: Any) -> DeviceArray:
    return DeviceView(self).transposed(swapped_axes(axis1, axis2, self.ndim)).array


def reshape(self: DeviceArray, *shape: Any, order: str = "C") -> DeviceArray:
    lengths = resolve_shape(shape, self.size)
    if shape_order(order, DeviceView(self)) == "F":
        with in_reversed_order():
            return DeviceView(self.T).reshaped(lengths[::-1]).array.T
    return DeviceView(self).reshaped(lengths).array


def ravel(self: DeviceArray, order: str = "C") -> DeviceArray:
    axes = memory_order(order, DeviceView(self))
    return reshape(self, -1, order=order) if axes is None else reshape(transpose(self, axes), -1)


def squeeze(self: DeviceArray, axis: Any = None) -> DeviceArray:
    removed = squeezed_axes(axis, self.shape)
    return self[tuple(0 if i in removed else slice(None) for i in range(self.ndim))]


def iterate(self: DeviceArray) -> Iterator[Any]:
    """Give the views x[0], x[1], ...; with one axis the scalars, pulled many at once."""
    if self.ndim == 0:
        raise TypeError("iteration over a DeviceArray without dimensions")
    length = self.shape[0]
    if self.ndim > 1:
        return (self[i] for i in range(length))
    most = _ITERATION_NBYTES // self.dtype.itemsize
    pieces = (fetch(self[start : start + most]) for start in range(0, length, most))
    return itertools.chain.from_iterable(pieces)


def number(self: DeviceArray, kind: str) -> Any:
    """The Python number that the only element is; `kind` is what asks for it."""
    convert: Any = _NUMBERS[kind]
    return converted(convert, self, lambda: fetch(self))


def format_value(self: DeviceArray, spec: str) -> str:
    """As NumPy: an array without axes is formatted as its element."""
    return (
        format(fetch(self)[()], spec) if self.ndim == 0 and spec else object.__format__(self, spec)
    )


def contains(self: DeviceArray, value: object) -> bool:
    return operator.contains(fetch(self), value)


def refuse_index(item: Any) -> NoReturn:
    """Raise the error for an item that is none of basic indexing: IndexError where NumPy does."""
    what = "a DeviceArray is indexed by ints, slices, ... and None, not by"
    is_bool = isinstance(item, bool | np.bool_)
    try:
        index_items((0 if is_bool else item,))
    except IndexError:
        raise IndexError(f"{what} {reprlib.repr(item)} of type {type(item).__name__}") from None
    raise TypeError(f"{what} {type(item)}: fetch it first and index the result")


def reduce_ex(self: DeviceArray, protocol: Any = None) -> NoReturn:
    raise TypeError(
        f"a DeviceArray cannot be pickled or copied, as its memory is on {self.device}: "
        "gpufetch.fetch(x) gives an array that can, and gpufetch.share(x) gives the memory to "
        "another process"
    )


def repr_pretty(self: DeviceArray, printer: Any, cycle: bool) -> None:
    from gpufetch._display.tensor import print_tensor  # not before something is shown

    print_tensor(self, lambda: DeviceView(self), printer)


def repr_html(self: DeviceArray) -> str:
    from gpufetch._display.tensor import tensor_html

    return tensor_html(self, lambda: DeviceView(self), "")


def missing(self: DeviceArray, name: str) -> str:
    """Why there is no attribute of that name, and what has it."""
    if name in TO_HOST:
        return f"a DeviceArray has no {name}: gpufetch.fetch(x) gives it as a NumPy array"
    if not hasattr(np.ndarray, name):
        return f"a DeviceArray has no attribute {name}"
    remedy = method_remedy(name)
    reason = f"{remedy}, and " if remedy else ""
    return f"a DeviceArray has no {name}: {reason}the array that gpufetch.fetch(x) gives has it"
