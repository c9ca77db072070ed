"""Plots: their pixels and values are NumPy's, and no more is read than the axes show."""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
import math
import pickle
import re
import subprocess
import sys
import warnings
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from server_build import needs_server

pytest.importorskip("matplotlib")

from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import CenteredNorm, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.transforms import Affine2D

import gpufetch as gf
from gpufetch import _core
from gpufetch._display.palettes import NAN_COLOUR
from gpufetch._lazy import array as lazy_module
from gpufetch.plot._pull import visible

# At the top, since xarray imports when its first array is made, and keeps errors of imports: those
# would keep the frame of a test, and with it what was read there.
xarray: Any = None
with contextlib.suppress(ImportError):
    import xarray

    xarray.DataArray(np.zeros(2), dims="x", coords={"x": [0, 1]})[0]

RNG = np.random.default_rng(11)
RED = (*NAN_COLOUR, 255)


def axes_of(width: int, height: int) -> Any:
    """Axes that fill a figure of so many pixels, without ticks and frame."""
    figure = Figure(figsize=(width / 100, height / 100), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    return axes


def drawn(axes: Any) -> Any:
    """The pixels of a figure, RGBA."""
    canvas = axes.figure.canvas
    canvas.draw()
    return np.asarray(canvas.buffer_rgba()).copy()


def cell_edges(length: int, cells: int) -> Any:
    return np.arange(cells + 1) * length // cells


def blocks(values: Any, cells: tuple[int, int], reduce: Any = np.mean) -> Any:
    """NumPy's overview of two axes."""
    rows, columns = (cell_edges(n, m) for n, m in zip(values.shape, cells, strict=True))
    return np.array(
        [
            [reduce(values[a:b, c:d]) for c, d in itertools.pairwise(columns)]
            for a, b in itertools.pairwise(rows)
        ]
    )


def device(values: Any) -> Any:
    return gf.to_device(values)


# --- What is in view ---


def test_what_is_in_view_is_what_the_limits_meet() -> None:
    assert visible((-0.5, 9.5), 10, (-0.5, 9.5), 100) == (0, 10, 10)
    assert visible((-0.5, 9.5), 10, (9.5, -0.5), 5) == (0, 10, 5)
    assert visible((9.5, -0.5), 10, (0.6, 2.4), 100) == (7, 9, 2)
    assert visible((-0.5, 9.5), 10, (-10.5, 19.5), 30) == (0, 10, 10)
    assert visible((-0.5, 9.5), 10, (20, 30), 30) is None
    assert visible((-0.5, 9.5), 10, (-30, -20), 30) is None
    assert visible((-0.5, 9.5), 10, (-1e308, 1e-300), 30) == (0, 1, 1)
    assert visible((0, 0), 10, (0, 1), 30) is None and visible((0, 1), 0, (0, 1), 30) is None


@settings(deadline=None)
@given(
    st.integers(1, 200),
    st.floats(-300, 300),
    st.floats(-300, 300),
    st.floats(1, 500),
    st.booleans(),
)
def test_no_index_in_view_is_left_out(
    length: int, low: float, high: float, pixels: float, is_reversed: bool
) -> None:
    edges = (length - 0.5, -0.5) if is_reversed else (-0.5, length - 0.5)
    found = visible(edges, length, (low, high), pixels)
    low, high = sorted((low, high))
    places = [length - 1 - i if is_reversed else i for i in range(length)]
    surely = [i for i in range(length) if places[i] - 0.49 < high and places[i] + 0.49 > low]
    if high - low < 0.02:
        return
    if found is None:
        assert surely == []
        return
    first, last, cells = found
    assert set(surely) <= set(range(first, last))
    assert last - first <= high - low + 2 and 1 <= cells <= last - first
    assert cells <= max(1, math.ceil(pixels * (last - first) / (high - low)))


# --- Images ---


def test_an_image_without_reduction_has_matplotlibs_pixels() -> None:
    values = RNG.normal(size=(50, 40)).astype(np.float32)
    ours, theirs = axes_of(200, 250), axes_of(200, 250)
    image = gf.plot.imshow(device(values), ax=ours, cmap="magma", aspect="auto")
    theirs.imshow(values, cmap="magma", aspect="auto", interpolation="nearest")
    np.testing.assert_array_equal(drawn(ours), drawn(theirs))
    assert image.note == ""
    for axes in (ours, theirs):
        axes.set_xlim(9.5, 19.5)
        axes.set_ylim(29.5, 4.5)
    np.testing.assert_array_equal(drawn(ours), drawn(theirs))


@pytest.mark.parametrize("origin", ["upper", "lower"])
@pytest.mark.parametrize("method", ["mean", "max", "min"])
def test_a_reduced_image_has_the_pixels_of_numpys_cells(origin: str, method: str) -> None:
    values = RNG.normal(size=(300, 400)).astype(np.float64)
    axes = axes_of(200, 100)
    image = gf.plot.imshow(
        device(values), ax=axes, method=method, origin=origin, aspect="auto", note=False
    )
    expected = blocks(values, (100, 200), getattr(np, method))
    colours = colormaps["viridis"](Normalize(values.min(), values.max())(expected), bytes=True)
    found = drawn(axes)
    np.testing.assert_allclose(image.get_array(), expected, rtol=1e-12)
    np.testing.assert_array_equal(found, colours if origin == "upper" else colours[::-1])
    assert image.note.startswith({"mean": "mean", "max": "maximum", "min": "minimum"}[method])
    assert image.note.endswith("of 3 × 2")


def test_zooming_and_panning_read_what_is_shown_then(traffic: Any) -> None:
    values = RNG.normal(size=(3000, 4000)).astype(np.float32)
    lz = gf.lazy(device(values))
    axes = axes_of(200, 100)
    image = gf.plot.imshow(lz, ax=axes, aspect="auto")
    before = traffic.nbytes
    drawn(axes)
    np.testing.assert_allclose(image.get_array(), blocks(values, (100, 200)), atol=1e-5)
    for rows, columns in (((1000, 1500), (200, 1200)), ((1010, 1510), (700, 1700))):
        axes.set_ylim(rows[1] - 0.5, rows[0] - 0.5)
        axes.set_xlim(columns[0] - 0.5, columns[1] - 0.5)
        drawn(axes)
        part = values[slice(*rows), slice(*columns)]
        np.testing.assert_allclose(image.get_array(), blocks(part, (100, 200)), atol=1e-5)
        assert image.note == "mean of 5 × 5"
    axes.set_xlim(699.5, 719.5)
    axes.set_ylim(1019.5, 1009.5)
    drawn(axes)
    np.testing.assert_array_equal(image.get_array(), values[1010:1020, 700:720])
    assert image.note == ""
    assert traffic.nbytes - before < 4 * 200 * 100 * 4
    axes.set_xlim(9000, 9100)
    assert (drawn(axes) == 255).all()


def test_a_drawing_of_the_same_view_reads_nothing_until_it_is_refreshed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = np.zeros((40, 40), np.float32)
    x = device(values)
    axes = axes_of(20, 20)
    image = gf.plot.imshow(x, ax=axes, vmin=0, vmax=1)
    drawn(axes)
    _core._copy_into(x, np.ones_like(values))
    with monkeypatch.context() as patch:
        patch.setattr(_core, "overview", None)
        drawn(axes)
    assert cast(Any, image.get_array()).max() == 0
    image.refresh()
    assert axes.figure.stale
    drawn(axes)
    assert cast(Any, image.get_array()).min() == 1


def test_what_is_set_later_is_drawn_from_what_was_read() -> None:
    values = RNG.normal(size=(30, 30)).astype(np.float32)
    axes = axes_of(60, 60)
    image = gf.plot.imshow(device(values), ax=axes)
    first = drawn(axes)
    image.set_cmap("magma")
    image.set_clim(-0.5, 0.5)
    found = drawn(axes)
    expected = colormaps["magma"](Normalize(-0.5, 0.5)(values), bytes=True)
    np.testing.assert_array_equal(found[1::2, 1::2], expected)
    assert (found != first).any()
    image.set_visible(False)
    assert (drawn(axes) == 255).all()


def test_a_transform_is_refused_by_which_other_parts_would_be_seen() -> None:
    x = device(RNG.normal(size=(30, 30)))
    for draw, values in ((gf.plot.imshow, x), (gf.plot.line, x[0]), (gf.plot.hist, x)):
        axes = axes_of(60, 60)
        turned = Affine2D().rotate_deg(90) + axes.transData
        made = cast(Any, draw)(values, ax=axes)
        for transform in (turned, axes.transAxes, Affine2D()):
            with pytest.raises(ValueError, match="leave out transform"):
                made.set_transform(transform)
        made.set_transform(axes.transData)
        drawn(axes)
        if draw is not gf.plot.imshow:
            with pytest.raises(ValueError, match="leave out transform"):
                cast(Any, draw)(values, ax=axes, transform=turned)
            cast(Any, draw)(values, ax=axes, transform=axes.transData)
            drawn(axes)


def test_the_value_under_the_pointer_is_the_cells() -> None:
    values = np.arange(12.0).reshape(3, 4)
    for origin in ("upper", "lower"):
        axes = axes_of(40, 30)
        image = gf.plot.imshow(device(values), ax=axes, aspect="auto", origin=origin)
        drawn(axes)
        for row, column in ((0, 0), (2, 3), (1, 2)):
            x, y = axes.transData.transform((column, row))
            event = type("Event", (), {"x": x, "y": y})
            assert image.get_cursor_data(event) == values[row, column]
        assert image.get_cursor_data(type("Event", (), {"x": -5, "y": 5})) is None


def test_nan_and_infinities_have_colours_and_are_counted() -> None:
    values = RNG.normal(size=(80, 80))
    values[:8, :8], values[40, 40], values[40, 44], values[9, 60] = np.nan, np.inf, np.inf, -np.inf
    axes = axes_of(20, 20)
    image = gf.plot.imshow(device(values), ax=axes, note=False)
    pixels = drawn(axes)
    assert (pixels[:2, :2] == RED).all() and (pixels[2:, 2:] != RED).any(axis=2).all()
    assert image.note == "mean of 4 × 4, 64 NaN, 2 +inf, 1 -inf"
    finite = values[np.isfinite(values)]
    assert (image.norm.vmin, image.norm.vmax) == (finite.min(), finite.max())
    axes.set_xlim(39.5, 49.5)
    axes.set_ylim(49.5, 39.5)
    pixels = drawn(axes)
    top = colormaps["viridis"](1.0, bytes=True)
    assert (pixels[:2, :2] == top).all() and image.note == ""


def test_a_logarithmic_norm_leaves_out_what_has_no_logarithm() -> None:
    values = 10.0 ** RNG.uniform(-3, 3, size=(60, 60))
    values[0, :], values[1, :] = 0, -5
    image = gf.plot.imshow(device(values), ax=axes_of(60, 60), norm="log")
    assert isinstance(image.norm, LogNorm)
    assert (image.norm.vmin, image.norm.vmax) == (values[values > 0].min(), values.max())
    pixels = drawn(image.axes)
    assert (pixels[:2] == RED).all() and not (pixels[2:50] == RED).all(axis=2).any()
    nothing = gf.plot.imshow(device(-values), ax=axes_of(60, 60), norm=LogNorm())
    assert nothing.norm.vmin > 0
    drawn(nothing.axes)


@pytest.mark.parametrize("values", [np.full((9, 9), np.nan), np.zeros((9, 9)), np.zeros((0, 4))])
@pytest.mark.parametrize("norm", [None, "log", "symlog"])
def test_planes_with_nothing_to_scale_by_are_drawn(values: Any, norm: Any) -> None:
    if norm == "symlog":
        from matplotlib.colors import SymLogNorm

        norm = SymLogNorm(0.1)
    axes = axes_of(20, 20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of axes without a length
        gf.plot.imshow(device(values), ax=axes, norm=norm)
        drawn(axes)


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, np.int8, np.uint16, np.int64, np.float64], ids=str
)
def test_every_real_dtype_is_drawn(dtype: Any) -> None:
    values = RNG.integers(0, 100, size=(40, 60)).astype(dtype)
    wide = values.astype(np.float64)
    axes = axes_of(30, 20)
    image = gf.plot.imshow(device(values), ax=axes, aspect="auto", note=False)
    colours = colormaps["viridis"](Normalize(wide.min(), wide.max())(blocks(wide, (20, 30))))
    np.testing.assert_allclose(drawn(axes) / 255, colours, atol=0.05)
    axes.set_xlim(-0.5, 9.5)
    axes.set_ylim(9.5, -0.5)
    drawn(axes)
    np.testing.assert_array_equal(np.asarray(image.get_array(), np.float64), wide[:10, :10])


