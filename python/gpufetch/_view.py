"""Views of a tensor, whether it is in this process or in another one.

LazyArrays and reductions ask a `View`; `DeviceView` answers for a tensor of this process. Tensors
of other processes have views of their own, which their type gives by a method `_gpufetch_view`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from gpufetch import _core, _futures
from gpufetch._strides import first_axes_joined, reshaped_strides

__all__ = [
    "ArrayFacts",
    "Counts",
    "DeviceView",
    "Future",
    "HistogramResult",
    "OverviewResult",
    "PublishedAnewError",
    "View",
    "as_view",
]

Counts: TypeAlias = tuple[int, int, int, int]
"""Elements, and those that are NaN, +inf and -inf."""

OverviewResult: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[Any] | None, Counts]
"""The cells (of "minmax" the minima), of "minmax" the maxima, and the counts."""

HistogramResult: TypeAlias = tuple[
    npt.NDArray[np.uint64], npt.NDArray[np.float64], tuple[int, int, int]
]
"""Counts, edges, and the elements that are NaN, under and over the range."""


class PublishedAnewError(RuntimeError):
    """A tensor was published anew between two reads that belong together."""


class Future(Protocol):
    """An array that is on its way; may be used from any thread."""

    def result(self, timeout: float | None = None) -> npt.NDArray[Any]:
        """Wait for the array; TimeoutError after `timeout` seconds."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for at most `timeout` seconds; whether it is done."""

    def done(self) -> bool:
        """Whether result() would return at once."""

    def cancel(self) -> bool:
        """Give the array up; False if it is too late for that."""

    def __await__(self) -> Generator[Any, None, npt.NDArray[Any]]:
        """Wait in an asyncio event loop."""


class ArrayFacts(ABC):
    """What shape and dtype say of an array."""

    __slots__ = ()

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Element type; from ml_dtypes where NumPy has no counterpart (bfloat16, float8)."""

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements when they are packed in host memory."""
        return self.size * self.dtype.itemsize


class View(ArrayFacts):
    """A tensor, or a basic selection of its elements in some order of the axes.

    Immutable. Making a view copies nothing. May be used from any thread.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def strides(self) -> tuple[int, ...]:
        """Bytes between neighbours along each axis, where the tensor is."""

    @property
    @abstractmethod
    def device(self) -> str:
        """Where the elements are, as that process numbers its devices."""

    @abstractmethod
    def __getitem__(self, key: Any) -> View:
        """View by slices, integers, `...` and None."""

    @abstractmethod
    def transposed(self, order: Sequence[int]) -> View:
        """View with axis i taken from axis order[i]."""

    @abstractmethod
    def reshaped(self, shape: tuple[int, ...]) -> View:
        """View with another shape of as many elements; ValueError where that takes a copy."""

    def first_axes_joined(self) -> View | None:
        """View with the first two axes as one; None where they are not one in memory."""
        return None

    def components(self) -> View:
        """View of complex elements as floats, real and imaginary part along a further last axis.

        TypeError where that cannot be had.
        """
        raise TypeError(
            f"the components of {self.dtype} elements of another process cannot be reduced there: "
            "publish the real and imaginary parts, or fetch() what is needed"
        )

    @abstractmethod
    def fetch(self, *, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Pull every element, into a new array in C order or into `out`."""

    @abstractmethod
    def fetch_async(self, *, out: npt.NDArray[Any] | None = None) -> Future:
        """Start to pull every element, as `fetch`."""

    @abstractmethod
    def overview(self, shape: tuple[int, ...], method: str) -> OverviewResult:
        """Reduce to at most `shape` cells where the tensor is."""

    @abstractmethod
    def stats(self) -> dict[str, Any]:
        """The fields of `gpufetch.Stats`, computed where the tensor is."""

    @abstractmethod
    def histogram(self, bins: int, limits: tuple[float, float] | None) -> HistogramResult:
        """Count elements in bins where the tensor is."""

    def pulled(self) -> npt.NDArray[Any] | None:
        """The elements of another process's tensor, with its order of the axes in memory.

        None for a tensor of this process, whose memory can be had.
        """
        return None

    def pull_async(self, read: Callable[[], Any]) -> Future | None:
        """Call `read`, which pulls this view, on a thread; None for a tensor of this process."""
        return None

    @property
    def is_read_at_steps(self) -> bool:
        """Whether each read waits for a step of a program's, so that two are of different ones."""
        return False

    def last_step(self) -> int | None:
        """The step that the tensor's program completed last; None if no program says steps."""
        return None

    def together(self, nbytes: int) -> View:
        """View of the same elements, whose reads are all of what the name stands for at the first.

        They are about `nbytes` bytes. PublishedAnewError where it stands for another tensor before
        the last. Of a tensor of this process, all reads are of the same memory.
        """
        return self

    @abstractmethod
    def __dlpack__(self, **options: Any) -> Any: ...

    @abstractmethod
    def __dlpack_device__(self) -> tuple[int, int]: ...


