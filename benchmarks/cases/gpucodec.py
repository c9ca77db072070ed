"""The codec on the device alone: at several sizes and shapes, and beside nvCOMP.

The first axis of a tensor counts its chunks.
"""

from __future__ import annotations

from functools import partial

from cases import GIB, MIB, Case, gpucodec_compared
from cases.codec_device import (
    CODEC_DEVICE,
    COPY,
    NOISE,
    SMOOTH,
    CodecProgram,
    Data,
    device_copy,
    step_contender,
)
from cases.program import BUILD, program_path
from harness import GIGABYTES, Array, Row, Session, make_row, measure, report

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
    if not program_path(CODEC_DEVICE).is_file():
        report(f"gpucodec is left out: {BUILD} does not name a build with benchmarks/programs")
        return []
    sizes = [("64 MiB", 64 * MIB), ("1 GiB", GIB)]
    data = DATA
    if session.quick:
        sizes, data = [("2 MiB", 2 * MIB)], QUICK_DATA
    alone = [(f"gpucodec, {one.label}", partial(gpucodec, session, one, sizes)) for one in data]
    return alone + gpucodec_compared.cases(session)


def gpucodec(session: Session, data: Data, sizes: list[tuple[str, int]]) -> list[Row]:
    rows: list[Row] = []
    for size, nbytes in sizes:
        array = data.make(nbytes)
        with CodecProgram(session, array) as program:
            rows += measured(session, f"{size} of {data.label}", array, program)
    return rows


def measured(session: Session, label: str, array: Array, program: CodecProgram) -> list[Row]:
    steps = ("encode", "decode")
    contenders = [step_contender(session, program, array, step) for step in steps]
    timings = measure([*contenders, device_copy(session, array)], [array], rounds=8, budget_s=1.0)
    ratio = array.nbytes / program.encoded_nbytes
    return [
        make_row(
            session,
            f"{step} on the device, {label}",
            timings,
            nbytes=array.nbytes,
            unit=GIGABYTES,
            gpufetch=step,
            limit=None,
            peers=[COPY],
            labels={},
            ratio=round(ratio, 4),
            note=f"ratio {ratio:.3f}",
        )
        for step in steps
    ]
