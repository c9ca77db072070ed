"""A tree of tensors as one file, or as all that a group has, and back."""

from __future__ import annotations

import zlib
from functools import partial
from typing import Any

import h5py
import numpy as np
from h5py import h5d

from gpufetch import _core
from gpufetch._lazy.array import LazyArray
from gpufetch._progress import ProgressBar
from gpufetch._tracebacks import shortened
from gpufetch.hdf5._asking import attribute, io_errno, require_object
from gpufetch.hdf5._binding import phil, require_binding
from gpufetch.hdf5._files import opened, write_file
from gpufetch.hdf5._flat import TREE, Flat, Stored, restore
from gpufetch.hdf5._location import FilePath, as_path, check_open, item_in
from gpufetch.hdf5._names import remove, remove_attributes
from gpufetch.hdf5._nested import is_stored_tree, read_tree
from gpufetch.hdf5._new_file import new_file
from gpufetch.hdf5._read import read_dataset
from gpufetch.hdf5._stored import is_header_checked
from gpufetch.hdf5._unchanged import check_unchanged, inspected
from gpufetch.hdf5._watch import Watch
from gpufetch.hdf5._write import Codec, codec_number

__all__ = ["SUM", "dataset_of_tree", "load", "save", "text_of_tree"]

SUM = "gpufetch_state_crc32"
"""The attribute that has the CRC-32 of the text; checkpoints have none, and a seal."""

_BAR_DELAY_S = 0.5  # what takes less needs no bar
_LIBVER = ("v110", "v110")  # HDF5's first format whose metadata, chunk indexes too, has checksums


@shortened
def save(
    dest: h5py.Group | FilePath,
    tree: Any,
    *,
    codec: Codec = "gpufetch",
    overwrite: bool = False,
    sync: bool = True,
    progress: bool = False,
) -> None:
    """Save a tree of tensors, as a ``state_dict``, as one HDF5 file.

    Each tensor is a dataset whose name is its keys, with slashes between them, and keeps its dtype,
    bfloat16 and float8 too. All else, and the nesting, is in the attribute ``gpufetch_state``, as
    JSON, whose CRC-32 is in ``gpufetch_state_crc32``. :func:`load` gives the tree back, or an error
    where a dataset is another one or damaged. :class:`gpufetch.Checkpoint` saves trees in the same
    way, while the program goes on.

    Parameters
    ----------
    dest
        The path of a file, which is written under another name in the same folder: `dest` is the
        old file, or none, until the new one is whole and on the disk, also after a crash. It has
        the format of HDF5 1.10, whose metadata has checksums. Or an open ``h5py.File`` or
        ``h5py.Group`` with nothing in it, of any format.
    tree
        A dict, list or tuple, nested at most 100 levels deep, of tensors of any framework or NumPy,
        numbers, text, bytes and ``None``. It may be changed once this returns.
    codec
        As for :func:`write`. ``None`` stores plain chunks, which need no plugin. Only chunks of
        ``"gpufetch"`` have checksums: with the others a changed bit of an element is no error.
    overwrite
        Whether a file that exists is replaced. It keeps its permissions.
    sync
        Whether the file, and its name, are on the disk when this returns. If not, a crash of the
        process costs nothing, and a power cut may cost the old file and the new one.
    progress
        Whether to show a tqdm bar, if tqdm is installed and this takes more than half a second.

    Raises
    ------
    FileExistsError
        `dest` exists and `overwrite` is false.
    TypeError, ValueError
        The tree has something in it that cannot be saved; the message says where
        (``tree['layers'][3]: ...``). Or a group is not empty.
    OSError, gpufetch.Error
        The system, HDF5 or the device failed: there is what was there before, and no file of
        another name. Where all was written, and the system then failed to have the new name on the
        disk or to close the file, the new one is there, whole. After a failing or full disk, what
        was in an open file may be damaged.
    """
    require_binding()
    number = codec_number(codec)
    flat = Flat(tree)
    if isinstance(dest, h5py.Group):
        if overwrite:
            raise ValueError("overwrite is for files that are given by their paths")
        with Watch(flat.tensors, is_wanted=progress) as watch:
            _save_group(flat, number, watch, dest)
        return
    path = as_path(dest, "dest")
    with (
        new_file(path, overwrite=overwrite, sync=sync) as unnamed,
        Watch(flat.tensors, is_wanted=progress) as watch,
    ):
        write_file(str(unnamed), "the tree", partial(_write, flat, number, watch), libver=_LIBVER)


