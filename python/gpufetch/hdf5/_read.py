"""Reading a dataset, or a selection of it, into device or host memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar, overload

import h5py
import numpy as np
import numpy.typing as npt

from gpufetch import _core
from gpufetch._tracebacks import shortened
from gpufetch.hdf5._binding import phil, require_binding
from gpufetch.hdf5._boxes import Box
from gpufetch.hdf5._files import opened
from gpufetch.hdf5._location import FilePath, as_path, check_open, item_in
from gpufetch.hdf5._nested import read_tree
from gpufetch.hdf5._selection import Selection, select
from gpufetch.hdf5._sparse import read_around
from gpufetch.hdf5._types import has_swapped_sequences, type_name
from gpufetch.hdf5._virtual import OpenSources, checked_sources

__all__ = ["check_out", "read", "read_dataset"]


_Out = TypeVar("_Out")
_Device: TypeAlias = Literal[
    "host:0", "cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4", "cuda:5", "cuda:6", "cuda:7"
]
_Source: TypeAlias = "h5py.Dataset | h5py.Group | FilePath"

# The packages whose tensors are never written to.
_IMMUTABLE = ("jax", "jaxlib", "tensorflow")


@overload
def read(
    src: _Source,
    name: str | None = None,
    *,
    selection: Any = None,
    device: None = None,
    out: _Out,
    allow_gaps: bool = False,
) -> _Out: ...
@overload
def read(
    src: _Source,
    name: str | None = None,
    *,
    selection: Any = None,
    device: Literal["cpu"],
    out: None = None,
    allow_gaps: bool = False,
) -> npt.NDArray[Any]: ...
@overload
def read(
    src: _Source,
    name: str | None = None,
    *,
    selection: Any = None,
    device: _Device | None = None,
    out: None = None,
    allow_gaps: bool = False,
) -> _core.DeviceArray: ...
@overload
def read(
    src: _Source,
    name: str | None = None,
    *,
    selection: Any = None,
    device: str | None = None,
    out: None = None,
    allow_gaps: bool = False,
) -> _core.DeviceArray | npt.NDArray[Any]: ...


@shortened
def read(
    src: _Source,
    name: str | None = None,
    *,
    selection: Any = None,
    device: str | None = None,
    out: Any = None,
    allow_gaps: bool = False,
) -> Any:
    """Read a dataset, or a selection of it, into device or host memory.

    The dataset may have any layout and any filter that HDF5 finds. Plain chunks and those of
    gpufetch, of bitshuffle with LZ4, and of HDF5's own gzip, shuffle and fletcher32 are read and
    decoded by several threads at once; HDF5 itself reads everything else.

    Parameters
    ----------
    src
        An open ``h5py.Dataset``; or an ``h5py.File``, ``h5py.Group`` or the path of a file that
        holds the dataset or tree `name`.
    name
        Path of the dataset below `src`; left out if `src` is the dataset.
    selection
        What to read, as NumPy indexes: integers, slices, ``...``, arrays of integers, masks, and
        in a tuple ``None`` for a new axis; and names of fields of a compound, as h5py takes them.
        By default everything. Only the box around the selection is read, and of an array of
        integers or a mask that names few of the box's rows only these, chunk by chunk; steps,
        arrays, new axes and fields are then selected in host memory.
    device
        ``"cuda:0"`` or ``"host:0"`` for a DeviceArray there, ``"cpu"`` for an ndarray. By default
        the default device.
    out
        Where to read to instead of a new array: a writable ndarray or device tensor of the
        result's shape and dtype, in any layout. On failure it may be partly overwritten.
    allow_gaps
        For virtual datasets: whether sources may be missing. Their elements are then the fill
        value, as in HDF5. By default each source from which elements are taken must be there.
        Elements are read from the checked sources themselves where these map boxes, or steps along
        axes. HDF5 reads the rest and finds each source again: the sources are checked once more
        afterwards, and one alone that goes and comes back meanwhile is not noticed.

    Returns
    -------
    DeviceArray or numpy.ndarray
        The elements, with the selection's shape, in C order and in native byte order; or `out`.
        Enumerations come as their integers. With ``device="cpu"``, a type that has no dtype on a
        device (strings, compounds, opaque bytes, ``h5py.Empty``, ...) comes as h5py gives it.

        If `name` is a tree that :func:`write` made: the tree, each of its tensors read so. Type
        checkers cannot know this and see an array; annotate the result as ``Any``.

    Raises
    ------
    ValueError
        `src` is closed, `name` has a NUL in it, or `out` does not fit, is read-only, or has
        elements that share memory; or a source of a virtual dataset has another dtype or too few
        elements, or HDF5 would leave out fill values of it.
    OSError
        A file, or what `name` leads to, does not open or cannot be read; or a source of a virtual
        dataset is missing, does not open, or was replaced while it was read. The message names it
        and the places where it was looked for.
    IndexError
        `selection` does not fit.
    KeyError
        There is no `name` in `src`, as HDF5 says; where HDF5 cannot tell, it is OSError.
    TypeError
        The dataset's type, or that of `out`, has no dtype on a device; the message says what it is.
        Or `out` is a masked array, or a LazyArray, which only reads its tensor.
    gpufetch.Error
        HDF5 or the device failed, or a chunk is damaged; the message names the chunk.

    A chunk of a newer format, as one whose version byte is damaged seems to be, is a TypeError;
    what a Python file object raises while HDF5 reads or writes it comes through.
    """
    require_binding()
    if device is not None and out is not None:
        raise ValueError("give device or out, not both: out is on a device already")
    check_out(out)
    if isinstance(src, h5py.Dataset):
        if name is not None:
            raise ValueError(f"name {name!r} was given, but src is a dataset already")
        return _read_item(src, selection, device, out, allow_gaps)
    if name is None:
        raise ValueError("name the dataset to read: src is a file or group")
    if isinstance(src, h5py.Group):
        return _read_item(item_in(src, name), selection, device, out, allow_gaps)
    path = as_path(src, "src")
    with opened(path) as file:
        return _read_item(item_in(file, name), selection, device, out, allow_gaps)


def check_out(out: Any) -> None:
    """Refuse an `out` that cannot be filled, before anything is read.

    What is not an ndarray is checked by the copy into it.
    """
    if isinstance(out, np.ndarray):
        if not out.flags.writeable:
            raise ValueError("out is read-only: give a writable array")
        _core.check_out(np.broadcast_to(np.zeros((), out.dtype), out.shape), out)
    elif hasattr(type(out), "_gpufetch_view"):
        raise TypeError(
            f"out is a {type(out).__name__}, a reader of its tensor, which is not written to "
            "through it: give the tensor itself, which a LazyArray has as out.source"
        )
    elif type(out).__module__.partition(".")[0] in _IMMUTABLE:
        raise TypeError(
            f"out is a {type(out).__name__}, which other names may share, since it is immutable: "
            "leave out= away, or give None in its place in a tree, and hand what is read to "
            "gpufetch.convert"
        )


def _read_item(
    item: h5py.Dataset | h5py.Group,
    selection: Any,
    device: str | None,
    out: Any,
    allow_gaps: bool,
) -> Any:
    if isinstance(item, h5py.Dataset):
        return _read(item, selection, device, out, allow_gaps)
    if selection is not None or out is not None:
        raise ValueError(f"{item.name!r} is a tree: selection and out are for one dataset of it")

    def read_on(where: str | None) -> Callable[[h5py.Dataset], Any]:
        return lambda dataset: _read(dataset, None, where, None, allow_gaps)

    return read_tree(item, read_on(device), read_on("cpu"))


def read_dataset(dataset: h5py.Dataset, *, device: str | None, out: Any = None) -> Any:
    """Read all of an open dataset, as :func:`read` does; `check_out` has checked `out`."""
    return _read(dataset, None, device, out, False)


def _read(
    dataset: h5py.Dataset, selection: Any, device: str | None, out: Any, allow_gaps: bool
) -> Any:
    check_open(dataset, "src")
    selected, box = None, None
    fields, selection = _split_fields(dataset, selection)
    if selection is not None and dataset.shape is not None:
        selected = select(dataset.shape, selection)
        box = selected.box[0], tuple(map(abs, selected.box[1]))
    with checked_sources(dataset.id, box, allow_gaps=allow_gaps) as sources:
        if fields is not None:
            values = _as_h5py_gives(dataset, selection, selected, sources, fields)
            is_numbers = isinstance(values, np.ndarray) and values.dtype.kind in "biufc"
            values = _native(values) if is_numbers or device != "cpu" else values
            return values if device == "cpu" else _delivered(values, device, out)
        try:
            return _numbers(dataset, selection, selected, device, out, sources)
        except TypeError:
            _check_has_dtype(dataset)
            if device != "cpu":
                raise
            return _as_h5py_gives(dataset, selection, selected, sources)


def _check_has_dtype(dataset: h5py.Dataset) -> None:
    """TypeError for elements that NumPy cannot hold, such as integers of 3 bytes."""
    try:
        dataset.dtype  # noqa: B018
    except (TypeError, ValueError) as error:
        with phil:
            name = type_name(dataset.id.get_type())
        raise TypeError(
            f"{dataset.name!r} in {dataset.file.filename} holds elements that NumPy has no dtype "
            f"for ({name}: {error}): let HDF5 convert them, by dataset.id.read with an array and a "
            "memory type of another size"
        ) from error


def _numbers(
    dataset: h5py.Dataset,
    selection: Any,
    selected: Selection | None,
    device: str | None,
    out: Any,
    sources: OpenSources | None,
) -> Any:
    """Read elements that gpufetch has a dtype for; TypeError for others.

    `sources` are those of a virtual dataset. Memory of a device takes tiles of what HDF5 reads, and
    all at once only where HDF5 cannot read it.
    """
    with phil:
        dataset_id, chunks, itemsize = dataset.id.id, dataset.chunks, dataset.dtype.itemsize
    is_on_host = out is None or isinstance(out, np.ndarray)
    if sources and dataset.shape and (is_on_host or not sources.is_filled):
        box = selected.box if selected else ((0,) * dataset.ndim, dataset.shape)
        if selected is None or selected.rest is None:
            values = sources.read((box[0], tuple(map(abs, box[1]))))
            if values is not None:
                values = values.reshape([length for length in box[1] if length >= 0])
                return _delivered(values, device, out)
    if selected is None:
        if selection is not None:
            raise TypeError(f"{dataset.name!r} has a null dataspace: nothing in it can be selected")
        return _core.h5_read(phil, dataset_id, device=device, out=out)
    if selected.rest is None:
        return _core.h5_read(phil, dataset_id, region=selected.box, device=device, out=out)

    def read_box(box: Box) -> npt.NDArray[Any]:
        found = sources.read(box) if sources and math.prod(box[1]) else None
        if found is None:
            found = _core.h5_read(phil, dataset_id, region=box, device="cpu")
        values: npt.NDArray[Any] = found
        return values

    return _delivered(read_around(selected, chunks, itemsize, read_box), device, out)


def _has_swapped_sequences(dataset: h5py.Dataset, fields: str | list[str] | None) -> bool:
    """Whether what is read has, of all fields or of these."""
    with phil:
        tid = dataset.id.get_type()
        if fields is None:
            return has_swapped_sequences(tid)
        names = [fields] if isinstance(fields, str) else fields
        numbers = [tid.get_member_index(name.encode()) for name in names]
        return any(has_swapped_sequences(tid.get_member_type(number)) for number in numbers)


def _split_fields(dataset: h5py.Dataset, selection: Any) -> tuple[Any, Any]:
    """The fields of a compound that a selection names, and the rest of it.

    As for h5py, one name gives that field, and several give a compound of them; None for no name.
    """
    items = selection if isinstance(selection, tuple) else (selection,)
    names = [item for item in items if isinstance(item, str)]
    if not names or dataset.shape is None or not dataset.dtype.names:
        return None, selection
    unknown = [name for name in names if name not in dataset.dtype.names]
    if unknown:
        raise IndexError(
            f"{dataset.name!r} has no field {unknown[0]!r}: its fields are "
            f"{', '.join(dataset.dtype.names)}"
        )
    rest = tuple(item for item in items if not isinstance(item, str))
    return names[0] if len(names) == 1 else names, rest


def _native(values: Any) -> npt.NDArray[Any]:
    """Elements that h5py read as an array of native byte order, as a device takes it."""
    array = np.asarray(values)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"fields of {array.dtype} have no dtype on a device: give device='cpu'")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _as_h5py_gives(
    dataset: h5py.Dataset,
    selection: Any,
    selected: Selection | None,
    sources: OpenSources | None,
    fields: Any = None,
) -> Any:
    """Read elements that gpufetch has no dtype for. h5py has another rule for several arrays."""
    if sources:
        sources.require_filled(has_zeros=True)
    if _has_swapped_sequences(dataset, fields):
        raise TypeError(
            f"{dataset.name!r} in {dataset.file.filename} holds sequences of big-endian numbers, "
            "which h5py gives byte-swapped: read them without h5py, by h5dump for one"
        )
    source = dataset if fields is None else dataset.fields(fields)
    if dataset.shape == () and selected is not None and selected.rest is not None:
        return _repeated(source[()], dataset.dtype if fields is None else dataset.dtype[fields])[
            np.zeros((), int)[selected.rest]
        ]
    if selected is None or dataset.shape == ():
        return source[() if selection is None else selection]
    around = source[
        tuple(
            start if length < 0 else slice(start, start + length)
            for start, length in zip(*selected.box, strict=True)
        )
    ]
    if selected.rest is None:
        return around
    if around.ndim == dataset.ndim:
        return around[selected.rest]
    # Elements that are arrays themselves add axes, which the Ellipsis would take.
    shape = around.shape[: dataset.ndim]
    places = np.arange(math.prod(shape)).reshape(shape)[selected.rest]
    return around.reshape(math.prod(shape), *around.shape[dataset.ndim :])[places]


def _repeated(element: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """An array along whose first axis there is one element, which may be an array itself."""
    if dtype.kind != "O":
        return np.asarray(element, getattr(element, "dtype", dtype))[np.newaxis]
    made = np.empty(1, object)
    made[0] = element
    return made


def _delivered(values: npt.NDArray[Any], device: str | None, out: Any) -> Any:
    """Put selected elements, which are in host memory, where the caller wants them."""
    if out is None:
        values = np.ascontiguousarray(values).reshape(values.shape)
        return values if device == "cpu" else _core.to_device(values, device=device)
    if not isinstance(out, np.ndarray):
        return _core._copy_into(out, values)
    if (out.shape, out.dtype) != (values.shape, values.dtype):
        raise ValueError(
            f"the selection has shape {values.shape} and dtype {values.dtype}, out {out.shape} and "
            f"{out.dtype}: they must be equal"
        )
    out[...] = values
    return out
