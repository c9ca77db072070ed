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
constexpr uint32_t kDecimalsMax = 17;
constexpr double kFittedRange = 0x1p21; /* integers whose step is looked for are below this */

/* The shared memory of a thread block. */
struct probes_shared {
  uint64_t looked[kProbedValues]; /* the values that are looked at, in their order */
  uint32_t there[kProbedValues];  /* whether there is one */
  uint64_t bits[kProbes];
  double values[kProbes]; /* of 32 and 64 bits; else 0 */
  double sorted[kProbes], gaps[kProbes];
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

/* Sort the looked at values into probes and others, one after the other. By one warp, of which lane
 * l has probes l and l + 32. */
template <typename T> __device__ inline void sort_out_probes(probes_shared *shared) {
  const uint32_t lane = threadIdx.x;
  uint64_t mine[2] = {0, 0}, common = 0, odd = 0;
  uint32_t hits[2] = {0, 0}, count = 0, looked_at = 0, common_hits = 0, odd_hits = 0, odd_left = 0;
  for (uint32_t j = 0; j < kProbedValues && count < kProbes; j++) {
    const uint64_t bits = shared->looked[j];
    if (!shared->there[j]) {
      continue;
    }
    looked_at++;
    if (!is_probe<T>(bits)) { /* of several, the one that has the majority if one has */
      odd = odd_left == 0 ? bits : odd;
      odd_left += bits == odd ? 1u : UINT32_MAX;
      odd_hits++;
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
    shared->looked_at = looked_at;
    shared->common_hits = common_hits;
    shared->odd_hits = odd_hits;
    shared->common = common;
    shared->odd = odd;
  }
}

/* False if there are too few. All threads, the same answer. */
template <typename T>
__device__ bool take_probes(const encode_job &job, const T *raw, probes_shared *shared) {
  const sampled_value here = probed_value(job.grid, threadIdx.x);
  shared->there[threadIdx.x] = here.valid;
  shared->looked[threadIdx.x] =
      here.valid ? load_value(raw, here.i, {GPUFI_TRANSFORM_NONE, job.swap}) : 0;
  __syncthreads();
  if (threadIdx.x < kWarp) {
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

/* Whether a quotient by `a` explains enough of the probes. */
template <typename T> __device__ bool is_explained(const probes_shared &probes, double a) {
  const double most = sizeof(T) == 8 ? 0x1p48 : 0x1p20;
  uint32_t count = 0;
  if (!gpufi_parameters_are_good(GPUFI_TRANSFORM_QUOTIENT, a, 0)) {
    return false;
  }
  for (uint32_t i = 0; i < probes.count; i++) {
    const double near = gpufi_number_near(GPUFI_TRANSFORM_QUOTIENT, a, 0, 0, probes.values[i]);
    if (near > -most && near < most) {
      const double p = static_cast<double>(gpufi_number_rounded(near));
      count += base_of<T>(GPUFI_TRANSFORM_QUOTIENT, a, 0, p) == probes.values[i] ? 1 : 0;
    }
    if (i == 7 && count < 4) {
      return false;
    }
  }
  return 4 * count >= 3 * probes.count;
}

/* The exponent of a value's lowest bit that is 1. */
__device__ inline int lowest_exponent(double value) {
  const uint64_t bits = gpufi_double_bits(value);
  const uint64_t mantissa = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
  return static_cast<int>(bits >> 52 & 0x7ff) - 1075 + static_cast<int>(trailing_zeros(mantissa));
}

__device__ inline double power_of_ten(uint32_t e) {
  double power = 1; /* exactly: all of them up to 10^22 are doubles */
  for (; e > 0; e--) {
    power = GPUFI_NUMBER_MUL(power, 10.0);
  }
  return power;
}

/* Whether a power of 2 or of 10 makes integers of the probes. All threads, the same answer. */
template <typename T> __device__ bool has_quotient(probes_shared *probes) {
  if (threadIdx.x < probes->count) {
    probes->gaps[threadIdx.x] = lowest_exponent(probes->values[threadIdx.x]);
  }
  __syncthreads();
  sort_doubles(probes->gaps, probes->count, probes->sorted);
  const int k = static_cast<int>(probes->sorted[probes->count / 16]);
  bool good = false;
  if (threadIdx.x <= (sizeof(T) == 8 ? kDecimalsMax : kDecimalsMax / 2)) {
    good = is_explained<T>(
        *probes, threadIdx.x == 0 ? gpufi_double_of_bits(static_cast<uint64_t>(1023 - k) << 52)
                                  : power_of_ten(threadIdx.x));
  }
  return __syncthreads_or(good) != 0;
}

/* A unit in the last place of values near `value`. */
template <typename T> __device__ inline double unit_near(double value) {
  const uint64_t exponent = gpufi_double_bits(value) >> 52 & 0x7ff;
  return gpufi_double_of_bits((exponent - (sizeof(T) == 8 ? 52 : 23)) << 52);
}

/* The step of which `gaps`, in ascending order, are about multiples, if the least is m steps. 0 if
 * it is none for too many. */
__device__ inline double step_of(const double *gaps, uint32_t count, uint32_t m) {
  double sum = gaps[0], steps = m;
  uint32_t missed = 0;
  for (uint32_t i = 1; i < count; i++) {
    const double step = GPUFI_NUMBER_DIV(sum, steps);
    const double n = static_cast<double>(gpufi_number_rounded(GPUFI_NUMBER_DIV(gaps[i], step)));
    const double off = GPUFI_NUMBER_ADD(gaps[i], -GPUFI_NUMBER_MUL(n, step));
    if (off > step / 8 || off < -step / 8) {
      missed++;
      if (i < 8 || 8 * missed > count) {
        return 0;
      }
      continue;
    }
    sum = GPUFI_NUMBER_ADD(sum, gaps[i]);
    steps = GPUFI_NUMBER_ADD(steps, n);
  }
  return GPUFI_NUMBER_DIV(sum, steps);
}

/* Whether the probes have a step in common that is well above what rounding moves them by. All
 * threads, the same answer. */
template <typename T> __device__ bool has_step(probes_shared *probes) {
  sort_doubles(probes->values, probes->count, probes->sorted);
  const double *const sorted = probes->sorted;
  const double last = sorted[probes->count - 1], first = sorted[0];
  const double range = GPUFI_NUMBER_ADD(last, -first);
  const double unit = unit_near<T>(-first > last ? first : last);
  if (threadIdx.x == 0) {
    uint32_t count = 0;
    for (uint32_t i = 0; i + 1 < probes->count; i++) {
      const double gap = GPUFI_NUMBER_ADD(sorted[i + 1], -sorted[i]);
      if (gap >= 16 * unit) {
        probes->gaps[count++] = gap;
      }
    }
    probes->gap_count = count;
  }
  __syncthreads();
  const uint32_t count = probes->gap_count;
  if (4 * count < 3 * probes->count) {
    return false;
  }
  __syncthreads(); /* `sorted` is read */
  sort_doubles(probes->gaps, count, probes->sorted);
  const uint32_t m = threadIdx.x + 1;
  const double *const gaps = probes->sorted;
  bool good = false;
  if (m <= kProbes && gaps[0] >= 16 * m * unit &&
      GPUFI_NUMBER_MUL(GPUFI_NUMBER_DIV(range, gaps[0]), static_cast<double>(m)) < kFittedRange) {
    good = step_of(gaps, count, m) != 0;
  }
  return __syncthreads_or(good) != 0;
}

/* Whether nearly all probes have low bits that are 0, which a transform alone does not keep. All
 * threads, the same answer. */
template <typename T> __device__ bool has_shift(probes_shared *probes) {
  bool negative = false;
  if (threadIdx.x < probes->count) {
    const uint64_t bits = probes->bits[threadIdx.x];
    probes->gaps[threadIdx.x] = trailing_zeros(bits);
    negative = bits >> (kBits<T> - 1) != 0;
  }
  negative = __syncthreads_or(negative) != 0;
  sort_doubles(probes->gaps, probes->count, probes->sorted);
  const double shift = probes->sorted[probes->count / 16];
  return shift > 0 && (negative || probes->sorted[0] < shift);
}

/* Whether a value is so frequent that it may pay to make it the fill. */
__device__ inline bool has_fill(const probes_shared &probes) {
  const uint32_t hits =
      probes.odd_hits >= probes.common_hits ? probes.odd_hits : probes.common_hits;
  return 8 * hits >= probes.looked_at;
}

/* False if W8 by way of a base is not tried for the chunk: nothing is there to be found. All
 * threads, the same answer. */
template <typename T>
__device__ bool may_have_base(const encode_job &job, const T *raw, probes_shared *shared) {
  if (sizeof(T) == 1 || !job.grid.is_float || !take_probes(job, raw, shared)) {
    return false;
  }
  if (has_fill(*shared) || has_shift<T>(shared)) {
    return true;
  }
  __syncthreads();
  if (sizeof(T) < 4) {
    return false;
  }
  if (has_quotient<T>(shared)) {
    return true;
  }
  return has_step<T>(shared);
}

} // namespace gpufi

#endif
