"""The viewer over a slow line: how long until a view of tiles not seen before is complete.

tests/jupyterlab has the line, a proxy, and the program that pans in the page and takes the times.
"""

from __future__ import annotations

import os
import sys
from functools import partial

import numpy as np

from cases import Case
from cases.viewer_lab import PROGRAMS, seen_in_page, started_lab, why_not
from gpufetch import _core
from harness import MICROSECONDS, Array, Row, Session, Timings, make_row, report

NBYTES_PER_S, ROUND_TRIP_S = 10e6, 0.1
SIDE, REPEATED, TILE = 2048, 8, 256
ROUNDS, VIEWS = 2, 8
PLAIN = "plain tiles"
CELLS = (
    "import gpufetch as gf, numpy as np\nx = gf.to_device(np.load('field.npy'))",
    "gf.view(x, names=['x'])",
)


def cases(session: Session) -> list[Case]:
    reason = why_not(session)
    if reason:
        report(f"viewer is left out: {reason}")
        return []
    fields = {"a smooth field": smooth, "turbulence": turbulence}
    return [
        (f"viewer {name}", partial(viewer, session, name, make())) for name, make in fields.items()
    ]


def smooth() -> Array:
    """Waves of some hundred elements."""
    row, column = np.indices((SIDE, SIDE), np.float32)
    return (np.sin(row * 2 * np.pi / 512) * np.cos(column / 500)).astype(np.float32)


def turbulence() -> Array:
    """Noise whose power falls with the wave number as in a turbulent flow."""
    wave = np.hypot(np.fft.fftfreq(SIDE)[:, None], np.fft.rfftfreq(SIDE)[None, :]) * SIDE
    wave[0, 0] = np.inf
    noise = np.fft.rfft2(np.random.default_rng(15).normal(size=(SIDE, SIDE)))
    values = np.fft.irfft2(noise * wave ** (-11 / 6))
    return (values / values.std()).astype(np.float32)


def ratio(field: Array) -> float:
    """By how much tiles get smaller."""
    tiles = [
        np.ascontiguousarray(field[row : row + TILE, column : column + TILE])
        for row in range(0, SIDE, TILE)
        for column in range(0, SIDE, TILE)
    ]
    encoded = sum(len(_core.chunk_encode(t.tobytes(), t.dtype, t.shape)) for t in tiles)
    return field.nbytes / encoded


def viewer(session: Session, name: str, field: Array) -> list[Row]:
    """Pages with and without WebAssembly take turns."""
    seconds: dict[str, list[float]] = {"gpufetch": [], PLAIN: []}
    sys.path.append(str(PROGRAMS))
    from slow_line import slow_line

    folder = session.scratch / name.replace(" ", "-")
    folder.mkdir()
    np.save(folder / "field.npy", np.tile(field, (REPEATED, 1)))
    with (
        started_lab(folder, CELLS) as to_port,
        slow_line(to_port, NBYTES_PER_S, ROUND_TRIP_S) as port,
    ):
        for number in range(2 * ROUNDS):
            is_plain = number % 2 == 1
            plain = ["plain"] if is_plain else []
            seen = seen_in_page("slow_page.py", port, folder, VIEWS, *plain)
            if seen["tiles"] != ("plain" if is_plain else "encoded"):
                raise RuntimeError(f"tiles have travelled {seen['tiles']}: {seen['note']}")
            seconds[PLAIN if is_plain else "gpufetch"] += [ms / 1e3 for ms in seen["views"]]
    line = f"{NBYTES_PER_S / 1e6:.0f} MB/s, {ROUND_TRIP_S * 1e3:.0f} ms"
    return [
        make_row(
            session,
            f"viewer pans to a view of new tiles of {name}, {line}",
            Timings(seconds),
            nbytes=0,
            unit=MICROSECONDS,
            peers=[PLAIN],
            labels={PLAIN: "the same page without WebAssembly: plain tiles"},
            note=f"ratio of tiles of {TILE}²: {ratio(field):.2f}; load {os.getloadavg()[0]:.1f} of "
            f"{os.cpu_count()} CPUs",
        )
    ]
