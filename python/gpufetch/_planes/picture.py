"""Colours of pictures whose elements are red, green, blue and perhaps opacity."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["picture"]


def picture(
    values: npt.NDArray[Any],
    dtype: np.dtype[Any],
    vmin: float | None,
    vmax: float | None,
    bad: npt.ArrayLike,
) -> npt.NDArray[np.uint8]:
    """RGBA of red, green and blue from 0 to 1 (integers: to 255), or between the limits.

    `dtype` is that of the tensor, of whose elements `values` may be means. A pixel with NaN in it
    takes the colour `bad`, RGBA from 0 to 255. Where the limits are equal, what is above them has
    255, and the rest 0.
    """
    low = 0.0 if vmin is None else vmin
    high = (255.0 if dtype.kind in "iu" else 1.0) if vmax is None else vmax
    span = (high - low) or 1e-300
    scaled = (values[..., :3].astype(np.float64) - low) * (255.0 / span)
    result = np.full((*values.shape[:2], 4), 255, np.uint8)
    result[..., :3] = np.rint(np.clip(np.nan_to_num(scaled, posinf=255), 0, 255))
    if values.shape[2] == 4:
        alpha = values[..., 3].astype(np.float64) * (1.0 if dtype.kind in "iu" else 255.0)
        result[..., 3] = np.rint(np.clip(np.nan_to_num(alpha), 0, 255))
    result[np.isnan(scaled).any(axis=2)] = bad
    return result
