"""Sharing device memory with other processes: share, attach, unshare and ShareHandle."""

from __future__ import annotations

import atexit
import time
from typing import Any, final

from gpufetch import _core

__all__ = ["ShareHandle", "attach", "share", "unshare"]

# An object that a share still holds when the interpreter ends must not be released after it.
atexit.register(_core.share_stop)


@final
class ShareHandle:
    """Names a tensor that a process shares; from `share`.

    Immutable, hashable, picklable, and printable: `str(handle)` is a line of text that `attach`
    takes in another process or notebook. Whoever has it and runs as the same user on the same
    machine can read and write the tensor. As a context manager it calls `unshare` at the end of
    the block. Dropping a handle ends nothing: the share lasts until `unshare`, or as long as the
    process.
    """

    __slots__ = ("_bytes", "_info")
    _bytes: bytes
    _info: dict[str, Any]

    def __init__(self, handle: ShareHandle | str | bytes) -> None:
        """Take a handle's text, or its bytes. ValueError if it was cut off or altered."""
        data = _bytes_of(handle)
        object.__setattr__(self, "_info", _core.share_describe(data))
        object.__setattr__(self, "_bytes", data)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a ShareHandle is immutable: {name} cannot be set")

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the tensor."""
        shape: tuple[int, ...] = self._info["shape"]
        return shape

    @property
    def dtype(self) -> Any:
        """NumPy dtype of the tensor; ml_dtypes' for bfloat16 and float8."""
        return self._info["dtype"]

    @property
    def nbytes(self) -> int:
        """Bytes of a packed copy."""
        nbytes: int = self._info["nbytes"]
        return nbytes

    @property
    def device(self) -> str:
        """The device as the exporting process numbers it; an importer may number it otherwise."""
        device: str = self._info["device"]
        return device

    @property
    def readonly(self) -> bool:
        """True if the exporter asks importers not to write."""
        readonly: bool = self._info["readonly"]
        return readonly

    @property
    def process_id(self) -> int:
        """Process that shares the tensor."""
        process_id: int = self._info["process_id"]
        return process_id

    @property
    def importer_count(self) -> int:
        """Attachments that exist now; asks for a share of this process.

        Raises ValueError for one of another process, `Error` if the share has ended.
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
        return _core.share_parse(handle)
    if isinstance(handle, bytes):
        return handle
    raise TypeError(
        f"a {type(handle).__name__} is no share handle: pass what share() returned, its text "
        "or its bytes"
    )


def share(x: Any, *, copy: bool = False) -> ShareHandle:
    """Let other processes of this user use the device tensor `x` without a copy.

    x is any tensor that `fetch` takes, in any layout, on a GPU or the host backend. Work that is
    pending on it is waited for; later work is not ordered with the importers'. x is kept alive
    until `unshare` and until the last importer has detached or died. The whole memory block that
    x lies in, such as a segment of a framework's pool, becomes accessible to importers.

    copy=True shares a copy in C order instead, made on the device. It is the way out for memory
    that CUDA cannot pass on: managed, from cudaMallocAsync, or from the virtual memory API
    (PyTorch's expandable_segments). Such memory raises TypeError without it, as does an array on
    the CPU.

    Releases the GIL; may be called from any thread.
    """
    return ShareHandle(_core.share_export(x, copy))


def attach(handle: ShareHandle | str | bytes, /) -> _core.DeviceArray:
    """Open a tensor that another process shares: a DeviceArray on the same memory, no copy.

    handle is a ShareHandle, its text or its bytes. In the process that shares it, the array is a
    view of the original. The share is held until the last array and view that use it are gone.

    Raises ValueError for a handle that is cut off, altered or forged; TypeError if the exporter
    runs as another user or in another network namespace; TimeoutError if it is stopped;
    MemoryError if it serves too many; and `Error` if it is gone, has withdrawn the share, or its
    GPU is not visible here. When the exporter dies later, fetch raises `Error`.

    Releases the GIL; may be called from any thread.
    """
    return _core.share_attach(_bytes_of(handle))


_PIECE_S = 0.05  # a wait is cut into pieces so that Ctrl-C gets through


def unshare(handle: ShareHandle | str | bytes, /, *, timeout: float | None = 0) -> int:
    """Withdraw a share of this process: nobody can attach any more.

    Returns the number of attachments that are left after waiting for at most `timeout` seconds
    (None = for ever) for all to end. Those stay valid, and keep the tensor alive, until their
    processes let them go. May be called again, to wait. ValueError for a share of another process.
    """
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout {timeout!r} is not a number of seconds >= 0, or None")
    data = _bytes_of(handle)
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left_s = _PIECE_S if end is None else min(_PIECE_S, max(0.0, end - time.monotonic()))
        count = _core.share_withdraw(data, int(left_s * 1e9))
        if count == 0 or left_s == 0:
            return count
