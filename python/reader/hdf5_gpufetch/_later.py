"""Packages with an HDF5 library of their own whose import ends after this one's.

xarray imports netCDF4 when it opens a file, and netCDF asks for a file's filters when it opens it.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["call_after_imports", "call_no_more"]

_PACKAGES = ("netCDF4", "tables")


def call_after_imports(register: Callable[[], object]) -> None:
    """Call `register` each time that one of _PACKAGES has been imported from here on.

    That includes imports that other threads have begun. The thread that imports makes the call,
    before anybody uses the package: HDF5 libraries may have no lock. Takes the place of what an
    earlier import of this package has asked for.
    """
    sys.meta_path[:] = [_Finder(register), *_others()]
    for package in _PACKAGES:
        _call_at_end(package, register)


def call_no_more() -> None:
    """Take back what `call_after_imports` did, but for imports that are under way."""
    sys.meta_path[:] = _others()


def _others() -> list[Any]:
    """The finders that are none of this package's, loaded once or more."""
    return [finder for finder in sys.meta_path if not hasattr(finder, "is_of_hdf5_gpufetch")]


def _call(register: Callable[[], object]) -> None:
    try:
        register()
    except ImportError as error:  # the package itself is there
        warnings.warn(str(error), RuntimeWarning, stacklevel=2)


def _call_at_end(package: str, register: Callable[[], object]) -> bool:
    """Have `register` called at the end of a package's import; False where none is under way.

    The last that the import system does is to say in the module's spec that it is over.
    """

    class Watched(ModuleSpec):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name == "_initializing" and not value:
                super().__setattr__("__class__", ModuleSpec)
                _call(register)

    try:
        # Not by the module's own way, in which one that is loaded lazily would be loaded now.
        spec = object.__getattribute__(sys.modules.get(package), "__spec__")
    except AttributeError:
        return False
    if type(spec) is ModuleSpec and getattr(spec, "_initializing", False):
        spec.__class__ = Watched
        if not getattr(spec, "_initializing", False):  # it has ended in between
            spec.__class__ = ModuleSpec
    return bool(getattr(spec, "_initializing", False))


class _Finder(MetaPathFinder):
    """Finds a package as the other finders do, and has something called after its import."""

    is_of_hdf5_gpufetch = True

    def __init__(self, register: Callable[[], object]) -> None:
        self._register = register
        self._asking: set[tuple[int, str]] = set()  # threads, and what they ask the others for

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = name.partition(".")[0]
        if package not in _PACKAGES:
            return None
        # The package may have been found before there was this finder. One that is loaded lazily
        # (importlib.util.LazyLoader) imports its modules when it is first used.
        if package != name and _call_at_end(package, self._register):
            return None
        asked = (threading.get_ident(), name)
        if asked in self._asking:  # by another finder, which asks all finders, too
            return None
        try:
            self._asking.add(asked)
            return self._find(name, path, target)
        finally:
            self._asking.discard(asked)

    def _find(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
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
        _call(self._register)
