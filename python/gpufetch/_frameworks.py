"""Handing tensors over to frameworks, without a copy where that is possible."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, overload

import numpy as np
import numpy.typing as npt

from gpufetch import _core
from gpufetch._checks import check_copy
from gpufetch._core import DeviceArray
from gpufetch._dtypes import DTypeLike

__all__ = ["CopyWarning", "convert", "to_device"]

Framework = Literal["numpy", "torch", "cupy", "tensorflow", "jax", "numba"]

_TORCH_FLOAT8 = frozenset(
    ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
)
_NUMPY_FLOAT8 = _TORCH_FLOAT8 | {"float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"}


class CopyWarning(UserWarning):
    """`convert` had to copy; the message says why. With `copy=True` it does not warn."""


@dataclass(frozen=True)
class _Target:
    """A framework: the memory that it can use, and the call that gives it a tensor."""

    package: str
    take: Callable[[Any, DeviceArray], Any]  # module, source -> tensor
    owns: Callable[[Any, Any], bool]  # module, object -> whether it is the framework's own tensor
    uses_cuda: Callable[[Any], bool]
    uses_cpu: bool = True
    c_order_only: bool = False
    negative_strides: bool = False
    readonly: bool = False
    dtypes_refused: frozenset[str] = frozenset()


def _c_strides(source: DeviceArray) -> tuple[int, ...]:
    strides, step = [], source.dtype.itemsize
    for length in reversed(source.shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def _is_c_order(source: DeviceArray) -> bool:
    layout = zip(source.shape, source.strides, _c_strides(source), strict=True)
    return source.size == 0 or all(n == 1 or have == want for n, have, want in layout)


def _has_negative_strides(source: DeviceArray) -> bool:
    axes = zip(source.shape, source.strides, strict=True)
    return source.size > 0 and any(n > 1 and stride < 0 for n, stride in axes)


class _Memory:
    """CPU memory as NumPy's array interface describes it; keeps its owner alive."""

    def __init__(self, source: DeviceArray, typestr: str) -> None:
        self.source = source
        self.__array_interface__ = {
            "version": 3,
            "shape": source.shape,
            "typestr": typestr,
            "strides": source.strides,
            "data": (source.data_ptr, source.readonly),
        }


def _numpy_take(_: Any, source: DeviceArray) -> npt.NDArray[Any]:
    if source.size == 0:
        return np.empty(source.shape, source.dtype)
    if source.dtype.isbuiltin == 1:
        return np.asarray(_Memory(source, source.dtype.str))
    # The array interface has no code for ml_dtypes' types.
    return np.asarray(_Memory(source, f"<u{source.dtype.itemsize}")).view(source.dtype)


def _tensorflow_take(tf: Any, source: DeviceArray) -> Any:
    # TensorFlow takes a capsule and passes no stream. For a stream other than the legacy default
    # one, __dlpack__ itself waits for the work that is pending on the memory.
    stream = 2 if source.device.startswith("cuda") else None
    return tf.experimental.dlpack.from_dlpack(source.__dlpack__(stream=stream))


def _jax_has_gpu(jax: Any) -> bool:
    try:
        return bool(jax.devices("gpu"))
    except RuntimeError:
        return False


_TARGETS = {
    "numpy": _Target(
        "numpy",
        _numpy_take,
        lambda np_, x: isinstance(x, np_.ndarray),
        uses_cuda=lambda _: False,
        negative_strides=True,
        readonly=True,
    ),
    "torch": _Target(
        "torch",
        lambda torch, source: torch.from_dlpack(source),
        lambda torch, x: isinstance(x, torch.Tensor),
        uses_cuda=lambda torch: bool(torch.cuda.is_available()),
        dtypes_refused=_NUMPY_FLOAT8 - _TORCH_FLOAT8,
    ),
    "cupy": _Target(
        "cupy",
        lambda cupy, source: cupy.from_dlpack(source),
        lambda cupy, x: isinstance(x, cupy.ndarray),
        uses_cuda=lambda _: True,
        uses_cpu=False,
        negative_strides=True,
        dtypes_refused=_NUMPY_FLOAT8 | {"bfloat16"},
    ),
    "tensorflow": _Target(
        "tensorflow",
        _tensorflow_take,
        lambda tf, x: isinstance(x, tf.Tensor),
        uses_cuda=lambda tf: bool(tf.config.list_physical_devices("GPU")),
        c_order_only=True,
        dtypes_refused=_NUMPY_FLOAT8,
    ),
    "jax": _Target(
        "jax",
        lambda jax, source: jax.dlpack.from_dlpack(source),
        lambda jax, x: isinstance(x, jax.Array),
        uses_cuda=_jax_has_gpu,
        c_order_only=True,
    ),
    "numba": _Target(
        "numba.cuda",
        lambda cuda, source: cuda.as_cuda_array(source),
        lambda cuda, x: cuda.is_cuda_array(x) and type(x).__module__.startswith("numba"),
        uses_cuda=lambda _: True,
        uses_cpu=False,
        readonly=True,
        dtypes_refused=_NUMPY_FLOAT8 | {"bfloat16"},
    ),
}


