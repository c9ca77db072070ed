"""Many small tensors → NumPy arrays, like a model's state_dict: one call against loops."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import gpufetch as gf
from cases import Case
from harness import MICROSECONDS, Array, Contender, Framework, Row, Session, make_row, measure
from peers import raw_copy, raw_fetch

KIB = 1 << 10
# Tensors, bytes each, rounds, trees to rotate among.
SIZES = [("2,000 × 16 KiB", 2000, 16 * KIB, 10, 3)]
QUICK_SIZES = [("200 × 16 KiB", 200, 16 * KIB, 3, 2)]

Tree = dict[str, Any]


def cases(session: Session) -> list[Case]:
    sizes = QUICK_SIZES if session.quick else SIZES
    return [(f"tree {size[0]}", partial(fetch_tree, session, *size)) for size in sizes]


def loop(framework: Framework, tree: Tree) -> Tree:
    get = framework.get
    return {name: get(tensor) for name, tensor in tree.items()}


def fresh(framework: Framework, tree: Tree) -> Tree:
    return {name: framework.fresh(tensor) for name, tensor in tree.items()}


def stacked(tree: Tree) -> Array:
    return np.stack(list(tree.values()))


def named(rows: Any) -> Tree:
    return {f"layer.{i}.weight": row for i, row in enumerate(rows)}


def fetch_tree(
    session: Session, label: str, tensors: int, nbytes: int, rounds: int, count: int
) -> list[Row]:
    rng = np.random.default_rng(tensors)
    expected: list[Array] = [
        rng.random((tensors, nbytes // 4), dtype=np.float32) for _ in range(count)
    ]
    inputs: dict[str, list[Tree]] = {}
    contenders: list[Contender] = []
    for framework in session.frameworks:
        trees = [named(map(framework.put, rows)) for rows in expected]
        contenders.append(
            Contender(
                framework.name,
                partial(loop, framework),
                trees,
                partial(fresh, framework),
                stacked,
            )
        )
        if framework.name in ("torch", "cupy"):
            inputs[f"{framework.name} arrays"] = trees
    inputs["DeviceArrays"] = [
        named(gf.to_device(row, device=session.device) for row in rows) for rows in expected
    ]
    if session.backend == "host":
        contenders.append(
            Contender("numpy copies", np.array, expected, answer=lambda result: result)
        )
    peers = [contender.name for contender in contenders]
    raw = raw_copy(session.backend, tensors * nbytes)
    contenders += [
        raw_fetch(raw, expected),
        *(
            Contender(f"gpufetch, {name}", gf.fetch, trees, answer=stacked)
            for name, trees in inputs.items()
        ),
    ]
    timings = measure(contenders, expected, rounds=rounds, calls=2)
    return [
        make_row(
            session,
            f"fetch a dict of {label} of float32 to NumPy, from {name}",
            timings,
            nbytes=tensors * nbytes,
            unit=MICROSECONDS,
            gpufetch=f"gpufetch, {name}",
            limit=raw.name,
            peers=peers,
            note=f"of the whole dict; gpufetch in one call, the peers in a loop of {tensors}; "
            "the limit is one copy of all the bytes",
        )
        for name in inputs
    ]
