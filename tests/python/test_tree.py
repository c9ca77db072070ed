"""fetch of a tree: the same containers, each tensor an equal array, one batch of copies."""

from __future__ import annotations

import gc
import itertools
import types
import weakref
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from arrays import pool_used_nbytes

import gpufetch as gf
from gpufetch import _core

Pair = namedtuple("Pair", "left right")


def random_array(seed: int, shape: tuple[int, ...], dtype: npt.DTypeLike = "f4") -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) * 50).astype(dtype)


def assert_same(actual: Any, expected: Any) -> None:
    assert isinstance(actual, np.ndarray)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert actual.tobytes() == expected.tobytes()
    assert actual.flags.c_contiguous and actual.flags.writeable


def test_a_nested_tree_keeps_its_shape_and_its_other_leaves(device: str) -> None:
    a, b, c = random_array(1, (30, 40)), random_array(2, (7,), "i2"), random_array(3, (), "c16")
    other = object()
    tree = {
        "a": gf.to_device(a, device=device),
        3: [gf.to_device(b, device=device), None, "text", 2.5, True, b"bytes", other],
        ("k",): (Pair(gf.to_device(c, device=device), 7), [], {}, ()),
        "cpu": b,
    }
    result: Any = gf.fetch(tree)
    assert list(result) == list(tree)
    assert_same(result["a"], a)
    assert_same(result[3][0], b)
    assert result[3][1:] == [None, "text", 2.5, True, b"bytes", other]
    assert type(result[("k",)]) is tuple
    pair = result[("k",)][0]
    assert type(pair) is Pair and pair.right == 7
    assert_same(pair.left, c)
    assert result[("k",)][1:] == ([], {}, ())
    assert_same(result["cpu"], b)
    assert not np.shares_memory(result["cpu"], b)
    assert isinstance(tree["a"], gf.DeviceArray)  # the caller's tree is as it was


def test_containers_come_back_as_documented(device: str) -> None:
    x = gf.to_device(random_array(1, (5,)), device=device)

    class MyList(list[Any]):
        pass

    class MyTuple(tuple[Any, ...]):
        pass

    assert type(gf.fetch(OrderedDict(b=x, a=x))) is OrderedDict
    assert list(gf.fetch(OrderedDict(b=x, a=x))) == ["b", "a"]
    for mapping in (defaultdict(list, a=x), UserDict(a=x), types.MappingProxyType({"a": x})):
        assert type(gf.fetch(mapping)) is dict
    assert type(gf.fetch(MyList([x]))) is list
    assert type(gf.fetch(MyTuple([x]))) is tuple
    assert gf.fetch({}) == {} and gf.fetch([1, "a"]) == [1, "a"] and gf.fetch((1,)) == (1,)


def test_two_thousand_small_tensors_agree_with_numpy(device: str) -> None:
    rng = np.random.default_rng(5)
    dtypes = ["f4", "u1", "i8", ml_dtypes.bfloat16, "?", "c8"]
    arrays = [
        random_array(i, tuple(rng.integers(0, 40, size=rng.integers(0, 4))), dtypes[i % 6])
        for i in range(2000)
    ]
    result: Any = gf.fetch([gf.to_device(a, device=device) for a in arrays])
    for got, expected in zip(result, arrays, strict=True):
        assert_same(got, expected)
        assert got.size == 0 or got.ctypes.data % 64 == 0
    for got in result:  # no two share an element
        got[...] = 0
    assert all((got == 0).all() for got in result)


def test_views_of_every_layout(device: str) -> None:
    a = random_array(1, (60, 70))
    x = gf.to_device(a, device=device)
    views: dict[str, Any] = {
        "transposed": lambda v: v.T,
        "reversed": lambda v: v[::-1, ::-2],
        "column": lambda v: v[:, 3],
        "element": lambda v: v[3, 4],
        "nothing": lambda v: v[:0],
    }
    result: Any = gf.fetch({name: view(x) for name, view in views.items()})
    for name, view in views.items():
        assert_same(result[name], np.array(view(a), order="C"))


def test_large_and_small_leaves_together(device: str) -> None:
    arrays = [random_array(i, (n,)) for i, n in enumerate([3, 1 << 20, 5, 300_000, 9 << 20, 1])]
    result: Any = gf.fetch([gf.to_device(a, device=device) for a in arrays])
    for got, expected in zip(result, arrays, strict=True):
        assert_same(got, expected)


def test_a_small_array_that_is_kept_does_not_keep_the_large_ones(device: str) -> None:
    before = pool_used_nbytes()
    x = gf.to_device(random_array(1, (4 << 20,)), device=device)
    result: Any = gf.fetch({"large": x, "small": x[:10], "also small": x[10:20]})
    small = result["small"]
    del result
    assert 0 < gf.pool.stats()["used_nbytes"] - before < 1 << 20
    assert_same(small, random_array(1, (4 << 20,))[:10])
    del small
    assert gf.pool.stats()["used_nbytes"] == before


