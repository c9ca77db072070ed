"""The comm target `gpufetch`, by which a front end asks a kernel about its device tensors.

The protocol is in docs/protocol.md, and its dispatcher in C (jupyter/comm). This module carries the
messages over Jupyter comms and looks tensors up: those that `gpufetch.publish` offers, then the
visible variables of the user's namespace. Names are looked up and never evaluated, and only device
tensors can be read.

A kernel handles messages on its main thread or, for a front end that uses subshells, on several
threads at once, even for one comm. Each message is answered on the thread that handles it, before
its handler returns, because Jupyter attributes a reply to the message that is being handled.
"""

from __future__ import annotations

import json
import logging
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gpufetch import _core
from gpufetch._published import published
from gpufetch._subshells import handle_where_asked
from gpufetch.jupyter.namespace import framework_of, is_device_tensor, problem_of, visible_variables

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["COMMS_MAX", "MAX_REPLY_NBYTES", "PROTOCOL", "TARGET_NAME", "CommTarget", "Dispatcher"]

TARGET_NAME = "gpufetch"
PROTOCOL = 1
MAX_REPLY_NBYTES = 4 << 20
COMMS_MAX = 256  # comms that are open: as many as the dispatcher has clients

_logger = logging.getLogger("gpufetch.comm")

Json = dict[str, Any]
Reply = tuple[Json, list[memoryview]]


class Dispatcher:
    """Answers requests about published tensors and those of a namespace, from any thread.

    `namespace` returns the variables to look in; it is called at each request, from the thread
    that handles it. The first failure of each kind is logged, to "gpufetch.comm".
    """

    def __init__(self, namespace: Callable[[], Mapping[str, Any]]) -> None:
        finder = _Finder(namespace)  # the dispatcher in C holds it: self would never be freed
        self._dispatcher = _core.dispatcher_create(finder.find, finder.list, _logger.info)

    def open(self, data: object = None) -> tuple[int, Reply]:
        """Answer comm_open: the client's number, 0 if it is refused, and the reply."""
        client, reply = _core.client_open(self._dispatcher, b"" if data is None else _encode(data))
        return client, _decode(reply)

    def handle(self, client: int, request: object, buffer_count: int = 0) -> Reply | None:
        """Answer a request of a client: the reply and its buffers; None for an unknown client."""
        reply = _core.dispatcher_message(self._dispatcher, client, _encode(request), buffer_count)
        return None if reply is None else _decode(reply)

    def close(self, client: int) -> None:
        """Forget a client, and end the shares that were made for it."""
        _core.client_close(self._dispatcher, client)

    def end_stale_shares(self) -> None:
        """End the shares of tensors whose names stand for other memory by now, or for none.

        A share holds its tensor's memory, which the user could not free otherwise.
        """
        _core.dispatcher_end_stale_shares(self._dispatcher)


class _Finder:
    """Looks tensors up for a dispatcher."""

    def __init__(self, namespace: Callable[[], Mapping[str, Any]]) -> None:
        self._namespace = namespace

    def find(self, name: str) -> tuple[_core.DeviceArray, str]:
        """Return a tensor and its framework. LookupError for an unknown name."""
        candidates = published()
        if name not in candidates:
            candidates = visible_variables(self._namespace())
        if name not in candidates:
            raise LookupError("there is no such variable; list gives the names")
        obj = candidates[name]
        if not is_device_tensor(obj) and name not in published():
            raise LookupError(
                f"it is not a device tensor but a {type(obj).__name__}; list gives the names"
            )
        return _core.asdevice(obj), framework_of(obj)

    def list(self) -> list[tuple[str, str, _core.DeviceArray | None, str | None]]:
        """Return name, framework, tensor and, instead of a tensor, the problem with it."""
        variables = visible_variables(self._namespace())
        tensors = {name: obj for name, obj in variables.items() if is_device_tensor(obj)}
        return [
            _listed(name, obj) for name, obj in (published() | tensors).items() if _is_text(name)
        ]


def _listed(name: str, obj: Any) -> tuple[str, str, _core.DeviceArray | None, str | None]:
    try:
        return name, framework_of(obj), _core.asdevice(obj), None
    except (Exception, SystemExit) as error:  # of any framework
        return name, framework_of(obj), None, problem_of(error)


def _is_text(name: str) -> bool:
    """Whether a name can be sent: a lone surrogate cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _encode(data: object) -> bytes:
    """The JSON of a message's data; the dispatcher refuses text that is not JSON."""
    try:
        return json.dumps(data).encode()
    except (TypeError, ValueError, RecursionError):
        return b"(not JSON)"


