"""The viewer's tiles, and its answers to a page that may send anything. No page is needed."""

from __future__ import annotations

import base64
import gc
import io
import json
import math
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from server_build import needs_server

import gpufetch as gf
from gpufetch import _core
from gpufetch._open_viewers import open_viewers
from gpufetch._viewer import streams, tiles
from gpufetch._viewer.messages import answer
from gpufetch._viewer.picture import shown_box, viewer_png
from gpufetch._viewer.state import checked_state, first_state
from gpufetch._viewer.tiles import (
    Options,
    Panel,
    compact,
    make_panel,
    make_panels,
    overview_level,
    tile_count,
    tile_range,
)

FUNCTIONS = Path(__file__).resolve().parents[1] / "jupyterlab" / "viewer_functions.mjs"


def panel_of(values: Any, **options: Any) -> Panel:
    return make_panel(gf.to_device(values), "x", Options(**options))


def ask(panel: Panel, op: str = "tile", **members: Any) -> tuple[dict[str, Any], list[bytes]]:
    reply, buffers = answer([panel], {"id": "1", "op": op, "panel": 0, **members}, [])
    json.dumps(reply, allow_nan=False)  # what the comm takes
    assert reply.pop("id") == "1"
    return reply, buffers


def tile_of(panel: Panel, levels: list[int], place: list[int], index: list[int] = []) -> Any:  # noqa: B006
    """The values of a tile as the page computes them."""
    reply, (data,) = ask(panel, index=index, levels=levels, place=place)
    values = np.frombuffer(data, np.float32).astype(np.float64)
    return (values * reply["unit"] + reply["offset"]).reshape(reply["cells"]), reply


# --- Levels and tiles ---


@pytest.mark.parametrize(
    ("length", "level"), [(1, 0), (256, 0), (257, 1), (513, 1), (514, 2), (10**9, 22)]
)
def test_the_overview_is_the_finest_level_of_one_tile(length: int, level: int) -> None:
    assert overview_level(length, 256) == level
    first, last, cells = tile_range(length, level, 0, 256)
    assert (first, last) == (0, length) and 0 < cells <= 256
    assert level == 0 or tile_count(length, level - 1, 256) > 1


def test_the_tiles_of_a_level_cover_an_axis_once() -> None:
    for length in (1, 255, 256, 257, 513, 1000, 4097):
        for level in range(length.bit_length()):
            places = range(tile_count(length, level, 256))
            ranges = [tile_range(length, level, place, 256) for place in places]
            assert [first for first, _, _ in ranges[1:]] == [last for _, last, _ in ranges[:-1]]
            assert ranges[0][0] == 0 and ranges[-1][1] == length
            assert all(0 < cells <= 256 for _, _, cells in ranges)
            # What is less than a cell has no middle of a pixel for sure.
            assert all(last - first >= cells << level for first, last, cells in ranges)


def test_an_image_has_levels_down_to_one_cell_and_a_line_to_one_tile() -> None:
    panel = panel_of(np.arange(9 * 700.0).reshape(9, 700))
    assert panel.levels == (4, 10) and panel.overview == (0, 2)
    found, reply = tile_of(panel, [3, 9], [0, 0])
    assert found.shape == (1, 1) and found[0, 0] == 3149.5 and reply["note"] == "mean of 9 × 700"
    assert panel_of(np.zeros(9000)).levels == (3,)


