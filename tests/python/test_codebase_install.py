"""The installed C libraries, as programs meet them.

The example of docs/c-programs.md is built in every way that the page offers, programs run that were
compiled against an older header, and machines lack the libraries that only serving needs.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from installed import ROOT, Installed, install, page_block, run, tool

import gpufetch as gf

HEADERS = sorted((ROOT / "src" / "include" / "gpufetch").glob("*.h"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(tmp_path_factory)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A folder with the page's C example."""
    (tmp_path / "checkpoint.c").write_text(page_block("c", "gpuf_checkpoint_commit"))
    return tmp_path


def check_example(installed: Installed, program: Path, needs_library: bool) -> None:
    """Run the example, and once more, when it goes on behind the last checkpoint; read that."""
    for _ in range(2):
        installed.run(program)
        paths = sorted(program.parent.glob("run-*.h5"))
        assert [path.name for path in paths] == ["run-000000000900.h5", "run-000000001000.h5"]
        with h5py.File(paths[-1]) as file:
            assert file["u"].shape == (64, 64, 64)
            assert file["u"][()].dtype == np.float32
            assert file.attrs["step"] == 1000 and isinstance(file.attrs["step"], np.int64)
    with pytest.raises(ValueError, match=r"run-000000001000.h5 has no tree .* a program in C"):
        gf.Checkpoint(program.parent, "run").load()
    for path in paths:
        path.unlink()
    needed = run("objdump", "-p", program, cwd=program.parent)
    assert ("libgpufetch.so.0.1" in needed) == needs_library


def shell_lines(containing: str) -> Iterator[str]:
    """Commands of the page's shell blocks, a continued line as one."""
    yield from page_block("sh", containing).replace("\\\n", " ").splitlines()


def test_what_is_installed(installed: Installed) -> None:
    headers = installed.prefix / "include" / "gpufetch"
    assert {path.name for path in headers.iterdir()} == {header.name for header in HEADERS}
    names = {path.name for path in installed.lib.iterdir() if path.is_file()}
    for library in ("libgpufetch", "libgpufetch_serve"):
        assert {f"{library}.a", f"{library}.so", f"{library}.so.0.1"} <= names
    (plugins,) = installed.flags("--variable=plugindir", "gpufetch")
    assert (Path(plugins) / "libh5z_gpufetch.so").exists()


def test_example_builds_with_pkg_config(installed: Installed, example: Path) -> None:
    (command,) = shell_lines("-o checkpoint $(pkg-config --cflags --libs gpufetch")
    run("sh", "-c", command, cwd=example, **installed.environment)
    check_example(installed, example / "checkpoint", needs_library=True)


def test_example_builds_statically(installed: Installed, example: Path) -> None:
    (command,) = shell_lines("pkg-config --static")
    run("sh", "-c", command, cwd=example, **installed.environment)
    check_example(installed, example / "checkpoint", needs_library=False)


def test_example_builds_as_cplusplus(installed: Installed, example: Path) -> None:
    shutil.copy(example / "checkpoint.c", example / "checkpoint.cc")
    flags = installed.flags("--cflags", "--libs", "gpufetch", "hdf5")
    strict = ["-std=c++17", "-Wall", "-Wextra", "-Werror"]
    run(tool("c++", "g++"), *strict, "checkpoint.cc", "-o", "checkpoint", *flags, cwd=example)
    check_example(installed, example / "checkpoint", needs_library=True)


CMAKE_PROJECT = """
cmake_minimum_required(VERSION 3.19)
project(checkpoint C)
{example}
add_executable(checkpoint_static checkpoint.c)
target_link_libraries(checkpoint_static PRIVATE gpufetch::gpufetch_static HDF5::HDF5)
file(WRITE ${{CMAKE_BINARY_DIR}}/serve.c
  "#include <gpufetch/serve.h>\\nint main(void) {{ return gpuf_server_stop(NULL, NULL); }}\\n")
add_executable(serve ${{CMAKE_BINARY_DIR}}/serve.c)
target_link_libraries(serve PRIVATE gpufetch::serve)
if(NOT EXISTS ${{gpufetch_PLUGIN_DIR}}/libh5z_gpufetch.so)
  message(FATAL_ERROR "no plugin in ${{gpufetch_PLUGIN_DIR}}")
endif()
"""


