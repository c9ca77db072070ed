"""What connections to one server and to several have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

from gpufetch.lazy import LazyArray

__all__ = ["At", "Connection", "Value"]

At = Literal["live", "step"]
Value = int | float | str


class Connection(Mapping[str, LazyArray], ABC):
    """What a server publishes, or several together: a mapping from names to LazyArrays.

    From `connect`. `run["u"]` is a LazyArray like a local one: slices, `overview`, `stats`,
    `histogram`, NumPy functions and Dask pull what they need, when they need it. Contents are live;
    with `at="step"` each read is done where the program has completed a step
    (`gpuf_server_publish_step`, `Server.step`), one read at most 4 MiB from each server.

    When a server restarts, or the network fails, the next access connects anew.

    May be used from any thread; requests to a server go one after the other. As a context manager
    it closes at the end of the block.
    """

    at: At

    # A mapping would compare its arrays, which nobody means to read for that.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    @abstractmethod
    def name(self) -> str:
        """The server's name, or what several are called together."""

    @property
    @abstractmethod
    def servers(self) -> Mapping[str, Connection]:
        """A connection to each server alone, by name."""

    @property
    @abstractmethod
    def scalars(self) -> dict[str, Value]:
        """The values that are published beside the tensors; of several servers the first's."""

    @property
    def differences(self) -> dict[str, dict[str, Value | None]]:
        """Values that servers do not agree on: by name, what each says (None: nothing)."""
        return {}

    @property
    def step(self) -> int | None:
        """The step that the program completed last; None if it has said none.

        Of several servers the one that is least far; see `steps`.
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
    def wait_step(self, timeout: float | None = None) -> int:
        """Wait until the program completes a step that it has not yet, and return its number.

        TimeoutError after `timeout` seconds (None: as `connect` was told).
        """

    @property
    @abstractmethod
    def data_path(self) -> str:
        """How large reads travel: "shared memory", or "messages" and why."""

    @abstractmethod
    def close(self) -> None:
        """Detach. The arrays that came from here cannot be read any more."""

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    @abstractmethod
    def _describe(self) -> list[str]:
        """Lines for the repr."""

    def __repr__(self) -> str:
        try:
            return "\n".join(self._describe())
        except Exception as error:  # a repr that raises hides the object
            return f"<connection to {self.name}: {error}>"

    def _listing_line(self, item: Mapping[str, Any], size: str) -> str:
        text = f"  {item['name']}: {item['dtype']} {tuple(item['shape'])}, {item['device']}, {size}"
        if "global_shape" in item:
            text += f", from {tuple(item['start'])} of {tuple(item['global_shape'])}"
        return text
