"""Uses an installed package as a new user would, and fails at the first thing that is wrong.

    python use_package.py gpufetch|hdf5_gpufetch FILE LIST

Every dataset of FILE is read by h5py after the import; LIST has a line for each: SHA-256 of the
bytes, and name. With gpufetch, values also go to the host backend and back, and into a file, a
server runs, and an error says that there is no GPU.
"""

from __future__ import annotations

import hashlib
import importlib
import sys

import numpy as np


def read_all(file_name: str, list_name: str) -> int:
    import h5py

    with open(list_name) as lines, h5py.File(file_name) as file:
        expected = [line.rstrip("\n").split(" ", 1) for line in lines]
        for digest, name in expected:
            found = hashlib.sha256(np.ascontiguousarray(file[name][...])).hexdigest()
            assert found == digest, f"{name}: {found}, and not {digest}"
    assert len(expected) > 50, f"{list_name} has {len(expected)} lines"
    return len(expected)


def says_that_there_is_no_gpu(gf) -> str:
    cuda = gf.info()["backends"]["cuda"]
    assert not cuda["available"] and cuda["devices"] == [], cuda
    try:
        gf.to_device(np.zeros(3), device="cuda:0")
    except gf.Error as error:
        return str(error)
    raise AssertionError("cuda:0 was taken without a GPU")


def goes_to_a_device_and_a_file(gf) -> None:
    values = np.random.default_rng(1).normal(size=(64, 64, 64)).astype(np.float32)
    x = gf.to_device(values, device="host:0")
    assert gf.fetch(x).tobytes() == values.tobytes()
    assert gf.stats(x).max == values.max()
    gf.hdf5.write("run.h5", "x", x, overwrite=True)
    assert gf.hdf5.read("run.h5", "x", device="cpu").tobytes() == values.tobytes()


def main() -> None:
    name, file_name, list_name = sys.argv[1:]
    package = importlib.import_module(name)
    print(f"{name} {package.__version__}: {read_all(file_name, list_name)} datasets read")
    if name == "gpufetch":
        goes_to_a_device_and_a_file(package)
        serves(package)
        print(f"without a GPU: {says_that_there_is_no_gpu(package)}")


def serves(gf) -> None:
    """The libraries within start a server and answer, where nothing of Jupyter is installed."""
    server = gf.serve("use_package")
    try:
        server.publish("x", gf.to_device(np.arange(10), device="host:0"))
    finally:
        server.stop()


if __name__ == "__main__":
    main()
