"""Norms of plots: whenever they are set, their limits are elements of the whole tensor."""

from __future__ import annotations

import itertools
import math
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("matplotlib")

import matplotlib.pyplot as plt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colorizer import Colorizer
from matplotlib.colors import (
    CenteredNorm,
    FuncNorm,
    LogNorm,
    NoNorm,
    Normalize,
    PowerNorm,
    SymLogNorm,
)
from matplotlib.figure import Figure

import gpufetch as gf
from gpufetch.plot._limits import nearest_element

RNG = np.random.default_rng(23)


def log10(values: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.log10(values)


def exp10(values: Any) -> Any:
    return 10.0**values


def axes_of(width: int = 40, height: int = 30) -> Any:
    figure = Figure(figsize=(width / 10, height / 10), dpi=50)
    FigureCanvasAgg(figure)
    return figure.subplots()


def drawn(axes: Any) -> Any:
    axes.figure.canvas.draw()
    return np.asarray(axes.figure.canvas.buffer_rgba()).copy()


def matplotlibs_limits(values: Any, norm: Any) -> tuple[float, float]:
    """The limits that Matplotlib's images have of the same elements."""
    mappable = ScalarMappable(norm=norm)
    mappable.set_array(values)
    mappable.autoscale_None()
    return cast(Any, mappable.get_clim())


NORMS: dict[str, Any] = {
    "linear": lambda: "linear",
    "None": lambda: None,
    "log": lambda: "log",
    "LogNorm": LogNorm,
    "Normalize": Normalize,
    "symlog": lambda: SymLogNorm(1),
    "power": lambda: PowerNorm(2),
    "centred": lambda: CenteredNorm(3),
    "function": lambda: FuncNorm((log10, exp10)),
}


# --- Norms that are set later ---


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("when", ["before", "drawn", "zoomed", "barred"])
def test_a_norm_that_is_set_later_has_the_limits_of_all_elements(name: str, when: str) -> None:
    values = (RNG.normal(size=(300, 400)) + np.geomspace(20, 800, 400)).astype(np.float32)
    values[0, 0], values[299, 399] = 1, 900
    axes = axes_of()
    image = gf.plot.imshow(gf.to_device(values), ax=axes)
    if when == "zoomed":
        axes.set_xlim(100, 300)
        axes.set_ylim(250, 100)
    if when in ("drawn", "zoomed"):
        drawn(axes)
    if when == "barred":
        axes.figure.colorbar(image)
    image.set_norm(NORMS[name]())
    expected = matplotlibs_limits(values, NORMS[name]())
    assert image.get_clim() == expected
    pixels = drawn(axes)
    assert image.get_clim() == expected
    middle = pixels[50:-50, 60:-100]
    assert len(np.unique(middle.reshape(-1, 4), axis=0)) > 2


def test_a_colour_bar_of_a_norm_that_is_set_later_is_matplotlibs() -> None:
    values = (RNG.normal(size=(20, 30)) * 50 + 300).astype(np.float32)
    for norm, is_first in itertools.product(NORMS.values(), (True, False)):
        bars = []
        for is_ours in (True, False):
            axes = axes_of()
            if is_ours:
                image: Any = gf.plot.imshow(gf.to_device(values), ax=axes)
            else:
                image = axes.imshow(values)
            if is_first:
                bars.append(axes.figure.colorbar(image))
            image.set_norm(norm())
            if not is_first:
                bars.append(axes.figure.colorbar(image))
            drawn(axes)
        ours, theirs = bars
        assert (ours.vmin, ours.vmax) == (theirs.vmin, theirs.vmax)
        assert ours.ax.get_ylim() == theirs.ax.get_ylim()
        assert [tick.get_text() for tick in ours.ax.get_yticklabels()] == [
            tick.get_text() for tick in theirs.ax.get_yticklabels()
        ]


def test_limits_that_are_taken_away_are_found_anew() -> None:
    values = RNG.normal(size=(200, 300))
    image = gf.plot.imshow(gf.to_device(values), ax=axes_of(), vmin=-1, vmax=1)
    heard: list[Any] = []
    image.norm.callbacks.connect("changed", lambda: heard.append(image.get_clim()))
    image.norm.vmin = None
    assert image.get_clim() == (values.min(), 1) == heard[-1]
    image.norm.vmax = None
    assert image.get_clim() == (values.min(), values.max()) == heard[-1]
    image.set_clim(0, None)
    assert image.get_clim() == (0, values.max())
    image.autoscale()
    assert image.get_clim() == (values.min(), values.max())
    image.set_data(gf.to_device(values * 2))
    image.autoscale()
    assert image.get_clim() == (2 * values.min(), 2 * values.max())
    image.colorizer = Colorizer("magma", Normalize())  # of which an image is not told
    axes = image.axes
    axes.set_xlim(0, 3)
    drawn(axes)
    assert image.get_clim() == (2 * values.min(), 2 * values.max())


def test_a_centred_norm_is_found_anew() -> None:
    values = RNG.normal(size=(20, 30)) + 5
    image = gf.plot.imshow(gf.to_device(values), ax=axes_of(), norm=CenteredNorm(vcenter=1))
    found = image.get_clim()
    image.set_clim(-1, 3)
    image.autoscale()
    assert image.get_clim() == found == matplotlibs_limits(values, CenteredNorm(vcenter=1))


def test_slices_have_the_limits_of_all_planes_whenever_a_norm_is_set() -> None:
    values = 10.0 ** RNG.uniform(-2, 2, size=(4, 20, 30))
    figure = Figure()
    FigureCanvasAgg(figure)
    images = gf.plot.slices(gf.to_device(values), figure=figure)
    norm = LogNorm()
    for image in images:
        image.norm = norm
        assert image.get_clim() == (values.min(), values.max())
    images[0].norm = cast(Any, "linear")
    figure.canvas.draw()
    assert images[0].get_clim() == (values.min(), values.max())
    images[1].set_clim(1, 2)
    images[1].autoscale()
    assert norm.vmin == values.min() and norm.vmax == values.max()
    (bar,) = [axes for axes in figure.axes if axes.get_label() == "<colorbar>"]
    assert bar.get_ylim() == (values.min(), values.max())


def test_a_colour_bar_leaves_a_picture_in_colours_as_it_is() -> None:
    for values in (RNG.integers(0, 255, size=(9, 9, 3)).astype(np.uint8), RNG.random((9, 9, 3))):
        pictures = []
        for has_bar in (False, True):
            axes = axes_of()
            image = gf.plot.imshow(gf.to_device(values), ax=axes)
            if has_bar:
                axes.figure.colorbar(image, cax=axes.figure.add_axes((0, 0, 0.01, 0.01)))
            pictures.append(drawn(axes)[20:-20, 20:])
        np.testing.assert_array_equal(*pictures)


# --- Domains ---


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32])
def test_the_lower_limit_of_a_logarithm_is_the_lowest_positive_element(dtype: Any) -> None:
    values = 10.0 ** RNG.uniform(-4, 0, size=(800, 900))
    values = (values * 1e6).astype(dtype) if dtype is np.int32 else values.astype(dtype)
    values[3, 4], values[5, 6] = 0, -2
    image = gf.plot.imshow(gf.to_device(values), ax=axes_of(), norm="log")
    assert image.get_clim() == (values[values > 0].min(), values.max())


