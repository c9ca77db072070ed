"""benchmarks/ --case gpucodec: nvCOMP as a peer, with stand-ins for nvCOMP and CuPy on the CPU.

The stand-in of nvCOMP takes the arguments that the real one documents, and no others.
"""

from __future__ import annotations

import enum
import functools
import importlib
import os
import subprocess
import sys
import zlib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
TYPED = {"Bitcomp", "Cascaded", "ANS", "LZ4"}
OPTIONS = {
    "Bitcomp": {"algorithm_type", "mode", "delta"},
    "Cascaded": {"mode", "compression_level", "terminal_codecs", "fine_grained_encodings"},
    "ANS": {"states_per_lane", "histogram_reduction_log2", "max_sub_chunk_count"},
    "LZ4": {"bitshuffle_mode"},
    "Zstd": set(),
}


compress = functools.cache(zlib.compress)  # each is asked for often
decompress = functools.cache(zlib.decompress)


class Buffer:
    """nvcomp.Array: bytes on the device, which the host sees after cpu() alone."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def buffer_size(self) -> int:
        return len(self.data)

    def cpu(self) -> Any:
        return np.frombuffer(self.data, np.uint8)


class Codec:
    """nvcomp.Codec, as zlib. Levels are told apart by the options."""

    made: list[dict[str, Any]]
    broken: set[str]  # algorithms that raise
    lossy: set[str]  # algorithms that lose a bit

    def __init__(self, **arguments: Any) -> None:
        Codec.made.append(dict(arguments))
        self.algorithm = arguments.pop("algorithm")
        self.stream = arguments.pop("cuda_stream")
        dtype = arguments.pop("data_type", None)
        assert (dtype is not None) == (self.algorithm in TYPED)
        assert arguments.keys() <= OPTIONS[self.algorithm]
        if self.algorithm in Codec.broken:
            raise RuntimeError(f"{self.algorithm} does not work")
        self.level = 9 if arguments.get("algorithm_type") or dtype == "<u4" else 1

    def compression_config(self, nbytes: int) -> Any:
        return SimpleNamespace(nbytes=nbytes)

    def decompression_config(self, config: Any) -> Any:
        return SimpleNamespace(of=config)

    def encode(self, array: Any, out: Any = None, compression_config: Any = None) -> Buffer:
        data = array.source.tobytes()
        assert compression_config.nbytes == len(data)
        return Buffer(compress(data, self.level))

    def decode(
        self, src: Buffer, data_type: str = "", out: Any = None, decompression_config: Any = None
    ) -> Buffer:
        assert np.dtype(data_type) and decompression_config.of
        data = bytearray(decompress(src.data))
        data[7] ^= self.algorithm in Codec.lossy
        return Buffer(bytes(data))


class Event:
    clock = 0.0

    def record(self, stream: Any) -> None:
        self.at = Event.clock
        Event.clock += 8.0  # ms

    def synchronize(self) -> None:
        pass


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(Codec, "made", [], raising=False)
    monkeypatch.setattr(Codec, "broken", set(), raising=False)
    monkeypatch.setattr(Codec, "lossy", set(), raising=False)
    nvcomp = ModuleType("nvidia.nvcomp")
    facts = {
        "__version__": "6.0.0",
        "Codec": Codec,
        "CascadedMode": enum.Enum("CascadedMode", ["ASYMMETRIC", "SYMMETRIC"]),
        "BitshuffleMode": enum.Enum(
            "BitshuffleMode", ["NVCOMP_BITSHUFFLE_MSB_FIRST", "NVCOMP_BITSHUFFLE_LSB_FIRST"]
        ),
        "as_array": lambda source, cuda_stream: SimpleNamespace(source=source),
    }
    vars(nvcomp).update(facts)
    stream = SimpleNamespace(ptr=77, synchronize=lambda: None)
    cuda = SimpleNamespace(
        Stream=lambda non_blocking: stream,
        Event=Event,
        Device=lambda: SimpleNamespace(synchronize=lambda: None),
        get_elapsed_time=lambda start, stop: stop.at - start.at,
    )
    cupy = ModuleType("cupy")
    vars(cupy).update(asarray=np.asarray, cuda=cuda)
    namespace = ModuleType("nvidia")
    namespace.nvcomp = nvcomp  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvidia", namespace)
    monkeypatch.setitem(sys.modules, "nvidia.nvcomp", nvcomp)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    return module().load("cuda")


def module() -> Any:
    return importlib.import_module("cases.gpucodec_nvcomp")


def smooth() -> Any:
    return np.cumsum(np.random.default_rng(1).integers(0, 9, (16, 64, 64)), axis=2).astype("f4")


def test_every_algorithm_is_a_peer_at_its_best_ratio(gpu: Any) -> None:
    found = module().peers(gpu, smooth())
    names = ["Bitcomp", "Cascaded", "ANS", "LZ4", "LZ4 of shuffled bits", "Zstd"]
    assert found.failures == {} and list(found.ratios) == names
    assert [one.name for one in found.encode] == [one.name for one in found.decode] == names
    # Of the stand-in, algorithm type 1 and words of 4 bytes give the better ratio.
    assert found.labels["Bitcomp"].startswith("nvCOMP 6.0.0 Bitcomp (<f4, algorithm_type=1), ratio")
    assert "(<u4)" in found.labels["LZ4"]
    assert found.ratios["Bitcomp"] > found.ratios["Zstd"] > 1
    assert {made["cuda_stream"] for made in Codec.made} == {77}


def test_times_are_those_of_the_events_for_one_pass(gpu: Any) -> None:
    harness = importlib.import_module("harness")
    array = smooth()
    found = module().peers(gpu, array)
    for contenders in (found.encode, found.decode):
        timings = harness.measure(contenders, [array], rounds=2)
        assert timings.failures == {} and len(timings.seconds) == 6
        for seconds in timings.seconds.values():
            assert seconds == pytest.approx([8e-3 / module().REPEATS] * 2)


def test_wrong_bytes_and_failures_are_no_peers(gpu: Any) -> None:
    Codec.broken.add("ANS")
    Codec.lossy.add("Zstd")
    found = module().peers(gpu, smooth())
    assert found.failures.keys() == {"ANS", "Zstd"} and len(found.encode) == 4
    assert found.failures["ANS"] == "RuntimeError: ANS does not work"
    assert "differ after a round trip" in found.failures["Zstd"]


def test_bytes_that_go_wrong_later_are_found_by_the_harness(gpu: Any) -> None:
    harness = importlib.import_module("harness")
    array = smooth()
    found = module().peers(gpu, array)
    Codec.lossy.add("LZ4")
    timings = harness.measure(found.decode, [array], rounds=1)
    assert timings.failures.keys() == {"LZ4", "LZ4 of shuffled bits"}


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("f4", {"Bitcomp": {"<f4"}, "Cascaded": {"<i4"}, "ANS": {"|u1", "<f4"}}),
        ("f8", {"Bitcomp": {"<f8"}, "Cascaded": {"<i8"}, "ANS": {"|u1"}}),
        ("f2", {"Bitcomp": {"<f2"}, "Cascaded": {"<i2"}, "ANS": {"|u1", "<f2"}}),
        ("V2", {"Bitcomp": {"<u2"}, "Cascaded": {"<i2"}, "ANS": {"|u1", "<f2"}}),
        ("u1", {"Bitcomp": {"|u1"}, "Cascaded": {"|i1"}, "ANS": {"|u1"}}),
        ("i2", {"Bitcomp": {"<i2"}, "Cascaded": {"<i2"}, "ANS": {"|u1"}}),
    ],
)
def test_values_are_given_as_types_that_nvcomp_knows(
    gpu: Any, dtype: str, expected: dict[str, set[str]]
) -> None:
    ways = module().variants(gpu.nvcomp, np.dtype(dtype))
    assert {name: {one.dtype for one in ways[name]} for name in expected} == expected
    modes = [one.options["mode"].name for one in ways["Cascaded"]]
    assert modes == ["ASYMMETRIC", "SYMMETRIC"][: 2 if np.dtype(dtype).itemsize >= 4 else 1]


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    with pytest.raises(module().AbsentError, match="needs a GPU"):
        module().load("host")
    monkeypatch.setitem(sys.modules, "nvidia.nvcomp", None)
    with pytest.raises(module().AbsentError, match=r"pip install .*\./dev gpu-bundle --nvcomp"):
        module().load("cuda")
    monkeypatch.setitem(sys.modules, "nvidia", ModuleType("nvidia"))
    monkeypatch.setitem(sys.modules, "nvidia.nvcomp", ModuleType("nvidia.nvcomp"))
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(module().AbsentError, match="CuPy is absent"):
        module().load("cuda")


CODEC_DEVICE = (
    Path(os.environ.get("GPUFETCH_BUILD_DIR", "")) / "benchmarks" / "programs" / "codec_device"
)


@pytest.mark.skipif(not CODEC_DEVICE.is_file(), reason="$GPUFETCH_BUILD_DIR has no codec_device")
def test_rows_hold_both_codecs_and_say_what_failed(gpu: Any, tmp_path: Path) -> None:
    case = importlib.import_module("cases.gpucodec_compared")
    harness = importlib.import_module("harness")
    facts = dict(machine="m", date="d", commit="c", command="x", frameworks=[], absent=["numba"])
    session = harness.Session(backend="host", quick=True, scratch=tmp_path, **facts)
    Codec.broken.add("ANS")
    field = case.Field("steps", lambda: smooth()[np.newaxis])
    encode, decode = case.compared(session, field, "2 MiB", gpu, "")
    names = ["Bitcomp", "Cascaded", "LZ4", "LZ4 of shuffled bits", "Zstd"]
    for row, step in ((encode, "encode"), (decode, "decode")):
        assert row["case"].startswith(f"{step} on the device, 2 MiB of float32 (steps) in chunks")
        assert list(row["peers"]) == ["copy on the device", *names]
        assert row["failed"].keys() == {"ANS"} and row["absent"] == ["numba"]
        assert row["ratios"].keys() == {"gpufetch", *names} and row["ratio"] > 1
        assert all("ratio" in row["labels"][name] for name in names)
    alone = case.compared(session, field, "2 MiB", None, "nvCOMP is not installed")
    assert all(list(row["peers"]) == ["copy on the device"] for row in alone)
    assert alone[0]["absent"] == ["numba", "nvCOMP is not installed"]


def test_fields_to_compare_have_chunks_that_a_device_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    case = importlib.import_module("cases.gpucodec_compared")
    monkeypatch.setattr(case.codec_fields, "FOLDER", tmp_path)
    np.save(tmp_path / "odd.npy", np.arange(99 * 33, dtype="f4").reshape(99, 33))
    fields = {one.what: one for one in case.fields()}
    assert fields.keys() == {"smooth", "noise", "weights", "odd"}
    odd = fields["odd"].repeated(1 << 16)
    assert odd.shape == (5, 99, 32) and (odd[4] == odd[0]).all() and odd[0, 1, 0] == 33
    for one in case.fields():
        array = one.repeated(4 << 20)
        assert array[0].nbytes % 16 == 0 and 3 << 20 < array.nbytes <= 4 << 20
        assert array.flags.c_contiguous


def bundled(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`./dev gpu-bundle` without the network: what pip would be asked for."""
    script = """
    set -eu
    root=$1 venv=$1/venv
    shift
    set_up() { :; }
    die() { echo "$*" >&2; exit 1; }
    say() { :; }
    quietly() { shift; echo "$*"; }
    . tools/dev_gpu.sh
    gpu_bundle "$@"
    cat "$bundle/requirements.txt"
    """
    return subprocess.run(
        ["sh", "-c", script, "sh", str(tmp_path), *arguments],
        cwd=BENCHMARKS.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_bundle_has_nvcomp_on_request_alone(tmp_path: Path) -> None:
    without = bundled(tmp_path, "--python", "3.12")
    assert without.returncode == 0 and "nvidia-" not in without.stdout, without.stderr
    for arguments in (["--python", "3.12", "--nvcomp"], ["--nvcomp", "--python", "3.12"]):
        done = bundled(tmp_path, *arguments)
        assert done.returncode == 0, done.stderr
        assert "--python-version 3.12" in done.stdout and "meson-python==" in done.stdout
        pins = [line.split("==") for line in done.stdout.splitlines()]
        pinned = {pin[0]: pin[1] for pin in pins if pin[0].startswith("nvidia-")}
        assert pinned.keys() == {"nvidia-nvcomp-cu13", "nvidia-libnvcomp-cu13"}
        assert len(set(pinned.values())) == 1
    refused = bundled(tmp_path, "--nvcom")
    assert refused.returncode == 1 and "unknown argument --nvcom" in refused.stderr
