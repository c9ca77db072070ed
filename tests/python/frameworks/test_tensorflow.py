"""TensorFlow: what fetch gives is what TensorFlow itself gives; hand-over in both directions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from arrays import assert_same
from framework_data import data

import gpufetch as gf

# TensorFlow warns of itself; that is not tested here.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    "name",
    [
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    ],
)
def test_tensorflow_dtypes_there_and_back(tf: Any, name: str) -> None:
    dtype = getattr(ml_dtypes, name) if name == "bfloat16" else name
    a = data((20, 30)).astype(dtype) if name != "bool" else data((20, 30)) > 0
    x = tf.constant(a)
    assert x.dtype.name == name
    assert_same(gf.fetch(x), a)
    given = gf.convert(a, "tensorflow", copy=True)
    assert given.dtype == x.dtype
    assert_same(gf.fetch(given), a)


def test_an_immutable_tensor_is_not_filled(tf: Any, tmp_path: Path) -> None:
    gf.hdf5.save(tmp_path / "x.h5", {"x": np.zeros(5, np.float32)})
    x = tf.ones(5)
    for out in (x, tf.Variable(x)):
        with pytest.raises(TypeError, match="is immutable"):
            gf.hdf5.read(tmp_path / "x.h5", "x", out=out)
    assert x.numpy().tolist() == [1] * 5


def test_scalars_and_empty_tensors(tf: Any) -> None:
    for shape in ((), (0,), (0, 3)):
        assert_same(gf.fetch(tf.ones(shape)), np.ones(shape, np.float32))
        assert gf.convert(np.ones(shape), "tensorflow").shape == shape


def test_a_string_tensor_does_not_end_the_process(tf: Any) -> None:
    """TensorFlow's exporter fails an assertion on one, and takes the process with it."""
    with pytest.raises(TypeError, match=r"string has no plain elements: call x\.numpy\(\)"):
        gf.fetch(tf.constant(["a", "b"]))
    with pytest.raises(TypeError, match="resource has no plain elements"):
        gf.fetch(tf.Variable([1.0]).handle)


def test_what_tensorflow_does_not_export_says_what_to_call(tf: Any) -> None:
    quantized = tf.quantization.quantize([1.0, 2.0], 0.0, 3.0, tf.qint8).output
    with pytest.raises(TypeError, match="dequantize"):
        gf.fetch(quantized)
    float8 = tf.cast([1.0, 2.0], tf.dtypes.experimental.float8_e5m2)
    with pytest.raises(TypeError, match="bfloat16"):
        gf.fetch(float8)
    assert_same(gf.fetch(tf.cast(float8, tf.bfloat16)), np.array([1, 2], ml_dtypes.bfloat16))
    with pytest.raises(TypeError, match="to_dense"):
        gf.fetch(tf.sparse.from_dense([[1, 0], [0, 2]]))
    with pytest.raises(TypeError, match="to_tensor"):
        gf.fetch(tf.ragged.constant([[1], [2, 3]]))


def test_variables_are_read(tf: Any) -> None:
    variable = tf.Variable(data((30, 20)))
    assert_same(gf.fetch(variable), data((30, 20)))
    result = gf.fetch(variable)
    variable.assign_add(tf.ones((30, 20)))
    assert_same(result, data((30, 20)))
    tree: Any = gf.fetch({"v": variable, "dtype": tf.float32, "x": tf.zeros(3)})
    assert_same(tree["v"], data((30, 20)) + np.float32(1))
    assert tree["dtype"] is tf.float32
    assert_same(tree["x"], np.zeros(3, np.float32))


def test_tensorflow_takes_memory_without_a_copy(tf: Any) -> None:
    a = gf.fetch(data((64, 32)))
    x = gf.convert(a, "tensorflow", copy=False)
    assert gf.asdevice(x).data_ptr == a.ctypes.data
    assert gf.convert(x, "tensorflow") is x
    a[0, 0] = 7
    assert x[0, 0] == 7


def test_layouts_that_tensorflow_has_not_are_copied(tf: Any) -> None:
    a = data((30, 40))
    for view in (a.T, a[::-1], a[:, ::2]):
        with pytest.raises(ValueError, match="C-contiguous"):
            gf.convert(view, "tensorflow", copy=False)
        with pytest.warns(gf.CopyWarning, match="C-contiguous"):
            x = gf.convert(view, "tensorflow")
        assert_same(gf.fetch(x), np.array(view, order="C"))
    a.flags.writeable = False
    with pytest.warns(gf.CopyWarning, match="read-only"):
        assert_same(gf.fetch(gf.convert(a, "tensorflow")), a)


def test_float8_is_refused_with_a_remedy(tf: Any) -> None:
    with pytest.raises(TypeError, match="view it as uint8"):
        gf.convert(data((3,)).astype(ml_dtypes.float8_e5m2), "tensorflow")


def test_from_tensorflow_to_torch_jax_and_numpy(tf: Any, torch: Any, jax: Any) -> None:
    x = tf.constant(data((64, 32)))
    pointer = gf.asdevice(x).data_ptr
    t = gf.convert(x, "torch", copy=False)
    assert t.data_ptr() == pointer
    assert_same(t.numpy(), data((64, 32)))
    assert gf.convert(x, "numpy", copy=False).ctypes.data == pointer
    assert_same(np.asarray(gf.convert(x, "jax", copy=True)), data((64, 32)))


def test_the_host_backend_arrives_as_a_cpu_copy(tf: Any) -> None:
    with pytest.warns(gf.CopyWarning, match="host backend"):
        x = gf.convert(gf.to_device(data((30,)), device="host:0"), "tensorflow")
    assert_same(gf.fetch(x), data((30,)))


@pytest.mark.parametrize("name", ["float32", "half", "bfloat16", "int8", "bool"])
def test_tensorflow_dtypes_are_dtypes(tf: Any, name: str) -> None:
    a = np.arange(6, dtype="f4")
    expected = np.dtype(getattr(tf, name).as_numpy_dtype)
    assert gf.fetch(a, dtype=getattr(tf, name)).dtype == expected
    assert gf.to_device(a, device="host:0", dtype=getattr(tf, name)).dtype == expected
