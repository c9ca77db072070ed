"""HDF5's filters: gpufetch's own, and the names of those that files are met with."""

from __future__ import annotations

from gpufetch import _core

__all__ = [
    "BITSHUFFLE_ID",
    "FILTER_ID",
    "FILTER_IDS",
    "Filter",
    "filter_name",
    "filter_options",
    "provider",
]

FILTER_IDS = _core.H5_FILTER_IDS
"""Identifiers of the gpufetch filter: datasets with any of them are read."""

FILTER_ID = FILTER_IDS[0]
"""The identifier that datasets are written with."""

BITSHUFFLE_ID = 32008
"""Identifier of bitshuffle, whose fifth value names the codec that follows it."""

Filter = tuple[int, int, tuple[int, ...], bytes]
"""What a dataset says of a filter: identifier, flags, values and name."""

_BITSHUFFLE_CODECS = {2: "bitshuffle-lz4", 3: "bitshuffle-zstd"}

# Names of filters, and the package that brings each: "" for HDF5 itself, None where there is no
# package but a plugin.
_KNOWN: dict[int, tuple[str, str | None]] = {
    1: ("deflate", ""),
    2: ("shuffle", ""),
    3: ("fletcher32", ""),
    4: ("szip", ""),
    5: ("nbit", ""),
    6: ("scaleoffset", ""),
    305: ("lzo", None),
    307: ("bzip2", "hdf5plugin"),
    32000: ("lzf", "h5py"),
    32001: ("blosc", "hdf5plugin"),
    32002: ("mafisc", None),
    32003: ("snappy", None),
    32004: ("lz4", "hdf5plugin"),
    BITSHUFFLE_ID: ("bitshuffle", "hdf5plugin"),
    32009: ("spdp", None),
    32010: ("lpc-rice", None),
    32011: ("ccsds-123", None),
    32012: ("jpeg-ls", None),
    32013: ("zfp", "hdf5plugin"),
    32014: ("fpzip", None),
    32015: ("zstd", "hdf5plugin"),
    32017: ("sz", "hdf5plugin"),
    32018: ("fcidecomp", "hdf5plugin"),
    32019: ("jpeg", None),
    32022: ("bitgroom", None),
    32023: ("granular-bitround", None),
    32024: ("sz3", "hdf5plugin"),
    32026: ("blosc2", "hdf5plugin"),
    32028: ("sperr", "hdf5plugin"),
} | {number: ("gpufetch", "gpufetch") for number in FILTER_IDS}


def filter_options() -> dict[str, int]:
    """Keyword arguments with which h5py itself writes chunks through the gpufetch filter.

    ``file.create_dataset("x", data=x, **gpufetch.hdf5.filter_options())``
    """
    return {"compression": FILTER_ID}


def filter_name(found: Filter) -> str:
    """Name a filter; by its identifier if it is not known and has no name in the file."""
    number, _, values, label = found
    if number == BITSHUFFLE_ID and len(values) > 4:
        return _BITSHUFFLE_CODECS.get(values[4], "bitshuffle")
    if number in _KNOWN:
        return _KNOWN[number][0]
    text = label.decode(errors="replace").split(";")[0].strip()
    return f"{text} ({number})" if text else str(number)


def provider(number: int) -> str:
    """What must be installed to read chunks of a filter; "" if HDF5 has it."""
    _, package = _KNOWN.get(number, ("", None))
    return f"the plugin of filter {number}" if package is None else package
