"""Examples of the pages in other languages than Python: C is compiled, commands run, JSON is read.

Every block is in one of the tables below, or a test fails: so no example is left to itself.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from installed import ROOT, run, tool

import gpufetch as gf

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

# Python's are those of test_pages.py; text is what a program prints, or a mail.
ELSEWHERE = {"python", "text", ""}


def blocks(page: str, language: str) -> list[str]:
    (path,) = [path for path in PAGES if str(path.relative_to(ROOT)) in (page, f"docs/{page}")]
    return [code for found, code in FENCE.findall(path.read_text()) if found == language]


MPI = """
typedef int MPI_Comm;
#define MPI_IN_PLACE ((void *)1)
enum { MPI_INT64_T, MPI_MIN };
int MPI_Allreduce(const void *from, void *to, int count, int type, int op, MPI_Comm comm);
"""
CHECKPOINT = """
void example(gpuf_checkpoint *checkpoint, gpuf_tensor rows, gpuf_stream stream, MPI_Comm comm);
void example(gpuf_checkpoint *checkpoint, gpuf_tensor rows, gpuf_stream stream, MPI_Comm comm) {
int rank = 0, rank_count = 4, first_row = 0;
int64_t step = 1;
gpuf_error err;
gpuf_part part = GPUF_PART_INIT;
gpuf_checkpoint_options options = GPUF_CHECKPOINT_OPTIONS_INIT;
"""
SERVER = """
void example(gpuf_tensor u, double dt, int64_t step);
void example(gpuf_tensor u, double dt, int64_t step) {
gpuf_error err;
"""
PART = """
void example(gpuf_server *server, gpuf_tensor u, int rank);
void example(gpuf_server *server, gpuf_tensor u, int rank) {
gpuf_error err;
"""
# What stands round the blocks of a page, which are taken together: header, blocks, code between.
COMPILED = {
    "checkpoints.md": ("checkpoint.h", [MPI, 0, CHECKPOINT, 1, "(void)options;\n}\n"]),
    "serving.md (a)": ("serve.h", [SERVER, 0, "}\n"]),
    "serving.md (b)": ("serve.h", [PART, 1, "}\n"]),
}

# Commands, and how many of a block's first lines run here.
RUN = {
    ("checkpoints.md", 0): 2,
    ("reading.md", 1): 2,  # the others need Julia and MATLAB
    ("reading.md", 2): 1,
    ("reading.md", 3): 4,
}

# What other tests run, and what no test can.
NAMED = {
    ("README.md", "c"): "test_codebase.py compiles it",
    ("README.md", "sh"): "CI installs and runs the demo",
    ("c-programs.md", "c"): "test_codebase_install.py runs it, and the three below",
    ("c-programs.md", "cmake"): "",
    ("c-programs.md", "sh"): "",
    ("tutorial-notebook.md", "ipython"): "test_docs.py runs the tutorials",
    ("tutorial-reader.md", "sh"): "",
    ("tutorial-simulation.md", "c"): "",
    ("tutorial-simulation.md", "sh"): "",
    ("notebook.md", "ipython"): "test_magic.py runs them",
    ("CONTRIBUTING.md", "sh"): "./dev test, and what takes minutes",
    ("benchmarks/README.md", "sh"): "test_benchmarks.py calls its cases",
    ("gpu-nodes.md", "sh"): "needs a node with a GPU",
    ("release.md", "sh"): "test_install.py: ./dev test --install runs these commands first",
    ("serving.md", "sh"): "test_jupyterlab.py starts JupyterLab so",
}


def test_every_block_is_named_here_or_in_test_pages() -> None:
    named = {*NAMED, *((page, "sh") for page, _ in RUN)}
    named |= {(page.split()[0], "c") for page in COMPILED}
    found = {
        (name.removeprefix("docs/"), language)
        for path in PAGES
        for name in [str(path.relative_to(ROOT))]
        for language, _ in FENCE.findall(path.read_text())
        if language not in {*ELSEWHERE, "json"}
    }
    assert found == named
    # test_reader_wheels.py installs the reader, test_refs.py calls refs.
    for page, others in (("checkpoints.md", 0), ("reading.md", 2)):
        assert len(blocks(page, "sh")) == others + sum(name == page for name, _ in RUN)
    for page, count in (("checkpoints.md", 2), ("serving.md", 2)):
        assert len(blocks(page, "c")) == count


@pytest.mark.parametrize("page", COMPILED)
def test_fragments_of_c_compile(page: str, tmp_path: Path) -> None:
    header, parts = COMPILED[page]
    code = blocks(page.split()[0], "c")
    text = "".join(code[part] if isinstance(part, int) else part for part in parts)
    (tmp_path / "fragment.c").write_text(f"#include <gpufetch/{header}>\n{text}")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    include = f"-I{ROOT / 'src' / 'include'}"
    run(tool("cc", "gcc", "clang"), *flags, include, "fragment.c", cwd=tmp_path)


@pytest.mark.parametrize(("page", "number"), RUN)
def test_commands_run(page: str, number: int, tmp_path: Path) -> None:
    pytest.importorskip("hdf5plugin")  # the other codec's reader, with which repack checks its copy
    tool("h5dump")
    x = gf.to_device(np.arange(10_000, dtype=np.float32).reshape(100, 100))
    gf.hdf5.write(tmp_path / "run.h5", "x", x)
    (tmp_path / "run").mkdir()
    gf.hdf5.write(tmp_path / "run" / "u-000000001000.h5", "u", x)
    (tmp_path / "bin").mkdir()
    for name in ("gpufetch", "hdf5-gpufetch"):  # of which the first has all commands of the second
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gpufetch "$@"\n')
        program.chmod(0o755)
    lines = blocks(page, "sh")[number].splitlines()
    assert len(lines) >= RUN[page, number]
    script = "\n".join(lines[: RUN[page, number]])
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-ec", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_messages_of_the_protocol_are_json() -> None:
    messages = [json.loads(code) for code in blocks("protocol.md", "json")]
    operations = {"hello", *messages[0]["operations"]}
    assert len(messages) > 5 and {message["op"] for message in messages} <= operations
    for code in blocks("benchmarks/README.md", "json"):
        json.loads(code)
