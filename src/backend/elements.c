#include "backend/elements.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

/* How a small floating-point type gives out its codes. */
typedef enum specials {
  SPECIALS_IEEE, /* all exponent bits set: infinity and NaNs */
  SPECIALS_FN,   /* all bits but the sign set: NaN; no infinity */
  SPECIALS_FNUZ, /* the code of -0 is NaN; no infinity */
  SPECIALS_FNU,  /* unsigned, an exponent alone; all bits set: NaN */
} specials;

typedef struct small_float {
  int exponent_bits; /* 0: not a small floating-point type */
  int mantissa_bits;
  int bias;
  specials special;
} small_float;

static small_float small_float_of(gpuf_dtype dtype) {
  static const small_float formats[GPUF_DTYPE_MAX + 1] = {
      [GPUF_DTYPE_FLOAT16] = {5, 10, 15, SPECIALS_IEEE},
      [GPUF_DTYPE_BFLOAT16] = {8, 7, 127, SPECIALS_IEEE},
      [GPUF_DTYPE_FLOAT8_E3M4] = {3, 4, 3, SPECIALS_IEEE},
      [GPUF_DTYPE_FLOAT8_E4M3] = {4, 3, 7, SPECIALS_IEEE},
      [GPUF_DTYPE_FLOAT8_E4M3B11FNUZ] = {4, 3, 11, SPECIALS_FNUZ},
      [GPUF_DTYPE_FLOAT8_E4M3FN] = {4, 3, 7, SPECIALS_FN},
      [GPUF_DTYPE_FLOAT8_E4M3FNUZ] = {4, 3, 8, SPECIALS_FNUZ},
      [GPUF_DTYPE_FLOAT8_E5M2] = {5, 2, 15, SPECIALS_IEEE},
      [GPUF_DTYPE_FLOAT8_E5M2FNUZ] = {5, 2, 16, SPECIALS_FNUZ},
      [GPUF_DTYPE_FLOAT8_E8M0FNU] = {8, 0, 127, SPECIALS_FNU},
  };
  return formats[dtype];
}

/* Value of the code without its sign. */
static double decode_magnitude(small_float format, uint32_t code) {
  const int exponent = (int)(code >> format.mantissa_bits);
  const uint32_t mantissa = code & ((1u << format.mantissa_bits) - 1);
  const int top_exponent = (1 << format.exponent_bits) - 1;
  if (format.special == SPECIALS_FNU) {
    return exponent == top_exponent ? NAN : ldexp(1.0, exponent - format.bias);
  }
  if (format.special == SPECIALS_IEEE && exponent == top_exponent) {
    return mantissa ? NAN : INFINITY;
  }
  if (format.special == SPECIALS_FN &&
      code + 1 == 1u << (format.exponent_bits + format.mantissa_bits)) {
    return NAN;
  }
  const int scale = (exponent > 0 ? exponent : 1) - format.bias - format.mantissa_bits;
  const uint32_t hidden = exponent > 0 ? 1u << format.mantissa_bits : 0;
  return ldexp((double)(mantissa + hidden), scale);
}

static double decode(small_float format, uint32_t bits) {
  const uint32_t sign =
      format.special == SPECIALS_FNU ? 0 : 1u << (format.exponent_bits + format.mantissa_bits);
  if (format.special == SPECIALS_FNUZ && bits == sign) {
    return NAN;
  }
  const double magnitude = decode_magnitude(format, bits & ~sign);
  return bits & sign ? -magnitude : magnitude;
}

void gpufi_elements_byte_table(gpuf_dtype dtype, float table[256]) {
  const small_float format = small_float_of(dtype);
  for (int bits = 0; bits < 256; bits++) {
    if (format.exponent_bits > 0) {
      table[bits] = (float)decode(format, (uint32_t)bits);
    } else {
      table[bits] = dtype == GPUF_DTYPE_INT8 ? (int8_t)bits : bits;
    }
    if (dtype == GPUF_DTYPE_BOOL) {
      table[bits] = bits != 0;
    }
  }
}

/* One for each one-byte floating-point type; filled once, by the first that needs one. */
static float byte_tables[GPUF_DTYPE_MAX + 1][256];
static pthread_once_t byte_tables_once = PTHREAD_ONCE_INIT;

static void fill_byte_tables(void) {
  for (int dtype = GPUF_DTYPE_FLOAT8_E3M4; dtype <= GPUF_DTYPE_MAX; dtype++) {
    gpufi_elements_byte_table((gpuf_dtype)dtype, byte_tables[dtype]);
  }
}

static double float16_number(uint16_t bits) {
  uint32_t magnitude = (uint32_t)(bits & 0x7fff) << 13;
  float value;
  /* The exponent moves into float32's place; a multiplication rebiases it, subnormals too. */
  memcpy(&value, &magnitude, sizeof(value));
  value *= 0x1p112f;
  if ((bits & 0x7c00) == 0x7c00) {
    value = bits & 0x3ff ? NAN : INFINITY;
  }
  return bits & 0x8000 ? -value : value;
}

static double bfloat16_number(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof(value));
  return value;
}

/* One loop a type, so that each becomes a plain conversion. */
#define WIDEN(type, convert)                                                                       \
  for (int64_t i = 0; i < count; i++) {                                                            \
    type element;                                                                                  \
    memcpy(&element, from + i * stride_nbytes, sizeof(element));                                   \
    numbers[i] = (double)convert(element);                                                         \
  }                                                                                                \
  break

void gpufi_elements_widen(gpuf_dtype dtype, const void *src, int64_t stride_nbytes, int64_t count,
                          double *numbers) {
  const char *from = src;
  switch (dtype) {
  case GPUF_DTYPE_INT16:
    WIDEN(int16_t, );
  case GPUF_DTYPE_INT32:
    WIDEN(int32_t, );
  case GPUF_DTYPE_INT64:
    WIDEN(int64_t, );
  case GPUF_DTYPE_UINT16:
    WIDEN(uint16_t, );
  case GPUF_DTYPE_UINT32:
    WIDEN(uint32_t, );
  case GPUF_DTYPE_UINT64:
    WIDEN(uint64_t, );
  case GPUF_DTYPE_FLOAT16:
    WIDEN(uint16_t, float16_number);
  case GPUF_DTYPE_BFLOAT16:
    WIDEN(uint16_t, bfloat16_number);
  case GPUF_DTYPE_FLOAT32:
    WIDEN(float, );
  case GPUF_DTYPE_FLOAT64:
    WIDEN(double, );
  case GPUF_DTYPE_BOOL:
    WIDEN(uint8_t, 0 !=);
  case GPUF_DTYPE_INT8:
    WIDEN(int8_t, );
  case GPUF_DTYPE_UINT8:
    WIDEN(uint8_t, );
  default: {
    pthread_once(&byte_tables_once, fill_byte_tables);
    for (int64_t i = 0; i < count; i++) {
      numbers[i] = (double)byte_tables[dtype][*(const uint8_t *)(from + i * stride_nbytes)];
    }
  }
  }
}
