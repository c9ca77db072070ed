"""Finds device tensors in variables, and in the dicts, lists, tuples and modules that they hold.

The methods of dict, list and tuple themselves are used, and a module's parameters, buffers and
modules are read from its instance's dict as PyTorch keeps them there: no code of the user's runs.
Nothing is copied.
"""

from __future__ import annotations

import cmath
import collections
import itertools
import keyword
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import GetSetDescriptorType
from typing import Any, NamedTuple

from gpufetch._remote.connection import Connection
from gpufetch.jupyter.namespace import (
    base_classes,
    has_class_attribute,
    is_a,
    is_device_tensor,
    is_host_tensor,
)

__all__ = ["Found", "Walked", "walk"]

_DEPTH_MAX = 3
_ITEMS_MAX = 10_000  # of one container
_OBJECTS_MAX = 100_000  # in all

# Exact types that hold no tensor, by far the most that lists hold.
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})
_MODULE_DICTS = ("_parameters", "_buffers", "_modules")


class Found(NamedTuple):
    """A tensor, and the expression that reaches it; `root` is the variable's."""

    name: str
    obj: Any
    root: str


@dataclass
class Walked:
    """What was found, variable by variable.

    `on_host` are the tensors of frameworks in host memory; `skipped` names the containers that were
    not looked through to their end.
    """

    tensors: list[Found] = field(default_factory=list)
    on_host: list[Found] = field(default_factory=list)
    connections: list[tuple[str, Connection]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


class _Container(NamedTuple):
    """A container that is to be looked through; `depth` counts dicts, lists and tuples round it."""

    name: str
    obj: Any
    depth: int
    root: str


def walk(variables: Iterable[tuple[str, Any]]) -> Walked:
    """Look through variables, given by their names; each container is looked through once.

    Containers are nested to depth 3 at most, where modules do not count. The shortest expression is
    found first, since what is nested less comes first.
    """
    names: list[str] = []
    walker = _Walker()
    for name, obj in variables:
        names.append(name)
        walker.look_at(name, obj, 0, name)
    walker.run()
    order = {name: number for number, name in enumerate(names)}
    walker.walked.tensors.sort(key=lambda found: order[found.root])
    return walker.walked


class _Walker:
    def __init__(self) -> None:
        self.walked = Walked()
        self._waiting: collections.deque[_Container] = collections.deque()
        # Containers by their id; kept, so that no other object comes to have the id meanwhile.
        self._seen: dict[int, Any] = {}
        self._count = 0

    def run(self) -> None:
        while self._waiting:
            container = self._waiting.popleft()
            if self._count > _OBJECTS_MAX or _length(container.obj) > _ITEMS_MAX:
                self.walked.skipped.append(container.name)
            if self._count <= _OBJECTS_MAX:
                depth = container.depth + (_module_dict(container.obj) is None)
                for name, item in _items(container.name, container.obj):
                    self.look_at(name, item, depth, container.root)

    def look_at(self, name: str, obj: Any, depth: int, root: str) -> None:
        self._count += 1
        cls = type(obj)
        if is_a(cls, dict, list, tuple):
            self._add(_Container(name, obj, depth, root), depth < _DEPTH_MAX)
        elif _module_dict(obj) is not None:
            self._add(_Container(name, obj, depth, root), True)
        elif is_a(cls, Connection):
            self.walked.connections.append((name, obj))
        elif is_device_tensor(obj):
            self.walked.tensors.append(Found(name, obj, root))
        elif is_host_tensor(obj):
            self.walked.on_host.append(Found(name, obj, root))

    def _add(self, container: _Container, is_wanted: bool) -> None:
        if is_wanted and id(container.obj) not in self._seen:
            self._seen[id(container.obj)] = container.obj
            self._waiting.append(container)


def _length(obj: Any) -> int:
    for kind in (dict, list, tuple):
        if is_a(type(obj), kind):
            return kind.__len__(obj)
    return 0


def _items(name: str, obj: Any) -> Iterator[tuple[str, Any]]:
    """The items of a container that may hold tensors, each with its expression."""
    cls = type(obj)
    if is_a(cls, dict):
        for position, (key, item) in enumerate(_pairs(obj)):
            if type(item) not in _PLAIN:
                yield _item_name(name, position, key), item
    elif is_a(cls, list, tuple):
        get: Any = list.__getitem__ if is_a(cls, list) else tuple.__getitem__
        for index, item in enumerate(get(obj, slice(_ITEMS_MAX))):
            if type(item) not in _PLAIN:
                yield f"{name}[{index}]", item
    else:
        yield from _parts(name, obj)


def _pairs(dictionary: dict[Any, Any]) -> list[tuple[Any, Any]]:
    try:
        return list(itertools.islice(dict.items(dictionary), _ITEMS_MAX))
    except RuntimeError:  # another thread has changed it meanwhile
        return []


def _item_name(name: str, position: int, key: Any) -> str:
    is_literal = cmath.isfinite(key) if type(key) in (float, complex) else type(key) in _PLAIN
    if is_literal:  # inf and nan are no names
        return f"{name}[{key!r}]"
    return f"list({name}.values())[{position}]"


def _module_dict(obj: Any) -> dict[str, Any] | None:
    """The instance's dict of a PyTorch module; None for any other object."""
    for base in base_classes(type(obj)):
        descriptor = type.__dict__["__dict__"].__get__(base).get("__dict__")
        if descriptor is not None:
            if type(descriptor) is not GetSetDescriptorType:  # a property of the user's
                return None
            found = descriptor.__get__(obj)
            is_module = all(is_a(type(found.get(name)), dict) for name in _MODULE_DICTS)
            return found if is_module else None
    return None


def _parts(name: str, module: Any) -> Iterator[tuple[str, Any]]:
    """The parameters, buffers and modules of a module."""
    attributes = _module_dict(module) or {}
    for kind in _MODULE_DICTS:
        for position, (key, item) in enumerate(_pairs(attributes[kind])):
            if type(key) is str and item is not None:
                is_list = kind == "_modules" and key == str(position) and _is_list(type(module))
                yield _part_name(name, key, is_list), item


def _is_list(cls: type) -> bool:
    """Whether a class of modules is indexed by position, as Sequential is and ModuleDict is not."""
    return has_class_attribute(cls, "__getitem__") and not has_class_attribute(cls, "keys")


def _part_name(name: str, key: str, is_list: bool) -> str:
    if is_list:
        return f"{name}[{key}]"
    if key.isidentifier() and not keyword.iskeyword(key):
        return f"{name}.{key}"
    return f"getattr({name}, {key!r})"
