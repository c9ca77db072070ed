"""Benchmark cases. Each module has `cases(session)`, which gives labelled calls that give rows."""

from __future__ import annotations

from collections.abc import Callable

from harness import Row

Case = tuple[str, Callable[[], list[Row]]]
