"""The plugin's file, and what it says of itself."""

from __future__ import annotations

import ctypes
from pathlib import Path

from hdf5_gpufetch._build import FILTER_IDS, LIBRARIES, VERSION

__all__ = ["FILTER_ID", "__version__", "filter_classes", "plugin_path"]

__version__: str = VERSION

FILTER_ID: int = FILTER_IDS[0]
"""The filter's number, by which h5py writes: ``create_dataset(..., compression=FILTER_ID)``."""

_FOLDER = Path(__file__).resolve().parent / "plugins"
_libraries: dict[str, ctypes.CDLL] = {}  # never unloaded: HDF5 keeps pointers into them


def plugin_path() -> str:
    """Folder that holds the plugin: the value for ``HDF5_PLUGIN_PATH``."""
    return str(_FOLDER)


def filter_classes() -> list[int]:
    """Addresses of the ``H5Z_class2_t`` that describe the filter, one for each of its numbers.

    Raises ImportError where the system cannot load the plugin.
    """
    return [_library(name).H5PLget_plugin_info() for name in LIBRARIES]


def _library(name: str) -> ctypes.CDLL:
    if name not in _libraries:
        try:
            library = ctypes.CDLL(str(_FOLDER / name))
        except OSError as error:
            raise ImportError(
                f"hdf5_gpufetch cannot load {_FOLDER / name}: {error}; install the wheel of this "
                "platform (pip install --force-reinstall hdf5-gpufetch)"
            ) from error
        library.H5PLget_plugin_info.restype = ctypes.c_void_p
        _libraries[name] = library
    return _libraries[name]
