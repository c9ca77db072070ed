/* The probes of a chunk of floats, and the numbers that are looked for behind them: codec/probes.c,
 * codec/numbers.c and codec/steps.c are the references, to the bit. A thread block takes a chunk.
 */
#ifndef GPUFI_BACKEND_CUDA_CODEC_PROBES_CUH
#define GPUFI_BACKEND_CUDA_CODEC_PROBES_CUH

#include "backend/cuda/codec/sample.cuh"

extern "C" {
#include "codec/number.h"
}

namespace gpufi {

constexpr uint32_t kProbesMin = 8, kProbes = 64;
constexpr uint32_t kProbedValues = kSampleThreads; /* a thread looks at one */
constexpr double kFittedRange = 0x1p21; /* integers whose step is looked for are below this */

/* The shared memory of a thread block. */
struct probes_shared {
  uint64_t looked[kProbedValues]; /* the values that are looked at, in their order */
  uint32_t there[kProbedValues];  /* whether there is one */
  uint32_t at[kProbes];           /* which of them a probe is */
  uint64_t bits[kProbes];
  double values[kProbes]; /* of 32 and 64 bits; else 0 */
  double unsorted[kProbes], sorted[kProbes], gaps[kProbes];
  uint32_t of_warps[kProbedValues / kWarp]; /* probes of each warp */
  uint32_t count, looked_at, gap_count;
  uint32_t common_hits, odd_hits; /* of the probes, and of the values that were none */
  uint64_t common, odd;
};

template <typename T> __device__ inline double number_of_bits(uint64_t bits) {
  return sizeof(T) == 8   ? gpufi_double_of_bits(bits)
         : sizeof(T) == 4 ? static_cast<double>(gpufi_float_of_bits(static_cast<uint32_t>(bits)))
                          : 0;
}

/* Not 0, not NaN, not infinite, and for widths that may have parameters within their range. */
template <typename T> __device__ inline bool is_probe(uint64_t bits) {
  const uint64_t magnitude = bits & (UINT64_MAX >> (65 - kBits<T>));
  const uint64_t exponent = sizeof(T) == 8 ? magnitude >> 52 : magnitude >> 23;
  const uint64_t one = sizeof(T) == 8 ? 1023 : 127;
  return magnitude != 0 && (sizeof(T) < 4 || (exponent >= one - GPUFI_PARAMETER_EXPONENT_MAX &&
                                              exponent < one + GPUFI_PARAMETER_EXPONENT_MAX));
}

/* Value number j of those that are looked at. */
__device__ inline sampled_value probed_value(const chunk_grid &grid, uint32_t j) {
  const uint32_t take = sample_take(grid), pair = j / 2, k = pair % take;
  const uint32_t i = sampled_group(grid, take == GPUFI_SAMPLE_GROUPS ? k * 61 % take : k) +
                     (pair + pair / take) % (GPUFI_GROUP_VALUES - 1) + j % 2;
  return {i, pair / take < GPUFI_GROUP_VALUES - 1 && i < grid.value_count};
}

/* The first `end` values are all that were looked at: how many there are, and of those that are no
 * probes the one that has the majority if one has, and how often it occurs. A whole warp. */
template <typename T> __device__ inline void count_odd(probes_shared *shared, uint32_t end) {
  const uint32_t lane = threadIdx.x;
  uint64_t odd = 0;
  uint32_t left = 0, hits = 0, looked_at = 0;
  bool is_any = false;
  for (uint32_t first = 0; first < end; first += kWarp) {
    const uint64_t bits = shared->looked[first + lane];
    const bool is_there = first + lane < end && shared->there[first + lane] != 0;
    looked_at += static_cast<uint32_t>(__popc(__ballot_sync(kAllLanes, is_there)));
    uint32_t are = __ballot_sync(kAllLanes, is_there && !is_probe<T>(bits));
    for (; are != 0; are &= are - 1) {
      const uint64_t one = __shfl_sync(kAllLanes, bits, __ffs(static_cast<int>(are)) - 1);
      odd = left == 0 ? one : odd;
      left += one == odd ? 1u : UINT32_MAX;
      is_any = true;
    }
  }
  for (uint32_t first = 0; first < end && is_any; first += kWarp) {
    const uint32_t j = first + lane;
    const bool is = j < end && shared->there[j] != 0 && shared->looked[j] == odd;
    hits += static_cast<uint32_t>(__popc(__ballot_sync(kAllLanes, is)));
  }
  if (lane == 0) {
    shared->looked_at = looked_at;
    shared->odd = odd;
    shared->odd_hits = hits;
  }
}

/* Sort the looked at values into probes and others, one after the other. By one warp, of which lane
 * l has probes l and l + 32. */
template <typename T> __device__ inline void sort_out_probes(probes_shared *shared) {
  const uint32_t lane = threadIdx.x;
  uint64_t mine[2] = {0, 0}, common = 0;
  uint32_t hits[2] = {0, 0}, count = 0, common_hits = 0, j = 0;
  for (; j < kProbedValues && count < kProbes; j++) {
    const uint64_t bits = shared->looked[j];
    if (!shared->there[j] || !is_probe<T>(bits)) {
      continue;
    }
    uint32_t own = 0; /* hits of the probe, in the lane that has it */
    bool has = false;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
      const bool is = lane + h * kWarp < count && mine[h] == bits;
      hits[h] += is ? 1 : 0;
      own = is ? hits[h] : own;
      has = has || is;
    }
    if (!__any_sync(kAllLanes, has)) {
#pragma unroll
      for (uint32_t h = 0; h < 2; h++) {
        if (lane + h * kWarp == count) {
          mine[h] = bits;
          hits[h] = own = 1;
        }
      }
      count++;
    }
    own = warp_max(own);
    common = own > common_hits ? bits : common;
    common_hits = own > common_hits ? own : common_hits;
  }
#pragma unroll
  for (uint32_t h = 0; h < 2; h++) {
    shared->bits[lane + h * kWarp] = mine[h];
    shared->values[lane + h * kWarp] = number_of_bits<T>(mine[h]);
  }
  if (lane == 0) {
    shared->count = count;
    shared->common_hits = common_hits;
    shared->common = common;
  }
  count_odd<T>(shared, j);
}

