"""The codec that zarr-python 3 finds by its entry point, for arrays of Zarr version 3."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np
from zarr.abc.codec import ArrayBytesCodec

from hdf5_gpufetch._chunks import decode_chunk, encode_chunk, stored_dims

__all__ = ["GpufetchZarrCodec"]

# docs/format.md's codes, by NumPy's kind and size. Elements of other types are bytes along one more
# axis; bool is int8, as HDF5 has it for the filter.
_CODES = {
    "b1": 2,
    "i1": 2,
    "i2": 3,
    "i4": 4,
    "i8": 5,
    "u1": 6,
    "u2": 7,
    "u4": 8,
    "u8": 9,
    "f2": 10,
    "f4": 12,
    "f8": 13,
    "c8": 14,
    "c16": 15,
}
_BIG_ENDIAN = 256
_NDIM_MAX = 8


@dataclass(frozen=True)
class GpufetchZarrCodec(ArrayBytesCodec):  # type: ignore[misc,unused-ignore]  # zarr may be missing
    """Codes chunks of arrays as the HDF5 filter of gpufetch does: from an array to bytes.

    `endian`, "little" or "big", is the byte order of the elements in the chunks, as the HDF5
    dataset has it. Everything else is in the chunks. Any thread may use it.

    Raises ValueError for another `endian`, and for chunks that are damaged or of another shape than
    the array's; TypeError for elements whose size varies.
    """

    is_fixed_size = False

    endian: str = "little"

    def __post_init__(self) -> None:
        if self.endian not in ("little", "big"):
            raise ValueError(f"endian is {self.endian!r}: give 'little' or 'big'")

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> GpufetchZarrCodec:
        """The codec that metadata names; ValueError for settings that it does not have."""
        settings = dict(data.get("configuration") or {})
        unknown = settings.keys() - {"endian"}
        if data.get("name") != "gpufetch" or unknown:
            raise ValueError(f"{data!r} is no codec gpufetch: its one setting is endian")
        return cls(**settings)

    def to_dict(self) -> dict[str, Any]:
        """The codec as metadata names it."""
        return {"name": "gpufetch", "configuration": {"endian": self.endian}}

    def validate(self, *, shape: Any, dtype: Any, chunk_grid: Any) -> None:
        """Raise TypeError for elements that are not of one size."""
        native = dtype.to_native_dtype()
        if native.hasobject or native.kind == "T" or native.itemsize == 0:
            raise TypeError(f"the codec gpufetch has chunks of elements of one size, not {native}")

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        """It is known only when a chunk is encoded."""
        raise NotImplementedError("the size of an encoded chunk depends on its elements")

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        return await asyncio.to_thread(self._decode_sync, chunk_bytes, chunk_spec)

    async def _encode_single(self, chunk_array: Any, chunk_spec: Any) -> Any:
        return await asyncio.to_thread(self._encode_sync, chunk_array, chunk_spec)

    def _decode_sync(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        dtype = chunk_spec.dtype.to_native_dtype().newbyteorder(self.endian)
        values = self._values(dtype, chunk_spec.shape)
        data = chunk_bytes.to_bytes()
        raw = decode_chunk(data, values)
        if stored_dims(data) != values[4:]:
            raise ValueError(
                f"the chunk has the dimensions {stored_dims(data)}, and the array's have "
                f"{values[4:]}"
            )
        found = np.frombuffer(raw, dtype).reshape(chunk_spec.shape)
        return chunk_spec.prototype.nd_buffer.from_ndarray_like(found)

    def _encode_sync(self, chunk_array: Any, chunk_spec: Any) -> Any:
        dtype = chunk_spec.dtype.to_native_dtype().newbyteorder(self.endian)
        elements = np.ascontiguousarray(chunk_array.as_numpy_array(), dtype)
        encoded = encode_chunk(elements.tobytes(), self._values(dtype, chunk_spec.shape))
        return chunk_spec.prototype.buffer.from_bytes(encoded)

    def _values(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[int, ...]:
        """The filter's cd_values for a chunk."""
        code = _CODES.get(dtype.str[1:], 0)
        if dtype.kind in "mM":
            code = _CODES["i8"]
        dims = [*(shape or (1,)), *([] if code else [dtype.itemsize])]
        if len(dims) > _NDIM_MAX:
            folded = len(dims) - _NDIM_MAX + 1
            dims = [int(np.prod(dims[:folded])), *dims[folded:]]
        order = _BIG_ENDIAN if code and self.endian == "big" and dtype.itemsize > 1 else 0
        nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
        return (0, (code or _CODES["u1"]) + order, nbytes, len(dims), *dims)
