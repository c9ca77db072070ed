/* The arithmetic of the integers behind floats, one value at a time, in C and, for the CUDA
 * sources, C++. Pure functions.
 *
 * Every operation is one of IEEE 754, rounded to the nearest, in the order that is written: the
 * compiler must not contract a product and a sum, which meson.build forbids to GCC and clang, and
 * GPUFI_NUMBER_MUL and its like forbid to nvcc. gpufi_parameters_are_good() bounds the parameters
 * so that no result is subnormal, infinite or NaN: flushing of subnormals, which some programs turn
 * on, changes nothing. */
#ifndef GPUFI_CODEC_NUMBER_H
#define GPUFI_CODEC_NUMBER_H

#include "base/arithmetic.h"
#include "codec/format.h"

#include <string.h>

#ifdef __CUDA_ARCH__
#define GPUFI_NUMBER_MUL(x, y) __dmul_rn(x, y)
#define GPUFI_NUMBER_ADD(x, y) __dadd_rn(x, y)
#define GPUFI_NUMBER_DIV(x, y) __ddiv_rn(x, y)
#else
#define GPUFI_NUMBER_MUL(x, y) ((x) * (y))
#define GPUFI_NUMBER_ADD(x, y) ((x) + (y))
#define GPUFI_NUMBER_DIV(x, y) ((x) / (y))
#endif

/* The magnitudes of a and b are from 2^-60 to below 2^61, but b may also be 0. */
#define GPUFI_PARAMETER_EXPONENT_MAX 60

static GPUFI_ON_BOTH inline uint64_t gpufi_double_bits(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

static GPUFI_ON_BOTH inline double gpufi_double_of_bits(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

/* Whether chunks may have these parameters: a is above 0, and b of a quotient is 0. */
static GPUFI_ON_BOTH inline int gpufi_parameters_are_good(unsigned transform, double a, double b) {
  const uint64_t a_bits = gpufi_double_bits(a), b_bits = gpufi_double_bits(b);
  const uint64_t least = 1023 - GPUFI_PARAMETER_EXPONENT_MAX;
  const uint64_t most = 1023 + GPUFI_PARAMETER_EXPONENT_MAX;
  const uint64_t a_exponent = a_bits >> 52, b_exponent = b_bits >> 52 & 0x7ff;
  return a_exponent >= least && a_exponent <= most &&
         (b_bits == 0 ||
          (transform == GPUFI_TRANSFORM_LINEAR && b_exponent >= least && b_exponent <= most));
}

/* The bits of base(p) for values of 64 and of 32 bits. The latter are rounded twice, first to
 * double. */
static GPUFI_ON_BOTH inline uint64_t gpufi_number_64(unsigned transform, double a, double b,
                                                     int64_t p) {
  const double x = (double)p;
  const double base = transform == GPUFI_TRANSFORM_QUOTIENT
                          ? GPUFI_NUMBER_DIV(x, a)
                          : GPUFI_NUMBER_ADD(GPUFI_NUMBER_MUL(x, a), b);
  return gpufi_double_bits(base);
}

static GPUFI_ON_BOTH inline uint32_t gpufi_number_32(unsigned transform, double a, double b,
                                                     int32_t p) {
  const float base = (float)gpufi_double_of_bits(gpufi_number_64(transform, a, b, p));
  uint32_t bits;
  memcpy(&bits, &base, sizeof(bits));
  return bits;
}

#endif
