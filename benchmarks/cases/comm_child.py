"""The servers that the comm's benchmark asks, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import zmq

import gpufetch as gf
from harness import Array
from peers import random_arrays

MESSAGE_NBYTES = 4 << 20  # of a reply of the server


def flat_array(nbytes: int) -> Array:
    return random_arrays(nbytes, 1)[0]


def image_array(side: int) -> Array:
    return np.random.default_rng(side).random((side, side), dtype=np.float32)


def serve_comm(pipe: Connection, device: str, nbytes: int, side: int, runtime: str) -> None:
    """Run a server of gpufetch, and tell its connection file."""
    os.environ["JUPYTER_RUNTIME_DIR"] = runtime
    with gf.serve("bench", ip="127.0.0.1") as server:
        server.publish("flat", gf.to_device(flat_array(nbytes), device=device))
        server.publish("image", gf.to_device(image_array(side), device=device))
        pipe.send(server.connection_file)
        pipe.recv()


def _answer(publisher: Any, frames: list[bytes], memory: memoryview) -> None:
    _, topic, nbytes, message_nbytes = frames
    for start in range(0, int(nbytes), int(message_nbytes)):
        stop = min(start + int(message_nbytes), int(nbytes))
        publisher.send_multipart([topic, memory[start:stop]], copy=False)


def serve_bare(pipe: Connection, nbytes: int) -> None:
    """Run a ROUTER and an XPUB, as a Jupyter kernel's shell and iopub, and tell their URLs.

    What is sent lies in memory of the process, and ZeroMQ takes it without a copy.
    """
    memory = memoryview(flat_array(nbytes)).cast("B")
    context = zmq.Context()
    router, publisher = context.socket(zmq.ROUTER), context.socket(zmq.XPUB)
    publisher.sndhwm = router.sndhwm = 0
    publisher.setsockopt(zmq.XPUB_VERBOSE, 1)
    ports = [socket.bind_to_random_port("tcp://127.0.0.1") for socket in (router, publisher)]
    pipe.send(tuple(f"tcp://127.0.0.1:{port}" for port in ports))
    poller = zmq.Poller()
    for item in (router, publisher, pipe.fileno()):
        poller.register(item, zmq.POLLIN)
    while True:
        ready = dict(poller.poll())
        if pipe.fileno() in ready:
            context.destroy(linger=0)
            return
        if publisher in ready:
            event = publisher.recv()
            if event[:1] == b"\1":
                publisher.send_multipart([event[1:], b"welcome"])
        if router in ready:
            _answer(publisher, router.recv_multipart(), memory)


class Server:
    """A process that runs one of the above, for the length of a `with` block."""

    def __init__(self, serve: Callable[..., None], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self.address: Any = self._pipe.recv()
        except EOFError as error:
            self._process.join()
            raise RuntimeError("the server's process ended: see its message above") from error

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.send("end")
        self._process.join()
