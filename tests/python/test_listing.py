"""What `%gpufetch` lists: where it looks, which memory it counts, and who keeps memory alive."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from server_build import needs_server

pytest.importorskip("IPython")


import gpufetch as gf
from gpufetch import _core
from gpufetch._address_ranges import AddressRange, nbytes_of, outside, union
from gpufetch.jupyter import inventory as inventory_module
from gpufetch.jupyter import walk as walk_module
from gpufetch.jupyter.inventory import inventory
from gpufetch.jupyter.kept import Holder, Kept
from gpufetch.jupyter.listing import TensorListing
from gpufetch.jupyter.walk import walk

KIB = 1024


def tensor(nbytes: int = KIB) -> gf.DeviceArray:
    return gf.to_device(np.zeros(nbytes, np.uint8))


def names(**variables: Any) -> list[str]:
    return [found.name for found in walk(variables.items()).tensors]


# --- Where it looks ---


def test_tensors_in_containers_are_named_by_the_expression_that_reaches_them() -> None:
    x = tensor()
    variables = {"state": {"w": x, 3: [x, (x,)]}, "pair": (1, x)}
    found = walk(variables.items()).tensors
    assert [one.name for one in found] == ["state['w']", "state[3][0]", "state[3][1][0]", "pair[1]"]
    for one in found:
        assert eval(one.name, {}, variables) is x


def test_what_is_nested_deeper_than_three_is_not_looked_at() -> None:
    x = tensor()
    assert names(a=[[[x]]]) == ["a[0][0][0]"]
    assert names(a=[[[[x]]]]) == []
    assert names(a=[[[[x]]]], b=[[[x]]]) == ["b[0][0][0]"]


def test_a_key_without_a_literal_is_reached_all_the_same() -> None:
    x = tensor()
    (found,) = walk({"d": {1: 2, id: x}}.items()).tensors
    assert found.name == "list(d.values())[1]"
    assert eval(found.name, {"d": {1: 2, id: x}}) is x


def test_containers_that_hold_each_other_end() -> None:
    x = tensor()
    a: list[Any] = [x]
    b: dict[str, Any] = {"a": a, "x": x}
    a += [a, b]
    assert names(a=a, b=b) == ["a[0]", "b['x']"]


class Watchful(dict[str, Any]):
    """A dict whose methods are the user's."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"asked for {name}")

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("iterated")

    def __len__(self) -> int:
        raise AssertionError("asked for its length")

    def items(self) -> Any:
        raise AssertionError("asked for its items")


class WatchfulList(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("iterated")

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("indexed")

    def __len__(self) -> int:
        raise AssertionError("asked for its length")


def test_no_method_of_a_users_container_runs() -> None:
    x = tensor()
    mapping, items = Watchful(), WatchfulList()
    dict.__setitem__(mapping, "w", x)
    list.append(items, x)
    assert names(m=mapping, s=items) == ["m['w']", "s[0]"]
    point = namedtuple("point", "x")
    assert names(o=OrderedDict(w=x), p=point(x)) == ["o['w']", "p[0]"]


def test_keys_that_are_no_literals_are_reached_by_their_place() -> None:
    keys = [2.5, float("nan"), float("inf"), complex(0, float("nan")), 1 + 2j]
    rec = dict.fromkeys(keys, tensor())
    found = names(rec=rec)
    assert found == ["rec[2.5]", *(f"list(rec.values())[{i}]" for i in (1, 2, 3)), "rec[(1+2j)]"]
    assert all(eval(name) is rec[2.5] for name in found)


class Module:
    """Keeps parameters, buffers and modules as PyTorch's modules do, and hands out none."""

    def __init__(self, **parts: Any) -> None:
        tensors = {name: x for name, x in parts.items() if not isinstance(x, Module)}
        modules = {name: x for name, x in parts.items() if isinstance(x, Module)}
        self.__dict__.update(_parameters=tensors, _buffers={}, _modules=modules)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"asked a module for {name}")


class Sequence(Module):
    def __getitem__(self, index: int) -> Any:
        raise AssertionError("indexed")


class Named(Sequence):
    def keys(self) -> Any:
        raise AssertionError("asked for keys")