def _save_group(flat: Flat, codec: int, watch: Watch, group: h5py.Group) -> None:
    """Write a tree to an empty group, which is empty again after a failure."""
    check_open(group, "dest")
    if len(group) or attribute(group, TREE) is not None:
        raise ValueError(
            f"{group!r} is not empty: a tree is all that a group has; give create_group() of it"
        )
    try:
        _write(flat, codec, watch, group)
    except BaseException as error:
        if not io_errno(error) and group:
            for name in {name.partition("/")[0] for name in flat.names}:
                remove(group, name, None, error)
            remove_attributes(group, (TREE, SUM), error)
        raise


def _write(flat: Flat, codec: int, watch: Watch, group: h5py.Group) -> None:
    for name, x, node in zip(flat.names, flat.tensors, flat.nodes, strict=True):
        with watch.written(group, name, x):
            _core.h5_write(phil, group.id.id, name, x, codec=codec)
        node["dtype"], node["shape"], _ = inspected(h5d.open(group.id, name.encode()))
    text = flat.text()
    _write_text(group, text)
    group.attrs[SUM] = _sum(text)


def _write_text(group: h5py.Group, text: str) -> None:
    """Write the text that nests the tensors: of fixed length in a group of HDF5's newer formats.

    There it may be of any length. Text of variable length lies in a global heap, which has no
    checksum, and in whose damage HDF5 2.0 may look for the text for ever.
    """
    encoded = np.bytes_(text.encode(errors="surrogateescape"))
    if is_header_checked(group.id):
        group.attrs.create(TREE, encoded, dtype=h5py.string_dtype(length=len(encoded)))
    else:
        group.attrs[TREE] = text


def _sum(text: str) -> np.uint32:
    """CRC-32 of a text, of damaged ones too, as text_of_tree decodes them."""
    return np.uint32(zlib.crc32(text.encode(errors="surrogateescape")))


def text_of_tree(group: h5py.Group) -> tuple[str | None, bool]:
    """The text that nests the tensors of a group, None if there is none; whether save wrote it.

    ValueError where it is not the one that :func:`save` wrote, OSError if HDF5 cannot read it.
    """
    found, stored = attribute(group, TREE), attribute(group, SUM)
    if isinstance(found, bytes):  # as h5py gives a text of fixed length
        found = found.decode(errors="surrogateescape")
    text = None if found is None else str(found)
    if stored is not None and (text is None or not np.array_equal(stored, _sum(text))):
        what = "missing" if text is None else "not the text that was written"
        raise ValueError(
            f"{group!r}: attribute {TREE!r} is damaged: by {SUM!r}, its CRC-32, it is {what}"
        )
    return text, stored is not None


