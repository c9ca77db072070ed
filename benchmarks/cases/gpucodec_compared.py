"""gpufetch's codec and nvCOMP's on the GPU, side by side: made fields and real ones, of one size.

A real field is one chunk, and is repeated. nvCOMP's chunks are smaller than a field, so the
repetition helps nobody. Where nvCOMP is missing, the rows are gpufetch's alone and say why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from cases import MIB, Case, codec_fields, gpucodec_nvcomp
from cases.codec_device import (
    COPY,
    NOISE,
    SMOOTH,
    TILE,
    CodecProgram,
    Data,
    device_copy,
    step_contender,
)
from harness import GIGABYTES, Array, Row, Session, Timings, make_row, measure, report

CHUNK_NBYTES_STEP = 16  # of the codec on a device


@dataclass(frozen=True)
class Field:
    """Chunks to repeat; the first axis counts them."""

    what: str
    make: Callable[[], Array]

    def repeated(self, nbytes: int) -> Array:
        tile = self.make()
        count = max(1, nbytes // tile[:1].nbytes)
        return np.ascontiguousarray(np.resize(tile, (count, *tile.shape[1:])))

    def label(self, array: Array) -> str:
        chunk = "×".join(map(str, array.shape[1:]))
        return f"{array.dtype.name} ({self.what}) in chunks of {chunk}"


def weights() -> Array:
    """Weights of a network, as bfloat16."""
    import ml_dtypes

    values = 0.02 * np.random.default_rng(7).standard_normal((TILE, 512, 1024), np.float32)
    return values.astype(ml_dtypes.bfloat16)


def fields() -> list[Field]:
    made = [
        Data(SMOOTH, "f4", (64, 64, 64)),
        Data(SMOOTH, "f8", (32, 64, 64)),
        Data(NOISE, "f4", (64, 64, 64)),
        Data(SMOOTH, "u1", (1024, 1024)),
    ]
    return [
        *(Field(one.what, one.tile) for one in made),
        Field("weights", weights),
        *(Field(name, partial(one_chunk, make)) for name, make in codec_fields.real().items()),
    ]


def one_chunk(make: Callable[[], Array]) -> Array:
    """A field as one chunk, without the ends of rows where its bytes are no multiple of 16."""
    field = make()
    rows = field.size // field.shape[-1]
    while rows * field.shape[-1] * field.itemsize % CHUNK_NBYTES_STEP:
        field = field[..., :-1]
    return np.ascontiguousarray(field)[np.newaxis]


def cases(session: Session) -> list[Case]:
    size, chosen = ("2 MiB", fields()[:1]) if session.quick else ("256 MiB", fields())
    gpu: gpucodec_nvcomp.Gpu | None = None
    missing = ""
    try:
        gpu = gpucodec_nvcomp.load(session.backend)
    except gpucodec_nvcomp.AbsentError as error:
        missing = str(error)
        report(f"gpucodec without nvCOMP: {missing}")
    return [
        (f"gpucodec and nvCOMP, {one.what}", partial(compared, session, one, size, gpu, missing))
        for one in chosen
    ]


def compared(
    session: Session, one: Field, size: str, gpu: gpucodec_nvcomp.Gpu | None, missing: str
) -> list[Row]:
    array = one.repeated(int(size.split()[0]) * MIB)
    label = f"{size} of {one.label(array)}, beside nvCOMP"
    peers = gpucodec_nvcomp.peers(gpu, array) if gpu else gpucodec_nvcomp.Peers()
    with CodecProgram(session, array) as program:
        ratio = array.nbytes / program.encoded_nbytes
        rows = []
        for step, others in (("encode", peers.encode), ("decode", peers.decode)):
            mine = step_contender(session, program, array, step)
            copy = device_copy(session, array)
            timings = measure([mine, copy, *others], [array], rounds=8, budget_s=1.0)
            failures = {**timings.failures, **peers.failures}
            row = make_row(
                session,
                f"{step} on the device, {label}",
                Timings(timings.seconds, failures),
                nbytes=array.nbytes,
                unit=GIGABYTES,
                gpufetch=step,
                limit=None,
                peers=[COPY, *peers.failures, *(other.name for other in others)],
                labels=peers.labels,
                ratio=round(ratio, 4),
                ratios={"gpufetch": round(ratio, 4), **peers.ratios},
                note=f"ratio {ratio:.3f}",
            )
            absent = [*session.absent, *([missing] if missing else [])]
            rows.append({**row, "absent": absent})
    return rows
