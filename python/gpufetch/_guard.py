"""What NumPy functions do with a LazyArray, and how much is pulled without being asked for.

Functions that look at shape and dtype alone, and those that give a view, copy nothing. Others
need the values: they pull a LazyArray that an index has narrowed down, and refuse the whole of a
wrapped tensor. Neither pulls more than the array's max_fetch_nbytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from gpufetch._text import format_nbytes

if TYPE_CHECKING:
    from gpufetch.lazy import LazyArray

__all__ = ["call_function", "call_ufunc", "check_nbytes", "default_max_fetch_nbytes"]

_MAX_FETCH_NBYTES = 8 << 30

Result = TypeVar("Result")


def default_max_fetch_nbytes() -> int:
    """A quarter of the host's memory, and at most 8 GiB."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(total // 4, _MAX_FETCH_NBYTES)


def check_nbytes(nbytes: int, limit: int, what: str) -> None:
    """Raise ValueError if `nbytes` is over the limit."""
    if nbytes > limit:
        raise ValueError(
            f"{what} has {format_nbytes(nbytes)}, more than max_fetch_nbytes = "
            f"{format_nbytes(limit)}: index a part of it, go through it with iter_chunks(), pull "
            "it with fetch(), or raise the limit with LazyArray(x, max_fetch_nbytes=...)"
        )


# Functions that need shape and dtype alone.
_FACTS: frozenset[Any] = frozenset(
    {
        np.shape,
        np.ndim,
        np.size,
        np.iscomplexobj,
        np.isrealobj,
        np.result_type,
        np.can_cast,
        np.common_type,
        np.min_scalar_type,
        np.empty_like,
        np.zeros_like,
        np.ones_like,
    }
)


def _transpose(a: LazyArray, axes: Any = None) -> LazyArray:
    return a.transpose(axes)


def _reshape(a: LazyArray, shape: Any, order: str = "C") -> LazyArray:
    if order not in ("C", "A"):
        raise ValueError(f"order={order!r}: a LazyArray is reshaped in C order; fetch() it first")
    return a.reshape(shape)


def _ravel(a: LazyArray, order: str = "C") -> LazyArray:
    return _reshape(a, -1, order)


def _squeeze(a: LazyArray, axis: Any = None) -> LazyArray:
    return a.squeeze(axis)


# Functions that give a view.
_VIEWS: dict[Any, Callable[..., Any]] = {
    np.transpose: _transpose,
    np.reshape: _reshape,
    np.ravel: _ravel,
    np.squeeze: _squeeze,
}


def call_ufunc(
    ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: Mapping[str, Any]
) -> Any:
    """Answer __array_ufunc__."""
    name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
    return _compute(f"np.{name}", getattr(ufunc, method), inputs, options)


def call_function(
    function: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any]
) -> Any:
    """Answer __array_function__."""
    if function in _FACTS:
        return _call(function, _stand_in, arguments, options)
    if function in _VIEWS:
        return _VIEWS[function](*arguments, **options)
    return _compute(f"np.{function.__name__}", function, arguments, options)


def _compute(
    name: str, function: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any]
) -> Any:
    out = options.get("out")
    if any(_is_lazy(item) for item in (out if isinstance(out, tuple) else (out,))):
        raise TypeError(f"{name} cannot write into a LazyArray: it is a reader of its tensor")
    return _call(function, lambda array: _pulled(name, array), arguments, options)


def _pulled(name: str, array: LazyArray) -> npt.NDArray[Any]:
    if not array._is_narrowed:
        raise TypeError(
            f"{name} does not pull a whole LazyArray of shape {array.shape}, "
            f"{format_nbytes(array.nbytes)}: index the part that it needs (a[...] for all), pull "
            "it with fetch() or numpy.asarray, or go through it with iter_chunks(); stats() and "
            "overview() reduce it on the device"
        )
    return np.asarray(array)


def _stand_in(array: LazyArray) -> npt.NDArray[Any]:
    """An ndarray of the same shape and dtype with one element of memory."""
    return np.broadcast_to(np.zeros((), array.dtype), array.shape)


def _is_lazy(value: Any) -> bool:
    from gpufetch.lazy import LazyArray  # at call time: lazy imports this module

    return isinstance(value, LazyArray)


def _call(
    function: Callable[..., Result],
    replace: Callable[[LazyArray], Any],
    arguments: tuple[Any, ...],
    options: Mapping[str, Any],
) -> Result:
    """Call with each LazyArray replaced, in lists and tuples too."""

    def replaced(value: Any) -> Any:
        if _is_lazy(value):
            return replace(value)
        if type(value) in (list, tuple):
            return type(value)(map(replaced, value))
        return value

    return function(
        *map(replaced, arguments), **{name: replaced(value) for name, value in options.items()}
    )
