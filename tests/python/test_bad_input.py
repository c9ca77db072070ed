"""Arguments that cannot work raise one error, which names the value and the remedy."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import types
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpufetch as gf
from gpufetch import _core

# --- No tensors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function", [gf.lazy, gf.stats, gf.histogram, gf.view, lambda x: gf.overview(x, 3)]
)
def test_what_holds_tensors_is_told_from_what_is_none(function: Any) -> None:
    x = gf.to_device(np.ones(3))
    for held, text in (
        ({"w": x}, r"a dict is no tensor: give one that it holds, as x\['w'\]"),
        (OrderedDict(b=x), r"a OrderedDict is no tensor: .* as x\['b'\]"),
        (types.MappingProxyType({"w": x}), r"a mappingproxy is no tensor: .* as x\['NAME'\]"),
        ({}, r"as x\['NAME'\]"),
        ([x], r"a list is no tensor: give one that it holds, as x\[0\]"),
        ((x, x), r"a tuple is no tensor: .* as x\[0\]"),
        (None, "is no tensor: it has neither __dlpack__"),
    ):
        with pytest.raises(TypeError, match=text):
            function(held)


def test_a_dict_goes_to_the_device_array_by_array() -> None:
    for held in ({"w": np.ones(3)}, OrderedDict(w=np.ones(3))):
        text = rf"one array, not a {type(held).__name__}: \{{name: gpufetch\.to_device\(x\) for"
        with pytest.raises(TypeError, match=text):
            gf.to_device(held)


@pytest.mark.parametrize("x", [None, 3, "x", object(), np.float32(1), np.ndarray])
@pytest.mark.parametrize("function", [gf.fetch, gf.fetch_async, gf.asdevice])
def test_what_is_no_tensor_is_refused(function: Any, x: Any) -> None:
    with pytest.raises(TypeError, match="is no tensor"):
        function(x)


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a"]),
        np.array([b"a"]),
        np.array([None]),
        np.zeros(2, np.longdouble),
        np.zeros(2, "M8[s]"),
        np.zeros(2, [("a", "i4")]),
        np.zeros(2, "V4"),
    ],
    ids=lambda array: str(array.dtype),
)
def test_dtypes_without_numbers_are_refused(array: Any) -> None:
    for function in (gf.fetch, gf.to_device, gf.asdevice):
        with pytest.raises(TypeError, match="is not supported; convert with astype"):
            function(array)


def test_foreign_byte_order_is_refused_with_a_remedy() -> None:
    array = np.arange(3, dtype=np.dtype("f4").newbyteorder())
    with pytest.raises(TypeError, match=r"byte order.*astype"):
        gf.fetch(array)
    fixed = array.astype(array.dtype.newbyteorder("="))
    assert gf.fetch(fixed).tolist() == [0, 1, 2]


def test_a_masked_array_is_refused() -> None:
    array = np.ma.masked_equal([1, 2, 3], 2)
    for function in (gf.fetch, gf.to_device, gf.asdevice):
        with pytest.raises(TypeError, match="filled"):
            function(array)


@pytest.mark.parametrize("kind", [np.matrix, np.recarray])
def test_other_subclasses_are_arrays(kind: Any) -> None:
    array = np.arange(6.0).reshape(2, 3).view(kind)
    result = gf.fetch(array)
    assert type(result) is np.ndarray
    assert result.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("function", [gf.fetch, gf.fetch_async, gf.to_device])
def test_wrong_calls_are_refused(function: Any) -> None:
    x = np.zeros(1)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}),
        ((x, x), {}),
        ((x,), {"nonsense": 1}),
        ((), {"x": x}),
    ]
    for positional, keywords in calls:
        with pytest.raises(TypeError, match=function.__name__):
            function(*positional, **keywords)


# --- Devices ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "host:1x", "cpu:0", "c"])
def test_a_device_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match='use "cuda:0"'):
        gf.to_device(np.zeros(1), device=name)


def test_a_device_of_a_wrong_type_is_refused() -> None:
    with pytest.raises(TypeError, match="device 0"):
        gf.to_device(np.zeros(1), device=0)  # type: ignore[arg-type]


def test_the_cpu_is_no_device() -> None:
    with pytest.raises(ValueError, match="cpu"):
        gf.to_device(np.zeros(1), device="cpu")


@pytest.mark.parametrize("name", ["host:2", "host:999999999", "host:9999999999"])
def test_a_device_that_does_not_exist_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        gf.to_device(np.zeros(1), device=name)


def test_a_device_array_goes_to_no_device_again(device: str) -> None:
    x = gf.to_device(np.zeros(1), device=device)
    with pytest.raises(TypeError, match=f"on {device} already"):
        gf.to_device(x)


NO_CUDA = """
import numpy as np, warnings
import gpufetch as gf
found = gf.info()
assert found["default_device"] is None, found
assert not found["backends"]["cuda"]["available"] and found["backends"]["cuda"]["reason"]
for call in (lambda: gf.to_device(np.zeros(3)), lambda: gf.to_device(np.zeros(3), device="cuda:0")):
    try:
        call()
    except gf.Error as error:
        assert error.status == "GPUF_ERR_NO_DEVICE", error.status
        assert len(str(error)) > 20
    else:
        raise AssertionError
