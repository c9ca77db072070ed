"""Checkpoints of a tree of tensors, written while the program goes on, and restarts from them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn, Self, TypeAlias, final

from gpufetch import _core
from gpufetch._checks import check_int, check_path, check_text, check_timeout
from gpufetch._part import Part
from gpufetch.hdf5._binding import require_binding
from gpufetch.hdf5._flat import Flat, restore

__all__ = ["Checkpoint", "CheckpointReport", "Restart"]

_logger = logging.getLogger("gpufetch")

Mode: TypeAlias = Literal["auto", "device-copy", "device-encoded", "pinned"]

_SHARDS_MAX = 256  # as in checkpoint.h
_APPLICATION_NBYTES_MAX = 255  # as in checkpoint.h
_DEFAULT_STREAM = 1  # as GPUF_STREAM_LEGACY
_MODES: list[Mode] = ["auto", "device-copy", "device-encoded", "pinned"]  # as in checkpoint.h


@final
@dataclass(frozen=True)
class CheckpointReport:
    """How a checkpoint ended, or how far it is."""

    step: int
    """Of the checkpoint; -1 where there was none yet."""
    state: Literal["none", "being written", "written", "failed"]
    message: str
    """Why it failed, or what else did not go well once it was written; empty otherwise."""
    path: Path
    """Of the file, under its final name; of the master where there are shards."""
    mode: str
    """Where the state was kept until it was written."""
    raw_nbytes: int
    """Of the tensors."""
    file_nbytes: int
    """Of the file and its shards; 0 unless they are written."""
    recycled_nbytes: int
    """Of the older files that were overwritten, with `recycle`; 0 where all are new ones."""
    ratio: float
    """`raw_nbytes` by `file_nbytes`, or 0."""
    stall: float
    """Seconds that the program waited in `save`."""
    seconds: float
    """From the snapshot to the end; 0 until then."""
    device_nbytes: int
    """Of device memory that are reserved."""
    host_nbytes: int
    """Of host memory that are reserved."""


@final
@dataclass(frozen=True)
class Restart:
    """What a checkpoint held."""

    step: int
    tree: Any
    """As it was saved, in other memory."""
    path: Path
    """Of the file."""
    skipped: str
    """Newer checkpoints that are damaged, and why; empty if there are none."""
    application: str = ""
    """That wrote it, as its Checkpoint was told; empty if it was not."""


@final
class Checkpoint:
    """Writes checkpoints of a program's state while it goes on.

    >>> with gf.Checkpoint("run", keep=2) as checkpoint:
    ...     restart = checkpoint.load()  # None the first time
    ...     for step in range(restart.step + 1 if restart else 0, 1000):
    ...         state = advance(state)
    ...         if step % 100 == 0:
    ...             checkpoint.save(step, state)

    Each checkpoint is one HDF5 file, DIRECTORY/PREFIX-STEP.h5, which has that name only when it is
    whole and on the disk, or with `shards` such a file and several others beside it. A process that
    ends at any time leaves the newest finished one. A failure (a full disk, an I/O error) costs one
    checkpoint, and those before stand: `wait` and `close` raise it, and the next `save` logs it and
    goes on. docs/checkpoints.md says what is promised.

    From any thread; calls of `save` take turns. `close`, or the end of a `with`, waits for the
    checkpoint that is being written. A program that ends without it may lose that one.

    Parameters
    ----------
    directory
        An existing folder.
    prefix
        Of the files' names. A prefix has one writer at a time, from its first `save` on.
    keep
        How many finished checkpoints to keep; 0: all.
    mode
        Where the state on the device of the first save is kept until it is written: copied within
        the device, encoded there, or encoded and sent to page-locked memory. "auto" is the first of
        these for which there is memory.
    compress
        Whether chunks are encoded by gpufetch's filter. Plain ones need no plugin to be read.
    sync
        Whether the file is on the disk before it has its name. If not, a finished checkpoint
        survives the process, and not a power cut.
    replace
        Whether a step of which there is a file may be saved again.
    recycle
        Whether the file of a checkpoint that has expired is overwritten by the next one, which is
        several times as fast as a new file, and keeps one file more than `keep` in the folder.
        Those that `keep` promises, that somebody reads, or that have another name are never
        overwritten.
    skip_if_busy
        Whether `save` does nothing, and returns False, while the checkpoint before is written. By
        default it waits.
    device_max_nbytes, host_max_nbytes
        Memory to reserve at most; 0: half of the device's free memory, and 256 MiB. On the host
        64 MiB are the least where a device encodes more than that.
    shards
        How many files the tensors of a checkpoint are spread over, at most 256, which is faster
        where one file is slower than the disks. HDF5 reads all of them by the one that has the
        checkpoint's name, as long as they stay in one folder. 1: all is one file. With ranks, the
        files of each.
    application
        Which program writes, as "name version": at most 255 bytes as UTF-8. It is in the files, and
        `Restart.application` and ``gpufetch ls`` show it.
    rank, rank_count, agree
        Of several processes that write one checkpoint together, which one this is, from 0, and how
        many there are. ``agree(value)`` gives the minimum of an integer over all of them, or a
        negative number where a rank is gone: with mpi4py
        ``lambda value: comm.allreduce(value, op=MPI.MIN)``. It is called on the thread that calls
        `save`, `wait`, `report` or `close`, which all ranks call in the same order; what it raises
        they raise. A call on this checkpoint that it makes is an error. All ranks save a tree of
        the same nesting and with the same values. Each saves its own box where a :class:`Part` is,
        and rank 0 alone what other tensors there are. Where one cannot save, `save` raises on all,
        and names that rank. `load` needs no ranks. A `with` that ends by an exception does not wait
        for the others.
    """

    __slots__ = ("_directory", "_has_ranks", "_prefix", "_writer")

    def __init__(
        self,
        directory: str | os.PathLike[str],
        prefix: str = "checkpoint",
        *,
        keep: int = 2,
        mode: Mode = "auto",
        compress: bool = True,
        sync: bool = True,
        replace: bool = False,
        recycle: bool = False,
        skip_if_busy: bool = False,
        device_max_nbytes: int = 0,
        host_max_nbytes: int = 0,
        shards: int = 1,
        application: str = "",
        rank: int = 0,
        rank_count: int = 1,
        agree: Callable[[int], int] | None = None,
    ) -> None:
        require_binding()
        check_path(directory, "directory")
        check_text(prefix, "prefix")
        if mode not in _MODES:
            raise ValueError(f"mode {mode!r} is unknown: give one of {', '.join(_MODES)}")
        if mode == "device-encoded" and not compress:
            raise ValueError("mode 'device-encoded' encodes, and compress is False: choose one")
        if recycle and check_int(keep, "keep", 0) == 0:
            raise ValueError("recycle is True, and keep is 0: nothing expires where all are kept")
        check_text(application, "application")
        if len(application.encode()) > _APPLICATION_NBYTES_MAX:
            raise ValueError(
                f"application is {application!r:.80}…: give at most {_APPLICATION_NBYTES_MAX} bytes"
            )
        self._has_ranks = check_int(rank_count, "rank_count", 1, 2**31 - 1) > 1
        if self._has_ranks and not callable(agree):
            raise TypeError(
                f"rank_count is {rank_count}, and agree {agree!r:.80}: give a function that gives "
                "the minimum of an integer over all ranks"
            )
        if self._has_ranks and recycle:
            raise ValueError("recycle is for a program without ranks: leave it out")
        self._directory = Path(directory).absolute()
        # With ranks, `save` says so to all of them.
        if not self._has_ranks and not self._directory.is_dir():
            raise FileNotFoundError(f"the checkpoints' folder {self._directory} does not exist")
        self._prefix = prefix
        self._writer = _core.checkpoint_create(
            self._directory,
            prefix,
            check_int(keep, "keep", 0, 2**31 - 1),
            _MODES.index(mode),
            check_int(device_max_nbytes, "device_max_nbytes", 0),
            check_int(host_max_nbytes, "host_max_nbytes", 0),
            bool(compress),
            bool(sync),
            bool(replace),
            bool(recycle),
            bool(skip_if_busy),
            check_int(shards, "shards", 1, _SHARDS_MAX),
            application or None,
            check_int(rank, "rank", 0, rank_count - 1),
            rank_count,
            agree if self._has_ranks else None,
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Checkpoint cannot be pickled or copied: a prefix has one writer, in one process"
        )

    def save(self, step: int, tree: Any, *, stream: Any = None) -> bool:
        """Take a snapshot of `tree`, and write it in the background as the checkpoint of `step`.

        The tree is a dict, list or tuple, nested 100 deep at most, of what
        :func:`gpufetch.hdf5.write` takes in trees: tensors of any framework or NumPy, numbers,
        text, bytes and None; and of a :class:`Part` for a tensor that is a box of an array that
        ranks hold together. All of it may be changed once this returns. The snapshot has the work
        that is pending on the stream which each tensor's producer names: for PyTorch, JAX and CuPy
        that is the calling thread's current stream.

        `stream` is the stream on which other work on the tensors is pending, as that of another
        thread: a stream of PyTorch or CuPy, any object with ``__cuda_stream__``, or an integer as
        in the CUDA Array Interface. The snapshot is taken behind that work, too, and tensors on the
        device may then be overwritten by later work on that stream alone: where they are copied
        within the device, this does not wait for the copies. The tensors are held until the
        checkpoint is written.

        Returns whether the checkpoint was begun, which is False with `skip_if_busy` alone.
        ValueError, also for a step of which there is a file, and TypeError say where in the tree
        the object is that cannot be saved. A failure of the checkpoint before is logged.
        """
        try:
            step = check_int(step, "step", 0)
            flat = Flat(tree, with_parts=True)
            handle = _handle_of(stream)
        except Exception:
            _core.checkpoint_refuse(self._writer)
            raise
        names, tensors, parts = tuple(flat.names), tuple(flat.tensors), tuple(flat.parts)
        try:
            before = _core.checkpoint_save(
                self._writer, step, names, tensors, parts, flat.text(), handle
            )
        except TimeoutError:
            return False
        if before["state"] == "failed":
            _logger.warning("checkpoint of step %d failed: %s", before["step"], before["message"])
        return True

    def wait(self, timeout: float | None = None) -> CheckpointReport:
        """Wait until the checkpoint that was saved last is finished, and say how it went.

        Raises the checkpoint's failure, and TimeoutError while it is still being written.
        """
        try:
            check_timeout(timeout)
        except (TypeError, ValueError):
            if self._has_ranks:  # the others wait
                _core.checkpoint_wait(self._writer, -1, False)
            raise
        timeout_ns = -1 if timeout is None else int(min(timeout * 1e9, 2**62))
        return _report(_core.checkpoint_wait(self._writer, timeout_ns, True))

    @property
    def report(self) -> CheckpointReport:
        """How the checkpoint that was saved last went, or how far it is; without waiting."""
        return _report(_core.checkpoint_wait(self._writer, 0, False))

    def load(
        self, *, step: int | None = None, device: str | None = "cpu", out: Any = None
    ) -> Restart | None:
        """Read the newest checkpoint that is whole: every chunk is compared with its checksum.

        Parameters
        ----------
        step
            The newest one up to this step; None: of all.
        device
            Where fresh arrays are made: "cpu" gives ndarrays, "cuda:0" DeviceArrays, None those on
            the default device.
        out
            A tree of the same nesting whose tensors are filled and returned, on any device; None
            in it stands for a fresh array, and for a :class:`Part` the box is read that it
            says, of an array of any decomposition. One tensor may be there twice, as tied weights
            are, in Parts of one box; where the values that were saved differ, it has the last ones.
            Numbers and text in it are not looked at.

        Returns
        -------
        Restart or None
            None where there is no checkpoint yet.

        Raises
        ------
        gpufetch.Error
            There are checkpoints, and none of them is whole.
        ValueError
            `out` is nested otherwise, has a tensor of another shape or dtype, or two that overlap,
            or the file is no checkpoint of a tree.
        TypeError
            `out` has a LazyArray, which only reads its tensor, or another object that is no tensor.
        """
        step_max = -1 if step is None else check_int(step, "step", 0)
        restart, report = _core.restart_open(self._directory, self._prefix, step_max)
        if restart is None:
            return None
        tree = restore(
            self._text_of(restart, report["path"]),
            lambda stored, other: _read(restart, stored.name, device, other),
            out,
            where=report["path"],
        )
        path = Path(report["path"])
        return Restart(report["step"], tree, path, report["message"], report["application"])

    def _text_of(self, restart: Any, path: str) -> str:
        try:
            return _core.restart_tree(restart)
        except ValueError as error:
            raise ValueError(
                f"{path} has no tree in it, as where a program in C wrote it: read its datasets "
                "with gpufetch.hdf5.read"
            ) from error

    def close(self) -> None:
        """Wait for the checkpoint that is being written, and end the writer.

        Raises the failure of the checkpoint that was saved last. Closing again does nothing.
        """
        _core.checkpoint_close(self._writer, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            _core.checkpoint_close(self._writer, self._has_ranks and error is not None)
        except (OSError, RuntimeError, MemoryError, ValueError, TypeError) as failure:
            if error is None:
                raise
            _logger.warning("%s", failure)

    def __repr__(self) -> str:
        return f"<gpufetch.Checkpoint {self._directory / self._prefix}>"


def _handle_of(stream: Any) -> int:
    """The gpuf_stream of a stream; 0 for None. CUDA calls the default stream 0, too."""
    if stream is None:
        return 0
    found: Any = stream
    if hasattr(stream, "__cuda_stream__"):
        found = stream.__cuda_stream__()[1]
    elif not isinstance(stream, int):
        found = getattr(stream, "cuda_stream", getattr(stream, "ptr", None))
    if not isinstance(found, int) or isinstance(found, bool):
        raise TypeError(
            f"stream is {stream!r:.80}, of type {type(stream).__name__}: give a CUDA stream of "
            "PyTorch or CuPy, an object with __cuda_stream__, or an integer"
        )
    return check_int(found, "stream", 0) or _DEFAULT_STREAM


def _read(restart: Any, name: str, device: str | None, other: Any) -> Any:
    if not isinstance(other, Part):
        return _core.restart_read(restart, name, device, other, None)
    part = other.start, other.global_shape
    _core.restart_read(restart, name, device, other.tensor, part)
    return other


def _report(values: dict[str, Any]) -> CheckpointReport:
    return CheckpointReport(
        step=values["step"],
        state=values["state"],
        message=values["message"],
        path=Path(values["path"]),
        mode=_MODES[values["mode"]],
        raw_nbytes=values["raw_nbytes"],
        file_nbytes=values["file_nbytes"],
        recycled_nbytes=values["recycled_nbytes"],
        ratio=values["ratio"],
        stall=values["stall_ns"] / 1e9,
        seconds=values["write_ns"] / 1e9,
        device_nbytes=values["device_nbytes"],
        host_nbytes=values["host_nbytes"],
    )
