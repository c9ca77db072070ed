"""NumPy's functions and operators on an array that is pulled only where an index has narrowed it.

Functions that look at shape and dtype alone, and those that give a view, copy nothing. Those whose
purpose is a copy pull up to max_fetch_nbytes. Others compute: they pull an array that an index has
narrowed, and refuse the whole of a tensor, naming what the device computes instead.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence, ValuesView
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from gpufetch._lazy.numpy_views import VIEWS
from gpufetch._lazy.operators import Operators
from gpufetch._lazy.remedies import remedy_for
from gpufetch._text import format_nbytes
from gpufetch._tracebacks import shortened
from gpufetch._view import ArrayFacts

__all__ = ["NumPyFunctions"]

Result = TypeVar("Result")

# Functions that need shape and dtype alone, of their first argument or of all that are arrays.
FACTS: frozenset[Any] = frozenset(
    {
        np.shape,
        np.ndim,
        np.size,
        np.iscomplexobj,
        np.isrealobj,
        np.empty_like,
        np.zeros_like,
        np.ones_like,
        np.full_like,
        np.diag_indices_from,
        np.tril_indices_from,
        np.triu_indices_from,
    }
)
FACTS_OF_ALL: frozenset[Any] = frozenset({np.result_type, np.can_cast, np.common_type})

# Functions whose purpose is a copy of all elements, in memory or in a file.
COPIES: frozenset[Any] = frozenset(
    {np.copy, np.copyto, np.save, np.savez, np.savez_compressed, np.savetxt}
)

# Functions that write to an argument: its position and its name.
WRITERS: dict[Any, tuple[int, str]] = {
    np.copyto: (0, "dst"),
    np.put: (0, "a"),
    np.place: (0, "arr"),
    np.putmask: (0, "a"),
    np.fill_diagonal: (0, "a"),
    np.put_along_axis: (0, "arr"),
}

# Results of these are read-only views of their argument in NumPy, too.
_READ_ONLY: frozenset[Any] = frozenset({np.diagonal, np.broadcast_to, np.broadcast_arrays})


class NumPyFunctions(Operators, ArrayFacts):
    """Gives a lazy array `__array_ufunc__`, `__array_function__` and the operators."""

    __slots__ = ()

    _is_narrowed: bool  # whether functions may pull it

    @abstractmethod
    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]: ...

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        written = inputs[:1] if method == "at" else ()
        refusal = ValueError if ufunc in (np.equal, np.not_equal) else TypeError
        function = getattr(ufunc, method)
        return _compute(f"np.{name}", function, inputs, options, written, refusal)

    def __array_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        arguments: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> Any:
        if function in FACTS_OF_ALL or (function is np.min_scalar_type and self.ndim > 0):
            return _call(function, _stand_in, arguments, options)
        if function in FACTS:
            arguments, options = _stand_in_first(arguments, options)
        if function in VIEWS:
            view = VIEWS[function](*arguments, **options)
            if view is not NotImplemented:
                return view
        return _compute(f"np.{function.__name__}", function, arguments, options)

    def astype(self, dtype: npt.DTypeLike, *, copy: bool = True) -> npt.NDArray[Any]:
        """NumPy's result for a view that an index has narrowed; TypeError for a whole tensor."""
        values: npt.NDArray[Any]
        values = _compute("astype", np.ndarray.astype, (self, dtype), {"copy": copy})
        return values

    def _operate(self, name: str, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
        # xarray's equals() would take a TypeError for "not equal".
        refusal = ValueError if function in (operator.eq, operator.ne) else TypeError
        return _compute(f"np.{name}", function, operands, {}, refusal=refusal)

    def _refuse_to_write(self, name: str) -> NoReturn:
        with shortened:
            raise TypeError(f"{name} cannot write into a LazyArray: it is a reader of its tensor")

    def __contains__(self, value: object) -> bool:
        found: bool = _compute("in", operator.contains, (self, value), {})
        return found


def _stand_in(array: NumPyFunctions) -> npt.NDArray[Any]:
    """An ndarray of the same shape and dtype with one element of memory."""
    return np.broadcast_to(np.zeros((), array.dtype), array.shape)


def _stand_in_first(
    arguments: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """The same arguments with a stand-in for the array that the function is asked about."""
    if arguments:
        first, *others = arguments
        return (_stand_in(first) if isinstance(first, NumPyFunctions) else first, *others), options
    return arguments, {
        name: _stand_in(value)
        if name in _FIRST_NAMES and isinstance(value, NumPyFunctions)
        else value
        for name, value in options.items()
    }


_FIRST_NAMES = frozenset({"a", "x", "arr", "prototype"})


def _compute(
    name: str,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    options: Mapping[str, Any],
    written: tuple[Any, ...] = (),
    refusal: type[Exception] = TypeError,
) -> Any:
    """Call a function that needs the elements."""
    with shortened:
        written += _written(function, arguments, options)
        for item in written:
            if isinstance(item, NumPyFunctions):
                item._refuse_to_write(name)

        def pull(array: NumPyFunctions) -> npt.NDArray[Any]:
            if not array._is_narrowed and array.size > 0 and function not in COPIES:
                raise refusal(_why_not(name, array, arguments, options))
            return np.asarray(array)

        return _call(function, pull, arguments, options)


def _why_not(
    name: str, array: NumPyFunctions, arguments: tuple[Any, ...], options: Mapping[str, Any]
) -> str:
    remedy = remedy_for(name, array.shape, arguments, options)
    return (
        f"{name} does not pull a whole LazyArray of shape {array.shape}, "
        f"{format_nbytes(array.nbytes)}: "
        + (f"{remedy}; or " if remedy else "")
        + "index what it needs (a[...] for everything), pull it with fetch() or numpy.asarray, or "
        "go through it with iter_chunks()"
        + ("" if remedy else "; stats() and overview() reduce it on the device")
    )


def _written(
    function: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[Any, ...]:
    """What a function writes to: its `out` and the argument that WRITERS names."""
    out = options.get("out")
    written = out if isinstance(out, tuple) else (out,)
    if function in WRITERS:
        position, name = WRITERS[function]
        written += (arguments[position] if len(arguments) > position else options.get(name),)
    return written


def _call(
    function: Callable[..., Result],
    pull: Callable[[NumPyFunctions], npt.NDArray[Any]],
    arguments: tuple[Any, ...],
    options: Mapping[str, Any],
) -> Result:
    """Call a function with each lazy array pulled, also in sequences, which become lists.

    What a function wrote into a pulled copy would be lost. So it gets the copies read-only, and
    NumPy raises ValueError.
    """
    pulled: list[npt.NDArray[Any]] = []

    def replaced(value: Any) -> Any:
        if isinstance(value, NumPyFunctions):
            pulled.append(pull(value))
            read_only = pulled[-1].view()
            read_only.flags.writeable = False
            return read_only
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            items = [replaced(item) for item in value]
            return tuple(items) if isinstance(value, tuple) else items
        if _is_odd_container(value) and any(isinstance(item, NumPyFunctions) for item in value):
            raise TypeError(_NO_SEQUENCE)
        return value

    arguments = tuple(map(replaced, arguments))
    options = {name: replaced(value) for name, value in options.items()}
    if not pulled and function not in FACTS:  # NumPy has found one where this does not look
        raise TypeError(_NOT_FOUND)
    result = function(*arguments, **options)
    if function not in _READ_ONLY:
        _make_writable(result, pulled)
    return result


_NOT_FOUND = (
    "a LazyArray is the like= of a call, which makes none (use gpufetch.to_device), or in an "
    "array of objects or a view of a dict: give a list of arrays"
)
_NO_SEQUENCE = "a LazyArray is in an array of objects or a view of a dict: give a list of arrays"


def _is_odd_container(value: Any) -> bool:
    """Whether NumPy looks for arrays in it, and what it then does with it is its own."""
    is_of_objects = isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 1
    return is_of_objects or isinstance(value, ValuesView)


def _make_writable(result: Any, pulled: Sequence[npt.NDArray[Any]]) -> None:
    """Make results that are views of pulled copies writable, as the copies are."""
    if isinstance(result, list | tuple):
        for item in result:
            _make_writable(item, pulled)
    elif isinstance(result, np.ndarray) and any(result.base is array for array in pulled):
        result.flags.writeable = True
