"""The limits that the elements of a tensor give a norm, from reductions on its device."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.colors import Colormap

from gpufetch._lazy.array import LazyArray
from gpufetch._planes.plane import Plane
from gpufetch._planes.source import part_view
from gpufetch._view import View

__all__ = ["element_limits", "nearest_element"]

_SURVEY_CELLS = 1 << 18  # in which limits are looked for that statistics do not have
_BINS_MAX = 1 << 16
_WHERE = 4097  # places between two limits at which a norm's domain is looked for

_Inside = Callable[[npt.ArrayLike], npt.NDArray[np.bool_]]


class _Ends(NamedTuple):
    """The first and the last float64 of an interval, both in it."""

    low: float
    high: float


def element_limits(
    plane: Plane, norm: Any, cmap: Colormap, whole: LazyArray, needs: tuple[bool, bool]
) -> tuple[float, float]:
    """The lowest and the highest finite element of `whole` in the domain of the norm.

    `needs` says which of the two are wanted; the other may be outside of the domain.
    """
    if plane.kind == "label":
        return -0.5, cmap.N - 0.5
    if plane.kind == "phase":
        return -math.pi, math.pi
    view = part_view(whole._gpufetch_view(), plane.part)
    inside = _domain(norm)
    if plane.dtype.kind == "b" or 0 in view.shape:
        return _without_elements(inside, 0.0, 1.0)
    if plane.kind == "abs":
        low, high = 0.0, _highest_magnitude(view)
    else:
        stats = view.stats()
        if not stats["finite_count"]:
            return _without_elements(inside, 0.0, 1.0)
        low, high = float(stats["finite_min"]), float(stats["finite_max"])
    if inside is None or (_is_in(inside, low, needs[0]) and _is_in(inside, high, needs[1])):
        return low, high
    if plane.kind == "abs":
        found = _surveyed(view, inside)
    else:
        found = _in_domain(view, inside, _Ends(low, high), needs)
    return _without_elements(inside, low, high) if found is None else found


def _domain(norm: Any) -> _Inside | None:
    """Which values have a place in a norm that is made from a scale; None for other norms."""
    transform = getattr(norm, "_trf", None)
    if transform is None:
        return None

    def inside(values: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        with np.errstate(all="ignore"):
            placed = transform.transform(np.array(values, np.float64))
        return np.isfinite(np.ma.filled(placed, np.nan))

    return inside


def _is_in(inside: _Inside, value: float, needed: bool) -> bool:
    return not needed or bool(inside([value])[0])


def _without_elements(inside: _Inside | None, low: float, high: float) -> tuple[float, float]:
    """Limits where no element is in the domain, so that all are drawn as what has no place."""
    if inside is None or inside([low, high]).all():
        return low, high
    if inside([1.0, 10.0]).all():  # of a logarithm
        return 1.0, 10.0
    places = _places(low, high)
    places = places[inside(places)]
    if len(places) < 2:
        raise ValueError("no value has a place in this norm's scale: give vmin and vmax")
    return float(places[len(places) // 3]), float(places[2 * len(places) // 3])


def _places(low: float, high: float) -> npt.NDArray[np.float64]:
    """Where a domain is looked for: evenly between two limits, and at powers of 2 of both signs."""
    powers = np.ldexp(1.0, np.arange(-1074, 1024))
    even = low + (high / 2 - low / 2) * np.linspace(0, 2, _WHERE)
    return np.unique(np.concatenate([[low, 0.0, high], even, powers, -powers]))


def _domain_ends(inside: _Inside, ends: _Ends) -> _Ends | None:
    """The first and the last float64 between two which are in the domain, taken for an interval."""
    places = _places(*ends)
    places = places[(places >= ends.low) & (places <= ends.high)]
    found = np.flatnonzero(inside(places))
    if not found.size:
        return None
    first, last = int(found[0]), int(found[-1])
    low, high = float(places[first]), float(places[last])
    if first > 0:
        low = _edge(inside, low, float(places[first - 1]))
    if last < len(places) - 1:
        high = _edge(inside, high, float(places[last + 1]))
    return _Ends(low, high)


def _edge(inside: _Inside, good: float, bad: float) -> float:
    """The float64 next to `bad` up to which all from `good` on are in the domain."""
    while True:
        middle = good / 2 + bad / 2
        if not min(good, bad) < middle < max(good, bad):
            middle = math.nextafter(good, bad)
            if middle == bad:
                return good
        if inside([middle])[0]:
            good = middle
        else:
            bad = middle


def _in_domain(
    view: View, inside: _Inside, ends: _Ends, needs: tuple[bool, bool]
) -> tuple[float, float] | None:
    """The lowest and the highest element in the domain; None if there is none."""
    domain = _domain_ends(inside, ends)
    if domain is None:
        return None
    low, high = ends
    if needs[0] and domain.low > low:
        found = nearest_element(view, *domain)
        if found is None:
            return None
        low = found
    if needs[1] and domain.high < high:
        found = nearest_element(view, *domain, from_above=True)
        if found is None:
            return None
        high = found
    return low, high


def nearest_element(
    view: View, low: float, high: float, *, from_above: bool = False
) -> float | None:
    """The lowest element from `low` to `high`, or the highest one; None if there is none.

    The device counts elements in bins, then in bins of the first (or last) bin that has one, until
    float64 has few values there. That is a read for each 2**16 to which the range is narrowed.
    """
    is_found = False
    while True:
        if not math.isfinite(high - low):
            raise ValueError(f"limits between {low} and {high} are not found: give vmin and vmax")
        bins = _bins(low, high)
        if bins < 2:
            return _nearest_of_few(view, low, high, from_above)
        counts, edges, _ = view.histogram(bins, (low, high))
        filled = np.flatnonzero(counts)
        if not filled.size:
            return low if is_found else None  # what was there has changed
        is_found = True
        i = int(filled[-1 if from_above else 0])
        low = float(edges[i])
        high = high if i == bins - 1 else math.nextafter(float(edges[i + 1]), -math.inf)


def _bins(low: float, high: float) -> int:
    """How many bins of a range have edges of their own, in float64's rounding."""
    of_edges = (high - low) / (4 * math.ulp(max(abs(low), abs(high))))
    # The width is rounded, too, by much where it is subnormal, and edges are multiples of it.
    of_widths = math.sqrt((high - low) / (4 * math.ulp(0.0)))
    return int(min(_BINS_MAX, of_edges, of_widths))


