"""The wheels of hdf5-gpufetch for every platform: what is in them, and the plugin at work.

`./dev test --install` builds them, and names their folder in GPUFETCH_READER_WHEELS; beside it are
the HDF5 libraries of other platforms (tests/install/reader-hdf5.txt). There tests/install/reader.c
reads every fixture through the plugin, and writes it again: under qemu-user for aarch64, by musl's
loader, under Wine for Windows. Nothing here can run a program of macOS.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from plugin_files import FILTER_ID, REPOSITORY
from reader_build import SOURCES, build_reader, fixture_list

FIXTURES = REPOSITORY / "tests" / "data" / "format-2.h5"
INSTALL = REPOSITORY / "tests" / "install"
PLATFORMS = build_reader.PLATFORMS
NBYTES_MAX = 1_000_000
# What the plugins may need of a system: its C library.
SYSTEM = {
    "linux-x86_64": {"libc.so.6", "libdl.so.2"},
    "linux-aarch64": {"libc.so.6", "libdl.so.2"},
    "musl-x86_64": {"libc.so"},
    "musl-aarch64": {"libc.so"},
    "macos-x86_64": {"/usr/lib/libSystem.B.dylib"},
    "macos-arm64": {"/usr/lib/libSystem.B.dylib"},
}


def folder() -> Path:
    if "GPUFETCH_READER_WHEELS" not in os.environ:
        pytest.skip("built and run by ./dev test --install")
    return Path(os.environ["GPUFETCH_READER_WHEELS"])


def wheel(name: str) -> Path:
    (found,) = folder().glob(f"hdf5_gpufetch-*-py3-none-{PLATFORMS[name].tag}.whl")
    return found


def unpacked(name: str, to: Path) -> Path:
    """The plugin of a wheel."""
    with zipfile.ZipFile(wheel(name)) as archive:
        archive.extractall(to)
    (plugin,) = (to / "hdf5_gpufetch" / "plugins").iterdir()
    return plugin


def compiler() -> list[str]:
    """The one that built the wheels; at the same level it has its C libraries compiled already."""
    python = folder().parent / "bin" / "python"
    return [str(python), "-m", "ziglang", "cc", "-O2", "-s", "-Wall", "-Wextra", "-Werror"]


def run(command: list[str | Path], **environment: str) -> str:
    with subprocess.Popen(
        [str(word) for word in command],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, errors = process.communicate(timeout=280)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # compilers that it started, too
            raise
    assert process.returncode == 0, out + errors
    return out


# --- What is in them -------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_wheel_is_small_and_complete_and_says_what_it_is_for(name: str) -> None:
    path = wheel(name)
    assert path.stat().st_size < NBYTES_MAX
    with zipfile.ZipFile(path) as archive:
        files = {entry: archive.read(entry) for entry in archive.namelist()}
    assert sum(map(len, files.values())) < 1.5 * NBYTES_MAX
    (info,) = {entry.split("/")[0] for entry in files if ".dist-info/" in entry}
    record = dict(
        line.rsplit(",", 2)[0:2] for line in files[f"{info}/RECORD"].decode().splitlines()
    )
    assert record.keys() == files.keys() and record.pop(f"{info}/RECORD") == ""
    for entry, digest in record.items():
        expected = base64.urlsafe_b64encode(hashlib.sha256(files[entry]).digest()).rstrip(b"=")
        assert digest == f"sha256={expected.decode()}", entry
    tags = re.findall(r"^Tag: (.*)$", files[f"{info}/WHEEL"].decode(), re.MULTILINE)
    assert tags == [f"py3-none-{tag}" for tag in PLATFORMS[name].tag.split(".")]
    plugins = [entry for entry in files if "/plugins/" in entry]
    assert plugins == [f"hdf5_gpufetch/plugins/libh5z_gpufetch.{PLATFORMS[name].suffix}"]
    assert "hdf5_gpufetch/_gpufetch/hdf5/_ls.py" in files and f"{info}/licenses/LICENSE" in files


@pytest.mark.parametrize("name", [name for name in PLATFORMS if PLATFORMS[name].system == "elf"])
def test_a_plugin_for_linux_needs_libc_alone_and_an_old_one(name: str, tmp_path: Path) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed (Debian: binutils)")
    plugin = unpacked(name, tmp_path)
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", run(["readelf", "-dW", plugin])))
    assert needed <= SYSTEM[name]
    symbols = run(["readelf", "--dyn-syms", "-W", plugin])
    versions = {tuple(map(int, v.split("."))) for v in re.findall(r"@GLIBC_([0-9.]+)", symbols)}
    assert all(version <= (2, 17) for version in versions)
    assert bool(versions) == name.startswith("linux")
    defined = re.findall(r"GLOBAL +DEFAULT +\d+ (\S+)", symbols)
    assert set(defined) == {"H5PLget_plugin_type", "H5PLget_plugin_info"}


LOAD_COMMANDS = {
    0x0D: "name",
    0x0C: "library",
    0x80000018: "library",
    0x1D: "signature",
    0x32: "version",
}


def load_commands(data: bytes) -> dict[str, list[bytes]]:
    """The parts of a Mach-O file of 64 bits that say what loading it needs."""
    magic, _, _, _, count = struct.unpack_from("<5I", data)
    assert magic == 0xFEEDFACF
    found: dict[str, list[bytes]] = {kind: [] for kind in LOAD_COMMANDS.values()}
    at = 32
    for _ in range(count):
        command, nbytes = struct.unpack_from("<2I", data, at)
        if command in LOAD_COMMANDS:
            found[LOAD_COMMANDS[command]].append(data[at : at + nbytes])
        at += nbytes
    return found


@pytest.mark.parametrize("name", ["macos-x86_64", "macos-arm64"])
def test_a_plugin_for_macos_needs_the_system_alone_and_is_signed(name: str, tmp_path: Path) -> None:
    """An arm64 Mac loads nothing without a signature; one without a certificate is enough."""
    data = unpacked(name, tmp_path).read_bytes()
    commands = load_commands(data)
    own, *libraries = (
        part[24:].split(b"\0")[0].decode() for part in commands["name"] + commands["library"]
    )
    assert own == "@rpath/libh5z_gpufetch.dylib" and set(libraries) == SYSTEM[name]
    (version,) = commands["version"]
    assert struct.unpack_from("<2I", version, 8) == (1, 11 << 16)  # macOS 11
    assert name == "macos-x86_64" or len(commands["signature"]) == 1
    assert b"_H5PLget_plugin_info" in data


def test_a_plugin_for_windows_needs_windows_alone(tmp_path: Path) -> None:
    if shutil.which("objdump") is None:
        pytest.skip("objdump is not installed (Debian: binutils)")
    said = run(["objdump", "-p", unpacked("windows-x86_64", tmp_path)])
    libraries = {name.lower() for name in re.findall(r"DLL Name: (\S+)", said)}
    # The C library is the one that Python and its wheels use: they free what the plugin allocates.
    assert "api-ms-win-crt-heap-l1-1-0.dll" in libraries
    others = {name for name in libraries if not name.startswith("api-ms-win-crt-")}
    assert others <= {"kernel32.dll", "ntdll.dll"}
    exported = re.findall(r"^\s*\[ *\d+\] (?:\+base\[ *\d+\] *\w+ )?(\w+)$", said, re.MULTILINE)
    assert set(exported) == {"H5PLget_plugin_type", "H5PLget_plugin_info"}


def test_the_package_is_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    unpacked("linux-x86_64", tmp_path)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir"]
    config = ["--config-file", REPOSITORY / "pyproject.toml"]
    files = [tmp_path / "cache", *config, tmp_path / "hdf5_gpufetch"]
    assert run([*command, *files], PYTHONPATH="", MYPYPATH=str(tmp_path)) == ""


# One of each linker; the others differ in the code that is linked alone.
@pytest.mark.parametrize("name", ["linux-x86_64", "windows-x86_64", "macos-arm64"])
def test_two_builds_give_the_same_bytes(tmp_path: Path, name: str) -> None:
    """The second is made in another folder, and compiles the plugin again."""
    copy = tmp_path / "copy"
    for part in ("src", "hdf5_filter", "python"):
        shutil.copytree(REPOSITORY / part, copy / part)
    for part in ("meson.build", "LICENSE"):
        shutil.copy2(REPOSITORY / part, copy / part)
    script = copy / "python" / "reader" / "build_reader.py"
    out = tmp_path / "again"
    run([compiler()[0], script, "--out", out, name], ZIG_LOCAL_CACHE_DIR=str(tmp_path / "cache"))
    again = {path.name: path.read_bytes() for path in out.iterdir()}
    assert again == {name: (folder() / name).read_bytes() for name in again}
    assert wheel(name).name in again and len(again) == 2


# --- At work ---------------------------------------------------------------------------------


def installed(tmp_path: Path) -> tuple[Path, Path]:
    """A Python with programs that read HDF5, and the folder into which pip installed the wheel."""
    python = folder().parent / "site" / "bin" / "python"
    target = tmp_path / "site"
    pip = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    run([*pip, "--target", target, wheel("linux-x86_64")])
    return python, target


def test_the_wheel_in_an_environment_with_h5py_alone(tmp_path: Path) -> None:
    """Installed by pip; read, written, listed and copied by its own command."""
    python, target = installed(tmp_path)
    names = {"PYTHONPATH": str(target), "HDF5_PLUGIN_PRELOAD": "::"}
    code = """
