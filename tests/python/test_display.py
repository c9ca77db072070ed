"""What notebooks and terminals show: what it reads, how large it is, and that it never fails."""

from __future__ import annotations

import base64
import itertools
import json
import re
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
from pulling import ReplaceableTensor
from server_build import needs_server

pytest.importorskip("IPython")

from IPython.lib.pretty import pretty

import gpufetch as gf
from gpufetch import _core
from gpufetch._display import remote as remote_display
from gpufetch._display import summary as summary_module
from gpufetch._display.histogram import bars_text, envelope_svg, histogram_svg
from gpufetch._display.layout import layout_svg
from gpufetch._display.palettes import VIRIDIS
from gpufetch._display.remote import Published, connection_html, print_connection
from gpufetch._display.settings import HOST_NBYTES, settings
from gpufetch._display.summary import summarize
from gpufetch._display.thumbnail import colour_limits, png
from gpufetch._remote.session import Session
from gpufetch._view import DeviceView

READS = ("fetch", "fetch_async", "stats", "overview", "histogram")
MOVED_MAX = 256 * 1024
HTML_MAX = 64 * 1024


class Reads:
    """Counts reads of device memory from now on, and the bytes that they bring."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.nbytes = 0
        self.source_nbytes = 0
        for name in READS:
            patch.setattr(_core, name, self._counted(getattr(_core, name)))

    def _counted(self, function: Any) -> Any:
        def counted(x: Any, *arguments: Any, **options: Any) -> Any:
            result = function(x, *arguments, **options)
            self.calls += 1
            self.source_nbytes = max(self.source_nbytes, _core.asdevice(x).nbytes)
            found = result if isinstance(result, tuple) else (result,)
            self.nbytes += sum(one.nbytes if isinstance(one, np.ndarray) else 128 for one in found)
            return result

        return counted


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


@pytest.fixture(autouse=True)
def unchanged_settings() -> Iterator[None]:
    yield
    settings.reads_device, settings.host_nbytes = True, HOST_NBYTES


def noise(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(7).normal(size=shape).astype(dtype)


# --- What must not read ---


PROBES = ("_repr_png_", "_ipython_display_", "__array_interface__", "to_csv", "columns", "shape")


def probe(shell: Any, name: str, obj: Any) -> None:
    """Do what variable inspectors, debuggers and completion do."""
    repr(obj), str(obj), f"{obj}", repr([obj]), repr({"x": obj}), dir(obj), type(obj).__doc__
    for attribute in PROBES:
        hasattr(obj, attribute)
    shell.push({name: obj})
    shell.run_line_magic("whos", "")
    shell.run_line_magic("pinfo", name)
    shell.run_line_magic("gpufetch", "")
    pretty([obj])
    pretty({"x": obj})


def test_looking_at_a_variable_reads_nothing(shell: Any, reads: Reads) -> None:
    x = gf.to_device(noise(300, 400))
    for obj in (x, gf.lazy(x), gf.lazy(x)[10:20]):
        probe(shell, "obj", obj)
    assert reads.calls == 0
    pretty(x)
    assert reads.calls > 0


@needs_server
def test_looking_at_a_variable_of_another_process_asks_nobody(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gf.serve("test-display") as server:
        server.publish("u", gf.to_device(noise(300, 400)))
        server.step(4, 0.5)
        with gf.connect("test-display") as run, gf.connect(["test-display"]) as joint:
            array, _ = run["u"], joint["u"]

            def refuse(*arguments: Any) -> Any:
                raise AssertionError("asked the server")

            with monkeypatch.context() as patch:
                patch.setattr(Session, "requests", refuse)
                probe(shell, "obj", array)
                probe(shell, "obj", array[3])
                probe(shell, "obj", run)
                probe(shell, "obj", joint)
                for connection in (run, joint):
                    assert repr(connection) == "<connection to test-display, step 4, time 0.5>"
            assert "mean" in array._repr_html_()


def test_the_displays_are_imported_when_something_is_shown() -> None:
    code = (
        "import sys, numpy as np, gpufetch as gf\n"
        "x = gf.to_device(np.ones(3)); repr([x, gf.lazy(x), gf.stats(x), gf.info()])\n"
        "before = [name for name in sys.modules if name.startswith('gpufetch._display')]\n"
        "x._repr_html_()\n"
        "print(before, 'gpufetch._display.tensor' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] True\n"


def test_displays_read_nothing_where_that_is_set(reads: Reads) -> None:
    x = gf.to_device(noise(300, 400))
    settings.reads_device = False
    for text in (x._repr_html_(), gf.lazy(x)._repr_html_(), pretty(x)):
        assert "(300, 400)" in text and "nothing was read" in text and "displays_read" in text
    assert reads.calls == 0


# --- How much is read, and how large the display is ---


SHAPES = [(1_000_000,), (3000, 1000), (60, 200, 250), (2, 1_500_000), (1_500_000, 2), (3, 4) * 5]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.int8, ml_dtypes.bfloat16], ids=["f8", "i1", "b2"])
def test_a_display_moves_and_stores_little(shape: Any, dtype: Any, reads: Reads) -> None:
    x = gf.to_device((100 * noise(*shape)).astype(dtype))
    text = x._repr_html_()
    assert "mean" in text and "not readable" not in text and "not shown" not in text
    assert 0 < reads.nbytes <= MOVED_MAX
    assert len(text.encode()) <= HTML_MAX
    assert "<img" in text or len(shape) == 1


def test_the_worst_of_pictures_fits() -> None:
    text = gf.to_device(noise(160, 160, dtype=np.float64))._repr_html_()
    assert len(text.encode()) <= HTML_MAX
    many = gf.overview(gf.to_device(noise(2000, 2000)), (2000, 2000), "minmax")
    assert len(many._repr_html_().encode()) <= HTML_MAX


def test_a_large_tensor_is_sampled_where_no_gpu_reads_it(reads: Reads) -> None:
    values = noise(64, 100, 100)
    settings.host_nbytes = values.nbytes // 8
    for text in (
        gf.to_device(values, device="host:0")._repr_html_(),
        pretty(gf.lazy(gf.to_device(values, device="host:0"))),
    ):
        (n,) = set(re.findall(r"sample of 1/(\d+)", text))
        assert int(n) == 8  # 12 of 100 rows
    assert reads.source_nbytes <= settings.host_nbytes
    settings.host_nbytes = values.nbytes
    assert "sample" not in gf.to_device(values, device="host:0")._repr_html_()


def test_a_sample_is_of_all_axes_where_one_is_not_enough() -> None:
    x = gf.to_device(noise(30, 40, 50), device="host:0")
    settings.host_nbytes = 100
    summary = summarize(lambda: DeviceView(x), draws=True)
    assert summary.stats and summary.stats["count"] * 4 <= 100
    assert summary.sample * summary.stats["count"] >= 60_000 * 0.9
    assert summary.notes == []


# --- What it says ---


class Page(HTMLParser):
    """The tags and the text of a display; raises where tags do not fit."""

    VOID = ("img", "polygon", "path", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attributes: Any) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.text += " ".join([*data.split(), ""])


def test_statistics_count_what_is_not_finite() -> None:
    values = noise(40, 50)
    values[0, :7] = np.nan
    values[1, :3] = np.inf
    values[2, :2] = -np.inf
    values[3, :5] = 0
    x = gf.to_device(values)
    finite = values[np.isfinite(values)]
    words = Page(x._repr_html_()).text.split()
    facts = dict(itertools.pairwise(words))
    assert (facts["NaN"], facts["+inf"], facts["-inf"], facts["zeros"]) == ("7", "3", "2", "5")
    assert float(facts["mean"]) == pytest.approx(float(finite.astype(np.float64).mean()), rel=1e-4)
    text = pretty(gf.lazy(x))
    assert f"min (finite) {finite.min():.6g}" in text and "NaN 7, +inf 3, -inf 2, zeros 5" in text
    assert "█" in text.splitlines()[-1]


def test_what_it_is_is_said_in_full() -> None:
    x = gf.to_device(noise(6, 8))
    for obj, layout in ((x, "C order"), (x.T, "F order"), (x[:, ::2], "strides (32, 8)")):
        page = Page(obj._repr_html_())
        for fact in (str(obj.shape), "float32", obj.device, layout):
            assert fact in page.text
        assert {"svg", "img", "table"} <= set(page.tags) and "script" not in page.tags
    assert "LazyArray of gpufetch.DeviceArray" in Page(gf.lazy(x)._repr_html_()).text


def test_light_and_dark_pages_have_colours_without_a_script() -> None:
    text = gf.to_device(noise(4, 4))._repr_html_()
    assert "prefers-color-scheme:dark" in text and "var(--jp-content-font-color1" in text
    assert "data-jp-theme-light=false" in text and "<script" not in text


def test_markup_is_shown_as_text() -> None:
    class Tensor(ReplaceableTensor):
        pass

    Tensor.__qualname__ = "<b id='x'>&"
    text = gf.lazy(Tensor(noise(3, 4)))._repr_html_()
    assert "<b id" not in text and "&lt;b id=&#x27;x&#x27;&gt;&amp;" in text
    rows = [("<i>", "float32", "(3,)", "host:0", "12 B", "")]
    text = connection_html("<u>", lambda: Published("step <s>", rows, [("<k>", "'<v>'")]))
    assert not re.search("<[iuskv]>", text)


@pytest.mark.parametrize(
    "values",
    [np.full((4, 5), np.inf), np.full(5, -np.inf), np.full((500, 500), 1e308), np.full(3, np.nan)],
)
def test_a_picture_without_a_finite_value_says_so(values: Any) -> None:
    html = gf.to_device(values)._repr_html_()
    assert "no finite value" in html and "all NaN" not in html


def test_the_plane_of_a_picture_leaves_channels_out() -> None:
    for shape, where in (
        ((20, 30, 3), "[:, :, 1]"),
        ((3, 20, 30), "[1, :, :]"),
        ((7, 20, 30, 4), "[3, :, :, 2]"),
        ((5, 6, 7, 8), "[2, 3, :, :]"),
    ):
        assert where in gf.to_device(noise(*shape))._repr_html_()


# --- That it never fails ---


@pytest.mark.parametrize(
    "shape", [(), (1,), (0,), (0, 5), (1, 1), (1, 9), (9, 1), (1,) * 20], ids=str
)
@pytest.mark.parametrize(
    "dtype",
    [np.bool_, np.uint8, np.int64, np.uint64, np.float16, np.complex64, ml_dtypes.float8_e4m3fn],
    ids=str,
)
def test_odd_shapes_and_dtypes_are_shown(shape: Any, dtype: Any) -> None:
    x = gf.to_device(np.ones(shape).astype(dtype))
    text = x._repr_html_()
    Page(text)
    assert str(shape) in text and "not shown" not in text and "not readable" not in text
    assert pretty(x).startswith(repr(x))


@pytest.mark.parametrize(
    "values",
    [
        np.full((4, 5), np.nan),
        np.full((4, 5), np.inf),
        np.array([[np.inf, -np.inf, np.nan, 1.0]]),
        np.array([[1.7e308, -1.7e308, 0.0]]),
        np.array([[1.0, np.nextafter(1.0, 2.0)]]),
        np.array([[5e-324, 0.0]]),
        np.array([[-(2**63), 2**63 - 1]]),
        np.array([[0, 2**64 - 1]], np.uint64),
        np.full(9, np.nan),
        np.array([1.7e308, -1.7e308, np.inf]),
        np.array([np.inf, 0.0, 5e-324]),
    ],
    ids=lambda values: str(values.ravel()[:3]),
)
def test_extreme_values_are_shown(values: Any) -> None:
    with np.errstate(all="raise"):
        for text in (gf.to_device(values)._repr_html_(), pretty(gf.to_device(values))):
            assert "not shown" not in text and "not readable" not in text


def test_complex_tensors_say_so_in_a_line() -> None:
    x = gf.to_device(noise(3, 4).astype(np.complex64))
    for text in (x._repr_html_(), pretty(x)):
        assert "complex64 is complex, of which there are no statistics" in text


def test_a_tensor_that_cannot_be_read_says_why_in_a_line() -> None:
    source = ReplaceableTensor(noise(3, 4))
    lazy = gf.lazy(source)
    source.replace(noise(4, 4))
    for text in (lazy._repr_html_(), pretty(lazy)):
        (line,) = [line for line in re.split("\n|<[^>]*>", text) if "not readable" in line]
        assert "make a new LazyArray" in line and "(3, 4)" in text


def test_a_device_that_fails_is_shown() -> None:
    x = gf.to_device(noise(300, 400), device="host:0")
    _core._host_faults(copy_fail_after_nbytes=0)
    try:
        assert "not readable" in x._repr_html_() and "not readable" in pretty(x)
    finally:
        _core._host_faults()


def test_an_error_of_the_display_itself_leaves_the_plain_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = gf.to_device(noise(3, 4))
    monkeypatch.setattr("gpufetch._display.tensor.frame", lambda *parts: 1 // 0)
    text = x._repr_html_()
    assert "DeviceArray(shape=(3, 4)" in text and "not shown: ZeroDivisionError" in text


# --- Other processes ---


def test_a_server_that_does_not_answer_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary_module, "_DEADLINE_S", 0.05)
    answered = threading.Event()
    left = threading.Event()

    def ask() -> Any:
        answered.wait(60)
        left.set()
        return Published("late", [], [])

    try:
        assert "no answer within 0.05 s" in connection_html("run", ask)
        text = pretty(Printed(lambda p: print_connection(lambda: "<run>", ask, p)))
        assert text.startswith("<run>\n") and "no answer within 0.05 s" in text
    finally:
        answered.set()
        assert left.wait(60)


class Printed:
    def __init__(self, show: Any) -> None:
        self.show = show

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        self.show(printer)


SERVED = """
with gf.serve("test-silent") as server:
    server.publish("u", gf.to_device(np.ones((30, 40), np.float32)))
    print("ready", flush=True)
    sys.stdin.readline()
