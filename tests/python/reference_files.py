"""A file with everything that references by kerchunk's rules can express, and what they cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

import gpufetch as gf

__all__ = ["INEXPRESSIBLE", "write_expressible", "write_inexpressible"]

DTYPES = ("?", ">i2", "<u4", "f8", ">c16")
FORMS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "plain": {"chunks": (16, 50)},
    "gzip": {"chunks": (16, 24), "compression": "gzip"},
    "shuffle gzip": {"chunks": (16, 24), "compression": "gzip", "shuffle": True},
    "all": {"chunks": (13, 7), "compression": "gzip", "shuffle": True, "fletcher32": True},
    "fletcher32": {"chunks": (13, 7), "fletcher32": True},
    "shuffle": {"chunks": (13, 7), "shuffle": True},
    "gpufetch": {"chunks": (16, 24), **gf.hdf5.filter_options()},
    "gpufetch fletcher32": {"chunks": (13, 7), "fletcher32": True, **gf.hdf5.filter_options()},
    "lzf": {"chunks": (16, 24), "compression": "lzf"},  # decoded by h5py, and held
}
# Of arrays that were not written, or partly.
FILLS: list[tuple[Any, Any]] = [
    ("?", True),
    (">i4", -7),
    ("u8", 2**63 + 5),
    ("f2", np.nan),
    (">f8", -0.0),
    ("f4", np.inf),
    (">c16", complex(np.nan, 1)),
    ("S3", b"ab"),
    ([("a", "<i2"), ("b", ">f4")], (3, 2.5)),
    ("V4", np.void(b"abcd")),
]


def write_expressible(path: Path) -> None:
    """Everything; in the groups `bits`, arrays that are equal in each."""
    field = np.cumsum(np.random.default_rng(0).standard_normal((60, 50)), 0)
    with h5py.File(path, "w") as file:
        for dtype in DTYPES:
            values = field > 0 if dtype == "?" else (field * 7).astype(dtype)
            for form, options in FORMS.items():
                file.create_dataset(f"bits/{dtype}/{form}", data=values, **options)
        _write_types(file.create_group("types"))
        _write_unwritten(file.create_group("unwritten"))
        _write_grid(file.create_group("grid"), field)
        noise = np.random.default_rng(1).integers(0, 256, (60, 50), "u1")
        # deflate makes noise longer, so that HDF5 stores it past the filter
        file.create_dataset("noise", data=noise, chunks=(16, 50), compression="gzip")
        file.create_dataset("large", data=np.arange(9 << 20, dtype="f4").reshape(9, -1))
        file["soft"], file["hard"] = h5py.SoftLink("/noise"), file["types/compound"]
        file.attrs["title"] = "everything"
    for dtype in ("<u4", "f8"):
        values = (field * 7).astype(dtype)
        with h5py.File(path, "r+") as file:
            name = f"bits/{dtype}/bitshuffle"
            gf.hdf5.write(file, name, values, chunks=(16, 24), codec="bitshuffle-lz4")


def _write_types(group: h5py.Group) -> None:
    options = gf.hdf5.filter_options()
    group["number"], group["text"], group["texts"] = 1.5, "hä", ["a", "bb", ""]
    group["fixed"] = np.array([b"ab", b"cde"])
    group["opaque"] = np.array([b"ab\0d", b"efgh"], "V4")
    compounds = np.array([(1, 2.5), (3, 4.5)] * 50, "i4,>f8")
    group.create_dataset("compound", data=compounds, chunks=(25,), **options)
    arrays = group.create_dataset("arrays", (30, 20), "(3,2)f4", chunks=(7, 6), **options)
    arrays[...] = np.arange(3600).reshape(30, 20, 3, 2)
    kind = h5py.enum_dtype({"a": 0, "b": 1, "c": 2}, "i2")
    group.create_dataset("enum", data=np.arange(30) % 3, dtype=kind, chunks=(7,), **options)
    group.create_dataset("converted", data=np.arange(100), chunks=(10,), scaleoffset=8)
    group.create_dataset("no rows", (0, 5), "f4", chunks=(3, 5), maxshape=(None, 5))


def _write_unwritten(group: h5py.Group) -> None:
    for name, options in {"gzip": {"compression": "gzip"}, "plain": {}}.items():
        for fill in (0, 2.5):
            sparse = group.create_dataset(
                f"{name} {fill}", (60, 50), "f4", chunks=(16, 50), fillvalue=fill, **options
            )
            sparse[:16] = 1
    for number, (dtype, fill) in enumerate(FILLS):
        value = np.array(fill, dtype)
        chunks = {"chunks": (10, 40), "compression": "gzip"}
        partly = group.create_dataset(f"é%20 {number}", (50, 40), dtype, fillvalue=value, **chunks)
        partly[:10] = np.zeros((10, 40), dtype)
        group.create_dataset(f"late {number}", (50, 40), dtype, fillvalue=value)
    large = group.create_dataset("large", (6000, 500), "f4", chunks=(60, 500), fillvalue=3)
    large[:60] = 1
    group.create_dataset("all", (6, 5), "f8", fillvalue=np.nan)


def _write_grid(group: h5py.Group, field: np.ndarray[Any, Any]) -> None:
    group["y"], group["x"] = np.arange(60.0), np.arange(50.0)
    u = group.create_dataset("u", data=field, chunks=(16, 24), **gf.hdf5.filter_options())
    for axis, name in enumerate(("y", "x")):
        group[name].make_scale()
        u.dims[axis].attach_scale(group[name])
    u[3, 4] = -999.0
    u.attrs.update({"units": "m/s", "_FillValue": -999.0, "valid_range": [-50, 50]})
    group["zeros"] = np.zeros((60, 50), "i4")  # no element of it is a missing one


INEXPRESSIBLE = {
    "/broken": "link",
    "/elsewhere": "link",
    "/null": "null dataspace",
    "/ragged": "Zarr has no dtype object",
    "/virtual": "write references of its sources",
    "/many": "too many to hold",
    "/.hidden": "dot",
    "/marked": "Reference",
    "/long": "float128",
}


def write_inexpressible(path: Path) -> None:
    """What references cannot express, beside `x`, which they can."""
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(5)
        file["broken"] = h5py.SoftLink("/nowhere")
        file["elsewhere"] = h5py.ExternalLink("a.h5", "/x")
        file["null"] = h5py.Empty("f4")
        file.create_dataset("ragged", (3,), h5py.vlen_dtype("i4"))
        layout = h5py.VirtualLayout((5,), "i8")
        layout[:] = h5py.VirtualSource(file["x"])
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("many", data=np.arange(30000), chunks=(999,), compression="lzf")
        file[".hidden"] = 1
        file["marked"] = 1
        file["marked"].attrs["of"] = file["x"].ref
        file["long"] = np.arange(3, dtype="g")
