"""DLPack in and out: every form of the protocol, hostile capsules, and deleters run once."""

from __future__ import annotations

import ctypes
import gc
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import gpufetch as gf

CPU, CUDA, CUDA_HOST, METAL, EXT_DEV, MANAGED = 1, 2, 3, 8, 12, 13
INT, UINT, FLOAT, OPAQUE, BFLOAT, COMPLEX, BOOL, FLOAT4 = 0, 1, 2, 3, 4, 5, 6, 17


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", DELETER)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


_python = ctypes.pythonapi
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_python.PyCapsule_GetName.restype = ctypes.c_char_p
_python.PyCapsule_GetName.argtypes = [ctypes.py_object]
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def capsule_name(capsule: Any) -> str:
    name = _python.PyCapsule_GetName(capsule)
    assert isinstance(name, bytes)
    return name.decode()


def exported(capsule: Any) -> Any:
    """The managed tensor inside a capsule that DeviceArray has made."""
    name = capsule_name(capsule)
    kind = ManagedVersioned if name == "dltensor_versioned" else Managed
    managed: Any = kind.from_address(_python.PyCapsule_GetPointer(capsule, name.encode()))
    managed.capsule = capsule  # the memory goes with it
    return managed


class Producer:
    """A tensor library of one tensor, each detail of which can be wrong."""

    def __init__(
        self,
        array: npt.NDArray[Any] | None = None,
        *,
        device: tuple[int, int] = (CPU, 0),
        dtype: tuple[int, int, int] = (FLOAT, 32, 1),
        shape: tuple[int, ...] | None = None,
        strides: tuple[int, ...] | None = None,
        byte_offset: int = 0,
        ndim: int | None = None,
        versioned: bool = True,
        major: int = 1,
        flags: int = 0,
        null_shape: bool = False,
    ) -> None:
        self.array = np.arange(24, dtype=np.float32) if array is None else array
        shape = self.array.shape if shape is None else shape
        self.shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self.strides = (ctypes.c_int64 * max(len(strides), 1))(*strides) if strides else None
        self.deleted = 0
        self.calls: list[dict[str, Any]] = []
        self.deleter = DELETER(self._delete)
        self.versioned = versioned
        self.device = device
        self.managed: Any = ManagedVersioned() if versioned else Managed()
        self.managed.deleter = self.deleter
        if versioned:
            self.managed.major, self.managed.minor, self.managed.flags = major, 0, flags
        tensor = self.managed.tensor
        tensor.data = self.array.ctypes.data
        tensor.device = Device(*device)
        tensor.dtype = DType(*dtype)
        tensor.ndim = len(shape) if ndim is None else ndim
        if not null_shape:
            tensor.shape = ctypes.cast(self.shape, ctypes.POINTER(ctypes.c_int64))
        if self.strides is not None:
            tensor.strides = ctypes.cast(self.strides, ctypes.POINTER(ctypes.c_int64))
        tensor.byte_offset = byte_offset

    def _delete(self, _: int) -> None:
        self.deleted += 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        self.calls.append(options)
        name = b"dltensor_versioned" if self.versioned else b"dltensor"
        return _python.PyCapsule_New(ctypes.addressof(self.managed), name, None)


class Old(Producer):
    """A producer from before DLPack 1.0, which does not know max_version."""

    def __dlpack__(self, stream: int | None = None) -> Any:  # type: ignore[override]
        self.calls.append({"stream": stream})
        return _python.PyCapsule_New(ctypes.addressof(self.managed), b"dltensor", None)


class Oldest(Producer):
    """A producer whose __dlpack__ takes no keywords."""

    def __dlpack__(self) -> Any:  # type: ignore[override]
        self.calls.append({})
        return _python.PyCapsule_New(ctypes.addressof(self.managed), b"dltensor", None)


# --- In ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("versioned", [True, False])
def test_both_forms_of_capsule_are_read_and_deleted_once(versioned: bool) -> None:
    producer = Producer(versioned=versioned)
    np.testing.assert_array_equal(gf.fetch(producer), producer.array)
    gc.collect()
    assert producer.deleted == 1
    assert producer.calls == [{"max_version": (1, 1)}]  # no stream for the CPU


