"""Plots in windows and pages, and beside cells that plot: the newest view wins."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import matplotlib.pyplot as plt
from matplotlib.backend_bases import TimerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import gpufetch as gf
from gpufetch._planes.plane import Plane
from gpufetch.plot import _pull

RNG = np.random.default_rng(13)
WAIT_S = 30


class Timer(TimerBase):
    """Runs when the test says so, as the timer of a window does in its event loop."""

    running: list[Timer] = []  # noqa: RUF012

    def _timer_start(self) -> None:
        Timer.running.append(self)

    def _timer_stop(self) -> None:
        if self in Timer.running:
            Timer.running.remove(self)


class Window(FigureCanvasAgg):
    """A canvas of a window without a window system."""

    required_interactive_framework = "test"
    _timer_cls = Timer
    asked = 0

    def draw_idle(self, *args: Any, **kwargs: Any) -> None:
        self.asked += 1


class FigureCanvasWebAggCore(FigureCanvasAgg):
    """A canvas that lies in a page, by the name of Matplotlib's."""

    def draw_idle(self, *args: Any, **kwargs: Any) -> None:
        asked.append(threading.current_thread())


asked: list[threading.Thread] = []


class Gate:
    """Holds every read of a plane up until it is opened, and notes their boxes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.began = threading.Semaphore(0)
        self.boxes: list[Any] = []
        self.error: Exception | None = None
        read = Plane.read

        def gated(plane: Any, view: Any, box: Any) -> Any:
            self.boxes.append(box)
            self.began.release()
            assert self.open.wait(WAIT_S)
            if self.error is not None:
                raise self.error
            return read(plane, view, box)

        patch.setattr(Plane, "read", gated)


def image_on(canvas: Any) -> tuple[Any, Any]:
    """An image of 100 by 100 pixels with numbers of their own, drawn once."""
    figure = Figure(figsize=(1, 1), dpi=100)
    canvas(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    values = np.arange(1_000_000.0).reshape(1000, 1000)
    image = gf.plot.imshow(gf.to_device(values), ax=axes)
    figure.canvas.draw()
    return image, values


def pan(image: Any, first: int) -> Any:
    """Show ten columns from `first`, and return the picture."""
    image.axes.set_xlim(first - 0.5, first + 9.5)
    image.axes.set_ylim(9.5, -0.5)
    image.figure.canvas.draw()
    return np.asarray(image.figure.canvas.buffer_rgba()).copy()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_pull, "_PATIENCE_S", 0.01)
    yield
    Timer.running.clear()  # they keep their figures, which keep what was read
    asked.clear()


def ended(image: Any) -> None:
    """Wait until no thread reads for an image."""
    request = image._puller._asked
    deadline = threading.Event()
    for _ in range(3000):
        if request.is_done and not image._puller._workers._running:
            return
        deadline.wait(0.01)
    raise AssertionError("a read did not end")


@pytest.mark.usefixtures("impatient")
def test_of_several_views_the_newest_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    image, values = image_on(Window)
    gate = Gate(monkeypatch)
    for first in range(100, 200, 10):
        before = image.get_array()
        pan(image, first)
        assert image.get_array() is before  # what there was is drawn
        if first == 100:
            assert gate.began.acquire(timeout=WAIT_S)
    assert len(gate.boxes) == 1
    gate.open.set()
    ended(image)
    assert [box.columns for box in gate.boxes] == [(100, 110), (190, 200)]
    np.testing.assert_array_equal(image.get_array(), values[:10, 190:200])


@pytest.mark.usefixtures("impatient")
def test_a_window_is_drawn_again_by_its_own_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    image, values = image_on(Window)
    canvas = image.figure.canvas
    gate = Gate(monkeypatch)
    pan(image, 50)
    pan(image, 60)
    (timer,) = set(Timer.running)
    cast(Any, timer)._on_timer()
    assert canvas.asked == 0
    gate.open.set()
    ended(image)
    cast(Any, timer)._on_timer()
    assert canvas.asked == 1 and Timer.running == []
    late = pan(image, 60)
    np.testing.assert_array_equal(image.get_array(), values[:10, 60:70])
    other, _ = image_on(FigureCanvasAgg)
    np.testing.assert_array_equal(late, pan(other, 60))


@pytest.mark.usefixtures("impatient")
def test_a_page_is_asked_to_draw_again(monkeypatch: pytest.MonkeyPatch) -> None:
    image, values = image_on(FigureCanvasWebAggCore)
    gate = Gate(monkeypatch)
    pan(image, 50)
    assert asked == []
    gate.open.set()
    ended(image)
    assert asked
    pan(image, 50)
    np.testing.assert_array_equal(image.get_array(), values[:10, 50:60])


@pytest.mark.usefixtures("impatient")
def test_a_read_that_fails_is_said_on_the_axes_of_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    image, values = image_on(Window)
    before = pan(image, 20)
    gate = Gate(monkeypatch)
    gate.error = ConnectionError("the server\nhas ended")
    gate.open.set()
    pan(image, 20)
    texts: list[str] = []
    from gpufetch.plot import _artist

    draw_note = _artist.draw_note
    monkeypatch.setattr(
        _artist,
        "draw_note",
        lambda *drawn: (texts.append(drawn[2]), draw_note(*drawn)),
    )
    pan(image, 30)
    ended(image)
    assert (pan(image, 30) != before).any()
    assert texts[-1] == "not shown: ConnectionError: the server has ended"
    assert len(gate.boxes) == 1  # it is not tried again for the same view
    gate.error = None
    pan(image, 40)
    ended(image)
    pan(image, 40)
    np.testing.assert_array_equal(image.get_array(), values[:10, 40:50])


def test_a_file_is_saved_from_a_window_with_all_that_it_shows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(_pull, "_PATIENCE_S", 0.0)
    image, values = image_on(Window)
    image.axes.set_xlim(299.5, 309.5)
    image.axes.set_ylim(9.5, -0.5)
    image.figure.savefig(tmp_path / "saved.png")
    np.testing.assert_array_equal(image.get_array(), values[:10, 300:310])


# --- Beside cells that plot ---


def cell(number: int) -> Any:
    """What a cell might do: pyplot's figures, by pyplot's state."""
    rng = np.random.default_rng(number)
    plt.figure(figsize=(2, 2), dpi=60)
    plt.plot(rng.normal(size=50).cumsum(), label=f"cell {number}")
    plt.legend()
    plt.title(f"cell {number}")
    axes = plt.gca()
    plt.axes((0.6, 0.6, 0.3, 0.3)).imshow(rng.normal(size=(8, 8)))
    plt.sca(axes)
    plt.ylabel("value")
    figure = plt.gcf()
    figure.canvas.draw()
    pixels = np.asarray(cast(Any, figure.canvas).buffer_rgba()).copy()
    plt.close()
    return pixels


def zoomed(images: Any, number: int) -> Any:
    """What a page does on another thread: limits, and a drawing."""
    image, line, bars = images
    image.axes.set_xlim(number, number + 40)
    line.axes.set_xlim(1000 * number, 1000 * number + 5000)
    bars.axes.set_xlim(-1 - number / 50, 1)
    image.figure.canvas.draw()
    return np.asarray(image.figure.canvas.buffer_rgba()).copy()


def plots() -> Any:
    rng = np.random.default_rng(3)
    figure = Figure(figsize=(3, 1), dpi=60)
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 3)
    return (
        gf.plot.imshow(gf.to_device(rng.normal(size=(200, 300))), ax=axes[0]),
        gf.plot.line(gf.to_device(rng.normal(size=60_000)), ax=axes[1]),
        gf.plot.hist(gf.to_device(rng.normal(size=60_000)), ax=axes[2]),
    )


def test_cells_of_pyplot_beside_zooms_give_the_same_figures() -> None:
    count = 50
    plt.switch_backend("agg")
    cells = [cell(number) for number in range(count)]
    images = plots()
    zooms = [zoomed(images, number) for number in range(count)]
    assert plt.get_fignums() == []

    images = plots()
    start = threading.Barrier(2)

    def zoom() -> list[Any]:
        start.wait(WAIT_S)
        return [zoomed(images, number) for number in range(count)]

    with ThreadPoolExecutor(1) as other:
        zooming = other.submit(zoom)
        start.wait(WAIT_S)
        beside = [cell(number) for number in range(count)]
        found = zooming.result(300)
    assert plt.get_fignums() == []
    for number in range(count):
        np.testing.assert_array_equal(beside[number], cells[number])
        np.testing.assert_array_equal(found[number], zooms[number])


def test_two_threads_that_draw_one_image_each_get_what_they_show() -> None:
    """Two figures cannot share an artist, so this is of what an artist keeps: what it has read."""
    puller: _pull.Puller[int] = _pull.Puller()
    canvas = FigureCanvasAgg(Figure())

    def draw(thread: int) -> list[int]:
        return [puller.get(k, lambda k=k: k, canvas)[0] for k in range(thread, 4000, 4)]

    with ThreadPoolExecutor(4) as threads:
        for thread, got in enumerate(threads.map(draw, range(4))):
            assert got == list(range(thread, 4000, 4))


# --- Real backends ---

QT = """
import sys, time
import matplotlib
matplotlib.use("QtAgg")
from PyQt6 import QtWidgets
application = QtWidgets.QApplication([])  # else Matplotlib looks for a display
import matplotlib.pyplot as plt
import numpy as np
import gpufetch as gf
from gpufetch._planes.plane import Plane
from gpufetch.plot import _pull

