"""Tiles of a tensor: boxes of a pyramid whose cells are reduced where the tensor lies.

Along each axis, level n has a cell for 2**n elements, and a tile has so many cells that it crosses
the comm in a few milliseconds. The finest level of one tile is the overview's; images have coarser
ones down to one cell, for panels of fewer pixels. The last tile of an axis has what is left; where
its elements are no multiple of 2**n, its cells share them evenly, and none is of fewer than 2**n,
so that none gets lost between pixels.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpufetch import _core
from gpufetch._display.palettes import NAN_COLOUR
from gpufetch._display.summary import bins_of, sample
from gpufetch._lazy.array import LazyArray
from gpufetch._planes.notes import Note
from gpufetch._planes.picture import picture
from gpufetch._planes.plane import Box, Plane, colour_axis
from gpufetch._planes.samples import Samples, envelope
from gpufetch._planes.source import Source, part_view
from gpufetch._view import View

__all__ = ["ColourPanel", "ImagePanel", "LinePanel", "Options", "Panel", "Tile", "make_panels"]

IMAGE_CELLS = 256  # along each axis of a tile: 256 KiB
LINE_CELLS = 4096  # of a tile of one axis, two values each: 32 KiB
_BINS = 128
_COLOURS = 256
_FLOAT32_STEP = 2.0**-24  # at least, as a fraction of the number
_FLOAT32_LARGEST = 1e38
_FLOAT32_SMALLEST = 1e-36  # below that there are fewer and fewer digits
_LARGEST_UNIT = 2.0**1023
_SAMPLE_STEP = 17  # of the numbers that are looked at first
_FLOAT32_NORMAL = float(np.finfo(np.float32).smallest_normal)  # below that it may be 0 on a page


class Options(NamedTuple):
    """How elements are shown; as in `gpufetch.view`."""

    method: str | None = None
    part: str | None = None
    channels: str | None = None
    limits: tuple[float | None, float | None] = (None, None)


class Tile(NamedTuple):
    """Cells as they travel. A cell's value is `unit` times the number that is sent plus `offset`.

    `cells` is the number of cells along each axis, `note` says how these were reduced, and
    `left_out` counts elements that are in none of them, by their names. Positive values below
    `held_from` lack digits for a logarithm, or are 0: a tile of logarithms has them. It is 0 where
    there are none. The bytes of a line's are float32 pairs, lowest and highest, those of a
    picture's are RGBA, and all others are float32 in C order.
    """

    cells: tuple[int, ...]
    data: bytes
    offset: float
    unit: float
    note: str
    left_out: dict[str, int]
    held_from: float = 0.0


def overview_level(length: int, cells: int) -> int:
    """The finest level at which an axis is one tile."""
    return (length // (cells + 1)).bit_length()


def tile_count(length: int, level: int, cells: int) -> int:
    """How many tiles an axis has at a level."""
    return max(1, -(-(length >> level) // cells))


def tile_range(length: int, level: int, place: int, cells: int) -> tuple[int, int, int]:
    """The first index of a tile, the one behind its last, and the number of its cells."""
    first = place * (cells << level)
    is_last = place == tile_count(length, level, cells) - 1
    last = length if is_last else first + (cells << level)
    return first, last, max(1, (last - first) >> level)


def compact(values: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float32], float, float]:
    """Numbers as float32, and their offset and unit.

    These are 0 and 1 unless float32 would not tell the numbers apart, or not hold them. The offset
    is that by which most are told apart, however far from them others are, such as a 0 for what is
    missing.
    """
    numbers = np.asarray(values, np.float64)
    finite = numbers[np.isfinite(numbers)]
    if finite.size == 0:
        return numbers.astype(np.float32), 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    offset = 0.0
    # Each is halved first: their difference may be above the largest float.
    if max(-low, high) * _FLOAT32_STEP > (high / 2 - low / 2) / _COLOURS:
        offset = low / 2 + high / 2
    if not np.can_cast(values.dtype, np.float32):
        offset = _telling_offset(finite, offset)
    unit = _unit(max(high - offset, offset - low))
    quotients = ((numbers - offset) / unit).astype(np.float32)
    if unit == _LARGEST_UNIT:  # twice of which is not finite, and what float32 rounds to
        limit = np.nextafter(np.float32(2), np.float32(0))
        quotients = np.where(np.isfinite(quotients), np.clip(quotients, -limit, limit), quotients)
    return quotients, offset, unit


def _unit(largest: float) -> float:
    """What numbers of up to so much are divided by for float32 to hold them."""
    if largest <= _FLOAT32_LARGEST and not 0 < largest < _FLOAT32_SMALLEST:
        return 1.0
    # A normal power of two, so that the quotient and its product are exact.
    return 2.0 ** max(-1000, int(np.frexp(largest)[1]) - 1)


def _telling_offset(finite: npt.NDArray[np.float64], offset: float) -> float:
    """The offset, or one by which float32 tells many more of the numbers apart."""
    ends = float(finite.min()), float(finite.max())

    def told(numbers: npt.NDArray[np.float64], offset: float) -> npt.NDArray[np.bool]:
        unit = _unit(max(abs(end - offset) for end in ends))
        return np.diff(((numbers - offset) / unit).astype(np.float32)) > 0

    sample = np.sort(finite[::_SAMPLE_STEP])
    if 2 * np.count_nonzero(told(sample, offset)) >= sample.size - 1:
        return offset  # as for most tiles, which need not be sorted then
    numbers = np.unique(finite)
    are_told = told(numbers, offset)
    most = 2 * np.count_nonzero(are_told)
    if most >= are_told.size:
        return offset
    alike = numbers[1:][~are_told]
    centre = float(alike[alike.size // 2])
    unit = _unit(abs(centre))
    # From the float32 beside it a number far away is exact more often: 0 always is.
    for other in (float(np.float32(centre / unit)) * unit, centre):
        if all(math.isfinite(end - other) for end in ends):
            count = np.count_nonzero(told(numbers, other))
            if count > most:
                offset, most = other, count
    return offset


def _held_from(values: npt.NDArray[Any], offset: float, unit: float) -> float:
    """From where on positive numbers have digits for a logarithm; 0 if all of the values have."""
    # Far from an offset, numbers are rounded to its digits.
    least = abs(offset) * _FLOAT32_STEP * _COLOURS if offset else _FLOAT32_NORMAL * unit
    numbers = np.asarray(values, np.float64)
    return least if np.any((numbers > 0) & (numbers < least)) else 0.0


def logarithms(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Natural logarithms, -inf for what is not above 0."""
    numbers = np.asarray(values, np.float64)
    with np.errstate(all="ignore"):
        return np.where(numbers <= 0, -np.inf, np.log(numbers))


