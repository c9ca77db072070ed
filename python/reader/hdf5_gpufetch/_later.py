"""Packages with an HDF5 library of their own that are imported after this one.

xarray imports netCDF4 when it opens a file, and netCDF asks for a file's filters when it opens it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["call_after_imports"]

_PACKAGES = ("netCDF4", "tables")


def call_after_imports(register: Callable[[], object]) -> None:
    """Call `register` each time that one of _PACKAGES has been imported from here on.

    Takes the place of what an earlier import of this package has asked for.
    """
    sys.meta_path[:] = [_Finder(register), *_others()]


def _others() -> list[Any]:
    """The finders that are none of this package's, loaded once or more."""
    return [finder for finder in sys.meta_path if not hasattr(finder, "is_of_hdf5_gpufetch")]


class _Finder(MetaPathFinder):
    """Finds a package as the other finders do, and has something called after its import."""

    is_of_hdf5_gpufetch = True

    def __init__(self, register: Callable[[], object]) -> None:
        self._register = register

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _PACKAGES:
            return None
        finders = (finder for finder in _others() if hasattr(finder, "find_spec"))
        found = (finder.find_spec(name, path, target) for finder in finders)
        spec = next(filter(None, found), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, self._register)
        return spec


class _Loader(Loader):
    """Executes a module by its own loader, which is the module's from then on."""

    def __init__(self, loader: Any, register: Callable[[], object]) -> None:
        self._loader = loader
        self._register = register

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            self._register()
        except ImportError as error:  # the package itself is there
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
