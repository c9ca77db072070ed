"""The reader's package, hdf5-gpufetch, with the plugin of this build: in processes of its own."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import h5py
import numpy as np
import pytest
from plugin_files import FILTER_ID, REPOSITORY, plugin_folder
from reader_build import SOURCES, build_reader, stage
from sanitizing import SANITIZED

import gpufetch as gf

FIXTURES = REPOSITORY / "tests" / "data" / "format-2.h5"
SYSTEM_HEADERS = Path("/usr/include/hdf5/serial")

hangs_under_sanitizers = pytest.mark.skipif(
    SANITIZED, reason="Debian's h5dump hangs at its exit under libasan, sometimes"
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One in which Python finds the reader and no gpufetch, and HDF5 finds no plugin by itself."""
    folder = plugin_folder()
    if folder is None:
        pytest.skip("libh5z_gpufetch.so is not built")
    site = stage(tmp_path_factory.mktemp("reader"), folder / "libh5z_gpufetch.so")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HDF5_")}
    return {**kept, "PYTHONPATH": str(site), "HDF5_PLUGIN_PRELOAD": "::"}


def run(environment: dict[str, str], *arguments: str | Path, fails: bool = False) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stderr if fails else done.stdout


def python(environment: dict[str, str], code: str, *arguments: str | Path) -> str:
    return run(environment, "-W", "error", "-c", textwrap.dedent(code), *arguments)


def command(environment: dict[str, str], *arguments: str | Path, fails: bool = False) -> str:
    return run(environment, "-m", "hdf5_gpufetch", *arguments, fails=fails)


