"""References by which Zarr reads chunks where they lie in an HDF5 file, as kerchunk has them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5t

from gpufetch._checks import check_int, check_path, check_regular
from gpufetch.hdf5._asking import FAILURES
from gpufetch.hdf5._refs_attributes import (
    Dimensions,
    attribute_json,
    is_dimension_alone,
    names_of,
)
from gpufetch.hdf5._refs_chunks import Places, encoded, inline, split_rows
from gpufetch.hdf5._refs_types import (
    Codec,
    Unexpressed,
    codecs_of,
    dtype_json,
    fill_bytes,
    fill_json,
    fitting,
    has_fill,
    stored_dtype,
)
from gpufetch.hdf5._tree import Entry, Tree
from gpufetch.hdf5._types import holds

__all__ = ["INLINE_NBYTES", "references"]

INLINE_NBYTES = 1 << 16
"""Elements of one dataset that references may hold themselves."""
_PROBLEMS_SHOWN = 20
_ELSEWHERE = (h5t.VLEN, h5t.REFERENCE)  # whose elements lie outside of the chunks


def references(
    path: str | os.PathLike[str],
    *,
    url: str | None = None,
    inline_nbytes: int = INLINE_NBYTES,
    leave_out: Callable[[str], object] | None = None,
) -> dict[str, Any]:
    """References to the chunks of an HDF5 file, for fsspec, Zarr and xarray; kerchunk's version 1.

    Parameters
    ----------
    path
        The file. It is read only, and no elements but those that the references hold.
    url
        Where readers find the file, such as ``https://host/run.h5``. By default its absolute path.
    inline_nbytes
        How many bytes of one dataset the references may hold themselves: text, elements that HDF5
        has to convert or decode, chunks that were stored past a filter or never written.
    leave_out
        Called with each thing that cannot be expressed, and why, which is then left out. By default
        that is an error.

    Returns
    -------
    dict
        ``{"version": 1, "refs": {...}}``: give it to ``json.dump``, or as it is to fsspec.

    Raises
    ------
    ValueError
        Something of the file cannot be expressed; the message names it and says why.
    OSError
        HDF5 cannot read the file.
    """
    check_path(path, "path")
    check_regular(path)
    check_int(inline_nbytes, "inline_nbytes", 0)
    try:
        with h5py.File(path, "r") as file, open(path, "rb") as raw:
            made = _References(file, raw, url or os.path.abspath(os.fsdecode(path)), inline_nbytes)
            made.add_all()
    except (*FAILURES, TypeError) as error:
        raise OSError(f"{os.fsdecode(path)}: {error}") from error
    if made.problems and leave_out is None:
        raise ValueError(_refusal(os.fsdecode(path), made.problems))
    if leave_out is not None:
        for problem in made.problems:
            leave_out(problem)
    return {"version": 1, "refs": made.refs}


def _refusal(path: str, problems: list[str]) -> str:
    left = len(problems) - _PROBLEMS_SHOWN
    more = f"; and {left} more" if left > 0 else ""
    return (
        f"references to {path} cannot have {len(problems)} things that are in it: leave them out "
        "(leave_out=print, --skip), or repack the file first; they are: "
        + "; ".join(problems[:_PROBLEMS_SHOWN])
        + more
    )


class _References:
    """The references of one file, and what they cannot express."""

    def __init__(self, file: h5py.File, raw: Any, url: str, inline_nbytes: int) -> None:
        self.refs: dict[str, Any] = {}
        self.problems: list[str] = []
        self._file, self._raw, self._url, self._inline_nbytes = file, raw, url, inline_nbytes
        self._dimensions = Dimensions()
        self._tree = Tree(file)

    def add_all(self) -> None:
        """Add everything there is; scales first, whose lengths their names stand for."""
        self._add_group("", self._file["/"])
        found: list[tuple[str, h5py.Dataset]] = []
        for entry in self._tree.entries:
            with self._noted(entry.path):
                item = self._item(entry)
                if isinstance(item, h5py.Group):
                    self._add_group(_key(entry.path), item)
                elif isinstance(item, h5py.Dataset) and not is_dimension_alone(item):
                    found.append((_key(entry.path), item))
        for _, dataset in found:
            with suppress(*FAILURES):  # it is noted when the dataset is added
                self._dimensions.note(dataset)
        for key, dataset in sorted(found, key=lambda item: not item[1].is_scale):
            with self._noted(b"/" + key.encode()):
                self._add_dataset(key, dataset)

    @contextmanager
    def _noted(self, path: bytes) -> Iterator[None]:
        """Note what cannot be expressed, and what HDF5 cannot read."""
        try:
            yield
        except (*FAILURES, TypeError, Unexpressed) as error:
            self.problems.append(f"{path.decode(errors='backslashreplace')}: {error}")

    def _item(self, entry: Entry) -> h5py.Group | h5py.Dataset | None:
        """What a link leads to; None for a type."""
        if entry.kind == "type":
            return None
        if entry.kind == "group":
            return self._file[entry.path]
        item = None if entry.kind in ("external", "other") else self._file.get(entry.path)
        if entry.kind == "hard" and isinstance(item, h5py.Group):
            first = entry.target.decode(errors="backslashreplace")
            raise Unexpressed(f"it is a second link to a group, which is there as {first}")
        if not isinstance(item, h5py.Dataset):
            raise Unexpressed(f"Zarr has nothing for such a link ({entry.kind}), or it is broken")
        return item

    def _add_group(self, key: str, group: h5py.Group) -> None:
        self._set(key, ".zgroup", {"zarr_format": 2})
        self._set(key, ".zattrs", self._attributes(group))

    def _set(self, key: str, name: str, value: Any) -> None:
        self.refs[f"{key}/{name}".lstrip("/")] = json.dumps(value)

    def _attributes(self, item: h5py.Group | h5py.Dataset) -> dict[str, Any]:
        made = {}
        path = item.name.encode(errors="surrogateescape")
        with self._noted(path):
            for name in names_of(item):
                with self._noted(path):
                    made[name] = attribute_json(item, name)
        return made

    # --- Datasets ---

    def _add_dataset(self, key: str, dataset: h5py.Dataset) -> None:
        if dataset.shape is None:
            raise Unexpressed("Zarr has nothing for a null dataspace")
        if dataset.is_virtual:
            raise Unexpressed("it is virtual: write references of its sources")
        shape = self._dimensions.shape(dataset)
        if shape != dataset.shape and not has_fill(dataset):
            raise Unexpressed(
                f"it has the records of {dataset.shape}, in netCDF it has the shape {shape}, and "
                "there is no fill value for the others: write them first"
            )
        try:
            array = self._stored(dataset, shape)
        except Unexpressed as error:
            array = self._held(dataset, shape, error)
        attributes = self._attributes(dataset)
        self._give_fill(dataset, array, attributes)
        names = self._dimensions.names(key.rpartition("/")[0], dataset, array.shape)
        attributes["_ARRAY_DIMENSIONS"] = names
        self._set(key, ".zarray", array.json())
        self._set(key, ".zattrs", attributes)
        for at, value in array.chunks.items():
            self.refs[f"{key}/{'.'.join(map(str, at)) or '0'}"] = value

    def _stored(self, dataset: h5py.Dataset, shape: tuple[int, ...]) -> _Array:
        """A dataset whose bytes in the file Zarr can read."""
        dtype, extra = stored_dtype(dataset.id.get_type())
        plist = dataset.id.get_create_plist()
        if plist.get_layout() == h5d.CHUNKED:
            return self._chunked(dataset, shape, dtype, extra)
        shape = (*shape, *extra)
        if plist.get_layout() != h5d.CONTIGUOUS or plist.get_external_count():
            raise Unexpressed("its elements are not in a row in the file")
        array = _Array(dtype, shape, split_rows(shape, dtype.itemsize))
        offset = dataset.id.get_offset()
        nbytes = dtype.itemsize * int(np.prod(array.chunk, dtype=object))
        # Where no element was written HDF5 adds the user block to an address that is none.
        if offset is None or offset < dataset.file.userblock_size:
            count = int(np.prod(shape, dtype=object))
            array.is_sparse = dtype.itemsize * count > self._inline_nbytes
            if count and not array.is_sparse:
                data = _fill_of(dataset, array).tobytes() * count
                array.chunks[(0,) * len(shape)] = inline(data)
            return array
        counts = [n // c for n, c in zip(shape, array.chunk, strict=True)]
        for index, at in enumerate(np.ndindex(*counts)):
            array.chunks[at] = [self._url, offset + index * nbytes, nbytes]
        return array

    def _chunked(
        self,
        dataset: h5py.Dataset,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        extra: tuple[int, ...],
    ) -> _Array:
        plist = dataset.id.get_create_plist()
        filters = [plist.get_filter(i) for i in range(plist.get_nfilters())]
        array = _Array(dtype, (*shape, *extra), (*dataset.chunks, *extra))
        nbytes = dtype.itemsize * int(np.prod(array.chunk, dtype=object))
        array.codecs = codecs_of(filters, dtype, nbytes)
        places = Places(dataset, shape, self._raw)
        if any(codec["id"] == "imagecodecs_lz4h5" for codec in array.codecs):
            places.check_bitshuffle()
        end = (0,) * len(extra)
        for at, (offset, size) in places.of.items():
            array.chunks[(*at, *end)] = [self._url, offset, size]
        self._hold_chunks(dataset, array, places, end)
        return array

    def _hold_chunks(
        self, dataset: h5py.Dataset, array: _Array, places: Places, end: tuple[int, ...]
    ) -> None:
        """Hold the chunks that were stored past a filter; and those that were never written.

        Otherwise xarray would take the latter's elements for missing ones.
        """
        fill = _fill_of(dataset, array)
        left = self._inline_nbytes
        for at in places.past:
            chunk = inline(encoded(places.elements(at, fill), array.codecs, dataset))
            left -= len(chunk)
            if left < 0:
                raise Unexpressed(
                    f"{len(places.past)} of its chunks were stored past a filter, more than "
                    f"{self._inline_nbytes} bytes (--inline)"
                )
            array.chunks[(*at, *end)] = chunk
        array.is_sparse = places.missing_count > 0
        if not array.is_sparse or places.missing_count * 40 > left:
            return
        nbytes = array.dtype.itemsize * int(np.prod(array.chunk, dtype=object))
        raw = fill.tobytes() * (nbytes // fill.nbytes)
        try:
            chunk = inline(encoded(raw, array.codecs, dataset))
        except Unexpressed:
            return
        if places.missing_count * len(chunk) <= left:
            array.chunks.update(((*at, *end), chunk) for at in places.missing())
            array.is_sparse = False

    def _held(self, dataset: h5py.Dataset, shape: tuple[int, ...], reason: Unexpressed) -> _Array:
        """A small dataset whose elements the references hold, as h5py reads them."""
        kind = dataset.id.get_type()
        nbytes = math.prod(shape) * kind.get_size()
        if nbytes > self._inline_nbytes:
            raise Unexpressed(f"{reason}, and its {nbytes} bytes are too many to hold (--inline)")
        if h5py.check_string_dtype(dataset.dtype) is not None and dataset.dtype.kind == "O":
            return self._text(dataset, shape)
        if holds(kind, *_ELSEWHERE):
            raise reason
        values = _longer(dataset, shape)
        dtype_json(values.dtype)
        array = _Array(values.dtype, values.shape, tuple(max(n, 1) for n in values.shape))
        if values.size:
            array.chunks[(0,) * values.ndim] = inline(values.tobytes())
        return array

    def _text(self, dataset: h5py.Dataset, shape: tuple[int, ...]) -> _Array:
        """Text of variable length, in one chunk of numcodecs' vlen-utf8."""
        values = _longer(dataset, shape)
        data = [len(values.reshape(-1)).to_bytes(4, "little")]
        for item in values.reshape(-1):
            item.decode()  # UnicodeDecodeError is a ValueError, and says what is wrong
            data += [len(item).to_bytes(4, "little"), item]
        whole = b"".join(data)
        if len(whole) > self._inline_nbytes:
            raise Unexpressed(f"its text of {len(whole)} bytes is too long to hold (--inline)")
        array = _Array(values.dtype, values.shape, tuple(max(n, 1) for n in values.shape))
        array.codecs = [{"id": "vlen-utf8"}]
        if values.size:
            array.chunks[(0,) * values.ndim] = inline(whole)
        return array

    def _give_fill(self, dataset: h5py.Dataset, array: _Array, attributes: dict[str, Any]) -> None:
        """Set the fill value: xarray takes elements that equal it for missing ones.

        It is that of the attribute, which says just this, or, where elements were never written,
        what HDF5 reads there. An attribute that no element can equal stays one, as xarray has it.
        """
        if array.dtype.kind == "O":
            return
        marked = None
        is_marked = "_FillValue" in attributes and np.size(dataset.attrs["_FillValue"]) == 1
        if is_marked:
            value = np.asarray(dataset.attrs["_FillValue"]).reshape(())
            if value.dtype.kind in "OSU" and array.dtype.kind in "biufc":
                raise Unexpressed(f"its attribute _FillValue is text, {str(value[()])!r}")
            kinds = array.dtype.kind, value.dtype.kind
            if kinds in (("i", "i"), ("i", "u")) and attributes.get("_Unsigned") == "true":
                marked = value.astype(array.dtype)  # as xarray does
            else:
                marked = fitting(value, array.dtype)
        if array.is_sparse:
            fill = _fill_of(dataset, array)
            if is_marked and (marked is None or marked.tobytes() != fill.tobytes()):
                raise Unexpressed(
                    "it has chunks that were never written, whose elements are not its _FillValue"
                )
            array.fill = fill_json(array.dtype, fill)
        elif marked is not None:
            # xarray takes every NaN for a missing element: the bits of this one matter to nobody.
            is_nan = array.dtype.kind == "f" and bool(np.isnan(marked))
            array.fill = "NaN" if is_nan else fill_json(array.dtype, marked)
        if marked is not None:
            del attributes["_FillValue"]


