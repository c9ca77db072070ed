"""Whether a sanitizer, which `./dev sanitize` preloads, watches this run."""

from __future__ import annotations

import os

import pytest

__all__ = ["SANITIZED", "needs_deepbind"]

SANITIZED = any(name in os.environ.get("LD_PRELOAD", "") for name in ("libasan", "libtsan"))

# h5py's wheels bring a libhdf5 that is not thread-safe: checkpoints are written by a second copy.
needs_deepbind = pytest.mark.skipif(
    SANITIZED, reason="sanitizers refuse RTLD_DEEPBIND, by which a second libhdf5 is loaded"
)
