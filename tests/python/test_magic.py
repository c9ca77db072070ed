"""%gpufetch: what it lists, what it wraps, and how it fails."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("IPython")

from IPython.core.completer import provisionalcompleter
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

import gpufetch as gf
from gpufetch import _core
from gpufetch.jupyter.magic import TensorListing
from gpufetch.jupyter.namespace import device_tensors, is_device_tensor


@pytest.fixture
def shell() -> Iterator[Any]:
    InteractiveShell.clear_instance()
    shell: Any = InteractiveShell.instance(history_length=0)
    shell.extension_manager.load_extension("gpufetch")
    yield shell
    shell.extension_manager.unload_extension("gpufetch")
    InteractiveShell.clear_instance()


def run(shell: Any, code: str) -> Any:
    result = shell.run_cell(code, store_history=False)
    result.raise_error()
    return result.result


class Hostile:
    """Raises for every attribute."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"asked an instance for {name}")


class HostileType(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(f"asked a class for {name}")


class Odd(metaclass=HostileType):
    pass


class Liar:
    """Claims GPU memory that it cannot hand over."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("a sparse tensor has no strides; call to_dense() first")


class OnCpu(Liar):
    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class Broken(Liar):
    def __dlpack_device__(self) -> tuple[int, int]:
        raise RuntimeError("no")


@pytest.fixture
def namespace() -> dict[str, Any]:
    d_x = gf.to_device(np.arange(12, dtype=np.float32).reshape(3, 4))
    return {
        "d_x": d_x,
        "lazy": gf.lazy(d_x),
        "_hidden": d_x,
        "array": np.zeros(3),
        "scalar": np.float32(1),
        "math": math,
        "gf": gf,
        "DeviceArray": gf.DeviceArray,
        "hostile": Hostile(),
        "odd": Odd(),
        "on_cpu": OnCpu(),
        "broken": Broken(),
        "items": [d_x],
    }


def test_a_listing_has_the_device_tensors_alone(namespace: dict[str, Any]) -> None:
    assert [tensor.name for tensor in device_tensors(namespace)] == ["d_x", "lazy"]
    assert [tensor.name for tensor in device_tensors(namespace, hidden=["lazy"])] == ["d_x"]


def test_a_listing_copies_nothing(
    namespace: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("a listing fetched")

    monkeypatch.setattr(_core, "fetch", refuse)
    listing = TensorListing(device_tensors(namespace))
    assert "float32" in repr(listing)
    assert "float32" in listing._repr_html_()


def test_a_tensor_that_cannot_be_taken_is_listed_with_its_problem(
    namespace: dict[str, Any],
) -> None:
    listing = TensorListing(device_tensors({**namespace, "liar": Liar()}))
    assert len(listing) == 3
    assert "liar: " in repr(listing)
    assert repr(listing).count("?") >= 4


@pytest.mark.parametrize("name", ["Hostile", "Odd", "OnCpu", "Broken"])
def test_a_hostile_object_is_passed_over(name: str) -> None:
    assert is_device_tensor(globals()[name]()) is False


class OldInterface:
    """A tensor with the CUDA array interface alone, as Numba's; `facts` None: in host memory."""

    def __init__(self, facts: dict[str, Any] | None) -> None:
        self._facts = facts

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self._facts is None:
            raise AttributeError("not on a GPU")
        return self._facts


def test_the_cuda_array_interface_is_enough_to_be_listed() -> None:
    facts = {"shape": (3,), "typestr": "<f4", "data": (4096, False), "version": 3}
    assert is_device_tensor(OldInterface(facts))
    assert not is_device_tensor(OldInterface(None))


def test_a_listing_shows_the_facts(shell: Any) -> None:
    shell.push({"d_dem": gf.to_device(np.zeros((344, 403), np.int16))})
    listing = run(shell, "%gpufetch")
    header, row, footer = repr(listing).split("\n")
    assert header.split() == ["name", "framework", "shape", "dtype", "size", "device"]
    device = gf.to_device(np.zeros(1)).device
    assert row.split() == ["d_dem", "gpufetch", "(344,", "403)", "int16", "270.8", "KiB", device]
    assert "x_host = %gpufetch d_dem" in footer


def test_an_empty_namespace_says_what_to_do(shell: Any) -> None:
    assert "to_device" in repr(run(shell, "%gpufetch"))


def test_markup_in_a_name_is_escaped() -> None:
    listing = TensorListing(device_tensors({"<b>": gf.to_device(np.zeros(1))}))
    assert "<b>" not in listing._repr_html_()


def test_the_magic_gives_a_lazy_array(shell: Any) -> None:
    x = np.arange(12.0).reshape(3, 4)
    shell.push({"d_x": gf.to_device(x), "d": {"w": [gf.to_device(x)]}})
    run(shell, "x_host = %gpufetch d_x")
    assert isinstance(shell.user_ns["x_host"], gf.LazyArray)
    assert np.array_equal(shell.user_ns["x_host"][1], x[1])
    assert np.array_equal(run(shell, "%gpufetch d['w'][0][1:, ::-1]").fetch(), x[1:, ::-1])
    assert run(shell, "%gpufetch x_host") is shell.user_ns["x_host"]


def test_the_magic_sees_local_variables(shell: Any) -> None:
    shell.push({"d_x": gf.to_device(np.arange(3.0))})
    run(shell, "def take(inner):\n    host = %gpufetch inner\n    return host")
    assert run(shell, "take(d_x)")[:].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("d_elevatoin", "'d_elevatoin' is not defined: did you mean d_elevation"),
        ("zzz", "'zzz' is not defined: %gpufetch alone lists"),
        ("d_elevation +", "one Python expression, got 'd_elevation \\+'"),
        ("a b", "one Python expression"),
        ("--all", "takes no option, got '--all'"),
        ("number", "number cannot be wrapped: "),
        ("array", "NumPy data in host memory"),
        ("liar", "to_dense"),
    ],
)
def test_a_wrong_line_is_refused_with_a_remedy(shell: Any, line: str, message: str) -> None:
    shell.push(
        {
            "d_elevation": gf.to_device(np.zeros(2)),
            "number": 3,
            "array": np.zeros(2),
            "liar": Liar(),
        }
    )
    with pytest.raises(UsageError, match=message):
        shell.run_line_magic("gpufetch", line)


