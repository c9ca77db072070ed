"""fetch(via="codec"): the same bits as over the link for every tensor, and failures that show."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arrays import BFLOAT16, DTYPES, Array, assert_same, pool_used_nbytes, random_array
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gpufetch as gf
from gpufetch import _core

MIB = 1 << 20


def waves(shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    """A field that compresses."""
    axes = np.meshgrid(*(np.linspace(0, 3, n) for n in shape), indexing="ij", sparse=True)
    return np.asarray(sum(np.sin(x + i) for i, x in enumerate(axes)) * 50).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_keeps_its_bits(device: str, dtype: np.dtype[Any]) -> None:
    for expected in (random_array((5, 67, 33), dtype), np.zeros((700, 31), dtype)):
        assert_same(gf.fetch(gf.to_device(expected, device=device), via="codec"), expected)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (1, 1, 1), (2,) * 12, (1,) * 32])
def test_shapes_without_or_with_few_elements_arrive(device: str, shape: tuple[int, ...]) -> None:
    expected = random_array(shape, np.float64)
    assert_same(gf.fetch(gf.to_device(expected, device=device), via="codec"), expected)
    assert_same(gf.fetch(expected, via="codec"), expected)  # on the CPU: there is no link


# Rows that fill no chunk, make one, and are longer than one; sizes around a batch's.
@pytest.mark.parametrize(
    "shape", [(1 << 20, 5), (13, 1021, 331), (3, 1 << 19), ((5 << 20) + 3,), (37, 64, 64, 64)]
)
@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_tensors_of_many_chunks_arrive(device: str, shape: tuple[int, ...], dtype: str) -> None:
    expected = waves(shape, dtype)
    assert_same(gf.fetch(gf.to_device(expected, device=device), via="codec"), expected)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_view_in_any_order_is_as_over_the_link(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, max_side=40))
    dtype = data.draw(st.sampled_from(DTYPES))
    array = data.draw(st.sampled_from([random_array, np.zeros]))(shape, dtype)
    x = gf.to_device(array, device="host:0")
    view = x[data.draw(hnp.basic_indices(shape, allow_newaxis=False))]
    view = view.T if data.draw(st.booleans()) else view
    order: Any = data.draw(st.sampled_from([None, "C", "F", "A", "K"]))
    linked = gf.fetch(view, order=order, via="link")
    coded = gf.fetch(view, order=order, via="codec")
    assert coded.strides == linked.strides
    assert_same(coded, linked)


def test_out_of_any_layout_is_filled(device: str) -> None:
    expected = waves((70, 128, 65))
    x = gf.to_device(expected, device=device)
    outs = [np.empty((70, 128, 65), "f4"), np.empty((65, 128, 70), "f4").T]
    outs.append(np.zeros((140, 128, 130), "f4")[::-2, :, ::2])
    for out in outs:
        assert gf.fetch(x, out=out, via="codec") is out
        np.testing.assert_array_equal(out, expected)
    around = outs[-1].base
    assert isinstance(around, np.ndarray) and np.count_nonzero(around[:, :, 1::2]) == 0


def test_a_conversion_comes_before_the_codec(device: str) -> None:
    x = gf.to_device(waves((300, 1000)), device=device)
    for dtype in ("f8", "f2", "i4", BFLOAT16):
        linked = gf.fetch(x.T, dtype=dtype)
        assert_same(gf.fetch(x.T, dtype=dtype, via="codec"), linked)


def test_what_compresses_takes_less_of_the_link() -> None:
    expected = waves((64, 128, 129))
    x = gf.to_device(expected, device="host:0")
    _core._host_faults(copy_fail_after_nbytes=0.7 * x.nbytes)
    with pytest.raises(gf.Error, match="injected"):
        gf.fetch(x, via="link")
    _core._host_faults(copy_fail_after_nbytes=0.7 * x.nbytes)
    assert_same(gf.fetch(x, via="codec"), expected)


def test_a_future_keeps_its_source_and_is_not_done_early() -> None:
    expected = waves((64, 128, 129))
    _core._host_faults(bandwidth=expected.nbytes / 0.3)
    future = gf.fetch_async(gf.to_device(expected, device="host:0"), via="codec")
    with pytest.raises(TimeoutError):
        future.result(timeout=0.001)
    gc.collect()
    result = future.result(timeout=60)
    assert_same(result, expected)
    assert future.result() is result


def test_a_link_that_fails_gives_no_array_and_no_leak() -> None:
    x = gf.to_device(random_array((5 * MIB,), np.uint8), device="host:0")
    gc.collect()
    before = pool_used_nbytes()
    for limit in (0, 1000, MIB, 4 * MIB):
        _core._host_faults(copy_fail_after_nbytes=limit)
        future = gf.fetch_async(x, via="codec")
        for _ in range(2):
            with pytest.raises(gf.Error, match="injected"):
                future.result()
        del future
        with pytest.raises(gf.Error, match="injected"):
            gf.fetch(x, via="codec")
    _core._host_faults()
    gc.collect()
    assert gf.pool.stats()["used_nbytes"] == before
    assert_same(gf.fetch(x, via="codec"), gf.fetch(x))


def test_many_threads_fetch_at_once(device: str) -> None:
    expected = [waves((20, 100, 101 + i)) for i in range(6)]
    tensors = [gf.to_device(array, device=device) for array in expected]
    gate = threading.Barrier(6)

    def work(i: int) -> None:
        gate.wait()
        for round_ in range(4):
            k = (i + round_) % 6
            assert_same(gf.fetch(tensors[k], via="codec" if round_ % 4 else "link"), expected[k])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


def test_a_lazy_array_takes_it_too(device: str) -> None:
    expected = waves((30, 40, 50))
    a = gf.lazy(gf.to_device(expected, device=device))
    assert_same(a.T[3:].fetch(via="codec"), np.ascontiguousarray(expected.T[3:]))
    assert_same(a.fetch_async(via="codec").result(), expected)


def test_auto_is_the_link() -> None:
    x = gf.to_device(waves((64, 128, 129)), device="host:0")
    for options in ({}, {"via": "auto"}):
        _core._host_faults(copy_fail_after_nbytes=0.9 * x.nbytes)
        with pytest.raises(gf.Error, match="injected"):
            gf.fetch(x, **options)


def test_other_ways_are_refused() -> None:
    x = gf.to_device(np.zeros(3), device="host:0")
    call: Any
    for call in (gf.fetch, gf.fetch_async):
        with pytest.raises(ValueError, match=r"via is 'codecs'; it must be \"auto\", \"link\" or"):
            call(x, via="codecs")
        with pytest.raises(TypeError, match="via is None; it must be"):
            call(x, via=None)


@pytest.mark.parametrize("via", ["auto", "link", "codec"])
def test_a_trees_tensors_take_the_way_that_is_named(via: Any) -> None:
    arrays = [np.arange(1 << 18, dtype=np.float32), np.zeros(3)]
    tree = [gf.to_device(array, device="host:0") for array in arrays]
    for fetched in (gf.fetch(tree, via=via), gf.fetch_async(tree, via=via).result()):
        for array, expected in zip(fetched, arrays, strict=True):
            assert_same(array, expected)


def mixed_forms() -> Array:
    """Chunks of labels and of weights, which the device leaves to the CPU, among others."""
    rng = np.random.default_rng(5)
    parts = [waves((256, 1024)), rng.choice(np.float32([0.1, 7, 1e9, -3]), (256, 1024))]
    weights = rng.standard_normal((256, 1024), np.float32)
    parts.append((weights.view(np.uint32) & 0xFFFF0000).view(np.float32))
    return np.stack([parts[i] for i in (0, 1, 0, 0, 2, 2, 1, 0, 1)])


def test_forms_that_the_device_leaves_cross_as_they_are(device: str) -> None:
    expected = mixed_forms()
    assert_same(gf.fetch(gf.to_device(expected, device=device), via="codec"), expected)
    for dtype in (BFLOAT16, np.float16):
        weights = np.random.default_rng(6).standard_normal((3 * MIB,), np.float32).astype(dtype)
        assert_same(gf.fetch(gf.to_device(weights, device=device), via="codec"), weights)


def codec_program(
    device: str, values: Array, file: Path, requests: str = ""
) -> tuple[list[dict[str, Any]], int]:
    """Replies and exit status of the program that times the codec for the benchmarks."""
    program = Path(os.environ.get("GPUFETCH_BUILD_DIR", "")) / "benchmarks/programs/codec_device"
    if not program.is_file():
        pytest.skip("$GPUFETCH_BUILD_DIR has no codec_device")
    values.tofile(file)
    shape = ",".join(str(length) for length in values.shape)
    done = subprocess.run(
        [str(program), device, values.dtype.name, shape, str(file)],
        input=requests,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.returncode


def test_the_benchmarked_codec_gives_every_chunk_back(device: str, tmp_path: Path) -> None:
    expected = mixed_forms()
    rounds = (["decode"], ["to_device"], ["encode", "decode"], ["to_host", "to_device"])
    requests = "".join("".join(f"{step} 2\n" for step in steps) + "check\n" for steps in rounds)
    (sizes, *replies), status = codec_program(device, expected, tmp_path / "raw", requests)
    assert status == 0
    assert 96 * len(expected) < sizes["encoded_nbytes"] < expected.nbytes
    assert [reply["same"] for reply in replies if "same" in reply] == [True] * len(rounds)
    replies, status = codec_program(device, expected, tmp_path / "raw", "encoded 1\n")
    assert status == 1 and "encoded" in replies[-1]["error"]


@pytest.mark.parametrize("shape", [(5,), (0, 4), (3, 5, 5)])
def test_the_benchmarked_codec_refuses_what_it_does_not_time(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    values = np.zeros(shape, np.float32)
    replies, status = codec_program("host:0", values, tmp_path / "raw")
    assert status == 1 and len(replies) == 1
    assert re.search(r"axes|empty|multiple of 16", replies[0]["error"])
