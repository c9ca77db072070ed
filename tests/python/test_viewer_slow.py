"""The viewer over a slow line: its tiles travel encoded, and are decoded in the page to their bits.

`./dev test --jupyterlab` makes the environment; see test_jupyterlab.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jupyter_client")
pytest.importorskip("anywidget")

from serving import needs_server
from test_jupyterlab import (
    PAGE,
    TOKEN,
    Lab,
    folder,  # noqa: F401  (a fixture)
    notebook_in,
    python_with_jupyterlab,
    started_lab,
)
from test_viewer_page import close, colour, pointed

sys.path.append(str(PAGE.parent))
from slow_line import slow_line

pytestmark = needs_server

ROWS, COLUMNS = 1 << 15, 2048
NBYTES_PER_S = float(os.environ.get("GPUFETCH_TEST_LINE", "2e6"))
VIEWS = int(os.environ.get("GPUFETCH_TEST_VIEWS", "3"))
CELLS = (
    f"""import numpy as np
import gpufetch as gf
row = np.arange({ROWS}, dtype=np.float32)[:, None]
column = np.arange({COLUMNS}, dtype=np.float32)
x = gf.to_device(np.sin(row / 300) * np.cos(column / 500))""",
    "gf.view(x, names=['x'], vmin=-1, vmax=1)",
)


@pytest.fixture
def lab(folder: Path) -> Iterator[Lab]:  # noqa: F811
    with started_lab(folder, None) as lab:
        yield lab


def seen_over(port: int, lab: Lab, name: str, *plain: str) -> Any:
    pictures = Path(os.environ.get("GPUFETCH_TEST_PICTURES", lab.folder / "pictures"))
    pictures.mkdir(exist_ok=True)
    url = f"http://127.0.0.1:{port}/lab/tree/{name}?token={TOKEN}"
    done = subprocess.run(
        [
            python_with_jupyterlab(),
            PAGE.with_name("slow_page.py"),
            url,
            pictures,
            str(VIEWS),
            *plain,
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{(lab.folder / 'lab.log').read_text()}"
    seen = json.loads(done.stdout)
    print(plain or "encoded", [round(ms) for ms in seen["views"]])
    return seen


def test_tiles_travel_encoded_over_a_slow_line_and_plain_where_there_is_no_webassembly(
    lab: Lab,
) -> None:
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        pytest.skip("no chromium with its chromedriver")
    name = notebook_in(lab.folder, CELLS)
    to_port = urllib.parse.urlsplit(lab.url).port
    assert to_port is not None
    with slow_line(to_port, NBYTES_PER_S, 0.1) as port:
        encoded = seen_over(port, lab, name)
        plain = seen_over(port, lab, name, "plain")
    assert (encoded["tiles"], plain["tiles"]) == ("encoded", "plain")
    assert "not encoded" in plain["note"] and "WebAssembly" in plain["note"]
    assert encoded["note"] == ""
    assert encoded["pixel"] == plain["pixel"]
    _, (row, column), value = pointed(encoded["status"])
    assert pointed(plain["status"])[1:] == ((row, column), value)
    assert close(encoded["pixel"], colour(float(value), -1, 1), 2)
