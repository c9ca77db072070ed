"""Writes and reads filtered datasets with plain h5py, netCDF4 or xarray, without gpufetch.

Each environment of tests/hdf5 runs this file with HDF5_PLUGIN_PATH set, so it needs no more than
h5py and NumPy, old ones too. Values are computed, so that every reader knows them.

    python exchange.py COMMAND FILE...
"""

import ctypes
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
from filter_id import FILTER_ID

SHAPE = (60, 50, 40)
CHUNKS = (16, 50, 32)  # chunks hang over the edge
NAME_IN_FILES = b"gpufetch; pip install hdf5-gpufetch"
DTYPES = ("<f4", ">f4", "<f8", "<f2", "<i2", ">i8", "|u1", "<c8", "|b1")
GRID = (24, 30)  # of the netCDF files


def field(dtype, seed=0):
    """Smooth values that the filter makes smaller, in any dtype."""
    z, y, x = np.ogrid[: SHAPE[0], : SHAPE[1], : SHAPE[2]]
    values = (3 * z + 2 * y * y // 7 + x + seed) % 120
    return (values % 3 == 0) if dtype == "|b1" else values.astype(dtype)


def name_of(dtype):
    return dtype.replace("<", "le_").replace(">", "be_").replace("|", "")


NAMES = {**{name_of(dtype): dtype for dtype in DTYPES}, "checked": "<f4"}


def same(a, b):
    return (
        a.shape == b.shape and a.tobytes() == b.astype(a.dtype).tobytes() and bool((a == b).all())
    )


def loaded(name):
    """Paths of the shared objects of that name, as wheels hold them, in this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[-1] for line in lines if f"/{name}-" in line}


# --- h5py ------------------------------------------------------------------------------------


def write(path, seed=0):
    with h5py.File(path, "w") as file:
        for dtype in DTYPES:
            options = {"chunks": CHUNKS, "compression": FILTER_ID}
            file.create_dataset(name_of(dtype), data=field(dtype, seed), **options)
        file.create_dataset("checked", data=field("<f4", seed), fletcher32=True, **options)
        for dataset in file.values():
            filter_id, _, cd_values, name = dataset.id.get_create_plist().get_filter(0)
            assert (filter_id, name) == (FILTER_ID, NAME_IN_FILES) and len(cd_values) == 7, name
            assert dataset.id.get_storage_size() < dataset.nbytes / 1.5, dataset


def read(*paths, seed=0):
    for path in paths:
        with h5py.File(path, "r") as file:
            assert len(file) > 0, path
            for name, dataset in file.items():
                dtype = NAMES[name]
                assert same(dataset[...], field(dtype, seed)), (path, name)
                assert same(dataset[5, ::3, 7:], field(dtype, seed)[5, ::3, 7:]), (path, name)


def threads(path):
    """Eight threads at once, each with a file of its own."""

    def work(seed):
        for _ in range(2):
            write(f"{path}.{seed}", seed)
            read(f"{path}.{seed}", seed=seed)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [None] * 8


def damage(path):
    """Print how h5py complains about a chunk with one bit changed."""
    write(path)
    with h5py.File(path, "r+") as file:
        mask, chunk = file["le_f4"].id.read_direct_chunk((0, 0, 0))
        chunk = bytearray(chunk)
        chunk[len(chunk) // 2] ^= 1
        file["le_f4"].id.write_direct_chunk((0, 0, 0), bytes(chunk), mask)
    with h5py.File(path, "r") as file:
        try:
            file["le_f4"][...]
        except OSError as error:
            print(error)
        assert same(file["le_f8"][...], field("<f8"))


def versions():
    import importlib.util

    print("h5py", h5py.version.hdf5_version)
    if importlib.util.find_spec("netCDF4"):
        import netCDF4

        print("netCDF4", netCDF4.__hdf5libversion__)


# --- hdf5plugin --------------------------------------------------------------------------------


def plugin_write(path):
    """Bitshuffle with LZ4 as hdf5plugin writes it, at its own block size and at others."""
    import hdf5plugin

    with h5py.File(path, "w") as file:
        for dtype in DTYPES:
            for block in (0, 64, 1024):
                options = hdf5plugin.Bitshuffle(nelems=block, cname="lz4")
                name = f"{name_of(dtype)}_{block}"
                file.create_dataset(name, data=field(dtype), chunks=(7, 50, 33), **options)
        noise = np.frombuffer(np.random.default_rng(1).bytes(100_001), "u1")
        file.create_dataset("noise", data=noise, chunks=(4099,), **hdf5plugin.Bitshuffle(nelems=8))
        file.create_dataset("zstd", data=noise, **hdf5plugin.Bitshuffle(cname="zstd"))


def plugin_read(path):
    """Read what gpufetch wrote with codec="bitshuffle-lz4", by hdf5plugin."""
    import hdf5plugin

    with h5py.File(path, "r") as file:
        assert len(file) == len(DTYPES)
        for name, dataset in file.items():
            filter_id, _, cd_values, _ = dataset.id.get_create_plist().get_filter(0)
            assert filter_id == hdf5plugin.BSHUF_ID and cd_values[2:5] == (
                dataset.dtype.itemsize,
                0,
                2,
            )
            assert same(dataset[...], field(NAMES[name])), name
            assert dataset.id.get_storage_size() < dataset.nbytes


# --- netCDF4 and xarray ----------------------------------------------------------------------


def grid():
    y, x = np.ogrid[: GRID[0], : GRID[1]]
    return (3 * y + x * x / 4).astype("f4")


def is_filtered(path):
    with h5py.File(path, "r") as file:
        plist = file["x"].id.get_create_plist()
        return plist.get_nfilters() > 0 and plist.get_filter(0)[0] == FILTER_ID


def netcdf_write(path):
    """Through netCDF's C library, whose filters the Python package does not name."""
    import netCDF4

    (library,) = loaded("libnetcdf")
    define_filter = ctypes.CDLL(library).nc_def_var_filter
    with netCDF4.Dataset(path, "w") as file:
        for name, length in zip("ij", GRID, strict=True):
            file.createDimension(name, length)
        x = file.createVariable("x", "f4", ("i", "j"), chunksizes=(10, 30), fill_value=False)
        parameters = (ctypes.c_uint * 1)(0)
        status = define_filter(file._grpid, x._varid, FILTER_ID, ctypes.c_size_t(1), parameters)
        assert status == 0, status
        x.units = "m"
        x[:] = grid()
    assert is_filtered(path)


def netcdf_read(*paths):
    import netCDF4

    for path in paths:
        with netCDF4.Dataset(path) as file:
            assert same(np.asarray(file["x"][:]), grid()), path
            assert same(np.asarray(file["x"][3:9, ::4]), grid()[3:9, ::4]), path


def xarray_write(path):
    import xarray

    data = xarray.Dataset({"x": (("i", "j"), grid(), {"units": "m"})})
    encoding = {"x": {"compression": FILTER_ID, "chunksizes": (10, 30)}}
    data.to_netcdf(path, engine="h5netcdf", encoding=encoding)
    assert is_filtered(path)


def xarray_read(*paths):
    import xarray

    for path in paths:
        for engine in ("h5netcdf", "netcdf4"):
            with xarray.open_dataset(path, engine=engine) as data:
                assert data["x"].attrs["units"] == "m"
                assert same(data["x"].values, grid()), (path, engine)


def two_libraries(path):
    """h5py's libhdf5 and netCDF4's in one process, each in turn and both at once."""
    import netCDF4  # noqa: F401

    assert len(loaded("libhdf5")) == 2, loaded("libhdf5")

    def work(write_one, read_one, name):
        for turn in range(3):
            write_one(f"{path}.{name}{turn}")
            read_one(f"{path}.{name}{turn}")

    work(write, read, "alone")
    work(netcdf_write, netcdf_read, "alone.nc")
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(work, write, read, "both"),
            pool.submit(work, netcdf_write, netcdf_read, "both.nc"),
        ]
    assert [each.result() for each in both] == [None, None]


if __name__ == "__main__":
    COMMANDS = (
        write, read, threads, damage, versions, plugin_write, plugin_read,
        netcdf_write, netcdf_read, xarray_write, xarray_read, two_libraries,
    )  # fmt: skip
    {command.__name__: command for command in COMMANDS}[sys.argv[1]](*sys.argv[2:])
    assert "gpufetch" not in sys.modules
