"""PyTorch: what fetch gives is what torch itself gives; hand-over in both directions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from arrays import assert_same
from framework_data import VIEWS, data, float8

import gpufetch as gf
import gpufetch.hdf5

# Frameworks warn of themselves, of small launches and of each other; that is not tested here.
pytestmark = pytest.mark.filterwarnings("ignore")
on_gpu = pytest.mark.usefixtures("torch_gpu")


# --- On the CPU -------------------------------------------------------------------------------


NUMPY_DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]
FLOAT8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]


@pytest.mark.parametrize("view", VIEWS)
def test_torch_views_on_the_cpu(torch: Any, view: str) -> None:
    x = VIEWS[view](torch.from_numpy(data((300, 200))))
    assert_same(gf.fetch(x), np.array(x.numpy(), order="C"))


class _Rows:
    """A data set that lies in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return gpufetch.hdf5.read(self.path, "rows", selection=index, device="cpu")


def test_torch_data_loader_reads_in_forked_workers(torch: Any, tmp_path: Path) -> None:
    rows = data((64, 1000))
    gpufetch.hdf5.write(tmp_path / "rows.h5", "rows", rows)
    x = gf.to_device(rows)  # the parent has used a device when the workers start
    loader = torch.utils.data.DataLoader(
        _Rows(tmp_path / "rows.h5"), batch_size=8, num_workers=2, multiprocessing_context="fork"
    )
    batches = [batch.numpy() for batch in loader]
    assert_same(np.concatenate(batches), gf.fetch(x))


@pytest.mark.parametrize("name", NUMPY_DTYPES)
def test_torch_dtypes_there_and_back(torch: Any, name: str) -> None:
    a = data((1000,)).astype(name) if name != "bool" else data((1000,)) > 0
    x = gf.convert(a, "torch", copy=False)
    assert x.dtype == getattr(torch, name) and x.data_ptr() == a.ctypes.data
    assert_same(gf.fetch(x), a)


@pytest.mark.parametrize("name", ["bfloat16", *FLOAT8])
def test_torch_short_floats_there_and_back(torch: Any, name: str) -> None:
    a = float8((300,), name)
    x = gf.convert(a, "torch", copy=False)
    assert x.dtype == getattr(torch, name)
    assert_same(gf.fetch(x), a)
    back = gf.convert(x, "numpy", copy=False)
    assert_same(back, a)
    assert back.ctypes.data == a.ctypes.data


@pytest.mark.parametrize("name", [*NUMPY_DTYPES, "bfloat16", *FLOAT8])
def test_torch_dtypes_are_dtypes(torch: Any, name: str) -> None:
    a = np.arange(6, dtype="c8" if name.startswith("complex") else "f4")
    if not name.startswith("complex"):
        assert gf.to_device(a, device="host:0", dtype=getattr(torch, name)).dtype == name
    same = a.astype(name)
    assert gf.fetch(same, dtype=getattr(torch, name)).dtype == same.dtype
    assert gf.fetch_async([same], dtype=getattr(torch, name)).result()[0].dtype == same.dtype


def test_torch_dtypes_that_numpy_lacks_are_refused(torch: Any) -> None:
    with pytest.raises(TypeError, match=r"torch\.qint8 is not supported"):
        gf.fetch(np.zeros(3), dtype=torch.qint8)


def test_torch_gradients_conj_and_neg_on_the_cpu(torch: Any) -> None:
    x = torch.from_numpy(data((50, 2))).requires_grad_()
    assert_same(gf.fetch(x), x.detach().numpy())
    assert_same(gf.fetch(torch.nn.Parameter(x.detach())), x.detach().numpy())
    assert x.requires_grad
    z = torch.view_as_complex(x.detach().clone())
    assert z.conj().is_conj() and z.conj().imag.is_neg()
    assert_same(gf.fetch(z.conj()), z.numpy().conj())
    assert_same(gf.fetch(z.conj().imag), -z.numpy().imag)


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda torch: torch.eye(3).to_sparse(), r"to_dense\(\)"),
        (lambda torch: torch.eye(3).to_sparse_csr(), r"to_dense\(\)"),
        (lambda torch: torch.eye(3).to_mkldnn(), r"to_dense\(\)"),
        (lambda torch: torch.empty(3, device="meta"), "meta"),
        (
            lambda torch: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
            "to_padded_tensor",
        ),
        (
            lambda torch: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
            r"dequantize\(\)",
        ),
        (lambda torch: torch.zeros(3, dtype=torch.complex32), "view_as_real"),
        (lambda torch: torch.zeros(3, dtype=torch.uint8).view(torch.float4_e2m1fn_x2), "uint8"),
        (lambda torch: torch.zeros(3, dtype=torch.uint8).view(torch.int4), "torch.int4.*uint8"),
        (lambda torch: torch.zeros(3, dtype=torch.uint8).view(torch.uint1), "torch.uint1.*uint8"),
    ],
    ids=[
        "sparse",
        "csr",
        "mkldnn",
        "meta",
        "nested",
        "quantized",
        "complex32",
        "float4",
        "int4",
        "uint1",
    ],
)
def test_torch_tensors_without_plain_elements_say_what_to_call(
    torch: Any, make: Any, remedy: str
) -> None:
    x = make(torch)
    with pytest.raises(TypeError, match=remedy):
        gf.fetch(x)
    with pytest.raises(TypeError, match=rf"tree\['x'\]: .*{remedy}"):
        gf.fetch({"x": x})


