#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Run the benchmarks: `python benchmarks/run.py [--case fetch,tree] [--quick] [--out DIR]`.

Prints a table for people and writes it, and JSON for programs, to DIR. Exits with 1 if any case
or any peer failed; the others have run all the same. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import ModuleType

import gpufetch as gf
import peers
import summary
from cases import (
    accelerate,
    append,
    checkpoint,
    codec,
    codec_goals,
    cold,
    comm,
    fetch,
    gpucodec,
    gpus,
    growth,
    hdf5,
    interaction,
    layout,
    out,
    page,
    picture,
    reduce,
    share,
    simulation,
    tree,
    upload,
    viewer,
    watched,
)
from harness import Row, Session, commit, cpu_name, markdown, report, today, write_results

CASES: dict[str, ModuleType] = {
    "fetch": fetch,
    "tree": tree,
    "cold": cold,
    "hdf5": hdf5,
    "accelerate": accelerate,
    "append": append,
    "layout": layout,
    "out": out,
    "upload": upload,
    "reduce": reduce,
    "share": share,
    "checkpoint": checkpoint,
    "comm": comm,
    "simulation": simulation,
    "codec": codec,
    "gpucodec": gpucodec,
    "gpus": gpus,
    "growth": growth,
    "picture": picture,
    "interaction": interaction,
    "watched": watched,
    "viewer": viewer,
    "page": page,
}


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time gpufetch and its peers side by side.")
    parser.add_argument("--case", default=",".join(CASES), help="comma-separated (%(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="parts of a case that say so")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results", help="(%(default)s)"
    )
    parser.add_argument("--backend", choices=["auto", "cuda", "host"], default="auto")
    parser.add_argument("--scratch", type=Path, help="directory for HDF5 files (a temporary one)")
    arguments = parser.parse_args(argv)
    arguments.case = [name.strip() for name in arguments.case.split(",") if name.strip()]
    if unknown := [name for name in arguments.case if name not in CASES]:
        parser.error(f"--case {unknown[0]}: there is {', '.join(CASES)}")
    return arguments


def choose_backend(asked: str) -> str:
    """Return `asked`, or the default device's backend for "auto"; exit if it does not answer."""
    known = gf.info()
    if asked == "auto":
        if known["default_device"] is None:
            sys.exit("run.py: no device: see gpufetch info")
        return str(known["default_device"]).split(":")[0]
    if not known["backends"][asked]["available"]:
        sys.exit(f"run.py: no {asked} device: {known['backends'][asked]['reason']}")
    return asked


def open_session(arguments: argparse.Namespace, scratch: Path) -> Session:
    backend = choose_backend(arguments.backend)
    loaded, absent = peers.load_all() if backend == "cuda" else ([], [])
    gpu = gf.info()["backends"]["cuda"]["devices"][0]["name"] if backend == "cuda" else ""
    where = gpu or "host backend (no GPU)"
    return Session(
        backend=backend,
        quick=arguments.quick,
        machine=f"{cpu_name()}, {where}",
        date=today(),
        commit=commit(),
        command=shlex.join(["python", "benchmarks/run.py", *sys.argv[1:]]),
        scratch=scratch,
        frameworks=loaded,
        absent=absent,
    )


def run_cases(
    session: Session, names: list[str], only: str, folder: Path
) -> tuple[list[Row], list[str], set[Path]]:
    """Return the rows, a line for each failure, and the files.

    Each row is written at once, so that a run which is ended early leaves those that it has.
    """
    rows: list[Row] = []
    failures: list[str] = []
    written: set[Path] = set()
    for name in names:
        for label, case in CASES[name].cases(session):
            if only not in label:
                continue
            start = time.perf_counter()
            fresh: list[Row] = []
            try:
                for row in case():
                    fresh.append(row)
                    written.update(write_results([row], session, folder))
            except Exception as error:  # the other cases go on
                traceback.print_exc()
                failures.append(f"{label}: {type(error).__name__}: {error}")
            rows += fresh
            failures += [
                f"{row['case']}: {peer}: {why}"
                for row in fresh
                for peer, why in row["failed"].items()
            ]
            report(f"{label}: {time.perf_counter() - start:.1f} s")
    return rows, failures, written


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    with tempfile.TemporaryDirectory(prefix="gpufetch-", dir=arguments.scratch) as scratch:
        session = open_session(arguments, Path(scratch))
        if session.backend == "host":
            report("No GPU: these rows are of the host backend, and say nothing about a GPU.")
        if session.absent:
            report(f"Not installed, so left out: {', '.join(session.absent)}")
        rows, failures, written = run_cases(session, arguments.case, arguments.only, arguments.out)
    print(f"# {session.machine}, {session.date}, {session.commit}\n\n{markdown(rows)}")
    if found := codec_goals.summary(rows):
        print(found)
    if any(path.parent.resolve() == summary.RESULTS.resolve() for path in written):
        written.add(summary.write(session.commit))
    for path in sorted(written):
        report(f"wrote {path}")
    for failure in failures:
        report(f"FAILED {failure}")
    return 1 if failures or not rows else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
