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
from itertools import starmap
from typing import TypeVar

__all__ = ["Workers", "run_at_once"]

_T = TypeVar("_T")
_logger = logging.getLogger("gpufetch")


class Workers:
    """Runs work on at most `most` threads, or a few more for a moment; from any thread.

    In a forked child there is no work and no thread at first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._begin()

    def _begin(self) -> None:
        self._process_id = os.getpid()
        self._waiting: collections.deque[Callable[[], object]] = collections.deque()
        self._running: list[int] = []  # an item for each thread
        self._ends = False

    def start(self, work: Callable[[], object], begun: list[None] | None = None) -> None:
        """Run `work` on a thread; RuntimeError if there is none to be had.

        `begun` gets an item in the same moment as it becomes certain that `work` will be run: no
        signal's handler raises between the two. At exit, `end` runs what no thread has come to.
        """
        if os.getpid() != self._process_id:
            self._begin()
        if self._ends:
            raise RuntimeError("no work is begun any more: the interpreter ends")
        begun = [] if begun is None else begun
        if len(self._running) < self._most:
            self._start_thread((work,), begun)
            return
        begun.extend(map(self._waiting.append, [work]))
        if not self._running:  # the threads, which would have come to it, have ended meanwhile
            self._start_thread((), [])

    def _start_thread(self, works: tuple[Callable[[], object], ...], begun: list[None]) -> None:
        # C calls C in this line: a handler runs before the thread starts, or when both lists have
        # their items.
        threads = starmap(_thread.start_new_thread, [(self._run, works)])
        begun.extend(map(self._running.append, threads))

    def end(self) -> None:
        """Begin no more work, and wait for what has begun; for `atexit`."""
        self._ends = True
        while os.getpid() == self._process_id and (self._running or self._waiting):
            if self._running:
                time.sleep(0.001)
            else:
                self._run()

    def _leave(self) -> None:
        with contextlib.suppress(IndexError):  # the thread that calls end() is not in the list
            self._running.pop()

    def _run(self, *works: Callable[[], object]) -> None:
        self._waiting.extendleft(works)
        while True:
            try:
                work = self._waiting.popleft()
            except IndexError:
                self._leave()
                if not self._waiting:  # what comes from now on finds this thread gone
                    return
                self._running.append(0)
                continue
            try:
                work()
            except BaseException:
                _logger.exception("work on a thread of gpufetch's failed")
            del work


def run_at_once(workers: Workers, jobs: Sequence[Callable[[], _T]]) -> list[_T]:
    """Run jobs on threads and on this one, and return what they return; the first error is raised.

    This thread runs all those that no other has begun, so that it depends on no free thread.
    """
    waiting = collections.deque(enumerate(jobs))
    ended: queue.SimpleQueue[tuple[int, _T | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        with contextlib.suppress(IndexError):
            while True:
                number, job = waiting.popleft()
                try:
                    ended.put((number, job(), None))
                except BaseException as error:
                    ended.put((number, None, error))

    for _ in jobs[1:]:
        with contextlib.suppress(RuntimeError):  # no more threads
            workers.start(work)
    results: dict[int, _T | None] = {}
    try:
        while waiting:
            try:
                number, job = waiting.popleft()
            except IndexError:
                break
            results[number] = job()
        while len(results) < len(jobs):
            number, result, error = ended.get()
            if error is not None:
                raise error
            results[number] = result
    finally:
        waiting.clear()
    return [results[number] for number in range(len(jobs))]  # type: ignore[misc]
