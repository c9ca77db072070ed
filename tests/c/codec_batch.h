/* Batches of chunks of all kinds of data, on the host and on a device. */
#ifndef GPUFI_TEST_CODEC_BATCH_H
#define GPUFI_TEST_CODEC_BATCH_H

#include <math.h>

#include "backend/backend.h"
#include "codec/geometry.h"
#include "codec/number.h"
#include "core/runtime.h"
#include "devices.h"

static gpuf_error err;
static uint64_t random_state = 7;

static inline uint64_t below(uint64_t limit) {
  return random_below(&random_state, limit);
}

/* --- data ---------------------------------------------------------------- */

typedef enum pattern {
  NOISE,
  CONSTANT,
  SPARSE,
  RAMP,
  FEW_BITS,
  WAVES,
  ROWS_ALIKE,
  SPECIAL,
  WEIGHTS, /* floats with a bell-shaped distribution */
  PRUNED,  /* the same, most of them 0 */
  COUNTS,  /* of which the upper bits are skewed, and the lowest two 0 but for a few */
  SPIKES,  /* groups of many bits among those of few */
  DECIMALS,
  STEPS,     /* integers times a scale, plus an offset */
  NARROW,    /* of either sign, with low bits that are 0 but for a few values */
  FILLED,    /* decimals with a fill value, and now and then a NaN */
  PERIODIC,  /* noise, over and over */
  WORDS,     /* in any order, of some table */
  IDLE_BITS, /* between others that are noise */
  TAGGED,    /* records of noise that begin alike, so that matches are tried and may not pay */
  PADDED,    /* noise with some equal values, which W8 makes hardly smaller */
  PATTERN_COUNT,
} pattern;

static inline uint64_t wave(const gpufi_chunk_shape *shape, size_t element, size_t value_nbytes) {
  double sum = 1.5;
  uint64_t bits = 0;
  for (int32_t a = shape->ndim - 1; a >= 0; a--) {
    sum += sin(0.05 * (double)(element % shape->dims[a]) + a);
    element /= shape->dims[a];
  }
  sum += 1e-4 * (double)below(1000);
  if (value_nbytes == 8) {
    memcpy(&bits, &sum, 8);
    return bits;
  }
  const float single = (float)sum;
  memcpy(&bits, &single, 4);
  return bits >> (32 - 8 * value_nbytes);
}

/* Roughly normal, in the bits of a float of `value_nbytes`; of two bytes, bfloat16. */
static inline uint64_t weight(size_t value_nbytes) {
  double sum = -6;
  uint64_t bits = 0;
  for (int i = 0; i < 12; i++) {
    sum += (double)below(1 << 20) / (1 << 20);
  }
  if (value_nbytes == 8) {
    memcpy(&bits, &sum, 8);
    return bits;
  }
  const float narrow = (float)sum;
  memcpy(&bits, &narrow, 4);
  return bits >> (value_nbytes == 4 ? 0 : value_nbytes == 2 ? 16 : 20);
}

/* The bits of the nearest float of `value_nbytes`; of two bytes, bfloat16, and of one, some bits.
 */
static inline uint64_t float_bits(double value, size_t value_nbytes) {
  uint64_t bits = 0;
  if (value_nbytes == 8) {
    memcpy(&bits, &value, 8);
    return bits;
  }
  const float narrow = (float)value;
  memcpy(&bits, &narrow, 4);
  return bits >> (32 - 8 * value_nbytes);
}

/* A float that is an integer in disguise, or that its type has more bits than it needs for. */
static inline uint64_t disguised(pattern kind, size_t element, size_t value_nbytes) {
  const double n = 2000 * sin(0.01 * (double)element) + (double)below(9);
  const unsigned unused = value_nbytes == 8 ? 29 : value_nbytes == 4 ? 13 : 3;
  switch (kind) {
  case STEPS:
    return float_bits(floor(n) * 0.0173 + 271.3, value_nbytes);
  case NARROW:
    return (float_bits(n * 1.1, value_nbytes) >> unused | below(500) / 499) << unused |
           (below(300) == 0);
  case FILLED:
    if (below(3) == 0) {
      return float_bits(9.96920996838687e36, value_nbytes);
    }
    return below(400) == 0 ? UINT64_MAX >> 1 : float_bits(floor(n) / 100, value_nbytes);
  default:
    return float_bits(floor(n) / 10, value_nbytes);
  }
}

