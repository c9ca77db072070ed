from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, final, overload

import numpy as np
import numpy.typing as npt

from gpufetch._dtypes import DTypeLike
from gpufetch._reduce import Histogram, Method, Overview, Stats

_K = TypeVar("_K")
_Scalar = TypeVar("_Scalar", bound=np.generic)
_Array = TypeVar("_Array", bound=npt.NDArray[Any])
_Order = Literal["C", "F", "A", "K"]
_Via = Literal["auto", "link", "codec"]

__version__: str

class Error(RuntimeError):
    status: str
    native_code: int

@final
class Future:
    def result(self, timeout: float | None = None) -> Any: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def join(self) -> None: ...
    def done(self) -> bool: ...
    def cancel(self) -> bool: ...
    def cancelled(self) -> bool: ...

@final
class DeviceArray:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def data_ptr(self) -> int: ...
    @property
    def readonly(self) -> bool: ...
    @property
    def T(self) -> DeviceArray: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __getitem__(self, key: Any, /) -> DeviceArray: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def overview(self, shape: int | Sequence[int], method: Method = "mean") -> Overview: ...
    def stats(self) -> Stats: ...
    def histogram(self, bins: int = 64, range: tuple[float, float] | None = None) -> Histogram: ...

@overload
def fetch(
    x: dict[_K, Any],
    *,
    out: None = None,
    dtype: DTypeLike | None = None,
    order: _Order | None = None,
    via: _Via = "auto",
) -> dict[_K, Any]: ...
@overload
def fetch(
    x: list[Any],
    *,
    out: None = None,
    dtype: DTypeLike | None = None,
    order: _Order | None = None,
    via: _Via = "auto",
) -> list[Any]: ...
@overload
def fetch(
    x: tuple[Any, ...],
    *,
    out: None = None,
    dtype: DTypeLike | None = None,
    order: _Order | None = None,
    via: _Via = "auto",
) -> tuple[Any, ...]: ...
@overload
def fetch(
    x: Any, *, out: _Array, dtype: DTypeLike | None = None, order: None = None, via: _Via = "auto"
) -> _Array: ...
@overload
def fetch(
    x: Any,
    *,
    out: None = None,
    dtype: type[_Scalar] | np.dtype[_Scalar],
    order: _Order | None = None,
    via: _Via = "auto",
) -> npt.NDArray[_Scalar]: ...
@overload
def fetch(
    x: Any,
    *,
    out: npt.NDArray[Any] | None = None,
    dtype: DTypeLike | None = None,
    order: _Order | None = None,
    via: _Via = "auto",
) -> npt.NDArray[Any]: ...
def fetch_async(
    x: Any,
    *,
    out: npt.NDArray[Any] | None = None,
    dtype: DTypeLike | None = None,
    order: _Order | None = None,
    via: _Via = "auto",
) -> Future: ...
def to_device(
    array: Any, *, device: str | None = None, dtype: DTypeLike | None = None
) -> DeviceArray: ...
def asdevice(x: Any, /) -> DeviceArray: ...
def overview(
    x: Any, shape: tuple[int, ...], method: str, /
) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None, tuple[int, int, int, int]]: ...
def stats(x: Any, /) -> dict[str, Any]: ...
def histogram(
    x: Any, bins: int, range: tuple[float, float] | None, /
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64], tuple[int, int, int]]: ...
def _restride(
    array: DeviceArray, shape: tuple[int, ...], strides: tuple[int, ...], /
) -> DeviceArray: ...
def info() -> dict[str, Any]: ...
def pool_stats() -> dict[str, int]: ...
def pool_trim(keep_nbytes: int, /) -> None: ...
def pool_set_cap(nbytes: int, /) -> None: ...
def share_export(x: Any, /, *, copy: bool = False) -> bytes: ...
def share_attach(handle: bytes, /) -> DeviceArray: ...
def share_unshare(handle: bytes, timeout_ns: int, /) -> int: ...
def share_importers(handle: bytes, /) -> int: ...
def share_text(handle: bytes, /) -> str: ...
def share_parse(text: str, /) -> bytes: ...
def share_describe(handle: bytes, /) -> dict[str, Any]: ...
def share_stop() -> None: ...
def serve_start(
    *,
    name: str | None = ...,
    connection_file: str | None = ...,
    transport: str | None = ...,
    ip: str | None = ...,
    first_port: int = ...,
    curve: bool = ...,
    jupyterlab: bool = ...,
    step_share: float = ...,
    log: Callable[[str], object] | None = ...,
    shutdown: Callable[[], object] | None = ...,
) -> tuple[Any, str, str]: ...
def serve_stop(server: Any, /) -> None: ...
def serve_publish(
    server: Any,
    name: str,
    x: Any,
    start: tuple[int, ...] | None,
    global_shape: tuple[int, ...] | None,
    /,
) -> None: ...
def serve_publish_value(server: Any, name: str, value: int | float | str, /) -> None: ...
def serve_unpublish(server: Any, name: str, timeout_ns: int, /) -> None: ...
def serve_step(server: Any, step: int, time: float, /) -> None: ...
def dispatcher_create(
    resolve: Callable[[str], tuple[Any, str]],
    list: Callable[[], list[tuple[str, str, Any, str | None]]],
    log: Callable[[str], object],
    /,
) -> object: ...
def client_open(
    dispatcher: object, data: bytes, /
) -> tuple[int, tuple[bytes, list[npt.NDArray[np.uint8]]]]: ...
def dispatcher_message(
    dispatcher: object, client: int, data: bytes, buffer_count: int, /
) -> tuple[bytes, list[npt.NDArray[np.uint8]]] | None: ...
def client_close(dispatcher: object, client: int, /) -> None: ...
def h5_bind(path: str, /) -> None: ...
def h5_write(
    phil: Any,
    location: int,
    name: str,
    x: Any,
    /,
    *,
    chunks: tuple[int, ...] | None = None,
    codec: int = 0,
) -> None: ...
def h5_write_region(phil: Any, dataset: int, start: tuple[int, ...], x: Any, /) -> None: ...
def h5_read(
    phil: Any,
    dataset: int,
    /,
    *,
    region: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
    device: str | None = None,
    out: Any = None,
) -> Any: ...
def _host_faults(
    *,
    alloc_fail_after: int | None = None,
    copy_fail_after_nbytes: int | None = None,
    bandwidth: float | None = None,
    latency_us: float | None = None,
) -> None: ...
