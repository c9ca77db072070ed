"""gpufetch.hdf5.read: everything that h5py reads, selections, and every route to the chunks."""

from __future__ import annotations

import io
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sanitizing import fewer

import gpufetch as gf

CODECS = ["gpufetch", "bitshuffle-lz4", None]


def field(shape: tuple[int, ...], dtype: str = "f4") -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(7)
    return (rng.normal(0, 3, shape).cumsum(axis=-1)).astype(dtype)


def read(source: Any, *arguments: Any, **options: Any) -> Any:
    return gf.hdf5.read(source, *arguments, device="cpu", **options)


# --- Selections -------------------------------------------------------------------------------

SELECTIONS: list[Any] = [
    ...,
    (),
    5,
    -1,
    np.s_[3:17],
    np.s_[:, 4],
    np.s_[..., 2],
    np.s_[2:2],
    np.s_[7, 20:31, 3],
    np.s_[7, 8, 9],
    np.s_[-9:-3, ..., 1:],
    np.s_[1000:],
    np.s_[::3],
    np.s_[::-1, 5:2:-1],
    np.s_[2:20:5, 30, ::-7],
    np.s_[[1, 8, 8, 30]],
    np.s_[:, np.array([-1, 0, 5]), 3:9],
    np.s_[[2, 3], [4, 40], 1],
    np.s_[[]],
    np.s_[np.arange(40) % 7 == 2],
]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("key", SELECTIONS, ids=repr)
def test_a_selection_is_what_numpy_indexes(tmp_path: Path, key: Any, codec: Any) -> None:
    x = field((40, 50, 12))
    gf.hdf5.write(tmp_path / "x.h5", "x", x, chunks=(16, 50, 5), codec=codec)
    selected = read(tmp_path / "x.h5", "x", selection=key)
    expected = x[key]
    assert selected.dtype == x.dtype and selected.shape == expected.shape
    assert selected.flags.c_contiguous and (selected == expected).all()
    on_device = gf.hdf5.read(tmp_path / "x.h5", "x", selection=key, device="host:0")
    assert isinstance(on_device, gf.DeviceArray) and (gf.fetch(on_device) == expected).all()
    out = np.zeros(expected.shape, "f4")
    assert read_into(tmp_path / "x.h5", key, out) is out and (out == expected).all()


def read_into(path: Path, key: Any, out: Any) -> Any:
    return gf.hdf5.read(path, "x", selection=key, out=out)


@settings(max_examples=fewer(60), deadline=None)
@given(data=st.data(), shape=st.lists(st.integers(1, 12), min_size=1, max_size=4))
def test_any_box_of_any_layout_is_read(data: st.DataObject, shape: list[int]) -> None:
    x = np.arange(np.prod(shape)).reshape(shape).astype(data.draw(st.sampled_from(["<f4", ">i8"])))
    options: dict[str, Any] = data.draw(
        st.sampled_from([{}, {"chunks": True}, {"compression": "gzip"}, gf.hdf5.filter_options()])
    )
    if options:
        options["chunks"] = tuple(data.draw(st.integers(1, n)) for n in shape)
    bounds = [sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in shape]
    key = tuple(slice(low, high) for low, high in bounds)
    with h5py.File(io.BytesIO(), "w") as file:
        dataset = file.create_dataset("x", data=x, **options)
        assert (read(dataset, selection=key) == x[key]).all()


def test_out_on_a_device_takes_a_box(tmp_path: Path) -> None:
    x = field((40, 50))
    gf.hdf5.write(tmp_path / "x.h5", "x", x, chunks=(16, 16))
    out = gf.to_device(np.zeros((50, 50), "f4"))
    read_into(tmp_path / "x.h5", np.s_[10:35], out[::2])
    assert (gf.fetch(out)[::2] == x[10:35]).all() and not gf.fetch(out)[1::2].any()
    read_into(tmp_path / "x.h5", np.s_[3], out[1])
    assert (gf.fetch(out)[1] == x[3]).all()


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (40, "index 40 is out of bounds for axis 0 with size 40"),
        (np.s_[0, -51], "index -51 is out of bounds for axis 1"),
        (np.s_[:, [3, 50]], "index 50 is out of bounds for axis 1"),
        (np.s_[1, 2, 3], "too many indices: the array has 2 axes, 3 were indexed"),
        (np.s_[..., 0, ...], "only one ellipsis"),
        (np.ones(39, bool), r"boolean mask of shape \(39,\) does not fit axis 0 of length 40"),
        ("x", "index 'x' of type str"),
    ],
)
def test_a_selection_that_does_not_fit_is_refused(tmp_path: Path, key: Any, message: str) -> None:
    gf.hdf5.write(tmp_path / "x.h5", "x", field((40, 50)))
    with pytest.raises(IndexError, match=message):
        gf.hdf5.read(tmp_path / "x.h5", "x", selection=key)


