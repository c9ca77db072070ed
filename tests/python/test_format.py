"""docs/format.md is enough to write a decoder from: here is one, and it agrees with the C encoder.

The encoder is reached through the filter plugin alone (HDF5_PLUGIN_PATH), in a process that does
not import gpufetch; the decoder below knows nothing but the document.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from plugin_files import REPOSITORY, plugin_folder

MAGIC = b"GPFC"
HEADER_NBYTES = 96
BLOCK_VALUES = 1024
MASK = (1 << 64) - 1
WORD_KEY = 0x9E3779B97F4A7C15
ELEMENT_NBYTES = dict(
    zip(
        range(1, 24),
        [1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16, 1, 1, 1, 1, 1, 1, 1, 1],
        strict=True,
    )
)
COMPLEX_CODES = (14, 15)


def checksum(chunk: bytes) -> bytes:
    """The 16 bytes that belong at offset 80."""
    words = np.frombuffer(chunk, "<u8")
    index = np.arange(1, len(words) + 1, dtype=np.uint64)
    used = np.ones(len(words), bool)
    used[10:12] = False
    mixed = words ^ (index * np.uint64(WORD_KEY))
    product = (mixed & np.uint64(0xFFFFFFFF)) * (mixed >> np.uint64(32))
    sums = [int(s[used].sum(dtype=np.uint64)) & MASK for s in (words, product)]
    return b"".join(s.to_bytes(8, "little") for s in sums)


def unpack_group(data: bytes, width: int, value_bits: int, shift: int) -> list[int]:
    """Eight residuals modulo 2**value_bits from `width` bytes."""
    number = int.from_bytes(data, "little")
    residuals = []
    for j in range(8):
        z = number >> (j * width) & ((1 << width) - 1)
        r = z // 2 if z % 2 == 0 else -(z + 1) // 2
        residuals.append((r << shift) % (1 << value_bits))
    return residuals


def unpack_block(data: bytes, descriptor: int, count: int, value_nbytes: int) -> list[int]:
    """`count` residuals of one block."""
    width, shift, kind = descriptor >> 14 & 0x7F, descriptor >> 21 & 0x3F, descriptor >> 30
    if kind == 0:
        assert not data
        return [0] * count
    if kind == 3:
        assert len(data) == count * value_nbytes
        return [int(v) for v in np.frombuffer(data, f"<u{value_nbytes}")]
    code_bits = 3 if kind == 1 else 4
    groups = -(-count // 8)
    at = -(-groups * code_bits // 8)
    codes = int.from_bytes(data[:at], "little")
    residuals: list[int] = []
    for k in range(groups):
        code = codes >> (k * code_bits) & ((1 << code_bits) - 1)
        group_width = 0 if code == (1 << code_bits) - 1 else width - code
        group = data[at : at + group_width]
        residuals += unpack_group(group, group_width, 8 * value_nbytes, shift)
        at += group_width
    assert at == len(data)
    assert not any(residuals[count:])
    return residuals[:count]


def unpack_payload(chunk: bytes, count: int, value_nbytes: int) -> np.ndarray:
    """All residuals, shape (count,), unsigned."""
    blocks = -(-count // BLOCK_VALUES)
    descriptors = np.frombuffer(chunk, "<u4", blocks, HEADER_NBYTES)
    at = -(-(HEADER_NBYTES + 4 * blocks) // 16) * 16
    residuals: list[int] = []
    for b, descriptor in enumerate(int(d) for d in descriptors):
        size = descriptor & 0x3FFF
        here = min(BLOCK_VALUES, count - b * BLOCK_VALUES)
        residuals += unpack_block(chunk[at : at + size], descriptor, here, value_nbytes)
        at += size
        if b % 8 == 7 or b == blocks - 1:
            padded = -(-at // 16) * 16
            assert not any(chunk[at:padded])
            at = padded
    assert at == len(chunk)
    return np.array(residuals, f"<u{value_nbytes}")


def undo_prediction(residuals: np.ndarray, axes: int, seed: np.ndarray) -> np.ndarray:
    """Transformed values from residuals of shape (*dims, components)."""
    values = residuals.copy()
    ndim = values.ndim - 1
    if axes == 0:
        return values
    values[(0,) * ndim] = seed
    inside = [a for a in range(ndim) if axes >> a & 1]
    outside = [a for a in range(ndim) if not axes >> a & 1]
    for a in outside:
        fixed = set(inside) | {b for b in outside if b > a}
        face = values[tuple(slice(0, 1) if b in fixed else slice(None) for b in range(ndim))]
        face[...] = np.cumsum(face, axis=a, dtype=values.dtype)
    for a in inside:
        values = np.cumsum(values, axis=a, dtype=values.dtype)
    return values


def undo_transform(values: np.ndarray, transform: int) -> np.ndarray:
    """Bit patterns from transformed values."""
    bits = values.dtype.itemsize * 8
    one = values.dtype.type(1)
    top = values.dtype.type(bits - 1)
    if transform == 1:
        rotated: np.ndarray = (values >> one) | (values << top)
        return rotated
    if transform == 2:
        low = values.dtype.type((1 << (bits - 1)) - 1)
        ordered: np.ndarray = np.where(values >> top == one, values ^ low, values)
        return ordered
    return values


def decode(chunk: bytes) -> bytes:
    """The raw bytes of a chunk that is not damaged."""
    assert chunk[:4] == MAGIC and chunk[4] == 0
    code, mode, transform, axes, ndim, flags = chunk[5:11]
    raw_nbytes = int.from_bytes(chunk[16:24], "little")
    assert int.from_bytes(chunk[24:32], "little") == len(chunk) - HEADER_NBYTES
    dims = [int(d) for d in np.frombuffer(chunk, "<u4", 8, 32)]
    assert all(dims[:ndim]) and not any(dims[ndim:])
    element_nbytes = ELEMENT_NBYTES[code]
    assert int(np.prod(dims[:ndim])) * element_nbytes == raw_nbytes
    assert chunk[80:96] == checksum(chunk)
    if mode == 0:
        return chunk[HEADER_NBYTES : HEADER_NBYTES + raw_nbytes]
    if mode == 1:
        assert len(chunk) == HEADER_NBYTES
        return chunk[64 : 64 + element_nbytes] * (raw_nbytes // element_nbytes)
    components = 2 if code in COMPLEX_CODES else 1
    value_nbytes = element_nbytes // components
    seed = np.frombuffer(chunk, f"<u{value_nbytes}", components, 64)
    residuals = unpack_payload(chunk, raw_nbytes // value_nbytes, value_nbytes)
    residuals = residuals.reshape(*dims[:ndim], components)
    values = undo_transform(undo_prediction(residuals, axes, seed), transform)
    return (values.byteswap() if flags & 1 else values).tobytes()


# --- reaching the C encoder -------------------------------------------------------------------

WRITER = """
import sys
import h5py
import numpy as np

