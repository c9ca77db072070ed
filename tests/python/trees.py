"""A tree of all that may be in one, and the comparison of two."""

from __future__ import annotations

import struct
from typing import Any

import ml_dtypes
import numpy as np

import gpufetch as gf

__all__ = ["check_same_tree", "tree_of_everything"]

DTYPES = [np.float32, np.int16, bool, np.complex128, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]


def tree_of_everything(step: int = 0, device: str | None = None) -> dict[str, Any]:
    """A tree of all that may be in one; with `device`, half of its tensors lie there."""
    arrays = [(np.arange(6000) % 100 + step).astype(dtype).reshape(60, 100) for dtype in DTYPES]
    tensors: list[Any] = list(arrays)
    if device:
        tensors[::2] = [gf.to_device(array, device=device) for array in arrays[::2]]
    return {
        "layers": [{"weights": x, "bias": np.ones(3, np.float32)} for x in tensors],
        "pair": (np.zeros((2, 0)), np.float64(step)),
        "by number": {3: np.array(1), -1: "three"},
        "numbers": [1, 2**80, -7, 0.1, -0.0, float("inf"), 1 - 2j, True, None],
        "nan": struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0],
        "text": "zwölf\nlines",
        "bytes": b"\0\xff",
        "empty": {"dict": {}, "list": [], "tuple": ()},
        "transposed": np.asfortranarray(np.arange(12, dtype=">i4").reshape(3, 4)),
    }


def check_same_tree(found: Any, expected: Any) -> None:
    """The same nesting, types and bits; tensors wherever they lie."""
    if isinstance(expected, dict):
        assert type(found) is dict and list(found) == list(expected)
        for key in expected:
            check_same_tree(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert type(found) is type(expected) and len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            check_same_tree(one, other)
    elif isinstance(expected, float):
        assert type(found) is type(expected) or isinstance(expected, np.generic)
        assert struct.pack("<d", found) == struct.pack("<d", expected)
    elif isinstance(expected, np.ndarray | gf.DeviceArray):
        one = gf.fetch(found) if isinstance(found, gf.DeviceArray) else found
        other = gf.fetch(expected) if isinstance(expected, gf.DeviceArray) else expected
        assert one.dtype == other.dtype.newbyteorder("=") and one.shape == other.shape
        assert one.tobytes() == other.astype(one.dtype).tobytes()
    else:
        assert type(found) is type(expected) and found == expected
