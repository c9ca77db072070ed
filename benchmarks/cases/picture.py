"""The time to the first picture of a large tensor: from a cell's call to the bytes of its PNG.

The cells run in an IPython kernel in this process, so that no message travels. The tensor has bands
of eight values, from which a picture's colours are known.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import importlib.util
import io
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import gpufetch as gf
from cases import Case
from harness import MICROSECONDS, Array, Contender, Row, Session, load, make_row, measure, report

GIB, MIB = 1 << 30, 1 << 20
BANDS = 8
GOAL_S = 0.3  # for 32 GiB on an H200
PEER_NBYTES_MAX = GIB  # what Matplotlib draws takes several times its bytes on the host
ROUNDS, BUDGET_S = 10, 20.0
NEEDED = ("ipykernel", "matplotlib_inline", "matplotlib")
EMBEDDED = re.compile(r"data:image/png;base64,([A-Za-z0-9+/=]+)")

# By what draws it: a cell, and where in its output the PNG is.
CELLS = {
    "plot": ("gf.plot.imshow(x); plt.show()", "image/png"),
    "display": ("gf.lazy(x)", "text/html"),
    "viewer": ("gf.view(x)", "image/png"),
}


def cases(session: Session) -> list[Case]:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        report(f"picture is left out: {', '.join(missing)} missing")
        return []
    kinds = [kind for kind in CELLS if kind != "viewer" or importlib.util.find_spec("anywidget")]
    if "viewer" not in kinds:
        report("the viewer's picture is left out: anywidget is missing")
    return [
        (f"picture {kind} {label(nbytes)}", partial(picture, session, kind, nbytes))
        for nbytes in sizes(session)
        for kind in kinds
    ]


def sizes(session: Session) -> list[int]:
    """A size that every contender draws and, on a GPU, up to 32 GiB in a quarter of its memory."""
    if session.quick:
        return [4 * MIB]
    if session.backend == "host":
        return [256 * MIB]
    total = gf.info()["backends"]["cuda"]["devices"][0]["total_nbytes"]
    return [GIB, min(32 * GIB, 1 << (total // 4).bit_length() - 1)]


def shape_of(nbytes: int) -> tuple[int, int]:
    """Rows, and as many columns or twice as many."""
    rows = 1 << ((nbytes // 4).bit_length() - 1) // 2
    return rows, nbytes // 4 // rows


def label(nbytes: int) -> str:
    return f"{nbytes // GIB} GiB" if nbytes >= GIB else f"{nbytes // MIB} MiB"


def picture(session: Session, kind: str, nbytes: int) -> list[Row]:
    x, pulls = banded(session, shape_of(nbytes))
    with kernel(x, pulls) as run:
        code, mimetype = CELLS[kind]
        began = time.perf_counter()
        first = run(code, mimetype)
        first_s = time.perf_counter() - began
        contenders = [contender("gpufetch", partial(run, code, mimetype), first)]
        if nbytes <= PEER_NBYTES_MAX:
            contenders += [
                contender(name, partial(run, f"plt.imshow(pulls[{name!r}](x)); plt.show()"))
                for name in pulls
            ]
        expected = [np.ones(BANDS, bool)]
        rounds = 1 if session.quick else ROUNDS
        timings = measure(contenders, expected, rounds=rounds, budget_s=BUDGET_S)
    return [
        make_row(
            session,
            f"picture {kind} of {label(nbytes)} of float32, from the call to the PNG's bytes",
            timings,
            nbytes=0,
            unit=MICROSECONDS,
            peers=list(pulls),
            labels={name: f"plt.imshow of all of it, by {name}" for name in pulls},
            note=note_of(session, nbytes, timings.seconds["gpufetch"], first_s),
        )
    ]


def note_of(session: Session, nbytes: int, seconds: list[float], first_s: float) -> str:
    notes = [f"the first one in this kernel, with imports: {first_s * 1e3:,.0f} ms"]
    if session.backend == "cuda" and nbytes == 32 * GIB:
        outcome = "met" if np.median(seconds) <= GOAL_S else "missed"
        notes.append(f"goal of {GOAL_S * 1e3:.0f} ms: {outcome}")
    if nbytes > PEER_NBYTES_MAX:
        notes.append("plt.imshow is left out: it would take several times the tensor on the host")
    return "; ".join([*notes, load()])


# --- The tensor -------------------------------------------------------------------------------


def banded(session: Session, shape: tuple[int, int]) -> tuple[Any, dict[str, Callable[..., Any]]]:
    """The tensor, and what pulls all of it: a peer's way to NumPy for each that has one."""
    names = [one.name for one in session.frameworks]
    if session.backend == "host":
        values = np.repeat(np.arange(BANDS, dtype=np.float32), shape[0] // BANDS)
        made = np.broadcast_to(values[:, None], shape)
        return gf.to_device(np.ascontiguousarray(made), device="host:0"), {"fetch": gf.fetch}
    module = next((name for name in ("torch", "cupy") if name in names), None)
    if module is None:
        raise RuntimeError("needs torch or cupy, to make the tensor and to compare with")
    library: Any = importlib.import_module(module)
    options = {"device": "cuda:0"} if module == "torch" else {}
    x = library.empty(shape, dtype=library.float32, **options)
    rows = shape[0] // BANDS
    for band in range(BANDS):
        x[band * rows : (band + 1) * rows] = band
    if module == "torch":
        library.cuda.synchronize()
        return x, {"t.cpu()": lambda t: t.cpu()}
    library.cuda.Device().synchronize()
    return x, {"cupy.asnumpy": library.asnumpy}


# --- The kernel -------------------------------------------------------------------------------


@contextlib.contextmanager
def kernel(x: Any, pulls: dict[str, Any]) -> Iterator[Callable[..., bytes]]:
    """What runs a cell in a kernel of this process, and returns the PNG in its output."""
    from ipykernel.inprocess.manager import InProcessKernelManager

    manager: Any = InProcessKernelManager()
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    manager.kernel.shell.push({"x": x, "pulls": pulls, "gf": gf})

    def run(code: str, mimetype: str = "image/png") -> bytes:
        client.execute(code)
        found = None
        while client.iopub_channel.msg_ready():
            content = client.get_iopub_msg(timeout=1)["content"]
            if "ename" in content:
                raise RuntimeError(f"{code}: {content['ename']}: {content['evalue']}")
            found = content.get("data", {}).get(mimetype, found)
        if found is None:
            raise RuntimeError(f"{code}: no {mimetype}")
        embedded = EMBEDDED.search(found) if mimetype == "text/html" else None
        return base64.b64decode(embedded[1] if embedded else found)

    try:
        client.execute("%matplotlib inline\nimport matplotlib.pyplot as plt\n%load_ext gpufetch")
        while client.iopub_channel.msg_ready():
            client.get_iopub_msg(timeout=1)
        yield run
    finally:
        client.execute("%xdel x\n%unload_ext gpufetch\n%reset -f")
        client.stop_channels()
        manager.shutdown_kernel()


# --- The answer -------------------------------------------------------------------------------


def contender(name: str, call: Callable[[], bytes], first: bytes | None = None) -> Contender:
    if first is not None and not bands_in(first).all():
        raise ValueError("the first picture does not show the tensor")
    return Contender(name, lambda _: call(), [None], answer=bands_in)


def bands_in(png: bytes) -> Array:
    """Whether the colour of each band takes its share of the picture."""
    from matplotlib import colormaps
    from matplotlib.image import imread

    pixels = np.rint(np.asarray(imread(io.BytesIO(png), format="png"))[..., :3] * 255)
    levels = np.linspace(0, 1, BANDS)
    colours = np.rint(np.asarray(colormaps["viridis"](levels))[:, :3] * 255)
    near = np.abs(pixels[:, :, None, :] - colours).max(axis=-1) <= 4
    shares: Array = near.mean(axis=(0, 1))
    return np.asarray(shares > 0.02)
