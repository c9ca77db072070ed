"""What gpufetch runs on."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from gpufetch import _core
from gpufetch.hdf5 import plugin_path
from gpufetch.hdf5._binding import binding_error

__all__ = ["info"]


def info() -> dict[str, Any]:
    """Say what gpufetch was built with and runs on; copies nothing, raises nothing.

    Keys: `version`; `default_device` (None where GPUFETCH_BACKEND names a backend that does not
    answer); `backends`, for "cuda" and "host" each whether it is `available`, the `reason` if it
    is not, and its `devices` with name, memory in bytes, compute capability, driver and CUDA
    runtime; `pool`, as `pool.stats()`; `hdf5`: the h5py and HDF5 versions, whether gpufetch is
    `bound` to that library (else `reason`), and `plugin_path` (None if not installed); `numpy`.
    """
    values = _core.info()
    values["hdf5"] = _hdf5_info()
    values["numpy"] = np.__version__
    return values


def _hdf5_info() -> dict[str, Any]:
    error = binding_error()
    try:
        folder = plugin_path()
    except FileNotFoundError:
        folder = None
    return {
        "h5py": h5py.__version__,
        "library": h5py.version.hdf5_version,
        "bound": error is None,
        "reason": None if error is None else str(error),
        "plugin_path": folder,
    }