import sys, h5py, numpy, hdf5_gpufetch
with h5py.File(sys.argv[1]) as file:
    assert file["uint8_steps_64x64"][0, :3].tolist() == [0, 136, 15]
with h5py.File(sys.argv[2], "w") as file:
    file.create_dataset("x", data=numpy.arange(9999), compression=hdf5_gpufetch.FILTER_ID)
with h5py.File(sys.argv[2]) as file:
    assert (file["x"][...] == numpy.arange(9999)).all()
"""
    run([python, "-W", "error", "-c", code, FIXTURES, tmp_path / "x.h5"], **names)
    script = target / "bin" / "hdf5-gpufetch"
    run([python, script, "repack", tmp_path / "x.h5", tmp_path / "y.h5"], **names)
    assert "any HDF5 reads every dataset" in run([python, script, "ls", tmp_path / "y.h5"], **names)


@pytest.mark.parametrize(
    "packages", ["hdf5_gpufetch, netCDF4, tables", "netCDF4, tables, hdf5_gpufetch"]
)
def test_every_hdf5_library_of_a_process_gets_the_filter(packages: str, tmp_path: Path) -> None:
    """In whatever order the packages are imported, and no path is set."""
    python, target = installed(tmp_path)
    code = f"""
import sys
import {packages}
assert netCDF4.Dataset(sys.argv[1])["uint8_steps_64x64"][0, :3].tolist() == [0, 136, 15]
with tables.open_file(sys.argv[1]) as file:
    assert file.root.uint8_steps_64x64[0, :3].tolist() == [0, 136, 15]
