"""Reads an HDF5 file by its references, and compares every element with what h5py reads.

    python read_refs.py FILE REFS.json [xarray | decoded]

With xarray, also groups by xarray, decoded in parallel by Dask; with decoded, the file's datasets
by xarray, compared with what it makes of the elements and attributes that h5py reads. Prints how
many arrays there were. The references may lead to another place than FILE, such as a server.
"""

import json
import sys
import warnings

import fsspec
import h5py
import hdf5_gpufetch  # noqa: F401  # registers the filter with h5py
import numpy as np
import zarr

try:
    from imagecodecs import numcodecs as imagecodecs

    imagecodecs.register_codecs()
except ImportError:
    imagecodecs = None

BITSHUFFLE = "bitshuffle"


def store_of(references, group=""):
    """A store of a group: as one of the file, fsspec lists nothing of a group below."""
    urls = [value[0] for value in references["refs"].values() if isinstance(value, list)]
    protocol = urls[0].partition("://")[0] if "://" in urls[0] else "file"
    system = fsspec.filesystem(
        "reference",
        fo=references,
        remote_protocol=protocol,
        remote_options={"asynchronous": True},
        asynchronous=True,
    )
    return zarr.storage.FsspecStore(system, read_only=True, path=group)


def expected_of(file, name):
    """What h5py reads; an array beside it, which is equal, of what h5py has no filter for here."""
    group, _, last = name.rpartition("/")
    dataset = file[f"{group}/contiguous" if last == BITSHUFFLE else name]
    values = dataset[()]
    text = h5py.check_string_dtype(dataset.dtype)
    if text is not None and dataset.dtype.kind == "O":
        return np.vectorize(bytes.decode, otypes=[object])(values)
    return np.asarray(values)


def native(values):
    return values.astype(values.dtype.newbyteorder("="))


def compare(name, found, expected):
    found = np.asarray(found)
    if expected.dtype.kind == "O":
        assert np.array_equal(found.astype(object), expected), name
        return
    assert found.shape == expected.shape, (name, found.shape, expected.shape)
    assert found.dtype.itemsize == expected.dtype.itemsize, (name, found.dtype, expected.dtype)
    assert native(found).tobytes() == native(expected).tobytes(), name


def compare_all(file, references):
    root = zarr.open_group(store_of(references), mode="r", zarr_format=2)
    names = [key.removesuffix("/.zarray") for key in references["refs"] if key.endswith("/.zarray")]
    if imagecodecs is None:
        names = [name for name in names if not name.endswith(BITSHUFFLE)]
    for name in names:
        compare(name, root[name][...], expected_of(file, name))
    assert dict(root.attrs) == dict(file.attrs)
    return len(names)


def compare_xarray(file, references):
    import xarray

    def group_of(name):
        return xarray.open_zarr(
            store_of(references, name), consolidated=False, zarr_format=2, chunks={}
        )

    grid = group_of("grid")
    u = file["grid/u"][...]
    u[u == -999] = np.nan
    assert grid.u.dims == ("y", "x") and set(grid.coords) == {"x", "y"}
    assert grid.u.attrs == {"units": "m/s", "valid_range": [-50, 50]}
    assert grid.u.data.chunksize == (16, 24)  # of Dask, which decodes several at once
    compare("u", grid.u.compute(scheduler="threads").values, u)
    assert grid.zeros.dtype == "i4" and grid.zeros.ndim == 2
    compare("zeros", grid.zeros.values, file["grid/zeros"][...])
    assert float(grid.u.sel(y=7, x=11)) == u[7, 11]
    # A group with one array that cannot be decoded here does not open at all.
    bits = group_of("bits/>i2" if imagecodecs is None else "bits/f8")
    for name in bits.data_vars:
        compare(name, bits[name].values, bits["contiguous"].values)
    unwritten = group_of("unwritten")
    for name in ("gzip 0", "gzip 2.5"):
        compare(name, unwritten[name].values, file[f"unwritten/{name}"][...])


def compare_decoded(file, references):
    import xarray

    found = xarray.open_zarr(store_of(references), consolidated=False, zarr_format=2, chunks=None)
    for name, dataset in file.items():
        variable = found[name].dims, dataset[()], dict(dataset.attrs)
        expected = xarray.decode_cf(xarray.Dataset({name: variable}))
        compare(name, found[name].values, expected[name].values)


def main():
    warnings.simplefilter("ignore")
    path, references, *options = sys.argv[1:]
    with open(references) as text:
        references = json.load(text)
    with h5py.File(path) as file:
        count = compare_all(file, references)
        if options == ["xarray"]:
            compare_xarray(file, references)
        if options == ["decoded"]:
            compare_decoded(file, references)
    print(count)


if __name__ == "__main__":
    main()
