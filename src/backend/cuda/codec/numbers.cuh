/* The numbers behind a chunk of floats: codec/numbers.c is the reference, to the bit. A thread
 * block takes a chunk. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_NUMBERS_CUH
#define GPUFI_BACKEND_CUDA_CODEC_NUMBERS_CUH

#include "backend/cuda/codec/base.cuh"
#include "backend/cuda/codec/steps.cuh"

namespace gpufi {

constexpr uint32_t kDecimalsMax = 17;
constexpr uint32_t kQuotients = kDecimalsMax + 2; /* that are tried: the last by a step */

/* What the probes are by a candidate. */
struct explained {
  uint32_t count;
  uint64_t cost; /* bits of the probes */
};

/* The shared memory of a thread block. */
struct numbers_shared {
  probes_shared probes;
  steps_shared steps;
  gpufi_numbers quotients[kQuotients];
  uint64_t costs[kQuotients]; /* UINT64_MAX: it is no candidate */
};

template <typename T>
__device__ bool explain_one(const gpufi_numbers &numbers, double value, int64_t *p) {
  const double most = sizeof(T) == 8 ? 0x1p48 : 0x1p20;
  const double near =
      gpufi_number_near(numbers.transform, numbers.a, numbers.b, numbers.inverse, value);
  *p = 0;
  if (!(near > -most && near < most)) {
    return false;
  }
  const int64_t rounded = gpufi_number_rounded(near);
  const bool is =
      base_of<T>(numbers.transform, numbers.a, numbers.b, static_cast<double>(rounded)) == value;
  *p = is ? rounded : 0;
  return is;
}

/* True if at least three quarters of the probes are explained. Fewer than half of the first 8 end
 * the search. */
template <typename T>
__device__ bool explain(const probes_shared &probes, const gpufi_numbers &numbers, explained *e) {
  uint64_t greatest = 0;
  e->count = 0;
  for (uint32_t i = 0; i < probes.count; i++) {
    int64_t p;
    e->count += explain_one<T>(numbers, probes.values[i], &p) ? 1 : 0;
    greatest |= static_cast<uint64_t>(p < 0 ? -p : p);
    if (i == 7 && e->count < 4) {
      return false;
    }
  }
  e->cost = static_cast<uint64_t>(probes.count) * bit_length(greatest) +
            static_cast<uint64_t>(probes.count - e->count) * kBits<T>;
  return 4 * e->count >= 3 * probes.count;
}

__device__ inline uint64_t common_divisor(uint64_t x, uint64_t y) {
  while (y != 0) {
    const uint64_t rest = x % y;
    x = y;
    y = rest;
  }
  return x;
}

/* Where all integers differ by multiples of some number, take these multiples instead, if that
 * explains as many probes. */
template <typename T>
__device__ void reduce(const probes_shared &probes, gpufi_numbers *numbers, explained *e) {
  uint64_t divisor = 0;
  int64_t first = 0, p;
  bool has_first = false;
  for (uint32_t i = 0; i < probes.count && divisor != 1; i++) {
    if (explain_one<T>(*numbers, probes.values[i], &p)) {
      const int64_t less = has_first ? p - first : 0;
      first = has_first ? first : p;
      has_first = true;
      divisor = common_divisor(divisor, static_cast<uint64_t>(less < 0 ? -less : less));
    }
  }
  if (divisor <= 1) {
    return;
  }
  const int64_t factor = static_cast<int64_t>(divisor), rest = (first % factor + factor) % factor;
  explained other;
  gpufi_numbers tried = {};
  tried.transform = GPUFI_TRANSFORM_QUOTIENT;
  tried.a = GPUFI_NUMBER_DIV(numbers->a, static_cast<double>(factor));
  if (rest != 0) {
    tried.transform = GPUFI_TRANSFORM_LINEAR;
    tried.a = GPUFI_NUMBER_DIV(static_cast<double>(factor), numbers->a);
    tried.b = GPUFI_NUMBER_DIV(static_cast<double>(rest), numbers->a);
    tried.inverse = GPUFI_NUMBER_DIV(1.0, tried.a);
  }
  if (gpufi_parameters_are_good(tried.transform, tried.a, tried.b) &&
      explain<T>(probes, tried, &other) && other.count >= e->count) {
    *numbers = tried;
    *e = other;
  }
}

