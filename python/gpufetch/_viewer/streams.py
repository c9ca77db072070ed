"""Streams of frameworks whose current stream is each thread's own."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["ProducerStreams"]


class ProducerStreams:
    """The streams on which a thread works on tensors when this is made; for any thread.

    PyTorch and CuPy order a read after the work of the reading thread's current stream. On another
    thread that is another stream, and the read would not wait for the work that made the tensor.
    """

    def __init__(self, sources: Sequence[Any]) -> None:
        self._thread = threading.get_ident()
        self._streams = [stream for source in sources for stream in _current_stream(source)]

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Let the reads within be ordered after the streams' work, on whatever thread."""
        with contextlib.ExitStack() as stack:
            if threading.get_ident() != self._thread:
                for enter in self._streams:
                    stack.enter_context(enter())
            yield


def _current_stream(source: Any) -> list[Any]:
    """What makes the stream on which this thread works current on another one; none for others."""
    module = type(source).__module__.partition(".")[0]
    if module in ("torch", "transformers") or hasattr(source, "is_cuda"):
        torch: Any = sys.modules.get("torch")
        if torch is not None and source.is_cuda:
            stream = torch.cuda.current_stream(source.device)
            return [lambda: torch.cuda.stream(stream)]
    if module == "cupy":
        cupy: Any = sys.modules["cupy"]
        with source.device:
            current = cupy.cuda.get_current_stream()
        return [lambda: current]
    return []
