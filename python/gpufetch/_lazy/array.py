"""LazyArray: a device tensor whose elements are copied to the host only when they are needed."""

from __future__ import annotations

import operator
import uuid
from collections.abc import Callable, Iterator, Sequence
from types import EllipsisType
from typing import Any, ClassVar, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from gpufetch import _reduce
from gpufetch._checks import check_copy, check_int
from gpufetch._lazy.dask_array import to_dask
from gpufetch._lazy.index_arrays import take
from gpufetch._lazy.iter_chunks import CHUNK_NBYTES, iter_chunks
from gpufetch._lazy.limit import (
    WARNING_NBYTES,
    check_nbytes,
    default_max_fetch_nbytes,
    warn,
)
from gpufetch._lazy.numpy_functions import NumPyFunctions
from gpufetch._lazy.remedies import TO_HOST, method_remedy
from gpufetch._lazy.scalars import converted
from gpufetch._lazy.shapes import (
    axis_order,
    in_reversed_order,
    memory_order,
    resolve_shape,
    shape_order,
    squeezed_axes,
    swapped_axes,
)
from gpufetch._subscript import index_items, is_basic
from gpufetch._text import format_nbytes
from gpufetch._tracebacks import shortened
from gpufetch._view import Future, View, as_view

__all__ = ["LazyArray", "lazy"]

_ITERATION_NBYTES = 1 << 20

# One step from the wrapped tensor to a view of it: the kind of step, and its argument.
_Step = tuple[str, tuple[Any, ...]]

_STEPS: dict[str, Callable[[View, tuple[Any, ...]], View]] = {
    "index": lambda view, key: view[key],
    "transpose": lambda view, order: view.transposed(order),
    "reshape": lambda view, shape: view.reshaped(shape),
}


def lazy(x: Any, *, max_fetch_nbytes: int | None = None) -> LazyArray:
    """Wrap a device tensor without a copy: the same as `LazyArray(x)`."""
    return LazyArray(x, max_fetch_nbytes=max_fetch_nbytes)


