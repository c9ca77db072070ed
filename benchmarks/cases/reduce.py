"""Statistics, histogram and overviews of a large tensor, computed where it lies.

GB/s are of the tensor's bytes, however often a contender reads them. The tensor repeats one random
tile of up to 256 MiB, so that NumPy can compute the expected results from the tile.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import gpufetch as gf
from cases import Case
from harness import GIGABYTES, MICROSECONDS, Array, Contender, Row, Session, make_row, measure
from peers import bandwidths

GIB = 1 << 30
MAX_NBYTES, MAX_TILE_NBYTES = 32 * GIB, 256 << 20
BINS, RANGE = 64, (0.0, 1.0)
TORCH_PART = 1 << 26  # elements in one call of torch.histc, whose counts are float32

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Tensor:
    """The tensor, in one dimension, as each contender holds it; "gpufetch" is one of them."""

    tile: Array
    views: dict[str, Any]

    @property
    def count(self) -> int:
        return int(self.views["gpufetch"].shape[0])

    @property
    def label(self) -> str:
        nbytes = 4 * self.count
        return f"{nbytes // GIB} GiB" if nbytes >= GIB else f"{nbytes >> 20} MiB"


@dataclass(frozen=True)
class Job:
    """A reduction of the tensor in `shape`: gpufetch's call, and what peers do for it."""

    case: str
    shape: Shape
    gpufetch: Callable[[Any], Any]
    peer: Callable[[Any, Any], Any]  # module, tensor -> array, or arrays to stack
    expected: Array
    rtol: float = 0.0  # of sums, which each adds up in its own order
    unit: str = GIGABYTES
    note: str | None = None


def cases(session: Session) -> list[Case]:
    return [("reduce", partial(reduce, session))]


