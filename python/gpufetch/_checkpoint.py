"""Checkpoints of a tree of tensors, written while the program goes on, and restarts from them."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, final

from gpufetch import _core
from gpufetch._checkpoint_tree import Flat, restore
from gpufetch._checks import check_int, check_path, check_text, check_timeout
from gpufetch.hdf5._binding import require_binding

__all__ = ["Checkpoint", "CheckpointReport", "Restart"]

_logger = logging.getLogger("gpufetch")

Mode: TypeAlias = Literal["auto", "device-copy", "device-encoded", "pinned"]

_MODES: list[Mode] = ["auto", "device-copy", "device-encoded", "pinned"]  # as in checkpoint.h


@final
@dataclass(frozen=True)
class CheckpointReport:
    """How a checkpoint ended, or how far it is."""

    step: int
    """Of the checkpoint; -1 where there was none yet."""
    state: Literal["none", "being written", "written", "failed"]
    message: str
    """Why it failed; empty otherwise."""
    path: Path
    """Of the file, under its final name."""
    mode: str
    """Where the state was kept until it was written."""
    raw_nbytes: int
    """Of the tensors."""
    file_nbytes: int
    """Of the file; 0 unless it is written."""
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
    whole and on the disk. A process that ends at any time leaves the newest finished one. A failure
    (a full disk, an I/O error) costs one checkpoint, and those before stand: `wait` and `close`
    raise it, and the next `save` logs it and goes on. docs/checkpoints.md says what is promised.

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
    skip_if_busy
        Whether `save` does nothing, and returns False, while the checkpoint before is written. By
        default it waits.
    device_max_nbytes, host_max_nbytes
        Memory to reserve at most; 0: half of the device's free memory, and 256 MiB.
    """

    __slots__ = ("_directory", "_prefix", "_writer")

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
        skip_if_busy: bool = False,
        device_max_nbytes: int = 0,
        host_max_nbytes: int = 0,
    ) -> None:
        require_binding()
        check_path(directory, "directory")
        check_text(prefix, "prefix")
        if mode not in _MODES:
            raise ValueError(f"mode {mode!r} is unknown: give one of {', '.join(_MODES)}")
        self._directory = Path(directory).absolute()
        if not self._directory.is_dir():
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
            bool(skip_if_busy),
        )

    def save(self, step: int, tree: Any) -> bool:
        """Take a snapshot of `tree`, and write it in the background as the checkpoint of `step`.

        The tree is a dict, list or tuple, nested to any depth, of what :func:`gpufetch.hdf5.write`
        takes in trees: tensors of any framework or NumPy, numbers, text, bytes and None. All of it
        may be changed once this returns. Work of the producers that is pending on the tensors is
        waited for.

        Returns whether the checkpoint was begun, which is False with `skip_if_busy` alone.
        ValueError, also for a step of which there is a file, and TypeError say where in the tree
        the object is that cannot be saved. A failure of the checkpoint before is logged.
        """
        step = check_int(step, "step", 0)
        flat = Flat(tree)
        names, tensors = tuple(flat.names), tuple(flat.tensors)
        try:
            before = _core.checkpoint_save(self._writer, step, names, tensors, flat.text)
        except TimeoutError:
            return False
        if before["state"] == "failed":
            _logger.warning("checkpoint of step %d failed: %s", before["step"], before["message"])
        return True

    def wait(self, timeout: float | None = None) -> CheckpointReport:
        """Wait until the checkpoint that was saved last is finished, and say how it went.

        Raises the checkpoint's failure, and TimeoutError while it is still being written.
        """
        check_timeout(timeout)
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
            in it stands for a fresh array. Numbers and text in it are not looked at.

        Returns
        -------
        Restart or None
            None where there is no checkpoint yet.

        Raises
        ------
        gpufetch.Error
            There are checkpoints, and none of them is whole.
        ValueError
            `out` is nested otherwise, or the file is no checkpoint of a tree.
        """
        step_max = -1 if step is None else check_int(step, "step", 0)
        restart, report = _core.restart_open(self._directory, self._prefix, step_max)
        if restart is None:
            return None
        tree = restore(
            self._text_of(restart, report["path"]),
            lambda name, other: _core.restart_read(restart, name, device, other),
            out,
        )
        return Restart(report["step"], tree, Path(report["path"]), report["message"])

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
        _core.checkpoint_close(self._writer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except (OSError, RuntimeError, MemoryError, ValueError, TypeError) as failure:
            if error is None:
                raise
            _logger.warning("%s", failure)

    def __repr__(self) -> str:
        return f"<gpufetch.Checkpoint {self._directory / self._prefix}>"


def _report(values: dict[str, Any]) -> CheckpointReport:
    return CheckpointReport(
        step=values["step"],
        state=values["state"],
        message=values["message"],
        path=Path(values["path"]),
        mode=_MODES[values["mode"]],
        raw_nbytes=values["raw_nbytes"],
        file_nbytes=values["file_nbytes"],
        ratio=values["ratio"],
        stall=values["stall_ns"] / 1e9,
        seconds=values["write_ns"] / 1e9,
        device_nbytes=values["device_nbytes"],
        host_nbytes=values["host_nbytes"],
    )
