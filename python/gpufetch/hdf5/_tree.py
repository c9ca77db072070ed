"""What is in an HDF5 file: its links in order, and each object once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import h5py
from h5py import h5, h5g, h5l, h5o, h5p, h5r

__all__ = ["Entry", "Tree", "index_of", "link_names"]


@dataclass(frozen=True)
class Entry:
    """A link at `path`.

    `kind` is "group", "dataset" or "type" where the link is the first one found to such an object.
    It is "hard" for a further link to an object, whose first path is then `target`; "soft" and
    "external" for those links, whose value is `target`; and "other" for a user-defined link.
    """

    path: bytes
    kind: str
    target: Any = None
    charset: int = 0


def _join(parent: bytes, name: bytes) -> bytes:
    return parent.rstrip(b"/") + b"/" + name


def index_of(flags: int) -> int:
    """Which of HDF5's indices to iterate by: of creation where that is tracked, else of names."""
    return int(h5.INDEX_CRT_ORDER if flags & h5p.CRT_ORDER_TRACKED else h5.INDEX_NAME)


def link_names(group: Any) -> list[bytes]:
    """Names of the links of an open group, in the order of creation if it is tracked."""
    names: list[bytes] = []
    order = index_of(group.get_create_plist().get_link_creation_order())
    group.links.iterate(names.append, idx_type=order)
    return names


_KINDS = {h5o.TYPE_GROUP: "group", h5o.TYPE_DATASET: "dataset", h5o.TYPE_NAMED_DATATYPE: "type"}


class Tree:
    """Every link below the root; a group's links are in the order of creation if it is tracked."""

    def __init__(self, file: h5py.File) -> None:
        self.file = file
        self.entries: list[Entry] = []
        self._paths: dict[tuple[int, int], bytes] = {self.key(file["/"].id): b"/"}
        groups = [b"/"]
        while groups:
            path = groups.pop()
            for entry in self._links(path):
                self.entries.append(entry)
                if entry.kind == "group":
                    groups.append(entry.path)

    def paths(self, *kinds: str) -> list[bytes]:
        """First paths of the objects of some kinds below the root, in the order of the links."""
        return [entry.path for entry in self.entries if entry.kind in kinds]

    def key(self, identifier: Any) -> tuple[int, int]:
        """Identify an object among those of the file."""
        info = h5o.get_info(identifier)
        return info.fileno, info.addr

    def _links(self, path: bytes) -> Iterator[Entry]:
        group = h5g.open(self.file.id, path)
        for name in link_names(group):
            info = group.links.get_info(name)
            at = _join(path, name)
            if info.type == h5l.TYPE_SOFT:
                yield Entry(at, "soft", group.links.get_val(name), info.cset)
            elif info.type == h5l.TYPE_EXTERNAL:
                yield Entry(at, "external", group.links.get_val(name), info.cset)
            elif info.type == h5l.TYPE_HARD:
                yield self._object(group, name, at, info.cset)
            else:
                yield Entry(at, "other", info.type, info.cset)

    def _object(self, group: Any, name: bytes, path: bytes, charset: int) -> Entry:
        info = h5o.get_info(group, name)
        key = info.fileno, info.addr
        if key in self._paths:
            return Entry(path, "hard", self._paths[key], charset)
        self._paths[key] = path
        return Entry(path, _KINDS[info.type], None, charset)

    def path_of(self, identifier: Any) -> bytes | None:
        """Path at which an open object was found first; None for one that no link leads to."""
        return self._paths.get(self.key(identifier))

    def target_of(self, reference: Any) -> Any:
        """What a reference points to, in terms that mean the same in a copy of this file.

        None for a null or dangling reference; the object's first path; for a region reference
        the path and the selected dataspace. ValueError for an object without a name.
        """
        if not reference:
            return None
        try:
            identifier = h5r.dereference(reference, self.file.id)
        except (RuntimeError, ValueError, OSError):
            return None  # dangling
        path = self.path_of(identifier)
        if path is None:
            raise ValueError(
                f"a reference points to an object without a name in {self.file.filename}"
            )
        if not isinstance(reference, h5py.RegionReference):
            return path
        return path, h5r.get_region(reference, self.file.id)

    def open(self, path: bytes) -> Any:
        """Open the object at a path."""
        try:
            return h5o.open(self.file.id, path)
        except KeyError as error:  # so h5py calls what is there and does not open
            text = path.decode(errors="replace")
            raise OSError(f"{text} does not open: {error.args[0]}") from None
