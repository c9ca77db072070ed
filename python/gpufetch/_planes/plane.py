"""Boxes of a plane, reduced where the tensor lies: numbers, labels, complex numbers, colours."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from gpufetch._planes.notes import Note, cells_text, left_out
from gpufetch._planes.source import Source, part_view
from gpufetch._view import Counts, DeviceView, View

__all__ = ["Box", "Plane", "Tile", "colour_axis"]

Kind = Literal["number", "label", "abs", "phase", "colour"]

_COLOURS = (3, 4)
_METHODS = ("mean", "rms", "min", "max", "first")
# A reply of another process holds so many cells at most, of 8 bytes, or a colour for each.
_REPLY_CELLS_MAX = 1 << 19

# For a shape that is no picture's, by its number of axes.
_REMEDIES = {
    0: "",
    1: "; gpufetch.plot.line draws one axis",
    3: "; index one axis, as x[0], or use gpufetch.plot.slices",
}
_OF_MANY_AXES = "; index the others, as x[0], or use gpufetch.view, which has a slider for each"

_NAMES = {
    "mean": "mean of {}",
    "rms": "root mean square of {}",
    "min": "minimum of {}",
    "max": "maximum of {}",
    "first": "first of {}",
}


class Box(NamedTuple):
    """Rows and columns, each from the first index to behind the last, and the cells of them."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    cells: tuple[int, int]

    @property
    def lengths(self) -> tuple[int, int]:
        """The number of rows and of columns."""
        return self.rows[1] - self.rows[0], self.columns[1] - self.columns[0]


class Tile(NamedTuple):
    """The values of a box's cells, with a third axis for colours, and how they were reduced."""

    box: Box
    values: npt.NDArray[Any]
    how: Note

    @property
    def note(self) -> str:
        return self.how.text()


def colour_axis(shape: tuple[int, ...], channels: str | None) -> int | None:
    """The axis of red, green, blue and perhaps opacity of a picture; None for one of two axes.

    ValueError for a shape that is no picture's.
    """
    if channels not in (None, "first", "last"):
        raise ValueError(f'channels is {channels!r}; it must be "first" or "last"')
    if len(shape) == 2 and channels is None:
        return None
    if len(shape) == 3:
        if channels != "first" and shape[2] in _COLOURS:
            return 2
        if channels != "last" and shape[0] in _COLOURS:
            return 0
    which = "" if channels is None else f' with channels="{channels}"'
    raise ValueError(
        f"shape {shape}{which} is no picture: give (rows, columns), or 3 or 4 channels first or "
        f"last{_REMEDIES.get(len(shape), _OF_MANY_AXES) if channels is None else ''}"
    )


class Plane:
    """Reads boxes of a picture's rows and columns. Immutable; for any thread."""

    def __init__(
        self,
        source: Source,
        *,
        method: str | None,
        is_labels: bool,
        part: str | None,
        channels: str | None,
    ) -> None:
        self.source = source
        array = source.array
        self.dtype = array.dtype
        self._colour_axis = colour_axis(array.shape, channels)
        axes = [axis for axis in range(array.ndim) if axis != self._colour_axis]
        self.shape: tuple[int, int] = (array.shape[axes[0]], array.shape[axes[1]])
        self.axes = (source.axes[axes[0]], source.axes[axes[1]])
        self.kind: Kind = "number"
        self.part = "abs" if part is None and array.dtype.kind == "c" else part
        part_view(source.view(), self.part)  # refuses what does not fit
        if self.part in ("abs", "phase"):
            self.kind = "abs" if self.part == "abs" else "phase"
        if is_labels:
            if array.dtype.kind not in "biu" or self._colour_axis is not None:
                raise ValueError(
                    f"labels are integers of two axes, not {array.dtype} of shape {array.shape}"
                )
            self.kind = "label"
        elif self._colour_axis is not None:
            if array.dtype.kind == "c":
                raise ValueError(f"{array.dtype} is complex: colours are real")
            self.kind = "colour"
        self.method = self._checked(method, array.dtype)
        self._is_mask = array.dtype.kind == "b"

    def _checked(self, method: str | None, dtype: np.dtype[Any]) -> str:
        fixed = {"label": "first", "abs": "rms", "phase": "mean"}.get(self.kind)
        if method is None:
            return fixed or ("max" if dtype.kind == "b" and self.kind == "number" else "mean")
        if method not in _METHODS:
            choices = ", ".join(f'"{name}"' for name in _METHODS)
            raise ValueError(f"method is {method!r}; it must be one of {choices}")
        if fixed not in (None, method):
            what = {"label": "labels", "abs": "magnitudes", "phase": "phases"}[self.kind]
            raise ValueError(f'method is {method!r}; {what} are reduced by "{fixed}"')
        return method

    def view(self) -> View:
        """The rows and columns; colours, or real and imaginary parts, are a last axis."""
        view = self.source.view()
        if self._colour_axis == 0:
            view = view.transposed((1, 2, 0))
        return part_view(view, self.part)

    def read(self, view: View, box: Box) -> Tile:
        """Pull a box of `view` as it is if it has an element a cell, else reduce it."""
        if not isinstance(view, DeviceView):
            box = _within_reply(box)
        (top, bottom), (left, right) = box.rows, box.columns
        part = view[top:bottom, left:right]
        with np.errstate(all="ignore"):
            if box.cells == box.lengths:
                return Tile(box, self._elements(part.fetch()), Note("", {}))
            values, counts = self._reduced(part, box.cells)
        return Tile(box, values, self._note(box, counts))

    def _elements(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.kind == "abs":
            magnitudes = np.hypot(values[..., 0], values[..., 1])
            # hypot(inf, NaN) is inf, as in C.
            return np.where(np.isnan(values).any(axis=-1), np.nan, magnitudes).astype(values.dtype)
        if self.kind == "phase":
            return np.asarray(np.arctan2(values[..., 1], values[..., 0]))
        return values

    def _reduced(self, part: View, cells: tuple[int, int]) -> tuple[npt.NDArray[Any], Counts]:
        shape = cells if part.ndim == 2 else (*cells, part.shape[2])
        values, _, counts = part.overview(shape, self.method)
        # The mean squares of the components add up to that of the magnitude. Where every value of
        # one component is NaN, so is the cell.
        return self._elements(values), counts

    def _note(self, box: Box, counts: Counts) -> Note:
        name = _NAMES[self.method]
        if self.kind == "label":
            name = "nearest (first) of {}"
        elif self.kind == "abs":
            name = "magnitude, root mean square of {}"
        elif self.kind == "phase":
            name = "phase of the mean of {}"
        elif self._is_mask:
            name = {"max": "any of {}", "min": "all of {}"}.get(self.method, name)
        counts_of_read = None if self.method == "first" else counts
        what = " components" if self.kind in ("abs", "phase") else ""
        text = name.format(cells_text(box.lengths, box.cells))
        return Note(text, left_out(counts_of_read, what))


def _within_reply(box: Box) -> Box:
    """The same box with few enough cells for one reply."""
    count = math.prod(box.cells)
    if count <= _REPLY_CELLS_MAX or box.cells == box.lengths:
        return box
    scale = math.sqrt(_REPLY_CELLS_MAX / count)
    rows, columns = (max(1, int(n * scale)) for n in box.cells)
    return box._replace(cells=(rows, columns))
