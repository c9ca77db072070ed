"""What the files in tests/data hold: values that integer arithmetic alone makes.

A released format stays readable, and this module says what is to be read; so a case or a formula
that a committed file was made with is never changed, only added to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import h5py
import ml_dtypes
import numpy as np

import gpufetch

WEYL = np.uint64(0x9E3779B97F4A7C15)
U = np.uint64
MIXER = np.uint64(0xBF58476D1CE4E5B9)


class Layout(NamedTuple):
    """Bits of one value, and where the exponent of a float is in it."""

    bits: int
    exponent_at: int = 0
    exponent_bits: int = 0


LAYOUTS = {
    "bool": Layout(1),
    "int8": Layout(8),
    "int16": Layout(16),
    "int32": Layout(32),
    "int64": Layout(64),
    "uint8": Layout(8),
    "uint16": Layout(16),
    "uint32": Layout(32),
    "uint64": Layout(64),
    "float16": Layout(16, 10, 5),
    "bfloat16": Layout(16, 7, 8),
    "float32": Layout(32, 23, 8),
    "float64": Layout(64, 52, 11),
    "complex64": Layout(32, 23, 8),
    "complex128": Layout(64, 52, 11),
    "float8_e3m4": Layout(8, 4, 3),
    "float8_e4m3": Layout(8, 3, 4),
    "float8_e4m3b11fnuz": Layout(8, 3, 4),
    "float8_e4m3fn": Layout(8, 3, 4),
    "float8_e4m3fnuz": Layout(8, 3, 4),
    "float8_e5m2": Layout(8, 2, 5),
    "float8_e5m2fnuz": Layout(8, 2, 5),
    "float8_e8m0fnu": Layout(8),
}


def noise(i: np.ndarray) -> np.ndarray:
    x = (i + np.uint64(1)) * WEYL
    mixed: np.ndarray = (x ^ (x >> np.uint64(29))) * MIXER
    return mixed ^ (mixed >> np.uint64(32))


def below(i: np.ndarray, limit: int) -> np.ndarray:
    """Numbers from 0 to limit - 1, without order."""
    picked: np.ndarray = (noise(i) >> np.uint64(11)) % np.uint64(limit)
    return picked


def weights(i: np.ndarray, layout: Layout) -> np.ndarray:
    """Floats of either sign; each exponent is half as frequent as the next greater one."""
    top = min(3 * 2**layout.exponent_bits // 4, 2**layout.exponent_bits - 3)
    rare = noise(i + np.uint64(1 << 20)) | np.uint64(1 << min(top, 40))
    fall = np.log2((rare & -rare).astype(np.float64)).astype(np.uint64)  # exact: powers of two
    exponent_mask = np.uint64((2**layout.exponent_bits - 1) << layout.exponent_at)
    value: np.ndarray = (noise(i) & ~exponent_mask) | (
        (np.uint64(top) - fall) << np.uint64(layout.exponent_at)
    )
    return value


def where(condition: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.where(condition, values, np.uint64(0))


def floats(numbers: np.ndarray, layout: Layout) -> np.ndarray:
    """The bits of numbers as floats: each is one division or one product and sum, rounded once."""
    bits: np.ndarray = numbers.astype(f"f{layout.bits // 8}").view(f"u{layout.bits // 8}")
    return bits.astype(np.uint64)


def signed(i: np.ndarray) -> np.ndarray:
    """Whole numbers of either sign that change little from one to the next."""
    return ((i * i // U(90) + below(i, 30)) % U(40000)).astype("i8") - 15000


NAN = {32: 0x7FC00000, 64: 0x7FF8 << 48}

SPECIAL = np.array(
    [0, 1 << 63, 0x7FF8000000000001, 0xFFF0000000000000, 0x7F8000007FC00001, 2**64 - 1, 1, 0x7FFF],
    np.uint64,
)

CONTENTS: dict[str, Callable[[np.ndarray, Layout], np.ndarray]] = {
    "noise": lambda i, _: noise(i),
    "constant": lambda i, _: np.full_like(i, 0x8877665544332211),
    "special": lambda i, _: SPECIAL[below(i, 8)],
    "smooth": lambda i, _: U(1000) + U(3) * i + i * i // U(700) + below(i, 4),
    "coarse": lambda i, _: (i % U(90) + below(i, 3)) << U(4),
    "sparse": lambda i, _: where(below(i, 40) == 0, noise(i + U(7))),
    "rare": lambda i, _: where(below(i, 60) == 0, U(4)),
    "falls": lambda i, _: where(below(i, 60) == 0, ~U(3)),
    "grows": lambda i, layout: where(i >= 1024, weights(i, layout)),
    "counts": lambda i, _: where(below(i, 4) == 0, below(i + U(7), 5000)),
    "torn": lambda i, _: np.where(i % U(3072) < 1024, noise(i), below(i, 4)),
    "worn": lambda i, layout: np.where(i < 1024, noise(i), weights(i, layout)),
    "late": lambda i, _: where(i > 1500, U(1000) + U(3) * i + below(i, 4)),
    "bits": lambda i, _: below(i, 2),
    "amounts": lambda i, _: below(i, 256) >> below(i + U(999), 7),
    "steps": lambda i, _: U(1234567) * i + below(i, 3),
    "pedestal": lambda i, _: U(1000) + below(i, 25) + below(i + U(5000), 25),
    "few": lambda i, _: (below(i, 21) + U(1)) * WEYL,
    "runs": lambda i, _: (below(i // U(40), 21) + U(1)) * WEYL,
    "period": lambda i, _: noise(i % U(331)),
    "ramps": lambda i, _: i % U(1009) * U(0x1234567),
    "idle": lambda i, _: noise(i) & U(0x9999999999999999),
    "weights": lambda i, layout: weights(i, layout),
    "pruned": lambda i, layout: where(below(i, 4) == 0, weights(i, layout)),
    "spikes": lambda i, _: np.where(below(i, 200) == 0, noise(i + U(7)), below(i, 50)),
    "outliers": lambda i, _: np.where(below(i, 200) == 0, noise(i + U(7)), below(i, 3000)),
    "halves": lambda i, _: weights(i, LAYOUTS["float16"]),
    "brains": lambda i, _: weights(i, LAYOUTS["bfloat16"]),
    "singles": lambda i, _: weights(i, LAYOUTS["float32"]),
    "held brains": lambda i, _: weights(i, LAYOUTS["bfloat16"]) << U(16),
    "torn brains": lambda i, _: (weights(i, LAYOUTS["bfloat16"]) << U(16)) | U(i == 1500),
    "decimals": lambda i, layout: floats(signed(i) / 100.0, layout),
    "whole": lambda i, layout: floats(signed(i) * 1.0, layout),
    "hours": lambda i, layout: floats(i / 24.0, layout),
    "unpacked": lambda i, layout: floats(signed(i) * 0.001572704938045535 + 26.96875, layout),
    "single": lambda i, layout: floats(
        signed(i).astype("f4") * np.float32(0.00157) + np.float32(26.96875), layout
    ),
    "holes": lambda i, layout: np.where(
        below(i + U(3), 15) == 0, U(NAN[layout.bits]), floats(signed(i) / 100.0, layout)
    ),
    "odd": lambda i, layout: floats(signed(i) / 8.0, layout) + where(below(i, 300) == 0, U(1)),
    "narrow": lambda i, layout: (
        U((127 << 23) + 7000000 << 32)
        + (i * i % U(5000) << U(38))
        + where(below(i, 400) == 0, U(9))
        + (below(i + U(8), 2) << U(63))
    ),
    "masked": lambda i, layout: np.where(
        below(i + U(11), 3) == 0,
        U(NAN[layout.bits]),
        ((U(0x41200000) + U(137) * i + below(i, 30)) << U(layout.bits - 32))
        | (noise(i) & U(2 ** (layout.bits - 32) - 1)),
    ),
    "swells": lambda i, _: noise(i) & ((U(8) << (i // U(8) % U(13))) - U(1)),
    "bell": lambda i, _: below(i, 400) + below(i + U(5000), 400) + below(i + U(10000), 400),
}


class Case(NamedTuple):
    dtype: str
    content: str
    shape: tuple[int, ...]
    big_endian: bool = False

    @property
    def name(self) -> str:
        order = "_be" if self.big_endian else ""
        return f"{self.dtype}{order}_{self.content}_{'x'.join(map(str, self.shape))}"

    def values(self) -> np.ndarray:
        layout = LAYOUTS[self.dtype]
        dtype = np.dtype(getattr(ml_dtypes, self.dtype, self.dtype))
        components = 2 if dtype.kind == "c" else 1
        count = int(np.prod(self.shape)) * components
        with np.errstate(over="ignore"):
            bits = CONTENTS[self.content](np.arange(count, dtype=np.uint64), layout)
        if layout.bits < 64:
            bits = bits & np.uint64((1 << layout.bits) - 1)
        order = ">" if self.big_endian else "<"
        stored = bits.astype(f"{order}u{max(layout.bits, 8) // 8}")
        if self.big_endian:
            dtype = dtype.newbyteorder(">")
        return stored.view(dtype).reshape(self.shape)


def write(group: h5py.Group, case: Case) -> None:
    """Write one chunk of the case's values: gpufetch writes any dtype, h5py either byte order."""
    values = case.values()
    if case.big_endian:
        options = gpufetch.hdf5.filter_options()
        group.create_dataset(case.name, data=values, chunks=case.shape, **options)
    else:
        gpufetch.hdf5.write(group, case.name, values, chunks=case.shape)


