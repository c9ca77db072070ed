"""Requests that belong together, so that what they give is of one publication."""

from __future__ import annotations

from typing import NamedTuple

from gpufetch import _core

__all__ = ["Publication", "Together"]


class Publication(NamedTuple):
    """What a request of one server's tensor was of.

    `memory` is the tensor's, if this process has attached to it. Else the reply came in messages,
    and was of publication `number` of the start `instance` of the server.
    """

    memory: _core.DeviceArray | None
    instance: str
    number: int


class Together:
    """Requests that belong together; for different tensors from any thread.

    `nbytes` is about what the reads among them give. `publications` has what those of each tensor
    were of: the first of them enters it. While `holds` is true, each has its server hold that for
    the next ones; one without it lets go.
    """

    def __init__(self, nbytes: int, *, holds: bool = False) -> None:
        self.nbytes = nbytes
        self.holds = holds
        self.publications: dict[object, Publication] = {}
