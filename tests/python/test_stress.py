"""Threads that fetch, upload and index random views agree with NumPy, and leave nothing behind.

GPUFETCH_STRESS_SECONDS says how long each device is kept busy; 10 by default.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from arrays import CASTABLE, DTYPES, Array, assert_same, free_nbytes, random_array

import gpufetch as gf
from gpufetch import _core

SECONDS = float(os.environ.get("GPUFETCH_STRESS_SECONDS", "10"))
THREADS = 6
TURNS = 8  # times that a thread repeats its jobs: generating a program takes longer than running it
MIB = 1 << 20
# So little that the threads have to wait for each other.
SCRATCH_NBYTES, POOL_NBYTES = 8 * MIB, 48 * MIB
# Several pieces of a transfer, wide rows, tiles, and rows of a few bytes.
LARGE_SHAPES = [(400_000,), (90, 3000), (70, 40, 90), (70_000, 3), (2, 3, 5, 7, 11, 13)]

Step = tuple[str, Any]


# --- Programs ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """An array in C order, and the framework whose tensor it is on the device."""

    array: Array
    owner: str
    can_cast: bool  # its elements are small whole numbers, which every dtype holds


@dataclass(frozen=True)
class Job:
    kind: str
    source: int
    steps: tuple[Step, ...]
    dtype: np.dtype[Any] | None
    order: Any
    picks: Any  # an array for the first axis


@st.composite
def sources(draw: st.DrawFn) -> Source:
    shape = draw(st.sampled_from(LARGE_SHAPES) | hnp.array_shapes(min_dims=0, max_side=9))
    dtype = draw(st.sampled_from(DTYPES))
    owner = draw(st.sampled_from(["gpufetch", "torch", "cupy"]))
    if dtype not in CASTABLE or draw(st.booleans()):
        return Source(random_array(shape, dtype, draw(st.integers(0, 99))), owner, False)
    numbers = np.arange(1, 1 + int(np.prod(shape))) % 7
    return Source(numbers.astype(dtype).reshape(shape), owner, True)


@st.composite
def steps_of(draw: st.DrawFn, array: Array) -> tuple[Step, ...]:
    steps: list[Step] = []
    for kind in draw(st.lists(st.sampled_from(["index", "transpose", "broadcast"]), max_size=3)):
        argument: Any = draw(st.integers(1, 3))
        if kind == "index":
            argument = draw(hnp.basic_indices(array.shape, max_dims=7, allow_newaxis=True))
        elif kind == "transpose":
            argument = tuple(draw(st.permutations(range(array.ndim))))
        steps.append((kind, argument))
        array = on_host(array, steps[-1])
        if array.nbytes > 4 * MIB:
            break
    return tuple(steps)


@st.composite
def jobs(draw: st.DrawFn, holders: list[Source]) -> Job:
    index = draw(st.integers(0, len(holders) - 1))
    source = holders[index]
    length = source.array.shape[0] if source.array.ndim else 0
    numbers = st.lists(st.integers(-length, length - 1), max_size=9) if length else st.just([])
    return Job(
        draw(st.sampled_from(list(KINDS))),
        index,
        draw(steps_of(source.array)),
        draw(st.none() | st.sampled_from(CASTABLE)) if source.can_cast else None,
        draw(st.sampled_from([None, "C", "F", "A", "K"])),
        np.array(draw(numbers), np.int64),
    )


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Source], list[list[Job]]]:
    """Sources, and for each thread its jobs."""
    holders = draw(st.lists(sources(), min_size=1, max_size=4))
    one = st.lists(jobs(holders), min_size=2, max_size=6)
    return holders, draw(st.lists(one, min_size=THREADS, max_size=THREADS))


# --- Views on the host and on the device -------------------------------------------------------


def on_host(array: Array, step: Step) -> Array:
    kind, argument = step
    if kind == "index":
        return np.asarray(array[argument], array.dtype)
    if kind == "transpose":
        return array.transpose(argument)
    return np.broadcast_to(array, (argument, *array.shape))


def on_device(x: gf.DeviceArray, step: Step) -> gf.DeviceArray:
    kind, argument = step
    if kind == "index":
        return x[argument]
    if kind == "transpose":
        return _core.asdevice(gf.lazy(x).transpose(argument))
    return _core._restride(x, (argument, *x.shape), (0, *x.strides))


def views(source: Source, tensor: Any, steps: tuple[Step, ...]) -> tuple[Any, Array]:
    """Return the view on the device and the elements that it must hold."""
    array, x = source.array, tensor if not steps else _core.asdevice(tensor)
    for step in steps:
        array, x = on_host(array, step), on_device(x, step)
    return x, array


def converted(array: Array, dtype: np.dtype[Any] | None) -> Array:
    # ml_dtypes has no cast between some pairs of its types; float32 holds these numbers.
    return array.copy() if dtype is None else array.astype(np.float32).astype(dtype)


# --- Jobs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """A job with its view: `x` on the device, `expected` in NumPy before any conversion."""

    job: Job
    source: Source
    tensor: Any
    x: Any
    expected: Array
    device: str

    @property
    def result(self) -> Array:
        return converted(self.expected, self.job.dtype)


def run_fetch(task: Task) -> None:
    actual = gf.fetch(task.x, dtype=task.job.dtype, order=task.job.order)
    assert_same(actual, task.result)
    if task.job.order in (None, "C"):
        assert actual.flags.c_contiguous


def gaps(task: Task) -> tuple[Array, Array]:
    """An array for the result whose elements have gaps between them, and the gaps, of zeros."""
    base = np.zeros((*task.expected.shape, 2), task.result.dtype)
    return base[..., 0], base[..., 1]


def run_out(task: Task) -> None:
    out, between = gaps(task)
    assert gf.fetch(task.x, out=out, dtype=task.job.dtype) is out
    assert_same(out, task.result)
    assert between.tobytes() == bytes(between.nbytes)


def run_async(task: Task) -> None:
    future = gf.fetch_async(task.x, dtype=task.job.dtype, order=task.job.order)
    future.wait(0)
    assert_same(future.result(), task.result)


def run_abandoned(task: Task) -> None:
    """Dropping a future ends its copy: what it was to fill is filled."""
    out, _ = gaps(task)
    future = gf.fetch_async(task.x, out=out, dtype=task.job.dtype)
    gf.fetch_async(task.x)
    with contextlib.suppress(TimeoutError):
        future.result(timeout=1e-5)
    del future
    assert_same(out, task.result)


def run_tree(task: Task) -> None:
    tree = {"view": task.x, "rest": [task.tensor, (task.x, None)], "cpu": task.expected}
    result = gf.fetch(tree)
    assert_same(result["view"], task.expected)
    assert_same(result["rest"][0], task.source.array)
    assert_same(result["rest"][1][0], task.expected)
    assert_same(result["cpu"], task.expected)
    assert result["rest"][1][1] is None


def run_lazy(task: Task) -> None:
    x, array, picks = gf.lazy(task.tensor), task.source.array, task.job.picks
    if array.ndim == 0:
        assert_same(x.fetch(), array)
        return
    mask = np.zeros(len(array), np.bool_)
    mask[picks] = True
    assert_same(x[picks], array[picks])
    assert_same(x[mask], array[mask])
    assert_same(x[::-2].T.fetch(), array[::-2].T)


def run_upload(task: Task) -> None:
    there = gf.to_device(task.expected, device=task.device, dtype=task.job.dtype)
    assert_same(gf.fetch(there[...]), task.result)


KINDS: dict[str, Callable[[Task], None]] = {
    "fetch": run_fetch,
    "out": run_out,
    "async": run_async,
    "abandoned": run_abandoned,
    "tree": run_tree,
    "lazy": run_lazy,
    "upload": run_upload,
}


# --- The run ----------------------------------------------------------------------------------


def owners(device: str) -> dict[str, Callable[[Array], Any]]:
    """By framework that works on the device: a function that copies an array to its own memory."""
    makers: dict[str, Callable[[Array], Any]] = {}
    if device.startswith("cuda"):
        for name in ("torch", "cupy"):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
                makers[name] = lambda a, name=name: gf.convert(
                    gf.to_device(a, device=device), name, copy=False
                )
    return makers


def tensor_of(source: Source, device: str) -> Any:
    maker = owners(device).get(source.owner)
    if maker:
        with contextlib.suppress(TypeError):  # the framework does not have the dtype
            made = maker(source.array)
            return made.clone() if source.owner == "torch" else made.copy()
    return gf.to_device(source.array, device=device)


def run_program(device: str, program: tuple[list[Source], list[list[Job]]]) -> None:
    holders, work = program
    tensors = [tensor_of(source, device) for source in holders]

    def run_thread(todo: list[Job]) -> None:
        for job in todo * TURNS:
            source, tensor = holders[job.source], tensors[job.source]
            x, expected = views(source, tensor, job.steps)
            KINDS[job.kind](Task(job, source, tensor, x, expected, device))

    with ThreadPoolExecutor(THREADS) as threads:
        for _ in threads.map(run_thread, work):
            pass


def run_for(device: str, seconds: float) -> None:
    """Run random programs until the time is over, at least one set of them."""

    @hypothesis.given(programs())
    @hypothesis.settings(
        max_examples=10,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],  # what depends on timing does not shrink
    )
    def examples(program: tuple[list[Source], list[list[Job]]]) -> None:
        run_program(device, program)

    end = time.monotonic() + seconds
    examples()
    while time.monotonic() < end:
        examples()


@dataclass(frozen=True)
class Footprint:
    """What the process holds while no thread uses the library."""

    pool_used: int
    pool_reserved: int
    device_free: int
    resident: int
    descriptors: int


class MallInfo2(ctypes.Structure):
    """What glibc's mallinfo2 returns; the ninth is what is free."""

    _fields_ = tuple((f"field_{i}", ctypes.c_size_t) for i in range(1, 11))