"""


@needs_server
@pytest.mark.parametrize("names", ["test-silent", ["test-silent"]], ids=["one", "joint"])
def test_a_display_that_gives_up_leaves_no_request_behind(names: Any) -> None:
    """Else the connection is held up until its own time-out, which is 60 s here."""
    from serving import eventually, process, stop  # imports jupyter_client

    with process(SERVED) as served, gf.connect(names, timeout=60) as run:
        array = run["u"]
        (connection,) = run.servers.values()
        session = cast(Any, connection).session

        def is_held() -> bool:
            """Whether a thread is in the session; it is let go within the second that it has."""
            if session._lock.acquire(blocking=False):
                session._lock.release()
                return False
            return True

        began = time.monotonic()
        stop(served)
        try:
            for show in (array._repr_html_, run._repr_html_, lambda: pretty(run)):
                assert "no answer" in show() or "does not answer" in show()
                eventually(lambda: not is_held(), 10)
        finally:
            served.send_signal(signal.SIGCONT)
        assert time.monotonic() - began < 30
        assert array.fetch().sum() == 1200
        eventually(lambda: "mean" in array._repr_html_(), 60)


@needs_server
def test_a_connection_shows_what_is_published() -> None:
    with gf.serve("test-display") as server:
        with gf.connect("test-display") as run:
            assert "nothing is published" in run._repr_html_()
            server.publish("fields/u", gf.to_device(noise(300, 400)))
            server.set("dt", 0.5)
            server.step(3, 0.25)
            text = Page(run._repr_html_()).text
            for fact in (
                "test-display",
                "step 3, time 0.25",
                "fields/u",
                "(300, 400)",
                "dt",
                "0.5",
            ):
                assert fact in text
            assert "fields/u: float32 (300, 400)" in pretty(run)
            array = Page(run["fields/u"]._repr_html_()).text
            assert "tensor fields/u of test-display" in array and "mean" in array
            assert "layout" not in array
            run.at = "step"
            assert "waits for a step" in run["fields/u"]._repr_html_()
            run.at = "live"
            with gf.connect(["test-display"]) as joint:
                assert "fields/u" in joint._repr_html_()
                assert "mean" in joint["fields/u"]._repr_html_()
            assert "closed" in joint._repr_html_()
        assert "closed" in run._repr_html_() and "nothing" not in run._repr_html_()


def test_many_tensors_of_a_connection_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_display, "_ROWS_MAX", 3)
    rows = [(f"u[{i}]", "float32", "(3,)", "host:0", "12 B", "") for i in range(5)]
    text = connection_html("run", lambda: Published("step 1", rows, []))
    assert "u[2]" in text and "u[3]" not in text and "and 2 more tensors" in text


# --- Results ---


def test_results_are_shown_with_what_they_count() -> None:
    values = noise(40, 60)
    values[0, :7] = np.nan
    values[1, 0] = np.inf
    x = gf.to_device(values)
    overview = gf.overview(x, (10, 12))
    page = Page(overview._repr_html_())
    for fact in ("mean of each cell", "(40, 60)", "(10, 12)", "NaN 7", "2,400"):
        assert fact in page.text
    assert {"img", "svg"} <= set(page.tags)
    assert Page(gf.overview(x, (10, 12), "minmax")._repr_html_()).tags.count("img") == 2
    assert "[2, :, :]" in gf.overview(gf.to_device(noise(5, 6, 7)), (5, 6, 7))._repr_html_()
    stats = gf.stats(x)
    for text in (Page(stats._repr_html_()).text, pretty(stats)):
        assert "2,400 elements" in text and re.search(r"NaN\s+7", text)
    assert pretty([stats]) == repr([stats])
    histogram = gf.histogram(x, 20, (-1, 1))
    inside = int(histogram.counts.sum())
    for text in (Page(histogram._repr_html_()).text, pretty(histogram)):
        assert f"{inside:,}" in text and "20 bins" in text and "NaN" in text
    assert f"{histogram.over_count} over" in pretty(histogram)


def test_results_of_nothing_are_shown() -> None:
    empty = gf.to_device(np.ones((0, 3)))
    for obj in (gf.stats(empty), gf.histogram(empty, 4)):
        assert "not shown" not in obj._repr_html_()
        pretty(obj)
    scalar = gf.overview(gf.to_device(np.float32(3)), ())
    assert "not shown" not in scalar._repr_html_()


def test_info_is_a_table_and_still_plain_data() -> None:
    info = gf.info()
    assert json.loads(json.dumps(info)) == dict(info)
    for text in (Page(info._repr_html_()).text, pretty(info)):
        assert info["version"] in text and info["default_device"] in text and "HDF5 plugin" in text
    info.clear()
    assert "not shown" in info._repr_html_() and pretty(info) == "{}"


# --- Drawings ---


def decoded(data: bytes) -> tuple[Any, Any]:
    """Palette indices and palette of a PNG, whose checksums are looked at."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    found, at = {}, 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        (crc,) = struct.unpack(">I", data[at + 8 + length : at + 12 + length])
        assert crc == zlib.crc32(kind + body)
        found[kind] = body
        at += 12 + length
    columns, rows, depth, colour = struct.unpack(">IIBB", found[b"IHDR"][:10])
    assert (depth, colour) == (8, 3)
    lines = np.frombuffer(zlib.decompress(found[b"IDAT"]), np.uint8).reshape(rows, columns + 1)
    assert not lines[:, 0].any()
    return lines[:, 1:], np.frombuffer(found[b"PLTE"], np.uint8).reshape(-1, 3)


