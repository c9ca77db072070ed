"""Views of a tensor in another process, described as a request can: a slice for each axis.

A view keeps, for each of its axes, the axis of the tensor that it lies along and the indices that
it takes there. Basic indexing, another order of the axes, and further axes of length 1 need no
elements; other shapes do.
"""

from __future__ import annotations

import atexit
import functools
import logging
import math
import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import Future as ThreadFuture
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from gpufetch import _core
from gpufetch._checks import check_timeout
from gpufetch._outcome import LOCK_S, settle
from gpufetch._remote.together import Together
from gpufetch._subscript import expanded
from gpufetch._threads import Workers, log_exception
from gpufetch._view import HistogramResult, OverviewResult, View, as_view

__all__ = ["RemoteTensor", "RemoteView", "Slices"]

Slices = list[int | list[int | None]]
"""A selection: for each axis of the tensor an integer, or start, stop and step."""

# Logs what callbacks raise, where concurrent.futures does.
_logger = logging.getLogger("concurrent.futures")

_pulls = Workers(4)

_is_waited_for: list[None] = []


def _wait_at_exit() -> None:
    """Have the pulls end before what is older, such as the connections that they use."""
    if not _is_waited_for:
        _is_waited_for.append(None)
        atexit.register(_pulls.end)


class RemoteTensor(Protocol):
    """A tensor that answers requests for selections of its elements; from any thread.

    `server` is the name of who holds it. `shape` and the arrays have their axes in the tensor's
    order, without those that an integer indexes. `out` is None, or an array in C order of `shape`
    and the tensor's dtype to fill. Reads with the same `together` are of one publication, or raise
    PublishedAnewError.
    """

    @property
    def name(self) -> str: ...
    @property
    def server(self) -> str: ...
    @property
    def is_read_at_steps(self) -> bool: ...
    def last_step(self) -> int | None: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def device(self) -> str: ...
    def read(
        self,
        slices: Slices,
        shape: tuple[int, ...],
        out: npt.NDArray[Any] | None,
        together: Together | None,
    ) -> npt.NDArray[Any]: ...
    def overview(self, slices: Slices, shape: tuple[int, ...], method: str) -> OverviewResult: ...
    def stats(self, slices: Slices) -> dict[str, Any]: ...
    def histogram(
        self, slices: Slices, bins: int, limits: tuple[float, float] | None
    ) -> HistogramResult: ...


