/* The place of a run in the batch: a decoupled look-back over the sizes of the runs before it. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_LOOKBACK_CUH
#define GPUFI_BACKEND_CUDA_CODEC_LOOKBACK_CUH

#include "backend/cuda/codec_device.cuh"

namespace gpufi {

/* A prefix word: bit 0 set = the run's own size, bit 1 set = the end of the run in the batch. */
constexpr unsigned kFlagBits = 2;
constexpr unsigned long long kIsSize = 1, kIsEnd = 2;
/* How many times 32 words a look-back reads at once: hundreds of runs are on their way. */
constexpr int kWindows = 4;

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
  bool found = false;
  for (int64_t first = static_cast<int64_t>(index) - 1; !found && first >= 0;
       first -= kWindows * kWarp) {
    unsigned long long words[kWindows];
#pragma unroll
    for (int k = 0; k < kWindows; k++) { /* all on their way before the first is waited for */
      const int64_t at = first - k * kWarp - lane;
      words[k] = at >= 0 ? load_relaxed(&prefixes[at]) : kIsEnd;
    }
#pragma unroll
    for (int k = 0; k < kWindows; k++) {
      while (!found && __any_sync(kFull, words[k] == 0)) {
        if (words[k] == 0) {
          words[k] = load_relaxed(&prefixes[first - k * kWarp - lane]);
        }
      }
      const uint32_t ends = __ballot_sync(kFull, (words[k] & kIsEnd) != 0);
      const int last = ends ? __ffs(static_cast<int>(ends)) - 1 : kWarp - 1;
      const uint64_t part = !found && lane <= last ? words[k] >> kFlagBits : 0;
      start += warp_add(part);
      found = found || ends != 0;
    }
  }
  if (lane == 0) {
    store_relaxed(&prefixes[index], (start + nbytes) << kFlagBits | kIsEnd);
  }
  return start;
}

} // namespace gpufi

#endif
