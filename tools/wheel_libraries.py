#!/usr/bin/env python3
"""Builds the libraries within the wheel of gpufetch: libsodium, libzmq, jansson and libcrypto.

    python tools/wheel_libraries.py PREFIX

Run by a Python that has ziglang, on a Debian or Ubuntu. The sources are those of Debian 12, with
its patches, and for OpenSSL, whose security fixes are releases, upstream's: apt-get checks
signatures by Debian's keyring. They are compiled for x86-64 and glibc 2.28, as static libraries and
without what gpufetch does not call. PREFIX/components.json describes them as CycloneDX does, for
the wheel's SBOM, and PREFIX/licenses has their licences.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

TARGET = "x86_64-linux-gnu.2.28"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ARCHIVES = (
    ("http://deb.debian.org/debian", "bookworm"),
    ("http://deb.debian.org/debian-security", "bookworm-security"),
)

# OpenSSL is asked for HMAC-SHA256 alone. Without a configuration file and loadable providers, what
# it does is the same on every system, whatever the files of that system's own OpenSSL say.
OPENSSL_WITHOUT = (
    *("shared", "dso", "engine", "module", "legacy", "tests", "autoload-config", "ssl", "tls"),
    *("dtls", "cmp", "cms", "ct", "ec", "dh", "dsa", "srp", "ts", "ocsp", "stdio", "sock", "async"),
)
ZMQ_OPTIONS = {
    "BUILD_SHARED": "OFF",
    "BUILD_TESTS": "OFF",
    "ENABLE_CPACK": "OFF",
    "ENABLE_CURVE": "ON",
    "ENABLE_DRAFTS": "OFF",
    "ENABLE_WS": "OFF",
    "WITH_DOCS": "OFF",
    "WITH_LIBBSD": "OFF",
    "WITH_LIBSODIUM": "ON",
    "WITH_LIBSODIUM_STATIC": "ON",
    "WITH_PERF_TOOL": "OFF",
}
JANSSON_OPTIONS = {
    "JANSSON_BUILD_DOCS": "OFF",
    "JANSSON_EXAMPLES": "OFF",
    "JANSSON_WITHOUT_TESTS": "ON",
}


def run(*command: str | Path, cwd: Path, **environment: str) -> None:
    subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, check=True)


def compiler(language: str) -> str:
    """What CC or CXX is set to; build systems split it at spaces."""
    return f"{sys.executable} -m ziglang {language} -target {TARGET}"


def build_with_cmake(source: Path, prefix: Path, options: dict[str, str]) -> None:
    found = {"PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig"}
    options = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_POSITION_INDEPENDENT_CODE": "ON",
        "CMAKE_INSTALL_PREFIX": str(prefix),
        "CMAKE_INSTALL_LIBDIR": "lib",
        "CMAKE_PREFIX_PATH": str(prefix),
        **options,
    }
    arguments = [f"-D{name}={value}" for name, value in options.items()]
    compilers = {"CC": compiler("cc"), "CXX": compiler("c++")}
    run("cmake", "-S", source, "-B", "build", *arguments, cwd=source, **compilers, **found)
    run("cmake", "--build", "build", "--parallel", jobs(), cwd=source)
    run("cmake", "--install", "build", cwd=source)


def build_zmq(source: Path, prefix: Path) -> None:
    build_with_cmake(source, prefix, ZMQ_OPTIONS)
    # Its C++ library is zig's, where CMake wrote down gcc's.
    package = prefix / "lib" / "pkgconfig" / "libzmq.pc"
    text = package.read_text()
    assert "-lstdc++" in text
    package.write_text(text.replace("-lstdc++", "-lc++"))


def build_sodium(source: Path, prefix: Path) -> None:
    options = ["--disable-shared", "--enable-static", "--with-pic", f"--prefix={prefix}"]
    run("autoreconf", "--force", "--install", cwd=source)
    run("./configure", *options, cwd=source, CC=compiler("cc"))
    run("make", f"-j{jobs()}", "install", cwd=source)


def build_openssl(source: Path, prefix: Path) -> None:
    without = [f"no-{name}" for name in OPENSSL_WITHOUT]
    where = [f"--prefix={prefix}", "--libdir=lib", f"--openssldir={prefix}/ssl"]
    run("./Configure", "linux-x86_64", *without, *where, cwd=source, CC=compiler("cc"))
    run("make", f"-j{jobs()}", "build_libs", cwd=source)
    run("make", "install_dev", cwd=source)


def jobs() -> str:
    return str(os.cpu_count() or 1)


class Library(NamedTuple):
    """A source package of Debian, and how it is built and described."""

    package: str
    name: str
    licence: str
    licence_file: str
    has_patches: bool
    build: Callable[[Path, Path], None]


# In the order in which they need each other.
LIBRARIES = (
    Library("libsodium", "libsodium", "ISC", "LICENSE", True, build_sodium),
    Library(
        "zeromq3",
        "libzmq",
        "LGPL-3.0-or-later WITH LGPL-3.0-linking-exception",
        "COPYING.LESSER",
        True,
        build_zmq,
    ),
    Library(
        "jansson",
        "jansson",
        "MIT",
        "LICENSE",
        True,
        lambda source, prefix: build_with_cmake(source, prefix, JANSSON_OPTIONS),
    ),
    Library("openssl", "libcrypto", "Apache-2.0", "LICENSE.txt", False, build_openssl),
)


class Sources:
    """Debian's source packages; what apt-get knows of them is kept in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("state/lists/partial", "cache/archives/partial", "parts", "files"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        lines = [f"deb-src [signed-by={KEYRING}] {url} {suite} main\n" for url, suite in ARCHIVES]
        (folder / "sources.list").write_text("".join(lines))
        self._apt_get("update")

    def _apt_get(self, *arguments: str) -> None:
        options = {
            "Dir::State": self.folder / "state",
            "Dir::Cache": self.folder / "cache",
            "Dir::Etc::sourcelist": self.folder / "sources.list",
            "Dir::Etc::sourceparts": self.folder / "parts",
            "APT::Sandbox::User": "root",
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        run("apt-get", "-q", *words, *arguments, cwd=self.folder / "files")

    def unpack(self, library: Library) -> tuple[Path, Path]:
        """The folder with the sources, and the archive that they are in."""
        files = self.folder / "files"
        self._apt_get("source", *([] if library.has_patches else ["--tar-only"]), library.package)
        (archive,) = files.glob(f"{library.package}_*.orig.tar.gz")
        if not library.has_patches:
            run("tar", "-xf", archive, cwd=files)
        (source,) = (path for path in files.glob(f"{library.package}-*") if path.is_dir())
        return source, archive


def version_of(source: Path, library: Library) -> str:
    if library.has_patches:
        found = re.match(r"\S+ \(([^)]+)\)", (source / "debian" / "changelog").read_text())
        assert found
        return found[1]
    return source.name.rpartition("-")[2]


def component(library: Library, source: Path, archive: Path) -> dict[str, Any]:
    """The library as CycloneDX describes it."""
    version = version_of(source, library)
    debian = f"pkg:deb/debian/{library.package}@{version}?arch=source"
    return {
        "type": "library",
        "bom-ref": library.name,
        "name": library.name,
        "version": version,
        "licenses": [{"expression": library.licence}],
        "purl": debian if library.has_patches else f"pkg:generic/{library.package}@{version}",
        "externalReferences": [
            {
                "type": "source-distribution",
                "url": f"https://snapshot.debian.org/package/{library.package}/",
                "hashes": [
                    {"alg": "SHA-256", "content": hashlib.sha256(archive.read_bytes()).hexdigest()}
                ],
            }
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Builds the libraries within the wheel.")
    parser.add_argument("prefix", type=Path)
    prefix = parser.parse_args().prefix.resolve()
    if not KEYRING.exists():
        sys.exit(f"{KEYRING} is missing: apt-get install debian-archive-keyring")
    shutil.rmtree(prefix, ignore_errors=True)
    (prefix / "licenses").mkdir(parents=True)
    sources = Sources(prefix / "sources")
    components = []
    for library in LIBRARIES:
        source, archive = sources.unpack(library)
        library.build(source, prefix)
        components.append(component(library, source, archive))
        shutil.copy(source / library.licence_file, prefix / "licenses" / f"{library.name}.txt")
    (prefix / "components.json").write_text(json.dumps(components, indent=2) + "\n")
    shutil.rmtree(prefix / "sources")


if __name__ == "__main__":
    main()
