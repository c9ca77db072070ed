"""gpufetch.hdf5 on tensors that fit: what is written comes back bit for bit."""

from __future__ import annotations

import ctypes
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
from arrays import pool_used_nbytes
from hypothesis import given, settings
from hypothesis import strategies as st
from sanitizing import fewer

import gpufetch as gf

NUMPY_DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip
IEEE_SMALL = ["bfloat16", "float8_e3m4", "float8_e4m3", "float8_e5m2"]
NAMED_BYTES = [
    "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
]  # fmt: skip


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def make(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int = 0) -> np.ndarray[Any, Any]:
    """Random bit patterns (0 and 1 for bool), NaNs and all."""
    rng = np.random.default_rng(seed)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    count = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(rng.bytes(count), dtype).reshape(shape).copy()


def same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("codec", ["gpufetch", None])
@pytest.mark.parametrize("name", NUMPY_DTYPES + IEEE_SMALL + NAMED_BYTES)
def test_every_dtype_comes_back_from_the_device(tmp_path: Path, name: str, codec: Any) -> None:
    x = make((41, 30), dtype_of(name))
    gf.hdf5.write(tmp_path / "x.h5", "x", gf.to_device(x), chunks=(16, 30), codec=codec)
    read = gf.hdf5.read(tmp_path / "x.h5", "x")
    assert isinstance(read, gf.DeviceArray)
    assert same_bits(gf.fetch(read), x)
    assert same_bits(gf.hdf5.read(tmp_path / "x.h5", "x", device="cpu"), x)


@pytest.mark.parametrize("name", NUMPY_DTYPES)
def test_h5py_reads_the_same_bits_and_dtype(tmp_path: Path, name: str) -> None:
    x = make((41, 30), dtype_of(name))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = gf.hdf5.write(file, "a/b/x", gf.to_device(x), chunks=(16, 7))
        assert dataset is not None and dataset.name == "/a/b/x"
        assert dataset.chunks == (16, 7)
        assert same_bits(dataset[:], x)


@pytest.mark.parametrize("name", IEEE_SMALL)
def test_h5py_reads_small_floats_as_numbers(tmp_path: Path, name: str) -> None:
    x = (
        np.arange(1 << (8 * dtype_of(name).itemsize))
        .astype("u1" if dtype_of(name).itemsize == 1 else "u2")
        .view(dtype_of(name))
    )
    gf.hdf5.write(tmp_path / "x.h5", "x", x)
    with h5py.File(tmp_path / "x.h5") as file:
        values = file["x"][:]
        assert values.dtype == (np.float32 if name == "bfloat16" else np.float16)
        np.testing.assert_array_equal(values, x.astype(values.dtype))


@pytest.mark.parametrize("name", NAMED_BYTES)
def test_h5py_reads_other_small_floats_as_named_bytes(tmp_path: Path, name: str) -> None:
    x = make((300,), dtype_of(name))
    gf.hdf5.write(tmp_path / "x.h5", "x", x)
    with h5py.File(tmp_path / "x.h5") as file:
        values = file["x"][:]
    assert values.dtype.names == (name,)
    assert same_bits(values.view(dtype_of(name)), x)


@settings(max_examples=fewer(40), deadline=None)
@given(
    data=st.data(),
    name=st.sampled_from(["bool", "uint8", "int16", "float32", "complex128"]),
    shape=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    on_device=st.booleans(),
)
def test_any_shape_and_chunk_shape_round_trips(
    data: st.DataObject, name: str, shape: list[int], on_device: bool
) -> None:
    x = make(tuple(shape), dtype_of(name))
    chunks = tuple(data.draw(st.integers(1, n)) for n in shape)
    with h5py.File(io.BytesIO(), "w") as file:
        source: Any = gf.to_device(x) if on_device else x
        dataset = gf.hdf5.write(file, "x", source, chunks=chunks)
        assert dataset is not None
        assert same_bits(dataset[:], x)
        assert same_bits(gf.hdf5.read(dataset, device="cpu"), x)


@pytest.mark.parametrize("index", [np.s_[::-1, 2::3], np.s_[5, ..., ::-2], np.s_[:, 3]])
def test_strided_views_are_written_as_they_look(tmp_path: Path, index: Any) -> None:
    x = make((23, 31, 12), np.dtype("f8"))
    gf.hdf5.write(tmp_path / "x.h5", "device", gf.to_device(x)[index])
    gf.hdf5.write(tmp_path / "x.h5", "host", x[index])
    for name in ("device", "host"):
        read = gf.hdf5.read(tmp_path / "x.h5", name, device="cpu")
        assert same_bits(read, np.ascontiguousarray(x[index]))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 5)])
