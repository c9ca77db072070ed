"""Views and casts → NumPy, warm: tensors that are not contiguous, or have another dtype.

GB/s are of the result's bytes; the limit is the raw copy of as many. PyTorch and CuPy have views;
Numba copies a view's whole extent and JAX has none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

import gpufetch as gf
from cases import Case
from harness import Array, Contender, Framework, Row, Session, make_row, measure
from peers import raw_copy, raw_fetch

KIB, MIB = 1 << 10, 1 << 20
NBYTES, QUICK_NBYTES = 256 * MIB, 4 * MIB  # of the array that is viewed
VIEWERS = ("torch", "cupy")


@dataclass(frozen=True)
class Layout:
    """A view of an array of float32, as NumPy, CuPy and DeviceArray write it."""

    label: str
    columns: int  # of the array; its rows make up its size
    view: Callable[[Any], Any]
    dtype: str = "f4"  # of the array
    result: str | None = None  # of the result, where that is another
    viewers: tuple[str, ...] = VIEWERS


def rows_of(nbytes: int) -> Layout:
    """Rows of `nbytes`, each followed by as many bytes that are left out."""
    count = nbytes // 4
    label = f"rows of {nbytes} B" if nbytes < KIB else f"rows of {nbytes // KIB} KiB"
    return Layout(f"{label} at twice the pitch", 2 * count, lambda x: x[:, :count])


LAYOUTS = [
    *(rows_of(nbytes) for nbytes in (64, 256, KIB, 4 * KIB)),
    Layout("a transposed matrix", 4096, lambda x: x.T),
    Layout("a reversed matrix", 4096, lambda x: x[::-1, ::-1], viewers=("cupy",)),
    Layout("float32 as float16", 4096, lambda x: x, result="f2"),
    Layout("float16 as float32", 4096, lambda x: x, dtype="f2", result="f4"),
]


def cases(session: Session) -> list[Case]:
    nbytes = QUICK_NBYTES if session.quick else NBYTES
    return [
        (f"layout {layout.label}", partial(fetch_view, session, layout, nbytes))
        for layout in LAYOUTS
    ]


@lru_cache(maxsize=1)
def random_bytes(nbytes: int) -> Array:
    """Bytes that are positive normal numbers both as float32 and as float16."""
    words = np.random.default_rng(nbytes).integers(0, 1 << 16, nbytes // 2, np.uint16)
    return (words & np.uint16(0x3FF)) | np.uint16(0x3800)


def convert(framework: Framework, result: str | None) -> Callable[[Any], Array]:
    """Return the framework's way to NumPy, with its own cast on the device if need be."""
    if result is None:
        return framework.get
    if framework.name == "cupy":
        return lambda x: framework.get(x.astype(result))
    name = np.dtype(result).name
    return lambda x: framework.get(x.to(getattr(_torch(), name)))


def _torch() -> Any:
    import torch

    return torch


def fetch_view(session: Session, layout: Layout, nbytes: int) -> list[Row]:
    base = random_bytes(nbytes).view(layout.dtype).reshape(-1, layout.columns)
    viewed = layout.view(base)
    expected = np.ascontiguousarray(viewed, layout.result)
    raw = raw_copy(session.backend, expected.nbytes)
    contenders = [
        Contender(
            framework.name,
            convert(framework, layout.result),
            [layout.view(framework.put(base))],
        )
        for framework in session.frameworks
        if framework.name in layout.viewers
    ]
    if session.backend == "host":
        copy = partial(np.array, dtype=layout.result, order="C")
        contenders.append(Contender("numpy copy", copy, [viewed]))
    peers = [contender.name for contender in contenders]
    source = layout.view(gf.to_device(base, device=session.device))
    contenders += [
        raw_fetch(raw, [expected]),
        Contender("gpufetch", partial(gf.fetch, dtype=layout.result), [source]),
    ]
    timings = measure(contenders, [expected], rounds=6, budget_s=1.0)
    return [
        make_row(
            session,
            f"fetch {layout.label} to NumPy, {expected.nbytes // MIB} MiB from a DeviceArray",
            timings,
            nbytes=expected.nbytes,
            limit=raw.name,
            peers=peers,
        )
    ]
