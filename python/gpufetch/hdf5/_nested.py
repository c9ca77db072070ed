"""Trees of tensors as groups: dicts, lists and tuples, to any depth, and back.

A dict is a group whose links are the keys, in the dict's order. A list or tuple is a group with the
links "0", "1", ... An attribute says what a group or dataset was made of; a tensor's dataset has
none. docs/writing.md describes the layout for other readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5g, h5o, h5p, h5s, h5t

from gpufetch._checks import check_text
from gpufetch.hdf5._asking import attribute, require_object
from gpufetch.hdf5._numbers import int_array
from gpufetch.hdf5._tree import link_names

__all__ = [
    "MARK",
    "descend",
    "is_stored_tree",
    "is_tree",
    "kind_of_keys",
    "kind_of_sequence",
    "read_tree",
    "write_tree",
]

MARK = "gpufetch_tree"
"""The attribute that says what a group or dataset was made of."""

_DEPTH_MAX = 100

# Types of Python that are stored as a dataset of one value, and as one of many.
_SCALARS: dict[str, type] = {
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
}
_SEQUENCES: dict[str, type] = {"list": list, "tuple": tuple}

WriteDataset = Callable[[h5py.Group, str, Any], None]

ReadDataset = Callable[[h5py.Dataset], Any]


def is_tree(x: Any) -> bool:
    """Whether `x` is a container that write_tree takes."""
    return isinstance(x, Mapping | list | tuple)


def descend(x: Any, path: str, above: tuple[int, ...]) -> tuple[int, ...]:
    """The ids of the containers that hold what is in `x`, which is at `path`, below those `above`.

    ValueError where it holds itself, or is nested too deeply.
    """
    if id(x) in above:
        raise ValueError(f"{path}: it holds itself")
    if len(above) == _DEPTH_MAX:
        raise ValueError(f"{path}: a tree may be {_DEPTH_MAX} levels deep")
    return (*above, id(x))


# --- Writing -------------------------------------------------------------------------------------


def write_tree(
    group: h5py.Group, name: str, x: Any, write_leaf: WriteDataset, write_values: WriteDataset
) -> None:
    """Write a container as the new group `name`.

    `write_leaf` writes a tensor as a dataset of a group, `write_values` numbers of Python. Raises
    TypeError or ValueError, which says where in the tree the object is that cannot be stored. The
    group is then incomplete.
    """
    _Writer(write_leaf, write_values).write(group, name, x, "tree", ())


class _Writer:
    def __init__(self, write_leaf: WriteDataset, write_values: WriteDataset) -> None:
        self._write_leaf = write_leaf
        self._write_values = write_values

    def write(
        self, group: h5py.Group, name: str, x: Any, path: str, above: tuple[int, ...]
    ) -> None:
        """Write the object at `path` of the tree; `above` are the ids of what holds it."""
        if not is_tree(x):
            self._write_other(group, name, x, path)
            return
        above = descend(x, path, above)
        if isinstance(x, Mapping):
            made = _create_group(group, name, kind_of_keys(x, path))
            for key, value in x.items():
                self.write(made, str(key), value, f"{path}[{key!r}]", above)
            return
        kind = kind_of_sequence(x, path)
        values = _number_array(x)
        if values is not None:
            self._write_marked(group, name, values, f"{kind} of {type(x[0]).__name__}")
            return
        made = _create_group(group, name, kind)
        for index, value in enumerate(x):
            self.write(made, str(index), value, f"{path}[{index}]", above)

    def _write_other(self, group: h5py.Group, name: str, x: Any, path: str) -> None:
        try:
            if x is None:
                group[name] = h5py.Empty("u1")
                _mark(require_object(group, name), "none")
            elif type(x) is str:
                check_text(x, "the text")
                _mark(_write_text(group, name, x), "str")
            elif type(x) is bytes:
                self._write_marked(group, name, np.frombuffer(x, np.uint8), "bytes")
            elif type(x) is int:
                self._write_marked(group, name, int_array(x), "int")
            elif type(x) in _SCALARS.values():
                self._write_marked(group, name, np.asarray(x), type(x).__name__)
            elif isinstance(x, int | float | complex) and not isinstance(x, np.generic):
                plain = next(kind for kind in (int, float, complex) if isinstance(x, kind))
                raise TypeError(
                    f"{type(x).__name__} would come back as {plain.__name__}: give "
                    f"{plain.__name__}() of it"
                )
            else:
                self._write_leaf(group, name, x)
        except (OverflowError, TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{path}: {error}") from error

    def _write_marked(self, group: h5py.Group, name: str, values: Any, kind: str) -> None:
        self._write_values(group, name, values)
        _mark(require_object(group, name), kind)


def _write_text(group: h5py.Group, name: str, x: str) -> h5py.Dataset:
    """Write text as a dataset of no axes, stored with its description.

    Closing it writes nothing: HDF5 2.0 does not survive that on a full disk (src/hdf5/create.c).
    """
    creation = h5p.create(h5p.DATASET_CREATE)
    creation.set_layout(h5d.COMPACT)
    kind = h5t.py_create(h5py.string_dtype(), logical=True)
    space = h5s.create(h5s.SCALAR)
    made = h5py.Dataset(h5d.create(group.id, name.encode(), kind, space, creation, _link()))
    made[()] = x
    return made


def _link() -> h5p.PropLCID:
    link = h5p.create(h5p.LINK_CREATE)
    link.set_char_encoding(h5t.CSET_UTF8)
    link.set_create_intermediate_group(True)
    return link


def _create_group(group: h5py.Group, name: str, kind: str) -> h5py.Group:
    """Create a group that remembers the order of its links."""
    creation = h5p.create(h5p.GROUP_CREATE)
    creation.set_link_creation_order(h5p.CRT_ORDER_TRACKED | h5p.CRT_ORDER_INDEXED)
    made = h5py.Group(h5g.create(group.id, name.encode(), _link(), creation))
    _mark(made, kind)
    return made


def _mark(item: h5py.Group | h5py.Dataset, kind: str) -> None:
    item.attrs[MARK] = kind


def kind_of_keys(x: Mapping[Any, Any], path: str) -> str:
    """The mark of a dict; TypeError or ValueError for a key that is no name of a link."""
    kinds = {type(key) for key in x}
    if kinds == {int}:
        return "dict of int"
    for key in x:
        if type(key) is not str:
            raise TypeError(
                f"{path}: key {key!r} is of type {type(key).__name__}; all keys of a dict must be "
                "text, or all integers"
            )
        if key in ("", ".", "..") or "/" in key:
            raise ValueError(
                f"{path}: key {key!r} cannot be the name of an HDF5 link, which is not empty, not "
                "'.' or '..', and has no '/': rename it, or nest dicts"
            )
        check_text(key, f"{path}: key")
    return "dict"


def kind_of_sequence(x: Sequence[Any], path: str) -> str:
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        raise TypeError(
            f"{path}: {type(x).__name__} is a namedtuple, which would come back as a plain tuple: "
            "give its _asdict(), or tuple() of it"
        )
    return "list" if isinstance(x, list) else "tuple"


def _number_array(x: Sequence[Any]) -> Any:
    """An array of a list of numbers of one type of Python; None for other lists."""
    kinds = {type(value) for value in x}
    if len(kinds) != 1 or not kinds <= set(_SCALARS.values()):
        return None
    if kinds != {int}:
        return np.asarray(x)
    try:
        return int_array(x)
    except OverflowError:
        return None


# --- Reading -------------------------------------------------------------------------------------


def is_stored_tree(group: h5py.Group) -> bool:
    """Whether write_tree made a group; OSError if HDF5 cannot tell."""
    return attribute(group, MARK) is not None


def read_tree(group: h5py.Group, read_leaf: ReadDataset, read_values: ReadDataset) -> Any:
    """Read what write_tree wrote as a group.

    Mappings come back as dicts; numbers, text, bytes and None as they were. `read_leaf` reads
    tensors, `read_values` reads into an ndarray. Raises ValueError, which names it, for an object
    that write_tree does not make.
    """
    return _Reader(read_leaf, read_values).read(group, ())


class _Reader:
    def __init__(self, read_leaf: ReadDataset, read_values: ReadDataset) -> None:
        self._read_leaf = read_leaf
        self._read_values = read_values

    def read(self, item: Any, above: tuple[Any, ...]) -> Any:
        """Read an open group or dataset; `above` identifies the groups that hold it."""
        kind = attribute(item, MARK)
        if isinstance(item, h5py.Dataset):
            return self._read_leaf(item) if kind is None else self._read_marked(item, str(kind))
        if not isinstance(item, h5py.Group):
            raise ValueError(f"{item!r} is no part of a tree")
        info = h5o.get_info(item.id)
        key = info.fileno, info.addr
        if key in above:
            raise ValueError(f"group {item.name!r} of a tree holds itself")
        names = [_key_of(name, item) for name in link_names(item.id)]
        if kind in ("dict", "dict of int"):
            convert: Callable[[str], Any] = int if kind == "dict of int" else str
            return {convert(name): self._child(item, name, (*above, key)) for name in names}
        if kind in _SEQUENCES:
            if set(names) != {str(index) for index in range(len(names))}:
                raise ValueError(f"group {item.name!r} lacks items of a {kind}, or has more")
            children = (self._child(item, str(i), (*above, key)) for i in range(len(names)))
            return _SEQUENCES[kind](children)
        raise ValueError(f"group {item.name!r} is no part of a tree: its {MARK} is {kind!r}")

    def _child(self, group: h5py.Group, name: str, above: tuple[Any, ...]) -> Any:
        return self.read(require_object(group, name), above)

    def _read_marked(self, dataset: h5py.Dataset, kind: str) -> Any:
        """What stands for a value of Python's, or for a list of numbers."""
        if kind == "none":
            return None
        if kind == "str":
            return dataset.asstr()[()]
        values = self._read_values(dataset)
        if kind == "bytes":
            return bytes(values)
        if kind in _SCALARS and np.ndim(values) == 0:
            return _SCALARS[kind](values)
        sequence, _, number = kind.partition(" of ")
        if sequence in _SEQUENCES and number in _SCALARS and np.ndim(values) == 1:
            return _SEQUENCES[sequence](map(_SCALARS[number], values))
        raise ValueError(f"dataset {dataset.name!r} is no part of a tree: its {MARK} is {kind!r}")


def _key_of(name: bytes, group: h5py.Group) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"group {group.name!r} is no part of a tree: its link {name!r} is not UTF-8"
        ) from error
