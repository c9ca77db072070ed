"""Numba: what fetch gives is what Numba itself gives; hand-over in both directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from arrays import assert_same
from framework_data import VIEWS, data

import gpufetch as gf

# Frameworks warn of themselves, of small launches and of each other; that is not tested here.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("view", ["whole", "transposed", "strided", "rows", "column"])
def test_numba_views(numba_cuda: Any, view: str) -> None:
    a = data((300, 200))
    try:
        x = VIEWS[view](numba_cuda.to_device(a))  # a transpose is a kernel of Numba's
    except AttributeError as error:
        pytest.skip(f"this Numba cannot compile for the GPU: {error}")
    assert_same(gf.fetch(x), np.array(VIEWS[view](a), order="C"))


def test_numba_kernels_on_the_default_stream_are_waited_for(numba_cuda: Any) -> None:
    @numba_cuda.jit  # type: ignore[untyped-decorator]
    def fill(x: Any, turns: Any) -> None:
        i = numba_cuda.grid(1)
        if i < x.size:
            value = 0
            for turn in range(turns):
                value = (value * 1664525 + turn + i) & 0xFFFF
            x[i] = value

    x = numba_cuda.to_device(np.full(1 << 20, -1, np.int64))
    try:
        fill[4096, 256](x, 1)
    except Exception as error:
        pytest.skip(f"this Numba cannot compile for the GPU: {error}")
    fill[4096, 256](x, 20000)
    assert_same(gf.fetch(x), x.copy_to_host())


def test_numba_shares_a_device_array(numba_cuda: Any) -> None:
    a = data((40, 50))
    x = gf.to_device(a, device="cuda:0")
    assert_same(numba_cuda.as_cuda_array(x).copy_to_host(), a)


def test_convert_to_and_from_numba(numba_cuda: Any) -> None:
    a = data((40, 50))
    x = gf.to_device(a, device="cuda:0")
    n = gf.convert(x, "numba", copy=False)
    assert n.__cuda_array_interface__["data"][0] == x.data_ptr
    assert_same(n.copy_to_host(), a)
    assert gf.convert(n, "numba") is n
    with pytest.raises(TypeError, match="view it as uint16"):
        gf.convert(gf.to_device(a.astype("bfloat16"), device="cuda:0"), "numba")
    uploaded = gf.to_device(a, like=n)
    assert_same(uploaded.copy_to_host(), a)
