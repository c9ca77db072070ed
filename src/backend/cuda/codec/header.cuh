/* The header of an encoded chunk: docs/format.md. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_HEADER_CUH
#define GPUFI_BACKEND_CUDA_CODEC_HEADER_CUH

#include "backend/cuda/codec/checksum.cuh"
#include "backend/cuda/codec/grid.cuh"

namespace gpufi {

struct header_coding {
  uint8_t mode, transform, axes, flags, levels, shift, symbol;
  uint64_t payload_nbytes;
  uint64_t seed[2]; /* or the offset, or the leaves of a tree's levels */
};

/* `sum` is that of the payload. */
__device__ inline void write_header(const chunk_grid &grid, uint8_t *chunk,
                                    const header_coding &coding, chunk_sum sum) {
  uint64_t words[GPUFI_HEADER_NBYTES / 8] = {};
  words[0] = GPUFI_CHUNK_MAGIC | static_cast<uint64_t>(GPUFI_CHUNK_VERSION) << 32 |
             static_cast<uint64_t>(grid.dtype) << 40 | static_cast<uint64_t>(coding.mode) << 48 |
             static_cast<uint64_t>(coding.transform) << 56;
  words[1] = coding.axes | static_cast<uint64_t>(grid.ndim) << 8 |
             static_cast<uint64_t>(coding.flags) << 16 |
             static_cast<uint64_t>(coding.levels) << 24 |
             static_cast<uint64_t>(coding.shift) << 40 | static_cast<uint64_t>(coding.symbol) << 48;
  words[2] = grid.raw_nbytes;
  words[3] = coding.payload_nbytes;
#pragma unroll
  for (int k = 0; k < GPUFI_CODEC_NDIM_MAX / 2; k++) {
    words[4 + k] =
        static_cast<uint64_t>(grid.header_dims[2 * k + 1]) << 32 | grid.header_dims[2 * k];
  }
  words[8] = coding.seed[0];
  words[9] = coding.seed[1];
#pragma unroll
  for (int i = 0; i < GPUFI_AT_CHECKSUM / 8; i++) {
    sum.add(static_cast<uint64_t>(i), words[i]);
  }
  words[10] = sum.plain;
  words[11] = sum.mixed;
#pragma unroll
  for (int i = 0; i < GPUFI_HEADER_NBYTES / 8; i++) {
    reinterpret_cast<uint64_t *>(chunk)[i] = words[i];
  }
}

} // namespace gpufi

#endif
