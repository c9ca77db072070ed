"""gpufetch in an IPython kernel: the `%gpufetch` magic and the comm target `gpufetch`.

`%load_ext gpufetch` (or `%load_ext gpufetch.jupyter`) loads both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpufetch.jupyter import comm, magic

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load_ipython_extension", "unload_ipython_extension"]


def __dir__() -> list[str]:
    """Names that completion shows: the public ones."""
    return __all__


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add `%gpufetch` to the shell and, in a kernel, register the comm target."""
    magic.load(shell)
    comm.load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Remove both again; LazyArrays that were made before stay usable."""
    comm.unload(shell)
    magic.unload(shell)
