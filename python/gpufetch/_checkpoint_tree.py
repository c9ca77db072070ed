"""Trees of tensors as datasets and a text that says how they were nested."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpufetch import _core
from gpufetch._checks import check_text
from gpufetch.hdf5._nested import descend, is_tree, kind_of_keys, kind_of_sequence
from gpufetch.hdf5._numbers import as_tensor

__all__ = ["Flat", "restore"]

_RESERVED = "gpufetch_checkpoint"  # the file's own dataset

Read = Callable[[str, Any], Any]
"""Read a tensor by its name: into another one, or for None into a fresh array."""


class Flat:
    """The tensors of a tree by the names of their datasets, and the text that nests them again."""

    def __init__(self, tree: Any) -> None:
        if not is_tree(tree):
            raise TypeError(
                f"the tree is of type {type(tree).__name__}: give a dict, list or tuple of tensors"
            )
        self.names: list[str] = []
        self.tensors: list[Any] = []
        self.text = json.dumps(self._node(tree, "tree", (), ()), separators=(",", ":"))

    def _node(self, x: Any, path: str, keys: tuple[str, ...], above: tuple[int, ...]) -> Any:
        if not is_tree(x):
            return self._leaf(x, path, "/".join(keys))
        above = descend(x, path, above)
        if isinstance(x, Mapping):
            kind = kind_of_keys(x, path)
            if not above[1:] and _RESERVED in x:
                raise ValueError(f"{path}: key {_RESERVED!r} is that of the file's own dataset")
            items = [
                [key, self._node(value, f"{path}[{key!r}]", (*keys, str(key)), above)]
                for key, value in x.items()
            ]
            return {kind: items}
        nodes = [
            self._node(value, f"{path}[{index}]", (*keys, str(index)), above)
            for index, value in enumerate(x)
        ]
        return {kind_of_sequence(x, path): nodes}

    def _leaf(self, x: Any, path: str, name: str) -> Any:
        try:
            if type(x) in _TO_TEXT:
                return {type(x).__name__: _TO_TEXT[type(x)](x)}
            if isinstance(x, int | float | complex | str) and not hasattr(x, "dtype"):
                raise TypeError(
                    f"{type(x).__name__} would come back as another type: give a plain number or "
                    "text"
                )
            tensor = as_tensor(x)
            _core.checkpoint_check(tensor)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{path}: {error}") from error
        self.names.append(name)
        self.tensors.append(tensor)
        return {"tensor": name}


def _text(x: str) -> str:
    check_text(x, "the text")
    return x


def _bits(x: float) -> str:
    return struct.pack(">d", x).hex()


def _from_bits(text: str) -> float:
    (x,) = struct.unpack(">d", bytes.fromhex(text))
    return float(x)


# Types of Python that the text holds, and how. Floats keep their bits, which NaNs have, too.
_TO_TEXT: dict[type, Callable[[Any], Any]] = {
    type(None): lambda x: None,
    bool: lambda x: x,
    int: hex,
    float: _bits,
    complex: lambda x: [_bits(x.real), _bits(x.imag)],
    str: _text,
    bytes: lambda x: base64.b64encode(x).decode(),
}
_FROM_TEXT: dict[str, Callable[[Any], Any]] = {
    "NoneType": lambda x: None,
    "bool": bool,
    "int": lambda x: int(x, 16),
    "float": _from_bits,
    "complex": lambda x: complex(*map(_from_bits, x)),
    "str": str,
    "bytes": base64.b64decode,
}


def restore(text: str, read: Read, out: Any = None) -> Any:
    """Nest the tensors again; with `out`, a tree of the same nesting, they are read into its own.

    ValueError where `out` is nested otherwise, and for a text that `Flat` does not make.
    """
    try:
        node = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the checkpoint's tree is damaged: {error}") from error
    return _restore(node, read, out, "out")


def _restore(node: Any, read: Read, out: Any, path: str) -> Any:
    if not isinstance(node, dict) or len(node) != 1:
        raise ValueError("the checkpoint's tree is damaged")
    ((kind, content),) = node.items()
    if kind == "tensor":
        return read(content, out)
    if kind in ("dict", "dict of int"):
        pairs = [(int(key) if kind == "dict of int" else key, child) for key, child in content]
        children = _children(out, [key for key, _ in pairs], path, Mapping)
        return {
            key: _restore(child, read, other, f"{path}[{key!r}]")
            for (key, child), other in zip(pairs, children, strict=True)
        }
    if kind in ("list", "tuple"):
        others = _children(out, list(range(len(content))), path, list | tuple)
        found = [
            _restore(child, read, other, f"{path}[{index}]")
            for index, (child, other) in enumerate(zip(content, others, strict=True))
        ]
        return found if kind == "list" else tuple(found)
    if kind not in _FROM_TEXT:
        raise ValueError(f"the checkpoint's tree has {kind!r} in it: a newer gpufetch wrote it")
    return _FROM_TEXT[kind](content)


def _children(out: Any, keys: list[Any], path: str, kind: Any) -> Iterator[Any]:
    """What `out` has for each of the keys; ValueError where it has others."""
    if out is None:
        return iter([None] * len(keys))
    if not isinstance(out, kind) or len(out) != len(keys):
        raise ValueError(
            f"{path} is nested otherwise than the checkpoint, which has {len(keys)} items there"
        )
    try:
        return iter([out[key] for key in keys])
    except (IndexError, KeyError) as error:
        raise ValueError(f"{path} has no {error}, which the checkpoint has") from error
