"""The shared libraries of this process whose file names are those of HDF5."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator

__all__ = ["loaded_libraries"]

# Such as libhdf5-9e18f0c6.so.320.0.0, libhdf5_serial.so.103, libhdf5.310.dylib and hdf5.dll, not
# libraries beside it (high level, C++, Fortran, tools), nor hdf5extension.abi3.so of PyTables.
_NAME = re.compile(r"(lib)?hdf5(?!_(hl|cpp|f90|fortran|tools|java)|[a-z])")


def loaded_libraries() -> list[str]:
    """Paths of the HDF5 libraries that are loaded, in the loader's order."""
    names = {"win32": _of_windows, "darwin": _of_macos}.get(sys.platform, _of_linux)()
    return [path for path in dict.fromkeys(names) if _NAME.match(os.path.basename(path).lower())]


def _of_linux() -> Iterator[str]:
    with open("/proc/self/maps", errors="surrogateescape") as lines:
        for line in lines:
            fields = line.rstrip("\n").split(None, 5)
            if len(fields) == 6 and fields[5].startswith("/"):
                yield fields[5]


def _of_macos() -> Iterator[str]:
    loader = ctypes.CDLL(None)
    loader._dyld_get_image_name.restype = ctypes.c_char_p
    for index in range(loader._dyld_image_count()):
        name = loader._dyld_get_image_name(index)
        if name:
            yield os.fsdecode(name)


def _of_windows() -> Iterator[str]:
    # Not the shared ctypes.windll: others may set the functions' types there.
    kernel = ctypes.CDLL("kernel32")
    process = ctypes.c_void_p(-1)  # what GetCurrentProcess gives
    needed = ctypes.c_uint32()
    modules = (ctypes.c_void_p * 4096)()
    if not kernel.K32EnumProcessModules(
        process, modules, ctypes.c_uint32(ctypes.sizeof(modules)), ctypes.byref(needed)
    ):
        return
    text = ctypes.create_unicode_buffer(32768)
    for handle in modules[: min(needed.value // ctypes.sizeof(ctypes.c_void_p), len(modules))]:
        if kernel.GetModuleFileNameW(ctypes.c_void_p(handle), text, len(text)):
            yield text.value
