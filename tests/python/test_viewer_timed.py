"""The viewer in JupyterLab's page, as the benchmark `page` times it: what panning asks the kernel.

jupyter_pages.py says which JupyterLab.
"""

from __future__ import annotations

import pytest

pytest.importorskip("jupyter_client")
pytest.importorskip("anywidget")

from jupyter_pages import (
    Lab,
    notebook_in,
    notebook_lab,  # noqa: F401  (a fixture)
)
from serving import needs_server

pytestmark = needs_server

TILES, SECONDS = 4, 1
CELLS = (
    """import os
import numpy as np
import gpufetch as gf
x = gf.to_device(np.sin(np.arange(1 << 24, dtype=np.float32) / 1e5).reshape(4096, 4096))""",
    "gf.view(x)",
    "while not os.path.exists('go-on'): pass",
)


def test_panning_over_tiles_that_are_there_asks_the_kernel_for_nothing(
    notebook_lab: Lab,  # noqa: F811
) -> None:
    path = notebook_in(notebook_lab.folder / "timed", CELLS)
    name = f"{path.parent.name}/{path.name}"
    with notebook_lab.session(name):
        url = notebook_lab.page("lab", name)
        seen = notebook_lab.use("timed_page.py", url, path.parent, TILES, SECONDS)
    assert (seen["sent"], seen["came"], seen["console"]) == (0, 0, [])
    assert len(seen["frames"]) > 5 and len(seen["script"]) > 5
    assert seen["canvas"] == [512, 512]
    assert len(seen["tiles"]) == len(seen["busy"]) == TILES
    assert 0 < seen["first"] <= seen["whole"]
    (tiles, _), (state, sent) = (seen["moved"][f"pan {how}"] for how in ("by half a view", "back"))
    assert state < 10_000 and sent < 10_000 and tiles > state
