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
from format_matches import unpack_matches
from format_numbers import NUMBERS, SINGLE, are_good, base_of, corrected, shifted
from plugin_files import FILTER_ID, REPOSITORY, plugin_folder

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


def bit_fields(data: bytes, count: int, width: int) -> list[int]:
    """`count` unsigned numbers of `width` bits each, lowest bits first."""
    number = int.from_bytes(data, "little")
    return [number >> (k * width) & ((1 << width) - 1) for k in range(count)]


def used_bytes(data: bytes, at: int, flags: list[int]) -> tuple[bytes, int]:
    """One stored byte for each flag that is set and 0 for the others; where the next byte is."""
    level = bytearray(len(flags))
    for k, flag in enumerate(flags):
        if flag:
            level[k] = data[at]
            assert level[k] != 0
            at += 1
    return bytes(level), at


def read_mask(data: bytes, count: int) -> tuple[list[int], int]:
    """Indices of the residuals that are not 0, and the bytes that the mask takes."""
    lowest_nbytes = -(-count // 8)
    middle_nbytes = -(-lowest_nbytes // 8)
    at = -(-middle_nbytes // 8)
    top = bit_fields(data[:at], 8 * at, 1)
    assert any(top) and not any(top[middle_nbytes:])
    middle, at = used_bytes(data, at, top[:middle_nbytes])
    flags = bit_fields(middle, 8 * middle_nbytes, 1)
    assert not any(flags[lowest_nbytes:])
    lowest, at = used_bytes(data, at, flags[:lowest_nbytes])
    bits = bit_fields(lowest, 8 * lowest_nbytes, 1)
    assert not any(bits[count:])
    return [i for i in range(count) if bits[i]], at


def fixed_groups(data: bytes, at: int, count: int, width: int) -> tuple[list[int], int]:
    """`count` packed values in groups of eight, all of one width; where the next byte is."""
    values: list[int] = []
    for _ in range(-(-count // 8)):
        values += bit_fields(data[at : at + width], 8, width)
        at += width
    assert at <= len(data) and not any(values[count:])
    return values[:count], at


def unpack_w8(data: bytes, descriptor: int, count: int, bits: int) -> list[int]:
    """The residuals of a block of kind 0, 1 or 2, those of 0 left out if it is sparse."""
    width, shift, kind = descriptor >> 14 & 0x7F, descriptor >> 21 & 0x3F, descriptor >> 30
    sparse, plain, flag = (descriptor >> b & 1 for b in (27, 28, 29))
    groups, at = -(-count // 8), 0
    if kind == 0:
        assert width == 0 and not flag and (sparse or descriptor == 0)
        widths = [0] * groups
    elif kind == 1 and flag:
        widths = [width] * groups
    else:
        code_bits, second = 3 if kind == 1 else 4, width - 1
        if flag:
            second, at = data[0], 1
            assert 1 <= second < width
        end = at + -(-groups * code_bits // 8)
        codes, at = bit_fields(data[at:end], groups, code_bits), end
        of_code = {0: width, (1 << code_bits) - 1: 0}
        widths = [of_code.get(code, second + 1 - code) for code in codes]
        assert all(
            w > 0 or code == (1 << code_bits) - 1 for w, code in zip(widths, codes, strict=True)
        )
    packed: list[int] = []
    for group_width in widths:
        group, at = fixed_groups(data, at, 8, group_width)
        packed += group
    assert at == len(data)
    assert not any(packed[count:])
    residuals = []
    for p in packed[:count]:
        z = (p + sparse) % (1 << bits)
        r = z if plain else z // 2 if z % 2 == 0 else -(z + 1) // 2
        residuals.append((r << shift) % (1 << bits))
    return residuals


class Symbols:
    """Where symbols are in values, and their table."""

    def __init__(self, at: int, bits: int, shift: int) -> None:
        self.symbol_at, self.symbol_bits, self.shift = at, bits, shift
        self.symbol_nbytes = 2 if bits > 8 else 1
        self.table_nbytes = 0
        self.symbols: list[int] = []

    def read_table(self, data: bytes) -> None:
        self.symbols = [int(s) for s in np.frombuffer(data, f"<u{self.symbol_nbytes}")]
        assert all(s >> self.symbol_bits == 0 for s in self.symbols)

    def joined(self, rest: int, symbol: int) -> int:
        rest <<= self.shift
        below = rest & ((1 << self.symbol_at) - 1)
        above = rest >> self.symbol_at << (self.symbol_at + self.symbol_bits)
        return above | symbol << self.symbol_at | below


class Levels(Symbols):
    """How a ranked chunk of version 1 codes its symbols."""

    def __init__(self, code: int, levels: int, places: bool) -> None:
        low, bits = {
            10: (10, 5),
            11: (7, 8),
            12: (23, 8),
            13: (52, 11),
            14: (23, 8),
            15: (52, 11),
            16: (4, 3),
            **dict.fromkeys((17, 18, 19, 20), (3, 4)),
            **dict.fromkeys((21, 22), (2, 5)),
        }.get(code, (0, 8))
        super().__init__(*((0, 8) if places else (low, bits)), 0)
        self.first_bits, self.second_bits = levels & 15, levels >> 4
        assert 1 <= self.first_bits <= 6 and self.second_bits <= 4
        self.first_count = (1 << self.first_bits) - 1
        self.second_count = (1 << self.second_bits) - 1
        self.table_nbytes = (self.first_count + self.second_count) * self.symbol_nbytes

    def unpack(self, data: bytes, count: int, value_bits: int) -> list[int]:
        """The values of a block of kind 1."""
        rests, at = fixed_groups(data, 0, count, value_bits - self.symbol_bits)
        first, at = fixed_groups(data, at, count, self.first_bits)
        second_total = first.count(self.first_count)
        second, at = fixed_groups(data, at, second_total, self.second_bits)
        stored = iter(np.frombuffer(data[at:], f"<u{self.symbol_nbytes}").tolist())
        seconds = iter(second)
        values = []
        for rest, code in zip(rests, first, strict=True):
            if code < self.first_count:
                symbol = self.symbols[code]
            else:
                code = next(seconds)
                known = code < self.second_count
                symbol = self.symbols[self.first_count + code] if known else next(stored)
            values.append(self.joined(rest, symbol))
        assert next(stored, None) is None
        return values


class Ranks(Symbols):
    """How a ranked chunk codes its symbols."""

    def __init__(self, at: int, bits: int, shift: int, leaves: list[int]) -> None:
        super().__init__(at, bits, shift)
        assert 1 <= bits <= 11 and shift <= at and 1 <= len(leaves) <= 12
        self.leaves = leaves
        inner = 1
        for level, count in enumerate(leaves, 1):
            assert count <= 2 * inner
            inner = 2 * inner - count
            assert (inner == 0) == (level == len(leaves))
        assert sum(leaves) <= 255 and sum(leaves) - 1 <= 2**bits
        self.table_nbytes = (sum(leaves) - 1) * self.symbol_nbytes

    def unpack(self, data: bytes, count: int, value_bits: int) -> list[int]:
        """The values of a block of kind 1."""
        rests, at = fixed_groups(data, 0, count, value_bits - self.symbol_bits - self.shift)
        bits = bit_fields(data[at:], 8 * (len(data) - at), 1)
        nodes, walking, used, before = [0] * count, list(range(count)), 0, 0
        for leaves in self.leaves:
            for i in walking:
                nodes[i] = 2 * nodes[i] - before + bits[used]
                used += 1
            before += leaves
            walking = [i for i in walking if nodes[i] >= before]
        end = -(-used // 8)
        assert not any(bits[used : 8 * end])
        stored = iter(np.frombuffer(data[at + end :], f"<u{self.symbol_nbytes}").tolist())
        values = []
        for rest, leaf in zip(rests, nodes, strict=True):
            symbol = self.symbols[leaf] if leaf < len(self.symbols) else next(stored)
            assert symbol >> self.symbol_bits == 0
            values.append(self.joined(rest, symbol))
        assert next(stored, None) is None
        return values


def ranks_of(chunk: bytes) -> Levels | Ranks:
    """What the header of a ranked chunk says."""
    if chunk[4] == 1:
        return Levels(chunk[5], chunk[11], chunk[7] == 3)
    depth, bits = chunk[11] & 15, chunk[11] >> 4
    assert not any(chunk[64 + depth : 80])
    return Ranks(chunk[14], bits, chunk[13], list(chunk[64 : 64 + depth]))


def unpack_block(
    data: bytes, descriptor: int, count: int, value_nbytes: int, ranks: Levels | Ranks | None
) -> list[int]:
    """`count` residuals of one block, or values where the chunk is ranked."""
    kind, sparse = descriptor >> 30, descriptor >> 27 & 1
    where = list(range(count))
    if sparse:
        where, at = read_mask(data, count)
        data = data[at:]
    if kind == 3:
        assert descriptor >> 14 & 0xDFFF == 0 and len(data) == len(where) * value_nbytes
        found = [int(v) for v in np.frombuffer(data, f"<u{value_nbytes}")]
    elif ranks is None:
        found = unpack_w8(data, descriptor, len(where), 8 * value_nbytes)
    elif kind == 1:
        assert descriptor >> 14 & 0xDFFF == 0
        found = ranks.unpack(data, len(where), 8 * value_nbytes)
    else:
        assert descriptor == 0 and not data
        found = [0] * count
    residuals = [0] * count
    for i, residual in zip(where, found, strict=True):
        residuals[i] = residual
    return residuals


def padded(chunk: bytes, at: int) -> int:
    """The next multiple of 16 from `at` on, after zeros."""
    end = -(-at // 16) * 16
    assert not any(chunk[at:end])
    return end


def unpack_blocks(
    chunk: bytes, at: int, count: int, value_nbytes: int, ranks: Levels | Ranks | None, streams: int
) -> list[np.ndarray]:
    """For each stream the residuals of the descriptors and blocks that begin at `at`; unsigned."""
    blocks = -(-count // BLOCK_VALUES)
    descriptors = np.frombuffer(chunk, "<u4", streams * blocks, at).reshape(streams, blocks)
    at = padded(chunk, at + descriptors.nbytes)
    residuals: list[list[int]] = [[] for _ in range(streams)]
    for run in range(0, blocks, 8):
        for stream, listed in enumerate(residuals):
            for b, descriptor in enumerate(descriptors[stream, run : run + 8].tolist(), run):
                size = descriptor & 0x3FFF
                here = min(BLOCK_VALUES, count - b * BLOCK_VALUES)
                block = chunk[at : at + size]
                listed += unpack_block(block, descriptor, here, value_nbytes, ranks)
                at += size
        at = padded(chunk, at)
    assert at == len(chunk)
    return [np.array(listed, f"<u{value_nbytes}") for listed in residuals]


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


def undo_transform(values: np.ndarray, transform: int, shift: int = 0) -> np.ndarray:
    """Bit patterns from transformed values, of which the low `shift` bits are 0."""
    bits = values.dtype.itemsize * 8
    assert not np.any(values & values.dtype.type((1 << shift) - 1))
    if shift:
        return shifted(values, transform, shift, True)
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


def in_order(table: np.ndarray, code: int) -> bool:
    """Whether a dictionary ascends strictly."""
    if 10 <= code <= 22:
        table = undo_transform(table, 2)
    if 2 <= code <= 5 or 10 <= code <= 22:
        table = table.view(f"<i{table.itemsize}")
    return bool(np.all(table[1:] > table[:-1]))


def long_axis(dims: list[int]) -> int:
    """The axis that the last one changes places with, where there are planes."""
    return max(a for a in range(len(dims) - 1) if dims[a] > 1)


def decode(chunk: bytes) -> bytes:
    """The raw bytes of a chunk that is not damaged."""
    assert chunk[:4] == MAGIC and chunk[4] in (1, 2)
    code, mode, transform, axes, ndim, flags, _, entries, shift = chunk[5:14]
    assert chunk[15] == 0 and (chunk[14] == 0 or mode == 3)
    assert chunk[4] == 2 or (shift == 0 and flags <= 1 and transform <= 3 and chunk[14] == 0)
    raw_nbytes = int.from_bytes(chunk[16:24], "little")
    assert int.from_bytes(chunk[24:32], "little") == len(chunk) - HEADER_NBYTES
    dims = [int(d) for d in np.frombuffer(chunk, "<u4", 8, 32)]
    assert all(dims[:ndim]) and not any(dims[ndim:])
    element_nbytes = ELEMENT_NBYTES[code]
    assert int(np.prod(dims[:ndim])) * element_nbytes == raw_nbytes
    assert chunk[80:96] == checksum(chunk)
    dims = dims[:ndim]
    swapped = len(dims) - 1
    if flags & 4:
        assert mode >= 2 and chunk[4] == 2 and 2 <= dims[-1] <= 64
        swapped = long_axis(dims)
        dims[swapped], dims[-1] = dims[-1], dims[swapped]
    if mode == 0:
        return chunk[HEADER_NBYTES : HEADER_NBYTES + raw_nbytes]
    if mode == 1:
        assert len(chunk) == HEADER_NBYTES
        return chunk[64 : 64 + element_nbytes] * (raw_nbytes // element_nbytes)
    components = 2 if code in COMPLEX_CODES else 1
    value_nbytes = packed_nbytes = element_nbytes // components
    count, at = raw_nbytes // value_nbytes, HEADER_NBYTES
    table = None
    parameters = [0.0, 0.0]
    if transform in NUMBERS:
        assert value_nbytes == 4 or (value_nbytes == 8 and transform != SINGLE)
        parameters = np.frombuffer(chunk, "<f8", 2, at).tolist()
        assert are_good(transform, *parameters)
        at += 16
    fill = None
    if flags & 8:
        fill = int.from_bytes(chunk[at : at + 8], "little")
        assert fill < 1 << 8 * value_nbytes and flags & 2
        at = padded(chunk, at + 8)
    if transform == 3:
        table = np.frombuffer(chunk, f"<u{value_nbytes}", entries + 1, at)
        assert in_order(table, code)
        at = padded(chunk, at + table.nbytes)
        packed_nbytes = 1
    ranks = None
    if mode == 3:
        ranks = ranks_of(chunk)
        ranks.read_table(chunk[at : at + ranks.table_nbytes])
        at = padded(chunk, at + ranks.table_nbytes)
    if mode == 4:
        assert chunk[4] == 2 and transform <= 2
        streams = [unpack_matches(chunk, count, value_nbytes)]
    else:
        streams = unpack_blocks(chunk, at, count, packed_nbytes, ranks, 2 if flags & 2 else 1)
    residuals = streams[0].reshape(*dims, components)
    if mode == 3:
        values = table[residuals] if table is not None else residuals
        values = values.swapaxes(swapped, ndim - 1)
        return (values.byteswap() if flags & 1 else values).tobytes()
    if transform == 3 or not 10 <= code <= 22 or (transform in NUMBERS and code != 15):
        residuals = residuals + np.frombuffer(chunk, f"<u{packed_nbytes}", 1, 72)
    seed = np.frombuffer(chunk, f"<u{packed_nbytes}", components, 64)
    values = undo_prediction(residuals, axes, seed)
    if table is not None:
        values = table[values]
    elif transform in NUMBERS:
        values = base_of(values, transform, *parameters)
    else:
        values = undo_transform(values, transform, shift)
    if len(streams) == 2:
        assert shift or transform in NUMBERS or fill is not None
        values = corrected(values, streams[1].reshape(values.shape), fill)
    values = values.swapaxes(swapped, ndim - 1)
    return (values.byteswap() if flags & 1 else values).tobytes()


# --- reaching the C encoder -------------------------------------------------------------------

WRITER = f"""
import sys
import h5py
import numpy as np

folder = sys.argv[1]
arrays = np.load(folder + "/arrays.npz")
with h5py.File(folder + "/out.h5", "w") as file:
    for name in arrays.files:
        a = arrays[name]
        file.create_dataset(name, data=a, chunks=a.shape, compression={FILTER_ID})
with h5py.File(folder + "/out.h5", "r") as file:
    for name in arrays.files:
        dataset = file[name]
        mask, chunk = dataset.id.read_direct_chunk((0,) * dataset.ndim)
        assert mask == 0, name
        open(folder + "/" + name + ".chunk", "wb").write(chunk)
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


def block_kinds(chunk: bytes, array: np.ndarray) -> list[str]:
    """The kind of each block, with its form."""
    code, mode, transform, entries = chunk[5], chunk[6], chunk[7], chunk[12]
    if mode not in (2, 3):
        return []
    components = 2 if code in COMPLEX_CODES else 1
    at = HEADER_NBYTES + -(-(16 * (transform in NUMBERS) + (chunk[10] & 8)) // 16) * 16
    if transform == 3:
        at += -(-(entries + 1) * array.itemsize // components // 16) * 16
    if mode == 3:
        at += -(-ranks_of(chunk).table_nbytes // 16) * 16
    words = np.frombuffer(chunk, "<u4", -(-array.size * components // BLOCK_VALUES), at).tolist()
    forms = ((27, " sparse"), (28, " plain"), (29, " even"))
    start = "ranked " if mode == 3 else ""
    return [
        start + str(word >> 30) + "".join(name for bit, name in forms if word >> bit & 1)
        for word in words
    ]


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
    arrays["bits"] = rng.integers(0, 2, 5000).astype("u1")
    arrays["rare"] = (rng.random(9000) < 0.002).astype("?")
    arrays["weights"] = (rng.normal(size=(60, 70)) * 0.02).astype("f4")
    arrays["half"] = (rng.normal(size=9000) * 0.02).astype("f2")
    arrays["wide"] = (rng.normal(size=9000) * np.exp(4 * rng.normal(size=9000))).astype("f8")
    arrays["pruned"] = np.where(rng.random(9000) < 0.3, rng.normal(size=9000), 0).astype("f4")
    arrays["period"] = np.tile(rng.normal(size=1001), 7)
    arrays["ramps"] = (np.arange(9000) / 24.0).view("i8")
    arrays["idle"] = (rng.integers(0, 16, 9003) << 20).astype("i8") | rng.integers(0, 4, 9003)
    arrays["crossing"] = smooth((60, 61), "f4") + rng.normal(size=(60, 61)).astype("f4") / 50
    arrays["vectors"] = np.stack([smooth((30, 31), "f4") * (k + 1) for k in range(3)], axis=-1)
    arrays["picture"] = np.stack([smooth((40, 1, 50), "u1") + k for k in range(4)], axis=-1)
    arrays["points"] = rng.normal(size=(500, 1, 2)).cumsum(axis=0)
    arrays["records"] = np.arange(9000, dtype="<i4").view("u1").reshape(3000, 12)
    arrays["phases"] = np.stack([smooth((900,), "c16"), smooth((900,), "c16") * 3], axis=-1)
    arrays["columns"] = np.cumsum(rng.integers(0, 9, (700, 7)), axis=0)
    arrays["counts"] = rng.poisson(5, 9000).astype("i4")
    arrays["camera"] = rng.normal(1000, 30, (70, 80)).round().astype("u2")
    arrays["times"] = np.cumsum(rng.integers(900, 1100, 5000))
    arrays["steps"] = np.arange(5000) * 12345
    arrays["quantised"] = np.round(smooth((60, 61), "f8") / 4) / 3
    arrays["amounts"] = np.exp(rng.normal(9, 1, 5000)).astype("i8")
    arrays["field"] = smooth((60, 61), "f4")
    arrays["few"] = rng.normal(size=20)[rng.integers(0, 20, 5000)]
    chunks = check_agreement(arrays, tmp_path)
    assert {chunk[6] for chunk in chunks.values()} == {0, 1, 2, 3, 4}
    assert {name for name, chunk in chunks.items() if chunk[10] & 4} == {
        *("vectors", "picture", "points", "records", "phases", "columns"),
    }
    assert {chunk[11] for chunk in chunks.values() if chunk[6] == 4} == {0xE0, 0xE1, 0xE2}
    assert {(chunk[6], chunk[7]) for chunk in chunks.values()} >= {
        *((2, transform) for transform in range(4)),
        *((3, transform) for transform in (0, 3)),
    }
    kinds = set()
    for name, chunk in chunks.items():
        kinds |= set(block_kinds(chunk, arrays[name]))
    assert kinds >= {"0", "1", "2", "0 sparse plain", "1 sparse", "1 plain", "1 plain even"}
    assert kinds >= {"ranked 1", "ranked 1 sparse"}
    assert any(chunk[6] == 2 and any(chunk[72:80]) for chunk in chunks.values())


def numbers() -> dict[str, np.ndarray]:
    """Floats that have a base, one way or another."""
    rng = np.random.default_rng(9)
    n = np.arange(5000)
    walk = np.cumsum(rng.integers(-9, 10, 5000))
    decimals = walk / 100
    packed = rng.integers(-9000, 9000, (40, 90)).cumsum(1) // 6
    holes = np.where(rng.random(5000) < 0.05, np.nan, decimals)
    odd = walk.astype("f4")
    odd[::700] += np.float32(0.3)
    signs = rng.choice([-1.0, 1.0], 5000)
    field = smooth((50, 60), "f4")
    return {
        "decimals": decimals,
        "decimals_f4": decimals.astype("f4").reshape(50, 100),
        "big_endian": decimals.astype(">f8"),
        "whole": walk.astype("f8"),
        "thousands": walk * 1000.0,
        "quarters": walk.astype("f4") / np.float32(4),
        "odd": odd,
        "minus_0": np.where(n % 90 == 0, -0.0, walk),
        "hours": n / 24.0,
        "thirds": walk * 3.0 + 1.0,
        "unpacked_f8": packed * 0.001572704938045535 + 26.96875,
        "unpacked_f4": packed.astype("f4") * np.float32(0.00157) + np.float32(26.96875),
        "rounded_f4": (packed * 0.0013370904938045535 + 4.20875).astype("f4"),
        "other_origin": (packed + 500000) * 0.001572704938045535 + 26.96875,
        "holes": holes,
        "holes_f4": holes.astype("f4"),
        "mask": np.where(n // 300 % 3 == 0, -9.9e33, decimals),
        "infinite": np.where(n % 211 == 0, np.inf, holes),
        "complex64": (holes + 1j * walk / 10).astype("c8"),
        "complex128": (decimals + 1j * walk / 8).reshape(50, 100),
        "narrow": rng.normal(size=5000).astype("f4").astype("f8"),
        "narrow_walk": (signs * walk).astype("f4").astype(">f8") + (n % 600 == 3) * 1e-9,
        "bf16_in_f4": (rng.normal(size=5000).astype("f4").view("u4") & 0xFFFF0000).view("f4"),
        "small_f2": (signs * (walk % 64)).astype("f2"),
        "land": np.where(field > 10, field, np.float32(1e20)),
        "few": np.array([0.1, 0.2, 0.3] * 5 + [0.15]),
    }


def test_a_decoder_written_from_the_document_reads_numbers(tmp_path: Path) -> None:
    chunks = check_agreement(numbers(), tmp_path)
    assert {chunk[7] for chunk in chunks.values()} >= {1, 4, 5, 6}
    assert any(chunk[13] for chunk in chunks.values())
    assert {chunk[10] for chunk in chunks.values()} >= {0, 1, 2, 10}
    found = {name: chunk[7] for name, chunk in chunks.items()}
    for name in ("decimals", "big_endian", "whole", "hours", "holes", "complex64"):
        assert found[name] == 4, name
    assert found["unpacked_f8"] == 5 and found["unpacked_f4"] == 6


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
