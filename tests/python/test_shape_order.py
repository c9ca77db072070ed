"""The `order` of reshape() and ravel(), on a LazyArray and on a DeviceArray."""

from __future__ import annotations

import contextlib
import itertools
import math
from typing import Any

import numpy as np
import pytest

import gpufetch as gf


@pytest.mark.parametrize("wrap", [lambda x: x, gf.lazy], ids=["DeviceArray", "LazyArray"])
def test_the_order_of_another_shape(wrap: Any) -> None:
    """Every order of the axes, with steps: reshape() and ravel() give NumPy's elements."""
    compared = 0
    for shape in itertools.product((1, 2, 3), repeat=3):
        a = np.arange(math.prod(shape)).reshape(shape)
        x = wrap(gf.to_device(a, device="host:0"))
        for axes, key in itertools.product(
            itertools.permutations(range(3)), [np.s_[:], np.s_[:, ::-1], np.s_[..., :2]]
        ):
            expected, view = a.transpose(axes)[key], x.transpose(axes)[key]
            for order in "CFAKk":
                try:
                    found = view.ravel(order=order)
                except ValueError:
                    # What the elements' places allow is a view.
                    assert not np.shares_memory(expected, expected.ravel(order=order))
                    continue
                compared += 1
                assert np.array_equal(gf.fetch(found), expected.ravel(order=order))
            for order, new in itertools.product("CFA", [(-1, 2), (3, -1), (1, -1, 1)]):
                try:
                    found = gf.fetch(view.reshape(new, order=order))
                except ValueError:
                    continue
                compared += 1
                assert np.array_equal(found, expected.reshape(new, order=order))
            for order in "CFAK":
                contiguous = expected.flags.c_contiguous or expected.flags.f_contiguous
                if order == "K" and not contiguous and isinstance(view, gf.DeviceArray):
                    continue  # NumPy has a copy, without the gaps
                with contextlib.suppress(ValueError):
                    found = np.ravel(view, order=order)
                    compared += 1
                    assert np.array_equal(np.asarray(found), expected.ravel(order=order))
    assert compared > 2000
    with pytest.raises(ValueError, match=r"'K' is for ravel"):
        view.reshape(-1, order="K")
    for method in (view.reshape, view.ravel):
        with pytest.raises(ValueError, match="order is 'x'"):
            method(*[-1] * (method == view.reshape), order="x")
