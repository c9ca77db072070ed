"""LazyArray among NumPy functions, Matplotlib, Dask and xarray: what pulls, and what must not."""

from __future__ import annotations

import copy
import importlib.util
import operator
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pulling import Traffic

import gpufetch as gf

Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def x() -> Array:
    return np.random.default_rng(12).normal(size=(30, 40))


@pytest.fixture(scope="module")
def a(x: Array) -> gf.LazyArray:
    return gf.lazy(gf.to_device(x))


# --- The limit ---


def test_asarray_over_the_limit_names_size_limit_and_remedies(traffic: Traffic) -> None:
    a = gf.LazyArray(gf.to_device(np.zeros((4, 1024), np.uint8)), max_fetch_nbytes=2048)
    for pull in (np.asarray, np.array, gf.LazyArray.to_numpy, gf.LazyArray.tolist):
        with pytest.raises(ValueError, match=r"4\.0 KiB.*2\.0 KiB.*iter_chunks\(\).*fetch\(\)"):
            pull(a)  # type: ignore[operator]
    with pytest.raises(ValueError, match="max_fetch_nbytes"):
        a[1:] + 1
    assert traffic.calls == 0
    assert np.asarray(a[2:]).shape == (2, 1024)
    assert a.fetch().shape == (4, 1024)
    assert sum(values.nbytes for _, values in a.iter_chunks()) == 4096