static inline uint64_t pattern_value(pattern kind, const gpufi_chunk_shape *shape, size_t element,
                                     size_t value_nbytes) {
  static const uint64_t special[] = {0, 0x8000000000000000u, 0x7ff8000000000001u,
                                     0xff80000080000000u, UINT64_MAX};
  uint64_t noise;
  fill_random(&noise, sizeof(noise), ++random_state);
  switch (kind) {
  case NOISE:
    return noise;
  case CONSTANT:
    return 0x8877665544332211u;
  case SPARSE:
    return below(40) == 0 ? noise : 0;
  case RAMP:
    return 1000000 + 3 * element + below(5);
  case FEW_BITS:
    return (element % 200 + below(3)) << 5;
  case WAVES:
    return wave(shape, element, value_nbytes);
  case ROWS_ALIKE:
    return element % shape->dims[shape->ndim - 1] * 0x9e3779b97f4a7c15u >> 9;
  case WEIGHTS:
    return weight(value_nbytes);
  case PRUNED:
    return below(4) == 0 ? weight(value_nbytes) : 0;
  case COUNTS:
    return (uint64_t)__builtin_ctzll(noise | 1 << 9) << (8 * value_nbytes - 6) |
           (noise >> (70 - 8 * value_nbytes) & ~UINT64_C(3)) | (below(3000) == 0 ? 1 : 0);
  case SPIKES:
    return element / 8 % 10 == 3 ? noise : below(value_nbytes == 1 ? 3 : 5000);
  case PERIODIC:
    return (element % 700 + 1) * 0x9e3779b97f4a7c15u >> 7 ^ (element % 700) << 40;
  case WORDS: {
    const size_t in_word = element % 32, word = element / 32 * 0x9e3779b97f4a7c15u >> 58;
    return ((word << 5 | in_word) + 1) * 0xd6e8feb86659fd93u >> 3;
  }
  case IDLE_BITS:
    return (noise & 3) | (noise >> 32 & 3) << (8 * value_nbytes - 4);
  case TAGGED:
    return element % 40 < 4 ? 0x54 + element % 40 : noise;
  case PADDED:
    return element / 50 % 25 == 3 ? 7 : noise;
  case DECIMALS:
  case STEPS:
  case NARROW:
  case FILLED:
    return disguised(kind, element, value_nbytes);
  default:
    return special[below(5)] >> (64 - 8 * value_nbytes);
  }
}

static inline void fill_chunk(uint8_t *raw, const gpufi_chunk_shape *shape, pattern kind) {
  gpufi_geometry g;
  gpufi_geometry_init(&g, shape);
  for (size_t i = 0; i < g.value_count; i++) {
    const uint64_t value = pattern_value(kind, shape, i / g.component_count, g.value_nbytes);
    memcpy(raw + i * g.value_nbytes, &value, g.value_nbytes);
  }
}

static inline gpufi_chunk_shape random_shape(uint64_t most) {
  static const uint32_t usual[] = {1, 2, 3, 7, 8, 9, 16, 31, 32, 33, 64, 100, 256};
  gpufi_chunk_shape shape = {.dtype = (gpuf_dtype)(1 + below(GPUF_DTYPE_MAX)),
                             .ndim = 1 + (int32_t)below(below(3) ? 4 : GPUFI_CODEC_NDIM_MAX)};
  uint64_t left = 1 + below(below(4) ? most : 300);
  for (int32_t a = shape.ndim - 1; a >= 0; a--) {
    uint64_t length = below(2) ? usual[below(13)] : 1 + below(200);
    length = a == 0 || length > left ? left : length;
    shape.dims[a] = (uint32_t)length;
    left = left / length > 0 ? left / length : 1;
  }
  return shape;
}

/* --- a batch on the device ------------------------------------------------- */

typedef struct fixture {
  const gpufi_backend *backend;
  gpuf_stream stream;
  gpufi_chunks chunks;
  size_t raw_nbytes, encoded_nbytes;
  uint8_t *raw, *encoded; /* on the host, as are the places and the verdicts */
  gpufi_chunk_place *places;
  uint32_t *verdicts;
  void *d_raw, *d_encoded, *d_places, *d_verdicts, *d_encode_scratch, *d_decode_scratch;
} fixture;

static inline const gpufi_backend *find_backend(void) {
  const gpufi_backend *backend;
  CHECK_OK(gpufi_backend_for(test_device, &backend, &err));
  return backend;
}

static inline void *allocate(size_t nbytes) {
  void *d_ptr;
  CHECK_OK(gpuf_alloc(test_device, nbytes, &d_ptr, &err));
  return d_ptr;
}

static inline void fixture_init(fixture *f, const gpufi_chunk_shape *shape, size_t count,
                                bool big_endian, gpufi_coding coding) {
  memset(f, 0, sizeof(*f));
  f->backend = find_backend();
  CHECK_OK(f->backend->stream_create(test_device.index, false, &f->stream, &err));
  CHECK_OK(gpufi_chunks_init(&f->chunks, shape, count, &err));
  f->chunks.big_endian = big_endian;
  f->chunks.coding = coding;
  f->raw_nbytes = count * f->chunks.raw_pitch_nbytes;
  f->encoded_nbytes = gpufi_chunks_encoded_nbytes(&f->chunks);
  f->raw = calloc(1, f->raw_nbytes);
  f->encoded = calloc(1, f->encoded_nbytes);
  f->places = calloc(GPUFI_CHUNKS_PLACE_COUNT(count), sizeof(*f->places));
  f->verdicts = calloc(count, sizeof(*f->verdicts));
  f->d_raw = allocate(f->raw_nbytes);
  f->d_encoded = allocate(f->encoded_nbytes);
  f->d_places = allocate(GPUFI_CHUNKS_PLACE_COUNT(count) * sizeof(*f->places));
  f->d_verdicts = allocate(count * sizeof(*f->verdicts));
  f->d_encode_scratch = allocate(f->backend->encode_scratch_nbytes(&f->chunks));
  f->d_decode_scratch = allocate(f->backend->decode_scratch_nbytes(&f->chunks));
}

