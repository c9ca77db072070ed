"""A box of an array that several ranks hold together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from gpufetch._checks import check_int

__all__ = ["Part"]


@final
class Part:
    """The box of a global array that a tensor holds: a leaf of the trees of :class:`Checkpoint`.

    >>> rows = gf.Part(u, start=(rank * 512, 0), global_shape=(2048, 1024))
    >>> checkpoint.save(step, {"u": rows})

    Parameters
    ----------
    tensor
        A tensor of any framework, a NumPy array or a DeviceArray, also one without elements.
    start
        Where it begins in the global array: an index for each axis.
    global_shape
        The shape of the global array.

    Raises
    ------
    TypeError, ValueError
        `start` and `global_shape` are not integers from 0 on, or not as many.
    """

    __slots__ = ("global_shape", "start", "tensor")

    tensor: Any
    start: tuple[int, ...]
    global_shape: tuple[int, ...]

    def __init__(self, tensor: Any, *, start: Sequence[int], global_shape: Sequence[int]) -> None:
        self.tensor = tensor
        self.start = tuple(check_int(one, "a number of start", 0) for one in start)
        self.global_shape = tuple(
            check_int(one, "a number of global_shape", 0) for one in global_shape
        )
        if len(self.start) != len(self.global_shape):
            raise ValueError(
                f"start {self.start} and global_shape {self.global_shape} have not as many axes"
            )

    def __repr__(self) -> str:
        return f"<gpufetch.Part at {self.start} of {self.global_shape}: {self.tensor!r:.80}>"