def test_example_builds_with_cmake(installed: Installed, example: Path) -> None:
    cmake = tool("cmake", remedy=" (./dev test installs it)")
    # The package names no absolute path: the installed tree may move.
    moved = Installed(example / "moved")
    shutil.copytree(installed.prefix, moved.prefix, symlinks=True)
    project = CMAKE_PROJECT.format(example=page_block("cmake", "gpufetch::gpufetch"))
    (example / "CMakeLists.txt").write_text(project)
    run(cmake, "-S", ".", "-B", "build", cwd=example, **moved.environment)
    run(cmake, "--build", "build", cwd=example, **moved.environment)
    check_example(moved, example / "build" / "checkpoint", needs_library=True)
    check_example(moved, example / "build" / "checkpoint_static", needs_library=False)
    moved.run(example / "build" / "serve")


@pytest.mark.parametrize(("wanted", "is_found"), [("0.1", True), ("0.2", False), ("1.0", False)])
def test_cmake_finds_versions_of_one_interface(
    installed: Installed, tmp_path: Path, wanted: str, is_found: bool
) -> None:
    cmake = tool("cmake", remedy=" (./dev test installs it)")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.19)\nproject(version NONE)\n"
        f"find_package(gpufetch {wanted} REQUIRED)\n"
    )
    run(cmake, ".", cwd=tmp_path, expect=0 if is_found else 1, **installed.environment)


USE_AND_CLOSE = """
#include <assert.h>
#include <dlfcn.h>
#include <gpufetch/gpufetch.h>
#include <stdio.h>
#include <unistd.h>

static void kernel(const void *args) {
  usleep(100000);
}

int main(void) {
  void *library = dlopen("libgpufetch.so.0.1", RTLD_NOW);
  assert(library);
  __typeof__(gpuf_stream_create) *stream_create;
  __typeof__(gpuf_host_launch) *host_launch;
  *(void **)&stream_create = dlsym(library, "gpuf_stream_create");
  *(void **)&host_launch = dlsym(library, "gpuf_host_launch");
  const gpuf_device host = {GPUF_DEVICE_HOST, 0};
  gpuf_stream stream;
  assert(stream_create(host, &stream, NULL) == GPUF_OK);
  assert(host_launch(host, stream, kernel, "", 1, NULL) == GPUF_OK);
  assert(dlclose(library) == 0);
  usleep(300000); /* the stream's thread comes back from the kernel to the library */
  return printf("closed\\n") < 0;
}
"""


def test_a_library_whose_threads_run_can_be_closed(installed: Installed, tmp_path: Path) -> None:
    flags = ["-Wno-unused-parameter", "-UNDEBUG", *installed.flags("--cflags", "gpufetch"), "-ldl"]
    assert installed.run(installed.compile(tmp_path, "close", USE_AND_CLOSE, *flags)) == "closed\n"


COPIES = """
#include <gpufetch/gpufetch.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  float values[4] = {1, 2, 3, 4}, result[4] = {0};
  const int64_t shape[1] = {4};
  const gpuf_device host = {GPUF_DEVICE_HOST, 0}, cpu = {GPUF_DEVICE_CPU, 0};
  void *d_values;
  gpuf_tensor device, src, dst;
  gpuf_error err;
  if (gpuf_alloc(host, sizeof(values), &d_values, &err) != GPUF_OK ||
      gpuf_tensor_init(&device, d_values, host, GPUF_DTYPE_FLOAT32, 1, shape, &err) != GPUF_OK ||
      gpuf_tensor_init(&src, values, cpu, GPUF_DTYPE_FLOAT32, 1, shape, &err) != GPUF_OK ||
      gpuf_tensor_init(&dst, result, cpu, GPUF_DTYPE_FLOAT32, 1, shape, &err) != GPUF_OK ||
      gpuf_copy(&device, &src, NULL, &err) != GPUF_OK ||
      gpuf_copy(&dst, &device, NULL, &err) != GPUF_OK) {
    fprintf(stderr, "%s\\n", err.message);
    return 1;
  }
  return memcmp(values, result, sizeof(values)) != 0;
}
"""

SERVES = """
#include <gpufetch/serve.h>
#include <stdio.h>

int main(void) {
  gpuf_server *server;
  gpuf_error err;
  if (gpuf_server_start(NULL, &server, &err) != GPUF_OK ||
      printf("%s\\n", gpuf_server_name(server)) < 0 ||
      gpuf_server_stop(server, &err) != GPUF_OK) {
    fprintf(stderr, "%s\\n", err.message);
    return 1;
  }
  return 0;
}
"""


