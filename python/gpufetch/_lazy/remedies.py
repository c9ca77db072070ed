"""What the device computes in place of a NumPy function on a whole tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.lib.array_utils import normalize_axis_tuple

__all__ = ["method_remedy", "remedy_for"]

# Of all elements. The mean, the variance and the deviation are of the finite ones.
_STATS = {
    "mean": "stats().mean",
    "average": "stats().mean",
    "std": "stats().std",
    "var": "stats().variance",
    "min": "stats().min",
    "max": "stats().max",
    "ptp": "stats().max - a.stats().min",
    "sum": "stats().mean times .count",
    "count_nonzero": "stats().count - a.stats().zero_count",
    "any": "stats().zero_count < a.stats().count",
    "all": "stats().zero_count == 0",
    "isnan": "stats().nan_count",
    "isinf": "stats().posinf_count and .neginf_count",
    "isfinite": "stats().finite_count",
    "histogram": "histogram(bins, range)",
    "median": "histogram(bins), to the width of a bin,",
    "percentile": "histogram(bins), to the width of a bin,",
    "quantile": "histogram(bins), to the width of a bin,",
}

# Along some axes.
_OVERVIEWS = {"mean": "mean", "min": "min", "max": "max"}

# Other names of the same reductions.
_SAME = {
    "amin": "min",
    "amax": "max",
    "add.reduce": "sum",
    "minimum.reduce": "min",
    "maximum.reduce": "max",
    "fmin.reduce": "min",
    "fmax.reduce": "max",
    "logical_and.reduce": "all",
    "logical_or.reduce": "any",
    **{f"nan{name}": name for name in ("mean", "std", "var", "min", "max", "sum")},
    **{f"nan{name}": name for name in ("median", "percentile", "quantile")},
}

TO_HOST = frozenset({"asnumpy", "copy_to_host", "cpu", "detach", "get", "numpy", "to_numpy"})
"""What frameworks call the way to NumPy, or the beginning of it."""

_AXIS_FIRST = frozenset({"mean", "std", "var", "min", "max", "ptp", "sum", "any", "all"})


def _common_name(name: str) -> str:
    plain = name.removeprefix("np.")
    return _SAME.get(plain, plain)


def remedy_for(
    name: str, shape: tuple[int, ...], arguments: tuple[Any, ...], options: Mapping[str, Any]
) -> str | None:
    """What to call in place of a function that is refused; None where nothing takes its place."""
    common = _common_name(name)
    if common == "astype":
        return "gpufetch.fetch(a, dtype=...) converts on the device"
    positional = arguments[1] if common in _AXIS_FIRST and len(arguments) > 1 else None
    axis = options.get("axis", 0 if name.endswith(".reduce") else positional)
    if axis is None or len(shape) == 1:
        return f"a.{_STATS[common]} is computed on the device" if common in _STATS else None
    if common not in _OVERVIEWS:
        return None
    try:
        reduced = normalize_axis_tuple(axis, len(shape))
    except (TypeError, ValueError):
        return None
    cells = tuple(1 if i in reduced else length for i, length in enumerate(shape))
    return f'a.overview({cells}, "{_OVERVIEWS[common]}") is computed on the device'


def method_remedy(name: str) -> str | None:
    """What to call in place of a method of ndarray; None where nothing takes its place."""
    return f"{_STATS[name]} is computed on the device" if name in _STATS else None
