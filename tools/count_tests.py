#!/usr/bin/env python3
"""Count what `meson test` and pytest ran, and say how much was skipped for want of a GPU.

The last line is always `N passed, N failed, N skipped`. Exits with 1 if anything failed, if
nothing ran, if --status is not 0, and, with --gpu-required, if a test was skipped for want of a
GPU.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

NO_GPU = "no GPU:"
TAP_LINE = re.compile(r"^(not )?ok\b[^#]*(?:# *SKIP\S*\s*(.*))?$", re.IGNORECASE)
LINES_MAX = 10  # of each kind of detail
PASSED_RESULTS = ("OK", "EXPECTEDFAIL")


@dataclass
class Count:
    """Outcomes of one group of tests."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)  # name, reason

    def __add__(self, other: Count) -> Count:
        return Count(
            self.passed + other.passed,
            self.failed + other.failed,
            self.skipped + other.skipped,
        )

    def __str__(self) -> str:
        return f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"

    @property
    def no_gpu(self) -> list[tuple[str, str]]:
        return [skip for skip in self.skipped if skip[1].startswith(NO_GPU)]


def count_meson(log: Path) -> Count:
    """Count TAP lines in meson's testlog.json; a test that speaks no TAP counts as one."""
    count = Count()
    for line in log.read_text().splitlines():
        test = json.loads(line)
        program, result = test["name"], test["result"]
        failed_before = len(count.failed)
        cases, remarks = [], []
        for tap_line in test.get("stdout", "").splitlines():
            case = TAP_LINE.match(tap_line)
            if not case:
                remarks.append(tap_line)
                continue
            cases.append(case)
            name = f"{program}: {case.group(0)}"
            if case.group(1):  # what it printed says which check failed
                count.failed.append("\n  ".join([name, *remarks[-LINES_MAX:]]))
            elif case.group(2) is not None:
                count.skipped.append((name, case.group(2).strip()))
            else:
                count.passed += 1
            remarks = []
        if result == "SKIP" and not cases:
            count.skipped.append((program, ""))
        elif result in PASSED_RESULTS and not cases:
            count.passed += 1
        elif result not in (*PASSED_RESULTS, "SKIP") and len(count.failed) == failed_before:
            # It crashed, timed out or broke off.
            printed = [*remarks, *test.get("stderr", "").splitlines()]
            count.failed.append("\n  ".join([f"{program}: {result}", *printed[-LINES_MAX:]]))
    return count


def count_pytest(report: Path) -> Count:
    """Count the cases of a JUnit report."""
    count = Count()
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        skip, failure = case.find("skipped"), case.find("failure")
        failure = case.find("error") if failure is None else failure
        if failure is not None:
            message = (failure.get("message") or "").splitlines()
            count.failed.append("\n  ".join([name, *message[:LINES_MAX]]))
        elif skip is not None:
            count.skipped.append((name, skip.get("message") or ""))
        else:
            count.passed += 1
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description="Count the tests that ran.")
    parser.add_argument("--meson", type=Path, help="meson-logs/testlog.json")
    parser.add_argument(
        "--pytest",
        type=Path,
        action="append",
        help="what pytest --junit-xml wrote; may be repeated",
    )
    parser.add_argument("--gpu-required", action="store_true", help="a missing GPU is a failure")
    parser.add_argument("--status", type=int, default=0, help="exit status of the runs counted")
    args = parser.parse_args()

    total = Count()
    groups = [("C", args.meson, count_meson)]
    groups += [("Python", report, count_pytest) for report in args.pytest or []]
    for label, path, read in groups:
        if path is None:
            continue
        if not path.is_file():
            count = Count(failed=[f"{path} is missing: the {label} tests did not finish"])
        else:
            count = read(path)
        total += count
        ran = count.passed + len(count.failed)
        print(f"{label + ' tests:':13} {ran} ran; {count} ({len(count.no_gpu)} for want of a GPU)")
    for name in total.failed:
        print(f"failed: {name}")
    if args.gpu_required:
        for name, reason in total.no_gpu[:LINES_MAX]:
            print(f"skipped for want of a GPU: {name}: {reason}")
    others = Counter(reason for _, reason in total.skipped if not reason.startswith(NO_GPU))
    for reason, tests in others.most_common(LINES_MAX):
        print(f"skipped: {tests} x {reason or 'no reason given'}")
    ran_nothing = total.passed + len(total.failed) == 0
    if ran_nothing or (args.status and not total.failed):
        print("FAILED without a failed test: see the output above")
    print(total)
    no_gpu_refused = args.gpu_required and bool(total.no_gpu)
    return int(bool(total.failed) or ran_nothing or bool(args.status) or no_gpu_refused)


if __name__ == "__main__":
    sys.exit(main())
