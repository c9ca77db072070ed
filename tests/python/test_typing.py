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


@pytest.mark.parametrize("path", sorted(HERE.glob("typed_*.py")), ids=lambda path: path.name)
def test_results_are_typed(path: Path, tmp_path: Path) -> None:
    package = Path(gf.__file__).parent
    (tmp_path / package.name).symlink_to(package)  # mypy takes no path into site-packages
    command = [
        *(
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-error-summary",
            "--follow-imports=silent",
        ),
        *("--config-file=", "--cache-dir", str(tmp_path / "cache"), str(path)),
    ]
    done = subprocess.run(
        command,
        env={**os.environ, "MYPYPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
