"""Writes format-1.h5 and format-1.json into this folder: files of chunk format version 1 to keep.

Run once, with gpufetch installed: python tests/data/make_fixtures.py. What was released stays as
it is, so nothing is overwritten; to add cases, write another pair of files.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import h5py
import numpy as np

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "python"))

import fixture_values  # noqa: E402


def main() -> None:
    data, manifest = FOLDER / "format-1.h5", FOLDER / "format-1.json"
    for path in (data, manifest):
        if path.exists():
            raise SystemExit(f"{path} exists: fixtures are kept for ever and never written again")
    entries = {}
    cases = list(fixture_values.version_1())
    with h5py.File(data, "w", libver=("v110", "v110")) as file:
        for case in cases:
            fixture_values.write(file, case)
    with h5py.File(data, "r") as file:
        for case in cases:
            mask, chunk = file[case.name].id.read_direct_chunk((0,) * len(case.shape))
            assert mask == 0 and chunk[4] == 1, case.name
            entries[case.name] = {
                "chunk_sha256": hashlib.sha256(chunk).hexdigest(),
                "values_sha256": hashlib.sha256(np.ascontiguousarray(case.values())).hexdigest(),
            }
    manifest.write_text(json.dumps(entries, indent=1) + "\n")


if __name__ == "__main__":
    main()
