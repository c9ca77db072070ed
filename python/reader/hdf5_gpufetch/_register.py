"""Registering the filter with the HDF5 libraries of this process.

A process may hold several: the wheels of h5py, netCDF4 and PyTables each bring one. A filter that
is registered in one is unknown in the others.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
import threading
import time
from importlib.util import find_spec
from typing import Any

from hdf5_gpufetch._loaded import loaded_libraries
from hdf5_gpufetch._plugin import filter_classes, plugin_path

__all__ = ["register", "register_on_import"]

_WAIT_S = 5.0
_PAUSE_S = 0.005


def register() -> list[str]:
    """Register the filter with every HDF5 library that is loaded now.

    h5py is imported first, if it is installed. Returns the libraries' paths.

    ``import hdf5_gpufetch`` calls this, and so does a later import of netCDF4 or PyTables. After
    importing another package that brings an HDF5 library of its own, such as GDAL, call it again,
    while no other thread is in that library. Registering twice does no harm.

    Raises ImportError where the plugin, or a library that refuses it, is of another platform.
    """
    addresses = filter_classes()
    h5py = importlib.import_module("h5py") if find_spec("h5py") is not None else None
    if h5py is not None:
        _register_with_h5py(h5py, addresses)
    with _lock_of(h5py):
        return [path for path in loaded_libraries() if _register_with(path, addresses)]


def register_on_import() -> None:
    """As `register`, without waiting for ever for a thread that is in h5py.

    That one may itself wait for this import: where it reads by references, Zarr imports the codec
    on another thread. Where another thread is importing h5py, its import needs h5py's lock: this
    one waits for it before it takes the lock.
    """
    h5py = importlib.import_module("h5py") if "h5py" in sys.modules else None
    lock = None if h5py is None else h5py._objects.phil
    deadline = time.monotonic() + _WAIT_S
    while lock is not None and not lock.acquire(blocking=False):
        if time.monotonic() > deadline:
            threading.Thread(target=register, name="hdf5_gpufetch", daemon=True).start()
            return
        time.sleep(_PAUSE_S)
    try:
        register()
    finally:
        if lock is not None:
            lock.release()


def _register_with_h5py(h5py: Any, addresses: list[int]) -> None:
    """Register by h5py's own functions, because its library may be linked into h5py itself."""
    if not hasattr(h5py.h5z, "register_filter"):  # before 3.9
        # In front: HDF5 gives up at the first folder that it cannot open.
        h5py.h5pl.prepend(os.fsencode(plugin_path()))
        return
    for address in addresses:
        h5py.h5z.register_filter(address)


def _lock_of(h5py: Any) -> contextlib.AbstractContextManager[Any]:
    """The lock that h5py holds while a thread is in its HDF5 library."""
    lock: contextlib.AbstractContextManager[Any] = (
        contextlib.nullcontext() if h5py is None else h5py._objects.phil
    )
    return lock


def _register_with(path: str, addresses: list[int]) -> bool:
    """Whether the loaded library at `path` is an HDF5 library; the filter is registered there."""
    try:
        library = _open_loaded(path)
        function = library.H5Zregister
    except (OSError, AttributeError):
        return False
    function.argtypes = [ctypes.c_void_p]
    function.restype = ctypes.c_int
    if any(function(address) < 0 for address in addresses):
        raise ImportError(f"the HDF5 library {path} refuses the filter of hdf5_gpufetch")
    return True


def _open_loaded(path: str) -> ctypes.PyDLL:
    """Open a library that is loaded already; OSError where it is not. Calls of it keep the GIL."""
    if sys.platform == "win32":
        return ctypes.PyDLL(path)
    return ctypes.PyDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