def reduce(session: Session) -> list[Row]:
    tensor = make_tensor(session)
    edge = 1 << 7 if session.quick else 1 << 11
    rows = 1 << 10 if session.quick else 1 << 16
    matrix = (rows, tensor.count // rows)
    volume = (tensor.count // edge**2, edge, edge)
    methods = ["mean", "rms", "min", "max", "minmax", "first"]
    jobs = [stats_job(tensor), histogram_job(tensor)]
    jobs += [overview_job(tensor, matrix, (rows // 64, rows // 64), method) for method in methods]
    cells = tuple(length // 16 for length in volume)
    jobs += [overview_job(tensor, volume, cells, method) for method in ("mean", "minmax")]
    raw = bandwidths(tensor.views, tensor.tile.max())
    return [measured(session, tensor, job, raw) for job in jobs]


def make_tensor(session: Session) -> Tensor:
    """The tensor takes at most a quarter of the device's memory: a peer may need as much again."""
    device = gf.info()["backends"][session.backend]["devices"][0]
    nbytes = 4 << 20 if session.quick else MAX_NBYTES
    while nbytes > device["total_nbytes"] // 4:
        nbytes //= 2
    tile_nbytes = min(MAX_TILE_NBYTES, nbytes // 4)
    tile = np.random.default_rng(5).random(tile_nbytes // 4, dtype=np.float32)
    repeats = nbytes // tile_nbytes
    names = [one.name for one in session.frameworks]
    if session.backend == "host":
        array = np.tile(tile, repeats)
        return Tensor(tile, {"numpy": array, "gpufetch": gf.to_device(array, device="host:0")})
    if "torch" in names:
        made = importlib.import_module("torch").from_numpy(tile).to("cuda:0").repeat(repeats)
    elif "cupy" in names:
        made = importlib.import_module("cupy").tile(tile, repeats)
    else:
        raise RuntimeError("needs torch or cupy, to make the tensor and to compare with")
    views = {name: gf.convert(made, name, copy=False) for name in names if name in TAKERS}
    return Tensor(tile, {**views, "gpufetch": made})


# --- The reductions -----------------------------------------------------------


def extremes(stats: gf.Stats) -> Array:
    return np.array([stats.min, stats.max], np.float32)


def peer_stats(module: Any, x: Any) -> Any:
    """The extremes. Mean and variance are computed too, and dropped."""
    if module.__name__ == "torch":
        module.var_mean(x)
        return module.aminmax(x)
    x.mean(), x.var()
    return x.min(), x.max()


def stats_job(tensor: Tensor) -> Job:
    expected = np.array([tensor.tile.min(), tensor.tile.max()])
    return Job(
        f"stats of {tensor.label} of float32",
        (tensor.count,),
        lambda x: extremes(gf.stats(x)),
        peer_stats,
        expected,
        note="peers: extremes, mean and variance, in more than one read",
    )


def peer_histogram(module: Any, x: Any) -> Any:
    if module.__name__ == "torch":
        parts = x.split(TORCH_PART)
        return sum(module.histc(part, BINS, *RANGE).long() for part in parts)
    return module.histogram(x, BINS, RANGE)[0]


def histogram_job(tensor: Tensor) -> Job:
    counts = np.histogram(tensor.tile, BINS, RANGE)[0].astype(np.int64)
    return Job(
        f"histogram of {tensor.label} of float32 in {BINS} bins",
        (tensor.count,),
        lambda x: gf.histogram(x, BINS, RANGE).counts.astype(np.int64),
        peer_histogram,
        counts * (tensor.count // tensor.tile.size),
        note=f"torch.histc in parts of {TORCH_PART} elements: it counts in float32",
    )


def by_cell(x: Any, cells: Shape) -> tuple[Any, Shape]:
    """Split each axis of x in two, (cell, index in the cell); also return the latter axes."""
    split = [part for n, m in zip(x.shape, cells, strict=True) for part in (m, n // m)]
    return x.reshape(split), tuple(range(1, len(split), 2))


def peer_overview(module: Any, x: Any, cells: Shape, method: str) -> Any:
    x, axes = by_cell(x, cells)
    if method == "mean":
        return x.mean(axes)
    if method == "rms":
        return module.sqrt(module.square(x).mean(axes))
    if method == "first":
        return x[(slice(None), 0) * len(cells)] + 0  # a copy
    results = [getattr(module, f"a{one}")(x, axes) for one in ("min", "max") if one in method]
    return results[0] if len(results) == 1 else tuple(results)


def overview_job(tensor: Tensor, shape: Shape, cells: Shape, method: Any) -> Job:
    repeats = tensor.count // tensor.tile.size
    part, cells_of_part = ((axes[0] // repeats, *axes[1:]) for axes in (shape, cells))
    of_tile = stacked(peer_overview(np, tensor.tile.reshape(part), cells_of_part, method))
    times = [1] * of_tile.ndim
    times[-len(cells)] = repeats
    first = method == "first"
    return Job(
        f"overview ({method}) of {tensor.label} of float32, {text(shape)} in {text(cells)} cells",
        shape,
        lambda x: np.asarray(gf.overview(x, cells, method)),
        partial(peer_overview, cells=cells, method=method),
        np.tile(of_tile, times),
        rtol=1e-5 if method in ("mean", "rms") else 0.0,
        unit=MICROSECONDS if first else GIGABYTES,
        note="reads the elements that it takes only" if first else None,
    )


def text(shape: Shape) -> str:
    return "×".join(map(str, shape))


# --- Contenders ---------------------------------------------------------------


def stacked(result: Any, get: Callable[[Any], Array] = np.asarray) -> Array:
    return np.stack([get(one) for one in result]) if isinstance(result, tuple) else get(result)


def near(expected: Array, rtol: float, answer: Array) -> Array:
    """Return `expected` if the answer is within the tolerance, for a comparison by bits."""
    same = answer.shape == expected.shape and np.allclose(answer, expected, rtol, atol=0)
    return expected if same else answer


def finished(call: Callable[[Any], Any], finish: Callable[[], Any], x: Any) -> Any:
    result = call(x)
    finish()
    return result


def torch_taker() -> tuple[Any, Callable[[Any], Array], Callable[[], Any]]:
    torch = importlib.import_module("torch")
    return torch, lambda x: x.cpu().numpy(), torch.cuda.synchronize


def cupy_taker() -> tuple[Any, Callable[[Any], Array], Callable[[], Any]]:
    cupy = importlib.import_module("cupy")
    return cupy, cupy.asnumpy, cupy.cuda.Device().synchronize


# A module with the peer's functions, its way to NumPy, and its wait for its own work.
TAKERS: dict[str, Callable[[], tuple[Any, Callable[[Any], Array], Callable[[], Any]]]] = {
    "torch": torch_taker,
    "cupy": cupy_taker,
    "numpy": lambda: (np, np.asarray, lambda: None),
}


def peer_contender(tensor: Tensor, job: Job, name: str) -> Contender:
    module, get, finish = TAKERS[name]()
    return Contender(
        name,
        partial(finished, partial(job.peer, module), finish),
        [tensor.views[name].reshape(job.shape)],
        answer=lambda result: near(job.expected, job.rtol, stacked(result, get)),
    )


def measured(session: Session, tensor: Tensor, job: Job, raw: Sequence[Contender]) -> Row:
    contenders = [peer_contender(tensor, job, name) for name in tensor.views if name in TAKERS]
    limit = raw[0].name if job.unit == GIGABYTES else None
    contenders += raw if limit else []
    peers = [contender.name for contender in contenders if contender.name != limit]
    source = gf.lazy(tensor.views["gpufetch"]).reshape(job.shape)
    contenders.append(
        Contender(
            "gpufetch",
            job.gpufetch,
            [gf.asdevice(source)],
            answer=lambda result: near(job.expected, job.rtol, result),
        )
    )
    timings = measure(contenders, [job.expected], rounds=6, budget_s=0.7)
    return make_row(
        session,
        job.case,
        timings,
        nbytes=4 * tensor.count,
        unit=job.unit,
        gpufetch="gpufetch",
        limit=limit,
        peers=peers,
        labels={},
        note=job.note,
    )
