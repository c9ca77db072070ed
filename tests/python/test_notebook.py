"""The notebooks: committed clean, run headless, alone and twice in one kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import h5py
import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("nbclient")

import nbformat
from comm_build import needs_comm
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbclient.util import run_sync
from sanitizing import needs_deepbind

import gpufetch as gf

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
MARKS = {
    "simulation": [needs_deepbind],
    "segmentation": [pytest.mark.skipif(not find_spec("torch"), reason="PyTorch is not installed")],
}
every_notebook_that_runs = pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.name, marks=MARKS.get(path.stem, [])) for path in NOTEBOOKS],
)


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


@pytest.fixture
def notebook() -> Any:
    return read(FOLDER / "quickstart.ipynb")


def write_checkpoint(directory: Path, step: int) -> Any:
    """Write a file as examples/gray_scott does, with a blob instead of a solution."""
    axes = np.meshgrid(*[np.linspace(-1, 1, n) for n in (14, 16, 20)], indexing="ij")
    v = (0.4 * np.exp(-4 * sum(axis**2 for axis in axes))).astype(np.float32)
    with h5py.File(directory / f"gray_scott-{step:012}.h5", "w") as file:
        file.attrs.update({"step": step, "time": float(step)})
        gf.hdf5.write(file, "u", gf.to_device(1 - v))
        gf.hdf5.write(file, "v", gf.to_device(v))
    return v


@every_notebook
def test_a_notebook_is_committed_without_outputs(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)


def test_the_notebook_runs_headless(notebook: Any, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 500)
    v = write_checkpoint(tmp_path, 1000)
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute(env={**os.environ, "GPUFETCH_DEMO_DIR": str(tmp_path)})

    outputs = {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    figures = [
        name
        for name, cell_outputs in outputs.items()
        if any("image/png" in output.get("data", {}) for output in cell_outputs)
    ]
    reduced = ["plot-reduced", "plot-envelope", "plot-slices"]
    assert figures == ["plot-v", "plot-dem", "plot-transect", *reduced]
    assert any("lowest to highest of" in o.get("text", "") for o in outputs["plot-envelope"])
    text = outputs["checkpoints"][0].text
    assert "2 checkpoints; the last: gray_scott-000000001000.h5, step 1000, t = 1000" in text
    assert f"{v.min():.4f} to {v.max():.4f}" in text
    listing = outputs["list"][0].data
    assert "d_dem" in listing["text/plain"]
    assert "(344, 403)" in listing["text/html"]
    assert "LazyArray(shape=(344, 403), dtype=int16" in outputs["wrap"][0].data["text/plain"]
    assert f"pulled {172 * 202 * 2} of {344 * 403 * 2} bytes" in outputs["plot-dem"][0].text


@needs_comm
@every_notebook_that_runs
def test_a_notebook_runs_alone_and_twice_in_one_kernel(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an empty folder, without what other commands leave behind."""
    monkeypatch.delenv("GPUFETCH_DEMO_DIR", raising=False)
    runs = [read(path), read(path)]
    client = NotebookClient(
        runs[0], timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    with client.setup_kernel():
        for notebook in runs:
            client.nb = notebook
            for index, cell in enumerate(notebook.cells):
                client.execute_cell(cell, index)  # raises what the cell raises
    for notebook in runs:
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert all(cell.execution_count for cell in cells)
        errors = [o.text for cell in cells for o in cell.outputs if o.get("name") == "stderr"]
        assert errors == []
        assert sum("image/png" in o.get("data", {}) for cell in cells for o in cell.outputs) > 0
    assert list(tmp_path.iterdir()) == []


def test_a_notebook_that_needs_pytorch_ends_with_one_line_without_it(tmp_path: Path) -> None:
    """Also where PyTorch is installed: here it cannot be imported."""
    notebook = read(FOLDER / "segmentation.ipynb")
    hidden = nbformat.v4.new_code_cell("import sys; sys.modules['torch'] = None")
    notebook.cells.insert(0, hidden)
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    with pytest.raises(CellExecutionError, match="this notebook needs PyTorch"):
        client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    (line,) = outputs[-1].traceback
    assert line.startswith("NOT RUN HERE: this notebook needs PyTorch (import of torch halted")


AWAITS = [
    "import asyncio\nimport numpy as np\nimport gpufetch as gf\nfrom gpufetch import _core\n"
    "x = gf.to_device(np.arange(1 << 19), device='host:0')\n"
    "_core._host_faults(bandwidth=40e6)",
    "turns = 0\n"
    "async def tick():\n"
    "    global turns\n"
    "    while True:\n"
    "        turns += 1\n"
    "        await asyncio.sleep(0.001)\n"
    "ticking = asyncio.ensure_future(tick())",
    "values = await gf.fetch_async(x)\n"
    "assert (values == np.arange(1 << 19)).all() and turns > 5, turns",
    "try:\n"
    "    await asyncio.wait_for(gf.fetch_async(x), 0.01)\n"
    "except TimeoutError:\n"
    "    print('too late')\n"
    "ticking.cancel();",
]


def test_a_future_is_awaited_in_a_cell(tmp_path: Path) -> None:
    """The kernel's own loop runs already, and goes on."""
    cells = [nbformat.v4.new_code_cell(source) for source in AWAITS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    with client.setup_kernel():
        for _ in range(2):
            for index, cell in enumerate(notebook.cells):
                client.execute_cell(cell, index)  # raises what the cell raises
    assert [output.text for output in notebook.cells[-1].outputs] == ["too late\n"]


@pytest.mark.parametrize("path", [FOLDER / "simulation.ipynb"], ids=["simulation"])
@needs_comm
@needs_deepbind
def test_a_cell_that_is_stopped_does_not_stop_the_simulation(path: Path, tmp_path: Path) -> None:
    """Jupyter interrupts the process group of the kernel."""
    notebook = read(path)
    ending = (
        "try:\n"
        "    print(program.wait(2))\n"
        "except subprocess.TimeoutExpired:\n"
        "    print('runs')\n"
        "program.kill()\n"
        "_ = program.communicate()"
    )
    cells = [cell for cell in notebook.cells if cell.id in ("imports", "program")]
    notebook.cells = [*cells, nbformat.v4.new_code_cell(ending)]
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    with client.setup_kernel():
        for index, cell in enumerate(notebook.cells[:-1]):
            client.execute_cell(cell, index)
        run_sync(cast(Any, client.km).interrupt_kernel)()
        client.execute_cell(notebook.cells[-1], len(notebook.cells) - 1)
    assert [output.text for output in notebook.cells[-1].outputs] == ["runs\n"]


# What each cell of frameworks.ipynb that may be left out needs.
FRAMEWORK_CELLS = {
    "tensors that require grad": ["torch"],
    "a model's weights": ["torch"],
    "bfloat16 and float8": ["torch"],
    "bfloat16 of JAX": ["jax"],
    "asynchronous copies": ["torch"],
    "slices into a mapped file": ["torch"],
    "CuPy to PyTorch": ["cupy", "torch", "a GPU"],
    "JAX to PyTorch": ["jax", "torch"],
    "CuPy to TensorFlow": ["cupy", "tensorflow", "a GPU"],
    "PyTorch to TensorFlow": ["torch", "tensorflow"],
    "raw pointers": ["cupy", "torch", "a GPU"],
    "PyTorch's tensors between processes": ["torch", "a GPU"],
}


def test_cells_that_need_more_than_there_is_say_so_and_all_others_run(tmp_path: Path) -> None:
    """As a script, which needs no Jupyter: so a GPU node runs it (docs/gpu-nodes.md)."""
    has_gpu = gf.info()["default_device"].startswith("cuda")
    expected = []
    for title, needs in FRAMEWORK_CELLS.items():
        lacking = [n for n in needs if not (has_gpu if n == "a GPU" else find_spec(n))]
        if lacking:
            expected.append(f"{title}: needs {', '.join(lacking)}")
    done = subprocess.run(
        [sys.executable, ROOT / "tools/run_notebook.py", FOLDER / "frameworks.ipynb", tmp_path],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    printed, _, end = done.stdout.partition("## What did not run here\n")
    assert end.splitlines() == (expected or ["Every cell ran."])
    assert printed.count("NOT RUN HERE") == len(expected)
    assert [path.name for path in tmp_path.iterdir()] == ["larger-picture-1.png"]
