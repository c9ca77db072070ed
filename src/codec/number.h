/* The arithmetic of values that are coded by way of a base: floats that are integers in disguise,
 * or of which the low bits are 0. One value at a time, in C and, for the CUDA sources, C++. Pure
 * functions.
 *
 * Every operation is one of IEEE 754, rounded to the nearest, in the order that is written: the
 * compiler must not contract a product and a sum, which meson.build forbids to GCC and clang, and
 * GPUFI_NUMBER_MUL and its like forbid to nvcc. gpufi_parameters_are_good() bounds the parameters
 * so that no base is subnormal, infinite or NaN: flushing of subnormals, which some programs turn
 * on, changes nothing. */
#ifndef GPUFI_CODEC_NUMBER_H
#define GPUFI_CODEC_NUMBER_H

#include "base/arithmetic.h"
#include "codec/format.h"

#include <stdbool.h>
#include <string.h>

#ifdef __CUDA_ARCH__
#define GPUFI_NUMBER_MUL(x, y) __dmul_rn(x, y)
#define GPUFI_NUMBER_ADD(x, y) __dadd_rn(x, y)
#define GPUFI_NUMBER_DIV(x, y) __ddiv_rn(x, y)
#define GPUFI_NUMBER_MUL_32(x, y) __fmul_rn(x, y)
#define GPUFI_NUMBER_ADD_32(x, y) __fadd_rn(x, y)
#else
#define GPUFI_NUMBER_MUL(x, y) ((x) * (y))
#define GPUFI_NUMBER_ADD(x, y) ((x) + (y))
#define GPUFI_NUMBER_DIV(x, y) ((x) / (y))
#define GPUFI_NUMBER_MUL_32(x, y) ((x) * (y))
#define GPUFI_NUMBER_ADD_32(x, y) ((x) + (y))
#endif

/* How values become what is predicted and packed, and back. */
typedef struct gpufi_numbers {
  uint8_t transform; /* quotient, linear, single; none, rotate and order with a shift or a fill */
  uint8_t shift;     /* 0 with quotient, linear and single */
  double a, b;       /* 0 without */
  bool has_fill;     /* one value has a correction of its own, whatever its base: */
  uint64_t fill;
  /* The encoder's: 1 / a, for a product in place of a division, and a value that stands for those
   * that have no integer, or are the fill, where all of their group are so. */
  double inverse;
  uint64_t filler;
} gpufi_numbers;

/* Whether the transform makes integers of floats, by parameters in the payload. */
static GPUFI_ON_BOTH inline int gpufi_transform_has_parameters(unsigned transform) {
  return transform >= GPUFI_TRANSFORM_QUOTIENT && transform <= GPUFI_TRANSFORM_SINGLE;
}

/* The magnitudes of a and b are from 2^-60 to below 2^61, but b may also be 0. */
#define GPUFI_PARAMETER_EXPONENT_MAX 60

/* The magnitude of the encoder's integers is below 2^30 for values of 32 bits, and below 2^50 for
 * those of 64. */
#define GPUFI_NUMBER_MAX_32 0x1p30
#define GPUFI_NUMBER_MAX_64 0x1p50

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

static GPUFI_ON_BOTH inline uint32_t gpufi_float_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

static GPUFI_ON_BOTH inline float gpufi_float_of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

/* Whether chunks may have these parameters: a is above 0, b of a quotient is +0, and both of
 * single are float32. */
static GPUFI_ON_BOTH inline int gpufi_parameters_are_good(unsigned transform, double a, double b) {
  const uint64_t a_bits = gpufi_double_bits(a), b_bits = gpufi_double_bits(b);
  const uint64_t least = 1023 - GPUFI_PARAMETER_EXPONENT_MAX;
  const uint64_t most = 1023 + GPUFI_PARAMETER_EXPONENT_MAX;
  const uint64_t a_exponent = a_bits >> 52, b_exponent = b_bits >> 52 & 0x7ff;
  const uint64_t unused = transform == GPUFI_TRANSFORM_SINGLE ? 0x1fffffff : 0;
  return a_exponent >= least && a_exponent <= most && ((a_bits | b_bits) & unused) == 0 &&
         (b_bits == 0 ||
          (transform != GPUFI_TRANSFORM_QUOTIENT && b_exponent >= least && b_exponent <= most));
}

/* The base of an integer, for transforms quotient and linear before it is rounded to the type of
 * the values. */
static GPUFI_ON_BOTH inline double gpufi_number_base(unsigned transform, double a, double b,
                                                     double p) {
  return transform == GPUFI_TRANSFORM_QUOTIENT ? GPUFI_NUMBER_DIV(p, a)
                                               : GPUFI_NUMBER_ADD(GPUFI_NUMBER_MUL(p, a), b);
}

/* The same for transform single. */
static GPUFI_ON_BOTH inline float gpufi_number_single(double a, double b, float p) {
  return GPUFI_NUMBER_ADD_32(GPUFI_NUMBER_MUL_32(p, (float)a), (float)b);
}

/* b, if the integer p is that of the value. */
static GPUFI_ON_BOTH inline double gpufi_number_origin(const gpufi_numbers *numbers, double value,
                                                       double p, int single) {
  const double product = GPUFI_NUMBER_MUL(p, numbers->a);
  const double b = GPUFI_NUMBER_ADD(value, -(single ? (double)(float)product : product));
  return single ? (double)(float)b : b;
}

/* The same numbers, but a quotient by a power of two as a product with its inverse, which is exact:
 * every base is the same, and so is what its integer is rounded from. */
static GPUFI_ON_BOTH inline gpufi_numbers
gpufi_numbers_without_division(const gpufi_numbers *numbers) {
  gpufi_numbers same = *numbers;
  const uint64_t mantissa = gpufi_double_bits(numbers->a) << 12;
  if (numbers->transform == GPUFI_TRANSFORM_QUOTIENT && mantissa == 0) {
    same.transform = GPUFI_TRANSFORM_LINEAR;
    same.a = 1 / numbers->a;
    same.b = 0;
    same.inverse = numbers->a;
  }
  return same;
}

/* What the integer of a value is the rounded one of; NaN, or a magnitude above the maximum, if the
 * value has none. */
static GPUFI_ON_BOTH inline double gpufi_number_near(unsigned transform, double a, double b,
                                                     double inverse, double value) {
  return transform == GPUFI_TRANSFORM_QUOTIENT
             ? GPUFI_NUMBER_MUL(value, a)
             : GPUFI_NUMBER_MUL(GPUFI_NUMBER_ADD(value, -b), inverse);
}

/* To the nearest integer, ties to even, where the magnitude is below 2^51: the sum has no bits
 * below 1, and its lowest bits are the integer. */
static GPUFI_ON_BOTH inline int64_t gpufi_number_rounded(double near) {
  const double magic = 0x1.8p52;
  return (int64_t)(gpufi_double_bits(GPUFI_NUMBER_ADD(near, magic)) - gpufi_double_bits(magic));
}

/* The same as a number. */
static GPUFI_ON_BOTH inline double gpufi_number_whole(double near) {
  const double magic = 0x1.8p52;
  return GPUFI_NUMBER_ADD(GPUFI_NUMBER_ADD(near, magic), -magic);
}

#endif
