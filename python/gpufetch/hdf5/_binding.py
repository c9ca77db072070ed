"""The libhdf5 that h5py has loaded: gpufetch calls it, and registers its filter with it."""

from __future__ import annotations

import atexit
import threading
import warnings

import h5py
from h5py import _objects

from gpufetch import _core

__all__ = ["binding_error", "phil", "register", "require_binding"]

phil = _objects.phil
"""h5py's lock. Whoever calls HDF5 holds it."""


def _keep_other_threads_out() -> None:
    """Take h5py's lock for good, where daemon threads run on while the interpreter ends.

    Python ends them where they next want the GIL. One that had the lock then would hold up the main
    thread for ever, because h5py takes the lock to close what is still open.
    """
    if threading.active_count() > 1:
        phil.acquire()


atexit.register(_keep_other_threads_out)

_error: Exception | None = None


def register() -> None:
    """Bind to h5py's libhdf5 and register the filter with it, so that h5py reads our chunks.

    ``import gpufetch`` calls this once. Where h5py's libhdf5 cannot be bound this warns, and the
    functions of gpufetch.hdf5 raise the reason.
    """
    global _error
    try:
        with phil:
            _core.h5_bind(h5py.defs.__file__)
    except (RuntimeError, TypeError) as error:
        _error = error
        warnings.warn(f"gpufetch.hdf5 is off: {error}", RuntimeWarning, stacklevel=2)
    else:
        _error = None


def binding_error() -> Exception | None:
    """Why h5py's libhdf5 could not be bound; None if it was."""
    return _error


def require_binding() -> None:
    """Raise RuntimeError with the reason if h5py's libhdf5 could not be bound."""
    if _error is not None:
        raise RuntimeError(f"gpufetch.hdf5 is off: {_error}") from _error
