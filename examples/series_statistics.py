"""Statistics of a series of checkpoints that is larger than the memory, with Dask.

usage: python series_statistics.py FOLDER PREFIX NAME

FOLDER has the checkpoints PREFIX-STEP.h5, each one file or a master with its shards, and NAME is a
dataset of theirs. Blocks of it are read as they are computed, by several threads, or by the workers
of a `dask.distributed` client where the program makes one. A shard that is missing, or that is
another checkpoint's, is an error that names it: HDF5 itself reads fill values.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import h5py
import numpy as np

import gpufetch as gf


class StoredArray:
    """A dataset of a file, which is opened for each read: so that it travels to other processes."""

    def __init__(self, path: Path, name: str) -> None:
        with h5py.File(path) as file:
            dataset = file[name]
            self.shape: tuple[int, ...] = dataset.shape
            self.dtype: np.dtype[Any] = dataset.dtype
        self.ndim = len(self.shape)
        self._path, self._name = path, name

    def __getitem__(self, selection: Any) -> Any:
        return gf.hdf5.read(self._path, self._name, selection=selection, device="cpu")


def series(folder: Path, prefix: str, name: str) -> tuple[list[int], Any]:
    """The steps of the checkpoints, and their datasets as one array, with the steps first."""
    pattern = re.compile(rf"{re.escape(prefix)}-(\d{{12,}})\.h5")
    found = {
        int(match[1]): match[0]
        for entry in folder.iterdir()
        if (match := pattern.fullmatch(entry.name))
    }
    steps = sorted(found)
    arrays = [StoredArray(folder / found[step], name) for step in steps]
    if not arrays:
        raise FileNotFoundError(f"{folder} has no checkpoints {prefix}-STEP.h5")
    # Blocks of about 64 MiB: a few of them are in memory at a time.
    blocks = [da.from_array(array, chunks="auto", name=False, asarray=False) for array in arrays]
    return steps, da.stack(blocks)


def main(folder: str, prefix: str, name: str) -> None:
    with dask.config.set({"array.chunk-size": "64 MiB"}):
        steps, values = series(Path(folder), prefix, name)
    axes = tuple(range(1, values.ndim))
    # One pass over the files for all of them.
    least, mean, most = dask.compute(values.min(axes), values.mean(axes), values.max(axes))
    for row in zip(steps, least, mean, most, strict=True):
        print(f"step {row[0]:6d}: {row[1]:.6g} to {row[3]:.6g}, mean {row[2]:.6g}")


if __name__ == "__main__":
    main(*sys.argv[1:])