def test_the_parts_of_a_module_are_found_however_deep_and_never_through_attributes() -> None:
    x, y = tensor(), tensor()
    block = Module(weight=x, bias=None)
    block.__dict__["_buffers"]["mean"] = y
    block.__dict__["cache"] = tensor()  # no part of the module
    layers = Sequence(**{"0": block, "1": Module(weight=y)})
    deep = Module(a=Module(b=Module(c=Module(d=Module(weight=x)))))
    assert names(model=Module(layers=layers)) == [
        "model.layers[0].weight",
        "model.layers[0].mean",
        "model.layers[1].weight",
    ]
    assert names(deep=deep) == ["deep.a.b.c.d.weight"]
    assert names(all=[[[Module(w=x)]]]) == ["all[0][0][0].w"]
    assert names(d=Named(**{"0": Module(w=x)})) == ["getattr(d, '0').w"]
    assert names(d=Module(**{"class": x, "a b": y})) == ["getattr(d, 'class')", "getattr(d, 'a b')"]


def test_a_dict_that_is_a_property_of_the_users_is_left_alone() -> None:
    class Odd:
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise AssertionError("asked for __dict__")

    assert names(odd=Odd()) == []


def test_large_containers_are_looked_at_to_a_limit_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = tensor()
    monkeypatch.setattr(walk_module, "_ITEMS_MAX", 5)
    walked = walk({"long": [None] * 4 + [x, x], "short": [x] * 5}.items())
    assert [one.name for one in walked.tensors][:2] == ["long[4]", "short[0]"]
    assert walked.skipped == ["long"]
    listing = TensorListing(inventory({"long": [x] * 6}))
    assert "long: only its beginning was looked at" in repr(listing)
    monkeypatch.setattr(walk_module, "_OBJECTS_MAX", 3)
    assert walk({"a": [x] * 4, "b": [x]}.items()).skipped == ["b"]


def test_a_thousand_tensors_are_asked_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = _core.asdevice
    monkeypatch.setattr(inventory_module._core, "asdevice", lambda x: asked.append(1) or real(x))
    state = {f"layer{i}": [tensor(8) for _ in range(10)] for i in range(100)}
    found = inventory({"state": state})
    assert len(found.tensors) == len(asked) == 1000


# --- What memory it counts ---


def test_memory_of_several_tensors_counts_once() -> None:
    x = tensor(64 * KIB)
    y = tensor(KIB)
    variables = {"x": x, "half": x[: 32 * KIB], "lz": gf.lazy(x), "rows": x[2:], "y": y}
    listing = TensorListing(inventory(variables))
    assert listing.nbytes == 65 * KIB
    assert {one.name: one.view_of for one in listing} == {
        "half": "x",
        "lz": "x",
        "rows": "x",
        "x": None,
        "y": None,
    }
    assert "5 device tensors, 65.0 KiB" in repr(listing)
    assert "view of " in repr(listing) and "view of " in listing._repr_html_()


def test_a_view_is_of_the_tensor_and_not_of_a_lazy_array_of_it() -> None:
    x = tensor()
    found = {one.name: one.view_of for one in inventory({"a": gf.lazy(x), "x": x}).tensors}
    assert found == {"a": "x", "x": None}
    found = {one.name: one.view_of for one in inventory({"a": gf.lazy(x)}).tensors}
    assert found == {"a": None}


def test_columns_with_negative_strides_are_within_their_matrix() -> None:
    x = gf.to_device(np.zeros((8, 16), np.float32))
    found = inventory({"column": x[::-1, 3], "x": x, "none": x[:0]})
    assert {one.name: one.view_of for one in found.tensors} == {
        "column": "x",
        "none": None,
        "x": None,
    }
    assert TensorListing(found).nbytes == 8 * 16 * 4
    alone = inventory({"column": x[::-1, 3]})
    assert TensorListing(alone).nbytes == 7 * 64 + 4


