"""A server's messages: large reads, and small ones by 1, 8 and 64 clients at once.

For comparison, in the same session: the same bytes between two bare ZeroMQ sockets of the same
kinds, from a process like the server's.
"""

from __future__ import annotations

import importlib
from functools import partial

import gpufetch as gf
from cases import Case
from harness import Row, Session, report

MIB, GIB = 1 << 20, 1 << 30


def cases(session: Session) -> list[Case]:
    if reason := why_not(session):
        report(f"comm is left out: {reason}")
        return []
    nbytes, label = (16 * MIB, "16 MiB") if session.quick else (GIB, "1 GiB")
    return [
        (f"comm read {label}", partial(read, session, label, nbytes)),
        ("comm latency", partial(latency, session)),
    ]


def why_not(session: Session) -> str | None:
    """Return what is missing here to serve and to attach; None if nothing is."""
    try:
        importlib.import_module("jupyter_client")
        with gf.serve("probe", connection_file=str(session.scratch / "kernel-probe.json")):
            return None
    except (ImportError, TypeError) as error:
        return str(error)


# The modules that these import may be missing, so they are not imported above.


def read(session: Session, label: str, nbytes: int) -> list[Row]:
    from cases import comm_read

    return comm_read.rows(session, label, nbytes)


def latency(session: Session) -> list[Row]:
    from cases import comm_latency

    return comm_latency.rows(session)
