"""benchmarks/ --case codec: its fields, and the goals that it sums its rows up to."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def fields(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("cases.codec_fields")


@pytest.fixture
def goals(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("cases.codec_goals")


def test_listed_fields_are_what_their_names_say_and_the_same_each_time(fields: ModuleType) -> None:
    makers = fields.listed()
    assert len(makers) == 16
    for name, make in makers.items():
        one, other = make(), make()
        assert one.tobytes() == other.tobytes(), name
        stated = {
            "f32": "f4",
            "f64": "f8",
            "u8": "u1",
            "bf16": "u2",
            "e4m3": "u1",
            "f16": "f2",
            "u16": "u2",
        }
        named = [stated[word.rstrip(",")] for word in name.split() if word.rstrip(",") in stated]
        assert one.dtype == named[-1 if " in " in name or " as " in name else 0], name
        assert 1e5 < one.nbytes < 2e7, name


def test_listed_fields_have_the_traits_that_they_are_there_for(fields: ModuleType) -> None:
    made = {name: make() for name, make in fields.listed().items()}
    narrow = made["f32 normals in f64"]
    assert (narrow == narrow.astype("f4")).all() and (narrow != narrow.astype("f2")).any()
    off = made["integers in f32, 1 in 1000 off"]
    assert 100 < (off != np.round(off)).sum() <= fields.N // 1000
    assert not (made["bf16 values in f32"].view("u4") & 0xFFFF).any()
    period = made["noise of period 1000 f64"]
    assert (period[1000:] == period[:-1000]).all()
    mirror = made["mirrored f32"]
    assert (mirror == mirror[::-1]).all() and len(np.unique(mirror)) > mirror.size // 4
    assert made["RGB u8"].shape[-1] == made["vectors f32"].shape[-1] == 3


def test_unpacked_values_are_those_of_a_reader(fields: ModuleType) -> None:
    packed = np.arange(-32768, 32768, 7, dtype=np.int16)
    for dtype in (np.float64, np.float32):
        values = fields.unpacked(packed, dtype)
        assert values.dtype == dtype
        back = np.round((values - fields.ADD_OFFSET) / fields.SCALE_FACTOR)
        assert (back == packed).all()


def test_the_folders_fields_are_there_as_files_and_unpacked(
    fields: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fields, "FOLDER", tmp_path)
    assert fields.real() == {}
    np.save(tmp_path / "eraint_u_i16.npy", np.arange(8, dtype=np.int16))
    found = fields.real()
    assert set(found) == {"eraint_u_i16", "eraint_u f64", "eraint_u f32", "eraint_u f64 as f32"}
    kinds = [fields.kind_of(name, make()) for name, make in sorted(found.items())]
    assert kinds == ["f32", "f64", "f32", "integers"]


def rows_of(name: str, **changes: Any) -> list[dict[str, Any]]:
    """Rows in which gpufetch is twice as good as its peers."""
    peers = ["bitshuffle+lz4", "shuffle+zstd(5)"]
    row = {
        "field": name,
        "kind": "f32",
        "mode": "W8",
        "has_short_axis": False,
        "ratios": {"gpufetch": 2.0, **dict.fromkeys(peers, 1.0)},
        "gpufetch": 2.0,
        "peers": dict.fromkeys(peers, 1.0),
        **changes,
    }
    return [{**row, "direction": direction} for direction in ("decode", "encode")]


def outcomes(goals: ModuleType, rows: list[dict[str, Any]]) -> dict[str, bool]:
    return {goal.what: goal.passed for goal in goals.goals(list(goals.gathered(rows)))}


def test_goals_are_met_where_all_fields_meet_them(goals: ModuleType) -> None:
    found = outcomes(goals, rows_of("a") + rows_of("b", mode="matches"))
    assert len(found) == 6 and all(found.values())
    text = goals.summary(rows_of("a"))
    assert "| a | f32 | W8 | 2.000 | 1.000 | 1.000 | 2.00, 2.00 | 1.00, 1.00 |" in text
    assert "pass" in text and "miss" not in text


@pytest.mark.parametrize(
    ("missed", "name", "changes"),
    [
        ("ratio at most 1 %", "b", {"ratios": {"gpufetch": 0.98}}),
        ("geometric mean of f64", "b", {"kind": "f64", "ratios": {"shuffle+zstd(5)": 2.1}}),
        ("city_temperature", "city_temperature", {"ratios": {"gpufetch": 7.9}}),
        ("weights f16", "weights f16", {"ratios": {"bitshuffle+zstd": 2.1}}),
        ("decode at 1.5 times", "b", {"gpufetch": 1.4}),
        ("encode at 1 times bitshuffle+lz4's speed or more, elsewhere", "b", {"gpufetch": 0.9}),
        ("decode at 1 times", "b", {"gpufetch": 0.9, "has_short_axis": True}),
    ],
)
def test_one_field_is_enough_to_miss_a_goal(
    goals: ModuleType, missed: str, name: str, changes: dict[str, Any]
) -> None:
    ratios = {"gpufetch": 2.0, "bitshuffle+lz4": 1.0, "shuffle+zstd(5)": 1.0}
    changes = {**changes, "ratios": {**ratios, **changes.get("ratios", {})}}
    found = outcomes(goals, rows_of("a") + rows_of(name, **changes))
    assert any(what.startswith(missed) and not passed for what, passed in found.items()), found


def test_without_the_peers_of_the_goals_there_is_no_summary(goals: ModuleType) -> None:
    assert goals.summary([]) == ""
    assert goals.summary(rows_of("a", ratios={"gpufetch": 2.0, "shuffle+gzip": 1.0})) == ""