def test_a_picture_has_the_colours_of_its_values() -> None:
    values = np.array([[0.0, 1.0, 0.5], [np.nan, np.inf, -np.inf]])
    pixels, palette = decoded(png(values, (0.0, 1.0)))
    assert pixels.tolist() == [[1, 255, 128], [0, 255, 1]]
    assert len(palette) == 256 and tuple(palette[0]) not in {tuple(c) for c in palette[1:]}
    constant, _ = decoded(png(np.array([[2.0, np.nan, np.inf, -np.inf]]), (2.0, 2.0)))
    assert constant.tolist() == [[128, 0, 255, 1]]


def test_the_picture_in_a_display_is_the_tensors() -> None:
    values = np.arange(12.0).reshape(3, 4)
    values[1, 2] = np.nan
    text = gf.to_device(values)._repr_html_()
    (data,) = re.findall(r"base64,([^']*)'", text)
    pixels, _ = decoded(base64.b64decode(data))
    expected, _ = decoded(png(values, colour_limits(values)))
    assert pixels.tolist() == expected.tolist()
    assert pixels[1, 2] == 0 and (np.diff(pixels[2]) > 0).all()


def test_the_picture_in_a_display_tells_large_integers_apart() -> None:
    values = np.int32(2 * 10**9) + np.repeat(np.arange(64, dtype=np.int32), 8)[:, None]
    x = gf.to_device(np.broadcast_to(values, (512, 512)).copy())
    (data,) = re.findall(r"base64,([^']*)'", x._repr_html_())
    pixels, _ = decoded(base64.b64decode(data))
    assert len(np.unique(pixels)) >= 64