def freed(torch: Any) -> Any:
    x = torch.ones(4)
    x.untyped_storage().resize_(0)
    return x


def fake(torch: Any) -> Any:
    with torch._subclasses.fake_tensor.FakeTensorMode():
        return torch.ones(3)


def wrapper(torch: Any) -> Any:
    from torch.testing._internal.two_tensor import TwoTensor

    return TwoTensor(torch.ones(3), torch.zeros(3))


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (fake, "outside of the traced function"),
        (wrapper, "wraps other tensors"),
        (lambda torch: torch.masked.masked_tensor(torch.ones(2), torch.ones(2) > 0), "to_tensor"),
        (freed, "summon_full_params"),
        (lambda torch: torch._efficientzerotensor(3), r"clone\(\)"),
        (lambda torch: torch.zeros(3, dtype=torch.uint8).view(torch.bits8), "torch.uint8"),
    ],
    ids=["fake", "wrapper", "masked", "freed", "zero", "bits"],
)
def test_torch_tensors_without_memory_say_what_to_do(torch: Any, make: Any, remedy: str) -> None:
    x = make(torch)
    for function in (gf.fetch, gf.asdevice, gf.lazy, gf.to_device, gf.stats):
        with pytest.raises(TypeError, match=f"no plain elements.*{remedy}"):
            function(x)
    with pytest.raises(TypeError, match=rf"tree\['x'\]: .*{remedy}"):
        gf.fetch({"x": x})


@pytest.mark.parametrize("transform", ["vmap", "grad", "functionalize"])
def test_torch_tensors_that_are_traced_say_where_to_fetch(torch: Any, transform: str) -> None:
    seen = []

    def function(x: Any) -> Any:
        with pytest.raises(TypeError, match="outside of the traced function"):
            gf.fetch(x)
        seen.append(x)
        return x.sum()

    getattr(torch.func, transform)(function)(torch.ones(3))
    assert seen


def test_torch_bits_are_resolved_or_refused(torch: Any, tmp_path: Path) -> None:
    z = torch.ones(3, dtype=torch.complex64) * (1 + 2j)
    for x, expected in ((z.conj(), [1 - 2j] * 3), (z.conj().imag, [-2.0] * 3)):
        for values in (gf.fetch(x), gf.lazy(x).fetch(), gf.fetch([x])[0], gf.fetch(gf.asdevice(x))):
            assert values.tolist() == expected
        assert gf.fetch_async(x).result().tolist() == expected
        assert gf.fetch(gf.to_device(x)).tolist() == expected
        with pytest.raises(TypeError, match=r"resolve_(conj|neg)\(\)"):
            gf.share(x)
        with pytest.raises(ValueError, match="bit is set"):
            gf.convert(x, "numpy", copy=False)


def test_a_state_dict_keeps_names_order_and_values(torch: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.BatchNorm1d(20))
    state = model.state_dict()
    result: Any = gf.fetch(state)
    assert type(result) is type(state) and list(result) == list(state)
    for name, tensor in state.items():
        assert_same(result[name], tensor.numpy())
    optimiser = torch.optim.Adam(model.parameters())
    model(torch.ones(4, 30)).sum().backward()
    optimiser.step()
    saved: Any = gf.fetch(optimiser.state_dict())
    assert saved["param_groups"] == optimiser.state_dict()["param_groups"]
    for i, slots in optimiser.state_dict()["state"].items():
        assert_same(saved["state"][i]["exp_avg"], slots["exp_avg"].numpy())


