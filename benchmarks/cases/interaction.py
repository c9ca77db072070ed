"""What one interaction with a large array costs: time, bytes off the device, and bytes to the page.

An image of 512² pixels of a square field, and a line of 512 pixels of many samples, are shown
whole, zoomed to an eighth, panned by half a view, and shown anew after all values have changed.
Contenders do what they do in a kernel until the bytes for the page are there; no page is needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import gpufetch as gf
from cases import Case
from cases.interaction_ours import IMAGES, LINES, VIEWER
from cases.interaction_peers import IMAGE_PEERS, LINE_PEERS, PIXELS, Window
from harness import MICROSECONDS, Array, Row, Session, Timings, load, make_row

ROUNDS = 5
TOLERANCE = 0.05  # of what is shown, between -1 and 1
CHANGED = "all values have changed"
# Windows in fractions of each axis: left and right, for images top and bottom alike.
STEPS: dict[str, Window] = {
    "whole": (0.0, 1.0),
    "zoom to an eighth": (0.4375, 0.5625),
    "pan by half a view": (0.5, 0.625),
    CHANGED: (0.5, 0.625),
}


@dataclass
class Log:
    """What the contenders have cost, by step and contender."""

    seconds: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: {step: {} for step in STEPS}
    )
    moved: dict[str, dict[str, Sequence[int]]] = field(
        default_factory=lambda: {step: {} for step in STEPS}
    )  # bytes off the device, and to the page
    failures: dict[str, str] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)


def cases(session: Session) -> list[Case]:
    return [
        (f"interaction {kind}", partial(interaction, session, kind)) for kind in ("image", "line")
    ]


def values_of(session: Session, kind: str) -> Array:
    """Waves from -1 to 1, in float32."""
    is_large = session.backend == "cuda"
    if kind == "image":
        side = 1024 if session.quick else 16384 if is_large else 8192
        row, column = np.ogrid[:side, :side]
        waves = np.sin(row * (40 / side)) * np.cos(column * (30 / side))
    else:
        count = 1 << 18 if session.quick else 1 << 28 if is_large else 1 << 24
        waves = np.sin(np.arange(count) * (60 / count))
    return waves.astype(np.float32)


def interaction(session: Session, kind: str) -> list[Row]:
    values = values_of(session, kind)
    put, pull, pull_is = transfers(session)
    tensors = [put(values), put(-values)]
    ours, peers = (IMAGES, IMAGE_PEERS) if kind == "image" else (LINES, LINE_PEERS)
    log = Log(absent=list(session.absent))
    for name, make in {**ours, **peers}.items():
        try:
            run(log, name, partial(make, pull), tensors, -values, 1 if session.quick else ROUNDS)
        except ImportError as error:
            log.absent.append(f"{name} ({error})")
        except Exception as error:  # a peer's failure of any kind must not end the run
            log.failures[name] = f"{type(error).__name__}: {error}"
    of = f"{kind} of {' × '.join(map(str, values.shape))}"
    return [row_of(session, f"interaction {of}: {step}", step, log, pull_is) for step in STEPS]


def transfers(session: Session) -> tuple[Callable[[Array], Any], Callable[[Any], Array], str]:
    """To the device and, all of a tensor, back, as one does it today."""
    for one in session.frameworks:
        if one.name in ("torch", "cupy"):
            return one.put, one.get, one.label
    return gf.to_device, gf.fetch, "gpufetch.fetch of all of it"


def run(
    log: Log, name: str, make: Callable[[Any], Any], tensors: list[Any], last: Array, rounds: int
) -> None:
    """The steps one after the other, `rounds` times; before that once, whose times do not count."""
    for number in range(-1, rounds):
        one = make(tensors[0])
        try:
            for step, window in STEPS.items():
                if step == CHANGED:
                    one.change(tensors[1])
                began = time.perf_counter()
                moved = one.show(window)
                took = time.perf_counter() - began
                if number >= 0:
                    log.seconds[step].setdefault(name, []).append(took)
                    log.moved[step][name] = moved
            check(one.shown(), last, STEPS[CHANGED])
        finally:
            one.close()


def check(shown: Array, values: Array, window: Window) -> None:
    """Compare what is shown in the end: an image's pixels, or a line's lowest and highest value."""
    places = window[0] + (np.arange(PIXELS) + 0.5) / PIXELS * (window[1] - window[0])
    at = [(places * length).astype(int) for length in values.shape]
    expected = values[np.ix_(*at)]
    if values.ndim == 1:
        expected = np.array([expected.min(), expected.max()])
    wrong = float(np.abs(np.asarray(shown, np.float64) - expected).mean())
    if not wrong < TOLERANCE:
        raise ValueError(f"what is shown differs from the values by {wrong:.3g}")


def row_of(session: Session, case: str, step: str, log: Log, pull_is: str) -> Row:
    moved = log.moved[step]
    others = [name for name in log.seconds[step] if name != VIEWER]
    row = make_row(
        session,
        case,
        Timings(log.seconds[step], log.failures),
        nbytes=0,
        unit=MICROSECONDS,
        gpufetch=VIEWER,
        peers=[*others, *log.failures],
        labels={name: f"{name}: {bytes_text(moved[name])}" for name in others},
        moved={"gpufetch" if name == VIEWER else name: list(n) for name, n in moved.items()},
        note=f"gpufetch is {VIEWER}: {bytes_text(moved[VIEWER])}. Those that are not gpufetch's "
        f"have the tensor on the host, by {pull_is}; {load()}",
    )
    return {**row, "absent": log.absent}


def bytes_text(moved: Sequence[int]) -> str:
    off, to_page = (f"{count:,}" for count in moved)
    return f"{off} bytes off the device, {to_page} to the page"
