"""What others save a tensor by, and load it: the peers of the case checkpoint.

Those that are not installed, or do not work here, are left out, and the row says so.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness import Array, Session, same_bits

H5PY = "h5py, of the copy on the CPU"
COLUMNS, TILE_ROWS = 1024, 4096  # as in programs/checkpoint.c
BUDGET_S = 20.0  # of a peer's saves and loads; it has one at least that counts


@dataclass
class Times:
    """Seconds of a peer: what the program waits for, until the file is written, and of a load."""

    stall: list[float] = field(default_factory=list)
    save: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Peer:
    """`save` begins a file and returns what waits for its end; `load` gives host memory."""

    name: str
    save: Callable[[Any, Path], Callable[[], object]]
    load: Callable[[Path], Any]


def state_of(nbytes: int) -> Array:
    """What the program's tensor has: waves, and noise that is 10⁵ times smaller."""
    rows = nbytes // (4 * COLUMNS)
    row = np.arange(TILE_ROWS, dtype=np.float32)[:, None] / TILE_ROWS
    column = np.arange(COLUMNS, dtype=np.float32)[None] / COLUMNS
    noise = np.random.default_rng(1).random((TILE_ROWS, COLUMNS), dtype=np.float32)
    tile = (np.sin(19 * row) * np.cos(13 * column) + 1e-5 * noise).astype(np.float32)
    whole = np.empty((rows, COLUMNS), np.float32)
    for first in range(0, rows, TILE_ROWS):
        whole[first : first + TILE_ROWS] = tile[: rows - first]
    return whole


def nothing() -> None:
    """All was done before."""


def device_of(session: Session) -> str:
    """Where the peers' tensors lie, as PyTorch calls it."""
    return "cuda:0" if session.backend == "cuda" else "cpu"


def h5py_peer(session: Session) -> Peer:
    h5py: Any = importlib.import_module("h5py")
    torch: Any = importlib.import_module("torch") if session.backend == "cuda" else None

    def save(tensor: Any, path: Path) -> Callable[[], object]:
        with h5py.File(path, "w") as file:
            file.create_dataset("u", data=tensor.cpu().numpy() if torch else np.asarray(tensor))
        return nothing

    def load(path: Path) -> Any:
        with h5py.File(path) as file:
            found = file["u"][...]
        return torch.from_numpy(found).to(device_of(session)) if torch else found

    return Peer(H5PY, save, load)


def torch_peer(session: Session) -> Peer:
    torch: Any = importlib.import_module("torch")
    device = device_of(session)

    def save(tensor: Any, path: Path) -> Callable[[], object]:
        torch.save({"u": tensor}, path)
        return nothing

    return Peer("torch.save", save, lambda path: torch.load(path, map_location=device)["u"])


def safetensors_peer(session: Session) -> Peer:
    library: Any = importlib.import_module("safetensors.torch")
    device = device_of(session)

    def save(tensor: Any, path: Path) -> Callable[[], object]:
        library.save_file({"u": tensor}, path)
        return nothing

    return Peer("safetensors", save, lambda path: library.load_file(path, device=device)["u"])


def pinned_stager() -> dict[str, Any]:
    """The argument that lets DCP stage through pinned memory, which it keeps for the next save."""
    staging: Any = importlib.import_module("torch.distributed.checkpoint.staging")
    if hasattr(staging, "DefaultStager"):
        options = staging.StagingOptions(
            use_pinned_memory=True, use_shared_memory=False, use_async_staging=False
        )
        stager = staging.DefaultStager(options)
        # PyTorch 2.11 closes both after a save, which ends their use.
        stager.close = stager._state_dict_stager.close = nothing
        return {"async_stager": stager}
    return {"async_stager": staging.BlockingAsyncStager(cache_staged_state_dict=True)}


def dcp_peer(session: Session) -> Peer:
    torch: Any = importlib.import_module("torch")
    dcp: Any = importlib.import_module("torch.distributed.checkpoint")
    distributed: Any = importlib.import_module("torch.distributed")
    if not distributed.is_initialized():
        store = distributed.HashStore()
        distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    # On the CPU there is nothing to pin: the stager of the host backend is DCP's own.
    stager = pinned_stager() if session.backend == "cuda" else {}
    like: list[Any] = []  # what was saved last

    def save(tensor: Any, path: Path) -> Callable[[], object]:
        like[:] = [tensor]
        begun = dcp.async_save({"u": tensor}, checkpoint_id=path, **stager)
        future = getattr(begun, "upload_completion", begun)

        def wait() -> object:
            return future.result()

        return wait

    def load(path: Path) -> Any:
        found = torch.empty_like(like[0])
        dcp.load({"u": found}, checkpoint_id=path)
        return found

    return Peer("PyTorch DCP, async_save", save, load)


MAKERS = {"h5py": h5py_peer, "torch.save": torch_peer, "safetensors": safetensors_peer}
MAKERS["PyTorch DCP"] = dcp_peer


def remove(path: Path) -> None:
    if path.is_dir():
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def on_device(session: Session, peer: str, state: Array) -> Any:
    """The state as the peer takes it, on the GPU where there is one."""
    if session.backend != "cuda" and peer == "h5py":
        return state
    torch: Any = importlib.import_module("torch")
    return torch.from_numpy(state).to(device_of(session))


def synchronize(session: Session) -> None:
    if session.backend == "cuda":
        importlib.import_module("torch").cuda.synchronize()


def as_array(found: Any) -> Array:
    array: Array = found if isinstance(found, np.ndarray) else found.cpu().numpy()
    return array


def time_peer(
    session: Session, peer: Peer, tensor: Any, state: Array, rounds: int, folder: Path
) -> Times:
    """A new file in each round, the first of which is not counted: it takes memory."""
    times = Times()
    path = folder / "peer"
    spent = 0.0
    try:
        for number in range(rounds + 1):
            remove(path)
            synchronize(session)
            begin = time.perf_counter()
            wait = peer.save(tensor, path)
            returned = time.perf_counter()
            wait()
            saved = time.perf_counter()
            found = peer.load(path)
            synchronize(session)
            loaded = time.perf_counter()
            if number == 0 and not same_bits(state, as_array(found)):
                raise ValueError("what was loaded is not what was saved")
            del found
            if number > 0:
                times.stall.append(returned - begin)
                times.save.append(saved - begin)
                times.load.append(loaded - saved)
            spent += loaded - begin
            if number > 0 and spent > BUDGET_S:
                break
    finally:
        remove(path)
    return times


def time_peers(
    session: Session,
    nbytes: int,
    rounds: int,
    makers: dict[str, Any] | None = None,
    folder: Path | None = None,
) -> tuple[dict[str, Times], list[str]]:
    """The times by the names of the peers, and those that are left out, with the reason.

    Files go to `folder`, or to the session's.
    """
    state = state_of(nbytes)
    found: dict[str, Times] = {}
    absent: list[str] = []
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    for name, make in (makers or MAKERS).items():
        try:
            peer = make(session)
            tensor = on_device(session, name, state)
            found[peer.name] = time_peer(
                session, peer, tensor, state, rounds, folder or session.scratch
            )
            del tensor
        except ImportError as error:
            absent.append(f"{name} ({error})")
        except Exception as error:  # a peer's failure of any kind must not end the run
            absent.append(f"{name} ({type(error).__name__}: {str(error).splitlines()[0][:120]})")
    return found, absent
