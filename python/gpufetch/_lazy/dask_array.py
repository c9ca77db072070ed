"""A dask.array whose elements are pulled when they are computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["to_dask"]


class _Source:
    """What a Dask graph holds in place of an array."""

    def __init__(
        self,
        read: Callable[[Any], npt.NDArray[Any]],
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> None:
        self._read = read
        self.shape, self.dtype, self.ndim = shape, dtype, len(shape)

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        return self._read(key)


def to_dask(
    read: Callable[[Any], npt.NDArray[Any]],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    token: tuple[str, ...],
    chunks: Any,
) -> Any:
    """Make a dask.array of an array that `read` pulls by an index.

    `token` names the array: equal ones give dask.arrays of one name. `chunks` is as
    dask.array.from_array takes it. Raises ImportError without Dask.
    """
    try:
        import dask.array
        import dask.base
    except ImportError as error:
        raise ImportError(
            f"to_dask() needs dask.array ({error}): pip install 'gpufetch[dask]'"
        ) from error
    return dask.array.from_array(
        _Source(read, shape, dtype),
        chunks=chunks,
        name=f"gpufetch-{dask.base.tokenize(token)}",
        asarray=True,
        meta=np.empty((0,) * len(shape), dtype),
    )