def libraries_of_a_server(installed: Installed) -> list[str]:
    """Names of the shared libraries that only libgpufetch_serve needs; a skip if it has none."""
    library = installed.lib / "libgpufetch_serve.so"
    needed = run("objdump", "-p", library, cwd=installed.lib)
    names = re.findall(r"NEEDED\s+(lib(?:zmq|jansson|crypto)\S+)", needed)
    if len(names) != 3:
        pytest.skip("built without one of libzmq, jansson and libcrypto")
    return names


def test_a_server_links_statically(installed: Installed, tmp_path: Path) -> None:
    libraries_of_a_server(installed)
    flags = [
        re.sub("^-l(gpufetch.*)", r"-l:lib\1.a", flag)
        for flag in installed.flags("--static", "--cflags", "--libs", "gpufetch-serve")
    ]
    program = installed.compile(tmp_path, "serves", SERVES, *flags)
    assert installed.run(program, JUPYTER_RUNTIME_DIR=str(tmp_path)) == "serves\n"
    assert "libgpufetch" not in run("objdump", "-p", program, cwd=tmp_path)


def test_a_program_that_opens_no_server_needs_no_libraries_for_one(
    installed: Installed, tmp_path: Path
) -> None:
    """Where libzmq, jansson and libcrypto are no libraries, whatever needs one cannot start."""
    copies = installed.compile(
        tmp_path, "copies", COPIES, *installed.flags("--cflags", "--libs", "gpufetch")
    )
    serves = installed.compile(
        tmp_path, "serves", SERVES, *installed.flags("--cflags", "--libs", "gpufetch-serve")
    )
    missing = libraries_of_a_server(installed)
    for name in missing:
        (tmp_path / name).touch()
    without = {"LD_LIBRARY_PATH": f"{tmp_path}:{installed.lib}"}
    installed.run(serves, JUPYTER_RUNTIME_DIR=str(tmp_path))
    assert missing[0] in installed.run(serves, expect=127, **without)
    installed.run(copies, **without)


def without_last_members(header: str) -> str:
    """The header as it was when each struct that can grow had one member fewer."""

    def shorten(match: re.Match[str]) -> str:
        members = re.sub(r"/\*.*?\*/", "", match.group(2), flags=re.DOTALL)
        return match.group(1) + members[: members.rindex(";", 0, members.rindex(";")) + 1] + "\n}"

    def shorten_macro(match: re.Match[str]) -> str:
        return match.group(1) + match.group(2)[: match.group(2).rindex(",")] + "}"

    structs = r"(typedef struct \w+ \{\n  size_t struct_nbytes;)(.*?)\n\}"
    macros = r"(#define GPUF_\w+_INIT\b)((?:[^\n]*\\\n)*[^\n]*)\}"
    header, struct_count = re.subn(structs, shorten, header, flags=re.DOTALL)
    header, macro_count = re.subn(macros, shorten_macro, header)
    assert struct_count == macro_count
    return header


