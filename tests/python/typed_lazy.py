"""What type checkers see of LazyArray, DeviceArray and convert; test_typing.py runs mypy on it."""

from __future__ import annotations

from typing import Any, Literal, assert_type

import numpy as np
import numpy.typing as npt

import gpufetch as gf

array: npt.NDArray[np.float32] = np.ones((3, 4), np.float32)
x = gf.to_device(array)
lz = gf.lazy(x, max_fetch_nbytes=1 << 20)
indices: npt.NDArray[np.intp] = np.array([0, 2])
mask: npt.NDArray[np.bool_] = np.ones(3, np.bool_)
framework: Literal["torch", "jax"] = "torch"

# A slice gives a view; an integer a view or a scalar, as with an ndarray; arrays give an ndarray.
assert_type(lz, gf.LazyArray)
assert_type(lz[1:], gf.LazyArray)
assert_type(lz[...], gf.LazyArray)
assert_type(lz[None], gf.LazyArray)
assert_type(lz[1:, ::2], gf.LazyArray)
assert_type(lz[..., None, :2], gf.LazyArray)
assert_type(lz[1], Any)
assert_type(lz[1, 2], Any)
assert_type(lz[np.int64(1)], Any)
assert_type(lz[0, 1:], Any)
assert_type(lz[[0, 2]], npt.NDArray[Any])
assert_type(lz[indices], npt.NDArray[Any])
assert_type(lz[mask], npt.NDArray[Any])
assert_type(lz[1:][0:2].T, gf.LazyArray)
assert_type(lz.transpose(1, 0).swapaxes(0, 1).reshape(2, -1, order="F").ravel(), gf.LazyArray)
assert_type(lz.squeeze(), gf.LazyArray)
assert_type(lz.fetch(), npt.NDArray[Any])
assert_type(lz.astype(np.float64), npt.NDArray[Any])
assert_type(lz.stats(), gf.Stats)
assert_type(gf.stats(lz).mean, float)
assert_type(lz.overview((1, 4), "mean"), gf.Overview)
assert_type(lz.histogram(10).counts, npt.NDArray[np.uint64])
assert_type(lz[1:] ** 2, Any)
assert_type(-lz[1:], Any)
assert_type(1.0 in lz, bool)
for index, values in lz.iter_chunks():
    assert_type(index, tuple[slice, ...])
    assert_type(values, npt.NDArray[Any])

assert_type(x[0], gf.DeviceArray)
assert_type(x[0, 1:, None, ...], gf.DeviceArray)
assert_type(x.T.reshape(2, 6).squeeze().ravel(), gf.DeviceArray)
assert_type(x + 1, npt.NDArray[Any])
assert_type(1 - x, npt.NDArray[Any])
assert_type(-x, npt.NDArray[Any])
assert_type(x > 0, npt.NDArray[np.bool_])
assert_type(gf.asdevice(lz), gf.DeviceArray)

assert_type(gf.convert(x, "numpy"), npt.NDArray[Any])
assert_type(gf.convert(x, "torch", copy=True), Any)
assert_type(gf.convert(x, framework), Any)

x[0] = 1  # type: ignore[index]
x[[0, 1]]  # type: ignore[index]
x["u"]  # type: ignore[index]
lz.overview((1, 4), "median")  # type: ignore[arg-type]
gf.lazy(x, max_fetch_nbytes="1 GiB")  # type: ignore[arg-type]
gf.convert(x, "pandas")  # type: ignore[call-overload]