class RemoteFuture(ThreadFuture[npt.NDArray[Any]]):
    """As `gpufetch.Future`, for a tensor in another process; what has begun is not cancelled."""

    _done_callbacks: list[Callable[[ThreadFuture[npt.NDArray[Any]]], object]]

    def __init__(self, read: Callable[[], npt.NDArray[Any]]) -> None:
        super().__init__()
        self._process_id = os.getpid()
        _wait_at_exit()
        _pulls.start(functools.partial(self._run, read))

    def _run(self, read: Callable[[], npt.NDArray[Any]]) -> None:
        """On a thread of gpufetch's, which calls this again after a MemoryError."""
        try:
            reads = _core.run_locked(self._condition, LOCK_S, "", self._begin)
        except TimeoutError:  # Ctrl-C has left it held, so that nobody cancels
            reads = self._begin()
        values = error = None
        try:
            values = read() if reads else None
        except BaseException as caught:
            error = caught
        try:
            settle(self, values, error, self._invoke_callbacks)
        finally:
            del error  # its traceback has this frame

    def _begin(self) -> bool:
        if self._state == "PENDING":
            self._state = "RUNNING"
        return self._state == "RUNNING"

    def _invoke_callbacks(self) -> None:
        """Call those that are left, where the base class would begin with the first one again."""
        while self._done_callbacks:
            try:
                fn = self._done_callbacks.pop(0)
            except IndexError:
                return
            try:
                fn(self)
            except Exception:
                log_exception(_logger, "exception calling callback for %r", self)

    def _check_process(self) -> None:
        _core.check_process(self._process_id)  # a forked child lacks the thread that settles it

    def result(self, timeout: float | None = None) -> npt.NDArray[Any]:
        """Wait for the array; TimeoutError after `timeout` seconds."""
        check_timeout(timeout)
        self._check_process()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait, and return what `result` would raise, or None."""
        check_timeout(timeout)
        self._check_process()
        return super().exception(timeout)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for at most `timeout` seconds; whether it is done."""
        try:
            self.exception(timeout)
        except TimeoutError:
            return False
        except CancelledError:
            pass
        return True

    def done(self) -> bool:
        """Whether result() would return at once."""
        self._check_process()
        return super().done()

    def cancel(self) -> bool:
        """Give the array up if it has not been asked for yet; whether that was so."""
        self._check_process()
        return super().cancel()

    def add_done_callback(self, fn: Callable[[ThreadFuture[npt.NDArray[Any]]], object]) -> None:
        """Call `fn` with this future when it is done; on any thread."""
        if not callable(fn):
            raise TypeError(f"fn is {fn!r:.80}, which cannot be called: give a function")
        self._check_process()
        super().add_done_callback(fn)

    def __await__(self) -> Generator[Any, None, npt.NDArray[Any]]:
        """Wait in an asyncio event loop, which goes on with its other tasks.

        If the awaiting task is cancelled, it goes on once nothing writes to `out` any more.
        """
        from gpufetch._await import in_event_loop  # imports asyncio, which few need

        return in_event_loop(self).__await__()


class _Axis(NamedTuple):
    """An axis of a view: the indices start, start + step, ... of an axis of the tensor."""

    source: int  # the tensor's axis; -1 for one that None made
    start: int
    step: int
    length: int


