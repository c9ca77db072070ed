"""The structure of the code base: which folder may include which, and no circles of files.

Reads the `#include`s of C and CUDA sources and the imports of the Python package. Runs from a
checkout; compiles nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What the files of a folder may include beside their own folder's. Public headers are everyone's.
MAY_INCLUDE = {
    "src/base": set(),
    "src/codec": {"src/base"},
    "hdf5_filter": {"src/codec", "src/base"},
    "src/backend": {"src/codec", "src/base"},
    "src/core": {"src/backend", "src/base"},
    "src/share": {"src/core", "src/backend", "src/base"},
    "src/hdf5": {"src/core", "src/backend", "src/codec", "hdf5_filter", "src/base"},
    "jupyter/comm": {"src/base"},
    "jupyter/server": {"jupyter/comm", "src/base"},
    "jupyter/widget": {"src/codec", "src/base"},
    "python/ext": {
        "src/base",
        "src/codec",
        "src/backend",
        "src/core",
        "src/share",
        "src/hdf5",
        "hdf5_filter",
        "jupyter/comm",
        "jupyter/server",
    },
}
# What the modules of the Python package may import of it. A row is a subpackage, or a module at the
# top; "gpufetch" stands for the public names, which the package itself hands on from all of them.
MAY_IMPORT = {
    "_core": set(),  # the extension module
    "_address_ranges": {"_core"},
    "_await": set(),
    "_checks": set(),
    "_deadline": set(),
    "_dtypes": set(),
    "_open_viewers": set(),
    "_progress": set(),
    "_published": set(),
    "_strides": set(),
    "_subscript": set(),
    "_text": set(),
    "_outcome": {"_threads", "_core"},
    "_part": {"_checks"},
    "_command_line": {"_text"},
    "_threads": {"_core"},
    "_tracebacks": set(),
    "_frameworks": {"_checks", "_dtypes", "_core"},
    "_futures": {"_await", "_dtypes", "_outcome", "_threads", "_core"},
    "_pool": {"_core"},
    "_subshells": set(),
    "_share": {"_address_ranges", "_checks", "_core"},
    "_view": {"_futures", "_strides", "_core"},
    "_display": {"_deadline", "_view", "_threads", "_text"},
    "_reduce": {"_display", "_checks", "_view"},
    "_lazy": {
        "_checks",
        "_display",
        "_reduce",
        "_view",
        "_subscript",
        "_progress",
        "_text",
        "_tracebacks",
    },
    "_device_array": {"_display", "_lazy", "_view", "_subscript", "_core"},
    "_remote": {
        "_address_ranges",
        "_display",
        "_lazy",
        "_share",
        "_view",
        "_await",
        "_checks",
        "_deadline",
        "_subscript",
        "_text",
        "_tracebacks",
        "_outcome",
        "_threads",
        "_core",
    },
    "hdf5": {
        "_checks",
        "_part",
        "_lazy",
        "_subscript",
        "_progress",
        "_text",
        "_threads",
        "_tracebacks",
        "_core",
    },
    "_checkpoint": {"_checks", "_part", "hdf5", "_core"},
    "jupyter": {
        "_display",
        "_remote",
        "_lazy",
        "_share",
        "_view",
        "hdf5",
        "_address_ranges",
        "_open_viewers",
        "_published",
        "_subshells",
        "_text",
        "_tracebacks",
        "_core",
    },
    "_publish": {"_checks", "jupyter", "_published", "_core"},
    "_info": {"_display", "hdf5", "_core"},
    "_planes": {"_lazy", "_view"},
    "_viewer": {
        "_planes",
        "_display",
        "_lazy",
        "_view",
        "_checks",
        "_open_viewers",
        "_subshells",
        "_tracebacks",
        "_core",
    },
    "plot": {"_planes", "_display", "_lazy", "_view", "_checks", "_threads", "_tracebacks"},
    "_demo": {"gpufetch", "_text"},
    "__main__": {"gpufetch", "_command_line", "_demo", "_remote", "hdf5", "_text"},
}
# Where the compilers look for "a/b.h".
INCLUDE_ROOTS = ("src", "src/include", "jupyter", "")
SOURCES = {".c", ".h", ".cu", ".cuh"}


def folder_of(path: str) -> str:
    """The row of MAY_INCLUDE that a source file belongs to; "" for a public header."""
    for folder in sorted(MAY_INCLUDE, key=len, reverse=True):
        if path.startswith(folder + "/"):
            return folder
    return ""


def sources() -> list[str]:
    return [
        str(path.relative_to(ROOT))
        for folder in MAY_INCLUDE
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in SOURCES
    ]


def included(path: str) -> Iterator[str]:
    """The files of this project that a source file includes."""
    text = (ROOT / path).read_text()
    for name in re.findall(r'^\s*#\s*include "([^"]+)"', text, re.MULTILINE):
        candidates = [(ROOT / path).parent / name, *(ROOT / root / name for root in INCLUDE_ROOTS)]
        for candidate in candidates:
            if candidate.exists():
                yield str(candidate.resolve().relative_to(ROOT))
                break
        else:
            raise AssertionError(f"{path} includes {name}, which is nowhere")


def forbidden_arrows(
    arrows: dict[str, set[str]], row_of: Callable[[str], str], allowed: dict[str, set[str]]
) -> list[str]:
    """The arrows from one row of a table to another that the table does not allow."""
    found = []
    for source, targets in sorted(arrows.items()):
        row = row_of(source)
        for target in sorted(targets):
            other = row_of(target)
            if other not in ("", row) and other not in allowed[row]:
                found.append(f"{source} -> {target}")
    return found


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """The sets of more than one node that reach each other (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(arrows.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            circle = []
            while True:
                circle.append(stack.pop())
                if circle[-1] == node:
                    break
            if len(circle) > 1:
                found.append(sorted(circle))

    for node in sorted(arrows):
        if node not in index:
            visit(node)
    return found


def module_of(path: str) -> str:
    """A source and its header are one module: the path without its suffix."""
    return re.sub(r"\.(c|h|cu|cuh)$", "", path)


def c_arrows() -> dict[str, set[str]]:
    return {path: set(included(path)) for path in sources()}


CALL = re.compile(r"\b(gpufi_\w+)\s*\(")
DEFINITION = re.compile(r"^[a-zA-Z_][\w \*]*?\b(gpufi_\w+)\(", re.MULTILINE)


def c_call_arrows() -> dict[str, set[str]]:
    """Module -> modules whose gpufi_ functions it names: includes of a shared header hide these."""
    defined: dict[str, set[str]] = {}
    texts = {path: (ROOT / path).read_text() for path in sources() if path.endswith(".c")}
    for path, text in texts.items():
        for match in DEFINITION.finditer(text):
            end = text.find("{", match.end())
            semicolon = text.find(";", match.end())
            if end != -1 and (semicolon == -1 or end < semicolon):
                defined.setdefault(match.group(1), set()).add(module_of(path))
    arrows: dict[str, set[str]] = {}
    for path, text in texts.items():
        code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        module = module_of(path)
        for name in CALL.findall(code):
            owners = defined.get(name, set())
            # Stubs and backends define a name twice: which one is called the build decides.
            if len(owners) == 1 and owners != {module}:
                arrows.setdefault(module, set()).update(owners)
    return arrows


EXTENSION = "gpufetch._core"


def package_modules() -> dict[str, Path]:
    roots = {
        "gpufetch": ROOT / "python" / "gpufetch",
        "gpufetch.jupyter": ROOT / "jupyter" / "kernel",
    }
    modules = {}
    for package, root in roots.items():
        for path in sorted(root.rglob("*.py")):
            parts = [package, *path.relative_to(root).with_suffix("").parts]
            modules[".".join(part for part in parts if part != "__init__")] = path
    return modules


def imported(module: str, path: Path) -> Iterator[str]:
    """Full names of the modules, or members of modules, that a module imports anywhere."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = package.split(".")[: len(package.split(".")) - node.level + 1]
            origin = ".".join([*(up if node.level else []), *filter(None, [node.module])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def row_of_module(module: str) -> str:
    """The row of MAY_IMPORT that a module belongs to."""
    return module.split(".")[1] if "." in module else module


def package_arrows() -> dict[str, set[str]]:
    """Python module -> modules of the package that it imports, at its top or in a function.

    The package itself only hands names on: what it imports makes no circle.
    """
    modules = package_modules()
    known = {*modules, EXTENSION}
    arrows: dict[str, set[str]] = {}
    for module, path in modules.items():
        if module == "gpufetch":
            continue
        targets = set()
        for name in imported(module, path):
            origin = name.rpartition(".")[0]
            targets.add(name if name in known else origin)
        arrows[module] = {target for target in targets if target in known} - {module}
    return arrows


def test_folders_include_only_what_lies_below_them() -> None:
    arrows = c_arrows()
    assert len(arrows) > 100
    assert forbidden_arrows(arrows, folder_of, MAY_INCLUDE) == []


def test_an_arrow_that_runs_back_up_is_found() -> None:
    arrows = c_arrows()
    arrows["src/codec/encode.c"].add("src/core/copy.h")
    found = forbidden_arrows(arrows, folder_of, MAY_INCLUDE)
    assert found == ["src/codec/encode.c -> src/core/copy.h"]


def test_python_modules_import_only_what_lies_below_them() -> None:
    arrows = package_arrows()
    assert {row_of_module(module) for module in arrows} == set(MAY_IMPORT) - {"_core"}
    assert forbidden_arrows(arrows, row_of_module, MAY_IMPORT) == []


@pytest.mark.parametrize(
    ("module", "target"),
    [
        ("gpufetch._lazy.array", "gpufetch._remote.view"),
        ("gpufetch._text", "gpufetch._core"),
        ("gpufetch.hdf5._read", "gpufetch"),
    ],
)
def test_a_python_import_that_runs_back_up_is_found(module: str, target: str) -> None:
    arrows = package_arrows()
    arrows[module].add(target)
    assert forbidden_arrows(arrows, row_of_module, MAY_IMPORT) == [f"{module} -> {target}"]


@pytest.mark.parametrize("arrows", [c_arrows, c_call_arrows, package_arrows])
def test_no_files_go_in_a_circle(arrows: Callable[[], dict[str, set[str]]]) -> None:
    found = arrows()
    assert len(found) > 20
    assert circles(found) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}}) == [["a", "b", "c"]]
