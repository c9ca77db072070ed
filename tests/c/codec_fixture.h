/* Data to encode, and encoding and decoding between guard pages. */
#ifndef GPUFI_TEST_CODEC_FIXTURE_H
#define GPUFI_TEST_CODEC_FIXTURE_H

#include "codec/bytes.h"
#include "codec/codec.h"
#include "codec/geometry.h"
#include "guarded.h"
#include "test.h"

#include <math.h>

/* --- data --- */

static gpuf_error err;

static uint64_t random_state = 0x243f6a8885a308d3u;

static inline uint64_t random_u64(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state * 0x2545f4914f6cdd1du;
}

typedef enum pattern {
  NOISE,
  SMOOTH,
  CONSTANT,
  SPARSE,
  COARSE,
  SPECIAL,  /* NaN, infinities, -0.0, 0 and extremes of a 4-byte float's top bytes */
  WEIGHTS,  /* floats with a bell-shaped distribution */
  PRUNED,   /* the same, most of them 0 */
  FEW,      /* few distinct values, in no order */
  LEVELS,   /* few distinct values, two of them at a time */
  STEPS,    /* rising by nearly the same each time */
  RARE,     /* 0, and seldom 1 */
  PERIOD,   /* noise that repeats */
  IDLE,     /* noise, in half of the bits */
  RAMPS,    /* rising, and starting over in other places than lines and blocks do */
  SPIKES,   /* small numbers, and seldom one of any size */
  DECIMALS, /* floats of two decimals, some of them NaN and some -0 */
  UNPACKED, /* floats that are integers by scale and offset, a few of them one unit off */
  NARROW,   /* floats of which nearly all have nothing in the lower half of their bits */
  PATTERN_COUNT,
} pattern;

/* The bits of a float of `value_nbytes`, bfloat16 for two bytes, from a roughly normal
 * distribution. */
static inline uint64_t weight(size_t value_nbytes) {
  double sum = -6;
  for (int i = 0; i < 12; i++) {
    sum += (double)(random_u64() >> 11) / 9007199254740992.0;
  }
  const float narrow = (float)sum;
  uint64_t bits = 0;
  uint32_t narrow_bits;
  memcpy(&narrow_bits, &narrow, 4);
  memcpy(&bits, &sum, 8);
  return value_nbytes == 8   ? bits
         : value_nbytes == 4 ? narrow_bits
                             : narrow_bits >> (value_nbytes == 2 ? 16 : 20);
}

/* The bits of a number as a float of `value_nbytes`; of narrower types, of an integer. */
static inline uint64_t float_bits(double number, size_t value_nbytes) {
  const float narrow = (float)number;
  uint64_t bits = 0;
  if (value_nbytes == 8) {
    memcpy(&bits, &number, 8);
  } else if (value_nbytes == 4) {
    memcpy(&bits, &narrow, 4);
  } else {
    bits = (uint64_t)(int64_t)(number == number ? number : 0);
  }
  return bits;
}

static inline uint64_t numbers_value(pattern kind, size_t i, size_t value_nbytes) {
  const double n = (double)(i % 700) * 3 + (double)(random_u64() % 40) - 500;
  const uint64_t low = (UINT64_C(1) << (4 * value_nbytes)) - 1, odd = random_u64() % 300;
  const double packed = n * 0.001572704938045535;
  switch (kind) {
  case DECIMALS:
    return float_bits(odd < 30 ? (double)NAN : odd == 31 ? -0.0 : n / 100, value_nbytes);
  case UNPACKED:
    return float_bits(packed + 26.96875, value_nbytes) + (odd < 3);
  default:
    return (weight(value_nbytes) & ~low) | (odd == 0);
  }
}

