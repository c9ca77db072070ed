"""Tests in which something waits, once more while signals interrupt them at 1 kHz.

GPUFETCH_TEST_INTERRUPT=1 runs any others so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import interrupts
import pytest
from sanitizing import SANITIZED

TOPICS = ["futures", "comm", "connect", "hdf5"]  # in C it is sharing, the pool and the server, too
ONE_OF = {"connect": "3"}  # all with GPUFETCH_TEST_ALL: they take a minute


@pytest.mark.skipif(interrupts.VARIABLE in os.environ, reason="this run is interrupted already")
@pytest.mark.skipif(SANITIZED, reason="a sanitizer would take minutes")
@pytest.mark.skipif(
    not interrupts.LIBRARY.is_file(), reason="$GPUFETCH_BUILD_DIR has no libinterval_timer.so"
)
@pytest.mark.parametrize("topic", TOPICS)
def test_signals_change_nothing(topic: str) -> None:
    # pytest-xdist's are of this process alone: pytest-benchmark, where it is installed, ends a run
    # that has them.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    one_of = "1" if "GPUFETCH_TEST_ALL" in os.environ else ONE_OF.get(topic, "1")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            str(Path(__file__).with_name(f"test_{topic}.py")),
        ],
        env={**own, interrupts.VARIABLE: "1", "GPUFETCH_TEST_ONE_OF": one_of},
        capture_output=True,
        text=True,
        timeout=280,
    )
    if done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED:
        pytest.skip(f"no test of {topic} can run with this build")
    assert done.returncode == 0, done.stdout + done.stderr
