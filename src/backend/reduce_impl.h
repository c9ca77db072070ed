/* The partial result of a cell, which a backend updates while it reads elements, and the result
 * that it becomes: for C and for CUDA kernels, with the same bits from both. */
#ifndef GPUFI_BACKEND_REDUCE_IMPL_H
#define GPUFI_BACKEND_REDUCE_IMPL_H

#include <math.h>

#include "backend/cast_impl.h"
#include "backend/reduce.h"

/* The partial result of MEAN and RMS. That of MIN, MAX and MINMAX is gpufi_reduce_extremes of the
 * elements that are not NaN, that of STATS is its result; FIRST and HISTOGRAM have none. */
typedef struct gpufi_reduce_sum {
  double sum;     /* of the finite elements, or of their squares */
  uint64_t count; /* of finite elements */
} gpufi_reduce_sum;

static inline bool gpufi_reduce_is_extreme(gpufi_reduce_kind kind) {
  return kind == GPUFI_REDUCE_MIN || kind == GPUFI_REDUCE_MAX || kind == GPUFI_REDUCE_MINMAX;
}

/* The size of a cell's partial result. */
static inline size_t gpufi_reduce_partial_nbytes(gpufi_reduce_kind kind) {
  switch (kind) {
  case GPUFI_REDUCE_STATS:
    return sizeof(gpufi_reduce_stats);
  case GPUFI_REDUCE_MEAN:
  case GPUFI_REDUCE_RMS:
    return sizeof(gpufi_reduce_sum);
  case GPUFI_REDUCE_MIN:
  case GPUFI_REDUCE_MAX:
  case GPUFI_REDUCE_MINMAX:
    return sizeof(gpufi_reduce_extremes);
  case GPUFI_REDUCE_FIRST:
  case GPUFI_REDUCE_HISTOGRAM:
    break;
  }
  return 0;
}

/* A cell of a MEAN or RMS. The NaN is made here, since hardware differs in its sign. */
GPUFI_CAST_FUNCTION uint64_t gpufi_reduce_mean_bits(const gpufi_reduce_sum *partial, bool rms,
                                                    gpuf_dtype dtype) {
  double number = partial->sum / (double)partial->count;
  if (number != number) { /* 0 / 0; or of infinities */
    number = gpufi_double_of_bits(GPUFI_DOUBLE_NAN);
  } else if (rms) {
    number = sqrt(number);
  }
  return gpufi_number_encode(dtype, gpufi_number_float(number));
}

/* A value of e8m0fnu, which is a power of two; NaN is 0xff. */
GPUFI_CAST_FUNCTION uint64_t gpufi_reduce_power_code(double number) {
  const int exponent =
      (int)(gpufi_bits_of_double(number) >> GPUFI_DOUBLE_MANTISSA_BITS) - GPUFI_DOUBLE_BIAS;
  return number != number ? 0xff : (uint64_t)(exponent + 127);
}

/* A cell of a MIN, or of a MAX where `high`; of an element type, in which it is exact. */
GPUFI_CAST_FUNCTION uint64_t gpufi_reduce_extreme_bits(const gpufi_reduce_extremes *partial,
                                                       bool high, gpuf_dtype dtype) {
  const gpufi_reduce_number *side = high ? &partial->high : &partial->low;
  if (gpufi_reduce_is_keyed(dtype)) {
    return side->key ^ gpufi_reduce_key_flip(dtype);
  }
  const bool none = partial->low.number > partial->high.number;
  const double number = none ? gpufi_double_of_bits(GPUFI_DOUBLE_NAN) : side->number;
  return dtype == GPUF_DTYPE_FLOAT8_E8M0FNU
             ? gpufi_reduce_power_code(number)
             : gpufi_number_encode(dtype, gpufi_number_float(number));
}

#endif
