"""The viewer in a page on the same machine: its first picture, its tiles, its frames.

Other ways to look at the array are used in the same page: page_ways.py has them, and
tests/jupyterlab the programs that use the page.
"""

from __future__ import annotations

import importlib.util
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cases import Case
from cases.page_ways import IMAGES, LINES, Way
from cases.viewer_lab import seen_in_page, started_lab, why_not
from harness import MICROSECONDS, Array, Row, Session, Timings, load, make_row, report

ROUNDS = 2
TILES, SECONDS = 60, 10.0
TILE_MS = {"median": (50, 40.0), "95th percentile": (95, 100.0)}  # goals
FRAMES_PER_S, SCRIPT_P95_MS = 50.0, 8.0
IDLE, BUSY = "no cell runs", "while a cell spins"
PLAIN, WEBGL = "plain tiles", "WebGL"  # in another page
LABELS = {PLAIN: "a page without WebAssembly: plain tiles", WEBGL: "a page whose viewer uses {}"}
VIEWER = "gpufetch.view"
SIDE, COUNT = 8192, 1 << 24
# What the middle shows before and after it was panned: waves, see `image`.
PLACES = {"show": 0.5, "zoom": 0.5, "pan": 0.5625}
USES = {
    "show": "first picture of {}, from the keys that run the cell",
    "zoom": "zoom to an eighth of {}",
    "pan": "pan by half a view of {}",
}
NEEDED = {
    "plt.imshow": ("ipympl",),
    "plt.plot": ("ipympl",),
    "jupyter_rfb": ("jupyter_rfb",),
    "datashader": ("datashader", "holoviews", "bokeh"),
    "plotly-resampler": ("plotly_resampler",),
}
TIMED = (
    "import os\nimport gpufetch as gf, numpy as np\nx = gf.to_device(np.load('field.npy'))",
    "gf.view(x, names=['x'])",
    "while not os.path.exists('go-on'): pass",
)


def cases(session: Session) -> list[Case]:
    reason = why_not(session)
    if reason:
        report(f"page is left out: {reason}")
        return []
    return [
        ("page of the viewer", partial(page, session)),
        ("page beside others, an image", partial(compared, session, "image")),
        ("page beside others, a line", partial(compared, session, "line")),
    ]


def image() -> Array:
    row, column = np.ogrid[:SIDE, :SIDE]
    return (np.sin(row * (40 / SIDE)) * np.cos(column * (30 / SIDE))).astype(np.float32)


def line() -> Array:
    return np.sin(np.arange(COUNT) * (60 / COUNT)).astype(np.float32)


# --- The viewer alone -------------------------------------------------------------------------


def page(session: Session) -> list[Row]:
    ours = timed(session, "as-it-comes")
    plain = timed(session, "plain", "plain", "webgl")
    size = " × ".join(map(str, ours["canvas"]))
    for seen in (ours, plain):
        if seen["console"] or seen["sent"] or seen["came"]:
            what = f"said {seen['console']}, and when panned sent {seen['sent']} messages"
            raise RuntimeError(f"the page has {what}")
    moved = "; ".join(
        f"{use}: {received:,} bytes to the page, {sent:,} from it"
        for use, (received, sent) in ours["moved"].items()
    )
    how = f"{ours['travelled']}, {ours['nbytes']:,} bytes of a tile"
    return [
        first_row(session, ours, plain),
        tile_row(session, IDLE, "tiles", ours, plain, f"tiles travelled {how}; {moved}"),
        tile_row(session, BUSY, "busy", ours, plain, f"tiles travelled {how}"),
        frame_row(
            session, f"page frame while it pans over tiles that are there, {size}", ours, plain
        ),
    ]


def timed(session: Session, name: str, *options: str) -> Any:
    """What is seen of the viewer in a page of its own."""
    folder = session.scratch / f"page-{name}"
    folder.mkdir()
    np.save(folder / "field.npy", image())
    with started_lab(folder, TIMED) as port:
        seen = seen_in_page("timed_page.py", port, folder, TILES, SECONDS, *options)
    keep_pictures(folder)
    return seen


def first_row(session: Session, *seen: Any) -> Row:
    """The picture that comes first: the overview, in cells of two pixels or more."""
    whole = ", ".join(f"{one['whole']:.0f}" for one in seen)
    return row(
        session,
        f"page first picture of the viewer, of {SIDE}², from the keys that run the cell",
        Timings({"gpufetch": in_seconds([one["first"] for one in seen])}),
        [],
        {},
        f"in two pages, with the module's load; all of its tiles after {whole} ms",
    )


def tile_row(session: Session, when: str, which: str, ours: Any, plain: Any, *said: str) -> Row:
    notes = []
    for name, (percent, goal) in TILE_MS.items():
        found, other = (float(np.percentile(seen[which], percent)) for seen in (ours, plain))
        outcome = "met" if found <= goal else "missed"
        notes.append(
            f"{name}: {found:.1f} ms, plain {other:.1f} ms, goal of {goal:.0f} ms: {outcome}"
        )
    seconds = {"gpufetch": in_seconds(ours[which]), PLAIN: in_seconds(plain[which])}
    case = f"page tile of 256 KiB, from request to the page, {when}"
    return row(session, case, Timings(seconds), [PLAIN], LABELS, *notes, *said)


