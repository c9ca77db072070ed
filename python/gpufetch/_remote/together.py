"""Reads that belong together, so that what they give is of one publication."""

from __future__ import annotations

from typing import NamedTuple

from gpufetch import _core

__all__ = ["Publication", "Together"]


class Publication(NamedTuple):
    """What a read of one server's tensor was of.

    `memory` is the tensor's, if this process has attached to it. Else the read came in messages,
    and was of publication `number` of the start `instance` of the server.
    """

    memory: _core.DeviceArray | None
    instance: str
    number: int


class Together:
    """Reads of about `nbytes` bytes that belong together; for different tensors from any thread.

    `publications` has what those of each tensor were of: the first of them enters it.
    """

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.publications: dict[object, Publication] = {}
