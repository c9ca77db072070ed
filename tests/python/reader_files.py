"""One file with every dtype, chunk form and codec mode, for every program that reads HDF5."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import fixture_values
import h5py
import numpy as np
from plugin_files import REPOSITORY

import gpufetch as gf

__all__ = ["write_every"]

FIXTURES = REPOSITORY / "tests" / "data" / "format-2.h5"


# What HDF5 has a floating-point type for; other types of ml_dtypes are compounds of a named byte.
_FLOATS = ("bfloat16", "float8_e3m4", "float8_e4m3", "float8_e5m2")


def write_every(
    path: Path, expected: Path, *, without: tuple[str, ...] = ()
) -> dict[str, np.ndarray]:
    """Write the file, and what is in it as an .npz for programs without ml_dtypes.

    The fixtures' datasets at the top have every dtype and mode of the codec, in a chunk each; those
    in the group `forms` every form that chunks have, and types that the codec takes as bytes; those
    in the group `saved` are as in a new file of gpufetch.hdf5.save. `without` names dtypes, and
    datasets of the group `forms`, that are left out.
    """
    shutil.copy(FIXTURES, path)
    cases = {case.name: case for case in fixture_values.FILES[2]}
    values = {name: case.values() for name, case in cases.items() if case.dtype not in without}
    with h5py.File(path, "r+") as file:
        for name in cases.keys() - values.keys():
            del file[name]
        forms = _write_forms(file.create_group("forms"))
        for name in forms.keys() & set(without):
            del file["forms"][name], forms[name]
    values |= {f"forms/{name}": x for name, x in forms.items()}
    field = np.add.outer(np.arange(400.0), np.arange(400.0) / 8)
    saved = {"two chunks": field, "one chunk": field[:50, :40].astype(np.float32)}
    with h5py.File(path, "r+", libver=("v110", "v110")) as file:
        gf.hdf5.save(file.create_group("saved"), saved)
        assert file["saved/two chunks"].id.get_num_chunks() == 2
    values |= {f"saved/{name}": x for name, x in saved.items()}
    np.savez(expected, **{name: _plain(x) for name, x in values.items()})
    return values


def _plain(x: np.ndarray) -> np.ndarray:
    """Native byte order; float32, or a byte, for the dtypes of ml_dtypes."""
    if x.dtype.isbuiltin == 2:
        name = x.dtype.name
        return x.astype(np.float32) if name in _FLOATS else x.view([(name, "u1")])
    return x.astype(x.dtype.newbyteorder("="))


def _write_forms(group: h5py.Group) -> dict[str, np.ndarray]:
    z, y, x = np.ogrid[:60, :50, :40]
    field = (3 * z + 2 * y * y // 7 + x).astype(np.float32)
    filtered: dict[str, Any] = gf.hdf5.filter_options()
    made: dict[str, np.ndarray] = {}

    def add(name: str, values: np.ndarray, **options: Any) -> h5py.Dataset:
        made[name] = values
        return group.create_dataset(name, data=values, **{**filtered, **options})

    add("edge chunks", field, chunks=(16, 50, 32))
    add("one chunk", field, chunks=field.shape)
    add("one element", np.array([7], np.int16), chunks=(1,))
    add("unlimited", field, chunks=(16, 50, 32), maxshape=(None, 50, 40))
    add("unlimited last", field, chunks=(16, 50, 32), maxshape=(60, 50, None))
    add("fletcher32", field, chunks=(16, 50, 32), fletcher32=True)
    add("nine axes", field[:2, :3, :4].reshape(2, 1, 1, 1, 1, 1, 3, 1, 4), chunks=True)
    add("no rows", field[:0], chunks=(16, 50, 32), maxshape=(None, 50, 40))
    made["never written"] = np.full((40, 30), 2.5, np.float32)
    sparse = group.create_dataset(
        "never written", (40, 30), "f4", fillvalue=2.5, chunks=(10, 30), **filtered
    )
    sparse[10:15] = made["never written"][10:15] = field[:5, :30, 0]
    past = add("past the filter", field[:, :, 0], chunks=(30, 50))
    past.id.write_direct_chunk((0, 0), field[:30, :, 0].tobytes(), filter_mask=1)
    add("text", np.array([b"ab", b"cde"] * 50), chunks=(25,))
    add("compound", np.array([(1, 2.5), (3, 4.5)] * 50, "i4,f8"), chunks=(25,))
    return made