def _decode(reply: tuple[bytes, list[Any]]) -> Reply:
    text, buffers = reply
    return json.loads(text), [buffer.data for buffer in buffers]


class CommTarget:
    """Carries a dispatcher's messages over Jupyter comms. May be used from any thread.

    `manager` is the kernel's comm manager.
    """

    def __init__(self, dispatcher: Dispatcher, manager: Any) -> None:
        self._dispatcher = dispatcher
        self._manager = manager
        self._lock = threading.Lock()
        # The open comms by id, each with the number of its client, in the order of their last use;
        # guarded by _lock.
        self._comms: dict[str, tuple[Any, int]] = {}

    def register(self) -> None:
        """Answer comm_open for the target from now on."""
        self._manager.register_target(TARGET_NAME, self._opened)

    def unregister(self) -> None:
        """Stop answering, and close the comms that are open."""
        self._manager.unregister_target(TARGET_NAME, self._opened)
        with self._lock:
            comms = list(self._comms.values())
            self._comms.clear()
        for comm, client in comms:
            self._dispatcher.close(client)
            self._end(comm)

    def after_cell(self) -> None:
        """Look what has become of shared tensors; called when code has run."""
        self._dispatcher.end_stale_shares()

    def _opened(self, comm: Any, message: Mapping[str, Any]) -> None:
        with self._lock:
            ended = self._take_ended(comm.comm_id)
            client, (reply, _) = self._dispatcher.open(message["content"].get("data"))
            if client != 0:
                self._comms[comm.comm_id] = comm, client
        for other in ended:
            self._end(other)
        if client != 0:
            handle_where_asked(comm)
            comm.on_msg(lambda message: self._received(comm, client, message))
            comm.on_close(lambda message: self._closed(comm, client))
        comm.send(reply)
        if client == 0:
            comm.close()

    def _take_ended(self, new_id: str) -> list[Any]:
        """Forget the comms that end where one is opened: one that has its id, and unused ones.

        A page that is closed or loaded again leaves its comm open: those that were not used for
        longest make way. Call with the lock held.
        """
        ended = []
        while new_id in self._comms or len(self._comms) >= COMMS_MAX:
            comm_id = new_id if new_id in self._comms else next(iter(self._comms))
            comm, client = self._comms.pop(comm_id)
            self._dispatcher.close(client)
            ended.append(comm)
        return ended

    def _end(self, comm: Any) -> None:
        """Close a comm whose client is closed.

        Where the manager has put another one of the same id in its place, which goes on, the page
        is told nothing: it would take the message for one about that.
        """
        if self._manager.comms.get(comm.comm_id) is comm:
            comm.close()
        else:
            comm._closed = True  # else it would close itself when it is freed

    def _received(self, comm: Any, client: int, message: Mapping[str, Any]) -> None:
        with self._lock:
            if self._comms.get(comm.comm_id) == (comm, client):
                self._comms[comm.comm_id] = self._comms.pop(comm.comm_id)
        buffer_count = len(message.get("buffers") or ())
        answer = self._dispatcher.handle(client, message["content"].get("data"), buffer_count)
        if answer is not None:
            reply, buffers = answer
            comm.send(reply, buffers=buffers)

    def _closed(self, comm: Any, client: int) -> None:
        with self._lock:
            if self._comms.get(comm.comm_id) == (comm, client):
                del self._comms[comm.comm_id]
        self._dispatcher.close(client)


_lock = threading.Lock()
_targets: dict[int, CommTarget] = {}  # loaded targets by the id of their shell; under _lock


def load(shell: InteractiveShell) -> None:
    """Register the target with the shell's kernel; does nothing in a shell without a kernel.

    Warns if gpufetch was built without the comm.
    """
    kernel = getattr(shell, "kernel", None)
    manager = getattr(kernel, "comm_manager", None)
    with _lock:
        if manager is None or id(shell) in _targets:
            return
        try:
            dispatcher = Dispatcher(lambda: shell.user_ns)
        except TypeError as error:
            warnings.warn(f"no comm target: {error}", stacklevel=2)
            return
        target = CommTarget(dispatcher, manager)
        target.register()
        shell.events.register("post_execute", target.after_cell)
        _targets[id(shell)] = target


def unload(shell: InteractiveShell) -> None:
    """Remove the target; does nothing if it is not loaded."""
    with _lock:
        target = _targets.pop(id(shell), None)
    if target is not None:
        shell.events.unregister("post_execute", target.after_cell)
        target.unregister()
