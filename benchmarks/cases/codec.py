"""The codec on one core, as h5py calls it to read and write HDF5 in chunks of about 1 MiB.

Every contender is a filter in HDF5's pipeline, writes to a file in memory and reads from it, into
an array that has been written before; HDF5's own share of the time is the same for all. The
peers of hdf5plugin are left out where it is not installed. codec_goals.py sums up the rows.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import h5py
import numpy as np
from h5py import h5s, h5t

import gpufetch as gf
from cases import Case
from cases.codec_fields import Maker, fields, kind_of
from cases.codec_goals import (
    BITSHUFFLE_LZ4,
    BITSHUFFLE_ZSTD,
    GZIP,
    MATCHES,
    SHUFFLE_ZSTD,
    ZSTD,
)
from harness import GIGABYTES, Array, Contender, Row, Session, make_row, measure

CHUNK_NBYTES = 1 << 20
SHORT_AXIS_MAX = 5
# What docs/format.md says of a chunk's header.
MODE_AT, MODES = 6, ("raw", "constant", "W8", "ranked", MATCHES)


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


def float_type(nbytes: int, exponent_bits: int, bias: int) -> Any:
    """Return the type of a float with a sign, an exponent, and the mantissa in the other bits."""
    mantissa_bits = 8 * nbytes - exponent_bits - 1
    type_id = h5t.IEEE_F32LE.copy()
    type_id.set_fields(8 * nbytes - 1, mantissa_bits, exponent_bits, 0, mantissa_bits)
    type_id.set_size(nbytes)
    type_id.set_ebias(bias)
    return type_id


# By the end of a field's name: types that arrays of integers stand for.
FLOATS = {"bf16": float_type(2, 8, 127), "e4m3": float_type(1, 4, 7)}


def load(what: str, make: Maker) -> Data:
    array = np.ascontiguousarray(make())
    type_id = FLOATS.get(what.split()[-1]) or h5t.py_create(array.dtype)
    return Data(what, array, type_id)


def filters() -> dict[str, dict[str, Any]]:
    """Return the options that each contender creates its dataset with."""
    found: dict[str, dict[str, Any]] = {"gpufetch": gf.hdf5.filter_options()}
    try:
        import hdf5plugin
    except ImportError:
        pass
    else:
        found |= {
            BITSHUFFLE_LZ4: dict(hdf5plugin.Bitshuffle(cname="lz4")),
            SHUFFLE_ZSTD: {"shuffle": True, **hdf5plugin.Zstd(clevel=5)},
            BITSHUFFLE_ZSTD: dict(hdf5plugin.Bitshuffle(cname="zstd")),
            ZSTD: dict(hdf5plugin.Zstd()),
        }
    return found | {GZIP: {"compression": "gzip", "shuffle": True}}


def cases(session: Session) -> list[Case]:
    makers = fields()
    if session.quick:
        makers = {"turbulence f32": makers["turbulence f32"]}
    return [
        (f"codec, {what}", partial(codec, session, what, make)) for what, make in makers.items()
    ]


def codec(session: Session, what: str, make: Maker) -> list[Row]:
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
    facts = {
        "field": data.what,
        "kind": kind_of(data.what, data.array),
        "mode": mode_of(stored["gpufetch"]),
        "has_short_axis": data.array.ndim > 1 and data.array.shape[-1] <= SHORT_AXIS_MAX,
        "ratios": {name: round(ratio, 4) for name, ratio in ratios.items()},
    }
    return [
        timed(session, "decode", data, readers(data, stored, out), facts),
        timed(session, "encode", data, writers(data, options, out), facts),
    ]


def mode_of(dataset: Any) -> str:
    """The mode of most of the dataset's chunks."""
    chunks = range(dataset.id.get_num_chunks())
    offsets = [dataset.id.get_chunk_info(index).chunk_offset for index in chunks]
    found = [dataset.id.read_direct_chunk(offset)[1][MODE_AT] for offset in offsets]
    return MODES[Counter(found).most_common(1)[0][0]]


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
    session: Session,
    direction: str,
    data: Data,
    contenders: list[Contender],
    facts: Mapping[str, Any],
) -> Row:
    ratios = facts["ratios"]
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
        f"{direction} {data.what}, {data.array.nbytes / 1e6:.1f} MB",
        timings,
        nbytes=data.array.nbytes,
        unit=GIGABYTES,
        gpufetch="gpufetch",
        limit=None,
        peers=names[1:],
        labels={name: f"{name}, ratio {ratios[name]:.3f}" for name in names},
        ratio=ratios["gpufetch"],
        note=f"ratio of gpufetch: {ratios['gpufetch']:.3f}; one core; mode {facts['mode']}",
        direction=direction,
        **facts,
    )
