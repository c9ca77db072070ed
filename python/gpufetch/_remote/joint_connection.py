"""A connection to several servers: the parts of an array that each publishes are one array."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, final

from gpufetch import _core
from gpufetch._checks import check_timeout
from gpufetch._deadline import carried
from gpufetch._lazy.array import LazyArray
from gpufetch._remote.client import NoStepError
from gpufetch._remote.connection import (
    Connection,
    Value,
    listing_line,
    listing_row,
    not_published,
    progress_text,
)
from gpufetch._remote.joint_tensor import JointTensor, Part
from gpufetch._remote.parts import overlap
from gpufetch._remote.published_tensor import PublishedTensor
from gpufetch._remote.server_connection import ServerConnection
from gpufetch._remote.session import At, Session
from gpufetch._text import format_nbytes
from gpufetch._threads import Workers, run_at_once
from gpufetch._tracebacks import shortened

if TYPE_CHECKING:
    from gpufetch._display.remote import Published

__all__ = ["JointConnection", "values_text"]

_THREADS_MAX = 32

T = TypeVar("T")
Listings = dict[Session, dict[str, Any]]
Found = list[tuple[Session, dict[str, Any]]]
"""The servers that have a name, each with its item of the listing."""


@final
class JointConnection(Connection):
    """Connections to several servers, in the order in which they were named."""

    def __init__(self, connections: Sequence[ServerConnection]) -> None:
        self._connections = list(connections)
        self._sessions = [connection.session for connection in connections]
        self._is_closed = False
        self._process_id = os.getpid()
        for label, count in Counter(session.label for session in self._sessions).items():
            for session in self._sessions:
                if session.label == label and count > 1:  # servers on several machines
                    session.label = str(session.path)
        self._workers = Workers(_THREADS_MAX)

    # --- Asking servers ---

    def _at_once(self, ask: Callable[[Session], T], sessions: Iterable[Session]) -> list[T]:
        """Ask servers at the same time; answers are in the order of the servers."""
        if self._is_closed:
            raise ValueError("this connection is closed: connect() again")
        _core.check_process(self._process_id)
        return run_at_once(self._workers, [carried(partial(ask, session)) for session in sessions])

    def _listings(self) -> Listings:
        listings = self._at_once(lambda session: session.listing(), self._sessions)
        return dict(zip(self._sessions, listings, strict=True))

    def gather(self, jobs: Sequence[tuple[Session, Callable[[], T]]]) -> list[T]:
        """Do what each job asks of its server, at the same time; no two jobs have the same one.

        Where reads are at a step, all must be of the same one: they are repeated until they are.
        """
        deadline = time.monotonic() + max(session.timeout for session in self._sessions)
        while True:
            results, steps = self._do(dict(jobs))
            if self.at != "step" or len(set(steps.values())) <= 1:
                return results
            if time.monotonic() > deadline:
                raise TimeoutError(
                    "the servers gave no reads of the same step; the last were of "
                    f'{values_text(steps)}. Read live (at = "live"), or let the ranks step together'
                )

    def _do(self, jobs: Mapping[Session, Callable[[], T]]) -> tuple[list[T], dict[str, int | None]]:
        """Do every job once; their results in order, and the last step of each server."""
        steps: dict[str, int | None] = {}

        def work(session: Session) -> T:
            try:
                result = jobs[session]()
            except NoStepError as error:
                raise TimeoutError(f"{session.label}: {error}") from error
            except (TimeoutError, ConnectionError) as error:
                kind = TimeoutError if isinstance(error, TimeoutError) else ConnectionError
                remedy = "if it has ended, start it again or connect to the others without it"
                raise kind(f"{session.label}: {error}; {remedy}") from error
            steps[session.label] = session.thread_step
            return result

        if len(jobs) == 1:
            return [work(next(iter(jobs)))], steps
        return self._at_once(work, jobs), steps

    # --- The mapping ---

    @shortened
    def __getitem__(self, name: str) -> LazyArray:
        listed = _found(self._listings())
        found = listed.get(name)
        if found is None:
            raise not_published(name, list(listed))
        if len(found) == 1 and "global_shape" not in found[0][1]:
            return LazyArray(PublishedTensor(*found[0]))
        return LazyArray(self._joined(name, found))

    @shortened
    def __iter__(self) -> Iterator[str]:
        return iter(_found(self._listings()))

    @shortened
    def __len__(self) -> int:
        return len(_found(self._listings()))

    def _joined(self, name: str, found: Found) -> JointTensor:
        """The array of which servers hold the parts; RuntimeError if the parts do not fit."""
        _check_agreement(name, found)
        parts = [Part.listed(session, item) for session, item in found]
        if clash := overlap([part.box for part in parts]):
            a, b = (parts[number] for number in clash)
            raise RuntimeError(
                f"{name} is {a.box} at {a.session.label} and {b.box} at {b.session.label}, which "
                "overlap: publish parts without their ghost elements"
            )
        global_shape = tuple(found[0][1]["global_shape"])
        return JointTensor(self.gather, self.name, name, global_shape, parts)

    # --- What the servers say together ---

    @property
    def at(self) -> At:
        return self._sessions[0].at

    @at.setter
    def at(self, at: At) -> None:
        for session in self._sessions:
            session.at = at

    @property
    def name(self) -> str:
        names = [session.label for session in self._sessions]
        return ", ".join(names) if len(names) <= 3 else f"{names[0]} to {names[-1]} ({len(names)})"

    @property
    def servers(self) -> Mapping[str, Connection]:
        return {connection.name: connection for connection in self._connections}

    @property
    @shortened
    def scalars(self) -> dict[str, Value]:
        return _scalars(self._listings())

    @property
    @shortened
    def differences(self) -> dict[str, dict[str, Value | None]]:
        return _differences(self._listings())

    @property
    @shortened
    def steps(self) -> dict[str, int | None]:
        self._listings()
        return self._last_steps()

    def _last_steps(self) -> dict[str, int | None]:
        return {session.label: session.step for session in self._sessions}

    @property
    @shortened
    def time(self) -> float | None:
        self._listings()
        progress = [(session.step, session.time) for session in self._sessions]
        return None if (None, None) in progress else min(progress)[1]

    @shortened
    def wait_step(self, *, at_least: int | None = None, timeout: float | None = None) -> int:
        by_session = {connection.session: connection for connection in self._connections}
        check_timeout(timeout)

        def wait(session: Session) -> int:
            return by_session[session].wait_step(at_least=at_least, timeout=timeout)

        return min(self._at_once(wait, self._sessions))

    @property
    def data_path(self) -> str:
        ways = {connection.name: connection.data_path for connection in self._connections}
        if len(set(ways.values())) == 1:
            return next(iter(ways.values()))
        return "; ".join(f"{name}: {way}" for name, way in ways.items())

    def close(self) -> None:
        self._is_closed = True
        if os.getpid() != self._process_id:  # a forked child leaves that to its parent
            return
        for session in self._sessions:
            session.close()

    def _describe(self) -> list[str]:
        if self._is_closed:
            return [repr(self)]
        listings = self._listings()
        lines = [repr(self)]
        lines += [self._array_line(name, found) for name, found in _found(listings).items()]
        differences = _differences(listings)
        for name, value in _scalars(listings).items():
            others = f" ({values_text(differences[name])})" if name in differences else ""
            lines.append(f"  {name} = {value!r}{others}")
        return lines

    def _array_line(self, name: str, found: Found) -> str:
        if len(found) == 1:
            return listing_line(found[0][1])
        try:
            _, dtype, shape, device, size, parts = self._array_row(name, found)
        except Exception as error:
            return f"  {name}: {error}"
        return f"  {name}: {dtype} {shape}, {device}, {size} in {parts}"

    def _array_row(self, name: str, found: Found) -> tuple[str, ...]:
        """Name, dtype, shape, device, size and parts; raises what makes no array of the parts."""
        if len(found) == 1:
            return listing_row(found[0][1])
        tensor = self._joined(name, found)
        size = format_nbytes(sum(int(item["nbytes"]) for _, item in found))
        shape = str(tensor.shape)
        return name, str(tensor.dtype), shape, tensor.device, size, f"{len(found)} parts"

    def _published(self) -> Published:
        from gpufetch._display.remote import CLOSED, Published

        if self._is_closed:
            return Published(CLOSED, [], [])
        listings = self._listings()
        rows = []
        for name, found in _found(listings).items():
            try:
                rows.append(self._array_row(name, found))
            except Exception as error:
                rows.append((name, "", "", "", "", str(error)))
        values = [(name, repr(value)) for name, value in _scalars(listings).items()]
        return Published(self._state(), rows, values)

    def _state(self) -> str:
        if self._is_closed:
            return "closed"
        steps, first = self._last_steps(), self._sessions[0]
        is_same = len(set(steps.values())) == 1
        return progress_text(first) if is_same else f"step {values_text(steps)}"


def _check_agreement(name: str, found: Found) -> None:
    """Raise RuntimeError unless all items are parts of an array of one shape and dtype."""
    first, item = found[0]
    for session, other in found:
        if "global_shape" not in other:
            raise RuntimeError(
                f"{name} is whole at {session.label}, one of {len(found)} that have it: "
                "publish parts with start and global_shape, or take one by run.servers"
            )
        for key, what in (("global_shape", "of shape "), ("dtype", "")):
            if other[key] != item[key]:
                raise RuntimeError(
                    f"{name} is {what}{other[key]} at {session.label} and {item[key]} at "
                    f"{first.label}: let every rank publish its part of the same array"
                )


def _found(listings: Listings) -> dict[str, Found]:
    """Tensors by name."""
    found: dict[str, Found] = {}
    for session, listing in listings.items():
        for item in listing["tensors"]:
            found.setdefault(item["name"], []).append((session, item))
    return found


def _scalars(listings: Listings) -> dict[str, Value]:
    together: dict[str, Value] = {}
    for listing in listings.values():
        for name, value in listing["values"].items():
            together.setdefault(name, value)
    return together


def _differences(listings: Listings) -> dict[str, dict[str, Value | None]]:
    differences = {}
    for name in _scalars(listings):
        values = {session.label: item["values"].get(name) for session, item in listings.items()}
        if len(set(map(repr, values.values()))) > 1:
            differences[name] = values
    return differences


def values_text(values: Mapping[str, Any]) -> str:
    """The value at each server; only the first four of many."""
    texts = [f"{name}: {value!r}" for name, value in values.items()]
    return ", ".join(texts[:4]) + (", ..." if len(texts) > 4 else "")
