"""Thousands of random fetches, with NumPy as the judge: the right bits, or an error.

Each seed is a stream of cases: shape, dtype, view, layout, conversion, destination, way across the
link and way of waiting are random, and so are injected delays and failures. Results of earlier
cases are kept and looked at again, so that memory that is given out twice or written late shows.

GPUFETCH_FETCH_CASES says how many cases a seed has; 500 by default.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from arrays import CASTABLE, DTYPES, Array, pool_used_nbytes, random_array

import gpufetch as gf
from gpufetch import _core

CASES = int(os.environ.get("GPUFETCH_FETCH_CASES", "500"))
MIB = 1 << 20
KEPT = 12  # earlier results that are looked at again
FAILURES = (gf.Error, MemoryError)


def random_shape(rng: np.random.Generator) -> tuple[int, ...]:
    if rng.random() < 0.04:  # several pieces of a transfer, wide rows, narrow rows
        shapes = [(3 * MIB,), (700, 4001), (90_000, 3), (60, 50, 70)]
        return shapes[rng.integers(len(shapes))]
    ndim = int(rng.integers(0, 7))
    return tuple(int(n) for n in rng.integers(0 if rng.random() < 0.1 else 1, 9, ndim))


def random_key(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Slices of either sign, integers, new axes and an Ellipsis."""
    key: list[Any] = []
    for length in shape:
        kind = rng.random()
        if kind < 0.15 and length > 0:
            key.append(int(rng.integers(-length, length)))
        elif kind < 0.6:
            start, stop = (int(n) for n in rng.integers(-length - 1, length + 2, 2))
            key.append(slice(start, stop, int(rng.choice([-3, -2, -1, 1, 2, 3]))))
        else:
            key.append(slice(None))
        if kind > 0.95:
            key.append(None)
    cut = int(rng.integers(0, len(key) + 1))
    return (*key[:cut], ...) if rng.random() < 0.3 else tuple(key)


