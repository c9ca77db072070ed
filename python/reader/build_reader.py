"""Builds hdf5-gpufetch with the compilers of PyPI's ziglang: wheels for every platform from any one.

    python build_reader.py [--out FOLDER] [PLATFORM...]   # all wheels, and the sdist
    pip install .                                         # the wheel of this machine (PEP 517)

The sources are those of gpufetch: the codec, the plugin, and the modules behind `gpufetch ls` and
`gpufetch repack`, in which only the imports are changed. The same sources give the same bytes.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import io
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
# In an sdist, what lies outside of this folder is in sources/.
ROOT = HERE / "sources" if (HERE / "sources").is_dir() else HERE.parents[1]
PACKAGE = "hdf5_gpufetch"


class Platform(NamedTuple):
    """A kind of machine, the compiler's name for it, and the wheel's tag."""

    target: str
    tag: str
    cpu: str
    system: str  # of hdf5_filter/object_*.c
    suffix: str


PLATFORMS = {
    "linux-x86_64": Platform(
        "x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64.manylinux2014_x86_64", "x86_64", "elf", "so"
    ),
    "linux-aarch64": Platform(
        "aarch64-linux-gnu.2.17",
        "manylinux_2_17_aarch64.manylinux2014_aarch64",
        "aarch64",
        "elf",
        "so",
    ),
    "musl-x86_64": Platform("x86_64-linux-musl", "musllinux_1_1_x86_64", "x86_64", "elf", "so"),
    "musl-aarch64": Platform("aarch64-linux-musl", "musllinux_1_1_aarch64", "aarch64", "elf", "so"),
    "windows-x86_64": Platform("x86_64-windows-gnu", "win_amd64", "x86_64", "windows", "dll"),
    "macos-x86_64": Platform("x86_64-macos.11.0", "macosx_11_0_x86_64", "x86_64", "macos", "dylib"),
    "macos-arm64": Platform("aarch64-macos.11.0", "macosx_11_0_arm64", "aarch64", "macos", "dylib"),
}

# As in meson.build; the version script there and the hidden visibility here do the same.
C_FLAGS = (
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-DNDEBUG",
    "-DGPUFETCH_STATIC",
    "-O2",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Werror",
    "-Isrc",
    "-Isrc/include",
    "-I.",
    "-shared",
    "-s",
)

# Modules of gpufetch that the wheel has, too, in hdf5_gpufetch/_gpufetch.
SHARED = (
    "_checks",
    "_command_line",
    "_progress",
    "_text",
    "hdf5/_asking",
    "hdf5/_attributes",
    "hdf5/_boxes",
    "hdf5/_compare",
    "hdf5/_copy",
    "hdf5/_dataset",
    "hdf5/_filters",
    "hdf5/_forked",
    "hdf5/_ls",
    "hdf5/_mappings",
    "hdf5/_output_file",
    "hdf5/_refs",
    "hdf5/_refs_attributes",
    "hdf5/_refs_chunks",
    "hdf5/_refs_command",
    "hdf5/_refs_types",
    "hdf5/_repack",
    "hdf5/_source_files",
    "hdf5/_stored",
    "hdf5/_tree",
    "hdf5/_types",
    "hdf5/_virtual",
)
# Modules that the reader has a simpler one of its own for.
OWN = {
    "from gpufetch import _core\n": f"from {PACKAGE} import _core\n",
    "from gpufetch.hdf5._binding import": f"from {PACKAGE}._binding import",
    "from gpufetch.hdf5._new_file import": f"from {PACKAGE}._new_file import",
    "from gpufetch.hdf5._uninterrupted import": f"from {PACKAGE}._uninterrupted import",
    "from gpufetch.": f"from {PACKAGE}._gpufetch.",
}


def version() -> str:
    """gpufetch's own version."""
    return _found(r"^  version: '([^']+)'", "meson.build")


def c_sources(target: Platform) -> list[str]:
    """The C files of a plugin, relative to ROOT."""
    of_cpu = {"x86_64": r"avx", "aarch64": r"neon"}
    left_out = "bitshuffle|" + "|".join(text for cpu, text in of_cpu.items() if cpu != target.cpu)
    codec = [p.name for p in (ROOT / "src/codec").glob("*.c") if not re.search(left_out, p.name)]
    filters = ("caller", "describe", "filter", f"object_{target.system}", "plugin")
    return [
        "src/base/error.c",
        "src/base/text.c",
        *(f"src/codec/{name}" for name in sorted(codec)),
        *(f"hdf5_filter/{name}.c" for name in filters),
    ]


