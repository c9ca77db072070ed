"""Stands in for gpufetch's extension module in what this package has of gpufetch.

There, reading in several threads is an attempt, and HDF5 reads where it fails.
"""

from __future__ import annotations

from typing import Any, NoReturn

from hdf5_gpufetch._build import FILTER_IDS

__all__ = [
    "H5_FILTER_IDS",
    "Error",
    "h5_read",
    "h5_write_region",
    "restart_check_seal",
    "restart_check_shards",
]

H5_FILTER_IDS: tuple[int, ...] = FILTER_IDS


class Error(RuntimeError):
    """What gpufetch's own reader and writer raise; there is none here."""


def h5_read(*arguments: Any, **options: Any) -> NoReturn:
    """Raise Error: HDF5 reads."""
    raise Error("the reader's package reads through HDF5 alone")


h5_write_region = h5_read


def restart_check_shards(path: Any, /) -> None:
    """Shards are compared with their master by gpufetch itself."""


def restart_check_seal(path: Any, /) -> bool:
    """False: checkpoints are compared with their seals by gpufetch itself."""
    return False
