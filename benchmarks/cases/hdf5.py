"""Device → HDF5 file → NumPy and device, against h5py.

Both sides start from the same array in device memory and end with a closed file: a peer fetches
with cupy.asnumpy (on the host backend it has the NumPy array already) and writes with h5py. Files
go to and come from the page cache; nobody syncs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np

import gpufetch as gf
from cases import Case
from harness import GIGABYTES, Array, Contender, Framework, Row, Session, Timings, make_row, measure
from peers import raw_copy

LZF_CHUNK_SHAPE = (16, 128, 128)  # 1 MiB; h5py's own choice is smaller and slower
SMOOTH, NOISE = "a smooth field", "noise"
GPUFETCH, PLAIN_CHUNKS = "gpufetch", "gpufetch, codec none"
H5PY, H5PY_LZF, WRITE, READ = "h5py", "h5py, shuffle+lzf", "write(2)", "read(2)"


@dataclass(frozen=True)
class Data:
    """One array of the benchmark: in host memory, on the device, and its files by contender."""

    what: str
    array: Array
    on_device: Any
    peer_fetch: Callable[[], Array]
    folder: Path

    def path(self, contender: str) -> Path:
        return self.folder / f"{self.what}-{contender.replace(' ', '-')}.h5".replace(",", "")


def cases(session: Session) -> list[Case]:
    fields: list[tuple[str, Callable[[tuple[int, int, int]], Array]]]
    fields = [(SMOOTH, smooth), (NOISE, noise)]
    return [(f"hdf5, {what}", partial(hdf5, session, what, make)) for what, make in fields]


def smooth(shape: tuple[int, int, int]) -> Array:
    """Return three waves and noise 10⁵ times smaller, like a smooth field of a simulation."""
    x, y, z = (np.linspace(0, 2 * np.pi, n, dtype=np.float32) for n in shape)
    field = np.sin(3 * x)[:, None, None] * np.cos(2 * y)[:, None] * np.sin(5 * z)
    field += np.cos(x)[:, None, None] + np.float32(0.3) * np.sin(7 * y)[:, None]
    return field + np.float32(1e-5) * noise(shape)


def noise(shape: tuple[int, int, int]) -> Array:
    return np.random.default_rng(7).random(shape, dtype=np.float32)


def hdf5(session: Session, what: str, make: Callable[[tuple[int, int, int]], Array]) -> list[Row]:
    shape = (16, 256, 512) if session.quick else (256, 1024, 1024)
    array = make(shape)
    cupy = next((one for one in session.frameworks if one.name == "cupy"), None)
    if session.backend == "cuda" and cupy is not None:
        on_device = cupy.put(array)
        data = Data(what, array, on_device, lambda: cupy.get(on_device), session.scratch)
    else:
        on_device = gf.to_device(array, device=session.device)
        fetch = (lambda: gf.fetch(on_device)) if session.backend == "cuda" else (lambda: array)
        data = Data(what, array, on_device, fetch, session.scratch)
    rows = write_rows(session, data)
    rows += read_rows(session, data)
    if session.backend == "cuda" and cupy is not None and what == SMOOTH:
        rows += read_to_device_rows(session, data, cupy)
    for name in (GPUFETCH, PLAIN_CHUNKS, H5PY, H5PY_LZF, WRITE):
        data.path(name).unlink(missing_ok=True)
    return rows


# --- Writing ------------------------------------------------------------------


def write_gpufetch(data: Data, codec: Literal["gpufetch"] | None, path: Path) -> Path:
    with h5py.File(path, "w") as file:
        gf.hdf5.write(file, "x", data.on_device, codec=codec)
    return path


def write_h5py(data: Data, options: dict[str, Any], path: Path) -> Path:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=data.peer_fetch(), **options)
    return path


def write_raw(data: Data, raw: Any, source: Any, path: Path) -> Path:
    host = memoryview(raw.to_host(source))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        while host:
            host = host[os.write(descriptor, host[: 1 << 30]) :]
    finally:
        os.close(descriptor)
    return path


def written(path: Path) -> Array:
    with h5py.File(path, "r") as file:
        values: Array = file["x"][()]
    return values


def new_file(path: Path) -> Path:
    path.unlink(missing_ok=True)
    return path


def write_rows(session: Session, data: Data) -> list[Row]:
    raw = raw_copy(session.backend, data.array.nbytes)
    raw_source = raw.put(data.array)
    chunk = tuple(min(pair) for pair in zip(LZF_CHUNK_SHAPE, data.array.shape, strict=True))
    lzf = {"chunks": chunk, "shuffle": True, "compression": "lzf"}

    def contender(name: str, call: Callable[[Path], Path], **options: Any) -> Contender:
        return Contender(name, call, [data.path(name)], new_file, written, **options)

    def raw_bytes(path: Path) -> Array:
        return np.fromfile(path, np.float32).reshape(data.array.shape)

    contenders = [
        contender(H5PY, partial(write_h5py, data, {})),
        contender(H5PY_LZF, partial(write_h5py, data, lzf), warm_up=False),
        Contender(
            WRITE,
            partial(write_raw, data, raw, raw_source),
            [data.path(WRITE)],
            new_file,
            raw_bytes,
        ),
        Contender(
            raw.name,
            raw.to_host,
            [raw_source],
            answer=lambda host: host.view(np.float32).reshape(data.array.shape),
        ),
        contender(GPUFETCH, partial(write_gpufetch, data, "gpufetch")),
        contender(PLAIN_CHUNKS, partial(write_gpufetch, data, None)),
    ]
    timings = measure(contenders, [data.array], rounds=3, warm_up_rounds=1)
    return [
        hdf5_row(
            session, data, f"write {{}} from device to HDF5, {name}", timings, name, raw.name,
            [H5PY, H5PY_LZF, WRITE],
        )
        for name in (GPUFETCH, PLAIN_CHUNKS)
    ]  # fmt: skip


# --- Reading ------------------------------------------------------------------


def read_gpufetch(device: str, path: Path) -> Any:
    with h5py.File(path, "r") as file:
        return gf.hdf5.read(file["x"], device=device)


def read_raw(target: Array, path: Path) -> Array:
    view = target.data.cast("B")
    with open(path, "rb", buffering=0) as file:
        done = 0
        while done < len(view):
            count = file.readinto(view[done:])
            if not count:
                raise EOFError(path)
            done += count
    return target


def read_rows(session: Session, data: Data) -> list[Row]:
    """File → NumPy."""
    target: Array = np.ones(data.array.shape, np.float32)
    contenders = [
        Contender(H5PY, written, [data.path(H5PY)]),
        Contender(H5PY_LZF, written, [data.path(H5PY_LZF)], warm_up=False),
        Contender(READ, partial(read_raw, target), [data.path(WRITE)]),
        Contender(GPUFETCH, partial(read_gpufetch, "cpu"), [data.path(GPUFETCH)]),
        Contender(PLAIN_CHUNKS, partial(read_gpufetch, "cpu"), [data.path(PLAIN_CHUNKS)]),
    ]
    timings = measure(contenders, [data.array], rounds=3, warm_up_rounds=1, budget_s=4.0)
    return [
        hdf5_row(
            session, data, f"read {{}} from HDF5 to NumPy, {name}", timings, name, READ,
            [H5PY, H5PY_LZF],
        )
        for name in (GPUFETCH, PLAIN_CHUNKS)
    ]  # fmt: skip


def read_to_device_rows(session: Session, data: Data, peer: Framework) -> list[Row]:
    """File → device; the peer reads with h5py and puts the NumPy array on the device."""
    raw = raw_copy(session.backend, data.array.nbytes)
    raw_target = raw.put(np.zeros_like(data.array))
    np.copyto(raw.host.view(np.float32).reshape(data.array.shape), data.array)
    names = {H5PY: f"{H5PY}, {peer.name}", H5PY_LZF: f"{H5PY_LZF}, {peer.name}"}
    to_device = partial(read_gpufetch, session.device)
    contenders = [
        *(
            Contender(
                label,
                lambda path: peer.put(written(path)),
                [data.path(name)],
                answer=peer.get,
                warm_up=name != H5PY_LZF,
            )
            for name, label in names.items()
        ),
        Contender(
            raw.name,
            raw.to_device,
            [raw_target],
            answer=lambda target: raw.to_host(target).view(np.float32).reshape(data.array.shape),
        ),
        Contender(GPUFETCH, to_device, [data.path(GPUFETCH)], answer=gf.fetch),
        Contender(PLAIN_CHUNKS, to_device, [data.path(PLAIN_CHUNKS)], answer=gf.fetch),
    ]
    timings = measure(contenders, [data.array], rounds=3, warm_up_rounds=1, budget_s=4.0)
    return [
        hdf5_row(
            session, data, f"read {{}} from HDF5 to device, {name}", timings, name, raw.name,
            list(names.values()),
        )
        for name in (GPUFETCH, PLAIN_CHUNKS)
    ]  # fmt: skip


def hdf5_row(
    session: Session,
    data: Data,
    case: str,
    timings: Timings,
    gpufetch: str,
    limit: str | None,
    peers: list[str],
) -> Row:
    nbytes = data.array.nbytes
    size = f"{nbytes >> 30} GiB" if nbytes >= 1 << 30 else f"{nbytes >> 20} MiB"
    ratios = {
        name: round(nbytes / data.path(name).stat().st_size, 3)
        for name in (gpufetch, *peers)
        if data.path(name).exists() and name not in timings.failures
    }
    listed = ", ".join(f"{name} {ratio}" for name, ratio in ratios.items())
    return make_row(
        session,
        f"{case.format(f'{size} of float32 ({data.what})')}",
        timings,
        nbytes=nbytes,
        unit=GIGABYTES,
        gpufetch=gpufetch,
        limit=limit,
        peers=peers,
        ratio=ratios,
        note=f"Raw bytes over bytes of the file: {listed}.",
    )
