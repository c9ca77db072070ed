"""Artists that read what their axes show, and the note on the axes that names the reduction."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from matplotlib.axes import Axes
from matplotlib.text import Text
from matplotlib.transforms import ScaledTranslation

from gpufetch.plot._pull import Puller

__all__ = ["Pulling", "axes_of", "name_axes", "next_color", "refuse_data"]

_SIZE = 7.0
_INCH = 1 / 72  # a point
_LINE = 12  # points from one note to the next


class Pulled(Protocol):
    """What was read for one drawing."""

    @property
    def note(self) -> str: ...


_T = TypeVar("_T", bound=Pulled)


class Pulling(Generic[_T]):
    """What the artists have in common that read what their axes show."""

    _home: Axes  # on which it is made
    axes: Any
    stale: Any
    get_snap: Any
    get_url: Any
    get_gid: Any

    def _begin(self, axes: Axes, with_note: bool) -> None:
        """Be one more of such artists on some axes, whose note stands above theirs."""
        self._puller: Puller[_T] = Puller()
        self._revision = 0
        self._with_note = with_note
        self._note_line = sum(isinstance(child, Pulling) for child in axes.get_children())

    def set_transform(self, t: Any) -> None:
        """Take the axes' `transData`; ValueError for another, since limits say what is read."""
        axes = self._home if self.axes is None else self.axes
        if t is not None and t != axes.transData:
            raise ValueError(
                "a plot of a tensor on a device reads what the limits of its axes show, by their "
                "transData alone: leave out transform, or draw the elements with Matplotlib"
            )
        super().set_transform(t)  # type: ignore[misc]

    @property
    def note(self) -> str:
        """How the drawing before was reduced, and what was not finite."""
        newest = self._puller.newest
        return "" if newest is None else newest.note

    def refresh(self) -> None:
        """Read the tensor anew at the next drawing."""
        self._revision += 1
        self.stale = True

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a plot of a tensor on a device cannot be pickled or copied, nor can its figure: save "
            "a picture by savefig, or plot again from the elements there"
        )

    def _pull(self, key: Hashable, read: Callable[[], _T]) -> tuple[_T, Exception | None]:
        """What `read` gives, or gave for this key before; see `Puller.get`."""
        canvas = self.axes.get_figure(root=True).canvas
        return self._puller.get((key, self._revision), read, canvas)

    def _place(self, drawn: Any) -> None:
        """Let an artist that is made for one drawing lie where this one does."""
        drawn.axes = self.axes
        drawn.set_figure(self.axes.figure)
        drawn.set_snap(self.get_snap())
        drawn.set_url(self.get_url())
        drawn.set_gid(self.get_gid())

    def _draw_note(self, renderer: Any, pulled: _T, error: Exception | None) -> None:
        if error is not None:
            text = f"not shown: {type(error).__name__}: {' '.join(str(error).split())}"
            draw_note(renderer, self.axes, text, self._note_line)
        elif self._with_note and pulled.note:
            draw_note(renderer, self.axes, pulled.note, self._note_line)


def refuse_data(kind: str) -> NoReturn:
    """Refuse data that a setter of Matplotlib's brings: nobody would draw them."""
    raise TypeError(
        f"this {kind} draws what it reads of its tensor: refresh() reads it anew; for other data "
        f"remove() it, and draw with gpufetch.plot.{kind}"
    )


def axes_of(ax: Axes | None) -> Axes:
    """The axes that are given; else pyplot's, which is imported for that alone."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.gca()


def next_color(axes: Axes) -> Any:
    """The next colour of the axes' cycle, as `plot` takes it."""
    (probe,) = axes.plot([], [])
    color = probe.get_color()
    probe.remove()
    return color


def name_axes(axes: Axes, x: str, y: str, title: str = "") -> None:
    """Give axes names where they have none."""
    if not axes.get_xlabel():
        axes.set_xlabel(x)
    if not axes.get_ylabel():
        axes.set_ylabel(y)
    if not axes.get_title():
        axes.set_title(title)


def draw_note(renderer: Any, axes: Any, text: str, line: int) -> None:
    """Draw a small text in the lower left corner; `line` lines above the lowest.

    It is no child of the axes, so that drawing it changes nothing that would be drawn again.
    """
    figure = axes.get_figure(root=True)
    shift = ScaledTranslation(5 * _INCH, (5 + _LINE * line) * _INCH, figure.dpi_scale_trans)
    drawn = Text(
        0,
        0,
        text,
        color="0.15",
        fontsize=_SIZE,
        fontweight="normal",
        fontstyle="normal",
        usetex=False,
        parse_math=False,
        bbox={"boxstyle": "round,pad=0.25", "facecolor": "white", "alpha": 0.75, "linewidth": 0},
    )
    drawn.set_figure(figure)
    drawn.axes = axes
    drawn.set_transform(axes.transAxes + shift)
    drawn.set_clip_on(True)
    drawn.set_clip_box(axes.bbox)
    drawn.draw(renderer)
