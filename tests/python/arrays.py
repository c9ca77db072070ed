"""The dtypes that gpufetch knows, arrays of them, and the memory that is free or in use."""

from __future__ import annotations

import gc
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import gpufetch as gf

Array = npt.NDArray[Any]

INTEGERS = [np.dtype(code) for code in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT8 = [
    np.dtype(ml_dtypes.float8_e3m4),
    np.dtype(ml_dtypes.float8_e4m3),
    np.dtype(ml_dtypes.float8_e4m3b11fnuz),
    np.dtype(ml_dtypes.float8_e4m3fn),
    np.dtype(ml_dtypes.float8_e4m3fnuz),
    np.dtype(ml_dtypes.float8_e5m2),
    np.dtype(ml_dtypes.float8_e5m2fnuz),
]
E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)  # powers of two alone: no cast to it is offered
FLOATS = [np.dtype("f2"), BFLOAT16, *FLOAT8, np.dtype("f4"), np.dtype("f8")]
CASTABLE = [np.dtype("?"), *INTEGERS, *FLOATS]  # to each other
DTYPES = [*CASTABLE, E8M0, np.dtype("c8"), np.dtype("c16")]


def random_array(shape: tuple[int, ...], dtype: npt.DTypeLike, seed: int = 7) -> Array:
    """Elements of every bit pattern (of 0 and 1 for bool)."""
    dtype = np.dtype(dtype)
    generator = np.random.default_rng(seed)
    if dtype == np.bool_:
        return generator.integers(0, 2, shape, np.uint8).astype(np.bool_)
    data = generator.integers(0, 256, (int(np.prod(shape)) * dtype.itemsize,), np.uint8)
    return data.view(dtype).reshape(shape)


def assert_same(actual: Any, expected: Array) -> None:
    """Check for an ndarray with the same bits."""
    assert type(actual) is np.ndarray
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert actual.tobytes() == expected.tobytes()


def free_nbytes(device: str) -> int:
    """Memory that the device has left."""
    kind, _, index = device.partition(":")
    gf.pool.trim(gf.pool.stats()["reserved_nbytes"])  # device memory that is kept for reuse
    found = gf.info()["backends"][kind]["devices"][int(index)]["free_nbytes"]
    assert isinstance(found, int)
    return found


def pool_used_nbytes() -> int:
    """Pinned memory in use, after that of unreachable objects of earlier tests was released."""
    gc.collect()
    return gf.pool.stats()["used_nbytes"]