folder = sys.argv[1]
arrays = np.load(folder + "/arrays.npz")
with h5py.File(folder + "/out.h5", "w") as file:
    for name in arrays.files:
        a = arrays[name]
        file.create_dataset(name, data=a, chunks=a.shape, compression=49370)
with h5py.File(folder + "/out.h5", "r") as file:
    for name in arrays.files:
        dataset = file[name]
        mask, chunk = dataset.id.read_direct_chunk((0,) * dataset.ndim)
        assert mask == 0, name
        open(f"{folder}/{name}.chunk", "wb").write(chunk)
        assert dataset[...].tobytes() == arrays[name].tobytes(), name
assert "gpufetch" not in sys.modules
"""


def encode(arrays: dict[str, np.ndarray], folder: Path) -> dict[str, bytes]:
    """Chunks that the C encoder made of each array, through h5py in a fresh process."""
    plugins = plugin_folder()
    if plugins is None:
        pytest.skip("libh5z_gpufetch.so is not built")
    np.savez(folder / "arrays.npz", allow_pickle=False, **arrays)
    subprocess.run(
        [sys.executable, "-c", WRITER, str(folder)],
        check=True,
        env={**os.environ, "HDF5_PLUGIN_PATH": str(plugins)},
        timeout=300,
    )
    return {name: (folder / f"{name}.chunk").read_bytes() for name in arrays}


def check_agreement(arrays: dict[str, np.ndarray], folder: Path) -> dict[str, bytes]:
    chunks = encode(arrays, folder)
    for name, array in arrays.items():
        assert decode(chunks[name]) == array.tobytes(), f"{name}: {array.dtype} {array.shape}"
    return chunks


DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
BIG_ENDIAN = [">i2", ">u4", ">i8", ">f4", ">f8", ">c8"]


def smooth(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    grids = np.meshgrid(*[np.linspace(0.1, 2.0, n) for n in shape], indexing="ij")
    field = 40 * np.sin(sum((k + 1) * g for k, g in enumerate(grids)))
    if np.dtype(dtype).kind == "c":
        field = field + 1j * np.cos(field / 7)
    if dtype == "?":
        field = np.abs(field) > 20
    if np.dtype(dtype).kind == "u":
        field = field + 50
    return field.astype(dtype)


def test_a_decoder_written_from_the_document_reads_every_dtype(tmp_path: Path) -> None:
    arrays = {
        f"a{k}_{j}": smooth(shape, dtype)
        for k, dtype in enumerate(DTYPES + BIG_ENDIAN)
        for j, shape in enumerate([(1500,), (37, 45), (9, 14, 13)])
    }
    chunks = check_agreement(arrays, tmp_path)
    modes = {chunk[6] for chunk in chunks.values()}
    assert 2 in modes
    assert {chunks[f"a{k}_1"][5] for k in range(len(DTYPES))} >= {12, 13, 14, 15}


def test_a_decoder_written_from_the_document_reads_edge_sizes(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    sizes = [1, 2, 7, 8, 9, 1023, 1024, 1025, 8191, 8192, 8193, 16385]
    arrays = {}
    for n, dtype in itertools.product(sizes, ["u1", "i2", "f4", "f8"]):
        walk = np.cumsum(rng.integers(-3, 4, n)).astype(np.int64)
        arrays[f"n{n}_{dtype}"] = (
            walk.astype(np.int8).view(dtype) if dtype == "u1" else (walk.astype(dtype))
        )
    check_agreement(arrays, tmp_path)


def test_a_decoder_written_from_the_document_reads_every_rank_and_mode(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    arrays = {f"rank{r}": smooth((3,) * r, "f4") for r in range(1, 9)}
    arrays["noise"] = rng.integers(0, 2**32, 3000, dtype=np.uint32)
    arrays["constant"] = np.full((5, 6, 7), np.nan)
    arrays["labels"] = rng.integers(0, 3, (50, 60)).astype("i8")
    arrays["sparse"] = np.where(rng.random(20000) < 0.001, rng.random(20000), 0.0)
    arrays["coarse"] = np.round(smooth((60, 61), "f8") * 16) / 16
    arrays["signs"] = (smooth((40, 50), "f4") * rng.choice([-1, 1], (40, 50))).astype("f4")
    arrays["masked"] = np.where(smooth((40, 50), "f4") > 0, smooth((40, 50), "f4"), 1e20).astype(
        "f4"
    )
    chunks = check_agreement(arrays, tmp_path)
    assert {chunk[6] for chunk in chunks.values()} == {0, 1, 2}
    assert {chunk[7] for chunk in chunks.values()} == {0, 1, 2}
    kinds = set()
    for name, chunk in chunks.items():
        if chunk[6] == 2:
            values = arrays[name].size
            words = np.frombuffer(chunk, "<u4", -(-values // BLOCK_VALUES), HEADER_NBYTES)
            kinds |= {int(word) >> 30 for word in words}
    assert kinds >= {0, 1, 2}


def test_a_decoder_written_from_the_document_reads_real_fields(tmp_path: Path) -> None:
    data = REPOSITORY.parent / "shared" / "data"
    files = sorted(data.glob("*.npy"))
    if not files:
        pytest.skip(f"{data} holds no real fields")
    arrays = {f.stem: np.load(f) for f in files}
    arrays = {k: a[tuple(slice(0, 60) for _ in a.shape)].copy() for k, a in arrays.items()}
    check_agreement(arrays, tmp_path)


def test_the_checksum_sees_every_flipped_bit(tmp_path: Path) -> None:
    chunk = bytearray(encode({"x": smooth((6, 7), "f4")}, tmp_path)["x"])
    good = checksum(bytes(chunk))
    for bit in itertools.chain(range(80 * 8), range(96 * 8, len(chunk) * 8)):
        chunk[bit // 8] ^= 1 << bit % 8
        assert checksum(bytes(chunk)) != good
        chunk[bit // 8] ^= 1 << bit % 8
