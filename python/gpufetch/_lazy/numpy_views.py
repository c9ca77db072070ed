"""NumPy's functions that give views, for a LazyArray: further LazyArrays, without a transfer.

Each has the parameters of NumPy's function, checks them as NumPy does, and returns NotImplemented
where the elements are needed.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

__all__ = ["VIEWS"]


def _transpose(a: Any, axes: Any = None) -> Any:
    return a.transpose(axes)


def _matrix_transpose(x: Any, /) -> Any:
    if x.ndim < 2:
        raise ValueError(f"an array with {x.ndim} axes has no matrices: 2 are needed")
    return x.swapaxes(-1, -2)


def _reshape(
    a: Any, /, shape: Any = None, order: str = "C", *, newshape: Any = None, copy: Any = None
) -> Any:
    shape = newshape if shape is None else shape
    if shape is None:
        raise TypeError("reshape() needs a shape")
    if copy:
        return NotImplemented
    return a.reshape(shape, order=order)


def _ravel(a: Any, order: str = "C") -> Any:
    return a.ravel(order)


def _squeeze(a: Any, axis: Any = None) -> Any:
    return a.squeeze(axis)


def _moveaxis(a: Any, source: Any, destination: Any) -> Any:
    sources = normalize_axis_tuple(source, a.ndim, "source")
    destinations = normalize_axis_tuple(destination, a.ndim, "destination")
    if len(sources) != len(destinations):
        raise ValueError(f"source {source} and destination {destination} differ in length")
    order = [axis for axis in range(a.ndim) if axis not in sources]
    for to, axis in sorted(zip(destinations, sources, strict=True)):
        order.insert(to, axis)
    return a.transpose(order)


def _swapaxes(a: Any, axis1: Any, axis2: Any) -> Any:
    return a.swapaxes(axis1, axis2)


def _rollaxis(a: Any, axis: Any, start: Any = 0) -> Any:
    axis = normalize_axis_index(axis, a.ndim)
    start = operator.index(start)
    before = start + a.ndim if start < 0 else start
    if not 0 <= before <= a.ndim:
        raise np.exceptions.AxisError(f"start {start} is not in -{a.ndim} to {a.ndim}")
    order = [i for i in range(a.ndim) if i != axis]
    order.insert(before - (before > axis), axis)
    return a.transpose(order)


def _expand_dims(a: Any, axis: Any) -> Any:
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    ndim = a.ndim + len(axes)
    added = normalize_axis_tuple(axes, ndim)
    lengths = iter(a.shape)
    return a.reshape(tuple(1 if i in added else next(lengths) for i in range(ndim)))


def _flip(m: Any, axis: Any = None) -> Any:
    axes = range(m.ndim) if axis is None else normalize_axis_tuple(axis, m.ndim)
    whole, back = slice(None), slice(None, None, -1)
    return m._indexed(tuple(back if i in axes else whole for i in range(m.ndim)))


def _fliplr(m: Any) -> Any:
    if m.ndim < 2:
        raise ValueError(f"fliplr() needs 2 axes; the array has {m.ndim}")
    return _flip(m, 1)


def _flipud(m: Any) -> Any:
    if m.ndim < 1:
        raise ValueError("flipud() needs an axis; the array has none")
    return _flip(m, 0)


def _rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    if len(axes) != 2:
        raise ValueError(f"axes {axes} of rot90() are not two")
    if axes[0] == axes[1] or abs(axes[0] - axes[1]) == m.ndim:
        raise ValueError(f"axes {axes} of rot90() are one axis")
    first, second = axes
    if not (-m.ndim <= first < m.ndim and -m.ndim <= second < m.ndim):
        raise ValueError(f"axes {axes} are out of bounds for an array with {m.ndim} axes")
    if k % 4 == 0:
        return m._indexed((Ellipsis,))
    if k % 4 == 2:
        return _flip(m, (first, second))
    turned = _flip(m, second) if k % 4 == 1 else m
    turned = turned.swapaxes(first, second)
    return turned if k % 4 == 1 else _flip(turned, second)


def _at_least(
    numpy_function: Callable[..., Any], shapes: Callable[[tuple[int, ...]], tuple[int, ...]]
) -> Callable[..., Any]:
    def at_least(*arys: Any) -> Any:
        results = tuple(
            a.reshape(shapes(a.shape))
            if hasattr(a, "_indexed")  # a LazyArray; the others are NumPy's
            else numpy_function(a)
            for a in arys
        )
        return results[0] if len(results) == 1 else results

    return at_least


def _array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    if not hasattr(ary, "_gpufetch_view"):  # the sections are lazy
        return NotImplemented
    total = ary.shape[axis]
    try:
        inner = list(indices_or_sections)
    except TypeError:
        sections = int(indices_or_sections)
        if sections <= 0:
            raise ValueError(f"{sections} sections: give 1 or more") from None
        each, extras = divmod(total, sections)
        lengths = [each + 1] * extras + [each] * (sections - extras)
        bounds = [sum(lengths[:i]) for i in range(sections + 1)]
    else:
        bounds = [0, *inner, total]
    before = (slice(None),) * (axis % ary.ndim)
    return [ary[(*before, slice(start, stop))] for start, stop in itertools.pairwise(bounds)]


def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    if not hasattr(ary, "_gpufetch_view"):
        return NotImplemented
    try:
        len(indices_or_sections)
    except TypeError:
        total = ary.shape[axis]
        if total % indices_or_sections:
            raise ValueError(
                f"an axis of length {total} has not {indices_or_sections} equal parts"
            ) from None
    return _array_split(ary, indices_or_sections, axis)


def _split_along(least: int, name: str) -> Callable[..., Any]:
    def split(ary: Any, indices_or_sections: Any) -> Any:
        if not hasattr(ary, "_gpufetch_view"):
            return NotImplemented
        if ary.ndim < least:
            raise ValueError(f"{name}() needs {least} axes; the array has {ary.ndim}")
        axis = {"hsplit": min(1, ary.ndim - 1), "vsplit": 0, "dsplit": 2}[name]
        return _split(ary, indices_or_sections, axis)

    return split


def _unstack(x: Any, /, *, axis: int = 0) -> Any:
    if x.ndim < 1:
        raise ValueError("an array without axes cannot be unstacked")
    moved = _moveaxis(x, axis, 0)
    return NotImplemented if x.ndim == 1 else tuple(moved[i] for i in range(moved.shape[0]))


def _take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    numbers = np.asarray(indices)
    if out is not None or mode != "raise" or numbers.dtype.kind not in "iu":
        return NotImplemented
    if a.size == 0 or a.ndim == 0 or (axis is None and a.ndim != 1):
        return NotImplemented
    axis = 0 if axis is None else normalize_axis_index(axis, a.ndim)
    item = numbers if numbers.ndim > 0 else int(numbers)
    return a[(*(slice(None),) * axis, item)]


def _real(val: Any) -> Any:
    return NotImplemented if val.dtype.kind == "c" else val._indexed((Ellipsis,))


VIEWS: dict[Any, Callable[..., Any]] = {
    np.transpose: _transpose,
    np.matrix_transpose: _matrix_transpose,
    np.reshape: _reshape,
    np.ravel: _ravel,
    np.squeeze: _squeeze,
    np.moveaxis: _moveaxis,
    np.swapaxes: _swapaxes,
    np.rollaxis: _rollaxis,
    np.expand_dims: _expand_dims,
    np.flip: _flip,
    np.fliplr: _fliplr,
    np.flipud: _flipud,
    np.rot90: _rot90,
    np.atleast_1d: _at_least(np.atleast_1d, lambda shape: shape or (1,)),
    np.atleast_2d: _at_least(np.atleast_2d, lambda shape: (1,) * (2 - len(shape)) + shape),
    np.atleast_3d: _at_least(
        np.atleast_3d,
        lambda shape: {0: (1, 1, 1), 1: (1, *shape, 1), 2: (*shape, 1)}.get(len(shape), shape),
    ),
    np.array_split: _array_split,
    np.split: _split,
    np.hsplit: _split_along(1, "hsplit"),
    np.vsplit: _split_along(2, "vsplit"),
    np.dsplit: _split_along(3, "dsplit"),
    np.take: _take,
    np.real: _real,
}
if hasattr(np, "unstack"):
    VIEWS[np.unstack] = _unstack