def test_the_deleter_runs_when_the_last_view_goes() -> None:
    producer = Producer()
    x = gf.asdevice(producer)
    view = x[3:][::2]
    del x
    assert producer.deleted == 0
    np.testing.assert_array_equal(gf.fetch(view), producer.array[3::2])
    del view
    assert producer.deleted == 1


def test_the_deleter_waits_for_a_fetch_in_flight() -> None:
    producer = Producer()
    future = gf.fetch_async(producer)
    result = future.result()
    assert producer.deleted == 1
    np.testing.assert_array_equal(result, producer.array)


def test_a_cuda_producer_is_asked_to_order_the_default_stream() -> None:
    producer = Producer(device=(CUDA, 1 << 20))
    with pytest.raises((gf.Error, ValueError)):  # no such device
        gf.asdevice(producer)
    assert producer.calls == [{"stream": 1, "max_version": (1, 1)}]
    assert producer.deleted == 1


@pytest.mark.parametrize("kind", [Old, Oldest])
def test_a_producer_of_an_older_protocol_is_read(kind: type[Producer]) -> None:
    producer = kind(versioned=False)
    np.testing.assert_array_equal(gf.fetch(producer), producer.array)
    assert len(producer.calls) == 1
    assert producer.deleted == 1


@pytest.mark.parametrize("kind", [Old, Oldest])
def test_an_older_cuda_producer_gets_the_stream_if_it_knows_one(kind: type[Producer]) -> None:
    producer = kind(versioned=False, device=(CUDA, 1 << 20))
    with pytest.raises((gf.Error, ValueError)):
        gf.asdevice(producer)
    assert producer.calls == [{"stream": 1} if kind is Old else {}]
    assert producer.deleted == 1


def test_byte_offset_and_strides_are_applied() -> None:
    a = np.arange(60, dtype=np.float32)
    producer = Producer(a, shape=(3, 4), strides=(-20, 2), byte_offset=4 * 41)
    expected = np.lib.stride_tricks.as_strided(a[41:], (3, 4), (-80, 8))
    np.testing.assert_array_equal(gf.fetch(producer), expected)


def test_a_negative_stride_divided_as_unsigned_is_read_right() -> None:
    a = np.arange(24, dtype=np.float32)  # CuPy's export of x[::-1]: 2^62 - 1 elements for -4 bytes
    producer = Producer(a, shape=(24,), strides=((1 << 62) - 1,), byte_offset=4 * 23)
    np.testing.assert_array_equal(gf.fetch(producer), a[::-1])


@pytest.mark.parametrize("stride", [0, 7, -5, 1 << 61, -(1 << 63), (1 << 63) - 1])
def test_the_stride_of_an_axis_of_one_element_means_nothing(device: str, stride: int) -> None:
    producer = Producer(shape=(1, 24, 1), strides=(stride, 1, stride))
    x = gf.asdevice(producer)
    expected = np.arange(24, dtype=np.float32).reshape(1, 24, 1)
    for order in ("C", "F", "A", "K"):
        np.testing.assert_array_equal(gf.fetch(x, order=order), expected)
    np.testing.assert_array_equal(np.from_dlpack(x), expected)
    np.testing.assert_array_equal(gf.fetch(x[::-1, ::-1, ::5]), expected[:, ::-1])
    there = gf.to_device(x, device=device)
    np.testing.assert_array_equal(gf.fetch(there), expected)
    assert gf.lazy(there).stats().max == 23


def test_strides_null_means_c_order() -> None:
    producer = Producer(shape=(2, 3, 4))
    np.testing.assert_array_equal(gf.fetch(producer), producer.array.reshape(2, 3, 4))


def test_zero_size_and_0d_tensors_are_read() -> None:
    assert gf.fetch(Producer(shape=(4, 0, 2))).shape == (4, 0, 2)
    assert gf.fetch(Producer(shape=())) == np.float32(0)
    empty = Producer(shape=(0,))
    empty.managed.tensor.data = None
    assert gf.fetch(empty).shape == (0,)