def test_out_is_no_lazy_array_since_that_only_reads(tmp_path: Path) -> None:
    x = field((4, 6))
    gf.hdf5.write(tmp_path / "a.h5", "x", x)
    target = gf.to_device(np.zeros_like(x))
    for out, box in ((gf.lazy(target), None), (gf.lazy(target)[1:3], np.s_[1:3])):
        with pytest.raises(TypeError, match=r"out is a LazyArray, a reader.*out\.source"):
            gf.hdf5.read(tmp_path / "a.h5", "x", selection=box, out=out)
    assert not gf.fetch(target).any()
    gf.hdf5.read(tmp_path / "a.h5", "x", out=out.source)
    np.testing.assert_array_equal(gf.fetch(target), x)


@pytest.mark.parametrize(
    ("key", "out", "message"),
    [
        (np.s_[3:5], np.zeros((3, 50), "f4"), "axis 0 of out has 3 elements, and the selection 2"),
        (np.s_[3], np.zeros((2, 50), "f4"), "out has 2 axes"),
        (np.s_[::2], np.zeros((40, 50), "f4"), r"shape \(20, 50\)"),
        (np.s_[::2], np.zeros((20, 50), "f8"), "float32.*float64"),
    ],
)
def test_out_that_the_selection_does_not_fit_is_refused(
    tmp_path: Path, key: Any, out: Any, message: str
) -> None:
    gf.hdf5.write(tmp_path / "x.h5", "x", field((40, 50)))
    with pytest.raises(ValueError, match=message):
        read_into(tmp_path / "x.h5", key, out)
    assert not out.any()


@pytest.mark.parametrize("key", [np.s_[::2], np.s_[:, [4, 1]], np.s_[3:5, None, ::-1]], ids=str)
def test_steps_and_arrays_go_to_device_memory_of_any_layout(tmp_path: Path, key: Any) -> None:
    x = field((40, 50))
    gf.hdf5.write(tmp_path / "x.h5", "x", x)
    wide = tuple(2 * n for n in x[key].shape)
    whole = gf.to_device(np.zeros(wide[::-1], "f4"), device="host:0").T
    out = whole[tuple([slice(None, None, 2)] * len(wide))]
    assert read_into(tmp_path / "x.h5", key, out) is out
    assert (gf.fetch(out) == x[key]).all()
    assert np.count_nonzero(gf.fetch(whole)) == np.count_nonzero(x[key])
    with pytest.raises(ValueError, match="shape"):
        read_into(tmp_path / "x.h5", key, gf.to_device(np.zeros((3, 3), "f4"), device="host:0"))
    with pytest.raises(ValueError, match="float"):
        read_into(tmp_path / "x.h5", key, gf.to_device(np.zeros(x[key].shape), device="host:0"))
    with pytest.raises(TypeError):
        read_into(tmp_path / "x.h5", key, [0.0])


def test_a_link_to_a_file_that_is_not_there_names_it(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["e"] = h5py.ExternalLink("gone.h5", "/x")
        file["g/e"] = h5py.ExternalLink("no_hdf5.h5", "/x")
    (tmp_path / "no_hdf5.h5").write_text("text")
    with pytest.raises(
        FileNotFoundError, match=r"link to the file 'gone\.h5', which is neither in"
    ):
        read(tmp_path / "x.h5", "e")
    with pytest.raises(OSError, match=r"'g/e/y' in .* link to the file 'no_hdf5\.h5'\Z"):
        read(tmp_path / "x.h5", "g/e/y")


# --- Everything that h5py reads ------------------------------------------------------------------

DATASETS: dict[str, dict[str, Any]] = {
    "contiguous": {"data": field((9, 7))},
    "big_endian": {"data": field((9, 7), ">f8"), "chunks": (4, 7)},
    "half": {"data": field((9, 7), "f2"), "compression": "gzip"},
    "complex": {"data": (1j * field((9, 7))).astype("c16"), "shuffle": True},
    "bool": {"data": field((9, 7)) > 0, "compression": "lzf"},
    "enum": {"data": np.array([2, 0, 1]), "dtype": h5py.enum_dtype({"a": 0, "b": 1, "c": 2}, "u2")},
    "big_enum": {"data": np.array([2, 0, 1]), "dtype": h5py.enum_dtype({"a": 0, "c": 2}, ">i4")},
    "scaled": {"data": np.arange(50), "scaleoffset": True, "chunks": (10,)},
    "checked": {"data": np.arange(50), "fletcher32": True, "chunks": (10,)},
    "extensible": {"data": np.arange(50), "maxshape": (None,)},
    "scalar": {"data": 3.5},
    "empty_axis": {"data": np.zeros((0, 4))},
    "never_written": {"shape": (30, 4), "dtype": "i2", "chunks": (4, 4), "fillvalue": 9},
}
AS_H5PY_GIVES: dict[str, dict[str, Any]] = {
    "text": {"data": ["one", "three"], "dtype": h5py.string_dtype()},
    "fixed_text": {"data": np.array([b"ab", b"c"])},
    "ragged": {"data": [1], "dtype": "i4"},
    "compound": {"data": np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])},
    "opaque": {"data": np.array([b"abc"], "V3")},
    "vectors": {"shape": (2,), "dtype": np.dtype((np.int32, (3,)))},
    "long": {"data": np.ones(3, "longdouble")},
    "null": {"data": h5py.Empty("f4")},
    "reference": {"shape": (2,), "dtype": h5py.ref_dtype},
}


