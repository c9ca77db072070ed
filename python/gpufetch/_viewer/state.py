"""What a viewer shows: the page changes it, and it outlives the page."""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

from gpufetch._checks import check_int
from gpufetch._display.palettes import PALETTES

__all__ = ["SCALES", "checked_state", "first_state"]

SCALES = ("linear", "log", "symlog")
_FRACTION_MAX = 1e9  # of an axis, so far may one pan or zoom out


def first_state(leading: Sequence[int]) -> dict[str, Any]:
    """The state of a viewer that nobody has used.

    window : left, right, top and bottom of what is seen, in fractions of the axes; None for all.
    index : an integer for each leading axis.
    limits : the values of the first and the last colour; None for those of the page's choice.
    fills : whether the axes fill the space, each with a scale of its own.
    profile : two points, x and y each in fractions of the axes, between which values are drawn.
    """
    return {
        "window": None,
        "index": [0] * len(leading),
        "cmap": "viridis",
        "scale": "linear",
        "limits": [None, None],
        "fills": False,
        "histogram": False,
        "profile": None,
        "playing": False,
    }


def checked_state(value: Any, leading: Sequence[int]) -> dict[str, Any]:
    """A state with every member; ValueError or TypeError, which names the value, if it is none."""
    if not isinstance(value, dict):
        raise TypeError(f"state is {value!r:.80}, no object")
    state = first_state(leading)
    unknown = value.keys() - state.keys()
    if unknown:
        raise ValueError(f"state has the unknown member {sorted(map(repr, unknown))[0]:.80}")
    for name, member in value.items():
        state[name] = _CHECKS[name](name, member, leading)
    return state


def _numbers(name: str, value: Any, count: int, what: str) -> list[float]:
    if not isinstance(value, list | tuple) or len(value) != count:
        raise ValueError(f"{name} is {value!r:.80}: give {what}")
    return [_number(f"{name}[{i}]", member) for i, member in enumerate(value)]


def _number(name: str, value: Any) -> float:
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            number = float(value)
            if math.isfinite(number):
                return number
    raise ValueError(f"{name} is {value!r:.80}: give a finite number")


def _window(name: str, value: Any, leading: Sequence[int]) -> list[float] | None:
    if value is None:
        return None
    edges = _numbers(name, value, 4, "left, right, top and bottom")
    if max(map(abs, edges)) > _FRACTION_MAX or edges[0] >= edges[1] or edges[2] >= edges[3]:
        raise ValueError(f"{name} is {value!r:.120}: give left < right and top < bottom")
    return edges


def _index(name: str, value: Any, leading: Sequence[int]) -> list[int]:
    if not isinstance(value, list | tuple) or len(value) != len(leading):
        raise ValueError(f"{name} is {value!r:.80}: give {len(leading)} integers")
    pairs = enumerate(zip(value, leading, strict=True))
    return [check_int(number, f"{name}[{i}]", 0, length - 1) for i, (number, length) in pairs]


def _limits(name: str, value: Any, leading: Sequence[int]) -> list[float | None]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError(f"{name} is {value!r:.80}: give the lower and the upper one")
    low, high = (
        None if item is None else _number(f"{name}[{i}]", item) for i, item in enumerate(value)
    )
    if low is not None and high is not None and low > high:
        raise ValueError(f"{name} (vmin and vmax) is {[low, high]}: give the lower one first")
    return [low, high]


def _profile(name: str, value: Any, leading: Sequence[int]) -> list[float] | None:
    return None if value is None else _numbers(name, value, 4, "x and y of two points")


def _flag(name: str, value: Any, leading: Sequence[int]) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r:.80}: give true or false")
    return value


def _choice(choices: Sequence[str]) -> Callable[[str, Any, Sequence[int]], str]:
    def check(name: str, value: Any, leading: Sequence[int]) -> str:
        if value not in choices or not isinstance(value, str):
            raise ValueError(f"{name} is {value!r:.80}: give one of {', '.join(choices)}")
        return value

    return check


_CHECKS: dict[str, Callable[[str, Any, Sequence[int]], Any]] = {
    "window": _window,
    "index": _index,
    "cmap": _choice(tuple(PALETTES)),
    "scale": _choice(SCALES),
    "limits": _limits,
    "fills": _flag,
    "histogram": _flag,
    "profile": _profile,
    "playing": _flag,
}
