/* Small chunks of every mode, for tests that damage them. */
#ifndef GPUFI_TEST_CODEC_HOSTILE_H
#define GPUFI_TEST_CODEC_HOSTILE_H

#include "base/arithmetic.h"
#include "codec_fixture.h"

/* A small chunk of each mode, and of W8 with each kind of block. */
typedef struct specimen {
  gpufi_chunk_shape shape;
  pattern kind;
  int mode, transform;
} specimen;

static const specimen specimens[] = {
    {{GPUF_DTYPE_FLOAT32, 2, {5, 21}}, NOISE, GPUFI_MODE_RAW, 0},
    {{GPUF_DTYPE_FLOAT64, 1, {50}}, CONSTANT, GPUFI_MODE_CONSTANT, 0},
    {{GPUF_DTYPE_INT32, 2, {20, 61}}, SMOOTH, GPUFI_MODE_W8, 0},
    {{GPUF_DTYPE_UINT64, 1, {1100}}, SPARSE, GPUFI_MODE_W8, 0},
    {{GPUF_DTYPE_COMPLEX64, 2, {9, 31}}, SMOOTH, GPUFI_MODE_W8, 1},
    {{GPUF_DTYPE_INT16, 3, {3, 5, 70}}, COARSE, GPUFI_MODE_W8, 0},
    {{GPUF_DTYPE_INT64, 1, {300}}, STEPS, GPUFI_MODE_W8, 0},
    {{GPUF_DTYPE_BOOL, 1, {3000}}, RARE, GPUFI_MODE_W8, 0},
    {{GPUF_DTYPE_BFLOAT16, 1, {1100}}, WEIGHTS, GPUFI_MODE_RANKED, 0},
    {{GPUF_DTYPE_FLOAT64, 1, {1100}}, PRUNED, GPUFI_MODE_RANKED, 0},
    {{GPUF_DTYPE_FLOAT32, 1, {1500}}, FEW, GPUFI_MODE_RANKED, GPUFI_TRANSFORM_DICTIONARY},
    {{GPUF_DTYPE_FLOAT64, 1, {1700}}, LEVELS, GPUFI_MODE_W8, GPUFI_TRANSFORM_DICTIONARY},
    {{GPUF_DTYPE_INT32, 1, {1703}}, IDLE, GPUFI_MODE_MATCHES, 0},
    {{GPUF_DTYPE_UINT64, 1, {4500}}, PERIOD, GPUFI_MODE_MATCHES, 0},
    {{GPUF_DTYPE_FLOAT64, 1, {5000}}, RAMPS, GPUFI_MODE_MATCHES, GPUFI_TRANSFORM_ROTATE},
    {{GPUF_DTYPE_FLOAT32, 3, {30, 1, 7}}, SMOOTH, GPUFI_MODE_W8, GPUFI_TRANSFORM_ROTATE},
    {{GPUF_DTYPE_UINT32, 1, {1100}}, SPIKES, GPUFI_MODE_W8, 0},
    {{GPUF_DTYPE_FLOAT64, 2, {11, 140}}, DECIMALS, GPUFI_MODE_W8, GPUFI_TRANSFORM_QUOTIENT},
    {{GPUF_DTYPE_FLOAT32, 1, {1700}}, UNPACKED, GPUFI_MODE_W8, GPUFI_TRANSFORM_LINEAR},
    {{GPUF_DTYPE_FLOAT64, 1, {1500}}, NARROW, GPUFI_MODE_W8, GPUFI_TRANSFORM_ROTATE},
};
#define SPECIMEN_COUNT (sizeof(specimens) / sizeof(specimens[0]))

static inline guarded make_specimen(const specimen *s, size_t *raw_nbytes, size_t *encoded_nbytes) {
  guarded encoded = encode_pattern(&s->shape, s->kind, raw_nbytes, encoded_nbytes);
  CHECK(encoded.data[GPUFI_AT_MODE] == s->mode);
  CHECK(encoded.data[GPUFI_AT_TRANSFORM] == s->transform);
  return encoded;
}

/* Clear and set bits of the descriptor at byte `at`, seal the chunk, decode it, and free it. */
static inline void check_changed(guarded chunk, size_t nbytes, size_t raw_nbytes, size_t at,
                                 uint32_t clear, uint32_t set, const char *text) {
  const uint32_t word = (gpufi_load_u32(chunk.data + at) & ~clear) | set;
  memcpy(chunk.data + at, &word, sizeof(word));
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), GPUF_ERR_CORRUPT, text);
  guarded_free(&chunk);
}

/* Change one byte of specimen `index`, seal it, and decode. */
static inline void check_byte(size_t index, size_t at, uint8_t value, const char *text) {
  size_t raw_nbytes, nbytes;
  guarded chunk = make_specimen(&specimens[index], &raw_nbytes, &nbytes);
  CHECK(chunk.data[at] != value);
  chunk.data[at] = value;
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), GPUF_ERR_CORRUPT, text);
  guarded_free(&chunk);
}

enum {
  INT64_STEPS = 6,
  BFLOAT16_RANKED = 8,
  FLOAT64_RANKED = 9,
  FLOAT32_PLACES = 10,
  FLOAT64_PLACES = 11,
  FLOAT64_RAMPS = 14,
  FLOAT64_DECIMALS = 17,
  FLOAT32_UNPACKED = 18,
  FLOAT64_NARROW = 19,
};

#endif
