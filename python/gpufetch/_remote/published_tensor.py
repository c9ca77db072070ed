"""One tensor that a server publishes: pulling from it, and reducing it there."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar, final

import numpy as np
import numpy.typing as npt

from gpufetch import _core
from gpufetch._remote.client import Reply
from gpufetch._remote.replies import ReplyError, counts_of, dtype_of, number
from gpufetch._remote.session import Session
from gpufetch._remote.together import Publication, Together
from gpufetch._remote.view import RemoteView, Slices
from gpufetch._text import format_nbytes
from gpufetch._view import HistogramResult, OverviewResult, PublishedAnewError

__all__ = ["PublishedTensor", "of_one_publication"]

# Fewer bytes come in messages as quickly as shared memory is opened.
_SHARE_NBYTES_MIN = 8 << 20
_LOOKUPS_MAX = 20

T = TypeVar("T")


def of_one_publication(name: str, work: Callable[[], T]) -> T:
    """What `work` gives, which is done again where it raises PublishedAnewError."""
    for _ in range(_LOOKUPS_MAX):
        with contextlib.suppress(PublishedAnewError):
            return work()
    raise _always_anew(name)


def _always_anew(name: str) -> RuntimeError:
    return RuntimeError(f"{name} was published anew at each of {_LOOKUPS_MAX} reads of it")


@final
class PublishedTensor:
    """A tensor as a listing described it; what a LazyArray of it wraps.

    Satisfies RemoteTensor. May be used from any thread. What was listed must still be true when it
    is read, since indices mean something else in a tensor of another shape: requests name the
    tensor's generation, and replies say the tensor's shape and dtype. Where another tensor has the
    name by now, or the server has started anew, the tensor is looked up again, and RuntimeError is
    raised if its shape or dtype differs. That is raised in any case for a part of a larger array,
    whose place may have changed.

    Raises ReplyError if the listing says that the tensor cannot be read.
    """

    def __init__(self, session: Session, item: Mapping[str, Any]) -> None:
        if problem := item.get("problem"):
            raise ReplyError("unreadable", f"{item['name']} cannot be read: {problem}")
        self._session = session
        self.name: str = item["name"]
        self.shape: tuple[int, ...] = tuple(item["shape"])
        self.dtype: np.dtype[Any] = dtype_of(item["dtype"])
        self.device: str = item["device"]
        self._is_part = "global_shape" in item
        # The start of the server, and the generation there, of which the above is true. 0: it is a
        # variable of an IPython kernel, which has none.
        self._known: tuple[str, int] = (session.instance, item.get("generation", 0))

    def _gpufetch_view(self) -> RemoteView:
        return RemoteView(self)

    def __repr__(self) -> str:
        return f"<tensor {self.name} of {self._session.label}>"

    @property
    def server(self) -> str:
        """The name of the server."""
        return self._session.label

    @property
    def is_read_at_steps(self) -> bool:
        """Whether each request is of a step of its own."""
        return self._session.at == "step"

    def last_step(self) -> int | None:
        """The step that the program completed last, for which the server is asked."""
        self._session.listing()
        return self._session.step

    # --- Elements ---

    def read(
        self,
        slices: Slices,
        shape: tuple[int, ...],
        out: npt.NDArray[Any] | None,
        together: Together | None = None,
    ) -> npt.NDArray[Any]:
        """Pull elements: through shared memory where that pays and works, else in messages."""
        together = together or Together(math.prod(shape) * self.dtype.itemsize)
        of = together.publications.get(self)
        is_large = together.nbytes >= _SHARE_NBYTES_MIN

        def pull(generation: int) -> tuple[npt.NDArray[Any], Publication]:
            memory = of.memory if of else self._shared(generation) if is_large else None
            if memory is not None:
                key = tuple(i if isinstance(i, int) else slice(*i) for i in slices)
                return _core.fetch(memory[key], out=out), Publication(memory, "", 0)
            values = np.empty(shape, self.dtype) if out is None else out
            publication = self._read_messages(slices, generation, values, together)
            return values, Publication(None, self._session.instance, publication)

        values, together.publications[self] = self._of_same(pull)
        return values

    def _shared(self, generation: int) -> _core.DeviceArray | None:
        """The tensor's memory, where this process can open it."""
        if self.device == "cpu:0":
            return None
        shared = self._session.shared(self.name, generation)
        if shared is not None:
            self._check_unchanged(shared.shape, shared.dtype)
        return shared

    def _read_messages(
        self,
        slices: Slices,
        generation: int,
        values: npt.NDArray[Any],
        together: Together,
    ) -> int:
        """Pull elements into `values`, which is in C order; the publication that they are of.

        PublishedAnewError where that cannot be the one of those that belong `together`.
        """
        request = self._request("read", slices, generation, together)
        fragments = partial(self._session.hold, lambda: self._read_fragments(request, values))
        if self in together.publications:
            return self._of_named(fragments)
        return of_one_publication(self.name, fragments)

    def _of_named(self, ask: Callable[[], T]) -> T:
        """What `ask` gives; PublishedAnewError where the server lacks the publication it names."""
        try:
            return ask()
        except ReplyError as error:
            if error.code != "stale":
                raise
            raise self._anew() from error

    def _anew(self) -> PublishedAnewError:
        return PublishedAnewError(
            f"{self.name} was published anew between reads that belong together: read it again"
        )

    def _read_fragments(self, request: dict[str, Any], values: npt.NDArray[Any]) -> int:
        """Pull elements into `values` with the session held; the publication that they are of.

        PublishedAnewError where the server does not have the memory any more that the first of them
        are of.
        """
        flat = values.reshape(-1).view(np.uint8)
        most = self._session.connected().max_reply_nbytes
        first, (buffer,) = self._session.request({**request, "fragment": 0})
        self._check_described(first["tensor"])
        if first["fragments"] > 1 and self.is_read_at_steps:
            raise ValueError(
                f"{format_nbytes(values.nbytes)} of {self.name} do not fit one reply, and "
                "fragments would be of several steps (index arrays read the box around their "
                f"indices): index {format_nbytes(most)} at most, take an overview, or read live "
                '(at = "live")'
            )
        flat[: len(buffer)] = np.frombuffer(buffer, np.uint8)
        done = len(buffer)

        def take(answer: Reply) -> None:
            nonlocal done
            reply, (buffer,) = answer
            self._check_described(reply["tensor"])
            start = reply["offset"]
            flat[start : start + len(buffer)] = np.frombuffer(buffer, np.uint8)
            done += len(buffer)

        # The server holds the memory that fragment 0 is of, whatever is published meanwhile.
        publication: int = first["publication"]
        same = {**request, "publication": publication}
        rest = [{**same, "fragment": index} for index in range(1, first["fragments"])]
        self._of_named(lambda: self._session.requests(rest, take))
        if done != values.nbytes:
            raise RuntimeError(f"{self.name}: {done} of {values.nbytes} bytes came: read it again")
        return publication

    def _check_described(self, tensor: Mapping[str, Any]) -> None:
        """Refuse what is of another tensor, as a listing or a reply describes it."""
        self._check_unchanged(tuple(tensor["shape"]), dtype_of(tensor["dtype"]))

    def _check_unchanged(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        if (shape, dtype) != (self.shape, self.dtype):
            raise RuntimeError(
                f"{self.name} is {dtype} {shape} there now, not {self.dtype} {self.shape}: look it "
                "up anew"
            )

    # --- Reductions ---

    def overview(
        self,
        slices: Slices,
        shape: tuple[int, ...],
        method: str,
        together: Together | None = None,
    ) -> OverviewResult:
        """Reduce a selection to at most `shape` cells."""
        more = {"shape": list(shape), "method": method}
        reply, buffers = self._reduced("overview", slices, together, more)
        dtype, cells = dtype_of(reply["dtype"]), tuple(reply["shape"])
        arrays = [np.frombuffer(buffer, dtype).reshape(cells).copy() for buffer in buffers]
        return arrays[0], arrays[1] if len(arrays) > 1 else None, counts_of(reply)

    def stats(self, slices: Slices, together: Together | None = None) -> dict[str, Any]:
        """Statistics of a selection."""
        reply, _ = self._reduced("stats", slices, together, {})
        count, nan_count, posinf_count, neginf_count = counts_of(reply)
        exact = self.dtype.kind in "biu"
        extremes = ("min", "max", "finite_min", "finite_max")
        return {
            "count": count,
            "nan_count": nan_count,
            "posinf_count": posinf_count,
            "neginf_count": neginf_count,
            "finite_count": int(reply["finite_count"]),
            "zero_count": int(reply["zero_count"]),
            **{name: number(reply[name], exact) for name in extremes},
            "mean": float(reply["mean"]),
            "variance": float(reply["variance"]),
        }

    def histogram(
        self,
        slices: Slices,
        bins: int,
        limits: tuple[float, float] | None,
        together: Together | None = None,
    ) -> HistogramResult:
        """Count the elements of a selection in bins."""
        more = {"bins": bins} if limits is None else {"bins": bins, "range": list(limits)}
        reply, (counts, edges) = self._reduced("histogram", slices, together, more)
        rest = (int(reply["nan_count"]), int(reply["under_count"]), int(reply["over_count"]))
        return np.frombuffer(counts, np.uint64), np.frombuffer(edges, np.float64), rest

    # --- Requests ---

    def of_one_publication(self, work: Callable[[Together], T]) -> T:
        """What `work` gives, whose requests are all of one publication, which the server holds.

        `work` is called again where that was withdrawn meanwhile. No other thread's requests come
        between its own.
        """

        def held() -> T:
            together = Together(0, holds=True)
            result = work(together)
            together.holds = False
            with contextlib.suppress(KeyError, ReplyError, PublishedAnewError):  # gone already
                self.read([[0, 0, 1]] * len(self.shape), (0,) * len(self.shape), None, together)
            return result

        return of_one_publication(self.name, partial(self._session.hold, held))

    def _request(
        self, op: str, slices: Slices, generation: int, together: Together
    ) -> dict[str, Any]:
        """A request; PublishedAnewError where it cannot be of the publication it belongs to."""
        request: dict[str, Any] = {"op": op, "name": self.name, "slices": slices}
        if generation > 0:
            request["generation"] = generation
        if together.holds:
            request["hold"] = True
        of = together.publications.get(self)
        if of is not None:
            if of.instance != self._session.instance:
                raise self._anew()
            request["publication"] = of.number
        return request

    def _reduced(
        self, op: str, slices: Slices, together: Together | None, more: Mapping[str, Any]
    ) -> Reply:
        together = together or Together(0)

        def ask(generation: int) -> Reply:
            request = {**self._request(op, slices, generation, together), **more}
            if self in together.publications:
                reply, buffers = self._of_named(lambda: self._session.request(request))
            else:
                reply, buffers = self._session.request(request)
            self._check_described(reply["tensor"])
            return reply, buffers

        answer = self._of_same(ask)
        publication = Publication(None, self._session.instance, answer[0]["publication"])
        together.publications[self] = publication
        return answer

    def _of_same(self, ask: Callable[[int], T]) -> T:
        """What `ask` gives for the generation that is this tensor."""
        for _ in range(_LOOKUPS_MAX):
            instance, generation = self._known
            try:
                answer = ask(generation)
            except ReplyError as error:
                if error.code != "stale" or self._is_part:
                    raise
            else:
                if self._session.instance == instance:
                    return answer
                if self._is_part:
                    raise RuntimeError(
                        f"{self._session.label} has started anew: look {self.name} up again"
                    )
            self._look_up()
        raise _always_anew(self.name)

    def _look_up(self) -> None:
        """Find out of which generation the tensor is now; RuntimeError if it is another one."""

        def look_up() -> tuple[str, dict[str, Any]]:
            self._session.connected()
            instance = self._session.instance
            listing = self._session.listing()
            return instance, {item["name"]: item for item in listing["tensors"]}

        instance, items = self._session.hold(look_up)
        if self._session.instance != instance:
            return  # the next read sees that
        item = items.get(self.name)
        if item is None:
            raise KeyError(f"no tensor is published as {self.name!r} any more")
        if problem := item.get("problem"):
            raise ReplyError("unreadable", f"{self.name} cannot be read: {problem}")
        self._check_described(item)
        self._known = instance, item.get("generation", 0)