def plugin_names() -> list[str]:
    """The plugins' names, in the order of the filter's ids."""
    names = re.findall(r"'([^']+)'", _found(r"^plugin_names = \[(.*)\]", "hdf5_filter/meson.build"))
    return [str(name) for name in names]


def compile_plugins(target: Platform) -> dict[str, bytes]:
    """Compile the plugin of each id: contents by file name."""
    made = {}
    names = plugin_names()
    with tempfile.TemporaryDirectory() as folder:
        for index, name in enumerate(names):
            file = Path(folder) / f"lib{name}.{target.suffix}"
            ids = (f"-DGPUFI_PLUGIN_INDEX={index}", f"-DGPUFI_PLUGIN_COUNT={len(names)}")
            compiler = (sys.executable, "-m", "ziglang", "cc", "-target", target.target)
            command = [*compiler, *C_FLAGS, *ids, "-o", str(file), *c_sources(target)]
            if target.system == "macos":  # whose libraries hold their path
                command.append(f"-Wl,-install_name,@rpath/{file.name}")
            # Relative paths and no debugging information: the folder leaves no trace.
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
            made[file.name] = file.read_bytes()
    return made


def package_files(plugins: dict[str, bytes]) -> dict[str, bytes]:
    """Contents of the files of the package, by their names in the wheel."""
    files = {
        f"{PACKAGE}/{path.name}": path.read_bytes()
        for path in sorted((HERE / PACKAGE).iterdir())
        if path.suffix in (".py", ".typed")
    }
    for name in SHARED:
        text = (ROOT / f"python/gpufetch/{name}.py").read_text()
        for old, new in OWN.items():
            text = re.sub(f"^(\\s*){re.escape(old)}", rf"\g<1>{new}", text, flags=re.MULTILINE)
        files[f"{PACKAGE}/_gpufetch/{name}.py"] = text.encode()
    parts = '"""What this package has of gpufetch."""\n'.encode()
    files[f"{PACKAGE}/_gpufetch/__init__.py"] = parts
    files[f"{PACKAGE}/_gpufetch/hdf5/__init__.py"] = parts
    files[f"{PACKAGE}/_build.py"] = _build_module(list(plugins)).encode()
    files |= {f"{PACKAGE}/plugins/{name}": data for name, data in plugins.items()}
    return files


def _build_module(libraries: list[str]) -> str:
    first = int(_found(r"^#define GPUF_H5_FILTER_ID (\d+)", "src/include/gpufetch/hdf5.h"))
    listed = _found(r"^#define GPUFI_FILTER_IDS\(X\) (.*)$", "hdf5_filter/ids.h")
    numbers = re.findall(r"X\((\w+)\)", listed)
    ids = [first if number == "GPUF_H5_FILTER_ID" else int(number) for number in numbers]
    return (
        '"""Written when the package was built."""\n\n'
        f"VERSION: str = {version()!r}\n"
        f"FILTER_IDS: tuple[int, ...] = {tuple(ids)!r}\n"
        f"LIBRARIES: tuple[str, ...] = {tuple(libraries)!r}\n"
    )


def metadata() -> bytes:
    """The wheel's METADATA and the sdist's PKG-INFO."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    repository = _found(r"^repository_url = '([^']+)'", "meson.build")
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {version()}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        "License-File: LICENSE",
        "Keywords: " + ",".join(project["keywords"]),
        f"Project-URL: Repository, {repository}",
        *(f"Classifier: {text}" for text in project["classifiers"]),
        f"Requires-Python: {project['requires-python']}",
        "Description-Content-Type: text/markdown",
    ]
    for extra, needs in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {need}; extra == "{extra}"' for need in needs]
    return ("\n".join(lines) + "\n\n" + (HERE / "README.md").read_text()).encode()


def dist_info_files(target: Platform) -> dict[str, bytes]:
    """Contents of the files of the wheel's .dist-info folder but RECORD."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    scripts = "".join(f"{name} = {entry}\n" for name, entry in project["scripts"].items())
    for group, entries in project["entry-points"].items():
        scripts += f"\n[{group}]\n" + "".join(f"{n} = {entry}\n" for n, entry in entries.items())
    tags = "".join(f"Tag: py3-none-{tag}\n" for tag in target.tag.split("."))
    wheel = f"Wheel-Version: 1.0\nGenerator: build_reader\nRoot-Is-Purelib: false\n{tags}"
    return {
        "METADATA": metadata(),
        "WHEEL": wheel.encode(),
        "entry_points.txt": f"[console_scripts]\n{scripts}".encode(),
        "licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
    }