def version_1() -> Iterator[Case]:
    """What tests/data/format-1.h5 holds, and format-2.h5 too."""
    for dtype, layout in LAYOUTS.items():
        yield Case(dtype, "smooth", (13, 31))
        yield Case(dtype, "special", (77,))
        yield Case(dtype, "constant", (3, 5, 7))
        if layout.exponent_bits:
            yield Case(dtype, "weights", (1500,))
            yield Case(dtype, "pruned", (1500,))
        if layout.bits >= 8 and dtype in ("int8", "int64", "uint16", "uint32", "float32"):
            yield Case(dtype, "noise", (23,))
            for content in ("coarse", "sparse", "rare", "steps", "few", "runs", "amounts"):
                yield Case(dtype, content, (1100,))
    for content in ("bits", "rare"):
        yield Case("bool", content, (1100,))
    yield Case("uint8", "bits", (1100,))
    yield Case("uint8", "few", (1100,))
    yield Case("uint16", "pedestal", (40, 40))
    yield Case("int32", "late", (2500,))
    yield Case("float64", "few", (600,))
    yield Case("int16", "falls", (1100,))
    yield Case("int32", "counts", (2500,))
    yield Case("uint32", "torn", (4000,))
    yield Case("bfloat16", "worn", (5000,))
    yield Case("bfloat16", "grows", (2048,))
    yield Case("complex64", "runs", (17, 41))
    yield Case("int16", "smooth", (2, 3, 2, 3, 2, 3, 2, 5))
    yield Case("float32", "smooth", (9000,))
    for dtype in ("int16", "uint32", "int64", "float16", "float32", "float64", "complex64"):
        yield Case(dtype, "smooth", (13, 31), big_endian=True)
        yield Case(dtype, "runs", (1100,), big_endian=True)
        yield Case(dtype, "few", (600,), big_endian=True)
        if LAYOUTS[dtype].exponent_bits:
            yield Case(dtype, "weights", (1500,), big_endian=True)
    yield Case("int64", "steps", (300,), big_endian=True)
    yield Case("uint16", "sparse", (1100,), big_endian=True)
    yield Case("complex128", "constant", (4, 4), big_endian=True)
    yield Case("float32", "noise", (29,), big_endian=True)