/* The same where no two of them are the same, as mostly: false if some are. All threads, the same
 * answer. */
template <typename T> __device__ inline bool take_distinct(probes_shared *shared) {
  constexpr uint32_t kOthers = kProbes * kProbes / kProbedValues;
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const uint64_t bits = shared->looked[threadIdx.x];
  const bool is = shared->there[threadIdx.x] != 0 && is_probe<T>(bits);
  const uint32_t are = __ballot_sync(kAllLanes, is);
  if (lane == 0) {
    shared->of_warps[warp] = static_cast<uint32_t>(__popc(are));
  }
  __syncthreads();
  uint32_t rank = static_cast<uint32_t>(__popc(are & ((1u << lane) - 1))), all = 0;
  for (uint32_t w = 0; w < kProbedValues / kWarp; w++) {
    rank += w < warp ? shared->of_warps[w] : 0;
    all += shared->of_warps[w];
  }
  const uint32_t count = all < kProbes ? all : kProbes;
  if (is && rank < kProbes) {
    shared->at[rank] = threadIdx.x;
    shared->bits[rank] = bits;
    shared->values[rank] = number_of_bits<T>(bits);
  }
  __syncthreads();
  const uint32_t j = threadIdx.x % kProbes, others = threadIdx.x / kProbes * kOthers;
  bool repeats = false;
  for (uint32_t k = others; k < others + kOthers && k < count && j < count; k++) {
    repeats = repeats || (k != j && shared->bits[k] == shared->bits[j]);
  }
  if (__syncthreads_or(repeats) != 0) {
    return false;
  }
  const uint32_t end = count == kProbes ? shared->at[kProbes - 1] + 1 : kProbedValues;
  if (threadIdx.x == 0) {
    shared->count = count;
    shared->common_hits = count != 0 ? 1 : 0;
    shared->common = count != 0 ? shared->bits[0] : 0;
  }
  if (threadIdx.x < kWarp) {
    count_odd<T>(shared, end);
  }
  return true;
}

/* False if there are too few. All threads, the same answer. */
template <typename T>
__device__ bool take_probes(const encode_job &job, const T *raw, probes_shared *shared) {
  const sampled_value here = probed_value(job.grid, threadIdx.x);
  shared->there[threadIdx.x] = here.valid;
  shared->looked[threadIdx.x] =
      here.valid ? load_value(raw, here.i, {GPUFI_TRANSFORM_NONE, job.swap}) : 0;
  __syncthreads();
  if (!take_distinct<T>(shared) && threadIdx.x < kWarp) {
    sort_out_probes<T>(shared);
  }
  __syncthreads();
  return shared->count >= kProbesMin;
}

/* Values `from` in ascending order. All threads, which are then synchronized. */
__device__ inline void sort_doubles(const double *from, uint32_t count, double *to) {
  if (threadIdx.x < count) {
    const double own = from[threadIdx.x];
    uint32_t rank = 0;
    for (uint32_t k = 0; k < count; k++) {
      rank += from[k] < own || (from[k] == own && k < threadIdx.x) ? 1 : 0;
    }
    to[rank] = own;
  }
  __syncthreads();
}

/* The base of an integer. */
template <typename T>
__device__ inline double base_of(unsigned transform, double a, double b, double p) {
  if (transform == GPUFI_TRANSFORM_SINGLE) {
    return static_cast<double>(gpufi_number_single(a, b, static_cast<float>(p)));
  }
  const double base = gpufi_number_base(transform, a, b, p);
  return sizeof(T) == 8 ? base : static_cast<double>(static_cast<float>(base));
}

/* A unit in the last place of values near `value`. */
template <typename T> __device__ inline double unit_near(double value) {
  const uint64_t exponent = gpufi_double_bits(value) >> 52 & 0x7ff;
  return gpufi_double_of_bits((exponent - (sizeof(T) == 8 ? 52 : 23)) << 52);
}

} // namespace gpufi

#endif
