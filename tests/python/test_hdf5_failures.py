"""What becomes of reads and writes of HDF5 files where memory runs out or the system fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from failing_calls import needs_failing_calls, run_with_failing_calls

pytestmark = needs_failing_calls

# Each mapping in turn fails, in a process of its own, which an alarm ends.
MAPPINGS = """
path = sys.argv[1]
values = np.arange(10.0)
gf.hdf5.write(path, "x", values)
failed = 0
for number in range(1, 100):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        file = h5py.File(path, "r+")
        write = lambda: gf.hdf5.write(file, "x", values, overwrite=True) is not None
        count, _, raised = attempt(MAPPING, number, 1, errno.ENOMEM, "", write)
        os._exit(0 if count else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0:
        break
    failed += 1
print(failed > 0, status)
"""


def test_an_overwrite_ends_where_the_thread_that_renames_has_no_memory_to_begin(
    tmp_path: Path,
) -> None:
    """One mapping fails, the one for the first frame of the thread among them."""
    assert run_with_failing_calls(MAPPINGS, tmp_path / "file.h5") == "True 1\n"


# Each allocation in turn fails, in a process of its own; prints the outcomes that are neither right
# nor an error.
ALLOCATIONS = """
import ml_dtypes
path, name = sys.argv[1:]
tree = {"s": "text", "none": None, "n": 5, "l": [1.5, None]}
gf.hdf5.write(path, "tree", tree)
gf.hdf5.write(path, "x", np.arange(9).astype(ml_dtypes.float8_e4m3fn))
gf.hdf5.write(path, "c", np.arange(9).astype("c8"))
gf.hdf5.write(path, "b", np.arange(9) % 2 == 0)

def outcome(number):
    expected = tree if name == "tree" else gf.hdf5.read(path, name, device="cpu")
    file = h5py.File(path, "r")
    read = lambda: gf.hdf5.read(file, name, device="cpu")
    count, found, raised = attempt(ALLOCATION, number, 1, errno.ENOMEM, "", read)
    if count == 0:
        return 3
    if raised is not None:
        return 1
    if name == "tree":
        return 0 if found == expected and list(found) == list(expected) else 2
    return 0 if (found.dtype, found.tobytes()) == (expected.dtype, expected.tobytes()) else 2

wrong = errors = 0
for number in range(1, 1000):
    child = os.fork()
    if child == 0:
        os._exit(outcome(number))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 3:
        break
    wrong += status == 2
    errors += status == 1
print(f"{wrong} wrong, {status}, {errors > 0}")
"""


@pytest.mark.parametrize("name", ["x", "c", "b", "tree"])
def test_a_read_without_memory_is_right_or_an_error(tmp_path: Path, name: str) -> None:
    """A question that HDF5 cannot answer is no answer: types and marks stay what they are."""
    printed = run_with_failing_calls(ALLOCATIONS, tmp_path / "file.h5", name)
    assert printed.splitlines()[-1] == "0 wrong, 3, True"  # h5py prints, too


# Every read of the file fails.
READS = """
path = sys.argv[1]
with h5py.File(path, "w") as file:
    gf.hdf5.write(file, "g/d", np.arange(9.0))
for call in (
    lambda: gf.hdf5.read(h5py.File(path, "r"), "g/d"),
    lambda: gf.hdf5.read(h5py.File(path, "r"), "g/none"),
    lambda: gf.hdf5.write(h5py.File(path, "r+"), "g/new", 1.0),
    lambda: gf.hdf5.write(h5py.File(path, "r+"), "g/d", 1.0, overwrite=True),
    lambda: gf.hdf5.write(h5py.File(path, "r+"), "g/t", {"a": 1.0}),
):
    opened = []
    real = h5py.File
    def open_first(*arguments):
        calls.failing_calls_end()
        opened.append(real(*arguments))
        calls.failing_calls_set(READ, 1, ALL, errno.EIO, path.encode())
        return opened[-1]
    h5py.File = open_first
    count, result, raised = attempt(READ, 1, ALL, errno.EIO, path, call)
    h5py.File = real
    code = getattr(raised, "errno", None) or getattr(raised, "native_code", None)
    print(type(raised).__name__, errno.errorcode.get(code), "file read failed" in str(raised))
    try:
        opened[0].close()
    except RuntimeError:
        pass
with h5py.File(path, "r") as file:
    try:
        gf.hdf5.read(file, "g/none")
    except KeyError as error:
        print(error.args[0].split(" in ")[0])
"""


def test_a_failed_read_is_not_reported_as_a_missing_object(tmp_path: Path) -> None:
    """Only HDF5's own "not found" is KeyError."""
    assert run_with_failing_calls(READS, tmp_path / "file.h5").splitlines() == [
        "OSError EIO True",
        "OSError EIO True",
        "Error EIO True",
        "Error EIO True",
        "Error EIO True",
        "no dataset g/none",
    ]


# Each read of the file in turn fails while something is overwritten. After an error HDF5 is asked
# for nothing but reads until the file is closed: `changes` counts moves and deletions.
OVERWRITES = """
path, what = sys.argv[1:]
new = {"w": np.arange(6000.0) + 1} if what == "tree" else np.arange(6000.0) + 1
outcomes = set()
changes = []
for name in ("move", "__delitem__"):
    def counted(self, *arguments, real=getattr(h5py.Group, name)):
        changes.append(arguments)
        return real(self, *arguments)
    setattr(h5py.Group, name, counted)
for number in range(1, 200):
    with h5py.File(path, "w", libver="latest") as file:
        gf.hdf5.write(file, "tree", {"w": np.arange(6000.0)})
        gf.hdf5.write(file, "x", np.arange(6000.0))
    file = h5py.File(path, "r+", libver="latest")
    changes.clear()
    write = lambda: gf.hdf5.write(file, what, new, overwrite=True)
    count, _, raised = attempt(READ, number, 1, errno.EIO, path, write)
    if raised is not None:
        text = str(raised)
        outcomes.add((type(raised).__name__, raised.native_code, "may be damaged" in text))
        names = [name for change in changes for name in change if ".gpufetch-old-" in name]
        assert all(name in text for name in names), (names, text)
    try:
        file.close()
    except RuntimeError:
        pass
    if count == 0:
        break
print(*outcomes)
"""


@pytest.mark.parametrize("what", ["x", "tree"])
def test_an_error_of_reading_says_that_the_file_may_be_damaged(tmp_path: Path, what: str) -> None:
    """Nothing is moved or deleted after the first one, and what then has another name is said."""
    printed = run_with_failing_calls(OVERWRITES, tmp_path / "file.h5", what)
    assert printed == "('Error', 5, True)\n"


# Each time that a source is opened fails in turn, once or from there on. "steps" maps every second
# column, "shapes" a row to a column, which HDF5 itself has to read.
SOURCES = """
folder, mapping = sys.argv[1:]
x = np.arange(4000, dtype="f4").reshape(40, 100) + 1
names = [f"{folder}/source{i}.h5" for i in range(2)]
for i, name in enumerate(names):
    gf.hdf5.write(name, "g/x", x[i * 20 : i * 20 + 20], chunks=(7, 30))
layout = h5py.VirtualLayout((40, 100), "f4")
for i, name in enumerate(names):
    source = h5py.VirtualSource(name, "g/x", shape=(20, 100))
    if mapping == "steps":
        layout[i * 20 : i * 20 + 20, 1::2] = source[:, 1::2]
        layout[i * 20 : i * 20 + 20, ::2] = source[:, ::2]
    elif mapping == "shapes":
        layout[i * 20 : i * 20 + 20] = source[:]
        if i == 0:
            layout = h5py.VirtualLayout((100, 20), "f4")
            layout[:, :] = source
            x = x[:20].reshape(100, 20)
            break
    else:
        layout[i * 20 : i * 20 + 20] = source
with h5py.File(f"{folder}/virtual.h5", "w") as file:
    file.create_virtual_dataset("x", layout, fillvalue=-1)
outcomes = set()
selections = (None, np.s_[15:30:2, 5:], np.s_[3], np.s_[[0, 19]])
for count in (1, ALL) if mapping != "shapes" else (ALL,):
    for selection in selections:
        for number in range(1, 40):
            with h5py.File(f"{folder}/virtual.h5") as file:
                read = lambda: gf.hdf5.read(file, "x", selection=selection, device="cpu")
                failed, found, raised = attempt(OPEN, number, count, errno.EMFILE, "source", read)
            if raised is None:
                outcomes.add(bool(np.array_equal(found, x if selection is None else x[selection])))
            else:
                outcomes.add("OSError" if isinstance(raised, OSError) else repr(raised))
            if failed == 0:
                break
print(*sorted(map(str, outcomes)))
"""


@pytest.mark.parametrize("mapping", ["boxes", "steps", "shapes"])
def test_a_source_that_does_not_open_again_gives_no_fill_values(
    tmp_path: Path, mapping: str
) -> None:
    """Elements come from the sources that were opened and checked, or there is an error."""
    assert run_with_failing_calls(SOURCES, tmp_path, mapping) == "OSError True\n"


# Allocations of gpufetch itself fail, each in a process of its own, which must end well: HDF5
# encodes the chunks of these through the filter, at any time until the file is closed.
REPACKED = """
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng = np.random.default_rng(1)
values = {
    "big-endian": rng.integers(0, 9, (64, 70)).astype(">i4"),
    "text": rng.integers(0, 9, (64, 70)).astype("S4"),
    "numbers": rng.integers(0, 9, (64, 70)).astype("<i4"),
}[name]
with h5py.File(path, "w") as file:
    file.create_dataset("x", data=values, chunks=(9, 8), compression="gzip")
gf.hdf5.repack(path, path + "2")
calls.failing_calls_from(b"_core.abi3")

def outcome(number):
    repack = lambda: gf.hdf5.repack(path, path + "3", overwrite=True)
    failed, _, raised = attempt(ALLOCATION, number, count, errno.ENOMEM, "", repack)
    if failed == 0:
        return 3
    if raised is not None:  # HDF5's own reading, which compares, says so by an OSError
        return 1 if isinstance(raised, (MemoryError, OSError)) and "memory" in str(raised) else 2
    with h5py.File(path + "3") as file:
        return 0 if (file["x"][()] == values).all() else 2

wrong, seen = [], set()
for number in (1, 2, 5, 12, 58, 104, 127, 150):
    child = os.fork()
    if child == 0:
        sys.exit(outcome(number))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 3:
        break
    seen.add(status)
    if status not in (0, 1):
        wrong.append((number, status))
print(wrong, bool(seen))
"""


@pytest.mark.parametrize("count", [1, 1 << 40])
@pytest.mark.parametrize("name", ["big-endian", "text", "numbers"])
def test_a_repack_without_memory_to_encode_is_right_or_an_error(
    tmp_path: Path, name: str, count: int
) -> None:
    assert run_with_failing_calls(REPACKED, tmp_path / "file.h5", name, count) == "[] True\n"
