"""Where a dataset is: what the `dest`, `src` and `name` of read and write may be."""

from __future__ import annotations

import os
from typing import Any, TypeAlias

import h5py

__all__ = ["FilePath", "as_path", "check_open", "dataset_in"]

FilePath: TypeAlias = "str | os.PathLike[str]"


def as_path(value: Any, role: str) -> str:
    """Path of a file; TypeError, which names the argument's `role`, for anything else."""
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    raise TypeError(f"{role} is {type(value).__name__}: give an h5py object or a file's path")


def check_open(item: h5py.Group | h5py.Dataset, role: str) -> None:
    """Raise ValueError, which names the argument's `role`, if an h5py object is closed."""
    if not item:
        raise ValueError(f"{role} is closed ({item!r}): open the file again")


def dataset_in(group: h5py.Group, name: str) -> h5py.Dataset:
    """Open a dataset to read; KeyError if there is none, TypeError for another kind of object."""
    check_open(group, "src")
    found = group.get(name)
    if found is None:
        raise KeyError(f"no dataset {name} in {group.file.filename}")
    if not isinstance(found, h5py.Dataset):
        raise TypeError(f"{name!r} in {group!r} is {found!r}, not a dataset")
    return found
