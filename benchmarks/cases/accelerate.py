"""h5py's subscripts, accelerated, and gpufetch.hdf5.read, against h5py alone.

All read the same files, which are in the page cache, into a new array, and open and close the file
in the time that counts. The field has three decimals, as measurements have. No other package is
needed; chunks of bitshuffle are there where hdf5plugin is, which h5py then reads them by.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import gpufetch as gf
from cases import Case
from cases.hdf5 import READ, read_raw, smooth
from harness import GIGABYTES, Array, Contender, Row, Session, make_row, measure

CHUNK = (16, 128, 128)  # 1 MiB
H5PY, ACCELERATED, DIRECT = "h5py", "h5py, accelerated", "gpufetch.hdf5.read"
BITSHUFFLE = "bitshuffle+lz4"
FORMS: dict[str, dict[str, Any]] = {
    "gpufetch": gf.hdf5.filter_options(),
    "gzip": {"compression": "gzip", "compression_opts": 4},
    "shuffle+gzip": {"compression": "gzip", "compression_opts": 4, "shuffle": True},
    "shuffle+gzip+fletcher32": {
        "compression": "gzip",
        "compression_opts": 4,
        "shuffle": True,
        "fletcher32": True,
    },
}
SELECTIONS: dict[str, Any] = {
    "whole": np.s_[...],
    "a quarter": np.s_[:, 10:-10, : 1 << 8],
}


def cases(session: Session) -> list[Case]:
    forms = list(FORMS)
    if importlib.util.find_spec("hdf5plugin") is not None:
        forms.append(BITSHUFFLE)
    return [(f"accelerate, {form}", partial(accelerate, session, form)) for form in forms]


def accelerate(session: Session, form: str) -> list[Row]:
    array = np.round(smooth((16, 256, 512) if session.quick else (256, 512, 1024)), 3)
    path, plain = session.scratch / f"{form}.h5", session.scratch / f"{form}.bin"
    write(path, array, form)
    array.tofile(plain)
    rows = []
    for what, selection in SELECTIONS.items():
        rows += selected(session, form, what, array, selection, path, plain)
    path.unlink()
    plain.unlink()
    return rows


def write(path: Path, array: Array, form: str) -> None:
    chunk = tuple(min(pair) for pair in zip(CHUNK, array.shape, strict=True))
    if form == BITSHUFFLE:
        importlib.import_module("hdf5plugin")
        gf.hdf5.write(path, "x", array, chunks=chunk, codec="bitshuffle-lz4")
        return
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=array, chunks=chunk, **FORMS[form])


def by_h5py(selection: Any, path: Path) -> Array:
    with h5py.File(path) as file:
        values: Array = file["x"][selection]
    return values


def accelerated(selection: Any, path: Path) -> Array:
    with gf.hdf5.accelerate():
        return by_h5py(selection, path)


def direct(selection: Any, path: Path) -> Array:
    with h5py.File(path) as file:
        return gf.hdf5.read(file["x"], selection=selection, device="cpu")


def selected(
    session: Session,
    form: str,
    what: str,
    array: Array,
    selection: Any,
    path: Path,
    plain: Path,
) -> list[Row]:
    """Rows of one selection; the limit reads the bytes of the whole array, unencoded."""
    expected = np.ascontiguousarray(array[selection])
    target: Array = np.ones(array.shape, array.dtype)
    calls: dict[str, Callable[[Any, Path], Array]]
    calls = {H5PY: by_h5py, ACCELERATED: accelerated, DIRECT: direct}
    contenders = [Contender(name, partial(call, selection), [path]) for name, call in calls.items()]
    limit = READ if expected.nbytes == array.nbytes else None
    if limit is not None:
        contenders.append(Contender(READ, partial(read_raw, target), [plain]))
    timings = measure(contenders, [expected], rounds=5, warm_up_rounds=1)
    size = f"{expected.nbytes / (1 << 20):.0f} MiB of float32, {what}"
    ratio = round(array.nbytes / path.stat().st_size, 3)
    return [
        make_row(
            session,
            f"read {size}, in chunks of {form}, {name}",
            timings,
            nbytes=expected.nbytes,
            unit=GIGABYTES,
            gpufetch=name,
            limit=limit,
            peers=[H5PY],
            note=f"Raw bytes over bytes of the file: {ratio}.",
        )
        for name in (ACCELERATED, DIRECT)
    ]
