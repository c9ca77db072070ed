/* Sums over the threads of a thread block. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_SCAN_CUH
#define GPUFI_BACKEND_CUDA_CODEC_SCAN_CUH

#include "backend/cuda/warp.cuh"

namespace gpufi {

/* The sum of the values of the threads before this one, of kThreads; *total: of all. All threads,
 * which are then synchronized. */
template <uint32_t kThreads> __device__ uint64_t sum_before(uint64_t value, uint64_t *total) {
  __shared__ uint64_t warps[kThreads / kWarp];
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint64_t sum = warp_scan(value, static_cast<int>(lane));
  if (lane == kWarp - 1) {
    warps[warp] = sum;
  }
  __syncthreads();
  uint64_t front = 0;
  *total = 0;
#pragma unroll
  for (uint32_t w = 0; w < kThreads / kWarp; w++) {
    front += w < warp ? warps[w] : 0;
    *total += warps[w];
  }
  __syncthreads();
  return front + sum - value;
}

} // namespace gpufi

#endif
