"""Writing a tensor as a dataset, and a tree of tensors as a group."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import index
from typing import Any, Literal, TypeAlias

import h5py

from gpufetch import _core
from gpufetch._checks import check_text
from gpufetch._tracebacks import shortened
from gpufetch.hdf5._asking import io_errno, require_object
from gpufetch.hdf5._binding import phil, require_binding
from gpufetch.hdf5._files import make_error, write_file
from gpufetch.hdf5._location import FilePath, as_path, check_open, check_parent, missing_link
from gpufetch.hdf5._names import check_replaceable, give_name, remove, say_name
from gpufetch.hdf5._nested import MARK, is_tree, write_tree
from gpufetch.hdf5._numbers import as_tensor, is_numbers
from gpufetch.hdf5._watch import Watch

__all__ = ["Codec", "chunk_shape", "codec_number", "write"]

Codec: TypeAlias = Literal["gpufetch", "bitshuffle-lz4"] | None

# What an error says that has an errno.
_DAMAGED = (
    "the system failed to read or to write the file, and what was in it may be damaged, too: "
    "do not rely on the file, restore it from a copy, or write to a new file"
)

# As in gpufetch/hdf5.h.
_CODECS: dict[str | None, int] = {"gpufetch": 0, None: 1, "bitshuffle-lz4": 2}


@shortened
def write(
    dest: h5py.Group | FilePath,
    name: str,
    x: Any,
    *,
    chunks: tuple[int, ...] | None = None,
    codec: Codec = "gpufetch",
    attrs: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> h5py.Dataset | h5py.Group | None:
    """Create dataset `name` under `dest` and write every element of `x` into it.

    Parameters
    ----------
    dest
        An open, writable ``h5py.File`` or ``h5py.Group``; or the path of a file, which is created
        if it does not exist, and is closed again before this returns.
    name
        Path of the new dataset below `dest`. Missing groups are created.
    x
        Any tensor that :func:`gpufetch.asdevice` takes, or an ``ndarray``, of any shape, layout
        and byte order; a number; or a list or tuple of numbers, which is stored as the array that
        NumPy makes of it. It may be changed once this returns.

        Or a tree: a dict, list or tuple with tensors in it, nested 100 deep at most, as a
        ``state_dict``. It becomes a group, and :func:`read` of the group gives it back. Beside
        tensors it may hold numbers, text, bytes and ``None``, which come back as they were.
        Keys of a dict are text without ``/``, or all of them integers. Mappings of other types
        come back as dicts. Anything else, a namedtuple among it, is refused.
    chunks
        Length of a chunk along each axis of `x`, from 1 to that axis's length. By default a chunk
        holds about 1 MiB of elements, in long rows. A 0-d or empty `x` is stored without chunks.
    codec
        ``"gpufetch"`` encodes chunks losslessly. ``None`` stores plain chunks, which any HDF5
        reads without a plugin. ``"bitshuffle-lz4"`` is HDF5's filter 32008: its chunks are larger,
        and readers need hdf5plugin instead of gpufetch.
    attrs
        Attributes to set on the dataset, or on the group of a tree.
    overwrite
        Whether to replace a dataset or a tree of that name. The new one is written beside it and
        takes its name only when it is complete; until then the file needs space for both. It
        has the attributes of this call alone; other links to the old one, and open objects, keep
        the old one. HDF5 does not make the file smaller: the space of the old one is used again
        for what is written until the file is closed, and is lost then (``gpufetch repack`` makes
        a file without it). A soft or external link of that name is replaced, and what it leads to
        stays.
    progress
        Whether to show a tqdm bar of what is in the file already, if tqdm is installed and this
        takes more than half a second.

    Returns
    -------
    h5py.Dataset, h5py.Group or None
        The new dataset, or the group of a tree; ``None`` if `dest` is a path.

    Raises
    ------
    ValueError
        `dest` is closed or read-only, a name or text has a NUL in it or is not UTF-8, `chunks`
        does not fit, a list is ragged; `name` exists already and `overwrite` is false, or it is a
        group that is no tree.
    TypeError
        `x` is no tensor, or has a dtype that cannot be stored. For trees, this and ValueError say
        where in it (``tree['layers'][3]: ...``).
    gpufetch.Error
        HDF5 or the device failed; HDF5's own messages are quoted.

    After an error there is what was there before: what this call created is removed again, and so
    is a file that it created. Three things are otherwise. Ctrl-C that comes, or memory that runs
    out, when all is written may leave the new one, complete, in the old one's place. Where the
    system fails to read or to write the file, as on a full or a failing disk, what was in the file
    before may be damaged, too, even where HDF5 can close it: do not rely on such a file. The error
    is a gpufetch.Error with errno as ``native_code`` that says so. Nothing more is done to the file
    then: the new one may stay in it under a name that begins with ``.gpufetch-new-``, and the old
    one under one with ``.gpufetch-old-``; the error says which. A file that HDF5 cannot close may
    be unreadable, and this process refuses to read and write it by its path until it is replaced.
    To be safe from that, write to a new file. And a group of HDF5's oldest form, in which h5py
    makes files by default, becomes one of a newer form with the first new name: where HDF5 gets no
    memory at that moment, the names in that group may be lost.
    """
    require_binding()
    codec_number(codec)
    if not isinstance(name, str):
        raise TypeError(f"name is of type {type(name).__name__}: give text, as 'group/x'")
    check_text(name, "name")
    if attrs is not None:
        _check_attributes(attrs)
    if chunks is not None:
        chunks = chunk_shape(chunks)
    with Watch(x, is_wanted=progress) as watch:
        call = _Write(name, x, chunks, codec, attrs, overwrite, watch)
        if isinstance(dest, h5py.Group):
            return call.run(dest)
        write_file(as_path(dest, "dest"), name, call.run)
        return None


def codec_number(codec: Any) -> int:
    """The gpuf_h5_codec of a codec's name; ValueError for one that is unknown."""
    if not isinstance(codec, str | None) or codec not in _CODECS:
        raise ValueError(
            f"codec {codec!r} is unknown: give 'gpufetch', 'bitshuffle-lz4', or None for plain "
            "chunks"
        )
    return _CODECS[codec]


