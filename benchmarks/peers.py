"""The peers: frameworks that put arrays on the GPU and get them back, and the raw pinned copy."""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np

from harness import Array, Framework

# Before jax is imported: by default it would take most of the GPU's memory.
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
    """The frameworks that work here, and those that do not with the reason."""
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


class RawPinnedCopy:
    """cudaMemcpyAsync between device memory and one preallocated pinned buffer, then a wait.

    What the link carries: no allocation, no page fault, no conversion. Through cupy's binding of
    the CUDA runtime (torch's `copy_` where there is no cupy, a few µs slower to launch).
    """

    name = "raw pinned copy"

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        try:
            cupy: Any = importlib.import_module("cupy")
            self._runtime = cupy.cuda.runtime
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
        return load("torch" if self._torch else "cupy").put(flat)

    def to_host(self, source: Any) -> Array:
        if self._torch:
            self._pinned.copy_(source, non_blocking=True)
            self._torch.cuda.current_stream().synchronize()
        else:
            self._copy(self._buffer.ptr, source.data.ptr, self._runtime.memcpyDeviceToHost)
        return self.host

    def to_device(self, target: Any) -> Any:
        if self._torch:
            target.copy_(self._pinned, non_blocking=True)
            self._torch.cuda.current_stream().synchronize()
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


def raw_copy(backend: str, nbytes: int) -> RawPinnedCopy | HostCopy:
    return RawPinnedCopy(nbytes) if backend == "cuda" else HostCopy(nbytes)
