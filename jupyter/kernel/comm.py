"""The comm target `gpufetch`: what a front end may ask a kernel about its device tensors.

Protocol 0. Every message is a JSON object, answered by exactly one; nothing is sent unasked. An
`id` in a request (ASCII string of at most 64 characters, or integer) comes back in its reply.

comm_open, any data
    {"op": "hello", "protocol": 0, "version": str, "operations": [str],
     "max_reply_nbytes": int}
{"op": "list"}
    {"op": "list", "tensors": [{"name", "framework", "shape", "dtype", "nbytes", "device"}],
     "truncated": bool}; a tensor that cannot be pulled has "problem" as well.
{"op": "read", "name": str, "slices": [item, ...]}
    An item is an integer (takes that index, drops the axis) or [start, stop, step], each an
    integer or null, with the meaning of a Python slice. Axes without an item are taken whole.
    {"op": "read", "name": str, "dtype": str, "shape": [int], "nbytes": int,
     "byteorder": "little"} and one binary buffer: the elements in C order.

A request that fails is answered {"op", "id", "error": {"code": str, "message": str}}, where code
is bad_request, unknown_op, unknown_name, bad_slice, too_large, unreadable or internal.

What a client sends is untrusted: types, sizes, names and bounds are checked, names are looked up
and never evaluated, and only device tensors can be read. A read of more than `max_reply_nbytes`
is refused before anything is copied: the client asks for it in parts.

The dispatcher knows nothing of Jupyter; `CommTarget` is its transport. Handlers may run on
several threads at once (a front end that uses subshells): the dispatcher holds no state.
"""

from __future__ import annotations

import reprlib
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

import gpufetch
from gpufetch import _core
from gpufetch.jupyter.namespace import (
    TensorInfo,
    describe,
    is_device_tensor,
    visible_variables,
)
from gpufetch.lazy import format_nbytes

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["MAX_REPLY_NBYTES", "PROTOCOL", "TARGET_NAME", "CommTarget", "Dispatcher"]

TARGET_NAME = "gpufetch"
PROTOCOL = 0
MAX_REPLY_NBYTES = 4 << 20

_MAX_NAME_LENGTH = 200
_MAX_ID_LENGTH = 64
_MAX_NDIM = 32
_MAX_LISTED = 1000
_INT64_MAX = (1 << 63) - 1

_shortener = reprlib.Repr()
_shortener.maxlevel = 2
_shortener.maxstring = _shortener.maxother = 80

Json = dict[str, Any]
Reply = tuple[Json, list[memoryview]]


