"""Tells device tensors from a user's other variables, without copying elements.

A namespace may hold any object, also one whose `__getattr__` has side effects. Whether an object is
a tensor is therefore read from the dictionaries of its classes (`__dlpack_device__`,
`__cuda_array_interface__`), and only objects that have these are asked for more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpufetch import _core
from gpufetch._lazy.array import LazyArray

__all__ = [
    "base_classes",
    "framework_of",
    "has_class_attribute",
    "is_a",
    "is_device_tensor",
    "is_host_tensor",
    "problem_of",
    "visible_variables",
]

_DLPACK_DEVICES = frozenset({2, 13})  # CUDA memory, CUDA managed memory
_DLPACK_HOSTS = frozenset({1, 3})  # ordinary and pinned memory
_MAX_PROBLEM_LENGTH = 300


def is_device_tensor(obj: object) -> bool:
    """Whether `obj` is a DeviceArray, a LazyArray or a framework's tensor in GPU memory."""
    cls = type(obj)  # isinstance would ask the object for its __class__
    if is_a(cls, LazyArray, _core.DeviceArray):
        return True
    try:
        if has_class_attribute(cls, "__dlpack_device__"):
            kind, _ = obj.__dlpack_device__()  # type: ignore[attr-defined]
            return int(kind) in _DLPACK_DEVICES
        if has_class_attribute(cls, "__cuda_array_interface__"):
            return isinstance(obj.__cuda_array_interface__, dict)  # type: ignore[attr-defined]
    except Exception:  # of a framework, for an object whose device cannot be told
        return False
    return False


def is_host_tensor(obj: object) -> bool:
    """Whether `obj` is a framework's tensor in host memory; NumPy's arrays are none."""
    cls = type(obj)
    if is_a(cls, np.ndarray) or not has_class_attribute(cls, "__dlpack_device__"):
        return False
    try:
        kind, _ = obj.__dlpack_device__()  # type: ignore[attr-defined]
        return int(kind) in _DLPACK_HOSTS
    except Exception:  # of a framework, as above
        return False


def problem_of(error: BaseException) -> str:
    """Say in one line why a tensor cannot be read."""
    problem = str(error).strip() or type(error).__name__
    return problem.splitlines()[0][:_MAX_PROBLEM_LENGTH]


def visible_variables(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the namespace without names that start with an underscore, sorted by name."""
    variables = dict(namespace)
    names = [name for name in variables if isinstance(name, str) and not name.startswith("_")]
    return {name: variables[name] for name in sorted(names)}


def base_classes(cls: type) -> tuple[type, ...]:
    """A class and those that it inherits from, whatever its metaclass says."""
    found: tuple[type, ...] = type.__dict__["__mro__"].__get__(cls)
    return found


def is_a(cls: type, *kinds: type) -> bool:
    """Whether a class is or inherits from one of `kinds`; issubclass would ask a metaclass."""
    return any(base is kind for base in base_classes(cls) for kind in kinds)


def has_class_attribute(cls: type, name: str) -> bool:
    """Whether a class has an attribute, of which the metaclass is not asked."""
    return any(name in type.__dict__["__dict__"].__get__(base) for base in base_classes(cls))


def framework_of(obj: Any) -> str:
    """Return the name of the package that the object's type is from."""
    root = str(type(obj).__module__).partition(".")[0]
    return {"jaxlib": "jax"}.get(root, root)
