/* The place of a run in the batch: a decoupled look-back over the sizes of the runs before it. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_LOOKBACK_CUH
#define GPUFI_BACKEND_CUDA_CODEC_LOOKBACK_CUH

#include "backend/cuda/codec_device.cuh"

namespace gpufi {

/* A prefix word: bit 0 set = the run's own size, bit 1 set = the end of the run in the batch. */
constexpr unsigned kFlagBits = 2;
constexpr unsigned long long kIsSize = 1, kIsEnd = 2;

__device__ inline unsigned long long load_relaxed(const unsigned long long *p) {
  return *static_cast<const volatile unsigned long long *>(p);
}

__device__ inline void store_relaxed(unsigned long long *p, unsigned long long value) {
  *static_cast<volatile unsigned long long *>(p) = value;
}

/* Publish that run `index` of the batch takes `nbytes`, and return where it starts. A whole warp.
 */
__device__ inline unsigned long long look_back(unsigned long long *prefixes, uint32_t index,
                                               unsigned long long nbytes, int lane) {
  unsigned long long start = 0;
  if (lane == 0 && index != 0) {
    store_relaxed(&prefixes[index], nbytes << kFlagBits | kIsSize);
  }
  for (int64_t window = static_cast<int64_t>(index) - 1; window >= 0; window -= kWarp) {
    const int64_t at = window - lane;
    unsigned long long word = at >= 0 ? load_relaxed(&prefixes[at]) : kIsEnd;
    while (__any_sync(kFull, word == 0)) {
      if (word == 0) {
        word = load_relaxed(&prefixes[at]);
      }
    }
    const uint32_t ends = __ballot_sync(kFull, (word & kIsEnd) != 0);
    const int last = ends ? __ffs(static_cast<int>(ends)) - 1 : kWarp - 1;
    const uint64_t part = lane <= last ? word >> kFlagBits : 0;
    start += warp_add(part);
    if (ends) {
      break;
    }
  }
  if (lane == 0) {
    store_relaxed(&prefixes[index], (start + nbytes) << kFlagBits | kIsEnd);
  }
  return start;
}

} // namespace gpufi

#endif