@pytest.mark.parametrize("name", DATASETS)
def test_numbers_of_every_layout_come_as_numpy_has_them(tmp_path: Path, name: str) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset(name, **DATASETS[name])
        expected = np.asarray(dataset[()])
        values = read(dataset)
        assert values.dtype == expected.dtype.newbyteorder("=") and values.shape == expected.shape
        assert (values == expected).all()
        assert (gf.fetch(gf.hdf5.read(dataset, device="host:0")) == expected).all()


@pytest.mark.parametrize("name", AS_H5PY_GIVES)
def test_other_elements_come_as_h5py_gives_them(tmp_path: Path, name: str) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset(name, **AS_H5PY_GIVES[name])
        if name == "ragged":
            dataset = file.create_dataset("r", (2,), h5py.vlen_dtype("i4"))
            dataset[0] = [1, 2, 3]
        given = read(dataset)
        assert repr(given) == repr(dataset[()])
        with pytest.raises(TypeError, match=r"null dataspace|HDF5 itself"):
            gf.hdf5.read(dataset, device="host:0")
        if name != "null":
            assert repr(read(dataset, selection=0)) == repr(dataset[0])


def test_sequences_of_big_endian_numbers_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("r", (2,), h5py.vlen_dtype(">f8"))
        dataset[0] = np.array([1, 2], ">f8")
        assert dataset[0][0] != 1, "h5py gives what is right by now"
        nested = np.dtype([("a", "i4"), ("b", h5py.vlen_dtype(">i2"))])
        for one in (dataset, file.create_dataset("n", (2,), nested)):
            with pytest.raises(TypeError, match=r"sequences of big-endian numbers.*h5dump"):
                read(one)
        fields = file.create_dataset("f", (2,), np.dtype([*nested.descr[:1], ("c", "i4")]))
        assert (read(fields, selection="a") == 0).all()
        both = file.create_dataset("both", (2,), nested)
        assert (read(both, selection="a") == 0).all()
        with pytest.raises(TypeError, match="sequences"):
            read(both, selection="b")
        assert read(file.create_dataset("bytes", (2,), h5py.vlen_dtype("u1"))).shape == (2,)


# --- Routes to the chunks ------------------------------------------------------------------------


def many_chunks(path: Path, codec: Any, **options: Any) -> np.ndarray[Any, Any]:
    x = field((64, 60, 10))
    with h5py.File(path, "w", **options) as file:
        gf.hdf5.write(file, "x", x, chunks=(7, 60, 4), codec=codec)
        if codec is not None:  # a chunk stored past its filter
            chunk = np.ascontiguousarray(x[7:14, :, 4:8]) + 1
            file["x"].id.write_direct_chunk((7, 0, 4), chunk.tobytes(), filter_mask=1)
            x[7:14, :, 4:8] += 1
        sparse = file.create_dataset(
            "sparse", x.shape, "f4", chunks=(7, 60, 4), fillvalue=-1, **gf.hdf5.filter_options()
        )
        sparse[20:30] = x[20:30]
    return x


def on_host(source: Any, *arguments: Any, device: str, **options: Any) -> np.ndarray[Any, Any]:
    """Read onto a device, or not, and fetch what is there."""
    values = gf.hdf5.read(source, *arguments, device=device, **options)
    fetched: np.ndarray[Any, Any] = values if device == "cpu" else gf.fetch(values)
    return fetched


