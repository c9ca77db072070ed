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
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from hdf5_gpufetch._loaded import loaded_libraries
from hdf5_gpufetch._plugin import filter_classes, plugin_path

__all__ = ["register", "register_on_import"]

_WAIT_S = 5.0
_PAUSE_S = 0.005

# What has the filter: "h5py", and libraries by the address of their H5Zregister, each with the
# calls of it that are left. It is called no more then: the library may be in use without a lock.
# On `sys`, where this outlives the module, which may be loaded again.
_registered: dict[object, Iterator[int]] = vars(sys).setdefault("_hdf5_gpufetch_registered", {})


def register() -> list[str]:
    """Register the filter with every HDF5 library that is loaded now, and has not got it from here.

    h5py is imported first, if it is installed. Returns the paths of the libraries that have it.

    ``import hdf5_gpufetch`` calls this, and so does a later import of netCDF4 or PyTables. After
    importing another package that brings an HDF5 library of its own, such as GDAL, call it again,
    while no other thread is in that library. Those that have the filter are left alone.

    Raises ImportError where the plugin, or a library that refuses it, is of another platform.
    """
    addresses = filter_classes()
    h5py = importlib.import_module("h5py") if find_spec("h5py") is not None else None
    with _lock_of(h5py):
        if h5py is not None and "h5py" not in _registered:
            _register_with_h5py(h5py, addresses)
        paths = [path for path in loaded_libraries() if _register_with(path, addresses)]
        if h5py is not None:
            _registered["h5py"] = iter(())
    return paths


def register_on_import() -> None:
    """As `register`, without waiting for ever for a thread that is in h5py.

    That one may itself wait for this import: where it reads by references, Zarr imports the codec
    on another thread. Where another thread is importing h5py, its import needs h5py's lock: this
    one waits for it before it takes the lock.
    """
    is_there = sys.modules.get("h5py") is not None  # None: its import is blocked
    h5py = importlib.import_module("h5py") if is_there else None
    lock = None if h5py is None or "h5py" in _registered else h5py._objects.phil
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
    """The lock that h5py holds while a thread is in its HDF5 library, until that has the filter."""
    if h5py is None or "h5py" in _registered:
        return contextlib.nullcontext()
    lock: contextlib.AbstractContextManager[Any] = h5py._objects.phil
    return lock


def _register_with(path: str, addresses: list[int]) -> bool:
    """Whether the loaded library at `path` is an HDF5 library; it gets the filter once."""
    try:
        library = _open_loaded(path)
        function = library.H5Zregister
    except (OSError, AttributeError):
        return False
    function.argtypes = [ctypes.c_void_p]
    function.restype = ctypes.c_int
    address = ctypes.cast(function, ctypes.c_void_p).value
    calls = _registered.setdefault(address, map(function, addresses))
    if min(calls, default=0) < 0:  # C calls C: no other thread comes between, or calls again
        _registered.pop(address, None)
        raise ImportError(f"the HDF5 library {path} refuses the filter of hdf5_gpufetch")
    return True


def _open_loaded(path: str) -> ctypes.PyDLL:
    """Open a library that is loaded already; OSError where it is not. Calls of it keep the GIL."""
    if sys.platform == "win32":
        return ctypes.PyDLL(path)
    return ctypes.PyDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
