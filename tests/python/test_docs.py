"""The documentation as a whole: tutorials run, messages are those of the sources.

`./dev docs` builds the site from it, strictly: a link that leads nowhere is an error there.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from installed import ROOT, install, tool
from sanitizing import needs_deepbind
from server_build import needs_server

DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)

RUNNER = """
import json, subprocess, sys
from pathlib import Path

steps = json.load(sys.stdin)
names = {"__name__": "__main__"}
if any(language == "ipython" for language, _ in steps):
    from IPython.core.interactiveshell import InteractiveShell
    shell = InteractiveShell()
for language, code in steps:
    print(f"--- {language}:", code.splitlines()[0], flush=True)
    if language == "python":
        exec(compile(code, language, "exec"), names)
    elif language == "ipython":
        shell.run_cell(code).raise_error()
    elif language == "sh":
        subprocess.run(["sh", "-ec", code], check=True)
    else:
        assert language == "c"
        Path("heat.c").write_text(code)
"""


def run_tutorial(name: str, folder: Path, **environment: str) -> str:
    """Run every block of the page, from top to bottom, in a folder; what they print."""
    program = folder / "bin" / "gpufetch"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gpufetch "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(FENCE.findall((DOCS / name).read_text())),
        cwd=folder,
        env={
            **os.environ,
            "MPLBACKEND": "Agg",
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_server
def test_the_tutorial_of_a_notebook_runs(tmp_path: Path) -> None:
    for module in ("IPython", "matplotlib", "anywidget", "jupyter_client"):
        pytest.importorskip(module)
    runtime = {"JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime")}
    printed = run_tutorial("tutorial-notebook.md", tmp_path, **runtime)
    assert "\n1 (200,)\n" in printed
    assert "1 device tensor, 1.8 MiB; nothing was copied" in printed


def test_the_tutorial_of_a_reader_runs(tmp_path: Path) -> None:
    tool("h5dump")
    printed = run_tutorial("tutorial-reader.md", tmp_path)
    assert printed.count("(0,0): 1.41421, 1.41138") == 2  # with the plugin, and without the filter
    assert "run.h5: 1 dataset, 781.2 KiB: whole" in printed


@needs_deepbind
def test_the_tutorial_of_a_simulation_goes_on_behind_a_crash(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tool("cc")
    tool("h5diff")
    installed = install(tmp_path_factory)
    printed = run_tutorial("tutorial-simulation.md", tmp_path, **installed.environment)
    assert "goes on from step 0\n" in printed and "it died" in printed
    assert re.search(r"goes on from step 1[24]00\n", printed)
    names = sorted(path.name for path in tmp_path.glob("heat-*.h5"))
    assert names == ["heat-000000001800.h5", "heat-000000002000.h5"]


SOURCES = ("src", "hdf5_filter", "python", "jupyter")


def messages(page: str) -> list[str]:
    """The first cell of each row of a table."""
    return re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)


def test_troubleshooting_has_messages_as_the_sources_have_them() -> None:
    """Of other programs' messages, tests that provoke them have the text."""
    paths = [path for folder in SOURCES for path in (ROOT / folder).rglob("*")]
    joined = "".join(p.read_text() for p in paths if p.suffix in {".c", ".py", ".js"})
    joined = re.sub(r'(" PRI[du]\d+ "|"\s*f?")', "", joined)  # parts of one text
    own, others = (DOCS / "troubleshooting.md").read_text().split("## Messages of other programs")
    assert len(messages(own)) > 20 and len(messages(others)) > 4
    missing = [
        message
        for message in messages(own)
        if not all(part in joined for part in message.split("…"))
    ]
    assert missing == []


def test_hdf5_without_the_filter_says_what_troubleshooting_quotes(tmp_path: Path) -> None:
    import gpufetch as gf

    gf.hdf5.write(tmp_path / "run.h5", "x", gf.to_device(range(10_000)))
    done = subprocess.run(
        [sys.executable, "-c", "import h5py; h5py.File('run.h5')['x'][()]"],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k != "HDF5_PLUGIN_PATH"},
        capture_output=True,
        text=True,
    )
    found = messages((DOCS / "troubleshooting.md").read_text())
    (quoted,) = [m for m in found if m.startswith("can't open directory (")]
    for part in quoted.split("…"):
        assert part in done.stderr, done.stderr


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What MkDocs gets to read."""
    pytest.importorskip("pygments")
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("docs") / "pages"
    subprocess.run([sys.executable, ROOT / "tools" / "docs_pages.py", folder], check=True)
    return folder


@pytest.mark.parametrize("name", ["gpufetch", "gpufetch.hdf5", "gpufetch.plot"])
def test_the_reference_of_python_has_every_public_name(pages: Path, name: str) -> None:
    text = (pages / "reference" / f"{name}.md").read_text()
    titles = set(re.findall(r"^## (\S+)$", text, re.MULTILINE))
    module = importlib.import_module(name)
    public = {n for n in module.__all__ if not n.startswith("__")} - {"hdf5"}
    assert titles == {f"{name}.{n}" for n in public}
    assert text.count("```python") >= len(public) - 4  # exceptions have no signature


def test_the_reference_of_c_has_every_public_function(pages: Path) -> None:
    for header in (ROOT / "src" / "include" / "gpufetch").glob("*.h"):
        declared = re.findall(r"\bGPUF_API\b[^;]*?\b(gpuf_\w+)\s*\(", header.read_text())
        text = (pages / "reference" / f"{header.name}.md").read_text()
        code = "".join(re.findall(r"^```c\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
        assert declared
        assert [name for name in declared if f"{name}(" not in code] == []
        assert "SPDX" not in text and "__cplusplus" not in text


def test_the_site_is_built_without_a_warning_and_loads_nothing(pages: Path, tmp_path: Path) -> None:
    mkdocs = ROOT / ".venv-docs" / "bin" / "mkdocs"
    if not mkdocs.exists():
        pytest.skip("there is no MkDocs: ./dev docs installs it")
    text = (ROOT / "mkdocs.yml").read_text().replace("build-docs/pages", str(pages))
    (tmp_path / "mkdocs.yml").write_text(text.replace("build-docs/site", str(tmp_path / "site")))
    done = subprocess.run(
        [mkdocs, "build", "--strict"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    built = list((tmp_path / "site").rglob("*.html"))
    assert len(built) > 35
    for page in built:
        loaded = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="([^"]+)"', page.read_text())
        assert [url for url in loaded if "//" in url] == [], page


def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import docs_pages, pathlib\n"
        "site = docs_pages.Site(pathlib.Path(sys.argv[2]))\n"
        "page = docs_pages.ROOT / 'docs' / 'lazy.md'\n"
        "site.add(page, 'lazy.md', '[there](fetch.md) [a folder](../src) `x[1](2)` [gone](no.md)')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, ROOT / "tools", tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 1 and "docs/lazy.md: no file no.md" in done.stderr