@shortened
def load(
    src: h5py.Group | FilePath,
    *,
    device: str | None = "cpu",
    lazy: bool = False,
    out: Any = None,
    progress: bool = False,
) -> Any:
    """Load the tree that :func:`save`, :class:`gpufetch.Checkpoint` or :func:`write` has saved.

    Parameters
    ----------
    src
        The path of a file, or an open ``h5py.File`` or ``h5py.Group``.
    device
        Where fresh arrays are made: ``"cpu"`` gives ndarrays, ``"cuda:0"`` DeviceArrays, None those
        on the default device.
    lazy
        Whether the tensors, which lie on a device, come as LazyArrays.
    out
        A tree of the same nesting whose tensors are filled and returned, on any device and of any
        framework; None in it stands for a fresh array. Numbers and text in it are not looked at.
        One tensor may be there twice, as tied weights are; where the values that were saved differ,
        it has the last ones. After a failure some are filled.
    progress
        Whether to show a tqdm bar, if tqdm is installed and this takes more than half a second.

    Raises
    ------
    ValueError
        There is no tree, or one whose attribute is damaged, or whose dataset has another dtype or
        shape than was saved or lacks a chunk; or `out` is nested otherwise, has a tensor of
        another shape or dtype, or two that overlap.
    TypeError
        `out` has a LazyArray, which only reads its tensor, or another object that is no tensor.
    OSError, gpufetch.Error
        The file does not open or is damaged, or HDF5 or the device failed. Damage in chunks without
        checksums is no error: those of ``codec=None`` and ``"bitshuffle-lz4"``, and those of
        ``gpufetch.Checkpoint(compress=False)``, for which `Checkpoint.load` and ``gpufetch verify``
        find it.
    """
    require_binding()
    if lazy and (device == "cpu" or out is not None):
        raise ValueError(
            "LazyArrays read tensors on a device: give device='cuda:0', or None for the default "
            "one, and no out"
        )
    if isinstance(src, h5py.Group):
        check_open(src, "src")
        return _load(src, device, lazy, out, progress)
    path = as_path(src, "src")
    with opened(path) as file:
        return _load(file, device, lazy, out, progress)


def _load(group: h5py.Group, device: str | None, lazy: bool, out: Any, progress: bool) -> Any:
    text, is_saved = text_of_tree(group)
    if text is None and not is_stored_tree(group):
        raise ValueError(
            f"{group!r} has no tree: gpufetch.hdf5.save and gpufetch.Checkpoint save one; read "
            "datasets with gpufetch.hdf5.read"
        )
    if text is None and out is not None:
        raise ValueError("out is for trees that gpufetch.hdf5.save or gpufetch.Checkpoint saved")
    bar = ProgressBar(
        _nbytes(group, text) if progress else 0, is_wanted=progress, delay_s=_BAR_DELAY_S
    )

    def read(dataset: h5py.Dataset, where: str | None, into: Any) -> Any:
        x = read_dataset(dataset, device=None if into is not None else where, out=into)
        bar.advance(dataset.nbytes)
        return LazyArray(x) if lazy and into is None and where != "cpu" else x

    try:
        if text is None:
            return read_tree(
                group, lambda item: read(item, device, None), lambda item: read(item, "cpu", None)
            )
        return restore(
            text,
            lambda stored, into: read(
                dataset_of_tree(group, stored, is_saved=is_saved), device, into
            ),
            out,
            where=repr(group),
        )
    finally:
        bar.close()


def dataset_of_tree(group: h5py.Group, stored: Stored, *, is_saved: bool) -> h5py.Dataset:
    """The dataset of a tensor; ValueError where there is none, or not what :func:`save` wrote.

    `is_saved`: it was save that wrote it, and not :class:`gpufetch.Checkpoint`.
    """
    try:
        found = item_in(group, stored.name)
    except KeyError:
        found = None
    if not isinstance(found, h5py.Dataset):
        raise ValueError(f"{group!r} lacks the dataset {stored.name!r} of its tree")
    if is_saved:
        check_unchanged(found, stored)
    return found


def _nbytes(group: h5py.Group, text: str | None) -> int:
    """Bytes of the tensors' elements; those of numbers may be counted or not."""
    found: list[int] = []

    def count(x: Any) -> None:
        if isinstance(x, h5py.Dataset):
            found.append(x.nbytes)

    if text is None:
        group.visititems(lambda name, item: count(item))
    else:
        restore(
            text, lambda stored, into: count(require_object(group, stored.name)), where=repr(group)
        )
    return int(np.sum(found, dtype=np.int64))
