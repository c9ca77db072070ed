"""Producers whose own code runs while they are imported, and names that messages must cut.

Nothing is freed under the import, no reference count goes wrong, and every message is text.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comm_build import needs_comm

import gpufetch as gf
from gpufetch import _core


def run_alone(code: str, **environment: str | bytes) -> str:
    """Run a program that may crash in a process of its own, and return what it prints."""
    encoded = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        env={**os.environb, **encoded},
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- The type of a producer -------------------------------------------------------------------


class Looked(type):
    """A metaclass that runs code when an attribute is looked up that the class lacks."""

    action: Any = None

    def __getattr__(cls, name: str) -> Any:
        action = Looked.action
        if action is not None:
            action(name)
        raise AttributeError(name)


def producer_type(name: str, meta: Any = type) -> Any:
    values = np.arange(4.0)
    return meta(
        name,
        (),
        {
            "__dlpack__": lambda self, **_: values.__dlpack__(),
            "__dlpack_device__": lambda self: (1, 0),
        },
    )


LAST = producer_type("Last")


def counts_of(types: list[Any]) -> list[int]:
    """The references to each type, while the module remembers another one."""
    gf.fetch(LAST())
    return [sys.getrefcount(kind) for kind in types]


def test_an_import_within_the_look_at_a_type_takes_no_reference_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before_it, within, outer = producer_type("A"), producer_type("B"), producer_type("C", Looked)
    types = [before_it, within, outer]
    spare = types * 100  # a count that goes wrong is seen, and nothing is freed

    def fetch_within(name: str) -> None:
        if name == "resolve_conj":
            Looked.action = None
            gf.fetch(within())

    monkeypatch.setattr(Looked, "action", None)
    counts = counts_of(types)
    for _ in range(20):
        gf.fetch(before_it())
        Looked.action = fetch_within
        assert gf.fetch(outer()).tolist() == [0, 1, 2, 3]
        assert Looked.action is None
    assert counts_of(types) == counts
    del spare


def test_threads_that_look_at_types_at_once_keep_the_counts_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = producer_type("First")
    types = [producer_type(f"T{i}", Looked) for i in range(3)]
    spare = [first, *types] * 100
    looking = threading.Barrier(3)

    def wait_for_the_others(name: str) -> None:
        if name == "resolve_conj":
            looking.wait(60)

    counts = counts_of([first, *types])
    monkeypatch.setattr(Looked, "action", wait_for_the_others)
    with ThreadPoolExecutor(3) as pool:
        for _ in range(20):
            gf.fetch(first())
            for values in pool.map(gf.fetch, [kind() for kind in types]):
                assert values.tolist() == [0, 1, 2, 3]
    assert counts_of([first, *types]) == counts
    del spare


# --- The CUDA Array Interface -----------------------------------------------------------------

FREED = """
import numpy as np
import gpufetch as gf
memory = gf.to_device(np.zeros(64, np.float32), device="host:0")
class Index:
    def __init__(self, owner, value):
        self.owner, self.value = owner, value
    def __index__(self):
        self.owner.clear()
        self.junk = [b"A" * (289 + k) for k in range(-24, 24) for _ in range(50)]
        return self.value
class Producer:
    def __init__(self, **changes):
        self.changes = changes
    @property
    def __cuda_array_interface__(self):
        entries = {"typestr": "<f4", "data": (memory.data_ptr, False), "version": 3}
        for name, count in self.changes.items():
            entries[name] = tuple([Index(entries, 1)] + [0] * (count - 1))
        return entries
for _ in range(50):
    assert gf.asdevice(Producer(shape=30)).shape == (1, *[0] * 29)
    x = gf.asdevice(Producer(shape=30, strides=30))
    assert x.shape == x.strides == (1, *[0] * 29)
print("survived")
"""


def test_what_the_interface_gave_lives_until_it_is_parsed() -> None:
    assert run_alone(FREED).split() == ["survived"]


# --- Arrays -----------------------------------------------------------------------------------

RESHAPED = """
import numpy as np
import gpufetch as gf
class Array(np.ndarray):
    def __getattr__(self, name):
        if name == "_mask":
            self.shape = (self.size,)
            self.dtype = np.int32
            gf.junk = [np.zeros((1,) * 30) for _ in range(100)]
        raise AttributeError(name)
for ndim in (2, 5, 30):
    for _ in range(20):
        a = np.arange(1 << min(ndim, 10), dtype=np.float32).view(np.int32)
        a = a.view(np.float32).reshape((2,) * min(ndim, 10) + (1,) * (ndim - min(ndim, 10)))
        result = gf.fetch(a.view(Array))
        assert result.shape == (a.size,) and result.dtype == np.int32, result.shape
        assert result.tobytes() == a.tobytes()
print("survived")
"""


def test_a_subclass_that_changes_itself_when_looked_at_is_read_as_it_is_then() -> None:
    assert run_alone(RESHAPED).split() == ["survived"]


# --- Trees ------------------------------------------------------------------------------------

SEEN_BY_GC = """
import gc
import numpy as np
import gpufetch as gf
class Key:
    def __hash__(self):
        for found in gc.get_objects():
            if type(found) in (list, tuple) and len(found) == 77:
                type(found)(reversed(found))
        return 1
