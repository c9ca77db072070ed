"""A progress bar that counts bytes, where tqdm is installed."""

from __future__ import annotations

import sys
import warnings
from typing import Any

__all__ = ["ProgressBar"]


class ProgressBar:
    """A tqdm bar, or nothing where none is wanted, tqdm is not installed, or there is no stderr.

    It is shown once `delay_s` seconds have passed, so that short work shows none.

    tqdm.auto chooses the notebook's bar, and the terminal's where ipywidgets is missing. Not for
    several threads at once.
    """

    def __init__(self, nbytes: int, *, is_wanted: bool = True, delay_s: float = 0.0) -> None:
        self._bar: Any = _tqdm_bar(nbytes, delay_s) if is_wanted else None

    def advance(self, nbytes: int) -> None:
        """Say how many more bytes are done."""
        if self._bar is not None:
            self._bar.update(nbytes)

    def close(self) -> None:
        """End the bar; may be called again."""
        if self._bar is not None:
            self._bar.close()


def _tqdm_bar(nbytes: int, delay_s: float) -> Any:
    options: dict[str, Any] = {
        "total": nbytes,
        "unit": "B",
        "unit_scale": True,
        "unit_divisor": 1024,
        "delay": delay_s,
    }
    if sys.stderr is None:  # as where it was closed, and in programs without a console
        return None
    try:
        from tqdm import std
    except ImportError:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tqdm.auto warns where ipywidgets is missing
            from tqdm.auto import tqdm
        return tqdm(**options)
    except ImportError:
        return std.tqdm(**options)
