"""The codec that numcodecs finds by its entry point, for Zarr version 2 and kerchunk references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray, ndarray_copy

from hdf5_gpufetch._chunks import check_cd_values, decode_chunk, encode_chunk

__all__ = ["GpufetchCodec"]


class GpufetchCodec(Codec):  # type: ignore[misc,unused-ignore]  # numcodecs is not typed
    """Codes chunks as the HDF5 filter of gpufetch does.

    `cd_values` are the filter's, as the HDF5 dataset has them: 0, dtype code (plus 256 for
    big-endian elements), bytes of a chunk, rank, and the chunk's dimensions. Any thread may use it.

    Raises ValueError for other `cd_values`; coding does for bytes that do not fit them, and for
    damaged chunks.
    """

    codec_id = "gpufetch"

    def __init__(self, cd_values: Sequence[int]) -> None:
        self.cd_values = list(check_cd_values(cd_values))

    def encode(self, buf: Any) -> bytes:
        """A chunk of the elements in `buf`, which has cd_values[2] bytes in C order."""
        return encode_chunk(_bytes(buf), tuple(self.cd_values))

    def decode(self, buf: Any, out: Any = None) -> Any:
        """The elements' bytes, or `out` with them, which must have cd_values[2] bytes."""
        raw = decode_chunk(_bytes(buf), tuple(self.cd_values))
        if out is None:
            return raw
        if ensure_contiguous_ndarray(out).nbytes != len(raw):
            raise ValueError(f"out must have {len(raw)} bytes, as the chunk")
        return ndarray_copy(raw, out)


def _bytes(buf: Any) -> memoryview:
    return memoryview(ensure_contiguous_ndarray(buf)).cast("B")
