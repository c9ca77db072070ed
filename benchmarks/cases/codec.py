"""The codec on one core, as h5py calls it to read and write HDF5 in chunks of about 1 MiB.

Every contender is a filter in HDF5's pipeline, writes to a file in memory and reads from it, into
an array that has been written before; HDF5's own share of the time is the same for all. The
peers of hdf5plugin are left out where it is not installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5s, h5t

import gpufetch as gf
from cases import Case
from harness import GIGABYTES, Array, Contender, Row, Session, make_row, measure

CHUNK_NBYTES = 1 << 20
FIELDS = Path(__file__).resolve().parents[3] / "shared" / "data"
SIDE = 128


@dataclass(frozen=True)
class Data:
    """An array and the HDF5 type of its elements."""

    what: str
    array: Array
    type_id: Any

    @property
    def chunks(self) -> tuple[int, ...]:
        rows = max(1, CHUNK_NBYTES // self.array[:1].nbytes)
        return (min(rows, len(self.array)), *self.array.shape[1:])

    def create(self, options: Mapping[str, Any]) -> Any:
        """Return an empty dataset in a file in memory, without a cache of chunks."""
        file = h5py.File(
            os.urandom(8).hex(), "w", driver="core", backing_store=False, rdcc_nbytes=0
        )
        return file.create_dataset(
            "x", self.array.shape, h5py.Datatype(self.type_id), chunks=self.chunks, **options
        )

    def write(self, dataset: Any) -> Any:
        dataset.id.write(h5s.ALL, h5s.ALL, self.array, self.type_id)
        return dataset

    def read(self, dataset: Any, out: Array) -> Array:
        dataset.id.read(h5s.ALL, h5s.ALL, out, self.type_id)
        return out


def bfloat16_type() -> Any:
    type_id = h5t.IEEE_F32LE.copy()
    type_id.set_fields(15, 7, 8, 0, 7)
    type_id.set_size(2)
    type_id.set_ebias(127)
    return type_id


def turbulence(dtype: str) -> Array:
    """Return a random field with the spectrum of turbulence, k to the power of -5/3."""
    waves = np.fft.fftfreq(SIDE)[:, None, None] ** 2 + np.fft.fftfreq(SIDE)[:, None] ** 2
    k = np.sqrt(waves + np.fft.rfftfreq(SIDE) ** 2)
    k[0, 0, 0] = 1.0
    noise = np.fft.rfftn(np.random.default_rng(3).standard_normal((SIDE,) * 3))
    field: Array = np.fft.irfftn(noise * k ** (-11 / 6), s=(SIDE,) * 3)
    return (field / field.std()).astype(dtype)


def synthesized() -> dict[str, Callable[[], Array]]:
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
        "Gaussian bf16": lambda: (gauss().view(np.uint32) >> 16).astype(np.uint16),
    }


def load(what: str, make: Callable[[], Array]) -> Data:
    array = np.ascontiguousarray(make())
    type_id = bfloat16_type() if what.endswith("bf16") else h5t.py_create(array.dtype)
    return Data(what, array, type_id)


def filters() -> dict[str, dict[str, Any]]:
    """Return the options that each contender creates its dataset with."""
    found: dict[str, dict[str, Any]] = {"gpufetch": gf.hdf5.filter_options()}
    try:
        import hdf5plugin
    except ImportError:
        pass
    else:
        blosc2 = hdf5plugin.Blosc2
        found |= {
            "bitshuffle+lz4": hdf5plugin.Bitshuffle(cname="lz4"),
            "bitshuffle+zstd": hdf5plugin.Bitshuffle(cname="zstd"),
            "blosc2 shuffle+lz4": blosc2(cname="lz4", clevel=5, filters=blosc2.SHUFFLE),
            "blosc2 shuffle+zstd": blosc2(cname="zstd", clevel=5, filters=blosc2.SHUFFLE),
            "blosc2 bitshuffle+zstd": blosc2(cname="zstd", clevel=5, filters=blosc2.BITSHUFFLE),
            "lz4": hdf5plugin.LZ4(),
            "zstd": hdf5plugin.Zstd(),
        }
    found |= {"gzip": {"compression": "gzip", "shuffle": True}}
    found |= {"lzf": {"compression": "lzf", "shuffle": True}}
    return found


def cases(session: Session) -> list[Case]:
    makers: dict[str, Callable[[], Array]] = {
        path.stem: partial(np.load, path) for path in sorted(FIELDS.glob("*.npy"))
    }
    makers |= synthesized()
    if session.quick:
        makers = {"turbulence f32": makers["turbulence f32"]}
    return [
        (f"codec, {what}", partial(codec, session, what, make)) for what, make in makers.items()
    ]


def codec(session: Session, what: str, make: Callable[[], Array]) -> list[Row]:
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})  # some peers would start threads
    try:
        return on_one_core(session, load(what, make))
    finally:
        os.sched_setaffinity(0, processors)


def on_one_core(session: Session, data: Data) -> list[Row]:
    options = filters()
    stored = {name: data.write(data.create(chosen)) for name, chosen in options.items()}
    ratios = {
        name: data.array.nbytes / dataset.id.get_storage_size() for name, dataset in stored.items()
    }
    out = np.zeros_like(data.array)
    return [
        timed(session, f"decode {data.what}", data, readers(data, stored, out), ratios),
        timed(session, f"encode {data.what}", data, writers(data, options, out), ratios),
    ]


def readers(data: Data, stored: Mapping[str, Any], out: Array) -> list[Contender]:
    def clear(dataset: Any) -> Any:
        out[...] = 0
        return dataset

    return [
        Contender(name, partial(data.read, out=out), [dataset], prepare=clear)
        for name, dataset in stored.items()
    ]


def writers(data: Data, options: Mapping[str, Any], out: Array) -> list[Contender]:
    return [
        Contender(
            name, data.write, [chosen], prepare=data.create, answer=partial(data.read, out=out)
        )
        for name, chosen in options.items()
    ]


def timed(
    session: Session, case: str, data: Data, contenders: list[Contender], ratios: dict[str, float]
) -> Row:
    names = [one.name for one in contenders]
    timings = measure(
        contenders,
        [data.array],
        rounds=3 if session.quick else 15,
        budget_s=0.1 if session.quick else 1.0,
        warm_up_rounds=1,
    )
    return make_row(
        session,
        f"{case}, {data.array.nbytes / 1e6:.1f} MB",
        timings,
        nbytes=data.array.nbytes,
        unit=GIGABYTES,
        gpufetch="gpufetch",
        limit=None,
        peers=names[1:],
        labels={name: f"{name}, ratio {ratios[name]:.3f}" for name in names},
        ratio=round(ratios["gpufetch"], 4),
        note=f"ratio of gpufetch: {ratios['gpufetch']:.3f}; one core",
    )
