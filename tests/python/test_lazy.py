"""LazyArray: its values, its reprs, and that it pulls no more than is asked for."""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from pulling import ReplaceableTensor, Traffic
from sanitizing import fewer

import gpufetch as gf
from gpufetch import _core
from gpufetch._display.values_text import REPR_NBYTES
from gpufetch._lazy.array import LazyArray
from gpufetch._text import format_nbytes


def random_values(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 7) -> Any:
    values = np.random.default_rng(seed).normal(0, 100, shape)
    return np.asarray(values).astype(dtype)


@pytest.fixture(scope="module")
def field() -> Any:
    return random_values((6, 5, 7))


@pytest.fixture(scope="module")
def d_field(field: Any) -> Any:
    return gf.to_device(field)


@hypothesis.given(key=hnp.basic_indices((6, 5, 7), allow_newaxis=True, max_dims=6))
@hypothesis.settings(max_examples=fewer(150), deadline=None)
def test_every_basic_index_agrees_with_numpy(field: Any, d_field: Any, key: Any) -> None:
    expected = field[key]
    values = gf.lazy(d_field)[key]
    assert isinstance(values, LazyArray) == isinstance(expected, np.ndarray)
    assert values.dtype == expected.dtype
    assert values.shape == expected.shape
    assert np.asarray(values).tobytes() == expected.tobytes()


