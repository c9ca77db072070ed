"""The rows of the codec's case summed up: ratios and speeds of all fields, means, and the goals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness import Row

MINE = "gpufetch"
BITSHUFFLE_LZ4, BITSHUFFLE_ZSTD = "bitshuffle+lz4", "bitshuffle+zstd"
SHUFFLE_ZSTD, ZSTD, GZIP = "shuffle+zstd(5)", "zstd", "shuffle+gzip"
KINDS = ("f32", "f64", "integers", "weights")
MATCHES = "matches"  # a mode that version 1 of the chunk format does not have


@dataclass(frozen=True)
class Field:
    """What both rows of a field say: speeds in GB/s by contender, the mode of most chunks."""

    name: str
    kind: str
    mode: str
    has_short_axis: bool
    ratios: Mapping[str, float]
    encode: Mapping[str, float]
    decode: Mapping[str, float]

    @property
    def is_sequential(self) -> bool:
        """Whether the goal of its speed is the lower one."""
        return self.mode == MATCHES or self.has_short_axis


@dataclass(frozen=True)
class Goal:
    what: str
    passed: bool
    found: str


def summary(rows: Sequence[Row]) -> str:
    """Tables for people; nothing where the peers of the goals were not run."""
    fields = list(gathered(rows))
    if not fields or not all({BITSHUFFLE_LZ4, SHUFFLE_ZSTD} <= one.ratios.keys() for one in fields):
        return ""
    peers = [name for name in fields[0].ratios if name != MINE]
    return "\n".join(
        [
            "## The codec's fields\n",
            *table_of_fields(fields, peers),
            "\n## Geometric means of the ratios\n",
            *table_of_means(fields, peers),
            "\n## Goals\n",
            "| goal | | found |\n| --- | --- | --- |",
            *(
                f"| {goal.what} | {'pass' if goal.passed else '**miss**'} | {goal.found} |"
                for goal in goals(fields)
            ),
            "",
        ]
    )


def gathered(rows: Sequence[Row]) -> Iterator[Field]:
    speeds: dict[str, dict[str, dict[str, float]]] = {}
    for row in rows:
        if "field" in row:
            own = {MINE: row["gpufetch"], **row["peers"]}
            speeds.setdefault(row["field"], {})[row["direction"]] = own
    for row in rows:
        if row.get("direction") == "encode" and len(speeds[row["field"]]) == 2:
            yield Field(
                row["field"],
                row["kind"],
                row["mode"],
                row["has_short_axis"],
                row["ratios"],
                **speeds[row["field"]],
            )


def table_of_fields(fields: Sequence[Field], peers: Sequence[str]) -> Iterator[str]:
    fast = "GB/s: encode, decode"
    yield f"| field | kind | mode | {MINE} | {' | '.join(peers)} | {fast} | {BITSHUFFLE_LZ4} |"
    yield f"| --- | --- | --- {'| ---: ' * (len(peers) + 1)}| --- | --- |"
    for one in fields:
        ratios = " | ".join(f"{one.ratios[name]:.3f}" for name in (MINE, *peers))
        mine, peer = (
            f"{one.encode.get(name, math.nan):.2f}, {one.decode.get(name, math.nan):.2f}"
            for name in (MINE, BITSHUFFLE_LZ4)
        )
        yield f"| {one.name} | {one.kind} | {one.mode} | {ratios} | {mine} | {peer} |"


def table_of_means(fields: Sequence[Field], peers: Sequence[str]) -> Iterator[str]:
    yield f"| kind | fields | {MINE} | {' | '.join(peers)} |"
    yield f"| --- | ---: {'| ---: ' * (len(peers) + 1)}|"
    for kind in KINDS:
        if own := [one for one in fields if one.kind == kind]:
            means = " | ".join(f"{mean(own, name):.3f}" for name in (MINE, *peers))
            yield f"| {kind} | {len(own)} | {means} |"


def mean(fields: Sequence[Field], name: str) -> float:
    return math.exp(sum(math.log(one.ratios[name]) for one in fields) / len(fields))


# --- Goals --------------------------------------------------------------------


def goals(fields: Sequence[Field]) -> Iterator[Goal]:
    """Those that the fields at hand can tell."""
    worst = min(fields, key=lambda one: one.ratios[MINE] / one.ratios[BITSHUFFLE_LZ4])
    share = worst.ratios[MINE] / worst.ratios[BITSHUFFLE_LZ4]
    below = sum(one.ratios[MINE] < 0.99 * one.ratios[BITSHUFFLE_LZ4] for one in fields)
    yield Goal(
        f"ratio at most 1 % below {BITSHUFFLE_LZ4}'s on every field",
        below == 0,
        f"below on {below} of {len(fields)}; least {share:.3f} of it ({worst.name})",
    )
    yield from goals_of_means(fields)
    yield from goals_of_ratios({one.name: one for one in fields})
    for is_sequential, where, encode, decode in (
        (False, "elsewhere", 1.0, 1.5),
        (True, "with matches or a short last axis", 1.0, 1.0),
    ):
        own = [one for one in fields if one.is_sequential == is_sequential]
        yield from goals_of_speed(own, where, encode, decode)


def goals_of_means(fields: Sequence[Field]) -> Iterator[Goal]:
    for kind in ("f32", "f64", "integers"):
        if own := [one for one in fields if one.kind == kind]:
            mine, peer = mean(own, MINE), mean(own, SHUFFLE_ZSTD)
            what = f"geometric mean of {kind} at least {SHUFFLE_ZSTD}'s"
            yield Goal(what, mine >= peer, f"{mine:.3f} and {peer:.3f}")


def goals_of_ratios(fields: Mapping[str, Field]) -> Iterator[Goal]:
    for name, least in (
        ("city_temperature", 8.0),
        ("eraint_u f64", 8.0),
        ("eraint_u f32", 4.0),
        ("eraint_u f64 as f32", 4.0),
        ("Gaussian bf16", 1.5),
        ("weights bf16", 1.5),
        ("weights bf16 as u16", 1.4),
    ):
        if name in fields:
            ratio = fields[name].ratios[MINE]
            yield Goal(f"{name}: ratio at least {least:g}", ratio >= least, f"{ratio:.3f}")
    for name in ("Gaussian f16", "weights f16", "weights f32"):
        if name in fields:
            ratios = fields[name].ratios
            best = max((ratio, peer) for peer, ratio in ratios.items() if peer != MINE)
            found = f"{ratios[MINE]:.3f} and {best[0]:.3f} ({best[1]})"
            yield Goal(f"{name}: ratio at least the best peer's", ratios[MINE] >= best[0], found)


def goals_of_speed(
    fields: Sequence[Field], where: str, encode: float, decode: float
) -> Iterator[Goal]:
    for verb, least in (("encode", encode), ("decode", decode)):
        speeds: dict[str, Any] = {one.name: getattr(one, verb) for one in fields}
        times = {
            name: own[MINE] / own[BITSHUFFLE_LZ4]
            for name, own in speeds.items()
            if BITSHUFFLE_LZ4 in own
        }
        if times:
            worst = min(times, key=lambda name: times[name])
            below = sum(factor < least for factor in times.values())
            yield Goal(
                f"{verb} at {least:g} times {BITSHUFFLE_LZ4}'s speed or more, {where}",
                below == 0,
                f"slower on {below} of {len(times)}; least {times[worst]:.2f} times ({worst})",
            )