static inline uint64_t pattern_value(pattern kind, size_t i, size_t value_nbytes) {
  static const uint64_t special[] = {0,
                                     0x8000000000000000u,
                                     0x7ff8000000000001u,
                                     0xfff0000000000000u,
                                     0x7f8000007fc00001u,
                                     0xff80000080000000u,
                                     UINT64_MAX,
                                     0x0000000100000001u};
  switch (kind) {
  case NOISE:
    return random_u64();
  case SMOOTH:
    return 1000000 + 3 * i + i * i / 50 + random_u64() % 5;
  case CONSTANT:
    return 0x8877665544332211u;
  case SPARSE:
    return random_u64() % 50 == 0 ? random_u64() : 0;
  case COARSE:
    return (i % 200 + random_u64() % 3) << 5;
  case WEIGHTS:
    return weight(value_nbytes);
  case PRUNED:
    return random_u64() % 4 == 0 ? weight(value_nbytes) : 0;
  case FEW:
    return (random_u64() % 21 + 1) * 0x9e3779b97f4a7c15u;
  case LEVELS:
    return ((i / 40 + random_u64() % 2) % 21 + 1) * 0x9e3779b97f4a7c15u;
  case STEPS:
    return 1234567 * i + random_u64() % 3;
  case PERIOD:
    return (i % 331 + 1) * 0x9e3779b97f4a7c15u;
  case IDLE:
    return random_u64() & 0x9999999999999999u;
  case DECIMALS:
  case UNPACKED:
  case NARROW:
    return numbers_value(kind, i, value_nbytes);
  case RAMPS:
    return i % 1009 * 0x1234567;
  case RARE:
    return random_u64() % 150 == 0;
  case SPIKES:
    return random_u64() % 200 == 0 ? random_u64() : random_u64() % 5000;
  default:
    return special[random_u64() % 8];
  }
}

static inline void fill(uint8_t *raw, size_t raw_nbytes, size_t value_nbytes, pattern kind) {
  for (size_t i = 0; i * value_nbytes < raw_nbytes; i++) {
    const uint64_t value = pattern_value(kind, i, value_nbytes);
    const size_t left = raw_nbytes - i * value_nbytes;
    memcpy(raw + i * value_nbytes, &value, left < value_nbytes ? left : value_nbytes);
  }
}

static inline size_t value_nbytes_of(gpuf_dtype dtype) {
  const size_t nbytes = gpufi_chunk_element_nbytes(dtype);
  return dtype == GPUF_DTYPE_COMPLEX64 || dtype == GPUF_DTYPE_COMPLEX128 ? nbytes / 2 : nbytes;
}

/* --- encode and decode between guard pages --- */

/* Encode; the returned copy is of exactly the encoded size. */
static inline guarded encode(const gpufi_chunk_shape *shape, const uint8_t *raw, bool big_endian,
                             size_t *encoded_nbytes, int at_end) {
  size_t raw_nbytes;
  CHECK_OK(gpufi_chunk_raw_nbytes(shape, &raw_nbytes, &err));
  const size_t bound = gpufi_codec_bound(raw_nbytes);
  guarded in = guarded_alloc(raw_nbytes, at_end), out = guarded_alloc(bound, at_end);
  void *scratch = aligned_alloc(64, (gpufi_codec_scratch_nbytes(shape) + 63) & ~(size_t)63);
  memcpy(in.data, raw, raw_nbytes);
  CHECK_OK((big_endian ? gpufi_codec_encode_big_endian : gpufi_codec_encode)(
      shape, in.data, out.data, bound, encoded_nbytes, scratch, &err));
  CHECK(*encoded_nbytes <= bound);
  guarded exact = guarded_alloc(*encoded_nbytes, at_end);
  memcpy(exact.data, out.data, *encoded_nbytes);
  free(scratch);
  guarded_free(&in);
  guarded_free(&out);
  return exact;
}

/* The same for values of a pattern. */
static inline guarded encode_pattern(const gpufi_chunk_shape *shape, pattern kind,
                                     size_t *raw_nbytes, size_t *encoded_nbytes) {
  CHECK_OK(gpufi_chunk_raw_nbytes(shape, raw_nbytes, &err));
  uint8_t *raw = malloc(*raw_nbytes);
  fill(raw, *raw_nbytes, value_nbytes_of(shape->dtype), kind);
  guarded encoded = encode(shape, raw, false, encoded_nbytes, 1);
  free(raw);
  return encoded;
}

/* Decode from and into buffers of exactly these sizes. */
static inline gpuf_status decode(const uint8_t *chunk, size_t nbytes, size_t raw_nbytes) {
  guarded in = guarded_alloc(nbytes, 1), out = guarded_alloc(raw_nbytes, 1);
  memcpy(in.data, chunk, nbytes);
  const gpuf_status status = gpufi_codec_decode(in.data, nbytes, out.data, raw_nbytes, &err);
  guarded_free(&in);
  guarded_free(&out);
  return status;
}

#endif
