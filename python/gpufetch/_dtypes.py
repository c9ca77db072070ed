"""What may be passed as a dtype."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy.typing as npt

__all__ = ["DTypeLike"]


class _TorchDType(Protocol):
    """PyTorch's, such as torch.bfloat16."""

    @property
    def is_floating_point(self) -> bool: ...


class _TensorFlowDType(Protocol):
    """TensorFlow's, such as tf.bfloat16."""

    @property
    def as_numpy_dtype(self) -> Any: ...


DTypeLike: TypeAlias = npt.DTypeLike | _TorchDType | _TensorFlowDType
"""What numpy.dtype takes, ml_dtypes' and JAX's types among it, and other frameworks' dtypes."""
