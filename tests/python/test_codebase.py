"""The code base itself: one version, public headers that stand alone, exported names, file sizes.

Runs from a checkout. What needs compiled files looks at $GPUFETCH_BUILD_DIR (./dev sets it), else
at the newest build directory, and is skipped if there is none.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

import gpufetch

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "src" / "include"
HEADERS = sorted((INCLUDE / "gpufetch").glob("*.h"))
CODE_FOLDERS = ("src", "hdf5_filter", "jupyter", "python", "examples", "tools")
CODE_SUFFIXES = {".c", ".h", ".cu", ".cuh", ".py", ".pyi", ".sh", ".js"}
FILE_LINES_MAX = 500
# Files that may be longer, each with its reason.
LONGER_FILES = {
    "examples/gray_scott.c": "one program, to be read and copied as a whole",
    "jupyter/widget/viewer.js": "one module, which pages load as it is",
}


MESON = (sys.executable, "-m", "mesonbuild.mesonmain")


def run(*command: str | Path, cwd: Path = ROOT, seconds: float = 300, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def build_directory() -> Path:
    named = os.environ.get("GPUFETCH_BUILD_DIR")
    built = [Path(named)] if named else [path.parent for path in ROOT.glob("build*/build.ninja")]
    if not built:
        pytest.skip("nothing is built here: ./dev build")
    return max(built, key=lambda path: (path / "build.ninja").stat().st_mtime)


def compiler(*names: str) -> str:
    for name in names:
        if found := shutil.which(name):
            return found
    pytest.skip(f"none of {', '.join(names)} is installed")


def project_version() -> str:
    found = re.search(r"^\s*version: '([^']+)'", (ROOT / "meson.build").read_text(), re.MULTILINE)
    assert found
    return found.group(1)


def test_the_filter_id_stands_in_its_header_and_in_the_docs_alone() -> None:
    header = INCLUDE / "gpufetch" / "hdf5.h"
    found = re.findall(r"^#define GPUF_H5_FILTER_ID (\d+)$", header.read_text(), re.MULTILINE)
    assert found == [str(gpufetch.hdf5.FILTER_ID)]
    folders = (*CODE_FOLDERS, "tests", "benchmarks", "docs", "notebooks")
    suffixes = CODE_SUFFIXES | {".build", ".ipynb", ".md"}
    files = [ROOT / "dev", *ROOT.glob("*.md"), *ROOT.glob("*.build")]
    files += [path for folder in folders for path in (ROOT / folder).rglob("*")]
    word = re.compile(rf"\b{found[0]}\b")
    naming = {
        str(path.relative_to(ROOT))
        for path in files
        if (path.suffix in suffixes or path.name == "dev") and word.search(path.read_text())
    }
    pages = {"CHANGELOG.md", "docs/format.md", "docs/reading.md", "docs/registration.md"}
    assert naming == {"src/include/gpufetch/hdf5.h", *pages}


def test_the_repository_is_named_in_one_place() -> None:
    url = "github.com/" + "gpufetch"  # in two parts, so that this file does not name it
    files = [path for name in CODE_FOLDERS for path in (ROOT / name).rglob("*")]
    files += [path for name in (".github", "packaging") for path in (ROOT / name).rglob("*")]
    files += [*ROOT.glob("*.*"), *(ROOT / "docs").glob("*.md"), ROOT / "dev"]
    suffixes = {*CODE_SUFFIXES, ".md", ".toml", ".build", ".yml", ".yaml", ""}
    texts = [path for path in files if path.suffix in suffixes]
    naming = [path for path in texts if path.is_file() and url in path.read_text(errors="replace")]
    assert naming == [ROOT / "meson.build"]


def test_the_compatibility_table_ends_with_this_release() -> None:
    page = (ROOT / "docs" / "format.md").read_text()
    table = page.split("## Compatibility")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\d\S*) .*\| (\d+) \| ([\d, ]+) \|$", table, re.MULTILINE)
    header = (ROOT / "src" / "codec" / "format.h").read_text()
    found = re.search(r"^#define GPUFI_CHUNK_VERSION (\d+)$", header, re.MULTILINE)
    assert found and rows
    release, writes, reads = rows[-1]
    assert (release, writes) == (project_version(), found.group(1))
    fixtures = {path.stem.removeprefix("format-") for path in (ROOT / "tests/data").glob("*.h5")}
    assert set(reads.split(", ")) == fixtures and writes in fixtures


def test_the_protocol_is_described_as_it_is() -> None:
    described = (ROOT / "docs" / "protocol.md").read_text()
    for file, pattern in (
        ("request.c", r"\[OP_\w+\] = \"(\w+)\""),
        ("failure.c", r"\[CODE_\w+\] = \"(\w+)\""),
        ("member.c", r"^    \{\"(\w+)\", (?:take_|offsetof)"),
    ):
        source = (ROOT / "jupyter" / "comm" / file).read_text()
        names = re.findall(pattern, source, re.MULTILINE)
        assert len(names) > 8, file
        for name in names:
            assert f'"{name}"' in described or f"`{name}`" in described, name


def test_header_and_meson_state_one_version() -> None:
    header = (INCLUDE / "gpufetch" / "gpufetch.h").read_text()
    parts = [
        re.search(rf"^#define GPUF_VERSION_{part} (\d+)$", header, re.MULTILINE)
        for part in ("MAJOR", "MINOR", "PATCH")
    ]
    assert ".".join(part.group(1) for part in parts if part) == project_version()


def test_package_and_meson_state_one_version() -> None:
    assert gpufetch.__version__ == project_version()


def test_pyproject_states_no_version_of_its_own() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"]
    assert "version" not in project


def test_changelog_has_an_entry_for_the_version() -> None:
    assert re.search(
        rf"^## {re.escape(project_version())}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.name)
@pytest.mark.parametrize("standard", ["c11", "c++17"])
def test_public_header_compiles_alone(header: Path, standard: str, tmp_path: Path) -> None:
    cplusplus = standard.startswith("c++")
    cc = compiler("c++", "g++", "clang++") if cplusplus else compiler("cc", "gcc", "clang")
    source = tmp_path / ("alone.cc" if cplusplus else "alone.c")
    macros = re.findall(r"#define GPUF_(\w+)_INIT\b", header.read_text())
    initialized = [f"gpuf_{name.lower()} a_{name} = GPUF_{name}_INIT;\n" for name in macros]
    # Twice: the include guard is part of what must work.
    include = f"#include <gpufetch/{header.name}>\n" * 2
    source.write_text(include + "int gpuf_unused;\n" + "".join(initialized))
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", f"-I{INCLUDE}"]
    run(cc, f"-std={standard}", *flags, source)


# Structs that never get members: plain values, most of them arguments and results of every call.
FIXED_STRUCTS = {"gpuf_error", "gpuf_device", "gpuf_tensor", "gpuf_share_handle"}


def test_structs_that_may_grow_begin_with_their_size() -> None:
    text = "".join(header.read_text() for header in HEADERS)
    begins = dict(re.findall(r"typedef struct (\w+) \{\s+([^;]+);", text))
    growing = {name for name, member in begins.items() if member == "size_t struct_nbytes"}
    assert set(begins) - growing == FIXED_STRUCTS
    initialized = re.findall(r"#define (GPUF_\w+)_INIT\b", text)
    assert {name.lower() for name in initialized} == growing


def declared_functions(headers: Iterable[Path]) -> set[str]:
    text = "".join(header.read_text() for header in headers)
    return set(re.findall(r"\bGPUF_API\b[^;]*?\b(gpuf_\w+)\s*\(", text))


def exported_symbols(library: Path) -> set[str]:
    """Names with the version of the interface that they belong to, as "name@@VERSION"."""
    lines = [line.split() for line in run("nm", "-D", "--defined-only", library).splitlines()]
    return {name for *_, kind, name in lines if kind != "A"}  # A: the versions themselves


@pytest.mark.parametrize(
    ("library", "version", "is_served"),
    [
        ("src/libgpufetch.so", "GPUFETCH", False),
        ("jupyter/libgpufetch_serve.so", "GPUFETCH_SERVE", True),
    ],
)
def test_library_exports_what_the_headers_declare_and_no_more(
    library: str, version: str, is_served: bool
) -> None:
    headers = [header for header in HEADERS if (header.name == "serve.h") == is_served]
    interface = ".".join(project_version().split(".")[:2])
    exported = exported_symbols(build_directory() / library) - SANITIZER_SYMBOLS
    declared = {f"{name}@@{version}_{interface}" for name in declared_functions(headers)}
    assert len(declared) >= (10 if is_served else 50)
    assert exported - declared == set(), "exported, but in no public header"
    assert declared - exported == set(), "declared, but missing from the library"


def test_only_the_serve_library_needs_what_serving_needs() -> None:
    library = build_directory() / "src" / "libgpufetch.so"
    needed = re.findall(r"NEEDED\s+(\S+?)\.so", run("objdump", "-p", library))
    assert set(needed) <= {"libc", "libm", "libdl", "libpthread", "librt", "ld-linux-x86-64"} | {
        "libasan",
        "libubsan",
        "libtsan",
    }


# Of the library without its symbols for debuggers, which the linker makes as long as names are.
LIBRARY_NBYTES_MAX_ONE = 6 << 20
LIBRARY_NBYTES_MAX_ALL = 20 << 20


def library_nbytes(library: Path, tmp_path: Path) -> int:
    stripped = tmp_path / "stripped.so"
    run("strip", "-o", stripped, library)
    return stripped.stat().st_size


def has_cuda(build: Path) -> bool:
    return "#define GPUFI_WITH_CUDA 1" in (build / "src" / "config.h").read_text()


def architectures_of(build: Path) -> list[str]:
    options = json.loads(run(*MESON, "introspect", build, "--buildoptions"))
    (found,) = [option["value"] for option in options if option["name"] == "gpu_architectures"]
    return list(found)


def test_library_size_for_one_architecture(tmp_path: Path) -> None:
    build = build_directory()
    if not has_cuda(build) or len(architectures_of(build)) != 1:
        pytest.skip("the build at hand is not one with CUDA for one architecture")
    nbytes = library_nbytes(build / "src" / "libgpufetch.so", tmp_path)
    assert nbytes <= LIBRARY_NBYTES_MAX_ONE, f"{nbytes:,} bytes"


def test_library_size_for_all_architectures(tmp_path: Path) -> None:
    """Compile for every architecture, which takes minutes: on request alone."""
    if not os.environ.get("GPUFETCH_TEST_ALL_ARCHITECTURES"):
        pytest.skip("takes minutes: set GPUFETCH_TEST_ALL_ARCHITECTURES=1")
    build = tmp_path / "build"
    options = ["-Dcuda=enabled", "-Dhdf5=disabled", "-Djansson=disabled", "-Dserve=disabled"]
    run(*MESON, "setup", build, ROOT, "-Dbuildtype=release", *options)
    assert len(architectures_of(build)) == 4
    run(*MESON, "compile", "-C", build, seconds=3600)
    nbytes = library_nbytes(build / "src" / "libgpufetch.so", tmp_path)
    assert nbytes <= LIBRARY_NBYTES_MAX_ALL, f"{nbytes:,} bytes"


# Instrumented builds export these from every shared object.
SANITIZER_SYMBOLS = {"__odr_asan_gen_", "__asan_version_mismatch_check_v8"}


def test_plugin_exports_only_what_hdf5_asks_for() -> None:
    plugins = list(build_directory().glob("hdf5_filter/libh5z_gpufetch.so"))
    if not plugins:
        pytest.skip("built without HDF5")
    assert exported_symbols(plugins[0]) == {"H5PLget_plugin_type", "H5PLget_plugin_info"}


def test_plugin_is_not_linked_to_hdf5_or_cuda() -> None:
    plugins = list(build_directory().glob("hdf5_filter/libh5z_gpufetch.so"))
    if not plugins:
        pytest.skip("built without HDF5")
    needed = re.findall(r"NEEDED\s+(\S+)", run("objdump", "-p", plugins[0]))
    assert not [name for name in needed if re.match(r"lib(hdf5|cuda)", name)], needed


def test_extension_is_not_linked_to_hdf5_or_cuda_and_exports_only_its_init() -> None:
    extension = Path(sys.modules["gpufetch._core"].__file__ or "")
    assert ".abi3." in extension.name
    needed = re.findall(r"NEEDED\s+(\S+)", run("objdump", "-p", extension))
    assert not [name for name in needed if re.match(r"lib(hdf5|cuda|gpufetch)", name)], needed
    assert exported_symbols(extension) - SANITIZER_SYMBOLS == {"PyInit__core"}


def test_kernels_that_begin_early_wait_for_the_kernel_before() -> None:
    kernel = re.compile(r"__global__[^;{]*\{\s*(\w+)")
    found = 0
    for path in sorted((ROOT / "src/backend/cuda").rglob("*.cu")):
        text = path.read_text()
        first_words = kernel.findall(text)
        assert "launch_early(" not in text or "launch_kernel(" not in text, path
        if "launch_early(" in text or "launch_runs<" in text:
            assert set(first_words) == {"begin_early"}, path
            found += len(first_words)
    assert found > 20


def code_files() -> list[Path]:
    return [
        path
        for folder in CODE_FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in CODE_SUFFIXES
    ]


def test_no_file_grows_past_what_one_can_read() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in code_files()
    }
    assert len(lengths) > 20
    long = {name for name, count in lengths.items() if count > FILE_LINES_MAX}
    assert long == set(LONGER_FILES), "split them, or give the reason in LONGER_FILES"


def test_cuda_stays_in_its_folders() -> None:
    cuda = re.compile(r"#include <cuda|\bcuda[A-Z]\w+\(")
    outside = [
        str(path.relative_to(ROOT))
        for folder in ("src/core", "src/share", "src/hdf5", "hdf5_filter", "jupyter", "python")
        for path in (ROOT / folder).rglob("*.[ch]")
        if cuda.search(path.read_text())
    ]
    assert outside == []


# Which folders open sockets. ZeroMQ's are network sockets.
SOCKETS = {
    r"#include <sys/(socket|un)\.h>": {"src/share", "jupyter/server"},
    r"#include <zmq\.h>": {"jupyter/server"},
}


@pytest.mark.parametrize("header", SOCKETS)
def test_sockets_stay_in_their_folders(header: str) -> None:
    found = {
        str(path.relative_to(ROOT).parent)
        for folder in ("src", "hdf5_filter", "jupyter", "python")
        for path in (ROOT / folder).rglob("*.[ch]")
        if re.search(header, path.read_text())
    }
    assert found == SOCKETS[header]


def test_library_never_prints() -> None:
    printing = re.compile(r"\b(?:printf|puts|putchar|perror|fprintf|fputs|vprintf)\s*\(")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in ("src", "hdf5_filter", "python/ext")
        for path in (ROOT / folder).rglob("*.[ch]")
        for line in path.read_text().splitlines()
        if printing.search(line)
    ]
    assert found == []


def test_pages_name_only_files_and_commands_that_exist() -> None:
    offered = set(re.findall(r"^  ([a-z-]+)", run("./dev", "help"), re.MULTILINE))
    missing = []
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        text = page.read_text()
        links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
        missing += [f"{page.name}: {link}" for link in links if not (page.parent / link).exists()]
        commands = re.findall(r"\./dev ([a-z-]+)", text)
        missing += [f"{page.name}: ./dev {name}" for name in commands if name not in offered]
    assert missing == []


def test_reliability_names_only_tests_that_exist() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text()
    files = {
        p.name: p.read_text() for p in (ROOT / "tests").rglob("test_*") if p.suffix in {".py", ".c"}
    }
    file, missing, count = "", [], 0
    for named, test in re.findall(
        r"`[^`:]*?((?:test_\w+\.(?:py|c))?)(?:::(\w+))?(?:\[[^`]*)?`", text
    ):
        file = named or file
        if named and named not in files:
            missing.append(named)
        elif test and not re.search(rf"\b{test}\(", files[file]):
            missing.append(f"{file}::{test}")
        count += bool(test)
    assert not missing
    assert count > 50, "no tests were found in the page"


def readme_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)


NOTEBOOK_RUNNER = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell()
for cell in sys.argv[1:]:
    shell.run_cell(cell).raise_error()
assert shell.user_ns["values"].shape == (16, 64), shell.user_ns["values"].shape
"""