DTYPES = [
    ((BOOL, 8, 1), np.bool_),
    ((INT, 8, 1), np.int8),
    ((INT, 16, 1), np.int16),
    ((INT, 32, 1), np.int32),
    ((INT, 64, 1), np.int64),
    ((UINT, 8, 1), np.uint8),
    ((UINT, 16, 1), np.uint16),
    ((UINT, 32, 1), np.uint32),
    ((UINT, 64, 1), np.uint64),
    ((FLOAT, 16, 1), np.float16),
    ((FLOAT, 32, 1), np.float32),
    ((FLOAT, 64, 1), np.float64),
    ((BFLOAT, 16, 1), ml_dtypes.bfloat16),
    ((COMPLEX, 64, 1), np.complex64),
    ((COMPLEX, 128, 1), np.complex128),
    ((7, 8, 1), ml_dtypes.float8_e3m4),
    ((8, 8, 1), ml_dtypes.float8_e4m3),
    ((9, 8, 1), ml_dtypes.float8_e4m3b11fnuz),
    ((10, 8, 1), ml_dtypes.float8_e4m3fn),
    ((11, 8, 1), ml_dtypes.float8_e4m3fnuz),
    ((12, 8, 1), ml_dtypes.float8_e5m2),
    ((13, 8, 1), ml_dtypes.float8_e5m2fnuz),
    ((14, 8, 1), ml_dtypes.float8_e8m0fnu),
]


@pytest.mark.parametrize(("code", "dtype"), DTYPES)
def test_every_dtype_code_goes_both_ways(code: tuple[int, int, int], dtype: Any) -> None:
    a = np.random.default_rng(1).integers(0, 2, 64, np.uint8).view(dtype)
    result = gf.fetch(Producer(a, dtype=code))
    assert result.dtype == dtype
    assert result.tobytes() == a.tobytes()
    out = exported(gf.to_device(a, device="host:0").__dlpack__()).tensor.dtype
    assert (out.code, out.bits, out.lanes) == code


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"dtype": (FLOAT, 32, 4)}, TypeError, "4 lanes.*one more axis"),
    ({"dtype": (FLOAT4, 4, 1)}, TypeError, "float4_e2m1fn.*uint8"),
    ({"dtype": (FLOAT4, 4, 2)}, TypeError, "float4_e2m1fn"),
    ({"dtype": (15, 6, 1)}, TypeError, "float6_e2m3fn"),
    ({"dtype": (INT, 4, 1)}, TypeError, "int .* of 4 bits"),
    ({"dtype": (COMPLEX, 32, 1)}, TypeError, "complex32.*view_as_real"),
    ({"dtype": (FLOAT, 128, 1)}, TypeError, "128 bits"),
    ({"dtype": (OPAQUE, 64, 1)}, TypeError, "opaque"),
    ({"dtype": (200, 8, 1)}, TypeError, "code 200"),
    ({"device": (METAL, 0)}, TypeError, "kDLMetal"),
    ({"device": (99, 0)}, TypeError, "99"),
    ({"device": (-1, 0)}, TypeError, "-1"),
    ({"ndim": 33}, ValueError, "33 dimensions"),
    ({"ndim": -1}, ValueError, "-1 dimensions"),
    ({"shape": (3, -2)}, ValueError, r"shape\[1\] is -2"),
    ({"shape": (1 << 40, 1 << 40)}, ValueError, "overflows"),
    ({"strides": (1 << 62,)}, ValueError, "overflows"),
    ({"byte_offset": 1 << 63}, ValueError, "byte_offset is 9223372036854775808"),
    ({"byte_offset": (1 << 64) - 4}, ValueError, "byte_offset is 18446744073709551612"),
    ({"shape": (1 << 40, 4), "strides": (1 << 40, 1)}, ValueError, "span more than"),
    ({"null_shape": True}, ValueError, "no shape"),
    ({"major": 2}, BufferError, "version 2.0"),
]


@pytest.mark.parametrize(("details", "error", "message"), REFUSED)
def test_a_hostile_tensor_is_refused_and_deleted_once(
    details: dict[str, Any], error: type[Exception], message: str
) -> None:
    producer = Producer(**details)
    functions: list[Callable[[Any], Any]] = [gf.fetch, gf.asdevice, gf.fetch_async]
    for i, function in enumerate(functions):
        with pytest.raises(error, match=message):
            function(producer)
        assert producer.deleted == i + 1


@pytest.mark.parametrize("byte_offset", [0, 16])
def test_a_null_pointer_with_elements_is_refused(byte_offset: int) -> None:
    producer = Producer(byte_offset=byte_offset)
    producer.managed.tensor.data = None
    with pytest.raises(ValueError, match="NULL"):
        gf.fetch(producer)
    assert producer.deleted == 1


