#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Write docs/benchmarks.md and its pictures from results/*.json: `python benchmarks/summary.py`.

Every number on that page is a row's, with the date of its run; nothing is measured here. All rows
are of one commit: `summary.py COMMIT` names another than that of most rows. `run.py` calls this
after a run that wrote to results/, for the commit that it ran. The pictures need matplotlib.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import MICROSECONDS, Row, number

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parent.parent / "docs"
PICTURES = Path("images") / "benchmarks"  # below docs/


@dataclass(frozen=True)
class Topic:
    """A section of the page: the rows whose names match, and what is said above their table.

    `has_peers` is False where the other columns of the rows are ways of gpufetch's own.
    """

    title: str
    pattern: str
    text: str
    has_peers: bool = True


GROWTH = Topic(
    "How the cost grows",
    r"growth: ",
    "One call each. A fetch of few bytes takes a call's own time, one of many the link's.",
)
TOPICS = [
    Topic(
        "Fetching",
        r"fetch \d+ [KMG]iB of float32 to NumPy|first fetch|fetch a dict|upload",
        "From a device array to a new NumPy array, and back. The limit is one copy between device "
        "memory and page-locked memory that exists already.",
    ),
    GROWTH,
    Topic("Into the caller's arrays", r"fetch .* into an array", "`out=`, pageable memory."),
    Topic(
        "Layouts and conversions",
        r"fetch (rows|a transposed|a reversed|float)",
        "Views that are not contiguous, and casts; GB/s of the result.",
    ),
    Topic(
        "Reductions",
        r"(stats|histogram|overview) ",
        "On the device; the limit is a kernel that reads the tensor and does nothing else.",
    ),
    Topic(
        "HDF5",
        r"(write|read) 1 GiB .* HDF5|read \d+ [KMG]iB of .* in chunks of|append",
        "Device to closed file and back, in the page cache. Files that gpufetch encodes are "
        "smaller than the tensor: rates are of the tensor's bytes.",
    ),
    Topic(
        "The codec on the GPU",
        r"(encode|decode) on the device",
        "Rates are of raw bytes; the ratio is raw bytes over encoded ones. `copy on the device` is "
        "the fastest way to read and write as many bytes, and stands in for a limit.",
    ),
    Topic(
        "The codec on one CPU core",
        r"(encode|decode) (?!on the device)",
        "Through HDF5's filter pipeline, files in memory, beside the filters of hdf5plugin.",
    ),
    Topic(
        "Checkpoints",
        r"(stall|checkpoint|restart) ",
        "What a program waits for, and what reaches the files; "
        "[checkpoints.md](checkpoints.md#what-it-takes) explains each row.",
        has_peers=False,
    ),
    Topic(
        "Between processes",
        r"share |read 1 GiB of another|comm |simulation ",
        "Device memory shared by handle, messages of the comm, and what serving costs a program.",
    ),
    Topic("The notebook", r"(viewer|picture|interaction|watched|page)\b", "In real pages.", False),
]


def load() -> dict[str, list[Row]]:
    """The rows of each machine, by its name; those of GPUs first."""
    machines = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    named = {rows[0]["machine"]: rows for rows in machines if rows}
    return dict(sorted(named.items(), key=lambda item: ("no GPU" in item[0], item[0])))


def short(commit: str) -> str:
    """A commit as the page has it, by seven digits."""
    return re.sub(r"^([0-9a-f]{7})[0-9a-f]*", r"\1", commit)


def of_commit(
    machines: dict[str, list[Row]], commit: str | None = None
) -> tuple[str, dict[str, list[Row]], dict[str, int]]:
    """The commit, or that of most rows; its rows; and how many of each machine are of others."""
    counts = Counter(short(row["commit"]) for rows in machines.values() for row in rows)
    commit = short(commit) if commit else counts.most_common(1)[0][0]
    shown = {
        machine: [row for row in rows if short(row["commit"]) == commit]
        for machine, rows in machines.items()
    }
    others = {machine: len(rows) - len(shown[machine]) for machine, rows in machines.items()}
    return (
        commit,
        {machine: rows for machine, rows in shown.items() if rows},
        {machine: count for machine, count in others.items() if count},
    )


