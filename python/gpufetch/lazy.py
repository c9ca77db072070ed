"""LazyArray: a device tensor that is read only where it is looked at."""

from __future__ import annotations

import html
import itertools
import operator
import reprlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufetch import _core, _reduce

__all__ = ["LazyArray", "format_nbytes", "lazy"]

# A repr shows this many values at both ends of the last two axes, in the middle of the others: at
# most 36 values, and an array of up to _REPR_SIZE values in full.
_EDGE_COUNT = 3
_REPR_NDIM = 2
REPR_NBYTES = 4096
_REPR_SIZE = 200
_LINE_WIDTH = 96


def format_nbytes(nbytes: int) -> str:
    """Write a size in bytes for people: "0 B", "960 B", "64.0 MiB"."""
    if nbytes < 1024:
        return f"{nbytes} B"
    size = float(nbytes)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1023.95:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} PiB"


def lazy(x: Any) -> LazyArray:
    """Wrap a device tensor, copying nothing: the same as `LazyArray(x)`."""
    return LazyArray(x)


class LazyArray:
    """A device tensor seen from the host: elements travel when they are indexed, not before.

    `x` is anything that `gpufetch.fetch` takes: a PyTorch, CuPy, JAX, Numba … tensor, a
    `DeviceArray`, or another LazyArray. The wrapper keeps `x` alive and copies nothing.

    `a[...]` takes integers, slices of either sign, `...` and `None` as NumPy does, pulls exactly
    those elements and returns a new NumPy array in C order (a NumPy scalar where NumPy gives
    one). `numpy.asarray(a)` and `a.fetch()` pull everything.

    The contents are live: each access reads what the tensor holds at that time, after the work
    that its framework has enqueued so far. Nothing is cached and nothing is a snapshot. If the
    tensor's shape or dtype has changed since, access raises RuntimeError.

    Raises TypeError if `x` is no tensor, and what `gpufetch.fetch` raises for a tensor that it
    cannot take. May be used from any thread.
    """

    __slots__ = ("__weakref__", "_device", "_dtype", "_shape", "_source")

    def __init__(self, x: Any) -> None:
        self._source: Any = x._source if isinstance(x, LazyArray) else x
        view = _core.asdevice(self._source)
        self._shape: tuple[int, ...] = tuple(view.shape)
        self._dtype: np.dtype[Any] = view.dtype
        self._device: str = view.device

    @property
    def source(self) -> Any:
        """The wrapped tensor itself."""
        return self._source

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type; from ml_dtypes where NumPy has no counterpart (bfloat16, float8)."""
        return self._dtype

    @property
    def device(self) -> str:
        """Where the elements are: "cuda:0", "host:0" (the fake GPU) or "cpu"."""
        return self._device

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for length in self._shape:
            size *= length
        return size

    @property
    def nbytes(self) -> int:
        """Bytes that the whole array takes on the host, packed."""
        return self.size * self._dtype.itemsize

    def fetch(self, *, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Pull every element; `out`, if given, receives them (same shape and dtype)."""
        return _core.fetch(self._view(), out=out)

    def overview(self, shape: int | Sequence[int], how: _reduce.How = "mean") -> _reduce.Overview:
        """Reduce on the device to at most `shape` cells: see `gpufetch.overview`."""
        return _reduce.overview(self._view(), shape, how)

    def stats(self) -> _reduce.Stats:
        """Count, extremes, mean and variance, computed on the device: see `gpufetch.stats`."""
        return _reduce.stats(self._view())

    def histogram(
        self, bins: int = 64, range: tuple[float, float] | None = None
    ) -> _reduce.Histogram:
        """Count elements in bins, on the device: see `gpufetch.histogram`."""
        return _reduce.histogram(self._view(), bins, range)

    def item(self) -> Any:
        """The only element, as a Python number; ValueError if there is not exactly one."""
        if self.size != 1:
            raise ValueError(f"item() needs one element; shape {self._shape} has {self.size}")
        return self.fetch().item()

    def __getitem__(self, key: Any) -> Any:
        key = _checked_key(key)
        values = _core.fetch(self._view()[key])
        if values.ndim == 0 and not any(item is Ellipsis for item in key):
            return values[()]
        return values

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of a LazyArray with no axes (shape ())")
        return self._shape[0]

    def __iter__(self) -> Iterator[Any]:
        """Pull `a[0]`, `a[1]`, … one at a time."""
        if not self._shape:
            raise TypeError("iteration over a LazyArray with no axes (shape ())")
        return (self[i] for i in range(self._shape[0]))

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(
                f"the truth value of a LazyArray with {self.size} elements is ambiguous: "
                "reduce the fetched array with any() or all()"
            )
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """Pull everything, for `numpy.asarray(a)`. `copy=False` raises ValueError."""
        if copy is False:
            raise ValueError(
                f"a LazyArray on {self._device} cannot become a NumPy array without a copy: "
                "leave out copy=False"
            )
        values = self.fetch()
        return values if dtype is None else values.astype(dtype, copy=False)

    def __dlpack__(self, **kwargs: Any) -> Any:
        """The wrapped tensor's memory, shared, for `from_dlpack` of a framework."""
        return self._view().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._view().__dlpack_device__()
        return device

    def __repr__(self) -> str:
        return f"{self._summary()}\n{self._values_text()}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        for index, line in enumerate(repr(self).split("\n")):
            if index:
                printer.break_()
            printer.text(line)

    def _repr_html_(self) -> str:
        facts = {
            "shape": self._shape,
            "dtype": self._dtype,
            "device": self._device,
            "size": format_nbytes(self.nbytes),
            "from": f"{type(self._source).__module__}.{type(self._source).__qualname__}",
        }
        head = "".join(f"<th style='text-align:left'>{name}</th>" for name in facts)
        row = "".join(
            f"<td style='text-align:left'>{html.escape(str(value))}</td>"
            for value in facts.values()
        )
        return (
            f"<b>LazyArray</b><table><thead><tr>{head}</tr></thead>"
            f"<tbody><tr>{row}</tr></tbody></table><pre>{html.escape(self._values_text())}</pre>"
        )

    def _view(self) -> _core.DeviceArray:
        # Asked for anew at every access: so the framework orders this read after the work that
        # it has enqueued by now.
        view = _core.asdevice(self._source)
        if tuple(view.shape) != self._shape or view.dtype != self._dtype:
            raise RuntimeError(
                f"the tensor behind this LazyArray changed from shape {self._shape}, dtype "
                f"{self._dtype} to shape {tuple(view.shape)}, dtype {view.dtype}: "
                "make a new LazyArray"
            )
        return view

    def _summary(self) -> str:
        return (
            f"LazyArray(shape={self._shape}, dtype={self._dtype}, {self._device}, "
            f"{format_nbytes(self.nbytes)})"
        )

    def _values_text(self) -> str:
        try:
            return _values_text(self._view())
        except Exception as error:  # a repr that raises hides the object that is to be debugged
            return f"values not readable: {type(error).__name__}: {error}"


