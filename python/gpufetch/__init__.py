"""gpufetch: arrays out of GPU memory, fast, into NumPy, HDF5 and notebooks.

>>> import gpufetch as gf
>>> x_host = gf.fetch(x)            # any GPU tensor -> ndarray
>>> gf.hdf5.write("run.h5", "x", x)  # any GPU tensor -> HDF5

Importing gpufetch needs no GPU and no driver. It lets h5py in this process read datasets that
gpufetch has encoded.

Errors are ValueError and TypeError for arguments that do not fit, MemoryError for host or device
memory, OSError for the system, TimeoutError, and `Error` for a device, HDF5 or state failure.
Every function may be called from any thread, and a forked child may use every one that needs host
memory alone: it reads and writes files and copies arrays, though its parent has used a device. What
is the parent's (devices, fetches under way, shares, servers, connections) raises `Error` there:
start workers with spawn or forkserver.
"""

import importlib
from typing import TYPE_CHECKING, Any

from gpufetch import hdf5
from gpufetch._checkpoint import Checkpoint, CheckpointReport, Restart
from gpufetch._core import (
    DeviceArray,
    Error,
    __version__,
    asdevice,
    fetch,
)
from gpufetch._frameworks import CopyWarning, convert, to_device
from gpufetch._futures import Future, fetch_async
from gpufetch._info import info
from gpufetch._lazy.array import LazyArray, lazy
from gpufetch._lazy.limit import LargeFetchWarning
from gpufetch._part import Part
from gpufetch._pool import Pool, pool
from gpufetch._publish import publish, unpublish
from gpufetch._reduce import Histogram, Overview, Stats, histogram, overview, stats
from gpufetch._remote.connect import connect
from gpufetch._remote.connection import Connection
from gpufetch._remote.serve import Server, serve
from gpufetch._share import ShareHandle, attach, share, unshare
from gpufetch._viewer.view import view
from gpufetch.hdf5._binding import register

if TYPE_CHECKING:
    from gpufetch import plot as plot

__all__ = [
    "Checkpoint",
    "CheckpointReport",
    "Connection",
    "CopyWarning",
    "DeviceArray",
    "Error",
    "Future",
    "Histogram",
    "LargeFetchWarning",
    "LazyArray",
    "Overview",
    "Part",
    "Pool",
    "Restart",
    "Server",
    "ShareHandle",
    "Stats",
    "__version__",
    "asdevice",
    "attach",
    "connect",
    "convert",
    "fetch",
    "fetch_async",
    "hdf5",
    "histogram",
    "info",
    "lazy",
    "load_ipython_extension",
    "overview",
    "pool",
    "publish",
    "serve",
    "share",
    "stats",
    "to_device",
    "unload_ipython_extension",
    "unpublish",
    "unshare",
    "view",
]

register()


def __dir__() -> list[str]:
    """Names that completion shows: the public ones."""
    return [*__all__, "plot"]


def __getattr__(name: str) -> Any:
    """Import `gpufetch.plot` when it is used first, since it imports Matplotlib."""
    if name == "plot":
        return importlib.import_module("gpufetch.plot")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """Load `%gpufetch` and the comm target into an IPython shell: `%load_ext gpufetch`."""
    from gpufetch import jupyter  # imports IPython, which plain users do without

    jupyter.load_ipython_extension(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Remove them again: `%unload_ext gpufetch`."""
    from gpufetch import jupyter

    jupyter.unload_ipython_extension(shell)
