"""Other ways to look at an array in a notebook, for the case `interaction`.

Each has the whole tensor on the host before it shows anything of it, as none takes one of a
device. Each has `show(window)`, which returns the bytes that have come off the device and those for
the page; `change(x)`, after which the next `show` is of another tensor; `shown()`, the pixels of an
image from -1 to 1 or the lowest and highest value of a line; and `close()`.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

import numpy as np

from harness import Array

PIXELS = 512
Window = tuple[float, float]


def gray(png: bytes) -> Array:
    """Brightness of a picture, from 0 to 1."""
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(png)).convert("L"), np.float64) / 255


class Host:
    """A tensor of which all is on the host once it is shown."""

    def __init__(self, pull: Callable[[Any], Array], x: Any) -> None:
        self.pull = pull
        self.change(x)

    def change(self, x: Any) -> None:
        self.tensor, self.array = x, None

    def pulled(self) -> int:
        """Bytes that had to come."""
        if self.array is not None:
            return 0
        self.array = self.pull(self.tensor)
        return int(self.array.nbytes)

    def part(self, window: Window) -> Array:
        """The elements in the window."""
        return self.array[
            tuple(slice(*(round(edge * length) for edge in window)) for length in self.array.shape)
        ]

    def close(self) -> None:
        self.tensor = self.array = None


class Figure:
    """Matplotlib's axes of PIXELS² pixels, as a backend draws them for a page."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        import matplotlib.figure
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        figure = matplotlib.figure.Figure(figsize=(PIXELS / 100, PIXELS / 100), dpi=100)
        FigureCanvasAgg(figure)
        self.axes: Any = figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.shape = tuple(shape)
        self.png = b""

    def drawn(self, window: Window) -> bytes:
        """A PNG of the window."""
        self.axes.set_aspect("auto")
        ends = [[edge * length - 0.5 for edge in window] for length in self.shape]
        self.axes.set_xlim(ends[-1])
        self.axes.set_ylim(ends[0][::-1] if len(ends) == 2 else (-1, 1))
        file = io.BytesIO()
        self.axes.figure.canvas.print_png(file)
        self.png = file.getvalue()
        return self.png

    def shown(self) -> Array:
        levels = gray(self.png)
        if len(self.shape) == 2:
            return levels * 2 - 1
        rows = np.flatnonzero((levels < 0.5).any(axis=1))
        return 1 - 2 * (rows[[-1, 0]] + 0.5) / PIXELS

    def close(self) -> None:
        self.axes.figure.clear()


class Matplotlib(Figure):
    """plt.imshow(t.cpu()), and plt.plot(t.cpu())."""

    def __init__(self, pull: Callable[[Any], Array], x: Any) -> None:
        super().__init__(x.shape)
        self.host, self.made = Host(pull, x), None

    def change(self, x: Any) -> None:
        self.host.change(x)

    def show(self, window: Window) -> tuple[int, int]:
        off = self.host.pulled()
        if off:
            if self.made is not None:
                self.made.remove()
            self.made = self.draw(self.host.array)
        return off, len(self.drawn(window))

    def draw(self, array: Any) -> Any:
        if array.ndim == 2:
            return self.axes.imshow(array, cmap="gray", vmin=-1, vmax=1)
        return self.axes.plot(array, color="black")[0]

    def close(self) -> None:
        self.host.close()
        super().close()


