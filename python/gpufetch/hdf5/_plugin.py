"""Where the HDF5 plugin is installed."""

from __future__ import annotations

from pathlib import Path

__all__ = ["plugin_path"]

_NAME = "libh5z_gpufetch.so"
_FOLDER = Path(__file__).resolve().parents[1] / "plugins"


def plugin_path() -> str:
    """Folder that holds the HDF5 plugin: the value for ``HDF5_PLUGIN_PATH``.

    Raises ``FileNotFoundError``, naming the folder, where the plugin is not installed.
    """
    if not (_FOLDER / _NAME).is_file():
        raise FileNotFoundError(
            f"{_NAME} is not in {_FOLDER}: install gpufetch with pip, built with HDF5's headers "
            "(in a Meson build tree the plugin lies in hdf5_filter/)"
        )
    return str(_FOLDER)
