"""gpufetch's codec on the device, for the cases that time it, and a copy within the device.

The program benchmarks/programs/codec_device.c does and times the codec's steps; the copy is timed
by this process. One call does the work several times, so that its start does not count, and its
time is that of one pass.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cases import GIB
from cases.program import Program
from harness import Array, Contender, Session

SMOOTH, NOISE = "smooth", "noise"
COPY = "copy on the device"
CODEC_DEVICE = "codec_device"  # the program
TILE = 32  # chunks that differ; more repeat them


@dataclass(frozen=True)
class Data:
    """Chunks of one shape and dtype."""

    what: str
    dtype: str
    chunk: tuple[int, ...]

    @property
    def label(self) -> str:
        name = np.dtype(self.dtype).name
        return f"{name} ({self.what}) in chunks of {'×'.join(map(str, self.chunk))}"

    def make(self, nbytes: int) -> Array:
        count = max(1, nbytes // (int(np.prod(self.chunk)) * np.dtype(self.dtype).itemsize))
        return np.resize(self.tile(min(count, TILE)), (count, *self.chunk))

    def tile(self, count: int = TILE) -> Array:
        """As many chunks, which differ."""
        shape = (count, *self.chunk)
        if self.what == NOISE:
            return random_bits(shape, self.dtype)
        scale = 30 if self.dtype == "u1" else 1
        return (scale * smooth(shape) + 3 * scale).astype(self.dtype)


def random_bits(shape: tuple[int, ...], dtype: str) -> Array:
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(np.random.default_rng(7).bytes(nbytes), dtype).reshape(shape)


def smooth(shape: tuple[int, ...]) -> Array:
    """Return a wave along each axis, and noise 10⁴ times smaller."""
    field = 1e-4 * np.random.default_rng(7).random(shape)
    for axis, length in enumerate(shape):
        wave = np.sin(np.linspace(axis, axis + 1, length))
        field += wave.reshape(-1, *[1] * (len(shape) - 1 - axis))
    return field


# --- The program --------------------------------------------------------------


class CodecProgram(Program):
    """The program codec_device, with one array on the device: it times each step itself."""

    def __init__(self, session: Session, array: Array) -> None:
        path = session.scratch / "codec_device.raw"
        array.tofile(path)
        shape = ",".join(map(str, array.shape))
        # Its arguments and its lines: benchmarks/programs/codec_device.c.
        super().__init__(CODEC_DEVICE, session.device, array.dtype.name, shape, path)
        self.encoded_nbytes = int(self.greeting["encoded_nbytes"])

    def step(self, name: str, repeats: int) -> dict[str, Any]:
        return self.ask(f"{name} {repeats}")

    def decoded_is_right(self) -> bool:
        """Whether what was decoded last is the array, bit for bit."""
        return bool(self.ask("check")["same"])


# --- Contenders ---------------------------------------------------------------


def repeats_of(session: Session, array: Array) -> int:
    # The device turns from the peer's process to the program's: 16 GiB make that negligible.
    return 1 if session.backend == "host" else max(1, 16 * GIB // array.nbytes)


def step_contender(session: Session, program: CodecProgram, array: Array, step: str) -> Contender:
    """A step of the codec, which is right if the chunks that it encodes decode to the array."""
    repeats = repeats_of(session, array)

    def answer(_: Any) -> Array:
        if step == "encode":
            program.step("decode", 1)
        return array if program.decoded_is_right() else np.empty(0)

    def call(_: Any) -> float:
        return float(program.step(step, repeats)["seconds"]) / repeats

    return Contender(step, call, [None], answer=answer, seconds=float)


def device_copy(session: Session, array: Array) -> Contender:
    """Return a contender that copies the array within the device's memory."""
    repeats = repeats_of(session, array)
    make = host_copy
    if session.backend != "host":
        make = torch_copy if importlib.util.find_spec("cupy") is None else cupy_copy
    copy, copied = make(array)

    def call(_: Any) -> float:
        start = time.perf_counter()
        copy(repeats)
        return (time.perf_counter() - start) / repeats

    return Contender(COPY, call, [None], answer=lambda _: copied(), seconds=float)


Copy = tuple[Callable[[int], None], Callable[[], Array]]


def host_copy(array: Array) -> Copy:
    target = np.empty_like(array)

    def copy(repeats: int) -> None:
        for _ in range(repeats):
            np.copyto(target, array)

    return copy, lambda: target


def cupy_copy(array: Array) -> Copy:
    cupy: Any = importlib.import_module("cupy")
    source = cupy.asarray(array.reshape(-1).view(np.uint8))
    target = cupy.empty_like(source)

    def copy(repeats: int) -> None:
        for _ in range(repeats):
            cupy.copyto(target, source)
        cupy.cuda.Device().synchronize()

    return copy, lambda: cupy.asnumpy(target).view(array.dtype).reshape(array.shape)


def torch_copy(array: Array) -> Copy:
    torch: Any = importlib.import_module("torch")
    source = torch.from_numpy(array.reshape(-1).view(np.uint8)).to("cuda:0")
    target = torch.empty_like(source)

    def copy(repeats: int) -> None:
        for _ in range(repeats):
            target.copy_(source)
        torch.cuda.synchronize()

    return copy, lambda: target.cpu().numpy().view(array.dtype).reshape(array.shape)
