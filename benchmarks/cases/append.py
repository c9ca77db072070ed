"""Steps appended to one dataset along an unlimited axis, from device memory to a closed file.

Both sides resize the dataset for each step. h5py assigns what was fetched; gpufetch begins the next
step's write before it hands the one before to HDF5. Files go to the page cache; nobody syncs.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import gpufetch as gf
from cases import Case, hdf5
from cases.hdf5 import GPUFETCH, H5PY, H5PY_LZF, LZF_CHUNK_SHAPE, SMOOTH, Data, new_file, written
from harness import Contender, Row, Session, measure


def cases(session: Session) -> list[Case]:
    return [("append, a smooth field", partial(append, session))]


def append(session: Session) -> list[Row]:
    shape = (8, 256, 512) if session.quick else (64, 2048, 2048)
    array = hdf5.smooth(shape)
    cupy = next((one for one in session.frameworks if one.name == "cupy"), None)
    if session.backend == "cuda" and cupy is not None:
        steps = [cupy.put(array[step]) for step in range(shape[0])]
        fetch = cupy.get
    else:
        steps = [gf.to_device(array[step], device=session.device) for step in range(shape[0])]
        fetch = gf.fetch
    data = Data(f"{SMOOTH}, {shape[0]} steps", array, steps, lambda: array, session.scratch)
    chunk = tuple(map(min, (1, *LZF_CHUNK_SHAPE[1:]), shape))
    lzf = {"chunks": (1, *shape[1:]), "shuffle": True, "compression": "lzf"}
    contenders = [
        _contender(data, H5PY, partial(_by_h5py, data, fetch, {"chunks": chunk})),
        _contender(data, H5PY_LZF, partial(_by_h5py, data, fetch, lzf), warm_up=False),
        _contender(data, GPUFETCH, partial(_by_gpufetch, data)),
    ]
    timings = measure(contenders, [array], rounds=3, warm_up_rounds=1)
    row = hdf5.hdf5_row(
        session, data, "append {} to an HDF5 dataset", timings, GPUFETCH, None, [H5PY, H5PY_LZF]
    )
    for name in (GPUFETCH, H5PY, H5PY_LZF):
        data.path(name).unlink(missing_ok=True)
    return [row]


def _contender(data: Data, name: str, call: Any, **options: Any) -> Contender:
    return Contender(name, call, [data.path(name)], new_file, written, **options)


def _create(file: h5py.File, data: Data, options: dict[str, Any]) -> h5py.Dataset:
    _, *step = data.array.shape
    return file.create_dataset("x", (0, *step), np.float32, maxshape=(None, *step), **options)


def _by_h5py(data: Data, fetch: Any, options: dict[str, Any], path: Path) -> Path:
    with h5py.File(path, "w") as file:
        series = _create(file, data, options)
        for step, x in enumerate(data.on_device):
            series.resize(step + 1, axis=0)
            series[step] = fetch(x)
    return path


def _by_gpufetch(data: Data, path: Path) -> Path:
    _, rows, columns = data.array.shape
    chunks = (1, min(rows, 256), min(columns, 1024))
    with h5py.File(path, "w") as file:
        series = _create(file, data, {"chunks": chunks, **gf.hdf5.filter_options()})
        before = None
        for step, x in enumerate(data.on_device):
            series.resize(step + 1, axis=0)
            future = gf.hdf5.write_async(series, None, x, start=(step, 0, 0))
            if before is not None:
                before.result()
            before = future
        if before is not None:
            before.result()
    return path