REAL = [bool, "u1", "i1", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", ">f4"]


@pytest.mark.parametrize(
    "dtype", [*REAL, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn], ids=lambda dtype: str(dtype)
)
def test_a_tile_of_elements_has_their_values_for_every_type(dtype: Any) -> None:
    values = (np.arange(300 * 290).reshape(300, 290) % 97).astype(np.dtype(dtype).newbyteorder("="))
    found, reply = tile_of(panel_of(values), [0, 0], [1, 1])
    assert found.shape == (44, 34) and reply["note"] == ""
    assert np.array_equal(found, values[256:, 256:].astype(np.float64))


def test_an_edge_tile_of_a_coarse_level_shares_its_elements_evenly() -> None:
    values = np.arange(1000 * 700, dtype=np.float64).reshape(1000, 700)
    panel = panel_of(values)
    found, reply = tile_of(panel, [1, 2], [1, 0])
    expected = gf.overview(gf.to_device(values[512:]), (244, 175))
    assert np.allclose(found, expected.values, rtol=0, atol=0.1)
    assert reply["note"] == "mean of 2 × 4"
    overview, _ = tile_of(panel, [2, 2], [0, 0])
    assert overview.shape == (250, 175) and np.isclose(overview.mean(), values.mean())


def test_nan_and_infinities_arrive_and_are_counted() -> None:
    values = np.ones((512, 512), np.float32)
    values[:2, :2] = np.nan
    values[0, 10] = np.inf
    values[0, 12] = -np.inf
    panel = panel_of(values)
    elements, _ = tile_of(panel, [0, 0], [0, 0])
    assert np.array_equal(elements, values[:256, :256], equal_nan=True)
    cells, reply = tile_of(panel, [1, 1], [0, 0])
    assert math.isnan(cells[0, 0]) and np.count_nonzero(np.isnan(cells)) == 1
    assert reply["note"] == "mean of 2 × 2"
    assert reply["left_out"] == {"NaN": 4, "+inf": 1, "-inf": 1}


@pytest.mark.parametrize(
    "values",
    [
        [1e9, 1e9 + 1],  # float32 has 64 between neighbours there
        [2**53 - 2, 2**53 - 1],
        [1e300, -1e300, np.inf, np.nan],
        [1e-310, 3e-310, 0.0],
        [5e-40, -5e-40],
        [1.5, -np.inf],
        [np.nan, np.nan],
        [0.0, 0.0],
        [1.7e308, -1.7e308],
    ],
)
def test_values_that_float32_does_not_hold_travel_with_an_offset_or_a_unit(
    values: list[float],
) -> None:
    with np.errstate(all="raise", under="ignore"):
        numbers, offset, unit = compact(np.array(values))
        found = numbers.astype(np.float64) * unit + offset
    finite = [value / 2 for value in values if math.isfinite(value)] or [0]
    atol = (max(finite) - min(finite)) * 1e-6
    assert np.allclose(found, values, rtol=1e-6, atol=atol, equal_nan=True)
    assert len(set(numbers[np.isfinite(numbers)])) == len({v for v in values if math.isfinite(v)})


@pytest.mark.parametrize("far", [[0], [-1], [5e5], [-9999, 0], [math.nan, math.inf, 0] * 500])
@pytest.mark.parametrize(
    "near",
    [
        300_000 + np.arange(2400) * 1e-6,
        -1.7e9 - np.arange(2400) * 0.5,
        10**12 + np.arange(2400),
        1e5 + np.arange(2400) * 1e-9,  # from a float32 beside them float32 has no digits for these
        1e300 + np.arange(2400) * 1e290,
    ],
)
def test_values_are_told_apart_beside_others_that_are_far_from_them(
    near: Any, far: list[float]
) -> None:
    values = np.concatenate([np.array(far, np.float64), near])
    np.random.default_rng(3).shuffle(values)
    with np.errstate(all="raise", under="ignore"):
        numbers, offset, unit = compact(values)
    found = numbers.astype(np.float64) * unit + offset
    assert len(np.unique(found[np.isin(values, near)])) == 2400
    step = max(np.spacing(abs(near).max()), np.ptp(near) * 2.0**-11)
    assert np.allclose(found[np.isin(values, near)], values[np.isin(values, near)], 0, step)
    is_far = ~np.isin(values, near)
    assert np.allclose(found[is_far], values[is_far], 0, abs(near).max() * 2**-24, equal_nan=True)
    if np.ptp(near) > 1e-5:
        assert np.array_equal(found[values == 0], values[values == 0])


def test_a_tile_of_integers_with_one_zero_keeps_their_differences() -> None:
    values = 10**12 + np.arange(2400).reshape(40, 60)
    values[7, 5] = 0
    found, _ = tile_of(panel_of(values), [0, 0], [0, 0])
    assert np.array_equal(found, values)


@pytest.mark.parametrize(
    ("dtype", "base"), [("i4", 2 * 10**9), ("i4", -(2**31)), ("u4", 2**32 - 99)]
)
def test_means_of_large_integers_keep_their_differences(dtype: str, base: int) -> None:
    rows = np.repeat(np.arange(64), 8)[:, None] + np.zeros((1, 512), int)
    panel = panel_of((rows + base).astype(dtype))
    found, reply = tile_of(panel, [1, 1], [0, 0])
    assert reply["note"] == "mean of 2 × 2"
    assert np.array_equal(found, rows[::2, ::2] + base)
    static = decoded(viewer_png([panel], {**first_state(()), "cmap": "gray"}))
    assert len(np.unique(static)) >= 64


def test_plain_float32_travels_as_it_is() -> None:
    values = np.array([0.1, -3e5, 7.25], np.float32)
    numbers, offset, unit = compact(values)
    assert (offset, unit) == (0.0, 1.0) and np.array_equal(numbers, values)


def test_small_positive_values_beside_large_ones_travel_as_logarithms_too() -> None:
    values = np.array([[1.0, 1e-100, 1e-40], [0, -1e-100, np.nan]])
    panel = panel_of(values)
    plain, reply = tile_of(panel, [0, 0], [0, 0])
    assert reply["held_from"] == 2.0**-126 and plain[0, 1] == 0
    of_logs, (data,) = ask(panel, index=[], levels=[0, 0], place=[0, 0], logs=True)
    logs = np.frombuffer(data, np.float32).reshape(2, 3) * of_logs["unit"] + of_logs["offset"]
    assert not of_logs["held_from"]
    assert np.allclose(logs[0], np.log(values[0]), rtol=1e-6)
    assert np.array_equal(logs[1], [-np.inf, -np.inf, np.nan], equal_nan=True)
    spread = 10.0 ** np.random.default_rng(3).uniform(-300, 0, (40, 60))
    _, reply = tile_of(panel_of(spread), [0, 0], [0, 0])
    assert reply["held_from"] > 0 and reply["offset"] == 0
    for others in ([[1.0, 1e-30, -1e-100]], [[1e9, 1e9 + 1]], [[1e-300, 2e-300, 0]], [[0, 5]]):
        assert not tile_of(panel_of(np.array(others)), [0, 0], [0, 0])[1]["held_from"], others
    line, _ = ask(panel_of(values[0]), index=[], levels=[0], place=[0], logs=True)
    assert line["cells"] == [3]
    refused, _ = ask(panel, index=[], levels=[0, 0], place=[0, 0], logs=1)
    assert "logs is 1" in refused["error"]


def test_the_largest_numbers_stay_finite() -> None:
    largest = np.finfo(np.float64).max
    values = np.array([largest, -largest, np.nextafter(largest, 0), 1e307, np.inf, -np.inf, np.nan])
    numbers, offset, unit = compact(values)
    held = numbers.astype(np.float64) * unit + offset
    assert np.array_equal(np.isfinite(held), np.isfinite(values))
    np.testing.assert_allclose(held, values, rtol=2.0**-23)


@pytest.mark.parametrize("base", [1, -300, 10.0**12])
def test_small_positive_values_far_from_a_tiles_offset_travel_as_logarithms_too(
    base: float,
) -> None:
    values = base * (1 - 10.0 ** np.random.default_rng(3).uniform(-11, -9, (40, 60)))
    values[8:13] = small = 10.0 ** np.linspace(-14, -4, 300).reshape(5, 60) * abs(base)
    panel = panel_of(values)
    plain, reply = tile_of(panel, [0, 0], [0, 0])
    assert reply["offset"] and reply["held_from"] > 1e-5 * abs(base)
    assert np.allclose(plain[:8], values[:8], rtol=1e-13)
    of_logs, (data,) = ask(panel, index=[], levels=[0, 0], place=[0, 0], logs=True)
    logs = np.frombuffer(data, np.float32).reshape(40, 60) * of_logs["unit"] + of_logs["offset"]
    assert np.allclose(np.exp(logs[8:13].astype(np.float64)), small, rtol=1e-4)
    held = plain >= reply["held_from"]
    assert np.allclose(plain[held], values[held], rtol=1 / 128)
    # Without any in the tile there is nothing to ask for.
    assert not tile_of(panel_of(values[:8]), [0, 0], [0, 0])[1]["held_from"]


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, "f2", "f4", "f8"])
@pytest.mark.parametrize("shape", [(8, 8), (64,)])
@pytest.mark.filterwarnings("error")
def test_a_tile_with_nan_warns_of_nothing(dtype: Any, shape: tuple[int, ...]) -> None:
    values = np.arange(-32, 32).astype(dtype)
    values[[3, 40]] = np.nan
    panel = panel_of(values.reshape(shape))
    for members in ({}, {"logs": True}):
        zeros = [0] * len(shape)
        reply, _ = ask(panel, index=[], levels=zeros, place=zeros, **members)
        assert "error" not in reply, reply


