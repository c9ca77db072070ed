"""What `gpufetch verify` does: read all of HDF5 files, and name what is damaged.

What the system refuses (a permission, a descriptor, memory) is no damage, and is told apart.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from h5py import h5d

from gpufetch import _core
from gpufetch._checks import check_path, check_regular
from gpufetch._progress import ProgressBar
from gpufetch._text import format_nbytes
from gpufetch.hdf5._asking import io_errno
from gpufetch.hdf5._boxes import Box, boxes
from gpufetch.hdf5._dataset import Dataset
from gpufetch.hdf5._stored import edge_may_be_plain, is_header_checked, stored_chunks
from gpufetch.hdf5._tree import Tree
from gpufetch.hdf5._verify_trees import (
    ERRORS,
    has_checksums,
    read_attributes,
    tree_errors,
)
from gpufetch.hdf5._virtual import checked_sources

__all__ = ["Verification", "files_of", "passed_over"]

_SUFFIXES = {".h5", ".hdf5", ".he5", ".hdf", ".nc", ".nc4"}
_CHECKED = {1, 3, *_core.H5_FILTER_IDS}  # gzip, fletcher32, gpufetch: their chunks have checksums
_CHECKPOINT = re.compile(r"(.+)-([0-9]{12,})\.h5")
_SHARD = re.compile(r"(.+-[0-9]{12,})\.[0-9a-f]{16}\.[0-9]+\.h5")  # as in shard_files.c
_UNFINISHED = ".gpufetch-new-"  # as in _new_file.py
_MANIFEST = "gpufetch_checkpoint"  # as in contents.h

_NOWHERE = (errno.ENOENT, errno.ENOTDIR)


class _Fault(NamedTuple):
    """Something that is damaged or, since the system refused it, could not be checked."""

    text: str
    is_refusal: bool = False


def _fault(error: BaseException, where: str = "", *, of_file: bool = False) -> _Fault:
    """What an error means. A file that a dataset needs and that is not there is damage.

    `of_file`: the error may be of the file itself, and that nothing is there is none; nor is a seal
    that a newer version wrote, or an attribute that NumPy has no type for.
    """
    code = io_errno(error)
    is_unknown = of_file and isinstance(error, TypeError)  # for a seal: GPUF_ERR_UNSUPPORTED
    is_refused = code != 0 and (of_file or code not in _NOWHERE)
    is_refusal = isinstance(error, MemoryError) or is_unknown or is_refused
    return _Fault(where + (str(error) or "there is not enough memory"), is_refusal)


_Identity = tuple[int, int, int, int]


def _identity(file: Path | int) -> _Identity | None:
    """Which file it is, and since when: network file systems may give an inode to another one."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns


