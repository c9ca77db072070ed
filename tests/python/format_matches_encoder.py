"""Mode 4 of docs/format.md, written by the words of the document: what its encoder chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from format_matches import BITS, BYTES, ZIGZAG, arranged

BLOCK_NBYTES = 16384
PIECE_NBYTES = 8192
WORD_KEY = 0x9E3779B97F4A7C15
HASH_BITS = 12


class Lz4:
    """An encoder of LZ4 blocks, and the places that it has looked at."""

    def __init__(self) -> None:
        self.last = [0] * (1 << HASH_BITS)

    def encode(self, data: bytes, begin: int) -> bytes:
        """data[begin:], with matches that may begin before it."""
        out = bytearray()
        anchor, at, tries, end = begin, begin or 1, 0, len(data)
        while at + 12 <= end:
            four = int.from_bytes(data[at : at + 4], "little")
            h = four * 2654435761 % 2**32 >> (32 - HASH_BITS)
            candidate, self.last[h] = self.last[h], at
            if data[candidate : candidate + 4] != data[at : at + 4]:
                at += 1 + tries // 64
                tries += 1
                continue
            length = 4
            while at + length < end - 5 and data[candidate + length] == data[at + length]:
                length += 1
            self.put(out, data[anchor:at], at - candidate, length)
            at += length
            anchor, tries = at, 0
        self.put(out, data[anchor:], 0, 0)
        return bytes(out)

    @staticmethod
    def put(out: bytearray, literals: bytes, offset: int, length: int) -> None:
        extra = length - 4 if length else 0
        out.append(min(len(literals), 15) << 4 | min(extra, 15))
        if len(literals) >= 15:
            rest = len(literals) - 15
            out += b"\xff" * (rest // 255) + bytes([rest % 255])
        out += literals
        if length:
            out += offset.to_bytes(2, "little")
            if extra >= 15:
                out += b"\xff" * ((extra - 15) // 255) + bytes([(extra - 15) % 255])


class Matches:
    """Blocks one after the other; each but the first may have matches in the first."""

    def __init__(self, arrangement: int) -> None:
        self.arrangement = arrangement
        self.first, self.table = b"", Lz4()

    def encode(self, residuals: np.ndarray) -> bytes:
        data = arranged(residuals, self.arrangement)
        table = Lz4()
        table.last = list(self.table.last)
        encoded = table.encode(self.first + data, len(self.first))
        if not self.first:
            self.first, self.table = data, table
        return encoded if len(encoded) < len(data) else data


def encode_matches(residuals: np.ndarray, arrangement: int) -> bytes:
    """The payload."""
    step = BLOCK_NBYTES // residuals.itemsize
    encoder = Matches(arrangement)
    blocks = [encoder.encode(residuals[k : k + step]) for k in range(0, len(residuals), step)]
    sizes = b"".join(len(block).to_bytes(4, "little") for block in blocks)
    payload = sizes + bytes(-len(sizes) % 16) + b"".join(blocks)
    return payload + bytes(-len(payload) % 16)


class Stream(NamedTuple):
    """Values as they are, or residuals of W8."""

    residuals: np.ndarray
    predicted: bool


def looks(
    stream: Stream, groups: Sequence[range], group_count: int, bits: int
) -> tuple[bool, bool]:
    """Whether the stream repeats, and whether it has idle planes."""
    flat, w = stream.residuals, 8 * stream.residuals.itemsize
    step = 4 if w == 8 else 128 // w
    seen, sequences, busy = set(), 0, 0
    for group in groups:
        if len(group) < 8:
            continue
        values = [int(flat[i]) for i in group]
        some, every = 0, 2**w - 1
        for v in values:
            if stream.predicted:
                v = 2 * v if v < 2 ** (w - 1) else 2 * (2**w - v) - 1
            some |= v
            every &= v
        busy += 8 * (some & ~every).bit_count()
        for k in range(0, 8, step):
            h = 0
            for v in values[k : k + step]:
                h = (h ^ v) * WORD_KEY % 2**64
                h ^= h >> 29
            seen.add(h >> 50)
            sequences += 1
    different = sequences - (sequences * sequences >> 15)
    repeats = 32 * len(seen) < 30 * different
    return repeats, 5 * busy * group_count // len(groups) < 4 * bits


def pieces_of(n: int, value_nbytes: int) -> list[range]:
    step = BLOCK_NBYTES // value_nbytes
    blocks = -(-n // step)
    if blocks <= 2:
        return [range(min(n, step))]
    count = 3 if blocks >= 24 else 1
    starts = [(1 + (2 * k + 1) * (blocks - 2) // (2 * count)) * step for k in range(count)]
    return [range(start, start + PIECE_NBYTES // value_nbytes) for start in starts]


def choose_matches(
    streams: Sequence[Stream],
    w8: Stream,
    groups: Sequence[range],
    group_count: int,
    w8_bits: int,
    bits: int,
    cost_of: Callable[[list[list[int]]], int],
) -> tuple[int, int] | None:
    """The stream and the arrangement, or None.

    The cost of W8 is `w8_bits` bits, and `cost_of` says what it takes for groups of its residuals,
    `w8`. `bits` is the cost of the best of the other modes.
    """
    flat = w8.residuals
    n, value_nbytes = len(flat), flat.itemsize
    pieces = pieces_of(n, value_nbytes)
    are_first = pieces[0].start == 0
    step = BLOCK_NBYTES // value_nbytes
    best: tuple[int, int, int] | None = None
    signed = flat.view(f"<i{value_nbytes}").tolist()
    in_groups = [
        signed[k : min(k + 8, piece.stop)]
        for piece in pieces
        for k in range(piece.start, piece.stop, 8)
    ]
    reference = cost_of(in_groups)
    for s, stream in enumerate(streams):
        repeats, idles = looks(stream, groups, group_count, bits)
        planes = ZIGZAG if stream.predicted else BITS
        for arrangement in (BYTES, planes):
            if reference == 0 or not (repeats or (idles and arrangement != BYTES)):
                continue
            encoder = Matches(arrangement)
            first, rest, taken = 0, w8_bits, 0
            if not are_first:
                first = 8 * len(encoder.encode(stream.residuals[:step]))
                rest -= rest // -(-n // step)
            for piece in pieces:
                part = stream.residuals[piece.start : piece.stop]
                taken += 8 * len(encoder.encode(part)) + 32 * len(part) // step
            estimate = first + rest * taken // reference
            if best is None or estimate < best[0]:
                best = (estimate, s, arrangement)
    if best is None or best[0] >= bits - bits // 32:
        return None
    return best[1:]
