"""Checkpoints of one large tensor: what the program waits for, new and recycled files, restarts.

The program benchmarks/programs/checkpoint.c does and times them, and the raw ways to write and to
read a file of as many bytes, in the same folder. Files go to and come from the page cache, but for
the row that says so. Peers save and load a tensor of as many bytes by new files in the same folder.
Each row has the goal of its speed, and whether it was met.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cases import GIB, MIB, Case
from cases.checkpoint_peers import Times, time_peers
from cases.program import BUILD, Program, program_path
from cases.simulation import PROGRAM as SIMULATION
from cases.simulation import Simulation
from harness import MICROSECONDS, Row, Session, Timings, make_row, make_time_row, report

MODES = {1: "copied within the device", 2: "encoded on the device", 3: "encoded, to pinned memory"}
PROGRAM = "checkpoint"
SAVE, RESTART = "gpufetch", "gpufetch, restart"
WRITE, OVERWRITE, MAP, READ = "write(2)", "pwrite over a file", "a mapping of a file", "pread"
COPY = "process_vm_writev to a mapping"
LINK = "the link, encoded bytes"
WAYS = {WRITE: "write", OVERWRITE: "overwrite", MAP: "map", COPY: "copy", READ: "read"}
ALONE, SAVING = "the last step saved", "every 100th step saved"
PERIOD = 100  # steps
STALL_GOAL_S = 15e-3  # of the state in device memory
FRESH, RECYCLED, READING, PINNED = 0.9, 0.8, 0.8, 1.1  # goals, of the physical limit
RATE_GOAL = 0.97  # of the steps' rate without checkpoints


def cases(session: Session) -> list[Case]:
    if not program_path(PROGRAM).is_file():
        report(f"checkpoint is left out: {BUILD} does not name the folder of a build with HDF5")
        return []
    found: list[Case] = [("checkpoint", partial(checkpoint, session))]
    simulation = os.environ.get(SIMULATION, "")
    if os.path.isfile(simulation):
        found.append(("checkpoint of a simulation", partial(rate, session, simulation)))
    else:
        report(f"checkpoints of a simulation are left out: {SIMULATION} names no gray_scott")
    return found


class CheckpointProgram(Program):
    """The program, with its tensor on the device and its files in a folder."""

    def __init__(self, session: Session, nbytes: int) -> None:
        self._folder = session.scratch / "checkpoints"
        self._folder.mkdir(exist_ok=True)
        backend = {"GPUFETCH_BACKEND": session.backend}
        super().__init__(PROGRAM, session.device, self._folder, str(nbytes), env=backend)
        self.nbytes = int(self.greeting["nbytes"])

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for file in self._folder.iterdir():
            file.unlink()

    def link_seconds(self, nbytes: int, direction: str) -> float:
        """What so many bytes take to cross the link, "in" or "out" of the device."""
        found = self.ask(f"link {direction}")
        return float(found["seconds"]) * nbytes / int(found["nbytes"])


class Others:
    """The peers' times, and who is left out."""

    def __init__(self, session: Session, nbytes: int) -> None:
        rounds = 1 if session.quick else 3
        self.times: Mapping[str, Times]
        self.times, left_out = time_peers(session, nbytes, rounds)
        self.absent = [*session.absent, *left_out]
        for one in left_out:
            report(f"checkpoint: a peer is left out: {one}")

    def seconds(self, which: str) -> dict[str, list[float]]:
        return {name: getattr(times, which) for name, times in self.times.items()}


def checkpoint(session: Session) -> list[Row]:
    nbytes = 64 * MIB if session.quick else 8 * GIB if session.backend == "cuda" else 512 * MIB
    rounds = 1 if session.quick else 7
    others = Others(session, nbytes)
    with CheckpointProgram(session, nbytes) as program:
        rows = [stall_row(session, program, rounds, others)]
        rows.append(file_row(session, program, rounds, others, recycle=False, sync=False))
        rows.append(file_row(session, program, rounds, others, recycle=True, sync=False))
        rows.append(file_row(session, program, rounds, others, recycle=True, sync=True))
        rows.append(restart_row(session, program, rounds, others))
    return rows


def goal(what: str, found: float, bound: float, *, at_most: bool = False) -> str:
    """A line for the row's note. Numbers are in the row's unit, or a share."""
    met = found <= bound if at_most else found >= bound
    sign = "≤" if at_most else "≥"
    return f"goal: {what} {sign} {bound:.4g}: {found:.4g}, {'met' if met else 'missed'}"


