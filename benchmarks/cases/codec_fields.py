"""What the codec is measured on: real fields of the project's neighbour folder, and made ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np

from harness import Array

FOLDER = Path(
    os.environ.get("GPUFETCH_FIELDS", Path(__file__).resolve().parents[3] / "shared" / "data")
)
SIDE = 128
N = 1 << 17

Maker = Callable[[], Array]

# How eraint_u is unpacked, as the folder's README says.
SCALE_FACTOR, ADD_OFFSET = -0.001572704938045535, 26.96875


def fields() -> dict[str, Maker]:
    return real() | made() | listed()


def kind_of(what: str, array: Array) -> str:
    """The group of fields that a geometric mean is taken over."""
    if "weights" in what or "Gaussian" in what:
        return "weights"
    if array.dtype.kind == "f":
        return f"f{8 * array.dtype.itemsize}"
    return "integers"


# --- Real fields --------------------------------------------------------------


def real() -> dict[str, Maker]:
    """The fields of the folder; none where it is absent."""
    makers: dict[str, Maker] = {
        path.stem: partial(np.load, path) for path in sorted(FOLDER.glob("*.npy"))
    }
    if packed := makers.get("eraint_u_i16"):
        makers["eraint_u f64"] = lambda: unpacked(packed(), np.float64)
        makers["eraint_u f32"] = lambda: unpacked(packed(), np.float32)
        makers["eraint_u f64 as f32"] = lambda: unpacked(packed(), np.float64).astype("f4")
    return makers


def unpacked(numbers: Array, dtype: type) -> Array:
    """As readers of netCDF unpack: in the type of the result."""
    unpacked: Array = numbers.astype(dtype) * dtype(SCALE_FACTOR) + dtype(ADD_OFFSET)
    return unpacked


# --- Made fields --------------------------------------------------------------


def turbulence(dtype: str, seed: int = 3) -> Array:
    """Return a random field with the spectrum of turbulence, k to the power of -5/3."""
    waves = np.fft.fftfreq(SIDE)[:, None, None] ** 2 + np.fft.fftfreq(SIDE)[:, None] ** 2
    k = np.sqrt(waves + np.fft.rfftfreq(SIDE) ** 2)
    k[0, 0, 0] = 1.0
    noise = np.fft.rfftn(np.random.default_rng(seed).standard_normal((SIDE,) * 3))
    field: Array = np.fft.irfftn(noise * k ** (-11 / 6), s=(SIDE,) * 3, axes=(0, 1, 2))
    return (field / field.std()).astype(dtype)


def bfloat16_bits(values: Array) -> Array:
    """The upper halves of float32 values, as uint16."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def made() -> dict[str, Maker]:
    rng, shape = np.random.default_rng(5), (SIDE,) * 3

    def gauss() -> Array:
        return rng.standard_normal(shape, np.float32)

    return {
        "turbulence f32": partial(turbulence, "f4"),
        "turbulence f64": partial(turbulence, "f8"),
        "noise f32": lambda: rng.random(shape, np.float32),
        "labels i32": lambda: np.floor(4 * turbulence("f4")).astype(np.int32),
        "sparse f32, 5 %": lambda: np.where(rng.random(shape) < 0.05, gauss(), np.float32(0)),
        "detector counts u16": lambda: rng.poisson(2.0, shape).astype(np.uint16),
        "Gaussian f16": lambda: gauss().astype(np.float16),
        "Gaussian bf16": lambda: bfloat16_bits(gauss()),
        "noise u8": lambda: rng.integers(256, size=shape, dtype=np.uint8),
    }


def listed() -> dict[str, Maker]:
    """The list at the end of the folder's README; each field has a generator of its own."""

    def rng() -> np.random.Generator:
        return np.random.default_rng(7)

    def normal(size: int = N) -> Array:
        return rng().normal(size=size)

    def weights() -> Array:
        return (0.02 * normal()).astype(np.float32)

    return {
        "f32 normals in f64": lambda: normal().astype("f4").astype("f8"),
        "integers to 1000 in f64": lambda: rng().integers(-1000, 1000, N).astype("f8"),
        "integers to 1000 in f32": lambda: rng().integers(-1000, 1000, N).astype("f4"),
        "bf16 values in f32": lambda: (normal().astype("f4").view("u4") & 0xFFFF0000).view("f4"),
        "integers in f32, 1 in 1000 off": lambda: nearly_integers(rng()),
        "arange / 24 f64": lambda: np.arange(N) / 24.0,
        "noise of period 1000 f64": lambda: np.tile(normal(1000), N // 1000),
        "mirrored f32": lambda: mirrored(turbulence("f4")[:4]),
        "vectors f32": lambda: vectors("f4"),
        "vectors f64": lambda: vectors("f8"),
        "RGB u8": lambda: picture(rng()),
        "weights f32": weights,
        "weights f16": lambda: weights().astype(np.float16),
        "weights bf16": lambda: bfloat16_bits(weights()),
        "weights bf16 as u16": lambda: bfloat16_bits(weights()),
        "weights e4m3": lambda: (50 * weights()).astype(ml_dtypes.float8_e4m3fn).view(np.uint8),
    }


def nearly_integers(rng: np.random.Generator) -> Array:
    """Smooth integers; one value in 1,000 is none."""
    values = np.round(2000 * np.sin(np.linspace(0, 20, N)))
    values[rng.choice(N, N // 1000, replace=False)] += rng.random(N // 1000)
    return values.astype(np.float32)


def mirrored(planes: Array) -> Array:
    """Planes below each other, and the same rows in reverse order."""
    rows = planes.reshape(-1, planes.shape[-1])
    return np.concatenate([rows, rows[::-1]])


def vectors(dtype: str) -> Array:
    """A field of three components, which are the last axis."""
    return np.stack([turbulence(dtype, seed)[: SIDE // 4] for seed in (3, 4, 5)], axis=-1)


def picture(rng: np.random.Generator) -> Array:
    """A smooth picture of 1024 by 1024 pixels, with as much noise as a camera's."""
    y, x = np.mgrid[0:1024, 0:1024] / 1024
    light = 120 + 60 * np.sin(3 * x + 2 * y) + 30 * np.cos(9 * x * y)
    colours = np.stack([light, 0.8 * light + 20 * x, 0.6 * light + 40 * y], axis=-1)
    return np.clip(colours + rng.normal(0, 1, colours.shape), 0, 255).astype(np.uint8)
