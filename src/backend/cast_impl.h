/* One element's conversion, for C and for CUDA kernels: integer work, and conversions that round to
 * nearest even on either, so that both give the same bits. An element is in the low bits of a
 * word. */
#ifndef GPUFI_BACKEND_CAST_IMPL_H
#define GPUFI_BACKEND_CAST_IMPL_H

#include <string.h>

#include "backend/cast.h"
#include "base/arithmetic.h"

#define GPUFI_CAST_FUNCTION static GPUFI_ON_BOTH inline

#define GPUFI_DOUBLE_MANTISSA_BITS 52
#define GPUFI_DOUBLE_BIAS 1023
#define GPUFI_DOUBLE_NAN 0x7ff8000000000000u
#define GPUFI_FLOAT_NAN 0x7fc00000u

/* What the largest codes of a small float type mean. */
typedef enum gpufi_specials {
  GPUFI_SPECIALS_IEEE, /* infinities, then NaNs */
  GPUFI_SPECIALS_FN,   /* no infinity; NaN has every bit of the magnitude set */
  GPUFI_SPECIALS_FNUZ, /* no infinity and no -0: its code is NaN */
} gpufi_specials;

/* A float type of at most 16 bits. */
typedef struct gpufi_small_float {
  int mantissa_bits; /* 0 for a type that is none */
  int exponent_bits;
  int bias;
  gpufi_specials specials;
} gpufi_small_float;

GPUFI_CAST_FUNCTION gpufi_small_float gpufi_small_float_make(int mantissa_bits, int exponent_bits,
                                                             int bias, gpufi_specials specials) {
  gpufi_small_float format;
  format.mantissa_bits = mantissa_bits;
  format.exponent_bits = exponent_bits;
  format.bias = bias;
  format.specials = specials;
  return format;
}

GPUFI_CAST_FUNCTION gpufi_small_float gpufi_small_float_of(gpuf_dtype dtype) {
  switch (dtype) {
  case GPUF_DTYPE_FLOAT16:
    return gpufi_small_float_make(10, 5, 15, GPUFI_SPECIALS_IEEE);
  case GPUF_DTYPE_BFLOAT16:
    return gpufi_small_float_make(7, 8, 127, GPUFI_SPECIALS_IEEE);
  case GPUF_DTYPE_FLOAT8_E3M4:
    return gpufi_small_float_make(4, 3, 3, GPUFI_SPECIALS_IEEE);
  case GPUF_DTYPE_FLOAT8_E4M3:
    return gpufi_small_float_make(3, 4, 7, GPUFI_SPECIALS_IEEE);
  case GPUF_DTYPE_FLOAT8_E4M3B11FNUZ:
    return gpufi_small_float_make(3, 4, 11, GPUFI_SPECIALS_FNUZ);
  case GPUF_DTYPE_FLOAT8_E4M3FN:
    return gpufi_small_float_make(3, 4, 7, GPUFI_SPECIALS_FN);
  case GPUF_DTYPE_FLOAT8_E4M3FNUZ:
    return gpufi_small_float_make(3, 4, 8, GPUFI_SPECIALS_FNUZ);
  case GPUF_DTYPE_FLOAT8_E5M2:
    return gpufi_small_float_make(2, 5, 15, GPUFI_SPECIALS_IEEE);
  case GPUF_DTYPE_FLOAT8_E5M2FNUZ:
    return gpufi_small_float_make(2, 5, 16, GPUFI_SPECIALS_FNUZ);
  default:
    return gpufi_small_float_make(0, 0, 0, GPUFI_SPECIALS_IEEE);
  }
}