def test_readme_python_examples_work(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    notebook, script, reader = readme_blocks("python")
    for example in (script, reader):
        run(sys.executable, "-c", example, cwd=tmp_path)
    run(sys.executable, "-c", NOTEBOOK_RUNNER, script, notebook, cwd=tmp_path)


def test_readme_c_example_compiles(tmp_path: Path) -> None:
    (calls,) = readme_blocks("c")
    source = tmp_path / "calls.c"
    arguments = "gpuf_checkpoint *checkpoint, gpuf_tensor u, gpuf_stream stream, int64_t step"
    source.write_text(
        "#include <gpufetch/checkpoint.h>\nvoid example(void);\n"
        f"static void save({arguments}) {{\ngpuf_error err;\n{calls}}}\n"
        "void example(void) { gpuf_tensor u = {0}; save(NULL, u, GPUF_STREAM_NONE, 1); }\n"
    )
    warnings = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    run(compiler("cc", "gcc", "clang"), "-std=c11", *warnings, f"-I{INCLUDE}", source)


def test_readme_is_no_longer_than_one_reads() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 90 and "![" in text


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_a_build_with_fast_math_is_refused() -> None:
    compile_it = ["cc", "-fsyntax-only", "-Isrc", "-xc", "src/base/floating_point.h"]
    assert subprocess.run(compile_it, cwd=ROOT, check=False).returncode == 0
    for flag in ("-ffast-math", "-Ofast", "-ffinite-math-only", "-funsafe-math-optimizations"):
        done = subprocess.run([*compile_it, flag], cwd=ROOT, capture_output=True, check=False)
        assert done.returncode != 0 and b"wrong bits" in done.stderr, flag


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_a_compiler_may_be_of_several_words() -> None:
    """As CC="ccache gcc"."""
    for compiler, expected in [("cc", 0), ("env cc", 0), ("no_such_compiler cc", 1)]:
        done = subprocess.run(
            ["sh", "-c", '. tools/dev_setup.sh; compiles "$1" c', "sh", compiler],
            cwd=ROOT,
            check=False,
        )
        assert done.returncode == expected, compiler
