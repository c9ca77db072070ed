"""Mode 4 of docs/format.md, read by the words of the document: LZ4 blocks, and what is in them."""

from __future__ import annotations

import numpy as np

HEADER_NBYTES = 96
BYTES, BITS, ZIGZAG = range(3)


def length_of(block: bytes, at: int, nibble: int) -> tuple[int, int]:
    """A length that starts with a nibble; where the next byte is."""
    length = nibble
    if nibble == 15:
        while True:
            length += block[at]
            at += 1
            if block[at - 1] != 255:
                break
    return length, at


def unpack_lz4(block: bytes, before: bytes, count: int) -> bytes:
    """`count` bytes of an LZ4 block whose matches may begin in `before`."""
    out = bytearray(before)
    at = 0
    while True:
        token = block[at]
        literals, at = length_of(block, at + 1, token >> 4)
        assert at + literals <= len(block)
        out += block[at : at + literals]
        at += literals
        if at == len(block):
            assert len(out) == len(before) + count
            return bytes(out[len(before) :])
        offset = int.from_bytes(block[at : at + 2], "little")
        extra, at = length_of(block, at + 2, token & 15)
        assert 1 <= offset <= len(out) and at < len(block)
        for _ in range(extra + 4):
            out.append(out[-offset])


def arranged(residuals: np.ndarray, arrangement: int) -> bytes:
    """The residuals of a block as LZ4 gets them."""
    w = 8 * residuals.itemsize
    if arrangement == ZIGZAG:
        signs = (residuals.view(f"<i{residuals.itemsize}") >> (w - 1)).view(residuals.dtype)
        residuals = (residuals << residuals.dtype.type(1)) ^ signs
    if arrangement == BYTES:
        return residuals.tobytes()
    whole = len(residuals) // 8 * 8
    bits = np.unpackbits(residuals[:whole].view("u1"), bitorder="little").reshape(whole, w)
    return np.packbits(bits.T, axis=1, bitorder="little").tobytes() + residuals[whole:].tobytes()


def undo_arrangement(data: bytes, arrangement: int, value_nbytes: int) -> np.ndarray:
    """The inverse."""
    count = len(data) // value_nbytes
    whole, dtype = count // 8 * 8, np.dtype(f"<u{value_nbytes}")
    if arrangement == BYTES:
        return np.frombuffer(data, dtype)
    planes = np.frombuffer(data, np.uint8, whole * value_nbytes).reshape(8 * value_nbytes, -1)
    bits = np.unpackbits(planes, axis=1, bitorder="little").T
    joined = np.packbits(bits, axis=1, bitorder="little").tobytes() + data[whole * value_nbytes :]
    z = np.frombuffer(joined, dtype)
    if arrangement == ZIGZAG:
        one = dtype.type(1)
        z = (z >> one) ^ (dtype.type(0) - (z & one))
    return z


def unpack_matches(chunk: bytes, count: int, value_nbytes: int) -> np.ndarray:
    """All residuals; shape (count,), unsigned."""
    arrangement, log2 = chunk[11] & 15, chunk[11] >> 4
    assert arrangement <= ZIGZAG and 12 <= log2 <= 14
    block_values = (1 << log2) // value_nbytes
    blocks = -(-count // block_values)
    sizes = np.frombuffer(chunk, "<u4", blocks, HEADER_NBYTES).tolist()
    at = HEADER_NBYTES + -(-4 * blocks // 16) * 16
    assert not any(chunk[HEADER_NBYTES + 4 * blocks : at])
    before = b""
    residuals = []
    for b, size in enumerate(sizes):
        nbytes = min(block_values, count - b * block_values) * value_nbytes
        assert 1 <= size <= nbytes and at + size <= len(chunk)
        block = chunk[at : at + size]
        data = block if size == nbytes else unpack_lz4(block, before, nbytes)
        residuals.append(undo_arrangement(data, arrangement, value_nbytes))
        before = before or data
        at += size
    assert len(chunk) == -(-at // 16) * 16 and not any(chunk[at:])
    return np.concatenate(residuals)
