"""The display of `gpufetch.info()`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpufetch._display.html import frame, safely, table
from gpufetch._text import format_nbytes, print_lines, table_lines

__all__ = ["info_html", "print_info"]


def info_html(info: Mapping[str, Any]) -> str:
    """HTML for what `gpufetch.info()` gives."""
    return safely(
        lambda: frame("gpufetch", str(info["version"]), table(_rows(info))),
        lambda: repr(dict(info)),
    )


def print_info(info: Mapping[str, Any], printer: Any) -> None:
    """Print it as a table; as a plain dict if it was changed and does not fit."""
    try:
        text = "\n".join(table_lines([("gpufetch", str(info["version"])), *_rows(info)]))
    except Exception:
        text = repr(dict(info))
    print_lines(text, printer)


def _rows(info: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("default device", str(info["default_device"]))]
    for name, backend in info["backends"].items():
        if not backend["available"]:
            rows.append((f"backend {name}", f"not available: {backend['reason']}"))
        for number, device in enumerate(backend["devices"]):
            rows.append((f"{name}:{number}", _device_text(device)))
    pool = info["pool"]
    used, cap = format_nbytes(pool["used_nbytes"]), format_nbytes(pool["cap_nbytes"])
    pinned = format_nbytes(pool["reserved_nbytes"])
    rows.append(("pinned pool", f"{used} used of {pinned} pinned, at most {cap}"))
    found = info["hdf5"]
    bound = "" if found["bound"] else f", not usable: {found['reason']}"
    rows.append(("HDF5", f"{found['library']}, h5py {found['h5py']}{bound}"))
    rows.append(("HDF5 plugin", str(found["plugin_path"] or "not installed")))
    return [*rows, ("NumPy", str(info["numpy"]))]


def _device_text(device: Mapping[str, Any]) -> str:
    free, total = format_nbytes(device["free_nbytes"]), format_nbytes(device["total_nbytes"])
    return f"{device['name']}, {free} free of {total}"
