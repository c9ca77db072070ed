"""What a display reads of a tensor: statistics, a histogram, a picture and a few values.

All of it is reduced where the tensor is: at most 256 KiB move. Where no GPU reduces, a tensor above
a limit is sampled in steps.
"""

from __future__ import annotations

import atexit
import math
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gpufetch._deadline import until
from gpufetch._display.settings import settings
from gpufetch._display.values_text import values_text
from gpufetch._threads import Workers
from gpufetch._view import DeviceView, View

__all__ = ["Picture", "Summary", "bins_of", "sample", "summarize", "within_deadline"]

_T = TypeVar("_T")

_CELLS_MAX = 160  # along each axis of a picture: 200 KiB of float64 at most
_CELLS_MIN = 40  # along the shorter axis of a long picture
_POINTS_MAX = 200
_BINS = 48
_CHANNELS_MAX = 4  # a shorter last axis is not one of a picture
_DEADLINE_S = 1.0

_workers = Workers(4)
atexit.register(_workers.end)


@dataclass
class Picture:
    """Cells of one axis (lowest and highest values) or of two; `where` says what it is of."""

    values: npt.NDArray[Any]
    high: npt.NDArray[Any] | None
    where: str


@dataclass
class Summary:
    """What could be read; `notes` say why the rest could not.

    `sample` is n where the statistics are of one of n elements.
    """

    stats: dict[str, Any] | None = None
    counts: npt.NDArray[Any] | None = None
    picture: Picture | None = None
    values: str = ""
    sample: int = 1
    notes: list[str] = field(default_factory=list)


def summarize(make_view: Callable[[], View], *, draws: bool) -> Summary:
    """Read what a display shows; `draws` asks for a picture, too. Raises nothing."""
    summary = Summary()
    try:
        view = make_view()
        if not settings.reads_device:
            summary.notes.append(
                "nothing was read: %config GpufetchMagics.displays_read = True shows values"
            )
        elif isinstance(view, DeviceView):
            _fill(summary, view, draws)
        elif view.is_read_at_steps:
            summary.notes.append(
                "not read, since each read waits for a step: call stats() or fetch(), or set "
                'at = "live" on the connection'
            )
        else:
            return within_deadline(lambda: _filled(view, draws))
    except Exception as error:
        summary.notes.append(_reason(error))
    return summary


def within_deadline(work: Callable[[], _T]) -> _T:
    """What `work` gives on another thread; TimeoutError if that takes a second.

    Its requests to other processes are given up then, too.
    """
    deadline = time.monotonic() + _DEADLINE_S
    answers: queue.SimpleQueue[tuple[_T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        if time.monotonic() >= deadline:  # every thread was busy: nobody waits any more
            return
        try:
            answers.put((until(deadline, work), None))
        except BaseException as error:
            answers.put((None, error))

    _workers.start(run)
    try:
        answer, error = answers.get(timeout=_DEADLINE_S)
    except queue.Empty:
        raise TimeoutError(
            f"no answer within {_DEADLINE_S:g} s; a display waits no longer"
        ) from None
    if error is not None:
        raise error
    return answer  # type: ignore[return-value]


def _reason(error: Exception) -> str:
    return f"values not readable: {type(error).__name__}: {' '.join(str(error).split())}"


def _filled(view: View, draws: bool) -> Summary:
    summary = Summary()
    try:
        _fill(summary, view, draws)
    except Exception as error:
        summary.notes.append(_reason(error))
    return summary


def _fill(summary: Summary, view: View, draws: bool) -> None:
    summary.values = values_text(view)
    if view.size == 0:
        return
    if view.dtype.kind == "c":
        summary.notes.append(f"{view.dtype} is complex, of which there are no statistics")
        return
    sampled, summary.sample = sample(view)
    summary.stats = sampled.stats()
    bins = bins_of(summary.stats, view.dtype, _BINS)
    if bins is not None:
        summary.counts, _, _ = sampled.histogram(*bins)
    if draws:
        summary.picture = _picture(view)


def sample(view: View) -> tuple[View, int]:
    """A view of few enough elements to read, and of how many of them it has one."""
    most = settings.host_nbytes
    if view.device.startswith("cuda") or view.nbytes <= most:
        return view, 1
    whole = view.size
    key = [slice(None)] * view.ndim
    nbytes = view.nbytes
    for axis in sorted(range(view.ndim), key=lambda i: -view.shape[i]):
        # An odd step, so that it does not fall in with even ones of the values.
        step = min(-(-nbytes // most) | 1, view.shape[axis])
        key[axis] = slice(None, None, step)
        nbytes = nbytes // view.shape[axis] * -(-view.shape[axis] // step)
        if nbytes <= most:
            break
    sampled = view[tuple(key)]
    return sampled, max(1, round(whole / sampled.size))


def bins_of(
    stats: dict[str, Any], dtype: np.dtype[Any], most: int
) -> tuple[int, tuple[float, float]] | None:
    """How many bins, at most `most`, and their range, for a histogram of the finite elements.

    None where there is nothing to count, or the elements are too close together.
    """
    if not stats["finite_count"]:
        return None
    low, high = stats["finite_min"], stats["finite_max"]
    bins = most
    if dtype.kind in "biu":  # bins of as many integers each, so that all have the same chance
        width = -(-(high - low + 1) // most)
        bins = -(-(high - low + 1) // width)
        low, high = low - 0.5, low + bins * width - 0.5
    low, high = float(low), float(high)
    if low < high and math.isfinite(high - low) and (high - low) / bins > math.ulp(max(-low, high)):
        return bins, (low, high)
    return None


def _plane_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes that a picture shows: the last two, or the longest if these are of channels."""
    axes = [axis for axis, length in enumerate(shape) if length > 1] or list(range(len(shape)))
    if len(axes) > 2 and min(shape[axis] for axis in axes[-2:]) <= _CHANNELS_MAX:
        axes = sorted(sorted(axes, key=lambda axis: -shape[axis])[:2])
    return tuple(axes[-2:])


def _picture(view: View) -> Picture | None:
    if view.ndim == 0 or view.size == 1:
        return None
    axes = _plane_axes(view.shape)
    key = tuple(slice(None) if i in axes else n // 2 for i, n in enumerate(view.shape))
    where = ", ".join(":" if isinstance(item, slice) else str(item) for item in key)
    where = "" if len(axes) == view.ndim else f"[{where}]"
    plane = view[key]
    if len(axes) == 1:
        plane, step = sample(plane)
        low, high, _ = plane.overview((min(plane.size, _POINTS_MAX),), "minmax")
        return Picture(low, high, where + (f", each {step}th" if step > 1 else ""))
    is_sampled = not view.device.startswith("cuda") and plane.nbytes > settings.host_nbytes
    method = "first" if is_sampled else "mean"
    values, _, _ = plane.overview(_cells(plane.shape), method)
    return Picture(values, None, where + (", sampled" if is_sampled else ""))


def _cells(shape: tuple[int, ...]) -> tuple[int, ...]:
    scale = min(1.0, _CELLS_MAX / max(shape))
    return tuple(min(n, max(round(n * scale), _CELLS_MIN)) for n in shape)
