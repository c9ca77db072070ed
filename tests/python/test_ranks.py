"""Several servers as one: parts of an array that ranks hold, seen by one connection."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("jupyter_client")

from sanitizing import fewer
from serving import attach, eventually, needs_server, process
from test_gray_scott import find_program

import gpufetch as gf
from gpufetch._remote import published_tensor
from gpufetch._remote.cells import cell_ranges, edge
from gpufetch._remote.parts import window
from gpufetch._remote.session import Session

pytestmark = needs_server

RNG = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def cut(shape: Sequence[int], cuts: Sequence[Sequence[int]]) -> list[tuple[slice, ...]]:
    """The parts of an array that is cut at the given indices of each axis."""
    axes = [
        [slice(a, b) for a, b in itertools.pairwise([0, *places, length])]
        for length, places in zip(shape, cuts, strict=True)
    ]
    return list(itertools.product(*axes))


def publish(server: gf.Server, name: str, whole: Any, part: tuple[slice, ...]) -> None:
    server.publish(
        name,
        gf.to_device(np.ascontiguousarray(whole[part]), device="host:0"),
        start=[axis.start for axis in part],
        global_shape=whole.shape,
    )


@contextlib.contextmanager
def ranks(whole: Any, parts: Sequence[tuple[slice, ...]]) -> Iterator[list[gf.Server]]:
    """A server for each part of an array, which it publishes as u."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(gf.serve(f"rank-{number}")) for number in range(len(parts))]
        for server, part in zip(servers, parts, strict=True):
            publish(server, "u", whole, part)
        yield servers


CUBE = RNG.normal(size=(13, 12, 7)).astype(np.float32)
CUBE_PARTS = cut(CUBE.shape, [[5], [4, 9], []])


@pytest.fixture
def run() -> Iterator[gf.Connection]:
    with ranks(CUBE, CUBE_PARTS), gf.connect("rank-*", timeout=20) as connection:
        yield connection


# --- One array ---


@pytest.mark.parametrize(
    "key",
    [
        (),
        0,
        (-1, 2),
        (5, 8, 3),
        (slice(4, 6), slice(None), slice(None, None, 3)),
        (slice(None, None, -1), slice(11, 2, -2)),
        (slice(1, None, 5), 4),
        (slice(3, 3),),
        (None, 1, ..., None),
        ([0, 12, 5, 5],),
        (slice(None), [5, 0], [1, 1]),
        (CUBE > 0.5,),
    ],
)
def test_indices_give_what_numpy_gives(run: gf.Connection, key: Any) -> None:
    got, expected = run["u"][key], CUBE[key]
    np.testing.assert_array_equal(np.asarray(got), expected)
    assert got.shape == expected.shape and got.dtype == expected.dtype


def test_it_is_one_lazy_array(run: gf.Connection) -> None:
    array = run["u"]
    assert (array.shape, array.dtype, array.device) == (CUBE.shape, CUBE.dtype, "host:0")
    assert list(run) == ["u"] and len(run) == 1
    np.testing.assert_array_equal(array.T[2, ::-1].fetch(), CUBE.T[2, ::-1])
    np.testing.assert_array_equal(array[:, 8:10].fetch_async().result(20), CUBE[:, 8:10])
    out = np.zeros_like(CUBE)
    assert array.fetch(out=out) is out
    np.testing.assert_array_equal(out, CUBE)
    filled = np.zeros_like(CUBE)
    for key, values in array.iter_chunks(500):
        filled[key] = values
    np.testing.assert_array_equal(filled, CUBE)
    np.testing.assert_allclose(np.mean(array[1]), CUBE[1].mean(), rtol=1e-5)
    pytest.importorskip("dask")
    np.testing.assert_allclose(array.to_dask((4, 5, 7)).sum().compute(), CUBE.sum(), rtol=1e-4)


def test_a_slice_asks_only_the_servers_that_hold_it(run: gf.Connection) -> None:
    array = run["u"]
    for server in list(run.servers.values())[1:]:
        server.close()
    np.testing.assert_array_equal(array[:5, 1:4].fetch(), CUBE[:5, 1:4])
    assert array[:5, :4].stats().count == 5 * 4 * 7
    with pytest.raises(ValueError, match="closed"):
        array[:5, 1:5].fetch()


