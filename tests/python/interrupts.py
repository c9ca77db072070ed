"""A timer whose signal interrupts system calls at 1 kHz, in test runs that ask for it."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

__all__ = ["LIBRARY", "VARIABLE", "start_if_asked"]

VARIABLE = "GPUFETCH_TEST_INTERRUPT"
LIBRARY = Path(os.environ.get("GPUFETCH_BUILD_DIR", "")) / "tests" / "c" / "libinterval_timer.so"


def start_if_asked() -> None:
    """Start tests/c/interval_timer.c here and in all processes to come, if VARIABLE is set.

    The programs that run pytest are not interrupted, as they would be by LD_PRELOAD.
    """
    if os.environ.get(VARIABLE):
        library = str(LIBRARY.resolve(strict=True))
        others = [path for path in os.environ.get("LD_PRELOAD", "").split(":") if path]
        os.environ["LD_PRELOAD"] = ":".join([*others, library])
        ctypes.CDLL(library)
