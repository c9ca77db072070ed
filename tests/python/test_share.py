"""Tensors between processes: the same memory, released in time, and nothing for a wrong handle."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import stat
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from server_build import needs_server

import gpufetch as gf
from gpufetch._remote.replies import ReplyError

SPAWN = multiprocessing.get_context("spawn")


def _describe(x: gf.DeviceArray) -> tuple[Any, ...]:
    return x.shape, x.strides, x.readonly, x.device


def _serve(pipe: Connection) -> None:
    """In another process: attach, fetch, drop, share and unshare as the test asks."""
    held: dict[int, Any] = {}
    while True:
        try:
            verb, *args = pipe.recv()
        except EOFError:
            return
        try:
            if verb == "attach":
                held[len(held)] = gf.attach(args[0])
                pipe.send(len(held) - 1)
            elif verb == "fetch":
                pipe.send(gf.fetch(held[args[0]]))
            elif verb == "describe":
                pipe.send(_describe(held[args[0]]))
            elif verb == "drop":
                del held[args[0]]
                pipe.send(None)
            elif verb == "pass_on":  # its sockets to a child, as a raw fork would
                sockets = [fd for fd in map(int, os.listdir("/proc/self/fd")) if _is_socket(fd)]
                child = subprocess.Popen(["sleep", "120"], pass_fds=sockets)
                pipe.send((child.pid, len(sockets)))
            elif verb == "share":
                held[-1] = gf.to_device(args[0], device=args[1])
                pipe.send(gf.share(held[-1]))
        except Exception as error:
            pipe.send(error)


def _is_socket(fd: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:  # that of the listing itself
        return False


class Peer:
    """A spawned process that answers `_serve`'s verbs."""

    def __init__(self) -> None:
        self.pipe, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def __call__(self, *request: Any) -> Any:
        self.pipe.send(request)
        answer = self.pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()


@pytest.fixture
def peer() -> Iterator[Peer]:
    other = Peer()
    yield other
    other.pipe.close()
    other.process.join()