# --- Masks and labels ---


def test_one_true_of_a_mask_is_seen() -> None:
    values = np.zeros((1000, 1000), bool)
    values[777, 333] = True
    axes = axes_of(50, 50)
    image = gf.plot.imshow(device(values), ax=axes, note=False)
    found = (drawn(axes) == colormaps["viridis"](1.0, bytes=True)).all(axis=2)
    assert np.argwhere(found).tolist() == [[38, 16]]
    assert image.note == "any of 20 × 20"
    fraction = gf.plot.imshow(device(values), ax=axes_of(50, 50), method="mean")
    drawn(fraction.axes)
    assert cast(Any, fraction.get_array())[38, 16] == np.float32(1 / 400)


def test_labels_are_never_averaged() -> None:
    values = RNG.choice(np.array([0, 1, 21, 2**62, 2**62 + 1]), size=(90, 120))
    axes = axes_of(40, 30)
    image = gf.plot.imshow(device(values), ax=axes, labels=True, aspect="auto", note=False)
    table = colormaps["tab20"](np.arange(20), bytes=True)
    np.testing.assert_array_equal(drawn(axes), table[(values[::3, ::3] % 20).astype(int)])
    assert image.note == "nearest (first) of 3 × 3"
    small = gf.plot.imshow(
        device(values.astype(np.int8)), ax=axes_of(40, 30), labels=True, cmap="hsv"
    )
    drawn(small.axes)
    for options in ({"method": "mean"}, {"part": "abs"}):
        with pytest.raises(ValueError, match=r"labels|real"):
            gf.plot.imshow(device(values), ax=axes, labels=True, **cast(Any, options))
    with pytest.raises(ValueError, match="labels are integers"):
        gf.plot.imshow(device(values.astype(float)), ax=axes, labels=True)