class RemoteView(View):
    """A view of a RemoteTensor."""

    __slots__ = ("_axes", "_fixed", "_together", "tensor")

    def __init__(self, tensor: RemoteTensor) -> None:
        self.tensor = tensor
        self._axes = tuple(_Axis(i, 0, 1, length) for i, length in enumerate(tensor.shape))
        # The index taken along each axis of the tensor that the view does not have.
        self._fixed: dict[int, int] = {}
        self._together: Together | None = None

    def _with(self, axes: Sequence[_Axis], fixed: dict[int, int] | None = None) -> RemoteView:
        view = RemoteView.__new__(RemoteView)
        view.tensor = self.tensor
        view._axes = tuple(axes)
        view._fixed = self._fixed if fixed is None else fixed
        view._together = self._together
        return view

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.length for axis in self._axes)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes between neighbours if the tensor is packed in C order."""
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
    def is_read_at_steps(self) -> bool:
        return self.tensor.is_read_at_steps

    def last_step(self) -> int | None:
        return self.tensor.last_step()

    def together(self, nbytes: int) -> RemoteView:
        view = self._with(self._axes)
        view._together = Together(nbytes)
        return view

    # --- Views ---

    def __getitem__(self, key: Any) -> RemoteView:
        items = key if isinstance(key, tuple) else (key,)
        axes: list[_Axis] = []
        fixed = dict(self._fixed)
        mine = iter(self._axes)
        written_out = (item for item in expanded(items, self.shape) if item is not Ellipsis)
        for position, item in enumerate(written_out):
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

    def transposed(self, order: Sequence[int]) -> RemoteView:
        return self._with([self._axes[i] for i in order])

    def reshaped(self, shape: tuple[int, ...]) -> RemoteView:
        """View with other axes of length 1; ValueError for any other change of the shape.

        Without elements, every shape can be had.
        """
        if 0 in shape:
            return self._with([_Axis(-1, 0, 1, length) for length in shape])
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

    def _without_elements(self) -> View | None:
        """An empty array of this shape, where an axis that None made is: no request can say so."""
        if all(axis.source >= 0 or axis.length for axis in self._axes):
            return None
        return as_view(np.empty(self.shape, self.dtype))

    def slices(self) -> Slices:
        """The selection of the tensor's elements that this is a view of."""
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
        """Lengths of the view's axes, in the tensor's order and without those that None made."""
        pairs = zip(self._axes, lengths, strict=True)
        return tuple(n for axis, n in sorted(pairs, key=lambda p: p[0].source) if axis.source >= 0)

    def _arranged(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Values in the tensor's order of the axes, brought into the view's."""
        sources = sorted(axis.source for axis in self._axes if axis.source >= 0)
        kept = [sources.index(axis.source) for axis in self._axes if axis.source >= 0]
        key = tuple(slice(None) if axis.source >= 0 else None for axis in self._axes)
        return values.transpose(kept)[key]

    def _read(self, shape: tuple[int, ...], out: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
        return self.tensor.read(self.slices(), shape, out, self._together)

    def fetch(self, *, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        if out is not None:
            _core.check_out(np.broadcast_to(np.zeros((), self.dtype), self.shape), out)
        if (empty := self._without_elements()) is not None:
            return empty.fetch(out=out)
        shape = self._in_source_order(self.shape)
        sources = [axis.source for axis in self._axes if axis.source >= 0]
        if out is not None and out.flags.c_contiguous and sources == sorted(sources):
            self._read(shape, out.reshape(shape))
            return out
        values = self._arranged(self._read(shape, None))
        if out is None:
            return np.ascontiguousarray(values).reshape(self.shape)
        out[...] = values
        return out

    def pulled(self) -> npt.NDArray[Any]:
        if (empty := self._without_elements()) is not None:
            return empty.fetch()
        shape = self._in_source_order(self.shape)
        return np.asarray(self._arranged(self._read(shape, None)), self.dtype)

    def pull_async(self, read: Callable[[], Any]) -> RemoteFuture:
        return RemoteFuture(read)

    def fetch_async(self, *, out: npt.NDArray[Any] | None = None) -> RemoteFuture:
        return RemoteFuture(lambda: self.fetch(out=out))

    def overview(self, shape: tuple[int, ...], method: str) -> OverviewResult:
        if len(shape) != self.ndim:
            raise ValueError(
                f"the overview's shape has {len(shape)} values; it must have one for each of "
                f"{self.ndim} axes"
            )
        for axis, length in enumerate(shape):
            if length < 1:
                raise ValueError(
                    f"the overview's shape is {shape}, {length} cells along axis {axis}; give 1 or "
                    "more for each axis"
                )
        if (empty := self._without_elements()) is not None:
            return empty.overview(shape, method)
        lengths = self._in_source_order(shape)
        values, high, counts = self.tensor.overview(self.slices(), lengths, method)
        return self._arranged(values), None if high is None else self._arranged(high), counts

    def stats(self) -> dict[str, Any]:
        if (empty := self._without_elements()) is not None:
            return empty.stats()
        return self.tensor.stats(self.slices())

    def histogram(self, bins: int, limits: tuple[float, float] | None) -> HistogramResult:
        if (empty := self._without_elements()) is not None:
            return empty.histogram(bins, limits)
        return self.tensor.histogram(self.slices(), bins, limits)

    def __dlpack_device__(self) -> tuple[int, int]:
        raise self._no_memory()

    def __dlpack__(self, **options: Any) -> Any:
        raise self._no_memory()

    def _no_memory(self) -> BufferError:
        return BufferError(
            f"{self.tensor.name} is in another process: fetch() it, or attach() to what share() "
            "gives there"
        )


def _sliced(axis: _Axis, item: slice) -> _Axis:
    start, stop, step = item.indices(axis.length)
    length = len(range(start, stop, step))
    if length < 2:
        step = 1  # it leads nowhere, and may be more than a request can say
    return _Axis(axis.source, axis.start + start * axis.step, step * axis.step, length)