class Datashader(Host):
    """datashader: a raster or a line of what is in the window, as a PNG."""

    png = b""

    def show(self, window: Window) -> tuple[int, int]:
        import datashader
        import datashader.transfer_functions as shading

        off = self.pulled()
        if off:
            self.source = self.described()
        canvas = datashader.Canvas(PIXELS, PIXELS, **self.ranges(window))
        if self.array.ndim == 2:
            cells = canvas.raster(self.source)
            image = shading.shade(cells, cmap=["black", "white"], how="linear", span=(-1, 1))
        else:
            image = shading.shade(canvas.line(self.source, "x", "y"), cmap=["black", "black"])
        self.png = shading.set_background(image, "white").to_bytesio().getvalue()
        return off, len(self.png)

    def described(self) -> Any:
        import pandas
        import xarray

        if self.array.ndim == 1:
            x = np.arange(self.array.size, dtype=np.float64)
            return pandas.DataFrame({"x": x, "y": self.array})
        coordinates = {n: np.arange(size) for n, size in zip("yx", self.array.shape, strict=True)}
        return xarray.DataArray(self.array, dims=("y", "x"), coords=coordinates)

    def ranges(self, window: Window) -> dict[str, Any]:
        ends = [tuple(edge * length - 0.5 for edge in window) for length in self.array.shape]
        y = ends[0] if self.array.ndim == 2 else (-1, 1)
        return {"x_range": ends[-1], "y_range": y}

    def shown(self) -> Array:
        levels = gray(self.png)
        if self.array.ndim == 2:
            return levels[::-1] * 2 - 1  # its first row is below
        rows = np.flatnonzero((levels < 0.5).any(axis=1))
        return 1 - 2 * (rows[[-1, 0]] + 0.5) / PIXELS


class FrameBuffer(Host):
    """jupyter_rfb: a frame of every n-th element in gray, as its widget compresses and sends it."""

    def __init__(self, pull: Callable[[Any], Array], x: Any) -> None:
        from jupyter_rfb import RemoteFrameBuffer

        super().__init__(pull, x)
        self.sent: list[dict[str, Any]] = []
        self.buffers: list[bytes] = []
        self.widget = RemoteFrameBuffer()
        self.widget.send = self.keep

    def keep(self, message: dict[str, Any], buffers: Any = None) -> None:
        self.sent.append(message)
        self.buffers = [bytes(buffer) for buffer in buffers or []]

    def show(self, window: Window) -> tuple[int, int]:
        off = self.pulled()
        part = self.part(window)
        at = [np.linspace(0, n - 1, PIXELS).round().astype(int) for n in part.shape]
        levels = np.clip((part[np.ix_(*at)] + 1) * 127.5, 0, 255).astype(np.uint8)
        self.sent.clear()
        self.widget._rfb_send_frame(np.repeat(levels[..., None], 3, axis=-1))
        self.widget._rfb_cancel_lossless_draw()
        return off, len(self.picture()) if self.buffers else len(self.sent[-1]["data_b64"])

    def picture(self) -> bytes:
        if self.buffers:
            return self.buffers[0]
        return base64.b64decode(self.sent[-1]["data_b64"].partition(",")[2])

    def shown(self) -> Array:
        return gray(self.picture()) * 2 - 1

    def close(self) -> None:
        super().close()
        self.widget.close()


class Resampler(Host):
    """plotly-resampler: 1,000 of the samples in the window, as JSON for Plotly."""

    def show(self, window: Window) -> tuple[int, int]:
        import plotly.graph_objects as plotly
        from plotly.io.json import to_json_plotly
        from plotly_resampler import FigureResampler

        off = self.pulled()
        if off:
            self.figure = FigureResampler(plotly.Figure(), default_n_shown_samples=1000)
            x = np.arange(len(self.array))
            self.figure.add_trace(plotly.Scattergl(), hf_x=x, hf_y=self.array)
        if window == (0.0, 1.0):
            self.y = np.asarray(self.figure.data[0].y)
            return off, len(self.figure.to_json())
        low, high = (edge * len(self.array) for edge in window)
        relayout = {"xaxis.range[0]": low, "xaxis.range[1]": high}
        patch = self.figure.construct_update_data_patch(relayout).to_plotly_json()
        found = [one for one in patch["operations"] if one["location"][-1] == "y"]
        self.y = np.asarray(found[-1]["params"]["value"])
        return off, len(to_json_plotly(patch))

    def shown(self) -> Array:
        return np.array([self.y.min(), self.y.max()])

    def close(self) -> None:
        super().close()
        self.figure = None


IMAGE_PEERS: dict[str, Callable[..., Any]] = {
    "plt.imshow": Matplotlib,
    "datashader": Datashader,
    "jupyter_rfb": FrameBuffer,
}
LINE_PEERS: dict[str, Callable[..., Any]] = {
    "plt.plot": Matplotlib,
    "datashader": Datashader,
    "plotly-resampler": Resampler,
}
