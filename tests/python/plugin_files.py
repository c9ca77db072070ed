"""Where the filter plugin is, for tests that run it without gpufetch."""

from __future__ import annotations

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def plugin_folder() -> Path | None:
    """Where libh5z_gpufetch.so is: GPUFETCH_TEST_PLUGIN_PATH, an installed gpufetch, or a build."""
    folders = []
    if "GPUFETCH_TEST_PLUGIN_PATH" in os.environ:
        folders.append(Path(os.environ["GPUFETCH_TEST_PLUGIN_PATH"]))
    try:
        from gpufetch.hdf5 import plugin_path

        folders.append(Path(plugin_path()))
    except ImportError:
        pass
    folders += sorted(REPOSITORY.glob("build*/hdf5_filter"))
    return next((f for f in folders if (f / "libh5z_gpufetch.so").exists()), None)