# --- Colours ---


@pytest.mark.parametrize("count", [3, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_pictures_with_channels_first_and_last_are_the_same(count: int, dtype: Any) -> None:
    values = RNG.uniform(size=(60, 80, count))
    if dtype == np.uint8:
        values = np.rint(values * 255)
    values = values.astype(dtype)
    last, first = axes_of(40, 30), axes_of(40, 30)
    image = gf.plot.imshow(device(values), ax=last, aspect="auto", note=False)
    gf.plot.imshow(device(np.moveaxis(values, 2, 0).copy()), ax=first, aspect="auto", note=False)
    cells = np.stack([blocks(values[..., i].astype(float), (30, 40)) for i in range(count)], axis=2)
    scaled = cells if dtype == np.uint8 else cells * 255
    expected = scaled[..., :3]
    if count == 4:  # over white
        alpha = scaled[..., 3:] / 255
        expected = expected * alpha + 255 * (1 - alpha)
    found = drawn(last)
    np.testing.assert_allclose(found[..., :3], expected, atol=3)
    np.testing.assert_array_equal(found, drawn(first))
    assert image.note == "mean of 2 × 2"


def test_colours_are_scaled_and_nan_is_red() -> None:
    values = np.full((10, 10, 3), 5.0, np.float32)
    values[0, 0, 1], values[0, 1, 0] = np.nan, np.inf
    axes = axes_of(10, 10)
    gf.plot.imshow(device(values), ax=axes, vmin=0, vmax=10, note=False)
    pixels = drawn(axes)
    assert tuple(pixels[0, 0]) == RED and tuple(pixels[0, 1, :3]) == (255, 128, 128)
    assert (pixels[1:, :, :3] == 128).all()


def test_shapes_that_are_no_pictures_are_refused() -> None:
    axes = axes_of(10, 10)
    for shape, remedy in (
        ((5,), r"; gpufetch\.plot\.line draws one axis"),
        ((5, 6, 7), r"; index one axis, as x\[0\], or use gpufetch\.plot\.slices"),
        ((2, 5, 5), r"gpufetch\.plot\.slices"),
        ((3, 4, 5, 6), r"; index the others, as x\[0\], or use gpufetch\.view, which has a slider"),
    ):
        with pytest.raises(ValueError, match=rf"is no picture.*{remedy}"):
            gf.plot.imshow(device(np.zeros(shape)), ax=axes)
    with pytest.raises(ValueError, match="channels"):
        gf.plot.imshow(device(np.zeros((5, 5))), ax=axes, channels="first")
    image = gf.plot.imshow(device(np.zeros((3, 7, 4))), ax=axes, channels="first")
    assert image.get_size() == (7, 4)
    for options in ({"method": "median"}, {"channels": "middle"}, {"part": "abs"}):
        with pytest.raises(ValueError, match=r"median|middle|abs"):
            gf.plot.imshow(device(np.zeros((5, 5))), ax=axes, **cast(Any, options))
    assert len(axes.images) == 1


def test_means_of_large_integers_have_the_right_colours() -> None:
    steps = np.add.outer(np.arange(400) // 10, np.arange(400) // 20)
    for dtype, offset in ((np.int32, 2**30), (np.uint32, 4 * 10**9), (np.int32, 0)):
        values = (steps + offset).astype(dtype)
        ours, theirs = axes_of(40, 40), axes_of(40, 40)
        image = gf.plot.imshow(device(values), ax=ours, note=False, aspect="auto")
        theirs.imshow(
            steps[::10, ::10],
            cmap=image.get_cmap(),
            interpolation="nearest",
            aspect="auto",
            vmin=0,
            vmax=steps.max(),
        )
        np.testing.assert_allclose(drawn(ours).astype(int), drawn(theirs), atol=2)
        assert image.note.startswith("mean")


def test_large_integers_are_told_apart_after_a_change_of_limits() -> None:
    rows = np.repeat(np.arange(50), 8)[:, None] + np.zeros((1, 400), int)
    values = (rows + 2 * 10**9).astype(np.int32)
    axes = axes_of(50, 50)
    image = gf.plot.imshow(device(values), ax=axes, vmin=0, vmax=2**31, note=False)
    assert len(np.unique(drawn(axes), axis=0)) == 1
    image.set_clim(2e9, 2e9 + 49)
    assert len(np.unique(drawn(axes)[:, 0], axis=0)) == 50
    image.autoscale()
    assert len(np.unique(drawn(axes)[:, 0], axis=0)) == 50


def test_equal_limits_of_a_picture_part_what_is_above_from_the_rest() -> None:
    values = np.array([[[0, 1, 2], [1, 1, np.inf], [np.nan, 1, 1]]])
    axes = axes_of(30, 10)
    gf.plot.imshow(device(values), ax=axes, vmin=1, vmax=1, aspect="auto", note=False)
    found = drawn(axes)[5, [5, 15, 25]]
    assert found[:2, :3].tolist() == [[0, 0, 255], [0, 0, 255]] and tuple(found[2]) == RED
    bright = axes_of(30, 10)
    gf.plot.imshow(device(np.full((1, 3, 3), 255, np.uint8)), ax=bright, vmin=255, note=False)
    drawn(bright)


def test_an_image_takes_another_tensor_of_its_shape() -> None:
    values = RNG.normal(size=(30, 40))
    axes = axes_of(40, 30)
    image = gf.plot.imshow(device(values), ax=axes, vmin=-1, vmax=1, aspect="auto")
    before = drawn(axes)
    for setter in (image.set_data, image.set_array):
        setter(device(-values))
        after = drawn(axes)
        assert not np.array_equal(after, before)
        np.testing.assert_array_equal(image.get_array(), -values)
        other = axes_of(40, 30)
        gf.plot.imshow(device(-values), ax=other, vmin=-1, vmax=1, aspect="auto")
        np.testing.assert_array_equal(after, drawn(other))
        image.set_data(device(values))
        np.testing.assert_array_equal(drawn(axes), before)
    for bad in (np.zeros((30, 41)), np.zeros((30, 40), np.float32)):
        with pytest.raises(ValueError, match=r"cannot take the place .* remove\(\) the image"):
            image.set_data(device(bad))


def test_data_that_would_not_be_drawn_are_refused() -> None:
    line = gf.plot.line(device(np.arange(9.0)), ax=axes_of(40, 30))
    bars = gf.plot.hist(device(np.arange(9.0)), ax=axes_of(40, 30))
    for call in (
        lambda: line.set_data(np.arange(9), np.ones(9)),
        lambda: line.set_xdata(np.arange(9)),
        lambda: line.set_ydata(np.ones(9)),
        lambda: bars.set_data(np.ones(64)),
        lambda: bars.set_data(edges=np.arange(65)),
    ):
        with pytest.raises(
            TypeError, match=r"refresh\(\) reads it anew.*gpufetch\.plot\.(line|hist)"
        ):
            call()
    bars.set_data(baseline=1)
    drawn(bars.axes)
    drawn(line.axes)


def test_what_an_image_would_not_draw_is_refused() -> None:
    axes = axes_of(40, 30)
    image = gf.plot.imshow(device(np.arange(1.0, 49).reshape(6, 8)), ax=axes, norm="log")
    before = drawn(axes)
    for name in ("bilinear", "auto", None, 7):
        with pytest.raises(ValueError, match=r"interpolation is .* \"nearest\" alone"):
            image.set_interpolation(name)
    with pytest.raises(TypeError, match="alpha has 2 axes"):
        image.set_alpha(np.full((6, 8), 0.5))
    for call in (
        lambda: image.write_png(io.BytesIO()),
        lambda: image.make_image(axes.figure.canvas.get_renderer()),
    ):
        with pytest.raises(TypeError, match=r"keeps no pixels: save a picture by savefig"):
            call()
    image.set(interpolation="Nearest", alpha=1.0)
    np.testing.assert_array_equal(drawn(axes), before)


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.deepcopy])
def test_a_figure_that_reads_from_a_device_is_not_pickled(duplicate: Any) -> None:
    values = np.arange(64.0)
    for plot, shape in ((gf.plot.imshow, (8, 8)), (gf.plot.line, 64), (gf.plot.hist, 64)):
        axes = axes_of(40, 30)
        cast(Any, plot)(device(values.reshape(shape)), ax=axes)
        with pytest.raises(TypeError, match="cannot be pickled or copied, nor can its figure"):
            duplicate(axes.figure)


def test_nan_in_a_constant_is_red() -> None:
    values = np.full((4, 4), 3.0)
    values[1, 1] = np.nan
    axes = axes_of(40, 40)
    gf.plot.imshow(device(values), ax=axes, aspect="auto")
    pixels = drawn(axes)
    assert tuple(pixels[15, 15]) == RED and tuple(pixels[5, 5]) != RED


def test_limits_are_found_anew_after_a_drawing() -> None:
    values = RNG.normal(size=(200, 300))
    axes = axes_of(30, 20)
    image = gf.plot.imshow(device(values), ax=axes, vmin=-1, vmax=1)
    drawn(axes)
    axes.figure.colorbar(image)
    assert image.get_clim() == (-1, 1)
    image.autoscale()
    assert image.get_clim() == (values.min(), values.max())


def test_a_centred_norm_is_scaled_as_matplotlib_does() -> None:
    values = RNG.normal(size=(20, 30)) + 5
    norm, theirs = CenteredNorm(), CenteredNorm()
    theirs.autoscale_None(values)
    gf.plot.imshow(device(values), ax=axes_of(30, 20), norm=norm)
    assert (norm.vmin, norm.vmax) == (theirs.vmin, theirs.vmax)


# --- Complex numbers ---


def test_limits_of_magnitudes_reach_the_highest_element() -> None:
    values = np.full((1500, 1500), 0.1, np.complex64)
    values[700, 700] = 100
    image = gf.plot.imshow(device(values), ax=axes_of(30, 30))
    assert 100 <= image.get_clim()[1] < 100.1
    values[700, 701] = np.inf
    image = gf.plot.imshow(device(values), ax=axes_of(30, 30))
    assert 100 <= image.get_clim()[1] < 142


def test_a_complex_number_with_nan_in_one_component_has_no_magnitude() -> None:
    values = np.full((90, 90), complex(3, 4), np.complex64)
    values.real[:30] = np.nan
    for size in (30, 90):
        axes = axes_of(size, size)
        image = gf.plot.imshow(device(values), ax=axes, aspect="auto")
        drawn(axes)
        cells = cast(Any, image.get_array())
        assert np.isnan(cells[: size // 3]).all() and (cells[size // 3 :] == 5).all()
        assert image.note.endswith("2,700 NaN components") or size == 90


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_planes_are_shown_by_magnitude_phase_or_part(dtype: Any) -> None:
    values = (RNG.normal(size=(60, 80)) + 1j * RNG.normal(size=(60, 80))).astype(dtype)
    expected = {
        None: blocks(values, (30, 40), lambda z: np.sqrt(np.mean(np.abs(z) ** 2))),
        "phase": np.angle(blocks(values, (30, 40))),
        "real": blocks(values.real, (30, 40)),
        "imag": blocks(values.imag, (30, 40)),
    }
    of = {None: np.abs, "phase": np.angle, "real": np.real, "imag": np.imag}
    for part, cells in expected.items():
        axes = axes_of(40, 30)
        image = gf.plot.imshow(device(values)[::-1], ax=axes, part=part, aspect="auto")
        drawn(axes)
        np.testing.assert_allclose(cast(Any, image.get_array())[::-1], cells, rtol=1e-4, atol=1e-5)
        assert image.note.endswith("2 × 2")
        axes.set_xlim(-0.5, 9.5)
        axes.set_ylim(9.5, -0.5)
        drawn(axes)
        np.testing.assert_allclose(
            cast(Any, image.get_array()), of[part](values[::-1][:10, :10]), rtol=1e-6
        )
    with pytest.raises(ValueError, match="part is 'x'"):
        gf.plot.imshow(device(values), ax=axes_of(9, 9), part="x")


# --- Lines ---


def lit_columns(axes: Any) -> Any:
    """For each column the lowest and the highest pixel that is not white, -1 for none."""
    dark = (drawn(axes)[::-1, :, :3] < 128).all(axis=2)
    rows = np.arange(dark.shape[0])[:, None]
    low = np.where(dark, rows, dark.shape[0]).min(axis=0)
    return np.where(dark.any(axis=0), low, -1), np.where(dark, rows, -1).max(axis=0)


def test_one_spike_in_many_samples_survives() -> None:
    values = np.zeros(3_000_000, np.float32)
    values[1_234_567] = 100
    axes = axes_of(300, 100)
    made = gf.plot.line(
        device(values), ax=axes, color="black", note=False, antialiased=False, linewidth=0.72
    )
    axes.set_xlim(-0.5, 2_999_999.5)
    axes.set_ylim(-10, 110)
    _, high = lit_columns(axes)
    assert made.note == "lowest to highest of 10,000"
    assert high[123] >= 90 and (np.delete(high, [122, 123, 124]) < 12).all()


def test_a_line_has_the_pixels_of_all_samples() -> None:
    values = RNG.normal(size=40_000).cumsum()
    ours, theirs = axes_of(400, 200), axes_of(400, 200)
    style = {"color": "black", "linewidth": 1, "antialiased": False}
    made = gf.plot.line(device(values), ax=ours, note=False, **style)
    theirs.plot(values, **style)
    for axes in (ours, theirs):
        axes.set_xlim(-0.5, 39_999.5)
    assert ours.get_ylim() == theirs.get_ylim()
    (low, high), (low_other, high_other) = lit_columns(ours), lit_columns(theirs)
    beside = [slice(0, -2), slice(1, -1), slice(2, None)]  # a cell may end within a column
    assert (low[1:-1] >= np.min([low_other[s] for s in beside], axis=0) - 1).all()
    assert (high[1:-1] <= np.max([high_other[s] for s in beside], axis=0) + 1).all()
    assert (low_other[1:-1] >= np.min([low[s] for s in beside], axis=0) - 1).all()
    assert (high_other[1:-1] <= np.max([high[s] for s in beside], axis=0) + 1).all()
    assert made.note == "lowest to highest of 100"
    for axes in (ours, theirs):
        axes.set_xlim(1000, 1200)
    np.testing.assert_array_equal(drawn(ours), drawn(theirs))
    assert made.note == ""


def test_a_line_has_gaps_for_nan_and_leaves_the_axes_for_infinities() -> None:
    values = np.zeros(100_000)
    values[20_000:40_000], values[70_000], values[90_000] = np.nan, np.inf, -np.inf
    values[:10], values[10:20] = -1, 1
    axes = axes_of(100, 50)
    made = gf.plot.line(device(values), ax=axes, color="black", note=False, antialiased=False)
    assert axes.get_ylim()[0] > -2 and axes.get_ylim()[1] < 2
    axes.set_xlim(-0.5, 99_999.5)
    low, high = lit_columns(axes)
    assert (high[21:39] == -1).all() and (high[41:69] > -1).all()
    assert high[70] == 49 and low[90] == 0
    assert made.note == "lowest to highest of 1,000, 20,000 NaN, 1 +inf, 1 -inf"


def test_lines_are_styled_scaled_and_refreshed() -> None:
    x = device(np.arange(5.0))
    axes = axes_of(50, 50)
    first = gf.plot.line(x, ax=axes, label="one", ends=(10, 18))
    second = gf.plot.line(device(np.arange(3, dtype=np.uint8)), ax=axes)
    assert first.get_color() != second.get_color() and len(axes.lines) == 2
    assert axes.get_legend_handles_labels()[1][0] == "one"
    axes.relim()
    axes.autoscale_view()
    assert axes.dataLim.intervalx.tolist() == [0, 18] and axes.dataLim.intervaly.tolist() == [0, 4]
    drawn(axes)
    assert first.contains(None) == (False, {})
    _core._copy_into(x, np.full(5, 2.0))
    first.refresh()
    drawn(axes)
    points = first._puller.newest
    assert points is not None
    assert points.y.tolist() == [2] * 5 and points.x.tolist() == [10, 12, 14, 16, 18]
    part = gf.plot.line(device(np.array([1 + 2j, 3 + 4j])), ax=axes, part="imag")
    drawn(axes)
    assert part._puller.newest is not None and part._puller.newest.y.tolist() == [2, 4]
    for bad in (np.zeros((2, 3)), np.zeros(0), np.zeros(())):
        with pytest.raises(ValueError, match="is no line"):
            gf.plot.line(device(bad), ax=axes)
    with pytest.raises(ValueError, match="part"):
        gf.plot.line(device(np.ones(3, complex)), ax=axes, part="abs")


@pytest.mark.parametrize(
    "ends",
    [(3, 3), (math.nan, 1), (0, math.inf), (-1e308, 1e308), (1,), (1, 2, 3), "ab", 5, (None, 1)],
)
def test_ends_of_a_line_that_are_no_places_are_refused(ends: Any) -> None:
    axes = axes_of(50, 50)
    with pytest.raises(ValueError, match=r"ends is .*: give two"):
        gf.plot.line(device(np.arange(5.0)), ax=axes, ends=ends)
    assert not axes.lines
    gf.plot.line(device(np.arange(1.0)), ax=axes, ends=(3, 3))
    gf.plot.line(device(np.arange(5.0)), ax=axes, ends=(3, -3))
    drawn(axes)


@pytest.mark.parametrize("extent", [(0, math.nan, 1, 2), (0, 1), (0, 1, 2, math.inf), "abcd", 3])
def test_an_extent_that_is_none_is_refused_before_an_image_is_made(extent: Any) -> None:
    axes = axes_of(50, 50)
    with pytest.raises(ValueError, match=r"extent is .*: give f"):
        gf.plot.imshow(device(np.zeros((4, 5))), ax=axes, extent=extent)
    assert not axes.images


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"indices": [0, 5]}, IndexError, "indices has 5; the axis has 3 planes"),
        ({"indices": [-4]}, IndexError, "indices has -4; the axis has 3 planes"),
        ({"indices": [1.5]}, TypeError, "integer"),
        ({"ax": None}, TypeError, "give figure, and leave out ax"),
        ({"alpha": 2}, ValueError, "alpha"),
        ({"extent": (0, math.nan, 1, 2)}, ValueError, "extent"),
        ({"nope": 1}, TypeError, "nope"),
    ],
)
def test_slices_that_are_refused_leave_no_figure(options: Any, kind: Any, message: str) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    before = pyplot.get_fignums()
    with pytest.raises(kind, match=message):
        gf.plot.slices(device(np.zeros((3, 10, 30))), **options)
    assert pyplot.get_fignums() == before


