"""What type checkers see of gpufetch.hdf5; test_typing.py runs mypy on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import gpufetch as gf

path = Path("x.h5")
out: npt.NDArray[np.float32] = np.empty(3, np.float32)
name: str = "cuda:0"

assert_type(gf.hdf5.read(path, "x", device="cpu"), npt.NDArray[Any])
assert_type(gf.hdf5.read("x.h5", "x", selection=np.s_[3:, 0], device="cpu"), npt.NDArray[Any])
assert_type(gf.hdf5.read(path, "x"), gf.DeviceArray)
assert_type(gf.hdf5.read(path, "x", device="cuda:0"), gf.DeviceArray)
assert_type(gf.hdf5.read(path, "x", device="host:0", allow_gaps=True), gf.DeviceArray)
assert_type(gf.hdf5.read(path, "x", device=name), gf.DeviceArray | npt.NDArray[Any])
assert_type(gf.hdf5.read(path, "x", out=out), npt.NDArray[np.float32])
assert_type(gf.hdf5.read(path, "x", out=gf.to_device(out), selection=3), gf.DeviceArray)
assert_type(gf.hdf5.filter_options(), dict[str, int])
assert_type(gf.hdf5.plugin_path(), str)

tree: Any = gf.hdf5.read(path, "state")
print(tree["weights"])

gf.hdf5.write(path, "x", [1, 2, 3], codec="bitshuffle-lz4", overwrite=True, attrs={"unit": "m"})
gf.hdf5.repack(path, "y.h5", codec="none", allow_gaps=True)

gf.hdf5.read(path, "x", device="cpu", out=out)  # type: ignore[call-overload]
gf.hdf5.read(path, "x", device=3)  # type: ignore[call-overload]
gf.hdf5.read(path, "x", allow_gaps="yes")  # type: ignore[call-overload]
gf.hdf5.write(path, "x", out, codec="gzip")  # type: ignore[arg-type]
gf.hdf5.write(path, "x", out, overwrite="yes")  # type: ignore[arg-type]
gf.hdf5.repack(path, "y.h5", codec=None)  # type: ignore[arg-type]
