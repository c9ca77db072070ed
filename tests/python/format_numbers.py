"""Values by way of a base, read by the words of docs/format.md: transforms 4 to 6, shift, fill."""

from __future__ import annotations

import numpy as np

QUOTIENT, LINEAR, SINGLE = 4, 5, 6
NUMBERS = (QUOTIENT, LINEAR, SINGLE)


def base_of(p: np.ndarray, transform: int, a: float, b: float) -> np.ndarray:
    """The bits of the floats behind integers, which are unsigned in p's dtype."""
    integers = p.view(f"i{p.itemsize}")
    if transform == SINGLE:
        single = integers.astype("f4") * np.float32(a) + np.float32(b)
        return single.view(p.dtype)
    numbers = integers.astype("f8")
    base = numbers / a if transform == QUOTIENT else numbers * a + b
    bits: np.ndarray = base.astype(f"f{p.itemsize}").view(p.dtype)
    return bits


def are_good(transform: int, a: float, b: float) -> bool:
    """Whether a chunk may have these parameters."""

    def in_range(x: float) -> bool:
        return 2.0**-60 <= x < 2.0**61

    if transform == SINGLE and (float(np.float32(a)) != a or float(np.float32(b)) != b):
        return False
    is_plus_0 = b == 0 and not np.signbit(b)
    return in_range(a) and (is_plus_0 or (transform != QUOTIENT and in_range(abs(b))))


def shifted(values: np.ndarray, transform: int, shift: int, inverse: bool) -> np.ndarray:
    """The transform of the upper bits, or its inverse, as if these alone were the value."""
    kept = values.itemsize * 8 - shift
    one, sign_at = values.dtype.type(1), values.dtype.type(kept - 1)
    low = values.dtype.type((1 << (kept - 1)) - 1)
    top = values >> values.dtype.type(shift)
    if transform == 1 and inverse:
        top = top >> one | (top & one) << sign_at
    elif transform == 1:
        top = (top & low) << one | top >> sign_at
    elif transform == 2:
        top = np.where(top >> sign_at == 1, top ^ low, top)
    moved: np.ndarray = top << values.dtype.type(shift)
    return moved


def order(values: np.ndarray) -> np.ndarray:
    return shifted(values, 2, 0, False)


def corrected(base: np.ndarray, corrections: np.ndarray, fill: int | None) -> np.ndarray:
    """Values from their bases."""
    if fill is None:
        return order(order(base) + corrections)
    above = (corrections.view(f"i{corrections.itemsize}") > 0).astype(base.dtype)
    values = order(order(base) + corrections - above)
    return np.where(corrections == 1, base.dtype.type(fill), values)
