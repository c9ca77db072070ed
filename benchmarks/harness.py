"""Time gpufetch and its peers side by side, and write what came out.

A case builds contenders that do the same job. `measure` runs them in turns, each round in another
order, so that a slow minute of the machine falls on all of them; every contender's answer is
compared with the expected one before any of its times counts.
"""

from __future__ import annotations

import datetime
import gc
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Row = dict[str, Any]
MICROSECONDS, GIGABYTES = "µs", "GB/s"


@dataclass(frozen=True)
class Contender:
    """One way to do the job.

    `call` is given what `prepare(source)` returns. Only the call is timed, neither `prepare` nor
    the release of the result. Round r uses sources[r % len(sources)], so that no cache holds the
    bytes of the round before. `answer(result)` is the array to compare: with `expected`, where a
    contender has an answer of its own, else with what `measure` was given.
    """

    name: str
    call: Callable[[Any], Any]
    sources: Sequence[Any]
    prepare: Callable[[Any], Any] = lambda source: source
    answer: Callable[[Any], Array] = lambda result: np.asarray(result)
    warm_up: bool = True  # False where the first run is as fast as the others, and slow
    expected: Array | None = None
    # The seconds that the call took, by its result, where another process has timed it.
    seconds: Callable[[Any], float] | None = None


@dataclass(frozen=True)
class Framework:
    """A peer: `put` copies a NumPy array to the GPU and `get` back; both return when it is done.

    `fresh` gives `get` an array that it has not seen: jax keeps the NumPy array that it made.
    """

    name: str
    get_is: str
    version: str
    put: Callable[[Array], Any]
    get: Callable[[Any], Array]
    fresh: Callable[[Any], Any] = lambda array: array

    @property
    def label(self) -> str:
        return self.label_of(self.get_is)

    def label_of(self, call: str) -> str:
        return f"{self.name} {self.version}: {call}"