DEVICES = ["cpu", "host:0"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("r", {}),
        ("r+", {}),
        ("r", {"driver": "core"}),
        ("r", {"driver": "stdio"}),
        ("r", {"rdcc_nbytes": 0}),
    ],
    ids=str,
)
def test_chunks_are_the_same_by_every_route(
    tmp_path: Path, codec: Any, mode: str, options: dict[str, Any], device: str
) -> None:
    x = many_chunks(tmp_path / "x.h5", codec)
    selection = np.s_[5:40, 3, 2:9]
    with h5py.File(tmp_path / "x.h5", mode, **options) as file:
        assert (on_host(file, "x", device=device) == x).all()
        assert (on_host(file, "x", device=device, selection=selection) == x[selection]).all()
        sparse = on_host(file, "sparse", device=device)
        assert (sparse[20:30] == x[20:30]).all()
        assert (sparse[:20] == -1).all() and (sparse[30:] == -1).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("codec", CODECS)
def test_a_user_block_moves_every_chunk(tmp_path: Path, codec: Any, device: str) -> None:
    x = many_chunks(tmp_path / "x.h5", codec, userblock_size=4096)
    assert (on_host(tmp_path / "x.h5", "x", device=device) == x).all()


@pytest.mark.parametrize("layout", [{}, {"chunks": (2, 700, 900), "shuffle": True}], ids=str)
def test_more_than_hdf5_is_asked_for_at_once_is_read(tmp_path: Path, layout: Any) -> None:
    x = np.arange(3 * 4000 * 3000, dtype="u4").reshape(3, 4000, 3000).astype("u1")  # 36 MB
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", data=x, **layout)
        assert (read(dataset) == x).all()
        packed, strided = (
            np.zeros((2, 3999, 2998), "u1"),
            np.zeros((2, 3999, 2998, 2), "u1")[..., 1],
        )
        for out in (packed, strided):
            gf.hdf5.read(dataset, selection=np.s_[1:, 1:, 2:], out=out)
            assert (out == x[1:, 1:, 2:]).all()


DTYPES = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16", "bfloat16", "float8_e4m3fn"]


@settings(max_examples=fewer(60), deadline=None)
@given(data=st.data(), shape=st.lists(st.integers(1, 30), min_size=1, max_size=4))
def test_workers_read_any_box_for_a_device(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, shape: list[int]
) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name := data.draw(st.sampled_from(DTYPES)), name))
    rng = np.random.default_rng(len(shape))
    x = rng.integers(0, 2 if dtype.kind == "b" else 50, shape).astype(dtype)
    path = tmp_path_factory.mktemp("box") / "x.h5"
    gf.hdf5.write(path, "x", x, chunks=tuple(data.draw(st.integers(1, n)) for n in shape))
    bounds = [sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in shape]
    key = tuple(slice(low, high) for low, high in bounds)
    step = tuple(data.draw(st.sampled_from([1, 2, -1, -3])) for _ in shape)
    whole = tuple((high - low) * abs(s) for (low, high), s in zip(bounds, step, strict=True))
    expected = np.zeros(whole, dtype)
    out = gf.to_device(expected, device="host:0")
    steps = tuple(slice(None, None, s) for s in step)
    expected[steps] = x[key]
    gf.hdf5.read(path, "x", selection=key, out=out[steps])
    assert gf.fetch(out).tobytes() == expected.tobytes()


def test_more_chunks_than_are_in_flight_are_decoded_on_the_device(tmp_path: Path) -> None:
    x = field((1500, 12000))  # 72 MB; batches are of 16 MiB
    x[300:310] = np.round(x[300:310] % 3)
    gf.hdf5.write(tmp_path / "x.h5", "x", x, chunks=(100, 2000))
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        chunk = np.ascontiguousarray(x[700:800, 4000:6000])
        file["x"].id.write_direct_chunk((700, 4000), chunk.tobytes(), filter_mask=1)
    with h5py.File(tmp_path / "x.h5") as file:
        assert (on_host(file, "x", device="host:0") == x).all()
        selection = np.s_[150:1450, 1000:11001]
        assert (on_host(file, "x", device="host:0", selection=selection) == x[selection]).all()


@pytest.mark.parametrize("chunk", [(0, 0), (1200, 0)], ids=str)
def test_the_error_of_a_damaged_chunk_is_the_same_on_a_device(
    tmp_path: Path, chunk: tuple[int, ...]
) -> None:
    path = tmp_path / "x.h5"
    gf.hdf5.write(path, "x", field((1500, 500)), chunks=(100, 500))
    with h5py.File(path) as file:
        place = file["x"].id.get_chunk_info_by_coord(chunk)
    with path.open("r+b") as raw:
        raw.seek(place.byte_offset + 500)
        raw.write(b"damage")
    messages = []
    for device in DEVICES:
        with h5py.File(path) as file, pytest.raises(gf.Error, match="checksum") as caught:
            gf.hdf5.read(file, "x", device=device)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("libver", ["earliest", "v110", "latest"])