def test_the_limit_goes_with_views_and_can_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    d_x = gf.to_device(np.zeros(100))
    a = gf.lazy(d_x, max_fetch_nbytes=80)
    assert (a[1:].max_fetch_nbytes, a.reshape(10, 10).T.max_fetch_nbytes) == (80, 80)
    assert gf.LazyArray(a).max_fetch_nbytes == 80
    assert gf.LazyArray(a, max_fetch_nbytes=800).to_numpy().shape == (100,)
    b = gf.lazy(d_x)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert b.max_fetch_nbytes == min(memory // 4, 8 << 30)
    monkeypatch.setattr(gf.LazyArray, "default_max_fetch_nbytes", 799)
    with pytest.raises(ValueError, match="799 B"):
        np.asarray(b)
    with pytest.raises(ValueError, match="max_fetch_nbytes is -1"):
        gf.lazy(d_x, max_fetch_nbytes=-1)
    with pytest.raises(TypeError, match="max_fetch_nbytes is 'a', of type str: give an integer"):
        gf.lazy(d_x, max_fetch_nbytes="a")  # type: ignore[arg-type]


# --- NumPy functions ---


@pytest.mark.parametrize(
    "compute",
    [
        np.sum,
        np.sin,
        np.linalg.norm,
        np.mean,
        np.sort,
        np.add.reduce,
        lambda a: a + 1,
        lambda a: np.ones(40) * a,
        lambda a: -a,
        lambda a: np.less(a, a),
        lambda a: a @ np.ones(40),
        lambda a: np.stack([a, a]),
        lambda a: np.where(a > 0, a, 0),
        lambda a: np.add(1, a.T),
    ],
)
def test_computing_on_a_whole_tensor_is_refused_with_a_remedy(
    a: gf.LazyArray, compute: Any, traffic: Traffic
) -> None:
    with pytest.raises(TypeError, match=r"np\.\w+(\.\w+)? does not pull.*a\[\.\.\.\].*fetch\(\)"):
        compute(a)
    assert traffic.calls == 0


def test_comparing_a_whole_tensor_is_refused_by_an_error_that_nobody_takes_for_unequal(
    x: Array, a: gf.LazyArray, traffic: Traffic
) -> None:
    for compare in (operator.eq, operator.ne):
        for left, right in ((a, a), (a, x), (x, a), (a, None)):
            with pytest.raises(ValueError, match=r"equal does not pull a whole.*a\[\.\.\.\]"):
                compare(left, right)
    assert traffic.calls == 0


@pytest.mark.parametrize(
    "compute",
    [
        np.sum,
        np.sin,
        np.linalg.norm,
        np.add.reduce,
        lambda a: a + 1,
        lambda a: np.ones(40) * a,
        lambda a: a > 0,
        lambda a: np.stack([a, 2 * a]),
        lambda a: np.add(1, a, out=np.empty((30, 40))),
        lambda a: np.concatenate((a, a), axis=1),
    ],
)
def test_computing_on_what_was_indexed_gives_numpys_result(
    x: Array, a: gf.LazyArray, compute: Any
) -> None:
    expected = compute(x)
    for values in (compute(a[...]), compute(a[::-1][::-1])):
        assert type(values) is type(expected)
        assert np.array_equal(values, expected)


def test_nothing_is_written_into_a_lazy_array(x: Array, a: gf.LazyArray) -> None:
    view = a[...]
    with pytest.raises(TypeError, match="cannot write"):
        view += 1
    with pytest.raises(TypeError, match="cannot write"):
        np.sum(x, axis=0, out=a[0])
    with pytest.raises(TypeError, match="assignment"):
        a[0] = 1  # type: ignore[index]
    assert np.array_equal(a.fetch(), x)


def test_facts_and_views_cost_no_transfer(x: Array, a: gf.LazyArray, traffic: Traffic) -> None:
    assert (np.shape(a), np.ndim(a), np.size(a, 1)) == ((30, 40), 2, 40)
    assert np.result_type(a, np.complex64) == np.complex128
    assert np.isrealobj(a) and not np.iscomplexobj(a)
    assert np.zeros_like(a).shape == (30, 40)
    views = [np.transpose(a), np.reshape(a, (20, -1)), np.ravel(a), np.squeeze(a[None])]
    assert traffic.calls == 0
    expected = [x.T, x.reshape(20, 60), x.ravel(), x]
    for view, values in zip(views, expected, strict=True):
        assert isinstance(view, gf.LazyArray)
        assert np.array_equal(view.fetch(), values)
    with pytest.raises(ValueError, match="order"):
        np.reshape(a, (40, 30), order="F")


def test_a_method_that_only_arrays_have_says_so(a: gf.LazyArray) -> None:
    with pytest.raises(AttributeError, match=r"has no argsort: .*fetch\(\)"):
        a.argsort()
    for name in ("cpu", "numpy", "detach", "get"):
        text = rf"has no {name}: fetch\(\) gives it as a NumPy array"
        with pytest.raises(AttributeError, match=text):
            getattr(a, name)()
    with pytest.raises(AttributeError, match="no attribute values"):
        _ = a.values
    assert not hasattr(a, "__array_interface__")


def test_fetch_async_and_out(x: Array, device: str) -> None:
    view = gf.lazy(gf.to_device(x, device=device))[::2].T
    assert np.array_equal(view.fetch_async().result(), x[::2].T)
    out = np.empty(view.shape)
    assert view.fetch(out=out) is out
    assert np.array_equal(out, x[::2].T)
    into = np.empty(view.shape)
    view.fetch_async(out=into).result()
    assert np.array_equal(into, x[::2].T)


# --- Matplotlib ---

DRAWINGS = {
    "imshow": (lambda ax, a: ax.imshow(a), 1),
    "pcolormesh": (lambda ax, a: ax.pcolormesh(a), 1),
    "contour": (lambda ax, a: ax.contour(a), 1),
    "plot of columns": (lambda ax, a: ax.plot(a), 1),
    "plot": (lambda ax, a: ax.plot(np.arange(40), a[0]), 1),
    "hist": (lambda ax, a: ax.hist(a[0]), 1),
    "boxplot": (lambda ax, a: ax.boxplot(a[:, :5]), 1),
    "scatter": (lambda ax, a: ax.scatter(a[0], a[1], c=a[2]), 12),
    "fill_between": (lambda ax, a: ax.fill_between(a[0], a[1], 0), 12),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_plot_pulls_what_it_draws_in_few_transfers(
    a: gf.LazyArray, traffic: Traffic, name: str
) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    draw, most = DRAWINGS[name]
    draw(figure.subplots(), a)
    assert 1 <= traffic.calls <= most
    assert traffic.nbytes <= a.nbytes


# --- Dask and xarray ---


def test_a_token_names_the_wrapping_and_the_view(traffic: Traffic) -> None:
    d_x = gf.to_device(np.zeros((4, 5)))
    a = gf.lazy(d_x)
    same = [a, gf.LazyArray(a)]
    others = [gf.lazy(d_x), a[1:], a[:3], a.T, a[1:].T, a.reshape(20)]
    assert len({repr(array.__dask_tokenize__()) for array in same}) == 1
    assert len({repr(array.__dask_tokenize__()) for array in (a, *others)}) == 1 + len(others)
    assert traffic.calls == 0


def test_to_dask_without_dask_says_what_to_install(
    a: gf.LazyArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "dask", None)
    with pytest.raises(ImportError, match=r"gpufetch\[dask\]"):
        a.to_dask()


def test_dask_pulls_blocks_when_they_are_computed(
    x: Array, a: gf.LazyArray, traffic: Traffic
) -> None:
    dask_array = pytest.importorskip("dask.array")
    lazily = [
        a.to_dask(chunks=(10, 20)),
        a.T[:, ::2].to_dask(),
        dask_array.from_array(a, chunks=(10, 20)),
    ]
    assert lazily[0].name == a.to_dask(chunks=(10, 20)).name
    assert traffic.calls == 0
    part = lazily[0][12:15, :7].compute(scheduler="synchronous")
    assert np.array_equal(part, x[12:15, :7])
    assert traffic.nbytes <= 10 * 20 * 8
    for array, expected in zip(lazily, [x, x.T[:, ::2], x], strict=True):
        values = (array + 1).compute(scheduler="threads")
        assert type(values) is np.ndarray
        assert np.array_equal(values, expected + 1)
        assert np.array_equal(array[[5, 1, 1]].compute(), expected[[5, 1, 1]])


def test_xarray_holds_a_lazy_array_without_pulling_it(
    x: Array, a: gf.LazyArray, traffic: Traffic
) -> None:
    xarray = pytest.importorskip("xarray")
    data = xarray.DataArray(a, dims=("y", "x"), coords={"x": np.arange(40)})
    part = data.isel(y=slice(2, 9, 3)).sel(x=7)
    assert isinstance(part.data, gf.LazyArray)
    assert isinstance(data.T.data, gf.LazyArray)
    assert "LazyArray" in repr(xarray.Dataset({"elevation": data}))
    assert traffic.calls == 0
    assert np.array_equal(part.values, x[2:9:3, 7])
    assert np.array_equal((data[1:4] + 1).values, x[1:4] + 1)
    assert np.array_equal(data.isel(y=[3, 0]).values, x[[3, 0]])
    assert data[:5].mean().item() == pytest.approx(x[:5].mean())
    with pytest.raises(TypeError, match=r"a\.stats\(\)\.mean is computed on the device"):
        data.mean()


def test_xarray_gets_an_ndarray_where_it_needs_one(
    x: Array, a: gf.LazyArray, traffic: Traffic
) -> None:
    xarray = pytest.importorskip("xarray")
    dims, coords = ("y", "x"), {"x": np.arange(40.0), "y": np.arange(30.0)}
    data, expected = (xarray.DataArray(values, coords, dims) for values in (a, x))
    for copied in (data.copy(), copy.deepcopy(data), pickle.loads(pickle.dumps(data))):
        assert type(copied.data) is np.ndarray
        assert copied.identical(expected)
    assert traffic.nbytes == 3 * x.nbytes
    assert isinstance(data.copy(deep=False).data, gf.LazyArray)
    assert isinstance(data.load().data, gf.LazyArray)  # load() leaves every type of array
    assert data.sortby("x", ascending=False).identical(expected.sortby("x", ascending=False))
    if importlib.util.find_spec("scipy"):
        points = {"x": [1.5, 2.25], "y": 7.5}
        assert data.interp(points).identical(expected.interp(points))
    for compare in (data.equals, data.identical, data.broadcast_equals):
        with pytest.raises(ValueError, match="does not pull a whole"):
            compare(expected)
        assert compare(data)
    with pytest.raises(ValueError, match="does not pull a whole"):
        expected.equals(data)


def test_dask_computes_a_lazy_array_in_processes_too(x: Array, a: gf.LazyArray) -> None:
    dask_array = pytest.importorskip("dask.array")
    mean = dask_array.from_array(x, chunks=(10, 20)).mean().compute()
    lazily = dask_array.from_array(a, chunks=(10, 20))
    assert lazily.mean().compute() == mean
    assert lazily.mean().compute(scheduler="synchronous") == mean
    done = subprocess.run([sys.executable, "-c", PROCESSES], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, ["275.5"] * 2), done.stderr


PROCESSES = """
import numpy as np, dask.array
import gpufetch as gf
if __name__ == "__main__":
    a = gf.lazy(gf.to_device(np.arange(552.0).reshape(24, 23), device="host:0"))
    for array in (dask.array.from_array(a, chunks=12), a.to_dask(chunks=12)):
        print(array.mean().compute(scheduler="processes", num_workers=1))
"""


# --- The documentation ---


def test_the_page_about_lazy_arrays_does_what_it_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "lazy.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    names: dict[str, Any] = {}
    exec("\n".join(blocks), names)
    x = gf.fetch(names["x"])
    assert np.array_equal(names["values"], x[10])
    assert np.array_equal(names["future"].result(), x[-4:, ::2, :8].T)
    assert np.array_equal(names["out"], x)
