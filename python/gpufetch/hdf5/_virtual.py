"""The sources of virtual datasets: found, opened and compared before HDF5 reads from them.

HDF5 reads fill values where a source is missing (older releases also where one cannot be opened),
converts the elements of one that has another type, reads what lies behind one that is too short,
and overflows the stack where a virtual dataset is its own source. Here each source is looked for
where HDF5 looks for it and opened as HDF5 opens it, and stays open while HDF5 reads, so that HDF5
finds the same one. Where it can be done, elements are read from the open sources and not by way of
the virtual dataset, because HDF5 opens each source once more and reads fill values if that fails.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from h5py import h5d, h5f, h5i, h5o

from gpufetch import _core
from gpufetch.hdf5._binding import phil
from gpufetch.hdf5._boxes import Box
from gpufetch.hdf5._mappings import Mapping, mappings, overlap_and_gap
from gpufetch.hdf5._source_files import NotOpened, open_source_file
from gpufetch.hdf5._types import fill_value, same_but_order, type_name

__all__ = ["OpenSources", "Source", "checked_sources", "sources"]

# Elements of a source that are read directly are read with what is between them, if that is at most
# this many times as much.
_SPREAD_MAX = 4

# HDF5 opens each source's file once more for a moment. Without a free descriptor for that it would
# read fill values.
_SPARE_DESCRIPTORS = 8


@dataclass
class Source:
    """A dataset from which a virtual one takes elements.

    `identifier` is the open dataset, None if it could not be opened. `problem` says why its
    elements are not those that the virtual dataset stands for; `is_gap` whether fill values take
    their place.
    """

    file_name: str
    name: str
    identifier: Any = None
    problem: Exception | None = None
    is_gap: bool = False


class OpenSources:
    """The sources of an open virtual dataset, which were checked and are open.

    Elements are read from them, so that HDF5 has not to find them again, or left to HDF5.
    """

    def __init__(self, walk: _Walk) -> None:
        self._walk = walk
        self._read: list[bool] = []  # for each box, whether its elements came from here

    def read(self, box: Box) -> npt.NDArray[Any] | None:
        """Read a box from the sources; None if that cannot be done, and HDF5 has to do it.

        Raises ValueError where HDF5 cannot either: see require_filled.
        """
        self._read.append(False)
        try:
            values = self._walk.read(self._walk.levels[0].identifier, box)
        except TypeError:  # no dtype: said of the virtual dataset when that is read
            return None
        self._read[-1] = values is not None
        if values is None:
            self.require_filled()
        return values

    @property
    def has_read_all(self) -> bool:
        return bool(self._read) and all(self._read)

    @property
    def is_filled(self) -> bool:
        """Whether require_filled() raises nothing."""
        return self._walk.unfilled() is None

    def require_filled(self, *, has_zeros: bool = False) -> None:
        """Raise ValueError if HDF5 may leave elements as they are in memory, and they are wrong.

        Before HDF5 reads, memory has the fill value of the dataset, or zeros.
        """
        identifier = self._walk.unfilled(has_zeros=has_zeros)
        if identifier is not None:
            raise ValueError(
                f"HDF5 reads no fill value for the elements of {_described(identifier)} that have "
                "no source, because others have two: replace its file by a copy that gpufetch "
                "repack makes"
            )


@contextmanager
def checked_sources(
    identifier: Any, box: Box | None, *, allow_gaps: bool
) -> Iterator[OpenSources | None]:
    """Hold the sources of an open dataset open while a box of it, or all of it, is read.

    What the context gives reads boxes from the open sources themselves. What HDF5 reads is checked
    once more: afterwards, OSError is raised if a source is not the one any more that was opened.

    Gives None for a dataset that is not virtual. Raises OSError for a source that is missing or
    does not open, ValueError for one of another type, of too few elements, or that is the dataset
    itself; the message names it. With `allow_gaps`, sources that are missing, and growing ones that
    have not grown far enough, are left to HDF5, which reads fill values.
    """
    if not _is_virtual(identifier):
        yield None
        return
    with ExitStack() as held:
        walk = _Walk(held)
        found: list[tuple[int, int] | None] = []
        for source in walk.sources(identifier, box):
            if source.problem is not None and not (allow_gaps and source.is_gap):
                raise source.problem
            found.append(_key_of(source))
        _require_spare_descriptors()
        reader = OpenSources(walk)
        yield reader
        if not reader.has_read_all:
            _check_again(identifier, box, found)


def _key_of(source: Source) -> tuple[int, int] | None:
    return None if source.identifier is None else _key(source.identifier)


def _check_again(identifier: Any, box: Box | None, found: list[tuple[int, int] | None]) -> None:
    """Raise OSError if the sources of a dataset are not those that were found before."""
    with ExitStack() as held:
        again = [_key_of(source) for source in sources(identifier, box, held)]
        if again != found:
            raise OSError(
                f"a source of {_described(identifier)} was replaced, or could not be opened any "
                "more, while it was read, and HDF5 may have read fill values instead: read again"
            )


def sources(identifier: Any, box: Box | None, held: ExitStack) -> Iterator[Source]:
    """Open the sources of an open virtual dataset and of those of its sources that are virtual.

    Only sources are opened from which a box takes elements, or all of them without one. `held`
    closes them.
    """
    return _Walk(held).sources(identifier, box)


def _require_spare_descriptors() -> None:
    spare: list[int] = []
    try:
        while len(spare) < _SPARE_DESCRIPTORS:
            spare.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        raise OSError(
            error.errno,
            "too few descriptors are left to read the sources of a virtual dataset, for which HDF5 "
            "would read fill values: raise the limit (ulimit -n), or read a smaller selection",
        ) from error
    finally:
        for descriptor in spare:
            os.close(descriptor)


@dataclass(frozen=True)
class _Level:
    """A virtual dataset, the box of it that is needed, and those that led to it."""

    identifier: Any
    box: Box
    key: tuple[int, int]
    above: tuple[_Level, ...]


@dataclass
class _Walk:
    """One look at all sources; each file and dataset is opened once."""

    held: ExitStack
    # Files and datasets that were opened, or why not, by the file that names them.
    files: dict[tuple[int, str], Any] = field(default_factory=dict)
    datasets: dict[tuple[int, str, str], Source] = field(default_factory=dict)
    levels: list[_Level] = field(default_factory=list)

    def sources(
        self, identifier: Any, box: Box | None, above: tuple[_Level, ...] = ()
    ) -> Iterator[Source]:
        """Open the sources of a dataset; `above` are the virtual ones that led to it."""
        if box is None:
            box = (0,) * len(identifier.shape), identifier.shape
        level = _Level(identifier, box, _key(identifier), above)
        self.levels.append(level)
        for mapping in mappings(identifier, box):
            source = self._source(identifier, mapping)
            if source.identifier is not None:
                _check(identifier, source, mapping)
                if source.problem is None and _is_virtual(source.identifier):
                    if _key(source.identifier) in [one.key for one in (*above, level)]:
                        source.problem = ValueError(
                            f"{_described(identifier)} takes elements from itself, by way of "
                            f"{_quoted(source)}: HDF5 would not come to an end"
                        )
                    else:
                        inner = mapping.source_box(box, source.identifier.shape)
                        yield from self.sources(source.identifier, inner, (*above, level))
            yield source

    def read(self, identifier: Any, box: Box) -> npt.NDArray[Any] | None:
        """Read a box of a dataset, of a virtual one from its sources; None if that cannot be done.

        It can where mappings are of axes, and at least one of them reaches into the box. Sources
        are open, or opened.
        """
        if not _is_virtual(identifier):
            found: npt.NDArray[Any] = np.asarray(
                _core.h5_read(phil, identifier.id, region=box, device="cpu")
            )
            return found
        values: npt.NDArray[Any] | None = None
        covered = np.zeros(box[1], np.bool_)
        for mapping in mappings(identifier, box):
            source = self._source(identifier, mapping)
            if source.identifier is None or source.problem is not None:
                return None
            pairs = mapping.pairs(box, source.identifier.shape)
            part = None if pairs is None else self._read_named(source.identifier, pairs[1])
            if pairs is None or part is None:
                return None
            if values is None:
                values = np.empty(box[1], part.dtype)
            here = [indices - low for indices, low in zip(pairs[0], box[0], strict=True)]
            place = _place(here)
            values[place] = part.reshape([len(indices) for indices in here])
            covered[place] = True
        return values if values is None or covered.all() else _filled(identifier, values, covered)

    def unfilled(self, *, has_zeros: bool = False) -> Any:
        """A virtual dataset of whose fill value HDF5 may leave out what others need; else None.

        HDF5 writes it where mappings, of sources that are there, name fewer elements than there
        are; it counts twice what they name twice. What it leaves out is as it was in memory: the
        fill value of the first dataset, or zeros, or what another mapping of one above wrote.
        """
        preset = b"" if has_zeros else _fill_bytes(self.levels[0].identifier)
        for level in self.levels:
            if self._leaves_out(level) and (
                _fill_bytes(level.identifier) != preset
                or any(self._overlap_and_gap(one)[0] for one in level.above)
            ):
                return level.identifier
        return None

    def _leaves_out(self, level: _Level) -> bool:
        overlaps, has_gap = self._overlap_and_gap(level)
        return overlaps and has_gap

    def _overlap_and_gap(self, level: _Level) -> tuple[bool, bool]:
        present, has_gap = [], False
        for mapping in mappings(level.identifier, level.box):
            source = self._source(level.identifier, mapping).identifier
            if source is not None:
                present.append(mapping)
                has_gap = has_gap or not mapping.is_covered_by(source.shape)
        overlaps, leaves_out = overlap_and_gap(present, level.box)
        return overlaps, has_gap or leaves_out

    def _read_named(self, identifier: Any, indices: list[Any]) -> npt.NDArray[Any] | None:
        """Read elements by their indices along each axis; None where they lie far apart."""
        start = tuple(int(axis[0]) for axis in indices)
        stops = [int(axis[-1]) + 1 for axis in indices]
        shape = tuple(stop - low for stop, low in zip(stops, start, strict=True))
        if any(stop > n for stop, n in zip(stops, identifier.shape, strict=True)):
            return None
        if math.prod(shape) > _SPREAD_MAX * math.prod(map(len, indices)):
            return None
        values = self.read(identifier, (start, shape))
        if values is None:
            return None
        named: npt.NDArray[Any] = values[
            _place([axis - low for axis, low in zip(indices, start, strict=True)])
        ]
        return named

    def _source(self, identifier: Any, mapping: Mapping) -> Source:
        """Open what a mapping names, or return what came of it before."""
        file = h5i.get_file_id(identifier)
        number = h5o.get_info(identifier).fileno
        key = number, mapping.file_name, mapping.name
        if key not in self.datasets:
            self.datasets[key] = self._opened(identifier, file, number, mapping)
        found = self.datasets[key]
        return Source(found.file_name, found.name, found.identifier, found.problem, found.is_gap)

    def _opened(self, identifier: Any, file: Any, number: int, mapping: Mapping) -> Source:
        """Open what a mapping of a dataset in `file`, whose HDF5 number is given, names."""
        source = Source(mapping.file_name, mapping.name)
        access = identifier.get_access_plist()
        if mapping.file_name != ".":
            key = number, mapping.file_name
            if key not in self.files:
                self.files[key] = open_source_file(file, mapping.file_name, access)
                if not isinstance(self.files[key], NotOpened):
                    self.held.callback(_close, self.files[key])
            file = self.files[key]
        if isinstance(file, NotOpened):
            source.problem = _file_problem(identifier, source, file)
            source.is_gap = file.errno == errno.ENOENT
            return source
        if not _exists(file, mapping.name):
            source.problem = FileNotFoundError(
                errno.ENOENT,
                f"{_described(identifier)} takes elements from {_quoted(source)}, which does not "
                f"exist in that file; {_REMEDY}",
            )
            source.is_gap = True
            return source
        try:
            source.identifier = h5d.open(file, os.fsencode(mapping.name), access)
            self.held.callback(_close, source.identifier)
        except (KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
            reason = str(error.args[0] if error.args else error)
            source.problem = OSError(
                f"{_described(identifier)} takes elements from {_quoted(source)}, which cannot be "
                f"opened: {reason}"
            )
        return source


def _filled(
    identifier: Any, values: npt.NDArray[Any], covered: npt.NDArray[np.bool_]
) -> npt.NDArray[Any] | None:
    """Elements of a virtual dataset with the fill value where no source covers them."""
    fill = fill_value(identifier)
    if fill is None:
        return None
    values[~covered] = fill
    return values


def _place(indices: list[npt.NDArray[np.int64]]) -> tuple[Any, ...]:
    """The subscript of the elements with these indices along each axis, which are in order."""
    if all(len(axis) == axis[-1] + 1 - axis[0] for axis in indices):
        return tuple(slice(int(axis[0]), int(axis[-1]) + 1) for axis in indices)
    return np.ix_(*indices)


_REMEDY = "HDF5 would read fill values instead, and so does allow_gaps=True"


def _close(identifier: Any) -> None:
    if identifier.valid:
        identifier.close()


def _is_virtual(identifier: Any) -> bool:
    return bool(identifier.get_create_plist().get_layout() == h5d.VIRTUAL)


def _fill_bytes(identifier: Any) -> bytes | None:
    """The bytes of a fill value, none for zero; None where NumPy has no type for it."""
    if identifier.get_create_plist().fill_value_defined() != h5d.FILL_VALUE_USER_DEFINED:
        return b""
    fill = fill_value(identifier)
    return None if fill is None else fill.tobytes() if fill.tobytes().strip(b"\0") else b""


def _key(identifier: Any) -> tuple[int, int]:
    info = h5o.get_info(identifier)
    return info.fileno, info.addr


def _described(identifier: Any) -> str:
    name = (h5i.get_name(identifier) or b"?").decode(errors="replace")
    file_name = os.fsdecode(h5f.get_name(identifier))
    return f"virtual dataset {name!r} of {file_name}"


def _quoted(source: Source) -> str:
    place = "the same file" if source.file_name == "." else source.file_name
    return f"dataset {source.name!r} of {place}"


def _exists(file: Any, name: str) -> bool:
    """Whether there is an object of that name in a file. Its groups may be missing too."""
    path = b""
    for part in filter(None, os.fsencode(name).split(b"/")):
        path += b"/" + part
        try:
            if not (file.links.exists(path) and h5o.exists_by_name(file, path)):
                return False
        except (KeyError, OSError, RuntimeError, ValueError):
            return True  # h5d.open says what is wrong
    return True


def _file_problem(identifier: Any, source: Source, failure: NotOpened) -> OSError:
    text = f"{_described(identifier)} takes elements from {_quoted(source)}, which "
    if failure.errno == errno.ENOENT:
        places = ", ".join(failure.paths)
        return FileNotFoundError(
            errno.ENOENT,
            f"{text}does not exist (looked for {places}). Put it there, or name its folder in "
            f"HDF5_VDS_PREFIX; {_REMEDY}",
        )
    return OSError(failure.errno, f"{text}cannot be opened: {failure.reason}")


def _check(identifier: Any, source: Source, mapping: Mapping) -> None:
    """Compare type and shape of a source that is open with what the virtual dataset expects."""
    stored, wanted = source.identifier.get_type(), identifier.get_type()
    if not same_but_order(stored, wanted):
        source.problem = ValueError(
            f"{_described(identifier)} has dtype {type_name(wanted)}, and its source "
            f"{_quoted(source)} has {type_name(stored)}: HDF5 would convert the elements. Make the "
            "virtual dataset again with its sources' dtype, or read it with h5py"
        )
    elif not mapping.is_covered_by(source.identifier.shape):
        source.is_gap = mapping.may_grow
        remedy = _REMEDY if source.is_gap else "HDF5 would read past its end"
        source.problem = ValueError(
            f"{_described(identifier)} takes {mapping.wanted_count} elements from "
            f"{_quoted(source)}, whose shape {source.identifier.shape} has fewer there; {remedy}"
        )