values = np.arange(1_000_000.0).reshape(1000, 1000)
figure, axes = plt.subplots()
image = gf.plot.imshow(gf.to_device(values), ax=axes)
figure.canvas.draw()
read = Plane.read
def slow(plane, view, box):
    time.sleep(0.3)
    return read(plane, view, box)
Plane.read = slow
_pull._PATIENCE_S = 0.01
figure.show()
deadline = time.monotonic() + 60
axes.set_xlim(299.5, 309.5)
axes.set_ylim(9.5, -0.5)
drawings = 0
def count(event):
    global drawings
    drawings += 1
figure.canvas.mpl_connect("draw_event", count)
while image.get_array().shape != (10, 10):
    assert time.monotonic() < deadline
    figure.canvas.flush_events()
np.testing.assert_array_equal(image.get_array(), values[:10, 300:310])
before = drawings
while drawings == before:  # it is drawn again by itself
    assert time.monotonic() < deadline
    figure.canvas.flush_events()
print("ok", type(figure.canvas).__name__)
"""


def test_a_window_of_qt_is_drawn_again_when_a_read_has_ended() -> None:
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, "-c", "from PyQt6 import QtWidgets"], capture_output=True, env=environment
    )
    if done.returncode != 0:
        pytest.skip("no PyQt6: pip install PyQt6")
    done = subprocess.run(
        [sys.executable, "-c", QT], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0 and done.stdout == "ok FigureCanvasQTAgg\n", done.stderr


def test_a_page_of_ipympl_gets_the_pixels_of_the_view() -> None:
    backend = pytest.importorskip("ipympl.backend_nbagg")
    figure = Figure(figsize=(1, 1), dpi=100)
    canvas = backend.Canvas(figure)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of its toolbar, by traitlets
        backend.FigureManager(canvas, 1)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    values = np.arange(1_000_000.0).reshape(1000, 1000)
    image = gf.plot.imshow(gf.to_device(values), ax=axes)
    assert _pull.is_live(canvas)
    canvas.draw()
    axes.set_xlim(299.5, 309.5)
    axes.set_ylim(9.5, -0.5)
    for _ in range(1000):
        canvas.draw()
        if image.note == "":
            break
    np.testing.assert_array_equal(image.get_array(), values[:10, 300:310])
    other, _ = image_on(FigureCanvasAgg)
    np.testing.assert_array_equal(np.asarray(canvas.get_renderer().buffer_rgba()), pan(other, 300))
    canvas.close_all()  # ipywidgets keeps every widget until then
