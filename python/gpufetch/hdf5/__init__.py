"""Device tensors to and from HDF5, through the libhdf5 that h5py uses.

A dataset written here opens with plain h5py in any process that has imported gpufetch, and with
any HDF5 tool whose ``HDF5_PLUGIN_PATH`` names :func:`plugin_path`.

Every function may be called from any thread. HDF5 is entered only while h5py's own lock is held;
the GIL and that lock are both free while chunks are copied, encoded and decoded.
"""

from gpufetch.hdf5._accelerate import Acceleration, accelerate
from gpufetch.hdf5._filters import FILTER_ID, FILTER_IDS, filter_options
from gpufetch.hdf5._plugin import plugin_path
from gpufetch.hdf5._read import read
from gpufetch.hdf5._refs import references
from gpufetch.hdf5._repack import repack
from gpufetch.hdf5._save import load, save
from gpufetch.hdf5._write import write
from gpufetch.hdf5._write_async import WriteFuture, write_async

__all__ = [
    "FILTER_ID",
    "FILTER_IDS",
    "Acceleration",
    "WriteFuture",
    "accelerate",
    "filter_options",
    "load",
    "plugin_path",
    "read",
    "references",
    "repack",
    "save",
    "write",
    "write_async",
]


def __dir__() -> list[str]:
    """Names that completion shows: the public ones."""
    return __all__