class _Array:
    """What .zarray says of an array, and its chunks: inline text, or place and size in the file."""

    def __init__(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], chunk: tuple[int, ...]
    ) -> None:
        self.dtype, self.shape, self.chunk = dtype, shape, chunk
        self.codecs: list[Codec] = []
        self.chunks: dict[tuple[int, ...], str | list[Any]] = {}
        self.is_sparse = False  # chunks were never written
        self.fill: Any = None

    def json(self) -> dict[str, Any]:
        """.zarray; the last codec of the pipeline is its compressor, but for that of text."""
        count = len(self.codecs) - (self.dtype.kind != "O")
        return {
            "zarr_format": 2,
            "shape": self.shape,
            "chunks": self.chunk,
            "dtype": "|O" if self.dtype.kind == "O" else dtype_json(self.dtype),
            "order": "C",
            "fill_value": self.fill,
            "filters": self.codecs[:count] or None if self.codecs else None,
            "compressor": self.codecs[-1] if self.codecs and self.dtype.kind != "O" else None,
            "dimension_separator": ".",
        }


def _fill_of(dataset: h5py.Dataset, array: _Array) -> np.ndarray[Any, Any]:
    """The scalar that HDF5 reads where nothing was written."""
    value = fill_bytes(dataset, array.dtype)
    if len(array.shape) != dataset.ndim and any(value.tobytes()):
        raise Unexpressed("it has a fill value whose elements are arrays")
    return value


def _longer(dataset: h5py.Dataset, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The elements that h5py reads, and the fill value for the others of a longer shape."""
    values = np.asarray(dataset[()], "O" if dataset.dtype.kind == "O" else None)
    if shape == dataset.shape:
        return values
    longer = np.full(shape, dataset.fillvalue, values.dtype)
    longer[tuple(map(slice, dataset.shape))] = values
    return longer


def _key(path: bytes) -> str:
    """The key of an object: the path without its slash."""
    try:
        name = path.decode().lstrip("/")
    except UnicodeDecodeError:
        raise Unexpressed("its name is not UTF-8") from None
    if any(part.startswith(".") for part in name.split("/")):
        raise Unexpressed("a name that begins with a dot is Zarr's own")
    if "\\" in name:
        raise Unexpressed("Zarr takes the backslash of its name for a slash")
    return name
