"""Device → NumPy in a fresh process: the first fetch, with everything that happens only once."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

from cases import Case
from harness import GIGABYTES, Row, Session, Timings, make_row

CHILD = Path(__file__).with_name("cold_child.py")


def cases(session: Session) -> list[Case]:
    nbytes, label = (16 << 20, "16 MiB") if session.quick else (1 << 30, "1 GiB")
    return [(f"cold fetch {label}", partial(cold, session, label, nbytes))]


def cold(session: Session, label: str, nbytes: int) -> list[Row]:
    labels = {framework.name: framework.name for framework in session.frameworks}
    kinds = ["gpufetch", *labels, "raw"]
    if session.backend == "host":
        kinds.append("numpy")
        labels["numpy"] = "numpy copy"
    labels["raw"] = "first raw pinned copy" if session.backend == "cuda" else "first copy at hand"
    timings = Timings({labels.get(kind, kind): [] for kind in kinds})
    source = ""
    for turn in range(1 if session.quick else 3):
        for kind in kinds[turn:] + kinds[:turn]:
            name = labels.get(kind, kind)
            if name in timings.failures:
                continue
            command = [sys.executable, str(CHILD), kind, str(nbytes), session.backend]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                timings.failures[name] = (done.stderr.strip().splitlines() or ["no message"])[-1]
                timings.seconds.pop(name)
                continue
            answer = json.loads(done.stdout)
            timings.seconds[name].append(answer["seconds"])
            source = answer["source"] if kind == "gpufetch" else source
    row = make_row(
        session,
        f"first fetch of a process, {label} of float32 to NumPy",
        timings,
        nbytes=nbytes,
        unit=GIGABYTES,
        gpufetch="gpufetch",
        limit=labels["raw"],
        peers=[name for kind, name in labels.items() if kind != "raw"],
        note=f"gpufetch is given a {source}.",
    )
    return [row]
