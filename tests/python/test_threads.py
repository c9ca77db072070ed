"""gpufetch._threads: jobs that run at once, on threads and on the caller's own."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from gpufetch._threads import Workers, run_at_once


@pytest.mark.parametrize("mine", ["first", "last"])
def test_the_error_of_another_thread_is_raised_whoever_ends_last(mine: str) -> None:
    is_begun, has_failed = threading.Event(), threading.Event()
    me = threading.get_ident()

    def job() -> int:
        """The caller's ends before the other's has failed, or after that."""
        if threading.get_ident() == me:
            assert is_begun.wait(60)
            assert mine == "first" or has_failed.wait(60)
            return 1
        is_begun.set()
        try:
            raise ValueError("of the other")
        finally:
            has_failed.set()

    for _ in range(50):
        is_begun.clear()
        has_failed.clear()
        with pytest.raises(ValueError, match="of the other"):
            run_at_once(Workers(2), [job, job])


def test_results_are_in_the_order_of_the_jobs() -> None:
    workers = Workers(3)
    for count in range(8):
        jobs = [partial(pow, number, 2) for number in range(count)]
        assert run_at_once(workers, jobs) == [number * number for number in range(count)]