OLDER_PROGRAM = """
#include <gpufetch/hdf5.h>
#include <gpufetch/reduce.h>
#include <gpufetch/serve.h>
#include <gpufetch/share.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                              \\
  do {                                                                           \\
    if ((call) != GPUF_OK) {                                                     \\
      fprintf(stderr, "%d: %s: %s\\n", __LINE__, #call, err.message);            \\
      exit(1);                                                                   \\
    }                                                                            \\
  } while (0)

static gpuf_error err;

static void read_infos(gpuf_device device, const gpuf_tensor *u) {
  struct { gpuf_device_info info; unsigned char after[16]; } device_info =
      {GPUF_DEVICE_INFO_INIT, "untouched"};
  struct { gpuf_pool_stats stats; unsigned char after[16]; } pool =
      {GPUF_POOL_STATS_INIT, "untouched"};
  struct { gpuf_stats stats; unsigned char after[16]; } all = {GPUF_STATS_INIT, "untouched"};
  struct { gpuf_counts counts; unsigned char after[16]; } some = {GPUF_COUNTS_INIT, "untouched"};
  struct { gpuf_histogram_rest rest; unsigned char after[16]; } outside =
      {GPUF_HISTOGRAM_REST_INIT, "untouched"};
  const int64_t cells[1] = {2};
  float overview[2];
  uint64_t bins[4];
  CHECK(gpuf_device_get_info(device, &device_info.info, &err));
  CHECK(gpuf_pool_get_stats(&pool.stats, &err));
  CHECK(gpuf_reduce_stats(u, &all.stats, &err));
  CHECK(gpuf_reduce_overview(u, GPUF_OVERVIEW_MEAN, cells, overview, NULL, &some.counts, &err));
  CHECK(gpuf_reduce_histogram(u, 4, NULL, bins, NULL, &outside.rest, &err));
  printf("%d %d %d %d %d\\n", strcmp((char *)device_info.after, "untouched"),
         strcmp((char *)pool.after, "untouched"), strcmp((char *)all.after, "untouched"),
         strcmp((char *)some.after, "untouched"), strcmp((char *)outside.after, "untouched"));
  printf("%d %g %g\\n", (int)all.stats.count, all.stats.mean, (double)overview[1]);
}

static void share(const gpuf_tensor *u) {
  gpuf_share_options options = GPUF_SHARE_OPTIONS_INIT;
  gpuf_share_info info = GPUF_SHARE_INFO_INIT;
  gpuf_share_handle handle;
  options.copy = true;
  CHECK(gpuf_share(u, &options, &handle, &err));
  CHECK(gpuf_share_describe(&handle, &info, &err));
  CHECK(gpuf_unshare(&handle, -1, NULL, &err));
  printf("%d\\n", (int)info.tensor.shape[0]);
}

static void write_and_read(const gpuf_tensor *u) {
  gpuf_h5_options options = GPUF_H5_OPTIONS_INIT;
  options.codec = GPUF_H5_CODEC_NONE;
  hid_t file = H5Fcreate("older.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  CHECK(gpuf_h5_write(file, "u", u, &options, &err));
  CHECK(gpuf_h5_read(file, "u", u, &options, &err));
  H5Fclose(file);
}

static void serve(const gpuf_tensor *u) {
  gpuf_server_options options = GPUF_SERVER_OPTIONS_INIT;
  gpuf_publish_options publish = GPUF_PUBLISH_OPTIONS_INIT;
  gpuf_server *server;
  options.name = "older";
  if (gpuf_server_start(&options, &server, &err) != GPUF_ERR_UNSUPPORTED) {
    CHECK(gpuf_server_publish(server, "u", u, &publish, &err));
    printf("%s\\n", gpuf_server_name(server));
    CHECK(gpuf_server_stop(server, &err));
  }
}

int main(void) {
  const float values[4] = {1, 2, 3, 4};
  float back[4] = {0};
  const int64_t shape[1] = {4};
  const gpuf_device host = {GPUF_DEVICE_HOST, 0}, cpu = {GPUF_DEVICE_CPU, 0};
  gpuf_copy_options options = GPUF_COPY_OPTIONS_INIT;
  gpuf_tensor u, src, dst;
  void *d_u;
  options.thread_count = 2;
  CHECK(gpuf_alloc(host, sizeof(values), &d_u, &err));
  CHECK(gpuf_tensor_init(&u, d_u, host, GPUF_DTYPE_FLOAT32, 1, shape, &err));
  CHECK(gpuf_tensor_init(&src, (void *)values, cpu, GPUF_DTYPE_FLOAT32, 1, shape, &err));
  CHECK(gpuf_tensor_init(&dst, back, cpu, GPUF_DTYPE_FLOAT32, 1, shape, &err));
  CHECK(gpuf_copy(&u, &src, &options, &err));
  CHECK(gpuf_copy(&dst, &u, &options, &err));
  read_infos(host, &u);
  share(&u);
  write_and_read(&u);
  serve(&u);
  printf("pool statistics of %zu bytes\\n", sizeof(gpuf_pool_stats));
  return memcmp(values, back, sizeof(values)) != 0;
}
"""


def test_a_program_compiled_against_an_older_header_runs(
    installed: Installed, tmp_path: Path
) -> None:
    """Each struct that can grow had one member fewer when the program was compiled."""
    older = tmp_path / "older" / "gpufetch"
    older.mkdir(parents=True)
    for header in HEADERS:
        (older / header.name).write_text(without_last_members(header.read_text()))
    outputs = []
    for name, include in (("older", older.parent), ("newer", installed.prefix / "include")):
        flags = installed.flags("--cflags", "--libs", "gpufetch-serve", "hdf5")
        program = installed.compile(
            tmp_path, f"{name}_program", OLDER_PROGRAM, f"-I{include}", *flags
        )
        output = installed.run(program, JUPYTER_RUNTIME_DIR=str(tmp_path))
        outputs.append(output.splitlines())
    (*older_lines, older_size), (*newer_lines, newer_size) = outputs
    assert older_lines == newer_lines
    assert older_lines[:3] == ["0 0 0 0 0", "4 2.5 3.5", "4"]
    assert older_size == "pool statistics of 48 bytes"
    assert newer_size == "pool statistics of 56 bytes"
