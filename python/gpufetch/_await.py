"""Awaiting a copy; apart, so that only those who await import asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import TypeVar

_T = TypeVar("_T")


def _wake(loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
    """From any thread: let the event loop notice that the copy has ended."""

    def settle() -> None:
        if not ended.done():
            ended.set_result(None)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        if not loop.is_closed():
            raise


async def in_event_loop(future: concurrent.futures.Future[_T]) -> _T:
    """Result of a future; see `Future.__await__`."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    future.add_done_callback(lambda _: _wake(loop, ended))
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
