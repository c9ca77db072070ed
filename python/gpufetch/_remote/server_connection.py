"""A connection to one server: a mapping of what it publishes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, final

from gpufetch._checks import check_int, check_timeout
from gpufetch._lazy.array import LazyArray
from gpufetch._remote.client import NoStepError
from gpufetch._remote.connection import (
    Connection,
    Value,
    listing_line,
    listing_row,
    not_published,
    progress_text,
)
from gpufetch._remote.published_tensor import PublishedTensor
from gpufetch._remote.session import At, Session
from gpufetch._tracebacks import shortened

if TYPE_CHECKING:
    from gpufetch._display.remote import Published

__all__ = ["ServerConnection"]


@final
class ServerConnection(Connection):
    """A connection to one server, over a session with it."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @shortened
    def __getitem__(self, name: str) -> LazyArray:
        def find() -> LazyArray:
            items = self.session.listing()["tensors"]
            for item in items:
                if item["name"] == name:
                    return LazyArray(PublishedTensor(self.session, item))
            raise not_published(name, [item["name"] for item in items])

        return self.session.hold(find)  # so that the tensor is of the server that listed it

    @shortened
    def __iter__(self) -> Iterator[str]:
        return iter([item["name"] for item in self.session.listing()["tensors"]])

    @shortened
    def __len__(self) -> int:
        return len(self.session.listing()["tensors"])

    @property
    def at(self) -> At:
        return self.session.at

    @at.setter
    def at(self, at: At) -> None:
        self.session.at = at

    @property
    def name(self) -> str:
        return self.session.label

    @property
    def servers(self) -> Mapping[str, Connection]:
        return {self.name: self}

    @property
    @shortened
    def scalars(self) -> dict[str, Value]:
        values: dict[str, Value] = self.session.listing()["values"]
        return values

    @property
    @shortened
    def steps(self) -> dict[str, int | None]:
        self.session.listing()
        return {self.name: self.session.step}

    @property
    @shortened
    def time(self) -> float | None:
        self.session.listing()
        return self.session.time

    @shortened
    def wait_step(self, *, at_least: int | None = None, timeout: float | None = None) -> int:
        if at_least is None:
            return self.session.wait_step(timeout)
        if isinstance(at_least, bool):  # taken for a switch
            raise TypeError(f"at_least is {at_least}: give the number of a step")
        wanted = check_int(at_least, "at_least")
        check_timeout(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        step = self.step
        while step is None or step < wanted:
            before, left = step, None if deadline is None else deadline - time.monotonic()
            try:
                step = self.session.wait_step(None if left is None else max(0.0, left))
                is_over = left is not None and left <= 0
            except NoStepError:
                step = self.step  # one that was completed before the wait began does not end it
                is_over = left is not None or step == before
            if is_over and (step is None or step < wanted):
                limit = self.session.timeout if timeout is None else timeout
                last = "no step" if step is None else f"step {step}"
                raise NoStepError(
                    f"{self.name} is at {last}, and has not come to step {wanted}; there was "
                    f"{'no step' if timeout is None else 'no such step'} within {limit:g} s"
                )
        return step

    @property
    def data_path(self) -> str:
        problem = self.session.sharing_problem
        return "shared memory" if problem is None else f"messages: {problem}"

    def close(self) -> None:
        self.session.close()

    def _published(self) -> Published:
        from gpufetch._display.remote import CLOSED, Published

        if self.session.is_closed:
            return Published(CLOSED, [], [])
        listing = self.session.listing()
        values = [(name, repr(value)) for name, value in listing["values"].items()]
        return Published(self._state(), [listing_row(item) for item in listing["tensors"]], values)

    def _state(self) -> str:
        if self.session.is_closed:
            return "closed"
        return progress_text(self.session)

    def _describe(self) -> list[str]:
        if self.session.is_closed:
            return [repr(self)]
        listing = self.session.listing()
        lines = [repr(self)]
        lines += [listing_line(item) for item in listing["tensors"]]
        return lines + [f"  {name} = {value!r}" for name, value in listing["values"].items()]
