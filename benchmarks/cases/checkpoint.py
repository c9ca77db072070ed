"""Checkpoints of one large array: what the program waits for, files and shards, ranks, restarts.

The program benchmarks/programs/checkpoint.c does and times them, and the raw ways to write and to
read files of as many bytes, in the same folder. Files go to and come from the page cache, but for
the rows that say so. Peers save and load a tensor of as many bytes by new files in the same folder.
Each row that has a goal says which, and whether it was met.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cases import GIB, MIB, Case
from cases.checkpoint_peers import H5PY, Times, h5py_peer, time_peers
from cases.program import BUILD, Program, program_path
from cases.simulation import PROGRAM as SIMULATION
from cases.simulation import Simulation
from harness import MICROSECONDS, Row, Session, Timings, make_row, make_time_row, report

SCRATCH = 25  # percent of the state, in device memory that is encoded to
PINNED_SHARE = 50  # percent of the state, in page-locked memory that has the whole encoded state
# A gpuf_checkpoint_mode, and percent of the state that it may take on the device, or 0 for any, and
# in page-locked memory, or 0 for the default.
MODES = {
    "copied within the device": (1, 0, 0),
    "encoded on the device": (2, 0, 0),
    f"encoded, {SCRATCH} % of the state on the device": (2, SCRATCH, 0),
    f"encoded, to pinned memory, {PINNED_SHARE} % of the state": (3, 0, PINNED_SHARE),
    "encoded, to 256 MiB of pinned memory": (3, 0, 0),
}
PROGRAM = "checkpoint"
SAVE, RESTART = "gpufetch", "gpufetch, restart"
WRITE, OVERWRITE, MAP, READ = "write(2)", "pwrite over a file", "a mapping of a file", "pread"
COPY = "process_vm_readv to a mapping"
LINK = "the link, encoded bytes"
ALLOCATE = "fallocate and a mapping"
WAYS = {WRITE: "write", OVERWRITE: "overwrite", MAP: "map", COPY: "copy", READ: "read"}
WAYS[ALLOCATE] = "allocate"
ALONE = "the last step saved"
# Steps between checkpoints. 100 of them take 0.2 s, in which a disk does not take a checkpoint that
# is flushed to it, so that every one waits for the one before; 500 take 0.8 s.
PERIODS = (100, 500)
RATE_ROUNDS = 3
RATE_SHARDS = 8
SETTLING_S = 0.25  # in which a writer gives back the pages of 3.5 GB
STALL_GOAL_S = 15e-3  # of the state in device memory
FRESH, RECYCLED, READING, PINNED = 0.9, 0.8, 0.8, 1.1  # goals, of the physical limit
SHARDED_GOAL, H5PY_GOAL = 40.0, 25.0  # GB/s, and times h5py's speed
RANK_COUNTS = (1, 2, 4)
MEMORY_FOLDER = Path("/dev/shm")
RATE_GOAL = 0.97  # of the steps' rate without checkpoints


def cases(session: Session) -> list[Case]:
    if not program_path(PROGRAM).is_file():
        report(f"checkpoint is left out: {BUILD} does not name the folder of a build with HDF5")
        return []
    others = cache(partial(Others, session))
    found: list[Case] = [
        ("checkpoint in files", partial(checkpoint, session, others)),
        ("checkpoint in shards", partial(in_shards, session, others)),
        ("checkpoint of ranks", partial(over_ranks, session)),
    ]
    simulation = os.environ.get(SIMULATION, "")
    if os.path.isfile(simulation):
        found.append(("checkpoint of a simulation", partial(rates, session, simulation)))
    else:
        report(f"checkpoints of a simulation are left out: {SIMULATION} names no gray_scott")
    return found


def nbytes_of(session: Session) -> int:
    return 16 * MIB if session.quick else 8 * GIB if session.backend == "cuda" else 512 * MIB


def rounds_of(session: Session) -> int:
    return 1 if session.quick else 5


def cpu_count() -> int:
    """CPUs that the raw ways have threads for, and shards: at most as many as the library has."""
    return min(16, len(os.sched_getaffinity(0)))


class CheckpointProgram(Program):
    """The program, with its array on the devices and its files in a folder."""

    def __init__(self, session: Session, folder: Path | None = None, ranks: int = 1) -> None:
        self._folder = (folder or session.scratch) / "checkpoints"
        self._folder.mkdir(exist_ok=True)
        backend = {"GPUFETCH_BACKEND": session.backend}
        words: list[str | Path] = [
            session.backend,
            self._folder,
            str(nbytes_of(session)),
            str(ranks),
        ]
        super().__init__(PROGRAM, *words, env=backend)
        self.nbytes = int(self.greeting["nbytes"])
        self.device_count = int(self.greeting["devices"])

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for file in self._folder.iterdir():
            file.unlink()

    def open(
        self,
        mode: int = 0,
        recycle: bool = False,
        sync: bool = False,
        shards: int = 1,
        share: int = 0,
        host: int = 0,
    ) -> Any:
        return self.ask(f"open {mode} {int(recycle)} {int(sync)} {shards} {share} {host}")

    def link_seconds(self, nbytes: int, direction: str) -> float:
        """What so many bytes take to cross the link, "in" or "out" of the device."""
        found = self.ask(f"link {direction}")
        return float(found["seconds"]) * nbytes / int(found["nbytes"])


class Others:
    """The peers' times, and who is left out; in a folder of its own h5py's alone."""

    def __init__(self, session: Session, folder: Path | None = None) -> None:
        rounds = 1 if session.quick else 3
        makers = {"h5py": h5py_peer} if folder else None
        self.times: Mapping[str, Times]
        self.times, left_out = time_peers(session, nbytes_of(session), rounds, makers, folder)
        self.absent = [*session.absent, *left_out]
        for one in left_out:
            report(f"checkpoint: a peer is left out: {one}")

    def seconds(self, which: str) -> dict[str, list[float]]:
        return {name: getattr(times, which) for name, times in self.times.items()}


def checkpoint(session: Session, everyone: Callable[[], Others]) -> Iterator[Row]:
    others = everyone()
    with CheckpointProgram(session) as program:
        yield stall_row(session, program, others)
        yield file_row(session, program, others)
        yield file_row(session, program, others, recycle=True)
        yield file_row(session, program, others, recycle=True, sync=True)
        yield restart_row(session, program, others)


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


def stall_row(session: Session, program: CheckpointProgram, others: Others) -> Row:
    """Host time in begin, add and commit, and until the stream goes on, in each mode."""
    seconds: dict[str, list[float]] = {}
    delays: dict[str, float] = {}
    memory: dict[str, float] = {}
    for name, (mode, share, host) in MODES.items():
        opened = program.open(mode, recycle=True, share=share, host=host)
        memory[name] = opened["device_nbytes"] / program.nbytes
        # The first ones take memory from the system, and are to expire.
        nbytes = [program.ask("save")["file_nbytes"] for _ in range(2)][-1]
        replies = [program.ask("save") for _ in range(rounds_of(session))]
        seconds[name] = [one["stall"] + one["delay"] for one in replies]
        delays[name] = statistics.median(one["delay"] for one in replies)
    seconds[LINK] = [program.link_seconds(nbytes, "out")]
    notes = []
    for name, (mode, _, _) in MODES.items():
        bound = STALL_GOAL_S if mode < 3 else PINNED * seconds[LINK][0]
        found = statistics.median(seconds[name])
        notes.append(goal(f"{name}, µs", 1e6 * found, 1e6 * bound, at_most=True))
        notes.append(
            f"of them {1e6 * delays[name]:.4g} on the stream; {memory[name]:.0%} reserved there"
        )
    waits = others.seconds("stall")
    first, *modes = MODES
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
    others: Others,
    *,
    recycle: bool = False,
    sync: bool = False,
    shards: int = 1,
    where: str = "",
) -> Row:
    """From begin to the finished files, beside raw ways to write as many bytes to as many."""
    rounds = rounds_of(session)
    nbytes = warm_up(program, recycle, sync, shards)
    ways = [OVERWRITE, COPY, MAP] if recycle else [ALLOCATE, WRITE]
    seconds: dict[str, list[float]] = {name: [] for name in (SAVE, *ways)}
    replies = []
    for _ in range(rounds):
        replies.append(save(program, recycle))
        seconds[SAVE].append(replies[-1]["seconds"])
        for name in ways:
            seconds[name].append(raw(program, name, nbytes, shards))
    fewer = [] if sync else [count for count in (shards // 2, shards // 4) if count > 1]
    for count in fewer:
        warm_up(program, recycle, sync, count)
        times = [save(program, recycle)["seconds"] for _ in range(rounds)]
        seconds[f"{SAVE}, {count} shards"] = times
    peers = {} if sync else others.seconds("save")
    row = make_row(
        session,
        f"checkpoint of {program.nbytes / GIB:.3g} GiB to {files(recycle, sync, shards)}{where}",
        Timings({**seconds, **peers}),
        nbytes=program.nbytes,
        limit=ways[-1],
        peers=[*ways[:-1], *(f"{SAVE}, {count} shards" for count in fewer), *peers],
        labels={},
        phases=phases_of(replies),
        absent=others.absent,
    )
    notes = [f"files and raw files are {program.nbytes / nbytes:.2f} times as small as the state"]
    notes += ["the raw ways do not sync"] if sync else []
    notes += [] if sync else file_goals(row, ways, recycle=recycle, shards=shards)
    return {**row, "note": "; ".join([*notes, told(row["phases"])])}


def files(recycle: bool, sync: bool, shards: int) -> str:
    kind = "recycled" if recycle else "new"
    what = f"a {kind} file" if shards == 1 else f"{shards} {kind} shards"
    return what + ", with fsync" * sync


def file_goals(row: Row, ways: Sequence[str], *, recycle: bool, shards: int) -> list[str]:
    if shards > 1:
        notes = [goal("GB/s", row["gpufetch"], SHARDED_GOAL)]
        if H5PY in row["peers"]:
            times = row["gpufetch"] / row["peers"][H5PY]
            notes.append(goal("times as fast as h5py", times, H5PY_GOAL))
        return notes
    if recycle:
        return [goal(f"{RECYCLED} × {MAP}", row["gpufetch"], RECYCLED * row["limit"])]
    best = max(row["limit"], *(row["peers"][name] for name in ways[:-1]))
    return [goal(f"{FRESH} × the best raw way", row["gpufetch"], FRESH * best)]


def warm_up(program: CheckpointProgram, recycle: bool, sync: bool, shards: int) -> int:
    """Save until older files have expired; the bytes of the last one's files."""
    program.open(0, recycle, sync, shards)
    return int([program.ask("save") for _ in range(3)][-1]["file_nbytes"])


