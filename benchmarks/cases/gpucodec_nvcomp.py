"""nvCOMP's codecs on the GPU, as peers of gpufetch's: how small they make an array, and how fast.

They are called through nvCOMP's own Python API, on a stream and between events of CuPy's. An array
is one buffer to them, which they cut into chunks of 64 KiB, their default. Where an algorithm can
be told more of the data or works in several ways, all of them are tried, and the one with the best
ratio is timed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness import Array, Contender

PACKAGES = "nvidia-nvcomp-cu13 and nvidia-libnvcomp-cu13"
REPEATS = 4  # passes of one timed call


class AbsentError(Exception):
    """nvCOMP cannot be used here; the message says why, and what helps."""


@dataclass(frozen=True)
class Variant:
    """One way to call an algorithm: the type that the values are given as, and its options."""

    algorithm: str
    dtype: str  # as in NumPy's array interface
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return ", ".join([self.dtype, *(f"{name}={value}" for name, value in self.options.items())])

    def codec(self, nvcomp: Any, stream: int) -> Any:
        # Zstd has no types.
        typed = {} if self.algorithm == "Zstd" else {"data_type": self.dtype}
        return nvcomp.Codec(algorithm=self.algorithm, cuda_stream=stream, **typed, **self.options)


def variants(nvcomp: Any, dtype: np.dtype[Any]) -> dict[str, list[Variant]]:
    """The ways to encode values of a dtype, by the names under which the tables have them."""
    size = dtype.itemsize
    bits = "|u1" if size == 1 else f"<u{size}"
    signed = "|i1" if size == 1 else f"<i{size}"
    value = dtype.str if dtype.kind in "fiu" else bits  # bfloat16 is no type of nvCOMP's
    halves = ["<f2"] if size == 2 and dtype.kind not in "iu" else []
    words = list(dict.fromkeys([bits, bits if size < 8 else "<u4"]))
    modes = nvcomp.CascadedMode
    shuffles = nvcomp.BitshuffleMode
    return {
        "Bitcomp": [Variant("Bitcomp", value, {"algorithm_type": kind}) for kind in (0, 1)],
        "Cascaded": [
            Variant("Cascaded", signed, {"mode": mode})
            for mode in ([modes.ASYMMETRIC] + ([modes.SYMMETRIC] if size >= 4 else []))
        ],
        "ANS": [
            Variant("ANS", one) for one in ["|u1", *halves, *(["<f4"] if value == "<f4" else [])]
        ],
        "LZ4": [Variant("LZ4", one) for one in dict.fromkeys(["|u1", *words])],
        "LZ4 of shuffled bits": [
            Variant("LZ4", one, {"bitshuffle_mode": mode})
            for one in words
            for mode in (shuffles.NVCOMP_BITSHUFFLE_MSB_FIRST, shuffles.NVCOMP_BITSHUFFLE_LSB_FIRST)
        ],
        "Zstd": [Variant("Zstd", "|u1")],
    }


# --- The GPU ------------------------------------------------------------------


class Gpu:
    """nvCOMP, and of CuPy's what it lacks: memory on the device, a stream and events."""

    def __init__(self, nvcomp: Any, cupy: Any) -> None:
        self.nvcomp, self._cupy = nvcomp, cupy
        self.stream = cupy.cuda.Stream(non_blocking=True)

    @property
    def version(self) -> str:
        return str(self.nvcomp.__version__)

    def put(self, array: Array) -> Any:
        """Copy an array's bytes to the device, and wait for them."""
        device_array = self._cupy.asarray(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        self._cupy.cuda.Device().synchronize()
        return device_array

    def seconds(self, call: Callable[[], Any]) -> float:
        """Seconds between events before and after REPEATS calls, by their number."""
        start, stop = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        start.record(self.stream)
        for _ in range(REPEATS):
            call()
        stop.record(self.stream)
        stop.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(start, stop)) * 1e-3 / REPEATS


