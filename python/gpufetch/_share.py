"""Sharing device memory with other processes of this machine."""

from __future__ import annotations

import atexit
import contextlib
import os
import time
from typing import Any, NamedTuple, TypedDict, final

import numpy as np

from gpufetch import _core
from gpufetch._address_ranges import AddressRange, range_of
from gpufetch._checks import check_copy, check_text, check_timeout

__all__ = ["ShareHandle", "Shared", "attach", "share", "shares", "unshare"]

# Shares hold Python objects, which must be released before the interpreter ends.
atexit.register(_core.share_stop)


class Shared(NamedTuple):
    """What a share of this process keeps alive: `address_range` is None for a copy."""

    handle: ShareHandle
    address_range: AddressRange | None
    process_id: int


# The shares that have not ended, by the handle's bytes; changed by single operations.
_shares: dict[bytes, Shared] = {}


def shares() -> list[Shared]:
    """The shares of this process that `unshare` has not ended."""
    return [share for share in list(_shares.values()) if share.process_id == os.getpid()]


class _Info(TypedDict):
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int
    device: str
    readonly: bool
    process_id: int


@final
class ShareHandle:
    """Names a tensor that a process shares; from `share`.

    Immutable, hashable and picklable. `str(handle)` is a line of text that `attach` takes in
    another process or notebook. A process that has it and runs as the same user on the same
    machine can read and write the tensor.

    The share lasts until `unshare` or the end of the process, also when the handle is deleted. As a
    context manager, a handle calls `unshare` at the end.
    """

    __slots__ = ("_bytes", "_info")
    _bytes: bytes
    _info: _Info

    def __init__(self, handle: ShareHandle | str | bytes) -> None:
        """Take a handle's text, or its bytes. ValueError if it was cut off or altered."""
        data = _bytes_of(handle)
        object.__setattr__(self, "_info", _core.share_describe(data))
        object.__setattr__(self, "_bytes", data)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a ShareHandle is immutable: {name} cannot be set")

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis of the tensor."""
        return self._info["shape"]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type of the tensor; from ml_dtypes for bfloat16 and float8."""
        return self._info["dtype"]

    @property
    def nbytes(self) -> int:
        """Bytes of a packed copy."""
        return self._info["nbytes"]

    @property
    def device(self) -> str:
        """The tensor's device, as the process that shares it numbers devices."""
        return self._info["device"]

    @property
    def readonly(self) -> bool:
        """Whether the process that shares the tensor asks others not to write to it."""
        return self._info["readonly"]

    @property
    def process_id(self) -> int:
        """The process that shares the tensor."""
        return self._info["process_id"]

    @property
    def importer_count(self) -> int:
        """The number of attachments that exist now to a share of this process.

        Raises ValueError for a share of another process, and `Error` if the share has ended.
        """
        return _core.share_importers(self._bytes)

    def __bytes__(self) -> bytes:
        return self._bytes

    def __str__(self) -> str:
        return _core.share_text(self._bytes)

    def __repr__(self) -> str:
        return (
            f"ShareHandle(shape={self.shape}, dtype={self.dtype}, device='{self.device}', "
            f"nbytes={self.nbytes}, process_id={self.process_id}: print it for its text)"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShareHandle) and self._bytes == other._bytes

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __reduce__(self) -> tuple[type[ShareHandle], tuple[bytes]]:
        return ShareHandle, (self._bytes,)

    def __enter__(self) -> ShareHandle:
        return self

    def __exit__(self, *reason: object) -> None:
        unshare(self)


def _bytes_of(handle: object) -> bytes:
    if isinstance(handle, ShareHandle):
        return handle._bytes
    if isinstance(handle, str):
        check_text(handle, "share handle")
        return _core.share_parse(handle)
    if isinstance(handle, bytes):
        return handle
    raise TypeError(
        f"a {type(handle).__name__} is no share handle: pass what share() returned, its text "
        "or its bytes"
    )


def share(x: Any, *, copy: bool = False) -> ShareHandle:
    """Let other processes of this user use the device tensor `x` without a copy.

    x is any tensor that `fetch` takes, in any layout, on a GPU or on the host backend. This waits
    for work that is pending on it; later work is not ordered with that of other processes. x is
    kept alive until `unshare` is called and the last attached process has detached or ended. The
    whole allocation that x lies in, such as a segment of a framework's pool, becomes accessible to
    attached processes.

    With copy=True a copy in C order is shared instead, which is made on the device. CUDA cannot
    share some kinds of memory: managed memory, memory from cudaMallocAsync, and memory from the
    virtual memory API (PyTorch's expandable_segments). Without copy=True these raise TypeError, as
    does an array on the CPU.

    Releases the GIL; may be called from any thread.
    """
    handle = ShareHandle(_core.share_export(x, copy=bool(check_copy(copy))))
    with contextlib.suppress(Exception):  # a listing goes without it; the share is there
        where = None if copy else range_of(_core.asdevice(x))
        _shares[bytes(handle)] = Shared(handle, where, os.getpid())
    return handle


def attach(handle: ShareHandle | str | bytes, /) -> _core.DeviceArray:
    """Open a tensor that another process shares: a DeviceArray on the same memory, no copy.

    handle is a ShareHandle, its text or its bytes. In the process that shares the tensor, the array
    is a view of the original. The attachment lasts until the last array and view that use it are
    deleted. If the sharing process ends before that, `fetch` of the array raises `Error`.

    Releases the GIL; may be called from any thread.

    Raises
    ------
    ValueError
        The handle is cut off, altered or forged.
    TypeError
        The sharing process runs as another user or in another network namespace.
    TimeoutError
        The sharing process is suspended.
    MemoryError
        The sharing process has too many attachments.
    gpufetch.Error
        The sharing process has ended or called `unshare`, or its GPU is not visible here.
    """
    return _core.share_attach(_bytes_of(handle))


_WAIT_S = 0.05  # longest single wait, after which Python handles Ctrl-C


def unshare(handle: ShareHandle | str | bytes, /, *, timeout: float | None = 0) -> int:
    """End a share of this process, so that no process can attach any more.

    Waits for at most `timeout` seconds (None: without a limit) until all attachments have ended,
    and returns the number of those that are left. They stay valid, and keep the tensor alive, until
    their processes release them. May be called again, to wait for them.

    Raises ValueError for a share of another process. May be called from any thread.
    """
    check_timeout(timeout)
    data = _bytes_of(handle)
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left_s = _WAIT_S if end is None else min(_WAIT_S, max(0.0, end - time.monotonic()))
        count = _core.share_unshare(data, int(left_s * 1e9))
        _shares.pop(data, None)
        if count == 0 or left_s == 0:
            return count
