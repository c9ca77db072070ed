"""Packages with an HDF5 library of their own that are imported after this one.

xarray imports netCDF4 when it opens a file, and netCDF asks for a file's filters when it opens it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["call_after_imports"]

PACKAGES = ("netCDF4", "tables")


def call_after_imports(register: Callable[[], object]) -> None:
    """Call `register` each time that one of PACKAGES has been imported from here on."""
    sys.meta_path.insert(0, _Finder(register))


class _Finder(MetaPathFinder):
    """Finds a package as the finders behind it do, and has something called after its import."""

    def __init__(self, register: Callable[[], object]) -> None:
        self._register = register

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in PACKAGES:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, found), None)
        loader = None if spec is None else spec.loader
        if loader is not None and hasattr(loader, "exec_module"):
            execute = loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                self._register()

            loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec
