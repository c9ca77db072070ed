"""%gpufetch: what it lists, what it wraps, and how it fails."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import re
import signal
import threading
import weakref
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from server_build import needs_server

pytest.importorskip("IPython")

from IPython.core.completer import provisionalcompleter
from IPython.core.error import UsageError

import gpufetch as gf
from gpufetch import _core
from gpufetch._text import format_nbytes
from gpufetch.hdf5 import _watch
from gpufetch.jupyter.inventory import inventory
from gpufetch.jupyter.listing import ROWS, TensorListing
from gpufetch.jupyter.magic import GpufetchMagics
from gpufetch.jupyter.namespace import is_device_tensor
from gpufetch.jupyter.options import OPTIONS


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
    found = inventory(namespace).tensors
    assert [tensor.name for tensor in found] == ["d_x", "items[0]", "lazy"]
    found = inventory(namespace, hidden=["lazy", "items"]).tensors
    assert [tensor.name for tensor in found] == ["d_x"]


def test_a_listing_says_what_is_in_host_memory() -> None:
    namespace: dict[str, Any] = {
        "on_cpu": OnCpu(),
        "array": np.zeros(3),
        "lazy": gf.lazy(np.zeros(3)),
    }
    listing = TensorListing(inventory(namespace))
    note = "2 tensors are in host memory, and not counted: on_cpu, lazy"
    assert len(listing) == 0 and repr(listing).startswith(f"{note}\nNo device tensors")
    assert note in listing._repr_html_()
    namespace = {"x": gf.to_device(np.zeros(3)), "held": [OnCpu() for _ in range(8)]}
    lines = repr(TensorListing(inventory(namespace))).splitlines()
    names = ", ".join(f"held[{i}]" for i in range(5))
    assert lines[-2] == f"8 tensors are in host memory, and not counted: {names} and 3 more"
    assert lines[-1].startswith("1 device tensor")
    assert "host memory" not in repr(TensorListing(inventory({"x": gf.to_device(np.zeros(3))})))


def test_a_listing_copies_nothing(
    namespace: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("a listing fetched")

    monkeypatch.setattr(_core, "fetch", refuse)
    listing = TensorListing(inventory(namespace))
    assert "float32" in repr(listing)
    assert "float32" in listing._repr_html_()


def test_a_tensor_that_cannot_be_taken_is_listed_with_its_problem(
    namespace: dict[str, Any],
) -> None:
    listing = TensorListing(inventory({**namespace, "liar": Liar()}))
    assert len(listing) == 4
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
    listing = TensorListing(inventory({"<b>": gf.to_device(np.zeros(1))}))
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
        ("--all", "has no option --all: there are --to, --from, "),
        ("--to", "--to takes FILE:/PATH after it"),
        ("--to run.h5 x", "--to takes FILE:/PATH, as run.h5:/fields/u, and not 'run.h5'"),
        ("--to run.h5:/ d_elevation", "--to takes FILE:/PATH"),
        ("--to run.h5:/u", "--to takes what to write: %gpufetch --to run.h5:/u EXPRESSION"),
        ("--to a.h5:/u --to b.h5:/u x", "--to is given twice"),
        ("--to a.h5:/u --from b.h5:/u", "takes one of --to and --from"),
        ("--overwrite d_elevation", "--overwrite is for --to"),
        ("--overwrite=1 d_elevation", "--overwrite takes no value"),
        ("--from run.h5:/u x", "--from takes FILE:/PATH alone: leave out 'x'"),
        ("--attach run x", "--attach takes NAME alone"),
        ("held", r"held is a dict of tensors: take one, as held\['w'\]"),
        ("held['n']", r"held\['n'\] is a list of tensors: take one, as held\['n'\]\[0\]"),
        ("on_host", r"on_host is a tuple of tensors: take one, as on_host\[1\]"),
        ("held, array", r"\(held, array\) is a tuple of .* as \(held, array\)\[0\]\['w'\]"),
        ("(array, held)", r": \(array, held\) is a tuple of .* as \(array, held\)\[1\]\['w'\]"),
        ("[] + [held]", r"as \(\[\] \+ \[held\]\)\[0\]\['w'\]"),
        ("{}", "{} is a dict without a tensor"),
        ("held --help", "options come first: %gpufetch --help held"),
        ("held --to run.h5:/q", "options come first: %gpufetch --to run.h5:/q held"),
        ("a b --overwrite", "options come first: %gpufetch --overwrite a b"),
        (
            "held['w'] --to='a b.h5:/q' --overwrite",
            "%gpufetch --to='a b.h5:/q' --overwrite h",
        ),
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
            "held": {"w": gf.to_device(np.zeros(2)), "n": [gf.to_device(np.zeros(2))]},
            "on_host": (3, OnCpu()),
        }
    )
    with pytest.raises(UsageError, match=message) as raised:
        shell.run_line_magic("gpufetch", line)
    assert "\n" not in str(raised.value)


def test_an_error_of_the_expression_comes_through(shell: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        shell.run_line_magic("gpufetch", "1 / 0")


def test_an_error_of_what_the_expression_calls_is_its_own(shell: Any) -> None:
    run(shell, "def named():\n    return undefined_thing\ndef typed(x):\n    return -help")
    with pytest.raises(NameError, match="undefined_thing") as raised:
        shell.run_line_magic("gpufetch", "named()")
    assert [entry.name for entry in raised.traceback][-1] == "named"
    assert type(raised.value) is NameError
    with pytest.raises(TypeError, match="unary") as raised_type:
        shell.run_line_magic("gpufetch", "typed(0) --help")
    assert [entry.name for entry in raised_type.traceback][-1] == "typed"
    with pytest.raises(TypeError, match="unary"):
        shell.run_line_magic("gpufetch", "-[]")
    with pytest.raises(UsageError, match="'missing' is not defined"):
        shell.run_line_magic("gpufetch", "[missing for _ in range(2)]")


@pytest.mark.parametrize(
    ("line", "value"),
    [("-x", [-1.0, -2.0]), ("-- -x", [-1.0, -2.0]), ("-- --x", [1.0, 2.0]), ("--(x)", [1.0, 2.0])],
)
def test_an_expression_may_begin_with_a_minus(shell: Any, line: str, value: list[float]) -> None:
    class Signed:
        """Negated, it is a tensor of the other sign."""

        def __init__(self, values: Any) -> None:
            self.values = values
            self.device = gf.to_device(values)

        def __neg__(self) -> Signed:
            return Signed(-self.values)

        def __dlpack__(self, **options: Any) -> Any:
            return self.device.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.device.__dlpack_device__()

    shell.push({"x": Signed(np.array([1.0, 2.0]))})
    assert shell.run_line_magic("gpufetch", line).fetch().tolist() == value


# --- Files and servers ---


def test_a_tensor_goes_to_a_file_and_comes_back(
    shell: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.arange(5000, dtype=np.float32).reshape(50, 100)
    shell.push({"x": gf.to_device(x), "folder": tmp_path})
    file = tmp_path / "a run.h5"
    assert run(shell, f"%gpufetch --to '{file}:/fields/u' x[::2]") is None
    (line,) = capsys.readouterr().out.splitlines()
    with h5py.File(file, "r") as opened:
        stored = opened["fields/u"].id.get_storage_size()
    facts = (
        f"float32 (25, 100), 9.8 KiB, stored in {format_nbytes(stored)} ({10000 / stored:.2f}:1), "
    )
    assert line.startswith(f"{file}:/fields/u: {facts}")
    assert re.search(r"\d\.\d\d s$", line)
    run(shell, f"y = %gpufetch --from '{file}:/fields/u'")
    assert isinstance(shell.user_ns["y"], gf.DeviceArray)
    assert np.array_equal(gf.fetch(shell.user_ns["y"]), x[::2])
    with pytest.raises(UsageError, match=r"exists in .* already.* --overwrite") as raised:
        shell.run_line_magic("gpufetch", f"--to '{file}:/fields/u' x")
    assert "\n" not in str(raised.value)
    for _ in range(2):
        run(shell, f"%gpufetch --to '{file}:/fields/u' --overwrite x")
    run(shell, f"%gpufetch --overwrite --to='{file}:tree' {{'w': x, 'n': [x[0], x[1]]}}")
    assert "tree of 3 datasets" in capsys.readouterr().out
    run(shell, f"%gpufetch --to='{file}:one' {{'w': x}}")
    assert "tree of 1 dataset," in capsys.readouterr().out
    run(shell, f"z = %gpufetch --from '{file}:tree'")
    assert np.array_equal(gf.fetch(shell.user_ns["z"]["n"][1]), x[1])
    run(shell, f"%gpufetch --to '{file}:/fields/wind:u' x")
    with h5py.File(file, "r") as opened:
        assert "wind:u" in opened["fields"]


def test_a_write_shows_what_is_in_the_file_already(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shown: list[int] = []

    class Bar:
        def __init__(self, nbytes: int, *, is_wanted: bool, delay_s: float) -> None:
            self.nbytes = nbytes if is_wanted else -1
            bars.append(self)

        def advance(self, nbytes: int) -> None:
            shown.append(nbytes)

        def close(self) -> None:
            shown.append(-1)

    bars: list[Bar] = []
    x = gf.to_device(np.zeros((64, 100_000), np.float32))
    monkeypatch.setattr(_watch, "ProgressBar", Bar)
    monkeypatch.setattr(_watch, "_PERIOD_S", 1e-4)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        gf.hdf5.write(file, "a/x", x, progress=True)
        assert sum(shown[:-1]) == bars[0].nbytes == x.nbytes and shown[-1] == -1
        assert _watch._written_nbytes(file, "a/x") == x.nbytes
        assert _watch._written_nbytes(file, "a/y") == 0
        shown.clear()
        gf.hdf5.write(file, "tree", {"x": x, "y": [x[0]], "n": None}, progress=True)
        assert sum(shown[:-1]) == bars[1].nbytes == x.nbytes + x[0].nbytes
        shown.clear()
        gf.hdf5.write(file, "quiet", x)
        assert bars[2].nbytes == -1 and shown == [-1]


@needs_server
def test_a_server_is_attached_to_and_its_name_completed(shell: Any) -> None:
    with gf.serve("test-magic") as server:
        server.publish("u", gf.to_device(np.arange(3.0)))
        assert completions(shell, "%gpufetch --attach test-m") == ["test-magic"]
        run(shell, "other = %gpufetch --attach test-magic")
        assert shell.user_ns["other"]["u"][:].tolist() == [0, 1, 2]
        shell.user_ns["other"].close()


def test_help_is_the_text_of_the_magic(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(shell, "%gpufetch -h") is None
    short = capsys.readouterr().out
    assert run(shell, "%gpufetch --help") is None
    text = capsys.readouterr().out
    assert short == text
    assert all(option in text for option in OPTIONS if option != "--help")
    assert "x_host = %gpufetch x\n" in text


# --- Completion and settings ---


def completions(shell: Any, text: str) -> list[str]:
    with provisionalcompleter():
        return [item.text for item in shell.Completer.completions(text, len(text))]


@pytest.mark.parametrize("before", ["", "y = ", "import os\ny = ", "f(1)\n"])
def test_tensors_names_are_completed(shell: Any, before: str) -> None:
    x = gf.to_device(np.zeros(2))
    shell.push({"d_field": x, "d_other": 3, "d_state": {"w": x}, "d_none": {"w": 1}})
    line = f"{before}%gpufetch "
    assert completions(shell, f"{line}d_f") == ["d_field"]
    assert completions(shell, line) == ["d_field", "d_state"]
    assert completions(shell, f"{line}d_s") == ["d_state", "d_state['w']"]
    assert completions(shell, f"{line}--to run.h5:/u d_f") == ["d_field"]
    assert completions(shell, f"{line}--o") == ["--overwrite"]
    assert completions(shell, f"{line}-- d_f") == ["d_field"]
    assert "shape" in [text.rpartition(".")[2] for text in completions(shell, f"{line}d_field.sh")]


def test_what_is_not_the_magic_is_completed_as_ever(shell: Any) -> None:
    shell.push({"d_field": gf.to_device(np.zeros(2)), "d_other": 3})
    assert {"d_field", "d_other"} <= set(completions(shell, "y = d_"))
    assert {"d_field", "d_other"} <= set(completions(shell, "f(d_"))


def test_a_listing_is_configured(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.push({f"t{i}": gf.to_device(np.zeros(2)) for i in range(4)})
    run(shell, "%config GpufetchMagics")
    assert "list_rows" in capsys.readouterr().out
    run(shell, "%config GpufetchMagics.list_rows = 2")
    assert "2 smaller tensors are not shown" in repr(run(shell, "%gpufetch"))


def test_unloading_takes_everything_away(shell: Any) -> None:
    shell.push({"d_field": gf.to_device(np.zeros(2)), "d_other": 3})
    before = list(shell.Completer.custom_matchers)
    shell.run_line_magic("config", "GpufetchMagics.list_rows = 2")
    shell.extension_manager.unload_extension("gpufetch")
    assert "gpufetch" not in shell.magics_manager.magics["line"]
    assert len(shell.Completer.custom_matchers) == len(before) - 1
    assert not any(type(one) is GpufetchMagics for one in shell.configurables)
    assert "d_field" not in completions(shell, "%gpufetch nosuch d_f")
    shell.extension_manager.load_extension("gpufetch")
    assert "gpufetch" in shell.magics_manager.magics["line"]
    (magics,) = [one for one in shell.configurables if type(one) is GpufetchMagics]
    assert magics.list_rows == ROWS


def test_the_cells_of_the_page_run(
    shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "notebook.md").read_text()
    cells = re.findall(r"^```ipython\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(cells) == 5
    monkeypatch.chdir(tmp_path)
    for cell in [*cells, *cells]:
        run(shell, cell)
    assert np.array_equal(gf.fetch(shell.user_ns["y"]), gf.fetch(shell.user_ns["x"]))
    for line in re.findall(r"^\| `%gpufetch[^`]*`", page, re.MULTILINE):
        assert all(option in OPTIONS for option in re.findall(r"--\w+", line))
    (magics,) = [one for one in shell.configurables if type(one) is GpufetchMagics]
    for name in magics.trait_names(config=True):
        assert f"GpufetchMagics.{name} = " in page


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
        ("%gpufetch --list", "%gpufetch has no option --list"),
        ("%gpufetch --from nosuch.h5:/u", "FileNotFoundError: "),
        ("%gpufetch --attach no-such-server", "FileNotFoundError: "),
        ("%gpufetch --to /nosuch/run.h5:/u x", "FileNotFoundError: "),
        ("%gpufetch --to run.h5:/u 'text'", "TypeError: "),
        ("%gpufetch np.ones(3)", "%gpufetch: np.ones(3) is NumPy data"),
        ("%gpufetch 'text'", "%gpufetch: 'text' cannot be wrapped"),
        ("%gpufetch x +", "%gpufetch takes one Python expression"),
        ("lz[:2].fetch(out=np.ones(3))", "ValueError: out has shape (3,)"),
        ("lz.reshape(5)", "ValueError: "),
        ("gf.hdf5.read('nosuch.h5', 'u')", "FileNotFoundError: "),
        ("gf.hdf5.write('/nosuch/run.h5', 'u', x)", "FileNotFoundError: "),
        ("gf.hdf5.load('nosuch.h5')", "FileNotFoundError: "),
        ("gf.connect('no-such-server')", "FileNotFoundError: "),
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


@pytest.mark.parametrize("call", ["imshow({'w': x})", "slices(lz)", "line(lz)", "hist(1)"])
def test_an_error_of_a_plot_is_shown_in_two_lines(
    shell: Any, shown: list[list[str]], call: str
) -> None:
    pytest.importorskip("matplotlib")
    shell.run_cell(f"gf.plot.{call}", store_history=True)
    ((where, what),) = shown
    assert where.endswith(f"gf.plot.{call}") and what.startswith(("TypeError: ", "ValueError: "))


def test_an_error_of_a_viewer_is_shown_in_two_lines(shell: Any, shown: list[list[str]]) -> None:
    pytest.importorskip("anywidget")
    shell.run_cell("gf.view({'w': x})", store_history=True)
    ((where, what),) = shown
    assert where.endswith("gf.view({'w': x})") and what.startswith("TypeError: ")


@needs_server
@pytest.mark.parametrize("names", ["'errors'", "['errors']"], ids=["one server", "several"])
def test_an_error_of_a_connection_is_shown_in_three_lines_at_most(
    shell: Any,
    shown: list[list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: str,
) -> None:
    pytest.importorskip("jupyter_client")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    with gf.serve("errors") as server:
        server.publish("u", gf.to_device(np.ones((3, 4))))
        shell.run_cell(f"run = gf.connect({names})\nu = run['u']", store_history=True)
        shell.run_cell("run['v']", store_history=True)
        shell.run_cell("run.wait_step(timeout=0)", store_history=True)
        shell.run_cell("run.wait_step(at_least=3, timeout=0)", store_history=True)
        stopping = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        stopping.start()
        shell.run_cell("run.wait_step()", store_history=True)
        stopping.join()
    calls = ("u[0, :2].fetch()", "u.stats()", "run['u']", "list(run)", "len(run)", "run.step")
    for call in (*calls, "run.steps", "run.time", "run.scalars", "run.wait_step()"):
        shell.run_cell(call, store_history=True)
    shell.run_cell("run.close()")
    waits = ["no step was completed", "has not come to step 3"]
    said = ["no tensor is published as", *waits, "KeyboardInterrupt"]
    for lines, text in zip(shown, [*said, *["has ended: start it again"] * 10], strict=True):
        assert 2 <= len(lines) <= 3 and "Cell In[" in lines[0] and text in lines[-1], lines


def test_an_error_that_is_shown_short_keeps_nothing_alive() -> None:
    """A circle of it and its frames would keep arrays until the collector runs."""

    class Held:
        pass

    def fail() -> Any:
        held = Held()
        held_by_frame = weakref.ref(held)
        with pytest.raises(IndexError):
            lz[99]
        with contextlib.suppress(ValueError):
            lz.fetch(out=np.ones(5))
        return held_by_frame

    lz = gf.lazy(gf.to_device(np.ones(3)))
    gc.disable()
    try:
        assert fail()() is None
    finally:
        gc.enable()


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
