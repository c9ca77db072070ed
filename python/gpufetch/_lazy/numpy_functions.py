"""NumPy's functions and operators on an array that is pulled only where an index has narrowed it.

Functions that look at shape and dtype alone, and those that give a view, copy nothing. Others
need the values. They pull an array that an index has narrowed, and refuse the whole of a tensor.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gpufetch._text import format_nbytes
from gpufetch._view import ArrayFacts

__all__ = ["NumPyFunctions"]

Result = TypeVar("Result")


class NumPyFunctions(np.lib.mixins.NDArrayOperatorsMixin, ArrayFacts):
    """Gives a lazy array `__array_ufunc__`, `__array_function__` and the operators."""

    __slots__ = ()

    _is_narrowed: bool  # whether functions may pull it

    @abstractmethod
    def transpose(self, *axes: Any) -> Any: ...

    @abstractmethod
    def reshape(self, *shape: Any) -> Any: ...

    @abstractmethod
    def squeeze(self, axis: Any = None) -> Any: ...

    @abstractmethod
    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]: ...

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        return _compute(f"np.{name}", getattr(ufunc, method), inputs, options)

    def __array_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        arguments: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> Any:
        if function in _FACTS:
            return _call(function, _stand_in, arguments, options)
        if function in _VIEWS:
            return _VIEWS[function](*arguments, **options)
        return _compute(f"np.{function.__name__}", function, arguments, options)


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


def _transpose(a: NumPyFunctions, axes: Any = None) -> Any:
    return a.transpose(axes)


def _reshape(a: NumPyFunctions, shape: Any, order: str = "C") -> Any:
    if order not in ("C", "A"):
        raise ValueError(f"order={order!r}: a LazyArray is reshaped in C order; fetch() it first")
    return a.reshape(shape)


def _ravel(a: NumPyFunctions, order: str = "C") -> Any:
    return _reshape(a, -1, order)


def _squeeze(a: NumPyFunctions, axis: Any = None) -> Any:
    return a.squeeze(axis)


# Functions that give a view.
_VIEWS: dict[Any, Callable[..., Any]] = {
    np.transpose: _transpose,
    np.reshape: _reshape,
    np.ravel: _ravel,
    np.squeeze: _squeeze,
}


def _compute(
    name: str, function: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any]
) -> Any:
    """Call a function that needs the values."""
    out = options.get("out")
    if any(
        isinstance(item, NumPyFunctions) for item in (out if isinstance(out, tuple) else (out,))
    ):
        raise TypeError(f"{name} cannot write into a LazyArray: it is a reader of its tensor")
    return _call(function, lambda array: _pulled(name, array), arguments, options)


def _pulled(name: str, array: NumPyFunctions) -> npt.NDArray[Any]:
    if not array._is_narrowed:
        raise TypeError(
            f"{name} does not pull a whole LazyArray of shape {array.shape}, "
            f"{format_nbytes(array.nbytes)}: index what it needs (a[...] for everything), pull it "
            "with fetch() or numpy.asarray, or go through it with iter_chunks(); stats() and "
            "overview() reduce it on the device"
        )
    return np.asarray(array)


def _stand_in(array: NumPyFunctions) -> npt.NDArray[Any]:
    """An ndarray of the same shape and dtype with one element of memory."""
    return np.broadcast_to(np.zeros((), array.dtype), array.shape)


def _call(
    function: Callable[..., Result],
    replace: Callable[[NumPyFunctions], Any],
    arguments: tuple[Any, ...],
    options: Mapping[str, Any],
) -> Result:
    """Call a function with each lazy array replaced, also in lists and tuples."""

    def replaced(value: Any) -> Any:
        if isinstance(value, NumPyFunctions):
            return replace(value)
        if type(value) in (list, tuple):
            return type(value)(map(replaced, value))
        return value

    return function(
        *map(replaced, arguments), **{name: replaced(value) for name, value in options.items()}
    )