def test_a_pool_at_its_cap_falls_back_to_pageable_memory(device: str, pool_cap: int) -> None:
    arrays = [random_array(i, (1000,)) for i in range(50)]
    tensors = [gf.to_device(a, device=device) for a in arrays]
    gf.pool.cap_nbytes = 0
    result: Any = gf.fetch(tensors)
    for got, expected in zip(result, arrays, strict=True):
        assert_same(got, expected)


def test_a_tensor_that_occurs_twice_gives_two_arrays(device: str) -> None:
    x = gf.to_device(random_array(1, (5,)), device=device)
    first, second = gf.fetch([x, x])
    first[:] = 0
    assert_same(second, random_array(1, (5,)))


@pytest.mark.parametrize(
    "fetch", [gf.fetch, lambda tree, **how: gf.fetch_async(tree, **how).result()]
)
def test_no_two_arrays_of_a_tree_share_memory(device: str, fetch: Any) -> None:
    """Copies of one call must not overlap, whatever their sizes and the pool's buffers are."""
    rng = np.random.default_rng(3)
    sizes = [0, 1, 63, 64, 65, 1000, 262143, 262144, 262145, *rng.integers(0, 70000, 60)]
    arrays = [random_array(i, (int(size),)) for i, size in enumerate(sizes)]
    tensors = [gf.to_device(a, device=device) for a in arrays]
    tree = tensors + tensors[::7] + [tensors[8][::2], tensors[8][1:]] + [arrays[5], arrays[5]]
    for how in ({}, {"dtype": "float64"}, {"dtype": "float16"}, {"order": "F"}):
        got = [a for a in fetch(tree, **how) if a.size > 0]
        sources = [a for a in arrays if a.size > 0]
        extents = sorted(np.lib.array_utils.byte_bounds(a) for a in got + sources)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(extents))


def test_two_devices_in_one_tree() -> None:
    arrays = [random_array(i, (1000 + i,)) for i in range(40)]
    tensors = [gf.to_device(a, device=f"host:{i % 2}") for i, a in enumerate(arrays)]
    for got, expected in zip(gf.fetch(tensors), arrays, strict=True):
        assert_same(got, expected)


def test_what_cannot_be_fetched_is_named_by_its_path(device: str) -> None:
    x = gf.to_device(random_array(1, (5,)), device=device)
    with pytest.raises(TypeError, match=r"tree\['layers'\]\[1\]\['w'\]: .*datetime64"):
        gf.fetch({"layers": [x, {"w": np.zeros(3, "M8[s]")}]})


def test_a_tree_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(RecursionError):
        gf.fetch(loop)


def test_a_mapping_that_fails_raises_its_own_error() -> None:
    class Broken(UserDict[str, Any]):
        def items(self) -> Any:
            raise KeyError("no items today")

    with pytest.raises(KeyError, match="no items today"):
        gf.fetch([Broken()])


def test_a_tree_with_out_is_refused(device: str) -> None:
    x = gf.to_device(random_array(1, (5,)), device=device)
    for function in (gf.fetch, gf.fetch_async):
        with pytest.raises(TypeError, match="out takes one tensor"):
            function([x], out=np.empty(5, "f4"))  # type: ignore[call-overload]


def test_a_tree_in_flight_arrives_whole(device: str) -> None:
    arrays = [random_array(i, (i % 50, 13)) for i in range(300)] + [random_array(7, (3, 1 << 18))]
    tree = {
        "many": [gf.to_device(a, device=device) for a in arrays],
        "view": gf.to_device(arrays[-1], device=device).T[::2],
        "cpu": arrays[5],
        "other": (None, "text", 7),
    }
    future = gf.fetch_async(tree)
    assert "dict" in repr(future)
    result = future.result()
    assert future.result() is result
    assert list(result) == list(tree)
    for got, expected in zip(result["many"], arrays, strict=True):
        assert_same(got, expected)
    assert_same(result["view"], np.array(arrays[-1].T[::2], order="C"))
    assert_same(result["cpu"], arrays[5])
    assert result["other"] == (None, "text", 7)
    assert gf.fetch_async({}).result() == {}
    assert gf.fetch_async([1, "a"]).result() == [1, "a"]


def test_a_tree_in_flight_keeps_its_tensors(device: str) -> None:
    a = random_array(1, (1 << 20,))
    x = gf.to_device(a, device=device)
    alive = weakref.ref(x)
    _core._host_faults(bandwidth=40e6)
    tree = [x]
    future = gf.fetch_async(tree)
    tree.clear()
    del x
    gc.collect()
    assert alive() is not None
    assert_same(future.result()[0], a)
    gc.collect()
    assert alive() is None