@pytest.mark.parametrize("linewidth", [0.2, 1.5])
def test_values_between_gaps_are_seen(linewidth: float) -> None:
    def columns(values: Any, limits: tuple[float, float] | None = None, **style: Any) -> Any:
        axes = axes_of(100, 50)
        gf.plot.line(device(values), ax=axes, color="black", note=False, antialiased=False, **style)
        axes.set(xlim=limits or (-0.5, len(values) - 0.5), ylim=(-1, 6))
        return np.flatnonzero(lit_columns(axes)[1] >= 0)

    style = {"linewidth": linewidth}
    spike = np.full(1_000_000, np.nan, np.float32)
    spike[555_555] = 5
    for limits in (None, (555_505, 555_605)):
        assert abs(columns(spike, limits, **style) - (50 if limits else 55)).max() <= 1
    every_other = np.where(np.arange(1000) % 2, np.nan, 2)
    assert len(columns(every_other, **style)) == 100  # ten samples a pixel
    assert len(columns(every_other, (499.5, 519.5), **style)) >= 10
    assert columns(np.array([3.0]), **style).size
    assert columns(every_other[:20], linestyle="None", **style).size == 0


def test_a_line_on_a_logarithmic_axis_is_drawn() -> None:
    values = np.exp(RNG.normal(size=10_000))
    values[5] = np.inf
    axes = axes_of(100, 100)
    gf.plot.line(device(values), ax=axes, color="black", antialiased=False, note=False)
    axes.set_yscale("log")
    _, high = lit_columns(axes)
    assert (high[6:94] > 0).all()


