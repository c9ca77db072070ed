"""Device memory that no visible variable holds, who keeps it alive, and what lets it go.

Beside variables these are outputs (`Out[3]`, `_3`, `_`, `__`, `___`), variables whose names begin
with an underscore, open viewers, and what this process shares, publishes and serves.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpufetch import _share
from gpufetch._address_ranges import AddressRange, nbytes_of, outside
from gpufetch._open_viewers import open_viewers
from gpufetch._published import published
from gpufetch._remote import serve
from gpufetch._text import format_nbytes
from gpufetch.jupyter.inventory import describe
from gpufetch.jupyter.namespace import is_a
from gpufetch.jupyter.walk import walk

__all__ = ["Holder", "Kept", "holders", "kept"]

_LAST = ("_", "__", "___")
_OUTPUT = re.compile(r"_+|_\d+|_oh|Out")


@dataclass(frozen=True)
class Holder:
    """What keeps tensors alive beside the visible variables; `remedy` lets them go."""

    name: str
    remedy: str
    ranges: list[AddressRange]
    copied_nbytes: int = 0  # memory that nobody else can have, at an address that is not known


@dataclass(frozen=True)
class Kept:
    """Memory that nothing but `holders` keeps alive: all of them must let it go."""

    nbytes: int
    holders: list[Holder]

    def __str__(self) -> str:
        names = _listed([holder.name for holder in self.holders])
        remedies = list(dict.fromkeys(holder.remedy for holder in self.holders))
        verb = "frees" if len(remedies) == 1 else "free"
        return (
            f"{format_nbytes(self.nbytes)} is kept alive by {names} alone: "
            f"{_listed(remedies)} {verb} it"
        )


def _listed(texts: list[str]) -> str:
    """Texts for one line: all of up to three, and the first two of more."""
    if len(texts) > 3:
        texts = [", ".join(texts[:2]), f"{len(texts) - 2} more"]
    return " and ".join(texts)


def kept(variables: Iterable[AddressRange], found: Iterable[Holder]) -> list[Kept]:
    """The memory outside of what the variables hold; those who hold the same are one item."""
    known = list(variables)
    groups: list[tuple[list[AddressRange], list[Holder]]] = []
    copies = []
    for holder in found:
        if holder.copied_nbytes:
            copies.append(Kept(holder.copied_nbytes, [holder]))
        left = outside(holder.ranges, known)
        if not left:
            continue
        ranges, together = left, [holder]
        for group in [group for group in groups if _overlap(group[0], left)]:
            groups.remove(group)
            ranges, together = [*group[0], *ranges], [*group[1], *together]
        groups.append((ranges, together))
    return [Kept(nbytes_of(ranges), together) for ranges, together in groups] + copies


def _overlap(ranges: list[AddressRange], others: list[AddressRange]) -> bool:
    return nbytes_of([*ranges, *others]) < nbytes_of(ranges) + nbytes_of(others)


def holders(namespace: Mapping[str, Any], hidden: Iterable[str] = ()) -> list[Holder]:
    """What holds tensors beside the visible variables."""
    variables = {name: obj for name, obj in dict(namespace).items() if type(name) is str}
    found = [*_outputs(variables), *_underscored(variables, set(hidden))]
    found += [*_viewed(variables), *_shared(variables), *_offered(variables)]
    return [*found, *_served(variables)]


def _holder(name: str, remedy: str, obj: Any) -> Iterator[Holder]:
    """A holder, if the object holds device memory."""
    described = [describe(one.name, one.obj) for one in walk([(name, obj)]).tensors]
    ranges = [one.address_range for one in described if one.address_range is not None]
    if ranges:
        yield Holder(name, remedy, ranges)


def _outputs(variables: Mapping[str, Any]) -> Iterator[Holder]:
    """Outputs; `del Out[3]` leaves further references of IPython's, which %xdel finds."""
    outputs = variables.get("_oh")
    outputs = list(dict.items(outputs)) if isinstance(outputs, dict) else []
    for number, obj in outputs:
        name = f"Out[{number}]"
        is_named = variables.get(f"_{number}") is obj
        remedy = f"%xdel _{number}" if is_named else f"x = {name} and then %xdel x"
        yield from _holder(name, remedy, obj)
    for name in _LAST:
        obj = variables.get(name)
        if obj is not None and not any(one is obj for _, one in outputs):
            yield from _holder(name, f"%xdel {name}", obj)


def _underscored(variables: Mapping[str, Any], hidden: set[str]) -> Iterator[Holder]:
    for name in sorted(variables):
        if name.startswith("_") and name not in hidden and not _OUTPUT.fullmatch(name):
            yield from _holder(name, f"del {name}", variables[name])


def _viewed(variables: Mapping[str, Any]) -> Iterator[Holder]:
    outputs = variables.get("_oh")
    outputs = list(dict.items(outputs)) if isinstance(outputs, dict) else []
    unnamed: list[Any] = []
    for viewer in open_viewers():
        names = [name for name, obj in variables.items() if obj is viewer and name[0] != "_"]
        names += [f"Out[{number}]" for number, obj in outputs if obj is viewer]
        if names:
            yield from _holder(f"the viewer {names[0]}", f"{names[0]}.close()", viewer.arrays)
        else:
            unnamed += viewer.arrays
    remedy = "import ipywidgets; ipywidgets.Widget.close_all()"
    yield from _holder("viewers without a name", remedy, unnamed)


def _shared(variables: Mapping[str, Any]) -> Iterator[Holder]:
    for shared in _share.shares():
        name = _name_of(variables, _share.ShareHandle, shared.handle)
        remedy = f"{_module_name(variables)}.unshare({name or repr(str(shared.handle))})"
        where = shared.address_range
        yield Holder(
            f"the share {name or 'of ' + str(shared.handle.shape)}",
            remedy,
            [] if where is None else [where],
            shared.handle.nbytes if where is None else 0,
        )


def _offered(variables: Mapping[str, Any]) -> Iterator[Holder]:
    for name, obj in published().items():
        remedy = f"{_module_name(variables)}.unpublish({name!r})"
        for holder in _holder(name, remedy, obj):
            yield Holder(f"what is published as {name!r}", remedy, holder.ranges)


def _served(variables: Mapping[str, Any]) -> Iterator[Holder]:
    for server in serve.servers():
        wanted = server.wanted_name
        call = f"{_module_name(variables)}.serve({'' if wanted is None else repr(wanted)})"
        for name, where in server.published_ranges.items():
            owner = _name_of(variables, serve.Server, server) or call
            yield Holder(
                f"{name!r} of server {server.name}", f"{owner}.unpublish({name!r})", [where]
            )


def _name_of(variables: Mapping[str, Any], kind: type, wanted: Any) -> str | None:
    """The visible variable that is an object of ours, or equals it."""
    for name, obj in variables.items():
        if is_a(type(obj), kind) and obj == wanted and not name.startswith("_"):
            return name
    return None


def _module_name(variables: Mapping[str, Any]) -> str:
    """What the user calls this package."""
    package = sys.modules["gpufetch"]
    names = [name for name in ("gf", "gpufetch") if variables.get(name) is package]
    return names[0] if names else "gpufetch"