class Panel(ABC):
    """One tensor of a viewer, in planes or lines of its last axes. Immutable; for any thread.

    Attributes
    ----------
    kind
        "image", "colour" or "line".
    leading
        The lengths of the axes that an index chooses.
    shape, levels, overview
        The lengths of the axes that are shown, how many levels each has, and which of them is the
        overview's.
    """

    kind: str
    tile_cells = IMAGE_CELLS
    # What a tile's data is: a type of elements, and the lengths of axes after those of the cells.
    element: tuple[str, tuple[int, ...]] = ("float32", ())

    def __init__(self, source: Source, name: str, options: Options, shown: Sequence[int]) -> None:
        array = source.array
        self.name = name
        self.array: LazyArray = array
        self.options = options
        self.shape = tuple(array.shape[axis] for axis in shown)
        self.leading = array.shape[: array.ndim - len(shown) - (self.kind == "colour")]
        self.overview = tuple(overview_level(n, self.tile_cells) for n in self.shape)
        self.levels = tuple(n.bit_length() for n in self.shape)
        named = (*range(len(self.leading)), *shown)
        self._labels = [source.axes[axis].label or f"axis {axis}" for axis in named]

    def describe(self) -> dict[str, Any]:
        """What the page has to know."""
        return {
            "name": self.name,
            "kind": self.kind,
            "dtype": str(self.array.dtype),
            "device": self.array.device,
            "shape": list(self.shape),
            "leading": list(self.leading),
            "labels": self._labels,
            "levels": list(self.levels),
            "overview": list(self.overview),
            "tile": self.tile_cells,
        }

    def at(self, index: Sequence[int]) -> Source:
        """The plane or line at an index of each leading axis."""
        return Source(self.array[tuple(index)] if index else self.array)

    def tile(
        self,
        index: Sequence[int],
        levels: Sequence[int],
        place: Sequence[int],
        is_log: bool = False,
    ) -> Tile:
        """Read one tile: for each axis that is shown its level, and its place there.

        With `is_log` it is one of logarithms; not of a picture in colours.
        """
        ranges = [
            tile_range(n, level, number, self.tile_cells)
            for n, level, number in zip(self.shape, levels, place, strict=True)
        ]
        return self.read(self.at(index), ranges, is_log)

    def encoded(self, tile: Tile) -> bytes:
        """The tile's data as a chunk of docs/format.md."""
        dtype, axes = self.element
        return _core.chunk_encode(tile.data, dtype, (*tile.cells, *axes))

    def values(self, index: Sequence[int], box: Sequence[tuple[int, int]]) -> npt.NDArray[Any]:
        """Pull the elements of a box of the axes that are shown."""
        view = self._elements(self.at(index))
        return view[tuple(slice(*ends) for ends in box)].fetch()

    def key(self, index: Sequence[int], box: Sequence[tuple[int, int]]) -> tuple[int | slice, ...]:
        """The tensor's index for a box of the axes that are shown."""
        return (*index, *(slice(*ends) for ends in box))

    def last_step(self) -> int | None:
        """The step that the tensor's program completed last; None if no program says steps."""
        return self.array._gpufetch_view().last_step()

    def read(
        self, source: Source, ranges: Sequence[tuple[int, int, int]], is_log: bool = False
    ) -> Tile:
        """Read cells, as they travel: ranges as in `cells`."""
        values, note = self.cells(source, ranges)
        numbers, offset, unit = compact(logarithms(values) if is_log else values)
        held_from = 0.0 if is_log else _held_from(values, offset, unit)
        cells = numbers.shape[: len(self.shape)]
        return Tile(cells, numbers.tobytes(), offset, unit, *note, held_from)

    @abstractmethod
    def cells(
        self, source: Source, ranges: Sequence[tuple[int, int, int]]
    ) -> tuple[npt.NDArray[Any], Note]:
        """Read cells: for each axis the first index, the one behind the last, and the cells."""

    @abstractmethod
    def _elements(self, source: Source) -> View:
        """The elements of a plane or line, with the axes that are shown first."""

    def histogram(self, index: Sequence[int]) -> dict[str, Any]:
        """Counts of the finite elements in bins, from the device.

        `counts` is None where these are one value, or too close together for bins, and `range` is
        None where there are none; `sample` is n where one of n elements was counted.
        """
        view, step = sample(part_view(self._elements(self.at(index)), self._histogram_part()))
        stats = view.stats()
        bins = bins_of(stats, view.dtype, _BINS)
        if bins is None:
            ends = [float(stats[end]) for end in ("finite_min", "finite_max")]
            known = ends if stats["finite_count"] else None
            return {"counts": None, "range": known, "sample": step}
        counts, edges, _ = view.histogram(*bins)
        ends = [float(edges[0]), float(edges[-1])]
        return {"counts": counts.tolist(), "range": ends, "sample": step}

    def _histogram_part(self) -> str | None:
        if self.array.dtype.kind == "c" and self.options.part not in ("real", "imag"):
            raise TypeError(
                f"{self.array.dtype} is complex, of which there is no histogram: view it with "
                'part="real" or part="imag"'
            )
        return self.options.part