assert len(hdf5_gpufetch.register()) == 3
"""
    names = {"PYTHONPATH": str(target), "HDF5_PLUGIN_PRELOAD": "::"}
    run([python, "-c", code, FIXTURES], **names)


def libraries_of(name: str) -> list[Path]:
    """The libhdf5 of each h5py of a platform."""
    found = []
    for path in sorted((folder().parent / "hdf5" / name).glob("*")):
        names = [*path.glob("h5py.libs/libhdf5-*.so*"), *path.glob("h5py/hdf5.dll")]
        found += names
    assert found, f"no h5py for {name}"
    return found


def check_reader(command: list[str | Path], tmp_path: Path, **environment: str) -> None:
    """Run reader.c, whose arguments follow `command` and LIBHDF5."""
    count = fixture_list(tmp_path / "list")
    arguments = [FIXTURES, tmp_path / "copy.h5", tmp_path / "list", str(FILTER_ID)]
    assert f"{count} datasets" in run([*command, *arguments], **environment)


def arm64_root() -> Path:
    root = folder().parent / "arm64" / "files"
    if shutil.which("qemu-aarch64") is None or not root.is_dir():
        pytest.skip("no qemu-aarch64, or no packages of arm64 (./dev test --install, on Debian)")
    return root


def test_a_program_of_musl_reads_and_writes(tmp_path: Path) -> None:
    loader = Path("/lib/ld-musl-x86_64.so.1")
    if not loader.exists():
        pytest.skip("musl is not installed (Debian: musl)")
    plugin = unpacked("musl-x86_64", tmp_path)
    target = ["-target", PLATFORMS["musl-x86_64"].target]
    run([*compiler(), *target, "-dynamic", INSTALL / "reader.c", "-o", tmp_path / "reader"])
    no_zlib = [INSTALL / "no_zlib.c", "-o", tmp_path / "libz.so.1"]
    run([*compiler(), *target, "-shared", *no_zlib])
    for library in libraries_of("musl-x86_64"):
        names = {
            "LD_LIBRARY_PATH": f"{tmp_path}:{library.parent}",
            "HDF5_PLUGIN_PATH": str(plugin.parent),
        }
        check_reader([loader, tmp_path / "reader", library], tmp_path, **names)


@pytest.mark.parametrize("name", ["linux-aarch64", "musl-aarch64"])
def test_a_program_of_aarch64_reads_and_writes(tmp_path: Path, name: str) -> None:
    root = arm64_root()
    plugin = unpacked(name, tmp_path)
    is_musl = name.startswith("musl")
    target = ["-target", PLATFORMS[name].target]
    link = ["-dynamic"] if is_musl else ["-ldl"]
    run([*compiler(), *target, INSTALL / "reader.c", "-o", tmp_path / "reader", *link])
    no_zlib = [INSTALL / "no_zlib.c", "-o", tmp_path / "libz.so.1"]
    run([*compiler(), *target, "-shared", *no_zlib])
    for library in libraries_of(name):
        folders = f"LD_LIBRARY_PATH={tmp_path}:{library.parent}"
        command = ["qemu-aarch64", "-L", root, "-E", folders, tmp_path / "reader", library]
        check_reader(command, tmp_path, HDF5_PLUGIN_PATH=str(plugin.parent))


def test_debians_h5dump_of_arm64_reads_every_dataset(tmp_path: Path) -> None:
    root = arm64_root()
    plugin = unpacked("linux-aarch64", tmp_path)
    h5dump = ["qemu-aarch64", "-L", root, root / "usr/bin/h5dump"]
    said = run([*h5dump, FIXTURES], HDF5_PLUGIN_PATH=str(plugin.parent))
    native = run(["h5dump", FIXTURES], HDF5_PLUGIN_PATH=str(native_plugin()))
    assert said == native and said.count("DATASET ") == fixture_list(tmp_path / "list")


def native_plugin() -> Path:
    from plugin_files import plugin_folder

    found = plugin_folder()
    if found is None or shutil.which("h5dump") is None:
        pytest.skip("libh5z_gpufetch.so is not built, or h5dump not installed")
    return found


def test_a_program_of_windows_reads_and_writes(tmp_path: Path) -> None:
    wine = shutil.which("wine64") or shutil.which("wine64", path="/usr/lib/wine")
    if wine is None:
        pytest.skip("Wine is not installed (Debian: wine64)")
    plugin = unpacked("windows-x86_64", tmp_path)
    target = ["-target", PLATFORMS["windows-x86_64"].target]
    run([*compiler(), *target, INSTALL / "reader.c", "-o", tmp_path / "reader.exe"])
    names = {
        "WINEPREFIX": str(tmp_path / "wine"),
        "WINEDEBUG": "-all",
        "WINEDLLOVERRIDES": "mscoree,mshtml=",  # nothing is to be downloaded
        "HDF5_PLUGIN_PATH": "Z:" + str(plugin.parent).replace("/", "\\"),
    }
    for library in libraries_of("windows-x86_64"):
        program = tmp_path / "reader.exe"
        path = "Z:" + str(library).replace("/", "\\")
        check_reader([wine, program, path], tmp_path, **names)


def test_pip_builds_a_wheel_of_the_sdist(tmp_path: Path) -> None:
    """As pip does it, with the build's requirements from where they are installed already."""
    (archive,) = folder().glob("hdf5_gpufetch-*.tar.gz")
    command = [compiler()[0], "-m", "pip", "wheel", "-q", "--no-index", "--no-deps"]
    run([*command, "--no-build-isolation", "-w", tmp_path, archive])
    (built,) = tmp_path.glob("*.whl")
    assert built.name == wheel("linux-x86_64").name and sys.platform == "linux"
    assert built.read_bytes() == wheel("linux-x86_64").read_bytes()
    assert (SOURCES / "README.md").read_text() in built_metadata(built)


def built_metadata(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith("METADATA")]
        return archive.read(name).decode()