def write_wheel(target: Platform, out: Path) -> str:
    """Compile and write a wheel into the folder `out`; its name."""
    info = f"{PACKAGE}-{version()}.dist-info"
    files = package_files(compile_plugins(target))
    files |= {f"{info}/{name}": data for name, data in dist_info_files(target).items()}
    record = "".join(f"{name},{_digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    name = f"{PACKAGE}-{version()}-py3-none-{target.tag}.whl"
    out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(out / name, "w") as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path)  # of 1980-01-01
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # also on Windows
            entry.external_attr = (0o755 if "/plugins/" in path else 0o644) << 16
            archive.writestr(entry, data, compresslevel=9)
    return name


def write_sdist(out: Path) -> str:
    """Write the sources of the package alone into the folder `out`; the archive's name."""
    base = f"{PACKAGE}-{version()}"
    files = {"PKG-INFO": metadata()}
    own = ["pyproject.toml", "README.md", "build_reader.py"]
    own += [f"{PACKAGE}/{path.name}" for path in (HERE / PACKAGE).iterdir() if path.is_file()]
    files |= {name: (HERE / name).read_bytes() for name in own}
    for name in _outside():
        files[f"sources/{name}"] = (ROOT / name).read_bytes()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            entry = tarfile.TarInfo(f"{base}/{name}")
            entry.size = len(files[name])
            archive.addfile(entry, io.BytesIO(files[name]))
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{base}.tar.gz").write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return f"{base}.tar.gz"


def _outside() -> list[str]:
    """What the package is built from beside this folder."""
    folders = ("src/base", "src/codec", "src/include/gpufetch", "hdf5_filter")
    found = [path for folder in folders for path in (ROOT / folder).iterdir() if path.is_file()]
    names = [path.relative_to(ROOT).as_posix() for path in found]
    return [*names, *(f"python/gpufetch/{name}.py" for name in SHARED), "meson.build", "LICENSE"]


def _digest(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={digest}"


def _found(pattern: str, file: str) -> str:
    match = re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)
    if match is None:
        raise RuntimeError(f"{file} has no line like {pattern}")
    return match[1]


def this_platform() -> Platform:
    """The platform that this Python runs on; RuntimeError where there is no wheel for it."""
    cpu = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    system = {"win32": "windows", "darwin": "macos"}.get(sys.platform, sys.platform)
    if system == "linux" and platform.libc_ver()[0] != "glibc":
        system = "musl"
    try:
        return PLATFORMS[f"{system}-{cpu}"]
    except KeyError:
        raise RuntimeError(
            f"there is no hdf5-gpufetch for {system}-{cpu}: {', '.join(PLATFORMS)}"
        ) from None


# The functions of PEP 517, by which pip and build call this file.


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """Write the wheel of this machine."""
    return write_wheel(this_platform(), Path(wheel_directory))


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Write the sdist."""
    return write_sdist(Path(sdist_directory))


def main() -> None:
    """Write wheels and the sdist."""
    parser = argparse.ArgumentParser(description="Builds wheels of hdf5-gpufetch, and its sdist.")
    parser.add_argument("--out", type=Path, default=Path("dist"), help="(%(default)s)")
    parser.add_argument("platform", nargs="*", help=f"all of {', '.join(PLATFORMS)}")
    arguments = parser.parse_args()
    unknown = set(arguments.platform) - PLATFORMS.keys()
    if unknown:
        parser.error(f"unknown platform {min(unknown)}: {', '.join(PLATFORMS)}")
    os.environ.setdefault("ZIG_LOCAL_CACHE_DIR", str(Path(tempfile.gettempdir()) / "zig-reader"))
    for name in arguments.platform or PLATFORMS:
        file = arguments.out / write_wheel(PLATFORMS[name], arguments.out)
        print(f"{file}: {file.stat().st_size:,} bytes", flush=True)
    print(arguments.out / write_sdist(arguments.out))


if __name__ == "__main__":
    main()
