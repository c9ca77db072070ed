"""Whether a sanitizer, which `./dev sanitize` preloads, watches this run."""

from __future__ import annotations

import os

__all__ = ["SANITIZED"]

SANITIZED = any(name in os.environ.get("LD_PRELOAD", "") for name in ("libasan", "libtsan"))
