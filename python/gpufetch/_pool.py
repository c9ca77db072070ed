"""The process-wide pool of pinned host memory."""

from __future__ import annotations

from gpufetch import _core

__all__ = ["Pool", "pool"]


class Pool:
    """The page-locked host memory in which fetched arrays and large overviews lie.

    An array's memory returns to the pool with the array. There is one pool, `gpufetch.pool`. Its
    methods may be called from any thread.
    """

    __slots__ = ()

    @property
    def cap_nbytes(self) -> int:
        """Limit on the bytes that are pinned at one time; arrays beyond it are pageable.

        A lower limit returns unused buffers to the system until the rest fits; buffers that are in
        use stay. By default a quarter of the physical memory, or GPUFETCH_POOL_MAX_NBYTES.
        """
        return _core.pool_stats()["cap_nbytes"]

    @cap_nbytes.setter
    def cap_nbytes(self, nbytes: int) -> None:
        _core.pool_set_cap(nbytes)

    def stats(self) -> dict[str, int]:
        """The pool's counters.

        Keys: cap_nbytes; reserved_nbytes, pinned now; used_nbytes, in arrays now;
        peak_used_nbytes; hit_count and miss_count, the buffers that were taken from pinned memory
        and those that had to be pinned.
        """
        return _core.pool_stats()

    def trim(self, keep_nbytes: int = 0) -> None:
        """Return unused buffers to the system until at most `keep_nbytes` bytes stay pinned.

        Also returns to the driver all device memory of freed `DeviceArray`s, of which up to 2 GiB
        (or GPUFETCH_DEVICE_KEEP_MAX_NBYTES) are kept for reuse.
        """
        _core.pool_trim(keep_nbytes)

    def __repr__(self) -> str:
        stats = self.stats()
        return (
            f"<gpufetch.Pool: {stats['used_nbytes']} bytes used, {stats['reserved_nbytes']} "
            f"pinned, cap {stats['cap_nbytes']}>"
        )


pool = Pool()
