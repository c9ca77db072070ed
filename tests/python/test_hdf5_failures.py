"""What becomes of reads and writes of HDF5 files where memory runs out or the system fails."""

from __future__ import annotations

from pathlib import Path

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
