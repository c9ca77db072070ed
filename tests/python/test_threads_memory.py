"""Threads of gpufetch's in which any allocation fails: who waits is told, and the program ends."""

from __future__ import annotations

import sys

import pytest
from failing_calls import needs_failing_calls, run_with_failing_calls

# Each allocation and mapping of the other threads in turn fails, once and five in a row, each
# time in a process of its own.
PROGRAM = """
import asyncio, concurrent.futures, time, warnings
from gpufetch import _core, _futures
from gpufetch._remote import view
warnings.simplefilter("ignore")
source, how = sys.argv[1:]
values = np.arange(1 << 12)

def read():
    time.sleep(0.02)
    return values

def start():
    if source == "remote":
        return view.RemoteFuture(read)
    x = gf.to_device(values, device="host:0")
    gf.fetch(x)
    _core._host_faults(bandwidth=1e6)
    return gf.fetch_async(x)

def told(future):
    left = [None]  # taking it out needs no memory
    future.add_done_callback(lambda _: left.pop())
    while left:
        time.sleep(0.0005)

def waited_for(future):
    assert not concurrent.futures.wait([future]).not_done

def completed(future):
    assert list(concurrent.futures.as_completed([future])) == [future]

def awaited(future):
    async def wait():
        await future
    try:
        asyncio.run(wait())
    except (MemoryError, gf.Error):
        pass

def asked(future):
    try:
        assert (future.result() == values).all()
    except (MemoryError, gf.Error):
        pass

def outcome(number, count):
    signal.alarm(20)  # ends the process
    wait = globals()[how]
    future = start()
    kinds = ALLOCATION | MAPPING | OTHER_THREADS
    calls.failing_calls_set(kinds, number, count, errno.ENOMEM, b"")
    wait(future)
    _futures._watchers.end()
    view._pulls.end()
    assert future.done()
    return 0 if calls.failing_calls_end() else 3

tried = wrong = 0
for count in (1, 5):
    for number in range(1, 21):
        child = os.fork()
        if child == 0:
            try:
                status = outcome(number, count)
            except BaseException as error:
                print(number, count, repr(error), flush=True)
                status = 2
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        tried += status != 3
        if status not in (0, 3, 127):  # glibc ends a process that has no memory for a thread's data
            print(number, count, status, flush=True)
            wrong += 1
print(tried > 0, wrong)
"""


@needs_failing_calls
@pytest.mark.skipif(
    sys.version_info[:2] == (3, 12),
    reason="CPython 3.12 frees the code of a function twice that it has no memory to make",
)
@pytest.mark.parametrize("how", ["told", "waited_for", "completed", "awaited", "asked"])
@pytest.mark.parametrize("source", ["local", "remote"])
def test_who_waits_is_told_whatever_memory_a_thread_has(source: str, how: str) -> None:
    if (source, how) == ("local", "asked"):
        pytest.skip("no thread of Python's takes part")
    printed = run_with_failing_calls(PROGRAM, source, how, PYTHONMALLOC="malloc")
    assert printed.splitlines()[-1] == "True 0", printed