@dataclass
class Timings:
    """Seconds by contender, and why a contender has none."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Session:
    """One invocation of run.py: what every case needs to know."""

    backend: str  # "cuda" or "host"
    quick: bool
    machine: str
    date: str
    commit: str
    command: str
    scratch: Path  # for files; removed afterwards
    frameworks: Sequence[Framework]  # those that work here
    absent: Sequence[str]  # those that do not, with the reason

    @property
    def device(self) -> str:
        return f"{self.backend}:0"


def same_bits(left: Array, right: Array) -> bool:
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    word = "u8" if left.nbytes % 8 == 0 else "u1"  # words compare faster than bytes
    one, other = (np.ascontiguousarray(array).reshape(-1).view(word) for array in (left, right))
    return bool(np.array_equal(one, other))


def measure(
    contenders: Sequence[Contender],
    expected: Sequence[Array],
    *,
    rounds: int,
    calls: int = 1,
    budget_s: float = 6.0,
    warm_up_rounds: int = 2,
) -> Timings:
    """Time the contenders in turns, of `calls` calls that are timed one by one.

    Where calls > 1, each turn begins with one more call whose time is dropped: it pays for what
    the contender before has left in the caches and queues, as a program's first call would.

    A contender leaves the turns once its times add up to `budget_s`; it has at least one time.
    A contender that raises or answers wrongly leaves at once and is reported in `failures`.
    """
    timings = Timings({contender.name: [] for contender in contenders})
    active = list(contenders)
    checked: set[str] = set()
    for number in range(-warm_up_rounds, rounds):
        turn = number % max(len(active), 1)
        for contender in active[turn:] + active[:turn]:
            if number < 0 and not contender.warm_up:
                continue
            first = number * calls
            try:
                if calls > 1:
                    time_once(contender, expected, first - 1, checked)
                seconds = [
                    time_once(contender, expected, index, checked)
                    for index in range(first, first + calls)
                ]
            except Exception as error:  # a peer's failure of any kind must not end the run
                timings.failures[contender.name] = f"{type(error).__name__}: {error}"
                timings.seconds.pop(contender.name, None)
                active.remove(contender)
                continue
            if number >= 0:
                timings.seconds[contender.name] += seconds
                if sum(timings.seconds[contender.name]) > budget_s:
                    active.remove(contender)
    return timings


def time_once(
    contender: Contender, expected: Sequence[Array], number: int, checked: set[str]
) -> float:
    index = number % len(contender.sources)
    source = contender.prepare(contender.sources[index])
    gc.disable()
    try:
        start = time.perf_counter_ns()
        result = contender.call(source)
        stop = time.perf_counter_ns()
    finally:
        gc.enable()
    if contender.name not in checked:
        wanted = expected[index] if contender.expected is None else contender.expected
        if not same_bits(wanted, contender.answer(result)):
            raise ValueError("the answer differs from the source")
        checked.add(contender.name)
    return contender.seconds(result) if contender.seconds else (stop - start) * 1e-9


def make_row(
    session: Session,
    case: str,
    timings: Timings,
    *,
    nbytes: int,
    unit: str = GIGABYTES,
    gpufetch: str = "gpufetch",
    limit: str | None = None,
    peers: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    **extra: Any,
) -> Row:
    """A result: medians in `unit`. `gpufetch`, `limit` and `peers` name contenders.

    `labels` states the calls of the frameworks among the peers; by default their way to NumPy.
    """
    if gpufetch not in timings.seconds:
        raise RuntimeError(f"{case}: gpufetch failed: {timings.failures.get(gpufetch, 'not run')}")

    def value(seconds: float) -> float:
        return float(f"{seconds * 1e6 if unit == MICROSECONDS else nbytes / seconds / 1e9:.4g}")

    # Medians of times, converted: the median of rates would be another number.
    medians = {
        name: value(statistics.median(times)) for name, times in timings.seconds.items() if times
    }
    named = [gpufetch, *([limit] if limit else []), *peers]
    return {
        "case": case,
        "machine": session.machine,
        "date": session.date,
        "commit": session.commit,
        "unit": unit,
        "gpufetch": medians[gpufetch],
        "limit": medians.get(limit) if limit else None,
        "peers": {name: medians[name] for name in peers if name in medians},
        "limit_is": limit,
        "spread": {
            "gpufetch" if name == gpufetch else name: sorted(map(value, spread(times)))
            for name, times in timings.seconds.items()
            if name in named and times
        },
        "samples": {
            "gpufetch" if name == gpufetch else name: len(times)
            for name, times in timings.seconds.items()
            if name in named
        },
        "absent": list(session.absent),
        "failed": {name: why for name, why in timings.failures.items() if name in named},
        "labels": dict(labels)
        if labels is not None
        else {one.name: one.label for one in session.frameworks if one.name in peers},
        "command": session.command,
        **extra,
    }


def make_time_row(
    session: Session,
    case: str,
    seconds: dict[str, list[float]],
    *,
    gpufetch: str,
    limit: str,
    **extra: Any,
) -> Row:
    """A result without a rate: medians in microseconds."""
    timings = Timings(seconds)
    return make_row(
        session,
        case,
        timings,
        nbytes=0,
        unit=MICROSECONDS,
        gpufetch=gpufetch,
        limit=limit,
        **extra,
    )


def spread(times: Sequence[float]) -> tuple[float, float]:
    """The 10th and 90th percentile by nearest rank: lowest and highest of fewer than ten."""
    ordered = sorted(times)
    cut = len(ordered) // 10
    return ordered[cut], ordered[-1 - cut]


# --- Where and what -----------------------------------------------------------


def cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    name = found.group(1).strip() if found else platform.processor() or platform.machine()
    return f"{name}, {len(os.sched_getaffinity(0))} CPUs"


def load() -> str:
    """How busy the machine has been for a minute."""
    return f"load {os.getloadavg()[0]:.1f} of {os.cpu_count()} CPUs"


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def commit() -> str:
    """GPUFETCH_COMMIT, else what git says; "-dirty" marks uncommitted changes."""
    if named := os.environ.get("GPUFETCH_COMMIT"):
        return named
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        found = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip() or "unknown"


# --- Output -------------------------------------------------------------------


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"


def markdown(rows: Sequence[Row]) -> str:
    """One table for each case, with a line for gpufetch, the limit and each peer."""
    lines: list[str] = []
    for row in rows:
        lines += [f"### {row['case']}", "", f"| | {row['unit']} | spread | samples |"]
        lines += ["| --- | ---: | ---: | ---: |"]
        limit_is = row["limit_is"]
        entries = [("**gpufetch**", "gpufetch", row["gpufetch"])]
        if limit_is:
            entries += [(f"limit: {limit_is}", limit_is, row["limit"])]
        entries += [
            (row["labels"].get(name, name), name, value) for name, value in row["peers"].items()
        ]
        for label, name, value in entries:
            low, high = row["spread"].get(name, (None, None))
            lines.append(
                f"| {label} | {number(value)} | {number(low)}–{number(high)} "
                f"| {row['samples'].get(name, 0)} |"
            )
        notes = [f"{name} failed: {why}" for name, why in row["failed"].items()]
        if row["absent"]:
            notes.append("not installed, so left out: " + ", ".join(row["absent"]))
        if row.get("note"):
            notes.append(str(row["note"]))
        lines += ["", *(f"{note}  " for note in notes), *([""] if notes else [])]
    return "\n".join(lines)


def file_stem(session: Session) -> str:
    """What the result files of a machine are called, without a suffix."""
    slug = re.sub(r"[^a-z0-9]+", "-", session.machine.lower()).strip("-")
    return slug + ("-quick" if session.quick else "")


def write_results(rows: Sequence[Row], session: Session, folder: Path) -> tuple[Path, Path]:
    """Write NAME.md and NAME.json of this machine. Rows of other cases that are there are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = file_stem(session)
    table, data = folder / f"{stem}.md", folder / f"{stem}.json"
    fresh = {row["case"] for row in rows}
    kept: Sequence[Mapping[str, Any]] = json.loads(data.read_text()) if data.exists() else []
    merged = [dict(row) for row in kept if row["case"] not in fresh] + list(rows)
    text = json.dumps(merged, indent=1, ensure_ascii=False) + "\n"
    for path, content in ((data, text), (table, page(session.machine, merged))):
        unfinished = path.with_name(f".{path.name}.tmp")
        unfinished.write_text(content)
        unfinished.replace(path)
    return table, data


def page(machine: str, rows: Sequence[Row]) -> str:
    """All tables of a machine, run by run."""
    head = (
        f"# {machine}\n\n"
        "Medians; the spread is from the 10th to the 90th percentile. "
        "GB/s are 10⁹ bytes a second of raw data. How: ../README.md\n\n"
    )
    runs: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        runs.setdefault((row["date"], row["commit"], row["command"]), []).append(row)
    return head + "\n".join(
        f"## {date}, commit {commit}\n\n`{command}`\n\n{markdown(of_run)}"
        for (date, commit, command), of_run in runs.items()
    )


def report(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
