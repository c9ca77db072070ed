"""h5py's lock, for what this package has of gpufetch."""

from __future__ import annotations

from h5py import _objects

__all__ = ["phil"]

phil = _objects.phil
"""h5py's lock. Whoever calls HDF5 holds it."""
