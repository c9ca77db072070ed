"""convert and to_device(like=) where no framework but NumPy is needed."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from arrays import assert_same
from framework_data import VIEWS, data

import gpufetch as gf


@pytest.mark.parametrize("view", [*VIEWS, "reversed"])
def test_a_cpu_view_becomes_an_ndarray_over_the_same_memory(view: str) -> None:
    a = data((300, 200))
    expected = VIEWS.get(view, lambda x: x[::-1, ::-2])(a)
    x = gf.asdevice(np.asarray(expected))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = gf.convert(x, "numpy")
    assert result.strides == expected.strides or result.size < 2
    if view not in ("nothing", "element"):
        assert result.ctypes.data == expected.ctypes.data
    assert_same(np.array(result, order="C"), np.array(expected, order="C"))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, "?", "c16"])
def test_dtypes_survive(dtype: str) -> None:
    a = data((30, 20)).astype(dtype)
    assert_same(np.array(gf.convert(gf.asdevice(a), "numpy", copy=False)), a)


def test_read_only_memory_stays_read_only() -> None:
    a = data((30,))
    a.flags.writeable = False
    result = gf.convert(gf.asdevice(a), "numpy", copy=False)
    assert not result.flags.writeable


def test_a_device_array_is_copied_with_a_warning(device: str) -> None:
    x = gf.to_device(data((30, 20)), device=device)
    with pytest.warns(gf.CopyWarning, match="numpy copies"):
        assert_same(gf.convert(x, "numpy"), data((30, 20)))
    with pytest.raises(ValueError, match="allow a copy"):
        gf.convert(x, "numpy", copy=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(gf.convert(x, "numpy", copy=True), data((30, 20)))


def test_an_ndarray_is_returned_as_it_is_unless_a_copy_is_asked_for() -> None:
    a = data((30,))
    assert gf.convert(a, "numpy") is a
    copy = gf.convert(a, "numpy", copy=True)
    assert_same(copy, a)
    assert not np.shares_memory(copy, a)


def test_an_unknown_framework_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'paddle' is not known: use one of numpy, torch"):
        gf.convert(data((3,)), "paddle")


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(TypeError, match="is no tensor"):
        gf.convert("text", "numpy")


def test_to_device_like_a_device_or_a_device_array(device: str) -> None:
    a = data((30, 20))
    for like in (device, gf.to_device(a, device=device)):
        x = gf.to_device(a, like=like)
        assert isinstance(x, gf.DeviceArray) and x.device == device
        assert_same(gf.fetch(x), a)
        with pytest.raises(ValueError, match="both given"):
            gf.to_device(a, device=device, like=like)


def test_to_device_like_an_ndarray_copies_on_the_cpu() -> None:
    a = data((30, 20))
    copy = gf.to_device(a.T, like=a)
    assert_same(copy, np.array(a.T, order="C"))


# --- copy= ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("true", [True, np.True_, 1, np.int64(1)])
def test_copy_is_true_however_that_is_said(true: Any) -> None:
    x = np.arange(3.0)
    assert not np.shares_memory(gf.convert(x, "numpy", copy=true), x)
    with pytest.raises(BufferError, match="copy=True"):
        gf.asdevice(x).__dlpack__(copy=true)
    d_x = gf.to_device(x, device="host:0")
    d_x.__dlpack__(copy=true, dl_device=(1, 0))
    np.testing.assert_array_equal(gf.lazy(d_x).__array__(copy=true), x)


@pytest.mark.parametrize("false", [False, np.False_, 0, np.uint8(0)])
def test_copy_is_false_however_that_is_said(false: Any) -> None:
    x = gf.to_device(np.arange(3.0), device="host:0")
    extremes = gf.lazy(x).overview((2,), method="minmax")
    for use in (x.__array__, gf.lazy(x).__array__, extremes.__array__):
        with pytest.raises(ValueError, match="copy=False"):
            use(copy=false)
    with pytest.raises(BufferError, match="without a copy"):
        x.__dlpack__(copy=false, dl_device=(1, 0))
    with pytest.raises(ValueError, match="allow a copy"):
        gf.convert(x, "numpy", copy=false)


@pytest.mark.parametrize("neither", ["yes", 2, 1.0, []])
def test_a_copy_that_is_neither_is_a_type_error(neither: Any) -> None:
    x = gf.to_device(np.arange(3.0), device="host:0")
    extremes = gf.lazy(x).overview((2,), method="minmax")
    for use in (
        x.__array__,
        x.__dlpack__,
        gf.lazy(x).__array__,
        extremes.__array__,
        partial(gf.convert, x, "numpy"),
        partial(gf.share, x),
    ):
        with pytest.raises(TypeError, match=r"copy is .*: give True, False or None"):
            use(copy=neither)
