/* The offset that all residuals of a chunk of integers are less by: codec/predict.c is the
 * reference. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_OFFSET_CUH
#define GPUFI_BACKEND_CUDA_CODEC_OFFSET_CUH

#include "backend/cuda/codec/tallies.cuh"

namespace gpufi {

/* The median of the first residuals of some sampled groups. By one warp. */
template <typename T, typename Values>
__device__ T median_residual(const residual_source<T, Values> &from) {
  using S = typename signed_of<T>::type;
  const uint32_t lane = threadIdx.x;
  S mine = 0;
  if (lane < GPUFI_OFFSET_GROUPS) {
    const uint32_t k = lane * sample_take(from.grid) / GPUFI_OFFSET_GROUPS;
    mine = static_cast<S>(from.residual(sampled_group(from.grid, k)));
  }
  uint32_t rank = 0;
  for (int k = 0; k < GPUFI_OFFSET_GROUPS; k++) {
    const S other = static_cast<S>(__shfl_sync(kAllLanes, mine, k));
    rank += other < mine || (other == mine && static_cast<uint32_t>(k) < lane) ? 1 : 0;
  }
  const uint32_t found =
      __ballot_sync(kAllLanes, lane < GPUFI_OFFSET_GROUPS && rank == GPUFI_OFFSET_GROUPS / 2);
  return static_cast<T>(__shfl_sync(kAllLanes, mine, __ffs(static_cast<int>(found)) - 1));
}

/* Try an offset for integers; returns the sample's bits with it, which *offset_chosen then is, or
 * without if that is less. `shared` has a cost and an offset. All threads. */
template <typename T, typename Values, typename Shared>
__device__ uint32_t choose_offset(const residual_source<T, Values> &from, uint32_t bits,
                                  Shared *shared, unsigned long long *offset_chosen) {
  if (threadIdx.x < kWarp) {
    const T median = median_residual(from);
    if (threadIdx.x == 0) {
      shared->offset = static_cast<uint64_t>(median);
      shared->cost = {};
    }
  }
  __syncthreads();
  const T offset = static_cast<T>(shared->offset);
  if (offset == 0) {
    return bits;
  }
  group_tally<T> tally = {};
  for (uint32_t t = 0; t < kGroup; t++) {
    const sampled_value here = sample_value(from.grid, threadIdx.x, t);
    tally.add(here.valid ? static_cast<T>(from.residual(here.i) - offset) : static_cast<T>(0));
  }
  const residual_cost mine = warp_cost(tally);
  if (threadIdx.x % kWarp == 0) {
    mine.add_to(&shared->cost);
  }
  __syncthreads();
  const uint32_t with = sampled_bits(shared->cost, sample_take(from.grid), kBits<T>);
  if (threadIdx.x == 0 && with < bits) {
    *offset_chosen = shared->offset;
  }
  return with < bits ? with : bits;
}

} // namespace gpufi

#endif
