"""The viewer in pages of JupyterLab and Notebook 7: what it draws, says and remembers.

jupyter_pages.py says which JupyterLab.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jupyter_client")
pytest.importorskip("anywidget")

from jupyter_pages import (
    APPLICATIONS,
    ENVIRONMENT,
    Lab,
    add_kernel,
    notebook_in,
    notebook_lab,  # noqa: F401  (a fixture)
    pictures_of,
)
from serving import needs_server

import gpufetch as gf
from gpufetch._display.palettes import NAN_COLOUR, PALETTES

pytestmark = needs_server

ROWS, COLUMNS = 1024, 2048
MODULE = Path(gf.__file__).parent / "_viewer" / "viewer.js"

# Each element is its number, but for NaN in the upper left. The viewer of cell 1 is zoomed.
# Cells 3 and 4 run until the page's program has made a file, or opened the other end of a pipe: 4
# keeps the GIL, so that no thread can answer.
CELLS = (
    f"""import ctypes, os, time
import numpy as np
from IPython.display import display
import gpufetch as gf
values = np.arange({ROWS * COLUMNS}, dtype=np.float32).reshape({ROWS}, {COLUMNS})
values[:400, :800] = np.nan
u = gf.to_device(values)""",
    f"""viewer = gf.view(u, u[::-1], names=["u", "mirrored"], vmin=0, vmax={ROWS * COLUMNS})
viewer""",
    """keys = viewer.selection()
viewer.state["profile"] is None, [[key.start, key.stop] for key in keys], viewer.fetch(1).shape""",
    """while not os.path.exists("go-on"):
    time.sleep(0.01)""",
    """os.mkfifo("waits")
ctypes.PyDLL(None).open(b"waits", os.O_RDONLY)""",
    """field = gf.to_device(np.zeros((64, 64), np.float32))
server = gf.serve("viewer-test")
server.publish("field", field)
server.step(1, 0.5)
run = gf.connect("viewer-test")
gf.view(run["field"], names=["field"], vmin=0, vmax=1)""",
    """field = gf.to_device(np.ones((64, 64), np.float32))
server.publish("field", field)
server.step(2, 1.0)""",
    """spike = np.zeros(3_000_000, np.float32)
spike[2_250_000] = 1
volume = np.zeros((3, 40, 60), np.float32) + np.arange(3, dtype=np.float32)[:, None, None]
picture = np.zeros((30, 40, 3), np.uint8)
picture[...] = [10, 200, 30]
display(gf.view(gf.to_device(volume), vmin=0, vmax=2, cmap="gray"))
display(gf.view(gf.to_device(spike)), gf.view(gf.to_device(picture)))""",
    """for number in range(20):
    display(gf.view(gf.to_device(np.full((50, 80), number, np.float32)), vmin=0, vmax=19))""",
    "",
)

OLDER_CELLS = (
    f"""import os, time
import ipykernel
import numpy as np
import gpufetch as gf
assert ipykernel.__version__.startswith("6.")
values = np.arange({ROWS * COLUMNS}, dtype=np.float32).reshape({ROWS}, {COLUMNS})""",
    f"gf.view(gf.to_device(values), vmin=0, vmax={ROWS * COLUMNS})",
    """while not os.path.exists("go-on"):
    time.sleep(0.01)""",
)


def colour(number: float, least: float = 0, most: float = ROWS * COLUMNS) -> list[int]:
    """What viridis has for a value."""
    place = min(1.0, max(0.0, (number - least) / (most - least)))
    return [*map(int, PALETTES["viridis"][int(254 * place + 0.5)]), 255]


def pointed(status: str) -> tuple[str, tuple[int, ...], str]:
    """Name, index and value of what the viewer says of the pointer."""
    found = re.fullmatch(r"(\w*)\[([\d, ]+)\] = (.*)", status)
    assert found, status
    return found[1], tuple(map(int, found[2].split(","))), found[3]


def close(found: list[int], expected: list[int], levels: int = 1) -> bool:
    return bool(np.abs(np.array(found) - np.array(expected)).max() <= levels)


@pytest.mark.parametrize("application", APPLICATIONS)
def test_the_viewer_shows_zooms_follows_and_survives_in_a_notebooks_page(
    application: str,
    notebook_lab: Lab,  # noqa: F811
) -> None:
    seen = seen_in(application, notebook_lab)
    assert seen["console"] == []
    check_whole(seen["whole"])
    window = check_zoomed(seen["zoomed"], seen["state"])
    assert seen["tools"]["histogram"].startswith("histogram from 800 to")
    drawn = {"reloaded": seen["reloaded"]["pixels"], **seen["contrasts"]}
    for step, pixels in drawn.items():
        assert pixels == seen["zoomed"]["pixels"], (step, window)
    assert seen["busy"] == {"was_running": True}
    assert close(seen["followed"]["before"], colour(0, 0, 1))
    assert close(seen["followed"]["after"], colour(1, 0, 1))
    check_kinds(seen["kinds"])
    for number, found in enumerate(seen["many"]["colours"]):
        assert close(found, colour(number, 0, 19)), number
    assert seen["renderer"] == "WebGlRenderer"
    check_renderers(seen["renderers"])
    if application == "lab":
        check_plain(seen["plain"], seen["whole"])
    assert "run the cell again" in seen["restarted"]["alert"]


def test_without_subshells_the_viewer_says_that_it_waits_and_goes_on_after(
    notebook_lab: Lab,  # noqa: F811
) -> None:
    older = Path(os.environ.get(ENVIRONMENT, ""), "ipykernel6")
    if not older.is_dir():
        pytest.skip("no older ipykernel: laid aside and used by ./dev test --jupyterlab")
    add_kernel(notebook_lab.folder, "ipykernel6", older)
    path = notebook_in(notebook_lab.folder / "busy", OLDER_CELLS, "ipykernel6")
    name = f"{path.parent.name}/{path.name}"
    with notebook_lab.session(name, "ipykernel6"):
        url = notebook_lab.page("lab", name)
        pictures = pictures_of(notebook_lab.folder)
        seen = notebook_lab.use("busy_page.py", url, pictures, path.parent)
    assert 500 < seen["said"] <= 1000 + 2 * seen["lag"] and seen["prompt"] == "[*]:"
    _, (row, column), value = pointed(seen["status"])
    assert float(value) == row * COLUMNS + column and abs(row - ROWS / 2) < 8
    assert close(seen["pixel"], colour(ROWS / 2 * COLUMNS), 2)


def seen_in(application: str, lab: Lab) -> Any:
    """What the page's program has seen."""
    path = notebook_in(lab.folder / f"{application}-viewer", CELLS)
    name = f"{path.parent.name}/{path.name}"
    pictures = pictures_of(lab.folder) / application
    pictures.mkdir(exist_ok=True)
    with lab.session(name):
        url = lab.page(application, name)
        return lab.use("viewer_page.py", url, MODULE, pictures, path.parent, lab.folder / "config")