def phases_of(replies: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Median seconds by phase, of those that took any."""
    names = replies[0]["phases"]
    medians = {name: statistics.median(one["phases"][name] for one in replies) for name in names}
    return {name: float(f"{seconds:.3g}") for name, seconds in medians.items() if seconds > 0}


def told(phases: Mapping[str, float]) -> str:
    return "ms: " + ", ".join(f"{name} {1e3 * seconds:.3g}" for name, seconds in phases.items())


def stall_row(session: Session, program: CheckpointProgram, rounds: int, others: Others) -> Row:
    """Host time in begin, add and commit, in each mode."""
    seconds: dict[str, list[float]] = {}
    notes = []
    for mode, name in MODES.items():
        memory = program.ask(f"open {mode} 0 0")
        nbytes = program.ask("save")["file_nbytes"]  # the first one takes memory from the system
        seconds[name] = [program.ask("save")["stall"] for _ in range(rounds)]
        notes.append(
            f"memory on the device, {name}: {memory['device_nbytes'] / program.nbytes:.0%}"
        )
    seconds[LINK] = [program.link_seconds(nbytes, "out")]
    for number, name in MODES.items():
        bound = STALL_GOAL_S if number < 3 else PINNED * seconds[LINK][0]
        found = statistics.median(seconds[name])
        notes.append(goal(f"{name}, µs", 1e6 * found, 1e6 * bound, at_most=True))
    waits = others.seconds("stall")
    first, *modes = MODES.values()
    return make_row(
        session,
        f"stall of a checkpoint of {program.nbytes / GIB:.3g} GiB, {first}",
        Timings({**seconds, **waits}),
        nbytes=0,
        unit=MICROSECONDS,
        gpufetch=first,
        peers=[*modes, LINK, *waits],
        labels={},
        note="; ".join(notes),
        absent=others.absent,
    )


def file_row(
    session: Session,
    program: CheckpointProgram,
    rounds: int,
    others: Others,
    *,
    recycle: bool,
    sync: bool,
) -> Row:
    """From begin to the finished file, beside raw ways to write as many bytes."""
    program.ask(f"open 0 {int(recycle)} {int(sync)}")
    for _ in range(3):  # until an older file has expired
        nbytes = program.ask("save")["file_nbytes"]
    ways = [OVERWRITE, COPY, MAP] if recycle else [WRITE]
    seconds: dict[str, list[float]] = {name: [] for name in (SAVE, *ways)}
    replies = []
    for _ in range(rounds):
        saved = program.ask("save")
        if bool(saved["recycled_nbytes"]) != recycle:
            raise RuntimeError(f"a file was{' not' * recycle} recycled")
        replies.append(saved)
        seconds[SAVE].append(saved["seconds"])
        for name in ways:
            seconds[name].append(raw(program, name, nbytes))
    peers = {} if sync else others.seconds("save")
    what = f"a {'recycled' if recycle else 'new'} file{', with fsync' * sync}"
    share = RECYCLED if recycle else FRESH
    row = make_row(
        session,
        f"checkpoint of {program.nbytes / GIB:.3g} GiB to {what}",
        Timings({**seconds, **peers}),
        nbytes=program.nbytes,
        limit=ways[-1],
        peers=[*ways[:-1], *peers],
        labels={},
        phases=phases_of(replies),
        absent=others.absent,
    )
    notes = [f"the file is {program.nbytes / nbytes:.2f} times as small; so is the raw one"]
    if not sync:
        notes.append(goal(f"{share} × {ways[-1]}", row["gpufetch"], share * row["limit"]))
    return {**row, "note": "; ".join([*notes, told(row["phases"])])}


def raw(program: CheckpointProgram, name: str, nbytes: int) -> float:
    """Seconds, by as many threads as the library takes; write(2) by one."""
    threads = 1 if name == WRITE else min(16, len(os.sched_getaffinity(0)))
    return float(program.ask(f"raw {WAYS[name]} {threads} {nbytes}")["seconds"])


def restart_row(session: Session, program: CheckpointProgram, rounds: int, others: Others) -> Row:
    program.ask("open 0 0 0")
    nbytes = program.ask("save")["file_nbytes"]
    seconds: dict[str, list[float]] = {RESTART: [], READ: []}
    replies = []
    for number in range(rounds + 1):  # the first one is not counted
        restarted = program.ask("restart")
        if not restarted["same"]:
            raise RuntimeError("what was restarted is not what was saved")
        if number:
            restarted["phases"]["open"] = restarted["open"]
            replies.append(restarted)
            seconds[RESTART].append(restarted["seconds"])
            seconds[READ].append(raw(program, READ, nbytes))
    seconds[LINK] = [program.link_seconds(nbytes, "in")]
    peers = others.seconds("load")
    row = make_row(
        session,
        f"restart of {program.nbytes / GIB:.3g} GiB, found whole and read to the device",
        Timings({**seconds, **peers}),
        nbytes=program.nbytes,
        gpufetch=RESTART,
        limit=READ,
        peers=[LINK, *peers],
        labels={},
        phases=phases_of(replies),
        absent=others.absent,
    )
    bound = READING * min(row["limit"], row["peers"][LINK])
    line = goal(f"{READING} × the slower of {READ} and the link", row["gpufetch"], bound)
    return {**row, "note": "; ".join([line, told(row["phases"])])}


# --- A simulation ------------------------------------------------------------------


def rate(session: Session, program: str) -> list[Row]:
    """The time of a step with what its checkpoints cost; both runs save their last step."""
    trial = Simulation(session, program)
    Path(session.scratch, "gray_scott").mkdir(exist_ok=True)
    steps = PERIOD * (2 if session.quick else 20)
    seconds: dict[str, list[float]] = {ALONE: [], SAVING: []}
    for number in range(1 if session.quick else 7):
        turn = list(seconds.items())
        for name, times in turn if number % 2 else turn[::-1]:
            times.append(trial.run(steps, "no server", every=PERIOD if name == SAVING else 0))
    ratios = [one / other for one, other in zip(*seconds.values(), strict=True)]
    share = statistics.median(ratios)
    return [
        make_time_row(
            session,
            f"checkpoint of a simulation of {'×'.join(map(str, trial.shape))}, {SAVING}",
            seconds,
            gpufetch=SAVING,
            limit=ALONE,
            note=goal("share of the rate without them", share, RATE_GOAL),
        )
    ]