class RequestError(Exception):
    """A request that is answered by an error; `code` is one of those in the module's text."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Dispatcher:
    """Answers requests about the tensors of a namespace. Never raises; holds no state.

    `namespace` returns the variables to look in; it is called at each request, from the thread
    that handles it.
    """

    def __init__(self, namespace: Callable[[], Mapping[str, Any]]) -> None:
        self._namespace = namespace
        self._operations: dict[str, Callable[[Json], Reply]] = {
            "list": self._list,
            "read": self._read,
        }

    def hello(self) -> Json:
        """Return the answer to comm_open."""
        return {
            "op": "hello",
            "protocol": PROTOCOL,
            "version": gpufetch.__version__,
            "operations": sorted(self._operations),
            "max_reply_nbytes": MAX_REPLY_NBYTES,
        }

    def handle(self, request: object) -> Reply:
        """Answer one request: the reply and its binary buffers."""
        envelope: Json = {}
        try:
            if not isinstance(request, dict):
                raise RequestError("bad_request", f"a request is an object, not {_show(request)}")
            if "id" in request:
                envelope["id"] = _checked_id(request["id"])
            operation = request.get("op")
            if not isinstance(operation, str) or operation not in self._operations:
                raise RequestError(
                    "unknown_op",
                    f"op {_show(operation)} is not one of {', '.join(sorted(self._operations))}",
                )
            envelope["op"] = operation
            reply, buffers = self._operations[operation](request)
        except RequestError as error:
            return {**envelope, "error": _error(error.code, str(error))}, []
        except Exception as error:
            return {**envelope, "error": _error("internal", f"{type(error).__name__}: {error}")}, []
        return {**envelope, **reply}, buffers

    def _list(self, request: Json) -> Reply:
        variables = self._variables()
        names = [name for name, obj in variables.items() if is_device_tensor(obj)]
        tensors = [_wire(describe(name, variables[name])) for name in names[:_MAX_LISTED]]
        return {"tensors": tensors, "truncated": len(names) > _MAX_LISTED}, []

    def _read(self, request: Json) -> Reply:
        name = _checked_name(request.get("name"))
        key = _checked_slices(request.get("slices", []))
        try:
            view = _core.asdevice(self._find(name))
        except RequestError:
            raise
        except Exception as error:
            raise RequestError("unreadable", f"{name} cannot be read: {error}") from error
        _check_bounds(name, view.shape, key)
        view = view[key]
        if view.nbytes > MAX_REPLY_NBYTES:
            raise RequestError(
                "too_large",
                f"{name} with these slices has shape {tuple(view.shape)} and {view.nbytes} bytes; "
                f"a reply holds at most {MAX_REPLY_NBYTES} ({format_nbytes(MAX_REPLY_NBYTES)}): "
                "ask for narrower slices or a larger step, and for large reads in parts",
            )
        try:
            values = _core.fetch(view)
        except Exception as error:
            raise RequestError("unreadable", f"{name} cannot be read: {error}") from error
        header = {
            "name": name,
            "dtype": str(values.dtype),
            "shape": list(values.shape),
            "nbytes": values.nbytes,
            "byteorder": "little",
        }
        return header, [values.reshape(-1).view(np.uint8).data]

    def _variables(self) -> dict[str, Any]:
        return visible_variables(self._namespace())

    def _find(self, name: str) -> Any:
        variables = self._variables()
        if name not in variables:
            raise RequestError(
                "unknown_name", f"no variable {name}: the operation list gives the names"
            )
        obj = variables[name]
        if not is_device_tensor(obj):
            raise RequestError(
                "unknown_name",
                f"{name} is not a device tensor but a {type(obj).__name__}: the operation list "
                "gives the names",
            )
        return obj


def _error(code: str, message: str) -> Json:
    # A lone surrogate cannot be sent as UTF-8.
    return {"code": code, "message": message.encode(errors="backslashreplace").decode()}


def _show(value: object) -> str:
    """Quote what a client sent, cut to a length that is safe to send back."""
    return _shortener.repr(value)


def _checked_id(value: object) -> str | int:
    if isinstance(value, str) and len(value) <= _MAX_ID_LENGTH and value.isascii():
        return value
    if _is_int64(value):
        return value
    raise RequestError(
        "bad_request",
        f"id {_show(value)} is neither a 64-bit integer nor an ASCII string of at most "
        f"{_MAX_ID_LENGTH} characters",
    )


def _checked_name(value: object) -> str:
    if (
        isinstance(value, str)
        and len(value) <= _MAX_NAME_LENGTH
        and value.isidentifier()
        and not value.startswith("_")
    ):
        return value
    raise RequestError(
        "bad_request",
        f"name {_show(value)} is not a variable's name: plain identifiers only, no expression, "
        f"no leading underscore, at most {_MAX_NAME_LENGTH} characters",
    )


def _checked_slices(value: object) -> tuple[int | slice, ...]:
    if not isinstance(value, list) or len(value) > _MAX_NDIM:
        raise RequestError(
            "bad_slice", f"slices {_show(value)} is not a list of at most {_MAX_NDIM} items"
        )
    return tuple(_checked_slice(axis, item) for axis, item in enumerate(value))


def _checked_slice(axis: int, item: object) -> int | slice:
    if _is_int64(item):
        return item
    if (
        isinstance(item, list)
        and len(item) == 3
        and all(part is None or _is_int64(part) for part in item)
    ):
        if item[2] == 0:
            raise RequestError("bad_slice", f"slices[{axis}] {_show(item)} has step 0")
        return slice(*item)
    raise RequestError(
        "bad_slice",
        f"slices[{axis}] {_show(item)} is neither a 64-bit integer nor [start, stop, step] of "
        "64-bit integers and nulls",
    )


def _is_int64(value: object) -> TypeGuard[int]:
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and -_INT64_MAX - 1 <= value <= _INT64_MAX
    )


def _check_bounds(name: str, shape: tuple[int, ...], key: tuple[int | slice, ...]) -> None:
    if len(key) > len(shape):
        raise RequestError(
            "bad_slice", f"{len(key)} slices for {name}, which has shape {tuple(shape)}"
        )
    for axis, (length, item) in enumerate(zip(shape, key, strict=False)):
        if isinstance(item, int) and not -length <= item < length:
            raise RequestError(
                "bad_slice",
                f"slices[{axis}] {item} is outside axis {axis} of {name}, of length {length}",
            )


def _wire(tensor: TensorInfo) -> Json:
    wire: Json = {
        "name": tensor.name,
        "framework": tensor.framework,
        "shape": list(tensor.shape),
        "dtype": tensor.dtype,
        "nbytes": tensor.nbytes,
        "device": tensor.device,
    }
    if tensor.problem is not None:
        wire["problem"] = tensor.problem
    return wire


class CommTarget:
    """Carries a dispatcher's messages over Jupyter comms. May be used from any thread.

    `manager` is the kernel's comm manager. Comms that are open at `unregister` are closed.
    """

    def __init__(self, dispatcher: Dispatcher, manager: Any) -> None:
        self._dispatcher = dispatcher
        self._manager = manager
        self._lock = threading.Lock()
        self._comms: dict[str, Any] = {}  # open comms by id; guarded by _lock

    def register(self) -> None:
        """Answer comm_open for the target from now on."""
        self._manager.register_target(TARGET_NAME, self._opened)

    def unregister(self) -> None:
        """Stop answering, and close the comms that are open."""
        self._manager.unregister_target(TARGET_NAME, self._opened)
        with self._lock:
            comms = list(self._comms.values())
            self._comms.clear()
        for comm in comms:
            comm.close()

    def _opened(self, comm: Any, message: Mapping[str, Any]) -> None:
        with self._lock:
            self._comms[comm.comm_id] = comm
        comm.on_msg(lambda message: self._received(comm, message))
        comm.on_close(lambda message: self._closed(comm))
        comm.send(self._dispatcher.hello())

    def _received(self, comm: Any, message: Mapping[str, Any]) -> None:
        if message.get("buffers"):
            comm.send({"error": _error("bad_request", "requests carry no binary buffers")})
            return
        reply, buffers = self._dispatcher.handle(message["content"].get("data"))
        comm.send(reply, buffers=buffers)

    def _closed(self, comm: Any) -> None:
        with self._lock:
            self._comms.pop(comm.comm_id, None)


_targets: dict[int, CommTarget] = {}  # loaded targets by id of their shell


def load(shell: InteractiveShell) -> None:
    """Register the target with the shell's kernel; does nothing in a shell without one."""
    kernel = getattr(shell, "kernel", None)
    manager = getattr(kernel, "comm_manager", None)
    if manager is None or id(shell) in _targets:
        return
    target = CommTarget(Dispatcher(lambda: shell.user_ns), manager)
    target.register()
    _targets[id(shell)] = target


def unload(shell: InteractiveShell) -> None:
    """Take the target away; does nothing where it is not loaded."""
    target = _targets.pop(id(shell), None)
    if target is not None:
        target.unregister()
