"""Whether this build has the server; apart from serving.py, which needs jupyter_client."""

from __future__ import annotations

import pytest

import gpufetch as gf


def built_with_server() -> bool:
    try:
        with gf.serve("probe", connection_file="/nonexistent/kernel.json"):
            return True
    except TypeError:
        return False
    except OSError:
        return True


needs_server = pytest.mark.skipif(
    not built_with_server(), reason="built without libzmq, jansson or libcrypto"
)