SUM = """
    def sums(path):
        found = {}
        with h5py.File(path) as file:
            for name, dataset in file.items():
                kind = dataset.id.get_type()
                stored = np.zeros(dataset.size * kind.get_size(), "u1")
                dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, stored, kind)
                found[name] = hashlib.sha256(stored).hexdigest()
        return found
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with a netCDF4 and a tables that load an HDF5 library, as the real ones do."""
    found = sorted(Path("/usr/lib/x86_64-linux-gnu").glob("libhdf5_serial.so.[0-9]*"))
    if not found:
        pytest.skip("no second HDF5 library: Debian's libhdf5-dev has one")
    for name in ("netCDF4", "tables"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("from .extension import library\n")
        source = f"import ctypes\nlibrary = ctypes.CDLL({str(found[0])!r})\n"
        (tmp_path / name / "extension.py").write_text(source)
    return tmp_path


def test_a_library_of_a_package_that_is_imported_later_gets_the_filter(
    environment: dict[str, str], packages: Path
) -> None:
    """As netCDF4's, which xarray imports when it opens a file; test_reader_wheels.py has that."""
    code = """
    import sys
    import hdf5_gpufetch
    assert "netCDF4" not in sys.modules
    sys.path.append(sys.argv[1])
    import netCDF4
    assert netCDF4.library.H5Zfilter_avail(hdf5_gpufetch.FILTER_ID) == 1
    assert netCDF4.__spec__.loader.get_source("netCDF4").startswith("from .extension")
    """
    python(environment, code, packages)


def test_a_package_that_was_made_lazy_before_gets_the_filter(
    environment: dict[str, str], packages: Path
) -> None:
    code = """
    import importlib.util, sys
    sys.path.append(sys.argv[1])
    spec = importlib.util.find_spec("netCDF4")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    netCDF4 = sys.modules["netCDF4"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(netCDF4)
    import hdf5_gpufetch
    assert "netCDF4.extension" not in sys.modules
    assert netCDF4.library.H5Zfilter_avail(hdf5_gpufetch.FILTER_ID) == 1
    """
    python(environment, code, packages)


# On another thread, netCDF4's import comes to where `sys.pause` is called, and waits.
HALFWAY = {
    "creating": """
def create_module(self, spec):
    if spec.name == "netCDF4":
        sys.pause("creating")
importlib.machinery.SourceFileLoader.create_module = create_module
""",
    "reading": """
def get_data(self, path, get_data=importlib.machinery.SourceFileLoader.get_data):
    if path.endswith(os.path.join("netCDF4", "__init__.py")):
        sys.pause("reading")
    return get_data(self, path)
importlib.machinery.SourceFileLoader.get_data = get_data
""",
    "executing": "",
}


@pytest.mark.parametrize("place", HALFWAY)
def test_a_package_whose_import_had_begun_gets_the_filter(
    environment: dict[str, str], packages: Path, place: str
) -> None:
    """The two imports do not wait for each other."""
    extension = packages / "netCDF4" / "extension.py"
    extension.write_text(f"import sys\nsys.pause('executing')\n{extension.read_text()}")
    code = f"""
import importlib, importlib.machinery, os, sys, threading
begun, goes_on = threading.Event(), threading.Event()
def pause(place):
    if place == {place!r}:
        begun.set()
        assert goes_on.wait(60)
sys.pause = pause
{HALFWAY[place]}
sys.path.append(sys.argv[1])
thread = threading.Thread(target=importlib.import_module, args=("netCDF4",))
thread.start()
assert begun.wait(60)
import hdf5_gpufetch
goes_on.set()
thread.join()
netCDF4 = sys.modules["netCDF4"]
assert netCDF4.library.H5Zfilter_avail(hdf5_gpufetch.FILTER_ID) == 1
assert type(netCDF4.__spec__) is importlib.machinery.ModuleSpec
"""
    python(environment, code, packages)


def test_a_library_that_has_the_filter_is_called_no_more(
    environment: dict[str, str], packages: Path
) -> None:
    """Another thread may be in it; netCDF4's has no lock. Here a second call would show."""
    code = """
    import importlib, sys
    sys.path.append(sys.argv[1])
    import netCDF4
    import hdf5_gpufetch
    number = hdf5_gpufetch.FILTER_ID
    paths = hdf5_gpufetch.register()
    assert len(paths) > 1 and netCDF4.library.H5Zfilter_avail(number) == 1
    assert netCDF4.library.H5Zunregister(number) == 0
    import tables
    importlib.reload(tables)
    assert hdf5_gpufetch.register() == paths
    importlib.reload(hdf5_gpufetch._register)
    importlib.reload(hdf5_gpufetch)
    for name in [name for name in sys.modules if "hdf5_gpufetch" in name]:
        del sys.modules[name]
    import hdf5_gpufetch
    importlib.reload(netCDF4)
    assert netCDF4.library.H5Zfilter_avail(number) == 0
    """
    python(environment, code, packages)


@pytest.mark.parametrize(
    "place", ["sys.meta_path.insert(0, Asks())", "sys.meta_path.append(Asks())"]
)
def test_a_finder_that_asks_all_others_finds_packages(
    environment: dict[str, str], packages: Path, place: str
) -> None:
    code = f"""
import sys
import hdf5_gpufetch
class Asks:
    def find_spec(self, name, path=None, target=None):
        others = (finder for finder in sys.meta_path if finder is not self)
        return next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
{place}
sys.path.append(sys.argv[1])
import tables
assert tables.library.H5Zfilter_avail(hdf5_gpufetch.FILTER_ID) == 1
try:
    import netCDF4.no_such_module
except ModuleNotFoundError as error:
    assert error.name == "netCDF4.no_such_module"
"""
    python(environment, code, packages)


def test_imports_on_two_threads_wait_for_each_other_and_end(environment: dict[str, str]) -> None:
    code = """
    import importlib, threading
    names = ["h5py", "hdf5_gpufetch"]
    threads = [threading.Thread(target=importlib.import_module, args=(n,)) for n in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    """
    for _ in range(3):
        python(environment, code)


LOADED_AGAIN = {
    "reload": "importlib.reload(hdf5_gpufetch)",
    "import": "[sys.modules.pop(name) for name in list(sys.modules) if 'hdf5_gpufetch' in name]\n"
    "import hdf5_gpufetch",
}


@pytest.mark.parametrize("again", LOADED_AGAIN)
def test_packages_are_imported_once_the_reader_was_loaded_again(
    environment: dict[str, str], tmp_path: Path, again: str
) -> None:
    (tmp_path / "tables.py").write_text("loaded = True")
    code = f"""
import importlib, importlib.util, pickle, sys
import hdf5_gpufetch
{LOADED_AGAIN[again]}
sys.path.insert(0, sys.argv[1])
assert importlib.util.find_spec("tables").origin.endswith("tables.py")
import tables
assert tables.loaded and pickle.loads(pickle.dumps(tables.__loader__)).name == "tables"
"""
    python(environment, code, tmp_path)


def test_the_import_alone_makes_h5py_read_every_fixture(environment: dict[str, str]) -> None:
    code = f"""
    import sys, hashlib, json
    import hdf5_gpufetch
    import h5py
    import numpy as np
    {SUM}
    expected = json.load(open(sys.argv[2]))
    assert sums(sys.argv[1]) == {{name: e["values_sha256"] for name, e in expected.items()}}
    assert len(expected) > 200 and "gpufetch" not in sys.modules
    """
    python(environment, code, FIXTURES, FIXTURES.with_suffix(".json"))


def test_h5py_writes_what_gpufetch_reads(environment: dict[str, str], tmp_path: Path) -> None:
    code = """
    import sys
    import h5py, hdf5_gpufetch
    import numpy as np
    with h5py.File(sys.argv[1], "w") as file:
        x = np.arange(60000, dtype=">i4").reshape(200, 300)
        file.create_dataset("x", data=x, compression=hdf5_gpufetch.FILTER_ID, chunks=(64, 300))
        assert file["x"].id.get_storage_size() < x.nbytes / 8
    """
    python(environment, code, tmp_path / "x.h5")
    expected = np.arange(60000).reshape(200, 300)
    assert (gf.hdf5.read(tmp_path / "x.h5", "x", device="cpu") == expected).all()


@pytest.mark.skipif(SANITIZED, reason="two instrumented copies of the codec in one process")
def test_both_packages_in_one_process(environment: dict[str, str], tmp_path: Path) -> None:
    both = {
        **environment,
        "PYTHONPATH": f"{environment['PYTHONPATH']}:{Path(gf.__file__).parents[1]}",
    }
    for first, second in (("gpufetch", "hdf5_gpufetch"), ("hdf5_gpufetch", "gpufetch")):
        code = f"""
        import sys
        import {first}
        import {second}
        import h5py, numpy as np
        path = sys.argv[1]
        gpufetch.hdf5.write(path, "x", np.arange(5000), chunks=(1000,))
        with h5py.File(path) as file:
            assert (file["x"][...] == np.arange(5000)).all()
        """
        python(both, code, tmp_path / f"{first}.h5")


def test_it_imports_and_names_its_plugin_without_h5py(environment: dict[str, str]) -> None:
    code = """
    import sys
    import hdf5_gpufetch
    assert "h5py" not in sys.modules and "numpy" not in sys.modules
    print(hdf5_gpufetch.plugin_path())
    """
    folder = run(environment, "-S", "-c", textwrap.dedent(code)).strip()
    assert (Path(folder) / "libh5z_gpufetch.so").exists()
    assert run(environment, "-S", "-m", "hdf5_gpufetch", "plugin-path").strip() == folder
    said = run(environment, "-S", "-m", "hdf5_gpufetch", "ls", FIXTURES, fails=True)
    assert said == "hdf5-gpufetch ls: this needs h5py: pip install h5py\n"


def test_it_imports_where_h5py_is_blocked(environment: dict[str, str], packages: Path) -> None:
    code = """
    import sys
    sys.modules["h5py"] = None
    sys.path.append(sys.argv[1])
    import netCDF4
    import hdf5_gpufetch
    assert netCDF4.library.H5Zfilter_avail(hdf5_gpufetch.FILTER_ID) == 1
    """
    python(environment, code, packages)


@hangs_under_sanitizers
def test_the_plugin_path_makes_other_programs_read(environment: dict[str, str]) -> None:
    if shutil.which("h5dump") is None:
        pytest.skip("h5dump is not installed (Debian: hdf5-tools)")
    folder = command(environment, "plugin-path").strip()
    finds = {name: text for name, text in environment.items() if name != "HDF5_PLUGIN_PRELOAD"}
    dump = ["h5dump", "-d", "/uint8_steps_64x64", str(FIXTURES)]
    for path, succeeds in ((folder, True), (str(SOURCES), False)):
        done = subprocess.run(
            dump, env={**finds, "HDF5_PLUGIN_PATH": path}, capture_output=True, text=True
        )
        assert (done.returncode == 0) == succeeds and ("(0,0): 0, 136" in done.stdout) == succeeds


@hangs_under_sanitizers
def test_without_the_plugin_the_error_says_what_to_install(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """HDF5 quotes the name from the file. h5py shows the first and the last message alone."""
    if shutil.which("h5dump") is None:
        pytest.skip("h5dump is not installed (Debian: hdf5-tools)")
    path = tmp_path / "x.h5"
    gf.hdf5.write(path, "x", np.arange(5000), chunks=(1000,))
    bare = {**environment, "HDF5_PLUGIN_PATH": str(tmp_path), "HDF5_PLUGIN_PRELOAD": ""}
    done = subprocess.run(
        ["h5dump", "--enable-error-stack", "-d", "x", path],
        env=bare,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    said = "required filter 'gpufetch; pip install hdf5-gpufetch' is not registered"
    assert said in done.stderr
    described = ["h5dump", "-H", "-p", str(path)]
    assert "COMMENT gpufetch; pip install hdf5-gpufetch" in subprocess.check_output(
        described, env=bare, text=True
    )


def test_a_damaged_chunk_is_an_error_that_says_so(
    environment: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "x.h5"
    gf.hdf5.write(path, "x", np.arange(5000), chunks=(1000,))
    with h5py.File(path, "r+") as file:
        mask, chunk = file["x"].id.read_direct_chunk((0,))
        file["x"].id.write_direct_chunk((0,), chunk[:-1] + bytes([chunk[-1] ^ 1]), mask)
    code = "import h5py, hdf5_gpufetch, sys; h5py.File(sys.argv[1])['x'][...]"
    assert "gpufetch: corrupt chunk at byte" in run(environment, "-c", code, path, fails=True)


def test_ls_says_what_gpufetch_ls_says(environment: dict[str, str]) -> None:
    ours = run(dict(os.environ), "-m", "gpufetch", "ls", FIXTURES)
    assert command(environment, "ls", FIXTURES) == ours and ours.count("\n") > 200


@pytest.mark.parametrize("codec", ["gzip", "none"])
def test_repack_makes_a_copy_that_any_hdf5_reads(
    environment: dict[str, str], tmp_path: Path, codec: str
) -> None:
    copy = tmp_path / "copy.h5"
    command(environment, "repack", "--codec", codec, FIXTURES, copy)
    code = f"""
    import sys, hashlib, json
    import h5py
    import numpy as np
    {SUM}
    expected = json.load(open(sys.argv[2]))
    assert sums(sys.argv[1]) == {{name: e["values_sha256"] for name, e in expected.items()}}
    assert "hdf5_gpufetch" not in sys.modules
    """
    python(environment, code, copy, FIXTURES.with_suffix(".json"))
    assert [path.name for path in tmp_path.iterdir()] == ["copy.h5"]


@pytest.mark.parametrize("verb", ["plugin-path", "ls", "refs"])
def test_output_that_nobody_takes_is_a_failure(environment: dict[str, str], verb: str) -> None:
    file = "" if verb == "plugin-path" else shlex.quote(str(FIXTURES))
    for where, reason in (("> /dev/full", "No space left"), (">&-", "Bad file descriptor")):
        done = subprocess.run(
            f"{sys.executable} -m hdf5_gpufetch {verb} {file} {where}",
            shell=True,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 1
        assert done.stderr.startswith(f"hdf5-gpufetch {verb}: ") and reason in done.stderr
        assert done.stderr.count("\n") == 1


def test_repack_needs_no_hard_links(environment: dict[str, str], tmp_path: Path) -> None:
    """File systems such as exFAT have none. Nobody's file is replaced without them, either."""
    code = """
    import errno, os, sys
    from pathlib import Path
    from hdf5_gpufetch import __main__ as program
    source, made, others = map(Path, sys.argv[1:])

    def refuse(unnamed, path):
        if Path(path) == others:  # made meanwhile
            others.write_bytes(b"kept")
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), unnamed, None, path)

    os.link = refuse
    assert not program.main(["repack", str(source), str(made)])
    assert program.main(["repack", str(source), str(others)])
    """
    made, others = tmp_path / "made.h5", tmp_path / "others.h5"
    python(environment, code, FIXTURES, made, others)
    assert h5py.is_hdf5(made)
    assert others.read_bytes() == b"kept"
    assert {path.name for path in tmp_path.iterdir()} == {"made.h5", "others.h5"}


def test_a_failed_repack_leaves_the_folder_as_it_was(
    environment: dict[str, str], tmp_path: Path
) -> None:
    damaged, kept = tmp_path / "damaged.h5", tmp_path / "kept.h5"
    gf.hdf5.write(damaged, "x", np.arange(5000), chunks=(1000,))
    with h5py.File(damaged, "r+") as file:
        file["x"].id.write_direct_chunk((0,), bytes(96), 0)
    kept.write_bytes(b"kept")
    said = command(environment, "repack", FIXTURES, kept, fails=True)
    assert "exists already" in said and "--overwrite" in said
    said = command(environment, "repack", "--overwrite", damaged, kept, fails=True)
    assert "repack: dataset /x: " in said and "corrupt" in said
    assert kept.read_bytes() == b"kept"
    assert {path.name for path in tmp_path.iterdir()} == {"damaged.h5", "kept.h5"}
    command(environment, "repack", "--overwrite", FIXTURES, kept)
    assert h5py.is_hdf5(kept)


def test_a_folder_without_the_plugin_is_an_error_that_names_the_file(
    environment: dict[str, str], tmp_path: Path
) -> None:
    shutil.copytree(environment["PYTHONPATH"], tmp_path / "site")
    (tmp_path / "site/hdf5_gpufetch/plugins/libh5z_gpufetch.so").write_bytes(b"no library")
    broken = {**environment, "PYTHONPATH": str(tmp_path / "site")}
    said = run(broken, "-c", "import hdf5_gpufetch", fails=True)
    assert "ImportError: hdf5_gpufetch cannot load" in said and "libh5z_gpufetch.so" in said
    code = """
    import contextlib, sys
    before = list(sys.meta_path)
    with contextlib.suppress(ImportError):
        import hdf5_gpufetch
    assert sys.meta_path == before
    """
    python(broken, code)


# --- What it is built from -------------------------------------------------------------------


def listed_sources(cpu: str) -> set[str]:
    """The codec's files in its meson.build, without those of other CPUs."""
    text = (REPOSITORY / "src/codec/meson.build").read_text()
    common, rest = text.split("\nif host_machine", 1)
    own = re.findall(rf"cpu_family\(\) == '{cpu}'\n(.*)\n", rest)
    return {f"src/codec/{name}" for name in re.findall(r"'(\w+\.c)'", common + "".join(own))}


@pytest.mark.parametrize("name", build_reader.PLATFORMS)
def test_the_reader_is_compiled_from_what_the_plugin_is(name: str) -> None:
    platform = build_reader.PLATFORMS[name]
    sources = build_reader.c_sources(platform)
    assert all((REPOSITORY / path).is_file() for path in sources)
    codec = {path for path in sources if path.startswith("src/codec/")}
    assert codec == listed_sources(platform.cpu) and len(codec) > 25


TYPES = """hid_t herr_t htri_t hsize_t H5Z_filter_t H5Z_class2_t H5T_class_t H5T_order_t H5T_sign_t
H5PL_type_t"""
MEMBERS = "version id encoder_present decoder_present name can_apply set_local filter"


def test_the_plugins_types_are_those_of_hdf5s_headers(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not (SYSTEM_HEADERS / "hdf5.h").exists():
        pytest.skip("no compiler, or no HDF5 headers (Debian: libhdf5-dev)")
    ours = REPOSITORY / "hdf5_filter" / "hdf5_types.h"
    text = ours.read_text()
    values = re.findall(r"\b(H5\w+) = -?\d+", text) + re.findall(r"#define (H5\w+) ", text)
    assert len(values) > 20
    expressions = [
        *(f"sizeof({name})" for name in TYPES.split()),
        *(f"offsetof(H5Z_class2_t, {name})" for name in MEMBERS.split()),
        *values,
    ]
    printed = []
    for header in (ours, SYSTEM_HEADERS / "hdf5.h"):
        lines = "".join(f'printf("%lld {e}\\n", (long long)({e}));\n' for e in expressions)
        source = f'#include <stddef.h>\n#include <stdio.h>\n#include "{header}"\n'
        if header != ours:
            source += "#include <H5PLextern.h>\n"
        (tmp_path / "a.c").write_text(f"{source}int main(void) {{\n{lines}}}\n")
        flags = [f"-I{SYSTEM_HEADERS}", "-o", tmp_path / "a", tmp_path / "a.c"]
        subprocess.run([compiler, *flags], check=True)
        printed.append(subprocess.run([tmp_path / "a"], capture_output=True, check=True).stdout)
    assert printed[0] == printed[1]


def test_the_sdist_has_what_the_wheel_is_built_from(tmp_path: Path) -> None:
    """It is the same wherever it is made, and its wheel would be made from the same files."""
    name = build_reader.write_sdist(tmp_path / "a")
    assert build_reader.write_sdist(tmp_path / "b") == name
    archive = (tmp_path / "a" / name).read_bytes()
    assert archive == (tmp_path / "b" / name).read_bytes()
    shutil.unpack_archive(tmp_path / "a" / name, tmp_path, filter="data")
    folder = tmp_path / name.removesuffix(".tar.gz")
    code = """
    import hashlib, json
    import build_reader
    files = build_reader.package_files({"a.so": b"plugin"})
    target = build_reader.PLATFORMS["linux-x86_64"]
    sources = {n: (build_reader.ROOT / n).read_bytes() for n in build_reader.c_sources(target)}
    files |= sources | build_reader.dist_info_files(target)
    print(json.dumps({name: hashlib.sha256(data).hexdigest() for name, data in files.items()}))
    """
    here, there = (
        run({**os.environ, "PYTHONPATH": str(path)}, "-c", textwrap.dedent(code))
        for path in (SOURCES, folder)
    )
    assert here == there and hashlib.sha256(b"plugin").hexdigest() in here


def test_the_filter_id_is_the_headers() -> None:
    module: dict[str, object] = {}
    exec(build_reader.package_files({"a.so": b""})["hdf5_gpufetch/_build.py"], module)
    assert module["FILTER_IDS"] == gf.hdf5.FILTER_IDS and module["FILTER_IDS"] == (FILTER_ID,)
    assert module["VERSION"] == gf.__version__