assert gf.fetch(gf.to_device(np.arange(3), device="host:0")).tolist() == [0, 1, 2]
"""


def test_without_a_gpu_cuda_says_why_and_nothing_falls_back() -> None:
    environment = {**os.environ, "GPUFETCH_BACKEND": "cuda", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", NO_CUDA], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


# --- out= -------------------------------------------------------------------------------------


@pytest.fixture(params=["host:0", "cpu"])
def x(request: pytest.FixtureRequest) -> Any:
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    return a if request.param == "cpu" else gf.to_device(a, device=request.param)


FETCHES = [gf.fetch, gf.fetch_async]


@pytest.mark.parametrize("function", FETCHES)
@pytest.mark.parametrize("shape", [(4, 3), (12,), (3, 4, 1), (3, 3), ()])
def test_out_of_wrong_shape_is_refused(x: Any, function: Any, shape: tuple[int, ...]) -> None:
    out = np.full(shape, 7, np.float32)
    with pytest.raises(ValueError, match=r"out has shape \(.*the tensor has shape \(3, 4\)"):
        function(x, out=out)
    assert (out == 7).all()


@pytest.mark.parametrize("function", FETCHES)
@pytest.mark.parametrize("dtype", ["f8", "i4", "f2", ">f4", "O", "S4"])
def test_out_of_wrong_dtype_is_refused(x: Any, function: Any, dtype: str) -> None:
    with pytest.raises(ValueError, match=r"out .*dtype.*float32"):
        function(x, out=np.zeros((3, 4), dtype))


@pytest.mark.parametrize("function", FETCHES)
def test_out_that_is_read_only_is_refused(x: Any, function: Any) -> None:
    out = np.full((3, 4), 7, np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        function(x, out=out)
    assert (out == 7).all()


@pytest.mark.parametrize("function", FETCHES)
@pytest.mark.parametrize("out", [[0] * 12, bytearray(48), object(), "x"])
def test_out_that_is_no_array_is_refused(x: Any, function: Any, out: Any) -> None:
    with pytest.raises(TypeError, match=r"must be a numpy\.ndarray"):
        function(x, out=out)


def test_out_on_a_device_is_refused(x: Any) -> None:
    with pytest.raises(TypeError, match=r"must be a numpy\.ndarray"):
        gf.fetch(x, out=gf.to_device(np.zeros((3, 4), np.float32)))  # type: ignore[arg-type]


@pytest.mark.parametrize("function", FETCHES)
def test_out_that_repeats_elements_is_refused(x: Any, function: Any) -> None:
    out = np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (3, 4), (0, 4))
    with pytest.raises(ValueError, match="zero stride"):
        function(x, out=out)


@pytest.mark.parametrize("function", FETCHES)
@pytest.mark.parametrize("part", [np.s_[:], np.s_[::-1], np.s_[1:4], np.s_[4:1:-1]])
def test_out_that_shares_memory_with_the_source_is_refused(function: Any, part: slice) -> None:
    a = np.arange(20, dtype=np.float32).reshape(5, 4)
    before = a.copy()
    source = a[: len(a[part])]
    with pytest.raises(ValueError, match="shares memory"):
        function(source, out=a[part])
    np.testing.assert_array_equal(a, before)


def test_neighbours_in_one_buffer_do_not_share_memory() -> None:
    a = np.arange(20, dtype=np.float32)
    gf.fetch(a[:10], out=a[10:])
    assert a.tolist() == [*range(10), *range(10)]


# --- The CUDA Array Interface -----------------------------------------------------------------


class Interface:
    def __init__(self, **changes: Any) -> None:
        described = {
            "version": 3,
            "shape": (2, 3),
            "typestr": "<f4",
            "data": (0x10000, False),
            "strides": None,
            "stream": None,
        }
        described.update(changes)
        self.__cuda_array_interface__: Any = {
            key: value for key, value in described.items() if value is not ...
        }


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"stream": 0}, ValueError, "stream 0"),
        ({"stream": "1"}, TypeError, "."),
        ({"stream": 2**64}, ValueError, "stream 18446744073709551616"),
        ({"data": (2**70, False)}, ValueError, "the pointer 1180591620717411303424"),
        ({"mask": Interface()}, TypeError, "mask"),
        ({"typestr": ">f4"}, TypeError, "byte order.*astype"),
        ({"typestr": "<V2"}, TypeError, "bfloat16.*integer"),
        ({"typestr": "|S4"}, TypeError, "not supported"),
        ({"typestr": "nonsense"}, TypeError, "nonsense"),
        ({"typestr": ...}, TypeError, "typestr"),
        ({"shape": ...}, TypeError, "shape"),
        ({"shape": [2, 3]}, TypeError, "shape"),
        ({"shape": (2, -3)}, ValueError, "-3"),
        ({"shape": (1,) * 33}, ValueError, "33"),
        ({"shape": (1 << 40, 1 << 40)}, ValueError, "too large"),
        ({"strides": (4,)}, ValueError, "strides has 1 value; it must have one for each of 2 axes"),
        ({"strides": (1 << 62, 1 << 62)}, ValueError, "."),
        ({"data": ...}, TypeError, "data"),
        ({"data": 5}, TypeError, "data"),
        ({"data": (0, False)}, ValueError, "NULL"),
    ],
)
def test_a_hostile_interface_is_refused(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    for function in (gf.fetch, gf.asdevice):
        with pytest.raises(error, match=message):
            function(Interface(**changes))


def test_an_interface_that_is_no_dict_is_refused() -> None:
    x = Interface()
    x.__cuda_array_interface__ = 7
    with pytest.raises(TypeError, match="not a dict"):
        gf.fetch(x)


def test_a_good_interface_without_a_gpu_names_the_backend() -> None:
    if gf.info()["backends"]["cuda"]["available"]:
        pytest.skip("there is a GPU: the pointer would be used")
    for function in (gf.fetch, gf.asdevice, gf.fetch_async):
        with pytest.raises(gf.Error) as caught:
            function(Interface())
        assert caught.value.status == "GPUF_ERR_NO_DEVICE"


# --- What torch leaves to the caller ----------------------------------------------------------


class Torch:
    """A stand-in for torch.Tensor with what the adapter uses of it."""

    layout = "torch.strided"
    dtype: str
    is_cuda = is_meta = is_quantized = is_nested = requires_grad = False

    def __init__(self, array: Any, *, requires_grad: bool = False, **flags: Any) -> None:
        self.array, self.requires_grad = array, requires_grad
        self.conj: bool = flags.pop("conj", False)
        self.neg: bool = flags.pop("neg", False)
        for name, value in flags.items():
            setattr(self, name, value)

    def detach(self) -> Torch:
        return Torch(self.array, conj=self.conj, neg=self.neg)

    def is_conj(self) -> bool:
        return self.conj

    def is_neg(self) -> bool:
        return self.neg

    def resolve_conj(self) -> Torch:
        return Torch(self.array.conj(), neg=self.neg)

    def resolve_neg(self) -> Torch:
        return Torch(-self.array, conj=self.conj)

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.is_meta:
            raise ValueError("Unknown device type meta for Dlpack")
        return (1, 0)

    def __dlpack__(self, **options: Any) -> Any:
        # As in torch, the negative bit is ignored.
        odd = self.is_meta or self.is_quantized or self.is_nested
        if self.requires_grad or self.conj or odd or self.layout != "torch.strided":
            raise BufferError("cannot export this")
        return self.array.__dlpack__(**options)


def test_integers_of_less_than_a_byte_are_refused_although_torch_calls_them_int8() -> None:
    for name, code in [("int4", "i1"), ("uint1", "u1"), ("uint7", "u1")]:
        x = Torch(np.zeros(3, code))
        x.dtype = f"torch.{name}"
        with pytest.raises(TypeError, match=f"torch.{name} has no NumPy counterpart.*uint8"):
            gf.fetch(x)
    for name, code in [("int8", "i1"), ("uint8", "u1"), ("uint16", "u2"), ("int4x", "i1")]:
        x = Torch(np.zeros(3, code))
        x.dtype = f"torch.{name}"
        assert gf.fetch(x).dtype == code
    assert gf.fetch(Torch(np.zeros(3, "i1"))).dtype == np.int8  # it need not have a dtype


def test_gradients_are_detached_and_lazy_bits_resolved() -> None:
    a = np.array([1 + 2j, 3 - 4j])
    assert gf.fetch(Torch(a.real.copy(), requires_grad=True)).tolist() == [1, 3]
    assert gf.fetch(Torch(a, conj=True)).tolist() == a.conj().tolist()
    assert gf.fetch(Torch(a, neg=True)).tolist() == (-a).tolist()
    assert gf.fetch(Torch(a, neg=True, conj=True, requires_grad=True)).tolist() == (
        (-a.conj()).tolist()
    )


@pytest.mark.parametrize(
    ("flags", "remedy"),
    [({"conj": True}, r"x\.resolve_conj\(\)"), ({"neg": True}, r"x\.resolve_neg\(\)")],
)
def test_what_needs_a_tensors_own_memory_refuses_one_whose_bits_must_be_resolved(
    flags: dict[str, Any], remedy: str, tmp_path: Path
) -> None:
    a = np.array([1 + 2j, 3 - 4j])
    x = Torch(a, **flags)
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "out.h5", "w") as file:
        file["x"] = np.zeros(2, np.complex128)
        with pytest.raises(TypeError, match=f"out needs the tensor's own memory.*{remedy}"):
            gf.hdf5.read(file["x"], out=x)
    with pytest.raises(TypeError, match=f"share without copy=True needs.*{remedy}"):
        gf.share(x)
    with pytest.raises(ValueError, match=r"cannot share.*bit is set"):
        gf.convert(x, "numpy", copy=False)
    with pytest.warns(gf.CopyWarning, match="bit is set"):
        converted = gf.convert(x, "numpy")
    assert converted.tolist() == gf.fetch(x).tolist()
    assert a.tolist() == [1 + 2j, 3 - 4j]


def test_a_producer_that_gives_a_copy_is_not_written_to(tmp_path: Path) -> None:
    class Copying:
        array = np.ones(3)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, *, max_version: tuple[int, int] | None = None) -> Any:
            return self.array.__dlpack__(max_version=max_version, copy=True)

    h5py = pytest.importorskip("h5py")
    assert gf.fetch(Copying()).tolist() == [1, 1, 1]
    with h5py.File(tmp_path / "out.h5", "w") as file:
        file["x"] = np.zeros(3)
        with pytest.raises(TypeError, match="__dlpack__ gives a copy"):
            gf.hdf5.read(file["x"], out=Copying())


@pytest.mark.parametrize(
    ("flags", "remedy"),
    [
        ({"layout": "torch.sparse_coo"}, r"x\.to_dense\(\)"),
        ({"layout": "torch.sparse_csr"}, r"x\.to_dense\(\)"),
        ({"is_quantized": True}, r"x\.dequantize\(\)"),
        ({"is_nested": True}, r"to_padded_tensor"),
        ({"is_meta": True}, r"to_empty"),
    ],
)
def test_torch_tensors_without_plain_elements_say_what_to_call(
    flags: dict[str, Any], remedy: str
) -> None:
    for function in (gf.fetch, gf.asdevice):
        with pytest.raises(TypeError, match=remedy) as caught:
            function(Torch(np.zeros(3), **flags))
        assert caught.value.__cause__ is not None


class FakeTorch(types.ModuleType):
    """A stand-in for the module torch with what the adapter uses of it."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.current, self.seen = "cuda:0", ["cuda:0"]
        self.cuda = types.SimpleNamespace(device=self._device)

    @contextlib.contextmanager
    def _device(self, name: str) -> Iterator[None]:
        before, self.current = self.current, name
        self.seen.append(name)
        try:
            yield
        finally:
            self.current = before