def test_what_only_one_server_has_is_there_as_it_is() -> None:
    with ranks(CUBE, CUBE_PARTS[:2]) as servers:
        servers[1].publish("own", gf.to_device(CUBE[0], device="host:0"))
        with gf.connect(["rank-0", "rank-1"]) as run:
            assert sorted(run) == ["own", "u"]
            np.testing.assert_array_equal(run["own"].fetch(), CUBE[0])
        with gf.connect("rank-1") as alone:
            np.testing.assert_array_equal(alone["u"].fetch(), CUBE[CUBE_PARTS[1]])
            assert "from (0, 4, 0) of (13, 12, 7)" in "\n".join(alone._describe())


# --- Reductions ---


def same_stats(far: gf.Stats, near: gf.Stats) -> None:
    for name in vars(near):
        got, expected = getattr(far, name), getattr(near, name)
        if name in ("mean", "variance"):
            np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-300, err_msg=name)
        else:
            assert repr(got) == repr(expected), name


def same_overview(far: gf.Overview, near: gf.Overview, largest: float) -> None:
    """Check that overviews are equal; averages within the rounding of the parts' averages."""
    assert far.values.shape == near.values.shape and far.values.dtype == near.values.dtype
    if far.method in ("mean", "rms"):
        bound = 4 * np.finfo(near.values.dtype).eps * largest
        np.testing.assert_allclose(far.values, near.values, rtol=0, atol=bound)
    else:
        np.testing.assert_array_equal(np.asarray(far), np.asarray(near))
    for name in ("source_shape", "count", "nan_count", "posinf_count", "neginf_count"):
        assert getattr(far, name) == getattr(near, name), name


METHODS = ("mean", "rms", "min", "max", "minmax", "first")


def with_gaps(values: Any) -> Any:
    values = values.copy()
    values[3:6, 2:5] = np.nan
    values[5, 8, :4] = np.inf
    values[12, :, 6] = -np.inf
    return values


@pytest.mark.parametrize(
    "whole",
    [
        CUBE,
        CUBE.astype(np.float64),
        with_gaps(CUBE),
        RNG.integers(-(2**62), 2**62, CUBE.shape),
        RNG.integers(2**31, 2**32, CUBE.shape).astype(np.uint32),
        RNG.integers(0, 255, CUBE.shape).astype(np.uint8),
        np.full(CUBE.shape, np.nan, np.float16),
    ],
    ids=["f32", "f64", "not finite", "i64", "u32", "u8", "nan"],
)
def test_reductions_are_those_of_one_server(whole: Any) -> None:
    local = gf.lazy(gf.to_device(whole, device="host:0"))
    finite = whole[np.isfinite(whole)]
    largest = float(np.abs(finite.astype(np.float64)).max()) if finite.size else 0.0
    with ranks(whole, CUBE_PARTS), gf.connect("rank-*") as run:
        array = run["u"]
        for key in ((), (slice(2, 11), slice(None, None, -1)), (6,), (slice(4, 4),)):
            same_stats(array[key].stats(), local[key].stats())
        for method in METHODS:
            for shape in ((1, 1, 1), (13, 12, 7), (4, 5, 3), (9, 7, 2), (100, 100, 100)):
                same_overview(array.overview(shape, method), local.overview(shape, method), largest)
            far, near = array[::-2, 3], local[::-2, 3]
            same_overview(far.overview((3, 2), method), near.overview((3, 2), method), largest)
            same_overview(far.T.overview((2, 5), method), near.T.overview((2, 5), method), largest)
            same_overview(
                array[4:4].overview((3, 2, 1), method),
                local[4:4].overview((3, 2, 1), method),
                largest,
            )
        for limits in (None, (-1.0, 2.0)):
            far_bins, near_bins = array.histogram(9, limits), local.histogram(9, limits)
            assert repr(far_bins) == repr(near_bins)


