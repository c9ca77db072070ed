"""The Python examples of the pages run, from top to bottom, each page in a process of its own.

An example that cannot run here is named below with the reason; one that needs a framework is run
where that is installed. Tutorials are run by test_docs.py, with their commands and their C;
test_pages_blocks.py has what is not Python on the other pages.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sanitizing import needs_deepbind
from server_build import needs_server

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [page for page in PAGES if not page.name.startswith("tutorial-")]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

# What the text round an example takes for granted: page -> number of the example -> code before it.
GIVEN = {
    "checkpoints.md": {
        0: "import os, types; import numpy as np; import gpufetch as gf; os.mkdir('run')\n"
        "rank, rank_count, first_row = 0, 1, 0; u = np.ones((4096, 4096), np.float32)\n"
        "comm = types.SimpleNamespace(allreduce=lambda value, op: value)\n"
        "MPI = types.SimpleNamespace(MIN=None)",
        1: "import shutil; shutil.rmtree('run')",
    },
    "frameworks.md": {
        0: "import torch; model = torch.nn.Linear(3, 4); x = torch.ones(4, 3)",
        4: "import numpy as np; import gpufetch as gf; x = array = np.ones((4, 3), np.float32)",
        5: "import tensorflow as tf",
    },
    "reading.md": {
        3: "gpufetch.hdf5.write('run.h5', 'x', np.zeros((100, 1000)))",
    },
    "serving.md": {
        0: "import types; import numpy as np; import gpufetch as gf; epoch = 3\n"
        "model = types.SimpleNamespace(weight=gf.to_device(np.ones((4, 3), np.float32)))",
        1: "rank = 3; part = gf.to_device(np.ones((512, 1024), np.float32))",
        2: "import threading, time\n"
        "server.stop(); server = gf.serve('run'); server.set('dt', 0.5); server.step(1900)\n"
        "server.publish('u', gf.to_device(np.ones((64, 512, 512), np.float32)))\n"
        "ended = threading.Event()\n"
        "def steps():\n"
        "    number = 1900\n"
        "    while not ended.wait(0.01):\n"
        "        number += 1; server.step(number)\n"
        "threading.Thread(target=steps).start()",
        3: "ended.set(); run.close(); servers = [gf.serve(f'run-{i}') for i in range(4)]\n"
        "for i, s in enumerate(servers):\n"
        "    s.publish('u', part, start=(512 * i, 0), global_shape=(2048, 1024))",
    },
}
NOT_RUN = {
    ("README.md", 0): "is of a notebook; test_codebase.py runs it",
    ("frameworks.md", 2): "is of a GPU, as the next is; frameworks/ has both",
    ("frameworks.md", 3): "is of a GPU",
    ("frameworks.md", 6): "is of a GPU's address; test_dlpack.py has such owners",
    ("reading.md", 0): "needs hdf5-gpufetch; test_reader_codec.py runs it",
    ("reading.md", 2): "needs hdf5-gpufetch; test_reader_codec.py runs it",
    ("serving.md", 4): "runs until a client ends it; test_serve_stop.py has one",
    ("sharing.md", 0): "is of two processes; test_share.py has both",
}
NEEDS = {
    ("frameworks.md", 0): "torch",
    ("frameworks.md", 1): "torch",
    ("frameworks.md", 4): "jax",
    ("frameworks.md", 5): "tensorflow",
    ("notebook.md", 2): "anywidget",
}

RUNNER = """
import ast, asyncio, inspect, json, sys
names = {"__name__": "__main__"}
for label, code in json.load(sys.stdin):
    try:
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        result = eval(compile(code, label, "exec", flags=flags), names)
        if inspect.iscoroutine(result):
            asyncio.run(result)
    except BaseException:
        print("in", label, file=sys.stderr)
        raise
"""


def examples(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text())


def runnable(page: Path) -> list[tuple[str, str]]:
    """Label and code of each step, what is given before an example included."""
    steps = []
    for number, code in enumerate(examples(page)):
        key = (page.name, number)
        given = GIVEN.get(page.name, {}).get(number, "")
        if key in NOT_RUN or (key in NEEDS and not importlib.util.find_spec(NEEDS[key])):
            continue
        steps += [(f"what {page.name} takes for granted", given), (f"{page.name}:{number}", code)]
    return steps


MARKS = {"serving.md": needs_server, "checkpoints.md": needs_deepbind}


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, id=p.name, marks=MARKS.get(p.name, [])) for p in PAGES if runnable(p)],
)
def test_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(runnable(page)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr


def test_every_example_is_python_and_every_exception_is_needed() -> None:
    found = {(page.name, i): code for page in PAGES for i, code in enumerate(examples(page))}
    for (name, number), code in found.items():
        if name != "README.md" or number != 0:  # magics
            compile(code, f"{name}:{number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    given = {(name, number) for name, steps in GIVEN.items() for number in steps}
    assert {*NOT_RUN, *NEEDS, *given} <= set(found)
