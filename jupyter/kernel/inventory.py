"""The device tensors of a namespace, what memory they lie in, and which are views of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpufetch import _core
from gpufetch._address_ranges import AddressRange, range_of
from gpufetch._lazy.array import LazyArray
from gpufetch._view import DeviceView
from gpufetch.jupyter.namespace import framework_of, is_a, problem_of, visible_variables
from gpufetch.jupyter.walk import Found, walk

__all__ = ["Inventory", "TensorInfo", "describe", "inventory"]


@dataclass(frozen=True)
class TensorInfo:
    """What a listing says of one tensor.

    Attributes
    ----------
    name
        The expression that reaches it.
    framework
        The package of its type; of a tensor of another process, who serves it.
    address_range
        The memory of this process that it lies in; None if it has none.
    view_of
        The name of a listed tensor whose memory it lies in, or None.
    problem
        The reason why it cannot be read, or None. If there is one, `shape` is (), `dtype` and
        `device` are "?", and `nbytes` is 0.
    """

    name: str
    framework: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    device: str
    problem: str | None = None
    address_range: AddressRange | None = None
    view_of: str | None = None
    is_remote: bool = False


@dataclass(frozen=True)
class Inventory:
    """The tensors of this process and those of others, in the order of the variables.

    `on_host` has the names of tensors in host memory, and of the LazyArrays that wrap some.
    `connections` has the name of each variable that is a connection, and that of its server;
    `skipped` the containers that were not looked through to their end.
    """

    tensors: list[TensorInfo] = field(default_factory=list)
    remote: list[TensorInfo] = field(default_factory=list)
    on_host: list[str] = field(default_factory=list)
    connections: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def inventory(namespace: Mapping[str, Any], *, hidden: Iterable[str] = ()) -> Inventory:
    """Describe the tensors that the visible variables hold whose names are not in `hidden`."""
    hidden = set(hidden)
    variables = visible_variables(namespace).items()
    walked = walk((name, obj) for name, obj in variables if name not in hidden)
    found = [describe(one.name, one.obj) for one in walked.tensors]
    here = [tensor for tensor in found if not tensor.is_remote]
    return Inventory(
        _with_views(walked.tensors, [tensor for tensor in here if tensor.device != "cpu"]),
        [tensor for tensor in found if tensor.is_remote],
        [*(one.name for one in walked.on_host), *(one.name for one in here if one.device == "cpu")],
        [(name, connection.name) for name, connection in walked.connections],
        walked.skipped,
    )


def describe(name: str, obj: Any) -> TensorInfo:
    """Describe a device tensor, by its problem if it cannot be read."""
    framework = framework_of(obj)
    try:
        if is_a(type(obj), LazyArray):
            view = obj._gpufetch_view()
            if not isinstance(view, DeviceView):
                return _remote(name, view)
            array = view.array
        else:
            array = _core.asdevice(obj)
        return TensorInfo(
            name,
            framework,
            array.shape,
            str(array.dtype),
            array.nbytes,
            array.device,
            address_range=range_of(array),
        )
    except Exception as error:
        return TensorInfo(name, framework, (), "?", 0, "?", problem_of(error))


def _remote(name: str, view: Any) -> TensorInfo:
    """Describe a view of another process's tensor, by what is known here."""
    return TensorInfo(
        name,
        view.tensor.server,
        view.shape,
        str(view.dtype),
        view.nbytes,
        view.device,
        is_remote=True,
    )


def _with_views(found: list[Found], tensors: list[TensorInfo]) -> list[TensorInfo]:
    """Say of each tensor which other one's memory it lies in.

    Of tensors in the same memory, the first that is no LazyArray is the one that the others are
    views of.
    """
    wraps = {one.name for one in found if is_a(type(one.obj), LazyArray)}
    placed = [(one.address_range, i) for i, one in enumerate(tensors) if one.address_range]
    placed.sort(
        key=lambda item: (
            item[0].device,
            item[0].start,
            -item[0].stop,
            tensors[item[1]].name in wraps,
            item[1],
        )
    )
    owner: tuple[AddressRange, str] | None = None
    result = list(tensors)
    for where, number in placed:
        if owner and owner[0].device == where.device and where.stop <= owner[0].stop:
            result[number] = replace(tensors[number], view_of=owner[1])
        else:
            owner = where, tensors[number].name
    return result
