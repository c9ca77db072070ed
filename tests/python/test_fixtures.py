"""Files of every released chunk format stay readable.

tests/data holds them, fixture_values says what is in them. They are read through the plugin alone,
by gpufetch, and by the decoder that was written from the document.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import fixture_values
import h5py
import numpy as np
import pytest
from plugin_files import REPOSITORY, plugin_folder
from test_format import block_kinds, decode

import gpufetch

DATA = REPOSITORY / "tests" / "data"
VERSIONS = sorted(fixture_values.FILES)

PLUGIN_READER = """
import hashlib, json, sys
import h5py
import numpy as np

sums = {}
with h5py.File(sys.argv[1], "r") as file:
    for name, dataset in file.items():
        kind = dataset.id.get_type()
        stored = np.zeros(dataset.size * kind.get_size(), "u1")
        dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, stored, kind)
        sums[name] = hashlib.sha256(stored).hexdigest()
assert "gpufetch" not in sys.modules
print(json.dumps(sums))
"""


def file_of(version: int) -> Path:
    return DATA / f"format-{version}.h5"


def cases_of(version: int) -> dict[str, fixture_values.Case]:
    return {case.name: case for case in fixture_values.FILES[version]}


def manifest(version: int) -> dict[str, dict[str, str]]:
    path = file_of(version).with_suffix(".json")
    entries: dict[str, dict[str, str]] = json.loads(path.read_text())
    return entries


def chunks(version: int) -> dict[str, bytes]:
    with h5py.File(file_of(version), "r") as file:
        return {
            name: file[name].id.read_direct_chunk((0,) * len(case.shape))[1]
            for name, case in cases_of(version).items()
        }


@pytest.mark.parametrize("version", VERSIONS)
def test_the_fixtures_are_the_files_that_were_released(version: int) -> None:
    entries, cases = manifest(version), cases_of(version)
    assert set(entries) == set(cases)
    stored = chunks(version)
    assert {chunk[4] for chunk in stored.values()} == {version}
    found = {name: hashlib.sha256(chunk).hexdigest() for name, chunk in stored.items()}
    assert found == {name: entry["chunk_sha256"] for name, entry in entries.items()}
    values = {
        name: hashlib.sha256(np.ascontiguousarray(case.values())).hexdigest()
        for name, case in cases.items()
    }
    assert values == {name: entry["values_sha256"] for name, entry in entries.items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_plugin_alone_reads_every_fixture(version: int) -> None:
    plugins = plugin_folder()
    if plugins is None:
        pytest.skip("libh5z_gpufetch.so is not built")
    run = subprocess.run(
        [sys.executable, "-c", PLUGIN_READER, str(file_of(version))],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "HDF5_PLUGIN_PATH": str(plugins)},
        timeout=120,
    )
    assert json.loads(run.stdout) == {
        name: entry["values_sha256"] for name, entry in manifest(version).items()
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_gpufetch_reads_every_fixture(version: int) -> None:
    with h5py.File(file_of(version), "r") as file:
        for name, case in cases_of(version).items():
            found = gpufetch.hdf5.read(file[name], device="cpu")
            expected = case.values()
            assert found.shape == expected.shape, name
            native = expected.astype(expected.dtype.newbyteorder("="))
            bits = expected.byteswap() if case.big_endian else expected
            assert found.dtype == native.dtype, name
            if case.dtype.startswith("complex") and case.big_endian:
                bits = expected.view(expected.real.dtype).byteswap()
            assert found.tobytes() == bits.tobytes(), name


@pytest.mark.parametrize("version", VERSIONS)
def test_the_decoder_written_from_the_document_reads_every_fixture(version: int) -> None:
    cases = cases_of(version)
    for name, chunk in chunks(version).items():
        assert decode(chunk) == cases[name].values().tobytes(), name


@pytest.mark.parametrize("version", VERSIONS)
def test_the_fixtures_hold_every_dtype_byte_order_and_kind_of_block(version: int) -> None:
    found, cases = chunks(version), cases_of(version)
    assert {chunk[5] for chunk in found.values()} == set(range(1, 24))
    assert {(chunk[6], chunk[7]) for chunk in found.values()} >= {
        (0, 0),
        (1, 0),
        *((2, transform) for transform in range(4)),
        (3, 0),
        (3, 3),
    }
    big_endian = {(chunk[6], chunk[7]) for chunk in found.values() if chunk[10] & 1}
    assert big_endian >= {(2, 0), (2, 1), (2, 3), (3, 0), (3, 3)}
    assert {chunk[9] for chunk in found.values()} >= {1, 2, 3, 8}
    assert any(chunk[6] == 2 and chunk[10] == 1 and any(chunk[72:80]) for chunk in found.values())
    kinds = set()
    for name, chunk in found.items():
        kinds |= set(block_kinds(chunk, cases[name].values()))
    assert kinds >= {"0", "1", "1 plain", "1 plain even", "1 sparse", "2", "3"}
    assert kinds >= {"0 sparse", "0 sparse plain", "1 sparse plain", "2 plain", "3 sparse"}
    assert kinds >= {"ranked 0", "ranked 1", "ranked 1 sparse", "ranked 3"}
    has_ranges = any(kind.startswith("2") and kind.endswith("even") for kind in kinds)
    assert has_ranges == (version > 1)


def test_the_fixtures_of_version_2_hold_what_is_new_in_it() -> None:
    found = chunks(2).values()
    w8 = [chunk for chunk in found if chunk[6] == 2]
    assert {chunk[7] for chunk in w8} == set(range(7))
    assert {(chunk[7] in (4, 5, 6), chunk[10] & 10) for chunk in w8 if chunk[7] != 3} == {
        *((False, flags) for flags in (0, 2, 10)),
        *((True, flags) for flags in (0, 2, 10)),
    }
    assert {chunk[10] & 11 for chunk in w8 if chunk[13]} >= {2, 3}  # shifts, big-endian too
    ranked = [chunk for chunk in found if chunk[6] == 3]
    assert {chunk[11] >> 4 for chunk in ranked} >= {3, 4, 5, 7, 8, 9, 11}  # bits of the symbol
    assert {chunk[13] != 0 for chunk in ranked} == {False, True}
    matches = [chunk for chunk in found if chunk[6] == 4]
    assert {chunk[11] & 15 for chunk in matches} == {0, 1, 2}
    assert {(chunk[6], chunk[10] & 1) for chunk in found if chunk[10] & 4} >= {
        *((mode, 0) for mode in (2, 3, 4)),
        (2, 1),
    }


def test_fixtures_are_never_written_again(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for path in DATA.iterdir():
        shutil.copy(path, tmp_path / "data")
    shutil.copytree(REPOSITORY / "tests" / "python", tmp_path / "python")
    run = subprocess.run(
        [sys.executable, str(tmp_path / "data" / "make_fixtures.py")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode != 0 and "kept for ever" in run.stderr
    for version in VERSIONS:
        path = file_of(version)
        assert (tmp_path / "data" / path.name).read_bytes() == path.read_bytes()
