"""The peers: frameworks that put arrays on the GPU and get them back, and raw copies and reads."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from harness import Array, Contender, Framework

# jax reads this at its import; by default it would take most of the GPU's memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def _torch() -> Framework:
    torch: Any = importlib.import_module("torch")

    def put(array: Array) -> Any:
        tensor = torch.from_numpy(array).to("cuda:0")
        torch.cuda.synchronize()
        return tensor

    return Framework("torch", ".cpu().numpy()", torch.__version__, put, lambda x: x.cpu().numpy())


def _cupy() -> Framework:
    cupy: Any = importlib.import_module("cupy")

    def put(array: Array) -> Any:
        device_array = cupy.asarray(array)
        cupy.cuda.Device().synchronize()
        return device_array

    return Framework("cupy", "asnumpy", cupy.__version__, put, cupy.asnumpy)


def _numba() -> Framework:
    numba: Any = importlib.import_module("numba")
    cuda: Any = importlib.import_module("numba.cuda")

    def put(array: Array) -> Any:
        device_array = cuda.to_device(array)
        cuda.synchronize()
        return device_array

    return Framework("numba", "copy_to_host", numba.__version__, put, lambda x: x.copy_to_host())


def _jax() -> Framework:
    jax: Any = importlib.import_module("jax")
    gpu = jax.devices("gpu")[0]

    def put(array: Array) -> Any:
        return jax.device_put(array, gpu).block_until_ready()

    def fresh(x: Any) -> Any:
        return jax.numpy.array(x, copy=True).block_until_ready()

    return Framework("jax", "np.asarray", jax.__version__, put, np.asarray, fresh)


_LOADERS = {"torch": _torch, "cupy": _cupy, "numba": _numba, "jax": _jax}
NAMES = tuple(_LOADERS)


def load(name: str) -> Framework:
    return _LOADERS[name]()


def load_all() -> tuple[list[Framework], list[str]]:
    """Return the frameworks that work here, and the names of those that do not, with the reason."""
    loaded, absent = [], []
    for name in NAMES:
        try:
            framework = load(name)
            framework.get(framework.put(np.zeros(4, np.float32)))
            loaded.append(framework)
        except ImportError:
            absent.append(name)
        except Exception as error:  # installed, but not for this GPU, driver or NumPy
            absent.append(f"{name} ({type(error).__name__}: {str(error).splitlines()[0][:120]})")
    return loaded, absent


def random_arrays(nbytes: int, count: int) -> list[Array]:
    """Return arrays of float32 with different contents."""
    rng = np.random.default_rng(nbytes)
    return [rng.random(nbytes // 4, dtype=np.float32) for _ in range(count)]


class RawPinnedCopy:
    """cudaMemcpyAsync between device memory and one preallocated pinned buffer, then a wait.

    This is what the link can carry: there is no allocation, no page fault and no conversion. The
    call goes through cupy's binding of the CUDA runtime, or through torch's `copy_` where there is
    no cupy, which takes a few µs more to launch.
    """

    name = "raw pinned copy"

    def __init__(self, nbytes: int, device: int = 0) -> None:
        self.nbytes = nbytes
        self._number = device
        try:
            cupy: Any = importlib.import_module("cupy")
            self._runtime = cupy.cuda.runtime
            self._device = cupy.cuda.Device(device)
            with self._device:
                self._stream = cupy.cuda.Stream(non_blocking=True)
            self._buffer = cupy.cuda.alloc_pinned_memory(nbytes)
            self.host: Array = np.frombuffer(self._buffer, np.uint8, nbytes)
            self._torch = None
        except ImportError:
            self._torch = importlib.import_module("torch")
            self._pinned = self._torch.empty(nbytes, dtype=self._torch.uint8, pin_memory=True)
            self.host = self._pinned.numpy()
        self.host[:] = 0

    def put(self, array: Array) -> Any:
        """Device memory with the bytes of `array`, for `to_host` and `to_device`."""
        flat = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        if self._torch:
            return self._torch.from_numpy(flat).to(f"cuda:{self._number}")
        with self._device:
            return load("cupy").put(flat)

    def to_host(self, source: Any) -> Array:
        if self._torch:
            self._pinned.copy_(source, non_blocking=True)
            self._torch.cuda.current_stream(self._number).synchronize()
        else:
            self._copy(self._buffer.ptr, source.data.ptr, self._runtime.memcpyDeviceToHost)
        return self.host

    def to_device(self, target: Any) -> Any:
        if self._torch:
            target.copy_(self._pinned, non_blocking=True)
            self._torch.cuda.current_stream(self._number).synchronize()
        else:
            self._copy(target.data.ptr, self._buffer.ptr, self._runtime.memcpyHostToDevice)
        return target

    def _copy(self, to: int, from_: int, kind: int) -> None:
        self._runtime.memcpyAsync(to, from_, self.nbytes, kind, self._stream.ptr)
        self._runtime.streamSynchronize(self._stream.ptr)


class HostCopy:
    """The host backend's counterpart of RawPinnedCopy: one thread's copy into memory at hand."""

    name = "copy into a preallocated array"

    def __init__(self, nbytes: int) -> None:
        self.host: Array = np.ones(nbytes, np.uint8)

    def put(self, array: Array) -> Array:
        return np.ascontiguousarray(array).view(np.uint8).reshape(-1).copy()

    def to_host(self, source: Array) -> Array:
        np.copyto(self.host, source)
        return self.host

    def to_device(self, target: Array) -> Array:
        np.copyto(target, self.host)
        return target


def raw_copy(backend: str, nbytes: int, device: int = 0) -> RawPinnedCopy | HostCopy:
    return RawPinnedCopy(nbytes, device) if backend == "cuda" else HostCopy(nbytes)


def raw_fetch(raw: RawPinnedCopy | HostCopy, arrays: Sequence[Array]) -> Contender:
    """The limit of a fetch of `arrays`, all of one shape and dtype."""
    like = arrays[0]
    return Contender(
        raw.name,
        raw.to_host,
        [raw.put(array) for array in arrays],
        answer=lambda host: host.view(like.dtype).reshape(like.shape),
    )


# --- What device memory carries -----------------------------------------------

READ, COPY = "raw read", "copy on the device, bytes read and written"

# The maximum of positive floats is that of their bits. Four loads are under way at a time, and the
# answer shows that every word was read.
_READ_SOURCE = r"""
extern "C" __global__ void read(const uint4 *x, size_t count, unsigned *result) {
  const size_t step = (size_t)gridDim.x * blockDim.x;
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  unsigned top = 0;
  for (; i + 3 * step < count; i += 4 * step) {
    const uint4 part[4] = {x[i], x[i + step], x[i + 2 * step], x[i + 3 * step]};
    for (int k = 0; k < 4; k++) {
      top = max(max(top, max(part[k].x, part[k].y)), max(part[k].z, part[k].w));
    }
  }
  for (; i < count; i += step) top = max(max(top, max(x[i].x, x[i].y)), max(x[i].z, x[i].w));
  for (int lane = 16; lane > 0; lane /= 2) top = max(top, __shfl_xor_sync(~0u, top, lane));
  if (threadIdx.x % 32 == 0) atomicMax(result, top);
}
"""


def bandwidths(views: dict[str, Any], top: np.float32) -> list[Contender]:
    """Return contenders that read one large float32 tensor and do next to nothing with it.

    `views` are the tensor as frameworks (or "numpy") hold it; `top` is its largest element, and
    that of its second half. The first contender is the limit: a kernel that only loads, or the
    framework's own maximum where there is no cupy.
    """
    expected = np.array([top])
    if "numpy" in views:
        whole = views["numpy"]
        return [Contender(READ, lambda x: x.max(keepdims=True), [whole], expected=expected)]
    contenders = []
    if "cupy" in views:
        contenders.append(_cupy_read(views["cupy"], expected))
    if "torch" in views:
        contenders += _torch_bandwidths(views["torch"], expected)
    return contenders


def _cupy_read(whole: Any, expected: Array) -> Contender:
    cupy: Any = importlib.import_module("cupy")
    kernel = cupy.RawKernel(_READ_SOURCE, "read")
    device = cupy.cuda.Device()
    blocks = 8 * device.attributes["MultiProcessorCount"]

    def read(x: Any) -> Any:
        result = cupy.zeros(1, cupy.uint32)
        kernel((blocks,), (256,), (x, np.uint64(x.size // 4), result))
        device.synchronize()
        return result

    def answer(result: Any) -> Array:
        return cupy.asnumpy(result).view(np.float32)

    return Contender(READ, read, [whole], answer=answer, expected=expected)


def _torch_bandwidths(whole: Any, expected: Array) -> list[Contender]:
    torch: Any = importlib.import_module("torch")
    half = whole.shape[0] // 2
    target = torch.empty_like(whole[:half])

    def read(x: Any) -> Any:
        top = x.amax()
        torch.cuda.synchronize()
        return top

    def copy(x: Any) -> Any:
        target.copy_(x)
        torch.cuda.synchronize()
        return target

    def answer(x: Any) -> Array:
        return x.amax().reshape(1).cpu().numpy()

    return [
        Contender("torch amax", read, [whole], answer=answer, expected=expected),
        Contender(COPY, copy, [whole[half:]], answer=answer, expected=expected),
    ]
