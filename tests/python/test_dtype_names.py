"""What may be passed as a dtype: one answer wherever one is taken, and a clear error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from arrays import CASTABLE

import gpufetch as gf

VALUES = np.array([[1.5, -2.25, 300.0], [0.0, 7.0, -0.5]], np.float32)

TAKERS: dict[str, Callable[[Any], Any]] = {
    "fetch": lambda dtype: gf.fetch(VALUES, dtype=dtype).dtype,
    "fetch_async": lambda dtype: gf.fetch_async(VALUES, dtype=dtype).result().dtype,
    "fetch of a tree": lambda dtype: gf.fetch({"x": VALUES}, dtype=dtype)["x"].dtype,
    "to_device": lambda dtype: gf.to_device(VALUES, dtype=dtype, device="host:0").dtype,
    "to_device like": lambda dtype: gf.to_device(VALUES, dtype=dtype, like=VALUES).dtype,
}
takers = pytest.mark.parametrize("taker", TAKERS.values(), ids=TAKERS.keys())


def torch_dtype(text: str) -> Any:
    """Stand in for a dtype of PyTorch's, which need not be installed."""
    kind = type("dtype", (), {"__module__": "torch", "__str__": lambda _: text})
    return kind()


class TensorFlowDType:
    as_numpy_dtype = ml_dtypes.bfloat16


class JaxScalarType:
    """As jax.numpy.bfloat16: no dtype itself, but it has one."""

    dtype = np.dtype(ml_dtypes.bfloat16)


@takers
@pytest.mark.parametrize("expected", CASTABLE, ids=str)
def test_names_types_and_frameworks_dtypes_mean_the_same(taker: Any, expected: Any) -> None:
    for given in (expected, expected.name, expected.type, torch_dtype(f"torch.{expected.name}")):
        assert taker(given) == expected, given


@takers
@pytest.mark.parametrize("given", [TensorFlowDType(), JaxScalarType, "bfloat16"])
def test_bfloat16_by_other_ways(taker: Any, given: Any) -> None:
    assert taker(given) == ml_dtypes.bfloat16


@takers
@pytest.mark.parametrize(("given", "expected"), [(float, "f8"), ("<f4", "f4"), ("half", "f2")])
def test_what_numpy_takes_is_taken(taker: Any, given: Any, expected: str) -> None:
    assert taker(given) == np.dtype(expected)


@takers
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (torch_dtype("torch.qint8"), r"torch\.qint8 is not supported"),
        (torch_dtype("torch.float4_e2m1fn_x2"), "is not supported"),
        (torch_dtype("torch."), "is not supported"),
        (torch_dtype("torch.bits\ud800"), None),
        (">f4", "native byte order"),
        ("M8[s]", "not supported"),
        ("U3", "not supported"),
        ("float33", None),
        ("bfloat16\0", None),
        ("bf\ud800", None),
        (3.5, None),
        ("float8_e8m0fnu", "not offered"),
    ],
    ids=lambda value: ascii(str(value)),
)
def test_what_is_no_dtype_is_a_clear_error(taker: Any, given: Any, words: str | None) -> None:
    with pytest.raises((TypeError, UnicodeEncodeError), match=words):
        taker(given)


def test_the_error_of_a_dtypes_own_code_is_kept() -> None:
    class Broken:
        @property
        def as_numpy_dtype(self) -> Any:
            raise KeyError("no dtype today")

    with pytest.raises(KeyError, match="no dtype today"):
        gf.fetch(VALUES, dtype=Broken())  # type: ignore[call-overload]
