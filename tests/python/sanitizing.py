"""Whether a sanitizer, which `./dev sanitize` preloads, watches this run, and what it is spared.

A sanitizer sees the library's C, and makes Python several times slower. So it is spared the tests
that reach no C that others do not reach, each with the reason; `./dev test` runs them all.
GPUFETCH_TEST_SIXTH, from 0 to 5, chooses a sixth of the files, of which CI takes another one for
each commit.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator

import pytest

__all__ = ["SANITIZED", "fewer", "left_out", "needs_deepbind"]

SANITIZED = any(name in os.environ.get("LD_PRELOAD", "") for name in ("libasan", "libtsan"))

# h5py's wheels bring a libhdf5 that is not thread-safe: checkpoints are written by a second copy.
needs_deepbind = pytest.mark.skipif(
    SANITIZED, reason="sanitizers refuse RTLD_DEEPBIND, by which a second libhdf5 is loaded"
)

FILES = {
    "test_benchmarks": "little of the library runs",
    "test_benchmarks_codec": "little of the library runs",
    "test_benchmarks_nvcomp": "little of the library runs",
    "test_codebase": "what it reads is the sources",
    "test_codebase_install": "what it builds is not sanitized",
    "test_display": "text and pictures of what test_connect and test_reduce fetch",
    "test_docs": "tutorials call what every other file calls; the rest reads text",
    "test_format": "a decoder in Python; the C encoder runs in tests/c/test_codec*.c",
    "test_format_encoder": "an encoder in Python; the C one runs as for test_format",
    "test_notebook": "cells call what every other file calls, in processes of their own",
    "test_pages": "examples call what every other file calls, in processes of their own",
    "test_pages_blocks": "a compiler and commands run, in processes of their own",
    "test_plot": "pictures of what test_reduce and test_lazy* read",
    "test_plot_live": "pictures of what test_reduce and test_lazy* read",
    "test_plot_norms": "pictures of what test_reduce and test_lazy* read",
    "test_structure": "what it reads is the sources",
    "test_typing": "mypy runs",
    "test_viewer_decoder": "WebAssembly runs",
    "test_viewer_page": "JavaScript runs",
    "test_viewer_slow": "JavaScript runs",
    "test_viewer_timed": "JavaScript runs",
}

# In the names of tests: Debian's h5ls and h5repack, and sometimes h5dump, hang at their exit under
# libasan, with and without gpufetch; dask's processes and the demo run nothing of their own.
NAMES = ("h5ls", "h5repack", "any_hdf5", "dask_computes", "test_the_demo_leaves")

SIXTH = os.environ.get("GPUFETCH_TEST_SIXTH")

# One of so many cases: tests/c/test_cast.c and test_layout.c have all pairs and layouts.
ONE_OF = {"test_layout": 6}


def left_out(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the tests that a sanitizer is spared."""
    for number, item in enumerate(items):
        name = item.path.stem
        spared = name in FILES or any(part in item.name for part in NAMES)
        spared = spared or (SIXTH is not None and zlib.crc32(name.encode()) % 6 != int(SIXTH))
        if spared or number % ONE_OF.get(name, 1) != 0:
            yield item


def fewer(count: int) -> int:
    """Return how many random cases to try where `count` are tried without a sanitizer."""
    return max(10, count // 5) if SANITIZED else count