def test_a_capsule_cannot_be_used_twice() -> None:
    producer = Producer()
    capsule = producer.__dlpack__()
    producer.__dlpack__ = lambda _same=capsule, **_: _same  # type: ignore[method-assign]
    gf.fetch(producer)
    assert capsule_name(capsule) == "used_dltensor_versioned"
    with pytest.raises(TypeError, match="once only"):
        gf.fetch(producer)
    del capsule, producer.__dlpack__
    assert producer.deleted == 1


@pytest.mark.parametrize("value", [None, 3, "dltensor"])
def test_a_producer_that_gives_no_capsule_is_refused(value: Any) -> None:
    producer = Producer()
    producer.__dlpack__ = lambda **_: value  # type: ignore[method-assign]
    with pytest.raises(TypeError, match="not an unconsumed DLPack capsule"):
        gf.fetch(producer)


@pytest.mark.parametrize("value", [None, (1,), 7, ("a", 0), (1 << 80, 0), (2, 1 << 80)])
def test_a_wrong_dlpack_device_is_refused(value: Any) -> None:
    producer = Producer()
    producer.__dlpack_device__ = lambda: value  # type: ignore[method-assign]
    with pytest.raises((TypeError, ValueError), match=re.escape(f"() is {value}, ")):
        gf.fetch(producer)


def test_arguments_of_an_export_beyond_64_bits_are_named() -> None:
    x, large = gf.to_device(np.zeros(3)), 1 << 80
    for arguments in ({"stream": large}, {"dl_device": (large, 0)}, {"max_version": (large, 0)}):
        ((name, value),) = arguments.items()
        with pytest.raises(ValueError, match=re.escape(f"{name} is {value}, which does not fit")):
            x.__dlpack__(**arguments)


def test_an_error_of_the_producer_is_passed_on() -> None:
    producer = Producer()

    def fail(**_: Any) -> Any:
        raise RuntimeError("the producer is tired")

    producer.__dlpack__ = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="tired"):
        gf.fetch(producer)


def test_after_a_buffer_error_the_cuda_array_interface_is_asked() -> None:
    class Both(Producer):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            raise AttributeError if self.no_interface else KeyError("asked")

        no_interface = False

        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("not this one")

    both = Both()
    with pytest.raises(KeyError, match="asked"):
        gf.fetch(both)
    both.no_interface = True
    with pytest.raises(BufferError, match="not this one"):
        gf.fetch(both)


def test_read_only_flags_are_kept() -> None:
    assert gf.asdevice(Producer(flags=1)).readonly
    assert not gf.asdevice(Producer(flags=2)).readonly
    assert not gf.asdevice(Producer(versioned=False)).readonly


def test_pinned_memory_is_cpu_memory() -> None:
    assert gf.asdevice(Producer(device=(CUDA_HOST, 0))).device == "cpu"


# --- Out --------------------------------------------------------------------------------------


class Carrier:
    """A tensor of another library that exports the capsules of a DeviceArray."""

    def __init__(self, x: gf.DeviceArray, *, max_version: tuple[int, int] | None) -> None:
        self.x, self.max_version = x, max_version

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.x.__dlpack__(**{**options, "max_version": self.max_version})


@pytest.mark.parametrize("max_version", [None, (0, 8), (1, 0), (1, 3), (2, 0)])
def test_what_goes_out_comes_in_again(device: str, max_version: tuple[int, int] | None) -> None:
    a = np.random.default_rng(5).standard_normal((6, 7, 8))
    x = gf.to_device(a, device=device)
    view = x[::-2, 1:, ::3].T
    again = gf.asdevice(Carrier(view, max_version=max_version))
    assert (again.shape, again.strides, again.data_ptr) == (
        view.shape,
        view.strides,
        view.data_ptr,
    )
    assert again.device == device
    del x, view
    gc.collect()
    np.testing.assert_array_equal(gf.fetch(again), a[::-2, 1:, ::3].T)


def test_the_version_asked_for_is_the_version_given(device: str) -> None:
    x = gf.to_device(np.zeros((2, 3), np.int16), device=device)
    assert capsule_name(x.__dlpack__()) == "dltensor"
    assert capsule_name(x.__dlpack__(max_version=(0, 5))) == "dltensor"
    capsule = x.__dlpack__(max_version=(1, 2))
    managed = exported(capsule)
    assert capsule_name(capsule) == "dltensor_versioned"
    assert (managed.major, managed.flags) == (1, 0)
    assert managed.tensor.ndim == 2
    assert managed.tensor.strides[:2] == [3, 1]  # never NULL
    assert (managed.tensor.device.type, managed.tensor.device.id) == x.__dlpack_device__()


