/* Residuals in the arrangements of a block of matches, by a warp: codec/matches.h says which there
 * are, and codec/matches.c is the reference. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_ARRANGE_CUH
#define GPUFI_BACKEND_CUDA_CODEC_ARRANGE_CUH

#include "backend/cuda/codec/groups.cuh"

extern "C" {
#include "codec/matches.h"
}

namespace gpufi {

/* The blocks of a chunk, of 2^log2 bytes each. */
__host__ __device__ inline uint32_t match_block_count(const chunk_grid &grid, uint32_t log2) {
  return static_cast<uint32_t>(((grid.raw_nbytes - 1) >> log2) + 1);
}

/* The bytes of a block's residuals, block number `block` of those of 2^log2 bytes. */
__device__ inline uint32_t arranged_nbytes(const chunk_grid &grid, uint32_t block, uint32_t log2) {
  const uint64_t left = grid.raw_nbytes - (static_cast<uint64_t>(block) << log2);
  return left >> log2 != 0 ? 1u << log2 : static_cast<uint32_t>(left);
}

/* Bit k of byte j becomes bit j of byte k. */
__device__ inline uint64_t transpose_8x8(uint64_t x) {
  uint64_t t = (x ^ x >> 7) & 0x00aa00aa00aa00aau;
  x ^= t ^ t << 7;
  t = (x ^ x >> 14) & 0x0000cccc0000ccccu;
  x ^= t ^ t << 14;
  t = (x ^ x >> 28) & 0x00000000f0f0f0f0u;
  return x ^ t ^ t << 28;
}

/* Group number `group` of a block of `total` residuals from its arranged bytes, or as many of the
 * group's residuals as there are; zeros behind them. `arranged` is aligned to 16 bytes. */
template <typename T>
__device__ __forceinline__ void load_arranged(const uint8_t *arranged, uint32_t arrangement,
                                              uint32_t total, uint32_t group, T *v) {
  const uint32_t planes_nbytes = total / kGroup; /* of each plane; what is left follows as it is */
  const T *const values = reinterpret_cast<const T *>(arranged);
  if (group < planes_nbytes && arrangement != GPUFI_ARRANGED_BYTES) {
#pragma unroll
    for (int t = 0; t < kGroup; t++) {
      v[t] = 0;
    }
#pragma unroll
    for (uint32_t b = 0; b < sizeof(T); b++) {
      uint64_t x = 0;
#pragma unroll
      for (uint32_t k = 0; k < 8; k++) {
        x |= static_cast<uint64_t>(arranged[(b * 8 + k) * planes_nbytes + group]) << 8 * k;
      }
      x = transpose_8x8(x);
#pragma unroll
      for (uint32_t t = 0; t < kGroup; t++) {
        v[t] |= static_cast<T>(static_cast<T>(x >> 8 * t & 0xff) << 8 * b);
      }
    }
  } else if (group < planes_nbytes) {
    load_aligned_group(values, group * kGroup, v);
  } else {
#pragma unroll
    for (uint32_t t = 0; t < kGroup; t++) {
      v[t] = group * kGroup + t < total ? values[group * kGroup + t] : static_cast<T>(0);
    }
  }
  if (arrangement == GPUFI_ARRANGED_ZIGZAG) {
#pragma unroll
    for (int t = 0; t < kGroup; t++) {
      v[t] = static_cast<T>((v[t] >> 1) ^ static_cast<T>(0 - (v[t] & 1)));
    }
  }
}

/* The group back, of which values behind the block's end are 0. With zigzag, `v` is zigzagged
 * then. */
template <typename T>
__device__ __forceinline__ void store_arranged(uint8_t *arranged, uint32_t arrangement,
                                               uint32_t total, uint32_t group, T *v) {
  const uint32_t planes_nbytes = total / kGroup;
  T *const values = reinterpret_cast<T *>(arranged);
  if (arrangement == GPUFI_ARRANGED_ZIGZAG) {
#pragma unroll
    for (int t = 0; t < kGroup; t++) {
      v[t] = zigzagged(v[t]);
    }
  }
  if (group < planes_nbytes && arrangement != GPUFI_ARRANGED_BYTES) {
#pragma unroll
    for (uint32_t b = 0; b < sizeof(T); b++) {
      uint64_t x = 0;
#pragma unroll
      for (uint32_t t = 0; t < kGroup; t++) {
        x |= static_cast<uint64_t>(v[t] >> 8 * b & 0xff) << 8 * t;
      }
      x = transpose_8x8(x);
#pragma unroll
      for (uint32_t k = 0; k < 8; k++) {
        arranged[(b * 8 + k) * planes_nbytes + group] = static_cast<uint8_t>(x >> 8 * k);
      }
    }
  } else if (group < planes_nbytes) {
    store_group(values, group * kGroup, v);
  } else {
#pragma unroll
    for (uint32_t t = 0; t < kGroup; t++) {
      if (group * kGroup + t < total) {
        values[group * kGroup + t] = v[t];
      }
    }
  }
}

} // namespace gpufi

#endif