def _nearest_of_few(view: View, low: float, high: float, from_above: bool) -> float | None:
    """As `nearest_element`, by halves of a range of few values."""
    if not _count(view, low, high):
        return None
    while low < high:
        middle = low + (high - low) / 2
        if not low <= middle < high:
            middle = low
        above = math.nextafter(middle, math.inf)
        is_above = _count(view, above, high) > 0 if from_above else not _count(view, low, middle)
        low, high = (above, high) if is_above else (low, middle)
    return low


def _count(view: View, low: float, high: float) -> int:
    """How many elements there are from `low` to `high`."""
    return _count_below(view, math.nextafter(high, math.inf)) - _count_below(view, low)


def _count_below(view: View, value: float) -> int:
    # What is under the only bin, however wide that is.
    end = min(value + max(1.0, abs(value)), sys.float_info.max)
    _, _, (_, under, _) = view.histogram(1, (value, end))
    return int(under)


def _surveyed(components: View, inside: _Inside) -> tuple[float, float] | None:
    """The lowest and the highest magnitude in the domain, of many elements root mean squares."""
    values, _, _ = components.overview(_survey_cells(components), "rms")
    wide = np.asarray(values, np.float64)
    magnitudes = np.hypot(wide[..., 0], wide[..., 1]).reshape(-1)
    magnitudes = magnitudes[np.isfinite(magnitudes)]
    magnitudes = magnitudes[inside(magnitudes)]
    return (float(magnitudes.min()), float(magnitudes.max())) if magnitudes.size else None


def _survey_cells(components: View) -> tuple[int, ...]:
    ndim = components.ndim - 1
    most = max(1, int(_SURVEY_CELLS ** (1 / max(1, ndim))))
    return (*(min(n, most) for n in components.shape[:-1]), 2)


def _highest_magnitude(components: View) -> float:
    """The highest magnitude, or, of many elements, up to sqrt(2) more than it.

    That is the highest that the extremes of both components in a cell would make.
    """
    cells = _survey_cells(components)
    low, high, _ = components.overview(cells, "minmax")
    if high is None:
        raise RuntimeError("an overview by minmax has no maxima")
    largest = np.maximum(np.abs(low.astype(np.float64)), np.abs(high.astype(np.float64)))
    bounds = np.hypot(largest[..., 0], largest[..., 1])
    found = float(np.max(bounds, where=np.isfinite(bounds), initial=0.0))
    if cells != components.shape and not np.isfinite(bounds).all():
        # Beside infinities or NaN in a cell there may be higher finite elements.
        return max(found, math.hypot(*(_largest(components[..., i]) for i in (0, 1))))
    return found


def _largest(view: View) -> float:
    stats = view.stats()
    if not stats["finite_count"]:
        return 0.0
    return max(abs(float(stats["finite_min"])), abs(float(stats["finite_max"])))