class DeviceView(View):
    """A view of a tensor of this process."""

    __slots__ = ("array",)

    def __init__(self, array: _core.DeviceArray) -> None:
        self.array = array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self.array.strides

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def device(self) -> str:
        return self.array.device

    def __getitem__(self, key: Any) -> DeviceView:
        return DeviceView(self.array[key])

    def _restrided(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> DeviceView:
        return DeviceView(_core._restride(self.array, shape, strides))

    def transposed(self, order: Sequence[int]) -> DeviceView:
        shape, strides = self.shape, self.strides
        return self._restrided(
            tuple(shape[axis] for axis in order), tuple(strides[axis] for axis in order)
        )

    def reshaped(self, shape: tuple[int, ...]) -> DeviceView:
        strides = reshaped_strides(self.shape, self.strides, shape, self.dtype.itemsize)
        if strides is None:
            raise ValueError(
                f"shape {self.shape} with strides {self.strides} (bytes) cannot be seen as shape "
                f"{shape} without a copy: fetch() first and reshape the result"
            )
        return self._restrided(shape, strides)

    def first_axes_joined(self) -> DeviceView | None:
        joined = first_axes_joined(self.shape, self.strides)
        return None if joined is None else self._restrided(*joined)

    def components(self) -> DeviceView:
        return DeviceView(_core._components(self.array))

    def fetch(self, *, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        return _core.fetch(self.array, out=out)

    def fetch_async(
        self, *, out: npt.NDArray[Any] | None = None
    ) -> _futures.Future[npt.NDArray[Any]]:
        return _futures.fetch_async(self.array, out=out)

    def overview(self, shape: tuple[int, ...], method: str) -> OverviewResult:
        return _core.overview(self.array, shape, method)

    def stats(self) -> dict[str, Any]:
        return _core.stats(self.array)

    def histogram(self, bins: int, limits: tuple[float, float] | None) -> HistogramResult:
        return _core.histogram(self.array, bins, limits)

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.array.__dlpack_device__()
        return device


def as_view(x: Any) -> View:
    """A view of all of a tensor; raises what `gpufetch.asdevice` raises."""
    make = getattr(type(x), "_gpufetch_view", None)
    if make is not None:
        view: View = make(x)
        return view
    if isinstance(x, View):
        return x
    try:
        return DeviceView(_core.asdevice(x))
    except TypeError:
        refusal = _of_container(x)
        if refusal is None:
            raise
        raise refusal from None


def _of_container(x: Any) -> TypeError | None:
    """The error for what holds tensors and was given in the place of one; None for others."""
    kind = type(x)
    if not issubclass(kind, Mapping | list | tuple):
        return None
    key: Any = 0
    if issubclass(kind, Mapping):  # only a dict is asked: others, as connections, may wait
        key = next(dict.__iter__(x), "NAME") if issubclass(kind, dict) else "NAME"
    return TypeError(f"a {kind.__name__} is no tensor: give one that it holds, as x[{key!r:.80}]")