# --- Histograms ---


def bars_of(made: Any) -> Any:
    bars = made._puller.newest
    return bars.heights, bars.edges


def test_a_histogram_is_numpys_and_is_counted_anew_where_it_is_zoomed() -> None:
    values = RNG.normal(size=100_000)
    values[:5], values[5] = np.nan, np.inf
    finite = values[np.isfinite(values)]
    axes = axes_of(100, 100)
    made = gf.plot.hist(device(values), 40, ax=axes)
    drawn(axes)
    counts, edges = np.histogram(finite, 40)
    np.testing.assert_array_equal(bars_of(made)[0], counts)
    np.testing.assert_allclose(bars_of(made)[1], edges)
    width = edges[1] - edges[0]
    assert made.note == f"counts in 40 bins of {width:.4g}, 5 NaN, 1 +inf"
    axes.set_xlim(-0.25, 0.25)
    drawn(axes)
    counts, edges = np.histogram(finite, 40, range=(-0.25, 0.25))
    np.testing.assert_allclose(bars_of(made)[0], counts * (width / 0.0125))
    assert made.note.startswith(f"counts in 40 bins of 0.0125, scaled to {width:.4g}")
    axes.set_xlim(50, 60)
    drawn(axes)
    for options in ({"bins": 0}, {"range": (1, 0)}, {"range": (0, np.inf)}):
        with pytest.raises(ValueError, match=r"bins|range"):
            gf.plot.hist(device(values), ax=axes, **cast(Any, options))


