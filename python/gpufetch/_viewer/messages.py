"""What the page asks a viewer, and the answers. Everything that the page sends is untrusted.

A request is `{"id": ..., "op": ..., "panel": n, ...}` and has one answer, with the same id:

- `tile`, with `index` (one integer for each leading axis), `levels` and `place` (one for each axis
  that is shown): the members of a `Tile`, and its data as the only buffer; with `encoded` true also
  as a chunk of docs/format.md, if that is smaller, and then the answer has `encoded`, too; with
  `logs` true, logarithms of the values;
- `value`, with `index` and `at`, one integer for each axis that is shown: the element as `text`;
- `histogram`, with `index`: `counts`, their `range`, and `sample` (`Panel.histogram`);
- `step`: the last `step` of the program that the tensor belongs to, null if it says none;
- `echo`: nothing, by which the page finds out how much the line delays;
- `decoder`: the codec's decoder, a WebAssembly module, as the only buffer.

A request that does not fit, and one whose read fails, is answered by `error`, a text for people.
The page keeps two requests unanswered at most and asks for what it shows by then, so that nothing
is read for a view that has passed but those two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpufetch._checks import check_int
from gpufetch._viewer.tiles import Panel, tile_count

__all__ = ["DECODER", "Answer", "answer"]

Answer = tuple[dict[str, Any], list[bytes]]

DECODER = Path(__file__).with_name("decoder.wasm").read_bytes()
_ID_MAX = 64
_MEMBERS = {
    "tile": {"index", "levels", "place"},
    "value": {"index", "at"},
    "histogram": {"index"},
    "step": set(),
    "echo": set(),
    "decoder": set(),
}
_OPTIONAL = {"tile": {"encoded", "logs"}}


def answer(panels: Sequence[Panel], content: object, buffers: Sequence[object]) -> Answer:
    """Answer one request; raises nothing but what is no Exception."""
    name: str | None = None
    try:
        if not isinstance(content, dict):
            raise TypeError(f"the request is {content!r:.80}, no object")
        name = _checked_id(content.get("id"))
        if buffers:
            raise ValueError(f"the request has {len(buffers)} buffers; requests have none")
        with np.errstate(all="ignore"):  # a program's own settings are for its arithmetic
            reply, data = _answered(panels, content)
    except Exception as error:
        reply, data = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}, []
    return {"id": name, **reply}, data


def _checked_id(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _ID_MAX:
        raise ValueError(f"id is {value!r:.80}: give text of 1 to {_ID_MAX} characters")
    return value


def _answered(panels: Sequence[Panel], content: dict[Any, Any]) -> Answer:
    op = content.get("op")
    if not isinstance(op, str) or op not in _MEMBERS:
        raise ValueError(f"op is {op!r:.80}: give one of {', '.join(_MEMBERS)}")
    unknown = content.keys() - {"id", "op", "panel"} - _MEMBERS[op] - _OPTIONAL.get(op, set())
    if unknown:
        raise ValueError(f"{op} has the unknown member {sorted(map(repr, unknown))[0]:.80}")
    number = _int(content.get("panel"), "panel", len(panels))
    return _OPERATIONS[op](panels[number], content)


def _int(value: object, what: str, count: int) -> int:
    """An integer from 0 to `count` - 1. JSON's true and 1.0 are none."""
    if isinstance(value, bool):
        raise TypeError(f"{what} is {value!r}: give an integer")
    return check_int(value, what, 0, count - 1)


def _ints(content: dict[Any, Any], name: str, counts: Sequence[int]) -> list[int]:
    """An integer for each of the counts, below it."""
    values = content.get(name)
    if not isinstance(values, list) or len(values) != len(counts):
        raise ValueError(f"{name} is {values!r:.80}: give a list of {len(counts)} integers")
    return [
        _int(value, f"{name}[{axis}]", count)
        for axis, (value, count) in enumerate(zip(values, counts, strict=True))
    ]


def _flag(content: dict[Any, Any], name: str) -> bool:
    value = content.get(name, False)
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r:.80}: give true or false")
    return value


def _index(panel: Panel, content: dict[Any, Any]) -> list[int]:
    return _ints(content, "index", panel.leading)


def _tile(panel: Panel, content: dict[Any, Any]) -> Answer:
    index = _index(panel, content)
    levels = _ints(content, "levels", panel.levels)
    places = [
        tile_count(length, level, panel.tile_cells)
        for length, level in zip(panel.shape, levels, strict=True)
    ]
    wants_encoded, is_log = (_flag(content, name) for name in ("encoded", "logs"))
    tile = panel.tile(index, levels, _ints(content, "place", places), is_log)
    reply = {**tile._asdict(), "cells": list(tile.cells)}
    del reply["data"]
    chunk = panel.encoded(tile) if wants_encoded else tile.data
    return (
        (reply | {"encoded": True}, [chunk])
        if len(chunk) < len(tile.data)
        else (reply, [tile.data])
    )


def _value(panel: Panel, content: dict[Any, Any]) -> Answer:
    index = _index(panel, content)
    at = _ints(content, "at", panel.shape)
    element = panel.values(index, [(n, n + 1) for n in at])
    # Scalars, since NumPy rounds what it prints of arrays.
    texts = [str(number) for number in element.reshape(-1)]
    is_picture = element.ndim > len(at)
    return {"text": f"[{' '.join(texts)}]" if is_picture else texts[0]}, []


def _histogram(panel: Panel, content: dict[Any, Any]) -> Answer:
    return panel.histogram(_index(panel, content)), []


def _step(panel: Panel, content: dict[Any, Any]) -> Answer:
    return {"step": panel.last_step()}, []


def _echo(panel: Panel, content: dict[Any, Any]) -> Answer:
    return {}, []


def _decoder(panel: Panel, content: dict[Any, Any]) -> Answer:
    return {}, [DECODER]


_OPERATIONS: dict[str, Callable[[Panel, dict[Any, Any]], Answer]] = {
    "tile": _tile,
    "value": _value,
    "histogram": _histogram,
    "step": _step,
    "echo": _echo,
    "decoder": _decoder,
}
