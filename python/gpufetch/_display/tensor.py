"""The display of a tensor: what it is, its layout, its statistics, and a picture of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from gpufetch._display.histogram import (
    bars_text,
    edges_text,
    envelope_svg,
    histogram_svg,
    is_logarithmic,
)
from gpufetch._display.html import escape, figure, frame, safely, table
from gpufetch._display.layout import layout_svg
from gpufetch._display.summary import Picture, Summary, summarize
from gpufetch._display.thumbnail import colour_limits, img_tag
from gpufetch._text import format_nbytes, print_lines
from gpufetch._view import DeviceView, View

__all__ = ["count_rows", "number_text", "picture_html", "print_tensor", "stats_rows", "tensor_html"]


class _Tensor(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def device(self) -> str: ...


def tensor_html(tensor: _Tensor, make_view: Callable[[], View], origin: str) -> str:
    """HTML of at most 64 KiB; `origin` says of what the tensor is a view. Raises nothing."""
    return safely(lambda: _tensor_html(tensor, make_view, origin), lambda: repr(tensor))


def _tensor_html(tensor: _Tensor, make_view: Callable[[], View], origin: str) -> str:
    summary = summarize(make_view, draws=True)
    facts: list[tuple[object, ...]] = [
        ("shape", tensor.shape),
        ("dtype", tensor.dtype),
        ("size", format_nbytes(tensor.nbytes)),
        ("device", tensor.device),
        ("layout", _layout_text(make_view)),
    ]
    columns = [table(fact for fact in facts if fact[1] != "")]
    if tensor.shape:
        columns.append(figure(layout_svg(tensor.shape), ""))
    columns += _read_html(summary)
    notes = "".join(f"<div class='gf-dim'>{escape(note)}</div>" for note in summary.notes)
    values = ""
    if summary.values:
        values = (
            "<details><summary class='gf-dim'>values</summary>"
            f"<pre>{escape(summary.values)}</pre></details>"
        )
    return frame(
        type(tensor).__name__,
        origin,
        f"<div class='gf-row'>{''.join(columns)}</div>",
        notes,
        values,
    )


def _read_html(summary: Summary) -> list[str]:
    """What was read of the tensor."""
    columns = []
    if summary.stats is not None:
        rows = stats_rows(summary.stats)
        if summary.sample > 1:
            rows.insert(0, ("read", f"sample of 1/{summary.sample}"))
        columns.append(table(rows))
    if summary.counts is not None and summary.stats is not None:
        log = ", log counts" if is_logarithmic(summary.counts) else ""
        caption = f"{edges_text(_ends(summary.stats))}{log}{_sample_text(summary)}"
        columns.append(figure(histogram_svg(summary.counts), caption))
    if summary.picture is not None:
        columns.append(picture_html(summary.picture))
    return columns


def picture_html(picture: Picture) -> str:
    """A picture of one axis or of two, with the values that its ends stand for."""
    if picture.high is not None:
        both = np.stack([picture.values, picture.high]).astype(np.float64)
        finite = both[np.isfinite(both)]
        limits = (float(finite.min()), float(finite.max())) if finite.size else None
        drawing = envelope_svg(picture.values, picture.high, limits)
        what = "lowest to highest"
    else:
        limits = colour_limits(picture.values)
        drawing = img_tag(picture.values, limits)
        what = "colours"
    caption = "no finite value" if limits is None else f"{what} {edges_text(limits)}"
    return figure(drawing, " ".join(filter(None, [picture.where.lstrip(", "), caption])))


def _ends(stats: dict[str, Any]) -> tuple[float, float]:
    return stats["finite_min"], stats["finite_max"]


def _sample_text(summary: Summary) -> str:
    return f", sample of 1/{summary.sample}" if summary.sample > 1 else ""


def _layout_text(make_view: Callable[[], View]) -> str:
    """How the elements lie in memory; "" where that is not known."""
    try:
        view = make_view()
    except Exception:
        return ""
    if not isinstance(view, DeviceView):
        return ""
    shape, strides, step = view.shape, view.strides, view.dtype.itemsize
    if 0 in shape or not shape or _is_packed(shape, strides, step):
        return "C order"
    if _is_packed(shape[::-1], strides[::-1], step):
        return "F order"
    return f"strides {strides}"


def _is_packed(shape: Sequence[int], strides: Sequence[int], step: int) -> bool:
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length > 1 and stride != step:
            return False
        step *= length
    return True


def number_text(value: float) -> str:
    """A number for people: integers in full, others with few digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def count_rows(stats: dict[str, Any]) -> list[tuple[str, str]]:
    """The counts of elements that are not finite, if there are any."""
    names = {"nan_count": "NaN", "posinf_count": "+inf", "neginf_count": "-inf"}
    return [(text, f"{stats[name]:,}") for name, text in names.items() if stats[name]]


def stats_rows(stats: dict[str, Any]) -> list[tuple[str, str]]:
    """Statistics by their names; extremes are of the finite elements where there are infinities."""
    rows = count_rows(stats)
    if stats["finite_count"]:
        is_all = not stats["posinf_count"] and not stats["neginf_count"]
        of = "" if is_all else " (finite)"
        rows = [
            (f"min{of}", number_text(stats["finite_min"])),
            (f"max{of}", number_text(stats["finite_max"])),
            ("mean", number_text(stats["mean"])),
            ("std", number_text(math.sqrt(stats["variance"]))),
            *rows,
        ]
    if stats["zero_count"]:
        rows.append(("zeros", f"{stats['zero_count']:,}"))
    return rows


def print_tensor(tensor: _Tensor, make_view: Callable[[], View], printer: Any) -> None:
    """Print what it is, a few values and the statistics; inside of a list or dict, what it is.

    Raises nothing: a display that raises hides the object.
    """
    lines = [repr(tensor)]
    if len(getattr(printer, "stack", ())) <= 1:
        with np.errstate(all="ignore"):
            lines += _read_lines(make_view)
    print_lines("\n".join(lines), printer)


def _read_lines(make_view: Callable[[], View]) -> list[str]:
    """What was read of the tensor, as text."""
    lines = []
    summary = summarize(make_view, draws=False)
    if summary.values:
        lines.append(summary.values)
    lines += summary.notes
    if summary.stats is not None:
        rows = ", ".join(f"{name} {text}" for name, text in stats_rows(summary.stats))
        lines.append(f"{rows}{_sample_text(summary)}")
    if summary.counts is not None and summary.stats is not None:
        low, high = _ends(summary.stats)
        lines.append(f"{low:.4g} {bars_text(summary.counts)} {high:.4g}")
    return lines