@pytest.mark.parametrize(
    ("first", "rest", "mean", "variance"), [(7, 7, 7, 0), (3e200, 0, 1e200, np.inf)]
)
def test_a_mean_stays_within_the_values_and_a_variance_may_be_infinite(
    first: float, rest: float, mean: float, variance: float
) -> None:
    whole = np.array([first] * 4 + [rest] * 8, np.float64)
    with ranks(whole, cut(whole.shape, [[4]])), gf.connect("rank-*") as run:
        stats = run["u"].stats()
        assert min(first, rest) <= stats.mean <= max(first, rest)
        assert stats.mean == pytest.approx(mean, rel=1e-15) and stats.variance == variance


def test_an_overview_of_nothing_takes_the_methods_of_any_other(run: gf.Connection) -> None:
    for array in (run["u"], run["u"][:0], run["u"][:, None, 3:3]):
        with pytest.raises(ValueError, match="absmax"):
            array.overview((1,) * array.ndim, "absmax")  # type: ignore[arg-type]
    for method in ("mean", "first", "minmax"):
        nothing = run["u"][:0].overview((2, 3, 1), method)
        near = gf.to_device(CUBE, device="host:0")[:0]
        expected = gf.overview(near, (2, 3, 1), method)
        assert nothing.values.shape == expected.values.shape == (0, 3, 1)
        assert (nothing.values.dtype, nothing.count) == (expected.values.dtype, 0)


def test_equal_parts_take_one_request_each(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = RNG.normal(size=(1000, 30)).astype(np.float32)
    with ranks(whole, cut(whole.shape, [[250, 500, 750], []])), gf.connect("rank-*") as run:
        array, asked = run["u"], []
        request = Session.request
        monkeypatch.setattr(
            Session, "request", lambda self, *rest: (asked.append(rest), request(self, *rest))[1]
        )
        array.overview((512, 7))
        assert len(asked) == 4


@settings(max_examples=fewer(200), deadline=None)
@given(data=st.data())
def test_ranges_of_cells_are_overviews_of_their_own(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 3000))
    cells = data.draw(st.integers(1, length))
    begin = data.draw(st.integers(0, length - 1))
    end = data.draw(st.integers(begin + 1, length))
    ranges = cell_ranges(length, cells, (begin, end))
    assert [one.begin for one in ranges] == [begin, *(one.end for one in ranges[:-1])]
    assert ranges[-1].end == end and len(ranges) <= 20
    for one in ranges:
        edges = [edge(one.cell + i, length, cells) for i in range(one.cells + 1)]
        assert one.has_first == (one.begin == edges[0])
        if one.is_whole:
            own = [edge(i, one.end - one.begin, one.cells) for i in range(one.cells + 1)]
            assert [one.begin + place for place in own] == edges
        else:
            assert one.cells == 1 and edges[0] <= one.begin < one.end <= edges[1]
            assert (one.begin, one.end) != (edges[0], edges[1])


@settings(max_examples=fewer(300), deadline=None)
@given(data=st.data())
def test_windows_hold_the_indices_of_the_part(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 40))
    ends = st.none() | st.integers(-length - 2, length + 2)
    step = data.draw(st.integers(-7, 7).filter(bool))
    taken = range(length)[data.draw(ends) : data.draw(ends) : step]
    start = data.draw(st.integers(0, length))
    stop = data.draw(st.integers(start, length))
    inside = [number for number, index in enumerate(taken) if start <= index < stop]
    expected = (inside[0], inside[-1] + 1) if inside else (0, 0)
    assert window(taken, start, stop) == expected


# --- Parts that do not make an array ---


def test_a_missing_rank_is_told_where_its_part_is_read() -> None:
    parts = [part for i, part in enumerate(CUBE_PARTS) if i != 1]
    with ranks(CUBE, parts), gf.connect("rank-*") as run:
        array = run["u"]
        assert array.shape == CUBE.shape
        np.testing.assert_array_equal(array[5:].fetch(), CUBE[5:])
        for read in (array.fetch, array.stats, lambda: array.overview((2, 2, 2))):
            with pytest.raises(RuntimeError, match=r"u\[0:5, 4:9, 0:7\].*no server.*every rank"):
                read()
        assert "not readable" in array[0]._repr_html_()


