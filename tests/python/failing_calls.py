"""Programs in which system calls and allocations fail on request; see tests/c/failing_calls.c."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["needs_failing_calls", "run_with_failing_calls"]

LIBRARY = Path(os.environ.get("GPUFETCH_BUILD_DIR", "")) / "tests" / "c" / "libfailing_calls.so"

needs_failing_calls = pytest.mark.skipif(
    not LIBRARY.is_file(), reason="$GPUFETCH_BUILD_DIR has no libfailing_calls.so"
)

# What each program begins with. attempt(kinds, first, count, code, path, call) is how many calls
# failed, what `call` returned and what it raised, of which one is None. Of a negative code the
# process gets the signal instead.
_BEGINNING = """
import ctypes, errno, os, signal, sys
import h5py, numpy as np, gpufetch as gf

calls = ctypes.CDLL(os.environ["LD_PRELOAD"])
calls.failing_calls_set.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_long, ctypes.c_int,
                                    ctypes.c_char_p]
calls.failing_calls_end.restype = ctypes.c_long
calls.failing_calls_from.argtypes = [ctypes.c_char_p]
(ALLOCATION, MAPPING, READ, OPEN, WRITE, SYNC, NAME, OWN_THREAD,
 OTHER_THREADS) = (1 << i for i in range(9))
ALL = 1 << 40

def attempt(kinds, first, count, code, path, call):
    result = raised = None
    calls.failing_calls_set(kinds, first, count, code, path.encode())
    try:
        result = call()
    except Exception as error:
        raised = error
    return calls.failing_calls_end(), result, raised

"""


def run_with_failing_calls(program: str, *arguments: object, **environment: str) -> str:
    """Run `program` with `arguments` in sys.argv, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", _BEGINNING + program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment, "LD_PRELOAD": str(LIBRARY.resolve())},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
