"""The reader's package, hdf5-gpufetch, for tests: put together from this checkout."""

from __future__ import annotations

import sys
from pathlib import Path

from plugin_files import REPOSITORY

__all__ = ["SOURCES", "build_reader", "fixture_list", "install", "stage"]

SOURCES = REPOSITORY / "python" / "reader"
sys.path.append(str(SOURCES))
import build_reader  # noqa: E402


def stage(folder: Path, plugin: Path) -> Path:
    """Write the package with a plugin that is compiled already, as a folder for PYTHONPATH."""
    for name, data in build_reader.package_files({plugin.name: plugin.read_bytes()}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def fixture_list(path: Path) -> int:
    """Write what tests/install/reader.c is to find in tests/data/format-2.h5; how many datasets."""
    import fixture_values
    import numpy as np

    cases = fixture_values.FILES[2]
    lines = []
    for case in cases:
        values = np.ascontiguousarray(case.values()).tobytes()
        lines.append(f"{len(values)} {_fnv_1a(values):016x} {case.name}\n")
    path.write_text("".join(lines))
    return len(cases)


def _fnv_1a(data: bytes) -> int:
    found = 0xCBF29CE484222325
    for byte in data:
        found = ((found ^ byte) * 0x100000001B3) & (2**64 - 1)
    return found


def install(folder: Path, plugin: Path) -> Path:
    """As :func:`stage`, with the entry points, as pip would install it."""
    site = stage(folder, plugin)
    info = site / f"hdf5_gpufetch-{build_reader.version()}.dist-info"
    info.mkdir()
    files = build_reader.dist_info_files(build_reader.PLATFORMS["linux-x86_64"])
    for name in ("METADATA", "entry_points.txt"):
        (info / name).write_bytes(files[name])
    return site
