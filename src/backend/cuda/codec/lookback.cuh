/* The place of a run in the batch: a decoupled look-back over the sizes of the runs before it, on
 * two levels, so that one look reaches over all runs that are under way. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_LOOKBACK_CUH
#define GPUFI_BACKEND_CUDA_CODEC_LOOKBACK_CUH

#include "backend/cuda/codec/encode.cuh"
#include "backend/cuda/relaxed.cuh"

namespace gpufi {

constexpr uint32_t kWindow = 32; /* runs of the batch, one a lane */
/* A window's sum has the bytes of its runs whose sizes are known and, from this bit on, their
 * number.
 */
constexpr int kCountAt = 48;

/* Publish that run `index` takes `nbytes`. One thread. */
__device__ inline void publish_size(const run_sizes &runs, uint32_t index, uint32_t nbytes) {
  store_relaxed(&runs.sizes[index], nbytes + 1);
  atomicAdd(&runs.sums[index / kWindow], 1ull << kCountAt | nbytes);
}

/* Where run `index` starts. Waits for the sizes of the runs before it. A whole warp. */
__device__ inline unsigned long long look_back(const run_sizes &runs, uint32_t index, int lane) {
  const uint32_t window = index / kWindow, first = window * kWindow;
  const uint32_t back = static_cast<uint32_t>(lane);
  uint32_t size = first + back < index ? load_relaxed(&runs.sizes[first + back]) : 1;
  unsigned long long start = 0, sum = 0; /* of the window that is `back` before this one */
  uint32_t reach;                        /* how far back the nearest window with a known start is */
  for (;;) {
    if (back <= window) {
      start = back == window ? 1 : load_relaxed(&runs.starts[window - back]);
      sum = back == 0 ? 0 : load_relaxed(&runs.sums[window - back]);
    }
    const uint32_t known = __ballot_sync(kAllLanes, start != 0);
    const uint32_t whole = __ballot_sync(kAllLanes, back == 0 || sum >> kCountAt == kWindow);
    reach = static_cast<uint32_t>(__ffs(static_cast<int>(known))) - 1;
    if (known != 0 && (~whole & ((2u << reach) - 1)) == 0) {
      break;
    }
  }
  while (__any_sync(kAllLanes, size == 0)) {
    if (size == 0) {
      size = load_relaxed(&runs.sizes[first + back]);
    }
  }
  const unsigned long long in_window = warp_add(static_cast<uint32_t>(size - 1));
  const uint64_t bytes = sum & ((1ull << kCountAt) - 1);
  const uint64_t part = back < reach ? bytes : back == reach ? bytes + start - 1 : 0;
  const unsigned long long at = warp_add(part);
  if (index == first && lane == 0) {
    store_relaxed(&runs.starts[window], at + 1);
  }
  return at + in_window;
}

} // namespace gpufi

#endif