class ImagePanel(Panel):
    """Planes of the last two axes, in colours of a map."""

    kind = "image"

    def __init__(self, source: Source, name: str, options: Options) -> None:
        super().__init__(source, name, options, (source.array.ndim - 2, source.array.ndim - 1))
        self._plane(self.at((0,) * len(self.leading)))  # refuses what does not fit

    def _plane(self, source: Source) -> Plane:
        return Plane(
            source,
            method=self.options.method,
            is_labels=False,
            part=self.options.part,
            channels=self.options.channels,
        )

    def cells(
        self, source: Source, ranges: Sequence[tuple[int, int, int]]
    ) -> tuple[npt.NDArray[Any], Note]:
        plane = self._plane(source)
        (top, bottom, rows), (left, right, columns) = ranges
        tile = plane.read(plane.view(), Box((top, bottom), (left, right), (rows, columns)))
        return tile.values, tile.how

    def _elements(self, source: Source) -> View:
        return source.view()


class ColourPanel(ImagePanel):
    """Pictures in red, green, blue and perhaps opacity."""

    kind = "colour"
    element = ("uint8", (4,))

    def __init__(self, source: Source, name: str, options: Options) -> None:
        last = source.array.ndim - 1
        rows = last - 2 if options.channels == "last" else last - 1
        Panel.__init__(self, source, name, options, (rows, rows + 1))
        self._plane(self.at((0,) * len(self.leading)))

    def read(
        self, source: Source, ranges: Sequence[tuple[int, int, int]], is_log: bool = False
    ) -> Tile:
        values, note = self.cells(source, ranges)
        with np.errstate(all="ignore"):
            rgba = picture(values, self.array.dtype, *self.options.limits, (*NAN_COLOUR, 255))
        return Tile(rgba.shape[:2], rgba.tobytes(), 0.0, 1.0, *note)

    def _elements(self, source: Source) -> View:
        view = source.view()
        return view.transposed((1, 2, 0)) if self.options.channels == "first" else view

    def key(self, index: Sequence[int], box: Sequence[tuple[int, int]]) -> tuple[int | slice, ...]:
        channels = (slice(None),) if self.options.channels == "first" else ()
        return (*index, *channels, *(slice(*ends) for ends in box))


