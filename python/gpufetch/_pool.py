"""The process-wide pool of pinned host memory, as an object."""

from __future__ import annotations

from gpufetch import _core

__all__ = ["Pool", "pool"]


class Pool:
    """Page-locked host memory of fetched arrays and large overviews; it goes back with them.

    There is one, `gpufetch.pool`. Its methods may be called from any thread.
    """

    __slots__ = ()

    @property
    def cap_nbytes(self) -> int:
        """Limit on the bytes that are pinned at one time; fetches beyond it are pageable.

        Setting it keeps blocks that are in use and gives unused ones back until the rest fits.
        By default a quarter of the physical memory, or GPUFETCH_POOL_MAX_NBYTES.
        """
        return _core.pool_stats()["cap_nbytes"]

    @cap_nbytes.setter
    def cap_nbytes(self, nbytes: int) -> None:
        _core.pool_set_cap(nbytes)

    def stats(self) -> dict[str, int]:
        """Return the counters.

        cap_nbytes, reserved_nbytes (pinned now), used_nbytes (in arrays now), peak_used_nbytes,
        hit_count and miss_count (acquisitions that pinned nothing, and that did).
        """
        return _core.pool_stats()

    def trim(self, keep_nbytes: int = 0) -> None:
        """Give unused blocks back to the system until at most `keep_nbytes` stay pinned.

        Device memory of freed `DeviceArray`s, which is kept for reuse (at most 2 GiB, or
        GPUFETCH_DEVICE_KEEP_MAX_NBYTES), goes back to the driver, all of it.
        """
        _core.pool_trim(keep_nbytes)

    def __repr__(self) -> str:
        stats = self.stats()
        return (
            f"<gpufetch.Pool: {stats['used_nbytes']} bytes used, {stats['reserved_nbytes']} "
            f"pinned, cap {stats['cap_nbytes']}>"
        )


pool = Pool()
