"""The frameworks, each as a fixture that skips with the reason where there is none."""

from __future__ import annotations

import importlib
import os
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import gpufetch as gf

# Read when a framework is imported. JAX takes most of a GPU at its first use unless told
# otherwise, TensorFlow all of it; both log to stderr.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

CUDA: dict[str, Any] = gf.info()["backends"]["cuda"]


def import_or_skip(name: str, label: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{label} is not installed: {error}")


def skip_without_gpu() -> None:
    if not CUDA["available"]:
        pytest.skip(f"no GPU: {CUDA['reason']}")


@pytest.fixture
def gpu() -> None:
    """A test on a GPU, whatever framework it uses."""
    skip_without_gpu()


@pytest.fixture
def torch() -> Any:
    return import_or_skip("torch", "PyTorch")


@pytest.fixture
def torch_cuda(torch: Any) -> Any:
    skip_without_gpu()
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch cannot use the GPU")
    return torch


@pytest.fixture
def tf() -> Any:
    return import_or_skip("tensorflow", "TensorFlow")


@pytest.fixture
def jax() -> Any:
    return import_or_skip("jax", "JAX")


@pytest.fixture
def jnp_cuda(jax: Any) -> Any:
    skip_without_gpu()
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX cannot use the GPU")
    return jax.numpy


@pytest.fixture
def cupy() -> Any:
    skip_without_gpu()
    return import_or_skip("cupy", "CuPy")


@pytest.fixture
def numba_cuda() -> Any:
    skip_without_gpu()
    cuda = import_or_skip("numba.cuda", "Numba")
    if not cuda.is_available():
        pytest.skip("this Numba cannot use the GPU")
    return cuda


def data(shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    values = np.random.default_rng(11).standard_normal(shape) * 100
    return values.astype(dtype)


def float8(shape: tuple[int, ...], name: str) -> npt.NDArray[Any]:
    return data(shape).astype(getattr(ml_dtypes, name))


def assert_same(actual: Any, expected: npt.NDArray[Any]) -> None:
    assert isinstance(actual, np.ndarray)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert actual.tobytes() == expected.tobytes()


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
