"""The cost of a server for its simulation: examples/gray_scott.c without one, and watched.

The program itself says how long its steps took, without its checkpoints.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import gpufetch as gf
from cases import Case
from cases.comm import why_not
from harness import Row, Session, make_time_row, report

PROGRAM = "GPUFETCH_GRAY_SCOTT"
ALONE, SERVED, WATCHED = "no server", "nobody attached", "watched"
CELLS = (1024, 1024)  # of the overview that the watching client pulls
PERIOD_S = 0.1
RUN_S = 4.0  # of steps, about


def cases(session: Session) -> list[Case]:
    reason = why_not(session)
    if not os.path.isfile(os.environ.get(PROGRAM, "")):
        reason = f"{PROGRAM} does not name the built example gray_scott"
    if reason:
        report(f"simulation is left out: {reason}")
        return []
    return [("simulation", partial(simulation, session, os.environ[PROGRAM]))]


def shape_of(session: Session) -> tuple[int, int, int]:
    if session.quick:
        return 2, 64, 64
    return (32, 2048, 2048) if session.backend == "cuda" else (2, 1024, 1024)


class Simulation:
    """Runs of the program, one after the other, and the time of its steps."""

    def __init__(self, session: Session, program: str, folder: Path | None = None) -> None:
        self._session = session
        self._program = program
        self._output = (folder or session.scratch) / "gray_scott"
        self._output.mkdir(exist_ok=True)
        self.shape = shape_of(session)
        self.pull_count = 0  # overviews that the client got

    def run(self, steps: int, kind: str, every: int | None = None, shards: int = 1) -> float:
        """Run the program, and return the seconds that a step took.

        With `every` so many steps are between checkpoints (0: only the last one is saved), which
        are spread over `shards` files, and their time counts; else it does not.
        """
        options = ["--shape", *map(str, self.shape), "--steps", str(steps)]
        options += ["--every", str(every or 0), "--shards", str(shards)]
        options += ["--output", str(self._output)] + ["--serve", "bench"] * (kind != ALONE)
        environment = {
            "GPUFETCH_BACKEND": self._session.backend,
            "JUPYTER_RUNTIME_DIR": str(self._session.scratch),
        }
        with subprocess.Popen(
            [self._program, *options],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        ) as running:
            assert running.stdout is not None
            if kind == WATCHED:
                first = running.stdout.readline()
                self._watch(first.split()[-1], lambda: running.poll() is None)
            printed = running.stdout.read()
        for file in self._output.iterdir():
            file.unlink()
        found = re.search(r"^([0-9.]+) s for steps, ([0-9.]+) s for", printed, re.MULTILINE)
        if running.returncode != 0 or not found:
            raise RuntimeError(f"{self._program} ended with {running.returncode}: {printed}")
        checkpoints = float(found.group(2)) if every is not None else 0.0
        return (float(found.group(1)) + checkpoints) / steps

    def _watch(self, connection_file: str, is_running: Callable[[], bool]) -> None:
        """Pull an overview of a section ten times a second, until the program ends."""
        try:
            with gf.connect(connection_file, timeout=3) as run:
                section = run["u"][self.shape[0] // 2]
                due = time.monotonic()
                while is_running():
                    section.overview(tuple(map(min, CELLS, self.shape[1:])))
                    self.pull_count += 1
                    due += PERIOD_S
                    time.sleep(max(0.0, due - time.monotonic()))
        except (OSError, KeyError, TimeoutError):
            if is_running():
                raise  # else it ended in the middle of a request


def simulation(session: Session, program: str) -> list[Row]:
    trial = Simulation(session, program)
    steps = int((1.0 if session.quick else RUN_S) / trial.run(200, ALONE))
    seconds: dict[str, list[float]] = {ALONE: [], SERVED: [], WATCHED: []}
    kinds = list(seconds)
    for number in range(1 if session.quick else 9):
        turn = number % len(kinds)
        for kind in kinds[turn:] + kinds[:turn]:
            seconds[kind].append(trial.run(steps, kind))
    if trial.pull_count == 0:
        raise RuntimeError("the watching client got nothing")
    return [cost_row(session, trial, seconds, kind) for kind in (SERVED, WATCHED)]


def cost_row(
    session: Session, trial: Simulation, seconds: dict[str, list[float]], kind: str
) -> Row:
    """The row of a kind of run; its cost is the median of the ratios of the rounds."""
    ratios = sorted(
        with_server / alone
        for with_server, alone in zip(seconds[kind], seconds[ALONE], strict=True)
    )
    cost = 100 * (ratios[len(ratios) // 2] - 1)
    cells = "×".join(str(min(pair)) for pair in zip(CELLS, trial.shape[1:], strict=True))
    what = f"an overview of {cells} pulled 10 times a second" if kind == WATCHED else kind
    return make_time_row(
        session,
        f"simulation step of {'×'.join(map(str, trial.shape))}, {what}",
        seconds,
        gpufetch=kind,
        limit=ALONE,
        note=f"cost: {cost:.2f} % of the steps' time",
        cost_percent=float(f"{cost:.3g}"),
    )
