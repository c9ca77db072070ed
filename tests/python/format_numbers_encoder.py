"""What docs/format.md says of numbers behind floats, done in plain Python: the encoder's search."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from format_numbers import LINEAR, NUMBERS, QUOTIENT, SINGLE, are_good, base_of, order, shifted

LOOKED_AT = 256
RANGE = 2.0**21


@dataclass(frozen=True)
class Numbers:
    """A way to have bases: by parameters, or by a shift (then the transform is still open)."""

    transform: int | None = None
    a: float = 0.0
    b: float = 0.0
    inverse: float = 0.0
    shift: int = 0
    fill: int | None = None
    filler: int = 0

    def near(self, value: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            found: np.ndarray = (
                value * self.a if self.transform == QUOTIENT else (value + -self.b) * self.inverse
            )
        return found


def as_doubles(bits: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        doubles: np.ndarray = bits.view(f"f{bits.itemsize}").astype("f8")
    return doubles


def base_double(p: float, way: Numbers, nbytes: int) -> float:
    integer = np.array([int(p)], f"i{nbytes}").view(f"u{nbytes}")
    return float(as_doubles(base_of(integer, way.transform or 0, way.a, way.b))[0])


class Probes:
    """Distinct values of the sample that are neither 0 nor far from 1."""

    def __init__(self, flat: np.ndarray, groups: list[range]) -> None:
        self.flat, self.groups = flat, groups
        self.w = 8 * flat.itemsize
        self.bits: list[int] = []
        self.looked_at, left, self.odd = 0, 0, 0
        hits: dict[int, int] = {}
        self.common, self.common_hits = 0, 0
        odd_ones = []
        for i in self.indices():
            if len(self.bits) == 64:
                break
            bits = int(flat[i])
            self.looked_at += 1
            if not self.is_probe(bits):
                self.odd = bits if left == 0 else self.odd
                left += 1 if bits == self.odd else -1
                odd_ones.append(bits)
                continue
            if bits not in hits:
                self.bits.append(bits)
            hits[bits] = hits.get(bits, 0) + 1
            if hits[bits] > self.common_hits:
                self.common, self.common_hits = bits, hits[bits]
        self.odd_hits = odd_ones.count(self.odd)
        self.values = self.doubles(self.bits) if self.w >= 32 else []

    def doubles(self, bits: list[int]) -> list[float]:
        return [float(x) for x in as_doubles(np.array(bits, self.flat.dtype))]

    def indices(self) -> Iterator[int]:
        """The values that are looked at."""
        m = len(self.groups)
        for j in range(LOOKED_AT):
            pair = j // 2
            k = pair % m * 61 % m if m == 256 else pair % m
            i = self.groups[k][0] + (pair + pair // m) % 7 + j % 2
            if pair // m < 7 and i < len(self.flat):
                yield i

    def is_probe(self, bits: int) -> bool:
        magnitude = bits & ((1 << (self.w - 1)) - 1)
        if self.w < 32:
            return magnitude != 0
        at, one = (52, 1023) if self.w == 64 else (23, 127)
        return magnitude != 0 and one - 60 <= magnitude >> at < one + 60

    def fitted(self, way: Numbers) -> Iterator[tuple[float, int]]:
        """Values that are looked at and their integers, where these are below 2^21."""
        for i in self.indices():
            if self.is_probe(int(self.flat[i])):
                value = as_doubles(self.flat[i : i + 1])
                near = float(way.near(value)[0])
                if -RANGE < near < RANGE:
                    yield float(value[0]), round(near)


@dataclass
class Explained:
    p: list[int | None] = field(default_factory=list)
    cost: int = 0

    @property
    def count(self) -> int:
        return sum(p is not None for p in self.p)


def explain(probes: Probes, way: Numbers) -> Explained | None:
    found = Explained()
    most = 2.0**48 if probes.w == 64 else 2.0**20
    nbytes, together = probes.w // 8, 0
    for i, value in enumerate(probes.values):
        near = float(way.near(np.array([value]))[0])
        p = round(near) if -most < near < most else None
        if p is not None and base_double(p, way, nbytes) != value:
            p = None
        found.p.append(p)
        together |= abs(p or 0)
        if i == 7 and found.count < 4:
            return None
    total = len(probes.values)
    found.cost = total * together.bit_length() + (total - found.count) * probes.w
    return found if 4 * found.count >= 3 * total else None


def reduced(probes: Probes, way: Numbers, found: Explained) -> tuple[Numbers, Explained]:
    known = [p for p in found.p if p is not None]
    divisor = math.gcd(*(abs(p - known[0]) for p in known))
    if divisor <= 1:
        return way, found
    rest = known[0] % divisor
    tried = Numbers(QUOTIENT, way.a / float(divisor))
    if rest:
        a = float(divisor) / way.a
        tried = Numbers(LINEAR, a, float(rest) / way.a, 1 / a)
    if are_good(tried.transform or 0, tried.a, tried.b):
        other = explain(probes, tried)
        if other is not None and other.count >= found.count:
            return tried, other
    return way, found


def try_quotient(
    probes: Probes, a: float, best: tuple[Numbers, int] | None
) -> tuple[Numbers, int] | None:
    tried = Numbers(QUOTIENT, a)
    found = explain(probes, tried) if are_good(QUOTIENT, a, 0.0) else None
    if found is None:
        return best
    tried, found = reduced(probes, tried, found)
    return (tried, found.cost) if best is None or found.cost < best[1] else best


def lowest_exponent(value: float) -> int:
    mantissa, exponent = math.frexp(value)
    number = abs(int(mantissa * 2**53))
    return exponent - 53 + (number & -number).bit_length() - 1


def unit_of(probes: Probes, ordered: list[float]) -> float:
    most = ordered[0] if -ordered[0] > ordered[-1] else ordered[-1]
    unit: float = 2.0 ** (math.frexp(most)[1] - 1 - (52 if probes.w == 64 else 23))
    return unit


def step_of(gaps: list[float], m: int) -> float | None:
    total, steps, missed = gaps[0], float(m), 0
    for i, gap in enumerate(gaps[1:], 1):
        step = total / steps
        n = float(round(gap / step))
        off = gap - n * step
        if off > step / 8 or off < -step / 8:
            missed += 1
            if i < 8 or 8 * missed > len(gaps):
                return None
            continue
        total, steps = total + gap, steps + n
    return total / steps


def find_step(probes: Probes, ordered: list[float]) -> float | None:
    unit = unit_of(probes, ordered)
    gaps = sorted(b - a for a, b in itertools.pairwise(ordered) if b - a >= 16 * unit)
    if 4 * len(gaps) < 3 * len(ordered):
        return None
    for m in range(1, 65):
        if gaps[0] < 16 * m * unit:
            return None
        if (ordered[-1] - ordered[0]) / gaps[0] * m < RANGE:
            step = step_of(gaps, m)
            if step is not None:
                return step
    return None


def fitted(probes: Probes, unit: float, way: Numbers) -> Numbers:
    for _ in range(3):
        n = sp = sr = spp = spr = 0
        for value, p in probes.fitted(way):
            off = (value - (float(p) * way.a + way.b)) / unit
            if -4096 < off < 4096:
                r = round(off * 64)
                n, sp, sr, spp, spr = n + 1, sp + p, sr + r, spp + p * p, spr + p * r
        spread = n * spp - sp * sp
        if spread <= 0:
            break
        slope = float(n * spr - sp * sr) / float(spread)
        mean = (float(sr) - slope * float(sp)) / float(n)
        a = way.a + slope * (unit / 64)
        way = replace(way, a=a, b=way.b + mean * (unit / 64), inverse=1 / a)
    return way


Tests = list[tuple[float, int]]


def count_missed(probes: Probes, tests: Tests, way: Numbers, n: int) -> int:
    return sum(base_double(p + n, way, probes.w // 8) != value for value, p in tests)


def find_origin(probes: Probes, tests: Tests, best: int, way: Numbers) -> tuple[int, Numbers]:
    least, greatest = min(0, *(p for _, p in tests)), max(0, *(p for _, p in tests))
    kind = "f4" if way.transform == SINGLE else "f8"
    n = np.arange(-32768 - least, 65535 - greatest + 1)
    a = np.array(way.a, kind)
    bs = (tests[0][0] - (tests[0][1] + n).astype(kind) * a).astype(kind)
    possible = np.ones(len(n), bool)
    for value, p in tests[1:24]:
        bases = ((p + n).astype(kind) * a + bs).astype(f"f{probes.w // 8}")
        possible &= bases == value
    found = way
    for k in np.flatnonzero(possible).tolist():
        tried = replace(way, b=float(bs[k]))
        missed = count_missed(probes, tests, tried, int(n[k]))
        if missed < best and are_good(tried.transform or 0, tried.a, tried.b):
            best, found = missed, tried
    return best, found


def with_origin(probes: Probes, way: Numbers) -> Numbers:
    tests = sorted(probes.fitted(way), key=lambda test: abs(test[0]))
    missed = count_missed(probes, tests, way, 0)
    if 8 * missed <= len(tests):
        return way
    missed, way = find_origin(probes, tests, missed, way)
    if probes.w == 32 and 8 * missed > len(tests):
        single = replace(way, transform=SINGLE, a=float(np.float32(way.a)))
        less, single = find_origin(probes, tests, missed, single)
        way = single if less < missed else way
    return way


def find_multiples(probes: Probes) -> Numbers | None:
    ordered = sorted(probes.values)
    step = find_step(probes, ordered)
    if step is None:
        return None
    best = None
    if 1.5 < 1 / step < RANGE:
        best = try_quotient(probes, float(round(1 / step)), best)
    if best is not None:
        return best[0]
    way = Numbers(LINEAR, step, ordered[len(ordered) // 2], 1 / step)
    way = with_origin(probes, fitted(probes, unit_of(probes, ordered), way))
    return way if are_good(way.transform or 0, way.a, way.b) else None


def has_number(way: Numbers, bits: np.ndarray) -> np.ndarray:
    most = 2.0**50 if bits.itemsize == 8 else 2.0**30
    near = way.near(as_doubles(bits))
    with np.errstate(invalid="ignore"):
        inside: np.ndarray = (near > -most) & (near < most)
    return inside


def find_numbers(probes: Probes) -> Numbers | None:
    if probes.w < 32:
        return None
    lowest = sorted(lowest_exponent(value) for value in probes.values)
    best = try_quotient(probes, 2.0 ** -lowest[len(lowest) // 16], None)
    for e in range(1, 18 if probes.w == 64 else 9):
        best = try_quotient(probes, float(10**e), best)
    way = find_multiples(probes) if best is None else best[0]
    if way is None:
        return None
    odd = np.array([probes.odd], probes.flat.dtype)
    fill = probes.odd if probes.odd_hits and not has_number(way, odd)[0] else None
    return replace(way, fill=fill, filler=probes.bits[0])


def find_shift(probes: Probes) -> tuple[Numbers, bool]:
    zeros = sorted((bits & -bits).bit_length() - 1 for bits in probes.bits)
    shift = zeros[len(zeros) // 16]
    negative = any(bits >> (probes.w - 1) for bits in probes.bits)
    way = Numbers(shift=min(shift, probes.w - 2), filler=probes.bits[0])
    return way, shift > 0 and (negative or zeros[0] < shift)


def find_fill(probes: Probes, way: Numbers) -> Numbers | None:
    odd = probes.odd_hits >= probes.common_hits
    fill = probes.odd if odd else probes.common
    hits = probes.odd_hits if odd else probes.common_hits
    if 8 * hits < probes.looked_at or way.fill == fill:
        return None
    return replace(way, fill=fill, filler=probes.bits[int(probes.bits[0] == fill)])


def ways(flat: np.ndarray, groups: list[range]) -> Iterator[Numbers]:
    """Everything that is tried, in order."""
    probes = Probes(flat, groups)
    if len(probes.bits) < 8:
        return
    way = find_numbers(probes)
    if way is not None:
        yield way
        filled = find_fill(probes, way)
        if filled is not None:
            yield filled
    shift, pays = find_shift(probes)
    if pays:
        yield shift
    filled = find_fill(probes, shift)
    if filled is not None:
        yield filled


def own(way: Numbers, flat: np.ndarray) -> np.ndarray:
    """Which values have something of their own to be predicted."""
    found = np.ones(len(flat), bool) if way.transform is None else has_number(way, flat)
    if way.fill is not None:
        found &= flat != flat.dtype.type(way.fill)
    return found


def filled_in(way: Numbers, flat: np.ndarray, components: int) -> tuple[np.ndarray, np.ndarray]:
    """Values that stand for those that have nothing of their own, and where not even these have."""
    found, mine = flat.copy(), own(way, flat)
    lonely = np.zeros(len(flat), bool)
    other = np.array([way.filler], flat.dtype)
    for i in np.flatnonzero(~mine).tolist():
        group = range(i // 8 * 8, min(i // 8 * 8 + 8, len(flat)))
        part = [j for j in group if (j - i) % components == 0]
        before = [j for j in part if j < i and mine[j]]
        after = [j for j in part if j > i and mine[j]]
        if before or after:
            found[i] = flat[before[-1] if before else after[0]]
        else:
            found[i], lonely[i] = other[0], not own(way, other)[0]
    return found, lonely


def predicted(way: Numbers, transform: int, flat: np.ndarray, components: int) -> np.ndarray:
    """What is predicted and packed."""
    values, lonely = filled_in(way, flat, components)
    if transform in NUMBERS:
        near = np.where(lonely, 0.0, way.near(as_doubles(values)))
        p = np.rint(near).astype(f"i{flat.itemsize}").view(flat.dtype)
    else:
        p = shifted(values, transform, way.shift, False)
    return np.where(lonely, flat.dtype.type(0), p)


def corrections_of(way: Numbers, transform: int, flat: np.ndarray, p: np.ndarray) -> np.ndarray:
    """One for each value, signed."""
    if transform in NUMBERS:
        base = base_of(p, transform, way.a, way.b)
    else:
        base = shifted(p, transform, way.shift, True)
    c = order(flat) - order(base)
    signed: np.ndarray = c.view(f"i{c.itemsize}")
    if way.fill is not None:
        signed = signed + (signed > 0)
        signed = np.where(flat == flat.dtype.type(way.fill), 1, signed)
    return signed


def parameters(way: Numbers, transform: int) -> bytes:
    found = np.array([way.a, way.b]).tobytes() if transform in NUMBERS else b""
    if way.fill is not None:
        found += way.fill.to_bytes(8, "little")
    return found + bytes(-len(found) % 16)