def check_whole(seen: dict[str, Any]) -> None:
    """The pixels are those of the values there, NaN in its colour; the second panel is mirrored."""
    middle, first, *_ = seen["pixels"][:5]
    assert close(middle, colour(ROWS * COLUMNS / 2), 2)
    assert first == [*NAN_COLOUR, 255]
    upper, lower = seen["pixels"][2], seen["pixels"][4]
    assert close(seen["pixels"][5 + 4], upper, 3) and close(seen["pixels"][5 + 2], lower, 3)
    assert upper != lower
    for status, panel in zip(seen["statuses"], ("u", "mirrored"), strict=True):
        found, (row, column), value = pointed(status)
        assert found == panel and abs(column - 0.4 * COLUMNS) < 20 and 500 < row < 700
        source = row if panel == "u" else ROWS - 1 - row
        assert float(value) == source * COLUMNS + column


def check_zoomed(seen: dict[str, Any], state: str) -> Any:
    """Both panels show the elements in the middle, and the kernel knows which."""
    for status in seen["statuses"]:
        name, (row, column), value = pointed(status)
        source = row if name == "u" else ROWS - 1 - row
        assert float(value) == source * COLUMNS + column
        assert abs(row - ROWS / 2) < 8 and abs(column - COLUMNS / 2) < 8
    numbers = list(map(int, re.findall(r"\d+", state.replace("\n", " "))))[-6:]
    top, bottom, left, right, *shape = numbers
    assert 0 < top < ROWS / 2 < bottom < ROWS and 0 < left < COLUMNS / 2 < right < COLUMNS
    assert shape == [bottom - top, right - left] and bottom - top < 300
    assert close(seen["pixels"][0], colour(ROWS / 2 * COLUMNS), 1)
    return numbers


def check_kinds(seen: dict[str, Any]) -> None:
    assert close(seen["volume"], [128, 128, 128, 255], 2)
    assert seen["spike"] > 0.9  # one sample of three millions
    assert seen["picture"] == [10, 200, 30, 255]


def check_renderers(seen: dict[str, Any]) -> None:
    """WebGL2 and the CPU give the same pixels, within a level of the map, but for cells' edges."""
    assert seen["renderer"].startswith("WebGL 2"), seen
    assert len(seen["results"]) == 12
    for case, (different, count) in seen["results"].items():
        assert different < count / 500, case


def check_plain(seen: dict[str, Any], whole: dict[str, Any]) -> None:
    """Without WebGL2 the CPU draws the same; without widgets there is a picture."""
    assert seen["renderer"] == "Canvas2dRenderer" and not seen["webgl2"]
    assert len(seen["different"]) == 2
    for different, count in seen["different"]:
        assert different < count / 500 and count > 100_000
    for pixels, expected in zip(seen["pixels"], whole["pixels"], strict=True):
        assert close(pixels, expected, 2)
    name, (row, column), value = pointed(seen["status"])
    assert name == "u" and float(value) == row * COLUMNS + column
    picture = seen["picture"]
    assert picture["width"] >= 160 and picture["height"] >= 80 and picture["nbytes"] <= 100_000
