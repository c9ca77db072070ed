"""Device → NumPy, warm: each contender has fetched this size before."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import gpufetch as gf
from cases import Case
from harness import GIGABYTES, MICROSECONDS, Contender, Row, Session, make_row, measure
from peers import random_arrays, raw_copy, raw_fetch

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# Size, rounds, calls a turn, arrays to rotate among.
SIZES = [
    ("4 KiB", 4 * KIB, 20, 20, 16),
    ("1 MiB", MIB, 20, 10, 16),
    ("64 MiB", 64 * MIB, 5, 4, 4),
    ("1 GiB", GIB, 4, 2, 2),
]
QUICK_SIZES = [("4 KiB", 4 * KIB, 5, 10, 4), ("1 MiB", MIB, 4, 5, 4), ("16 MiB", 16 * MIB, 5, 1, 2)]


def cases(session: Session) -> list[Case]:
    sizes = QUICK_SIZES if session.quick else SIZES
    return [(f"fetch {size[0]}", partial(fetch, session, *size)) for size in sizes]


def fetch(
    session: Session, label: str, nbytes: int, rounds: int, calls: int, count: int
) -> list[Row]:
    expected = random_arrays(nbytes, count)
    inputs: dict[str, list[Any]] = {}
    contenders: list[Contender] = []
    for framework in session.frameworks:
        sources = [framework.put(array) for array in expected]
        contenders.append(Contender(framework.name, framework.get, sources, framework.fresh))
        if framework.name in ("torch", "cupy"):
            inputs[f"{framework.name} array"] = sources
    inputs["DeviceArray"] = [gf.to_device(array, device=session.device) for array in expected]
    if session.backend == "host":
        contenders.append(Contender("numpy copy", np.copy, expected))
    peers = [contender.name for contender in contenders]
    raw = raw_copy(session.backend, nbytes)
    contenders += [
        raw_fetch(raw, expected),
        *(Contender(f"gpufetch, {name}", gf.fetch, sources) for name, sources in inputs.items()),
    ]
    timings = measure(contenders, expected, rounds=rounds, calls=calls)
    return [
        make_row(
            session,
            f"fetch {label} of float32 to NumPy, from a {name}",
            timings,
            nbytes=nbytes,
            unit=MICROSECONDS if nbytes <= 64 * KIB else GIGABYTES,
            gpufetch=f"gpufetch, {name}",
            limit=raw.name,
            peers=peers,
        )
        for name in inputs
    ]