def test_every_chunk_index_is_read(tmp_path: Path, libver: str) -> None:
    x = field((50, 40))
    with h5py.File(tmp_path / "x.h5", "w", libver=libver) as file:
        for name, maxshape in [("fixed", None), ("one", (None, 40)), ("two", (None, None))]:
            options = {"chunks": (8, 16), "maxshape": maxshape, **gf.hdf5.filter_options()}
            file.create_dataset(name, data=x, **options)
        file["two"].resize((70, 40))
        file["one"].resize((20, 40))
    for name, expected in [("fixed", x), ("one", x[:20]), ("two", np.r_[x, np.zeros((20, 40))])]:
        assert (read(tmp_path / "x.h5", name) == expected).all()


def test_chunks_not_flushed_yet_are_read(tmp_path: Path) -> None:
    x = field((64, 60))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", data=x, chunks=(8, 60), **gf.hdf5.filter_options())
        dataset[3] = 7
        x[3] = 7
        with h5py.File(tmp_path / "x.h5", "r") as again:
            assert (read(again, "x") == x).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("codec", CODECS)
def test_a_file_cut_short_behind_an_open_reader_is_an_error(
    tmp_path: Path, codec: Any, device: str
) -> None:
    path = tmp_path / "x.h5"
    many_chunks(path, codec)
    with h5py.File(path) as file:
        offsets = [
            file["x"].id.get_chunk_info(i).byte_offset for i in range(file["x"].id.get_num_chunks())
        ]
        with path.open("r+b") as raw:
            raw.truncate(sorted(offsets)[len(offsets) // 2] + 100)
        with pytest.raises(gf.Error, match=r"chunk at \(.*\) of dataset '/x'") as caught:
            gf.hdf5.read(file, "x", device=device)
    assert caught.value.status in ("GPUF_ERR_CORRUPT", "GPUF_ERR_HDF5")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("codec", CODECS)
def test_threads_read_one_plain_file_while_others_close_it(
    tmp_path: Path, codec: Any, device: str
) -> None:
    x = many_chunks(tmp_path / "x.h5", codec)

    def work(_: int) -> None:
        for _ in range(5):
            with h5py.File(tmp_path / "x.h5") as file:
                assert (on_host(file, "x", device=device) == x).all()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [None] * 4


def test_reading_leaves_no_descriptor_open(tmp_path: Path) -> None:
    many_chunks(tmp_path / "x.h5", "gpufetch")
    with h5py.File(tmp_path / "x.h5") as file:
        before = len(list(Path("/proc/self/fd").iterdir()))
        for device in DEVICES * 2:
            gf.hdf5.read(file, "x", device=device)
        assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_the_examples_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / "reading.md"
    names: dict[str, Any] = {}
    gf.hdf5.write("run.h5", "x", np.arange(100_000).reshape(100, 1000))
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S):
        if "import zarr" not in block:  # test_reader_codec.py runs those
            exec(block, names)
    assert names["rows"].shape == (10, 500) and (names["values"][10:20, ::2] == names["rows"]).all()
    assert isinstance(names["on_device"], gf.DeviceArray)


class Failing(io.BytesIO):
    """A file object that raises once it is told to."""

    error: BaseException | None = None

    def readinto(self, buffer: Any) -> int:
        if self.error is not None:
            raise self.error
        return super().readinto(buffer)

    def write(self, data: Any) -> int:
        if self.error is not None:
            raise self.error
        return super().write(data)


@pytest.mark.parametrize("error", [OSError(5, "of the network"), KeyboardInterrupt("now")])
@pytest.mark.parametrize("codec", ["gpufetch", None])
@pytest.mark.parametrize("device", ["cpu", "host:0"])
def test_what_a_file_object_raises_comes_through(error: Any, codec: Any, device: str) -> None:
    values = np.random.default_rng(1).normal(size=(60, 70))
    stored = io.BytesIO()
    with h5py.File(stored, "w") as file:
        gf.hdf5.write(file, "x", values, codec=codec)
    source = Failing(stored.getvalue())
    with h5py.File(source, "r") as file:
        dataset = file["x"]
        source.error = error
        for selection in (None, np.s_[3:40:2]):
            with pytest.raises(type(error)) as raised:
                gf.hdf5.read(dataset, device=device, selection=selection)
            assert raised.value is error
        source.error = None
        np.testing.assert_array_equal(file["x"][3:5], values[3:5])