def test_a_tree_that_cannot_be_read_starts_nothing(device: str) -> None:
    x = gf.to_device(random_array(1, (5,)), device=device)
    with pytest.raises(TypeError, match=r"tree\['w'\]: .*datetime64"):
        gf.fetch_async({"x": x, "w": np.zeros(3, "M8[s]")})


def test_a_failure_in_flight_is_raised_by_result_and_leaks_nothing() -> None:
    before = pool_used_nbytes()
    tensors = [gf.to_device(random_array(i, (4096,)), device="host:0") for i in range(100)]
    _core._host_faults(copy_fail_after_nbytes=100_000)
    future = gf.fetch_async(tensors)
    for _ in range(2):
        with pytest.raises(gf.Error, match=r"one of copies 0 to 99: .*injected"):
            future.result()
    _core._host_faults()
    del future
    assert gf.pool.stats()["used_nbytes"] == before


FETCHES = [gf.fetch, lambda x, **options: gf.fetch_async(x, **options).result()]
fetches = pytest.mark.parametrize("fetch", FETCHES, ids=["fetch", "fetch_async"])


@fetches
@pytest.mark.parametrize("order", ["C", "F", "A", "K"])
def test_order_holds_for_every_tensor(device: str, fetch: Any, order: Any) -> None:
    arrays = [random_array(i, shape) for i, shape in enumerate([(4, 5, 6), (7,), (), (0, 3)])]
    tensors = [gf.to_device(a, device=device) for a in arrays]
    tensors.append(tensors[0].T)
    tensors.append(tensors[0][:, ::2, ::-1])
    arrays += [arrays[0].T, arrays[0][:, ::2, ::-1]]
    for got, a in zip(fetch(tensors, order=order), arrays, strict=True):
        expected = np.array(a, order=order)
        assert got.strides == expected.strides or a.size == 0
        assert got.tobytes() == expected.tobytes()


@fetches
@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, np.float64, "int32", "bool"])
def test_dtype_holds_for_every_tensor(device: str, fetch: Any, dtype: Any) -> None:
    arrays = [random_array(i, (i, 11), "f4" if i % 2 else "i2") for i in range(40)]
    tensors = [gf.to_device(a, device=device) for a in arrays]
    result = fetch({"x": [*tensors, tensors[7].T]}, dtype=dtype)["x"]
    for got, a in zip(result, [*arrays, arrays[7].T], strict=True):
        assert_same(got, np.ascontiguousarray(a.astype(dtype)).reshape(a.shape))


@fetches
def test_a_cast_that_is_not_offered_names_the_dtypes(device: str, fetch: Any) -> None:
    tree = [gf.to_device(random_array(i, (5,), t), device=device) for i, t in enumerate("fD")]
    with pytest.raises(TypeError, match=r"dtype is float16, and .* of dtype complex128"):
        fetch(tree, dtype="float16")


def test_a_state_dict_there_and_back(device: str) -> None:
    """Every dtype in one call, and up again from what came."""
    state = {
        f"layer.{dtype}": gf.to_device(random_array(i, (i + 1, 3), dtype), device=device)
        for i, dtype in enumerate(["f4", "f2", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, "i8"])
    }
    host = gf.fetch_async(OrderedDict(state)).result()
    assert type(host) is OrderedDict
    again = {name: gf.to_device(a, device=device) for name, a in host.items()}
    for name, x in gf.fetch(again).items():
        assert_same(x, gf.fetch(state[name]))


def test_a_device_failure_names_the_copies_and_leaks_nothing() -> None:
    before = pool_used_nbytes()
    tensors = [gf.to_device(random_array(i, (4096,)), device="host:0") for i in range(100)]
    _core._host_faults(copy_fail_after_nbytes=100_000)
    with pytest.raises(gf.Error, match=r"one of copies 0 to 99: .*injected"):
        gf.fetch(tensors)
    _core._host_faults()
    assert gf.pool.stats()["used_nbytes"] == before
    for got, i in zip(gf.fetch(tensors), range(100), strict=True):
        assert_same(got, random_array(i, (4096,)))


def test_a_list_changed_by_another_leaf_is_read_as_it_was() -> None:
    """Reading a leaf runs its owner's code, which may change the containers."""
    a = random_array(1, (5,))
    tree: list[Any] = []

    class Mutating:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **kwargs: Any) -> Any:
            tree.clear()
            return a.__dlpack__()

    tree += [Mutating(), a, Mutating()]
    for got in gf.fetch(tree):
        assert_same(got, a)


def test_trees_fetched_by_several_threads_do_not_mix(device: str) -> None:
    arrays = [random_array(i, (i % 90, 13)) for i in range(200)]
    tensors = [gf.to_device(a, device=device) for a in arrays]

    def fetch_part(start: int) -> bool:
        part = slice(start, start + 100)
        result: Any = gf.fetch({"x": tensors[part]})
        return all(map(np.array_equal, result["x"], arrays[part]))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(fetch_part, range(0, 100, 5)))