@pytest.mark.parametrize("log", [False, True])
def test_a_horizontal_histogram_is_a_vertical_one_turned(log: bool) -> None:
    values = RNG.normal(size=10_000)
    upright, lying = axes_of(100, 100), axes_of(100, 100)
    options: dict[str, Any] = {"log": log, "note": False, "color": "black"}
    gf.plot.hist(device(values), 20, ax=upright, **options)
    made = gf.plot.hist(device(values), 20, ax=lying, orientation="horizontal", **options)
    assert (lying.get_ylabel(), lying.get_xlabel()) == (upright.get_xlabel(), "elements")
    for is_zoomed in (False, True):
        if is_zoomed:
            upright.set_xlim(-0.25, 0.5)
            lying.set_ylim(-0.25, 0.5)
        assert (lying.get_xlim(), lying.get_ylim()) == (upright.get_ylim(), upright.get_xlim())
        turned = drawn(lying)[::-1].transpose(1, 0, 2)[::-1]
        assert (np.abs(turned.astype(int) - drawn(upright)).max(axis=2) > 64).mean() < 0.06
    counts, edges = np.histogram(values, 20, range=(-0.25, 0.5))
    np.testing.assert_allclose(bars_of(made)[1], edges)
    np.testing.assert_allclose(bars_of(made)[0] / counts, bars_of(made)[0][0] / counts[0])
    with pytest.raises(ValueError, match=r'orientation is .across.; give "vertical" or "horizont'):
        gf.plot.hist(device(values), ax=lying, orientation="across")


def test_bins_of_integers_hold_as_many_integers_each() -> None:
    values = RNG.integers(-50, 51, size=5000)
    axes = axes_of(100, 100)
    made = gf.plot.hist(device(values), 64, ax=axes, log=True, color="black")
    drawn(axes)
    heights, edges = bars_of(made)
    assert edges[0] == values.min() - 0.5 and set(np.diff(edges)) == {2.0}
    assert heights[0] == (values < values.min() + 2).sum() and heights.sum() == 5000
    axes.set_xlim(2.6, 4.4)
    drawn(axes)
    heights, edges = bars_of(made)
    assert edges.tolist() == [2.5, 3.5, 4.5]
    assert heights.tolist() == [2 * (values == 3).sum(), 2 * (values == 4).sum()]
    for odd in (np.zeros(4), np.zeros(3, bool), np.full(3, np.nan), np.zeros(0), np.ones(3, int)):
        axes = axes_of(50, 50)
        assert bars_of(gf.plot.hist(device(odd), ax=axes))[0].sum() == np.isfinite(odd).sum()
        drawn(axes)


@pytest.mark.parametrize(
    "values",
    [
        [1.0, math.nextafter(1.0, 2)],
        [300 + i * 6e-14 for i in range(10)],
        [0.0, 5e-324],
        [-1e300, -1e300 + 1e285],
        [1.7e9] * 9 + [1.7e9 + 5e-7],
    ],
)
def test_floats_that_bins_would_not_tell_apart_are_counted_in_a_wider_range(
    values: list[float],
) -> None:
    made = gf.plot.hist(device(np.array(values)), ax=axes_of(50, 50))
    heights, edges = bars_of(made)
    assert heights.sum() == len(values) and edges[0] <= min(values) and edges[-1] >= max(values)
    drawn(made.axes)


def test_the_largest_floats_are_counted() -> None:
    with np.errstate(over="ignore"):  # Matplotlib's margins
        made = gf.plot.hist(device(np.full(4, sys.float_info.max)), ax=axes_of(50, 50))
    assert bars_of(made)[0].sum() == 4


