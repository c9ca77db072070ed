"""Work that Ctrl-C does not cut in two."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hdf5_gpufetch._binding import phil

__all__ = ["uninterrupted"]


def uninterrupted(work: Callable[[], None], give_up: Callable[[], None]) -> None:
    """Run `work` where no signal's handler can raise in the middle of it.

    Python runs handlers in the main thread, so another one runs `work`. When a handler has raised,
    `give_up` is called, and what it raised is raised once `work` has ended. Where the main thread
    has h5py's lock, and where there is no memory for a thread, `work` is simply called.
    """
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    try:
        if threading.current_thread() is not threading.main_thread() or phil._is_owned():
            raise RuntimeError
        thread.start()
    except RuntimeError:
        work()
        return
    interrupt: BaseException | None = None
    while thread.is_alive():
        try:
            thread.join()
        except BaseException as error:
            interrupt = interrupt or error
            give_up()
    if interrupt is not None:
        raise interrupt
    if failures:
        raise failures.pop()