def test_scalars_and_empty_arrays_keep_their_shape(tmp_path: Path, shape: tuple[int, ...]) -> None:
    x = make(shape, np.dtype("f4"))
    gf.hdf5.write(tmp_path / "x.h5", "x", gf.to_device(x))
    with h5py.File(tmp_path / "x.h5") as file:
        assert same_bits(np.asarray(file["x"][()]), x)
        assert same_bits(gf.fetch(gf.hdf5.read(file["x"])), x)


def test_default_chunks_hold_about_a_mebibyte_in_long_rows() -> None:
    for shape in [(1 << 20,), (3000, 3000), (200, 300, 400), (40, 3, 50, 60, 70), (1, 7)]:
        x = np.zeros(shape, "f4")
        with h5py.File(io.BytesIO(), "w") as file:
            dataset = gf.hdf5.write(file, "x", x)
            assert dataset is not None
            chunks = dataset.chunks
        assert chunks is not None
        nbytes = 4 * int(np.prod(chunks))
        assert nbytes <= 1 << 20
        assert nbytes >= min(x.nbytes, 1 << 18)
        assert all(1 <= c <= n for c, n in zip(chunks, shape, strict=True))
        assert chunks[-1] == max(min(c, shape[-1]) for c in chunks)


def test_out_of_any_layout_is_filled_and_returned(tmp_path: Path) -> None:
    x = make((60, 50), np.dtype("i4"))
    gf.hdf5.write(tmp_path / "x.h5", "x", x, chunks=(16, 16))
    out = np.zeros((50, 120), "i4")
    assert gf.hdf5.read(tmp_path / "x.h5", "x", out=out.T[::2]) is not None
    assert (out.T[::2] == x).all() and not out.T[1::2].any()
    on_device = gf.to_device(np.zeros((120, 50), "i4"))
    gf.hdf5.read(tmp_path / "x.h5", "x", out=on_device[::-2])
    filled = gf.fetch(on_device)
    assert (filled[::-2] == x).all() and not filled[::2].any()


def test_attributes_are_set(tmp_path: Path) -> None:
    gf.hdf5.write(tmp_path / "x.h5", "x", np.arange(5), attrs={"unit": "m", "step": 3})
    with h5py.File(tmp_path / "x.h5") as file:
        assert dict(file["x"].attrs) == {"unit": "m", "step": 3}


def test_h5py_writes_through_the_filter(tmp_path: Path) -> None:
    x = np.cumsum(make((90, 70), np.dtype("i2")), axis=0, dtype="i2")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", data=x, chunks=(32, 32), **gf.hdf5.filter_options())
        assert dataset.id.get_create_plist().get_filter(0)[0] == gf.hdf5.FILTER_ID
        flags = file.create_dataset("flags", data=x > 0, **gf.hdf5.filter_options())
        assert same_bits(gf.hdf5.read(flags, device="cpu"), x > 0)
    assert same_bits(gf.hdf5.read(tmp_path / "x.h5", "x", device="cpu"), x)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "gzip", "shuffle": True, "chunks": (16, 16)},
        {"chunks": (7, 9)},
        {"maxshape": (None, None)},
        {"compression": gf.hdf5.FILTER_ID, "shuffle": True, "chunks": (16, 16)},
        {"fletcher32": True, "chunks": (16, 16)},
    ],
)
@pytest.mark.parametrize("dtype", ["<f4", ">f4", ">c16", "<i8", ">u2"])
def test_what_h5py_wrote_is_read(tmp_path: Path, options: dict[str, Any], dtype: str) -> None:
    x = np.arange(60 * 50).reshape(60, 50).astype(dtype)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=x, **options)
    read = gf.fetch(gf.hdf5.read(tmp_path / "x.h5", "x"))
    assert read.dtype == x.dtype.newbyteorder("=")
    assert (read == x).all()