class LinePanel(Panel):
    """One axis, as the lowest and the highest value of each cell."""

    kind = "line"
    tile_cells = LINE_CELLS
    element = ("float32", (2,))

    def __init__(self, source: Source, name: str, options: Options) -> None:
        if options.part is None and source.array.dtype.kind == "c":
            options = options._replace(part="real")
        super().__init__(source, name, options, (source.array.ndim - 1,))
        # Any number of cells is drawn on a pixel.
        self.levels = tuple(level + 1 for level in self.overview)
        self._samples(source)

    def _samples(self, source: Source) -> View:
        return Samples(source, self.options.part, (0.0, 0.0)).view()

    def cells(
        self, source: Source, ranges: Sequence[tuple[int, int, int]]
    ) -> tuple[npt.NDArray[Any], Note]:
        ((first, last, cells),) = ranges
        low, high, note = envelope(self._samples(source), first, last, cells)
        return np.stack([low, low if high is None else high], axis=1), note

    def _elements(self, source: Source) -> View:
        return source.view()


def make_panel(x: Any, name: str, options: Options) -> Panel:
    """The panel of a tensor; ValueError or TypeError for one that cannot be shown."""
    source = Source(x)
    shape = source.array.shape
    if not shape or 0 in shape:
        raise ValueError(f"shape {shape} has nothing to be seen: give one axis or more, none of 0")
    if len(shape) == 1:
        if options.channels is not None:
            colour_axis(shape, options.channels)  # raises: no picture
        return LinePanel(source, name, options)
    if options.channels is None and len(shape) == 3 and source.array.dtype == np.uint8:
        # Bytes of a picture's shape are a picture; other tensors may have axes of 3 or 4.
        with contextlib.suppress(ValueError):
            axis = colour_axis(shape, None)
            options = options._replace(channels="last" if axis == 2 else "first")
    if options.channels is None:
        return ImagePanel(source, name, options)
    colour_axis(shape[-3:], options.channels)
    return ColourPanel(source, name, options)


def make_panels(
    arrays: Sequence[Any], names: Sequence[str] | None, options: Options
) -> list[Panel]:
    """A panel for each tensor; all are of one kind, and have leading axes of the same lengths."""
    if not arrays:
        raise ValueError("view() shows one tensor or more: give one")
    if names is None:
        names = [""] * len(arrays)
    if isinstance(names, str) or len(names) != len(arrays):
        raise ValueError(f"names are {names!r:.80} for {len(arrays)} tensors: give one for each")
    panels = [make_panel(x, str(name), options) for x, name in zip(arrays, names, strict=True)]
    first = panels[0]
    for number, panel in enumerate(panels):
        if (panel.kind == "line") != (first.kind == "line") or panel.leading != first.leading:
            raise ValueError(
                f"tensor {number} of shape {panel.array.shape} does not fit the first, of shape "
                f"{first.array.shape}: those that share a viewer are all lines or all images, with "
                "leading axes of the same lengths"
            )
    return panels
