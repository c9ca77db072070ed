"""Reads every dataset of a file with one program of Python, and says what came of each.

    python read_with.py READER FILE EXPECTED.npz

Prints a JSON object, name of the dataset: "bits" (the same bytes and type), "values" (the same
numbers in another type), "other" (other numbers), "crash" (the process died), or the error's first
line. Runs without gpufetch and without hdf5_gpufetch: the plugin is found by HDF5_PLUGIN_PATH.
"""

import io
import json
import os
import sys

import numpy as np


def h5py(path):
    import h5py

    file = h5py.File(path)
    return lambda name: file[name][...], file


def netcdf4(path):
    import netCDF4

    file = netCDF4.Dataset(path, auto_complex=True)
    file.set_auto_mask(False)
    return lambda name: file[name][...], file


def xarray_of(engine):
    def open_file(path):
        import xarray

        options = {"phony_dims": "access"} if engine == "h5netcdf" else {}
        groups = {}

        def read(name):
            group, _, variable = name.rpartition("/")
            if group not in groups:
                groups[group] = xarray.open_dataset(
                    path, engine=engine, group=group or None, decode_cf=False, **options
                )
            return groups[group][variable].values

        return read, groups

    return open_file


def pytables(path):
    import tables

    file = tables.open_file(path)
    return lambda name: file.get_node(f"/{name}").read(), file


def dask(path):
    import dask.array
    import h5py

    file = h5py.File(path)
    return lambda name: dask.array.from_array(file[name], chunks="auto").compute(), file


def h5grove(path):
    """What jupyterlab-h5web's server sends: .npy of numbers, JSON of everything else."""
    import h5grove
    import h5py

    file = h5py.File(path)

    def read(name):
        data = h5grove.create_content(file, name).data()
        if data.dtype.kind in "biufc":
            return np.load(io.BytesIO(body_of(h5grove.encode(data, "npy"))))
        lists = json.loads(body_of(h5grove.encode(data, "json")))
        if data.dtype.names is None:
            return np.array(lists, data.dtype)
        rows = np.array(lists, object).reshape(-1, len(data.dtype.names))
        return np.array(list(map(tuple, rows)), data.dtype).reshape(data.shape)

    def body_of(response):
        content = response.content
        return content if isinstance(content, bytes) else b"".join(content)

    return read, file


READERS = {
    "h5py": h5py,
    "netcdf4": netcdf4,
    "xarray-netcdf4": xarray_of("netcdf4"),
    "xarray-h5netcdf": xarray_of("h5netcdf"),
    "pytables": pytables,
    "dask": dask,
    "h5grove": h5grove,
}


def outcome(found, expected):
    found = np.asarray(found)
    found = found.astype(found.dtype.newbyteorder("="), copy=False)
    if found.shape != expected.shape:
        return f"shape {found.shape}"
    if found.dtype == expected.dtype and found.tobytes() == expected.tobytes():
        return "bits"
    return "values" if has_values(found, expected) else "other"


def has_values(found, expected):
    """Whether elements of another type stand for the same values."""
    if expected.dtype.kind == "c" and found.dtype.names:  # a compound of two floats
        return found.view(expected.dtype).tobytes() == expected.tobytes()
    if expected.dtype.names:
        same_names = found.dtype.names == expected.dtype.names
        return same_names and all((found[n] == expected[n]).all() for n in expected.dtype.names)
    if expected.dtype.kind == "S":
        return (found.astype("U") == expected.astype("U")).all()
    with np.errstate(all="ignore"):
        return np.array_equal(found.astype("f8"), expected.astype("f8"), equal_nan=True)


def read_all(reader, path, expected, names, out):
    read, _ = READERS[reader](path)
    for name in names:
        print(json.dumps([name, "crash"]), file=out, flush=True)
        try:
            said = outcome(read(name), expected[name])
        except Exception as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
        print(json.dumps([name, said]), file=out, flush=True)


def main():
    """A child reads, and another one goes on behind the dataset at which it died."""
    reader, path, values = sys.argv[1:]
    expected = dict(np.load(values))
    left, found = list(expected), {}
    while left:
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(readable)
            with os.fdopen(writable, "w") as out:
                read_all(reader, path, expected, left, out)
            os._exit(0)
        os.close(writable)
        with os.fdopen(readable) as lines:
            found.update(map(json.loads, lines))
        os.waitpid(child, 0)
        done = [name for name in left if name in found]
        assert done, "the reader died before it read anything"
        left = [name for name in left if name not in found]
    assert "gpufetch" not in sys.modules and "hdf5_gpufetch" not in sys.modules
    print(json.dumps(found))


if __name__ == "__main__":
    main()
