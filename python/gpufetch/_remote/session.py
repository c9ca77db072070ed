"""A session with one server: requests to it, with a new connection where one was lost."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

from gpufetch import _core
from gpufetch._checks import check_timeout
from gpufetch._deadline import shortened
from gpufetch._remote.attached import Attached
from gpufetch._remote.client import (
    Client,
    NoStepError,
    Reply,
    ServerEndedError,
    ServerGoneError,
    ServerLostError,
)
from gpufetch._remote.replies import ReplyError
from gpufetch._remote.servers import describe

__all__ = ["At", "Session"]

At = Literal["live", "step"]
_T = TypeVar("_T")

_CONNECT_PAUSE_S = 0.1
_CONNECT_MIN_S = 1.0  # what a new connection has, however short the time-out is
_READS = ("read", "overview", "stats", "histogram")


class _Flag:
    """What is set once and stays so; without a lock, which an interrupted thread might keep."""

    is_set = False


class Session:
    """Requests to one server, from any thread; they go one after the other.

    When the server has restarted, or the network failed, the next request connects anew. When the
    server has stopped and removed its connection file, requests raise ConnectionError at once; so
    do those that find no server behind the file, but for the first after a server was killed, which
    waits for its next start.

    Attributes
    ----------
    label
        The server's name, or what tells it apart from others of that name.
    at
        "live", or "step" if each read is done when the program completes a step.
    step, time
        What the program said last of its progress; None before it says any.
    instance
        Names the start of the server that answered last.
    sharing_problem
        Why large reads go in messages; None if they may go through shared memory.
    """

    def __init__(self, path: Path, timeout: float, at: At) -> None:
        server = describe(path)
        self.path = path
        self.label = server.name if server else path.stem
        self.timeout = timeout
        self.at: At = at
        self._process_id = os.getpid()
        # Both are taken by _core.run_locked alone, so that they are free again after Ctrl-C.
        self._lock = threading.RLock()  # guards all below; held for several requests in a row
        self._wire = threading.Lock()  # from a request, or connecting, to the last reply
        self.step: int | None = None
        self.time: float | None = None
        self.instance = ""
        self.sharing_problem: str | None = None
        self._closed = _Flag()
        self._client: Client | None = None
        # Whether there was a server, for whose next start a lost connection waits.
        self._was_connected = False
        self._attached = Attached()
        self._of_thread = threading.local()  # .step: that of the last reply to this thread
        # Sessions for requests that wait for a step, each of one thread at a time: nobody else
        # waits for those. All of them, and those that no thread uses; changed by single operations
        # of a list's, without a lock, so that finalizers may come here, too.
        self._waiters: list[Session] = []
        self._idle_waiters: list[Session] = []

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed.is_set

    @property
    def thread_step(self) -> int | None:
        """The step that the last reply to this thread was of, if there was one."""
        return getattr(self._of_thread, "step", None)

    def close(self) -> None:
        """Detach; later requests raise ValueError. A forked child leaves that to its parent."""
        if os.getpid() != self._process_id:
            return
        self._closed.is_set = True  # before the lock is taken: who holds it may wait for a reply
        for waiter in list(self._waiters):
            waiter.close()
        with contextlib.suppress(TimeoutError):  # then whoever holds the session drops the client
            self.hold(lambda: None)

    def hold(self, work: Callable[[], _T], timeout: float | None = None) -> _T:
        """Call `work`, whose requests no other thread's come between, and return its result.

        TimeoutError where other threads use the session for longer than `timeout` seconds (None:
        the session's), or than this thread's deadline allows. `Error` in a forked child,
        where nobody may give it back.
        """
        _core.check_process(self._process_id)
        timeout = shortened(self.timeout if timeout is None else timeout)

        def held() -> _T:
            try:
                return work()
            finally:
                # Not in a signal handler or a finalizer while a request waits for its reply: then
                # the request drops the client.
                if self.is_closed and not self._wire.locked():
                    self._drop()

        return _core.run_locked(
            self._lock,
            min(timeout, threading.TIMEOUT_MAX),
            f"other threads have used the connection to {self.label} for {timeout:.3g} s: wait "
            "longer (timeout=), or give this thread a connection of its own",
            held,
        )

    def _exchange(self, work: Callable[[], _T], timeout: float | None = None) -> _T:
        """Hold the session for one exchange of messages.

        A signal handler or a finalizer may come here on the thread that waits for a reply: it would
        take that reply away.
        """

        def alone() -> _T:
            if self._wire.locked():  # by this thread, as it holds the session
                raise RuntimeError(
                    f"the connection to {self.label} waits for a reply on this thread: use another "
                    "connection in signal handlers, finalizers and callbacks"
                )
            return _core.run_locked(self._wire, -1, "", work)

        return self.hold(alone, timeout)

    def _drop(self) -> None:
        client, self._client = self._client, None  # so also where closing it is interrupted
        self._attached.release()
        if client is not None:
            client.close()

    def _connected(self, deadline: float) -> Client:
        if self.is_closed:
            raise ValueError("this connection is closed: connect() again")
        if self._client is not None and not self._client.is_at_rest:
            self._drop()
        closed = self._closed
        while self._client is None:
            try:
                self._client = Client(
                    self.path,
                    max(_CONNECT_MIN_S, deadline - time.monotonic()),
                    lambda: closed.is_set,
                )
                self.instance = self._client.instance
                self._was_connected = True
            except ServerEndedError:
                raise
            except ServerLostError as error:
                if isinstance(error, ServerGoneError) and not self._was_connected:
                    raise
                if time.monotonic() >= deadline:
                    raise self._timed_out(error) from error
                time.sleep(_CONNECT_PAUSE_S)
        return self._client

    def _timed_out(self, error: ServerLostError) -> TimeoutError:
        """The error of a wait; a server that was killed is not waited for a second time."""
        self._was_connected = not isinstance(error, ServerGoneError)
        return TimeoutError(str(error))

    def connected(self) -> Client:
        """The client, which is connected first if it is not; call it within `hold`."""
        return self._exchange(lambda: self._connected(time.monotonic() + shortened(self.timeout)))

    def requests(
        self,
        requests: list[dict[str, Any]],
        take: Callable[[Reply], object],
        timeout: float | None = None,
    ) -> None:
        """Send requests, and call `take` with their replies in order.

        Where the server is lost before a reply, the requests that are left go to a new connection.
        TimeoutError where there is none in `timeout` seconds (None: the session's), or where other
        threads' requests last that long, and ConnectionError where the server has ended for good.
        RuntimeError where this thread waits for a reply already, and a signal handler or a
        finalizer asks. Where anything else is raised meanwhile, such as Ctrl-C, the connection is
        given up, since half a message may be sent or received; the next request connects anew. A
        deadline of this thread's shortens every time-out.
        """
        timeout = self.timeout if timeout is None else timeout

        def ask_all() -> None:
            try:
                self._ask_all(requests, take, shortened(timeout))
            finally:
                if self._client is not None and not self._client.is_at_rest:
                    self._drop()

        self._exchange(ask_all, timeout)

    def _ask_all(
        self, requests: list[dict[str, Any]], take: Callable[[Reply], object], timeout: float
    ) -> None:
        deadline = time.monotonic() + timeout
        done = 0
        while done < len(requests):
            client = self._connected(deadline)
            try:
                for reply in client.request(requests[done:], timeout):
                    self.step = self._of_thread.step = reply[0].get("step", self.step)
                    time_now = reply[0].get("time", self.time)  # text if it is not finite
                    self.time = float(time_now) if isinstance(time_now, str) else time_now
                    done += 1
                    take(reply)
            except NoStepError:
                self._drop()  # the server need not wait for the step any more
                raise
            except ServerLostError as error:
                self._drop()
                if isinstance(error, ServerEndedError):
                    raise
                if time.monotonic() >= deadline:
                    raise self._timed_out(error) from error

    def wait_step(self, timeout: float | None = None) -> int:
        """Wait for the next step, and return its number; other requests go on meanwhile."""
        check_timeout(timeout)
        _core.check_process(self._process_id)
        try:
            waiter = self._idle_waiters.pop()
        except IndexError:
            waiter = Session(self.path, self.timeout, "live")
            waiter._was_connected = self._was_connected
            self._waiters.append(waiter)
        try:
            if self.is_closed:  # asked after the waiter is in the list that close() goes through
                waiter.close()
                raise ValueError("this connection is closed: connect() again")
            reply, _ = waiter.request({"op": "subscribe"}, timeout)
        finally:
            self._was_connected &= waiter._was_connected  # a server that was killed
            self._idle_waiters.append(waiter)
        return int(reply["step"])

    def request(self, request: dict[str, Any], timeout: float | None = None) -> Reply:
        """Send one request, and wait for its reply; a read is done as `at` says."""
        if self.at == "step" and request["op"] in _READS:
            request["at"] = "step"
        replies: list[Reply] = []
        self.requests([request], replies.append, timeout)
        return replies[0]

    def listing(self) -> dict[str, Any]:
        """What the server publishes: `tensors` and `values`, from as many replies as that takes."""
        listing, _ = self.request({"op": "list"})
        while listing["truncated"]:
            skip = len(listing["tensors"]) + len(listing["values"])
            more, _ = self.request({"op": "list", "skip": skip})
            listing["tensors"] += more["tensors"]
            listing["values"].update(more["values"])
            listing["truncated"] = more["truncated"]
        return listing

    def shared(self, name: str, generation: int | None) -> _core.DeviceArray | None:
        """Attach to the memory of a tensor; None where this process cannot, or not now.

        `generation`, if given, is the one that the tensor must still have.
        """
        if self.sharing_problem is not None or self.at == "step":
            return None
        return self.hold(lambda: self._shared(name, generation))

    def _shared(self, name: str, generation: int | None) -> _core.DeviceArray | None:
        self.sharing_problem = self.connected().sharing_problem
        if self.sharing_problem is not None:
            return None
        try:
            try:
                reply, _ = self.request({"op": "share", "name": name})
            except (ConnectionError, TimeoutError) as error:
                lost = error  # not for want of shared memory: messages would wait as long again
            else:
                if generation not in (None, reply.get("generation", 0)):
                    return None  # the read in messages that follows says so
                return self._attached.attach(str(reply["handle"]))
        except KeyError:
            return None  # unpublished, or the name was given to another tensor meanwhile
        except _core.Error as error:
            if error.status != "GPUF_ERR_STATE":  # that status is for the same two cases
                self.sharing_problem = str(error)
            return None
        except (ReplyError, TypeError, MemoryError, OSError) as error:
            self.sharing_problem = str(error)
            return None
        raise lost
