"""Ways to look at an array in a notebook's page, for the case `page`: imported in its kernel.

Each shows an image or a line of PIXELS pixels, SIDE of CSS, in the last line of a cell, and then
the part WINDOW of it. Dragging the picture pans. Those that are not gpufetch's have all of the
tensor on the host first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import gpufetch as gf

SIDE, RATIO = 256, 2  # tests/jupyterlab/compared_page.py has the same
PIXELS = SIDE * RATIO
WINDOW = (0.4375, 0.5625)  # of each axis, in fractions of it
kept: dict[str, Any] = {}  # what the cells have shown, by function


class Way(NamedTuple):
    """How to show a tensor and to zoom into it (None: by the wheel), and the picture's selector."""

    show: Callable[[Any], Any]
    zoom: Callable[[], None] | None
    cover: str
    quiet_ms: int = 1500  # without a change, after which a picture counts as complete


# --- gpufetch ---------------------------------------------------------------------------------


def show_viewer(x: Any) -> Any:
    kept["viewer"], kept["ndim"] = gf.view(x, cmap="gray", vmin=-1, vmax=1), len(x.shape)
    return kept["viewer"]


def zoom_viewer() -> None:
    viewer = kept["viewer"]
    vertical = WINDOW if kept["ndim"] == 2 else (0.0, 1.0)
    viewer.state = {**viewer.state, "window": [*WINDOW, *vertical]}


# --- Matplotlib, on ipympl's canvas -----------------------------------------------------------


def show_matplotlib(x: Any) -> None:
    """plt.imshow or plt.plot of the array, with nothing beside the axes."""
    import matplotlib.pyplot as plt
    from IPython import get_ipython

    shell: Any = get_ipython()
    shell.run_line_magic("matplotlib", "ipympl")
    plt.close("all")
    array = gf.fetch(x)
    figure: Any = plt.figure(figsize=(SIDE / 100, SIDE / 100), dpi=100)
    figure.canvas.header_visible = figure.canvas.footer_visible = False
    figure.canvas.toolbar_visible = figure.canvas.resizable = False
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    if array.ndim == 2:
        axes.imshow(array, cmap="gray", vmin=-1, vmax=1, aspect="auto")
    else:
        axes.plot(array, color="black")
        axes.margins(0)
    figure.canvas.toolbar.pan()
    kept["axes"], kept["shape"] = axes, array.shape
    plt.show()


def zoom_matplotlib() -> None:
    axes, shape = kept["axes"], kept["shape"]
    low, high = (edge * shape[-1] - 0.5 for edge in WINDOW)
    axes.set_xlim(low, high)
    if len(shape) == 2:
        low, high = (edge * shape[0] - 0.5 for edge in WINDOW)
        axes.set_ylim(high, low)
    axes.figure.canvas.draw_idle()


# --- jupyter_rfb ------------------------------------------------------------------------------


def frame_buffer(array: Any) -> Any:
    """A frame of every n-th element in gray: its content is the own of who uses jupyter_rfb."""
    from jupyter_rfb import RemoteFrameBuffer

    class Frames(RemoteFrameBuffer):  # type: ignore[misc]
        columns, rows = (0.0, 1.0), (0.0, 1.0)
        grabbed = 0.0

        def get_frame(self) -> Any:
            at = [
                np.clip(np.linspace(low * n, high * n, PIXELS, endpoint=False), 0, n - 1)
                for n, (low, high) in zip(array.shape, (self.rows, self.columns), strict=True)
            ]
            part = array[np.ix_(*(places.astype(int) for places in at))]
            levels = np.clip((part + 1) * 127.5, 0, 255).astype(np.uint8)
            return np.repeat(levels[..., None], 3, axis=-1)

        def handle_event(self, event: Any) -> None:
            if event["type"] == "pointer_down":
                self.grabbed = event["x"]
            elif event["type"] == "pointer_move" and event["buttons"]:
                low, high = self.columns
                by = (self.grabbed - event["x"]) / SIDE * (high - low)
                self.grabbed, self.columns = event["x"], (low + by, high + by)
                self.request_draw()

    return Frames(css_width=f"{SIDE}px", css_height=f"{SIDE}px")


def show_frames(x: Any) -> Any:
    kept["frames"] = frame_buffer(gf.fetch(x))
    return kept["frames"]


def zoom_frames() -> None:
    kept["frames"].columns = kept["frames"].rows = WINDOW
    kept["frames"].request_draw()


# --- datashader, as HoloViews and Bokeh show it -----------------------------------------------


def show_datashader(x: Any) -> Any:
    import holoviews
    from holoviews.operation.datashader import rasterize

    if "bokeh" not in holoviews.Store.renderers:
        holoviews.extension("bokeh", inline=True)
    array = gf.fetch(x)
    rows, columns = (np.arange(length) for length in array.shape)
    picture = rasterize(holoviews.Image((columns, rows, array)), width=PIXELS, height=PIXELS)
    looks = {"cmap": "gray", "clim": (-1, 1), "invert_yaxis": True, "border": 0}
    size = {"frame_width": SIDE, "frame_height": SIDE, "xaxis": None, "yaxis": None}
    tools = {"toolbar": None, "default_tools": [], "tools": ["pan", "wheel_zoom"]}
    tools["active_tools"] = ["pan", "wheel_zoom"]
    return picture.opts(**looks, **size, **tools)


# --- plotly-resampler -------------------------------------------------------------------------


def show_resampler(x: Any) -> Any:
    import plotly.graph_objects as plotly
    from plotly_resampler import FigureWidgetResampler

    array = gf.fetch(x)
    figure = FigureWidgetResampler(plotly.Figure(), default_n_shown_samples=1000)
    figure.add_trace(
        plotly.Scatter(line_color="black", line_width=1), hf_x=np.arange(array.size), hf_y=array
    )
    figure.update_layout(width=SIDE, height=SIDE, margin=dict.fromkeys("lrtb", 0), dragmode="pan")
    kept["resampler"], kept["shape"] = figure, array.shape
    return figure


def zoom_resampler() -> None:
    length = kept["shape"][0]
    kept["resampler"].layout.xaxis.range = [edge * length for edge in WINDOW]


# --- All of them ------------------------------------------------------------------------------

VIEWER = Way(show_viewer, zoom_viewer, ".gf-view")
CANVAS = Way(show_matplotlib, zoom_matplotlib, ".jupyter-matplotlib-canvas-container canvas")
IMAGES = {
    "gpufetch.view": VIEWER,
    "plt.imshow": CANVAS,
    "jupyter_rfb": Way(show_frames, zoom_frames, ".renderview-view"),
    "datashader": Way(
        show_datashader, None, ".jp-OutputArea-executeResult div:has(> [data-root-id])"
    ),
}
LINES = {
    "gpufetch.view": VIEWER,
    "plt.plot": CANVAS,
    # Plotly draws axes alone first, and what is in them a while later.
    "plotly-resampler": Way(show_resampler, zoom_resampler, ".js-plotly-plot .main-svg", 5000),
}
