"""Reads HDF5 files that gpufetch wrote: ``import hdf5_gpufetch``, then h5py as usual.

Importing it registers the filter with h5py's HDF5 library, if h5py is installed, and with every
other HDF5 library that the process has loaded by then; where another thread is in h5py for 5 s, a
thread does so as soon as that one has left it. The libraries of netCDF4 and PyTables get the filter
whenever these are imported, which xarray does with netCDF4 as it opens a file, and whichever import
begins first. Programs outside of Python find the plugin where the environment variable
``HDF5_PLUGIN_PATH`` is what :func:`plugin_path` returns.
"""

from __future__ import annotations

from hdf5_gpufetch._later import call_after_imports, call_no_more
from hdf5_gpufetch._plugin import FILTER_ID, __version__, plugin_path
from hdf5_gpufetch._register import register, register_on_import

__all__ = ["FILTER_ID", "__version__", "plugin_path", "register"]

# In this order: a package whose library is not loaded yet has it registered by its import.
call_after_imports(register_on_import)
try:
    register_on_import()
except BaseException:
    call_no_more()
    raise
