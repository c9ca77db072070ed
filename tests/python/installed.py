"""An installed gpufetch for C programs: where it lies, and compiling against it."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, cwd: Path, expect: int = 0, **environment: str) -> str:
    # A sanitizer's runtime, which LD_PRELOAD names, is unfit for build tools.
    inherited = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == expect, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def tool(*names: str, remedy: str = "") -> str:
    for name in names:
        if found := shutil.which(name):
            return found
    pytest.skip(f"none of {', '.join(names)} is installed{remedy}")


def page_block(language: str, containing: str) -> str:
    """The one code block of docs/c-programs.md in this language that contains the text."""
    text = (ROOT / "docs" / "c-programs.md").read_text()
    blocks = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if containing in block]
    return str(block)


@dataclass(frozen=True)
class Installed:
    """A prefix with the libraries, and the environment in which build tools find them."""

    prefix: Path

    @property
    def lib(self) -> Path:
        return self.prefix / "lib"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PKG_CONFIG_PATH": str(self.lib / "pkgconfig"),
            "CMAKE_PREFIX_PATH": str(self.prefix),
            "LD_LIBRARY_PATH": str(self.lib),
        }

    def flags(self, *arguments: str) -> list[str]:
        pkg_config = tool("pkg-config")
        return run(pkg_config, *arguments, cwd=self.prefix, **self.environment).split()

    def compile(self, folder: Path, name: str, source: str, *flags: str) -> Path:
        """A program of the source, which is C."""
        (folder / f"{name}.c").write_text(source)
        warnings = ["-Wall", "-Wextra", "-Werror"]
        run(tool("cc", "gcc"), *warnings, f"{name}.c", "-o", name, *flags, cwd=folder)
        return folder / name

    def run(self, program: Path, *arguments: str, expect: int = 0, **environment: str) -> str:
        everything = {**self.environment, **environment}
        return run(program, *arguments, cwd=program.parent, expect=expect, **everything)


def install(factory: pytest.TempPathFactory) -> Installed:
    """Build without CUDA and install, as docs/c-programs.md says, once for a run's processes."""
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    prefix = folder / "installed" / "prefix"
    with (folder / "installed.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not prefix.exists():
            build(folder / "installed", prefix)
    return Installed(prefix)


def build(folder: Path, prefix: Path) -> None:
    folder.mkdir(exist_ok=True)
    meson = [sys.executable, "-m", "mesonbuild.mesonmain"]
    options = ["-Dcuda=disabled", "-Dbuildtype=plain", "-Dlibdir=lib", f"-Dprefix={prefix}"]
    run(*meson, "setup", folder / "build", ROOT, *options, cwd=folder)
    run(*meson, "install", "-C", folder / "build", "--quiet", cwd=folder)