def test_parts_that_overlap_are_refused_with_both_ranks() -> None:
    with ranks(CUBE, CUBE_PARTS) as servers, gf.connect("rank-*") as run:
        publish(servers[2], "u", CUBE, (slice(0, 6), slice(8, 12), slice(0, 7)))
        with pytest.raises(RuntimeError, match=r"rank-1.*rank-2.*overlap.*ghost"):
            run["u"]
        assert "overlap" in "\n".join(run._describe())


def test_ranks_that_disagree_about_an_array_are_named() -> None:
    with ranks(CUBE, CUBE_PARTS[:3]) as servers, gf.connect("rank-*") as run:
        publish(servers[1], "u", CUBE.astype(np.float64), CUBE_PARTS[1])
        with pytest.raises(RuntimeError, match="float64 at rank-1 and float32 at rank-0"):
            run["u"]
        publish(servers[1], "u", np.zeros((13, 12, 9), np.float32), CUBE_PARTS[1])
        with pytest.raises(RuntimeError, match=r"shape .* at rank-1 and .* at rank-0"):
            run["u"]
        servers[1].publish("u", gf.to_device(CUBE, device="host:0"))
        with pytest.raises(RuntimeError, match="whole at rank-1"):
            run["u"]
        np.testing.assert_array_equal(run.servers["rank-1"]["u"].fetch(), CUBE)


def test_a_part_that_moves_is_not_put_in_the_wrong_place() -> None:
    whole = np.arange(20.0)
    with ranks(whole, cut((20,), [[10]])) as servers, gf.connect("rank-*") as run:
        array = run["u"]
        np.testing.assert_array_equal(array.fetch(), whole)
        publish(servers[1], "u", np.zeros(25), (slice(12, 22),))
        with pytest.raises(RuntimeError, match="generation"):
            array.fetch()
        with pytest.raises(RuntimeError, match="generation"):
            array.stats()


@pytest.mark.parametrize(
    ("start", "global_shape", "message"),
    [
        ((0,), (10, 10), "start .* each of 2 axes"),
        ((0, 0), (10,), "global_shape .* each of 2 axes"),
        ((0, 7), (10, 10), "axis 1"),
        ((-1, 0), (10, 10), "axis 0"),
        ((0, 0), None, "both or neither"),
        (None, (10, 10), "both or neither"),
    ],
)
def test_a_part_that_cannot_be_is_refused(start: Any, global_shape: Any, message: str) -> None:
    with gf.serve("one") as server:
        x = gf.to_device(np.zeros((4, 4)), device="host:0")
        with pytest.raises(ValueError, match=message):
            server.publish("x", x, start=start, global_shape=global_shape)
        with pytest.raises(TypeError):
            server.publish("x", x, start=(0.5, 0), global_shape=(10, 10))
        server.publish("x", x, start=(6, 6), global_shape=np.array([10, 10]))


# --- Steps and values ---


def test_steps_and_values_say_where_ranks_differ() -> None:
    with ranks(CUBE, CUBE_PARTS[:2]) as servers, gf.connect("rank-*") as run:
        assert run.step is None and run.time is None and run.differences == {}
        for number, server in enumerate(servers):
            server.set("dt", 0.5)
            server.set("rank", number)
            server.step(7 + number, 3.5 + number)
        servers[1].set("extra", "x")
        assert (run.step, run.time, run.steps) == (7, 3.5, {"rank-0": 7, "rank-1": 8})
        assert run.scalars == {"dt": 0.5, "rank": 0, "extra": "x"}
        assert run.differences == {
            "rank": {"rank-0": 0, "rank-1": 1},
            "extra": {"rank-0": None, "rank-1": "x"},
        }
        shown = "\n".join(run._describe())
        assert "rank-0: 7, rank-1: 8" in shown and "rank = 0 (rank-0: 0, rank-1: 1)" in shown
        assert "dt = 0.5\n" in shown and "2 parts" in shown


