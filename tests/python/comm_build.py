"""Whether this build has the comm's dispatcher."""

from __future__ import annotations

import pytest

from gpufetch import _core


def _built_with_comm() -> bool:
    try:
        _core.dispatcher_create(lambda name: None, list, lambda text: None)
    except TypeError:
        return False
    return True


needs_comm = pytest.mark.skipif(not _built_with_comm(), reason="built without jansson")
