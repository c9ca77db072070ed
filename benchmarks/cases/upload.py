"""NumPy array → new device tensor, from pageable and from page-locked memory; warm."""

from __future__ import annotations

from functools import partial

import numpy as np

import gpufetch as gf
from cases import Case, by_size_and_memory
from harness import Array, Contender, Row, Session, make_row, measure
from peers import random_arrays, raw_copy

CALLS = {
    "torch": "from_numpy().to",
    "cupy": "asarray",
    "numba": "to_device",
    "jax": "device_put",
}


def cases(session: Session) -> list[Case]:
    return by_size_and_memory(session, "upload", upload, ("pageable", "page-locked"))


def upload(session: Session, memory: str, label: str, nbytes: int, count: int) -> list[Row]:
    raw = raw_copy(session.backend, nbytes)
    sources: list[Array] = random_arrays(nbytes, count)
    raw.host.view(np.float32)[:] = sources[0]
    if memory == "page-locked":
        sources = [raw.host.view(np.float32)]
    contenders = [
        Contender(one.name, one.put, sources, answer=one.get) for one in session.frameworks
    ]
    if session.backend == "host":
        contenders.append(Contender("numpy copy", np.copy, sources))
    peers = [one.name for one in contenders]
    # The limit copies from one buffer to memory that exists, so its answer is always one array.
    target = raw.put(np.zeros(nbytes // 4, np.float32))
    check = raw_copy(session.backend, nbytes)
    contenders += [
        Contender(
            raw.name,
            raw.to_device,
            [target],
            answer=lambda there: check.to_host(there).view(np.float32),
            expected=raw.host.view(np.float32),
        ),
        Contender(
            "gpufetch", partial(gf.to_device, device=session.device), sources, answer=gf.fetch
        ),
    ]
    timings = measure(contenders, sources, rounds=8, budget_s=2.0)
    return [
        make_row(
            session,
            f"upload {label} of float32 from {memory} memory, to_device",
            timings,
            nbytes=nbytes,
            limit=raw.name,
            peers=peers,
            labels={one.name: one.label_of(CALLS[one.name]) for one in session.frameworks},
        )
    ]
