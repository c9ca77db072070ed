"""Signals in tests: Ctrl-C at a chosen operation, and a timer that interrupts system calls."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["LIBRARY", "VARIABLE", "interrupted_at", "interruptions", "start_if_asked"]

VARIABLE = "GPUFETCH_TEST_INTERRUPT"
_FOLDER = Path(os.environ.get("GPUFETCH_BUILD_DIR", "")) / "tests" / "c"
LIBRARY = _FOLDER / "libinterval_timer.so"


def start_if_asked() -> None:
    """Start tests/c/interval_timer.c here and in all processes to come, if VARIABLE is set.

    The programs that run pytest are not interrupted, as they would be by LD_PRELOAD.
    """
    if os.environ.get(VARIABLE):
        library = str(LIBRARY.resolve(strict=True))
        others = [path for path in os.environ.get("LD_PRELOAD", "").split(":") if path]
        os.environ["LD_PRELOAD"] = ":".join([*others, library])
        ctypes.CDLL(library)


def interrupted_at(step: int, call: Callable[[], object], *places: str) -> tuple[bool, int]:
    """Run `call`, with Ctrl-C at one operation, and say whether it was interrupted.

    Counted are the operations, from 1, in functions whose FILE:FUNCTION has one of `places` in it;
    also returns how many there were. As an interactive session does, `sys.last_value` keeps the
    exception with its frames until the next one.
    """
    library = ctypes.PyDLL(str((_FOLDER / "libinterrupt_at.so").resolve(strict=True)))
    library.interrupt_at_stop.restype = ctypes.c_longlong
    names = (ctypes.c_char_p * (len(places) + 1))(*map(os.fsencode, places), None)
    count = 0
    before = sys.gettrace()
    try:
        try:
            library.interrupt_at_start(names, ctypes.c_longlong(step))
            call()
        finally:
            count = library.interrupt_at_stop()
    except KeyboardInterrupt as error:
        sys.last_value = error
        return True, count
    finally:
        sys.settrace(before)
    return False, count


def interruptions(call: Callable[[], object], *places: str) -> Iterator[int]:
    """Run `call` with Ctrl-C at each operation in turn, and yield its number after each time."""
    _, count = interrupted_at(0, call, *places)
    assert count > 0
    for step in range(1, count + 1):
        interrupted_at(step, call, *places)
        yield step
    sys.last_value = None
