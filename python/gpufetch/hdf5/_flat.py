"""Trees of tensors as datasets, and a text of JSON that says how they were nested.

`Checkpoint.save` and :func:`gpufetch.hdf5.save` write trees so, and docs/checkpoints.md describes
the text for other readers.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpufetch import _core
from gpufetch._checks import check_text
from gpufetch.hdf5._nested import descend, is_tree, kind_of_keys, kind_of_sequence
from gpufetch.hdf5._numbers import as_tensor

__all__ = ["TREE", "Flat", "restore"]

TREE = "gpufetch_state"
"""The attribute that has the text; checkpoints have it at the root."""

_RESERVED = "gpufetch_checkpoint"  # the dataset of a checkpoint's file itself
_INT_END = 2**63  # from there on integers are written as text, which no reader rounds

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
        node = self._node(tree, "tree", (), ())
        self.text = json.dumps(node, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

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
            if _is_plain(x):
                return x
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


def _is_plain(x: Any) -> bool:
    """Whether JSON has the value itself, of the same type and to the bit."""
    if type(x) is str:
        check_text(x, "the text")
        return True
    return (
        x is None
        or type(x) is bool
        or (type(x) is int and abs(x) < _INT_END)
        or (type(x) is float and math.isfinite(x))
    )


def _bits(x: float) -> str:
    return struct.pack(">d", x).hex()


def _from_bits(text: str) -> float:
    (x,) = struct.unpack(">d", bytes.fromhex(text))
    return float(x)


# What JSON has no value for, and how it is written. NaNs keep their bits.
_TO_TEXT: dict[type, Callable[[Any], Any]] = {
    int: hex,
    float: _bits,
    complex: lambda x: [_bits(x.real), _bits(x.imag)],
    bytes: lambda x: base64.b64encode(x).decode(),
}
_FROM_TEXT: dict[str, Callable[[Any], Any]] = {
    "int": lambda x: int(x, 16),
    "float": _from_bits,
    "complex": lambda x: complex(*map(_from_bits, x)),
    "bytes": base64.b64decode,
}


def restore(text: str, read: Read, out: Any = None) -> Any:
    """Nest the tensors again; with `out`, a tree of the same nesting, they are read into its own.

    ValueError where `out` is nested otherwise, and for a text that `Flat` does not make.
    """
    try:
        node = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the text of the tree is damaged: {error}") from error
    return _restore(node, read, out, "out")


def _restore(node: Any, read: Read, out: Any, path: str) -> Any:
    if node is None or isinstance(node, bool | int | float | str):
        return node
    if not isinstance(node, dict) or len(node) != 1:
        raise ValueError("the text of the tree is damaged")
    ((kind, content),) = node.items()
    if kind == "tensor":
        if not isinstance(content, str):
            raise ValueError("the text of the tree is damaged")
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
        raise ValueError(f"the tree has {kind!r} in it: a newer gpufetch wrote it")
    return _FROM_TEXT[kind](content)


def _children(out: Any, keys: list[Any], path: str, kind: Any) -> Iterator[Any]:
    """What `out` has for each of the keys; ValueError where it has others."""
    if out is None:
        return iter([None] * len(keys))
    if not isinstance(out, kind) or len(out) != len(keys):
        raise ValueError(
            f"{path} is nested otherwise than the tree that was saved, which has {len(keys)} items "
            "there"
        )
    try:
        return iter([out[key] for key in keys])
    except (IndexError, KeyError) as error:
        raise ValueError(f"{path} has no {error}, which the tree that was saved has") from error