def test_an_error_of_the_expression_comes_through(shell: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        shell.run_line_magic("gpufetch", "1 / 0")


def test_a_tensors_name_is_completed(shell: Any) -> None:
    shell.push({"d_field": gf.to_device(np.zeros(2)), "d_other": 3})
    line = "%gpufetch d_"
    with provisionalcompleter():
        texts = [item.text for item in shell.Completer.completions(line, len(line))]
    assert texts == ["d_field"]


def test_unloading_takes_the_magic_away(shell: Any) -> None:
    shell.extension_manager.unload_extension("gpufetch")
    assert "gpufetch" not in shell.magics_manager.magics["line"]
    shell.extension_manager.load_extension("gpufetch")
    assert "gpufetch" in shell.magics_manager.magics["line"]


# --- Errors as a notebook shows them ---


@pytest.fixture
def shown(shell: Any, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The lines of each error that the shell shows from now on."""
    errors: list[list[str]] = []

    def show_traceback(kind: type, value: BaseException, lines: list[str]) -> None:
        errors.append([line for text in lines for line in text.splitlines()])

    def show_usage(value: BaseException) -> None:
        errors.append(str(value).splitlines())

    monkeypatch.setattr(shell, "_showtraceback", show_traceback)
    monkeypatch.setattr(shell, "show_usage_error", show_usage)
    shell.run_cell("import numpy as np, gpufetch as gf\nx = gf.to_device(np.ones((3, 4)))")
    shell.run_cell("lz = gf.lazy(x)\ndef pick(a, i):\n    return a[i]")
    return errors


@pytest.mark.parametrize(
    ("cell", "error"),
    [
        ("lz[99]", "IndexError: index 99 is out of bounds for axis 0 with size 3"),
        ("x[99]", "IndexError: index 99 is out of bounds for axis 0 with size 3"),
        ("1\ny = lz[0, 0, 0]", "IndexError: too many indices"),
        ("x['a']", "IndexError: a DeviceArray is indexed by ints"),
        ("lz[[7]]", "IndexError: index 7 is out of bounds"),
        ("np.mean(lz)", "TypeError: np.mean does not pull a whole LazyArray"),
        ("lz + 1", "TypeError: np.add does not pull a whole LazyArray"),
        ("h = %gpufetch x[99]", "IndexError: index 99 is out of bounds"),
        ("%gpufetch pick(lz, 5)", "IndexError: index 5 is out of bounds"),
        ("%gpufetch 1 / 0", "ZeroDivisionError: division by zero"),
        ("%gpufetch nosuch", "%gpufetch: name 'nosuch' is not defined"),
        ("%gpufetch --list", "%gpufetch takes no option"),
        ("%gpufetch np.ones(3)", "%gpufetch: np.ones(3) is NumPy data"),
        ("%gpufetch 'text'", "%gpufetch: 'text' cannot be wrapped"),
        ("%gpufetch x +", "%gpufetch takes one Python expression"),
    ],
)
def test_an_error_is_shown_in_three_lines_at_most(
    shell: Any, shown: list[list[str]], cell: str, error: str
) -> None:
    shell.run_cell(cell, store_history=True)
    (lines,) = shown
    assert 1 <= len(lines) <= 3
    assert lines[-1].startswith(error)
    if len(lines) > 1:
        where = next(text for text in cell.splitlines() if text != "1")
        assert "Cell In[" in lines[0] and f"line {len(cell.splitlines())}" in lines[0]
        assert where.removeprefix("h = ") in lines[0] or "run_line_magic" in lines[0]


def test_an_error_in_a_function_shows_the_cell_and_the_function(
    shell: Any, shown: list[list[str]]
) -> None:
    shell.run_cell("pick(lz, 77)", store_history=True)
    (lines,) = shown
    assert len(lines) == 3
    assert "pick(lz, 77)" in lines[0]
    assert "return a[i]" in lines[1]
    assert lines[2].startswith("IndexError: index 77")


def test_outside_of_a_notebook_the_traceback_is_pythons(shell: Any) -> None:
    lz = gf.lazy(gf.to_device(np.ones(3)))
    with pytest.raises(IndexError) as raised:
        lz[99]
    assert len(raised.traceback) > 1
    run(shell, "x = 3")  # other errors are as they were
    assert not hasattr(IndexError("other"), "_render_traceback_")
