"""Shared memory that a session stays attached to between reads, and lets go of soon after them."""

from __future__ import annotations

import time
import weakref
from functools import partial

from gpufetch import _core, _share
from gpufetch._threads import Workers

__all__ = ["Attached"]

_IDLE_S = 2.0  # how long memory is kept that is not read
_TURN_S = 0.1  # after which the thread looks at all sessions again

_releases = Workers(1)


class _Turns:
    """Counts those of the thread, in each of which it looks at every session once."""

    number = 0


class Attached:
    """The tensor that a session has attached to last, for its next read.

    Attaching takes about as long as a read of a few MiB; the memory's owner cannot free it until
    it is let go of. There is no lock: each change is a single operation.
    """

    def __init__(self) -> None:
        self._last: tuple[str, _core.DeviceArray] | None = None
        self._used_s = 0.0
        self.turn = -1  # the last one in which the thread has looked at it
        # Has an item while `_release_idle` is to be called, or runs.
        self._watched: list[object] = []

    @property
    def is_kept(self) -> bool:
        """Whether there is a tensor that this process stays attached to."""
        return self._last is not None

    @property
    def left_s(self) -> float:
        """How long a tensor would still be kept."""
        return self._used_s + _IDLE_S - time.monotonic()

    def attach(self, handle: str) -> _core.DeviceArray:
        """Attach to one tensor at a time; what was attached before is let go of."""
        last = self._last
        if last is None or last[0] != handle:
            self._last = last = None
            last = handle, _share.attach(handle)
        self._used_s = time.monotonic()
        self._watch()  # first, so that Ctrl-C leaves nothing that is not let go of
        if self._watched:
            self._last = last
            self._watch()  # where the one before has ended in between
        return last[1]

    def release(self) -> None:
        """Let go; what is being read stays until it was."""
        self._last = None

    def end_watch(self) -> None:
        """Let go, and look no more, unless something is attached at the same time."""
        self.release()
        self._watched.clear()
        if self.is_kept:
            self._watch()

    def _watch(self) -> None:
        if self._watched:
            return
        try:
            _releases.start(partial(_release_idle, weakref.ref(self)), self._watched)
        except (RuntimeError, MemoryError):  # there is no thread that would let go
            self.release()


def _release_idle(kept: weakref.ref[Attached]) -> None:
    """Let go once nothing was read for long enough; on the one thread of all sessions."""
    attached = kept()
    if attached is not None and attached.turn == _Turns.number:  # it has looked at the others, too
        left_s = attached.left_s
        del attached
        time.sleep(max(0.0, min(left_s, _TURN_S)))
        _Turns.number += 1
        attached = kept()
    if attached is None:
        return
    attached.turn = _Turns.number
    if attached.left_s > 0:
        _releases.start(partial(_release_idle, kept))
    else:
        attached.end_watch()