@contextlib.contextmanager
def simulated(
    servers: Sequence[gf.Server], parts: Any, shape: Any, pause_s: float
) -> Iterator[None]:
    """Each step publishes `u` anew on every rank, filled with the step's number."""
    stop = threading.Event()

    def simulate() -> None:
        for step in itertools.count(1):
            for server, part in zip(servers, parts, strict=True):
                publish(server, "u", np.full(shape, float(step)), part)
            for server in servers:
                server.step(step, step / 2)
            if stop.wait(pause_s):
                return

    thread = threading.Thread(target=simulate)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_reads_at_a_step_are_of_one_step_of_all_ranks() -> None:
    parts = cut((12,), [[4]])
    with (
        ranks(np.zeros(12), parts) as servers,
        simulated(servers, parts, 12, 0.05),
        gf.connect("rank-*", at="step", timeout=60) as run,
    ):
        array = run["u"]
        for _ in range(3):
            assert len(np.unique(array.fetch())) == 1
        stats = array.stats()
        assert stats.count == 12 and stats.variance == 0
        first = run.wait_step()
        assert run.wait_step() > first
        with pytest.raises(ValueError, match="several requests to rank-1"):
            array.overview(5)
        with pytest.raises(ValueError, match="give a histogram its range"):
            array.histogram(4)
        assert array.histogram(4, (0, 1e9)).counts[0] == 12
        assert array[4:].histogram(4).counts.sum() == 8
        run.at = "live"
        assert array.overview(5).count == 12


def test_an_index_by_arrays_is_of_one_step_of_all_ranks_or_of_one_publication_of_each() -> None:
    """Rows 0 to 2 are one rank's, the others the next one's; each row is a range of its own."""
    shape = (6, 20000)
    parts = cut(shape, [[3], []])
    with (
        ranks(np.zeros(shape), parts) as servers,
        simulated(servers, parts, shape, 0.01),
        gf.connect("rank-*", at="step", timeout=60) as run,
    ):
        array = run["u"]
        for _ in range(3):
            assert np.unique(array[[0, 1, 3, 5]]).size == 1
        run.at = "live"
        for _ in range(30):
            read = array[[0, 2, 3, 5]]
            assert np.unique(read[:2]).size == np.unique(read[2:]).size == 1


WHOLES = [np.where(np.arange(12) == 4 + k % 3, np.nan, RNG.normal(size=12)) for k in range(40)]


@contextlib.contextmanager
def published_after_each_request(monkeypatch: pytest.MonkeyPatch) -> Iterator[gf.LazyArray]:
    """`u`, of which two ranks have parts: those of the next whole after each request."""
    parts, request, number = cut((12,), [[4]]), Session.request, itertools.count(1)
    with ranks(WHOLES[0], parts) as servers, gf.connect("rank-*") as run:

        def ask(self: Session, *arguments: Any) -> Any:
            reply = request(self, *arguments)
            if (next_one := next(number)) < len(WHOLES):
                for server, part in zip(servers, parts, strict=True):
                    publish(server, "u", WHOLES[next_one], part)
            return reply

        array = run["u"]
        monkeypatch.setattr(Session, "request", ask)
        yield array


def of_any_two(reduce: Callable[[Any], Any]) -> Iterator[Any]:
    """What each pair of publications gives, one of each rank."""
    for first, second in itertools.product(WHOLES, repeat=2):
        yield reduce(gf.to_device(np.concatenate([first[:4], second[4:]]), device="host:0"))


@pytest.mark.parametrize("method", METHODS)
def test_each_ranks_share_of_an_overview_is_of_one_publication(
    monkeypatch: pytest.MonkeyPatch, method: Any
) -> None:
    """A cell that both ranks share has NaN of one of them, so that its elements are read, too."""
    with published_after_each_request(monkeypatch) as array:
        far = array.overview(7, method).values
        nears = of_any_two(lambda whole: gf.overview(whole, 7, method).values)
        assert any(np.allclose(far, near, rtol=1e-12, equal_nan=True) for near in nears)


