"""Reads for drawings: at once, or beside a window or page, where the newest one wins."""

from __future__ import annotations

import collections
import contextlib
import itertools
import queue
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from gpufetch._planes.source import EPSILON, indices_between
from gpufetch._threads import Workers

__all__ = ["Puller", "is_live", "visible"]

_T = TypeVar("_T")
_PATIENCE_S = 0.1  # how long a drawing waits for its read where it may be repeated
_POLL_MS = 30


def visible(
    edges: tuple[float, float], length: int, limits: tuple[float, float], pixels: float
) -> tuple[int, int, int] | None:
    """The first index in view and the one behind the last, and how many cells fit their pixels.

    `edges` are where index 0 begins and where the last one ends, `limits` are those of an axis that
    is `pixels` long. None where no index is in view.
    """
    begin, end = edges
    if length == 0 or begin == end or limits[0] == limits[1]:
        return None
    low, high = sorted((limit - begin) / (end - begin) * length for limit in limits)
    first, last = indices_between(low, high, length)
    if first >= last:
        return None
    shown = pixels * (last - first) / (high - low) if high > low else pixels
    cells = min(float(last - first), max(1.0, shown))
    return first, last, int(-(-(cells - EPSILON) // 1)) or 1


def _is_page(canvas: Any) -> bool:
    """Whether a canvas lies in a page, which it asks to draw by a message, from any thread."""
    return any(kind.__name__ == "FigureCanvasWebAggCore" for kind in type(canvas).__mro__)


def is_live(canvas: Any) -> bool:
    """Whether a drawing is for a window or a page, where another one may follow by itself."""
    if canvas.is_saving():
        return False
    return _is_page(canvas) or canvas.required_interactive_framework is not None


class _Request(Generic[_T]):
    """One read. `error` and `is_done` are set by the thread that does it."""

    def __init__(self, key: Hashable, number: int, pull: Callable[[], _T]) -> None:
        self.key = key
        self.number = number
        self.pull = pull
        self.error: Exception | None = None
        self.is_done = False
        self.ended: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.redraw: Callable[[], object] | None = None


class Puller(Generic[_T]):
    """What was read last for an artist, by a key that says what that was. For any thread.

    Every attribute is replaced as a whole, so that no lock is needed: two drawings at once each get
    what they ask for.
    """

    def __init__(self) -> None:
        self._newest: tuple[Hashable, int, _T] | None = None
        self._wanted: collections.deque[_Request[_T]] = collections.deque(maxlen=1)
        self._asked: _Request[_T] | None = None
        self._numbers = itertools.count()
        self._workers = Workers(1)
        self._timer: Any = None

    def put(self, key: Hashable, value: _T) -> None:
        """Take in what was read otherwise."""
        self._take(key, next(self._numbers), value)

    @property
    def newest(self) -> _T | None:
        """What was read last."""
        newest = self._newest
        return None if newest is None else newest[2]

    def get(
        self, key: Hashable, pull: Callable[[], _T], canvas: Any
    ) -> tuple[_T, Exception | None]:
        """What `pull` gives for this key, from now or from before; raises what it raises.

        For a window or a page it may be what was read for another key: the canvas draws again when
        there is better. An error of such a read is returned, not raised.
        """
        newest = self._newest
        if newest is not None and newest[0] == key:
            return newest[2], None
        if newest is None or not is_live(canvas):
            number, value = next(self._numbers), pull()
            self._take(key, number, value)
            return value, None
        request = self._asked
        if request is None or request.key != key:
            request = _Request(key, next(self._numbers), pull)
            self._asked = request
            self._wanted.append(request)  # an older one that is not begun is dropped
            self._workers.start(self._run)
        if not request.is_done:
            self._wait(request, canvas)
        newest = self._newest or newest
        return newest[2], request.error

    def _take(self, key: Hashable, number: int, value: _T) -> None:
        newest = self._newest
        if newest is None or number > newest[1]:
            self._newest = (key, number, value)

    def _run(self) -> None:
        """Do the newest read that waits, on a thread of the artist's."""
        try:
            request = self._wanted.pop()
        except IndexError:  # a newer one took its place
            return
        try:
            self._take(request.key, request.number, request.pull())
        except Exception as error:
            request.error = error
        request.is_done = True
        with contextlib.suppress(MemoryError):  # then the drawing looks after its patience
            request.ended.put(None)
        redraw = request.redraw
        if redraw is not None:
            redraw()

    def _wait(self, request: _Request[_T], canvas: Any) -> None:
        """Wait a moment for a read; if that is too short, let the canvas draw again behind it."""
        try:
            request.ended.get(timeout=_PATIENCE_S)
        except queue.Empty:
            if _is_page(canvas):
                request.redraw = canvas.draw_idle
                if request.is_done:  # meanwhile, and perhaps unseen by the thread
                    canvas.draw_idle()
            else:
                self._redraw_by_timer(request, canvas)

    def _redraw_by_timer(self, request: _Request[_T], canvas: Any) -> None:
        """Windows are drawn by their own thread alone, which looks whether the read has ended."""

        def look() -> bool:
            if request.is_done:
                canvas.draw_idle()
            # False ends it, also where a newer request has taken this one's place.
            return not request.is_done and request is self._asked

        if self._timer is not None:
            self._timer.stop()
        self._timer = canvas.new_timer(interval=_POLL_MS)
        self._timer.add_callback(look)
        self._timer.start()
