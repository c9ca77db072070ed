/* Merging what threads, warps and thread blocks have found. */
#ifndef GPUFI_BACKEND_CUDA_REDUCE_RESULTS_CUH
#define GPUFI_BACKEND_CUDA_REDUCE_RESULTS_CUH

#include "backend/cuda/reduce/readers.cuh"

namespace gpufi {

/* How many of a thread's elements take no part in the result: those that are not finite or, in a
 * histogram, are in no bin. */
struct excluded_count {
  uint32_t nan = 0, low = 0, high = 0;

  __device__ void add(double number) {
    if (number != number) {
      nan++;
    } else if (number < 0.0) {
      low++;
    } else {
      high++;
    }
  }

  /* By every thread of the thread block. Of integers, so their order does not matter. */
  __device__ void add_to(gpufi_reduce_head *head) const {
    if (!__any_sync(kAllLanes, (nan | low | high) != 0)) {
      return;
    }
    const uint32_t nans = warp_add(nan), lows = warp_add(low), highs = warp_add(high);
    if (threadIdx.x % kWarp == 0) {
      atomicAdd(reinterpret_cast<unsigned long long *>(&head->nan_count), nans);
      atomicAdd(reinterpret_cast<unsigned long long *>(&head->low_count), lows);
      atomicAdd(reinterpret_cast<unsigned long long *>(&head->high_count), highs);
    }
  }
};

__device__ inline void set_empty(gpufi_reduce_sum &r, bool) {
  r.sum = 0.0;
  r.count = 0;
}

__device__ inline void set_empty(gpufi_reduce_extremes &r, bool keyed) {
  if (keyed) {
    r.low.key = UINT64_MAX;
    r.high.key = 0;
  } else {
    r.low.number = CUDART_INF;
    r.high.number = -CUDART_INF;
  }
}

__device__ inline void set_empty(gpufi_reduce_stats &r, bool keyed) {
  r.mean = r.m2 = 0.0;
  r.finite_count = r.zero_count = r.nan_count = r.low_count = r.high_count = 0;
  set_empty(r.extremes, keyed);
}

__device__ inline void merge(gpufi_reduce_sum &a, const gpufi_reduce_sum &b, bool) {
  a.sum += b.sum;
  a.count += b.count;
}

__device__ inline void merge(gpufi_reduce_extremes &a, const gpufi_reduce_extremes &b, bool keyed) {
  if (keyed) {
    a.low.key = lesser(a.low.key, b.low.key);
    a.high.key = greater(a.high.key, b.high.key);
  } else {
    a.low.number = lesser(a.low.number, b.low.number);
    a.high.number = greater(a.high.number, b.high.number);
  }
}

/* The mean of two sets together, and the squared distances from it. */
__device__ inline void merge_moments(uint64_t &count, double &mean, double &m2, uint64_t count_b,
                                     double mean_b, double m2_b) {
  if (count_b > 0) {
    const double distance = mean_b - mean;
    const double share = static_cast<double>(count_b) / static_cast<double>(count + count_b);
    m2 += m2_b + distance * (distance * (static_cast<double>(count) * share));
    mean = count > 0 ? mean + distance * share : mean_b;
    count += count_b;
  }
}

__device__ inline void merge(gpufi_reduce_stats &a, const gpufi_reduce_stats &b, bool keyed) {
  merge_moments(a.finite_count, a.mean, a.m2, b.finite_count, b.mean, b.m2);
  a.zero_count += b.zero_count;
  a.nan_count += b.nan_count;
  a.low_count += b.low_count;
  a.high_count += b.high_count;
  merge(a.extremes, b.extremes, keyed);
}

/* The results of teams of `width` lanes, each in the team's first lane. All lanes. */
template <typename Result> __device__ void warp_merge(Result &result, int width, bool keyed) {
#pragma unroll 1 /* passed once a cell */
  for (int distance = width / 2; distance > 0; distance /= 2) {
    merge(result, shuffle_down(result, distance, width), keyed);
  }
}

/* The result of all threads, in thread 0. `shared` holds kWarps. */
template <typename Result>
__device__ void merge_thread_block(Result &result, Result *shared, bool keyed) {
  warp_merge(result, kWarp, keyed);
  if (threadIdx.x % kWarp == 0) {
    shared[threadIdx.x / kWarp] = result;
  }
  __syncthreads();
#pragma unroll 1
  for (int warp = 1; warp < kWarps && threadIdx.x == 0; warp++) {
    merge(result, shared[warp], keyed);
  }
}

} // namespace gpufi

#endif
