"""Indexing by integer arrays and boolean masks: pulls what is needed, arranged as NumPy does.

The device cannot gather by a list of indices. The indices are sorted and joined into ranges, and
each range crosses the link as one slice. A range has equal steps, and then pulls its rows alone;
or it pulls the rows between its indices too, as long as a gap is at most GAP_NBYTES_MAX, because
that costs less than another transfer. A range takes at most RANGE_NBYTES_MAX of scratch on the
host.

Several index arrays name points. Two indexed axes that are one in memory are indexed as one;
otherwise the points are grouped by their first index.

Ranges of another process's tensor are all of one publication. Where that is not to be had, since
each read waits for a step or the tensor is published anew between two, the box around all indices
is pulled in one read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufetch._subscript import Indices, checked_indices, expanded, joint_shape
from gpufetch._view import PublishedAnewError, View

__all__ = ["GAP_NBYTES_MAX", "RANGE_NBYTES_MAX", "take"]

GAP_NBYTES_MAX = 64 << 10
RANGE_NBYTES_MAX = 16 << 20
# A single row of at least this size is pulled straight to its place, without scratch.
_DIRECT_NBYTES_MIN = 1 << 20
_MORE_TRIES = 3  # of pulling ranges, before a large box is pulled for them

Check = Callable[[int, str], None]
"""Refuses to pull too many bytes; the text says what would."""


def take(view: View, items: tuple[Any, ...], check: Check) -> npt.NDArray[Any]:
    """Index `view` by items of which at least one is an array; returns a new array in C order.

    `check` is called with the bytes of the result before anything is allocated or copied, and with
    those of a large box before it is. Raises IndexError where NumPy does.
    """
    plan = _Plan(view.shape, items)
    base = view[tuple(plan.basic)]
    rest = [axis for axis in range(base.ndim) if axis not in plan.array_axes]
    # Sorted from the longest stride to the shortest, axes that are one in memory are neighbours.
    by_stride = sorted(
        zip(plan.array_axes, plan.indices, strict=True),
        key=lambda pair: -abs(base.strides[pair[0]]),
    )
    ordered = base.transposed([*(axis for axis, _ in by_stride), *rest])
    rest_shape = ordered.shape[len(by_stride) :]

    lengths = iter(rest_shape)
    around = [next(lengths) if kept else 1 for kept in plan.around]
    before, after = around[: plan.position], around[plan.position :]
    shape = (*before, *plan.points_shape, *after)
    check(math.prod(shape) * view.dtype.itemsize, "this access to")
    out = np.empty(shape, view.dtype)
    if out.size > 0:
        count = math.prod(plan.points_shape)
        kept_before = sum(plan.around[: plan.position])
        place = out.reshape((*rest_shape[:kept_before], count, *rest_shape[kept_before:]))
        place = np.moveaxis(place, kept_before, 0)
        _pull(ordered, [indices for _, indices in by_stride], place, check)
    return out


class _Plan:
    """What a subscript with index arrays asks for.

    basic : the integers and slices, which a view answers first; axes of arrays stay whole in it.
    array_axes : axes of that view that arrays index.
    indices : the indices along each of these axes, as 1-D arrays of one length.
    points_shape : the shape to which the index arrays are broadcast.
    around : of the result's other axes, which ones the view has; None made the rest.
    position : how many of these other axes precede those of the points.
    """

    def __init__(self, shape: tuple[int, ...], items: tuple[Any, ...]) -> None:
        self.basic: list[int | slice] = []
        self.array_axes: list[int] = []
        self.around: list[bool] = []
        arrays: list[tuple[Indices, int]] = []  # with the axis that each indexes
        # For each integer or array: the result's axis that follows it, and its number.
        positions: list[int] = []
        numbers: list[int] = []
        for number, item in enumerate(expanded(items, shape)):
            axis = len(self.basic)
            if item is Ellipsis:  # its number separates arrays even where it stands for no axis
                continue
            if item is None or isinstance(item, slice):
                self.around.append(item is not None)
            else:
                positions.append(len(self.around))
                numbers.append(number)
            if isinstance(item, np.ndarray):
                self.array_axes.append(sum(isinstance(kept, slice) for kept in self.basic))
                arrays.append((item, axis))
                self.basic.append(slice(None))
            elif item is not None:
                self.basic.append(item)
        are_together = numbers[-1] - numbers[0] == len(numbers) - 1
        self.position = positions[0] if are_together else 0
        self.points_shape = joint_shape([array for array, _ in arrays])
        if 0 not in self.points_shape:
            arrays = [(checked_indices(item, axis, shape[axis]), axis) for item, axis in arrays]
        joined = np.broadcast_arrays(*(array for array, _ in arrays))
        self.indices = [array.reshape(-1) for array in joined]


def _pull(view: View, indices: list[Indices], place: npt.NDArray[Any], check: Check) -> None:
    """Put view[indices[0][i], indices[1][i], ...] into place[i] for each i, of one publication."""
    tries = 0 if view.is_read_at_steps else 1 + _MORE_TRIES
    if tries and _pull_ranges(view, indices, place):
        return
    around = [_around(index) for index in indices]
    box = view[tuple(around)]
    if box.nbytes > RANGE_NBYTES_MAX:
        if any(_pull_ranges(view, indices, place) for _ in range(1, tries)):
            return
        check(box.nbytes, "the box around the indices, which is pulled in one read, of")
    pairs = zip(indices, around, strict=True)
    inside = tuple((index - span.start) // span.step for index, span in pairs)
    place[...] = box.fetch()[inside]


def _around(indices: Indices) -> slice:
    """The fewest indices at equal steps that have all of these among them."""
    first = int(indices.min())
    step = int(np.gcd.reduce(indices - first))
    return slice(first, int(indices.max()) + 1, step or 1)


def _pull_ranges(view: View, indices: list[Indices], place: npt.NDArray[Any]) -> bool:
    """Put each element into its place; False where the ranges cannot be of one publication."""
    try:
        _pull_points(view.together(place.nbytes), indices, place, np.arange(len(place)))
    except PublishedAnewError:
        return False
    return True


def _pull_points(
    view: View, indices: list[Indices], place: npt.NDArray[Any], rows: Indices
) -> None:
    """Put view[indices[0][i], indices[1][i], ...] into place[rows[i]] for each i."""
    if len(indices) == 1:
        _pull_rows(view, indices[0], place, rows)
        return
    joined = view.first_axes_joined()
    if joined is not None:
        first = indices[0] * view.shape[1] + indices[1]
        _pull_points(joined, [first, *indices[2:]], place, rows)
        return
    order = np.argsort(indices[0], kind="stable")
    values, starts = np.unique(indices[0][order], return_index=True)
    for value, chosen in zip(values, np.split(order, starts[1:]), strict=True):
        others = [index[chosen] for index in indices[1:]]
        _pull_points(view[int(value)], others, place, rows[chosen])


def _pull_rows(view: View, indices: Indices, place: npt.NDArray[Any], rows: Indices) -> None:
    """Put view[indices[i]] into place[rows[i]] for each i."""
    row_nbytes = view.nbytes // view.shape[0]
    order = np.argsort(indices, kind="stable")
    indices, rows = indices[order], rows[order]
    values, starts = np.unique(indices, return_index=True)
    bounds = [*starts.tolist(), len(indices)]
    for first, last, step in _ranges(values, row_nbytes):
        start, stop = int(values[first]), int(values[last]) + 1
        chosen = slice(bounds[first], bounds[last + 1])
        targets = rows[chosen]
        if first == last and view.ndim > 1 and row_nbytes >= _DIRECT_NBYTES_MIN:
            view[start].fetch(out=place[targets[0]])
            for target in targets[1:]:
                place[target] = place[targets[0]]
            continue
        pulled = view[start:stop:step].fetch()
        if len(pulled) == len(targets) == last - first + 1:
            place[targets] = pulled
        else:
            place[targets] = pulled[(indices[chosen] - start) // step]


def _ranges(values: Indices, row_nbytes: int) -> Iterator[tuple[int, int, int]]:
    """Cut sorted, distinct indices into ranges: (first, last, step), positions in `values`."""
    most = max(1, RANGE_NBYTES_MAX // row_nbytes)  # rows in one range
    gaps = np.diff(values)
    if len(gaps) > 0 and np.all(gaps == gaps[0]):
        for first in range(0, len(values), most):
            yield first, min(first + most, len(values)) - 1, int(gaps[0])
        return
    cuts = np.flatnonzero((gaps - 1) * row_nbytes > GAP_NBYTES_MAX) + 1
    for first, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(values)], strict=True):
        while first < stop:
            reach = int(np.searchsorted(values[first:stop], values[first] + most)) + first
            inside = gaps[first : reach - 1]
            even = len(inside) > 0 and bool(np.all(inside == inside[0]))
            yield first, reach - 1, int(inside[0]) if even else 1
            first = reach
