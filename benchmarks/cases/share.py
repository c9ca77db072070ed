"""Another process uses this one's device memory: share + attach, and a read of what is attached.

This process takes the times, each of which includes a message through a pipe.
"""

from __future__ import annotations

import importlib
import multiprocessing
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import gpufetch as gf
from cases import Case
from cases.share_child import serve
from harness import GIGABYTES, MICROSECONDS, Array, Contender, Row, Session, make_row, measure
from peers import random_arrays

MIB, GIB = 1 << 20, 1 << 30
PIPE, RAW = "a message and its answer", "raw copy in the other process"
ATTACH_IS = {"torch": "multiprocessing", "cupy": "ipcGetMemHandle, ipcOpenMemHandle"}


class Child:
    """The other process, for the length of a `with` block."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, what: str, name: str = "", payload: Any = None) -> Any:
        self._pipe.send((what, name, payload))
        works, answer = self._pipe.recv()
        if not works:
            raise RuntimeError(f"the other process: {answer}")
        return answer

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.join()


class Exporter:
    """How one contender gives the other process access to an array, and withdraws it."""

    def __init__(self, name: str, export: Callable[[], Any]) -> None:
        self.name = name
        self._export = export
        self._handle: Any = None

    def attach(self, child: Child) -> str:
        self._handle = self._export()
        child.ask("attach", self.name, self._handle)
        return self.name

    def detach(self, child: Child) -> None:
        child.ask("detach", self.name)
        if isinstance(self._handle, gf.ShareHandle):
            gf.unshare(self._handle)
        self._handle = None


def cases(session: Session) -> list[Case]:
    nbytes, label = (4 * MIB, "4 MiB") if session.quick else (GIB, "1 GiB")
    return [(f"share {label}", partial(share, session, label, nbytes))]


def exporters(session: Session, array: Array) -> list[Exporter]:
    """Return gpufetch's way and those of the peers."""
    on_device = gf.to_device(array, device=session.device)
    found = [Exporter("gpufetch", partial(gf.share, on_device))]
    names = [one.name for one in session.frameworks]
    if session.backend == "host":
        path = session.scratch / "shared"
        array.tofile(path)
        found.append(Exporter("numpy", partial(str, path)))
    if "torch" in names:
        importlib.import_module("torch.multiprocessing")  # lets pipes take its tensors
        tensor = importlib.import_module("torch").from_numpy(array).to(session.device)
        found.append(Exporter("torch", lambda: tensor))
    if "cupy" in names:
        cupy: Any = importlib.import_module("cupy")
        with cupy.cuda.using_allocator(
            None
        ):  # an allocation of its own: the handle names no offset
            memory = cupy.asarray(array)
        handle = partial(cupy.cuda.runtime.ipcGetMemHandle, memory.data.ptr)
        found.append(Exporter("cupy", lambda: (handle(), memory.shape)))
    return found


def share(session: Session, label: str, nbytes: int) -> list[Row]:
    (array,) = random_arrays(nbytes, 1)
    expected = np.array([zlib.crc32(memoryview(array).cast("B"))])
    peers = exporters(session, array)
    with Child() as child:
        rows = [attach_row(session, label, child, peers, expected)]
        for one in peers:
            one.attach(child)
        child.ask("attach", "raw", (session.backend, nbytes))
        rows.append(read_row(session, label, child, [one.name for one in peers], expected, nbytes))
        for one in peers:
            one.detach(child)
    return rows


def checksum(child: Child, name: str) -> Array:
    return np.array([child.ask("checksum", name)])


def attach_row(
    session: Session, label: str, child: Child, peers: list[Exporter], expected: Array
) -> Row:
    def prepare(one: Exporter) -> Exporter:
        one.detach(child)
        return one

    contenders = [
        Contender(
            one.name,
            lambda one: one.attach(child),
            [one],
            prepare,
            partial(checksum, child),
        )
        for one in peers
    ]
    contenders.append(
        Contender(PIPE, lambda _: child.ask("echo"), [None], answer=lambda _: expected)
    )
    timings = measure(contenders, [expected], rounds=50, budget_s=2.0)
    for one in peers:
        one.detach(child)
    return make_row(
        session,
        f"share {label} and attach to it in another process",
        timings,
        nbytes=0,  # no rate
        unit=MICROSECONDS,
        gpufetch="gpufetch",
        limit=PIPE,
        peers=[one.name for one in peers[1:]],
        labels={
            one.name: one.label_of(ATTACH_IS[one.name])
            for one in session.frameworks
            if one.name in ATTACH_IS
        },
    )


def read_row(
    session: Session, label: str, child: Child, names: list[str], expected: Array, nbytes: int
) -> Row:
    def prepare(name: str) -> str:
        child.ask("forget", name)
        return name

    def read(name: str) -> str:
        child.ask("read", name)
        return name

    contenders = [
        Contender(RAW if name == "raw" else name, read, [name], prepare, partial(checksum, child))
        for name in [*names, "raw"]
    ]
    timings = measure(contenders, [expected], rounds=6, budget_s=2.0)
    return make_row(
        session,
        f"read {label} of another process's device memory to NumPy",
        timings,
        nbytes=nbytes,
        unit=GIGABYTES,
        gpufetch="gpufetch",
        limit=RAW,
        peers=names[1:],
    )
