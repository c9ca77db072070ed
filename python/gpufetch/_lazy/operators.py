"""The operators of an array whose elements are elsewhere: each is the operator of ndarray.

NumPy's ufuncs are not the same: `x ** 2` is numpy.square, `x ** 0.5` numpy.sqrt and `x ** -1`
numpy.reciprocal, whose dtypes and last bits differ from those of numpy.power. So there is no ufunc
here, as there is in numpy.lib.mixins.NDArrayOperatorsMixin.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

__all__ = ["Operators"]

_Unary: TypeAlias = Callable[[Any], Any]
_Binary: TypeAlias = Callable[[Any, Any], Any]


def _leaves_it_to(other: Any) -> bool:
    """Whether an operand says that it wants the operator itself, as ndarray asks it."""
    return getattr(other, "__array_ufunc__", ...) is None


def _unary(name: str, function: _Unary) -> _Unary:
    return lambda self: self._operate(name, function, (self,))


def _binary(name: str, function: _Binary, *, is_reflected: bool = False) -> _Binary:
    def operate(self: Operators, other: Any) -> Any:
        if _leaves_it_to(other):
            return NotImplemented
        operands = (other, self) if is_reflected else (self, other)
        return self._operate(name, function, operands)

    return operate


def _refused_in_place(name: str) -> Callable[[Any, Any], NoReturn]:
    def refuse(self: Operators, other: Any) -> NoReturn:
        self._refuse_to_write(f"np.{name}")

    return refuse


def _numeric(
    name: str, function: _Binary
) -> tuple[_Binary, _Binary, Callable[[Any, Any], NoReturn]]:
    """An operator, its reflected form and its form in place."""
    reflected = _binary(name, function, is_reflected=True)
    return _binary(name, function), reflected, _refused_in_place(name)


class Operators(ABC):
    """Gives a class that says how it computes the operators of ndarray."""

    __slots__ = ()

    @abstractmethod
    def _operate(self, name: str, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
        """Call an operator with elements in place of lazy arrays; `name` is for errors."""

    @abstractmethod
    def _refuse_to_write(self, name: str) -> NoReturn:
        """Raise the error for `name`, which would write to this array."""

    __lt__ = _binary("less", operator.lt)
    __le__ = _binary("less_equal", operator.le)
    __gt__ = _binary("greater", operator.gt)
    __ge__ = _binary("greater_equal", operator.ge)

    __eq__ = _binary("equal", operator.eq)
    __ne__ = _binary("not_equal", operator.ne)
    __hash__ = None  # type: ignore[assignment]

    __add__, __radd__, __iadd__ = _numeric("add", operator.add)
    __sub__, __rsub__, __isub__ = _numeric("subtract", operator.sub)
    __mul__, __rmul__, __imul__ = _numeric("multiply", operator.mul)
    __matmul__, __rmatmul__, __imatmul__ = _numeric("matmul", operator.matmul)
    __truediv__, __rtruediv__, __itruediv__ = _numeric("true_divide", operator.truediv)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _numeric("floor_divide", operator.floordiv)
    __mod__, __rmod__, __imod__ = _numeric("remainder", operator.mod)
    __divmod__, __rdivmod__ = _numeric("divmod", divmod)[:2]
    __pow__, __rpow__, __ipow__ = _numeric("power", operator.pow)
    __lshift__, __rlshift__, __ilshift__ = _numeric("left_shift", operator.lshift)
    __rshift__, __rrshift__, __irshift__ = _numeric("right_shift", operator.rshift)
    __and__, __rand__, __iand__ = _numeric("bitwise_and", operator.and_)
    __xor__, __rxor__, __ixor__ = _numeric("bitwise_xor", operator.xor)
    __or__, __ror__, __ior__ = _numeric("bitwise_or", operator.or_)

    __neg__ = _unary("negative", operator.neg)
    __pos__ = _unary("positive", operator.pos)
    __abs__ = _unary("absolute", operator.abs)
    __invert__ = _unary("invert", operator.invert)
