"""Trees in HDF5: a state_dict, or any nested containers, in one call, and back."""

from __future__ import annotations

import enum
import io
import math
import re
import types
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Iterator
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
from gpufetch import _core

Pair = namedtuple("Pair", "left right")
DTYPES = ["f4", "f2", "i8", "?", "c8", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]


@pytest.fixture
def file(tmp_path: Path) -> Iterator[h5py.File]:
    with h5py.File(tmp_path / "x.h5", "w") as opened:
        yield opened


def array(seed: int, shape: tuple[int, ...], dtype: str = "f4") -> np.ndarray[Any, Any]:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    count = math.prod(shape) * kind.itemsize
    raw = np.random.default_rng(seed).bytes(count)
    bits = np.frombuffer(raw, "u1") % 2 if kind == np.bool_ else np.frombuffer(raw, "u1")
    return bits.astype("u1").view(kind).reshape(shape)


def equal(a: Any, b: Any) -> bool:
    """Whether two trees are the same: types, keys in order, bits of arrays and of floats."""
    if isinstance(a, gf.DeviceArray):
        a = gf.fetch(a)
    if isinstance(b, gf.DeviceArray):
        b = gf.fetch(b)
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return repr(a) == repr(b)


def state(device: str) -> dict[str, Any]:
    """What a model and its optimizer have: names with dots, integer keys, scalars, None."""
    weights = {
        f"layers.{i}.{name}": gf.to_device(array(i, (30, 40), name), device=device)
        for i, name in enumerate(DTYPES)
    }
    weights["step"] = gf.to_device(array(1, (), "i8"), device=device)
    weights["none"] = gf.to_device(array(1, (0, 3)), device=device)
    return {
        "model": weights,
        "optimizer": {
            "state": {0: {"exp_avg": array(5, (7,))}, 1: {}, 12: {"exp_avg": array(6, (3, 2))}},
            "param_groups": [
                {"lr": 1e-3, "betas": (0.9, 0.999), "amsgrad": False, "params": [0, 1, 2]},
                {"lr": math.inf, "betas": (), "maximize": None, "params": []},
            ],
        },
        "epoch": 3,
        "name": "größer ✓",
        "": None,
    }


@pytest.mark.parametrize("codec", ["gpufetch", "bitshuffle-lz4", None])
def test_a_state_dict_comes_back(tmp_path: Path, device: str, codec: Any) -> None:
    tree = state(device)
    del tree[""]
    path = tmp_path / "x.h5"
    assert gf.hdf5.write(path, "run/last", tree, codec=codec, attrs={"step": 9}) is None
    for where in ("cpu", device):
        assert equal(gf.hdf5.read(path, "run/last", device=where), tree)
    assert equal(gf.hdf5.read(path, "run/last/model", device="cpu"), tree["model"])
    weight = gf.hdf5.read(path, "run/last/model/layers.0.f4", device="cpu")
    assert equal(weight, array(0, (30, 40)))
    on_device = gf.hdf5.read(path, "run/last", device=device)
    assert isinstance(on_device["model"]["layers.5.bfloat16"], gf.DeviceArray)
    with h5py.File(path) as file:
        assert file["run/last"].attrs["step"] == 9
        assert file["run/last/epoch"][()] == 3 and file["run/last/name"].asstr()[()] == "größer ✓"
        assert equal(
            file["run/last/model/layers.0.f4"][...] if codec != "bitshuffle-lz4" else weight, weight
        )
        assert file["run/last/optimizer/param_groups/0/betas"][...].tolist() == [0.9, 0.999]


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.complex_numbers(),
    st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=5),
    st.binary(max_size=5),
    st.builds(array, st.integers(0, 9), st.sampled_from([(), (3,), (0,), (2, 3)])),
)
KEYS = st.text(st.characters(exclude_characters="\0/", codec="utf-8"), min_size=1, max_size=4)


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(children, max_size=4),
        st.lists(children, max_size=4).map(tuple),
        st.dictionaries(KEYS.filter(lambda key: key not in (".", "..")), children, max_size=4),
        st.dictionaries(st.integers(-5, 2**70), children, max_size=4),
    )


@settings(max_examples=fewer(150), deadline=None)
@given(tree=containers(st.recursive(LEAVES, containers, max_leaves=12)))
def test_any_tree_comes_back(tree: Any) -> None:
    with h5py.File(io.BytesIO(), "w") as file:
        gf.hdf5.write(file, "t", {"tree": tree})
        assert equal(gf.hdf5.read(file, "t", device="cpu"), {"tree": tree})
        gf.hdf5.write(file, "t", {"other": [tree]}, overwrite=True)
        assert equal(gf.hdf5.read(file, "t", device="cpu"), {"other": [tree]})
        assert list(file) == ["t"]


