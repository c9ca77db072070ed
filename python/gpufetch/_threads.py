"""Threads that run work, for callers that may be finalizers or signal handlers.

`ThreadPoolExecutor.submit` and `Thread.start` hold locks while they run Python code. A finalizer or
a handler that runs in it, and comes there again on the same thread, would wait for itself. Here
work is handed over by single operations of lists and deques.
"""

from __future__ import annotations

import _thread
import collections
import contextlib
import logging
import os
import queue
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, starmap
from typing import TypeVar

from gpufetch import _core

__all__ = ["Workers", "log_exception", "run_at_once"]

_T = TypeVar("_T")
_logger = logging.getLogger("gpufetch")

_LOOK_S = 0.05  # where a thread had no memory to say that it is done, others notice as late as this


class _Hand:
    """What one thread has taken to do; a slot, so that taking it needs no memory."""

    __slots__ = ("is_begun", "work")

    def __init__(self) -> None:
        self.is_begun = False  # whether the thread has come to Python code, which needs memory
        self.work: Callable[[], object] | None = None


class Workers:
    """Runs work on at most `most` threads, or a few more for a moment; from any thread.

    No work is lost for want of memory: a thread that has none for its next step tries again until
    there is some. Work that a MemoryError leaves is called again, too; so it catches those that are
    an outcome of its own.

    In a forked child there is no work and no thread at first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._begin()

    def _begin(self) -> None:
        self._process_id = os.getpid()
        self._waiting: collections.deque[Callable[[], object]] = collections.deque()
        self._running: set[_Hand] = set()  # an item for each thread
        self._ends = False

    def start(self, work: Callable[[], object], begun: list[object] | None = None) -> None:
        """Run `work` on a thread; RuntimeError or MemoryError if there is none to be had.

        `begun` gets an item in the same moment as it becomes certain that `work` will be run: no
        signal's handler raises between the two. At exit, `end` runs what no thread has come to.
        """
        if os.getpid() != self._process_id:
            self._begin()
        if self._ends:
            raise RuntimeError("no work is begun any more: the interpreter ends")
        begun = [] if begun is None else begun
        try:
            if len(self._running) < self._most:
                self._start_thread([work], begun)
                return
            begun.extend(map(self._waiting.append, [work]))
            if not self._running:  # the threads, which would have come to it, have ended meanwhile
                self._start_thread([], [])
        except (MemoryError, RuntimeError):
            try:
                self._waiting.remove(work)
            except ValueError:  # another thread has taken it
                return
            raise

    def _start_thread(self, works: list[Callable[[], object]], begun: list[object]) -> None:
        hand = _Hand()
        threads = [(_core.run_insistently, (partial(self._run, hand),))]
        # C calls C in this line: a handler runs before the thread starts, or when all have their
        # items. `begun` gets one for the thread alone.
        steps = (map(self._waiting.append, works), map(self._running.add, [hand]))
        try:
            begun.extend(
                chain(filter(None, chain(*steps)), starmap(_thread.start_new_thread, threads))
            )
        except BaseException:
            self._running.discard(hand)
            raise

    def end(self) -> None:
        """Begin no more work, and wait for what has begun; for `atexit`.

        This thread takes part, and waits for no thread that has yet to get memory for its start.
        """
        self._ends = True
        mine = _Hand()
        while os.getpid() == self._process_id:
            if self._waiting:
                _core.run_insistently(partial(self._run, mine))
            elif any(hand.is_begun for hand in list(self._running)):
                time.sleep(0.001)
            else:
                return

    def _run(self, hand: _Hand) -> None:
        """Do what waits until nothing does. After a MemoryError it is called again."""
        hand.is_begun = True
        while True:
            if hand.work is None:
                try:
                    hand.work = self._waiting.popleft()
                except IndexError:
                    self._running.discard(hand)
                    if not self._waiting:  # what comes from now on finds this thread gone
                        return
                    self._running.add(hand)
                    continue
            try:
                hand.work()
            except MemoryError:
                raise
            except BaseException:
                log_exception(_logger, "work on a thread of gpufetch's failed")
            hand.work = None


def log_exception(logger: logging.Logger, message: str, *values: object) -> None:
    """Log the exception that is being handled, if there is memory for that."""
    with contextlib.suppress(MemoryError):
        logger.exception(message, *values)


def run_at_once(workers: Workers, jobs: Sequence[Callable[[], _T]]) -> list[_T]:
    """Run jobs on threads and on this one, and return what they return; the first error is raised.

    This thread runs all those that no other has begun, so that it depends on no free thread.
    """
    waiting = collections.deque(enumerate(jobs))
    # Places that are there before the work is, as an outcome may not be lost for want of memory.
    results: list[_T | None] = [None] * len(jobs)
    errors: list[BaseException | None] = [None] * len(jobs)
    left = set(range(len(jobs)))
    ended: queue.SimpleQueue[None] = queue.SimpleQueue()  # an item says that it is time to look

    def work() -> None:
        while waiting:
            try:
                number, job = waiting.popleft()
            except IndexError:
                return
            try:
                results[number] = job()
            except BaseException as error:
                errors[number] = error
            left.discard(number)
            ended.put(None)

    for _ in jobs[1:]:
        with contextlib.suppress(RuntimeError):  # no more threads
            workers.start(work)
    try:
        while waiting:
            try:
                number, job = waiting.popleft()
            except IndexError:
                break
            results[number] = job()
            left.discard(number)
        while True:
            is_over = not left  # an error is there before its job is not left any more
            for error in errors:
                if error is not None:
                    raise error
            if is_over:
                return results  # type: ignore[return-value]
            with contextlib.suppress(queue.Empty):
                ended.get(timeout=_LOOK_S)
    finally:
        waiting.clear()