@pytest.mark.parametrize("name", ["logit", "function", "log", "squares"])
def test_limits_are_elements_in_the_domain_of_the_norm(name: str) -> None:
    def root(values: Any) -> Any:  # from -2 to 3
        with np.errstate(all="ignore"):
            return np.arcsin((np.asarray(values) - 0.5) / 2.5)

    def back(values: Any) -> Any:
        return np.sin(values) * 2.5 + 0.5

    made: dict[str, Any] = {
        "logit": lambda: "logit",
        "function": lambda: FuncNorm((log10, exp10)),
        "log": LogNorm,
        "squares": lambda: FuncNorm((root, back)),
    }
    values = RNG.normal(size=(700, 800)) * 2
    axes = axes_of()
    image = gf.plot.imshow(gf.to_device(values), ax=axes, norm=made[name](), note=False)
    expected = matplotlibs_limits(values, made[name]())
    assert image.get_clim() == expected and expected[0] < expected[1]
    axes.set_xlim(0, 40)
    axes.set_ylim(30, 0)
    assert len(np.unique(drawn(axes)[40:-40, 60:-60].reshape(-1, 4), axis=0)) > 2
    image.set_norm(Normalize())
    image.set_norm(made[name]())
    assert image.get_clim() == expected


def test_an_end_that_is_given_is_kept_where_the_other_is_in_no_domain() -> None:
    values = RNG.normal(size=(70, 80))
    image = gf.plot.imshow(gf.to_device(values), ax=axes_of(), norm="log", vmin=1e-3)
    assert image.get_clim() == (1e-3, values.max())
    image = gf.plot.imshow(gf.to_device(values), ax=axes_of(), norm="logit", vmax=0.5)
    assert image.get_clim() == (values[values > 0].min(), 0.5)


def test_a_programs_errors_of_floating_point_are_not_the_limits() -> None:
    values = RNG.normal(size=(30, 40))
    values[0, 0] = 5e-324
    with np.errstate(all="raise"):
        image = gf.plot.imshow(gf.to_device(values), ax=axes_of(), norm="log")
    assert image.get_clim() == (5e-324, values.max())


