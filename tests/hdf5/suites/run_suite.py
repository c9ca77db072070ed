"""Runs the test suite of h5py or of hdf5plugin, and writes the outcome of each test as JSON.

    python run_suite.py h5py|hdf5plugin OUT.json [with-gpufetch|accelerated]

With gpufetch, it is imported first, so that its filter is registered while the suite runs.
Accelerated, h5py's subscripts are gpufetch's, too, of however few elements.
"""

import json
import sys
import unittest
import warnings
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from filter_id import FILTER_ID


class Outcomes:
    """A plugin of pytest: what came of each test, the worst of its phases."""

    def __init__(self):
        self.of = {}

    def pytest_collectreport(self, report):
        if report.failed:
            self.of[f"collecting {report.nodeid}"] = "error"

    def pytest_runtest_logreport(self, report):
        outcome = report.outcome
        if outcome == "failed" and report.when != "call":
            outcome = "error"
        if hasattr(report, "wasxfail"):
            outcome = f"expected to fail, {outcome}"
        if report.when == "call" or outcome != "passed":
            self.of[report.nodeid] = outcome


class Result(unittest.TestResult):
    """The same of unittest, each subtest that fails by its own name."""

    def __init__(self):
        super().__init__()
        self.of = {}

    def addSuccess(self, test):  # noqa: N802
        self.of.setdefault(test.id(), "passed")

    def addFailure(self, test, err):  # noqa: N802
        self.of[test.id()] = "failed"

    def addError(self, test, err):  # noqa: N802
        self.of[test.id()] = "error"

    def addSkip(self, test, reason):  # noqa: N802
        self.of[test.id()] = "skipped"

    def addSubTest(self, test, subtest, err):  # noqa: N802
        if err is not None:
            self.of[subtest.id()] = "failed"


def run_h5py():
    import pytest

    outcomes = Outcomes()
    options = ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "-W", "ignore", "--tb=no"]
    pytest.main(["--pyargs", "h5py.tests", *options], plugins=[outcomes])
    return outcomes.of


def run_hdf5plugin():
    warnings.simplefilter("ignore")
    result = Result()
    unittest.defaultTestLoader.loadTestsFromName("hdf5plugin.test").run(result)
    return result.of


def main(suite, out, mode="without"):
    if mode != "without":
        import gpufetch.hdf5
    if mode == "accelerated":
        gpufetch.hdf5._accelerate._NBYTES_MIN = 1
        gpufetch.hdf5.accelerate()
    of = {"h5py": run_h5py, "hdf5plugin": run_hdf5plugin}[suite]()

    from h5py import h5z

    is_loaded = mode != "without"
    assert bool(h5z.filter_avail(FILTER_ID)) == is_loaded == ("gpufetch" in sys.modules)
    Path(out).write_text(json.dumps(of, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