def random_array(*shape: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def test_another_process_reads_the_tensor(device: str, peer: Peer) -> None:
    a = random_array(300, 40)
    with gf.share(gf.to_device(a, device=device)) as handle:
        peer("attach", handle)  # pickled
        peer("attach", str(handle))
        np.testing.assert_array_equal(peer("fetch", 0), a)
        np.testing.assert_array_equal(peer("fetch", 1), a)
        assert handle.importer_count == 2
        peer("drop", 0)
        peer("drop", 1)
    assert gf.unshare(handle, timeout=20) == 0


def test_a_strided_view_arrives_as_that_view(device: str, peer: Peer) -> None:
    a = random_array(20, 30, 40)
    view = gf.to_device(a, device=device)[3:, ::-2, 5:25].T
    handle = gf.share(view)
    index = peer("attach", handle)
    np.testing.assert_array_equal(peer("fetch", index), a[3:, ::-2, 5:25].T)
    assert peer("describe", index) == (view.shape, view.strides, False, device)
    peer("drop", index)
    assert gf.unshare(handle, timeout=20) == 0


def test_bfloat16_and_no_elements_arrive(device: str, peer: Peer) -> None:
    a = np.arange(7).astype(ml_dtypes.bfloat16)
    b = np.zeros((0, 5), np.int16)
    for array in (a, b):
        with gf.share(gf.to_device(array, device=device)) as handle:
            got = peer("fetch", peer("attach", handle))
        assert got.dtype == array.dtype and got.shape == array.shape
        np.testing.assert_array_equal(got.astype(np.float32), array.astype(np.float32))


def test_a_copy_outlives_nothing_of_the_original(device: str, peer: Peer) -> None:
    a = random_array(100)
    x = gf.to_device(a, device=device)
    gone = weakref.ref(x)
    handle = gf.share(x[::3], copy=True)
    del x
    gc.collect()
    assert gone() is None
    np.testing.assert_array_equal(peer("fetch", peer("attach", handle)), a[::3])
    gf.unshare(handle)


def test_the_tensor_lives_until_the_last_importer_lets_go(device: str, peer: Peer) -> None:
    a = random_array(1000)
    x = gf.to_device(a, device=device)
    released = threading.Event()
    weakref.finalize(x, released.set)
    handle = gf.share(x)
    del x
    peer("attach", handle)
    assert gf.unshare(handle) == 1
    gc.collect()
    assert not released.is_set()
    np.testing.assert_array_equal(peer("fetch", 0), a)
    peer("drop", 0)
    assert gf.unshare(handle, timeout=20) == 0
    assert released.wait(20)


@needs_server
def test_a_server_reads_no_memory_of_a_killed_exporter(device: str) -> None:
    other = Peer()
    a = random_array(30, 40)
    y = gf.attach(other("share", a, device))
    server = gf.serve("killed-exporter")
    try:
        server.publish("y", y)
        server.publish("view", y[::2, 3])
        connection = gf.connect("killed-exporter")
        np.testing.assert_array_equal(connection["y"].fetch(), a)
        np.testing.assert_array_equal(connection["view"].fetch(), a[::2, 3])
        other.kill()
        for read in (
            connection["y"].fetch,
            connection["view"].fetch,
            connection["y"].stats,
            lambda: gf.fetch(gf.asdevice(y)),
        ):
            with pytest.raises(
                (gf.Error, ReplyError), match=f"process {other.process.pid} is gone"
            ):
                read()
    finally:
        server.stop()


def test_a_killed_importer_lets_go(device: str) -> None:
    x = gf.to_device(random_array(1000), device=device)
    released = threading.Event()
    weakref.finalize(x, released.set)
    handle = gf.share(x)
    del x
    other = Peer()
    other("attach", handle)
    assert handle.importer_count == 1
    other.kill()
    assert gf.unshare(handle, timeout=20) == 0
    assert released.wait(20)


def test_fetch_from_a_dead_exporter_is_an_error(device: str) -> None:
    other = Peer()
    a = random_array(50)
    handle = other("share", a, device)
    x = gf.attach(handle)
    view = x[10:20]
    np.testing.assert_array_equal(gf.fetch(view), a[10:20])
    other.kill()
    for use in (gf.fetch, gf.fetch_async, np.asarray):
        with pytest.raises(gf.Error, match=f"process {other.process.pid} is gone"):
            use(view)
    with pytest.raises(gf.Error, match="is gone"):
        gf.attach(handle)


def test_a_dead_exporter_is_known_though_its_child_keeps_its_sockets(device: str) -> None:
    other = Peer()
    handle = other("share", random_array(50), device)
    x = gf.attach(handle)
    child, socket_count = other("pass_on")
    assert socket_count > 0
    try:
        other.kill()
        began = time.monotonic()
        for use, tensor in ((gf.fetch, x), (gf.attach, handle)):
            with pytest.raises(gf.Error, match=f"process {other.process.pid} is gone"):
                use(tensor)
        del x, tensor
        with pytest.raises(gf.Error, match=f"process {other.process.pid} is gone"):
            gf.attach(handle)  # by a connection of its own
        assert time.monotonic() - began < 5
    finally:
        os.kill(child, signal.SIGKILL)


def test_the_sharing_process_gets_a_view_of_the_original(device: str) -> None:
    x = gf.to_device(random_array(10), device=device)
    with gf.share(x) as handle:
        y = gf.attach(handle)
        assert y.data_ptr == x.data_ptr
        assert gf.unshare(handle) == 1
        del y
    assert gf.unshare(handle) == 0


def test_importers_write_to_the_same_memory(device: str, peer: Peer) -> None:
    a = random_array(64)
    x = gf.attach(peer("share", a, device))
    first, second = gf.fetch(x), gf.fetch(gf.attach(str(peer("share", a[::-1], device))))
    np.testing.assert_array_equal(first, a)
    np.testing.assert_array_equal(second, a[::-1])


def test_a_stale_handle_is_refused(device: str, peer: Peer) -> None:
    x = gf.to_device(random_array(10), device=device)
    old = gf.share(x)
    assert gf.unshare(old) == 0
    new = gf.share(x)
    for attach in (gf.attach, lambda handle: peer("attach", handle)):
        with pytest.raises(gf.Error, match="stale"):
            attach(old)
    with pytest.raises(gf.Error, match="ended"):
        _ = old.importer_count
    gf.unshare(new)


def test_altered_text_is_refused() -> None:
    handle = gf.share(gf.to_device(random_array(10), device="host:0"))
    text = str(handle)
    for i in range(len(text)):
        changed = text[:i] + ("A" if text[i] != "A" else "B") + text[i + 1 :]
        with pytest.raises(ValueError, match="share handle"):
            gf.attach(changed)
        with pytest.raises(ValueError, match="share handle"):
            gf.attach(text[:i])
    for wrong in ("", "caf\u00e9", text + "\x00", b"", bytes(handle) + b"x", b"x" * 9999):
        with pytest.raises(ValueError, match=r"share handle|null"):
            gf.attach(wrong)
    with pytest.raises(TypeError, match="int is no share handle"):
        gf.attach(5)  # type: ignore[arg-type]
    gf.unshare(handle)


def test_what_cannot_be_shared_is_refused() -> None:
    with pytest.raises(TypeError, match="to_device"):
        gf.share(np.zeros(3))
    with pytest.raises(TypeError, match="no tensor"):
        gf.share("text")


def test_attached_memory_is_not_shared_again_but_its_copy_is(device: str, peer: Peer) -> None:
    a = random_array(30)
    x = gf.attach(peer("share", a, device))
    with pytest.raises(TypeError, match="copy=True"):
        gf.share(x)
    with gf.share(x, copy=True) as handle:
        np.testing.assert_array_equal(gf.fetch(gf.attach(handle)), a)


def test_unshare_of_another_process_share_is_refused(device: str, peer: Peer) -> None:
    handle = peer("share", random_array(3), device)
    with pytest.raises(ValueError, match=f"process {peer.process.pid}"):
        gf.unshare(handle)
    with pytest.raises(ValueError, match="timeout"):
        gf.unshare(handle, timeout=-1)


def test_a_handle_says_what_it_names_and_survives_pickle(device: str) -> None:
    x = gf.to_device(random_array(3, 4), device=device)
    with gf.share(x) as handle:
        again = pickle.loads(pickle.dumps(handle))
        assert again == handle == gf.ShareHandle(str(handle)) == gf.ShareHandle(bytes(handle))
        assert hash(again) == hash(handle) and again != "x"
        assert (again.shape, again.dtype, again.nbytes, again.device, again.readonly) == (
            (3, 4),
            np.dtype(np.float32),
            48,
            device,
            False,
        )
        assert again.process_id == os.getpid()
        assert "shape=(3, 4)" in repr(again) and f"process_id={os.getpid()}" in repr(again)
        with pytest.raises(AttributeError, match="immutable"):
            again.shape = (1,)  # type: ignore[misc]


def test_the_interpreter_ends_while_sharing(device: str) -> None:
    """Shares with and without importers at exit: no crash, and importers are told."""
    code = (
        "import sys, numpy as np, gpufetch as gf\n"
        f"x = gf.to_device(np.arange(5), device={device!r})\n"
        "print(gf.share(x), flush=True)\n"
        "sys.stdin.readline()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    x = gf.attach(child.stdout.readline())
    np.testing.assert_array_equal(gf.fetch(x), np.arange(5))
    _, errors = child.communicate("\n")
    assert (child.returncode, errors) == (0, "")
    with pytest.raises(gf.Error, match="is gone"):
        gf.fetch(x)


def test_threads_attach_and_drop_at_once(device: str, peer: Peer) -> None:
    a = random_array(500)
    handle = peer("share", a, device)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                np.testing.assert_array_equal(gf.fetch(gf.attach(handle)), a)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# --- Frameworks' pools on a GPU ---------------------------------------------------------------

_cuda = gf.info()["backends"]["cuda"]
needs_gpu = pytest.mark.skipif(not _cuda["available"], reason=f"no GPU: {_cuda['reason']}")
quiet = pytest.mark.filterwarnings("ignore")  # frameworks warn of themselves


@pytest.fixture
def torch() -> Any:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch cannot use the GPU")
    return torch


@pytest.fixture
def cupy() -> Any:
    return pytest.importorskip("cupy", reason="CuPy is not installed")


@needs_gpu
@quiet
def test_suballocations_of_torchs_pool_are_not_mixed_up(torch: Any, peer: Peer) -> None:
    tensors = [torch.full((100 + i, 7), float(i), device="cuda") for i in range(20)]
    handles = [gf.share(x) for x in tensors]
    for i, handle in enumerate(handles):
        np.testing.assert_array_equal(
            peer("fetch", peer("attach", handle)), np.full((100 + i, 7), float(i), np.float32)
        )
    assert sum(gf.unshare(handle) for handle in handles) == 20


@needs_gpu
@quiet
def test_share_waits_for_torchs_pending_work(torch: Any, peer: Peer) -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.zeros(1 << 22, device="cuda")
        torch.cuda._sleep(200_000_000)
        x += 3
        handle = gf.share(x)
    assert (peer("fetch", peer("attach", handle)) == 3).all()
    gf.unshare(handle)


@needs_gpu
@quiet
def test_suballocations_of_cupys_pool_are_not_mixed_up(cupy: Any, peer: Peer) -> None:
    arrays = [cupy.arange(i, 300 + i, dtype=cupy.int16)[::-2] for i in range(20)]
    handles = [gf.share(x) for x in arrays]
    for x, handle in zip(arrays, handles, strict=True):
        np.testing.assert_array_equal(peer("fetch", peer("attach", handle)), cupy.asnumpy(x))
    assert sum(gf.unshare(handle) for handle in handles) == 20


@needs_gpu
@quiet
@pytest.mark.parametrize("kind", ["managed", "async"])
def test_cupys_other_memory_is_refused_and_its_copy_shared(
    cupy: Any, peer: Peer, kind: str
) -> None:
    allocator = {
        "managed": cupy.cuda.malloc_managed,
        "async": cupy.cuda.malloc_async,
    }[kind]
    with cupy.cuda.using_allocator(allocator):
        x = cupy.arange(1000, dtype=cupy.float32)
    with pytest.raises(TypeError, match="copy=True"):
        gf.share(x)
    with gf.share(x, copy=True) as handle:
        np.testing.assert_array_equal(
            peer("fetch", peer("attach", handle)), np.arange(1000, dtype=np.float32)
        )