/* Candidate number k, the quotient by `a`. One thread. */
template <typename T> __device__ void try_quotient(numbers_shared *shared, uint32_t k, double a) {
  explained e;
  gpufi_numbers tried = {};
  tried.transform = GPUFI_TRANSFORM_QUOTIENT;
  tried.a = a;
  shared->costs[k] = UINT64_MAX;
  if (gpufi_parameters_are_good(tried.transform, a, 0) && explain<T>(shared->probes, tried, &e)) {
    reduce<T>(shared->probes, &tried, &e);
    shared->costs[k] = e.cost;
    shared->quotients[k] = tried;
  }
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

/* Where eight threads try candidate number k, a power of 2 or of 10: the thread's k, its divisor,
 * and whether it explains as many of the first probes as explain() asks for. All threads; the
 * probes' lowest exponents are sorted on the way. */
struct tried_power {
  uint32_t k;
  double a;
  bool explains;
};

template <typename T> __device__ tried_power try_powers(probes_shared *probes) {
  constexpr uint32_t kCount = (sizeof(T) == 8 ? kDecimalsMax : kDecimalsMax / 2) + 1;
  if (threadIdx.x < probes->count) {
    probes->unsorted[threadIdx.x] = lowest_exponent(probes->values[threadIdx.x]);
  }
  __syncthreads();
  sort_doubles(probes->unsorted, probes->count, probes->sorted);
  const int least = static_cast<int>(probes->sorted[probes->count / 16]);
  gpufi_numbers tried = {};
  tried_power power = {threadIdx.x / kProbesMin, 0, false};
  tried.transform = GPUFI_TRANSFORM_QUOTIENT;
  tried.a = power.k == 0 ? gpufi_double_of_bits(static_cast<uint64_t>(1023 - least) << 52)
                         : power_of_ten(power.k);
  int64_t p;
  const bool is = power.k < kCount && gpufi_parameters_are_good(tried.transform, tried.a, 0) &&
                  explain_one<T>(tried, probes->values[threadIdx.x % kProbesMin], &p);
  const uint32_t first = threadIdx.x % kWarp / kProbesMin * kProbesMin;
  const uint32_t are = __ballot_sync(kAllLanes, is) >> first & ((1u << kProbesMin) - 1);
  power.a = tried.a;
  power.explains = 2 * static_cast<uint32_t>(__popc(are)) >= kProbesMin;
  return power;
}

/* The best quotient by a power of 2 or of 10; false if there is none. All threads, the same answer.
 */
template <typename T> __device__ bool find_quotient(numbers_shared *shared, gpufi_numbers *found) {
  const tried_power power = try_powers<T>(&shared->probes);
  if (threadIdx.x < kQuotients) {
    shared->costs[threadIdx.x] = UINT64_MAX;
  }
  __syncthreads();
  if (power.explains && threadIdx.x % kProbesMin == 0) {
    try_quotient<T>(shared, power.k, power.a);
  }
  __syncthreads();
  uint64_t cost = UINT64_MAX;
  for (uint32_t k = 0; k < kQuotients; k++) {
    if (shared->costs[k] < cost) {
      cost = shared->costs[k];
      *found = shared->quotients[k];
    }
  }
  __syncthreads();
  return cost != UINT64_MAX;
}

/* Multiples of a step: p / k, or p * a + b by what fits best. All threads, the same answer. */
template <typename T> __device__ bool find_multiples(numbers_shared *shared, gpufi_numbers *found) {
  probes_shared *const probes = &shared->probes;
  sort_doubles(probes->values, probes->count, probes->sorted);
  const double step = find_step<T>(probes->sorted, probes, &shared->steps);
  if (step == 0) {
    return false;
  }
  const double count = GPUFI_NUMBER_DIV(1.0, step);
  constexpr uint32_t kLast = kQuotients - 1;
  if (threadIdx.x == 0) {
    shared->costs[kLast] = UINT64_MAX;
    if (count > 1.5 && count < kFittedRange) {
      try_quotient<T>(shared, kLast, static_cast<double>(gpufi_number_rounded(count)));
    }
  }
  __syncthreads();
  if (shared->costs[kLast] != UINT64_MAX) {
    *found = shared->quotients[kLast];
    return true;
  }
  return fit_linear<T>(*probes, probes->sorted, step, found, &shared->steps);
}

/* The integers behind the probes: false if there seem to be none. All threads, the same answer. */
template <typename T> __device__ bool find_numbers(numbers_shared *shared, gpufi_numbers *found) {
  const probes_shared &probes = shared->probes;
  *found = {};
  if constexpr (sizeof(T) < 4) {
    return false;
  } else {
    if (!find_quotient<T>(shared, found) && !find_multiples<T>(shared, found)) {
      return false;
    }
    found->filler = probes.bits[0];
    if (probes.odd_hits != 0 && !has_number<T>(*found, static_cast<T>(probes.odd))) {
      found->has_fill = true;
      found->fill = probes.odd;
    }
    return true;
  }
}

/* The low bits that most of the probes do not use, where a transform alone does not keep them:
 * false if there are none. All threads, the same answer. */
template <typename T> __device__ bool find_shift(probes_shared *probes, gpufi_numbers *found) {
  bool negative = false;
  if (threadIdx.x < probes->count) {
    const uint64_t bits = probes->bits[threadIdx.x];
    probes->unsorted[threadIdx.x] = trailing_zeros(bits);
    negative = bits >> (kBits<T> - 1) != 0;
  }
  negative = __syncthreads_or(negative) != 0;
  sort_doubles(probes->unsorted, probes->count, probes->sorted);
  const double most = kBits<T> - 2, shift = probes->sorted[probes->count / 16];
  const double least = probes->sorted[0];
  __syncthreads();
  *found = {};
  found->shift = static_cast<uint8_t>(shift < most ? shift : most);
  found->filler = probes->bits[0];
  return shift > 0 && (negative || least < shift);
}

/* Make the most frequent value the fill, if it is so frequent that this may pay, and not the fill
 * already. */
__device__ inline bool find_fill(const probes_shared &probes, gpufi_numbers *numbers) {
  const bool odd = probes.odd_hits >= probes.common_hits;
  const uint64_t fill = odd ? probes.odd : probes.common;
  const uint32_t hits = odd ? probes.odd_hits : probes.common_hits;
  if (8 * hits < probes.looked_at || (numbers->has_fill && numbers->fill == fill)) {
    return false;
  }
  numbers->has_fill = true;
  numbers->fill = fill;
  numbers->filler = probes.bits[probes.bits[0] == fill ? 1 : 0];
  return true;
}

/* Whether there may be anything that find_numbers(), find_shift() or find_fill() find; true also
 * for some chunks of which they find nothing. All threads, the same answer. */
template <typename T>
__device__ bool may_have_numbers(const encode_job &job, const T *raw, numbers_shared *shared) {
  probes_shared *const probes = &shared->probes;
  gpufi_numbers found = {};
  if (!take_probes(job, raw, probes)) {
    return false;
  }
  if (find_fill(*probes, &found) || find_shift<T>(probes, &found)) {
    return true;
  }
  if constexpr (sizeof(T) < 4) {
    return false;
  } else {
    if (__syncthreads_or(try_powers<T>(probes).explains) != 0) {
      return true;
    }
    sort_doubles(probes->values, probes->count, probes->sorted);
    return find_step<T>(probes->sorted, probes, &shared->steps) != 0;
  }
}

} // namespace gpufi

#endif
