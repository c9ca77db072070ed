"""Trees of tensors as datasets, and a text of JSON that says how they were nested.

`Checkpoint.save` and :func:`gpufetch.hdf5.save` write trees so, and docs/checkpoints.md describes
the text for other readers.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from gpufetch import _core
from gpufetch._checks import check_text
from gpufetch._part import Part
from gpufetch.hdf5._nested import descend, is_tree, kind_of_keys, kind_of_sequence
from gpufetch.hdf5._numbers import as_tensor
from gpufetch.hdf5._read import check_out

__all__ = ["TREE", "Flat", "Stored", "restore"]

TREE = "gpufetch_state"
"""The attribute that has the text; checkpoints have it at the root."""

_RESERVED = "gpufetch_checkpoint"  # the dataset of a checkpoint's file itself
_INT_END = 2**63  # from there on integers are written as text, which no reader rounds


class Stored(NamedTuple):
    """What a text says of a tensor: its dataset, and as what that was written, if it says so."""

    name: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None


Read = Callable[[Stored, Any], Any]
"""Read a tensor: into another one, or for None into a fresh array."""


class Flat:
    """The tensors of a tree by the names of their datasets, and the text that nests them again.

    `nodes` has for each tensor what the text says of it, to which its dtype and shape may be added.
    `parts` has for each tensor where it begins in a global array and the shape of that, or None.
    """

    def __init__(self, tree: Any, *, with_parts: bool = False) -> None:
        if not is_tree(tree):
            raise TypeError(
                f"the tree is of type {type(tree).__name__}: give a dict, list or tuple of tensors"
            )
        self.names: list[str] = []
        self.tensors: list[Any] = []
        self.nodes: list[dict[str, Any]] = []
        self.parts: list[tuple[tuple[int, ...], tuple[int, ...]] | None] = []
        self._with_parts = with_parts
        self._root = self._node(tree, "tree", (), ())

    def text(self) -> str:
        """The text that nests the tensors again."""
        return json.dumps(self._root, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

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
            part = None
            if type(x) is Part:
                if not self._with_parts:
                    raise TypeError("only Checkpoint.save takes a Part: give the whole array")
                part, x = (x.start, x.global_shape), x.tensor
            tensor = as_tensor(x)
            if part and len(part[0]) != len(tensor.shape):
                raise ValueError(f"the Part at {part[0]} has a tensor of {len(tensor.shape)} axes")
            _core.checkpoint_check(tensor)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{path}: {error}") from error
        self.names.append(name)
        self.tensors.append(tensor)
        self.parts.append(part)
        self.nodes.append({"tensor": name})
        return self.nodes[-1]


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


def _pair(x: Any) -> list[Any]:
    if not isinstance(x, list) or len(x) != 2:
        raise ValueError(f"{json.dumps(x):.80} is not a pair")
    return x


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
    "complex": lambda x: complex(*map(_from_bits, _pair(x))),
    "bytes": base64.b64decode,
}


def restore(text: str, read: Read, out: Any = None, *, where: str) -> Any:
    """Nest the tensors again; with `out`, a tree of the same nesting, they are read into its own.

    ValueError where `out` is nested otherwise or its tensors overlap, TypeError where it has
    LazyArrays, and ValueError for a text that `Flat` does not make, which names `where` it is: the
    file.
    """
    try:
        node = _parsed(json.loads(text))
    except (TypeError, ValueError, RecursionError, struct.error) as error:
        raise ValueError(f"{where}: attribute {TREE!r} is damaged: {error}") from error
    except NotImplementedError as error:
        raise ValueError(f"{where}: attribute {TREE!r} has {error}") from error
    given: list[tuple[str, Any]] = []
    if out is not None:
        _restore(node, lambda _, into, path: given.append((path, into)), out, "out")
        _check_fillable([(path, into) for path, into in given if into is not None])
    return _restore(node, lambda stored, into, _: read(stored, into), out, "out")


def _check_fillable(given: list[tuple[str, Any]]) -> None:
    """Refuse tensors that cannot be filled, and those of which one would be filled over another.

    The same tensor twice is filled twice, as the tied weights of a model are, unless it is to hold
    different boxes.
    """
    parts = [x if type(x) is Part else None for _, x in given]
    boxes = tuple((part.start, part.global_shape) if part else None for part in parts)
    tensors = tuple(part.tensor if part else x for part, (_, x) in zip(parts, given, strict=True))
    for tensor in tensors:
        check_out(tensor)
    found = _core.find_overlap(tensors, boxes)
    if found is not None:
        first, second = (given[index][0] for index in found)
        raise ValueError(
            f"{first} and {second} share memory, and one would overwrite the other: give each its "
            "own"
        )


Node = tuple[str, Any]
"""A kind, and what it has: a value, a tensor as Stored, or nodes, in a dict by their keys."""

_MEMBERS_OF_TENSOR = ({"tensor"}, {"tensor", "dtype", "shape"})


def _parsed(node: Any) -> Node:
    """Check what JSON gave; TypeError or ValueError, also struct.error, where it is damaged."""
    if node is None or isinstance(node, bool | int | float | str):
        return "value", node
    if isinstance(node, dict) and node.keys() in _MEMBERS_OF_TENSOR:
        return "tensor", _stored(**node)
    if not isinstance(node, dict) or len(node) != 1:
        raise ValueError(f"{json.dumps(node):.80} is neither a value nor an object of one member")
    ((kind, content),) = node.items()
    if kind in ("dict", "dict of int"):
        pairs = map(_pair, _items(content))
        key_of = int if kind == "dict of int" else _key
        return "dict", {key_of(key): _parsed(child) for key, child in pairs}
    if kind in ("list", "tuple"):
        return kind, [_parsed(child) for child in _items(content)]
    if kind not in _FROM_TEXT:
        raise NotImplementedError(f"{kind!r} in it: a newer gpufetch wrote it")
    try:
        return "value", _FROM_TEXT[kind](content)
    except binascii.Error as error:
        raise ValueError(f"{kind} {json.dumps(content):.80}: {error}") from error


def _stored(tensor: Any, dtype: Any = None, shape: Any = None) -> Stored:
    check_text(tensor, "the name of a tensor")
    return Stored(tensor, dtype, None if shape is None else tuple(_items(shape)))


def _items(content: Any) -> list[Any]:
    if not isinstance(content, list):
        raise TypeError(f"{json.dumps(content):.80} is not a list")
    return content


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{json.dumps(key):.80} is not a key")
    return key


def _restore(node: Node, read: Callable[[Stored, Any, str], Any], out: Any, path: str) -> Any:
    kind, content = node
    if kind == "value":
        return content
    if kind == "tensor":
        return read(content, out, path)
    if kind == "dict":
        children = _children(out, list(content), path, Mapping)
        return {
            key: _restore(child, read, other, f"{path}[{key!r}]")
            for (key, child), other in zip(content.items(), children, strict=True)
        }
    others = _children(out, list(range(len(content))), path, list | tuple)
    found = [
        _restore(child, read, other, f"{path}[{index}]")
        for index, (child, other) in enumerate(zip(content, others, strict=True))
    ]
    return found if kind == "list" else tuple(found)


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