def _check_attributes(attrs: Any) -> None:
    if not isinstance(attrs, Mapping):
        raise TypeError(f"attrs is of type {type(attrs).__name__}: give a dict of names and values")
    for key in attrs:
        if key in ("", b""):
            raise ValueError(f"attrs[{key!r}] is {attrs[key]!r:.80}: give it a name")
        if key in (MARK, MARK.encode()):
            raise ValueError(
                f"attrs[{key!r}] is {attrs[key]!r}: that name is reserved, it says what a tree was "
                "made of; leave it out"
            )


def chunk_shape(chunks: Any) -> tuple[int, ...]:
    """The lengths of a chunk, as integers; TypeError for anything else."""
    try:
        return tuple(map(index, chunks))
    except TypeError as error:
        raise TypeError(
            f"chunks is {chunks!r}: give a tuple with an integer for each axis of x"
        ) from error


@dataclass(frozen=True)
class _Write:
    """One call of write."""

    name: str
    x: Any
    chunks: tuple[int, ...] | None
    codec: Codec
    attrs: Mapping[str, Any] | None
    overwrite: bool
    watch: Watch

    def run(self, group: h5py.Group) -> h5py.Dataset | h5py.Group:
        check_open(group, "dest")
        try:
            return self._run(group)
        except Exception as error:
            code = io_errno(error)
            if not code or not group:
                raise
            raise make_error(f"{_said(error)}; {_DAMAGED}", code) from error

    def _run(self, group: h5py.Group) -> h5py.Dataset | h5py.Group:
        missing = missing_link(group, self.name)
        is_there = missing is None and bool(self.name.strip("/"))
        if is_there and not self.overwrite:
            raise ValueError(
                f"{self.name!r} exists already in {group.file.filename}: choose another name, or "
                "give overwrite=True"
            )
        if missing is not None:
            check_parent(group, self.name, missing)
        if is_there or self._is_tree():
            self._create_beside(group, missing or self.name, is_there=is_there)
            return require_object(group, self.name)
        return self._create(group, missing)

    def _is_tree(self) -> bool:
        return is_tree(self.x) and not is_numbers(self.x)

    def _create(self, group: h5py.Group, missing: str | None) -> h5py.Dataset:
        """Create a new dataset; after a failure, remove it and the groups from `missing` on."""
        made: list[None] = []
        try:
            tensor = as_tensor(self.x)
            with self.watch.written(group, self.name, tensor):
                # C calls C in this line: no signal's handler runs between the write and its record.
                made.extend(map(self._writer(group, self.name), [tensor]))
            found = require_object(group, self.name)
            self._set_attributes(found)
            return found
        except BaseException as error:
            if io_errno(error):
                if made:
                    error.add_note(f"{self.name!r} is in the file, incomplete")
            elif made or not group:
                remove(group, self.name, missing, error)
            raise

    def _create_beside(self, group: h5py.Group, name: str, *, is_there: bool) -> None:
        """Create all of it beside `name`, where nobody looks for it, and then give it its name."""
        _check_name(group, self.name)
        if is_there:
            check_replaceable(group, self.name)
        folder, slash, _ = name.rstrip("/").rpartition("/")
        new = f"{folder}{slash}.gpufetch-new-{uuid.uuid4().hex}"
        try:
            if self._is_tree():
                if self.chunks is not None:
                    raise ValueError("chunks is for one tensor, and x is a tree of them")
                write_tree(group, new, self.x, self._write_dataset, _write_plain)
            else:
                self._write_dataset(group, new, self.x)
            self._set_attributes(require_object(group, new))
            give_name(group, new, self.name)
        except BaseException as error:
            say_name(error, new, self.name)
            if io_errno(error):
                error.add_note(f"{new!r} may be in the file, incomplete")
            else:
                remove(group, new, None, error)
            raise

    def _set_attributes(self, made: h5py.Dataset | h5py.Group) -> None:
        for key, value in (self.attrs or {}).items():
            if isinstance(key, str | bytes):
                check_text(os.fsdecode(key), "attribute")
            if isinstance(value, str):
                check_text(value, f"attrs[{key!r}]")
            try:
                made.attrs[key] = value
            except TypeError as error:
                raise TypeError(
                    f"attrs[{key!r}] is of type {type(value).__name__} and cannot be stored; names "
                    f"are text, values are numbers, text or arrays of them: {error}"
                ) from error
            except ValueError as error:
                raise ValueError(f"attrs[{key!r}]: {error}") from error

    def _write_dataset(self, group: h5py.Group, name: str, x: Any) -> None:
        tensor = as_tensor(x)
        with self.watch.written(group, name, tensor):
            self._writer(group, name)(tensor)

    def _writer(self, group: h5py.Group, name: str) -> Callable[[Any], None]:
        """What writes a tensor as a new dataset, in C."""
        return partial(
            _core.h5_write,
            phil,
            group.id.id,
            name,
            chunks=self.chunks,
            codec=_CODECS[self.codec],
        )


def _said(error: BaseException) -> str:
    """What an error and its notes say."""
    text = str(error.args[-1] if error.args else error)
    return "; ".join([text, *getattr(error, "__notes__", [])])


def _write_plain(group: h5py.Group, name: str, x: Any) -> None:
    """Write numbers of Python's that a tree holds, so that any HDF5 reads them."""
    _core.h5_write(phil, group.id.id, name, x, codec=_CODECS[None])


def _check_name(group: h5py.Group, name: str) -> None:
    if not name.strip("/"):
        raise ValueError("name is empty: name the group that is to hold the tree")
    if not {"", ".", ".."}.isdisjoint(name.removeprefix("/").split("/")):
        raise ValueError(f"{name!r} is no path: its parts are not empty, not '.' and not '..'")
    if group.file.mode == "r":
        raise ValueError(f"{name!r} cannot be written: the file was opened read-only")
