/* Floats that are multiples of a step: codec/steps.c is the reference, to the bit. A thread block
 * takes a chunk. */
#ifndef GPUFI_BACKEND_CUDA_CODEC_STEPS_CUH
#define GPUFI_BACKEND_CUDA_CODEC_STEPS_CUH

#include "backend/cuda/codec/probes.cuh"

namespace gpufi {

/* The shared memory of a thread block. */
struct steps_shared {
  uint32_t first_m;                   /* that is a step */
  unsigned long long n, p, r, pp, pr; /* sums of the fit */
  double near_0[kProbedValues];       /* magnitudes of the tests, in the order of values */
  double values[kProbedValues], p_of[kProbedValues]; /* tests, the nearest to 0 first */
  uint32_t test_count, missed;
  double least, greatest;
  unsigned long long best; /* missed tests, and which origin */
};

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

/* The greatest step that the sorted probes have in common, about; 0 if there is none that is well
 * above what rounding moves them by. A thread tries an m. All threads, the same answer. */
template <typename T>
__device__ double find_step(const double *sorted, probes_shared *probes, steps_shared *steps) {
  const double last = sorted[probes->count - 1], first = sorted[0];
  const double range = GPUFI_NUMBER_ADD(last, -first);
  const double unit = unit_near<T>(-first > last ? first : last);
  if (threadIdx.x == 0) {
    probes->gap_count = 0;
    steps->first_m = UINT32_MAX;
  }
  __syncthreads();
  if (threadIdx.x + 1 < probes->count) {
    const double gap = GPUFI_NUMBER_ADD(sorted[threadIdx.x + 1], -sorted[threadIdx.x]);
    if (gap >= 16 * unit) { /* else they may be one number, rounded twice */
      probes->unsorted[atomicAdd(&probes->gap_count, 1u)] = gap; /* in any order: they are sorted */
    }
  }
  __syncthreads();
  const uint32_t count = probes->gap_count, m = threadIdx.x + 1;
  if (4 * count < 3 * probes->count) {
    return 0;
  }
  sort_doubles(probes->unsorted, count, probes->gaps);
  const double least = probes->gaps[0];
  double step = 0;
  if (m <= kProbes && least >= 16 * m * unit &&
      GPUFI_NUMBER_MUL(GPUFI_NUMBER_DIV(range, least), static_cast<double>(m)) < kFittedRange) {
    step = step_of(probes->gaps, count, m);
  }
  if (step != 0) {
    atomicMin(&steps->first_m, m);
  }
  __syncthreads();
  const uint32_t first_m = steps->first_m;
  __syncthreads();
  return first_m == UINT32_MAX ? 0 : step_of(probes->gaps, count, first_m);
}

/* The integer near which this thread's value is; false if it has none, or is no probe. */
template <typename T>
__device__ bool fitted_integer(const probes_shared &probes, const gpufi_numbers &numbers,
                               double *value, int64_t *p) {
  const uint64_t bits = probes.looked[threadIdx.x];
  *value = number_of_bits<T>(bits);
  const double near =
      gpufi_number_near(GPUFI_TRANSFORM_LINEAR, numbers.a, numbers.b, numbers.inverse, *value);
  const bool good = is_probe<T>(bits) && near > -kFittedRange && near < kFittedRange;
  *p = good ? gpufi_number_rounded(near) : 0;
  return good;
}

__device__ inline void add_signed(unsigned long long *sum, int64_t x) {
  atomicAdd(sum, static_cast<unsigned long long>(x));
}

/* The parameters of least squares. All threads, the same answer. */
template <typename T>
__device__ void fit(const probes_shared &probes, double unit, gpufi_numbers *numbers,
                    steps_shared *s) {
  for (int round = 0; round < 3; round++) {
    __syncthreads(); /* the sums are read */
    if (threadIdx.x == 0) {
      s->n = s->p = s->r = s->pp = s->pr = 0;
    }
    __syncthreads();
    double value;
    int64_t p;
    if (fitted_integer<T>(probes, *numbers, &value, &p)) {
      const double base =
          gpufi_number_base(GPUFI_TRANSFORM_LINEAR, numbers->a, numbers->b, static_cast<double>(p));
      const double off = GPUFI_NUMBER_DIV(GPUFI_NUMBER_ADD(value, -base), unit);
      if (off > -4096 && off < 4096) {
        const int64_t r = gpufi_number_rounded(GPUFI_NUMBER_MUL(off, 64.0));
        add_signed(&s->n, 1);
        add_signed(&s->p, p);
        add_signed(&s->r, r);
        add_signed(&s->pp, p * p);
        add_signed(&s->pr, p * r);
      }
    }
    __syncthreads();
    const int64_t n = static_cast<int64_t>(s->n), sum_p = static_cast<int64_t>(s->p),
                  sum_r = static_cast<int64_t>(s->r);
    const int64_t spread = n * static_cast<int64_t>(s->pp) - sum_p * sum_p;
    if (spread <= 0) {
      return;
    }
    const double slope =
        GPUFI_NUMBER_DIV(static_cast<double>(n * static_cast<int64_t>(s->pr) - sum_p * sum_r),
                         static_cast<double>(spread));
    const double mean =
        GPUFI_NUMBER_DIV(GPUFI_NUMBER_ADD(static_cast<double>(sum_r),
                                          -GPUFI_NUMBER_MUL(slope, static_cast<double>(sum_p))),
                         static_cast<double>(n));
    numbers->a = GPUFI_NUMBER_ADD(numbers->a, GPUFI_NUMBER_MUL(slope, unit / 64));
    numbers->b = GPUFI_NUMBER_ADD(numbers->b, GPUFI_NUMBER_MUL(mean, unit / 64));
    numbers->inverse = GPUFI_NUMBER_DIV(1.0, numbers->a);
  }
}

/* The values that the origin is looked for by, with their integers. All threads, which are then
 * synchronized. */
template <typename T>
__device__ void take_tests(const probes_shared &probes, const gpufi_numbers &numbers,
                           steps_shared *s) {
  double value;
  int64_t p;
  const bool good = fitted_integer<T>(probes, numbers, &value, &p);
  const double own = value < 0 ? -value : value;
  if (threadIdx.x == 0) {
    s->test_count = 0;
  }
  s->near_0[threadIdx.x] = good ? own : -1;
  __syncthreads();
  if (good) {
    uint32_t rank = 0;
    for (uint32_t k = 0; k < kProbedValues; k++) {
      const double other = s->near_0[k];
      rank += other >= 0 && (other < own || (other == own && k < threadIdx.x)) ? 1 : 0;
    }
    s->values[rank] = value;
    s->p_of[rank] = static_cast<double>(p);
    atomicAdd(&s->test_count, 1u);
  }
  __syncthreads();
}

/* How many of the tests from number `first` on are not the base of their integer and `n` more; no
 * more than `most` + 1 are counted. */
template <typename T>
__device__ uint32_t count_missed(const gpufi_numbers &numbers, const steps_shared &s,
                                 uint32_t first, uint32_t count, double n, uint32_t most) {
  uint32_t missed = 0;
  for (uint32_t t = first; t < count && missed <= most; t++) {
    const double base =
        base_of<T>(numbers.transform, numbers.a, numbers.b, GPUFI_NUMBER_ADD(s.p_of[t], n));
    missed += base != s.values[t] ? 1 : 0;
  }
  return missed;
}

/* b if the integers are all greater by n. */
__device__ inline double origin_of(const gpufi_numbers &numbers, const steps_shared &s, double n) {
  const bool single = numbers.transform == GPUFI_TRANSFORM_SINGLE;
  const double product = GPUFI_NUMBER_MUL(GPUFI_NUMBER_ADD(s.p_of[0], n), numbers.a);
  const double b = GPUFI_NUMBER_ADD(
      s.values[0], -(single ? static_cast<double>(static_cast<float>(product)) : product));
  return single ? static_cast<double>(static_cast<float>(b)) : b;
}

/* The b that misses the fewest tests, the first of equals; returns how many, or `best` if no b is
 * better. A thread tries each 256th. All threads, the same answer. */
template <typename T>
__device__ uint32_t find_origin(steps_shared *s, uint32_t best, gpufi_numbers *numbers) {
  const uint32_t few = s->test_count < 24 ? s->test_count : 24;
  __syncthreads(); /* the best before is read */
  if (threadIdx.x == 0) {
    s->least = s->greatest = 0;
    for (uint32_t t = 0; t < s->test_count; t++) {
      s->least = s->p_of[t] < s->least ? s->p_of[t] : s->least;
      s->greatest = s->p_of[t] > s->greatest ? s->p_of[t] : s->greatest;
    }
    s->best = static_cast<unsigned long long>(best) << 32;
  }
  __syncthreads();
  const double begin = -32768 - s->least, end = 65535 - s->greatest;
  gpufi_numbers tried = *numbers;
  uint32_t mine = best, index = threadIdx.x, my_index = 0;
  for (double n = begin + threadIdx.x; n <= end && mine != 0; n += kSampleThreads) {
    tried.b = origin_of(tried, *s, n);
    if (count_missed<T>(tried, *s, 1, few, n, 0) == 0) {
      const uint32_t missed = count_missed<T>(tried, *s, 0, s->test_count, n, mine);
      if (missed < mine && gpufi_parameters_are_good(tried.transform, tried.a, tried.b)) {
        mine = missed;
        my_index = index;
      }
    }
    index += kSampleThreads;
  }
  if (mine < best) {
    atomicMin(&s->best, static_cast<unsigned long long>(mine) << 32 | my_index);
  }
  __syncthreads();
  const unsigned long long found = s->best;
  if (found >> 32 < best) {
    numbers->b = origin_of(*numbers, *s, begin + static_cast<double>(found & UINT32_MAX));
  }
  return static_cast<uint32_t>(found >> 32);
}

/* Where the best fit misses many values: another origin, in double and then in single precision.
 * All threads, the same answer. */
template <typename T>
__device__ void refine(const probes_shared &probes, gpufi_numbers *numbers, steps_shared *s) {
  take_tests<T>(probes, *numbers, s);
  const uint32_t count = s->test_count;
  uint32_t missed = count_missed<T>(*numbers, *s, 0, count, 0, count);
  if (8 * missed <= count) {
    return;
  }
  missed = find_origin<T>(s, missed, numbers);
  if (sizeof(T) == 4 && 8 * missed > count) {
    gpufi_numbers single = *numbers;
    single.transform = GPUFI_TRANSFORM_SINGLE;
    single.a = static_cast<double>(static_cast<float>(single.a));
    if (find_origin<T>(s, missed, &single) < missed) {
      *numbers = single;
    }
  }
}

/* The parameters of transform linear or single for multiples of `step`; false if they are not
 * allowed. All threads, the same answer. */
template <typename T>
__device__ bool fit_linear(const probes_shared &probes, const double *sorted, double step,
                           gpufi_numbers *numbers, steps_shared *s) {
  const double first = sorted[0], last = sorted[probes.count - 1];
  *numbers = {};
  numbers->transform = GPUFI_TRANSFORM_LINEAR;
  numbers->a = step;
  numbers->b = sorted[probes.count / 2];
  numbers->inverse = GPUFI_NUMBER_DIV(1.0, step);
  fit<T>(probes, unit_near<T>(-first > last ? first : last), numbers, s);
  __syncthreads(); /* the sums are read */
  refine<T>(probes, numbers, s);
  return gpufi_parameters_are_good(numbers->transform, numbers->a, numbers->b);
}

} // namespace gpufi

#endif
