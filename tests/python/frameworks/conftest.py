"""The frameworks, each as a fixture that skips with the reason where there is none."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from typing import Any

import pytest
from framework_data import CUDA

# Read when a framework is imported. JAX takes most of a GPU at its first use unless told
# otherwise, TensorFlow all of it; both log to stderr.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


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
    skip_without_gpu()


@pytest.fixture
def torch() -> Any:
    return import_or_skip("torch", "PyTorch")


@pytest.fixture
def torch_gpu(torch: Any) -> None:
    skip_without_gpu()
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch cannot use the GPU")


@pytest.fixture
def tf() -> Any:
    return import_or_skip("tensorflow", "TensorFlow")


@pytest.fixture
def jax() -> Any:
    return import_or_skip("jax", "JAX")


@pytest.fixture
def jnp(jax: Any) -> Any:
    return jax.numpy


@pytest.fixture
def cpu_jnp(jax: Any) -> Iterator[Any]:
    """Return jax.numpy, whose new arrays are on the CPU even where there is a GPU."""
    with jax.default_device(jax.devices("cpu")[0]):
        yield jax.numpy


@pytest.fixture
def jax_gpu(jax: Any) -> None:
    skip_without_gpu()
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX cannot use the GPU")


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
