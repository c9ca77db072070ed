"""Displays, completion and plots in pages of JupyterLab and Notebook 7, and where there is none.

jupyter_pages.py says which JupyterLab.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jupyter_client")
pytest.importorskip("ipykernel")
pytest.importorskip("ipympl")

from comm_build import needs_comm
from jupyter_pages import (
    APPLICATIONS,
    KERNEL,
    Lab,
    add_kernel,
    jupyters,
    notebook_in,
    notebook_lab,  # noqa: F401  (a fixture)
    pictures_of,
    python_with_jupyterlab,
)
from matplotlib import colormaps

pytestmark = needs_comm

# The last cell but two makes a figure that is zoomed, of which the last one tells; in the one
# between, a name is completed.
CELLS = (
    """%load_ext gpufetch
import warnings
import numpy as np
import matplotlib.pyplot as plt
import gpufetch as gf
values = np.arange(4_000_000, dtype=np.float32).reshape(2000, 2000)
values[:100, :100] = np.nan
state = {"w": gf.to_device(values)}
bias = gf.to_device(np.zeros(512, np.float32))""",
    "%gpufetch",
    "state['w']",
    """x_host = %gpufetch state["w"][::2]
x_host""",
    """%matplotlib inline
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
gf.plot.imshow(state["w"], ax=left)
gf.plot.hist(state["w"], ax=right)
plt.show()""",
    """%matplotlib ipympl
figure, axes = plt.subplots()
image = gf.plot.imshow(state["w"], ax=axes)
figure.canvas.toolbar_visible = True
plt.show()""",
    "",
    """import json
view = [*axes.get_xlim(), *axes.get_ylim()]
print("whole" if image.note else "zoomed", image.get_array().shape[0], json.dumps(view))""",
)


@pytest.mark.parametrize("application", APPLICATIONS)
def test_displays_completion_and_plots_work_in_a_notebooks_page(
    application: str,
    notebook_lab: Lab,  # noqa: F811
) -> None:
    pictures = pictures_of(notebook_lab.folder) / application
    pictures.mkdir(exist_ok=True)
    seen = seen_in(application, notebook_lab, pictures)
    assert seen["console"] == []
    _, listed, shown, view, *_ = seen["outputs"]
    assert "state['w'] gpufetch (2000, 2000) float32 15.3 MiB" in listed
    assert "2 device tensors, 15.3 MiB; nothing was copied" in listed
    assert "DeviceArray" in shown and "NaN 10,000" in shown and "layout C order" in shown
    assert "LazyArray" in view and "shape (1000, 2000)" in view
    assert seen["completed"] == ["state", "state['w']"]
    check_zoomed(seen)
    for number in (*range(len(CELLS) - 2), "zoomed", "dark", "completion"):
        picture = f"cell-{number}.png" if isinstance(number, int) else f"{number}.png"
        assert (pictures / picture).stat().st_size > 2000


def seen_in(application: str, lab: Lab, pictures: Path) -> Any:
    path = notebook_in(lab.folder / f"{application}-displays", CELLS)
    name = f"{path.parent.name}/{path.name}"
    with lab.session(name):
        url = lab.page(application, name)
        return lab.use("notebook_page.py", url, len(CELLS) - 2, pictures)


def check_zoomed(seen: Any) -> None:
    """The figure shows, in its colours, what its axes say."""
    _, rows, view = seen["zoomed"].split(maxsplit=2)
    left, right, bottom, top = json.loads(view)
    assert int(rows) < 600 and 0 < left < right < 2000 and 0 < top < bottom < 2000
    place = ((top + bottom) / 2 * 2000 + (left + right) / 2) / 4_000_000
    expected = colormaps["viridis"](place, bytes=True)
    np.testing.assert_allclose(seen["colour"], expected, atol=6)


# --- Where there is no page ---


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder of Jupyter's, with the kernel and no server."""
    with jupyters(tmp_path) as made:
        add_kernel(made, KERNEL)
        yield made


WITHOUT_A_PAGE = (
    """%load_ext gpufetch
import numpy as np
import gpufetch as gf
x = gf.to_device(np.arange(480_000, dtype=np.float32).reshape(600, 800))""",
    "%gpufetch",
    "gf.lazy(x)",
    "gf.view(x)",
    """%matplotlib inline
image = gf.plot.imshow(x)""",
)


def test_nbconvert_shows_the_list_the_display_the_viewers_picture_and_the_plot(
    folder: Path,
) -> None:
    pytest.importorskip("anywidget")
    python = python_with_jupyterlab()
    path = notebook_in(folder / "converted", WITHOUT_A_PAGE)
    # As docs/notebook.md says: with the widgets' state, pages show empty frames.
    command = [python, "-m", "nbconvert", "--execute", "--to", "html", path]
    done = subprocess.run(
        [*command, "--ExecutePreprocessor.store_widget_state=False"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if "No module named nbconvert" in done.stderr:
        pytest.skip("no nbconvert: made and run by ./dev test --jupyterlab")
    assert done.returncode == 0, done.stderr
    page = path.with_suffix(".html").read_text()
    assert "nothing was copied" in page
    assert page.count("gpufetch-display") > 0 and "layout" in page
    images = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    sizes = [len(base64.b64decode(image)) for image in images]
    assert len(sizes) == 3 and max(sizes) <= 100_000, sizes
    assert "widget-view+json" not in page


def test_a_console_shows_the_list_the_display_and_the_viewer_as_text(folder: Path) -> None:
    pytest.importorskip("jupyter_console")
    pexpect = pytest.importorskip("pexpect")
    command = ["-m", "jupyter_console", "--simple-prompt", "--kernel", KERNEL]
    environment: Any = {**os.environ, "TERM": "dumb"}
    console = pexpect.spawn(
        sys.executable, command, timeout=90, encoding="utf8", env=environment, cwd=str(folder)
    )
    prompt = r"In \[\d+\]: "
    shown = []
    try:
        console.expect(prompt)
        for line in ("%load_ext gpufetch", "import gpufetch as gf, numpy as np"):
            console.sendline(line)
            console.expect(prompt)
        for line in (
            "x = gf.to_device(np.arange(2000, dtype=np.float32).reshape(40, 50))",
            "%gpufetch",
            "y = %gpufetch x",
            "y",
            "gf.view(x)",
            "%gpufetch --nothing",
        ):
            console.sendline(line)
            console.expect(prompt)
            shown.append(console.before)
        console.sendline("exit")
        console.expect(pexpect.EOF)
    finally:
        console.close(force=True)
    _, listed, _, display, viewer, wrong = shown
    assert re.search(r"x +gpufetch +\(40, 50\) +float32", listed)
    assert "nothing was copied" in listed
    assert "LazyArray(shape=(40, 50), dtype=float32" in display and "1999" in display
    assert "Viewer(" in viewer
    assert "--nothing" in wrong and "--help" in wrong and "Traceback" not in wrong
