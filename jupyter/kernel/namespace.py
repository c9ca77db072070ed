"""Finds the device tensors among a user's variables, without copying elements.

A namespace may hold any object, also one whose `__getattr__` has side effects. Whether an object is
a tensor is therefore read from the dictionaries of its classes (`__dlpack_device__`,
`__cuda_array_interface__`), and only objects that have these are asked for more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpufetch import _core
from gpufetch._lazy.array import LazyArray

__all__ = [
    "TensorInfo",
    "describe",
    "device_tensors",
    "framework_of",
    "is_device_tensor",
    "problem_of",
    "visible_variables",
]

_DLPACK_DEVICES = frozenset({2, 13})  # CUDA memory, CUDA managed memory
_MAX_PROBLEM_LENGTH = 300


@dataclass(frozen=True)
class TensorInfo:
    """What a listing says of one tensor.

    `problem` is the reason why the tensor cannot be read, or None. If there is one, `shape` is (),
    `dtype` and `device` are "?", and `nbytes` is 0.
    """

    name: str
    framework: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    device: str
    problem: str | None = None


def is_device_tensor(obj: object) -> bool:
    """Whether `obj` is a DeviceArray, a LazyArray or a framework's tensor in GPU memory."""
    cls = type(obj)  # isinstance would ask the object for its __class__
    if issubclass(cls, LazyArray | _core.DeviceArray):
        return True
    try:
        if _has_class_attribute(cls, "__dlpack_device__"):
            kind, _ = obj.__dlpack_device__()  # type: ignore[attr-defined]
            return int(kind) in _DLPACK_DEVICES
        if _has_class_attribute(cls, "__cuda_array_interface__"):
            return isinstance(obj.__cuda_array_interface__, dict)  # type: ignore[attr-defined]
    except Exception:  # of a framework, for an object whose device cannot be told
        return False
    return False


def describe(name: str, obj: Any) -> TensorInfo:
    """Describe a device tensor, by its problem if it cannot be read."""
    framework = framework_of(obj)
    try:
        view = obj if isinstance(obj, LazyArray) else _core.asdevice(obj)
        return TensorInfo(
            name, framework, tuple(view.shape), str(view.dtype), view.nbytes, view.device
        )
    except Exception as error:
        return TensorInfo(name, framework, (), "?", 0, "?", problem_of(error))


def problem_of(error: Exception) -> str:
    """Say in one line why a tensor cannot be read."""
    problem = str(error).strip() or type(error).__name__
    return problem.splitlines()[0][:_MAX_PROBLEM_LENGTH]


def visible_variables(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the namespace without names that start with an underscore, sorted by name."""
    variables = dict(namespace)
    names = [name for name in variables if isinstance(name, str) and not name.startswith("_")]
    return {name: variables[name] for name in sorted(names)}


def device_tensors(namespace: Mapping[str, Any], *, hidden: Iterable[str] = ()) -> list[TensorInfo]:
    """Describe the visible device tensors of a namespace whose names are not in `hidden`."""
    hidden = set(hidden)
    return [
        describe(name, obj)
        for name, obj in visible_variables(namespace).items()
        if name not in hidden and is_device_tensor(obj)
    ]


def _has_class_attribute(cls: type, name: str) -> bool:
    mro = type.__dict__["__mro__"].__get__(cls)
    return any(name in type.__dict__["__dict__"].__get__(base) for base in mro)


def framework_of(obj: Any) -> str:
    """Return the name of the package that the object's type is from."""
    root = str(type(obj).__module__).partition(".")[0]
    return {"jaxlib": "jax"}.get(root, root)
