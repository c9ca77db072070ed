"""Benchmark cases. Each module has `cases(session)`, which gives labelled calls that give rows.

A call that yields its rows one by one has each of them written as soon as it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from harness import Row, Session

Case = tuple[str, Callable[[], Iterable[Row]]]

MIB, GIB = 1 << 20, 1 << 30


def by_size_and_memory(
    session: Session,
    what: str,
    call: Callable[[Session, str, str, int, int], list[Row]],
    memories: Sequence[str],
) -> list[Case]:
    """call(session, memory, size, bytes, arrays to rotate among) for each memory and large size."""
    sizes = [("64 MiB", 64 * MIB, 4), ("1 GiB", GIB, 2)]
    if session.quick:
        sizes = [("4 MiB", 4 * MIB, 2)]
    return [
        (f"{what} {size}, {memory}", partial(call, session, memory, size, nbytes, count))
        for size, nbytes, count in sizes
        for memory in memories
    ]