def test_a_line_keeps_one_spike_at_every_level() -> None:
    values = np.zeros(1_000_000, np.float32)
    values[765_432] = 7
    panel = panel_of(values)
    for level in range(panel.levels[0]):
        place = 765_432 // (tiles.LINE_CELLS << level)
        reply, (data,) = ask(panel, index=[], levels=[level], place=[place])
        pairs = np.frombuffer(data, np.float32).reshape(*reply["cells"], 2)
        assert pairs.max() == 7 and np.count_nonzero(pairs[:, 1]) == 1
        assert (pairs[:, 0] <= pairs[:, 1]).all()


def test_pictures_are_bytes_of_colours_whatever_their_channels() -> None:
    picture = np.random.default_rng(3).integers(0, 256, (20, 30, 3), np.uint8)
    for values, options in (
        (picture, {}),
        (picture.transpose(2, 0, 1), {"channels": "first"}),
        ((picture / 255).astype(np.float32), {"channels": "last"}),
    ):
        panel = panel_of(np.ascontiguousarray(values), **options)
        reply, (data,) = ask(panel, index=[], levels=[0, 0], place=[0, 0])
        assert panel.kind == "colour" and reply["cells"] == [20, 30]
        found = np.frombuffer(data, np.uint8).reshape(20, 30, 4)
        assert np.array_equal(found[..., :3], picture) and (found[..., 3] == 255).all()
        text = ask(panel, "value", index=[], at=[4, 5])[0]["text"]
        assert len(text.strip("[]").split()) == 3
    assert panel_of(np.zeros((3, 5, 4), np.float32)).kind == "image"


def test_equal_limits_of_a_picture_part_what_is_above_from_the_rest() -> None:
    values = np.array([[[0.0, 1, 2]]]).repeat(4, axis=1)
    reply, (data,) = ask(
        panel_of(values, channels="last", limits=(1, 1)), index=[], levels=[0, 0], place=[0, 0]
    )
    assert reply["cells"] == [1, 4] and data == bytes([0, 0, 255, 255] * 4)


def test_leading_axes_are_indexed() -> None:
    values = np.arange(2 * 3 * 4 * 5, dtype=np.int32).reshape(2, 3, 4, 5)
    panel = panel_of(values)
    assert panel.leading == (2, 3) and panel.shape == (4, 5)
    found, _ = tile_of(panel, [0, 0], [0, 0], [1, 2])
    assert np.array_equal(found, values[1, 2])
    assert ask(panel, "value", index=[1, 2], at=[3, 4])[0] == {"text": "119"}


def test_values_are_exact_where_tiles_are_not() -> None:
    values = np.array([[2**62 + 1, 3]], np.int64)
    assert ask(panel_of(values), "value", index=[], at=[0, 0])[0]["text"] == str(2**62 + 1)
    deep = np.array([[0.1, np.nan]])
    assert ask(panel_of(deep), "value", index=[], at=[0, 0])[0]["text"] == "0.1"
    both = np.array([[1 + 2j]], np.complex64)
    panel = panel_of(both)
    assert ask(panel, "value", index=[], at=[0, 0])[0]["text"] == "(1+2j)"
    assert np.isclose(tile_of(panel, [0, 0], [0, 0])[0][0, 0], math.sqrt(5))


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "u1", ml_dtypes.bfloat16])
def test_values_of_pictures_are_exact_however_numpy_prints(dtype: Any) -> None:
    channels = [123456.789012345, 1e-9, 1 / 3] if dtype != "u1" else [255, 0, 7]
    with np.errstate(over="ignore"):
        values = np.array([[channels]], np.float64).astype(dtype)
    panel = panel_of(values, channels="last")
    with np.printoptions(precision=2, suppress=True, threshold=1):
        reply, _ = ask(panel, "value", index=[], at=[0, 0])
    texts = reply["text"].removeprefix("[").removesuffix("]").split()
    assert np.array_equal(np.array(texts, np.float64).astype(dtype), values[0, 0])