def save(program: CheckpointProgram, recycle: bool) -> dict[str, Any]:
    """Save, and let the writer give back what it needs no longer before anything else is timed."""
    saved = program.ask("save")
    time.sleep(SETTLING_S)
    if bool(saved["recycled_nbytes"]) != recycle:
        raise RuntimeError(f"a file was{' not' * recycle} recycled")
    return saved


def raw(program: CheckpointProgram, name: str, nbytes: int, count: int = 1) -> float:
    """Seconds, by as many threads as the library takes; by write(2) one a file."""
    threads = count if name == WRITE else max(count, cpu_count())
    return float(program.ask(f"raw {WAYS[name]} {threads} {nbytes} {count}")["seconds"])


def restarts(program: CheckpointProgram, rounds: int) -> Iterator[dict[str, Any]]:
    """The first one, which is not given, and the last one are compared with what was saved."""
    for number in range(rounds + 1):
        restarted = program.ask(f"restart {int(number in (0, rounds))}")
        if not restarted["same"]:
            raise RuntimeError("what was restarted is not what was saved")
        restarted["phases"]["open"] = restarted["open"]
        if number:
            yield restarted


def restart_row(
    session: Session,
    program: CheckpointProgram,
    others: Others,
    *,
    shards: int = 1,
    where: str = "",
) -> Row:
    program.open(shards=shards)
    nbytes = program.ask("save")["file_nbytes"]
    seconds: dict[str, list[float]] = {RESTART: [], READ: []}
    replies = []
    for restarted in restarts(program, rounds_of(session)):
        replies.append(restarted)
        seconds[RESTART].append(restarted["seconds"])
        seconds[READ].append(raw(program, READ, nbytes, shards))
    seconds[LINK] = [program.link_seconds(nbytes, "in")]
    peers = others.seconds("load")
    source = "" if shards == 1 else f" from {shards} shards{where}"
    row = make_row(
        session,
        f"restart of {program.nbytes / GIB:.3g} GiB{source}, found whole and read to the device",
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


# --- Shards ------------------------------------------------------------------------


def file_system(folder: Path) -> str:
    """Its type: "ext4", "tmpfs"."""
    found = {"/": "disk"}
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        found[place] = kind
    places = [str(one) for one in (folder.resolve(), *folder.resolve().parents)]
    return next(found[place] for place in places if place in found)


def in_shards(session: Session, everyone: Callable[[], Others]) -> Iterator[Row]:
    """In the session's folder, and in memory where there is a file system that has the room."""
    kind = file_system(session.scratch)
    yield from shard_rows(session, everyone(), None, f" on {kind}", sync=kind != "tmpfs")
    with memory_folder(session) as folder:
        if folder:
            others = Others(session, folder)
            yield from shard_rows(session, others, folder, " on tmpfs", sync=False)


@contextmanager
def memory_folder(session: Session) -> Iterator[Path | None]:
    """A folder on tmpfs, where there is one with the room and the session's is not on one."""
    needed = 2 * nbytes_of(session)
    if (
        file_system(session.scratch) == "tmpfs"
        or not MEMORY_FOLDER.is_dir()
        or file_system(MEMORY_FOLDER) != "tmpfs"
    ):
        report(f"checkpoint: {session.scratch} alone: there is no tmpfs beside it")
        yield None
    elif shutil.disk_usage(MEMORY_FOLDER).free < needed:
        report(f"checkpoint: {MEMORY_FOLDER} is left out: it has not {needed} bytes free")
        yield None
    else:
        with TemporaryDirectory(prefix="gpufetch-", dir=MEMORY_FOLDER) as folder:
            yield Path(folder)


def shard_rows(
    session: Session, others: Others, folder: Path | None, where: str, *, sync: bool
) -> Iterator[Row]:
    count = max(2, cpu_count())
    with CheckpointProgram(session, folder) as program:
        for recycle in (False, True):
            yield file_row(session, program, others, recycle=recycle, shards=count, where=where)
        if sync:
            yield file_row(session, program, others, sync=True, shards=count, where=where)
        yield restart_row(session, program, others, shards=count, where=where)


# --- Ranks -------------------------------------------------------------------------


def over_ranks(session: Session) -> Iterator[Row]:
    """The same array by 1, 2 and 4 processes, one after the other, in as many shards together."""
    total = max(4, cpu_count())
    names = {count: f"{count} rank{'s' * (count > 1)}" for count in RANK_COUNTS}
    saves: dict[str, list[float]] = {}
    reads: dict[str, list[float]] = {}
    stalls = []
    for count, name in names.items():
        with CheckpointProgram(session, ranks=count) as program:
            program.open(shards=total // count)
            nbytes = [program.ask("save") for _ in range(2)][-1]["file_nbytes"]
            replies = [program.ask("save") for _ in range(rounds_of(session))]
            saves[name] = [one["seconds"] for one in replies]
            stall = statistics.median(one["stall"] + one["delay"] for one in replies)
            stalls.append(f"{name} {1e3 * stall:.3g}")
            reads[name] = [one["seconds"] for one in restarts(program, rounds_of(session))]
            if count == RANK_COUNTS[-1]:
                rounds = range(rounds_of(session))
                saves[WRITE] = [raw(program, WRITE, nbytes, total) for _ in rounds]
                reads[READ] = [raw(program, READ, nbytes, total) for _ in rounds]
    gpus = min(program.device_count, RANK_COUNTS[-1])
    shared = "all on one device" if gpus == 1 else f"rank i on device i modulo {gpus}"
    size = f"{program.nbytes / GIB:.3g} GiB"
    what = f"forked processes, {shared}, {total} shards together; no goal"
    *fewer, most = names.values()
    for case, seconds, limit, note in (
        (
            f"checkpoint of {size} by ranks, new files",
            saves,
            WRITE,
            "stall, ms: " + ", ".join(stalls),
        ),
        (
            f"restart of {size} by ranks",
            reads,
            READ,
            "each rank verifies the whole, and reads the rows of the next one",
        ),
    ):
        yield make_row(
            session,
            case,
            Timings(seconds),
            nbytes=program.nbytes,
            gpufetch=most,
            limit=limit,
            peers=fewer,
            labels={},
            note=f"gpufetch is {most}; {what}; {note}",
        )


# --- A simulation ------------------------------------------------------------------


def rates(session: Session, program: str) -> Iterator[Row]:
    for period in PERIODS:
        yield rate(session, program, session.scratch, period)
    with memory_folder(session) as folder:
        if folder:
            for period in PERIODS:
                yield rate(session, program, folder, period)


def rate(session: Session, program: str, folder: Path, period: int) -> Row:
    """The time of a step with what its checkpoints cost; both runs save their last step."""
    trial = Simulation(session, program, folder)
    steps = 2 * period if session.quick else max(10 * min(PERIODS), 3 * period)
    saving = f"every {period}th step saved to {RATE_SHARDS} files"
    seconds: dict[str, list[float]] = {ALONE: [], saving: []}
    for number in range(min(RATE_ROUNDS, rounds_of(session))):
        turn = list(seconds.items())
        for name, times in turn if number % 2 else turn[::-1]:
            every = period if name == saving else 0
            times.append(trial.run(steps, "no server", every, RATE_SHARDS))
    ratios = [one / other for one, other in zip(*seconds.values(), strict=True)]
    share = statistics.median(ratios)
    shape = "×".join(map(str, trial.shape))
    return make_time_row(
        session,
        f"checkpoint of a simulation of {shape} on {file_system(folder)}, {saving}",
        seconds,
        gpufetch=saving,
        limit=ALONE,
        note=goal("share of the rate without them", share, RATE_GOAL),
    )
