"""Files that lie: about the size of chunks, where they are and how they are stored.

The filter's cd_values and the index of chunks say how long a chunk is and where it lies. Whatever
they say, reading gives bytes of the file, or an error that says what is wrong, and never what
memory held before.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import gpufetch as gf

# --- cd_values -----------------------------------------------------------------------------------

# Makes a dataset of chunks of 100,000 elements, and stores a chunk of 10 in it; without gpufetch,
# which would fill in the right cd_values.
STORE = f"""
import sys, h5py
from h5py import h5d, h5p, h5s, h5t, h5z
path, chunk, cd_values, type_name = sys.argv[1:]
plist = h5p.create(h5p.DATASET_CREATE)
plist.set_chunk((100_000,))
plist.set_filter({gf.hdf5.FILTER_ID}, h5z.FLAG_OPTIONAL, tuple(map(int, cd_values.split())))
with h5py.File(path, "w") as file:
    space = h5s.create_simple((100_000,))
    made = h5d.create(file.id, b"x", getattr(h5t, type_name), space, plist)
    made.write_direct_chunk((0,), open(chunk, "rb").read())
"""

READ_BY_H5PY = """
import sys, h5py, gpufetch
try:
    h5py.File(sys.argv[1])["x"][()]
except OSError as error:
    print(error)
"""


def python(*command: Any) -> str:
    done = subprocess.run(
        [sys.executable, "-c", *map(str, command)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def store_short_chunk(tmp_path: Path, cd_values: str, type_name: str = "IEEE_F64LE") -> Path:
    gf.hdf5.write(tmp_path / "short.h5", "x", np.random.default_rng(0).normal(size=10))
    with h5py.File(tmp_path / "short.h5") as file:
        chunk = file["x"].id.read_direct_chunk((0,))[1]
    (tmp_path / "chunk").write_bytes(chunk)
    python(STORE, tmp_path / "x.h5", tmp_path / "chunk", cd_values, type_name)
    return tmp_path / "x.h5"


@pytest.mark.parametrize("cd_values", ["", "0 12", "1 12 80 1 10"])
def test_a_short_chunk_without_cd_values_is_an_error_that_names_the_sizes(
    tmp_path: Path, cd_values: str
) -> None:
    path = store_short_chunk(tmp_path, cd_values)
    assert "decodes to 80 bytes" in python(READ_BY_H5PY, path)
    for device in ("cpu", "host:0"):
        with pytest.raises(gf.Error, match=r"80 bytes.*800000 bytes"):
            gf.hdf5.read(path, "x", device=device)


def test_a_short_chunk_that_hdf5_itself_decodes_is_an_error(tmp_path: Path) -> None:
    path = store_short_chunk(tmp_path, "", "IEEE_F64BE")
    with pytest.raises(gf.Error, match="decodes to 80 bytes"):
        gf.hdf5.read(path, "x", device="cpu")


@pytest.mark.parametrize("type_name", ["IEEE_F64LE", "IEEE_F64BE"])
def test_false_cd_values_are_an_error_that_names_the_sizes(tmp_path: Path, type_name: str) -> None:
    path = store_short_chunk(tmp_path, "0 12 80 1 10", type_name)
    for device in ("cpu", "host:0"):
        with pytest.raises(gf.Error, match=r"chunks of 800000 bytes.*cd_values.* say 80"):
            gf.hdf5.read(path, "x", device=device)


# --- fletcher32 ----------------------------------------------------------------------------------

# HDF5 itself reads beyond the end of such a chunk, and the process ends by SIGSEGV.
READ_SHORT = """
import sys
import h5py, gpufetch as gf
from gpufetch.__main__ import main
path, name = sys.argv[1:]
for device in ("cpu", "host:0") if name != "text" else ():
    try:
        gf.hdf5.read(path, name, device=device)
    except gf.Error as error:
        print("refused:", error)
if name == "sum":
    with gf.hdf5.accelerate(), h5py.File(path) as file:
        try:
            file[name][...]
        except OSError as error:
            print("refused:", error)