def test_histograms_count_on_the_device() -> None:
    values = np.random.default_rng(1).normal(size=(300, 400)).astype(np.float32)
    values[0, 0] = np.nan
    reply, _ = ask(panel_of(values), "histogram", index=[])
    assert sum(reply["counts"]) == values.size - 1 and reply["sample"] == 1
    assert reply["range"] == [np.nanmin(values), np.nanmax(values)]
    for value, ends in ((np.nan, None), (np.inf, None), (7.0, [7, 7])):
        reply, _ = ask(panel_of(np.full((2, 2), value)), "histogram", index=[])
        assert reply == {"counts": None, "range": ends, "sample": 1}
    refused, _ = ask(panel_of(np.ones((2, 2), np.complex64)), "histogram", index=[])
    assert 'part="real"' in refused["error"]


def test_only_the_tile_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from pulling import Traffic

    panel = panel_of(np.zeros((5000, 5000), np.float32))
    traffic = Traffic(monkeypatch)
    tile_of(panel, [0, 0], [3, 4])
    assert traffic.transfers == [256 * 256 * 4]
    ask(panel, "value", index=[], at=[7, 8])
    assert traffic.nbytes == 256 * 256 * 4 + 4


def test_a_local_tensor_has_no_step() -> None:
    assert ask(panel_of(np.zeros((3, 4))), "step")[0] == {"step": None}


@needs_server
@pytest.mark.parametrize("joint", [False, True])
def test_the_step_of_a_servers_tensor_is_that_of_now(joint: bool) -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    with gf.serve("viewer-steps") as server:
        server.publish("u", gf.to_device(values))
        with gf.connect(["viewer-steps"] if joint else "viewer-steps") as run:
            panel = make_panel(run["u"], "u", Options())
            assert ask(panel, "step")[0] == {"step": None}
            for step in (5, 3):
                server.step(step, 0.5)
                assert ask(panel, "step")[0] == {"step": step}
            found, _ = tile_of(panel, [0, 0], [0, 0])
            assert np.array_equal(found, values)
            assert ask(panel, "value", index=[], at=[2, 3])[0] == {"text": "11.0"}


# --- A page that may send anything ---

GOOD = {"id": "1", "op": "tile", "panel": 0, "index": [0], "levels": [0, 0], "place": [0, 0]}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"op": "eval"}, "op is 'eval'"),
        ({"op": ["tile"]}, "op is ['tile']"),
        ({"panel": 1}, "panel is 1"),
        ({"panel": -1}, "panel is -1"),
        ({"panel": True}, "panel is True"),
        ({"panel": None}, "panel is None"),
        ({"panel": 2**80}, "panel is"),
        ({"index": [3]}, "index[0] is 3"),
        ({"index": [0, 0]}, "index is [0, 0]"),
        ({"index": [0.0]}, "index[0] is 0.0"),
        ({"index": ["0"]}, "index[0] is '0'"),
        ({"index": None}, "index is None"),
        ({"levels": [0, 9]}, "levels[1] is 9"),
        ({"levels": [-1, 0]}, "levels[0] is -1"),
        ({"levels": [10**30, 0]}, "levels[0] is"),
        ({"place": [2, 0]}, "place[0] is 2"),
        ({"levels": [1, 1], "place": [1, 0]}, "place[0] is 1"),
        ({"place": {"0": 0}}, "place is"),
        ({"code": "x"}, "unknown member 'code'"),
        ({"op": "value"}, "unknown member 'levels'"),
        ({"encoded": 1}, "encoded is 1"),
        ({"op": "echo"}, "unknown member 'index'"),
        ({"id": 7}, "id is 7"),
        ({"id": "x" * 65}, "id is"),
        ({"id": ""}, "id is ''"),
    ],
)
def test_a_message_that_does_not_fit_is_refused_and_the_value_named(
    change: dict[str, Any], named: str
) -> None:
    panel = panel_of(np.zeros((3, 400, 300), np.float32))
    assert "error" not in answer([panel], GOOD, [])[0]
    reply, buffers = answer([panel], {**GOOD, **change}, [])
    assert named in reply["error"] and buffers == [] and len(reply["error"]) < 300
    assert json.loads(json.dumps(reply)) == reply


@pytest.mark.parametrize("content", [None, [], "tile", 7, {}, {"id": None}, b"\0"])
def test_what_is_no_request_is_refused(content: Any) -> None:
    reply, buffers = answer([panel_of(np.zeros((4, 4)))], content, [])
    assert reply["id"] is None and "error" in reply and buffers == []


def kinds_of_panels() -> list[Panel]:
    smooth = np.sin(np.arange(300 * 300) / 900).reshape(300, 300)
    picture = (smooth * 100 + 100).astype(np.uint8).repeat(3).reshape(300, 300, 3)
    return [panel_of(smooth), panel_of(picture), panel_of(smooth.ravel())]