def test_the_colours_are_viridis() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    expected = matplotlib.colormaps["viridis"](np.linspace(0, 1, 255))[:, :3] * 255
    assert np.abs(VIRIDIS - expected).max() < 6


@pytest.mark.parametrize(
    ("shape", "faces"),
    [((5,), 1), ((3, 4), 1), ((3, 4, 5), 3), ((2, 3, 4, 5), 4), ((9,) * 6, 6), ((9,) * 7, 7)],
    ids=str,
)
def test_a_layout_has_a_body_for_three_axes_each(shape: Any, faces: int) -> None:
    drawing = layout_svg(shape)
    page = Page(drawing)
    assert page.tags.count("polygon") == faces
    assert sorted(map(int, page.text.split())) == sorted(shape)


def test_lengths_are_drawn_by_their_ratio() -> None:
    def sides(shape: Any) -> tuple[float, float]:
        (points,) = re.findall("points='([^']*)'", layout_svg(shape))
        _, _, corner, _ = points.split()
        wide, tall = map(float, corner.split(","))
        return tall, wide

    assert sides((50, 100)) == (55, 110)
    assert sides((100, 100)) == (110, 110)
    short, long = sides((1, 10**9))
    assert long == 110 and 20 < short < 30
    assert layout_svg(()) == ""
    assert layout_svg((0,)).count("polygon") == 1