print("status", main(["verify", path]))
"""


@pytest.mark.parametrize("name", ["gpufetch", "big-endian", "sum", "skipped", "text"])
def test_a_chunk_shorter_than_its_checksum_is_refused(tmp_path: Path, name: str) -> None:
    dtype = {"big-endian": ">f8", "text": "S8"}.get(name, "f8")
    options = {} if name in ("sum", "text", "big-endian") else gf.hdf5.filter_options()
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        x = file.create_dataset(
            name, (300_000,), dtype, chunks=(100_000,), fletcher32=True, **options
        )
        x[...] = 1
        filters = [x.id.get_create_plist().get_filter(i)[0] for i in range(1 + bool(options))]
        mask = 1 << filters.index(gf.hdf5.FILTER_ID) if name == "skipped" else 0
        x.id.write_direct_chunk((100_000,), b"abc", mask)
    said = python(READ_SHORT, path, name).splitlines()
    refused = [line for line in said if line.startswith("refused: ")]
    assert len(refused) == {"text": 0, "sum": 3}.get(name, 2)
    assert said[-1] == "status 1"
    assert any(f"dataset '/{name}', chunk at (100000): " in line for line in said)


# --- The index of chunks -------------------------------------------------------------------------

SHAPE, CHUNK = (40, 100), (5, 100)

READ_ALL = """
import sys, h5py, numpy as np, gpufetch as gf
from test_hdf5_hostile import CHUNK, SHAPE, values
x = values().reshape(-1, *CHUNK)
refused = 0
for path in sys.argv[1:]:
    stored = open(path, "rb").read()
    for mode, device in (("r", "cpu"), ("r+", "cpu"), ("r", "host:0")):
        out = np.full(SHAPE, 7777, "f4")
        if device != "cpu":
            out = gf.to_device(out, device=device)
        try:
            with h5py.File(path, mode) as file:
                gf.hdf5.read(file, "x", out=out)
        except (gf.Error, OSError, MemoryError):
            refused += 1
            continue
        for chunk in gf.fetch(out).reshape(-1, *CHUNK):
            is_value = (chunk == 0).all() or (x == chunk).all(axis=(1, 2)).any()
            assert is_value or chunk.tobytes() in stored, (path, mode, device)
print(refused)
"""


def values() -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).normal(size=SHAPE).astype("f4")


def index_entry(file: bytes, number: int) -> int:
    """Where an entry of the index begins: size, filter mask, offsets, the chunk's address."""
    node = file.index(b"TREE\x01\x00")
    return node + 24 + number * (8 + 8 * (len(SHAPE) + 1) + 8)


def lies(file: bytes) -> list[bytes]:
    """Copies of the file with an entry of the index that is not true."""
    at, other = index_entry(file, 2), index_entry(file, 5)
    (nbytes,) = struct.unpack_from("<I", file, at)
    address_at = at + 8 + 8 * (len(SHAPE) + 1)
    (address,) = struct.unpack_from("<Q", file, address_at)
    (elsewhere,) = struct.unpack_from("<Q", file, address_at + other - at)
    sizes = [0, 1, 95, 96, nbytes - 1, nbytes + 1, 2000, 2001, 2**31 - 1, 2**31, 2**32 - 1]
    masks = [1, 2, 3, 2**31, 2**32 - 1]
    end = len(file)
    addresses = [96, address + 1, address - 1, elsewhere, elsewhere + 8, end - 1, end]
    addresses += [2**31, 2**62, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]
    offsets = [5, 35, 40, 1000, 2**31, 2**63, 2**64 - 5]
    patches = [(at, struct.pack("<I", n)) for n in sizes]
    patches += [(at + 4, struct.pack("<I", n)) for n in masks]
    patches += [(at, struct.pack("<II", n, 1)) for n in (0, 1, 2000, 2**32 - 1)]
    patches += [(address_at, struct.pack("<Q", n)) for n in addresses]
    patches += [(at + 8, struct.pack("<Q", n)) for n in offsets]
    return [file[:place] + new + file[place + len(new) :] for place, new in patches]


@pytest.mark.parametrize("codec", ["gpufetch", "bitshuffle-lz4", None])
def test_an_index_that_lies_gives_bytes_of_the_file_or_an_error(tmp_path: Path, codec: Any) -> None:
    gf.hdf5.write(tmp_path / "x.h5", "x", values(), chunks=CHUNK, codec=codec)
    true = (tmp_path / "x.h5").read_bytes()
    paths = []
    for number, lie in enumerate(lies(true)):
        paths.append(tmp_path / f"{number}.h5")
        paths[-1].write_bytes(lie)
    here = str(Path(__file__).parent)
    done = python(f"import sys; sys.path.append({here!r})\n" + READ_ALL, *paths)
    assert int(done) > len(paths)