def _check_dtype(name: str, module: Any, source: DeviceArray) -> None:
    """Raise TypeError if the framework has no such dtype, which a copy would not change."""
    dtype = source.dtype.name
    if dtype in _TARGETS[name].dtypes_refused:
        raise TypeError(
            f"{name} cannot take dtype {dtype}: in the framework that it comes from, view it as "
            f"uint{8 * source.dtype.itemsize} or cast it first"
        )
    narrowed = {"int64", "uint64", "float64", "complex128"}
    if name == "jax" and dtype in narrowed and not module.config.jax_enable_x64:
        raise TypeError(
            f"jax would narrow dtype {dtype} to 32 bits: call "
            'jax.config.update("jax_enable_x64", True) first, or cast it'
        )


def _set_bit(x: Any) -> str | None:
    """Which bit of a torch tensor makes its elements others than those in its memory."""
    for name, bit in (("is_conj", "conjugate"), ("is_neg", "negative")):
        is_set = getattr(x, name, None)
        if hasattr(x, f"resolve_{name[3:]}") and is_set is not None and is_set():
            return bit
    return None


def _cannot_share(name: str, module: Any, x: Any, source: DeviceArray) -> str | None:
    """Why the framework cannot share x's memory, which `source` wraps; None if it can."""
    target = _TARGETS[name]
    bit = _set_bit(x)
    if bit is not None:
        return f"its {bit} bit is set, so that its elements are not those in its memory"
    on_cpu = source.device == "cpu"
    if source.device.startswith("host"):
        return f"{source.device} is the host backend, which no framework knows"
    if on_cpu and not target.uses_cpu:
        return f"{name} works on GPUs only, and the tensor is on the CPU"
    if not on_cpu and not target.uses_cuda(module):
        here = "NumPy" if name == "numpy" else f"this {name}"
        return f"{here} cannot use {source.device}"
    if source.readonly and not target.readonly:
        return f"the memory is read-only, which {name} would not respect"
    if target.c_order_only and not _is_c_order(source):
        return f"{name} takes C-contiguous memory only, and the strides are {source.strides}"
    if _has_negative_strides(source) and not target.negative_strides:
        return f"{name} has no negative strides, and the strides are {source.strides}"
    return None


def _copied(name: str, module: Any, source: DeviceArray) -> DeviceArray:
    """A copy in C order, on a device that the framework can use."""
    target = _TARGETS[name]
    array = _core.fetch(source)
    if source.device.startswith("cuda") and target.uses_cuda(module):
        return _core.to_device(array, device=source.device)
    if not target.uses_cpu:
        return _core.to_device(array, device="cuda:0")
    return _core.asdevice(array)


def _take(name: str, module: Any, source: DeviceArray) -> Any:
    try:
        return _TARGETS[name].take(module, source)
    except Exception as error:
        raise TypeError(
            f"{name} refused a tensor of dtype {source.dtype} and shape {source.shape} on "
            f"{source.device}: {error}"
        ) from error


def _is_shared(result: Any, source: DeviceArray) -> bool:
    return source.size == 0 or _core.asdevice(result).data_ptr == source.data_ptr


def _import(name: str) -> Any:
    if name not in _TARGETS:
        raise ValueError(f"framework {name!r} is not known: use one of {', '.join(_TARGETS)}")
    try:
        return importlib.import_module(_TARGETS[name].package)
    except ImportError as error:
        raise ImportError(f"convert to {name!r} needs {_TARGETS[name].package}: {error}") from error


@overload
def convert(
    x: Any, framework: Literal["numpy"], *, copy: bool | None = None
) -> npt.NDArray[Any]: ...


@overload
def convert(x: Any, framework: Framework, *, copy: bool | None = None) -> Any: ...


