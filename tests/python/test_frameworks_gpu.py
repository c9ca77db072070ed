"""The frameworks' own tensors on a GPU: what fetch gives is what the framework itself gives."""

from __future__ import annotations

import os
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import gpufetch as gf

_cuda = gf.info()["backends"]["cuda"]

# Frameworks warn of themselves, of small launches and of each other; that is not tested here.
pytestmark = [
    pytest.mark.skipif(not _cuda["available"], reason=f"no GPU: {_cuda['reason']}"),
    pytest.mark.filterwarnings("ignore"),
]

# JAX takes most of the GPU at its first use unless told otherwise.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


@pytest.fixture
def torch() -> Any:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch cannot use the GPU")
    return torch


@pytest.fixture
def cupy() -> Any:
    return pytest.importorskip("cupy", reason="CuPy is not installed")


@pytest.fixture
def numba_cuda() -> Any:
    cuda = pytest.importorskip("numba.cuda", reason="Numba is not installed")
    if not cuda.is_available():
        pytest.skip("this Numba cannot use the GPU")
    return cuda


@pytest.fixture
def jnp() -> Any:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX cannot use the GPU")
    return jax.numpy


def data(shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    values = np.random.default_rng(11).standard_normal(shape) * 100
    return values.astype(dtype)


def assert_same(actual: npt.NDArray[Any], expected: npt.NDArray[Any]) -> None:
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert actual.tobytes() == expected.tobytes()


VIEWS: dict[str, Any] = {
    "whole": lambda x: x,
    "transposed": lambda x: x.T,
    "strided": lambda x: x[1::2, ::3],
    "rows": lambda x: x[:, 5:-5],
    "column": lambda x: x[:, 3],
    "row": lambda x: x[7],
    "element": lambda x: x[7, 3],
    "nothing": lambda x: x[:0],
}


# --- PyTorch ----------------------------------------------------------------------------------


@pytest.mark.parametrize("view", VIEWS)
def test_torch_views(torch: Any, view: str) -> None:
    x = VIEWS[view](torch.from_numpy(data((300, 200))).cuda())
    assert_same(gf.fetch(x), x.cpu().numpy())


@pytest.mark.parametrize(
    "name",
    [
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    ],
)
def test_torch_dtypes(torch: Any, name: str) -> None:
    a = data((1000,)).astype(name) if name != "bool" else data((1000,)) > 0
    x = torch.from_numpy(a).cuda()
    assert_same(gf.fetch(x), x.cpu().numpy())


def test_torch_bfloat16(torch: Any) -> None:
    x = torch.from_numpy(data((300, 7))).cuda().to(torch.bfloat16)
    expected = x.cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    assert_same(gf.fetch(x), expected)
    assert_same(gf.fetch(x.T), np.array(expected.T, order="C"))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_torch_float8(torch: Any, name: str) -> None:
    x = torch.from_numpy(data((999,))).cuda().to(getattr(torch, name))
    expected = x.view(torch.uint8).cpu().numpy().view(getattr(ml_dtypes, name))
    assert_same(gf.fetch(x), expected)


def test_torch_large_and_odd_sizes(torch: Any) -> None:
    x = torch.arange((64 << 20) + 12345, device="cuda", dtype=torch.int32)
    assert_same(gf.fetch(x), x.cpu().numpy())
    assert_same(gf.fetch(x[1:]), x[1:].cpu().numpy())
    assert_same(gf.fetch(x[::2]), x[::2].cpu().numpy())


def test_torch_pending_work_is_waited_for(torch: Any) -> None:
    a = torch.ones(4096, 4096, device="cuda")
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            x = torch.zeros(4096, 4096, device="cuda")
            for _ in range(20):
                x = (x + a @ a) / 2
            result = gf.fetch(x)
        torch.cuda.synchronize()
        assert_same(result, x.cpu().numpy())


def test_torch_gradients_conj_and_neg(torch: Any) -> None:
    x = torch.from_numpy(data((50, 2))).cuda().requires_grad_()
    assert_same(gf.fetch(x), x.detach().cpu().numpy())
    assert_same(gf.fetch(torch.nn.Parameter(x.detach())), x.detach().cpu().numpy())
    z = torch.view_as_complex(x.detach().contiguous())
    assert_same(gf.fetch(z.conj()), z.conj().resolve_conj().cpu().numpy())
    negative = z.conj().imag
    assert negative.is_neg()
    assert_same(gf.fetch(negative), negative.resolve_neg().cpu().numpy())


def test_torch_sparse_and_quantized_say_what_to_call(torch: Any) -> None:
    x = torch.eye(5, device="cuda")
    for sparse in (x.to_sparse(), x.to_sparse_csr()):
        with pytest.raises(TypeError, match=r"to_dense\(\)"):
            gf.fetch(sparse)
    with pytest.raises(TypeError, match="meta"):
        gf.fetch(torch.empty(3, device="meta"))


def test_torch_on_the_cpu(torch: Any) -> None:
    x = torch.from_numpy(data((30, 20)))
    assert_same(gf.fetch(x.T), np.array(x.T.numpy(), order="C"))
    assert_same(gf.fetch(gf.to_device(x, device="cuda:0")), x.numpy())
    assert_same(gf.fetch(x.pin_memory()), x.numpy())


def test_torch_on_another_device_than_the_current(torch: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU only")
    x = torch.from_numpy(data((300, 200))).to("cuda:1")
    assert torch.cuda.current_device() == 0
    assert_same(gf.fetch(x), x.cpu().numpy())
    assert gf.asdevice(x).device == "cuda:1"
    assert torch.cuda.current_device() == 0


def test_torch_shares_a_device_array(torch: Any) -> None:
    a = data((40, 50))
    x = gf.to_device(a, device="cuda:0")
    t = torch.from_dlpack(x)
    assert t.data_ptr() == x.data_ptr
    assert_same(t.cpu().numpy(), a)
    t[3] = -1
    assert (gf.fetch(x)[3] == -1).all()
    view = torch.from_dlpack(x[:, 1::2].T)
    assert view.stride() == (2, 50)
    del x
    assert_same(view.cpu().numpy()[:, 0], a[0, 1::2])
    half = gf.to_device(a.astype(ml_dtypes.bfloat16), device="cuda:0")
    assert torch.from_dlpack(half).dtype == torch.bfloat16


def test_torch_fetch_async_keeps_the_tensor(torch: Any) -> None:
    futures, expected = [], []
    for i in range(20):
        x = torch.full((1 << 20,), i, device="cuda", dtype=torch.int32)
        futures.append(gf.fetch_async(x))
        expected.append(i)
        del x  # torch may hand the memory out again only after the copy
    for future, value in zip(futures, expected, strict=True):
        assert (future.result() == value).all()


# --- CuPy -------------------------------------------------------------------------------------


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


# --- Numba ------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["whole", "transposed", "strided", "rows", "column"])
def test_numba_views(numba_cuda: Any, view: str) -> None:
    a = data((300, 200))
    try:
        x = VIEWS[view](numba_cuda.to_device(a))  # a transpose is a kernel of Numba's
    except AttributeError as error:
        pytest.skip(f"this Numba cannot compile for the GPU: {error}")
    assert_same(gf.fetch(x), np.array(VIEWS[view](a), order="C"))


def test_numba_kernels_on_the_default_stream_are_waited_for(numba_cuda: Any) -> None:
    @numba_cuda.jit  # type: ignore[untyped-decorator]
    def fill(x: Any, turns: Any) -> None:
        i = numba_cuda.grid(1)
        if i < x.size:
            value = 0
            for turn in range(turns):
                value = (value * 1664525 + turn + i) & 0xFFFF
            x[i] = value

    x = numba_cuda.to_device(np.full(1 << 20, -1, np.int64))
    try:
        fill[4096, 256](x, 1)
    except Exception as error:
        pytest.skip(f"this Numba cannot compile for the GPU: {error}")
    fill[4096, 256](x, 20000)
    assert_same(gf.fetch(x), x.copy_to_host())


def test_numba_shares_a_device_array(numba_cuda: Any) -> None:
    a = data((40, 50))
    x = gf.to_device(a, device="cuda:0")
    assert_same(numba_cuda.as_cuda_array(x).copy_to_host(), a)


# --- JAX --------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", VIEWS)
def test_jax_arrays(jnp: Any, view: str) -> None:
    x = VIEWS[view](jnp.asarray(data((300, 200))))
    assert_same(gf.fetch(x), np.asarray(x))


@pytest.mark.parametrize("name", ["bool", "int8", "uint32", "float16", "bfloat16", "complex64"])
def test_jax_dtypes(jnp: Any, name: str) -> None:
    x = jnp.asarray(data((500,))).astype(name)
    assert_same(gf.fetch(x), np.asarray(x))


def test_jax_pending_work_is_waited_for(jnp: Any) -> None:
    x = jnp.ones((2048, 2048), jnp.float32)
    for _ in range(20):
        x = x @ x / 2048
    assert_same(gf.fetch(x), np.asarray(x))


# --- The device itself ------------------------------------------------------------------------


def test_a_gpu_out_of_memory_raises_memory_error() -> None:
    huge = np.broadcast_to(np.float32(1), (1 << 42,))
    with pytest.raises(MemoryError, match="bytes"):
        gf.to_device(huge, device="cuda:0")
    a = data((1000,))
    assert_same(gf.fetch(gf.to_device(a, device="cuda:0")), a)


def test_a_device_that_does_not_exist_is_named() -> None:
    count = len(_cuda["devices"])
    with pytest.raises(ValueError, match=f"cuda:{count} does not exist"):
        gf.to_device(np.zeros(1), device=f"cuda:{count}")
