"""Large reads through a server's messages."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import zmq

import gpufetch as gf
from cases.comm_child import MESSAGE_NBYTES, Server, flat_array, serve_bare, serve_comm
from cases.comm_client import BARE, CLIENT, BareClient, CommClient, floats
from harness import GIGABYTES, Array, Contender, Row, Session, make_row, measure

CONNECT, ARRAY = "gpufetch.connect", f"{BARE}, laid into a new array"


def read_part(client: CommClient, number: int) -> None:
    client.ask({"op": "read", "name": "flat", "fragment": number})


def read_by_client(nbytes: int, client: CommClient) -> Any:
    """All of "flat", two requests under way as the protocol allows; gives the last message."""
    count = nbytes // MESSAGE_NBYTES
    for number in range(min(2, count)):
        read_part(client, number)
    for number in range(count):
        last = client.take()
        if number + 2 < count:
            read_part(client, number + 2)
    return last


def read_bare(nbytes: int, client: BareClient) -> Any:
    client.ask(nbytes, MESSAGE_NBYTES)
    for _ in range(nbytes // MESSAGE_NBYTES):
        last = client.take()
    return last


def read_bare_array(nbytes: int, client: BareClient) -> Array:
    values = np.empty(nbytes // 4, np.float32)
    flat = values.view(np.uint8)
    client.ask(nbytes, MESSAGE_NBYTES)
    for start in range(0, nbytes, MESSAGE_NBYTES):
        flat[start : start + MESSAGE_NBYTES] = np.frombuffer(client.take(), np.uint8)
    return values


def rows(session: Session, label: str, nbytes: int) -> list[Row]:
    whole = flat_array(nbytes)
    tail = whole[-(MESSAGE_NBYTES // 4) :]
    runtime = str(session.scratch)
    with (
        Server(serve_comm, session.device, nbytes, 1, runtime) as comm,
        Server(serve_bare, nbytes) as bare,
        zmq.Context() as context,
        gf.connect(comm.address) as run,
    ):
        run._sharing = "messages are what is timed"
        client, socket = CommClient(context, comm.address), BareClient(context, bare.address)
        contenders = [
            Contender(CONNECT, lambda x: x.fetch(), [run["flat"]]),
            Contender(ARRAY, partial(read_bare_array, nbytes), [socket]),
            Contender(
                CLIENT, partial(read_by_client, nbytes), [client], answer=floats, expected=tail
            ),
            Contender(BARE, partial(read_bare, nbytes), [socket], answer=floats, expected=tail),
        ]
        rounds = 3 if session.quick else 20
        timings = measure(contenders, [whole], rounds=rounds, budget_s=30.0)
        client.close()
        socket.close()
    row = partial(make_row, session, timings=timings, nbytes=nbytes, unit=GIGABYTES, peers=[])
    return [
        row(f"comm read {label} to NumPy by connect", gpufetch=CONNECT, limit=ARRAY),
        row(f"comm read {label} by a minimal client", gpufetch=CLIENT, limit=BARE),
    ]