def test_an_encoded_tile_is_the_plain_one() -> None:
    for panel in kinds_of_panels():
        where = {"index": [], "levels": [0] * len(panel.shape), "place": [0] * len(panel.shape)}
        plain, (data,) = ask(panel, **where)
        reply, (chunk,) = ask(panel, **where, encoded=True)
        assert reply == plain | {"encoded": True} and len(chunk) < len(data), panel.kind
        assert _core.chunk_decode(chunk, len(data)) == data, panel.kind
        assert ask(panel, **where, encoded=False) == (plain, [data])


def test_a_tile_that_gets_no_smaller_travels_plain() -> None:
    noise = np.random.default_rng(1).bytes(256 * 256 * 4)
    panel = panel_of(np.frombuffer(noise, np.uint8).reshape(256, 256, 4))
    reply, (data,) = ask(panel, index=[], levels=[0, 0], place=[0, 0], encoded=True)
    assert panel.kind == "colour" and "encoded" not in reply and len(data) == 256 * 256 * 4


def test_the_page_gets_the_decoder_and_an_echo() -> None:
    panel = panel_of(np.zeros((4, 4), np.float32))
    assert ask(panel, "echo") == ({}, [])
    reply, (decoder,) = ask(panel, "decoder")
    assert reply == {} and decoder.startswith(b"\0asm")


def test_a_request_with_buffers_is_refused() -> None:
    panel = panel_of(np.zeros((3, 400, 300), np.float32))
    assert "1 buffers" in answer([panel], GOOD, [b"x"])[0]["error"]


