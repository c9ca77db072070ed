"""Work that Ctrl-C does not cut in two."""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable
from itertools import starmap

from gpufetch import _core
from gpufetch.hdf5._binding import phil

__all__ = ["uninterrupted"]


class _PendingError(Exception):
    """Stands for the outcome of work that has not ended."""


def uninterrupted(work: Callable[[], None], give_up: Callable[[], None] | None = None) -> None:
    """Run `work` where no signal's handler can raise in the middle of it.

    Python runs signals' handlers in the main thread, so `work` is run by another one while the main
    thread waits. What a handler raises meanwhile is raised once `work` is done. In another thread,
    where the main thread has h5py's lock, which no other thread gets then (a callback of
    ``visititems``), where there is no memory for a thread, and in finalizers that the interpreter
    calls while it ends, when no other thread runs any more, `work` is simply called.

    `give_up` is called, perhaps several times, when a handler has raised; work that takes long may
    then end by an exception of its own.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or phil._is_owned() or sys.is_finalizing():
        work()
        return
    begun = threading.Lock()  # taken by whoever does the work
    is_running = threading.Lock()
    is_running.acquire()

    def run() -> None:
        if begun.acquire(blocking=False):
            work()

    pending = _PendingError()
    outcome: list[BaseException | None] = [pending]
    entry = (_core.run_and_release, (run, outcome, is_running.release))

    # C calls C in the line with starmap: a handler runs before the thread starts, or when it is in
    # the list. The waiting is in this frame, because a call may lack the memory for its own.
    started: list[int] = []
    interrupt: BaseException | None = None
    is_mine = False
    try:
        started.extend(starmap(_thread.start_new_thread, [entry]))
        while outcome[0] is pending:
            is_running.acquire()
            is_running.release()
    except BaseException as error:
        interrupt = error
        is_mine = not started and begun.acquire(blocking=False)
        while outcome[0] is pending and not is_mine:
            try:
                if give_up is not None:
                    give_up()
                is_running.acquire()
                is_running.release()
            except BaseException:
                continue
    failure = outcome[0]
    try:
        if is_mine or begun.acquire(blocking=False):
            # No thread can be had, or it had no memory to begin.
            if interrupt is None or isinstance(interrupt, RuntimeError | MemoryError):
                work()
                return
            raise interrupt
        if interrupt is not None:
            raise interrupt from failure
        if failure is not None:
            raise failure
    finally:
        del failure, interrupt, outcome  # they would hold this frame, and it them, with a file
