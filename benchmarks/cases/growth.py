"""How the cost of a fetch grows: with its bytes, from 4 KiB on, and with its tensors, from 1 on.

The largest tensors repeat a random tile of 256 MiB, and of their answers some million elements are
compared; a raw copy of more than 4 GiB is not made, since its page-locked memory takes minutes.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import gpufetch as gf
from cases import GIB, MIB, Case
from cases.tree import named, stacked
from harness import MICROSECONDS, Array, Contender, Row, Session, make_row, measure
from peers import raw_copy

KIB = 1 << 10
SIZES = [4 * KIB << 3 * power for power in range(9)]  # 4 KiB to 64 GiB
COUNTS = [1, 10, 100, 1000, 10000]
TILE_NBYTES, RAW_MAX_NBYTES, SAMPLES_MAX = 256 * MIB, 4 * GIB, 1 << 20
TENSOR_NBYTES = 16 * KIB


def cases(session: Session) -> list[Case]:
    sizes = SIZES[:2] if session.quick else [size for size in SIZES if size <= most(session)]
    counts = COUNTS[:2] if session.quick else COUNTS
    return [
        *((f"growth, {label(size)}", partial(bytes_of, session, size)) for size in sizes),
        *((f"growth, {count} × 16 KiB", partial(tensors_of, session, count)) for count in counts),
    ]


def most(session: Session) -> int:
    """The largest tensor in bytes: the arrays on the host take at most 60 % of its memory."""
    host = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    device = gf.info()["backends"][session.backend]["devices"][0]["total_nbytes"]
    return int(min(0.6 * host / (3 if session.backend == "host" else 1), 0.8 * device))


def label(nbytes: int) -> str:
    for size, unit in ((GIB, "GiB"), (MIB, "MiB")):
        if nbytes >= size:
            return f"{nbytes // size} {unit}"
    return f"{nbytes // KIB} KiB"


def put(session: Session, tile: Array, repeats: int) -> tuple[Any, dict[str, Callable[[Any], Any]]]:
    """The tile, repeated on the device, and the ways to fetch it."""
    ways: dict[str, Callable[[Any], Any]] = {"gpufetch": gf.fetch}
    for framework in session.frameworks:
        if framework.name == "torch":
            torch = importlib.import_module("torch")
            ways["torch"] = framework.get
            return torch.from_numpy(tile).to("cuda:0").repeat(repeats), ways
    return gf.to_device(np.tile(tile, repeats), device=session.device), ways


def bytes_of(session: Session, nbytes: int) -> list[Row]:
    tile = np.random.default_rng(3).random(min(nbytes, TILE_NBYTES) // 4, dtype=np.float32)
    source, ways = put(session, tile, nbytes // tile.nbytes)
    step = max(1, nbytes // 4 // SAMPLES_MAX) | 1  # odd, so that it meets all parts of the tile
    sample = tile[np.arange(0, nbytes // 4, step) % tile.size]
    contenders = [
        Contender(name, get, [source], answer=lambda array: np.ascontiguousarray(array[::step]))
        for name, get in ways.items()
    ]
    limit = None
    if nbytes <= RAW_MAX_NBYTES:
        raw = raw_copy(session.backend, nbytes)
        limit = raw.name
        whole = np.tile(tile, nbytes // tile.nbytes)
        contenders.append(
            Contender(
                raw.name,
                raw.to_host,
                [raw.put(whole)],
                answer=lambda host: np.ascontiguousarray(host.view(np.float32)[::step]),
            )
        )
    large = nbytes >= GIB
    timings = measure(
        contenders, [sample], rounds=3 if large else 10, calls=1 if large else 5, warm_up_rounds=1
    )
    return [
        make_row(
            session,
            f"growth: fetch {label(nbytes)} of float32 to NumPy",
            timings,
            nbytes=nbytes,
            unit=MICROSECONDS,
            limit=limit,
            peers=[name for name in ways if name != "gpufetch"],
            amount=nbytes,
        )
    ]


def tensors_of(session: Session, count: int) -> list[Row]:
    rows = np.random.default_rng(count).random((count, TENSOR_NBYTES // 4), dtype=np.float32)
    tree = named(gf.to_device(row, device=session.device) for row in rows)
    raw = raw_copy(session.backend, rows.nbytes)
    contenders = [
        Contender("gpufetch", gf.fetch, [tree], answer=stacked),
        Contender(
            raw.name,
            raw.to_host,
            [raw.put(rows)],
            answer=lambda host: host.view(np.float32).reshape(rows.shape),
        ),
    ]
    timings = measure(contenders, [rows], rounds=10, calls=2)
    return [
        make_row(
            session,
            f"growth: fetch a dict of {count:,} × 16 KiB of float32 to NumPy",
            timings,
            nbytes=rows.nbytes,
            unit=MICROSECONDS,
            limit=raw.name,
            note="the limit is one copy of all the bytes",
            amount=count,
        )
    ]