@contextlib.contextmanager
def _held(path: Path) -> Iterator[_Identity | None]:
    """Which file has this name; the system gives its inode to no other file in the `with`."""
    descriptor = None
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_PATH)
    try:
        yield _identity(path if descriptor is None else descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _has_checksums(dataset: Dataset) -> bool:
    """Whether damage in elements is noticed: by a filter of each chunk, or by HDF5."""
    if dataset.layout == h5d.COMPACT and dataset.memory != "objects":  # those are not in it
        return is_header_checked(dataset.id)
    numbers = [number for number, *_ in dataset.filters]
    if not _CHECKED & set(numbers):
        return False
    may_be_plain = edge_may_be_plain(dataset.id)

    def is_checked(info: Any) -> bool:
        passed = (n for i, n in enumerate(numbers) if not info.filter_mask >> i & 1)
        return not may_be_plain(info) and not _CHECKED.isdisjoint(passed)

    try:
        return all(map(is_checked, stored_chunks(dataset.id)))
    except ERRORS:  # reading says what is damaged
        return False


def files_of(path: Path) -> list[Path]:
    """The file, or the HDF5 files of a folder, which their names or their first bytes say they are.

    Shards of checkpoints are left out, which their masters stand for; those without a master, too,
    which a writer may be about to finish. So are the temporary files of save and repack, which a
    process that was killed leaves behind and the next one removes.
    """
    check_path(path, "path")
    check_regular(path)
    if not path.is_dir():
        return [path]
    return sorted(
        file
        for file in path.iterdir()
        if _is_wanted(file)
        and file.is_file()
        and (file.suffix.lower() in _SUFFIXES or h5py.is_hdf5(file))
    )


def _is_wanted(file: Path) -> bool:
    return not _SHARD.fullmatch(file.name) and not file.name.startswith(_UNFINISHED)


def passed_over(path: Path) -> list[str]:
    """What a folder has under names of HDF5 files that is no file, a line for each."""
    if not path.is_dir():
        return []
    files = [file for file in path.iterdir() if file.suffix.lower() in _SUFFIXES]
    found = ((file, _why_no_file(file)) for file in sorted(filter(_is_wanted, files)))
    return [f"{file}: not looked at: {why}" for file, why in found if why]


def _why_no_file(file: Path) -> str | None:
    """Why there is nothing to look at; None for a file, a folder, and what is gone meanwhile."""
    try:
        check_regular(file)
    except OSError:
        return "it is a pipe, a socket or a device"
    return "it is a link that leads to nothing" if file.is_symlink() and not file.exists() else None


class Verification:
    """Reads every element of a file, chunk by chunk where that fails, every attribute and tree.

    Every bit of a sealed checkpoint goes into checksums. In other files, damage that HDF5 reads
    over shows where there are checksums: of chunks by some filters, of metadata in HDF5's newer
    formats, of the text of a tree of save. What has none is named.

    Several threads read and check the chunks of gpufetch's filter and plain ones, a box of 32 MiB
    at a time; HDF5 itself reads everything else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._dataset_count = self._nbytes = 0
        self._unchecked: list[str] = []
        self.damage_count = self.refusal_count = 0

    def lines(self, *, progress: bool = False) -> Iterator[str]:
        """A line for each thing that is damaged or could not be checked, and one for the file.

        damage_count and refusal_count count.
        """
        for fault in self._excused(self._faults(progress)):
            self.damage_count += not fault.is_refusal
            self.refusal_count += fault.is_refusal
            kind = "could not be checked" if fault.is_refusal else "damaged"
            yield f"{self._path}: {kind}: {fault.text}"
        count = self._dataset_count
        what = f"{count} dataset{'s' * (count != 1)}, {format_nbytes(self._nbytes)}"
        counts = {"damaged": self.damage_count, "could not be checked": self.refusal_count}
        found = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        if found:
            yield f"{self._path}: {what}: {found}"
            return
        yield f"{self._path}: {what}: whole"
        if self._unchecked:
            names = ", ".join(self._unchecked[:5]) + (", ..." if self._unchecked[5:] else "")
            yield f"{self._path}: without checksums, so that damage may not show: {names}"

    def _excused(self, faults: Iterator[_Fault]) -> Iterator[_Fault]:
        """The faults until the file loses its name, as checkpoints do that expire."""
        with _held(self._path) as file:
            for fault in faults:
                if file and _identity(self._path) != file:
                    yield _Fault("it was removed, replaced or changed meanwhile", is_refusal=True)
                    return
                yield fault

    def _faults(self, progress: bool) -> Iterator[_Fault]:
        is_sealed = False
        try:  # libhdf5 may crash on damage that a checkpoint's seal shows
            if self._path.is_file():
                is_sealed = _core.restart_check_seal(self._path)
        except ERRORS as error:
            yield _fault(error, of_file=True)
            return
        try:
            with h5py.File(self._path, "r") as file:
                tree = Tree(file)
                if not is_sealed and not has_checksums(tree):
                    self._unchecked.append("the metadata (HDF5's older formats)")
                is_checkpoint = _MANIFEST in file and not _SHARD.fullmatch(self._path.name)
                for path in tree.paths("dataset"):
                    name = path.decode(errors="replace")
                    yield from self._dataset(tree, path, name, progress)
                for path in (b"/", *tree.paths("group", "type")):
                    yield from self._attributes(tree.open(path), path.decode(errors="replace"))
                for path in (b"/", *tree.paths("group")):
                    where = f"tree {path.decode(errors='replace')!r}: "
                    yield from (_fault(error, where) for error in tree_errors(tree, path))
        except ERRORS as error:
            yield _fault(error, "it cannot be opened: ", of_file=True)
            return
        if is_checkpoint:
            self._unchecked.clear()  # the manifest has checksums of all
            yield from self._checkpoint()

    def _attributes(self, identifier: Any, name: str) -> Iterator[_Fault]:
        try:
            read_attributes(identifier)
        except ERRORS as error:
            yield _fault(error, f"attributes of {name!r}: ", of_file=True)

    def _dataset(self, tree: Tree, path: bytes, name: str, progress: bool) -> Iterator[_Fault]:
        self._dataset_count += 1
        try:
            dataset = Dataset(tree.open(path))
        except ERRORS as error:
            yield _fault(error, f"dataset {name!r}: ")
            return
        yield from self._attributes(dataset.id, name)
        self._nbytes += dataset.nbytes
        if dataset.size and not _has_checksums(dataset):
            self._unchecked.append(name)
        bar = ProgressBar(dataset.nbytes, is_wanted=progress)
        try:
            with checked_sources(dataset.id, None, allow_gaps=False):
                missing = dataset.missing_filter()  # which chunks may have been stored without
                for box in dataset.boxes():
                    for fault in self._box(dataset, name, box):
                        if missing is not None:
                            yield _Fault(f"dataset {name!r} {missing}", is_refusal=True)
                            return
                        yield fault
                    bar.advance(int(np.prod(box[1])) * dataset.itemsize)
        except ERRORS as error:
            yield _fault(error, f"dataset {name!r}: ")
        finally:
            bar.close()

    def _box(self, dataset: Dataset, name: str, box: Box) -> Iterator[_Fault]:
        """Read a box; where that fails, each chunk of it."""
        start, shape = box
        chunked = dataset.layout == h5d.CHUNKED
        chunk = dataset.plist.get_chunk() if chunked else shape
        try:
            dataset.read(start, shape)
        except ERRORS as error:
            if all(length <= one for length, one in zip(shape, chunk, strict=True)):
                at = ", ".join(map(str, start))
                what = "chunk at" if chunked else "elements from"
                yield _fault(error, f"dataset {name!r}, {what} ({at}): ")
                return
        else:
            return
        for offset, part in boxes(shape, chunk, dataset.itemsize, 0):
            place = tuple(a + b for a, b in zip(start, offset, strict=True))
            yield from self._box(dataset, name, (place, part))

    def _checkpoint(self) -> Iterator[_Fault]:
        """Compare a checkpoint with its manifest."""
        found = _CHECKPOINT.fullmatch(self._path.name)
        if not found:
            yield _Fault(
                "a checkpoint under another name than its own: its manifest was not compared"
            )
            return
        prefix, step = found[1], int(found[2])
        try:
            restart, report = _core.restart_open(self._path.absolute().parent, prefix, step)
        except ERRORS as error:
            yield _fault(error)
            return
        if restart is None or report["step"] != step:
            yield _Fault(report["message"] or "it is not the checkpoint that its name says")
