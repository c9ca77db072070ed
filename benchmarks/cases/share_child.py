"""The other process of `share`: it attaches, reads and detaches on requests through a pipe."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import gpufetch as gf
from harness import Array
from peers import random_arrays, raw_copy


class CupyArray:
    """An array on the memory that a CUDA IPC handle names, unmapped with it."""

    def __init__(self, handle: tuple[bytes, tuple[int, ...]]) -> None:
        cupy: Any = importlib.import_module("cupy")
        data, shape = handle
        self._close = cupy.cuda.runtime.ipcCloseMemHandle
        self._pointer = cupy.cuda.runtime.ipcOpenMemHandle(data)
        nbytes = 4 * int(np.prod(shape))
        memory = cupy.cuda.UnownedMemory(self._pointer, nbytes, self)
        self.array = cupy.ndarray(shape, "f4", cupy.cuda.MemoryPointer(memory, 0))

    def read(self) -> Array:
        array: Array = self.array.get()
        return array

    def close(self) -> None:
        del self.array
        self._close(self._pointer)


class RawArray:
    """The limit: memory of this process with the same contents, copied over the link."""

    def __init__(self, backend_and_nbytes: tuple[str, int]) -> None:
        backend, nbytes = backend_and_nbytes
        self._raw = raw_copy(backend, nbytes)
        self._there = self._raw.put(random_arrays(nbytes, 1)[0])

    def read(self) -> Array:
        return self._raw.to_host(self._there).view(np.float32)


def memory_map(path: str) -> Array:
    return np.memmap(path, np.float32, "r")


# By contender: from what came through the pipe to an attached array, and from that to NumPy.
ATTACH: dict[str, Callable[[Any], Any]] = {
    "gpufetch": gf.attach,
    "torch": lambda tensor: tensor,  # unpickling has attached it
    "cupy": CupyArray,
    "numpy": memory_map,
    "raw": RawArray,
}
READ: dict[str, Callable[[Any], Array]] = {
    "gpufetch": gf.fetch,
    "torch": lambda tensor: tensor.cpu().numpy(),
    "cupy": CupyArray.read,
    "numpy": np.array,
    "raw": RawArray.read,
}


class Holder:
    """What is attached, and what was read of it."""

    def __init__(self) -> None:
        self._attached: dict[str, Any] = {}
        self._read: dict[str, Array] = {}

    def echo(self, name: str, payload: Any) -> None:
        pass

    def attach(self, name: str, payload: Any) -> None:
        self._attached[name] = ATTACH[name](payload)

    def detach(self, name: str, payload: Any) -> None:
        self._read.pop(name, None)
        gone = self._attached.pop(name, None)
        if isinstance(gone, CupyArray):
            gone.close()

    def read(self, name: str, payload: Any) -> None:
        self._read[name] = READ[name](self._attached[name])

    def forget(self, name: str, payload: Any) -> None:
        self._read.pop(name, None)

    def checksum(self, name: str, payload: Any) -> int:
        if name not in self._read:
            self.read(name, None)
        return zlib.crc32(memoryview(self._read[name]).cast("B"))


def serve(pipe: Connection) -> None:
    """Answer until the other end is closed: (True, result), or (False, why not)."""
    holder = Holder()
    while True:
        try:
            what, name, payload = pipe.recv()
        except EOFError:
            return
        try:
            answer = True, getattr(holder, what)(name, payload)
        except Exception as error:  # the other side decides what that means
            answer = False, f"{type(error).__name__}: {error}"
        del payload
        pipe.send(answer)