def test_bars_are_as_high_as_their_counts() -> None:
    counts = np.array([0, 1, 2, 4], np.uint64)
    heights = [float(h) for h in re.findall(r"v-([\d.]+)h", histogram_svg(counts))]
    assert heights == pytest.approx([70 / 4, 70 / 2, 70], abs=0.06)
    assert bars_text(counts) == " ▂▄█"
    assert len(bars_text(np.ones(1000, np.uint64))) <= 32
    spike = np.array([1, 1, 1, 10**9], np.uint64)
    assert min(float(h) for h in re.findall(r"v-([\d.]+)h", histogram_svg(spike))) > 1
    assert bars_text(np.zeros(3, np.uint64)) == "   "


def test_an_envelope_leaves_gaps_for_nan() -> None:
    low, high = np.array([0.0, np.nan, 1.0]), np.array([1.0, np.nan, 2.0])
    drawing = envelope_svg(low, high, (0.0, 2.0))
    assert drawing.count("z") == 2


# --- Settings ---


def test_displays_are_configured_and_unloading_undoes_it(shell: Any, reads: Reads) -> None:
    shell.run_line_magic("config", "GpufetchMagics.displays_read = False")
    shell.run_line_magic("config", "GpufetchMagics.host_display_nbytes = 1000")
    assert (settings.reads_device, settings.host_nbytes) == (False, 1000)
    gf.to_device(noise(3, 4))._repr_html_()
    assert reads.calls == 0
    shell.extension_manager.unload_extension("gpufetch")
    assert (settings.reads_device, settings.host_nbytes) == (True, HOST_NBYTES)
    shell.extension_manager.load_extension("gpufetch")
    assert (settings.reads_device, settings.host_nbytes) == (True, HOST_NBYTES)
