"""Work that Ctrl-C does not cut in two."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from itertools import starmap

from gpufetch.hdf5._binding import phil

__all__ = ["uninterrupted"]


def uninterrupted(work: Callable[[], None]) -> None:
    """Run `work` where no signal's handler can raise in the middle of it.

    Python runs signals' handlers in the main thread, so `work` is run by another one while the main
    thread waits. What a handler raises meanwhile is raised once `work` is done. In another thread,
    and where the main thread has h5py's lock, which no other thread gets then (a callback of
    ``visititems``), `work` is simply called.
    """
    if threading.current_thread() is not threading.main_thread() or phil._is_owned():
        work()
        return
    ended: list[BaseException | None] = []
    is_running = threading.Lock()
    is_running.acquire()

    def run() -> None:
        try:
            work()
            ended.append(None)
        except BaseException as error:
            ended.append(error)
        finally:
            is_running.release()

    # C calls C in this line: a handler runs before the thread starts, or when it is in the list.
    started: list[int] = []
    try:
        started.extend(starmap(_thread.start_new_thread, [(run, ())]))
        interrupt = _wait(is_running, ended)
    except BaseException as error:
        interrupt = error
        if started:
            _wait(is_running, ended)
    if not started:
        if isinstance(interrupt, RuntimeError | MemoryError):  # no thread can be had
            work()
            return
        assert interrupt is not None
        raise interrupt
    failure = ended.pop()
    try:
        if interrupt is not None:
            raise interrupt from failure
        if failure is not None:
            raise failure
    finally:
        del failure, interrupt  # they would hold this frame, and it them, with a file in it


def _wait(is_running: threading.Lock, ended: list[BaseException | None]) -> BaseException | None:
    """Wait until `ended` has an item; the first exception that was raised meanwhile."""
    interrupt = None
    while not ended:
        try:
            if is_running.acquire():
                is_running.release()
        except BaseException as error:
            interrupt = interrupt or error
    return interrupt