def test_a_read_that_fails_is_answered() -> None:
    from pulling import ReplaceableTensor

    tensor = ReplaceableTensor(np.zeros((3, 400, 300), np.float32))
    panel = make_panel(tensor, "x", Options())
    tensor.replace(np.zeros((2, 2), np.float32))
    reply, _ = answer([panel], GOOD, [])
    assert "changed from shape (3, 400, 300)" in reply["error"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"window": [0, 1, 1, 0]}, "window is"),
        ({"window": [0, 1, 0]}, "window is"),
        ({"window": [0, 1, 0, float("nan")]}, "window[3] is nan"),
        ({"window": [0, 1e300, 0, 1]}, "window is"),
        ({"index": [5]}, "index[0] is 5"),
        ({"index": "0"}, "index is '0'"),
        ({"cmap": "jet"}, "cmap is 'jet'"),
        ({"cmap": ["gray"]}, "cmap is ['gray']"),
        ({"scale": None}, "scale is None"),
        ({"limits": [0, "1"]}, "limits[1] is '1'"),
        ({"limits": [0]}, "limits is [0]"),
        ({"limits": [10**400, 1]}, "limits[0] is 1000"),
        ({"limits": [None, np.float32("inf")]}, "limits[1] is np.float32(inf)"),
        ({"limits": [90, 10]}, "limits (vmin and vmax) is [90.0, 10.0]: give the lower one first"),
        ({"fills": 1}, "fills is 1"),
        ({"profile": [1, 2]}, "profile is [1, 2]"),
        ({"__class__": 1}, "unknown member '__class__'"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_the_value_named(
    change: dict[str, Any], named: str
) -> None:
    good = first_state((3,))
    assert checked_state(good, (3,)) == good
    with pytest.raises((ValueError, TypeError)) as caught:
        checked_state({**good, **change}, (3,))
    assert named in str(caught.value)
    of_numpy = checked_state({**good, "limits": [np.float32(0.5), np.int64(7)]}, (3,))
    assert of_numpy["limits"] == [0.5, 7] and json.dumps(of_numpy)
    with pytest.raises(TypeError, match="state is 7"):
        checked_state(7, (3,))


# --- view() ---


@pytest.mark.parametrize(
    ("shapes", "options", "named"),
    [
        ([], {}, "give one"),
        ([()], {}, "shape ()"),
        ([(0, 3)], {}, "shape (0, 3)"),
        ([(4, 4), (4,)], {}, "tensor 1 of shape (4,)"),
        ([(2, 4, 4), (3, 4, 4)], {}, "tensor 1 of shape (3, 4, 4)"),
        ([(4, 4)], {"channels": "last"}, "shape (4, 4)"),
        ([(4,)], {"channels": "last"}, "shape (4,)"),
        ([(4, 4)], {"method": "median"}, "method is 'median'"),
        ([(4, 4)], {"part": "real"}, "part is 'real'"),
    ],
)
def test_tensors_that_cannot_be_shown_are_refused(
    shapes: list[tuple[int, ...]], options: dict[str, Any], named: str
) -> None:
    arrays = [gf.to_device(np.zeros(shape, np.float32)) for shape in shapes]
    with pytest.raises(ValueError, match=re.escape(named)):
        make_panels(arrays, None, Options(**options))


def test_without_anywidget_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(ImportError, match=r"pip install 'gpufetch\[jupyter\]'"):
        gf.view(gf.to_device(np.zeros((4, 4), np.float32)))


def test_the_windows_box_holds_every_element_that_is_seen() -> None:
    assert shown_box((100, 200), None) == [(0, 100), (0, 200)]
    assert shown_box((100, 200), [0.25, 0.5, 0.1, 0.2]) == [(10, 20), (50, 100)]
    assert shown_box((100, 200), [0.251, 0.4951, -3, 0.0001]) == [(0, 1), (50, 100)]
    assert shown_box((100, 200), [5, 6, -6, -5]) == [(0, 1), (199, 200)]
    assert shown_box((100,), [0.5, 0.6, 0, 1]) == [(50, 60)]
    assert shown_box((100,), [-1e300, 1e300, 0, 1]) == [(0, 100)]


def test_the_windows_box_holds_no_element_beyond_a_windows_edge() -> None:
    for first in range(90):
        for last in range(first + 1, min(103, first + 9)):
            window = [first / 103, last / 103, first / 107, last / 107]
            assert shown_box((107, 103), window) == [(first, last)] * 2


def decoded(png: bytes) -> Any:
    image = pytest.importorskip("PIL.Image")
    return np.asarray(image.open(io.BytesIO(png)).convert("RGB"))


def test_the_static_picture_is_small_and_shows_the_window() -> None:
    noise = np.random.default_rng(1).normal(size=(2000, 3000)).astype(np.float32)
    panel = panel_of(noise)
    state = first_state(())
    png = viewer_png([panel], state)
    assert len(png) <= 100_000 and decoded(png).shape[1] > 160
    assert len(viewer_png([panel] * 4, state)) <= 100_000
    halves = np.repeat(np.float32([[0, 1]]), 50, axis=1).repeat(60, axis=0)
    left = decoded(viewer_png([panel_of(halves)], {**state, "limits": [0, 1], "cmap": "gray"}))
    assert (left[:, 0] == 0).all() and (left[:, -1] == 255).all()
    window = {**state, "window": [0.6, 0.9, 0, 1], "limits": [0, 1], "cmap": "gray"}
    assert (decoded(viewer_png([panel_of(halves)], window)) == 255).all()


@pytest.mark.parametrize("scale", ["linear", "log", "symlog"])
def test_the_static_picture_has_scales_lines_and_colours(scale: str) -> None:
    state = {**first_state(()), "scale": scale}
    values = np.array([[-1.0, 0, 1e-3, 1, 1e3, np.nan, np.inf]])
    shown = decoded(viewer_png([panel_of(values)], state))
    middle = shown[shown.shape[0] // 2, 11::22]
    assert len({tuple(pixel) for pixel in middle}) >= 3 and (middle[5] == (230, 60, 60)).all()
    below = decoded(viewer_png([panel_of(values)], {**state, "limits": [-1, 1e3]}))
    assert len(np.unique(below.reshape(-1, 3), axis=0)) >= 3
    line = decoded(viewer_png([panel_of(np.sin(np.arange(999.0)))], state))
    assert {0, 255} == set(np.unique(line))


def test_the_static_picture_of_a_line_has_the_limits_and_the_scale() -> None:
    values = np.repeat([1.0, 10.0, 100.0], 100)

    def heights(**state: Any) -> list[float]:
        """How high the three parts are drawn, as fractions; NaN where nothing is."""
        shown = decoded(viewer_png([panel_of(values)], first_state(()) | state))
        black = shown[:, 33::67, 0] == 0
        rows = np.where(black.any(axis=0), black.argmax(axis=0), np.nan)
        return list(1 - rows / (len(shown) - 1))

    assert np.allclose(heights(), [0, 1 / 11, 1], atol=0.01)
    assert np.allclose(heights(scale="log"), [0, 0.5, 1], atol=0.01)
    assert np.allclose(heights(limits=[-100, 100]), [0.505, 0.55, 1], atol=0.01)
    above = heights(scale="log", limits=[5, 20])
    assert np.allclose(above, [np.nan, 0.5, np.nan], atol=0.01, equal_nan=True)
    assert np.isnan(heights(limits=[500, None])).all()


def test_the_static_pictures_of_several_tensors_share_limits() -> None:
    halves = np.repeat(np.float32([[0, 1]]), 50, axis=1).repeat(100, axis=0)
    state = first_state(()) | {"cmap": "gray"}
    for values in ([halves, halves * 100], [halves * 100, halves]):
        shown = decoded(viewer_png([panel_of(x) for x in values], state))[50, 25::51, 0]
        levels = [int(shown[i * len(shown) // 4]) for i in range(4)]
        assert levels == ([0, 3, 0, 255] if values[0] is halves else [0, 255, 0, 3])
    steps = [np.repeat([0.0, top], 100) for top in (1.0, 4.0)]
    shown = decoded(viewer_png([panel_of(x) for x in steps], first_state(())))
    rows = (shown[:, [150, 354], 0] == 0).argmax(axis=0)
    assert np.allclose(1 - rows / (len(shown) - 1), [0.25, 1], atol=0.01)
    picture = np.full((50, 50, 3), 9, np.uint8)
    shown = decoded(viewer_png([panel_of(picture), panel_of(halves)], state))
    assert set(np.unique(shown)) == {0, 9, 255}


def test_the_static_picture_has_values_that_float32_does_not_hold_beside_each_other() -> None:
    values = np.array([[1e-100, 1e-50, 1.0], [1e300, np.nan, 1e-300]])
    state = first_state(()) | {"scale": "log", "cmap": "gray", "limits": [1e-100, 1.0]}
    shown = decoded(viewer_png([panel_of(values)], state))[26::53, 26::53, 0]
    assert shown.tolist() == [[0, 128, 255], [255, 230, 0]]


def test_the_static_picture_of_a_transparent_one_is_white_as_on_the_page() -> None:
    values = np.zeros((40, 60, 4), np.uint8)
    values[:, 30:] = [200, 100, 50, 51]
    shown = decoded(viewer_png([panel_of(values)], first_state(())))
    assert (shown[:, 0] == 255).all() and (shown[:, -1] == [244, 224, 214]).all()


class FakeStream:
    """Stands for a stream of PyTorch's, whose current stream is each thread's own."""

    def __init__(self, log: list[tuple[str, int]]) -> None:
        self.log = log

    def __enter__(self) -> None:
        self.log.append(("enter", threading.get_ident()))

    def __exit__(self, *reason: object) -> None:
        self.log.append(("exit", threading.get_ident()))


def test_a_read_on_another_thread_is_ordered_after_the_tensors_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[tuple[str, int]] = []
    made = FakeStream(log)
    cuda = SimpleNamespace(current_stream=lambda device: made, stream=lambda stream: stream)
    monkeypatch.setitem(__import__("sys").modules, "torch", SimpleNamespace(cuda=cuda))
    tensor = SimpleNamespace(is_cuda=True, device="cuda:0")
    found = streams.ProducerStreams([tensor, object()])
    with found.current():
        assert log == []  # this thread's stream is the one already

    def read() -> None:
        with found.current():
            log.append(("read", threading.get_ident()))

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert [what for what, _ in log] == ["enter", "read", "exit"]
    assert len({ident for _, ident in log}) == 1 and log[0][1] != threading.get_ident()


@pytest.mark.parametrize("op", ["tile", "histogram", "value"])
@pytest.mark.parametrize(
    "values",
    [
        np.array([[1.0, 1e-50], [2, 3]]),
        np.array([[1.0, np.nan], [np.inf, 3]]),
        np.array([[1e-42, 1], [2, 3]], np.float32),
        np.array([[0.0, 1e300], [2, 5e-324]]),
        np.array([[1 + 1j, 0], [1e-30, 3]], np.complex64),
    ],
)
def test_a_programs_errors_of_floating_point_are_not_the_viewers(values: Any, op: str) -> None:
    panel = panel_of(values)
    members: list[dict[str, Any]] = {
        "tile": [{"levels": [0, 0], "place": [0, 0], "logs": logs} for logs in (False, True)],
        "value": [{"at": [0, 1]}],
    }.get(op, [{}])
    for more in members:
        before = ask(panel, op, index=[], **more)
        with np.errstate(all="raise"):
            assert ask(panel, op, index=[], **more) == before


# --- The widget ---


@pytest.fixture(autouse=True)
def viewers_are_closed() -> Any:
    yield
    for viewer in open_viewers():
        viewer.close()


def make_viewer(*arrays: Any, **options: Any) -> Any:
    pytest.importorskip("anywidget")
    return gf.view(*arrays, **options)


def test_the_widget_answers_over_its_comm(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(12.0).reshape(3, 4)
    viewer = make_viewer(gf.to_device(values), names=["x"])
    sent: list[Any] = []
    monkeypatch.setattr(type(viewer), "send", lambda self, *message: sent.append(message))
    viewer._handle_custom_msg({**GOOD, "index": []}, [])
    ((reply, (data,)),) = sent
    assert reply["cells"] == [3, 4]
    assert np.array_equal(np.frombuffer(data, np.float32).reshape(3, 4), values)


@pytest.mark.parametrize(
    ("before_s", "open_s", "changed_s", "after_s"),
    [
        (0.005, 0.001, None, 0.005),
        (0.0005, 0.0005, None, 0.0005),
        (0.005, 0.001, 0.002, 0.002),
    ],
)
def test_threads_take_turns_sooner_while_a_viewer_is_open(
    before_s: float, open_s: float, changed_s: float | None, after_s: float
) -> None:
    callers_s = sys.getswitchinterval()
    for viewer in open_viewers():
        viewer.close()
    try:
        sys.setswitchinterval(before_s)
        first, second = (make_viewer(gf.to_device(np.zeros((8, 8)))) for _ in range(2))
        assert sys.getswitchinterval() == pytest.approx(open_s)
        first.close()
        assert sys.getswitchinterval() == pytest.approx(open_s)
        if changed_s is not None:
            sys.setswitchinterval(changed_s)
        second.close()
        second.close()
        assert sys.getswitchinterval() == pytest.approx(after_s)
    finally:
        sys.setswitchinterval(callers_s)


def test_a_page_changes_nothing_but_the_state() -> None:
    viewer = gf.view(gf.to_device(np.zeros((3, 4)), device="host:0"))
    before = viewer.get_state()
    asked = {"_panels": [{"name": "another"}], "_palettes": {}, "_revision": -5, "_esm": "alert(1)"}
    asked["state"] = {**viewer.state, "cmap": "magma"}
    update = {"method": "update", "state": asked, "buffer_paths": []}
    viewer._handle_msg({"content": {"data": update}, "buffers": []})
    assert viewer.get_state() == {**before, "state": asked["state"]}


def test_state_and_selection_agree_and_bad_states_are_refused() -> None:
    values = np.arange(2 * 30 * 40, dtype=np.float32).reshape(2, 30, 40)
    viewer = make_viewer(gf.to_device(values), vmin=0)
    viewer.state = {**viewer.state, "index": [1], "window": [0.25, 0.5, 0.1, 0.2]}
    assert viewer.selection() == (1, slice(3, 6), slice(10, 20))
    assert np.array_equal(viewer.fetch(), values[viewer.selection()])
    assert viewer.state["limits"] == [0, None]
    traitlets = pytest.importorskip("traitlets")
    with pytest.raises(traitlets.TraitError, match="cmap is 'jet'"):
        viewer.state = {**viewer.state, "cmap": "jet"}
    before = viewer.state
    for wrong in ({"index": [99]}, {"index": b"x"}, {"foo": 1}, {"limits": [10**400, None]}):
        update = {"method": "update", "state": {"state": {**before, **wrong}}, "buffer_paths": []}
        viewer._handle_msg({"content": {"data": update}, "buffers": []})  # of the page: logged
        assert viewer.state == before
    with pytest.raises(ValueError, match="vmax is inf"):
        make_viewer(gf.to_device(values), vmax=math.inf)
    picture = make_viewer(gf.to_device(np.zeros((3, 30, 40), np.uint8)))
    assert picture.fetch().shape == (3, 30, 40)


def on_another_thread(act: Callable[[], None]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def test_a_state_that_a_cell_assigns_while_a_page_says_one_is_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    viewer = make_viewer(gf.to_device(np.zeros((4, 5, 6))))
    traitlets = pytest.importorskip("traitlets")
    before = viewer.state
    refused: list[str] = []

    def assign() -> None:
        try:
            viewer.state = {**before, "index": [99]}
        except traitlets.TraitError as error:
            refused.append(str(error))

    def checked(state: Any, leading: Any) -> Any:
        monkeypatch.undo()  # once
        on_another_thread(assign)
        return checked_state(state, leading)

    monkeypatch.setattr(f"{type(viewer).__module__}.checked_state", checked)
    viewer.set_state({"state": {**before, "index": [3]}})
    assert len(refused) == 1 and "index[0] is 99" in refused[0]
    assert viewer.state["index"] == [3]


def test_pages_and_cells_say_states_on_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    viewer = make_viewer(gf.to_device(np.zeros((4, 5, 6))))
    sent: list[Any] = []
    viewer._send = lambda data, buffers=None: sent.append(data)
    state = {**viewer.state, "index": [3]}
    as_json = type(viewer)._trait_to_json

    def interrupted(value: Any, widget: Any) -> Any:
        monkeypatch.undo()  # once
        on_another_thread(lambda: viewer.set_state({"state": {**state, "index": [1]}}))
        return as_json(value, widget)

    # Where ipywidgets compares what the page said with what it is to be told.
    monkeypatch.setattr(type(viewer), "_trait_to_json", staticmethod(interrupted))
    viewer.set_state({"state": state})
    told = [data["state"]["state"]["index"] for data in sent if data["method"] == "update"]
    assert told == []
    on_another_thread(lambda: setattr(viewer, "state", {**state, "index": [2]}))
    assert sent[-1]["state"]["state"]["index"] == [2]


def test_a_closed_viewer_leaves_no_widget_open() -> None:
    pytest.importorskip("anywidget")
    from ipywidgets.widgets import widget

    before = set(widget._instances)
    viewer = make_viewer(gf.to_device(np.zeros((30, 40))))
    assert len(set(widget._instances) - before) == 2
    viewer.close()
    viewer.close()
    assert set(widget._instances) <= before


def test_a_closed_viewer_lets_its_tensors_go() -> None:
    x = gf.to_device(np.zeros((30, 40)))
    alive = weakref.ref(x)
    viewer = make_viewer(x)
    del x
    gc.collect()
    assert alive() is not None and "(30, 40)" in repr(viewer)
    viewer.close()
    viewer.close()
    gc.collect()
    assert alive() is None and repr(viewer) == "Viewer(closed)"
    for call in (viewer.fetch, viewer.png, viewer.selection):
        with pytest.raises(ValueError, match="the viewer is closed"):
            call()


def test_pages_without_widgets_get_the_picture() -> None:
    viewer = make_viewer(gf.to_device(np.zeros((3, 4), np.float32)))
    data, _ = viewer._repr_mimebundle_()
    assert data["image/png"] and "widget-view" in " ".join(data)
    assert data["text/plain"].startswith("Viewer(LazyArray(shape=(3, 4)")


@needs_server
@pytest.mark.parametrize("joint", [False, True])
def test_a_stopped_server_holds_the_display_up_for_a_second_only(joint: bool) -> None:
    from serving import process, stop

    publishing = """
    server = gf.serve("viewer-stopped")
    server.publish("u", gf.to_device(np.ones((30, 40), np.float32)))
    print("ready", flush=True)
    sys.stdin.read()
    """
    names = ["viewer-stopped"] if joint else "viewer-stopped"
    with process(publishing) as child, gf.connect(names, timeout=20) as run:
        viewer = make_viewer(run["u"])
        assert "image/png" in viewer._repr_mimebundle_()[0]
        stop(child)
        began = time.monotonic()
        data, _ = viewer._repr_mimebundle_()
        took = time.monotonic() - began
        child.send_signal(signal.SIGCONT)
        assert took < 10 and "image/png" not in data and "widget-view" in " ".join(data)
        assert run["u"].fetch().min() == 1  # the request was given up, and the connection was not


def test_the_module_is_small_and_loads_nothing() -> None:
    text = (Path(gf.__file__).parent / "_viewer" / "viewer.js").read_text()
    assert len(text.encode()) < 150_000
    assert "http" not in text and "import(" not in text and "\nimport " not in text


def test_the_functions_of_the_module_do_what_the_page_relies_on(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node")
    module = tmp_path / "viewer.mjs"
    shutil.copy(Path(gf.__file__).parent / "_viewer" / "viewer.js", module)
    done = subprocess.run(
        [node, FUNCTIONS, module], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    names = re.findall(r"^  (\w+)\(\) \{$", FUNCTIONS.read_text(), re.MULTILINE)
    assert [line for line in lines if " " not in line] == names and len(names) > 12
    files = [base64.b64decode(line[4:]) for line in lines if line.startswith("npy ")]
    values, colours = (np.load(io.BytesIO(file)) for file in files)
    np.testing.assert_array_equal(values, [[1, np.nan, -2], [3.5, 5, 6]])
    assert colours.dtype == np.uint8 and colours.tolist() == [[[1, 2, 3, 255]]]
