"""Copying an HDF5 file with its datasets stored another way; the copy is checked bit for bit."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import h5py

from gpufetch._checks import check_path, check_regular
from gpufetch._progress import ProgressBar
from gpufetch.hdf5._compare import compare_files
from gpufetch.hdf5._copy import CODECS, RepackCodec, copy_file
from gpufetch.hdf5._dataset import Dataset
from gpufetch.hdf5._new_file import new_file
from gpufetch.hdf5._tree import Tree

__all__ = ["repack"]


def repack(
    source: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    *,
    codec: RepackCodec = "gpufetch",
    overwrite: bool = False,
    allow_gaps: bool = False,
    progress: bool = False,
) -> None:
    """Copy the HDF5 file `source` to `dest` with every dataset stored by `codec`.

    The copy keeps groups, links and their order, attributes, types, fill values, extensible
    shapes, dimension scales, references, a user block, and the chunk shapes of chunked datasets.
    HDF5 itself reads the copy and `source` again, and they are compared bit for bit, before the
    copy gets its name: `dest` is complete or does not exist. (gpufetch reads only chunks of
    bitshuffle where its plugin is not found.) `source` is only read. Elements are in memory in
    boxes of 32 MiB, or of one chunk where that is more; all of it takes a few times as much memory.

    Virtual datasets, and those whose elements are in other files, become ordinary ones with the
    elements that they show. External links stay links. Text and elements of variable length, and
    references, are stored without a filter. With ``"bitshuffle-lz4"``, elements that gpufetch has
    no dtype for, or of the other byte order, are compressed by gzip unless hdf5plugin is imported.

    Parameters
    ----------
    source, dest
        Paths of the file to copy and of the copy.
    codec
        ``"gpufetch"``; ``"bitshuffle-lz4"``, which hdf5plugin reads; ``"gzip"`` (with shuffle) and
        ``"none"``, which every HDF5 reads.
    overwrite
        Whether `dest` may exist. It is replaced at the end.
    allow_gaps
        Whether sources of virtual datasets may be missing, as in :func:`read`. The copy has fill
        values for their elements.
    progress
        Whether to show a tqdm bar, if tqdm is installed.

    Raises
    ------
    FileExistsError
        `dest` exists and `overwrite` is false.
    ValueError
        `codec` is unknown, `dest` is `source`, or something in `source` cannot be copied (as a
        virtual dataset whose source has another dtype): the message says what.
    OSError
        `source` cannot be read (the message names a filter whose plugin is missing, or a source of
        a virtual dataset that is), or `dest` cannot be written.
    """
    if codec not in CODECS:
        raise ValueError(f"codec {codec!r} is unknown: give one of {', '.join(CODECS)}")
    check_path(source, "source")
    check_path(dest, "dest")
    check_regular(source)
    check_regular(dest)
    source, dest = Path(source), Path(dest)
    if dest.exists() and dest.samefile(source):
        raise ValueError(f"{dest} is the source itself: give another name")
    mode = stat.S_IMODE(source.stat().st_mode)
    with new_file(dest, overwrite=overwrite, mode=mode) as unnamed:
        bar = ProgressBar(2 * _elements_nbytes(source) if progress else 0, is_wanted=progress)
        try:
            copy_file(source, unnamed, codec, bar, allow_gaps=allow_gaps)
            compare_files(source, unnamed, bar, allow_gaps=allow_gaps)
        finally:
            bar.close()


def _elements_nbytes(path: Path) -> int:
    """Bytes that the elements of all datasets of a file take when they are decoded."""
    with h5py.File(path, "r") as file:
        tree = Tree(file)
        found = [Dataset(tree.open(name), memory="bytes") for name in tree.paths("dataset")]
        return sum(dataset.nbytes for dataset in found)
