"""CuPy: what fetch gives is what cupy itself gives; hand-over in both directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from arrays import assert_same
from framework_data import VIEWS, data

import gpufetch as gf

# Frameworks warn of themselves, of small launches and of each other; that is not tested here.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("view", [*VIEWS, "reversed"])
def test_cupy_views(cupy: Any, view: str) -> None:
    take = VIEWS.get(view, lambda x: x[::-1, ::-2])
    x = take(cupy.asarray(data((300, 200))))
    assert_same(gf.fetch(x), np.array(cupy.asnumpy(x), order="C"))


def test_cupy_out_of_any_layout(cupy: Any) -> None:
    x = cupy.asarray(data((300, 200)))
    for out in (np.empty((300, 200), np.float32, order="F"), np.empty((300, 400), "f4")[:, ::-2]):
        assert gf.fetch(x, out=out) is out
        np.testing.assert_array_equal(out, cupy.asnumpy(x))


def test_cupy_work_on_a_stream_is_waited_for(cupy: Any) -> None:
    with cupy.cuda.Stream(non_blocking=True) as stream:
        x = cupy.ones((2048, 2048), cupy.float32)
        for _ in range(20):
            x = x @ x / 2048
        result = gf.fetch(x)
        stream.synchronize()
        assert_same(result, cupy.asnumpy(x))


def test_cupy_managed_memory(cupy: Any) -> None:
    memory = cupy.cuda.malloc_managed(4000)
    x = cupy.ndarray((1000,), cupy.float32, memory)
    x[...] = cupy.arange(1000)
    assert gf.asdevice(x).device == "cuda:0"
    assert_same(gf.fetch(x), np.arange(1000, dtype=np.float32))


def test_cupy_shares_a_device_array(cupy: Any) -> None:
    a = data((40, 50))
    x = gf.to_device(a, device="cuda:0")
    shared = cupy.from_dlpack(x[::-1])
    assert_same(cupy.asnumpy(shared), np.array(a[::-1]))
    shared[0] = 7
    assert (gf.fetch(x)[-1] == 7).all()
    by_interface = cupy.asarray(x)
    assert by_interface.data.ptr == x.data_ptr


def test_cupy_by_the_cuda_array_interface_alone(cupy: Any) -> None:
    class Only:
        def __init__(self, x: Any) -> None:
            self.x = x
            self.__cuda_array_interface__ = x.__cuda_array_interface__

    x = cupy.asarray(data((60, 70)))
    for view in (x, x[::2, 3:], x.T, x[:0]):
        assert_same(gf.fetch(Only(view)), np.array(cupy.asnumpy(view), order="C"))


def test_convert_between_cupy_torch_and_numpy(cupy: Any, torch: Any) -> None:
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch cannot use the GPU")
    x = cupy.asarray(data((40, 50)))
    t = gf.convert(x, "torch", copy=False)
    assert t.data_ptr() == x.data.ptr
    back = gf.convert(t.T, "cupy", copy=False)
    assert_same(np.array(cupy.asnumpy(back)), np.array(data((40, 50)).T))
    with pytest.warns(gf.CopyWarning, match="NumPy cannot use cuda:0"):
        assert_same(gf.convert(x, "numpy"), data((40, 50)))
    with pytest.warns(gf.CopyWarning, match="negative strides"):
        reversed_ = gf.convert(x[::-1], "torch")
    assert reversed_.is_cuda
    assert_same(gf.fetch(reversed_), np.array(data((40, 50))[::-1]))


def test_a_cpu_array_arrives_in_cupy_by_a_copy(cupy: Any) -> None:
    with pytest.warns(gf.CopyWarning, match="on the CPU"):
        x = gf.convert(data((40, 50)), "cupy")
    assert_same(cupy.asnumpy(x), data((40, 50)))
    like = gf.to_device(data((40, 50)), like=x)
    assert isinstance(like, cupy.ndarray)
    assert_same(cupy.asnumpy(like), data((40, 50)))


def test_a_tree_of_cupy_arrays(cupy: Any) -> None:
    arrays = [data((n,)) for n in range(300)]
    for got, expected in zip(gf.fetch([cupy.asarray(a) for a in arrays]), arrays, strict=True):
        assert_same(got, expected)