def test_each_ranks_share_of_a_histogram_is_of_one_publication(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with published_after_each_request(monkeypatch) as array:
        far = array.histogram(9)
        assert far.counts.sum() == 11 and far.under_count == far.over_count == 0
        nears = of_any_two(lambda whole: gf.histogram(whole, 9))
        assert any(repr(far) == repr(near) for near in nears)


def test_servers_let_go_of_what_they_held_for_a_result() -> None:
    shape = (12,)
    parts = cut(shape, [[4]])
    with ranks(np.zeros(shape), parts) as servers, gf.connect("rank-*") as run:
        array = run["u"]
        for reduce in (lambda: array.overview(7), lambda: array.histogram(3)):
            held = [gf.to_device(np.ones(axis.stop - axis.start)) for (axis,) in parts]
            alive = [weakref.ref(one) for one in held]
            for server, (axis,), one in zip(servers, parts, held, strict=True):
                server.publish("u", one, start=[axis.start], global_shape=shape)
            del held, one
            reduce()
            assert all(one() is not None for one in alive)
            for server, part in zip(servers, parts, strict=True):
                publish(server, "u", np.zeros(shape), part)
            eventually(lambda alive=alive: all(one() is None for one in alive))


# --- Names, failures and the end ---


def test_lists_patterns_and_paths_name_servers() -> None:
    parts = cut((24,), [list(range(2, 24, 2))])
    with ranks(np.arange(24.0), parts) as servers, gf.serve("other"):
        for named in ("rank-*", ["rank-*"], ["rank-?", "rank-1?"], [s.name for s in servers]):
            with gf.connect(named) as run:
                assert list(run.servers) == [f"rank-{number}" for number in range(12)]
                np.testing.assert_array_equal(run["u"].fetch(), np.arange(24.0))
        path = Path(servers[3].connection_file)
        with gf.connect([path, "rank-3", str(path.parent / "kernel-rank-1[01].json")]) as run:
            assert list(run.servers) == ["rank-3", "rank-10", "rank-11"]
            assert run.name == "rank-3, rank-10, rank-11"
        with gf.connect([path]) as run:
            assert run["u"].shape == (24,) and run["u"][6:8].tolist() == [6, 7]
    with pytest.raises(FileNotFoundError, match=r"run-\*"):
        gf.connect("run-*")
    with pytest.raises(ValueError, match="empty"):
        gf.connect([])


SERVE_PART = """
    rank = int(sys.argv[1])
    with gf.serve(f"rank-{rank}") as server:
        x = gf.to_device(np.full((2, 3), float(sys.argv[2])))
        server.publish("u", x, start=(2 * rank, 0), global_shape=(4, 3))
        print("ready", flush=True)
        sys.stdin.read()
"""


def test_an_index_by_arrays_reads_several_ranks_and_one_of_them_in_shared_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(published_tensor, "_SHARE_NBYTES_MIN", 1)
    with process(SERVE_PART, "0", "1"), process(SERVE_PART, "1", "2"):
        for key in ([1, 2, 2, 0], [0, 1, 3], [1, 2, 3]):
            with gf.connect("rank-*") as run:
                array = run["u"]
                for _ in range(2):
                    assert array[key][:, 0].tolist() == [1 + (row > 1) for row in key]
                assert run.data_path == "shared memory"


def test_a_rank_that_dies_is_named_and_the_others_can_be_read() -> None:
    with process(SERVE_PART, "0", "1"), process(SERVE_PART, "1", "2") as second:
        with gf.connect("rank-*", timeout=2) as run:
            array = run["u"]
            assert array.fetch().tolist() == [[1] * 3] * 2 + [[2] * 3] * 2
            second.kill()
            second.wait()
            with pytest.raises(TimeoutError, match=r"rank-1: .*kernel-rank-1\.json.*connect to"):
                array.fetch()
            assert array[:2].fetch().tolist() == [[1] * 3] * 2
            with pytest.raises(ConnectionError, match="rank-1"):
                run._describe()
        with gf.connect("rank-*") as rest:
            assert list(rest.servers) == ["rank-0"]


def test_a_rank_that_started_anew_is_looked_up_anew() -> None:
    with process(SERVE_PART, "0", "1"):
        with process(SERVE_PART, "1", "2"):
            run = gf.connect("rank-*", timeout=20)
            array = run["u"]
            assert array.stats().max == 2
        with process(SERVE_PART, "1", "3"):
            with pytest.raises(RuntimeError, match="rank-1 has started anew"):
                array.fetch()
            assert run["u"].stats().max == 3
        run.close()


def test_ranks_of_a_c_program_are_one_array(runtime: Path) -> None:
    """examples/wave_ranks.c, whose tensors have ghost rows that are not published."""
    program = Path(find_program()).with_name("wave_ranks")
    options = ["--rows", "50", "--columns", "21", "--steps", "0", "--ms", "600000"]
    with contextlib.ExitStack() as stack:
        for rank in range(3):
            started = subprocess.Popen(
                [program, "--rank", str(rank), "--ranks", "3", *options],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "GPUFETCH_BACKEND": "host"},
            )
            stack.callback(started.communicate)
            stack.callback(started.kill)
            assert started.stdout is not None and "serving" in started.stdout.readline()
        with gf.connect("wave-*") as run:
            eventually(lambda: set(run.steps.values()) == {0})
            x, y = np.arange(50)[:, None] / 50, np.arange(21)[None, :] / 21
            wave = np.sin(2 * np.pi * (x + y))
            np.testing.assert_allclose(run["u"].fetch(), wave, rtol=0, atol=1e-6)
            stats = run["u"].stats()
            assert (stats.count, run["u"].shape) == (1050, (50, 21))
            np.testing.assert_allclose(stats.variance, wave.var(), rtol=1e-6)