def version_2() -> Iterator[Case]:
    """What tests/data/format-2.h5 holds beside: what version 1 does not have."""
    for dtype in ("int8", "uint16", "int32", "float32", "uint64", "float64"):
        yield Case(dtype, "spikes", (2300,))
    yield Case("int32", "spikes", (2300,), big_endian=True)
    yield Case("uint16", "halves", (2300,))
    yield Case("uint16", "brains", (2300,))
    yield Case("int16", "brains", (2300,), big_endian=True)
    yield Case("uint32", "singles", (2300,))
    yield Case("float32", "held brains", (2300,))
    yield Case("float32", "torn brains", (2300,))
    yield Case("int64", "held brains", (2300,))
    yield Case("int16", "bell", (2300,))
    yield Case("bfloat16", "brains", (9000,))
    yield Case("float16", "halves", (9000,))
    for dtype in ("uint64", "float64", "complex64"):
        yield Case(dtype, "period", (4500,))
        yield Case(dtype, "ramps", (2500,))
    yield Case("uint8", "period", (40, 500))
    yield Case("float32", "period", (4501,), big_endian=True)
    yield Case("float64", "ramps", (2503,), big_endian=True)
    yield Case("float64", "period", (52000,))
    yield Case("int32", "idle", (1703,))
    yield Case("int64", "idle", (4099,), big_endian=True)
    yield Case("float32", "ramps", (90, 50))
    for dtype in ("uint8", "int16", "float32", "float64", "complex64", "complex128"):
        yield Case(dtype, "smooth", (2, 40, 1, 3))
        yield Case(dtype, "smooth", (70, 7))
    yield Case("uint8", "steps", (64, 64))
    yield Case("int16", "few", (300, 2))
    yield Case("bfloat16", "weights", (400, 4))
    yield Case("float32", "smooth", (40, 5), big_endian=True)
    yield Case("uint64", "period", (1500, 3))
    for dtype in ("float32", "float64", "complex64", "complex128"):
        for content in ("decimals", "whole", "hours", "holes"):
            yield Case(dtype, content, (50, 60))
    for dtype in ("float32", "float64"):
        yield Case(dtype, "unpacked", (3000,))
        yield Case(dtype, "odd", (3000,))
        yield Case(dtype, "holes", (9000,), big_endian=True)
        yield Case(dtype, "masked", (4500,))
    yield Case("float32", "single", (3000,))
    yield Case("uint16", "swells", (2300,))
    yield Case("int32", "outliers", (2300,))
    yield Case("uint64", "outliers", (2301,), big_endian=True)
    yield Case("float64", "narrow", (3000,))
    yield Case("float64", "narrow", (3001,), big_endian=True)


# The cases of each file in tests/data, by its version of the chunk format.
FILES: dict[int, list[Case]] = {
    1: [*version_1()],
    2: [*version_1(), *version_2()],
}
