"""h5py's own subscripts of datasets, read by several threads where the result is the same."""

from __future__ import annotations

import math
from types import TracebackType
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
from h5py import h5d, h5t, h5z

from gpufetch import _core
from gpufetch.hdf5._binding import phil, require_binding
from gpufetch.hdf5._filters import BITSHUFFLE_ID, FILTER_IDS
from gpufetch.hdf5._stored import has_short_chunks
from gpufetch.hdf5._types import is_native

__all__ = ["Acceleration", "accelerate"]

_NBYTES_MIN = 1 << 20
"""Smaller reads are h5py's: starting threads takes longer than it saves."""
_STEPS = {h5z.FILTER_DEFLATE, h5z.FILTER_SHUFFLE, h5z.FILTER_FLETCHER32}
"""Filters of HDF5 itself that gpufetch undoes in any number and order."""
_KEY = "_gpufetch_reads"

_original = h5py.Dataset.__getitem__
_running: set[Acceleration] = set()


class Acceleration:
    """Reads of h5py's datasets are accelerated until :meth:`stop`, or to the end of a ``with``.

    Thread-safety: all methods may be called from any thread.
    """

    def stop(self) -> None:
        """End what :func:`accelerate` began; a second call does nothing."""
        with phil:
            _running.discard(self)
            # Another package may have put its own function over this one: then it stays.
            if not _running and h5py.Dataset.__getitem__ is _getitem:
                h5py.Dataset.__getitem__ = _original

    def __enter__(self) -> Acceleration:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def accelerate() -> Acceleration:
    """Let ``dataset[...]`` of h5py be read and decoded by several threads.

    It holds for the whole process, until each :class:`Acceleration` that was returned is stopped.
    The elements, their dtype and shape, and the exceptions are those of h5py.

    Accelerated are integers, floats, bool and complex numbers of the CPU's byte order in chunks of
    gpufetch, of bitshuffle with LZ4, or of HDF5's own gzip, shuffle and fletcher32, in a plain file
    that is open for reading only, where the subscript has integers, slices without a step and
    ``...``, and takes 1 MiB or more. h5py reads everything else, and what fails. Chunks of gzip are
    inflated by libdeflate if it is installed, else by zlib.

    Raises
    ------
    RuntimeError
        h5py's HDF5 library could not be bound.
    """
    global _original
    require_binding()
    acceleration = Acceleration()
    with phil:
        if not _is_patched():
            _original = h5py.Dataset.__getitem__
            h5py.Dataset.__getitem__ = _getitem
        _running.add(acceleration)
    return acceleration


def _is_patched() -> bool:
    """Whether subscripts come here, perhaps by way of another package's function."""
    return bool(_running) or h5py.Dataset.__getitem__ is _getitem


def _getitem(self: h5py.Dataset, args: Any, new_dtype: Any = None) -> Any:
    if _running and new_dtype is None:
        values = _read(self, args if type(args) is tuple else (args,))
        if values is not None:
            return values
    return _original(self, args, new_dtype)


def _read(dataset: h5py.Dataset, args: tuple[Any, ...]) -> npt.NDArray[Any] | None:
    """The elements; None where h5py is to read them, or to say what is wrong."""
    try:
        known = dataset.__dict__.get(_KEY)
        if known is None:
            known = dataset.__dict__[_KEY] = _inspected(dataset) or ()
        if not known or not dataset.id.valid:
            return None
        box = _box(dataset.shape, args)
        if box is None:
            return None
        shape = tuple(length for length in box[1] if length >= 0)
        # h5py gives one element as a scalar of NumPy, or as an array for `...`.
        if not shape or math.prod(shape) * known[0].itemsize < _NBYTES_MIN:
            return None
        values = np.empty(shape, known[0])
        _core.h5_read(phil, dataset.id.id, region=box, out=values)
    except Exception as error:
        if not _is_of_read(error):
            raise
        # HDF5 would end the process by them.
        if isinstance(error, _core.Error) and has_short_chunks(dataset.id):
            raise OSError(str(error)) from error
        return None
    return values


def _is_of_read(error: Exception) -> bool:
    """Whether the reading has raised it, and no handler of a signal that came meanwhile."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    return str(name).partition(".")[0] in ("gpufetch", "h5py", "numpy")


def _inspected(dataset: h5py.Dataset) -> tuple[np.dtype[Any]] | None:
    """The dtype of a dataset that may be accelerated."""
    with phil:
        # As its first read does, so that a closed dataset fails as it would have.
        if getattr(dataset, "_fast_read_ok", False):
            getattr(dataset, "_fast_reader", None)
        file, plist, tid = dataset.file, dataset.id.get_create_plist(), dataset.id.get_type()
        if file.mode != "r" or plist.get_layout() != h5d.CHUNKED:
            return None
        filters = [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]
        if (
            file.driver != "sec2"
            or file.swmr_mode
            or not _are_undone(filters)
            or not all(map(h5z.filter_avail, filters))
            or not is_native(tid)
            or not _same_bits(tid, dataset.dtype)
        ):
            return None
        return (dataset.dtype,)


def _are_undone(filters: list[int]) -> bool:
    """Whether gpufetch itself decodes chunks behind these filters."""
    return filters in ([number] for number in (*FILTER_IDS, BITSHUFFLE_ID)) or (
        bool(filters) and _STEPS.issuperset(filters)
    )


def _same_bits(tid: Any, dtype: np.dtype[Any]) -> bool:
    """Whether NumPy's elements are those of the file; h5py widens bfloat16 and float8."""
    if dtype.metadata or dtype.char not in "?bBhHiIlLqQefdFD":
        return False
    return bool(h5t.py_create(dtype, logical=True).equal(tid))


def _box(
    shape: tuple[int, ...], args: tuple[Any, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The start and the lengths, -1 for an integer; None for another kind of subscript."""
    kinds = [type(arg) for arg in args]
    if kinds.count(type(Ellipsis)) > 1 or len(args) - kinds.count(type(Ellipsis)) > len(shape):
        return None
    left = len(shape) - len(args)
    at = kinds.index(type(Ellipsis)) if type(Ellipsis) in kinds else len(args)
    whole = (slice(None),) * (left + (at < len(args)))
    starts, lengths = [], []
    for arg, extent in zip((*args[:at], *whole, *args[at + 1 :]), shape, strict=True):
        if type(arg) is int and -extent <= arg < extent:
            starts.append(arg % extent)
            lengths.append(-1)
        elif type(arg) is slice and arg.step in (None, 1):
            start, stop, _ = arg.indices(extent)
            if stop <= start:
                return None
            starts.append(start)
            lengths.append(stop - start)
        else:
            return None
    return tuple(starts), tuple(lengths)
