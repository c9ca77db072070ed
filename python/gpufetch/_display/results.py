"""The displays of overviews, statistics and histograms, which are in host memory already."""

from __future__ import annotations

import dataclasses
from typing import Any

from gpufetch._display.histogram import bars_text, edges_text, histogram_svg, is_logarithmic
from gpufetch._display.html import figure, frame, safely, table
from gpufetch._display.layout import layout_svg
from gpufetch._display.summary import Picture
from gpufetch._display.tensor import count_rows, picture_html, stats_rows
from gpufetch._text import print_lines, table_lines

__all__ = [
    "histogram_html",
    "overview_html",
    "print_histogram",
    "print_stats",
    "stats_html",
]

_CELLS_MAX = 160  # along each axis of a picture: 34 KiB where they compress badly
_CELLS_MAX_OF_TWO = 112


def overview_html(overview: Any) -> str:
    """HTML for a `gpufetch.Overview`."""
    return safely(lambda: _overview_html(overview), lambda: repr(overview))


def _overview_html(overview: Any) -> str:
    values, high = overview.values, overview.high
    facts = [
        ("of", overview.source_shape),
        ("cells", values.shape),
        ("dtype", values.dtype),
        ("elements", f"{overview.count:,}"),
        *count_rows(vars(overview)),
    ]
    columns = [table(facts)]
    if values.ndim:
        columns.append(figure(layout_svg(values.shape), "cells"))
    columns += [picture_html(one) for one in _pictures(values, high)]
    return frame(
        type(overview).__name__,
        f"{overview.method} of each cell",
        f"<div class='gf-row'>{''.join(columns)}</div>",
    )


def _pictures(values: Any, high: Any) -> list[Picture]:
    """The cells, or their middle plane; of "minmax" the minima and the maxima."""
    if values.ndim == 0 or values.size == 0:
        return []
    if values.ndim == 1:
        step = -(-values.size // _CELLS_MAX)
        low = values[::step]
        return [Picture(low, low if high is None else high[::step], "")]
    middle = tuple(length // 2 for length in values.shape[:-2])
    where = f"[{', '.join([*map(str, middle), ':', ':'])}]" if middle else ""
    most = _CELLS_MAX if high is None else _CELLS_MAX_OF_TWO
    rows, columns = (-(-length // most) for length in values.shape[-2:])
    low = Picture(values[middle][::rows, ::columns], None, where)
    if high is None:
        return [low]
    low.where = f"minima {where}".rstrip()
    return [low, Picture(high[middle][::rows, ::columns], None, f"maxima {where}".rstrip())]


def stats_html(stats: Any) -> str:
    """HTML for a `gpufetch.Stats`."""
    return safely(lambda: _stats_html(stats), lambda: repr(stats))


def _stats_html(stats: Any) -> str:
    return frame("Stats", f"of {stats.count:,} elements", table(_stats_rows(stats)))


def _stats_rows(stats: Any) -> list[tuple[str, str]]:
    return stats_rows(dataclasses.asdict(stats))


def print_stats(stats: Any, printer: Any) -> None:
    """Print a `gpufetch.Stats`: a line for each; inside of a list or dict its plain repr."""
    if len(getattr(printer, "stack", ())) > 1:
        printer.text(repr(stats))
        return
    lines = table_lines(_stats_rows(stats)) if stats.count else []
    print_lines("\n".join([f"Stats of {stats.count:,} elements", *lines]), printer)


def histogram_html(histogram: Any) -> str:
    """HTML for a `gpufetch.Histogram`."""
    return safely(lambda: _histogram_html(histogram), lambda: repr(histogram))


def _histogram_html(histogram: Any) -> str:
    log = ", log counts" if is_logarithmic(histogram.counts) else ""
    drawing = figure(histogram_svg(histogram.counts), edges_text(histogram.edges) + log)
    rows = [("in bins", f"{int(histogram.counts.sum()):,}"), *_rest(histogram)]
    return frame(
        "Histogram",
        f"{len(histogram.counts):,} bins",
        f"<div class='gf-row'>{drawing}{table(rows)}</div>",
    )


def _rest(histogram: Any) -> list[tuple[str, str]]:
    """The elements that are in no bin."""
    names = {"nan_count": "NaN", "under_count": "under", "over_count": "over"}
    counts = {text: getattr(histogram, name) for name, text in names.items()}
    return [(text, f"{count:,}") for text, count in counts.items() if count]


def print_histogram(histogram: Any, printer: Any) -> None:
    """Print a `gpufetch.Histogram`: bars in a line, or its plain repr inside of a list or dict."""
    if len(getattr(printer, "stack", ())) > 1:
        printer.text(repr(histogram))
        return
    log = ", log counts" if is_logarithmic(histogram.counts) else ""
    rest = "".join(f", {text} {name}" for name, text in _rest(histogram))
    total = int(histogram.counts.sum())
    lines = [
        f"Histogram of {total:,} elements in {len(histogram.counts):,} bins{rest}{log}",
        f"{histogram.edges[0]:.4g} {bars_text(histogram.counts, 64)} {histogram.edges[-1]:.4g}",
    ]
    print_lines("\n".join(lines), printer)
