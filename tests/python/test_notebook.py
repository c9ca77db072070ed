"""The quickstart notebook: committed clean, and runs headless."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("nbclient")

import nbformat
from nbclient import NotebookClient

import gpufetch as gf

SOURCE = Path(__file__).parents[2] / "notebooks" / "quickstart.ipynb"


@pytest.fixture
def notebook() -> Any:
    return nbformat.read(SOURCE, as_version=4)  # type: ignore[no-untyped-call]


def write_checkpoint(directory: Path, step: int) -> Any:
    """Write a file as examples/gray_scott does, with a blob instead of a solution."""
    axes = np.meshgrid(*[np.linspace(-1, 1, n) for n in (14, 16, 20)], indexing="ij")
    v = (0.4 * np.exp(-4 * sum(axis**2 for axis in axes))).astype(np.float32)
    with h5py.File(directory / f"gray_scott_{step:06}.h5", "w") as file:
        file.attrs.update({"step": step, "time": float(step)})
        gf.hdf5.write(file, "u", gf.to_device(1 - v))
        gf.hdf5.write(file, "v", gf.to_device(v))
    return v


def test_the_notebook_is_committed_without_outputs(notebook: Any) -> None:
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
    assert figures == ["plot-v", "plot-dem", "plot-transect"]
    text = outputs["checkpoints"][0].text
    assert "2 checkpoints; the last: gray_scott_001000.h5, step 1000, t = 1000" in text
    assert f"{v.min():.4f} to {v.max():.4f}" in text
    listing = outputs["list"][0].data
    assert "d_dem" in listing["text/plain"]
    assert "(344, 403)" in listing["text/html"]
    assert "LazyArray(shape=(344, 403), dtype=int16" in outputs["wrap"][0].data["text/plain"]
    assert f"pulled {172 * 202 * 2} of {344 * 403 * 2} bytes" in outputs["plot-dem"][0].text