def test_large_parts_go_through_shared_memory() -> None:
    code = """
    rank = int(sys.argv[1])
    with gf.serve(f"rank-{rank}") as server:
        x = gf.to_device(np.arange(3 << 20, dtype=np.float32).reshape(3, -1) + rank)
        server.publish("u", x, start=(3 * rank, 0), global_shape=(6, 1 << 20))
        print("ready", flush=True)
        sys.stdin.read()
    """
    part = np.arange(3 << 20, dtype=np.float32).reshape(3, -1)
    whole = np.concatenate([part, part + 1])
    with process(code, "0"), process(code, "1"), gf.connect("rank-*") as run:
        np.testing.assert_array_equal(run["u"].fetch(), whole)
        assert run.data_path == "shared memory"
        assert all(server.session._attached.is_kept for server in run.servers.values())
        np.testing.assert_array_equal(run["u"][1:5, ::3].T.fetch(), whole[1:5, ::3].T)


def test_closing_detaches_from_all() -> None:
    from serving import client

    with ranks(CUBE, CUBE_PARTS[:2]) as servers, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(client(server.connection_file)) for server in servers]
        for attached in clients:
            attached.wait_for_ready(timeout=10)

        def counts() -> list[int]:
            replies = [c.comm_info(reply=True, timeout=5)["content"]["comms"] for c in clients]
            return list(map(len, replies))

        with gf.connect("rank-*") as run:
            assert counts() == [1, 1]
            array = run["u"]
        eventually(lambda: counts() == [0, 0])
        for read in (array[:5, :9].fetch, array[0, 0].fetch, lambda: run["u"], run.wait_step):
            with pytest.raises(ValueError, match="closed"):
                read()
        assert "closed" in repr(run)


def test_attach_shows_several_as_one() -> None:
    with ranks(CUBE, CUBE_PARTS) as servers:
        for number, server in enumerate(servers):
            server.set("dt", 0.25)
            server.set("rank", number)
            server.step(12, 3.0)
        for named in (["rank-*"], [server.name for server in servers]):
            shown = attach("--once", *named)
            assert "step 12, time 3" in shown and "(13, 12, 7)" in shown
            assert f"{CUBE.min():.6g}" in shown and f"{CUBE.max():.6g}" in shown
            assert "rank-1: 1" in shown
        servers[2].step(13, 3.25)
        servers[3].unpublish("u")
        shown = attach("--once", "rank-*")
        assert "rank-2: 13" in shown and "no server" in shown
