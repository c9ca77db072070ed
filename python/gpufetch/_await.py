"""Awaiting a copy; apart, so that only those who await import asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

_T = TypeVar("_T")

_PAUSE_S = 0.001


def _settle(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


def _wake(loop: asyncio.AbstractEventLoop, settle: Callable[[], None], _: object) -> None:
    """From any thread: let the event loop notice that the copy has ended."""
    while True:
        try:
            loop.call_soon_threadsafe(settle)
            return
        except MemoryError:  # nobody else would wake the loop
            time.sleep(_PAUSE_S)
        except RuntimeError:
            if not loop.is_closed():
                raise
            return


async def in_event_loop(future: concurrent.futures.Future[_T]) -> _T:
    """Result of a future; see `Future.__await__`."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    future.add_done_callback(partial(_wake, loop, partial(_settle, ended)))
    try:
        await asyncio.wait([ended])
    except asyncio.CancelledError:
        future.cancel()
        while not ended.done():
            try:
                await asyncio.wait([ended])
            except asyncio.CancelledError:
                continue  # the first one is raised below
        raise
    if future.cancelled():
        raise asyncio.CancelledError
    return future.result()
