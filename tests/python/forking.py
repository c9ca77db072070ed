"""Forked children, each with a deadline."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import gpufetch as gf

REFUSAL = "forked: start workers with spawn or forkserver"


def in_child(work: Callable[[], Any], *, timeout: float = 30) -> None:
    """Run `work` in a forked child; AssertionError if it raises, dies or hangs there."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    deadline = time.monotonic() + timeout
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError(f"the child did not end in {timeout} s")
        time.sleep(0.001)
    assert os.waitstatus_to_exitcode(ended[1]) == 0


def refused(work: Callable[[], Any]) -> None:
    """Check that `work` raises what a forked child is told."""
    with pytest.raises(gf.Error, match=REFUSAL) as raised:
        work()
    assert raised.value.status == "GPUF_ERR_STATE"
