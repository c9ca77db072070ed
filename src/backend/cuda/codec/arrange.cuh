/* Residuals in the arrangements of a block of matches, by a warp: codec/matches.h says which there
 * are, and codec/matches.c is the reference. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_ARRANGE_CUH
#define GPUFI_BACKEND_CUDA_CODEC_ARRANGE_CUH

#include "backend/cuda/codec/groups.cuh"

extern "C" {
#include "codec/matches.h"
}

namespace gpufi {

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

} // namespace gpufi

#endif
