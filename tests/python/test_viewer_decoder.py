"""The page's decoder, WebAssembly under Node, gives the bytes and the verdicts of the C decoder."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plugin_files import REPOSITORY
from test_fixtures import VERSIONS, chunks
from test_format import checksum

import gpufetch as gf
from gpufetch import _core
from gpufetch._viewer.messages import DECODER

WIDGET = Path(gf.__file__).parent / "_viewer"
PROGRAM = REPOSITORY / "tests" / "jupyterlab" / "decoder.mjs"
CORPUS = REPOSITORY / "tests" / "fuzz" / "corpus_codec"
HEADER_NBYTES, AT_RAW, AT_PAYLOAD, AT_CHECKSUM = 96, 16, 24, 80
RAW_NBYTES_MAX = 1 << 20  # as in tests/fuzz/chunk_input.h
PAGE_NBYTES_MAX = 1 << 28  # as in jupyter/widget/decoder.c


def sealed(chunk: bytes) -> bytes:
    """With the payload's length and the checksum made right, where that can be."""
    if len(chunk) < HEADER_NBYTES or len(chunk) % 16:
        return chunk
    payload = struct.pack("<Q", len(chunk) - HEADER_NBYTES)
    chunk = chunk[:AT_PAYLOAD] + payload + chunk[AT_PAYLOAD + 8 :]
    return chunk[:AT_CHECKSUM] + checksum(chunk) + chunk[AT_CHECKSUM + 16 :]


def raw_nbytes(chunk: bytes) -> int:
    """What it says that it is decoded to; 64 where it says nothing."""
    found: int = struct.unpack_from("<Q", chunk, AT_RAW)[0] if len(chunk) >= AT_RAW + 8 else 64
    return found


def fixtures() -> list[bytes]:
    return [chunk for version in VERSIONS for chunk in chunks(version).values()]


def damaged(whole: list[bytes]) -> Iterator[bytes]:
    """Each with a byte changed in each part of it and the checksum made right, and cut off."""
    numbers = random.Random(15)
    for chunk in whole:
        end = len(chunk)
        for low, high in (
            (0, AT_CHECKSUM),
            (HEADER_NBYTES, HEADER_NBYTES + 64),
            (96, end),
            (96, end),
        ):
            if low < min(high, end):
                at = numbers.randrange(low, min(high, end))
                other = chunk[at] ^ (1 << numbers.randrange(8))
                yield sealed(chunk[:at] + bytes([other]) + chunk[at + 1 :])
        yield chunk[: numbers.randrange(end)]
        yield sealed(chunk[: numbers.randrange(end) // 16 * 16])
        yield chunk[:-1] + bytes([chunk[-1] ^ 1])


def expected(chunk: bytes, nbytes: int) -> str:
    """The SHA-256 of what the C decoder makes of it, or its message."""
    try:
        return hashlib.sha256(_core.chunk_decode(chunk, nbytes)).hexdigest()
    except (gf.Error, TypeError) as error:
        return str(error)


def decoded_by_node(cases: list[tuple[bytes, int]], folder: Path) -> Any:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node")
    module = folder / "viewer.mjs"
    shutil.copy(WIDGET / "viewer.js", module)
    listed = [[base64.b64encode(chunk).decode(), nbytes] for chunk, nbytes in cases]
    (folder / "cases.json").write_text(json.dumps(listed))
    done = subprocess.run(
        [node, PROGRAM, module, WIDGET / "decoder.wasm", folder / "cases.json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_the_page_decodes_and_refuses_what_the_c_decoder_does(tmp_path: Path) -> None:
    whole = fixtures()
    corpus = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    tried = [*whole, *corpus, *map(sealed, corpus), *damaged(whole)]
    cases = [(chunk, raw_nbytes(chunk)) for chunk in tried]
    cases = [case for case in cases if case[1] <= RAW_NBYTES_MAX]
    cases += [(chunk, raw_nbytes(chunk) + 1) for chunk in whole[:5]]
    seen = decoded_by_node(cases, tmp_path)
    assert seen["imports"] == []
    wanted = [expected(*case) for case in cases]
    assert seen["verdicts"] == wanted
    good = [verdict for verdict in wanted if len(verdict) == 64 and " " not in verdict]
    assert len(good) > len(whole) and len(wanted) - len(good) > 1000
    assert seen["memory"] < 64 << 20  # what is reserved is released


def test_the_page_decodes_tiles_of_every_kind(tmp_path: Path) -> None:
    numbers = np.random.default_rng(15)
    smooth = np.sin(np.arange(65536) / 300).reshape(256, 256).astype(np.float32)
    tiles = [smooth, numbers.random((256, 256)).astype(np.float32), np.zeros((7, 3), np.float32)]
    tiles += [smooth.reshape(-1, 2)[:4096], (smooth * 100).astype(np.uint8).reshape(64, 256, 4)]
    cases = [(_core.chunk_encode(t.tobytes(), t.dtype, t.shape), t.nbytes) for t in tiles]
    seen = decoded_by_node(cases, tmp_path)["verdicts"]
    assert seen == [hashlib.sha256(tile.tobytes()).hexdigest() for tile in tiles]


def test_a_chunk_that_is_too_large_for_a_page_is_refused_before_it_is_read(tmp_path: Path) -> None:
    large = next(chunk for chunk in fixtures() if chunk[6] == 1)
    claims = [PAGE_NBYTES_MAX + 1, 2**32 - 16, 2**32, 2**64 - 1]
    cases = [
        (sealed(large[:AT_RAW] + struct.pack("<Q", claim) + large[AT_RAW + 8 :]), 16)
        for claim in claims
    ]
    for verdict, claim in zip(decoded_by_node(cases, tmp_path)["verdicts"], claims, strict=True):
        assert f"decodes to {claim}; pages decode up to {PAGE_NBYTES_MAX}" in verdict


def test_what_is_no_chunk_of_this_shape_is_not_encoded() -> None:
    with pytest.raises(ValueError, match="data has 3 bytes: the shape needs 4"):
        _core.chunk_encode(b"abc", "float32", (1,))
    with pytest.raises(ValueError, match=r"shape\[1\] is 0"):
        _core.chunk_encode(b"", "float32", (1, 0))
    with pytest.raises(ValueError, match=r"shape\[0\] is 4294967296"):
        _core.chunk_encode(b"", "uint8", (2**32,))
    with pytest.raises(ValueError, match="9 axes"):
        _core.chunk_encode(b"abcd", "float32", (1,) * 9)
    with pytest.raises(ValueError, match="4 GiB"):
        _core.chunk_encode(b"abcd", "float32", (2**31, 2))


def test_the_whole_widget_is_small() -> None:
    assert len(DECODER) <= 64_000
    assert len(DECODER) + (WIDGET / "viewer.js").stat().st_size < 150_000


def test_the_decoder_is_what_its_sources_are_compiled_to(tmp_path: Path) -> None:
    python = os.environ.get("GPUFETCH_ZIGLANG")
    if python is None:
        pytest.skip("no ziglang: ./dev test --jupyterlab has it")
    committed = (REPOSITORY / "jupyter" / "widget" / "decoder.wasm").read_bytes()
    built = tmp_path / "decoder.wasm"
    subprocess.run(
        [python, REPOSITORY / "tools" / "build_decoder.py", built], check=True, timeout=600
    )
    assert built.read_bytes() == committed, "the codec has changed: run ./dev decoder"