def _checked_key(key: Any) -> tuple[Any, ...]:
    """Return the index as a tuple of int, slice, Ellipsis and None; IndexError for the rest."""
    items = key if isinstance(key, tuple) else (key,)
    return tuple(_checked_item(item) for item in items)


def _checked_item(item: Any) -> Any:
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if not isinstance(item, bool | np.bool_):
        try:
            return operator.index(item)
        except TypeError:
            pass
    raise IndexError(
        f"index {reprlib.repr(item)} of type {type(item).__name__} is not pulled lazily: use "
        "integers, slices, ... and None, or index the whole array with fetch()[...]"
    )


def _values_text(view: _core.DeviceArray) -> str:
    """Format the values as NumPy does, pulling at most REPR_NBYTES from the device."""
    if view.size <= _REPR_SIZE and view.nbytes <= REPR_NBYTES:
        return np.array2string(_core.fetch(view), separator=", ", max_line_width=_LINE_WIDTH)
    middle = tuple(length // 2 for length in view.shape[: max(0, view.ndim - _REPR_NDIM)])
    text = np.array2string(
        _corners(view[middle] if middle else view),
        separator=", ",
        max_line_width=_LINE_WIDTH,
        threshold=0,
        edgeitems=_EDGE_COUNT,
    )
    if not middle:
        return text
    where = ", ".join([*map(str, middle), *":" * _REPR_NDIM])
    return f"values at [{where}]:\n{text}"


def _corners(view: _core.DeviceArray) -> npt.NDArray[Any]:
    """Pull the ends of each long axis into an array one element longer than the ends.

    The element between the ends is never printed: array2string puts "..." in its place.
    """
    ends = slice(0, _EDGE_COUNT), slice(-_EDGE_COUNT, None)
    limit = 2 * _EDGE_COUNT
    values = np.zeros([min(length, limit + 1) for length in view.shape], view.dtype)
    axes = [ends if length > limit else (slice(None),) for length in view.shape]
    for key in itertools.product(*axes):
        values[key] = _core.fetch(view[key])
    return values