static inline void fixture_fini(fixture *f) {
  void *const d_ptrs[] = {f->d_raw,      f->d_encoded,        f->d_places,
                          f->d_verdicts, f->d_encode_scratch, f->d_decode_scratch};
  for (size_t i = 0; i < sizeof(d_ptrs) / sizeof(d_ptrs[0]); i++) {
    CHECK_OK(gpuf_free(test_device, d_ptrs[i], &err));
  }
  CHECK_OK(f->backend->stream_destroy(test_device.index, f->stream, &err));
  free(f->raw);
  free(f->encoded);
  free(f->places);
  free(f->verdicts);
}

static inline void transfer(void *h_ptr, void *d_ptr, size_t nbytes, bool upload) {
  const int64_t shape[1] = {(int64_t)nbytes};
  gpuf_tensor device, host;
  CHECK_OK(gpuf_tensor_init(&device, d_ptr, test_device, GPUF_DTYPE_UINT8, 1, shape, &err));
  CHECK_OK(gpuf_tensor_init(&host, h_ptr, cpu_device, GPUF_DTYPE_UINT8, 1, shape, &err));
  CHECK_OK(upload ? gpuf_copy(&device, &host, NULL, &err) : gpuf_copy(&host, &device, NULL, &err));
}

/* With chunks of one pattern, or of any. */
static inline void fill(fixture *f, pattern kind) {
  for (size_t i = 0; i < f->chunks.count; i++) {
    fill_chunk(f->raw + i * f->chunks.raw_pitch_nbytes, &f->chunks.shape,
               kind == PATTERN_COUNT ? (pattern)below(PATTERN_COUNT) : kind);
  }
}

static inline void encode(fixture *f) {
  const size_t places_nbytes = GPUFI_CHUNKS_PLACE_COUNT(f->chunks.count) * sizeof(*f->places);
  transfer(f->raw, f->d_raw, f->raw_nbytes, true);
  CHECK_OK(f->backend->encode(test_device.index, &f->chunks, f->d_raw, f->d_encoded, f->d_places,
                              f->d_encode_scratch, f->stream, &err));
  CHECK_OK(f->backend->stream_synchronize(test_device.index, f->stream, &err));
  transfer(f->places, f->d_places, places_nbytes, false);
  CHECK(f->places[f->chunks.count].offset <= f->encoded_nbytes);
  transfer(f->encoded, f->d_encoded, f->encoded_nbytes, false);
}

static inline void decode(fixture *f) {
  memset(f->raw, 0xa5, f->raw_nbytes);
  transfer(f->raw, f->d_raw, f->raw_nbytes, true);
  transfer(f->encoded, f->d_encoded, f->encoded_nbytes, true);
  transfer(f->places, f->d_places, f->chunks.count * sizeof(*f->places), true);
  CHECK_OK(f->backend->decode(test_device.index, &f->chunks, f->d_encoded, f->encoded_nbytes,
                              f->d_places, f->d_raw, f->d_verdicts, f->d_decode_scratch, f->stream,
                              &err));
  CHECK_OK(f->backend->stream_synchronize(test_device.index, f->stream, &err));
  transfer(f->raw, f->d_raw, f->raw_nbytes, false);
  transfer(f->verdicts, f->d_verdicts, f->chunks.count * sizeof(*f->verdicts), false);
}

/* The CPU's encoding of chunk i. */
static inline size_t encode_on_cpu(const fixture *f, size_t i, uint8_t *encoded) {
  const size_t bound = gpufi_codec_bound(f->chunks.raw_nbytes);
  const uint8_t *const raw = f->raw + i * f->chunks.raw_pitch_nbytes;
  void *scratch =
      aligned_alloc(64, gpufi_round_up(gpufi_codec_scratch_nbytes(&f->chunks.shape), 64));
  size_t nbytes;
  CHECK_OK((f->chunks.big_endian ? gpufi_codec_encode_big_endian : gpufi_codec_encode)(
      &f->chunks.shape, raw, encoded, bound, &nbytes, scratch, &err));
  free(scratch);
  return nbytes;
}

/* Fill the encoded buffer and the places with the CPU's chunks. */
static inline void encode_all_on_cpu(fixture *f) {
  uint64_t at = 0;
  for (size_t i = 0; i < f->chunks.count; i++) {
    const size_t nbytes = encode_on_cpu(f, i, f->encoded + at);
    f->places[i] = (gpufi_chunk_place){at, nbytes};
    at += nbytes;
  }
}

/* Forms of the CPU's chunks that devices do not read: places in a dictionary. */
static inline bool is_for_the_cpu(const uint8_t *chunk) {
  return chunk[GPUFI_AT_TRANSFORM] == GPUFI_TRANSFORM_DICTIONARY;
}

#endif
