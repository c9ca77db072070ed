"""Small requests by several clients at once, as viewers send them."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import zmq

from cases.comm_child import (
    MESSAGE_NBYTES,
    Server,
    flat_array,
    image_array,
    serve_bare,
    serve_comm,
)
from cases.comm_client import BARE, CLIENT, BareClient, CommClient, floats
from harness import Array, Row, Session, make_time_row, same_bits

TILE = 256
TILE_NBYTES = 4 * TILE * TILE
PERIOD_S = 0.1  # between a client's requests

REQUESTS: dict[str, dict[str, Any]] = {
    f"tile of {TILE}²": {"op": "read", "name": "image", "slices": [[0, TILE, 1], [0, TILE, 1]]},
    f"overview of {TILE}²": {"op": "overview", "name": "image", "shape": [TILE, TILE]},
}


class Crowd:
    """Clients that each ask again `PERIOD_S` after their last request, once it is answered."""

    def __init__(self, clients: list[Any], ask: Callable[[Any], None]) -> None:
        self._clients = clients
        self._ask = ask
        self._numbers = {client.replies: number for number, client in enumerate(clients)}
        self._poller = zmq.Poller()
        for replies in self._numbers:
            self._poller.register(replies, zmq.POLLIN)

    def run(self, seconds: float) -> tuple[list[float], Any]:
        """Return the time from each request to its reply, and the last reply."""
        start = time.perf_counter()
        gap = PERIOD_S / len(self._clients)  # so that they do not ask all at once
        due = [(start + number * gap, number) for number in range(len(self._clients))]
        asked: dict[int, float] = {}
        times: list[float] = []
        last = None
        while asked or due:
            now = time.perf_counter()
            if due and due[0][0] <= now:
                _, number = heapq.heappop(due)
                asked[number] = now
                self._ask(self._clients[number])
                continue
            wait_ms = 1000 * (due[0][0] - now) if due else None
            for replies, _ in self._poller.poll(wait_ms):
                number = self._numbers[replies]
                last = self._clients[number].take()
                now, began = time.perf_counter(), asked.pop(number)
                times.append(now - began)
                if now - start < seconds:
                    heapq.heappush(due, (max(now, began + PERIOD_S), number))
        return times, last


def rows(session: Session) -> list[Row]:
    side = 8192 if session.backend == "cuda" else 512 if session.quick else 1024
    rows = []
    with (
        Server(serve_comm, session.device, MESSAGE_NBYTES, side, str(session.scratch)) as comm,
        Server(serve_bare, MESSAGE_NBYTES) as bare,
    ):
        for count in (1, 8) if session.quick else (1, 8, 64):
            rows += crowd_rows(session, comm.address, bare.address, side, count)
    return rows


def crowd_rows(
    session: Session, connection_file: str, urls: tuple[str, str], side: int, count: int
) -> list[Row]:
    image, flat = image_array(side), flat_array(MESSAGE_NBYTES)
    tiles = image.reshape(TILE, side // TILE, TILE, side // TILE)
    answers = [image[:TILE, :TILE], tiles.mean(axis=(1, 3), dtype=np.float64)]
    with zmq.Context() as context:
        clients = [CommClient(context, connection_file) for _ in range(count)]
        sockets = [BareClient(context, urls) for _ in range(count)]
        bare = Crowd(sockets, lambda client: client.ask(TILE_NBYTES, TILE_NBYTES))
        rows = [
            crowd_row(
                session,
                f"comm {what} of {side}², {count} client{'s' * (count > 1)}",
                Crowd(clients, partial(CommClient.ask, request=request)),
                bare,
                [answer, flat[: TILE * TILE]],
            )
            for (what, request), answer in zip(REQUESTS.items(), answers, strict=True)
        ]
        for client in [*clients, *sockets]:
            client.close()
    return rows


def crowd_row(
    session: Session, case: str, served: Crowd, bare: Crowd, expected: list[Array]
) -> Row:
    """Time both crowds in turns."""
    rounds, seconds = (1, 0.05) if session.quick else (6, 2.0)
    times: dict[str, list[float]] = {CLIENT: [], BARE: []}
    for number in range(-1, rounds):
        for (name, some), crowd, right in zip(times.items(), (served, bare), expected, strict=True):
            fresh, last = crowd.run(seconds)
            if number < 0:
                check(name, floats(last), right)
            else:
                some += fresh
    p99 = {name: float(np.percentile(some, 99)) * 1e6 for name, some in times.items()}
    return make_time_row(
        session,
        case,
        times,
        gpufetch=CLIENT,
        limit=BARE,
        p99={name: float(f"{value:.4g}") for name, value in p99.items()},
        note=f"99th percentile: gpufetch {p99[CLIENT]:,.0f} µs, {BARE} {p99[BARE]:,.0f} µs",
    )


def check(name: str, values: Array, right: Array) -> None:
    """Check for the same bits; a mean may differ in the last, as the order of additions differs."""
    flat = np.ascontiguousarray(right).reshape(-1)
    exact = flat.dtype == values.dtype and same_bits(values, flat)
    if not exact and not (flat.dtype == np.float64 and np.allclose(values, flat, rtol=1e-5)):
        raise ValueError(f"{name}: the answer differs from the source")
