"""JAX: what fetch gives is what JAX itself gives; hand-over in both directions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from arrays import assert_same
from framework_data import VIEWS, data

import gpufetch as gf

# Frameworks warn of themselves, of small launches and of each other; that is not tested here.
pytestmark = pytest.mark.filterwarnings("ignore")
on_gpu = pytest.mark.usefixtures("jax_gpu")


# --- On the CPU -------------------------------------------------------------------------------


@pytest.fixture
def x64(jax: Any) -> Any:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def test_an_immutable_array_is_not_filled(cpu_jnp: Any, tmp_path: Path) -> None:
    x = cpu_jnp.ones(5)
    with gf.Checkpoint(tmp_path, "run") as checkpoint:
        checkpoint.save(1, {"x": np.zeros(5, np.float32)})
        checkpoint.wait()
        for out in (x, gf.Part(x, start=(0,), global_shape=(5,))):
            with pytest.raises(TypeError, match="is immutable"):
                checkpoint.load(out={"x": out})
    path = tmp_path / "x.h5"
    gf.hdf5.save(path, {"x": np.zeros(5, np.float32)})
    with pytest.raises(TypeError, match="is immutable"):
        gf.hdf5.load(path, out={"x": x})
    for selection in (None, np.s_[::-1]):
        with pytest.raises(TypeError, match="is immutable"):
            gf.hdf5.read(path, "x", selection=selection, out=x)
    assert np.asarray(x).tolist() == [1] * 5


@pytest.mark.parametrize("view", VIEWS)
def test_jax_views_on_the_cpu(cpu_jnp: Any, view: str) -> None:
    x = VIEWS[view](cpu_jnp.asarray(data((300, 200))))
    assert_same(gf.fetch(x), np.asarray(x))


@pytest.mark.parametrize(
    "name",
    [
        *("bool", "int8", "uint32", "float16", "bfloat16", "complex64"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e3m4", "float8_e8m0fnu"),
    ],
)
def test_jax_dtypes_on_the_cpu(cpu_jnp: Any, name: str) -> None:
    x = cpu_jnp.asarray(abs(data((500,)))).astype(name)
    assert_same(gf.fetch(x), np.asarray(x))


def test_jax_int4_is_refused(cpu_jnp: Any) -> None:
    with pytest.raises(TypeError, match=r"smaller than a byte.*astype\('int8'\)"):
        gf.fetch(cpu_jnp.zeros(4, cpu_jnp.int4))


def test_jax_keys_say_what_has_their_bits(jax: Any) -> None:
    with pytest.raises(TypeError, match=r"jax\.random\.key_data\(x\)"):
        gf.fetch(jax.random.key(0))
    with pytest.raises(TypeError, match="is no tensor"):
        gf.fetch(jax.ShapeDtypeStruct((3,), np.float32))


FUNCTIONS = [
    gf.fetch,
    gf.fetch_async,
    gf.asdevice,
    gf.lazy,
    gf.to_device,
    gf.stats,
    lambda x: gf.convert(x, "numpy"),
    lambda x: gf.fetch({"a": [x]}),
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_deleted_jax_array_says_what_to_do(jax: Any, cpu_jnp: Any, function: Any) -> None:
    deleted, donated = cpu_jnp.arange(4.0), cpu_jnp.arange(4.0)
    deleted.delete()
    jax.jit(lambda v: v + 1, donate_argnums=0)(donated)
    for x in (deleted, donated):
        with pytest.raises(TypeError, match=r"was deleted.*use that function's result"):
            function(x)


@pytest.mark.parametrize("transform", ["jit", "grad", "vmap", "eval_shape"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_traced_jax_array_says_where_to_fetch(
    jax: Any, cpu_jnp: Any, transform: str, function: Any
) -> None:
    seen = []

    def traced(v: Any) -> Any:
        with pytest.raises(TypeError, match=r"traced.*jax\.pure_callback"):
            function(v)
        seen.append(v)
        return v.sum()

    x = cpu_jnp.ones(3)
    if transform == "eval_shape":
        jax.eval_shape(traced, x)
    else:
        getattr(jax, transform)(traced)(x)
    assert seen


def test_inside_of_jit_a_callback_can_fetch(jax: Any, cpu_jnp: Any) -> None:
    fetched = []
    jax.jit(lambda v: (jax.debug.callback(lambda w: fetched.append(gf.fetch(w)), v), v)[1])(
        cpu_jnp.arange(3.0)
    )
    jax.effects_barrier()
    assert_same(fetched[0], np.arange(3, dtype=np.float32))


SHARDED = """
import jax, jax.numpy as jnp, numpy as np
import gpufetch as gf
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
for spec in (P("a"), P()):
    x = jax.device_put(jnp.arange(8.0), NamedSharding(Mesh(jax.devices(), "a"), spec))
    try:
        gf.fetch(x)
    except TypeError as error:
        assert "sharded" in str(error) and "addressable_shards" in str(error), error
    else:
        raise AssertionError
    parts = [gf.fetch(shard.data) for shard in x.addressable_shards]
    assert sum(part.size for part in parts) == (8 if spec == P("a") else 16)
    assert gf.fetch(jax.device_put(x, jax.devices()[0])).tolist() == list(range(8))
