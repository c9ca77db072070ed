"""The codec on the device alone.

The program benchmarks/programs/codec_device.c does and times the codec's steps, in turns with the
peers, which this process times. The first axis of a tensor counts its chunks. One call does the
work several times, so that its start does not count.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cases import Case
from harness import (
    GIGABYTES,
    Array,
    Contender,
    Row,
    Session,
    Timings,
    make_row,
    measure,
    report,
)

MIB, GIB = 1 << 20, 1 << 30
SMOOTH, NOISE = "smooth", "noise"
COPY = "copy on the device"
BUILD = "GPUFETCH_BUILD_DIR"  # where compiled programs are
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
        shape = (min(count, TILE), *self.chunk)
        if self.what == NOISE:
            tile = random_bits(shape, self.dtype)
        else:
            scale = 30 if self.dtype == "u1" else 1
            tile = (scale * smooth(shape) + 3 * scale).astype(self.dtype)
        return np.resize(tile, (count, *self.chunk))


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


DATA = [
    Data(SMOOTH, "f4", (64, 64, 64)),
    Data(SMOOTH, "f4", (1, 1024, 256)),
    Data(SMOOTH, "f4", (8192, 32)),
    Data(SMOOTH, "f4", (52428, 5)),
    Data(SMOOTH, "f8", (32, 64, 64)),
    Data(SMOOTH, "u1", (1024, 1024)),
    Data(NOISE, "f4", (64, 64, 64)),
]
QUICK_DATA = [Data(SMOOTH, "f4", (16, 32, 32)), Data(NOISE, "f4", (16, 32, 32))]


def cases(session: Session) -> list[Case]:
    if not program_path().is_file():
        report(f"gpucodec is left out: {BUILD} does not name a build with benchmarks/programs")
        return []
    if session.quick:
        return [
            (f"gpucodec, {one.what}", partial(gpucodec, session, one, [("2 MiB", 2 * MIB)]))
            for one in QUICK_DATA
        ]
    sizes = [("64 MiB", 64 * MIB), ("1 GiB", GIB)]
    return [(f"gpucodec, {one.label}", partial(gpucodec, session, one, sizes)) for one in DATA]


def gpucodec(session: Session, data: Data, sizes: list[tuple[str, int]]) -> list[Row]:
    rows: list[Row] = []
    for size, nbytes in sizes:
        array = data.make(nbytes)
        with Program(session, array) as program:
            rows += measured(session, f"{size} of {data.label}", array, program)
    return rows


class Program:
    """The program codec_device, with one array on the device: it times each step itself."""

    def __init__(self, session: Session, array: Array) -> None:
        path = session.scratch / "codec_device.raw"
        array.tofile(path)
        shape = ",".join(map(str, array.shape))
        # Its arguments and its lines: benchmarks/programs/codec_device.c.
        self._process = subprocess.Popen(
            [program_path(), session.device, array.dtype.name, shape, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.encoded_nbytes = int(self._reply()["encoded_nbytes"])

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def step(self, name: str, repeats: int) -> dict[str, Any]:
        return self._ask(f"{name} {repeats}")

    def decoded_is_right(self) -> bool:
        """Whether what was decoded last is the array, bit for bit."""
        return bool(self._ask("check")["same"])

    def _ask(self, request: str) -> dict[str, Any]:
        assert self._process.stdin
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        reply: dict[str, Any] = json.loads(line) if line else {"error": "codec_device has died"}
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply


def program_path() -> Path:
    return Path(os.environ.get(BUILD, "")) / "benchmarks" / "programs" / "codec_device"


def measured(session: Session, label: str, array: Array, program: Program) -> list[Row]:
    # The device turns from the peer's process to the program's: 16 GiB make that negligible.
    repeats = 1 if session.backend == "host" else max(1, 16 * GIB // array.nbytes)

    def contender(step: str) -> Contender:
        """A step of the codec, which is right if the chunks that it encodes decode to the array."""

        def answer(_: Any) -> Array:
            if step == "encode":
                program.step("decode", 1)
            return array if program.decoded_is_right() else np.empty(0)

        def call(_: Any) -> Any:
            return program.step(step, repeats)

        return Contender(
            step, call, [None], answer=answer, seconds=lambda reply: float(reply["seconds"])
        )

    contenders = [contender("encode"), contender("decode"), device_copy(session, array, repeats)]
    timings = measure(contenders, [array], rounds=8, budget_s=1.0)
    per_pass = {name: [one / repeats for one in s] for name, s in timings.seconds.items()}
    ratio = array.nbytes / program.encoded_nbytes
    return [
        make_row(
            session,
            f"{step} on the device, {label}",
            Timings(per_pass, timings.failures),
            nbytes=array.nbytes,
            unit=GIGABYTES,
            gpufetch=step,
            limit=None,
            peers=[COPY],
            labels={},
            ratio=round(ratio, 4),
            note=f"ratio {ratio:.3f}",
        )
        for step in ("encode", "decode")
    ]


def device_copy(session: Session, array: Array, repeats: int) -> Contender:
    """Return a contender that copies the array within the device's memory, `repeats` times."""
    if session.backend == "host":
        target = np.empty_like(array)

        def copy(source: Array) -> Array:
            np.copyto(target, source)
            return target

        return Contender(COPY, copy, [array])
    make = torch_copy if importlib.util.find_spec("cupy") is None else cupy_copy
    return make(array, repeats)


def cupy_copy(array: Array, repeats: int) -> Contender:
    cupy: Any = importlib.import_module("cupy")
    source, target = cupy.asarray(array), cupy.empty_like(array)

    def copy(_: Any) -> Any:
        for _ in range(repeats):
            cupy.copyto(target, source)
        cupy.cuda.Device().synchronize()
        return target

    return Contender(COPY, copy, [None], answer=cupy.asnumpy)


def torch_copy(array: Array, repeats: int) -> Contender:
    torch: Any = importlib.import_module("torch")
    source = torch.from_numpy(array).to("cuda:0")
    target = torch.empty_like(source)

    def copy(_: Any) -> Any:
        for _ in range(repeats):
            target.copy_(source)
        torch.cuda.synchronize()
        return target

    return Contender(COPY, copy, [None], answer=lambda there: there.cpu().numpy())
