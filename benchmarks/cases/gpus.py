"""Fetches from two GPUs: from each alone, and from both at once."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

import gpufetch as gf
from cases import Case
from harness import Array, Contender, Row, Session, make_row, measure, report
from peers import random_arrays, raw_copy

MIB, GIB = 1 << 20, 1 << 30
Calls = list[Callable[[], Array]]  # one for each device


def cases(session: Session) -> list[Case]:
    count = len(gf.info()["backends"][session.backend]["devices"])
    if count < 2:
        report(f"gpus: left out: it takes two GPUs, and there is {count}")
        return []
    nbytes, label = (4 * MIB, "4 MiB") if session.quick else (GIB, "1 GiB")
    return [(f"gpus {label}", partial(drain, session, label, nbytes))]


def peer(session: Session, arrays: Sequence[Array]) -> dict[str, Calls]:
    if session.backend == "host":
        return {"numpy copy": [partial(np.copy, array) for array in arrays]}
    if not any(one.name == "torch" for one in session.frameworks):
        return {}
    torch: Any = importlib.import_module("torch")
    tensors = [torch.from_numpy(array).to(f"cuda:{i}") for i, array in enumerate(arrays)]
    return {"torch": [partial(lambda x: x.cpu().numpy(), tensor) for tensor in tensors]}


def raw_calls(session: Session, arrays: Sequence[Array]) -> dict[str, Calls]:
    raw = [raw_copy(session.backend, array.nbytes, i) for i, array in enumerate(arrays)]
    there = [one.put(array) for one, array in zip(raw, arrays, strict=True)]
    calls = [partial(one.to_host, source) for one, source in zip(raw, there, strict=True)]
    return {raw[0].name: [partial(as_floats, call) for call in calls]}


def as_floats(call: Callable[[], Array]) -> Array:
    return call().view(np.float32)


def fetch_together(sources: Sequence[Any]) -> list[Array]:
    futures = [gf.fetch_async(source) for source in sources]
    return [future.result() for future in futures]


def drain(session: Session, label: str, nbytes: int) -> list[Row]:
    arrays = random_arrays(nbytes, 2)
    limit = raw_calls(session, arrays)
    peers = peer(session, arrays)
    sources = [
        gf.to_device(array, device=f"{session.backend}:{i}") for i, array in enumerate(arrays)
    ]

    def row(threads: ThreadPoolExecutor, chosen: list[int]) -> Row:
        """Time fetches from the GPUs: a thread for each in the peers, a future in gpufetch."""
        contenders = [
            Contender(
                name,
                lambda calls: list(threads.map(lambda call: call(), calls)),
                [[calls[i] for i in chosen]],
                answer=np.concatenate,
            )
            for name, calls in (peers | limit).items()
        ]
        sources_here = [sources[i] for i in chosen]
        contenders.append(
            Contender("gpufetch", fetch_together, [sources_here], answer=np.concatenate)
        )
        expected = np.concatenate([arrays[i] for i in chosen])
        timings = measure(contenders, [expected], rounds=6, budget_s=2.0)
        where = " and ".join(source.device for source in sources_here)
        return make_row(
            session,
            f"fetch {label} of float32 to NumPy from {where}",
            timings,
            nbytes=expected.nbytes,
            limit=next(iter(limit)),
            peers=list(peers),
        )

    with ThreadPoolExecutor(2) as threads:
        return [row(threads, chosen) for chosen in ([0], [1], [0, 1])]
