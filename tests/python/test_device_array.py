"""DeviceArray: indexing as NumPy does it, views that own nothing, memory freed in time."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import reprlib
import subprocess
import sys
import weakref
from typing import Any

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from sanitizing import fewer

import gpufetch as gf
from gpufetch import _core


def free_nbytes(index: int = 0) -> int:
    found: int = gf.info()["backends"]["host"]["devices"][index]["free_nbytes"]
    return found


def test_attributes_say_what_it_is(device: str) -> None:
    x = gf.to_device(np.zeros((3, 4, 5), np.int16), device=device)
    assert x.shape == (3, 4, 5)
    assert x.strides == (40, 10, 2)
    assert (x.ndim, x.size, x.nbytes, len(x)) == (3, 60, 120, 3)
    assert x.dtype == np.int16 and isinstance(x.dtype, np.dtype)
    assert x.device == device
    assert isinstance(x.data_ptr, int) and x.data_ptr % 256 == 0
    assert x.readonly is False


def test_bfloat16_has_ml_dtypes_dtype(device: str) -> None:
    assert gf.to_device(np.zeros(2, ml_dtypes.bfloat16), device=device).dtype == ml_dtypes.bfloat16


def test_repr_copies_nothing(device: str) -> None:
    x = gf.to_device(np.zeros((3, 4), np.float32), device=device)
    _core._host_faults(copy_fail_after_nbytes=0)
    expected = f"DeviceArray(shape=(3, 4), dtype=float32, device='{device}', nbytes=48)"
    assert repr(x) == str(x) == expected


@hypothesis.settings(deadline=None, max_examples=fewer(300))
@hypothesis.given(data=st.data())
def test_basic_indexing_agrees_with_numpy(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=6))
    key = data.draw(hnp.basic_indices(shape, allow_newaxis=True, max_dims=9))
    a = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    expected = np.asarray(a[key])
    view = gf.to_device(a, device="host:0")[key]
    assert view.shape == expected.shape
    np.testing.assert_array_equal(gf.fetch(view), expected)
    np.testing.assert_array_equal(gf.fetch(view.T), expected.T)


@hypothesis.settings(deadline=None, max_examples=fewer(100))
@hypothesis.given(data=st.data())
def test_views_of_views_agree_with_numpy(data: st.DataObject) -> None:
    a = np.arange(7 * 5 * 6, dtype=np.uint16).reshape(7, 5, 6)
    x = gf.to_device(a, device="host:0")
    for _ in range(3):
        key = data.draw(hnp.basic_indices(a.shape, allow_newaxis=True, max_dims=9))
        a, x = np.asarray(a[key]), x[key]
        if data.draw(st.booleans()):
            a, x = a.T, x.T
    assert x.shape == a.shape
    np.testing.assert_array_equal(gf.fetch(x), a)


def test_an_int_index_may_be_any_integer_type(device: str) -> None:
    a = np.arange(12).reshape(3, 4)
    x = gf.to_device(a, device=device)
    assert gf.fetch(x[np.int8(-1), np.uint64(2)]) == 10
    assert gf.fetch(x[np.array(-1), np.array(2, np.uint8)]) == 10
    assert gf.fetch(x[np.array(1)]).tolist() == a[np.array(1)].tolist()


@pytest.mark.parametrize("key", [3, -4, (0, 4), (..., 5), (slice(None), -5), 1 << 70])
def test_an_index_out_of_bounds_is_refused(key: Any) -> None:
    x = gf.to_device(np.zeros((3, 4)), device="host:0")
    with pytest.raises(IndexError):
        x[key]
    if key == (0, 4):
        with pytest.raises(IndexError, match="index 4 is out of bounds for axis 1 with size 4"):
            x[key]


@pytest.mark.parametrize("key", [(0, 0, 0), (..., ...), (0, ..., 0, 0)])
def test_too_many_indices_are_refused(key: Any) -> None:
    with pytest.raises(IndexError):
        gf.to_device(np.zeros((3, 4)), device="host:0")[key]


@pytest.mark.parametrize("key", [[0, 1], np.array([0]), True, (0, [1])])
def test_other_indices_say_fetch_first(key: Any) -> None:
    with pytest.raises(TypeError, match="fetch it first"):
        gf.to_device(np.zeros((3, 4)), device="host:0")[key]


@pytest.mark.parametrize("key", ["a", 1.0, np.array([0.5]), (0, None, object), 10**20, -(10**20)])
def test_what_is_no_index_in_numpy_is_an_index_error_that_names_it(key: Any) -> None:
    wrong = key[-1] if isinstance(key, tuple) else key
    with pytest.raises(IndexError):
        np.zeros((3, 4))[key]
    for x in (gf.to_device(np.zeros((3, 4))), gf.lazy(gf.to_device(np.zeros((3, 4))))):
        with pytest.raises(IndexError, match=re.escape(reprlib.repr(wrong))):
            x[key]


def test_a_ragged_list_is_a_value_error_as_in_numpy() -> None:
    a = np.zeros((3, 4))
    for x in (a, gf.to_device(a), gf.lazy(gf.to_device(a))):
        with pytest.raises(ValueError, match="inhomogeneous"):
            x[[[0], [1, 2]]]  # type: ignore[index]


def test_a_device_array_as_an_index_is_its_number_or_refused() -> None:
    a = np.arange(12).reshape(3, 4)
    x = gf.to_device(a)
    assert gf.fetch(x[gf.to_device(np.int8(-1))]).tolist() == a[-1].tolist()
    for wrong in (x, gf.to_device(np.array([1]))):
        with pytest.raises(TypeError, match="fetch it first"):
            x[wrong]
    with pytest.raises(IndexError, match="DeviceArray"):
        x[gf.to_device(np.float32(1))]


def test_a_zero_step_is_refused() -> None:
    with pytest.raises(ValueError, match="zero"):
        gf.to_device(np.zeros(3), device="host:0")[::0]


def test_more_than_32_dimensions_are_refused() -> None:
    x = gf.to_device(np.zeros((1,) * 31), device="host:0")
    assert x[None].ndim == 32
    with pytest.raises(IndexError, match="32"):
        x[None, None]
    with pytest.raises(IndexError, match="too many"):
        x[(None,) * 100]
    with pytest.raises(ValueError, match="32"):
        gf.to_device(np.zeros((1,) * 33), device="host:0")


def test_a_step_larger_than_any_array_does_not_overflow() -> None:
    x = gf.to_device(np.arange(5), device="host:0")
    assert gf.fetch(x[:: sys.maxsize]).tolist() == [0]
    assert gf.fetch(x[:: -sys.maxsize]).tolist() == [4]
    assert x[3 : 1 << 80 : 1 << 80].shape == (1,)


def test_without_dimensions_there_is_no_len(device: str) -> None:
    with pytest.raises(TypeError, match="without dimensions"):
        len(gf.to_device(np.float32(1), device=device))


def test_truth_is_not_guessed(device: str) -> None:
    x = gf.to_device(np.ones(3), device=device)
    with pytest.raises(ValueError, match="truth value of a DeviceArray with 3 elements"):
        bool(x)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(x == 1)


def test_iteration_gives_views_and_scalars_as_numpy_does(device: str) -> None:
    a = np.arange(12, dtype=np.int16).reshape(4, 3)
    rows = list(gf.to_device(a, device=device))
    assert all(isinstance(row, gf.DeviceArray) for row in rows)
    assert [gf.fetch(row).tolist() for row in rows] == a.tolist()
    scalars = list(gf.to_device(a[0], device=device))
    assert scalars == [0, 1, 2] and type(scalars[0]) is np.int16
    long = np.arange(300_000)
    assert list(gf.to_device(long, device=device)) == long.tolist()
    with pytest.raises(TypeError, match="without dimensions"):
        iter(gf.to_device(np.float32(1), device=device))


def test_an_operator_in_place_does_not_put_an_array_in_the_arrays_place(device: str) -> None:
    x = gf.to_device(np.ones(3), device=device)
    with pytest.raises(TypeError, match="not written to"):
        x += 1
    with pytest.raises(TypeError, match="not written to"):
        x **= 2
    assert isinstance(x, gf.DeviceArray) and gf.fetch(x).tolist() == [1, 1, 1]


def test_asarray_fetches_and_casts(device: str) -> None:
    a = np.random.default_rng(0).standard_normal((4, 6))
    x = gf.to_device(a, device=device)
    np.testing.assert_array_equal(np.asarray(x), a)
    np.testing.assert_array_equal(np.array(x[::-1]), a[::-1])
    assert np.asarray(x, dtype=np.float32).dtype == np.float32
    np.testing.assert_array_equal(np.asarray(x, np.float32), a.astype(np.float32))
    assert x.__array__("c16").dtype == np.complex128
    np.testing.assert_array_equal(np.asarray(x, "i4"), a.astype("i4"))
    with pytest.raises(ValueError, match="copy"):
        np.array(x, copy=False)
    with pytest.raises(TypeError):
        x.__array__(dtype="no such dtype")


def test_views_keep_the_memory_and_not_each_other() -> None:
    expected = np.arange(1 << 16)
    gf.fetch(gf.to_device(expected, device="host:0")[1::2])  # scratch stays allocated
    gc.collect()  # what earlier tests left behind
    free = free_nbytes()
    x = gf.to_device(expected, device="host:0")
    owner = weakref.ref(x)
    first = x[1:]
    middle = weakref.ref(first)
    last = first[::2]
    del x, first
    gc.collect()
    assert middle() is None
    assert owner() is not None
    np.testing.assert_array_equal(gf.fetch(last), expected[1::2])
    del last
    assert owner() is None
    assert free_nbytes() == free


def test_views_share_the_memory(device: str) -> None:
    x = gf.to_device(np.zeros((4, 5)), device=device)
    assert x[1:].data_ptr == x.data_ptr + 40
    assert x[::-1].data_ptr == x.data_ptr + 120
    assert x.T.strides == (8, 40)


def test_asdevice_keeps_the_array_alive_without_a_copy() -> None:
    class Array(np.ndarray[Any, Any]):
        pass

    a = np.arange(1000.0).view(Array)
    alive = weakref.ref(a)
    x = gf.asdevice(a)
    assert x.data_ptr == a.ctypes.data
    assert (x.device, x.readonly) == ("cpu", False)
    a[3] = -1
    del a
    gc.collect()
    assert alive() is not None
    assert gf.fetch(x[3]) == -1
    del x
    assert alive() is None


def test_asdevice_of_a_device_array_is_itself(device: str) -> None:
    x = gf.to_device(np.zeros(3), device=device)
    assert gf.asdevice(x) is x


def test_a_cycle_through_a_wrapped_producer_is_collected() -> None:
    class Producer:
        def __init__(self) -> None:
            self.array = np.zeros(3)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError

        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return {
                "version": 3,
                "shape": (0,),
                "typestr": "<f8",
                "data": (x.data_ptr, False),
                "strides": None,
            }

    x = gf.to_device(np.zeros(3), device="host:0")
    producer = Producer()
    alive = weakref.ref(producer)
    producer.wrapped = gf.asdevice(producer)  # type: ignore[attr-defined]
    del producer
    gc.collect()
    assert alive() is None


def test_it_cannot_be_made_by_hand_changed_or_pickled(device: str) -> None:
    x = gf.to_device(np.zeros(3), device=device)
    with pytest.raises(TypeError):
        gf.DeviceArray()
    with pytest.raises(AttributeError):
        x.shape = (1, 3)  # type: ignore[misc]
    with pytest.raises(TypeError):
        x[0] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        pickle.dumps(x)
    with pytest.raises(TypeError):
        copy.copy(x)


def test_cuda_array_interface_is_for_cuda_only(device: str) -> None:
    x = gf.to_device(np.zeros((2, 3), np.float32), device=device)[::-1]
    if device.startswith("cuda"):
        interface = x.__cuda_array_interface__
        assert interface["version"] == 3
        assert (interface["shape"], interface["strides"]) == ((2, 3), (-12, 4))
        assert interface["typestr"] == "<f4"
        assert interface["data"] == (x.data_ptr, False)
        assert interface["stream"] == 1
    else:
        assert not hasattr(x, "__cuda_array_interface__")


class Pointer:
    """A tensor that has the CUDA Array Interface alone, which does not name the device."""

    def __init__(self, x: gf.DeviceArray, **changes: Any) -> None:
        self.owner = x
        described = {"shape": x.shape, "typestr": x.dtype.str, "strides": x.strides}
        self.__cuda_array_interface__ = {
            "version": 3,
            "data": (x.data_ptr, False),
            **described,
            **changes,
        }


def devices() -> list[str]:
    backends = gf.info()["backends"].values()
    return [found["device"] for backend in backends for found in backend["devices"]]


@pytest.mark.parametrize("device", devices())
def test_a_pointer_of_the_interface_tells_its_device(device: str) -> None:
    a = np.arange(12, dtype=np.int16).reshape(3, 4)
    x = gf.to_device(a, device=device)[::-1, 1:]
    for changes in ({}, {"stream": 1}, {"stream": None}):
        wrapped = gf.asdevice(Pointer(x, **changes))
        assert wrapped.device == device
        np.testing.assert_array_equal(gf.fetch(wrapped), a[::-1, 1:])
    np.testing.assert_array_equal(gf.fetch([Pointer(x), Pointer(x)]), [a[::-1, 1:]] * 2)


@pytest.mark.parametrize("stride", [0, 3, -8, 1 << 61, -(1 << 63), (1 << 63) - 1])
def test_the_stride_of_an_axis_of_one_element_means_nothing(device: str, stride: int) -> None:
    """Whatever the interface says of it, and whatever the result's is."""
    a = np.arange(24, dtype=np.float32).reshape(4, 1, 6)
    x = gf.to_device(a, device=device)[::-1]
    for view, expected in ((x, a[::-1]), (x[:1], a[3:]), (x[:, :, :1], a[::-1, :, :1])):
        lengths = zip(view.shape, view.strides, strict=True)
        strides = tuple(stride if length == 1 else given for length, given in lengths)
        odd = gf.asdevice(Pointer(view, strides=strides))
        for order in ("C", "K"):
            np.testing.assert_array_equal(gf.fetch(odd, order=order), expected)
        np.testing.assert_array_equal(gf.fetch(odd.T), expected.T)
        np.testing.assert_array_equal(gf.lazy(odd)[..., 0].fetch(), expected[..., 0])
        assert gf.lazy(odd).stats().max == expected.max()
        assert np.asarray(gf.lazy(odd).overview((2, 1, 2), "first")).flat[0] == expected.flat[0]
        np.testing.assert_array_equal(gf.fetch([odd, odd]), [expected] * 2)
    out = np.lib.stride_tricks.as_strided(np.zeros(24, np.float32), (4, 1, 6), (24, 12345, 4))
    np.testing.assert_array_equal(gf.fetch(x, out=out), a[::-1])


def test_the_fake_gpu_catches_a_host_read_of_a_device_pointer() -> None:
    code = (
        "import ctypes, numpy as np, gpufetch as gf\n"
        "x = gf.to_device(np.arange(1000), device='host:0')\n"
        "print(gf.fetch(x).sum(), flush=True)\n"
        "ctypes.string_at(x.data_ptr, 8)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["499500"]
    assert done.returncode == -11, done.stderr