@hypothesis.given(key=st.tuples(*[st.slices(n) for n in (6, 5, 7)]))
@hypothesis.settings(max_examples=fewer(60), deadline=None)
def test_a_slice_pulls_no_more_than_was_asked(field: Any, d_field: Any, key: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        traffic = Traffic(patch)
        view = gf.lazy(d_field)[key]
        assert traffic.calls == 0
        view.fetch()
    assert (traffic.calls, traffic.nbytes) == (1, field[key].nbytes)


def test_writing_to_a_pulled_value_leaves_the_device_alone() -> None:
    d_x = gf.to_device(np.arange(4.0))
    values = gf.lazy(d_x)[:].fetch()
    values[:] = -1
    assert gf.fetch(d_x).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("key", [6, -7, (0, 5), (0, 0, 7), (0, 0, 0, 0), (..., ...)])
def test_an_index_outside_the_array_is_refused(d_field: Any, key: Any) -> None:
    with pytest.raises(IndexError):
        gf.lazy(d_field)[key]


@pytest.mark.parametrize("key", [True, np.False_, np.array(True), "u", b"u", 1.0, (0, [1.5])])
def test_an_index_of_another_kind_is_refused(d_field: Any, key: Any) -> None:
    with pytest.raises(IndexError, match="integers, slices"):
        gf.lazy(d_field)[key]


def test_a_zero_step_is_refused(d_field: Any) -> None:
    with pytest.raises(ValueError, match=r"zero|step"):
        gf.lazy(d_field)[::0]


@pytest.mark.parametrize("dtype", [bool, np.int8, np.float64, np.complex64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (11, 13)])
def test_facts_agree_with_numpys(shape: tuple[int, ...], dtype: Any) -> None:
    x = random_values(shape, dtype)
    a = gf.lazy(gf.to_device(x))
    assert (a.shape, a.dtype, a.ndim, a.size, a.nbytes) == (
        x.shape,
        x.dtype,
        x.ndim,
        x.size,
        x.nbytes,
    )
    assert a.device == gf.to_device(x).device
    assert a.fetch().tobytes() == x.tobytes()
    assert np.asarray(a).dtype == x.dtype


def test_asarray_heeds_dtype_and_copy(field: Any, d_field: Any) -> None:
    a = gf.lazy(d_field)
    assert np.array_equal(np.asarray(a), field)
    assert np.asarray(a, dtype=np.float64).dtype == np.float64
    assert np.array_equal(np.array(a, copy=True), field)
    with pytest.raises(ValueError, match="copy"):
        np.array(a, copy=False)


def test_out_is_filled_and_returned(field: Any, d_field: Any) -> None:
    out = np.empty_like(field)
    assert gf.lazy(d_field).fetch(out=out) is out
    assert np.array_equal(out, field)


def test_iteration_pulls_nothing_that_is_not_looked_at(
    field: Any, d_field: Any, traffic: Traffic
) -> None:
    iterator = iter(gf.lazy(d_field))
    assert traffic.calls == 0
    assert np.array_equal(next(iterator).fetch(), field[0])
    assert traffic.nbytes == field[0].nbytes
    assert [len(item) for item in iterator] == [5] * (len(gf.lazy(d_field)) - 1)
    assert traffic.nbytes == field[0].nbytes


def test_an_array_without_axes_has_no_length() -> None:
    a = gf.lazy(gf.to_device(np.float32(2.5)))
    assert isinstance(a[()], np.float32)
    with pytest.raises(TypeError):
        len(a)
    with pytest.raises(TypeError):
        iter(a)
    assert (float(a), int(a), bool(a), a.item()) == (2.5, 2, True, 2.5)


def test_an_ambiguous_truth_value_is_refused(d_field: Any) -> None:
    with pytest.raises(ValueError, match="ambiguous"):
        bool(gf.lazy(d_field))
    with pytest.raises(ValueError, match="one element"):
        gf.lazy(d_field).item()


def test_a_change_on_the_device_is_seen() -> None:
    source = ReplaceableTensor(np.zeros(3, np.float32))
    a = LazyArray(source)
    source.replace(np.ones(3, np.float32))
    assert a[:].tolist() == [1, 1, 1]


def test_a_tensor_that_changed_shape_is_refused() -> None:
    source = ReplaceableTensor(np.zeros(3, np.float32))
    a = LazyArray(source)
    source.replace(np.zeros(4, np.float32))
    with pytest.raises(RuntimeError, match=r"\(3,\).*\(4,\).*new LazyArray"):
        a[0]
    assert "not readable" in shown(a)
    assert "not readable" in a._repr_html_()


def test_the_source_lives_as_long_as_its_wrapper() -> None:
    source = ReplaceableTensor(np.arange(3, dtype=np.float32))
    alive = weakref.ref(source)
    a = LazyArray(source)
    del source
    gc.collect()
    assert a[:].tolist() == [0, 1, 2]
    del a
    gc.collect()
    assert alive() is None


def test_wrapping_a_lazy_array_does_not_nest(d_field: Any) -> None:
    assert gf.lazy(gf.lazy(d_field)).source is d_field


@pytest.mark.parametrize("x", [3, "text", [1.0, 2.0], None, object()])
def test_something_that_is_no_tensor_is_refused(x: Any) -> None:
    with pytest.raises(TypeError):
        LazyArray(x)


def test_from_dlpack_of_a_lazy_array_copies_nothing(d_field: Any, traffic: Traffic) -> None:
    shared = _core.asdevice(gf.lazy(d_field))
    assert shared.data_ptr == _core.asdevice(d_field).data_ptr
    assert traffic.calls == 0


# --- Reprs ---


def shown(a: LazyArray) -> str:
    """What IPython shows of a result."""
    return str(pytest.importorskip("IPython.lib.pretty").pretty(a))


def shown_values(a: LazyArray) -> str:
    """What it shows between the plain repr and two lines of statistics."""
    first, *values, stats, bars = shown(a).split("\n")
    assert first == repr(a)
    assert stats.startswith("min ") and len(bars.split()) >= 3
    return "\n".join(values)


@pytest.mark.parametrize("shape", [(), (3,), (3000, 400)])
def test_a_plain_repr_reads_nothing_from_the_device(shape: tuple[int, ...]) -> None:
    x = gf.to_device(random_values(shape))
    a = gf.lazy(x)
    with pytest.MonkeyPatch.context() as patch:
        traffic = Traffic(patch)
        _core._host_faults(copy_fail_after_nbytes=0)  # any read would fail
        texts = [repr(a), str(a), f"{a}", repr([a]), repr(a[...]), repr(x)]
        if shape:
            texts += [repr(a[:1]), repr(a.T), repr(np.flip(a)), repr(x.T)]
        _core._host_faults()
        assert traffic.calls == 0
    assert all(str(shape) in text for text in texts[:5])
    assert all("\n" not in text for text in texts)


@pytest.mark.parametrize(
    "shape", [(3000, 400), (1_000_000,), (40, 30, 20), (5, 6, 7, 8, 9), (2, 100_000), (100_000, 2)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_a_repr_copies_a_few_kib_at_most(
    shape: tuple[int, ...], dtype: Any, traffic: Traffic
) -> None:
    a = gf.lazy(gf.to_device(random_values(shape, dtype)))
    for text in (shown(a), a._repr_html_()):
        assert str(shape) in text
    assert 0 < traffic.nbytes <= 2 * REPR_NBYTES
    assert traffic.calls <= 2 * 4


def test_a_repr_shows_the_values_that_numpy_would() -> None:
    x = random_values((300, 400), np.float64)
    expected = np.array2string(x, separator=", ", max_line_width=96)
    assert shown_values(gf.lazy(gf.to_device(x))) == expected
    small = random_values((4, 5), np.int16)
    expected = np.array2string(small, separator=", ")
    assert shown_values(gf.lazy(gf.to_device(small))) == expected


def test_a_deep_repr_says_which_plane_it_shows() -> None:
    x = random_values((4, 30, 40), np.float64)
    text = shown(gf.lazy(gf.to_device(x)))
    assert "values at [2, :, :]" in text
    assert np.array2string(x[2], separator=", ", max_line_width=96) in text


@pytest.mark.parametrize("shape", [(), (0,), (0, 100_000), (1, 1, 1)])
def test_an_odd_shape_has_a_repr(shape: tuple[int, ...]) -> None:
    a = gf.lazy(gf.to_device(np.ones(shape, np.float32)))
    assert f"shape={shape}" in repr(a)
    assert shown(a).startswith(f"{a!r}\n")
    assert "<table>" in a._repr_html_() and "not shown" not in a._repr_html_()


def test_a_repr_says_device_and_size() -> None:
    a = gf.lazy(gf.to_device(np.zeros((1024, 256), np.float32)))
    assert repr(a) == f"LazyArray(shape=(1024, 256), dtype=float32, {a.device}, 1.0 MiB)"


def test_the_repr_of_a_huge_array_is_quick(traffic: Traffic) -> None:
    # 1 GiB of float32 by its shape, 256 KiB in memory.
    row = random_values((1 << 16,))
    d_row = gf.to_device(row)
    a = gf.lazy(_core._restride(d_row, (1 << 12, row.size), (0, row.itemsize)))
    assert a.nbytes == 1 << 30
    start = time.perf_counter()
    text = shown(a)
    assert time.perf_counter() - start < 1.0
    whole = np.broadcast_to(row, (1 << 12, 1 << 16))
    assert np.array2string(whole, separator=", ", max_line_width=96) in text
    assert "1.0 GiB" in text
    assert traffic.nbytes <= REPR_NBYTES


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (64 << 20, "64.0 MiB"),
        (3 << 30, "3.0 GiB"),
        (5 << 50, "5.0 PiB"),
    ],
)
def test_a_size_is_written_in_the_right_unit(nbytes: int, text: str) -> None:
    assert format_nbytes(nbytes) == text
