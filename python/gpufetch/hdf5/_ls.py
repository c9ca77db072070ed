"""The listing that `gpufetch ls` prints: how each dataset is stored, and what reading it needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import h5py
from h5py import h5d, h5z

from gpufetch import _core
from gpufetch._checks import check_path, check_regular
from gpufetch._text import format_nbytes, table_lines
from gpufetch.hdf5._asking import FAILURES, attribute
from gpufetch.hdf5._dataset import Dataset
from gpufetch.hdf5._filters import filter_name, provider
from gpufetch.hdf5._tree import Entry, Tree
from gpufetch.hdf5._types import type_name
from gpufetch.hdf5._virtual import sources

__all__ = ["ls_lines"]

_COLUMNS = ("name", "shape", "dtype", "chunks", "filter", "size", "stored", "ratio", "needs")
_PROBLEMS_SHOWN = 3
_APPLICATION = "gpufetch_application"  # which program wrote a checkpoint


def ls_lines(path: Path) -> Iterator[str]:
    """Describe every link of a file; OSError, which names it, if HDF5 cannot list it."""
    check_path(path, "file")
    check_regular(path)
    try:
        with h5py.File(path, "r") as file:
            tree = Tree(file)
            table = _Table(tree)
            rows = [_COLUMNS, *map(table.row, tree.entries)]
            application = attribute(file, _APPLICATION)
    except (*FAILURES, TypeError) as error:
        raise OSError(f"{path}: {error}") from error
    by = f", written by {application!r}" if isinstance(application, str) else ""
    yield f"{path}: {format_nbytes(path.stat().st_size)}{by}"
    yield from (f"  {line}" for line in table_lines(rows))
    yield from table.summary()
    try:
        _core.restart_check_seal(path)  # of a checkpoint, and of its shards
        _core.restart_check_shards(path)
    except (MemoryError, OSError, RuntimeError, TypeError, ValueError) as error:
        yield f"damaged: {error}"


class _Table:
    """The rows of the listing, and the sums of their sizes."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._nbytes = self._stored = 0
        self._needs: dict[str, bool] = {}  # what reading needs, and whether HDF5 finds it here
        self._problems: list[str] = []  # of virtual datasets' sources

    def row(self, entry: Entry) -> tuple[str, ...]:
        """Describe a link, in a text for each column."""
        name = entry.path.decode(errors="replace").lstrip("/")
        if entry.kind == "soft":
            return _padded(name, f"-> {entry.target.decode(errors='replace')}")
        if entry.kind == "external":
            target = ":".join(part.decode(errors="replace") for part in entry.target)
            return _padded(name, f"-> {target}")
        if entry.kind == "hard":
            return _padded(name, f"= {entry.target.decode(errors='replace')}")
        if entry.kind == "other":
            return _padded(name, f"link of user-defined type {entry.target}")
        try:
            found = self._tree.open(entry.path)
            if entry.kind == "dataset":
                return self._dataset(name, Dataset(found, memory="bytes"))
            if entry.kind == "type":
                return _padded(name, "type", type_name(found))
            return _padded(f"{name}/", "group")
        except (*FAILURES, TypeError) as error:
            return _padded(name, f"unreadable: {error}")

    def _dataset(self, name: str, dataset: Dataset) -> tuple[str, ...]:
        stored = dataset.id.get_storage_size()
        is_virtual = dataset.layout == h5d.VIRTUAL
        numbers = [number for number, *_ in dataset.filters]
        layout = _layout(dataset)
        if is_virtual:
            numbers, problem_count = self._sources(dataset)
            layout += f", {problem_count} missing or wrong" if problem_count else ""
        needs = [provider(number) for number in numbers]
        for number, need in zip(numbers, needs, strict=True):
            if need:
                self._needs[need] = self._needs.get(need, True) and bool(h5z.filter_avail(number))
        self._nbytes += 0 if is_virtual else dataset.nbytes
        self._stored += stored
        return (
            name,
            "null" if dataset.is_null else str(dataset.shape),
            type_name(dataset.tid),
            layout,
            "+".join(filter_name(f) for f in dataset.filters) or "-",
            format_nbytes(dataset.nbytes),
            "-" if is_virtual else format_nbytes(stored),
            f"{dataset.nbytes / stored:.2f}" if stored and not is_virtual else "-",
            ", ".join(dict.fromkeys(filter(None, needs))) or "-",
        )

    def _sources(self, dataset: Dataset) -> tuple[list[int], int]:
        """The filters of a virtual dataset's sources, and how many sources are not as expected."""
        numbers: dict[int, None] = {}
        problems: dict[str, None] = {}
        with ExitStack() as held:
            for source in sources(dataset.id, None, held):
                if source.problem is not None:
                    problems[str(source.problem.args[-1])] = None
                if source.identifier is not None:
                    found = Dataset(source.identifier, memory="bytes").filters
                    numbers.update((number, None) for number, *_ in found)
        self._problems += problems
        return list(numbers), len(problems)

    def summary(self) -> Iterator[str]:
        """Say what reading every dataset needs, and whether it is missing here."""
        if self._stored:
            yield (
                f"  {format_nbytes(self._nbytes)} in {format_nbytes(self._stored)}: "
                f"ratio {self._nbytes / self._stored:.2f}"
            )
        if not self._needs:
            yield "  any HDF5 reads every dataset"
        for need, is_here in self._needs.items():
            found = f"; {'it is found here' if is_here else _why_missing(need)}"
            if need == "gpufetch":
                yield (
                    "  needs gpufetch: import gpufetch, or hdf5_gpufetch (pip install "
                    "hdf5-gpufetch), or set HDF5_PLUGIN_PATH to what `gpufetch plugin-path` or "
                    f"`hdf5-gpufetch plugin-path` prints{found}"
                )
            else:
                yield f"  needs {need}{found}"
        yield from (f"  {problem}" for problem in self._problems[:_PROBLEMS_SHOWN])
        if len(self._problems) > _PROBLEMS_SHOWN:
            yield f"  and {len(self._problems) - _PROBLEMS_SHOWN} more such sources"


def _why_missing(need: str) -> str:
    """Why HDF5 does not find here what reading needs: a package finds its plugins when imported."""
    if need.isidentifier() and find_spec(need) is not None:
        return f"it is installed here: import {need} before reading"
    return "it is not found here"


def _padded(*texts: str) -> tuple[str, ...]:
    return (*texts, *("",) * (len(_COLUMNS) - len(texts)))


def _layout(dataset: Dataset) -> str:
    if dataset.layout == h5d.CHUNKED:
        return str(dataset.plist.get_chunk())
    if dataset.layout == h5d.VIRTUAL:
        return f"virtual of {dataset.plist.get_virtual_count()}"
    if dataset.plist.get_external_count():
        return "external"
    return "compact" if dataset.layout == h5d.COMPACT else "-"
