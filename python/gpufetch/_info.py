"""Facts about the installation: versions, backends, devices, the pool, HDF5."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from gpufetch import _core
from gpufetch.hdf5 import plugin_path
from gpufetch.hdf5._binding import binding_error

__all__ = ["info"]


class Info(dict[str, Any]):
    """A dict that notebooks show as a table."""

    def _repr_html_(self) -> str:
        from gpufetch._display.info import info_html  # not before something is shown

        return info_html(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        from gpufetch._display.info import print_info

        print_info(self, printer)


def info() -> dict[str, Any]:
    """Say what gpufetch was built with and what it runs on. Copies nothing and raises nothing.

    Returns
    -------
    dict
        `version`: gpufetch's own.
        `default_device`: None if GPUFETCH_BACKEND names a backend that is not available.
        `backends`: for "cuda" and "host", whether the backend is `available`, the `reason` if it is
        not, and its `devices` with name, memory in bytes, compute capability, driver and CUDA
        runtime.
        `pool`: as `pool.stats()`.
        `hdf5`: the versions of h5py and HDF5; whether gpufetch is `bound` to that library, and the
        `reason` if it is not; `plugin_path`, None if the plugin is not installed.
        `numpy`: its version.
    """
    values = Info(_core.info())
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
