"""docs/format.md says what the encoder chooses: here is an encoder written from that section alone.

It gives the same bytes as gpufetch's, for every case of the fixtures. The names are those of the
document.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from functools import partial
from pathlib import Path
from typing import NamedTuple

import fixture_values
import h5py
import numpy as np
import pytest
import test_format
from format_matches_encoder import Stream, choose_matches, encode_matches
from format_numbers_encoder import Numbers, corrections_of, parameters, predicted, ways
from test_format import (
    COMPLEX_CODES,
    ELEMENT_NBYTES,
    HEADER_NBYTES,
    MAGIC,
    Ranks,
    checksum,
    decode,
    undo_transform,
)

CASES = [*fixture_values.version_1(), *fixture_values.version_2()]
FLOAT_CODES = range(10, 23)
SIGNED_CODES = range(2, 6)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 16)


def joined(fields: list[int], width: int) -> bytes:
    """Numbers of `width` bits each, lowest bits first, in as few bytes as hold them."""
    number = 0
    for k, field in enumerate(fields):
        number |= field << (k * width)
    return number.to_bytes(-(-len(fields) * width // 8), "little")


def groups_of(packed: list[int]) -> list[list[int]]:
    filled = packed + [0] * (-len(packed) % 8)
    return [filled[k : k + 8] for k in range(0, len(filled), 8)]


def section(values: list[int], width: int) -> bytes:
    return b"".join(joined(group, width) for group in groups_of(values))


def trailing_zeros(number: int) -> int:
    return (number & -number).bit_length() - 1 if number else 0


def zigzag(r: int) -> int:
    return 2 * r if r >= 0 else -2 * r - 1


class Values:
    """The values of a chunk (or their places), of w bits, with the elements' shape."""

    def __init__(self, values: np.ndarray, dims: tuple[int, ...], components: int) -> None:
        self.flat = values.reshape(-1)
        self.grid = values.reshape(*dims, components)
        self.dims, self.components = dims, components
        self.w = 8 * values.itemsize
        self.n = len(self.flat)
        self.N = -(-self.n // 8)
        self.M = min(self.N, 256)
        usable = [a for a in range(len(dims)) if dims[a] > 1][-4:]
        self.usable = usable[::-1]  # bit 0 of a subset's number is the last usable axis

    def sampled_groups(self) -> list[range]:
        groups = []
        for k in range(self.M):
            begin, end = k * self.N // self.M, (k + 1) * self.N // self.M
            g = begin + (k * 2654435761 % 2**32) % (end - begin)
            groups.append(range(8 * g, min(8 * g + 8, self.n)))
        return groups

    def signed(self, residuals: np.ndarray) -> np.ndarray:
        return residuals.view(f"i{residuals.itemsize}")


def transformed(values: Values, transform: int) -> np.ndarray:
    if transform == 1:  # rotated right by w - 1 is rotated left by one
        one, top = values.grid.dtype.type(1), values.grid.dtype.type(values.w - 1)
        rotated: np.ndarray = (values.grid << one) | (values.grid >> top)
        return rotated
    return undo_transform(values.grid, transform)


def residuals_of(values: Values, grid: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Residuals by the three rules of the prediction."""
    if not axes:
        return grid.copy()
    residuals = np.zeros_like(grid)
    ndim = len(values.dims)
    lorenzo = grid.copy()
    for a in axes:
        before = np.zeros_like(lorenzo)
        source = tuple(slice(None, -1) if b == a else slice(None) for b in range(ndim))
        target = tuple(slice(1, None) if b == a else slice(None) for b in range(ndim))
        before[target] = lorenzo[source]
        lorenzo = lorenzo - before
    residuals[...] = lorenzo
    face = tuple(slice(0, 1) if a in axes else slice(None) for a in range(ndim))
    for index in itertools.product(*(range(n) for n in grid[face].shape[:-1])):
        last = max((a for a in range(ndim) if index[a]), default=None)
        if last is None:
            residuals[index] = 0
            continue
        step = tuple(i - (a == last) for a, i in enumerate(index))
        residuals[index] = grid[index] - grid[step]
    return residuals


def cost_of(values: Values, residuals: np.ndarray) -> int:
    """Bits of the sampled groups."""
    signed = values.signed(residuals.reshape(-1))
    groups = [[int(signed[i]) for i in group] for group in values.sampled_groups()]
    return cost_of_groups(groups, values.w)


def cost_of_groups(groups: list[list[int]], w: int) -> int:
    """Bits of groups of residuals."""
    seen = [r for group in groups for r in group]
    together = 0
    for r in seen:
        together |= r % 2**w
    less = trailing_zeros(together) + all(r >= 0 for r in seen)
    dense, sparse = 3 * len(groups), len(groups)
    for group in groups:
        used = sum(r != 0 for r in group)
        if used:
            width = max(zigzag(r) for r in group).bit_length()
            dense += 8 * (width - less)
            sparse += 8 + used * (width - less)
    return min(dense, sparse)


Grids = list[tuple[int, np.ndarray]]


def choose_w8(
    values: Values, grids: Grids, has_offset: bool
) -> tuple[int, int, tuple[int, ...], np.ndarray, int, np.ndarray]:
    """Cost, transform, S, residuals, offset, transformed values."""
    best = None
    for transform, grid in grids:
        for number in range(2 ** len(values.usable)):
            axes = tuple(a for bit, a in enumerate(values.usable) if number >> bit & 1)
            residuals = residuals_of(values, grid, axes)
            cost = cost_of(values, residuals)
            if best is None or cost < best[0]:
                best = (cost, transform, axes, residuals, 0, grid)
    assert best is not None
    cost, transform, axes, residuals, _, grid = best
    if has_offset:
        groups, flat = values.sampled_groups(), values.signed(residuals.reshape(-1))
        firsts = sorted(int(flat[groups[j * values.M // 31][0]]) for j in range(31))
        offset = firsts[15] % 2**values.w
        if offset:
            less = cost_of(values, residuals - residuals.dtype.type(offset))
            if less < cost:
                best = (less, transform, axes, residuals, offset, grid)
    return best


def symbol_of(ranks: Ranks, value: int) -> int:
    return value >> ranks.symbol_at & ((1 << ranks.symbol_bits) - 1)


def leaves_of(weights: list[int]) -> list[int]:
    """Leaves of each level of the tree for weights that fall."""
    leaves = [(weight, 0, [(i, 0)]) for i, weight in reversed(list(enumerate(weights)))]
    joined_nodes: list[tuple[int, int, list[tuple[int, int]]]] = []
    while len(leaves) + len(joined_nodes) > 1:
        pair = []
        for _ in range(2):
            first = leaves and (not joined_nodes or leaves[0][0] <= joined_nodes[0][0])
            pair.append((leaves if first else joined_nodes).pop(0))
        below = [(i, level + 1) for _, _, ends in pair for i, level in ends]
        joined_nodes.append((pair[0][0] + pair[1][0], 1, below))
    counts = Counter(level for _, level in joined_nodes[0][2])
    levels = [0] + [counts[j] for j in range(1, max(counts) + 1)]
    while len(levels) > 13:
        levels[-2] += levels[-1]
        del levels[-1]
    while sum(count << (12 - j) for j, count in enumerate(levels)) > 1 << 12:
        j = max(k for k in range(12) if levels[k])
        levels[j] -= 1
        levels[j + 1] += 2
        levels[12] -= 1
    return levels[1:]


def levels_of_leaves(leaves: list[int]) -> list[int]:
    return [level for level, count in enumerate(leaves, 1) for _ in range(count)]


def cuts_of(values: Values, code: int, places: bool) -> list[tuple[int, int]]:
    """Where a symbol may be: its lowest bit and its bits."""
    if places or (values.w == 8 and code not in FLOAT_CODES):
        return [(0, 8)]
    if code not in FLOAT_CODES:
        return [(values.w - e, e) for e in (8, 9, 10, 11)]
    e = {10: 5, 13: 11, 15: 11, 16: 3, 21: 5, 22: 5}.get(code, 4 if values.w == 8 else 8)
    at = values.w - 1 - e
    if values.w == 8:
        return [(at, e), (0, 7)]
    return [(at - k, e + k) for k in range(3) if e + k <= 11]


def choose_ranked(values: Values, code: int, places: bool, limit: int) -> tuple[int, Ranks] | None:
    groups = [[int(values.flat[i]) for i in group] for group in values.sampled_groups()]
    counted = [v for group in groups for v in group]
    used = [v for v in counted if v]
    mask = 0
    if used and 4 * len(used) <= 3 * len(counted):
        mask = values.M + 8 * sum(any(group) for group in groups)
        counted = used
    together = 0
    for v in counted:
        together |= v
    best: tuple[int, Ranks] | None = None
    for at, e in cuts_of(values, code, places):
        t = min(trailing_zeros(together) if together else values.w, at)
        rest = (mask + len(counted) * (values.w - e - t)) * values.N // values.M
        frequency = Counter(v >> at & ((1 << e) - 1) for v in counted)
        ordered = sorted(frequency, key=lambda symbol: (-frequency[symbol], symbol))[:254]
        leaves = leaves_of([*(frequency[s] for s in ordered), 1])
        levels, nbytes = levels_of_leaves(leaves), -(-e // 8)
        escapes = len(counted) - sum(frequency[s] - (frequency[s] == 1) for s in ordered)
        bits = escapes * (levels[-1] + 8 * nbytes)
        bits += sum(frequency[s] * level for s, level in zip(ordered, levels, strict=False))
        cost = rest + bits * values.N // values.M + 8 * nbytes * len(ordered)
        if rest < limit and (best is None or cost < best[0]):
            best = (cost, Ranks(at, e, t, leaves))
            best[1].symbols = ordered
    return best


class Choice:
    """W8 or ranked for values as they are, and what that costs."""

    def __init__(self, values: Values, code: int, places: bool) -> None:
        is_float = code in FLOAT_CODES and not places
        grids = [(t, transformed(values, t)) for t in ((1, 2) if is_float else (0,))]
        sampled, self.transform, self.axes, self.residuals, self.offset, self.grid = choose_w8(
            values, grids, not is_float
        )
        self.way: Numbers | None = None
        self.corrections: list[int] | None = None
        self.values = values
        self.ranks: Ranks | None = None
        self.cost = self.w8_cost = sampled * values.N // values.M
        self.w8_way = (self.transform, self.axes, self.offset)
        limit = min(self.cost, values.w * values.n)
        ranked = choose_ranked(values, code, places, limit)
        if ranked is not None and ranked[0] + ranked[0] // 64 < limit:
            self.cost, self.ranks = ranked
            self.transform, self.axes, self.offset = 0, (), 0


def with_numbers(choice: Choice, code: int) -> Choice:
    """W8 by way of a base, if that is cheaper."""
    values, best = choice.values, choice
    if code not in FLOAT_CODES or values.w == 8:
        return choice
    for way in ways(values.flat, values.sampled_groups()):
        transforms = (1, 2) if way.transform is None else (way.transform,)
        grids = [
            (t, predicted(way, t, values.flat, values.components).reshape(values.grid.shape))
            for t in transforms
        ]
        tried = copy.copy(choice)
        sampled, tried.transform, tried.axes, tried.residuals, tried.offset, tried.grid = choose_w8(
            values, grids, way.transform is not None and code != 15
        )
        listed = corrections_of(way, tried.transform, values.flat, tried.grid.reshape(-1)).tolist()
        groups = [[listed[i] for i in group] for group in values.sampled_groups()]
        corrections = cost_of_groups(groups, values.w) if any(map(any, groups)) else 0
        cost = (sampled + corrections) * values.N // values.M
        has_stream = corrections or way.fill is not None
        cost += 32 * -(-values.n // 1024) if has_stream else 0
        cost += 128 * ((way.transform is not None) + (way.fill is not None))
        if cost + cost // 64 < best.cost:
            tried.cost, tried.ranks, tried.way = cost, None, way
            tried.corrections = listed if any(listed) or way.fill is not None else None
            best = tried
    return best


def mask_of(values: list[int]) -> bytes:
    levels = [joined([int(v != 0) for v in values], 1)]
    for _ in range(2):
        levels.append(joined([int(byte != 0) for byte in levels[-1]], 1))
    lowest, middle, top = levels
    stored: bytes = top
    for level in (middle, lowest):
        stored += bytes(byte for byte in level if byte)
    return stored


def packed_list(residuals: list[int], w: int, sparse: int) -> tuple[int, bytes]:
    """Descriptor without the size, and the bytes."""
    together = 0
    for r in residuals:
        together |= r % 2**w
    t = trailing_zeros(together)
    plain = all(r >= 0 for r in residuals)
    packed = [((r >> t) if plain else zigzag(r >> t)) - sparse for r in residuals]
    widths = [max(group).bit_length() for group in groups_of(packed)]
    widest = max(widths)
    if widest == 0:
        return sparse * (t << 21 | plain << 28), b""
    ways = []
    for kind, q in ((1, 3), (2, 4), (1, 0)):
        least = max(widest - 2**q + 2, 1)
        fitted = [max(b, least) if b else 0 for b in widths] if q else [widest] * len(widths)
        codes = joined([widest - b if b else 2**q - 1 for b in fitted], q) if q else b""
        groups = zip(groups_of(packed), fitted, strict=True)
        body = codes + b"".join(joined(group, b) for group, b in groups)
        word = widest << 14 | t << 21 | plain << 28 | (q == 0) << 29 | kind << 30
        ways.append((word, body))
    for second in range(1, widest):
        least = max(second - 13, 1)
        fitted = [widest if b > second else max(b, least) if b else 0 for b in widths]
        codes = [0 if b == widest else second + 1 - b if b else 15 for b in fitted]
        body = bytes([second]) + joined(codes, 4)
        body += b"".join(joined(g, b) for g, b in zip(groups_of(packed), fitted, strict=True))
        ways.append((widest << 14 | t << 21 | plain << 28 | 1 << 29 | 2 << 30, body))
    word, body = min(ways, key=lambda way: len(way[1]))
    if len(body) < len(residuals) * w // 8:
        return word, body
    return 3 << 30, b"".join((r % 2**w).to_bytes(w // 8, "little") for r in residuals)


def w8_block(residuals: list[int], w: int) -> tuple[int, bytes]:
    used = [r for r in residuals if r]
    if not used:
        return 0, b""
    word, body = packed_list(residuals, w, 0)
    if 4 * len(used) <= 3 * len(residuals):
        sparse_word, sparse_body = packed_list(used, w, 1)
        sparse_body = mask_of(residuals) + sparse_body
        if len(sparse_body) < len(body):
            word, body = sparse_word | 1 << 27, sparse_body
    return word, body


def code_bits(leaves: list[int], counts: list[int]) -> list[int]:
    """The codes of a list of leaves, level by level."""
    first = [0, *itertools.accumulate(counts)]  # of each level, from 1 on in order
    steps: list[list[int]] = []  # of each leaf, from the root down
    for leaf, level in enumerate(levels_of_leaves(counts)):
        node, path = leaf, []
        for j in range(level, 0, -1):
            place = node - first[j - 1]
            path.insert(0, place % 2)
            node = first[j - 1] + place // 2
        steps.append(path)
    return [steps[leaf][j] for j in range(len(counts)) for leaf in leaves if j < len(steps[leaf])]


def ranked_block(values: list[int], ranks: Ranks, w: int) -> tuple[int, bytes]:
    used = [v for v in values if v]
    if not used:
        return 0, b""
    word, mask = 0, b""
    if 4 * len(used) <= 3 * len(values):
        word, mask, values = 1 << 27, mask_of(values), used
    at, e, t = ranks.symbol_at, ranks.symbol_bits, ranks.shift
    rests = [(v & (2**at - 1) | v >> (at + e) << at) >> t for v in values]
    leaf_of = {symbol: leaf for leaf, symbol in enumerate(ranks.symbols)}
    leaves = [leaf_of.get(symbol_of(ranks, v), len(leaf_of)) for v in values]
    body = section(rests, w - e - t) + joined(code_bits(leaves, ranks.leaves), 1)
    for v, leaf in zip(values, leaves, strict=True):
        if leaf == len(leaf_of):
            body += symbol_of(ranks, v).to_bytes(ranks.symbol_nbytes, "little")
    if any(v % 2**t for v in values):
        body = bytes(len(values) * w // 8)
    if len(body) >= len(values) * w // 8:
        raw = b"".join(v.to_bytes(w // 8, "little") for v in values)
        return word | 3 << 30, mask + raw
    return word | 1 << 30, mask + body


def blocks_of(choice: Choice) -> bytes:
    """Descriptors and blocks."""
    values, w = choice.values, choice.values.w
    if choice.ranks is None:
        residuals = choice.residuals - choice.residuals.dtype.type(choice.offset)
        if choice.axes:
            residuals[(0,) * len(values.dims)] = 0
        listed = [int(r) for r in values.signed(residuals.reshape(-1))]
    else:
        listed = [int(v) for v in values.flat]
    streams = [listed] if choice.corrections is None else [listed, choice.corrections]
    words, body = [b"" for _ in streams], b""
    count = -(-values.n // 1024)
    for run in range(0, count, 8):
        for stream, numbers in enumerate(streams):
            for b in range(run, min(run + 8, count)):
                part = numbers[1024 * b : 1024 * (b + 1)]
                ranks = choice.ranks
                word, block = ranked_block(part, ranks, w) if ranks else w8_block(part, w)
                words[stream] += (word | len(block)).to_bytes(4, "little")
                body += block
        body = padded(body)
    return padded(b"".join(words)) + body


def dictionary_of(values: Values, code: int, *, gaps_only: bool) -> np.ndarray | None:
    sampled = {int(values.flat[i]) for group in values.sampled_groups() for i in group}
    if values.w == 8 or len(sampled) > 256:
        return None
    if gaps_only and code not in FLOAT_CODES:
        numbers = list(sampled)
        if code in SIGNED_CODES:
            numbers = [v - 2**values.w if v >> (values.w - 1) else v for v in sampled]
        if max(numbers) - min(numbers) < 2 * len(sampled):
            return None
    distinct = np.unique(values.flat)
    if len(distinct) > 256:
        return None
    keys = undo_transform(distinct, 2) if code in FLOAT_CODES else distinct
    if code in FLOAT_CODES or code in SIGNED_CODES:
        keys = keys.view(f"i{keys.itemsize}")
    return distinct[np.argsort(keys)]


def match_streams(choice: Choice) -> list[Stream]:
    """What mode 4 may code: the values as they are, and residuals."""
    values = choice.values
    _, axes, offset = choice.w8_way
    streams = [Stream(values.flat, False)]
    if axes or offset:
        residuals = choice.residuals - choice.residuals.dtype.type(offset)
        if axes:
            residuals[(0,) * len(values.dims)] = 0
        streams.append(Stream(residuals.reshape(-1), True))
    return streams


class Coded(NamedTuple):
    """A choice, with what belongs to it."""

    choice: Choice
    dictionary: np.ndarray | None
    cost: int
    as_they_are: Choice


def coded(values: Values, code: int) -> Coded:
    """The cheaper of the values as they are and their places, with the dictionary of these."""
    as_they_are = Choice(values, code, places=False)
    choice = with_numbers(as_they_are, code)
    predicted = as_they_are.ranks is None and bool(as_they_are.axes)
    dictionary = dictionary_of(values, code, gaps_only=predicted)
    if dictionary is not None:
        lookup = {int(v): place for place, v in enumerate(dictionary)}
        places = np.array([lookup[int(v)] for v in values.flat], np.uint8)
        other = Choice(Values(places, values.dims, values.components), code, places=True)
        if other.cost + 8 * dictionary.nbytes < choice.cost:
            return Coded(other, dictionary, other.cost + 8 * dictionary.nbytes, as_they_are)
    return Coded(choice, None, choice.cost, as_they_are)


def planes_axis(dims: tuple[int, ...], element_nbytes: int) -> int | None:
    """The axis that changes places with the last one, if it does."""
    longer = [a for a in range(len(dims) - 1) if dims[a] > 1]
    if not longer or not 2 <= dims[-1] <= (64 if element_nbytes == 1 else 16):
        return None
    return longer[-1] if dims[longer[-1]] >= max(16, dims[-1]) else None


def encode(raw: bytes, code: int, dims: tuple[int, ...], big_endian: bool) -> bytes:
    element_nbytes = ELEMENT_NBYTES[code]
    components = 2 if code in COMPLEX_CODES else 1
    value_nbytes = element_nbytes // components
    swapped = big_endian and value_nbytes > 1
    stored = np.frombuffer(raw, f"{'>' if swapped else '<'}u{value_nbytes}")
    values = Values(stored.astype(f"u{value_nbytes}"), dims, components)
    planes = planes_axis(dims, element_nbytes)
    with_planes = 4 if planes is not None else 0
    if planes is not None:
        grid = values.grid.swapaxes(planes, len(dims) - 1)
        values = Values(np.ascontiguousarray(grid), grid.shape[:-1], components)
    mode, transform, axes, levels, entries, flags, shift, symbol = 0, 0, 0, 0, 0, 0, 0, 0
    seed, payload = b"", padded(raw)
    if raw == raw[:element_nbytes] * (len(raw) // element_nbytes):
        mode, seed, payload = 1, raw[:element_nbytes], b""
    else:
        choice, dictionary, cost, as_they_are = coded(values, code)
        streams = match_streams(as_they_are)
        w8 = Stream(as_they_are.residuals.reshape(-1), False)
        matches = choose_matches(
            streams,
            streams[-1] if len(streams) == 2 else w8,
            values.sampled_groups(),
            values.N,
            as_they_are.w8_cost,
            cost,
            partial(cost_of_groups, w=values.w),
        )
        tables = b"" if dictionary is None else padded(dictionary.tobytes())
        if choice.way is not None:
            tables = parameters(choice.way, choice.transform)
        if choice.ranks is not None:
            entry = f"<u{choice.ranks.symbol_nbytes}"
            tables += padded(np.array(choice.ranks.symbols, entry).tobytes())
        if matches is not None:
            stream, arrangement = matches
            tried = encode_matches(streams[stream].residuals, arrangement)
            if len(tried) < len(payload):
                payload, mode, flags = tried, 4, int(swapped) | with_planes
                levels = arrangement | 14 << 4
                if stream == 1:
                    transform, in_set, offset = as_they_are.w8_way
                    axes = sum(1 << a for a in in_set)
                    first = transformed(values, transform)[(0,) * len(dims)]
                    seed = first.tobytes() if axes else b""
                    if offset:
                        seed = seed.ljust(8, b"\0") + offset.to_bytes(8, "little")
        else:
            tried = tables + blocks_of(choice)
        is_raw = matches is None and cost >= 8 * len(raw) + 2 * values.N
        if mode != 4 and not is_raw and len(tried) < len(payload):
            payload = tried
            mode = 2 if choice.ranks is None else 3
            transform = choice.transform if dictionary is None else 3
            entries = 0 if dictionary is None else len(dictionary) - 1
            axes = sum(1 << a for a in choice.axes)
            flags = int(swapped) | with_planes
            if choice.ranks is not None:
                levels = len(choice.ranks.leaves) | choice.ranks.symbol_bits << 4
                symbol, shift = choice.ranks.symbol_at, choice.ranks.shift
                seed = bytes(choice.ranks.leaves)
            if choice.axes:
                seed = choice.grid[(0,) * len(dims)].tobytes()
            if choice.way is not None:
                shift = choice.way.shift
                flags |= 2 * (choice.corrections is not None) | 8 * (choice.way.fill is not None)
            if choice.offset:
                seed = seed.ljust(8, b"\0") + choice.offset.to_bytes(8, "little")
    coding = [mode, transform, axes, len(dims), flags, levels, entries, shift, symbol, 0]
    header = MAGIC + bytes([2, code, *coding])
    header += len(raw).to_bytes(8, "little") + len(payload).to_bytes(8, "little")
    header += np.array([*dims, *[0] * (8 - len(dims))], "<u4").tobytes() + seed.ljust(16, b"\0")
    chunk = header.ljust(HEADER_NBYTES, b"\0") + payload
    return chunk[:80] + checksum(chunk) + chunk[HEADER_NBYTES:]


@pytest.fixture(scope="module")
def chunks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The chunks that gpufetch encodes the fixtures' values to today."""
    path = tmp_path_factory.mktemp("encoder") / "cases.h5"
    cases = CASES
    with h5py.File(path, "w") as file:
        for case in cases:
            fixture_values.write(file, case)
    with h5py.File(path, "r") as file:
        return {
            case.name: file[case.name].id.read_direct_chunk((0,) * len(case.shape))[1]
            for case in cases
        }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_encoder_written_from_the_document_gives_the_same_bytes(
    case: fixture_values.Case, chunks: dict[str, bytes]
) -> None:
    expected = chunks[case.name]
    found = encode(case.values().tobytes(), expected[5], case.shape, case.big_endian)
    assert found[5:16] == expected[5:16], "dtype, mode, transform, axes, levels, entries"
    assert found[64:80] == expected[64:80], "seed and offset"
    assert found == expected
    assert decode(expected) == case.values().tobytes()


def test_the_cases_have_all_arrangements_of_matches_and_planes_in_all_modes(
    chunks: dict[str, bytes],
) -> None:
    matches = [chunk for chunk in chunks.values() if chunk[6] == 4]
    assert {chunk[11] & 15 for chunk in matches} == {0, 1, 2}
    assert {chunk[10] & 1 for chunk in matches} == {0, 1}
    assert {(chunk[6], chunk[10] & 4) for chunk in chunks.values()} == {
        *((mode, 0) for mode in range(5)),
        *((mode, 4) for mode in (2, 3, 4)),
    }


def test_the_cases_have_all_ways_to_a_base(chunks: dict[str, bytes]) -> None:
    w8 = [chunk for chunk in chunks.values() if chunk[6] == 2]
    assert {chunk[7] for chunk in w8} == set(range(7))
    assert {(chunk[7], chunk[10] & 10) for chunk in w8} >= {(4, 0), (4, 2), (4, 10), (5, 2)}
    assert {(chunk[10] & 2, chunk[10] & 1) for chunk in w8 if chunk[13]} >= {(2, 0), (2, 1)}
    assert {chunk[5] for chunk in w8 if chunk[7] == 4} == {12, 13, 14, 15}
    assert any(chunk[10] & 11 == 11 for chunk in w8)


@pytest.fixture(scope="module")
def number_chunks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The chunks that gpufetch encodes numbers behind floats to."""
    return test_format.encode(test_format.numbers(), tmp_path_factory.mktemp("numbers"))


@pytest.mark.parametrize("name", list(test_format.numbers()))
def test_an_encoder_written_from_the_document_finds_the_same_numbers(
    name: str, number_chunks: dict[str, bytes]
) -> None:
    array, expected = test_format.numbers()[name], number_chunks[name]
    found = encode(array.tobytes(), expected[5], array.shape, array.dtype.byteorder == ">")
    assert found[5:16] == expected[5:16], "dtype, mode, transform, axes, flags, shift"
    assert found[64:80] == expected[64:80], "seed and offset"
    assert found[96:128] == expected[96:128], "parameters"
    assert found == expected


def test_what_is_noise_by_the_sample_is_raw(tmp_path: Path) -> None:
    rng = np.random.default_rng(13)
    array = np.where(rng.random(16000) < 0.02, rng.integers(256, size=16000), 0).astype("u1")
    for group in Values(array, array.shape, 1).sampled_groups():
        array[group] = rng.integers(256, size=len(group))
    expected = test_format.encode({"noise": array}, tmp_path)["noise"]
    assert expected[6] == 0
    assert encode(array.tobytes(), expected[5], array.shape, False) == expected
