"""Runs the commands that a Spack recipe asks for, in this system and without Spack.

    python run_spack.py PACKAGE.py SOURCES PREFIX

Stands in for as much of Spack as the recipes use: directives say nothing, variants have their
defaults, and MesonPackage and PythonPackage run what Spack's own do.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import types
from pathlib import Path


def run(*command: str, cwd: Path) -> None:
    print("+", *command, flush=True)
    subprocess.run(command, cwd=cwd, check=True)


class Spec:
    """What would be installed: +serve, no CUDA."""

    def __init__(self, variants: dict[str, bool]) -> None:
        self.variants = variants

    def satisfies(self, text: str) -> bool:
        if text[0] not in "+~":
            raise ValueError(f"{text}: this Spec knows variants alone")
        return self.variants[text[1:]] == (text[0] == "+")


class Package:
    def __init__(self, spec: Spec) -> None:
        self.spec = spec


class MesonPackage(Package):
    def install(self, sources: Path, prefix: Path) -> None:
        standard = [f"-Dprefix={prefix}", "-Dlibdir=lib", "-Dbuildtype=release", "-Dstrip=false"]
        standard += ["-Ddefault_library=shared", "-Dwrap_mode=nodownload"]
        build = str(sources / "build-spack")
        run("meson", "setup", build, *standard, *self.meson_args(), cwd=sources)
        run("ninja", "-C", build, cwd=sources)
        run("ninja", "-C", build, "install", cwd=sources)


class PythonPackage(Package):
    def install(self, sources: Path, prefix: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation"]
        pip += ["--no-index", "--ignore-installed", f"--prefix={prefix}"]
        for name, values in self.config_settings(self.spec, prefix).items():
            pip += [f"--config-settings={name}={value}" for value in values]
        run(*pip, ".", cwd=sources)


def stand_in(variants: dict[str, bool]) -> None:
    """Put the modules that recipes import into sys.modules."""

    def variant(name: str, default: bool, description: str) -> None:
        variants[name] = default

    def says_nothing(*arguments: object, **options: object) -> None:
        pass

    directives = dict.fromkeys(("license", "version", "depends_on", "conflicts"), says_nothing)
    modules = {
        "spack.package": {"variant": variant, "join_path": os.path.join, **directives},
        "spack_repo.builtin.build_systems.cuda": {"CudaPackage": type("CudaPackage", (), {})},
        "spack_repo.builtin.build_systems.meson": {"MesonPackage": MesonPackage},
        "spack_repo.builtin.build_systems.python": {"PythonPackage": PythonPackage},
    }
    for name, members in modules.items():
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            sys.modules.setdefault(".".join(parts[:depth]), types.ModuleType(parts[depth - 1]))
        vars(sys.modules[name]).update(members)


def main() -> None:
    recipe, sources, prefix = (Path(argument).resolve() for argument in sys.argv[1:])
    variants = {"cuda": False}
    stand_in(variants)
    (package,) = (
        value
        for value in runpy.run_path(str(recipe)).values()
        if isinstance(value, type) and value.__module__ == "<run_path>"
    )
    package(Spec(variants)).install(sources, prefix)


if __name__ == "__main__":
    main()
