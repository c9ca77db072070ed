"""Where the filter plugin is, for tests that run it without gpufetch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.append(str(REPOSITORY / "tests" / "hdf5"))
from filter_id import FILTER_ID  # noqa: E402

__all__ = ["FILTER_ID", "REPOSITORY", "plugin_folder", "second_plugin_folder"]


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


def second_plugin_folder() -> Path | None:
    """Where the tests' plugin with a second id (511) is."""
    named = os.environ.get("GPUFETCH_BUILD_DIR")
    builds = [Path(named)] if named else sorted(REPOSITORY.glob("build*"))
    folders = [build / "tests" / "c" / "second_id" for build in builds]
    return next((f for f in folders if (f / "libh5z_gpufetch_second.so").exists()), None)
