"""Indexing by integer arrays and boolean masks: pulls what is needed, arranged as NumPy does.

There is no gather over an index list on the device. Sorted indices are joined into runs, and a
run crosses the link as one slice: exactly, if its steps are equal; else with the rows between
them, as long as a gap is no longer than GAP_NBYTES, which costs less than another transfer. A run
is cut at RUN_NBYTES of scratch on the host.

Several index arrays name points. Where two indexed axes are one in memory they are indexed as
one; where not, the points are grouped by their first index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufetch import _core, _pull
from gpufetch._remote_view import RemoteView
from gpufetch._subscript import Indices, checked_indices, expanded
from gpufetch._views import transposed

__all__ = ["GAP_NBYTES", "RUN_NBYTES", "take"]

GAP_NBYTES = 64 << 10
RUN_NBYTES = 16 << 20
# From this size on a single row goes straight to its place, without scratch.
_DIRECT_NBYTES = 1 << 20


def take(
    view: _pull.View, items: tuple[Any, ...], check: Callable[[int], None]
) -> npt.NDArray[Any]:
    """Index `view` by items of which one at least is an array; a new array in C order.

    `check` is called with the bytes of the result before anything is allocated or copied.
    IndexError as NumPy raises it.
    """
    plan = _Plan(view.shape, items)
    base = view[tuple(plan.basic)]
    rest = [axis for axis in range(base.ndim) if axis not in plan.array_axes]
    # From the longest stride to the shortest: axes that are one in memory come to be neighbours.
    by_stride = sorted(
        zip(plan.array_axes, plan.indices, strict=True),
        key=lambda pair: -abs(base.strides[pair[0]]),
    )
    ordered = transposed(base, [*(axis for axis, _ in by_stride), *rest])
    rest_shape = ordered.shape[len(by_stride) :]

    lengths = iter(rest_shape)
    around = [next(lengths) if kept else 1 for kept in plan.around]
    before, after = around[: plan.position], around[plan.position :]
    shape = (*before, *plan.points_shape, *after)
    check(math.prod(shape) * view.dtype.itemsize)
    out = np.empty(shape, view.dtype)
    if out.size > 0:
        count = math.prod(plan.points_shape)
        kept_before = sum(plan.around[: plan.position])
        place = out.reshape((*rest_shape[:kept_before], count, *rest_shape[kept_before:]))
        place = np.moveaxis(place, kept_before, 0)
        _pull_points(ordered, [indices for _, indices in by_stride], place, np.arange(count))
    return out


class _Plan:
    """What a subscript with arrays asks for.

    basic : the part of it that a view answers first; integers go, arrays' axes stay whole.
    array_axes : axes of that view that arrays index.
    indices : for each of them the indices, flat, all of one length.
    points_shape : the shape that the arrays broadcast to.
    around : for each other axis of the result whether the view has it (else None made it).
    position : how many of those precede the axes of the points.
    """

    def __init__(self, shape: tuple[int, ...], items: tuple[Any, ...]) -> None:
        self.basic: list[int | slice] = []
        self.array_axes: list[int] = []
        self.around: list[bool] = []
        arrays: list[Indices] = []
        positions: list[int] = []  # of the result's axis that follows each integer or array
        ends: list[int] = []  # number of the item
        for number, item in enumerate(expanded(items, shape)):
            axis = len(self.basic)
            if item is Ellipsis:  # separates arrays, as in NumPy, even where it stands for no axis
                continue
            if item is None or isinstance(item, slice):
                self.around.append(item is not None)
            else:
                positions.append(len(self.around))
                ends.append(number)
            if isinstance(item, np.ndarray):
                self.array_axes.append(sum(isinstance(kept, slice) for kept in self.basic))
                arrays.append(checked_indices(item, axis, shape[axis]))
                self.basic.append(slice(None))
            elif item is not None:
                self.basic.append(item)
        together = ends[-1] - ends[0] == len(ends) - 1
        self.position = positions[0] if together else 0
        try:
            joined = np.broadcast_arrays(*arrays)
        except ValueError:
            shapes = " ".join(str(array.shape) for array in arrays)
            raise IndexError(
                f"shape mismatch: index arrays of shapes {shapes} cannot be broadcast together"
            ) from None
        self.points_shape = joined[0].shape
        self.indices = [array.reshape(-1) for array in joined]


def _pull_points(
    view: _pull.View, indices: list[Indices], place: npt.NDArray[Any], rows: Indices
) -> None:
    """Put view[indices[0][i], indices[1][i], ...] into place[rows[i]] for each i."""
    if len(indices) == 1:
        _pull_rows(view, indices[0], place, rows)
        return
    joined = _joined_axes(view)
    if joined is not None:
        first = indices[0] * view.shape[1] + indices[1]
        _pull_points(joined, [first, *indices[2:]], place, rows)
        return
    order = np.argsort(indices[0], kind="stable")
    values, starts = np.unique(indices[0][order], return_index=True)
    for value, chosen in zip(values, np.split(order, starts[1:]), strict=True):
        others = [index[chosen] for index in indices[1:]]
        _pull_points(view[int(value)], others, place, rows[chosen])


def _joined_axes(view: _pull.View) -> _pull.View | None:
    """The view with its first two axes as one, or None where they are not one in memory."""
    if isinstance(view, RemoteView):
        return None
    (length, inner_length, *shape), (stride, inner_stride, *strides) = view.shape, view.strides
    if inner_length == 1:
        inner_stride = stride
    elif length > 1 and stride != inner_length * inner_stride:
        return None
    return _core._restride(view, (length * inner_length, *shape), (inner_stride, *strides))


def _pull_rows(view: _pull.View, indices: Indices, place: npt.NDArray[Any], rows: Indices) -> None:
    """Put view[indices[i]] into place[rows[i]] for each i."""
    row_nbytes = view.nbytes // view.shape[0]
    order = np.argsort(indices, kind="stable")
    indices, rows = indices[order], rows[order]
    values, starts = np.unique(indices, return_index=True)
    bounds = [*starts.tolist(), len(indices)]
    for first, last, step in _runs(values, row_nbytes):
        start, stop = int(values[first]), int(values[last]) + 1
        chosen = slice(bounds[first], bounds[last + 1])
        targets = rows[chosen]
        if first == last and view.ndim > 1 and row_nbytes >= _DIRECT_NBYTES:
            _pull.fetch(view[start], out=place[targets[0]])
            for target in targets[1:]:
                place[target] = place[targets[0]]
            continue
        block = _pull.fetch(view[start:stop:step])
        if len(block) == len(targets) == last - first + 1:
            place[targets] = block
        else:
            place[targets] = block[(indices[chosen] - start) // step]


def _runs(values: Indices, row_nbytes: int) -> Iterator[tuple[int, int, int]]:
    """Cut sorted, distinct indices into runs: (first, last, step), positions in `values`."""
    most = max(1, RUN_NBYTES // row_nbytes)  # rows in one run
    gaps = np.diff(values)
    if len(gaps) > 0 and np.all(gaps == gaps[0]):
        for first in range(0, len(values), most):
            yield first, min(first + most, len(values)) - 1, int(gaps[0])
        return
    cuts = np.flatnonzero((gaps - 1) * row_nbytes > GAP_NBYTES) + 1
    for first, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(values)], strict=True):
        while first < stop:
            reach = int(np.searchsorted(values[first:stop], values[first] + most)) + first
            inside = gaps[first : reach - 1]
            even = len(inside) > 0 and bool(np.all(inside == inside[0]))
            yield first, reach - 1, int(inside[0]) if even else 1
            first = reach
