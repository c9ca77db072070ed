"""gpufetch's ways to look at an array, for the case `interaction`."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

import gpufetch as gf
from cases.interaction_peers import PIXELS, Figure, Window
from gpufetch import _core
from harness import Array

VIEWER = "gpufetch.view"


class Counter:
    """Bytes of what gpufetch's calls bring from the device."""

    nbytes = 0

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        kept = {name: getattr(_core, name) for name in ("fetch", "overview", "stats", "histogram")}
        self.nbytes = 0
        for name, call in kept.items():
            setattr(_core, name, self.counted(call))
        try:
            yield
        finally:
            for name, call in kept.items():
                setattr(_core, name, call)

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **options: Any) -> Any:
            result = call(*arguments, **options)
            self.nbytes += nbytes_of(result)
            return result

        return counting


def nbytes_of(result: Any) -> int:
    """Of arrays and numbers in it."""
    if isinstance(result, np.ndarray):
        return int(result.nbytes)
    if isinstance(result, tuple | list):
        return sum(map(nbytes_of, result))
    if isinstance(result, dict):
        return sum(map(nbytes_of, result.values()))
    return 8 if isinstance(result, int | float) else 0


class TileViewer:
    """gpufetch.view, asked for the tiles that its page asks for."""

    def __init__(self, pull: Any, x: Any) -> None:
        self.counter = Counter()
        self.tiles: dict[tuple[int, ...], tuple[list[range], Array]] = {}
        self.change(x)

    def change(self, x: Any) -> None:
        from gpufetch._viewer.tiles import Options, make_panel

        self.panel = make_panel(x, "", Options())
        self.tiles.clear()

    def show(self, window: Window) -> tuple[int, int]:
        """The overview, then the level whose cells are one to two pixels, as in viewer.js."""
        low, high = self.window = window
        panel = self.panel
        self.levels = [
            min(count - 1, max(0, math.ceil(math.log2((high - low) * length / PIXELS))))
            for length, count in zip(panel.shape, panel.levels, strict=True)
        ]
        places = [
            range(int(low * tiles), min(math.ceil(tiles), math.ceil(high * tiles)))
            for tiles in self.tile_counts()
        ]
        with self.counter.counting():
            to_page = self.take([count - 1 for count in panel.levels], (0,) * len(panel.shape))
            to_page += sum(self.take(self.levels, place) for place in product(*places))
        return self.counter.nbytes, to_page

    def tile_counts(self) -> list[float]:
        """How many tiles each axis has, of which the last may be a part of one."""
        cells = self.panel.tile_cells
        pairs = zip(self.panel.shape, self.levels, strict=True)
        return [length / (cells << level) for length, level in pairs]

    def take(self, levels: list[int], place: tuple[int, ...]) -> int:
        """Ask for a tile unless it is there; bytes of the answer."""
        from gpufetch._viewer.messages import answer

        key = (*levels, *place)
        if key in self.tiles:
            return 0
        request = {"id": "1", "op": "tile", "panel": 0, "index": [], "levels": levels}
        reply, buffers = answer([self.panel], request | {"place": list(place)}, [])
        if "error" in reply:
            raise RuntimeError(reply["error"])
        shape = (*reply["cells"], 2) if self.panel.kind == "line" else reply["cells"]
        values = np.frombuffer(buffers[0], np.float32).reshape(shape) * reply["unit"]
        boxes = [
            range(n * (self.panel.tile_cells << level), length, 1 << level)
            for n, level, length in zip(place, levels, self.panel.shape, strict=True)
        ]
        self.tiles[key] = boxes, values + reply["offset"]
        return len(json.dumps(reply)) + len(buffers[0])

    def shown(self) -> Array:
        places = self.window[0] + (np.arange(PIXELS) + 0.5) / PIXELS * np.diff(self.window)
        at = [(places * length).astype(int) for length in self.panel.shape]
        result = np.full((PIXELS,) * len(at) + ((2,) if len(at) == 1 else ()), np.nan)
        for key, (boxes, values) in self.tiles.items():
            if list(key[: len(at)]) != self.levels:
                continue
            cells = [(n - box.start) // box.step for n, box in zip(at, boxes, strict=True)]
            inside = [
                np.flatnonzero((cell >= 0) & (cell < length))
                for cell, length in zip(cells, values.shape, strict=False)
            ]
            source = values[np.ix_(*(cell[i] for cell, i in zip(cells, inside, strict=True)))]
            result[np.ix_(*inside)] = source
        return result if len(at) == 2 else np.array([result[:, 0].min(), result[:, 1].max()])

    def close(self) -> None:
        self.tiles.clear()


class Plot(Figure):
    """gpufetch.plot on axes of as many pixels."""

    def __init__(self, draw: Callable[..., Any], pull: Any, x: Any) -> None:
        super().__init__(x.shape)
        self.draw, self.made, self.counter = draw, None, Counter()
        self.change(x)

    def change(self, x: Any) -> None:
        self.tensor, self.is_new = x, True

    def show(self, window: Window) -> tuple[int, int]:
        with self.counter.counting():
            if self.is_new:
                if self.made is not None:
                    self.made.remove()
                self.made, self.is_new = self.draw(self.tensor, ax=self.axes, note=False), False
            png = self.drawn(window)
        return self.counter.nbytes, len(png)


IMAGES: dict[str, Callable[..., Any]] = {
    VIEWER: TileViewer,
    "gpufetch.plot.imshow": partial(Plot, partial(gf.plot.imshow, cmap="gray", vmin=-1, vmax=1)),
}
LINES: dict[str, Callable[..., Any]] = {
    VIEWER: TileViewer,
    "gpufetch.plot.line": partial(Plot, partial(gf.plot.line, color="black")),
}
