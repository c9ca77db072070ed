"""The mappings of a virtual dataset: which elements of it lie where in which source."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from h5py import h5s

from gpufetch.hdf5._boxes import Box

__all__ = ["Mapping", "mappings", "overlap_and_gap"]

# Stands for H5S_UNLIMITED: more than any extent, which has 63 bits.
_NO_LIMIT = 1 << 64


@dataclass(frozen=True)
class _Indices:
    """What a hyperslab selects along an axis: `count` blocks of `block` indices, `stride` apart.

    Blocks do not overlap: `stride` is at least `block`.
    """

    start: int
    stride: int
    count: int
    block: int

    def count_below(self, limit: int) -> int:
        """How many of the indices are below `limit`."""
        if limit <= self.start:
            return 0
        whole, more = divmod(limit - self.start, self.stride)
        if whole >= self.count:
            return self.count * self.block
        return whole * self.block + min(more, self.block)

    @property
    def total(self) -> int | None:
        """How many indices there are; None if there is no limit."""
        return None if self.has_no_limit else self.count * self.block

    def at(self, first: int, stop: int) -> npt.NDArray[np.int64]:
        """The indices with the numbers from `first` up to `stop`."""
        numbers = np.arange(first, stop)
        if stop <= self.block:  # which may be more than 64 bits hold
            return self.start + numbers
        found: npt.NDArray[np.int64] = (
            self.start + numbers // self.block * self.stride + numbers % self.block
        )
        return found

    def blocks_below(self, limit: int) -> tuple[int, int, int, int]:
        """Start, count, stride and block, as HDF5 takes them, of the blocks that reach below."""
        block = min(self.block, limit - self.start)
        count = min(self.count, -(-(limit - self.start) // self.stride))
        return self.start, count, block if count == 1 else self.stride, block

    @property
    def stop(self) -> int:
        """One more than the last index."""
        return self.start + (self.count - 1) * self.stride + self.block

    @property
    def has_no_limit(self) -> bool:
        return self.stop >= _NO_LIMIT


@dataclass(frozen=True)
class Mapping:
    """Elements of a virtual dataset, and the source dataset that has them.

    `virtual` and `source` say what is selected along each axis, `bounds` and `source_bounds` are
    the boxes around it. `virtual` and `source` are None for a selection that is no product of
    axes, `source` and `source_bounds` for all of a source. `wanted_count` counts the elements, of
    a mapping without limit those up to where the virtual dataset ends.
    """

    file_name: str
    name: str
    wanted_count: int
    virtual: tuple[_Indices, ...] | None
    bounds: Box
    source: tuple[_Indices, ...] | None
    source_bounds: Box | None

    @property
    def may_grow(self) -> bool:
        """Whether the mapping reaches as far as the source, and HDF5 reads fill values behind."""
        return self.source is not None and any(axis.has_no_limit for axis in self.source)

    def is_covered_by(self, extent: tuple[int, ...]) -> bool:
        """Whether a source of a shape has all of the elements that are wanted of it."""
        if self.source_bounds is None:
            return math.prod(extent) >= self.wanted_count
        if len(self.source_bounds[0]) != len(extent):
            return False
        if self.source is not None:
            counts = (
                axis.count_below(length) for axis, length in zip(self.source, extent, strict=True)
            )
            return math.prod(counts) >= self.wanted_count
        ends = zip(*self.source_bounds, extent, strict=True)
        return all(start + count <= length for start, count, length in ends)

    def pairs(
        self, box: Box, extent: tuple[int, ...]
    ) -> tuple[list[npt.NDArray[np.int64]], list[npt.NDArray[np.int64]]] | None:
        """Indices along each axis of the dataset and of its source, whose shape is `extent`.

        They name the elements that the mapping has of a box. The two lists have as many elements,
        in the same order. None if the selections are no products of axes, or of other shapes.
        """
        source = self.source
        if source is None and self.source_bounds is None:
            source = tuple(_Indices(0, max(length, 1), 1, length) for length in extent)
        if self.virtual is None or source is None or len(source) != len(extent):
            return None
        numbers = []
        here = []
        for axis, low, length in zip(self.virtual, *box, strict=True):
            first, stop = axis.count_below(low), axis.count_below(low + length)
            here.append(axis.at(first, stop))
            if axis.total != 1:
                numbers.append((axis.total, first, stop))
        there = []
        for axis in source:
            total, first, stop = (1, 0, 1) if axis.total == 1 or not numbers else numbers.pop(0)
            if axis.total != total:
                return None
            there.append(axis.at(first, stop))
        return None if numbers else (here, there)

    def source_box(self, box: Box, extent: tuple[int, ...]) -> Box:
        """The box of the source, of a shape, in which the elements of a box of the dataset lie.

        It is larger than need be where the two selections do not have the same shape.
        """
        whole = (0,) * len(extent), extent
        source_start, source_shape = self.source_bounds or whole
        if self.bounds[1] != source_shape or self.wanted_count != math.prod(source_shape):
            return _overlap((source_start, source_shape), whole)
        start, shape = _overlap(self.bounds, box)
        moved = (s - v + low for s, v, low in zip(start, self.bounds[0], source_start, strict=True))
        return tuple(moved), shape


def mappings(identifier: Any, box: Box) -> Iterator[Mapping]:
    """The mappings of an open virtual dataset that concern a box of it.

    A mapping without limit counts as far as the dataset reaches. One whose source is a pattern
    ("%b") becomes a mapping for each block.
    """
    plist = identifier.get_create_plist()
    extent = identifier.shape
    for index in range(plist.get_virtual_count()):
        file_name, name = plist.get_virtual_filename(index), plist.get_virtual_dsetname(index)
        virtual = plist.get_virtual_vspace(index)
        source = plist.get_virtual_srcspace(index)
        axes = _axes(virtual, extent)
        is_pattern = _has_number(file_name) or _has_number(name)
        if axes is not None and is_pattern and any(axis.has_no_limit for axis in axes):
            for number, block in _blocks(axes, box):
                yield from _mapping(
                    _with_number(file_name, number),
                    _with_number(name, number),
                    block,
                    (virtual, source),
                    extent,
                    box,
                )
        else:
            yield from _mapping(
                _with_number(file_name, 0),
                _with_number(name, 0),
                axes,
                (virtual, source),
                extent,
                box,
            )


def overlap_and_gap(found: list[Mapping], box: Box) -> tuple[bool, bool]:
    """Whether mappings may name elements of a box twice, and may leave out others."""
    start, shape = box
    stops = tuple(low + length for low, length in zip(start, shape, strict=True))
    named = h5s.create_simple(stops)
    named.select_none()
    count = 0
    for mapping in found:
        if mapping.virtual is None:
            return True, True
        axes = list(zip(mapping.virtual, start, stops, strict=True))
        blocks = (axis.blocks_below(stop) for axis, _, stop in axes)
        named.select_hyperslab(*zip(*blocks, strict=True), op=h5s.SELECT_OR)
        count += math.prod(
            axis.count_below(stop) - axis.count_below(low) for axis, low, stop in axes
        )
    named.select_hyperslab(start, (1,) * len(start), block=shape, op=h5s.SELECT_AND)
    union = named.get_select_npoints()
    return count > union, union < math.prod(shape)


def _mapping(
    file_name: str,
    name: str,
    axes: tuple[_Indices, ...] | None,
    spaces: tuple[Any, Any],
    extent: tuple[int, ...],
    box: Box,
) -> Iterator[Mapping]:
    """A mapping, if a box has elements of it."""
    virtual, source = spaces
    if axes is None:
        bounds = _bounds(virtual)
        wanted = virtual.get_select_npoints()
        if 0 in _overlap(bounds, box)[1]:
            return
    else:
        start, shape = box
        for axis, low, length in zip(axes, start, shape, strict=True):
            if axis.count_below(low) == axis.count_below(low + length):
                return
        wanted = math.prod(
            axis.count_below(length) for axis, length in zip(axes, extent, strict=True)
        )
        stops = (min(axis.stop, length) for axis, length in zip(axes, extent, strict=True))
        starts = tuple(axis.start for axis in axes)
        bounds = starts, tuple(stop - low for stop, low in zip(stops, starts, strict=True))
    if source.get_select_type() == h5s.SEL_ALL:
        yield Mapping(file_name, name, wanted, axes, bounds, None, None)
        return
    inner = _axes(source, ())
    if inner is None:
        yield Mapping(file_name, name, wanted, axes, bounds, None, _bounds(source))
        return
    source_bounds = (
        tuple(axis.start for axis in inner),
        tuple(axis.stop - axis.start for axis in inner),
    )
    yield Mapping(file_name, name, wanted, axes, bounds, inner, source_bounds)


def _axes(space: Any, extent: tuple[int, ...]) -> tuple[_Indices, ...] | None:
    """What a dataspace selects along each axis; None if it is no product of axes."""
    if space.get_select_type() == h5s.SEL_ALL:
        return tuple(_Indices(0, max(length, 1), 1, length) for length in extent)
    if not space.is_regular_hyperslab():
        return None
    return tuple(_indices(*axis) for axis in zip(*space.get_regular_hyperslab(), strict=True))


def _indices(start: int, stride: int, count: int, block: int) -> _Indices:
    if block == h5s.UNLIMITED:
        return _Indices(start, _NO_LIMIT, 1, _NO_LIMIT)
    if count == 1:  # HDF5 gives any stride for a single block
        stride = max(stride, block)
    return _Indices(start, stride, _NO_LIMIT if count == h5s.UNLIMITED else count, block)


def _bounds(space: Any) -> Box:
    first, last = space.get_select_bounds()
    return tuple(first), tuple(b - a + 1 for a, b in zip(first, last, strict=True))


def _overlap(a: Box, b: Box) -> Box:
    start, shape = [], []
    for low, length, other, other_length in zip(*a, *b, strict=True):
        first = max(low, other)
        start.append(first)
        shape.append(max(0, min(low + length, other + other_length) - first))
    return tuple(start), tuple(shape)


def _blocks(axes: tuple[_Indices, ...], box: Box) -> Iterator[tuple[int, tuple[_Indices, ...]]]:
    """The blocks of an unlimited selection in which a box may have elements, with their numbers."""
    at = next(i for i, axis in enumerate(axes) if axis.has_no_limit)
    axis, low, high = axes[at], box[0][at], box[0][at] + box[1][at]
    first = max(0, (low - axis.start) // axis.stride)
    for number in range(first, max(first, -(-(high - axis.start) // axis.stride))):
        one = _Indices(axis.start + number * axis.stride, axis.stride, 1, axis.block)
        yield number, (*axes[:at], one, *axes[at + 1 :])


def _has_number(text: str) -> bool:
    return "%b" in re.sub("%%", "", text)


def _with_number(text: str, number: int) -> str:
    """A source's name with the number of a block for each "%b", and "%" for each "%%"."""
    return re.sub("%[b%]", lambda found: "%" if found[0] == "%%" else str(number), text)