def test_a_capsule_keeps_the_memory_alive_and_frees_it_unconsumed() -> None:
    def free_nbytes() -> int:
        found: int = gf.info()["backends"]["host"]["devices"][0]["free_nbytes"]
        return found

    free = free_nbytes()
    capsule = gf.to_device(np.zeros(1 << 20), device="host:0").__dlpack__()
    gc.collect()
    assert free_nbytes() < free
    del capsule
    assert free_nbytes() == free


def test_device_ids_follow_the_device() -> None:
    assert gf.to_device(np.zeros(1), device="host:1").__dlpack_device__() == (EXT_DEV, 1)
    assert gf.asdevice(np.zeros(1)).__dlpack_device__() == (CPU, 0)


def test_numpy_gets_a_copy_on_the_cpu(device: str) -> None:
    a = np.random.default_rng(2).standard_normal((5, 6))
    x = gf.to_device(a, device=device)
    copied = np.from_dlpack(x[:, ::-1], device="cpu")
    np.testing.assert_array_equal(copied, a[:, ::-1])
    managed = exported(x.__dlpack__(dl_device=(CPU, 0), max_version=(1, 0)))
    assert managed.flags == 2  # copied


def test_numpy_shares_cpu_memory() -> None:
    a = np.arange(6.0)
    assert np.shares_memory(np.from_dlpack(gf.asdevice(a)), a)


BAD_REQUESTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"copy": True}, BufferError, "fetch"),
    ({"dl_device": (CPU, 0), "copy": False}, BufferError, "without a copy"),
    ({"dl_device": (METAL, 0)}, BufferError, r"\(8, 0\)"),
    ({"dl_device": (CUDA, 99)}, BufferError, r"\(2, 99\)"),
    ({"dl_device": 1}, TypeError, "dl_device"),
    ({"max_version": 1}, TypeError, "max_version"),
    ({"max_version": ("1", 0)}, TypeError, "integer"),
    ({"stream": "1"}, TypeError, "integer"),
    ({"streams": 1}, TypeError, "streams"),
]


@pytest.mark.parametrize(("request_", "error", "message"), BAD_REQUESTS)
def test_a_request_that_cannot_be_met_is_refused(
    device: str, request_: dict[str, Any], error: type[Exception], message: str
) -> None:
    x = gf.to_device(np.zeros(4), device=device)
    with pytest.raises(error, match=message):
        x.__dlpack__(**request_)


def test_read_only_memory_goes_out_with_its_flag_or_not_at_all() -> None:
    x = gf.asdevice(Producer(flags=1))
    with pytest.raises(BufferError, match=r"max_version=\(1, 0\)"):
        x.__dlpack__()
    assert exported(x.__dlpack__(max_version=(1, 0))).flags == 1
    assert exported(x[2:].__dlpack__(max_version=(1, 0))).flags == 1


def test_strides_that_are_no_whole_elements_are_refused() -> None:
    fields = np.zeros(5, [("flag", np.int8), ("value", np.float32)])
    x = gf.asdevice(fields["value"])
    assert gf.fetch(x).tolist() == [0.0] * 5
    with pytest.raises(BufferError, match="stride 5"):
        x.__dlpack__()
    assert np.from_dlpack(gf.asdevice(fields["value"][:1])).tolist() == [0.0]


def test_many_capsules_leave_no_reference(device: str) -> None:
    import sys

    x = gf.to_device(np.zeros(10), device=device)
    before = sys.getrefcount(x)
    actions: list[Callable[[], Any]] = [
        x.__dlpack__,
        lambda: x.__dlpack__(max_version=(1, 0)),
        lambda: gf.asdevice(Carrier(x, max_version=(1, 0))),
        lambda: gf.fetch(Carrier(x, max_version=None)),
        lambda: x.__dlpack__(dl_device=(CPU, 0)),
    ]
    for action in actions:
        for _ in range(50):
            action()
    assert abs(sys.getrefcount(x) - before) < 5