@pytest.mark.parametrize("norm", ["log", "logit", "function"])
@pytest.mark.parametrize("value", [-3.0, 0.0, np.nan, np.inf])
def test_elements_that_are_in_no_domain_are_drawn(norm: str, value: float) -> None:
    values = np.full((30, 40), value)
    values[0, 0] -= 1
    axes = axes_of()
    chosen: Any = FuncNorm((log10, exp10)) if norm == "function" else norm
    image = gf.plot.imshow(gf.to_device(values), ax=axes, norm=chosen)
    low, high = image.get_clim()
    assert low < high
    drawn(axes)


def test_a_norm_that_makes_one_limit_of_two_asks_for_them() -> None:
    class Stubborn(Normalize):
        def autoscale_None(self, A: Any) -> None:  # noqa: N802, N803
            self.vmin = self.vmax = 7

    class Nowhere:
        def transform(self, values: Any) -> Any:
            return np.full(np.shape(values), np.nan)

    x = gf.to_device(RNG.normal(size=(5, 6)))
    with pytest.raises(ValueError, match="give vmin and vmax"):
        gf.plot.imshow(x, ax=axes_of(), norm=Stubborn())
    nowhere = LogNorm()
    cast(Any, nowhere)._trf = Nowhere()
    with pytest.raises(ValueError, match="give vmin and vmax"):
        gf.plot.imshow(x, ax=axes_of(), norm=nowhere)
    gf.plot.imshow(x, ax=axes_of(), norm=NoNorm())


def test_magnitudes_of_a_logarithm_are_those_that_are_drawn() -> None:
    values = (10.0 ** RNG.uniform(-3, 0, size=(50, 60)) * np.exp(1j)).astype(np.complex128)
    values[3, 3] = 0
    image = gf.plot.imshow(gf.to_device(values), ax=axes_of(), norm="log")
    magnitudes = np.hypot(values.real, values.imag)
    low, high = image.get_clim()
    assert low == pytest.approx(magnitudes[magnitudes > 0].min())
    assert high == pytest.approx(magnitudes.max())
    drawn(image.axes)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8])
def test_the_nearest_element_is_numpys(dtype: Any) -> None:
    kinds: list[Any] = [
        RNG.normal(size=500) * 10.0 ** RNG.integers(-300, 300, size=500),
        RNG.integers(-3, 200, size=500),
        np.array([0, 5e-324, 1e-323, 2, 2 + 2**-51, math.nextafter(2, 0), np.inf, np.nan, -np.inf]),
        np.array([1e308, -1e308, 3e-310]),
    ]
    for values in kinds:
        with np.errstate(all="ignore"):
            values = np.asarray(values).astype(dtype)
        view = gf.lazy(gf.to_device(values))._gpufetch_view()
        wide = values.astype(np.float64)
        for low, high in ((5e-324, 1e308), (-1e300, -5e-324), (0.5, 2), (1, 2.5), (0.1, 0.2)):
            found = wide[(wide >= low) & (wide <= high)]
            lowest = nearest_element(view, low, high)
            highest = nearest_element(view, low, high, from_above=True)
            expected = (found.min(), found.max()) if found.size else (None, None)
            assert (lowest, highest) == expected, (low, high)


@settings(deadline=None)
@given(
    st.lists(st.floats(width=64, allow_nan=False), min_size=1, max_size=8),
    st.lists(st.floats(-1e308, 1e307), min_size=2, max_size=2, unique=True),
    st.integers(0, 320),
)
def test_the_nearest_of_any_elements_is_numpys(
    values: list[float], ends: list[float], digits: int
) -> None:
    wide = np.array([*values, *ends]) * 10.0**-digits
    low, high = sorted(end * 10.0**-digits for end in ends)
    if not math.isfinite(high - low):
        return
    view = gf.lazy(gf.to_device(wide))._gpufetch_view()
    for first, last in ((low, high), (low, math.nextafter(high, low)), (low, low)):
        found = wide[(wide >= first) & (wide <= last)]
        lowest = nearest_element(view, first, last)
        highest = nearest_element(view, first, last, from_above=True)
        assert (lowest, highest) == ((found.min(), found.max()) if found.size else (None, None))


def test_pyplots_colour_bar_and_limits_are_of_the_image() -> None:
    plt.switch_backend("agg")
    values = RNG.normal(size=(20, 30))
    image = gf.plot.imshow(gf.to_device(values))
    bar = plt.colorbar()
    image.norm = cast(Any, None)
    assert image.get_clim() == (values.min(), values.max())
    assert (bar.vmin, bar.vmax) == pytest.approx(image.get_clim())
    plt.clim(-1, 1)
    assert image.get_clim() == (-1, 1) == pytest.approx((bar.vmin, bar.vmax))
    plt.close()
