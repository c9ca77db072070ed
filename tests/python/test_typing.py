"""What type checkers say: results have types, and misuses are found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpufetch as gf

pytest.importorskip("mypy")

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, as mypy takes no path into site-packages, and mypy's cache."""
    folder = tmp_path_factory.mktemp("typing")
    package = Path(gf.__file__).parent
    (folder / package.name).symlink_to(package)
    return folder


@pytest.mark.parametrize("path", sorted(HERE.glob("typed_*.py")), ids=lambda path: path.name)
def test_results_are_typed(path: Path, folder: Path) -> None:
    command = [
        *(
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-error-summary",
            "--follow-imports=silent",
        ),
        *("--config-file=", "--cache-dir", str(folder / "cache"), str(path)),
    ]
    done = subprocess.run(
        command,
        env={**os.environ, "MYPYPATH": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