def load(backend: str) -> Gpu:
    """Raise AbsentError where there is no GPU, no nvCOMP or no CuPy."""
    if backend != "cuda":
        raise AbsentError("nvCOMP needs a GPU, and the device here is the host backend's")
    try:
        nvcomp: Any = importlib.import_module("nvidia.nvcomp")
    except ImportError as error:
        raise AbsentError(
            f"nvCOMP is not installed ({error}): pip install {PACKAGES.replace(' and', '')}, or "
            "bring the wheels: ./dev gpu-bundle --nvcomp (docs/gpu-nodes.md)"
        ) from error
    try:
        cupy: Any = importlib.import_module("cupy")
    except ImportError as error:
        raise AbsentError(
            f"nvCOMP is timed by CuPy's events, and CuPy is absent: {error}"
        ) from error
    return Gpu(nvcomp, cupy)


# --- A codec at work ----------------------------------------------------------


class Work:
    """An array on the device, encoded and decoded by one variant. Buffers are made once."""

    def __init__(self, gpu: Gpu, array: Array, device_bytes: Any, variant: Variant) -> None:
        stream = gpu.stream.ptr
        typed = device_bytes.view(np.dtype(variant.dtype))
        self._gpu, self._array, self._variant = gpu, array, variant
        self._codec = variant.codec(gpu.nvcomp, stream)
        self._source = gpu.nvcomp.as_array(typed, cuda_stream=stream)
        # With both configurations, neither direction waits for the stream.
        self._encoding = self._codec.compression_config(array.nbytes)
        self._decoding = self._codec.decompression_config(self._encoding)
        self._encoded = self._codec.encode(self._source, compression_config=self._encoding)
        self._decoded = self._codec.decode(
            self._encoded, variant.dtype, decompression_config=self._decoding
        )
        gpu.stream.synchronize()
        self.ratio = array.nbytes / int(self._encoded.buffer_size)

    @property
    def variant(self) -> Variant:
        return self._variant

    def encode(self) -> None:
        self._encoded = self._codec.encode(
            self._source, out=self._encoded, compression_config=self._encoding
        )

    def decode(self) -> None:
        self._decoded = self._codec.decode(
            self._encoded,
            self._variant.dtype,
            out=self._decoded,
            decompression_config=self._decoding,
        )

    def decoded_is_right(self) -> bool:
        """Whether what was decoded last is the array, bit for bit."""
        self._gpu.stream.synchronize()
        host = np.ascontiguousarray(np.asarray(self._decoded.cpu())).reshape(-1).view(np.uint8)
        return bool(np.array_equal(host, self._array.reshape(-1).view(np.uint8)))

    def answer(self, _: Any = None) -> Array:
        """The array, if what was encoded last decodes to it; for the harness to compare."""
        self.decode()
        return self._array if self.decoded_is_right() else np.empty(0)


def best_work(gpu: Gpu, array: Array, device_bytes: Any, ways: list[Variant]) -> Work:
    """The work of the variant with the best ratio; raises what the last raised if none works."""
    best: Work | None = None
    failure: Exception | None = None
    for variant in ways:
        try:
            work = Work(gpu, array, device_bytes, variant)
            if not work.decoded_is_right():
                raise ValueError(f"{variant}: the bytes differ after a round trip")
        except Exception as error:  # of any kind: another variant may work
            failure = error
            continue
        if best is None or work.ratio > best.ratio:
            best = work
    if best is None:
        assert failure
        raise failure
    return best


@dataclass
class Peers:
    """Contenders of both directions, whose calls give the seconds of one pass."""

    encode: list[Contender] = field(default_factory=list)
    decode: list[Contender] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def peers(gpu: Gpu, array: Array) -> Peers:
    """Every algorithm at its best, on an array of host memory that is copied to the GPU."""
    found = Peers()
    device_bytes = gpu.put(array)
    for name, ways in variants(gpu.nvcomp, array.dtype).items():
        try:
            work = best_work(gpu, array, device_bytes, ways)
        except Exception as error:  # the other peers go on
            found.failures[name] = f"{type(error).__name__}: {error}"
            continue
        found.ratios[name] = round(work.ratio, 4)
        found.labels[name] = f"nvCOMP {gpu.version} {name} ({work.variant}), ratio {work.ratio:.3f}"
        for contenders, call in ((found.encode, work.encode), (found.decode, work.decode)):
            contenders.append(
                Contender(
                    name,
                    lambda _, call=call: gpu.seconds(call),
                    [None],
                    answer=work.answer,
                    seconds=float,
                )
            )
    return found