gc.disable()
leaves = [np.zeros(2)] * 76
for tree in ([{Key(): np.ones(3)}, *leaves], ({Key(): np.ones(3)}, *leaves)):
    result = gf.fetch(tree)
    assert type(result) is type(tree) and len(result) == 77
print("survived")
"""


def test_a_container_is_never_seen_with_empty_places() -> None:
    assert run_alone(SEEN_BY_GC).split() == ["survived"]


def test_a_mapping_whose_items_change_meanwhile_is_read_as_it_was() -> None:
    class Tensor:
        def __dlpack_device__(self) -> tuple[int, int]:
            pairs.clear()
            tree.clear()
            return (1, 0)

        def __dlpack__(self, **_: Any) -> Any:
            return np.arange(3).__dlpack__()

    class Mapping(dict[str, Any]):
        def items(self) -> Any:
            return pairs

    for kind in (dict, Mapping):
        pairs: list[Any] = [(str(i), Tensor()) for i in range(10)]
        tree = kind(pairs)
        result = gf.fetch(tree)
        assert list(result) == [str(i) for i in range(10)]
        assert all(values.tolist() == [0, 1, 2] for values in result.values())


# --- Text -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["x", "é", "€", "🚀"])
def test_a_long_name_in_a_message_is_cut_behind_a_character(tmp_path: Path, ending: str) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "names.h5", "w") as file:
        for offset in range(4):
            name = "a" * offset + ending * 300
            dataset = file.create_dataset(name, data=np.zeros(4))
            with pytest.raises(ValueError, match="shape") as caught:
                gf.hdf5.read(dataset, out=np.zeros(5))
            assert not isinstance(caught.value, UnicodeError)
            shown = str(caught.value).split("'")[1]
            assert f"/{name}".startswith(shown) and len(shown.encode()) > 250
            texts = file.create_dataset(f"text{name}", data=np.array([b"x"]))
            assert gf.hdf5.read(texts, device="cpu").tolist() == [b"x"]


ENVIRONMENT = """
import sys
import gpufetch as gf, numpy as np
sys.stdout.reconfigure(encoding="utf-8")
try:
    gf.to_device(np.zeros(3))
except ValueError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("é" * 99, '"' + "é" * 50 + '"'),
        ("a" + "é" * 99, '"a' + "é" * 49),
        (b"gr\xfcn", '"gr?n"'),
        (b"\xff\xfe", '"??"'),
    ],
)
def test_a_message_about_the_environment_is_text(value: str | bytes, shown: str) -> None:
    printed = run_alone(ENVIRONMENT, GPUFETCH_BACKEND=value)
    assert printed.startswith("ValueError GPUFETCH_BACKEND is ")
    assert shown in printed


@pytest.mark.parametrize("name", ["POOL_MAX", "SCRATCH_MAX", "DEVICE_KEEP_MAX"])
@pytest.mark.parametrize("value", ["8G", "-1", "1e9", "0x10", str(2**63), " "])
def test_a_size_that_is_no_number_of_bytes_is_refused_by_name(name: str, value: str) -> None:
    variable = f"GPUFETCH_{name}_NBYTES"
    expected = (
        f'ValueError {variable} is "{value}"; it must be a number of bytes, such as 1073741824'
    )
    assert run_alone(ENVIRONMENT, **{variable: value}).strip() == expected


@needs_comm
def test_a_list_of_tensors_that_changes_while_it_is_read_is_listed_as_it_was() -> None:
    class Tensor:
        def __dlpack_device__(self) -> tuple[int, int]:
            listed.clear()
            return (1, 0)

        def __dlpack__(self, **_: Any) -> Any:
            return np.arange(3).__dlpack__()

    listed: list[Any] = [(f"x{i}", "test", Tensor(), None) for i in range(10)]
    dispatcher = _core.dispatcher_create(lambda name: (None, ""), lambda: listed, lambda text: None)
    client, _ = _core.client_open(dispatcher, b"{}")
    reply = _core.dispatcher_message(dispatcher, client, b'{"id": 1, "op": "list"}', 0)
    assert reply is not None
    names = [tensor["name"] for tensor in json.loads(reply[0])["tensors"]]
    assert names == [f"x{i}" for i in range(10)]


@needs_comm
def test_an_exception_with_a_long_text_is_told_whole_characters() -> None:
    def find(name: str) -> Any:
        raise LookupError("€" * 1000)

    dispatcher = _core.dispatcher_create(find, list, lambda text: None)
    client, _ = _core.client_open(dispatcher, b"{}")
    request = json.dumps({"id": 1, "op": "stats", "name": "x"}).encode()
    reply = _core.dispatcher_message(dispatcher, client, request, 0)
    assert reply is not None
    message = json.loads(reply[0])["error"]["message"]
    assert message.count("€") > 100 and "?" not in message
