"""The widget of `gpufetch.view`; imported when the first viewer is made, since it needs anywidget.

Its comm carries requests of the page and their answers (`messages`), and the state that outlives
the page. Requests are answered on the thread that handles them: the kernel's main thread or, where
the page has a subshell, another one beside it.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import numpy.typing as npt
import traitlets

from gpufetch import _open_viewers
from gpufetch._display.palettes import NAN_COLOUR, PALETTES
from gpufetch._display.summary import within_deadline
from gpufetch._lazy.array import LazyArray
from gpufetch._subshells import handle_where_asked
from gpufetch._view import DeviceView
from gpufetch._viewer.messages import DECODER, answer
from gpufetch._viewer.picture import shown_box, viewer_png
from gpufetch._viewer.state import checked_state
from gpufetch._viewer.streams import ProducerStreams
from gpufetch._viewer.tiles import Panel

__all__ = ["Viewer"]


class Viewer(anywidget.AnyWidget):  # type: ignore[misc]
    """Tensors in a notebook's page; from `gpufetch.view`. May be used from any thread.

    Attributes
    ----------
    state
        What it shows, as the page and the program change it: `viewer.state = {**viewer.state,
        "cmap": "magma"}`. traitlets.TraitError for what does not fit.
    """

    _esm = Path(__file__).with_name("viewer.js").read_text()

    state = traitlets.Dict().tag(sync=True)
    _panels: Any = traitlets.List().tag(sync=True)
    _palettes = traitlets.Dict().tag(sync=True)
    _decoder = traitlets.Unicode(hashlib.sha256(DECODER).hexdigest()[:16]).tag(sync=True)
    _revision = traitlets.Int(0).tag(sync=True)

    def __init__(self, panels: Sequence[Panel], state: dict[str, Any]) -> None:
        self._taken = threading.local()
        self._kept = tuple(panels)
        self._streams = ProducerStreams([panel.array.source for panel in panels])
        super().__init__(
            state=state,
            _panels=[panel.describe() for panel in panels],
            _palettes={name: _with_nan(colours) for name, colours in PALETTES.items()},
        )
        self._own_layout = self.layout  # a widget, too, which ipywidgets keeps until it is closed
        self.on_msg(self._received)
        _open_viewers.add(self)

    @property
    def _shown(self) -> tuple[Panel, ...]:
        if not self._kept:
            raise ValueError("the viewer is closed: make another with gpufetch.view")
        return self._kept

    @traitlets.validate("state")
    def _checked_state(self, proposal: Any) -> dict[str, Any]:
        try:
            return checked_state(proposal["value"], self._shown[0].leading)
        except (OverflowError, TypeError, ValueError) as error:
            # The page's updates are undone for this exception alone.
            raise traitlets.TraitError(str(error)) from error

    @contextlib.contextmanager
    def hold_trait_notifications(self) -> Iterator[None]:
        """Hold nothing: traitlets would not check what another thread assigns meanwhile."""
        yield

    @property
    def _property_lock(self) -> dict[str, Any]:
        """What a page says on this thread, which ipywidgets does not tell the page again."""
        said: dict[str, Any] = getattr(self._taken, "said", {})
        return said

    @_property_lock.setter
    def _property_lock(self, said: dict[str, Any]) -> None:
        self._taken.said = said

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take what a page says of `state`; the rest is told to pages, by the kernel alone."""
        super().set_state({name: sync_data[name] for name in ("state",) if name in sync_data})

    def open(self) -> None:
        """Open the comm; ipywidgets calls this."""
        super().open()
        handle_where_asked(self.comm)

    def close(self) -> None:
        """Remove it from pages, and let its tensors go, which it keeps alive until then."""
        super().close()
        self._own_layout.close()
        _open_viewers.discard(self)
        self._kept = ()
        self._streams = ProducerStreams([])

    def _received(self, widget: Any, content: Any, buffers: Sequence[Any]) -> None:
        began = time.perf_counter()
        with self._streams.current():
            reply, data = answer(self._kept, content, buffers)
        # What is left of the time from request to answer is the line's, to the page.
        self.send(reply | {"ms": (time.perf_counter() - began) * 1e3}, data)

    @property
    def arrays(self) -> tuple[LazyArray, ...]:
        """The tensors that it shows, which it keeps alive; none of them when it is closed."""
        return tuple(panel.array for panel in self._kept)

    def refresh(self) -> None:
        """Let the page read anew what it shows, after the contents have changed."""
        self._revision += 1

    def selection(self, panel: int = 0) -> tuple[int | slice, ...]:
        """The index of what a panel shows: `x[viewer.selection()]` for a tensor `x`."""
        shown = self._shown[panel]
        return shown.key(self.state["index"], shown_box(shown.shape, self.state["window"]))

    def fetch(self, panel: int = 0) -> npt.NDArray[Any]:
        """Pull the elements that a panel shows, all of them."""
        with self._streams.current():
            values: npt.NDArray[Any] = self._shown[panel].array[self.selection(panel)].fetch()
        return values

    def png(self) -> bytes:
        """A small PNG of what is shown, in at most 100 kB."""
        with self._streams.current(), np.errstate(all="ignore"):
            return viewer_png(self._shown, self.state)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """The widget, and the picture for pages without widgets, as far as it can be read."""
        bundle = super()._repr_mimebundle_(**options)
        if bundle is None:
            return None
        data, metadata = bundle
        if not any(p.array._gpufetch_view().is_read_at_steps for p in self._shown):
            with contextlib.suppress(Exception):  # the page says what is wrong
                data["image/png"] = base64.b64encode(self._png_of_display()).decode()
        return data, metadata

    def _png_of_display(self) -> bytes:
        """As `png`; of tensors of other processes in a second, or TimeoutError."""
        views = (panel.array._gpufetch_view() for panel in self._shown)
        if all(isinstance(view, DeviceView) for view in views):
            return self.png()
        return within_deadline(self.png)

    def __repr__(self) -> str:
        return f"Viewer({', '.join(repr(array) for array in self.arrays) or 'closed'})"


def _with_nan(colours: npt.NDArray[np.uint8]) -> bytes:
    """The colour of NaN, and those from low to high."""
    return bytes(NAN_COLOUR) + colours.tobytes()