def test_chunks_never_written_read_as_the_fill_value(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset(
            "x", (64, 64), "f4", chunks=(32, 32), fillvalue=7, **gf.hdf5.filter_options()
        )
        dataset[40:50, 3] = 1
        expected = dataset[:]
        assert same_bits(gf.hdf5.read(dataset, device="cpu"), expected)


def test_virtual_and_external_datasets_are_read(tmp_path: Path) -> None:
    x = make((20, 30), np.dtype("f8"))
    gf.hdf5.write(tmp_path / "half.h5", "x", x)
    layout = h5py.VirtualLayout((40, 30), "f8")
    layout[:20] = layout[20:] = h5py.VirtualSource(tmp_path / "half.h5", "x", (20, 30))
    with h5py.File(tmp_path / "all.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
        file.create_dataset(
            "outside", data=x, external=[(str(tmp_path / "raw.bin"), 0, h5py.h5f.UNLIMITED)]
        )
    read = gf.hdf5.read(tmp_path / "all.h5", "x", device="cpu")
    assert same_bits(read, np.concatenate([x, x]))
    assert same_bits(gf.hdf5.read(tmp_path / "all.h5", "outside", device="cpu"), x)


def loaded_libhdf5() -> ctypes.CDLL:
    return ctypes.CDLL(h5py.h5d.__file__)


def test_native_complex_of_hdf5_2_is_read(tmp_path: Path) -> None:
    lib = loaded_libhdf5()
    if not hasattr(lib, "H5Tcomplex_create"):
        pytest.skip("h5py's libhdf5 is older than 2.0")
    x = make((50, 40), np.dtype("c8"))
    hid = ctypes.c_int64
    lib.H5Tcomplex_create.restype = lib.H5Dcreate2.restype = hid
    lib.H5Tcomplex_create.argtypes = [hid]
    lib.H5Dcreate2.argtypes = [hid, ctypes.c_char_p, hid, hid, hid, hid, hid]
    lib.H5Dwrite.argtypes = [hid, hid, hid, hid, hid, ctypes.c_void_p]
    with h5py.File(tmp_path / "x.h5", "w") as file, h5py._objects.phil:
        space = h5py.h5s.create_simple(x.shape)
        for name, base, chunks in [
            (b"chunked", h5py.h5t.IEEE_F32LE, (16, 16)),
            (b"flat", h5py.h5t.IEEE_F32LE, None),
            (b"big", h5py.h5t.IEEE_F32BE, (16, 16)),
        ]:
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            if chunks:
                plist.set_chunk(chunks)
                plist.set_filter(gf.hdf5.FILTER_ID)
            stored = lib.H5Tcomplex_create(base.id)
            native = lib.H5Tcomplex_create(h5py.h5t.IEEE_F32LE.id)
            dataset = lib.H5Dcreate2(file.id.id, name, stored, space.id, 0, plist.id, 0)
            assert lib.H5Dwrite(dataset, native, 0, 0, 0, x.ctypes.data) >= 0
            for identifier in (dataset, native, stored):
                lib.H5Idec_ref(hid(identifier))
    for name in ("chunked", "flat", "big"):
        assert same_bits(gf.hdf5.read(tmp_path / "x.h5", name, device="cpu"), x)


def test_threads_write_and_read_beside_h5py(tmp_path: Path) -> None:
    def work(seed: int) -> None:
        x = make((200, 300), np.dtype("f4"), seed)
        with h5py.File(tmp_path / f"{seed}.h5", "w") as file:
            for turn in range(4):
                dataset = gf.hdf5.write(file, f"x{turn}", gf.to_device(x), chunks=(20, 300))
                assert dataset is not None
                assert same_bits(dataset[:], x)
                file.create_dataset(f"h5py{turn}", data=x, **gf.hdf5.filter_options())
                assert same_bits(gf.hdf5.read(file, f"h5py{turn}", device="cpu"), x)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [None] * 4


def test_holding_h5pys_lock_does_not_block(tmp_path: Path) -> None:
    x = make((100, 100), np.dtype("f4"))
    with h5py._objects.phil, h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = gf.hdf5.write(file, "x", gf.to_device(x), chunks=(10, 100))
        assert same_bits(gf.hdf5.read(dataset, device="cpu"), x)


def test_writing_leaves_nothing_pinned_or_open(tmp_path: Path) -> None:
    x = gf.to_device(make((500, 700), np.dtype("f4")))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        gf.hdf5.write(file, "first", x, chunks=(50, 700))
        used = pool_used_nbytes()
        for turn in range(3):
            gf.hdf5.write(file, f"x{turn}", x, chunks=(50, 700))
            gf.hdf5.read(file, f"x{turn}")
        assert gf.pool.stats()["used_nbytes"] == used
        assert h5py.h5f.get_obj_count(file.id, h5py.h5f.OBJ_DATASET) == 0
