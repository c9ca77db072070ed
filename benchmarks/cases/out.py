"""Device → the caller's own array (`out=`): one that was written before, and a fresh one.

The memory is pageable both times. An array that was never written has no pages yet: the kernel
maps them while the bytes arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import gpufetch as gf
from cases import Case, by_size_and_memory
from harness import Array, Contender, Row, Session, make_row, measure
from peers import random_arrays, raw_copy, raw_fetch

# The call with which a peer fills an array of the caller's, in words and as a function; jax has
# none.
PEERS: dict[str, tuple[str, Callable[[Any, Array], Any]]] = {
    "torch": ("from_numpy(out).copy_", lambda x, out: _torch().from_numpy(out).copy_(x).numpy()),
    "cupy": ("get(out=)", lambda x, out: x.get(out=out)),
    "numba": ("copy_to_host(out)", lambda x, out: x.copy_to_host(out)),
}

Into = tuple[Any, Array]  # a source, and the array to fill


def _torch() -> Any:
    import torch

    return torch


def cases(session: Session) -> list[Case]:
    return by_size_and_memory(session, "out", fetch_into, ("written before", "fresh"))


def contender(
    name: str, fill: Callable[[Any, Array], Any], sources: list[Any], like: Array, fresh: bool
) -> Contender:
    """Each contender has an array of its own, so that none passes with another's answer."""
    warm = np.zeros_like(like)
    warm.fill(1)  # zeros alone have no pages

    def prepare(source: Any) -> Into:
        return source, np.empty_like(like) if fresh else warm

    return Contender(name, lambda into: fill(*into), sources, prepare)


def fetch_into(session: Session, memory: str, label: str, nbytes: int, count: int) -> list[Row]:
    expected = random_arrays(nbytes, count)
    into = partial(contender, like=expected[0], fresh=memory == "fresh")
    frameworks = [one for one in session.frameworks if one.name in PEERS]
    contenders = [
        into(one.name, PEERS[one.name][1], [one.put(array) for array in expected])
        for one in frameworks
    ]
    if session.backend == "host":
        contenders.append(
            into("numpy copyto", lambda x, out: (np.copyto(out, x), out)[1], expected)
        )
    peers = [one.name for one in contenders]
    raw = raw_copy(session.backend, nbytes)
    contenders += [
        raw_fetch(raw, expected),
        into(
            "gpufetch",
            lambda x, out: gf.fetch(x, out=out),
            [gf.to_device(array, device=session.device) for array in expected],
        ),
    ]
    timings = measure(contenders, expected, rounds=8, budget_s=2.0)
    return [
        make_row(
            session,
            f"fetch {label} of float32 into an array (out=), {memory}",
            timings,
            nbytes=nbytes,
            limit=raw.name,
            peers=peers,
            labels={one.name: one.label_of(PEERS[one.name][0]) for one in frameworks},
        )
    ]
