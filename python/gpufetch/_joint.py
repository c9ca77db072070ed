"""Several servers as one: what each publishes as its block is one array."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar, final

from gpufetch._blocks import overlap
from gpufetch._connection import At, Connection, Value
from gpufetch._joint_tensor import Block, JointTensor
from gpufetch._text import format_nbytes
from gpufetch.lazy import LazyArray

if TYPE_CHECKING:
    from gpufetch._connect import ServerConnection

__all__ = ["JointConnection", "listed"]

_THREADS_MAX = 32

T = TypeVar("T")
Listings = dict["ServerConnection", dict[str, Any]]
Found = list[tuple["ServerConnection", dict[str, Any]]]  # servers with a name, and what they list


@final
class JointConnection(Connection):
    """Connections to several servers."""

    def __init__(self, servers: Sequence[ServerConnection]) -> None:
        self._all = list(servers)
        self._is_closed = False
        for label, count in Counter(server.label for server in self._all).items():
            for server in self._all:
                if server.label == label and count > 1:  # those of other machines
                    server.label = str(server._path)
        self._pool = ThreadPoolExecutor(min(len(servers), _THREADS_MAX), "gpufetch-joint")

    # --- Asking all ---

    def each(self, ask: Callable[[ServerConnection], T]) -> list[T]:
        """Ask every server, at the same time."""
        return self._at_once(ask, self._all)

    def _at_once(
        self, ask: Callable[[ServerConnection], T], servers: Iterable[ServerConnection]
    ) -> list[T]:
        if self._is_closed:
            raise ValueError("this connection is closed: connect() again")
        return list(self._pool.map(ask, servers))

    def _listings(self) -> Listings:
        return dict(zip(self._all, self.each(lambda server: server._list()), strict=True))

    def gather(self, jobs: Sequence[tuple[ServerConnection, Callable[[], T]]]) -> list[T]:
        """Do what each job asks of its server, at the same time for different servers.

        Where reads are at a step, all are of the same one: they are done again until they are.
        """
        by_server: dict[ServerConnection, list[int]] = {}
        for number, (server, _) in enumerate(jobs):
            by_server.setdefault(server, []).append(number)
        if self.at == "step":
            several = next((s for s, numbers in by_server.items() if len(numbers) > 1), None)
            if several is not None:
                raise ValueError(
                    f"this takes several requests to {several.label}, which would be of several "
                    'steps: give an overview other cells, or read live (at = "live")'
                )
        deadline = time.monotonic() + max(server._timeout for server in self._all)
        while True:
            results, steps = self._do(jobs, by_server)
            if self.at != "step" or len(set(steps.values())) <= 1:
                return [results[number] for number in range(len(jobs))]
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"no reads of the same step from all: the last were of {listed(steps)}. Read "
                    'live (at = "live"), or let the ranks step together'
                )

    def _do(
        self,
        jobs: Sequence[tuple[ServerConnection, Callable[[], T]]],
        by_server: Mapping[ServerConnection, list[int]],
    ) -> tuple[dict[int, T], dict[str, int | None]]:
        """Results by the job's number; the step that each server's last one was of."""
        results: dict[int, T] = {}
        steps: dict[str, int | None] = {}

        def work(server: ServerConnection) -> None:
            try:
                for number in by_server[server]:
                    results[number] = jobs[number][1]()
            except TimeoutError as error:
                remedy = "if it has ended, start it again or connect to the others without it"
                raise TimeoutError(f"{server.label}: {error}; {remedy}") from error
            steps[server.label] = server._seen.step

        if len(by_server) == 1:
            work(next(iter(by_server)))
        else:
            self._at_once(work, by_server)
        return results, steps

    # --- The mapping ---

    def __getitem__(self, name: str) -> LazyArray:
        found = _found(self._listings()).get(name)
        if found is None:
            raise KeyError(name)
        if len(found) == 1 and "global_shape" not in found[0][1]:
            server, item = found[0]
            return LazyArray(server._tensor(item))
        return LazyArray(self._joined(name, found))

    def __iter__(self) -> Iterator[str]:
        return iter(_found(self._listings()))

    def __len__(self) -> int:
        return len(_found(self._listings()))

    def _joined(self, name: str, found: Found) -> JointTensor:
        """The array that the blocks are of; RuntimeError if they are of none."""
        first, item = found[0]
        for server, other in found:
            if "global_shape" not in other:
                raise RuntimeError(
                    f"{name} is whole at {server.label}, one of {len(found)} that have it: "
                    "publish blocks with start and global_shape, or take one by run.servers"
                )
            for key, what in (("global_shape", "of shape"), ("dtype", "")):
                if other[key] != item[key]:
                    raise RuntimeError(
                        f"{name} is {what} {other[key]} at {server.label} and {item[key]} at "
                        f"{first.label}: let every rank publish its block of the same array"
                    )
        blocks = [Block.listed(server, item) for server, item in found]
        if clash := overlap([block.box for block in blocks]):
            a, b = (blocks[number] for number in clash)
            raise RuntimeError(
                f"{name} is {a.box} at {a.server.label} and {b.box} at {b.server.label}, which "
                "overlap: publish blocks without their ghost cells"
            )
        return JointTensor(self, name, tuple(item["global_shape"]), blocks)

    # --- What several say together ---

    @property
    def at(self) -> At:
        return self._all[0].at

    @at.setter
    def at(self, at: At) -> None:
        for server in self._all:
            server.at = at

    @property
    def name(self) -> str:
        names = [server.label for server in self._all]
        return ", ".join(names) if len(names) <= 3 else f"{names[0]} to {names[-1]} ({len(names)})"

    @property
    def servers(self) -> Mapping[str, Connection]:
        return {server.label: server for server in self._all}

    @property
    def scalars(self) -> dict[str, Value]:
        return _scalars(self._listings())

    @property
    def differences(self) -> dict[str, dict[str, Value | None]]:
        return _differences(self._listings())

    @property
    def steps(self) -> dict[str, int | None]:
        self._listings()
        return {server.label: server._step for server in self._all}

    @property
    def time(self) -> float | None:
        self._listings()
        steps = [(server._step, server._time) for server in self._all]
        return None if (None, None) in steps else min(steps)[1]

    def wait_step(self, timeout: float | None = None) -> int:
        return min(self.each(lambda server: server.wait_step(timeout)))

    @property
    def data_path(self) -> str:
        ways = {server.label: server.data_path for server in self._all}
        if len(set(ways.values())) == 1:
            return next(iter(ways.values()))
        return "; ".join(f"{name}: {way}" for name, way in ways.items())

    def close(self) -> None:
        self._is_closed = True
        for server in self._all:
            server.close()
        self._pool.shutdown(wait=False)

    def _describe(self) -> list[str]:
        if self._is_closed:
            return [f"<connection to {self.name}, closed>"]
        listings = self._listings()
        steps = {server.label: server._step for server in self._all}
        differ = len(set(steps.values())) > 1
        step = listed(steps) if differ else f"{self._all[0]._step}, time {self._all[0]._time}"
        lines = [f"<connection to {self.name}, step {step}>"]
        lines += [self._array_line(name, found) for name, found in _found(listings).items()]
        differences = _differences(listings)
        for name, value in _scalars(listings).items():
            others = f" ({listed(differences[name])})" if name in differences else ""
            lines.append(f"  {name} = {value!r}{others}")
        return lines

    def _array_line(self, name: str, found: Found) -> str:
        if len(found) == 1:
            item = found[0][1]
            return self._listing_line(item, format_nbytes(int(item["nbytes"])))
        try:
            tensor = self._joined(name, found)
        except Exception as error:
            return f"  {name}: {error}"
        size = format_nbytes(sum(int(item["nbytes"]) for _, item in found))
        return (
            f"  {name}: {tensor.dtype} {tensor.shape}, {tensor.device}, {size} in "
            f"{len(found)} blocks"
        )


def _found(listings: Listings) -> dict[str, Found]:
    """Tensors by name."""
    found: dict[str, Found] = {}
    for server, listing in listings.items():
        for item in listing["tensors"]:
            found.setdefault(item["name"], []).append((server, item))
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
        said = {server.label: listing["values"].get(name) for server, listing in listings.items()}
        if len(set(map(repr, said.values()))) > 1:
            differences[name] = said
    return differences


def listed(values: Mapping[str, Any]) -> str:
    """What each server says, cut where it gets long."""
    texts = [f"{name}: {value!r}" for name, value in values.items()]
    return ", ".join(texts[:4]) + (", ..." if len(texts) > 4 else "")
