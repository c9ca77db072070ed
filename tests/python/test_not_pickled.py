"""What cannot be sent to another process says so, and what to do."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import gpufetch as gf


@contextmanager
def future(folder: Path) -> Iterator[Any]:
    copied = gf.fetch_async(gf.to_device(np.arange(4.0)))
    yield copied
    copied.result()


@contextmanager
def write(folder: Path) -> Iterator[Any]:
    with h5py.File(folder / "x.h5", "w") as file:
        written = gf.hdf5.write_async(file, "x", gf.to_device(np.arange(4.0)))
        yield written
        written.result()


@contextmanager
def checkpoint(folder: Path) -> Iterator[Any]:
    with gf.Checkpoint(folder) as writer:
        yield writer


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (future, "a Future cannot be pickled or copied: pass on its result"),
        (write, "a WriteFuture cannot be pickled or copied: pass on the file's name"),
        (checkpoint, "a Checkpoint cannot be pickled or copied: a prefix has one writer"),
    ],
)
@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_is_under_way_is_not_pickled(
    made: Any, message: str, duplicate: Any, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        under_way = stack.enter_context(made(tmp_path))
        with pytest.raises(TypeError, match=message):
            duplicate(under_way)