def is_time(row: Row) -> bool:
    return bool(row["unit"] == MICROSECONDS)


def best_peer(row: Row) -> tuple[str, float] | None:
    peers = {name: value for name, value in row["peers"].items() if not name.startswith("copy on")}
    if not peers:
        return None
    name = (min if is_time(row) else max)(peers, key=lambda peer: peers[peer])
    return name, peers[name]


def times_faster(row: Row, value: float) -> float:
    """How many times as fast as `value` gpufetch is."""
    ours = float(row["gpufetch"])
    return value / ours if is_time(row) else ours / value


def limit_of(row: Row) -> str:
    if row["limit"] is None:
        copied = row["peers"].get("copy on the device")
        return "–" if copied is None else f"{number(copied)} (copy on the device)"
    share = 100 * times_faster(row, row["limit"])
    return f"{number(row['limit'])} ({row['limit_is']}): {share:.3g} %"


def peer_of(row: Row) -> str:
    found = best_peer(row)
    if found is None:
        return "–"
    name, value = found
    return f"{number(value)} ({name}): {times_faster(row, value):.2g} ×"


def ratio_of(row: Row) -> str:
    ratios = row.get("ratios") or {}
    others = {name: value for name, value in ratios.items() if name != "gpufetch"}
    ratio = row["ratio"]
    if isinstance(ratio, dict):
        ratio = next(ratio[name] for name in ratio if name.startswith("gpufetch"))
    if not others:
        return f"{ratio:.3g}"
    name = max(others, key=lambda peer: others[peer])
    return f"{ratio:.3g}; {others[name]:.3g} ({name})"


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def table(rows: Sequence[Row], topic: Topic) -> list[str]:
    """A line for each row: gpufetch beside its limit and the best peer, or the row's own note."""
    has_ratio = topic.has_peers and any("ratio" in row for row in rows)
    head = ["what", "unit", "gpufetch", "limit: share of it"]
    head += ["best peer: times as fast"] if topic.has_peers else ["said by the run"]
    head += ["ratio; best peer's"] if has_ratio else []
    head += ["measured"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for row in rows:
        cells = [row["case"], row["unit"], f"**{number(row['gpufetch'])}**", limit_of(row)]
        cells += [peer_of(row) if topic.has_peers else str(row.get("note") or "–")]
        if has_ratio:
            cells += [ratio_of(row) if "ratio" in row else "–"]
        cells += [row["date"]]
        lines.append("| " + " | ".join(map(cell, cells)) + " |")
    return lines


def rows_of(topic: Topic, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if re.match(topic.pattern, row["case"])]


def file_name(machine: str, topic: Topic) -> str:
    return re.sub(r"[^a-z0-9]+", "-", f"{machine} {topic.title}".lower()).strip("-") + ".svg"


def page(
    commit: str,
    machines: dict[str, list[Row]],
    others: dict[str, int],
    has_picture: dict[str, bool],
) -> str:
    lines = [
        "# Benchmarks",
        "",
        "`python benchmarks/summary.py` writes this page from the rows in",
        "[benchmarks/results](../benchmarks/results); `./dev bench` measures them anew on your",
        "machine, and writes the page with them. [How it is measured](../benchmarks/README.md):",
        "peers, limits and gpufetch take turns in one run, and every answer is compared with the",
        "source. Values are medians.",
        "",
        f"All rows here are of commit {commit}.",
    ]
    if others:
        left_out = "; ".join(f"{machine}: {count}" for machine, count in others.items())
        lines += [f"Rows of other commits are in that folder alone ({left_out})."]
    for machine, rows in machines.items():
        lines += ["", f"## {machine}"]
        for topic in TOPICS:
            found = rows_of(topic, rows)
            if not found:
                continue
            lines += ["", f"### {topic.title}", "", topic.text, ""]
            name = file_name(machine, topic)
            if has_picture.get(name):
                lines += [
                    f"![{topic.title}: gpufetch beside its limit and its peers]"
                    f"({(PICTURES / name).as_posix()})",
                    "",
                ]
            lines += table(found, topic)
    return "\n".join(lines) + "\n"


# --- Pictures -----------------------------------------------------------------

OURS, THEIRS, LIMIT = "#0072b2", "#b0b0b0", "black"


def relative(row: Row) -> tuple[float, float]:
    """Speed of gpufetch and of the best peer, as a share of the limit."""
    limit = row["limit"] if row["limit"] is not None else row["peers"]["copy on the device"]
    ours, found = times_faster(row, limit), best_peer(row)
    assert found is not None
    return ours, ours / times_faster(row, found[1])


def drawn_rows(topic: Topic, rows: Sequence[Row]) -> list[Row]:
    """The rows of a picture: those with a peer, and with a limit to be a share of."""
    found = rows_of(topic, rows)
    if topic is GROWTH:
        return found
    return [
        row
        for row in found
        if topic.has_peers
        and best_peer(row)
        and (row["limit"] or row["peers"].get("copy on the device"))
    ]


def figure_of(width: float, height: float) -> Any:
    import matplotlib  # not before something is drawn

    matplotlib.use("svg")
    # The same rows give the same file, whose text stays text.
    matplotlib.rcParams.update({"svg.hashsalt": "gpufetch", "svg.fonttype": "none"})
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def draw_shares(rows: Sequence[Row]) -> Any:
    """Bars from 0 to the limit, which is 1, for gpufetch and for the best peer."""
    figure = figure_of(9, 1.1 + 0.34 * len(rows))
    axes = figure.add_subplot()
    shares = [relative(row) for row in rows]
    places = range(len(rows))
    axes.barh([at - 0.18 for at in places], [ours for ours, _ in shares], 0.36, color=OURS)
    axes.barh([at + 0.18 for at in places], [peer for _, peer in shares], 0.36, color=THEIRS)
    for at, row, (_, peer) in zip(places, rows, shares, strict=True):
        axes.text(peer, at + 0.18, f" {(best_peer(row) or ('',))[0]}", va="center", fontsize=6)
    axes.axvline(1, color=LIMIT, linewidth=0.8)
    axes.set_yticks(places, [row["case"] for row in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("share of the limit: gpufetch blue, the best peer grey")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_growth(rows: Sequence[Row]) -> Any:
    """Time over bytes and over tensors, on logarithmic axes."""
    figure = figure_of(9, 3.4)
    of_trees = [row for row in rows if "a dict of" in row["case"]]
    of_bytes = [row for row in rows if row not in of_trees]
    for axes, drawn, unit in zip(
        figure.subplots(1, 2), (of_bytes, of_trees), ("bytes", "tensors"), strict=True
    ):
        for name, style in (("gpufetch", OURS), ("torch", THEIRS), ("limit", LIMIT)):
            values = [(row["amount"], row["peers"].get(name, row.get(name))) for row in drawn]
            points = [(amount, value) for amount, value in values if value]
            if points:
                axes.loglog(*zip(*points, strict=True), color=style, marker=".", label=name)
        axes.set_xlabel(unit)
        axes.set_ylabel("µs")
        axes.legend(fontsize=7, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_all(machines: dict[str, list[Row]]) -> None:
    (DOCS / PICTURES).mkdir(parents=True, exist_ok=True)
    for path in (DOCS / PICTURES).glob("*.svg"):
        path.unlink()
    for machine, rows in machines.items():
        for topic in TOPICS:
            if drawn := drawn_rows(topic, rows):
                figure = (draw_growth if topic is GROWTH else draw_shares)(drawn)
                path = DOCS / PICTURES / file_name(machine, topic)
                figure.savefig(path, metadata={"Date": None})


def pictures(machines: dict[str, list[Row]]) -> dict[str, bool]:
    """Which pictures there are to be, by file name."""
    return {
        file_name(machine, topic): bool(drawn_rows(topic, rows))
        for machine, rows in machines.items()
        for topic in TOPICS
    }


def text() -> str:
    commit, machines, others = of_commit(load())
    return page(commit, machines, others, pictures(machines))


def write(commit: str | None = None) -> Path:
    commit, machines, others = of_commit(load(), commit)
    draw_all(machines)
    path = DOCS / "benchmarks.md"
    path.write_text(page(commit, machines, others, pictures(machines)))
    return path


if __name__ == "__main__":
    print(write(*sys.argv[1:2]))
    sys.exit(0)