def random_selection(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Return an integer array or a mask for the first axis."""
    if rng.random() < 0.5:
        return rng.random(shape[0]) < 0.5
    return rng.integers(-shape[0], shape[0], int(rng.integers(0, 6)))


@dataclass
class Case:
    """A view on the device, and what NumPy says that fetching it gives."""

    x: Any
    expected: Array
    dtype: np.dtype[Any] | None = None
    order: Any = None

    @property
    def described(self) -> str:
        options = f"dtype={self.dtype}, order={self.order}"
        return f"{self.x!r}, strides={self.x.strides}, {options}"

    @property
    def result(self) -> Array:
        if self.dtype is None:
            return self.expected
        # ml_dtypes has no cast between some pairs of its types; float32 holds these numbers.
        return self.expected.astype(np.float32).astype(self.dtype)


def random_case(rng: np.random.Generator) -> Case:
    shape, castable = random_shape(rng), rng.random() < 0.5
    dtypes = CASTABLE if castable else DTYPES
    dtype = dtypes[rng.integers(len(dtypes))]
    if castable:  # whole numbers that every dtype holds
        array = (np.arange(1, 1 + int(np.prod(shape))) % 7).astype(dtype).reshape(shape)
    else:
        array = random_array(shape, dtype, int(rng.integers(100)))
    x = gf.to_device(array, device="host:0")
    if rng.random() < 0.7:
        key = random_key(rng, array.shape)
        x, array = x[key], np.asarray(array[key], array.dtype)
    if rng.random() < 0.4:
        axes = tuple(int(axis) for axis in rng.permutation(array.ndim))
        x, array = _core.asdevice(gf.lazy(x).transpose(axes)), array.transpose(axes)
    case = Case(x, array)
    if castable and rng.random() < 0.6:
        case.dtype = CASTABLE[rng.integers(len(CASTABLE))]
    case.order = [None, "C", "F", "A", "K"][rng.integers(5)]
    return case


# --- Destinations -----------------------------------------------------------------------------


@dataclass
class Destination:
    """An array of random layout for the result, within memory that must stay as it is."""

    out: Array
    memory: Array
    before: Array = field(init=False)

    def __post_init__(self) -> None:
        self.before = self.memory.copy()

    def check_surroundings(self) -> None:
        """Fail if a byte beside the elements of `out` has changed."""
        marks = np.zeros(self.memory.shape, np.uint8)
        elements = np.lib.stride_tricks.as_strided(
            marks[self.out.__array_interface__["data"][0] - self.memory.ctypes.data :],
            (*self.out.shape, self.out.itemsize),
            (*self.out.strides, 1),
        )
        elements[...] = 1
        assert (self.memory[marks == 0] == self.before[marks == 0]).all()


def random_destination(rng: np.random.Generator, like: Array) -> Destination:
    axes = rng.permutation(like.ndim)
    steps = [int(rng.choice([-2, -1, 1, 1, 2])) for _ in axes]
    room = [like.shape[axis] * abs(step) for axis, step in zip(axes, steps, strict=True)]
    nbytes = int(np.prod([1, *room])) * like.itemsize
    memory = rng.integers(0, 256, nbytes + 128, np.uint8)
    array = memory[64 : 64 + nbytes].view(like.dtype).reshape(room)
    array = array[(*(slice(None, None, step) for step in steps), ...)]
    return Destination(array.transpose(np.argsort(axes)), memory)


# --- Ways of fetching -------------------------------------------------------------------------


def by_fetch(case: Case, rng: np.random.Generator) -> Array:
    return gf.fetch(case.x, order=case.order, dtype=case.dtype)


def by_future(case: Case, rng: np.random.Generator) -> Array:
    future = gf.fetch_async(case.x, order=case.order, dtype=case.dtype)
    future.wait(float(rng.choice([0, 1e-4])))
    result: Array = future.result()
    return result


def by_callback(case: Case, rng: np.random.Generator) -> Array:
    futures = [gf.fetch_async(case.x, order=case.order, dtype=case.dtype) for _ in range(3)]
    del futures[int(rng.integers(3))]
    done = concurrent.futures.wait(futures, timeout=60).done
    assert done == set(futures)
    first: Array = futures[0].result()
    assert futures[1].result().tobytes() == first.tobytes()
    return first


def by_await(case: Case, rng: np.random.Generator) -> Array:
    async def main() -> Array:
        result: Array = await gf.fetch_async(case.x, order=case.order, dtype=case.dtype)
        return result

    return asyncio.run(main())


def by_tree(case: Case, rng: np.random.Generator) -> Array:
    tree = {"a": [case.x, None], "b": case.x, "c": (case.expected,)}
    options = {"order": case.order, "dtype": case.dtype}
    result = gf.fetch(tree, **options) if rng.random() < 0.5 else fetched_later(tree, options)
    first: Array = result["a"][0]
    assert result["b"].tobytes() == first.tobytes() == result["c"][0].tobytes()
    return first


def fetched_later(tree: Any, options: dict[str, Any]) -> Any:
    return gf.fetch_async(tree, **options).result()


def by_out(case: Case, rng: np.random.Generator) -> Array:
    destination = random_destination(rng, case.result)
    try:
        if rng.random() < 0.5:
            result = gf.fetch(case.x, out=destination.out, dtype=case.dtype)
        else:
            result = gf.fetch_async(case.x, out=destination.out, dtype=case.dtype).result()
        assert result is destination.out
    finally:
        destination.check_surroundings()
    return result


def by_selection(case: Case, rng: np.random.Generator) -> Array:
    if case.expected.ndim == 0 or case.expected.shape[0] == 0:
        return by_fetch(case, rng)
    selection = random_selection(rng, case.expected.shape)
    case.expected, case.dtype, case.order = case.expected[selection], None, None
    return np.asarray(gf.lazy(case.x)[selection])


def by_cancelling(case: Case, rng: np.random.Generator) -> Array:
    """Cancel a copy into `out`; if it was in time, nothing is written any more, and then fetch."""
    destination = random_destination(rng, case.result)
    future = gf.fetch_async(case.x, out=destination.out, dtype=case.dtype)
    future.wait(float(rng.choice([0, 0, 1e-4, 1e-3])))
    if not future.cancel():
        result: Array = future.result()
        return result
    assert future.wait(60)
    with pytest.raises(concurrent.futures.CancelledError):
        future.result()
    destination.check_surroundings()
    at_rest = destination.memory.copy()
    again = by_fetch(case, rng)
    assert (destination.memory == at_rest).all()
    return again


def by_abandoning(case: Case, rng: np.random.Generator) -> Array:
    for _ in range(2):
        gf.fetch_async(case.x, order=case.order, dtype=case.dtype)
    return by_fetch(case, rng)


WAYS: list[Callable[[Case, np.random.Generator], Array]] = [
    by_fetch,
    by_future,
    by_callback,
    by_await,
    by_tree,
    by_out,
    by_selection,
    by_cancelling,
    by_abandoning,
]


# --- Faults -----------------------------------------------------------------------------------


def random_faults(rng: np.random.Generator, nbytes: int) -> dict[str, Any]:
    faults: dict[str, Any] = {}
    if rng.random() < 0.5:
        faults["latency_us"] = int(rng.integers(0, 300))
    if rng.random() < 0.3:
        faults["bandwidth"] = max(nbytes, 1000) / 0.003
    if rng.random() < 0.3:
        faults["copy_fail_after_nbytes"] = int(rng.integers(0, 2 * nbytes + 2))
    if rng.random() < 0.2:
        faults["alloc_fail_after"] = int(rng.integers(0, 4))
    return faults


@contextlib.contextmanager
def injected(faults: dict[str, Any]) -> Iterator[None]:
    _core._host_faults(**faults)
    try:
        yield
    finally:
        _core._host_faults()


def may_fail(faults: dict[str, Any]) -> bool:
    return not faults.keys().isdisjoint({"copy_fail_after_nbytes", "alloc_fail_after"})


def check(actual: Array, case: Case) -> None:
    expected = case.result
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    assert actual.tobytes() == expected.tobytes()


def strides_of(array: Array) -> list[int]:
    """Of the axes with more than one element; those of the others mean nothing."""
    axes = zip(array.shape, array.strides, strict=True)
    return [stride for length, stride in axes if length > 1]


def check_layout(actual: Array, case: Case, way: Any) -> None:
    if actual.size > 0 and way not in (by_out, by_selection, by_cancelling):
        expected = np.array(case.expected, order=case.order or "C").astype(actual.dtype)
        assert strides_of(actual) == strides_of(expected)


@pytest.mark.parametrize("seed", range(6))
def test_random_fetches_are_right_or_fail(seed: int, pool_cap: int) -> None:
    rng = np.random.default_rng(seed)
    kept: deque[tuple[Array, bytes]] = deque(maxlen=KEPT)
    failed = 0
    for number in range(CASES):
        case, way = random_case(rng), WAYS[rng.integers(len(WAYS))]
        gf.pool.cap_nbytes = [pool_cap, 8 * MIB, 0][rng.choice([0, 0, 0, 0, 1, 2])]
        if rng.random() < 0.05:
            gf.pool.trim()
        faults = random_faults(rng, case.expected.nbytes)
        whole = replace(case)
        about = f"seed {seed}, case {number}: {way.__name__}, {case.described}, {faults}"
        try:
            with injected(faults):
                actual = way(case, rng)
            check(actual, case)
            check_layout(actual, case, way)
        except FAILURES:
            assert may_fail(faults), about
            failed += 1
            check(gf.fetch(whole.x, dtype=whole.dtype), whole)
        except AssertionError as error:
            raise AssertionError(about) from error
        else:
            if actual.nbytes < MIB:
                kept.append((actual, actual.tobytes()))
        for earlier, as_it_was in kept:
            assert earlier.tobytes() == as_it_was, about
    assert failed > CASES // 50  # the faults have been met


# --- Every n ----------------------------------------------------------------------------------


OPERATIONS: dict[str, Callable[[Any, Array], Array]] = {
    "pinned": lambda x, _: gf.fetch(x),
    "pageable": lambda x, out: gf.fetch(x, out=out),
    "strided": lambda x, _: np.concatenate([gf.fetch(x[::2]), gf.fetch(x[1::2])]),
    "in flight": lambda x, _: gf.fetch_async(x).result(),
    "tree": lambda x, _: np.concatenate(gf.fetch([x[:7], x[7:]])),
    "tree in flight": lambda x, _: np.concatenate(gf.fetch_async([x[:7], x[7:]]).result()),
    "lazy": lambda x, _: np.asarray(gf.lazy(x)[np.arange(len(x))]),
}


@pytest.mark.parametrize("fault", ["alloc_fail_after", "copy_fail_after_nbytes"])
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
def test_the_nth_failure_gives_an_error_or_the_right_bytes(
    operation: Callable[[Any, Array], Array], fault: str
) -> None:
    array = random_array((300_000,), "f4")
    expected = array if operation is not OPERATIONS["strided"] else None
    x = gf.to_device(array, device="host:0")
    if expected is None:
        expected = np.concatenate([array[::2], array[1::2]])
    counts = range(8) if fault == "alloc_fail_after" else range(0, 2_600_000, 130_001)
    used = pool_used_nbytes()
    outcomes = set()
    for count in counts:
        out = np.zeros_like(array)
        gf.pool.trim()  # so that device memory has to be allocated
        with injected({fault: count}):
            try:
                result = operation(x, out)
            except FAILURES:
                outcomes.add("failed")
            else:
                outcomes.add("right")
                assert result.tobytes() == expected.tobytes(), count
                del result
        assert operation(x, out).tobytes() == expected.tobytes(), count
        assert gf.pool.stats()["used_nbytes"] == used
    assert "right" in outcomes
    assert "failed" in outcomes or fault == "alloc_fail_after"


# Each case is the first in a process of its own, because scratch and workspaces stay allocated.
FIRST_USE = """
import os, sys
import numpy as np
import gpufetch as gf
from gpufetch import _core

array = np.random.default_rng(1).random(300_000)
OPERATIONS = {
    "flat": lambda x: gf.fetch(x, out=np.zeros(len(x))),
    "packed": lambda x: gf.fetch(x, order="F"),
    "packed to pageable": lambda x: gf.fetch(x, out=np.zeros(x.shape)),
    "packed in flight": lambda x: gf.fetch_async(x, out=np.zeros(x.shape)).result(),
    "cast": lambda x: gf.fetch(x, dtype="f8", out=np.zeros(x.shape)),
    "tree": lambda x: gf.fetch([x, x])[1],
    "tree in flight": lambda x: gf.fetch_async([x, x]).result()[1],
}


def outcome(operation, count):
    x = gf.to_device(array, device="host:0")[:: 1 if operation == "flat" else 2]
    expected = array[:: 1 if operation == "flat" else 2]
    _core._host_faults(alloc_fail_after=count)
    try:
        result = OPERATIONS[operation](x)
    except (MemoryError, gf.Error):
        return "failed"
    return "right" if result.tobytes() == expected.tobytes() else "WRONG"


for operation in OPERATIONS:
    outcomes = []
    for count in range(6):
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, outcome(operation, count).encode())
            os._exit(0)
        os.close(write)
        outcomes.append(os.read(read, 99).decode() or "died")
        os.close(read)
        os.wait()
    print(operation, *outcomes, sep=":")
"""


def test_the_first_use_of_a_device_without_memory_fails_or_is_right() -> None:
    code = [sys.executable, "-W", "ignore", "-c", FIRST_USE]
    done = subprocess.run(code, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split(":") for line in done.stdout.splitlines()]
    assert len(lines) == 7
    for operation, *outcomes in lines:
        assert set(outcomes) <= {"failed", "right"}, (operation, outcomes)
        assert outcomes[-1] == "right", operation
        assert operation == "flat" or outcomes[0] == "failed", operation
