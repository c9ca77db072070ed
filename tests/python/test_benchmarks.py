"""benchmarks/: a quick run on the host backend, and what the harness does with failures."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("harness")


def session(harness: ModuleType, tmp_path: Path, **changes: Any) -> Any:
    values = {
        "backend": "host",
        "quick": True,
        "machine": "A CPU, host backend (no GPU)",
        "date": "2026-01-02",
        "commit": "abc",
        "command": "run.py",
        "scratch": tmp_path,
        "frameworks": [],
        "absent": ["cupy"],
    }
    return harness.Session(**{**values, **changes})


def serves() -> bool:
    if importlib.util.find_spec("jupyter_client") is None:
        return False
    built: bool = importlib.import_module("server_build").built_with_server()
    return built


PROGRAMS = Path(os.environ.get("GPUFETCH_BUILD_DIR", "")) / "benchmarks" / "programs"
CODEC_DEVICE, CHECKPOINT = PROGRAMS / "codec_device", PROGRAMS / "checkpoint"


def test_a_quick_run_writes_rows_with_the_agreed_keys(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "run.py"), "--quick", "--backend", "host"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "say nothing about a GPU" in done.stderr
    (data,) = tmp_path.glob("*.json")
    (table,) = tmp_path.glob("*.md")
    rows = json.loads(data.read_text())
    cases = [row["case"] for row in rows]
    assert len(set(cases)) == len(cases)
    words = ["fetch", "first", "write", "read", "upload", "stats", "histogram", "overview", "share"]
    words += ["decode", "encode", "append", "growth:", "interaction"]
    words += ["picture"] if all(map(find_spec, ("ipykernel", "matplotlib"))) else []
    words += ["watched"] if all(map(find_spec, ("ipykernel", "anywidget"))) else []
    words += ["stall", "checkpoint", "restart"] if CHECKPOINT.is_file() else []
    words += ["comm"] if serves() else []
    words += ["simulation"] if serves() and "GPUFETCH_GRAY_SCOTT" in os.environ else []
    assert {case.split()[0] for case in cases} == set(words)
    on_device = [case for case in cases if case.startswith(("encode on", "decode on"))]
    assert len(on_device) == (6 if CODEC_DEVICE.is_file() else 0)
    for row in rows:
        agreed = {"case", "machine", "date", "commit", "unit", "gpufetch", "limit", "peers"}
        assert agreed <= row.keys()
        assert "host backend" in row["machine"]
        assert row["unit"] in ("µs", "GB/s")
        # All that the viewer is compared with needs Matplotlib.
        alone = row["case"].startswith("interaction") and find_spec("matplotlib") is None
        assert row["gpufetch"] > 0 and (row["peers"] or row["limit_is"] or alone)
        assert (row["limit"] or 0) > 0 or row["limit_is"] is None
        assert all(value > 0 for value in row["peers"].values())
        low, high = row["spread"]["gpufetch"]
        assert low <= row["gpufetch"] <= high
        assert row["case"] in table.read_text()


def test_a_wrong_answer_and_an_exception_never_become_a_time(harness: ModuleType) -> None:
    source = np.arange(8, dtype=np.float32)
    wrong = np.where(source == 3, np.float32(-3), source)

    def broken(array: Any) -> Any:
        raise MemoryError("no memory")

    contenders = [
        harness.Contender("right", np.copy, [source]),
        harness.Contender("wrong", lambda array: wrong, [source]),
        harness.Contender("other dtype", lambda array: array.view(np.int32), [source]),
        harness.Contender("broken", broken, [source]),
    ]
    timings = harness.measure(contenders, [source], rounds=4, warm_up_rounds=1)
    assert {name: len(times) for name, times in timings.seconds.items()} == {"right": 4}
    assert timings.failures.keys() == {"wrong", "other dtype", "broken"}
    assert "differs" in timings.failures["wrong"]
    assert timings.failures["broken"] == "MemoryError: no memory"


def test_every_contender_is_checked_even_without_a_warm_up(harness: ModuleType) -> None:
    source = np.arange(8, dtype=np.float32)
    wrong = harness.Contender("wrong", lambda array: array + 1, [source], warm_up=False)
    timings = harness.measure([wrong], [source], rounds=1)
    assert timings.seconds == {} and "wrong" in timings.failures


def test_a_contender_may_have_an_answer_of_its_own(harness: ModuleType) -> None:
    source = np.arange(8, dtype=np.float32)

    def total(name: str, expected: float) -> Any:
        return harness.Contender(name, np.sum, [source], expected=np.array(expected, np.float32))

    contenders = [harness.Contender("copy", np.copy, [source]), total("sum", 28), total("off", 27)]
    timings = harness.measure(contenders, [source], rounds=1)
    assert timings.seconds.keys() == {"copy", "sum"} and timings.failures.keys() == {"off"}


def test_a_slow_contender_leaves_when_its_budget_is_spent(harness: ModuleType) -> None:
    source = np.arange(8, dtype=np.float32)
    contenders = [harness.Contender(name, np.copy, [source]) for name in ("a", "b")]
    timings = harness.measure(contenders, [source], rounds=5, budget_s=0.0)
    assert [len(times) for times in timings.seconds.values()] == [1, 1]


def test_sources_rotate_together(harness: ModuleType) -> None:
    seen: dict[str, list[int]] = {"a": [], "b": []}
    sources = [np.full(2, index, np.float32) for index in range(3)]

    def recorder(name: str) -> Any:
        def call(array: Any) -> Any:
            seen[name].append(int(array[0]))
            return array.copy()

        return harness.Contender(name, call, sources)

    harness.measure([recorder("a"), recorder("b")], sources, rounds=6, warm_up_rounds=1)
    assert seen["a"] == seen["b"] == [2, 0, 1, 2, 0, 1, 2]


def test_rates_come_from_the_median_time(harness: ModuleType, tmp_path: Path) -> None:
    seconds = {"gf": [0.5, 0.25, 1.0], "raw": [0.25], "peer": [2.0], "stranger": [1.0]}
    row = harness.make_row(
        session(harness, tmp_path),
        "a case",
        harness.Timings(seconds, {"gone": "ImportError: x"}),
        nbytes=10**9,
        unit="GB/s",
        gpufetch="gf",
        limit="raw",
        peers=["peer", "gone"],
    )
    assert (row["gpufetch"], row["limit"], row["peers"]) == (2.0, 4.0, {"peer": 0.5})
    assert row["spread"]["gpufetch"] == [1.0, 4.0]
    assert row["failed"] == {"gone": "ImportError: x"} and row["absent"] == ["cupy"]
    assert "stranger" not in row["samples"]
    with pytest.raises(RuntimeError, match="gpufetch failed"):
        harness.make_row(
            session(harness, tmp_path),
            "a case",
            harness.Timings({"raw": [1.0]}, {"gf": "boom"}),
            nbytes=1,
            unit="µs",
            gpufetch="gf",
            limit="raw",
            peers=[],
        )


def test_a_second_run_replaces_its_own_cases_only(harness: ModuleType, tmp_path: Path) -> None:
    def row(case: str, value: float, commit: str) -> Any:
        return harness.make_row(
            session(harness, tmp_path, commit=commit),
            case,
            harness.Timings({"gf": [1e-6 * value]}),
            nbytes=1,
            unit="µs",
            gpufetch="gf",
            limit=None,
            peers=[],
        )

    one = session(harness, tmp_path)
    harness.write_results([row("a", 1, "abc"), row("b", 2, "abc")], one, tmp_path / "out")
    other_day = session(harness, tmp_path, date="2026-01-03")
    table, data = harness.write_results([row("b", 3, "def")], other_day, tmp_path / "out")
    rows = {row["case"]: (row["gpufetch"], row["commit"]) for row in json.loads(data.read_text())}
    assert rows == {"a": (1.0, "abc"), "b": (3.0, "def")}
    assert "commit abc" in table.read_text() and "commit def" in table.read_text()
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_a_run_that_is_ended_early_leaves_what_it_has_measured(
    harness: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = importlib.import_module("run")

    def measured(name: str) -> Any:
        timings = harness.Timings({"gf": [1e-6]})
        made = session(harness, tmp_path)
        options: dict[str, Any] = {"nbytes": 1, "unit": "µs", "gpufetch": "gf", "limit": None}
        return harness.make_row(made, name, timings, peers=[], **options)

    def ended() -> Iterator[Any]:
        yield measured("b")
        raise KeyboardInterrupt

    cases = ModuleType("cases")
    vars(cases)["cases"] = lambda session: [("a", lambda: [measured("a")]), ("b", ended)]
    monkeypatch.setitem(run.CASES, "two", cases)
    with pytest.raises(KeyboardInterrupt):
        run.run_cases(session(harness, tmp_path), ["two"], "", tmp_path / "out")
    (data,) = (tmp_path / "out").glob("*.json")
    assert [row["case"] for row in json.loads(data.read_text())] == ["a", "b"]


def test_the_results_that_are_kept_are_what_the_harness_writes(harness: ModuleType) -> None:
    files = sorted((BENCHMARKS / "results").glob("*.json"))
    assert files
    for data in files:
        rows = json.loads(data.read_text())
        (machine,) = {row["machine"] for row in rows}
        cases = [row["case"] for row in rows]
        assert len(set(cases)) == len(cases)
        assert data.with_suffix(".md").read_text() == harness.page(machine, rows)


def test_an_unknown_case_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "run.py"), "--case", "fetch,fech"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "--case fech: there is fetch, tree, cold, hdf5" in done.stderr
    assert not list(tmp_path.iterdir())


def codec_device(device: str, shape: str, path: Path, requests: str) -> tuple[int, list[Any]]:
    """Return the exit status and the replies of the program that times the codec."""
    if not CODEC_DEVICE.is_file():
        pytest.skip("$GPUFETCH_BUILD_DIR has no codec_device")
    done = subprocess.run(
        [str(CODEC_DEVICE), device, "float32", shape, str(path)],
        input=requests,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_the_codec_program_answers_request_by_request(tmp_path: Path) -> None:
    path = tmp_path / "raw"
    np.linspace(0, 1, 4 * 8 * 64, dtype=np.float32).tofile(path)
    status, replies = codec_device("host:0", "4,8,64", path, "encode 2\ndecode 3\ncheck\n")
    assert status == 0
    first, *steps = replies
    assert first["nbytes"] == 4 * 8 * 64 * 4 and 0 < first["encoded_nbytes"] < first["nbytes"]
    assert [reply.get("step", reply.get("same")) for reply in steps] == ["encode", "decode", True]
    assert [reply["repeats"] for reply in steps if "repeats" in reply] == [2, 3]
    assert all(reply["seconds"] > 0 for reply in steps if "step" in reply)


@pytest.mark.parametrize(
    ("shape", "requests", "why"),
    [
        ("4,8,64", "undo 1\n", "undo is not encode"),
        ("4,8,32", "", "has 8192 bytes"),
        ("4,8,x", "", "shape 4,8,x"),
        ("2048", "", "axes"),
        ("0,4", "", "is empty"),
        ("1024,2", "", "multiple of 16"),
    ],
)
def test_the_codec_program_refuses_what_it_does_not_time(
    shape: str, requests: str, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "raw"
    np.zeros(0 if shape == "0,4" else 2048, np.float32).tofile(path)
    status, replies = codec_device("host:0", shape, path, requests)
    assert status == 1 and why in replies[-1]["error"]


def test_the_codec_program_gives_every_chunk_back(device: str, tmp_path: Path) -> None:
    """Also those of labels, which the device leaves to the CPU."""
    rng, path = np.random.default_rng(5), tmp_path / "raw"
    wave = np.sin(np.linspace(0, 3, 256)[:, None] + np.linspace(0, 3, 1024))
    labels = rng.choice(np.float32([0.1, 7, 1e9, -3]), (256, 1024))
    weights = (rng.standard_normal((256, 1024), np.float32).view("u4") & 0xFFFF0000).view("f4")
    parts = [wave.astype("f4"), labels, weights]
    values = np.stack([parts[i] for i in (0, 1, 0, 0, 2, 2, 1, 0, 1)])
    values.tofile(path)
    rounds = (["decode"], ["encode", "decode"], ["encode", "encode", "decode", "decode"])
    requests = "".join("".join(f"{step} 2\n" for step in steps) + "check\n" for steps in rounds)
    status, (sizes, *replies) = codec_device(device, "9,256,1024", path, requests)
    assert status == 0
    assert 96 * len(values) < sizes["encoded_nbytes"] < values.nbytes
    assert [reply["same"] for reply in replies if "same" in reply] == [True] * len(rounds)


def test_the_page_of_benchmarks_is_that_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python benchmarks/summary.py` writes it; its pictures are the files that are there."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    summary = importlib.import_module("summary")
    page = (BENCHMARKS.parent / "docs" / "benchmarks.md").read_text()
    assert page == summary.text()
    _, machines, _ = summary.of_commit(summary.load())
    pictures = {name for name, is_drawn in summary.pictures(machines).items() if is_drawn}
    assert {path.name for path in (summary.DOCS / summary.PICTURES).iterdir()} == pictures


def test_all_rows_of_the_page_are_of_one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    summary = importlib.import_module("summary")
    one, other = {"commit": "0123456789ab"}, {"commit": "0123456"}
    third, changed = {"commit": "fedcba987654"}, {"commit": "fedcba987654-dirty"}
    machines = {"a": [one, third, other], "b": [third], "c": [changed]}
    assert summary.of_commit(machines) == (
        "0123456",
        {"a": [one, other]},
        {"a": 1, "b": 1, "c": 1},
    )
    assert summary.of_commit(machines, "fedcba987654")[1] == {"a": [third], "b": [third]}
    assert summary.of_commit(machines, "fedcba987654-dirty")[1] == {"c": [changed]}


def test_every_row_of_the_results_has_one_place_on_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    summary = importlib.import_module("summary")
    for rows in summary.load().values():
        for row in rows:
            topics = [topic.title for topic in summary.TOPICS if summary.rows_of(topic, [row])]
            assert len(topics) == 1, (row["case"], topics)


def test_growth_is_drawn(harness: ModuleType, tmp_path: Path) -> None:
    growth, summary = (importlib.import_module(name) for name in ("cases.growth", "summary"))
    rows = [row for _, case in growth.cases(session(harness, tmp_path)) for row in case()]
    assert [row["amount"] for row in rows] == [4096, 32768, 1, 10]
    summary.draw_growth(rows).savefig(tmp_path / "growth.svg")
    assert "tensors" in (tmp_path / "growth.svg").read_text()