def test_ranges_are_joined_and_taken_apart() -> None:
    a, b = AddressRange("d:0", 0, 10), AddressRange("d:0", 5, 20)
    far, other = AddressRange("d:0", 40, 50), AddressRange("d:1", 0, 10)
    assert union([far, b, a, other]) == [AddressRange("d:0", 0, 20), far, other]
    assert nbytes_of([a, b, far, other]) == 40
    assert outside([AddressRange("d:0", 0, 100)], [b, far, other]) == [
        AddressRange("d:0", 0, 5),
        AddressRange("d:0", 20, 40),
        AddressRange("d:0", 50, 100),
    ]
    assert outside([a], [AddressRange("d:0", 0, 10)]) == []


def test_rows_are_cut_at_the_smallest_and_the_rest_is_said() -> None:
    variables = {f"t{i}": tensor((i + 1) * KIB) for i in range(6)}
    listing = TensorListing(inventory(variables), rows=4)
    text = repr(listing)
    assert "t0 " not in text and "t1 " not in text and "t2 " in text and "t5 " in text
    assert "2 smaller tensors are not shown, which take 3.0 KiB more" in text
    assert "%config GpufetchMagics.list_rows = 6" in text
    assert "6 device tensors, 21.0 KiB" in text
    assert "not shown" not in repr(TensorListing(inventory(variables), rows=6))


# --- What else keeps memory alive ---


def cell(shell: Any, code: str) -> Any:
    shell.push({"gf": gf, "np": np})
    result = shell.run_cell(code, store_history=True)
    result.raise_error()
    return result.result


def kept_lines(shell: Any) -> list[str]:
    return [str(one) for one in shell.run_line_magic("gpufetch", "").kept]


def remedy_of(line: str) -> str:
    return line.partition(": ")[2].removesuffix(" frees it").removesuffix(" free it")


def test_an_output_alone_keeps_memory_until_its_remedy_is_run(shell: Any) -> None:
    cell(shell, "gf.lazy(gf.to_device(np.zeros(4096, np.uint8)))")
    number = max(shell.user_ns["Out"])
    alive = weakref.ref(shell.user_ns["Out"][number])
    for value in (1, 2, 3):  # push it out of _, __ and ___
        cell(shell, str(value))
    (line,) = kept_lines(shell)
    assert line == f"4.0 KiB is kept alive by Out[{number}] alone: %xdel _{number} frees it"
    cell(shell, remedy_of(line))
    gc.collect()
    assert alive() is None
    assert kept_lines(shell) == []


@pytest.mark.parametrize("more", ["", "del globals()[f'_{max(Out)}']"])
def test_the_remedy_for_the_last_output_frees_it(shell: Any, more: str) -> None:
    cell(shell, "gf.lazy(gf.to_device(np.zeros(4096, np.uint8)))")
    alive = weakref.ref(shell.user_ns["_"])
    cell(shell, more)
    (line,) = kept_lines(shell)
    number = max(shell.user_ns["Out"])
    assert remedy_of(line) == (
        f"x = Out[{number}] and then %xdel x" if more else f"%xdel _{number}"
    )
    cell(shell, remedy_of(line).replace(" and then ", "\n"))
    gc.collect()
    assert alive() is None
    assert kept_lines(shell) == []


def test_a_loops_underscore_and_private_variables_are_named(shell: Any) -> None:
    cell(shell, "for _ in [gf.to_device(np.zeros(1024, np.uint8))]: pass")
    cell(shell, "_mine = {'w': gf.to_device(np.zeros(2048, np.uint8))}")
    assert kept_lines(shell) == [
        "1.0 KiB is kept alive by _ alone: %xdel _ frees it",
        "2.0 KiB is kept alive by _mine alone: del _mine frees it",
    ]


def test_what_a_variable_holds_too_is_kept_by_nothing_else(shell: Any) -> None:
    cell(shell, "x = gf.to_device(np.zeros(1024, np.uint8))\nx")
    cell(shell, "h = gf.share(x)\ngf.publish('x', x)")
    try:
        assert kept_lines(shell) == []
        cell(shell, "del x")
        (line,) = kept_lines(shell)
        assert line.startswith("1.0 KiB is kept alive by Out[")
        assert "the share h" in line and "published as 'x'" in line
        assert "gf.unshare(h)" in line and "gf.unpublish('x')" in line
    finally:
        cell(shell, "gf.unshare(h)\ngf.unpublish('x')")
    (line,) = kept_lines(shell)
    assert "share" not in line