def test_other_mappings_come_back_as_dicts(file: h5py.File) -> None:
    plain = {"b": array(1, (3,)), "a": 2}
    made = [OrderedDict(plain), UserDict(plain), types.MappingProxyType(plain)]
    for number, mapping in enumerate(made):
        gf.hdf5.write(file, f"m{number}", mapping)
        assert equal(gf.hdf5.read(file, f"m{number}", device="cpu"), plain)


def test_big_endian_arrays_in_a_tree_come_back_native(file: h5py.File) -> None:
    gf.hdf5.write(file, "t", {"x": array(1, (5,)).astype(">f4"), "y": np.float32(2.5)})
    back = gf.hdf5.read(file, "t", device="cpu")
    assert equal(back, {"x": array(1, (5,)).astype(">f4").astype("f4"), "y": np.array(2.5, "f4")})


class Color(enum.IntEnum):
    RED = 1


HOLDS_ITSELF: list[Any] = [1, {}]
HOLDS_ITSELF[1]["again"] = HOLDS_ITSELF
DEEP: Any = 1
for _ in range(200):
    DEEP = {"k": DEEP}


@pytest.mark.parametrize(
    ("tree", "error", "message"),
    [
        ({"a": [1, object()]}, TypeError, r"tree\['a'\]\[1\]: .*object"),
        ({"a": {"b": {1, 2}}}, TypeError, r"tree\['a'\]\['b'\]: .*set"),
        ([None, np.array(["text"])], TypeError, r"tree\[1\]: "),
        ({"a": Pair(1, 2)}, TypeError, r"tree\['a'\]: Pair is a namedtuple"),
        ({"a": Color.RED}, TypeError, r"tree\['a'\]: "),
        ({"a": 2**64}, ValueError, r"tree\['a'\]: neither int64 nor uint64"),
        ({"a": [2**64]}, ValueError, r"tree\['a'\]\[0\]: neither int64 nor uint64"),
        ({"a": "x\0y"}, ValueError, r"tree\['a'\]: the text 'x\\x00y' has a NUL in it"),
        ({"a": "\ud800"}, ValueError, r"tree\['a'\]: .*surrogate"),
        ({"a": {"b/c": 1}}, ValueError, r"tree\['a'\]: key 'b/c' cannot be the name"),
        ({"a": {"": 1}}, ValueError, r"tree\['a'\]: key '' cannot"),
        ({".": 1}, ValueError, r"tree: key '\.' cannot"),
        ({"..": {"x": 1}}, ValueError, r"tree: key '\.\.' cannot"),
        ({"\ud800": 1}, ValueError, r"tree: key '\\ud800' is not UTF-8"),
        ({"x\0y": 1}, ValueError, r"tree: key 'x\\x00y' has a NUL"),
        ({1: 1, "1": 2}, TypeError, r"tree: key 1 is of type int; all keys"),
        ({True: 1}, TypeError, r"tree: key True is of type bool"),
        ({(1, 2): 1}, TypeError, r"tree: key \(1, 2\) is of type tuple"),
        (HOLDS_ITSELF, ValueError, r"tree\[1\]\['again'\]: it holds itself"),
        (DEEP, ValueError, r"\['k'\]: a tree may be 100 levels deep"),
        ({"a": gf.lazy}, TypeError, r"tree\['a'\]: "),
    ],
    ids=range(21),
)
def test_what_cannot_be_stored_is_named(
    file: h5py.File, tree: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        gf.hdf5.write(file, "a/t", tree)
    assert list(file) == []
    gf.hdf5.write(file, "t", {"kept": array(1, (3,))})
    with pytest.raises(error, match=re.sub("^tree", r"tree\\['first'\\]\\[1\\]", message)):
        gf.hdf5.write(file, "t", {"first": [array(1, (3,)), tree]}, overwrite=True)
    assert list(file) == ["t"] and list(file["t"]) == ["kept"]


def test_a_tree_that_fails_keeps_the_one_that_it_was_to_replace(file: h5py.File) -> None:
    tree = {"x": array(1, (300, 200)), "n": 1}
    gf.hdf5.write(file, "t", tree)
    with pytest.raises(ValueError, match=r"'t' exists already .*overwrite=True"):
        gf.hdf5.write(file, "t", tree)
    with pytest.raises(TypeError, match=r"tree\['y'\]"):
        gf.hdf5.write(file, "t", {"x": array(2, (300, 200)), "y": object()}, overwrite=True)
    on_device = gf.to_device(array(3, (300, 200)), device="host:0")
    _core._host_faults(copy_fail_after_nbytes=1000)
    with pytest.raises(gf.Error):
        gf.hdf5.write(file, "t", {"x": on_device}, overwrite=True)
    _core._host_faults()
    assert list(file) == ["t"] and equal(gf.hdf5.read(file, "t", device="cpu"), tree)
    gf.hdf5.write(file, "t", array(4, (3,)), overwrite=True)
    assert equal(gf.hdf5.read(file, "t", device="cpu"), array(4, (3,)))


def test_arguments_that_a_tree_does_not_take_are_refused(file: h5py.File) -> None:
    file_name = file.filename
    tree = {"x": array(1, (3,))}
    with pytest.raises(ValueError, match="chunks is for one tensor"):
        gf.hdf5.write(file, "t", tree, chunks=(1,))
    for name in ("", "/"):
        with pytest.raises(ValueError, match="name is empty"):
            gf.hdf5.write(file, name, tree)
    for name in ("a//t", "./t", "a/../t", "t/"):
        with pytest.raises(ValueError, match="is no path"):
            gf.hdf5.write(file, name, tree)
    assert list(file) == []
    gf.hdf5.write(file, "t", tree)
    for options in ({"selection": 0}, {"out": np.zeros(3, "f4")}):
        with pytest.raises(ValueError, match="'/t' is a tree: selection and out"):
            gf.hdf5.read(file, "t", **options)
    file.close()
    with h5py.File(file_name, "r") as again, pytest.raises(ValueError, match="read-only"):
        gf.hdf5.write(again, "u", tree)


def test_a_group_that_is_no_tree_is_refused(file: h5py.File) -> None:
    file["g/x"] = 1
    with pytest.raises(TypeError, match=r"'g' in .* not a dataset, nor a tree"):
        gf.hdf5.read(file, "g")


def test_trees_that_someone_has_changed_are_read_or_refused(file: h5py.File) -> None:
    def write(tree: Any) -> None:
        gf.hdf5.write(file, "t", tree, overwrite=True)

    write({"x": array(1, (3,)), "l": [None, None]})
    file["t/added"] = 2.5
    back = gf.hdf5.read(file, "t", device="cpu")
    assert list(back) == ["x", "l", "added"] and back["added"].tolist() == 2.5
    del file["t/l/0"]
    with pytest.raises(ValueError, match="'/t/l' lacks items of a list"):
        gf.hdf5.read(file, "t")
    write({"x": {"y": {}}})
    file["t/x/y/up"] = file["t"]
    with pytest.raises(ValueError, match=r"group '/t.*' of a tree holds itself"):
        gf.hdf5.read(file, "t")
    write({"x": {}, "n": 1})
    file["t/x"].attrs["gpufetch_tree"] = "set"
    with pytest.raises(ValueError, match=r"'/t/x' is no part of a tree: .* 'set'"):
        gf.hdf5.read(file, "t")
    write({"n": 1})
    file["t/n"].attrs["gpufetch_tree"] = "list of int"
    with pytest.raises(ValueError, match="'/t/n' is no part of a tree"):
        gf.hdf5.read(file, "t")
    write({"n": 1})
    file.create_group("t/g")
    with pytest.raises(ValueError, match="'/t/g' is no part of a tree"):
        gf.hdf5.read(file, "t")


def test_a_key_that_is_not_utf8_is_refused_with_the_tree_and_the_key(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "file.h5", "w") as file:
        gf.hdf5.write(file, "tree", {"w": np.arange(3.0)})
        file["tree"].create_dataset(b"k\xff", data=1.0)
        with pytest.raises(ValueError, match=r"'/tree' is no part of a tree: .* b'k\\xff' is not"):
            gf.hdf5.read(file, "tree", device="cpu")


def test_scalars_of_ml_dtypes_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        number = getattr(ml_dtypes, name)(2)
        gf.hdf5.write(path, f"{name}/one", number)
        gf.hdf5.write(path, f"{name}/two", [number, number])
        gf.hdf5.write(path, f"{name}/tree", {"a": number, "b": np.ones(2)})
        one = gf.hdf5.read(path, f"{name}/one", device="cpu")
        two = gf.hdf5.read(path, f"{name}/two", device="cpu")
        tree = gf.hdf5.read(path, f"{name}/tree", device="cpu")
        assert one.dtype == two.dtype == tree["a"].dtype == number.dtype
        assert one == number and (two == number).all() and tree["a"] == number
    for wrong in (np.str_("a"), np.datetime64(0, "s"), np.void(b"abc")):
        with pytest.raises(TypeError, match="is no tensor"):
            gf.hdf5.write(path, "wrong", wrong)
