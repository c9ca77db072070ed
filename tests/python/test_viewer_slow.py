"""The viewer over a slow line: its tiles travel encoded, and are decoded in the page to their bits.

jupyter_pages.py says which JupyterLab.
"""

from __future__ import annotations

import os
import sys
import urllib.parse
from typing import Any

import pytest

pytest.importorskip("jupyter_client")
pytest.importorskip("anywidget")

from jupyter_pages import (
    PROGRAMS,
    Lab,
    notebook_in,
    notebook_lab,  # noqa: F401  (a fixture)
    pictures_of,
)
from serving import needs_server
from test_viewer_page import close, colour, pointed

sys.path.append(str(PROGRAMS))
from slow_line import slow_line

pytestmark = needs_server

ROWS, COLUMNS = 1 << 15, 2048
NBYTES_PER_S = float(os.environ.get("GPUFETCH_TEST_LINE", "2e6"))
VIEWS = int(os.environ.get("GPUFETCH_TEST_VIEWS", "1"))
CELLS = (
    f"""import numpy as np
import gpufetch as gf
row = np.arange({ROWS}, dtype=np.float32)[:, None]
column = np.arange({COLUMNS}, dtype=np.float32)
x = gf.to_device(np.sin(row / 300) * np.cos(column / 500))""",
    "gf.view(x, names=['x'], vmin=-1, vmax=1)",
)


def seen_over(port: int, lab: Lab, url: str, *plain: str) -> Any:
    over = urllib.parse.urlsplit(url)._replace(netloc=f"127.0.0.1:{port}").geturl()
    seen = lab.use("slow_page.py", over, pictures_of(lab.folder), VIEWS, *plain)
    print(plain or "encoded", [round(ms) for ms in seen["views"]])
    return seen


def test_over_a_slow_line_tiles_are_encoded_or_plain_and_no_use_of_the_page_is_undone(
    notebook_lab: Lab,  # noqa: F811
) -> None:
    path = notebook_in(notebook_lab.folder / "slow", CELLS)
    name = f"{path.parent.name}/{path.name}"
    url = notebook_lab.page("lab", name)
    to_port = urllib.parse.urlsplit(url).port
    assert to_port is not None
    with notebook_lab.session(name), slow_line(to_port, NBYTES_PER_S, 0.1) as port:
        encoded = seen_over(port, notebook_lab, url)
        plain = seen_over(port, notebook_lab, url, "plain")
    assert (encoded["tiles"], plain["tiles"]) == ("encoded", "plain")
    assert "not encoded" in plain["note"] and "WebAssembly" in plain["note"]
    assert encoded["note"] == ""
    assert encoded["pixel"] == plain["pixel"]
    _, (row, column), value = pointed(encoded["status"])
    assert pointed(plain["status"])[1:] == ((row, column), value)
    is_software = "SwiftShader" in encoded["webgl"] or "llvmpipe" in encoded["webgl"]
    assert (encoded["renderer"] == "Canvas2dRenderer") == is_software
    for seen in (encoded, plain):  # what the kernel repeats has not undone what came after it
        _, (before, same), _ = pointed(seen["back"])
        assert same == column and 1.45 < (row - before) / seen["rows"] < 1.55
    assert close(encoded["pixel"], colour(float(value), -1, 1), 2)
