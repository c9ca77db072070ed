"""What the tests of the frameworks share: data, views, and what a GPU says of itself."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import gpufetch as gf

CUDA: dict[str, Any] = gf.info()["backends"]["cuda"]


def data(shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    values = np.random.default_rng(11).standard_normal(shape) * 100
    return values.astype(dtype)


def float8(shape: tuple[int, ...], name: str) -> npt.NDArray[Any]:
    return data(shape).astype(getattr(ml_dtypes, name))


VIEWS: dict[str, Any] = {
    "whole": lambda x: x,
    "transposed": lambda x: x.T,
    "strided": lambda x: x[1::2, ::3],
    "rows": lambda x: x[:, 5:-5],
    "column": lambda x: x[:, 3],
    "row": lambda x: x[7],
    "element": lambda x: x[7, 3],
    "nothing": lambda x: x[:0],
}
