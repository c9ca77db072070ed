"""What type checkers see of fetch, fetch_async and to_device; test_typing.py runs mypy on it."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import gpufetch as gf


class Tensor:
    """Any framework's."""

    def __dlpack__(self, **options: Any) -> Any:
        """Not called."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class TorchDType:
    """As torch.dtype's stub has it."""

    is_floating_point: bool


x = Tensor()
out: npt.NDArray[np.float32] = np.empty(3, np.float32)
bfloat16 = TorchDType()

assert_type(gf.fetch(x), npt.NDArray[Any])
assert_type(gf.fetch(x, out=out), npt.NDArray[np.float32])
assert_type(gf.fetch(x, dtype=np.float16), npt.NDArray[np.float16])
assert_type(gf.fetch(x, dtype=np.dtype(np.int8)), npt.NDArray[np.int8])
assert_type(gf.fetch(x, dtype="bfloat16"), npt.NDArray[Any])
assert_type(gf.fetch(x, dtype=bfloat16, order="F"), npt.NDArray[Any])
assert_type(gf.fetch({"a": x, "b": x}, dtype="bfloat16"), dict[str, Any])
assert_type(gf.fetch([x, None], order="K"), list[Any])
assert_type(gf.fetch((x, 1)), tuple[Any, ...])

future = gf.fetch_async(x)
assert_type(future, gf.Future[npt.NDArray[Any]])
assert_type(future.result(timeout=1), npt.NDArray[Any])
assert_type(future.exception(), BaseException | None)
assert_type(future.wait(1), bool)
assert_type(future.done(), bool)
assert_type(future.cancel(), bool)
assert_type(gf.fetch_async(x, out=out).result(), npt.NDArray[np.float32])
assert_type(gf.fetch_async(x, dtype=np.float64).result(), npt.NDArray[np.float64])
assert_type(gf.fetch_async({1: x}, dtype="float16").result(), dict[int, Any])
assert_type(gf.fetch_async([x]).result(), list[Any])
assert_type(gf.fetch_async((x,)).result(), tuple[Any, ...])

tree: dict[str, list[Tensor]] = {}
assert_type(gf.fetch(tree), dict[str, Any])


async def awaits() -> None:
    assert_type(await gf.fetch_async(x, dtype=np.int32), npt.NDArray[np.int32])
    assert_type(await gf.fetch_async([x]), list[Any])
    assert_type(await asyncio.wrap_future(gf.fetch_async(x)), npt.NDArray[Any])


concurrent.futures.wait([future, gf.fetch_async(x, out=out)])
for ended in concurrent.futures.as_completed([future]):
    assert_type(ended.result(), npt.NDArray[Any])
future.add_done_callback(lambda done: print(done.result().shape))

assert_type(gf.to_device([1, 2]), gf.DeviceArray)
assert_type(gf.to_device(out, device="cuda:0", dtype=bfloat16), gf.DeviceArray)
assert_type(gf.to_device(out, like="host:0"), gf.DeviceArray)
assert_type(gf.to_device(out, like=gf.to_device(out)), gf.DeviceArray)
assert_type(gf.to_device(out, like=out), npt.NDArray[Any])
assert_type(gf.to_device(out, like=x), Any)

gf.fetch(x, order="B")  # type: ignore[call-overload]
gf.fetch_async(x, order="f")  # type: ignore[call-overload]
gf.fetch_async(x, out=[1.0])  # type: ignore[call-overload]
gf.to_device(out, device=3)  # type: ignore[call-overload]