def test_a_range_that_float64_does_not_hold_is_to_be_given() -> None:
    x = device(np.array([-1.7e308, 1.0, 1.7e308]))
    with pytest.raises(ValueError, match=r"from -1\.7e\+308 to 1\.7e\+308.*range=\(low, high\)"):
        gf.plot.hist(x, ax=axes_of(50, 50))
    heights, _ = bars_of(gf.plot.hist(x, ax=axes_of(50, 50), range=(0, 2)))
    assert heights.sum() == 1


BIG = [2**52 - 3, 2**52 + 1, 2**53 - 2, 2**53 + 1, 2**54 + 5, 2**60 + 201]


@pytest.mark.parametrize("first", BIG)
@pytest.mark.parametrize(("beyond", "sign"), [(0, 1), (1, -1), (100_001, 1)])
def test_no_integer_is_left_out_however_large(first: int, beyond: int, sign: int) -> None:
    values = np.array([first] * 990 + [first + beyond] * 10) * sign
    made = gf.plot.hist(device(values), ax=axes_of(100, 100))
    drawn(made.axes)
    heights, edges = bars_of(made)
    assert heights.sum() == 1000 and heights.max() >= 990
    widths = {int(b) - int(a) for a, b in itertools.pairwise(np.floor(edges))}
    assert len(widths) == 1


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_the_ends_of_integers_of_eight_bytes_are_counted(dtype: Any) -> None:
    info = np.iinfo(dtype)
    for values in ([info.min, info.max], [info.max], [info.max - 5000, info.max], [info.min]):
        made = gf.plot.hist(device(np.array(values, dtype)), ax=axes_of(50, 50))
        assert bars_of(made)[0].sum() == len(values)


# --- Several planes, and xarray ---


def test_slices_share_limits_of_colours_and_views() -> None:
    values = RNG.normal(size=(11, 20, 30)).astype(np.float32)
    values[7] *= 10
    figure = Figure(figsize=(6, 4))
    FigureCanvasAgg(figure)
    images = gf.plot.slices(device(values), count=4, figure=figure)
    figure.canvas.draw()
    assert len(images) == 4 and len({id(image.norm) for image in images}) == 1
    assert (images[0].norm.vmin, images[0].norm.vmax) == (values.min(), values.max())
    for image, index in zip(images, (0, 3, 6, 10), strict=True):
        np.testing.assert_array_equal(cast(Any, image.get_array()), values[index])
        assert image.axes.get_title() == f"axis 0 = {index}"
    images[0].axes.set_xlim(4.5, 9.5)
    figure.canvas.draw()
    np.testing.assert_array_equal(cast(Any, images[3].get_array()), values[10, :, 5:10])
    figure = Figure()
    FigureCanvasAgg(figure)
    images = gf.plot.slices(
        device(values), axis=-1, indices=[0, -1], columns=1, figure=figure, vmax=3
    )
    figure.canvas.draw()
    np.testing.assert_array_equal(cast(Any, images[1].get_array()), values[..., -1])
    assert images[1].norm.vmax == 3 and images[1].norm.vmin == values.min()
    for options in ({"axis": 3}, {"indices": []}):
        with pytest.raises(ValueError, match=r"axis|plane"):
            gf.plot.slices(device(values), figure=Figure(), **cast(Any, options))


def test_slices_of_complex_numbers_labels_and_pictures() -> None:
    whole = RNG.normal(size=(4, 8, 9)) + 1j * RNG.normal(size=(4, 8, 9))
    for values, options in (
        (whole, {}),
        (whole, {"part": "phase"}),
        (RNG.integers(0, 9, size=(4, 8, 9)), {"labels": True}),
        (RNG.uniform(size=(4, 8, 9, 3)), {"channels": "last"}),
        (RNG.uniform(1, 2, size=(4, 8, 9)), {"norm": "log"}),
    ):
        figure = Figure()
        FigureCanvasAgg(figure)
        images = gf.plot.slices(device(values), figure=figure, **cast(Any, options))
        figure.canvas.draw()
        assert len(images) == 4
    magnitude = gf.plot.slices(device(whole), figure=Figure())[0].norm
    assert magnitude.vmin == 0 and magnitude.vmax == pytest.approx(np.abs(whole).max())


def test_slices_take_an_axis_of_three_for_colours_only_where_it_is_said() -> None:
    for shape in ((3, 4, 50, 60), (6, 7, 50, 60), (2, 3, 4, 5, 6)):
        text = rf"takes 3 axes, not shape {re.escape(str(shape))}: index one, .*gpufetch\.view\(x\)"
        with pytest.raises(ValueError, match=text):
            gf.plot.slices(device(np.zeros(shape)), figure=Figure())
    with pytest.raises(ValueError, match=r'give channels="last" or "first"'):
        gf.plot.slices(device(np.zeros((3, 4, 50, 60))), figure=Figure())
    with pytest.raises(ValueError, match=r"takes 3 axes, not shape \(5, 6\): .*imshow"):
        gf.plot.slices(device(np.zeros((5, 6))), figure=Figure())
    with pytest.raises(ValueError, match=r'takes 4 axes with channels="last", not shape'):
        gf.plot.slices(device(np.zeros((5, 6, 3))), channels="last", figure=Figure())
    figure = Figure()
    images = gf.plot.slices(device(np.zeros((2, 3, 5, 6))), channels="first", figure=figure)
    assert [image.get_size() for image in images] == [(5, 6)] * 2


def labelled(values: Any, **coordinates: Any) -> Any:
    if xarray is None:
        pytest.skip("no xarray: pip install xarray")
    dims = ("time", "lat", "lon")[-values.ndim :]
    return xarray.DataArray(
        gf.lazy(device(values)),
        dims=dims,
        coords={name: coordinates[name] for name in dims if name in coordinates},
        name="height",
        attrs={"units": "m"},
    )


def test_slices_refuse_what_fits_no_axis_and_name_the_last_plane() -> None:
    volume = device(np.zeros((3, 4, 5)))
    for options in ({"columns": 0}, {"axis": "z"}):
        with pytest.raises(ValueError, match=r"columns is 0|axis is 'z'"):
            gf.plot.slices(volume, figure=Figure(), **cast(Any, options))
    (image,) = gf.plot.slices(volume, indices=[-1], figure=Figure())
    assert image.axes.get_title() == "axis 0 = 2"