def test_a_state_dict_goes_through_a_file_in_one_call(torch: Any, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(30, 20), torch.nn.BatchNorm1d(20)).bfloat16()
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.ones(4, 30, dtype=torch.bfloat16)).sum().backward()
    optimiser.step()
    float8 = torch.arange(-8, 8, dtype=torch.float32).to(torch.float8_e4m3fn)
    saved = {
        "model": {name: tensor.clone() for name, tensor in model.state_dict().items()},
        "optimiser": optimiser.state_dict(),
        "float8": float8,
        "parameter": torch.nn.Parameter(torch.ones(3, 2)),
    }
    for _ in range(2):
        gf.hdf5.write(tmp_path / "x.h5", "last", saved, overwrite=True)
    loaded: Any = gf.hdf5.read(tmp_path / "x.h5", "last", device="cpu")

    def as_torch(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {key: as_torch(value) for key, value in tree.items()}
        return gf.convert(tree, "torch") if isinstance(tree, np.ndarray) else tree

    loaded = as_torch(loaded)
    assert list(loaded["model"]) == list(saved["model"])
    assert loaded["optimiser"]["param_groups"] == saved["optimiser"]["param_groups"]
    assert list(loaded["optimiser"]["state"]) == list(saved["optimiser"]["state"])
    assert torch.equal(loaded["float8"].view(torch.uint8), float8.view(torch.uint8))
    assert torch.equal(loaded["parameter"], saved["parameter"])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    model.load_state_dict(loaded["model"])
    optimiser.load_state_dict(loaded["optimiser"])
    for name, tensor in saved["model"].items():
        assert torch.equal(model.state_dict()[name], tensor)
        assert torch.equal(loaded["model"][name], tensor)
    for index, slots in loaded["optimiser"]["state"].items():
        for name, tensor in slots.items():
            assert torch.equal(tensor, saved["optimiser"]["state"][index][name])


def test_a_reversed_array_does_not_crash_torch(torch: Any) -> None:
    """Torch ends the process when it is given a negative stride."""
    a = data((30, 40))
    with pytest.raises(ValueError, match="negative strides"):
        gf.convert(a[::-1], "torch", copy=False)
    with pytest.warns(gf.CopyWarning, match="negative strides"):
        x = gf.convert(a[::-1], "torch")
    assert_same(x.numpy(), np.array(a[::-1]))


def test_read_only_memory_is_not_given_to_torch(torch: Any) -> None:
    a = data((30,))
    a.flags.writeable = False
    with pytest.warns(gf.CopyWarning, match="read-only"):
        x = gf.convert(a, "torch")
    x[:] = 0
    assert (a != 0).any()


def test_convert_shares_memory_and_keeps_it_alive(torch: Any) -> None:
    a = data((40, 50))
    x = gf.convert(a[:, 1::2].T, "torch", copy=False)
    expected = np.array(a[:, 1::2].T)
    x[0, 0] = 7
    assert a[0, 1] == 7
    del a
    expected[0, 0] = 7
    assert_same(np.array(x.numpy(), order="C"), expected)
    back = gf.convert(x, "numpy", copy=False)
    back[1, 1] = 9
    assert x[1, 1] == 9


def test_convert_copies_when_asked_and_returns_torch_tensors_as_they_are(torch: Any) -> None:
    x = torch.from_numpy(data((30,)))
    assert gf.convert(x, "torch") is x
    copy = gf.convert(x, "torch", copy=True)
    assert copy.data_ptr() != x.data_ptr() and torch.equal(copy, x)


def test_the_host_backend_arrives_as_a_cpu_copy(torch: Any) -> None:
    a = data((30, 40))
    x = gf.to_device(a, device="host:0")
    with pytest.raises(ValueError, match="host backend"):
        gf.convert(x, "torch", copy=False)
    with pytest.warns(gf.CopyWarning, match="host backend"):
        t = gf.convert(x, "torch")
    assert t.device.type == "cpu"
    assert_same(t.numpy(), a)


def test_a_dtype_that_torch_has_not_is_refused_with_a_remedy(torch: Any) -> None:
    with pytest.raises(TypeError, match="view it as uint8"):
        gf.convert(float8((3,), "float8_e3m4"), "torch")


def test_to_device_like_a_cpu_tensor_gives_a_cpu_tensor(torch: Any) -> None:
    a = data((30,))
    x = gf.to_device(a, like=torch.zeros(1))
    assert isinstance(x, torch.Tensor) and x.data_ptr() != a.ctypes.data
    assert_same(x.numpy(), a)


def test_scalars_and_empty_tensors(torch: Any) -> None:
    for shape in ((), (0,), (0, 3), (3, 0, 2)):
        x = torch.zeros(shape, dtype=torch.float64)
        assert_same(gf.fetch(x), np.zeros(shape))
        assert gf.convert(np.ones(shape), "torch", copy=False).shape == shape


# --- On a GPU ---------------------------------------------------------------------------------


@on_gpu
@pytest.mark.parametrize("view", VIEWS)
def test_torch_views(torch: Any, view: str) -> None:
    x = VIEWS[view](torch.from_numpy(data((300, 200))).cuda())
    assert_same(gf.fetch(x), x.cpu().numpy())


@on_gpu
@pytest.mark.parametrize(
    "name",
    [
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    ],
)
def test_torch_dtypes(torch: Any, name: str) -> None:
    a = data((1000,)).astype(name) if name != "bool" else data((1000,)) > 0
    x = torch.from_numpy(a).cuda()
    assert_same(gf.fetch(x), x.cpu().numpy())


@on_gpu
def test_torch_bfloat16(torch: Any) -> None:
    x = torch.from_numpy(data((300, 7))).cuda().to(torch.bfloat16)
    expected = x.cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    assert_same(gf.fetch(x), expected)
    assert_same(gf.fetch(x.T), np.array(expected.T, order="C"))


@on_gpu
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_torch_float8(torch: Any, name: str) -> None:
    x = torch.from_numpy(data((999,))).cuda().to(getattr(torch, name))
    expected = x.view(torch.uint8).cpu().numpy().view(getattr(ml_dtypes, name))
    assert_same(gf.fetch(x), expected)


@on_gpu
def test_torch_large_and_odd_sizes(torch: Any) -> None:
    x = torch.arange((64 << 20) + 12345, device="cuda", dtype=torch.int32)
    assert_same(gf.fetch(x), x.cpu().numpy())
    assert_same(gf.fetch(x[1:]), x[1:].cpu().numpy())
    assert_same(gf.fetch(x[::2]), x[::2].cpu().numpy())


@on_gpu
def test_torch_pending_work_is_waited_for(torch: Any) -> None:
    a = torch.ones(4096, 4096, device="cuda")
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            x = torch.zeros(4096, 4096, device="cuda")
            for _ in range(20):
                x = (x + a @ a) / 2
            result = gf.fetch(x)
        torch.cuda.synchronize()
        assert_same(result, x.cpu().numpy())


@on_gpu
def test_torch_gradients_conj_and_neg(torch: Any) -> None:
    x = torch.from_numpy(data((50, 2))).cuda().requires_grad_()
    assert_same(gf.fetch(x), x.detach().cpu().numpy())
    assert_same(gf.fetch(torch.nn.Parameter(x.detach())), x.detach().cpu().numpy())
    z = torch.view_as_complex(x.detach().contiguous())
    assert_same(gf.fetch(z.conj()), z.conj().resolve_conj().cpu().numpy())
    negative = z.conj().imag
    assert negative.is_neg()
    assert_same(gf.fetch(negative), negative.resolve_neg().cpu().numpy())


@on_gpu
def test_torch_sparse_and_quantized_say_what_to_call(torch: Any) -> None:
    x = torch.eye(5, device="cuda")
    for sparse in (x.to_sparse(), x.to_sparse_csr()):
        with pytest.raises(TypeError, match=r"to_dense\(\)"):
            gf.fetch(sparse)
    with pytest.raises(TypeError, match="meta"):
        gf.fetch(torch.empty(3, device="meta"))


@on_gpu
def test_torch_on_the_cpu(torch: Any) -> None:
    x = torch.from_numpy(data((30, 20)))
    assert_same(gf.fetch(x.T), np.array(x.T.numpy(), order="C"))
    assert_same(gf.fetch(gf.to_device(x, device="cuda:0")), x.numpy())
    assert_same(gf.fetch(x.pin_memory()), x.numpy())


@on_gpu
def test_torch_on_another_device_than_the_current(torch: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU only")
    x = torch.from_numpy(data((300, 200))).to("cuda:1")
    assert torch.cuda.current_device() == 0
    assert_same(gf.fetch(x), x.cpu().numpy())
    assert gf.asdevice(x).device == "cuda:1"
    assert torch.cuda.current_device() == 0


@on_gpu
def test_torch_shares_a_device_array(torch: Any) -> None:
    a = data((40, 50))
    x = gf.to_device(a, device="cuda:0")
    t = torch.from_dlpack(x)
    assert t.data_ptr() == x.data_ptr
    assert_same(t.cpu().numpy(), a)
    t[3] = -1
    assert (gf.fetch(x)[3] == -1).all()
    view = torch.from_dlpack(x[:, 1::2].T)
    assert view.stride() == (2, 50)
    del x
    assert_same(view.cpu().numpy()[:, 0], a[0, 1::2])
    half = gf.to_device(a.astype(ml_dtypes.bfloat16), device="cuda:0")
    assert torch.from_dlpack(half).dtype == torch.bfloat16


@on_gpu
def test_torch_fetch_async_keeps_the_tensor(torch: Any) -> None:
    futures, expected = [], []
    for i in range(20):
        x = torch.full((1 << 20,), i, device="cuda", dtype=torch.int32)
        futures.append(gf.fetch_async(x))
        expected.append(i)
        del x  # torch may hand the memory out again only after the copy
    for future, value in zip(futures, expected, strict=True):
        assert (future.result() == value).all()
