"""Address ranges of device memory: what tensors lie in, so that shared memory counts once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gpufetch import _core

__all__ = ["AddressRange", "nbytes_of", "outside", "range_of", "union"]


class AddressRange(NamedTuple):
    """The bytes from `start` to before `stop` of a device's memory."""

    device: str
    start: int
    stop: int


def range_of(array: _core.DeviceArray) -> AddressRange | None:
    """The range from the lowest to the highest byte of an array, and so what its strides skip, too.

    None for an array without elements and for one in host memory.
    """
    shape, device = array.shape, array.device
    if 0 in shape or device.startswith("cpu"):
        return None
    start = array.data_ptr
    stop = start + array.dtype.itemsize
    for length, stride in zip(shape, array.strides, strict=True):
        if stride < 0:
            start += (length - 1) * stride
        else:
            stop += (length - 1) * stride
    return AddressRange(device, start, stop)


def union(ranges: Iterable[AddressRange]) -> list[AddressRange]:
    """The same bytes as ranges that are sorted and neither overlap nor touch."""
    joined: list[AddressRange] = []
    for one in sorted(ranges):
        last = joined[-1] if joined else None
        if last is not None and last.device == one.device and one.start <= last.stop:
            joined[-1] = last._replace(stop=max(last.stop, one.stop))
        else:
            joined.append(one)
    return joined


def outside(ranges: Iterable[AddressRange], others: Iterable[AddressRange]) -> list[AddressRange]:
    """The bytes of `ranges` that none of `others` has, as `union` gives them."""
    left = []
    known = union(others)
    for one in union(ranges):
        start = one.start
        for other in known:
            if other.device != one.device or other.stop <= start or other.start >= one.stop:
                continue
            if other.start > start:
                left.append(one._replace(start=start, stop=other.start))
            start = other.stop
        if start < one.stop:
            left.append(one._replace(start=start))
    return left


def nbytes_of(ranges: Iterable[AddressRange]) -> int:
    """The bytes of ranges; those that are in several of them count once."""
    return sum(one.stop - one.start for one in union(ranges))
