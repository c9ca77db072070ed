"""gpufetch's wheels and sdist in bare roots of Debian 12, and its sources as README has them.

`./dev test --install` builds them, and names their folder in GPUFETCH_WHEELS. The tests run scripts
of tests/install, which also run alone; they need root, debootstrap and a network.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import fixture_values
import numpy as np
import pytest

import gpufetch

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "data" / "format-2.h5"


def made(folder: str, pattern: str) -> Path:
    if folder not in os.environ:
        pytest.skip("built and run by ./dev test --install")
    (found,) = Path(os.environ[folder]).glob(pattern)
    return found


def wheel() -> Path:
    return made("GPUFETCH_WHEELS", "gpufetch-*.whl")


def sdist() -> Path:
    return made("GPUFETCH_WHEELS", "gpufetch-*.tar.gz")


def in_a_root(script: str, *arguments: str | Path) -> str:
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("needs root and debootstrap")
    command = [ROOT / "tests" / "install" / script, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """What the fixtures hold of types that NumPy has, for tests/install/use_package.py."""
    lines = []
    for case in fixture_values.FILES[2]:
        values = np.ascontiguousarray(case.values())
        if values.dtype.isbuiltin != 2:  # which bfloat16 and float8 are
            lines.append(f"{hashlib.sha256(values.tobytes()).hexdigest()} {case.name}\n")
    (tmp_path / "listed").write_text("".join(lines))
    return tmp_path / "listed"


def test_a_wheel_in_a_root_with_python_alone(listed: Path) -> None:
    said = in_a_root("wheel.sh", wheel(), FIXTURES, listed)
    assert re.search(r"^gpufetch \S+: \d+ datasets read$", said, re.MULTILINE)
    assert re.search(r"^without a GPU: .*(CUDA|cuda)", said, re.MULTILINE)


def test_the_readers_wheel_in_a_root_with_python_and_h5py(listed: Path) -> None:
    reader = made("GPUFETCH_READER_WHEELS", "hdf5_gpufetch-*-py3-none-manylinux*_x86_64.whl")
    said = in_a_root("reader.sh", reader, FIXTURES, listed)
    assert re.search(r"^hdf5_gpufetch \S+: \d+ datasets read$", said, re.MULTILINE)


def test_an_sdist_in_a_root_with_the_packages_of_the_page(listed: Path) -> None:
    said = in_a_root("sdist.sh", sdist(), FIXTURES, listed)
    assert re.search(r"^gpufetch \S+: \d+ datasets read$", said, re.MULTILINE)


def test_a_checkout_in_a_bare_root() -> None:
    wheel()  # or skip
    said = in_a_root("readme.sh")
    assert re.search(r"^\d+ passed, 0 failed, \d+ skipped$", said, re.MULTILINE)


def test_the_lower_bounds_of_the_extra_for_notebooks(tmp_path: Path) -> None:
    script = ROOT / "tests" / "install" / "lower_bounds.sh"
    command = [script, wheel(), tmp_path / "bounds"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-5000:]


def test_the_commands_of_the_recipes_for_spack() -> None:
    said = in_a_root("spack.sh", sdist())
    assert "+ meson setup " in said and "-Dserve=enabled" in said


def test_the_recipe_for_conda_forge_is_one_and_names_what_the_package_needs() -> None:
    python = wheel().parents[1] / "bin" / "python"
    recipe = ROOT / "packaging" / "conda" / "recipe.yaml"
    command = [python, ROOT / "tests" / "install" / "parse_recipe.py", recipe]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    without, with_cuda = map(json.loads, done.stdout.splitlines())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    runs = [f"python {project['requires-python']}", *project["dependencies"]]
    for found in (without, with_cuda):
        assert found["package"] == {"name": "gpufetch", "version": gpufetch.__version__}
        needed = [text.replace(" ", "") for text in found["requirements"]["run"]]
        assert needed == [text.replace(" ", "") for text in runs]
    assert "cuda-cudart-static" in with_cuda["requirements"]["host"]
    assert "cuda-cudart-static" not in without["requirements"]["host"]


def test_the_recipes_are_of_this_version() -> None:
    for name in ("gpufetch", "py-gpufetch"):
        text = (ROOT / "packaging" / "spack" / name / "package.py").read_text()
        assert re.findall(r'version\("([^"]+)"', text) == [gpufetch.__version__]
        assert f"gpufetch-{gpufetch.__version__}.tar.gz" in text


def test_the_wheel_says_what_is_within() -> None:
    with zipfile.ZipFile(wheel()) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    (info,) = {name.split("/")[0] for name in files if ".dist-info/" in name}
    bom = json.loads(files[f"{info}/sboms/gpufetch.cdx.json"])
    names = {component["name"]: component for component in bom["components"]}
    assert {"libzmq", "libsodium", "jansson", "libcrypto"} <= names.keys()
    for name in ("libzmq", "libsodium", "jansson", "libcrypto"):
        assert re.match(r"\d+\.\d+", names[name]["version"]) and names[name]["licenses"]
        assert len(files[f"{info}/licenses/{name}.txt"]) > 500
        assert f"License-File: {name}.txt\n".encode() in files[f"{info}/METADATA"]
    has_cuda = b"cudaMalloc" in files["gpufetch/_core.abi3.so"]
    assert has_cuda == ("libcudart_static" in names)
    tags = re.findall(rb"^Tag: (.*)$", files[f"{info}/WHEEL"], re.MULTILINE)
    assert tags == [b"cp311-abi3-manylinux_2_28_x86_64"]
    assert "gpufetch/plugins/libh5z_gpufetch.so" in files


def test_the_sdist_has_the_sources_and_nothing_that_was_built() -> None:
    with tarfile.open(sdist()) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"meson.build", "dev", "LICENSE", "src/meson.build", "python/meson.build"} <= names
    assert not [name for name in names if re.search(r"\.(o|so|pyc|whl)$", name)]
