"""The package as a whole: what an import does and does not do, names, versions, the binary."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import importlib
import importlib.metadata
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gpufetch as gf
from gpufetch import _core

ROOT = Path(__file__).resolve().parents[2]


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_version_is_the_same_everywhere() -> None:
    declared = [
        line.split("'")[1]
        for line in (ROOT / "meson.build").read_text().splitlines()
        if line.strip().startswith("version:")
    ]
    assert declared[:1] == [gf.__version__]
    assert gf.info()["version"] == _core.__version__ == gf.__version__
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # run from a build tree
        assert importlib.metadata.version("gpufetch") == gf.__version__


def test_import_is_quiet_and_needs_no_driver() -> None:
    code = "import gpufetch as gf; print(gf.fetch(gf.to_device([1], device='host:0'))[0])"
    assert run(code, CUDA_VISIBLE_DEVICES="").strip() == "1"


def test_import_brings_in_nothing_heavy() -> None:
    code = "import sys, gpufetch; print(*sys.modules)"
    modules = set(run(code).split())
    heavy = {"torch", "cupy", "jax", "numba", "matplotlib", "IPython", "ipykernel", "nbclient"}
    assert not modules & heavy
    assert {"numpy", "h5py", "ml_dtypes"} <= modules


def test_import_starts_no_thread() -> None:
    code = "import os, gpufetch; print(len(os.listdir('/proc/self/task')))"
    without = "import os, numpy, h5py, ml_dtypes; print(len(os.listdir('/proc/self/task')))"
    assert run(code) == run(without)


def test_every_public_name_exists_and_is_documented() -> None:
    for name in gf.__all__:
        value = getattr(gf, name)
        assert name == "__version__" or inspect.getdoc(value), name
    assert list(gf.__all__) == sorted(gf.__all__)


def stub_names(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def test_the_stub_says_what_the_extension_has() -> None:
    stub = ast.parse(Path(_core.__file__).with_name("_core.pyi").read_text())
    declared = stub_names(stub.body)
    annotated = (node.target for node in stub.body if isinstance(node, ast.AnnAssign))
    constants = {target.id for target in annotated if isinstance(target, ast.Name)}
    actual = {name for name in vars(_core) if not name.startswith("__")}
    assert declared.keys() | constants - {"__version__"} == actual
    for name in ("DeviceArray", "Future"):
        node = declared[name]
        assert isinstance(node, ast.ClassDef)
        own = {n for n in vars(getattr(_core, name)) if n not in IMPLICIT}
        assert set(stub_names(node.body)) == own, name


IMPLICIT = {"__doc__", "__module__", "__new__", "__repr__", "__getattribute__", "__hash__"}


@pytest.mark.parametrize(
    ("function", "signature"),
    [
        (gf.fetch, "(x, *, out=None, dtype=None, order=None)"),
        (_core.fetch_async, "(x, *, out=None, dtype=None, order=None)"),
        (_core.to_device, "(array, *, device=None, dtype=None)"),
        (gf.asdevice, "(x, /)"),
        (gf.DeviceArray.__array__, "(self, /, dtype=None, copy=None)"),
        (_core.Future.result, "(self, /, timeout=None)"),
    ],
)
def test_compiled_functions_have_signatures(function: Any, signature: str) -> None:
    assert str(inspect.signature(function)) == signature


def test_the_types_belong_to_the_package() -> None:
    for kind in (gf.DeviceArray, gf.Future, gf.Error):
        assert kind.__module__ == "gpufetch"
    assert issubclass(gf.Error, RuntimeError)
    assert (gf.Error("x").status, gf.Error("x").native_code) == ("", 0)


def python_files(folder: Path) -> set[str]:
    suffixes = {".py", ".pyi", ".typed"}
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.suffix in suffixes}


def test_every_file_of_the_package_is_installed() -> None:
    folders = {"": ROOT / "python" / "gpufetch", "jupyter/": ROOT / "jupyter" / "kernel"}
    expected = {at + name for at, folder in folders.items() for name in python_files(folder)}
    assert len(expected) > 30 and "py.typed" in expected
    assert python_files(Path(gf.__file__).parent) == expected, "name them in python/meson.build"


# Public modules that `from ... import *` leaves out: they are imported when they are used.
IMPORTED_LATE = {"gpufetch": {"plot"}}


def names_of(module: Any) -> set[str]:
    return {*module.__all__, *IMPORTED_LATE.get(module.__name__, ())}


@pytest.mark.parametrize("module", [gf, gf.hdf5], ids=lambda module: module.__name__)
def test_completion_shows_public_names_only(module: Any) -> None:
    shown = [name for name in dir(module) if not name.startswith("_")]
    assert shown == sorted(name for name in names_of(module) if not name.startswith("_"))


def test_the_extension_is_abi3_and_keeps_its_symbols() -> None:
    assert Path(_core.__file__).name == "_core.abi3.so"
    library = ctypes.CDLL(_core.__file__)
    assert hasattr(library, "PyInit__core")
    assert not hasattr(library, "gpuf_version")  # it would clash with libgpufetch.so


def test_info_is_complete_and_plain() -> None:
    found = gf.info()
    assert set(found) == {"version", "default_device", "backends", "pool", "hdf5", "numpy"}
    assert set(found["backends"]) == {"cuda", "host"}
    for backend in found["backends"].values():
        assert backend["available"] == bool(backend["devices"])
        assert (backend["reason"] is None) == backend["available"]
        for device in backend["devices"]:
            assert 0 < device["free_nbytes"] <= device["total_nbytes"]
            assert device["name"]
    assert found["hdf5"]["bound"] == (found["hdf5"]["reason"] is None)


def test_the_module_can_be_loaded_again() -> None:
    code = (
        "import sys, gc\n"
        "import gpufetch._core as first\n"
        "x = first.to_device([1, 2, 3], device='host:0')\n"
        "del sys.modules['gpufetch._core']\n"
        "import importlib\n"
        "second = importlib.import_module('gpufetch._core')\n"
        "assert second is not first and second.DeviceArray is not first.DeviceArray\n"
        "y = second.asdevice(x)\n"
        "del first\n"
        "gc.collect()\n"
        "print(second.fetch(y).tolist(), type(x).__name__)\n"
    )
    assert run(code) == "[1, 2, 3] DeviceArray\n"


COMPLETE = """
import sys
import warnings

import gpufetch
import gpufetch.jupyter
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

warnings.simplefilter("ignore")  # of IPython and jedi
shell = InteractiveShell.instance()
shell.user_ns["gpufetch"] = gpufetch
shell.Completer.use_jedi = sys.argv[2] == "jedi"
text = sys.argv[1] + "."
with provisionalcompleter():
    for found in shell.Completer.completions(text, len(text)):
        print(found.text.rpartition(".")[2])
"""


@pytest.mark.parametrize("completer", ["jedi", "names"])
@pytest.mark.parametrize("name", ["gpufetch", "gpufetch.hdf5", "gpufetch.jupyter", "gpufetch.plot"])
def test_completion_shows_public_names_alone(name: str, completer: str, tmp_path: Path) -> None:
    if name == "gpufetch.plot":
        pytest.importorskip("matplotlib")
    module = importlib.import_module(name)
    assert dir(module) == sorted(names_of(module))
    done = subprocess.run(
        [sys.executable, "-c", COMPLETE, name, completer],
        capture_output=True,
        text=True,
        env={**os.environ, "IPYTHONDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    public = {name for name in names_of(module) if not name.startswith("_")}
    assert {name for name in done.stdout.split() if not name.startswith("_")} == public
