"""Writes format-2.h5 and format-2.json into this folder: files of version 2 of the chunk format.

Run once for each version, with the gpufetch that writes it: python tests/data/make_fixtures.py.
What was released stays as it is, so nothing is overwritten; to add cases, write another pair.
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

VERSION = max(fixture_values.FILES)


def main() -> None:
    data, manifest = (FOLDER / f"format-{VERSION}{suffix}" for suffix in (".h5", ".json"))
    for path in (data, manifest):
        if path.exists():
            raise SystemExit(f"{path} exists: fixtures are kept for ever and never written again")
    entries = {}
    cases = fixture_values.FILES[VERSION]
    with h5py.File(data, "w", libver=("v110", "v110")) as file:
        for case in cases:
            fixture_values.write(file, case)
    with h5py.File(data, "r") as file:
        for case in cases:
            mask, chunk = file[case.name].id.read_direct_chunk((0,) * len(case.shape))
            assert mask == 0 and chunk[4] == VERSION, case.name
            entries[case.name] = {
                "chunk_sha256": hashlib.sha256(chunk).hexdigest(),
                "values_sha256": hashlib.sha256(np.ascontiguousarray(case.values())).hexdigest(),
            }
    manifest.write_text(json.dumps(entries, indent=1) + "\n")


if __name__ == "__main__":
    main()
