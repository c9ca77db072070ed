"""Views of a tensor in another process, in terms that a request can say: a slice for each axis.

A view keeps, for each of its axes, the axis of the tensor that it runs along and the indices that
it takes there. Basic indexing, other orders of the axes, and axes of length 1 are free; other
shapes need the elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["RemoteTensor", "RemoteView", "Slices"]

# An integer, or start, stop and step, for each axis of the tensor.
Slices = list[int | list[int | None]]
Counts = tuple[int, int, int, int]


class RemoteTensor(Protocol):
    """What a view is of: answers requests for the slices of one tensor.

    Arrays come and go with their axes in the tensor's order, without those that an index took.
    `out` is None or an array in C order of that shape and the tensor's dtype, which is filled.
    """

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def device(self) -> str: ...
    def read(
        self, slices: Slices, shape: tuple[int, ...], out: npt.NDArray[Any] | None
    ) -> npt.NDArray[Any]: ...
    def reduce(
        self, slices: Slices, shape: tuple[int, ...], how: str
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None, Counts]: ...
    def stats(self, slices: Slices) -> dict[str, Any]: ...
    def histogram(
        self, slices: Slices, bins: int, limits: tuple[float, float] | None
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64], tuple[int, int, int]]: ...


class _Axis(NamedTuple):
    """Takes the indices start, start + step, ...; source is -1 for an axis that None made."""

    source: int
    start: int
    step: int
    length: int


class RemoteView:
    """A part of a RemoteTensor, seen as an array; stands in for a DeviceArray. Immutable."""

    __slots__ = ("_axes", "_fixed", "tensor")

    def __init__(self, tensor: RemoteTensor) -> None:
        self.tensor = tensor
        self._axes = tuple(_Axis(i, 0, 1, length) for i, length in enumerate(tensor.shape))
        self._fixed: dict[int, int] = {}  # indices of the tensor's axes that are gone

    def _with(self, axes: Sequence[_Axis], fixed: dict[int, int] | None = None) -> RemoteView:
        view = RemoteView.__new__(RemoteView)
        view.tensor = self.tensor
        view._axes = tuple(axes)
        view._fixed = self._fixed if fixed is None else fixed
        return view

    # --- What an array says of itself ---

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.length for axis in self._axes)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes between neighbours, if the tensor is packed in C order."""
        lengths = self.tensor.shape
        return tuple(
            math.prod(lengths[axis.source + 1 :]) * axis.step * self.dtype.itemsize
            if axis.source >= 0
            else 0
            for axis in self._axes
        )

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.tensor.dtype

    @property
    def device(self) -> str:
        return self.tensor.device

    @property
    def ndim(self) -> int:
        return len(self._axes)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    # --- Views ---

    def __getitem__(self, key: Any) -> RemoteView:
        items = key if isinstance(key, tuple) else (key,)
        axes: list[_Axis] = []
        fixed = dict(self._fixed)
        mine = iter(self._axes)
        for position, item in enumerate(self._expanded(items)):
            if item is None:
                axes.append(_Axis(-1, 0, 1, 1))
                continue
            axis = next(mine)
            if isinstance(item, slice):
                axes.append(_sliced(axis, item))
                continue
            if not -axis.length <= item < axis.length:
                raise IndexError(
                    f"index {item} is out of bounds for axis {position} with size {axis.length}"
                )
            if axis.source >= 0:
                fixed[axis.source] = axis.start + (item % axis.length) * axis.step
        return self._with(axes, fixed)

    def _expanded(self, items: tuple[Any, ...]) -> Iterator[Any]:
        """Write ... out, and fill up to one item an axis."""
        used = sum(item is not None and item is not Ellipsis for item in items)
        if used > self.ndim:
            raise IndexError(
                f"too many indices: the array has {self.ndim} axes, {used} were indexed"
            )
        if sum(item is Ellipsis for item in items) > 1:
            raise IndexError("an index can have only one ellipsis ('...')")
        if not any(item is Ellipsis for item in items):
            items = (*items, Ellipsis)
        for item in items:
            if item is Ellipsis:
                yield from [slice(None)] * (self.ndim - used)
            else:
                yield item

    def transposed(self, order: Sequence[int]) -> RemoteView:
        """View with axis i taken from axis order[i]."""
        return self._with([self._axes[i] for i in order])

    def reshaped(self, shape: tuple[int, ...]) -> RemoteView:
        """View with other axes of length 1; ValueError for any other shape."""
        long = [axis for axis in self._axes if axis.length != 1]
        if [axis.length for axis in long] != [length for length in shape if length != 1]:
            raise ValueError(
                f"shape {self.shape} of a tensor in another process cannot be seen as shape "
                f"{shape} without a copy: fetch() first and reshape the result"
            )
        gone = {a.source: a.start for a in self._axes if a.length == 1 and a.source >= 0}
        rest = iter(long)
        axes = [_Axis(-1, 0, 1, 1) if length == 1 else next(rest) for length in shape]
        return self._with(axes, {**self._fixed, **gone})

    # --- Requests ---

    def slices(self) -> Slices:
        """The part that this is a view of."""
        slices: Slices = []
        axes = {axis.source: axis for axis in self._axes}
        for source in range(len(self.tensor.shape)):
            if source in self._fixed:
                slices.append(self._fixed[source])
                continue
            _, start, step, length = axes[source]
            stop = start + step * length
            slices.append([start, stop if stop >= 0 else None, step] if length else [0, 0, 1])
        return slices

    def _in_source_order(self, lengths: Sequence[int]) -> tuple[int, ...]:
        pairs = zip(self._axes, lengths, strict=True)
        return tuple(n for axis, n in sorted(pairs, key=lambda p: p[0].source) if axis.source >= 0)

    def _arranged(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """From the tensor's order of the axes to the view's."""
        sources = sorted(axis.source for axis in self._axes if axis.source >= 0)
        kept = [sources.index(axis.source) for axis in self._axes if axis.source >= 0]
        key = tuple(slice(None) if axis.source >= 0 else None for axis in self._axes)
        return values.transpose(kept)[key]

    def fetch(self, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Pull every element: a new array in C order, or `out`."""
        if out is not None and (out.shape != self.shape or out.dtype != self.dtype):
            raise ValueError(
                f"out has shape {out.shape}, dtype {out.dtype}; the source has shape "
                f"{self.shape}, dtype {self.dtype}"
            )
        shape = self._in_source_order(self.shape)
        sources = [axis.source for axis in self._axes if axis.source >= 0]
        if out is not None and out.flags.c_contiguous and sources == sorted(sources):
            self.tensor.read(self.slices(), shape, out.reshape(shape))
            return out
        values = self._arranged(self.tensor.read(self.slices(), shape, None))
        if out is None:
            return np.ascontiguousarray(values).reshape(self.shape)
        out[...] = values
        return out

    def overview(
        self, shape: tuple[int, ...], how: str
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None, Counts]:
        """Answer `_core.overview`."""
        if len(shape) != self.ndim:
            raise ValueError(f"shape {shape} has not one length for each of {self.ndim} axes")
        if any(length < 1 for length in shape):
            raise ValueError(f"shape {shape} has a length below 1")
        lengths = self._in_source_order(shape)
        values, high, counts = self.tensor.reduce(self.slices(), lengths, how)
        return self._arranged(values), None if high is None else self._arranged(high), counts

    def stats(self) -> dict[str, Any]:
        """Answer `_core.stats`."""
        return self.tensor.stats(self.slices())

    def histogram(
        self, bins: int, limits: tuple[float, float] | None
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64], tuple[int, int, int]]:
        """Answer `_core.histogram`."""
        return self.tensor.histogram(self.slices(), bins, limits)

    def __dlpack_device__(self) -> tuple[int, int]:
        raise self._no_memory()

    def __dlpack__(self, **kwargs: Any) -> Any:
        raise self._no_memory()

    def _no_memory(self) -> BufferError:
        return BufferError(
            f"{self.tensor.name} is in another process: fetch() it, or attach() to what share() "
            "gives there"
        )


def _sliced(axis: _Axis, item: slice) -> _Axis:
    start, stop, step = item.indices(axis.length)
    length = len(range(start, stop, step))
    return _Axis(axis.source, axis.start + start * axis.step, step * axis.step, length)
