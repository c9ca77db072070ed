"""The codec on the device: by itself, with the link, and in fetch.

The program benchmarks/programs/codec_device.c does and times the codec's steps, in turns with the
peers, which this process times. The first axis of a tensor counts its chunks. On the device alone
one call does the work several times, so that its start does not count; with the link a call is one
pass.
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

import gpufetch as gf
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
from peers import raw_copy, raw_fetch

MIB, GIB = 1 << 20, 1 << 30
SMOOTH, NOISE = "smooth", "noise"
COPY, LINK = "copy on the device", 'fetch(via="link")'
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
        report(f"via is left out: {BUILD} does not name a build with benchmarks/programs")
        return []
    if session.quick:
        return [
            (f"via, {one.what}", partial(via, session, one, [("2 MiB", 2 * MIB)]))
            for one in QUICK_DATA
        ]
    sizes = [("64 MiB", 64 * MIB), ("1 GiB", GIB)]
    return [(f"via, {one.label}", partial(via, session, one, sizes)) for one in DATA]


def via(session: Session, data: Data, sizes: list[tuple[str, int]]) -> list[Row]:
    rows: list[Row] = []
    for size, nbytes in sizes:
        array = data.make(nbytes)
        with Program(session, array) as program:
            bench = Bench(session, f"{size} of {data.label}", array, program)
            rows += bench.on_device()
            if nbytes == sizes[-1][1]:
                rows += bench.with_link()
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


class Bench:
    """One array on the device; its chunks encoded there and on the host, by the program."""

    def __init__(self, session: Session, label: str, array: Array, program: Program) -> None:
        self.session, self.label, self.array, self.program = session, label, array, program
        self.x = gf.to_device(array, device=session.device)
        self.ratio = array.nbytes / program.encoded_nbytes

    def contender(self, what: str, repeats: int = 1) -> Contender:
        """A step of the codec, which is right if the chunks that it encodes decode to the array."""
        inverse = {"encode": "decode", "to_host": "to_device"}.get(what)

        def answer(_: Any) -> Array:
            if inverse:
                self.program.step(inverse, 1)
            return self.array if self.program.decoded_is_right() else np.empty(0)

        def call(_: Any) -> Any:
            return self.program.step(what, repeats)

        return Contender(
            what, call, [None], answer=answer, seconds=lambda reply: float(reply["seconds"])
        )

    def on_device(self) -> list[Row]:
        # The device turns from the peer's process to the program's: 16 GiB make that negligible.
        repeats = 1 if self.session.backend == "host" else max(1, 16 * GIB // self.array.nbytes)
        copy = device_copy(self.session, self.array, repeats)
        contenders = [self.contender("encode", repeats), self.contender("decode", repeats), copy]
        timings = measure(contenders, [self.array], rounds=8, budget_s=1.0)
        per_pass = {name: [one / repeats for one in s] for name, s in timings.seconds.items()}
        timings = Timings(per_pass, timings.failures)
        return [
            self.row(f"{name} on the device, {self.label}", timings, name, None, [COPY])
            for name in ("encode", "decode")
        ]

    def with_link(self) -> list[Row]:
        raw = raw_copy(self.session.backend, self.array.nbytes)
        to_host = raw_fetch(raw, [self.array])
        (there,) = to_host.sources
        raw_to_device = Contender(
            raw.name, raw.to_device, [there], answer=lambda _: to_host.answer(raw.to_host(there))
        )
        to_device = partial(gf.to_device, device=self.session.device)
        fetches = [
            Contender(name, partial(gf.fetch, via=name), [self.x]) for name in ("link", "codec")
        ]
        groups = [
            ("encode and bring over, {}", self.contender("to_host"), to_host, fetches[:1]),
            (
                "send over and decode, {}",
                self.contender("to_device"),
                raw_to_device,
                [Contender("gpufetch.to_device", to_device, [self.array], answer=gf.fetch)],
            ),
            ('fetch(via="codec"), {}', fetches[1], to_host, fetches[:1]),
        ]
        rows = []
        for case, mine, limit, peers in groups:
            contenders = [limit, mine, *peers]
            timings = measure(contenders, [self.array], rounds=8, budget_s=2.0)
            names = [peer.name for peer in peers]
            rows.append(self.row(case.format(self.label), timings, mine.name, raw.name, names))
        return rows

    def row(
        self, case: str, timings: Timings, name: str, limit: str | None, peers: list[str]
    ) -> Row:
        row = make_row(
            self.session,
            case,
            timings,
            nbytes=self.array.nbytes,
            unit=GIGABYTES,
            gpufetch=name,
            limit=limit,
            peers=peers,
            labels={"link": LINK},
            ratio=round(self.ratio, 4),
        )
        note = f"ratio {self.ratio:.3f}"
        if limit and row["limit"]:
            note += f"; {row['gpufetch'] / (self.ratio * row['limit']):.3f} of ratio × {limit}"
        return {**row, "note": note}


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