class LazyArray(NumPyFunctions):
    """A device tensor seen from the host: elements are pulled when they are asked for.

    Slices of either sign, integers, `...` and `None` between the brackets, and `T`, `transpose`,
    `swapaxes`, `reshape`, `squeeze` and `ravel` give views: further LazyArrays, without a copy. So
    do NumPy's functions that rearrange: `moveaxis`, `flip`, `expand_dims`, `split` and their kin.
    These pull the elements of an array or view, and nothing else does:

    - `fetch()`, into a new array or into `out`, and `fetch_async()`;
    - `numpy.asarray(a)`, so that plotting functions take `a[0]` as they take an array, and what
      asks for a copy: `numpy.save`, `numpy.copy`, `copy.deepcopy`, pickle. A copy is an ndarray;
    - NumPy functions and operators on a view that an index has narrowed: `a[0] + 1`. For the whole
      of a tensor, `a + 1`, they raise TypeError: write `a[...]` or `a.fetch()`;
    - an integer for each axis, `a[3, 4]`, which gives a NumPy scalar;
    - integer arrays and boolean masks among the indices, which give an array in C order with the
      axes as NumPy arranges them. Few other elements are pulled with those that are named, unless
      that takes several reads of a connection's tensor, which would be of several times;
    - `iter_chunks()`, box by box, for tensors that are larger than the host's memory.

    Except for `fetch()`, `fetch_async()` and `iter_chunks()`, they raise ValueError instead of
    pulling more than `max_fetch_nbytes` bytes at once. `numpy.asarray`, and with it what takes
    NumPy arrays, warns of more than 64 MiB (LargeFetchWarning), once for an array and its views.

    The contents are live: each access reads what the tensor holds at that time, after the work
    that its framework has enqueued so far. Nothing is cached. If the tensor's shape or dtype has
    changed since it was wrapped, access raises RuntimeError.

    May be used from any thread. Not hashable, like an ndarray.

    Parameters
    ----------
    x
        A tensor that `gpufetch.fetch` takes (of PyTorch, CuPy, JAX, Numba, ...), a `DeviceArray`,
        or another LazyArray. It is kept alive and not copied.
    max_fetch_nbytes
        Limit for this array and its views. By default `LazyArray.default_max_fetch_nbytes`: a
        quarter of the host's memory, at most 8 GiB.

    Raises
    ------
    TypeError
        `x` is no tensor. Also what `gpufetch.fetch` raises for a tensor that it cannot take.
    """

    __slots__ = (
        "__weakref__",
        "_device",
        "_dtype",
        "_is_narrowed",
        "_max_fetch_nbytes",
        "_shape",
        "_source",
        "_source_facts",
        "_steps",
        "_token",
        "_warned",
    )

    default_max_fetch_nbytes: ClassVar[int] = default_max_fetch_nbytes()

    # _source_facts : the shape and dtype that the source had when it was wrapped.
    # _steps : lead from the source to this view.
    # _is_narrowed : whether an index is among the steps; only then do NumPy functions pull.
    # _token : identifies the wrapping of the source; views have their origin's.
    # _warned : has an item once a large pull was told of; one list for an origin and its views.

    def __init__(self, x: Any, *, max_fetch_nbytes: int | None = None) -> None:
        if isinstance(x, LazyArray):
            self._copy_origin(x)
            self._set_facts(x._view())
        else:
            self._source: Any = x
            self._steps: tuple[_Step, ...] = ()
            self._is_narrowed = False
            self._token = uuid.uuid4().hex
            self._warned: list[None] = []
            self._max_fetch_nbytes: int | None = None
            view = as_view(x)
            self._source_facts: tuple[tuple[int, ...], np.dtype[Any]] = (view.shape, view.dtype)
            self._set_facts(view)
        if max_fetch_nbytes is not None:
            self._max_fetch_nbytes = check_int(max_fetch_nbytes, "max_fetch_nbytes", low=0)

    def _copy_origin(self, other: LazyArray) -> None:
        self._source = other._source
        self._source_facts = other._source_facts
        self._steps = other._steps
        self._is_narrowed = other._is_narrowed
        self._token = other._token
        self._warned = other._warned
        self._max_fetch_nbytes = other._max_fetch_nbytes

    def _set_facts(self, view: View) -> None:
        self._shape: tuple[int, ...] = view.shape
        self._dtype: np.dtype[Any] = view.dtype
        self._device: str = view.device

    def _step(self, kind: str, argument: tuple[Any, ...]) -> LazyArray:
        """Make the view that one more step gives; raises what the step raises."""
        child = LazyArray.__new__(LazyArray)
        child._copy_origin(self)
        child._steps = (*self._steps, (kind, argument))
        child._set_facts(_STEPS[kind](self._view(), argument))
        return child

    @property
    def source(self) -> Any:
        """The wrapped tensor itself; for a view, that of its origin."""
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
    def max_fetch_nbytes(self) -> int:
        """Most bytes that are pulled at once without an explicit fetch."""
        if self._max_fetch_nbytes is None:
            return self.default_max_fetch_nbytes
        return self._max_fetch_nbytes

    # --- Views ---

    @property
    def T(self) -> LazyArray:  # noqa: N802  (NumPy's name)
        """View with the axes reversed."""
        return self.transpose()

    def transpose(self, *axes: Any) -> LazyArray:
        """View with axis i taken from `axes[i]`; without arguments the axes reversed."""
        return self._step("transpose", axis_order(axes, self.ndim))

    def swapaxes(self, axis1: SupportsIndex, axis2: SupportsIndex) -> LazyArray:
        """View with two axes in each other's place."""
        return self._step("transpose", swapped_axes(axis1, axis2, self.ndim))

    @shortened
    def reshape(self, *shape: Any, order: str = "C") -> LazyArray:
        """View with another shape; one length may be -1. `order` is as in NumPy.

        Raises ValueError where the strides make it impossible without a copy: fetch first then.
        """
        lengths = resolve_shape(shape, self.size)
        if shape_order(order, self._view()) == "F":
            with in_reversed_order():
                return self.T._step("reshape", lengths[::-1]).T
        return self._step("reshape", lengths)

    def ravel(self, order: str = "C") -> LazyArray:
        """View with one axis; `order` is as in NumPy. ValueError where that takes a copy."""
        axes = memory_order(order, self._view())
        return self.reshape(-1, order=order) if axes is None else self.transpose(axes).reshape(-1)

    def squeeze(self, axis: int | Sequence[int] | None = None) -> LazyArray:
        """View without the axes of length 1, or without those that `axis` names."""
        removed = squeezed_axes(axis, self._shape)
        kept = (n for i, n in enumerate(self._shape) if i not in removed)
        return self._step("reshape", tuple(kept))

    @overload
    def __getitem__(
        self, key: list[int] | list[bool] | npt.NDArray[np.integer[Any] | np.bool_]
    ) -> npt.NDArray[Any]: ...

    @overload
    def __getitem__(self, key: SupportsIndex | tuple[SupportsIndex, ...]) -> Any: ...

    @overload
    def __getitem__(
        self, key: slice | EllipsisType | tuple[slice | EllipsisType | None, ...] | None
    ) -> LazyArray: ...

    @overload
    def __getitem__(self, key: Any) -> Any: ...

    def __getitem__(self, key: Any) -> Any:
        with shortened:
            items = index_items(key)
            if not is_basic(items):
                return take(self._view(), items, self._check_nbytes)
            if len(items) == self.ndim and all(isinstance(item, int) for item in items):
                return self._view()[items].fetch()[()]
            child = self._indexed(items)
            child._is_narrowed = True
            return child

    def _indexed(self, items: tuple[Any, ...]) -> LazyArray:
        """View by an index that is not the user's: functions pull it no more than this array."""
        return self._step("index", items)

    # --- Pulling ---

    @shortened
    def fetch(self, *, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Pull every element, into a new array in C order or into `out` (same shape and dtype)."""
        return self._view().fetch(out=out)

    @shortened
    def overview(
        self, shape: int | Sequence[int], method: _reduce.Method = "mean"
    ) -> _reduce.Overview:
        """Reduce on the device to at most `shape` cells: see `gpufetch.overview`."""
        return _reduce.overview(self._view(), shape, method)

    @shortened
    def stats(self) -> _reduce.Stats:
        """Count, extremes, mean and variance, computed on the device: see `gpufetch.stats`."""
        return _reduce.stats(self._view())

    @shortened
    def histogram(
        self, bins: int = 64, range: tuple[float, float] | None = None
    ) -> _reduce.Histogram:
        """Count elements in bins, on the device: see `gpufetch.histogram`."""
        return _reduce.histogram(self._view(), bins, range)

    @shortened
    def fetch_async(self, *, out: npt.NDArray[Any] | None = None) -> Future:
        """Start to pull every element as `fetch` does; the future's result() is the array."""
        return self._view().fetch_async(out=out)

    def iter_chunks(
        self, nbytes: int = CHUNK_NBYTES, *, progress: bool = False
    ) -> Iterator[tuple[tuple[slice, ...], npt.NDArray[Any]]]:
        """Pull everything in boxes of at most `nbytes` bytes; yield (index, values).

        `index` is a tuple with a slice for each axis: `target[index] = values` fills an array or a
        dataset of the same shape. The boxes are in C order; an array without elements has none.
        The next box is on its way while the consumer has one, so that two of them are in memory,
        besides those that the consumer keeps. Contents are live: if the tensor is written to
        meanwhile, the boxes are of different times.

        progress=True shows a tqdm bar: the notebook's with ipywidgets, else the terminal's, and
        none where tqdm is not installed. Raises ValueError if `nbytes` cannot hold one element.
        """
        return iter_chunks(self._view, self._shape, self._dtype, nbytes, progress)

    def tolist(self) -> Any:
        """Pull everything as nested lists of Python numbers, within `max_fetch_nbytes`."""
        return np.asarray(self).tolist()

    def to_dask(self, chunks: Any = "auto") -> Any:
        """Wrap as a dask.array whose elements are pulled when they are computed.

        `chunks` is as dask.array.from_array takes it. Contents are live here too: persist() what
        must not change. For schedulers in this process (threads, synchronous). Raises ImportError
        without Dask.
        """
        return to_dask(self._read, self._shape, self._dtype, self.__dask_tokenize__(), chunks)

    def _read(self, key: Any) -> npt.NDArray[Any]:
        """Pull what an index names."""
        values = self[key]
        return values.fetch() if isinstance(values, LazyArray) else np.asarray(values)

    def to_numpy(self) -> npt.NDArray[Any]:
        """The same as `numpy.asarray(a)`; Matplotlib and pandas call it by this name."""
        return np.asarray(self)

    def item(self) -> Any:
        """The only element, as a Python number; ValueError if there is not exactly one."""
        if self.size != 1:
            raise ValueError(f"item() needs one element; shape {self._shape} has {self.size}")
        return self.fetch().item()

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of a LazyArray with no axes (shape ())")
        return self._shape[0]

    def __iter__(self) -> Iterator[Any]:
        """Give the views `a[0]`, `a[1]`, ...; with one axis the scalars, pulled many at once."""
        if not self._shape:
            raise TypeError("iteration over a LazyArray with no axes (shape ())")
        if self.ndim > 1:
            return (self[i] for i in range(self._shape[0]))
        return (value for _, values in self.iter_chunks(_ITERATION_NBYTES) for value in values)

    def __format__(self, spec: str) -> str:
        return (
            format(self.fetch()[()], spec) if spec and self.ndim == 0 else super().__format__(spec)
        )

    def __bool__(self) -> bool:
        return converted(bool, self, self.fetch)

    def __int__(self) -> int:
        return converted(int, self, self.fetch)

    def __float__(self) -> float:
        return converted(float, self, self.fetch)

    def __complex__(self) -> complex:
        return converted(complex, self, self.fetch)

    def __index__(self) -> int:
        return converted(operator.index, self, self.fetch)

    def __getattr__(self, name: str) -> Any:
        if name in TO_HOST:
            raise AttributeError(
                f"a LazyArray has no {name}: fetch() gives it as a NumPy array", name=name, obj=self
            )
        if hasattr(np.ndarray, name):
            remedy = method_remedy(name)
            raise AttributeError(
                f"a LazyArray has no {name}: "
                + (f"{remedy}, and " if remedy else "")
                + "the array that fetch() gives has it",
                name=name,
                obj=self,
            )
        raise AttributeError(f"a LazyArray has no attribute {name}", name=name, obj=self)

    # --- Protocols ---

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """Pull everything, for `numpy.asarray(a)`.

        The result has its own dtype where the rule "safe" allows no cast to `dtype`: NumPy then
        casts or refuses.
        ValueError for `copy=False`, and for more than `max_fetch_nbytes` bytes.
        """
        if check_copy(copy) is False:
            raise ValueError(
                f"a LazyArray on {self._device} cannot become a NumPy array without a copy: "
                "leave out copy=False"
            )
        self._check_nbytes(self.nbytes)
        if self.nbytes > WARNING_NBYTES and not self._warned:
            self._warned.append(None)
            warn(self.nbytes, self._shape, self._device)
        values = self.fetch()
        # NumPy makes the other conversions itself, or refuses them, as the call does of an ndarray.
        if dtype is None or not np.can_cast(values.dtype, dtype):
            return values
        return values.astype(dtype, copy=False)

    def __copy__(self) -> LazyArray:
        """Another LazyArray of the same tensor."""
        return LazyArray(self)

    def __deepcopy__(self, memo: Any) -> npt.NDArray[Any]:
        """An ndarray of the elements, within `max_fetch_nbytes`: device memory is not copied."""
        return np.asarray(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Pickle the elements, within `max_fetch_nbytes`: another process gets an ndarray."""
        return np.asarray(self).__reduce_ex__(protocol)

    def __dask_tokenize__(self) -> tuple[str, ...]:
        """Name this view of this wrapping of the tensor, without reading elements.

        Two wrappings of one tensor have different names, because contents may change in between.
        """
        return ("gpufetch.LazyArray", self._token, repr(self._steps))

    def __dlpack__(self, **kwargs: Any) -> Any:
        """The wrapped tensor's memory, shared, for `from_dlpack` of a framework."""
        return self._view().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._view().__dlpack_device__()
        return device

    def __repr__(self) -> str:
        """Shape, dtype, device and size; reads nothing from the device, as debuggers need."""
        return (
            f"LazyArray(shape={self._shape}, dtype={self._dtype}, {self._device}, "
            f"{format_nbytes(self.nbytes)})"
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What IPython shows of a result in a terminal: values at the ends, and statistics."""
        from gpufetch._display.tensor import print_tensor  # not before something is shown

        print_tensor(self, self._view, printer)

    def _repr_html_(self) -> str:
        """What notebooks show of a result: its layout, statistics, a histogram and a picture."""
        from gpufetch._display.tensor import tensor_html

        return tensor_html(self, self._view, f"of {self._origin()}")

    def _origin(self) -> str:
        """What it wraps: a tensor of another process by its name, any other one by its type."""
        kind = type(self._source)
        if hasattr(kind, "_gpufetch_view"):
            return repr(self._source).strip("<>")
        return f"{kind.__module__}.{kind.__qualname__}"

    def _repr_inline_(self, max_width: int) -> str:
        """The text that xarray shows in its repr; pulls nothing."""
        return f"LazyArray {self._device} {format_nbytes(self.nbytes)}"[:max_width]

    def _check_nbytes(self, nbytes: int, what: str = "this access to") -> None:
        what = f"{what} a LazyArray of shape {self._shape}"
        check_nbytes(nbytes, self.max_fetch_nbytes, what)

    def _gpufetch_view(self) -> View:
        """What the functions that take a tensor read: `gpufetch.stats(x)` as `x.stats()`."""
        return self._view()

    def _gpufetch_pull(self) -> npt.NDArray[Any] | None:
        """The elements for what reads memory, if they are another process's: see `View.pulled`."""
        return self._view().pulled()

    def _gpufetch_pull_async(self, read: Callable[[], Any]) -> Future | None:
        """See `View.pull_async`."""
        return self._view().pull_async(read)

    def _view(self) -> View:
        # The tensor is asked for its memory at every access, so that the framework orders this
        # read after the work that it has enqueued by now.
        view = as_view(self._source)
        if (view.shape, view.dtype) != self._source_facts:
            shape, dtype = self._source_facts
            raise RuntimeError(
                f"the tensor behind this LazyArray changed from shape {shape}, dtype {dtype} to "
                f"shape {view.shape}, dtype {view.dtype}: make a new LazyArray"
            )
        for kind, argument in self._steps:
            view = _STEPS[kind](view, argument)
        return view
