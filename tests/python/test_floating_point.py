"""Results do not depend on the floating-point environment of the program that serves."""

from __future__ import annotations

import itertools
import platform
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jupyter_client")

from serving import needs_server, process

import gpufetch as gf

pytestmark = [
    needs_server,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="sets registers of x86-64"),
]

DECIMALS = "np.where(np.arange(600) % 9 == 0, np.nan, 0.01 * np.arange(600) - 2).reshape(20, 30)"

# The registers are changed by fesetenv: control word and MXCSR of the structure that it takes.
CHANGED = f"""
import ctypes
libm = ctypes.CDLL("libm.so.6")
kept = (ctypes.c_uint32 * 8)()
libm.fegetenv(kept)
kept[0] = kept[0] & ~0xffff | int(sys.argv[1], 16)
kept[7] = int(sys.argv[2], 16)
x = {DECIMALS}
y = x.astype(np.float32) * np.float32(1e-39)
small = gf.to_device(y)
libm.fesetenv(kept)
server = gf.serve("changed")
server.publish("x", x)
server.publish("small", small)
server.set("tenth", 0.1)
print("ready", flush=True)
step = 0
while True:
    step += 1
    server.step(step, 0.3)
    time.sleep(0.01)
"""

ENVIRONMENTS = {
    "nearest": ("37f", "1f80"),
    "upward": ("b7f", "5f80"),
    "downward": ("77f", "3f80"),
    "flushing": ("37f", "9fc0"),
    "trapping": ("372", "1900"),  # invalid, division by zero, overflow
}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_notebook_neither_ends_a_simulation_nor_gets_other_numbers(
    environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    x = eval(DECIMALS)
    arrays = {"x": x, "small": x.astype(np.float32) * np.float32(1e-39)}
    with process(CHANGED, *ENVIRONMENTS[environment]) as started:
        with gf.connect("changed") as connection:
            for at, name in itertools.product(("live", "step"), ("x", "small")):
                expected = arrays[name]
                connection.at = at
                remote = connection[name]
                assert remote.stats() == gf.stats(expected)
                found, wanted = remote.histogram(7), gf.histogram(expected, 7)
                np.testing.assert_array_equal(found.counts, wanted.counts)
                np.testing.assert_array_equal(found.edges, wanted.edges)
                cells, cells_wanted = remote.overview((4, 5)), gf.overview(expected, (4, 5))
                np.testing.assert_array_equal(cells.values, cells_wanted.values)
                np.testing.assert_array_equal(remote.fetch(), expected)
            assert connection.scalars["tenth"] == 0.1
        assert started.poll() is None