def test_a_share_whose_handle_is_lost_can_be_ended(shell: Any) -> None:
    cell(shell, "gf.share(gf.to_device(np.zeros(1024, np.uint8)), copy=True);")
    cell(shell, "%reset -f out")
    (line,) = kept_lines(shell)
    assert line.startswith("1.0 KiB is kept alive by the share of (1024,) alone: gf.unshare('")
    cell(shell, remedy_of(line))
    assert kept_lines(shell) == []


@pytest.mark.parametrize(
    ("code", "name", "remedy"),
    [
        ("v = gf.view(x)", "the viewer v", "v.close()"),
        ("gf.view(x)", "the viewer Out[N]", "Out[N].close()"),
        (
            "gf.view(x);",
            "viewers without a name",
            "import ipywidgets; ipywidgets.Widget.close_all()",
        ),
    ],
)
def test_what_a_viewer_alone_keeps_is_named_with_its_remedy(
    shell: Any, code: str, name: str, remedy: str
) -> None:
    pytest.importorskip("anywidget")
    cell(shell, "x = gf.to_device(np.zeros((32, 32), np.uint8))")
    cell(shell, code)
    assert kept_lines(shell) == []
    cell(shell, "del x")
    number = str(max(shell.user_ns["Out"], default=0))
    name, remedy = name.replace("N", number), remedy.replace("N", number)
    assert kept_lines(shell) == [f"1.0 KiB is kept alive by {name} alone: {remedy} frees it"]
    cell(shell, remedy)
    assert kept_lines(shell) == []


def test_viewers_of_a_cell_that_ran_again_take_one_line(shell: Any) -> None:
    pytest.importorskip("anywidget")
    for _ in range(3):
        cell(shell, "v = gf.view(gf.to_device(np.zeros((32, 32), np.uint8)))")
    try:
        assert [line.partition(":")[0] for line in kept_lines(shell)] == [
            "1.0 KiB is kept alive by the viewer v alone",
            "2.0 KiB is kept alive by viewers without a name alone",
        ]
    finally:
        cell(shell, "import ipywidgets; ipywidgets.Widget.close_all()")
    assert kept_lines(shell) == []


@needs_server
def test_what_a_server_publishes_is_named_with_its_remedy(shell: Any) -> None:
    cell(shell, "server = gf.serve('test-listing')")
    cell(shell, "server.publish('u', gf.to_device(np.zeros(1024, np.uint8)))")
    try:
        (line,) = kept_lines(shell)
        assert line.startswith("1.0 KiB is kept alive by 'u' of server test-listing")
        cell(shell, remedy_of(line))
        assert kept_lines(shell) == []
    finally:
        cell(shell, "server.stop()")


@needs_server
def test_tensors_of_another_process_are_apart_and_not_counted(shell: Any) -> None:
    cell(shell, "x = gf.to_device(np.zeros(1024, np.uint8))")
    cell(shell, "server = gf.serve('test-listing')\nserver.publish('u', x)")
    cell(shell, "run = %gpufetch --attach test-listing\nu = run['u'][::2]")
    try:
        listing = cell(shell, "%gpufetch")
        assert [one.name for one in listing] == ["x"]
        assert listing.nbytes == 1024
        (remote,) = listing.remote
        assert (remote.name, remote.framework, remote.shape) == ("u", "test-listing", (512,))
        assert listing.connections == [("run", "test-listing")]
        for text in (repr(listing), listing._repr_html_()):
            assert "Of other processes, and not counted:" in text
            assert "run is a connection to test-listing" in text
    finally:
        cell(shell, "run.close()\nserver.stop()")


def test_many_holders_take_one_short_line() -> None:
    def line(count: int) -> str:
        return str(Kept(KIB, [Holder(f"Out[{i}]", f"%xdel _{i}", []) for i in range(count)]))

    assert "by Out[0] and Out[1] and Out[2] alone: %xdel _0 and %xdel _1 and" in line(3)
    assert line(90) == (
        "1.0 KiB is kept alive by Out[0], Out[1] and 88 more alone: "
        "%xdel _0, %xdel _1 and 88 more free it"
    )
