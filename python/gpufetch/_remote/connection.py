"""What a connection offers, whether it is to one server or to several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from gpufetch._lazy.array import LazyArray
from gpufetch._remote.session import At, Session
from gpufetch._text import format_nbytes

if TYPE_CHECKING:
    from gpufetch._display.remote import Published

__all__ = ["Connection", "Value", "listing_line", "listing_row", "not_published", "progress_text"]

Value = int | float | str
_NAMES_MAX = 20


class Connection(Mapping[str, LazyArray], ABC):
    """What a server publishes, or several together: a mapping from names to LazyArrays.

    From `connect`. `run["u"]` is a LazyArray like a local one: slices, `overview`, `stats`,
    `histogram`, NumPy functions and Dask pull what they need, when they need it. Contents are live;
    with `at="step"` each read is done when the program completes a step
    (`gpuf_server_publish_step`, `Server.step`), and is of at most 4 MiB from each server. Index
    arrays read the box around their indices then.

    When a server restarts, or the network fails, the next access connects anew. When it has
    stopped, access raises ConnectionError.

    May be used from any thread; requests to a server go one after the other, but for `wait_step`,
    which holds nobody up. As a context manager it closes at the end of the block.
    """

    at: At

    # Compared by identity: a mapping's comparison would read the arrays.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    @abstractmethod
    def name(self) -> str:
        """The server's name, or what several are called together."""

    @property
    @abstractmethod
    def servers(self) -> Mapping[str, Connection]:
        """Connections to the single servers, by name."""

    @property
    @abstractmethod
    def scalars(self) -> dict[str, Value]:
        """The values that are published beside the tensors.

        Where several servers publish a value, it is that of the first of them. A float that is not
        finite comes as text, "nan", "inf" or "-inf", of which float() makes the number.
        """

    @property
    def differences(self) -> dict[str, dict[str, Value | None]]:
        """Values on which servers differ: by name, the value at each (None: not published)."""
        return {}

    @property
    def step(self) -> int | None:
        """The step that the program completed last; None before it says any.

        For several servers it is the lowest of `steps`; None if one of them has said none.
        """
        steps = list(self.steps.values())
        known = [step for step in steps if step is not None]
        return min(known) if len(known) == len(steps) else None

    @property
    @abstractmethod
    def steps(self) -> dict[str, int | None]:
        """The step that each server's program completed last, by the server's name."""

    @property
    @abstractmethod
    def time(self) -> float | None:
        """The simulated time of `step`."""

    @abstractmethod
    def wait_step(self, *, at_least: int | None = None, timeout: float | None = None) -> int:
        """Wait until the program completes its next step, and return the step's number.

        With `at_least`, wait until it has completed a step of that number or a higher one, which it
        may have before the call. For several servers, waits for a step of each and returns the
        lowest. TimeoutError after `timeout` seconds (0: at once), or for None where no step is
        completed within the `timeout` of `connect`. It says whether no step was completed or the
        server does not answer.
        """

    @property
    @abstractmethod
    def data_path(self) -> str:
        """How large reads travel: "shared memory", or "messages" and the reason."""

    @abstractmethod
    def close(self) -> None:
        """Detach. Arrays from this connection then raise ValueError when they are read."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a connection cannot be pickled or copied: call gpufetch.connect in the other process"
        )

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    @abstractmethod
    def _state(self) -> str:
        """The step and time that were said last, or "closed"; asks nobody."""

    @abstractmethod
    def _describe(self) -> list[str]:
        """Lines for a terminal, for which the servers are asked."""

    @abstractmethod
    def _published(self) -> Published:
        """What a display shows."""

    def _repr_html_(self) -> str:
        from gpufetch._display.remote import connection_html  # not before something is shown

        return connection_html(self.name, self._published)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        from gpufetch._display.remote import print_connection

        print_connection(self.__repr__, self._describe, printer)

    def __repr__(self) -> str:
        """The name, and the progress that is known; asks nobody, as debuggers and %whos need."""
        return f"<connection to {self.name}, {self._state()}>"


def not_published(name: object, names: Sequence[str]) -> KeyError:
    """The error for a name that no tensor has."""
    listed = ", ".join(map(repr, names[:_NAMES_MAX])) + (", ..." if len(names) > _NAMES_MAX else "")
    there = f"there are {listed}" if names else "nothing is; publish it in the program first"
    return KeyError(f"no tensor is published as {name!r}: {there}")


def progress_text(session: Session) -> str:
    """The step and time that a server said last."""
    return "no step yet" if session.step is None else f"step {session.step}, time {session.time}"


def listing_row(item: Mapping[str, Any]) -> tuple[str, ...]:
    """A tensor of a server's listing, for a table."""
    size = format_nbytes(int(item["nbytes"]))
    part = ""
    if "global_shape" in item:
        part = f"from {tuple(item['start'])} of {tuple(item['global_shape'])}"
    if problem := item.get("problem"):
        part = str(problem)
    return item["name"], item["dtype"], str(tuple(item["shape"])), item["device"], size, part


def listing_line(item: Mapping[str, Any]) -> str:
    """Describe a tensor of a server's listing, for a repr."""
    size = format_nbytes(int(item["nbytes"]))
    text = f"  {item['name']}: {item['dtype']} {tuple(item['shape'])}, {item['device']}, {size}"
    if "global_shape" in item:
        text += f", from {tuple(item['start'])} of {tuple(item['global_shape'])}"
    return text