def resident_nbytes() -> int:
    """Resident memory without the free memory that malloc keeps, much of it in threads' arenas."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):  # another libc
        return 0
    libc.mallinfo2.restype = MallInfo2
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") - int(libc.mallinfo2().field_9)


def footprint(device: str) -> Footprint:
    gc.collect()
    for name in owners(device):
        module = importlib.import_module(name)
        if name == "torch":
            module.cuda.empty_cache()
        else:
            module.get_default_memory_pool().free_all_blocks()
    pool = gf.pool.stats()
    gf.pool.trim()  # also device memory that is kept for reuse
    return Footprint(
        pool["used_nbytes"],
        pool["reserved_nbytes"],
        free_nbytes(device),
        resident_nbytes(),
        len(os.listdir("/proc/self/fd")),
    )


def test_threads_with_random_views_agree_with_numpy_and_leave_nothing(
    device: str, pool_cap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUFETCH_SCRATCH_MAX_NBYTES", str(SCRATCH_NBYTES))
    gf.pool.cap_nbytes = POOL_NBYTES
    run_for(device, 0)  # streams and scratch are kept from here on
    before = footprint(device)
    run_for(device, SECONDS)
    after = footprint(device)
    assert after.pool_used == before.pool_used
    assert after.pool_reserved <= max(POOL_NBYTES, before.pool_reserved)
    assert after.descriptors <= before.descriptors
    is_shared = device.startswith("cuda") and "PYTEST_XDIST_WORKER" in os.environ
    if not is_shared:  # with tests of other processes
        slack = 64 * MIB if device.startswith("cuda") else 0  # code and streams of the driver
        assert before.device_free - after.device_free <= SCRATCH_NBYTES + slack
    if "san.so" not in os.environ.get("LD_PRELOAD", ""):  # sanitizers keep what was freed
        assert after.resident - before.resident <= POOL_NBYTES + SCRATCH_NBYTES + 96 * MIB
