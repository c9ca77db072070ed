"""The test suites of h5py and hdf5plugin, whose outcomes gpufetch must not change.

`./dev test --hdf5` makes the environment of tests/hdf5/suites and names its folder's folder in
GPUFETCH_HDF5_ENVIRONMENTS.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from plugin_files import REPOSITORY

import gpufetch as gf

RUNNER = REPOSITORY / "tests" / "hdf5" / "suites" / "run_suite.py"
MODES = ["without", "with-gpufetch", "accelerated"]


@pytest.fixture(scope="module")
def python() -> str:
    if "GPUFETCH_HDF5_ENVIRONMENTS" not in os.environ:
        pytest.skip("made and run by ./dev test --hdf5")
    found = Path(os.environ["GPUFETCH_HDF5_ENVIRONMENTS"]) / "suites" / "bin" / "python"
    assert found.exists(), f"{found} is missing"
    return str(found)


@pytest.mark.parametrize(("suite", "passed_min"), [("h5py", 800), ("hdf5plugin", 50)])
def test_a_suite_gives_the_same_with_gpufetch(
    python: str, tmp_path: Path, suite: str, passed_min: int, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "package"  # of everything that is installed here, gpufetch alone
    package.mkdir()
    (package / "gpufetch").symlink_to(Path(gf.__file__).parent)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    kept.pop("HDF5_PLUGIN_PATH", None)
    processes = []
    for mode in MODES:
        folder = tmp_path / mode
        folder.mkdir()
        log = (folder / "log").open("w")
        environment = {**kept, "TMPDIR": str(folder), "PYTHONPATH": str(package)}
        command = [python, str(RUNNER), suite, f"{folder}.json", mode]
        processes.append(
            subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        )
        log.close()
    statuses = [process.wait() for process in processes]
    assert statuses == [0] * len(MODES), [
        (tmp_path / mode / "log").read_text()[-2000:] for mode in MODES
    ]
    outcomes = {mode: json.loads((tmp_path / f"{mode}.json").read_text()) for mode in MODES}
    without = outcomes["without"]
    with capsys.disabled():
        for mode, found in outcomes.items():
            counts = ", ".join(f"{n} {what}" for what, n in Counter(found.values()).items())
            print(f"\n{suite}'s suite {mode}: {counts}", end="")
    different = {
        (mode, name): (without.get(name, "not run"), found.get(name, "not run"))
        for mode, found in outcomes.items()
        for name in {**without, **found}
        if without.get(name) != found.get(name)
    }
    assert different == {}
    assert Counter(without.values())["passed"] >= passed_min