def convert(x: Any, framework: Framework, *, copy: bool | None = None) -> Any:
    """Hand a tensor over to another framework, without a copy wherever that is possible.

    Without a copy both tensors share the memory: a write through one is seen by the other, and x's
    memory is kept alive by the result. The result may be used at once: work that is pending on x is
    waited for, or ordered before the framework's. Gradients are not carried over. May be called
    from any thread.

    Parameters
    ----------
    x
        A tensor that `fetch` takes.
    framework
        "torch", "cupy", "tensorflow", "jax", "numba" or "numpy".
    copy
        None copies only if there is no other way (device to NumPy, a framework that cannot use the
        device, a layout that it does not support, read-only memory), and then warns with
        CopyWarning, which says why. False raises ValueError instead. True always copies, without a
        warning.

    Returns
    -------
    Any
        The framework's tensor, of x's shape and dtype; x itself if it is one already and `copy` is
        not True. A copy is on x's device if the framework can use that, else on the CPU (cupy and
        numba: on "cuda:0").

    Raises
    ------
    TypeError
        The framework has no such dtype, or `copy` is none of these.
    ImportError
        The framework is not installed.
    ValueError
        `copy` is False and the memory cannot be shared, or the framework is not known. Also what
        `fetch` raises for a tensor that it cannot take.
    """
    copy = check_copy(copy)
    module = _import(framework)
    if copy is not True and _TARGETS[framework].owns(module, x):
        return x
    source = _core.asdevice(x)
    _check_dtype(framework, module, source)
    if copy is True:
        return _take(framework, module, _copied(framework, module, source))
    reason = _cannot_share(framework, module, x, source)
    result = None
    if reason is None:
        result = _take(framework, module, source)
        if _is_shared(result, source):
            return result
        reason = f"{framework} copied it, as it does with memory that is not aligned as it needs"
    if copy is False:
        raise ValueError(f"cannot share this tensor with {framework}: {reason}; allow a copy")
    warnings.warn(f"convert to {framework} copies: {reason}", CopyWarning, stacklevel=2)
    if result is None:
        result = _take(framework, module, _copied(framework, module, source))
    return result


def _framework_of(x: Any) -> Framework | None:
    """Name of the framework that made `x`; None if `convert` does not know it."""
    package = type(x).__module__.partition(".")[0]
    name = {"jaxlib": "jax", "numba_cuda": "numba"}.get(package, package)
    return cast(Framework, name) if name in _TARGETS else None


@overload
def to_device(
    array: Any,
    *,
    device: str | None = None,
    dtype: DTypeLike | None = None,
    like: str | None = None,
) -> DeviceArray: ...
@overload
def to_device(
    array: Any, *, device: None = None, dtype: DTypeLike | None = None, like: DeviceArray
) -> DeviceArray: ...
@overload
def to_device(
    array: Any, *, device: None = None, dtype: DTypeLike | None = None, like: npt.NDArray[Any]
) -> npt.NDArray[Any]: ...
@overload
def to_device(
    array: Any, *, device: str | None = None, dtype: DTypeLike | None = None, like: Any = None
) -> Any: ...
def to_device(
    array: Any, *, device: str | None = None, dtype: DTypeLike | None = None, like: Any = None
) -> Any:
    """Copy an array from the CPU to a device. Releases the GIL; may be called from any thread.

    Parameters
    ----------
    array
        An array of any layout.
    device
        "cuda:0", "host:0", or None for the default device.
    dtype
        Element type of the result, by default the array's; what `fetch` takes. The elements cross
        the link unconverted and the device converts them, so that a narrower dtype saves memory but
        no transfer time.
    like
        In place of `device`: the name of a device, or a tensor.

    Returns
    -------
    DeviceArray or a tensor
        A DeviceArray in C order. If `like` is a tensor, a tensor of its framework on its device (a
        DeviceArray if `convert` does not know the framework).

    Raises
    ------
    MemoryError
        The device is full.
    TypeError
        The array is on a device already, or a dict of arrays; the framework of `like` has no such
        dtype, or the conversion is not offered.
    ValueError
        `device` and `like` are both given.
    """
    if issubclass(type(array), Mapping):
        raise TypeError(
            f"to_device takes one array, not a {type(array).__name__}: "
            "{name: gpufetch.to_device(x) for name, x in arrays.items()} takes each of a dict"
        )
    if device is not None and like is not None:
        raise ValueError(f"device {device!r} and like {like!r} are both given: use one")
    if like is None or isinstance(like, str):
        return _core.to_device(array, device=device if like is None else like, dtype=dtype)
    model = _core.asdevice(like)
    framework = _framework_of(like)
    if model.device == "cpu":
        source = array if dtype is None else _core.fetch(array, dtype=dtype)
        if framework is None:
            return _core.asdevice(_core.fetch(source))
        return convert(source, framework, copy=True)
    uploaded = _core.to_device(array, device=model.device, dtype=dtype)
    return convert(uploaded, framework, copy=False) if framework else uploaded
