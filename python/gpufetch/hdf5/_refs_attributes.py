"""Attributes and names of dimensions, as Zarr's version 2 and xarray have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5o

from gpufetch.hdf5._asking import FAILURES
from gpufetch.hdf5._refs_types import Unexpressed

__all__ = ["Dimensions", "attribute_json", "is_dimension_alone", "names_of"]

# HDF5's and netCDF's own, which say how a file is made.
_HIDDEN = {
    "CLASS",
    "DIMENSION_LABELS",
    "DIMENSION_LIST",
    "NAME",
    "REFERENCE_LIST",
    "_NCProperties",
    "_Netcdf4Coordinates",
    "_Netcdf4Dimid",
    "_nc3_strict",
}
_ALONE = b"This is a netCDF dimension but not a netCDF variable"


def names_of(item: h5py.Group | h5py.Dataset) -> list[str]:
    """Names of the attributes that say something of the data."""
    try:
        names = list(item.attrs)
    except FAILURES as error:
        raise Unexpressed(f"its attributes cannot be listed: {error}") from error
    is_scale = isinstance(item, h5py.Dataset) and item.is_scale
    hidden = _HIDDEN if is_scale else _HIDDEN - {"CLASS", "NAME"}
    return [name for name in names if name not in hidden]


def attribute_json(item: h5py.Group | h5py.Dataset, name: str) -> Any:
    """The value of an attribute as JSON has it; Unexpressed for what it cannot hold.

    An array of one element is a number, as netCDF takes it.
    """
    try:
        value = item.attrs[name]
    except (*FAILURES, TypeError) as error:
        raise Unexpressed(f"its attribute {name!r} cannot be read: {error}") from error
    if isinstance(value, h5py.Empty):
        if value.dtype.kind in "SO":
            return ""
        raise Unexpressed(f"its attribute {name!r} has no value")
    return _json_of(np.asarray(value), name)


def _json_of(value: np.ndarray[Any, Any], name: str) -> Any:
    if value.dtype.kind in "biuf" and value.dtype.char != "g":
        made = value.tolist()
    elif value.dtype.kind in "SUO":
        made = np.vectorize(lambda x: _text(x, name), otypes=[object])(value).tolist()
    else:
        raise Unexpressed(f"JSON has nothing for its attribute {name!r} of {value.dtype}")
    return made[0] if value.shape == (1,) else made


def _text(value: Any, name: str) -> str:
    try:
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, str):
            value.encode()
            return str(value)
    except UnicodeError:
        raise Unexpressed(f"its attribute {name!r} is no text of UTF-8") from None
    raise Unexpressed(f"JSON has nothing for its attribute {name!r}, which holds a {type(value)}")


def is_dimension_alone(dataset: h5py.Dataset) -> bool:
    """Whether this is how netCDF stores a dimension that has no variable."""
    return bool(dataset.is_scale) and np.bytes_(dataset.attrs.get("NAME", b"")).startswith(_ALONE)


class Dimensions:
    """Names for the axes of a group's datasets: of each, all axes have one length in that group.

    An unlimited dimension of netCDF is as long as its longest variable in the file.
    """

    def __init__(self) -> None:
        self._records: dict[tuple[int, int], int] = {}
        self._lengths: dict[tuple[str, str], int] = {}
        self._phony: dict[tuple[str, int, int], str] = {}

    def note(self, dataset: h5py.Dataset) -> None:
        """Note the lengths of a dataset before shape() is asked for any."""
        for axis, dimension in _unlimited(dataset):
            self._records[dimension] = max(dataset.shape[axis], self._records.get(dimension, 0))

    def shape(self, dataset: h5py.Dataset) -> tuple[int, ...]:
        """The shape that netCDF gives a dataset, whose records may end before its dimension's."""
        shape = list(dataset.shape)
        for axis, dimension in _unlimited(dataset):
            shape[axis] = self._records[dimension]
        return tuple(shape)

    def names(self, group: str, dataset: h5py.Dataset, shape: tuple[int, ...]) -> list[str]:
        """A name for each axis of a shape, and for those that an array type adds."""
        wanted = [_wanted(dataset, axis) for axis in range(dataset.ndim)]
        wanted += [None] * (len(shape) - dataset.ndim)
        return [
            name if name and self._fits(group, name, length) else self._other(group, shape, axis)
            for axis, (name, length) in enumerate(zip(wanted, shape, strict=True))
        ]

    def _fits(self, group: str, name: str, length: int) -> bool:
        return self._lengths.setdefault((group, name), length) == length

    def _other(self, group: str, shape: tuple[int, ...], axis: int) -> str:
        """A name as netCDF gives it, one for each length, or more if a dataset has it twice."""
        key = group, shape[axis], shape[:axis].count(shape[axis])
        if key not in self._phony:
            taken = {name for at, name in self._lengths if at == group}
            names = (f"phony_dim_{i}" for i in range(len(taken) + 1))
            self._phony[key] = next(name for name in names if name not in taken)
            self._lengths[group, self._phony[key]] = shape[axis]
        return self._phony[key]


def _scale(dataset: h5py.Dataset, axis: int) -> h5py.Dataset | None:
    """The scale along an axis; None without one."""
    try:
        dimension = dataset.dims[axis]
        if len(dimension):
            return dimension[0]
        is_own = dataset.is_scale and dataset.ndim == 1 and not dimension.label
    except (*FAILURES, UnicodeError):
        return None
    return dataset if is_own else None


def _wanted(dataset: h5py.Dataset, axis: int) -> str | None:
    """The name of the scale along an axis, or its label; None without either."""
    scale = _scale(dataset, axis)
    try:
        name = scale.name if scale is not None else None
        return name.rsplit("/", 1)[-1] if name else str(dataset.dims[axis].label) or None
    except (*FAILURES, UnicodeError):
        return None


def _unlimited(dataset: h5py.Dataset) -> Iterator[tuple[int, tuple[int, int]]]:
    """The axes along unlimited dimensions of netCDF, and what identifies the dimension."""
    for axis, most in enumerate(dataset.maxshape or ()):
        scale = _scale(dataset, axis) if most is None else None
        if scale is not None and h5a.exists(scale.id, b"_Netcdf4Dimid"):
            info = h5o.get_info(scale.id)
            yield axis, (info.fileno, info.addr)
