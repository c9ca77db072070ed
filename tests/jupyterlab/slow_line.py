"""A proxy that is a slow line: web sockets through it are delayed, and carry few bytes a second.

All else goes through as it comes, so that a page is there soon.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

_PIECE_NBYTES = 16384
_HEAD_NBYTES_MAX = 65536


class _Line:
    """One direction: pieces leave one after the other, and each arrives `delay_s` later."""

    def __init__(self, writer: asyncio.StreamWriter, nbytes_per_s: float, delay_s: float) -> None:
        self.writer, self.nbytes_per_s, self.delay_s = writer, nbytes_per_s, delay_s
        self.free_at = 0.0
        self.arriving: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

    async def carry(self, reader: asyncio.StreamReader) -> None:
        arrival = asyncio.create_task(self._arrive())
        clock = asyncio.get_running_loop().time
        try:
            while data := await reader.read(_PIECE_NBYTES):
                self.free_at = max(self.free_at, clock()) + len(data) / self.nbytes_per_s
                await self.arriving.put((self.free_at + self.delay_s, data))
        finally:
            await self.arriving.put((0.0, b""))
            await arrival

    async def _arrive(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            at, data = await self.arriving.get()
            if not data:
                self.writer.close()
                return
            await asyncio.sleep(max(0.0, at - clock()))
            self.writer.write(data)
            await self.writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_PIECE_NBYTES):
        writer.write(data)
        await writer.drain()
    writer.close()


@contextlib.contextmanager
def slow_line(to_port: int, nbytes_per_s: float, round_trip_s: float) -> Iterator[int]:
    """A port of this machine that is the other one over a slow line."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            there, to_there = await asyncio.open_connection("127.0.0.1", to_port)
            is_slow = b"upgrade: websocket" in head.lower()
            if not is_slow:  # one request, so that the next one's head is seen, too
                head = head.replace(b"Connection: keep-alive", b"Connection: close")
            to_there.write(head)
            if is_slow:
                up = _Line(to_there, nbytes_per_s, round_trip_s / 2).carry(reader)
                down = _Line(writer, nbytes_per_s, round_trip_s / 2).carry(there)
            else:
                up, down = _copy(reader, to_there), _copy(there, writer)
            await asyncio.gather(up, down, return_exceptions=True)

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(
        asyncio.start_server(connect, "127.0.0.1", 0, limit=_HEAD_NBYTES_MAX)
    )
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
