/* What the residuals of a sample cost. A thread has a group of it. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_TALLIES_CUH
#define GPUFI_BACKEND_CUDA_CODEC_TALLIES_CUH

#include "backend/cuda/codec/sample.cuh"

namespace gpufi {

/* What the residuals of a group have in common. */
template <typename T> struct group_tally {
  T any, magnitudes;
  uint32_t used_count; /* that are not 0 */

  __device__ __forceinline__ void add(T r) {
    using S = typename signed_of<T>::type;
    any |= r;
    magnitudes |= static_cast<T>(r ^ static_cast<T>(static_cast<S>(r) >> (kBits<T> - 1)));
    used_count += r != 0 ? 1 : 0;
  }
};

/* Costs of one group of each lane. All lanes, the same answer. */
template <typename T> __device__ inline residual_cost warp_cost(const group_tally<T> &group) {
  residual_cost cost;
  /* Of the widest zigzagged one; at most 64: sums of 32 fit the words. */
  const uint32_t width = group.any != 0 ? bit_length(group.magnitudes) + 1 : 0;
  const uint32_t widths = warp_add(width | (width != 0 ? 1u << 16 : 0u));
  const uint32_t used = warp_add(width * group.used_count | group.used_count << 16);
  cost.residual_or = warp_or(group.any);
  cost.width_sum = widths & 0xffff;
  cost.group_count = widths >> 16;
  cost.used_width_sum = used & 0xffff;
  cost.used_count = used >> 16;
  return cost;
}

/* Bits of the sampled groups: three of a code and the values, or, sparse, the mask's and only the
 * values that are not 0. */
__device__ inline uint32_t sampled_bits(const residual_cost &cost, uint32_t take, int value_bits) {
  const uint64_t bits = cost.residual_or;
  const uint32_t less = trailing_zeros(bits) + (bits >> (value_bits - 1) & 1 ? 0 : 1);
  const uint32_t dense = 3 * take + kGroup * (cost.width_sum - less * cost.group_count);
  const uint32_t sparse =
      take + kGroup * cost.group_count + cost.used_width_sum - less * cost.used_count;
  return dense < sparse ? dense : sparse;
}

/* The residuals of a group along each of kSubsets. */
template <typename T, uint32_t kSubsets> struct group_tallies {
  group_tally<T> of[kSubsets];

  /* Add one value, which is f[0]; f[s] is its neighbour along all axes of s, 0 if there is none. It
   * has neighbours along the axes `inside`; `chained` is its residual by the chain rule. */
  __device__ __forceinline__ void add(T f[kSubsets], T chained, uint32_t inside) {
#pragma unroll
    for (uint32_t bit = 1; bit < kSubsets; bit *= 2) {
#pragma unroll
      for (uint32_t s = 0; s < kSubsets; s++) {
        f[s] = (s & bit) ? static_cast<T>(f[s ^ bit] - f[s]) : f[s];
      }
    }
#pragma unroll
    for (uint32_t s = 0; s < kSubsets; s++) {
      of[s].add(s != 0 && (s & inside) == 0 ? chained : f[s]);
    }
  }

  /* Add the warp's costs along each subset to costs[s], in shared memory. All lanes. */
  __device__ __forceinline__ void add_to(residual_cost *costs) const {
#pragma unroll
    for (uint32_t s = 0; s < kSubsets; s++) {
      const residual_cost cost = warp_cost(of[s]);
      if (threadIdx.x % kWarp == s) {
        cost.add_to(&costs[s]);
      }
    }
  }
};

/* The cheapest of the usable subsets, of each of `transforms` transforms, by their costs: lane
 * 16t + s takes transform t and subset s. Returns the sample's bits; *transform and *subset are the
 * choice. A whole warp, the same answer. */
template <typename T>
__device__ uint32_t cheapest(const chunk_grid &grid, const residual_cost *costs,
                             uint32_t transforms, uint32_t *transform, uint32_t *subset) {
  const uint32_t lane = threadIdx.x % kWarp, t = lane / kSubsetsMax, s = lane % kSubsetsMax;
  uint32_t key = UINT32_MAX;
  if (s < 1u << grid.usable_count && t < transforms) {
    key = sampled_bits(costs[lane], sample_take(grid), kBits<T>) * kWarp + lane;
  }
  key = UINT32_MAX - warp_max(UINT32_MAX - key);
  *transform = key % kWarp / kSubsetsMax;
  *subset = key % kSubsetsMax;
  return key / kWarp;
}

} // namespace gpufi

#endif