GPUFI_CAST_FUNCTION double gpufi_double_of_bits(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

GPUFI_CAST_FUNCTION uint64_t gpufi_bits_of_double(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

/* 2^exponent, for exponents of normal doubles. */
GPUFI_CAST_FUNCTION uint64_t gpufi_power_bits(int exponent) {
  return (uint64_t)(exponent + GPUFI_DOUBLE_BIAS) << GPUFI_DOUBLE_MANTISSA_BITS;
}

/* The value of a small float: exact in a double. */
GPUFI_CAST_FUNCTION double gpufi_small_float_decode(gpufi_small_float format, uint32_t bits) {
  const int width = 1 + format.exponent_bits + format.mantissa_bits;
  const uint32_t sign_bit = 1u << (width - 1);
  const uint32_t magnitude = bits & (sign_bit - 1);
  const uint32_t exponent = magnitude >> format.mantissa_bits;
  const uint32_t mantissa = magnitude & ((1u << format.mantissa_bits) - 1);
  const uint64_t sign = (uint64_t)(bits & sign_bit) << (64 - width);
  const bool top = exponent == (1u << format.exponent_bits) - 1;
  if ((format.specials == GPUFI_SPECIALS_IEEE && top && mantissa != 0) ||
      (format.specials == GPUFI_SPECIALS_FN && magnitude == sign_bit - 1) ||
      (format.specials == GPUFI_SPECIALS_FNUZ && bits == sign_bit)) {
    return gpufi_double_of_bits(sign | GPUFI_DOUBLE_NAN);
  }
  if (format.specials == GPUFI_SPECIALS_IEEE && top) {
    return gpufi_double_of_bits(sign | gpufi_power_bits(GPUFI_DOUBLE_BIAS + 1));
  }
  if (exponent == 0) {
    const double unit =
        gpufi_double_of_bits(gpufi_power_bits(1 - format.bias - format.mantissa_bits));
    const double value = (double)mantissa * unit;
    return sign ? -value : value;
  }
  return gpufi_double_of_bits(sign | gpufi_power_bits((int)exponent - format.bias) |
                              (uint64_t)mantissa
                                  << (GPUFI_DOUBLE_MANTISSA_BITS - format.mantissa_bits));
}

/* `significand` / 2^shift to the nearest whole number, ties to even; shift > 0. */
GPUFI_CAST_FUNCTION uint32_t gpufi_round_shift(uint64_t significand, int shift) {
  if (shift > GPUFI_DOUBLE_MANTISSA_BITS + 2) {
    return 0; /* below a quarter */
  }
  const uint64_t half_less_one = ((uint64_t)1 << (shift - 1)) - 1;
  const uint64_t odd = significand >> shift & 1;
  return (uint32_t)((significand + half_less_one + odd) >> shift);
}

/* The code of a finite magnitude, before the check for overflow. The rounded significand carries
 * into the exponent by itself: the code of 1.0 × 2^e is one more than that of the value before. */
GPUFI_CAST_FUNCTION uint32_t gpufi_small_float_code(gpufi_small_float format, uint64_t bits) {
  const int field = (int)(bits >> GPUFI_DOUBLE_MANTISSA_BITS & 0x7ff);
  const uint64_t fraction = bits & (((uint64_t)1 << GPUFI_DOUBLE_MANTISSA_BITS) - 1);
  const int least_exponent = 1 - format.bias;
  const int exponent = field - GPUFI_DOUBLE_BIAS;
  int shift = GPUFI_DOUBLE_MANTISSA_BITS - format.mantissa_bits;
  if (field == 0) {
    return 0; /* far below every small float's least value */
  }
  const uint64_t significand = fraction | (uint64_t)1 << GPUFI_DOUBLE_MANTISSA_BITS;
  if (exponent < least_exponent) {
    shift += least_exponent - exponent;
    return gpufi_round_shift(significand, shift);
  }
  const int above = exponent - least_exponent; /* kept from reaching the sign by a caller's check */
  return ((uint32_t)above << format.mantissa_bits) + gpufi_round_shift(significand, shift);
}

GPUFI_CAST_FUNCTION uint32_t gpufi_small_float_encode(gpufi_small_float format, double value) {
  const uint64_t bits = gpufi_bits_of_double(value);
  const uint32_t sign_bit = 1u << (format.exponent_bits + format.mantissa_bits);
  const uint32_t sign = bits >> 63 ? sign_bit : 0;
  const uint32_t top = ((1u << format.exponent_bits) - 1) << format.mantissa_bits;
  uint32_t nan = top | 1u << (format.mantissa_bits - 1), overflow = top, largest = top - 1;
  if (format.specials == GPUFI_SPECIALS_FN) {
    nan = overflow = sign_bit - 1;
    largest = nan - 1;
  } else if (format.specials == GPUFI_SPECIALS_FNUZ) {
    nan = overflow = sign_bit;
    largest = sign_bit - 1;
  }
  if (value != value) {
    return format.specials == GPUFI_SPECIALS_FNUZ ? nan : sign | nan;
  }
  const bool huge = (int)(bits >> GPUFI_DOUBLE_MANTISSA_BITS & 0x7ff) - GPUFI_DOUBLE_BIAS >
                    (1 << format.exponent_bits);
  const uint32_t code = huge ? sign_bit : gpufi_small_float_code(format, bits);
  if (code > largest) {
    return format.specials == GPUFI_SPECIALS_FNUZ ? nan : sign | overflow;
  }
  return code == 0 && format.specials == GPUFI_SPECIALS_FNUZ ? 0 : sign | code;
}

/* An element's value: one of the three, by its type. */
typedef enum gpufi_number_kind {
  GPUFI_NUMBER_SIGNED,
  GPUFI_NUMBER_UNSIGNED, /* bool too */
  GPUFI_NUMBER_FLOAT,
} gpufi_number_kind;

typedef struct gpufi_number {
  gpufi_number_kind kind;
  uint64_t integer; /* two's complement if signed */
  double real;
} gpufi_number;

GPUFI_CAST_FUNCTION gpufi_number gpufi_number_signed(int64_t value) {
  gpufi_number number = {GPUFI_NUMBER_SIGNED, (uint64_t)value, 0};
  return number;
}

GPUFI_CAST_FUNCTION gpufi_number gpufi_number_unsigned(uint64_t value) {
  gpufi_number number = {GPUFI_NUMBER_UNSIGNED, value, 0};
  return number;
}

GPUFI_CAST_FUNCTION gpufi_number gpufi_number_float(double value) {
  gpufi_number number = {GPUFI_NUMBER_FLOAT, 0, value};
  return number;
}

/* Hardware differs in what it makes of a NaN's payload, so the NaN is made here. */
GPUFI_CAST_FUNCTION double gpufi_widen_float(uint32_t bits) {
  float value;
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return gpufi_double_of_bits((uint64_t)(bits >> 31) << 63 | GPUFI_DOUBLE_NAN);
  }
  memcpy(&value, &bits, sizeof(value));
  return (double)value;
}

GPUFI_CAST_FUNCTION uint32_t gpufi_narrow_to_float(double value) {
  uint32_t bits;
  if (value != value) {
    return (uint32_t)(gpufi_bits_of_double(value) >> 63) << 31 | GPUFI_FLOAT_NAN;
  }
  const float narrow = (float)value;
  memcpy(&bits, &narrow, sizeof(bits));
  return bits;
}

GPUFI_CAST_FUNCTION gpufi_number gpufi_number_decode(gpuf_dtype dtype, uint64_t bits) {
  switch (dtype) {
  case GPUF_DTYPE_BOOL:
    return gpufi_number_unsigned((uint8_t)bits != 0);
  case GPUF_DTYPE_INT8:
    return gpufi_number_signed((int8_t)bits);
  case GPUF_DTYPE_INT16:
    return gpufi_number_signed((int16_t)bits);
  case GPUF_DTYPE_INT32:
    return gpufi_number_signed((int32_t)bits);
  case GPUF_DTYPE_INT64:
    return gpufi_number_signed((int64_t)bits);
  case GPUF_DTYPE_UINT8:
  case GPUF_DTYPE_UINT16:
  case GPUF_DTYPE_UINT32:
  case GPUF_DTYPE_UINT64:
    return gpufi_number_unsigned(bits);
  case GPUF_DTYPE_FLOAT32:
    return gpufi_number_float(gpufi_widen_float((uint32_t)bits));
  case GPUF_DTYPE_FLOAT64:
    return gpufi_number_float(gpufi_double_of_bits(bits));
  case GPUF_DTYPE_FLOAT8_E8M0FNU: /* a power of two; no sign, no zero */
    return gpufi_number_float(gpufi_double_of_bits(
        (uint8_t)bits == 0xff ? GPUFI_DOUBLE_NAN : gpufi_power_bits((int)bits - 127)));
  default:
    return gpufi_number_float(
        gpufi_small_float_decode(gpufi_small_float_of(dtype), (uint32_t)bits));
  }
}

/* Out of range, any answer will do, but the same one everywhere: the nearest 64-bit integer's low
 * bits, and those of the least one for NaN. */
GPUFI_CAST_FUNCTION uint64_t gpufi_integer_of(gpufi_number number) {
  const double two_63 = 9223372036854775808.0;
  if (number.kind != GPUFI_NUMBER_FLOAT) {
    return number.integer;
  }
  if (!(number.real >= -two_63)) {
    return (uint64_t)1 << 63;
  }
  if (number.real < two_63) {
    return (uint64_t)(int64_t)number.real;
  }
  return number.real < 2 * two_63 ? (uint64_t)number.real : UINT64_MAX;
}

GPUFI_CAST_FUNCTION double gpufi_double_of(gpufi_number number) {
  return number.kind == GPUFI_NUMBER_FLOAT    ? number.real
         : number.kind == GPUFI_NUMBER_SIGNED ? (double)(int64_t)number.integer
                                              : (double)number.integer;
}

/* Integers become a float32 in one rounding, not by way of float64. */
GPUFI_CAST_FUNCTION uint32_t gpufi_float_bits_of(gpufi_number number) {
  uint32_t bits;
  if (number.kind == GPUFI_NUMBER_FLOAT) {
    return gpufi_narrow_to_float(number.real);
  }
  const float value =
      number.kind == GPUFI_NUMBER_SIGNED ? (float)(int64_t)number.integer : (float)number.integer;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

/* bfloat16, and small floats from integers, come by way of float32, as NumPy and ml_dtypes make
 * them. */
GPUFI_CAST_FUNCTION uint32_t gpufi_small_float_bits_of(gpuf_dtype dtype, gpufi_number number) {
  const bool by_float = number.kind != GPUFI_NUMBER_FLOAT || dtype == GPUF_DTYPE_BFLOAT16;
  const double value = by_float ? gpufi_widen_float(gpufi_float_bits_of(number)) : number.real;
  return gpufi_small_float_encode(gpufi_small_float_of(dtype), value);
}

GPUFI_CAST_FUNCTION uint64_t gpufi_number_encode(gpuf_dtype dtype, gpufi_number number) {
  switch (dtype) {
  case GPUF_DTYPE_BOOL:
    return number.kind == GPUFI_NUMBER_FLOAT ? number.real != 0 : number.integer != 0;
  case GPUF_DTYPE_INT8:
  case GPUF_DTYPE_INT16:
  case GPUF_DTYPE_INT32:
  case GPUF_DTYPE_INT64:
  case GPUF_DTYPE_UINT8:
  case GPUF_DTYPE_UINT16:
  case GPUF_DTYPE_UINT32:
  case GPUF_DTYPE_UINT64:
    return gpufi_integer_of(number);
  case GPUF_DTYPE_FLOAT32:
    return gpufi_float_bits_of(number);
  case GPUF_DTYPE_FLOAT64:
    return gpufi_bits_of_double(gpufi_double_of(number));
  default:
    return gpufi_small_float_bits_of(dtype, number);
  }
}

/* Of the result only the low bits, as many as `to` has, count. */
GPUFI_CAST_FUNCTION uint64_t gpufi_cast_bits(gpufi_cast cast, uint64_t bits) {
  return gpufi_number_encode(cast.to, gpufi_number_decode(cast.from, bits));
}

#endif