print("told")
"""


def test_a_sharded_jax_array_says_how_to_gather_it(jax: Any) -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", SHARDED],
        env={**os.environ, **flags},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["told"]


def test_a_tree_of_jax_arrays(cpu_jnp: Any) -> None:
    tree = {
        "w": cpu_jnp.asarray(data((30, 20))),
        "b": [cpu_jnp.float32(2), cpu_jnp.zeros((0, 3))],
        "step": 7,
    }
    result: Any = gf.fetch(tree)
    assert_same(result["w"], data((30, 20)))
    assert_same(result["b"][0], np.array(2, np.float32))
    assert_same(result["b"][1], np.zeros((0, 3), np.float32))
    assert result["step"] == 7


def test_jax_takes_aligned_memory_without_a_copy(jax: Any) -> None:
    x = gf.fetch(data((64, 32)))  # gpufetch's buffers are aligned to 64 bytes
    shared = gf.convert(x, "jax", copy=False)
    assert isinstance(shared, jax.Array)
    assert shared.unsafe_buffer_pointer() == x.ctypes.data
    assert_same(np.asarray(shared), x)


def test_jax_copies_of_its_own_are_told(jax: Any) -> None:
    block = np.empty(1001, np.float32)
    odd = block[1:] if block.ctypes.data % 64 == 0 else block[:1000]
    odd[:] = data((1000,))
    if odd.ctypes.data % 16 == 0:
        odd = odd[1:]
    with pytest.warns(gf.CopyWarning, match="aligned"):
        x = gf.convert(odd, "jax")
    assert_same(np.asarray(x), np.array(odd))


def test_jax_would_narrow_64_bits(jax: Any) -> None:
    for a in (np.zeros(3), np.zeros(3, np.int64), np.zeros(3, np.complex128)):
        with pytest.raises(TypeError, match="jax_enable_x64"):
            gf.convert(a, "jax")


def test_jax_takes_64_bits_where_they_are_enabled(jax: Any, x64: None) -> None:
    a = gf.fetch(data((100,), np.float64))
    x = gf.convert(a, "jax", copy=False)
    assert x.dtype == np.float64
    assert_same(np.asarray(x), a)


def test_read_only_and_strided_memory_is_copied_for_jax(jax: Any) -> None:
    a = data((30, 40))
    a.flags.writeable = False
    with pytest.warns(gf.CopyWarning, match="read-only"):
        assert_same(np.asarray(gf.convert(a, "jax")), a)
    with pytest.warns(gf.CopyWarning, match="C-contiguous"):
        x = gf.convert(data((30, 40)).T, "jax")
    assert_same(np.array(x), np.array(data((30, 40)).T))


def test_jax_to_numpy_shares(cpu_jnp: Any) -> None:
    x = cpu_jnp.asarray(data((30, 40)))
    shared = gf.convert(x, "numpy", copy=False)
    assert shared.ctypes.data == x.unsafe_buffer_pointer()
    assert_same(shared, data((30, 40)))


def test_bfloat16_from_jax_to_torch(cpu_jnp: Any, torch: Any) -> None:
    x = cpu_jnp.asarray(data((300,))).astype("bfloat16")
    t = gf.convert(x, "torch", copy=False)
    assert t.dtype == torch.bfloat16 and t.data_ptr() == x.unsafe_buffer_pointer()
    assert_same(gf.fetch(t), data((300,)).astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float8_e5m2", "int8", "bool_"])
def test_jax_dtypes_are_dtypes(jnp: Any, name: str) -> None:
    a = np.arange(6, dtype="f4")
    expected = jnp.dtype(getattr(jnp, name))
    assert gf.fetch(a, dtype=getattr(jnp, name)).dtype == expected
    assert gf.to_device(a, device="host:0", dtype=getattr(jnp, name)).dtype == expected


# --- On a GPU ---------------------------------------------------------------------------------


@on_gpu
@pytest.mark.parametrize("view", VIEWS)
def test_jax_arrays(jnp: Any, view: str) -> None:
    x = VIEWS[view](jnp.asarray(data((300, 200))))
    assert_same(gf.fetch(x), np.asarray(x))


@on_gpu
@pytest.mark.parametrize("name", ["bool", "int8", "uint32", "float16", "bfloat16", "complex64"])
def test_jax_dtypes(jnp: Any, name: str) -> None:
    x = jnp.asarray(data((500,))).astype(name)
    assert_same(gf.fetch(x), np.asarray(x))


@on_gpu
def test_jax_pending_work_is_waited_for(jnp: Any) -> None:
    x = jnp.ones((2048, 2048), jnp.float32)
    for _ in range(20):
        x = x @ x / 2048
    assert_same(gf.fetch(x), np.asarray(x))
