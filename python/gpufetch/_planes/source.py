"""What a plot or a viewer is of: a tensor, and where its axes lie if xarray says so."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpufetch._lazy.array import LazyArray, lazy
from gpufetch._view import View

__all__ = ["EPSILON", "Axis", "Source", "indices_between", "is_labelled", "part_view"]

EPSILON = 1e-6  # of an index: places that are rounded do not take in one more

_PARTS = ("abs", "phase", "real", "imag")  # what is shown of complex elements
_STEPS_MAX = 0.01  # coordinates that are further from evenly spaced ones, in steps, are uneven


class Axis(NamedTuple):
    """The coordinates of the first and the last index along an axis, and what to call it.

    `first` is None where there are no coordinates that are evenly spaced.
    """

    label: str
    first: float | None
    last: float

    def ends(self, length: int) -> tuple[float, float]:
        """Coordinates of the first and last index; the indices where there are none."""
        return (0.0, length - 1.0) if self.first is None else (self.first, self.last)


def is_labelled(x: Any) -> bool:
    """Whether it has names and coordinates, as an xarray.DataArray."""
    return all(hasattr(x, name) for name in ("dims", "coords", "attrs", "data"))


class Source:
    """A tensor to be shown; immutable.

    Attributes
    ----------
    array
        The LazyArray of it.
    axes
        For each of its axes what xarray says of it; the label is "" for an array without names.
    label
        What the values are called, "" if that is not known.
    """

    def __init__(self, x: Any) -> None:
        self.axes: tuple[Axis, ...]
        self.label = ""
        if is_labelled(x):
            self.array: LazyArray = lazy(x.data)
            self.axes = tuple(_axis(x, dim) for dim in x.dims)
            self.label = _with_unit(str(x.name or ""), x.attrs)
        else:
            self.array = lazy(x)
            self.axes = tuple(Axis("", None, 0.0) for _ in self.array.shape)

    def view(self) -> View:
        """A view for one read, to be made by the thread that draws.

        The framework orders that read after the work that this thread has enqueued.
        """
        return self.array._gpufetch_view()


def _with_unit(name: str, attributes: Any) -> str:
    unit = attributes.get("units")
    return f"{name} ({unit})" if unit else name


def _axis(x: Any, dim: Any) -> Axis:
    label = str(dim)
    coordinate = x.coords.get(dim)
    if coordinate is None:
        return Axis(label, None, 0.0)
    by_index = Axis(f"{label} (index)", None, 0.0)
    if coordinate.ndim != 1 or coordinate.dtype.kind not in "iuf":
        return by_index
    values = np.asarray(coordinate.values, np.float64)
    if len(values) < 2 or not np.isfinite(values).all():
        return by_index
    # Positions, not steps: small differences of steps add up.
    even = np.linspace(values[0], values[-1], len(values))
    step = abs(values[-1] - values[0]) / (len(values) - 1)
    if step == 0 or np.abs(values - even).max() > _STEPS_MAX * step:
        return by_index
    return Axis(_with_unit(label, coordinate.attrs), float(values[0]), float(values[-1]))


def part_view(view: View, part: str | None, allowed: tuple[str, ...] = _PARTS) -> View:
    """The real or imaginary part of a complex view; both along a last axis for "abs" and "phase".

    A real view is itself. ValueError for a part that is not one of those that are allowed.
    """
    if view.dtype.kind != "c":
        if part is not None:
            raise ValueError(f'part is {part!r}, but {view.dtype} is real: leave out "part"')
        return view
    if part not in allowed:
        choices = ", ".join(f'"{name}"' for name in allowed)
        raise ValueError(f"part is {part!r}; for {view.dtype} it must be one of {choices}")
    components = view.components()
    if part in ("abs", "phase"):
        return components
    return components[..., 0 if part == "real" else 1]


def indices_between(low: float, high: float, length: int) -> tuple[int, int]:
    """The first index of an axis that two places have between them, and the one behind the last.

    An index is between its own number and the next. Where there is none, it is not below the other.
    """
    # Compared before they are rounded: far away they are beyond every integer.
    first = int(max(0.0, low + EPSILON)) if low < length else length
    last = length - int(max(0.0, length - high + EPSILON)) if high > 0 else 0
    return first, last
