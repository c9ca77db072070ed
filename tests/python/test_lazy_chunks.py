"""LazyArray box by box: what the boxes are, and how little memory they take."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import h5py
import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from arrays import pool_used_nbytes
from pulling import ReplaceableTensor
from sanitizing import fewer

import gpufetch as gf


@hypothesis.given(
    shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9),
    nbytes=st.integers(4, 2000),
)
@hypothesis.settings(max_examples=fewer(150), deadline=None)
def test_the_chunks_cover_the_array_once(shape: tuple[int, ...], nbytes: int) -> None:
    x = np.random.default_rng(1).integers(0, 1 << 30, shape, np.int32)
    seen = np.zeros(shape, int)
    out = np.empty_like(x)
    for key, values in gf.lazy(gf.to_device(x)).iter_chunks(nbytes):
        assert 0 < values.nbytes <= nbytes
        assert values.shape == x[key].shape
        seen[key] += 1
        out[key] = values
    assert np.all(seen == 1)
    assert np.array_equal(out, x)


def test_chunks_fill_a_dataset(device: str, tmp_path: Path) -> None:
    x = np.random.default_rng(2).normal(size=(7, 11, 13))
    view = gf.lazy(gf.to_device(x, device=device)).T[::2]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", view.shape, view.dtype)
        for key, values in view.iter_chunks(1000):
            dataset[key] = values
        assert np.array_equal(dataset[:], x.T[::2])


def test_a_chunk_without_room_for_an_element_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="7 bytes cannot hold an element of 8"):
        gf.lazy(gf.to_device(np.zeros(3))).iter_chunks(7)
    with pytest.raises(TypeError):
        gf.lazy(gf.to_device(np.zeros(3))).iter_chunks(2.5)  # type: ignore[arg-type]


def test_a_consumer_that_stops_early_leaves_no_memory_in_use() -> None:
    before = pool_used_nbytes()
    chunks = gf.lazy(gf.to_device(np.zeros((64, 1024)))).iter_chunks(1 << 16)
    next(chunks)
    del chunks
    assert gf.pool.stats()["used_nbytes"] == before


def test_a_tensor_that_changes_its_shape_halfway_is_refused() -> None:
    tensor = ReplaceableTensor(np.zeros(8))
    chunks = gf.lazy(tensor).iter_chunks(8)
    next(chunks)
    tensor.replace(np.zeros(9))
    with pytest.raises(RuntimeError, match="new LazyArray"):
        list(chunks)


def test_iteration_over_one_axis_does_not_pull_element_by_element() -> None:
    x = np.arange(100_000, dtype=np.int16)
    values = list(gf.lazy(gf.to_device(x)))
    assert type(values[0]) is np.int16
    assert values == x.tolist()


# --- The progress bar ---


class Bar:
    """Stands for tqdm: remembers what it was told."""

    made: list[Bar]

    def __init__(self, **options: Any) -> None:
        self.options, self.updates, self.closed = options, [], False
        self.made.append(self)

    def update(self, count: int) -> None:
        self.updates.append(count)

    def close(self) -> None:
        self.closed = True


def fake_tqdm(patch: pytest.MonkeyPatch, auto: Any) -> type[Bar]:
    """Put a tqdm in sys.modules: `auto` is what tqdm.auto.tqdm is, Bar what tqdm.std.tqdm is."""
    kind = type("Bar", (Bar,), {"made": []})
    package = types.ModuleType("tqdm")
    modules = {"std": kind, "auto": auto if auto is not None else kind}
    patch.setitem(sys.modules, "tqdm", package)
    for name, tqdm in modules.items():
        module = types.ModuleType(f"tqdm.{name}")
        module.tqdm = tqdm  # type: ignore[attr-defined]
        setattr(package, name, module)
        patch.setitem(sys.modules, f"tqdm.{name}", module)
    return kind


def without_widgets(**options: Any) -> Any:
    raise ImportError("IProgress not found")


@pytest.mark.parametrize("auto", [None, without_widgets])
def test_the_bar_counts_bytes(monkeypatch: pytest.MonkeyPatch, auto: Any) -> None:
    kind = fake_tqdm(monkeypatch, auto)
    for _ in gf.lazy(gf.to_device(np.zeros(5))).iter_chunks(16, progress=True):
        pass
    (bar,) = kind.made
    assert bar.options["total"] == 40
    assert (bar.updates, bar.closed) == ([16, 16, 8], True)


def test_the_bar_is_closed_when_the_consumer_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = fake_tqdm(monkeypatch, None)
    for _ in gf.lazy(gf.to_device(np.zeros(5))).iter_chunks(16, progress=True):
        break
    assert kind.made[0].closed


def test_progress_without_tqdm_goes_without_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    chunks = gf.lazy(gf.to_device(np.zeros(5))).iter_chunks(16, progress=True)
    assert [values.size for _, values in chunks] == [2, 2, 1]


def test_tqdm_itself_shows_the_progress(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    for _ in gf.lazy(gf.to_device(np.zeros(5))).iter_chunks(16, progress=True):
        pass
    text = "".join(capsys.readouterr())
    assert "100%" in text and "40.0" in text


# --- Tensors larger than the host's memory ---

# Streams a tensor of 24 GiB. On the host backend it is one row of device memory seen as equal rows
# (stride 0), and the address space may grow by 8 GiB only; a GPU that has enough memory holds all
# of it. Prints the bytes that were pulled and the growth of the resident memory.
STREAM = r"""
import resource, sys
import numpy as np
import gpufetch as gf
from gpufetch import _core

def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))

device = sys.argv[1]
rows, columns = 24 << 10, 1 << 18
row = np.random.default_rng(4).integers(0, 1 << 30, columns, np.int32)
if device.startswith("cuda"):
    import torch
    d_x = torch.empty((rows, columns), dtype=torch.int32, device=device)
    d_x[:] = torch.from_numpy(row).to(device)
    d_x += torch.arange(rows, dtype=torch.int32, device=device)[:, None]
    torch.cuda.synchronize()
    slope = 1
else:
    d_x = _core._restride(gf.to_device(row, device=device), (rows, columns), (0, 4))
    slope = 0
a = gf.lazy(d_x)
assert a.nbytes == 24 << 30
gf.fetch(a[:1])  # the first transfer allocates what is not part of the stream
if slope == 0:
    # Threads reserve address space that they never touch: 64 MiB each for malloc alone.
    limit = status("VmSize") + (8 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
before = peak = status("VmRSS")
nbytes = 0
for key, values in a.iter_chunks():
    numbers = np.arange(key[0].start, key[0].stop, dtype=np.int32)[:, None]
    assert np.array_equal(values[:, ::4099], row[::4099] + slope * numbers)
    assert np.array_equal(values[-1], row + slope * numbers[-1])
    nbytes += values.nbytes
    peak = max(peak, status("VmRSS"))
print(nbytes, peak - before)
if slope == 0:
    try:
        a.fetch()
    except MemoryError:
        sys.exit(0)
    sys.exit("24 GiB fitted into the address space: the limit has no effect")
"""


def test_24_gib_stream_through_less_than_1_gib(device: str) -> None:
    if device.startswith("cuda"):
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("torch without CUDA")
        free, _ = torch.cuda.mem_get_info(device)
        if free < 26 << 30:
            pytest.skip(f"{device} has {free >> 30} GiB free, 26 are needed")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", STREAM, device],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    nbytes, growth = map(int, done.stdout.split())
    assert nbytes == 24 << 30
    assert growth < 1 << 30