def frame_row(session: Session, case: str, seen: Any, other: Any) -> Row:
    rate, by_webgl = (1e3 / float(np.mean(one["frames"])) for one in (seen, other))
    script, of_webgl = (float(np.percentile(one["script"], 95)) for one in (seen, other))
    rate_is = "met" if rate >= FRAMES_PER_S else "missed"
    script_is = "met" if script <= SCRIPT_P95_MS else "missed"
    return row(
        session,
        case,
        Timings({"gpufetch": in_seconds(seen["frames"]), WEBGL: in_seconds(other["frames"])}),
        [WEBGL],
        {WEBGL: LABELS[WEBGL].format(seen["webgl"])},
        f"{rate:.1f} frames a second, goal of {FRAMES_PER_S:.0f}: {rate_is}; WebGL {by_webgl:.1f}",
        f"95th percentile of script {script:.1f} ms, goal of {SCRIPT_P95_MS:.0f} ms: {script_is}; "
        f"WebGL {of_webgl:.1f} ms",
        f"no message went to the kernel; drawn by {seen['renderer']}",
    )


# --- Beside others ----------------------------------------------------------------------------


def compared(session: Session, kind: str) -> list[Row]:
    """Ways to look at one array take turns in one page."""
    values, ways = (image(), IMAGES) if kind == "image" else (line(), LINES)
    absent = [f"{name} ({', '.join(missing(name))})" for name in ways if missing(name)]
    used = {name: way for name, way in ways.items() if not missing(name)}
    folder = session.scratch / f"page-{kind}"
    folder.mkdir()
    np.save(folder / "field.npy", values)
    codes, described = cells_of(used, levels_of(values))
    (folder / "ways.json").write_text(json.dumps(described))
    with started_lab(folder, codes) as port:
        seen = seen_in_page("compared_page.py", port, folder, ROUNDS)
    keep_pictures(folder)
    of = f"an {kind}" if kind == "image" else f"a {kind}"
    of += f" of {' × '.join(map(str, values.shape))}"
    return [
        compared_row(session, f"page {text.format(of)}", use, seen, absent)
        for use, text in USES.items()
    ]


def missing(name: str) -> list[str]:
    needed = NEEDED.get(name, ())
    return [module for module in needed if importlib.util.find_spec(module) is None]


def levels_of(values: Array) -> list[float] | None:
    """How bright the middle of an image is after each use."""
    if values.ndim < 2:
        return None
    return [float(values[SIDE // 2, round(place * SIDE)] + 1) / 2 for place in PLACES.values()]


def cells_of(
    ways: dict[str, Way], levels: list[float] | None
) -> tuple[list[str], list[dict[str, Any]]]:
    """The cells of the notebook, and what compared_page.py is told of each way."""
    here = Path(__file__).resolve().parents[1]
    load = "x = ways.gf.to_device(ways.np.load('field.npy'))"
    cells = [
        f"import sys\nsys.path.append({str(here)!r})\nfrom cases import page_ways as ways\n{load}"
    ]
    described: list[dict[str, Any]] = []
    for name, way in ways.items():
        described.append({"name": name, "cover": way.cover, "levels": levels})
        described[-1] |= {"show": len(cells), "quiet_ms": way.quiet_ms}
        cells.append(f"ways.{way.show.__name__}(x)")
    for found, way in zip(described, ways.values(), strict=True):
        found["zoom"] = len(cells) if way.zoom else None
        cells += [f"ways.{way.zoom.__name__}()"] if way.zoom else []
    return cells, described


def compared_row(session: Session, case: str, use: str, seen: Any, absent: list[str]) -> Row:
    """A row of one use: milliseconds until nothing changes any more, and the bytes."""
    if VIEWER in seen["failed"]:
        raise RuntimeError(seen["failed"][VIEWER])
    failed: dict[str, str] = seen["failed"]  # such a way has no times
    found = {name: uses[use] for name, uses in seen["seen"].items() if name not in failed}
    seconds = {name: in_seconds([one["last"] for one in of]) for name, of in found.items()}
    said = {name: said_of(of) for name, of in found.items()}
    others = [name for name in found if name != VIEWER]
    made = row(
        session,
        case,
        Timings(seconds, failed),
        [*others, *failed],
        {name: f"{name}: {said[name]}" for name in others},
        f"gpufetch is {VIEWER}: {said[VIEWER]}",
        gpufetch=VIEWER,
        moved={name: [of[-1]["received"], of[-1]["out"]] for name, of in found.items()},
    )
    return {**made, "absent": [*made["absent"], *absent]}


def said_of(seen: list[dict[str, Any]]) -> str:
    first = float(np.median([one["first"] for one in seen]))
    received, sent = seen[-1]["received"], seen[-1]["out"]
    return f"something new after {first:.0f} ms; {received:,} bytes to the page, {sent:,} from it"


# --- Rows -------------------------------------------------------------------------------------


def in_seconds(milliseconds: list[float]) -> list[float]:
    return [ms / 1e3 for ms in milliseconds]


def row(
    session: Session,
    case: str,
    timings: Timings,
    peers: list[str],
    labels: dict[str, str],
    *notes: str,
    gpufetch: str = "gpufetch",
    **extra: Any,
) -> Row:
    return make_row(
        session,
        case,
        timings,
        nbytes=0,
        unit=MICROSECONDS,
        gpufetch=gpufetch,
        peers=peers,
        labels=labels,
        note="; ".join([*notes, load()]),
        **extra,
    )


def keep_pictures(folder: Path) -> None:
    """Copy screenshots to $GPUFETCH_TEST_PICTURES, where that is set."""
    wanted = os.environ.get("GPUFETCH_TEST_PICTURES")
    for picture in folder.glob("*.png") if wanted else ():
        Path(str(wanted), f"{folder.name}-{picture.name}").write_bytes(picture.read_bytes())
