"""Imports through DLPack's C exchange API, and through __dlpack__ where that API fails."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from test_dlpack import CUDA, FLOAT4, Producer

import gpufetch as gf

FROM_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
WORK_STREAM = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)


class ExchangeApi(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("from_object", FROM_OBJECT),
        ("to_object", ctypes.c_void_p),
        ("tensor_from_object", ctypes.c_void_p),
        ("work_stream", WORK_STREAM),
    ]


@FROM_OBJECT
def _from_object(producer: Any, managed: Any) -> int:
    if producer.fails:
        return producer.fails
    if producer.gives_nothing:
        return 0
    producer.exported += 1
    managed[0] = ctypes.addressof(producer.managed)
    return 0


@WORK_STREAM
def _work_stream(device_type: int, device_id: int, stream: Any) -> int:
    _asked.append((device_type, device_id))
    stream[0] = None
    return 0


_asked: list[tuple[int, int]] = []
_api = ExchangeApi(1, 3, None, None, _from_object, None, None, _work_stream)
_newer = ExchangeApi(2, 0, ctypes.addressof(_api), None, _from_object, None, None, _work_stream)
_unknown = ExchangeApi(7, 0, None, None, _from_object, None, None, _work_stream)
NAME = ctypes.c_char_p(b"dlpack_exchange_api")  # the capsule keeps the pointer


def capsule(api: ExchangeApi) -> Any:
    return ctypes.pythonapi.PyCapsule_New(ctypes.c_void_p(ctypes.addressof(api)), NAME, None)


class Fast(Producer):
    """A producer that has the exchange API beside __dlpack__."""

    __dlpack_c_exchange_api__ = capsule(_api)
    fails = 0
    gives_nothing = False
    exported = 0


class Newer(Fast):
    __dlpack_c_exchange_api__ = capsule(_newer)


class Unknown(Fast):
    __dlpack_c_exchange_api__ = capsule(_unknown)


class NoCapsule(Fast):
    __dlpack_c_exchange_api__ = 12345


@pytest.mark.parametrize("kind", [Fast, Newer])
def test_the_exchange_api_is_used_and_the_tensor_deleted_once(kind: type[Fast]) -> None:
    producer = kind()
    np.testing.assert_array_equal(gf.fetch(producer), producer.array)
    assert (producer.exported, producer.deleted) == (1, 1)
    assert producer.calls == []


@pytest.mark.parametrize("kind", [Unknown, NoCapsule])
def test_an_api_of_another_kind_is_left_alone(kind: type[Fast]) -> None:
    producer = kind()
    np.testing.assert_array_equal(gf.fetch(producer), producer.array)
    assert (producer.exported, producer.deleted, len(producer.calls)) == (0, 1, 1)


def test_a_failing_api_falls_back_to_the_method() -> None:
    producer = Fast()
    producer.fails = -1
    np.testing.assert_array_equal(gf.fetch(producer), producer.array)
    assert (producer.exported, producer.deleted, len(producer.calls)) == (0, 1, 1)


def test_an_api_that_gives_nothing_falls_back_to_the_method() -> None:
    producer = Fast()
    producer.gives_nothing = True
    np.testing.assert_array_equal(gf.fetch(producer), producer.array)
    assert (producer.exported, producer.deleted, len(producer.calls)) == (0, 1, 1)


def test_a_tensor_that_is_refused_is_deleted_by_each_way_once() -> None:
    producer = Fast(dtype=(FLOAT4, 4, 1))
    with pytest.raises(TypeError, match="float4"):
        gf.fetch(producer)
    assert (producer.exported, producer.deleted) == (1, 2)


def test_a_cuda_producer_is_asked_for_its_stream() -> None:
    _asked.clear()
    producer = Fast(device=(CUDA, 1 << 20))
    with pytest.raises((gf.Error, ValueError)):  # no such device
        gf.asdevice(producer)
    assert _asked == [(CUDA, 1 << 20)]
    assert producer.deleted == 1


def test_types_are_not_mixed_up() -> None:
    for _ in range(3):
        for producer in (Fast(), Producer(), Newer()):
            gf.fetch(producer)
            assert (len(producer.calls) == 0) == isinstance(producer, Fast)