def test_coordinates_and_names_of_xarray_are_those_of_the_axes() -> None:
    values = RNG.normal(size=(4, 6, 10))
    north, south = np.linspace(40, 50, 6), np.linspace(50, 40, 6)
    lon = np.linspace(-4.5, 4.5, 10)
    rising = gf.plot.imshow(labelled(values[0], lat=north, lon=lon), ax=axes_of(50, 30))
    assert rising.get_extent() == [-5, 5, 39, 51] and rising.origin == "lower"
    axes = rising.axes
    names = (axes.get_xlabel(), axes.get_ylabel(), axes.get_title(), axes.get_aspect())
    assert names == ("lon", "lat", "height (m)", "auto")
    falling = gf.plot.imshow(labelled(values[0, ::-1], lat=south, lon=lon), ax=axes_of(50, 30))
    assert falling.get_extent() == [-5, 5, 39, 51] and falling.origin == "upper"
    np.testing.assert_array_equal(drawn(rising.axes), drawn(falling.axes))
    falling.axes.set_xlim(-5, -3)
    drawn(falling.axes)
    np.testing.assert_array_equal(cast(Any, falling.get_array()), values[0, ::-1, :2])

    uneven = gf.plot.imshow(labelled(values[0], lat=north**2, lon=lon), ax=axes_of(50, 30))
    assert uneven.axes.get_ylabel() == "lat (index)" and uneven.get_extent()[2:] == [5.5, -0.5]
    figure = Figure()
    FigureCanvasAgg(figure)
    times = np.array([0.5, 1.0, 1.5, 2.0])
    images = gf.plot.slices(labelled(values, time=times, lon=lon), "time", figure=figure)
    figure.canvas.draw()
    assert [image.axes.get_title() for image in images][-1] == "time = 2"
    line = gf.plot.line(labelled(values[0, 0], lon=lon), ax=axes_of(50, 30))
    assert line.get_xdata().tolist() == [-4.5, 4.5] and line.axes.get_xlabel() == "lon"
    made = gf.plot.hist(labelled(values), ax=axes_of(50, 30))
    assert made.axes.get_xlabel() == "height (m)"


@pytest.mark.skipif(xarray is None, reason="needs xarray")
def test_coordinates_that_are_no_positions_are_indices() -> None:
    count = 40_000
    index = np.arange(float(count))
    slow = index + 5e-4 * (index**2 / count - index)  # each step is even to 0.05 %
    dates = np.datetime64("2020-01-01") + np.arange(count)
    for coordinate in (slow, dates, [str(i) for i in range(count)]):
        made = gf.plot.line(labelled(index, lon=coordinate), ax=axes_of(50, 30))
        assert made.axes.get_xlabel() == "lon (index)"
        assert made.get_xdata().tolist() == [0, count - 1]
    made = gf.plot.line(labelled(index[:1], lon=[500.0]), ax=axes_of(50, 30))
    assert made.axes.get_xlabel() == "lon (index)"


# --- Files, other processes, errors ---


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_files_have_what_their_resolution_can_show(suffix: str, tmp_path: Any) -> None:
    values = RNG.normal(size=(600, 600)).astype(np.float32)
    axes = axes_of(100, 100)
    image = gf.plot.imshow(device(values), ax=axes)
    gf.plot.line(device(values[0] + 300), ax=axes)
    gf.plot.hist(device(values), ax=axes_of(50, 50)).axes.figure.savefig(tmp_path / f"h.{suffix}")
    path = tmp_path / f"picture.{suffix}"
    axes.figure.savefig(path, dpi=200)
    assert cast(Any, image.get_array()).shape == (200, 200)
    assert path.stat().st_size > 1000
    drawn(axes)
    assert cast(Any, image.get_array()).shape == (100, 100)


@needs_server
def test_tensors_of_another_process_are_reduced_there(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    values = RNG.normal(size=(900, 1200)).astype(np.float32)
    with gf.serve("plots") as server, gf.connect("plots") as run:
        server.publish("u", device(values))
        server.publish("z", device(values[:50, :50].astype(np.complex64)))
        axes = axes_of(120, 90)
        image = gf.plot.imshow(run["u"], ax=axes)
        drawn(axes)
        np.testing.assert_allclose(
            cast(Any, image.get_array()), blocks(values, (90, 120)), atol=1e-5
        )
        large = axes_of(1200, 900)
        half = gf.plot.imshow(run["u"][:, :, None][..., 0], ax=large)
        axes.figure.set_dpi(100)
        drawn(large)
        np.testing.assert_array_equal(cast(Any, half.get_array()), values)
        line = gf.plot.line(run["u"][3], ax=axes_of(100, 50))
        line.axes.set_xlim(-0.5, 1199.5)
        drawn(line.axes)
        assert line.note == "lowest to highest of 12"
        gf.plot.hist(run["u"], ax=axes_of(50, 50))
        image.set_norm(LogNorm())
        assert image.get_clim() == (values[values > 0].min(), values.max())
        with pytest.raises(TypeError, match="publish the real and imaginary"):
            gf.plot.imshow(run["z"], ax=axes)


def test_an_error_of_a_read_is_raised_where_a_file_would_be_wrong() -> None:
    axes = axes_of(50, 50)
    gf.plot.imshow(gf.to_device(np.ones((100, 100), np.float32), device="host:0"), ax=axes)
    _core._host_faults(copy_fail_after_nbytes=0)
    try:
        with pytest.raises(gf.Error):
            drawn(axes)
    finally:
        _core._host_faults()
    drawn(axes)


def test_matplotlib_is_imported_with_the_plots_alone() -> None:
    code = (
        "import sys, gpufetch as gf\n"
        "assert 'matplotlib' not in sys.modules and 'plot' in dir(gf)\n"
        "gf.plot\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    code = (
        "import sys\n"
        "sys.modules['matplotlib'] = None\n"
        "import gpufetch as gf\n"
        "try:\n    gf.plot\nexcept ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "pip install 'gpufetch[plot]'" in done.stdout
    with pytest.raises(AttributeError, match="no attribute 'plots'"):
        getattr(gf, "plots")  # noqa: B009


# --- Pulling everything ---


def test_pulling_much_without_asking_for_it_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lz = gf.lazy(device(np.zeros((65, 1 << 18), np.float32)))
    with pytest.warns(gf.LargeFetchWarning, match=r"65\.0 MiB.*\(65, 262144\).*gpufetch\.plot"):
        np.asarray(lz)
    np.asarray(lz)  # warnings are errors in these tests
    np.asarray(lz[:])
    lz[:64].fetch()
    gf.lazy(device(np.zeros((64, 1 << 18), np.float32))).to_numpy()
    gf.lazy(device(np.zeros((65, 1 << 18), np.float32))).fetch()

    monkeypatch.setattr(lazy_module, "WARNING_NBYTES", 1000)
    axes = axes_of(20, 20)
    with pytest.warns(gf.LargeFetchWarning, match=r"9\.8 KiB") as caught:
        axes.imshow(gf.lazy(device(np.zeros((50, 50), np.float32))))
    assert len(caught) == 1