@pytest.mark.parametrize("exportable", [True, False])
def test_a_tensor_on_another_than_torchs_current_device_is_exported_from_there(
    monkeypatch: pytest.MonkeyPatch, exportable: bool
) -> None:
    torch = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", torch)

    class OnDevice(Torch):
        device = "cuda:1"

        def __dlpack__(self, **options: Any) -> Any:
            assert options["stream"] == 1
            if torch.current != self.device:
                raise BufferError("not the current device")
            if not exportable:
                raise BufferError("not there either")
            return self.array.__dlpack__(max_version=options["max_version"])

    x = OnDevice(np.arange(3), is_cuda=True)
    if exportable:
        assert gf.fetch(x).tolist() == [0, 1, 2]
    else:
        with pytest.raises(BufferError, match="not the current device"):
            gf.fetch(x)
    assert torch.seen == ["cuda:0", "cuda:1"]
    assert torch.current == "cuda:0"


def test_an_unexplained_torch_error_is_passed_on() -> None:
    class Odd(Torch):
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("something new")

    with pytest.raises(BufferError, match="something new"):
        gf.fetch(Odd(np.zeros(3)))


# --- The pool and the faults ------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [-1, 1 << 70])
def test_a_cap_that_is_no_size_is_refused(nbytes: int) -> None:
    before = gf.pool.cap_nbytes
    with pytest.raises(ValueError, match=str(nbytes)):
        gf.pool.cap_nbytes = nbytes
    with pytest.raises(ValueError, match=str(nbytes)):
        gf.pool.trim(nbytes)
    with pytest.raises(TypeError):
        gf.pool.trim(1.5)  # type: ignore[arg-type]
    assert gf.pool.cap_nbytes == before


def test_the_cap_can_be_changed(pool_cap: int) -> None:
    gf.pool.cap_nbytes = 123 << 20
    assert gf.pool.stats()["cap_nbytes"] == gf.pool.cap_nbytes == 123 << 20
    assert f"cap {123 << 20}" in repr(gf.pool)


@pytest.mark.parametrize("value", [-1, float("nan"), "x"])
def test_a_senseless_fault_is_refused(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        _core._host_faults(bandwidth=value)
