#include "codec/codec.h"
#include "codec/format.h"
#include "guarded.h"
#include "test.h"

static gpuf_error err;

/* --- data ---------------------------------------------------------------- */

static uint64_t random_state = 0x243f6a8885a308d3u;

static uint64_t random_u64(void) {
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
  SPECIAL, /* NaN, infinities, -0.0, 0 and extremes of a 4-byte float's top bytes */
  PATTERN_COUNT,
} pattern;

static uint64_t pattern_value(pattern kind, size_t i) {
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
  default:
    return special[random_u64() % 8];
  }
}

static void fill(uint8_t *raw, size_t raw_nbytes, size_t value_nbytes, pattern kind) {
  for (size_t i = 0; i * value_nbytes < raw_nbytes; i++) {
    const uint64_t value = pattern_value(kind, i);
    const size_t left = raw_nbytes - i * value_nbytes;
    memcpy(raw + i * value_nbytes, &value, left < value_nbytes ? left : value_nbytes);
  }
}

static size_t value_nbytes_of(gpuf_dtype dtype) {
  const size_t nbytes = gpufi_chunk_element_nbytes(dtype);
  return dtype == GPUF_DTYPE_COMPLEX64 || dtype == GPUF_DTYPE_COMPLEX128 ? nbytes / 2 : nbytes;
}

/* --- encode and decode between guard pages -------------------------------- */

/* Encode; the returned copy is of exactly the encoded size. */
static guarded encode(const gpufi_chunk_shape *shape, const uint8_t *raw, bool big_endian,
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

static void check_round_trip(const gpufi_chunk_shape *shape, const uint8_t *raw, bool big_endian) {
  size_t raw_nbytes, encoded_nbytes, inspected_nbytes;
  CHECK_OK(gpufi_chunk_raw_nbytes(shape, &raw_nbytes, &err));
  for (int at_end = 0; at_end < 2; at_end++) {
    gpufi_chunk_shape seen;
    guarded encoded = encode(shape, raw, big_endian, &encoded_nbytes, at_end);
    guarded out = guarded_alloc(raw_nbytes, at_end);
    CHECK_OK(gpufi_codec_inspect(encoded.data, encoded_nbytes, &seen, &inspected_nbytes, &err));
    CHECK(inspected_nbytes == raw_nbytes && seen.dtype == shape->dtype);
    CHECK(seen.ndim == shape->ndim);
    CHECK(memcmp(seen.dims, shape->dims, 4 * (size_t)shape->ndim) == 0);
    CHECK_OK(gpufi_codec_decode(encoded.data, encoded_nbytes, out.data, raw_nbytes, &err));
    CHECK(memcmp(out.data, raw, raw_nbytes) == 0);
    guarded_free(&encoded);
    guarded_free(&out);
  }
}

static void check_patterns(const gpufi_chunk_shape *shape) {
  size_t raw_nbytes;
  CHECK_OK(gpufi_chunk_raw_nbytes(shape, &raw_nbytes, &err));
  uint8_t *raw = malloc(raw_nbytes);
  for (int kind = 0; kind < PATTERN_COUNT; kind++) {
    fill(raw, raw_nbytes, value_nbytes_of(shape->dtype), (pattern)kind);
    check_round_trip(shape, raw, false);
    check_round_trip(shape, raw, true);
  }
  free(raw);
}

static void every_dtype_keeps_its_bits(void) {
  for (int dtype = 1; dtype <= GPUF_DTYPE_MAX; dtype++) {
    check_patterns(&(gpufi_chunk_shape){(gpuf_dtype)dtype, 1, {2500}});
    check_patterns(&(gpufi_chunk_shape){(gpuf_dtype)dtype, 2, {33, 70}});
    check_patterns(&(gpufi_chunk_shape){(gpuf_dtype)dtype, 3, {7, 19, 21}});
  }
}

static void every_rank_keeps_its_bits(void) {
  static const gpuf_dtype dtypes[] = {GPUF_DTYPE_UINT8, GPUF_DTYPE_INT16, GPUF_DTYPE_FLOAT32,
                                      GPUF_DTYPE_FLOAT64, GPUF_DTYPE_COMPLEX64};
  static const uint32_t dims[] = {5, 1, 4, 3, 6, 2, 1, 7};
  for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
    for (int32_t ndim = 1; ndim <= GPUFI_CODEC_NDIM_MAX; ndim++) {
      gpufi_chunk_shape shape = {dtypes[d], ndim, {0}};
      memcpy(shape.dims, dims, 4 * (size_t)ndim);
      check_patterns(&shape);
      for (int32_t a = 0; a < ndim; a++) {
        shape.dims[a] = 1;
      }
      check_patterns(&shape);
    }
  }
}

static void sizes_round_a_group_block_or_run_keep_their_bits(void) {
  static const uint32_t sizes[] = {1,    2,    7,    8,    9,    15,   16,   17,    1023, 1024,
                                   1025, 1031, 1032, 2048, 8191, 8192, 8193, 16384, 16385};
  static const gpuf_dtype dtypes[] = {GPUF_DTYPE_INT8, GPUF_DTYPE_FLOAT16, GPUF_DTYPE_FLOAT32,
                                      GPUF_DTYPE_INT64, GPUF_DTYPE_COMPLEX128};
  for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
      check_patterns(&(gpufi_chunk_shape){dtypes[d], 1, {sizes[s]}});
    }
  }
}

/* Widths 1 to 64, each as the widest of a block, with groups far below it. */
static void every_width_of_a_group_keeps_its_bits(void) {
  static const gpuf_dtype dtypes[] = {GPUF_DTYPE_UINT8, GPUF_DTYPE_UINT16, GPUF_DTYPE_UINT32,
                                      GPUF_DTYPE_UINT64};
  for (int d = 0; d < 4; d++) {
    const unsigned bits = 8u << d;
    for (unsigned width = 1; width <= bits; width++) {
      gpufi_chunk_shape shape = {dtypes[d], 1, {1500}};
      uint8_t raw[1500 * 8];
      for (size_t i = 0; i < 1500; i++) {
        const unsigned here = (i / 8 % 3 == 0) ? width : (unsigned)(i / 8 % (width + 1));
        const uint64_t value = here ? random_u64() >> (64 - here) : 0;
        memcpy(raw + i * (bits / 8), &value, bits / 8);
      }
      check_round_trip(&shape, raw, false);
    }
  }
}

static void every_predictor_is_undone_exactly(void) {
  static const uint32_t dims[] = {3, 1, 4, 5, 2, 3};
  static const gpuf_dtype dtypes[] = {GPUF_DTYPE_FLOAT8_E5M2, GPUF_DTYPE_FLOAT16,
                                      GPUF_DTYPE_FLOAT32, GPUF_DTYPE_FLOAT64, GPUF_DTYPE_COMPLEX64};
  for (int d = 0; d < 5; d++) {
    gpufi_chunk_shape shape = {dtypes[d], 6, {0}};
    gpufi_geometry g;
    size_t nbytes;
    memcpy(shape.dims, dims, sizeof(dims));
    CHECK_OK(gpufi_chunk_raw_nbytes(&shape, &nbytes, &err));
    gpufi_geometry_init(&g, &shape);
    uint8_t *raw = malloc(nbytes), *out = malloc(nbytes), seed[16];
    fill(raw, nbytes, g.value_nbytes, NOISE);
    for (uint8_t transform = 0; transform < 3; transform++) {
      for (unsigned axes = 0; axes < 64; axes++) {
        for (int swap = 0; swap < 2; swap++) {
          const uint64_t offset = swap ? random_u64() : 0;
          gpufi_predict_forward(&g, raw, swap, transform, (uint8_t)axes, offset, out, seed);
          gpufi_predict_inverse(&g, out, swap, transform, (uint8_t)axes, offset, seed);
          CHECK(memcmp(raw, out, nbytes) == 0);
        }
      }
    }
    free(raw);
    free(out);
  }
}

static void the_same_input_gives_the_same_bytes(void) {
  const gpufi_chunk_shape shape = {GPUF_DTYPE_FLOAT32, 3, {9, 30, 31}};
  size_t nbytes = (size_t)9 * 30 * 31 * 4, first_nbytes, second_nbytes;
  uint8_t *raw = malloc(nbytes), *scratch = aligned_alloc(64, (nbytes + 63) & ~(size_t)63);
  uint8_t *first = malloc(gpufi_codec_bound(nbytes)), *second = malloc(gpufi_codec_bound(nbytes));
  fill(raw, nbytes, 4, SMOOTH);
  memset(scratch, 0x11, nbytes);
  memset(first, 0x22, gpufi_codec_bound(nbytes));
  memset(second, 0x33, gpufi_codec_bound(nbytes));
  CHECK_OK(gpufi_codec_encode(&shape, raw, first, gpufi_codec_bound(nbytes), &first_nbytes, scratch,
                              &err));
  memset(scratch, 0x44, nbytes);
  CHECK_OK(gpufi_codec_encode(&shape, raw, second, gpufi_codec_bound(nbytes), &second_nbytes,
                              scratch, &err));
  CHECK(first_nbytes == second_nbytes && memcmp(first, second, first_nbytes) == 0);
  free(raw);
  free(scratch);
  free(first);
  free(second);
}

/* --- size ---------------------------------------------------------------- */

static void noise_grows_by_no_more_than_a_header(void) {
  for (uint32_t n = 1; n < 3000; n += 1 + n / 9) {
    const gpufi_chunk_shape shape = {GPUF_DTYPE_UINT8, 1, {n}};
    uint8_t raw[3000];
    size_t encoded_nbytes;
    fill(raw, n, 1, NOISE);
    guarded encoded = encode(&shape, raw, false, &encoded_nbytes, 1);
    CHECK(encoded_nbytes <= n + 111u);
    guarded_free(&encoded);
  }
}

static size_t encoded_size(const gpufi_chunk_shape *shape, const void *raw) {
  size_t encoded_nbytes;
  guarded encoded = encode(shape, raw, false, &encoded_nbytes, 1);
  guarded_free(&encoded);
  return encoded_nbytes;
}

static void a_constant_chunk_is_a_header(void) {
  const gpufi_chunk_shape shape = {GPUF_DTYPE_COMPLEX128, 2, {100, 100}};
  uint8_t *raw = malloc(160000);
  for (size_t i = 0; i < 160000; i++) {
    raw[i] = (uint8_t)(i % 16 * 17);
  }
  CHECK(encoded_size(&shape, raw) == 96);
  raw[159999] ^= 0x80;
  CHECK(encoded_size(&shape, raw) > 96);
  free(raw);
}

/* A ramp whose rows start far from where the row before ended costs no more than another ramp. */
static void a_row_start_does_not_widen_its_block(void) {
  const gpufi_chunk_shape shape = {GPUF_DTYPE_INT32, 2, {64, 64}};
  int32_t raw[64][64];
  for (int y = 0; y < 64; y++) {
    int32_t value = 1000000000 + 3 * y;
    for (int x = 0; x < 64; x++) {
      raw[y][x] = value;
      value += (int32_t)(random_u64() % 16) - 8;
    }
  }
  CHECK(encoded_size(&shape, raw) < sizeof(raw) / 5);
}

/* --- refusals ------------------------------------------------------------ */

static void impossible_shapes_are_refused(void) {
  size_t nbytes;
  CHECK_FAILS(gpufi_chunk_raw_nbytes(&(gpufi_chunk_shape){0, 1, {1}}, &nbytes, &err),
              GPUF_ERR_INVALID, "dtype code 0");
  CHECK_FAILS(gpufi_chunk_raw_nbytes(&(gpufi_chunk_shape){24, 1, {1}}, &nbytes, &err),
              GPUF_ERR_INVALID, "dtype code 24");
  CHECK_FAILS(gpufi_chunk_raw_nbytes(&(gpufi_chunk_shape){12, 0, {1}}, &nbytes, &err),
              GPUF_ERR_INVALID, "not 0");
  CHECK_FAILS(gpufi_chunk_raw_nbytes(&(gpufi_chunk_shape){12, 9, {1}}, &nbytes, &err),
              GPUF_ERR_INVALID, "not 9");
  CHECK_FAILS(gpufi_chunk_raw_nbytes(&(gpufi_chunk_shape){12, 2, {3, 0}}, &nbytes, &err),
              GPUF_ERR_INVALID, "dimension 1 of the chunk is 0");
  CHECK_FAILS(gpufi_chunk_raw_nbytes(&(gpufi_chunk_shape){12, 1, {1u << 30}}, &nbytes, &err),
              GPUF_ERR_INVALID, "4 GiB");
  gpufi_chunk_shape wraps = {15, 8, {0}};
  memset(wraps.dims, 0xff, sizeof(wraps.dims));
  CHECK_FAILS(gpufi_chunk_raw_nbytes(&wraps, &nbytes, &err), GPUF_ERR_INVALID, "4 GiB");
  CHECK_OK(gpufi_chunk_raw_nbytes(&(gpufi_chunk_shape){12, 1, {(1u << 30) - 1}}, &nbytes, &err));
  CHECK(nbytes == 0xfffffffcu);
}

static void a_buffer_below_the_bound_is_refused(void) {
  const gpufi_chunk_shape shape = {GPUF_DTYPE_FLOAT32, 1, {100}};
  uint8_t raw[400] = {0}, out[496], scratch[448];
  size_t encoded_nbytes;
  CHECK(gpufi_codec_bound(400) == 496);
  CHECK_FAILS(gpufi_codec_encode(&shape, raw, out, 495, &encoded_nbytes, scratch, &err),
              GPUF_ERR_INVALID, "495");
}

static gpuf_status decode(const uint8_t *chunk, size_t nbytes, size_t raw_nbytes) {
  guarded in = guarded_alloc(nbytes, 1), out = guarded_alloc(raw_nbytes, 1);
  memcpy(in.data, chunk, nbytes);
  const gpuf_status status = gpufi_codec_decode(in.data, nbytes, out.data, raw_nbytes, &err);
  guarded_free(&in);
  guarded_free(&out);
  return status;
}

/* A small chunk of each mode, and of W8 with each kind of block. */
typedef struct specimen {
  gpufi_chunk_shape shape;
  pattern kind;
} specimen;

static const specimen specimens[] = {
    {{GPUF_DTYPE_FLOAT32, 2, {5, 21}}, NOISE},    {{GPUF_DTYPE_FLOAT64, 1, {50}}, CONSTANT},
    {{GPUF_DTYPE_INT32, 2, {20, 61}}, SMOOTH},    {{GPUF_DTYPE_UINT64, 1, {1100}}, SPARSE},
    {{GPUF_DTYPE_COMPLEX64, 2, {9, 31}}, SMOOTH}, {{GPUF_DTYPE_INT16, 3, {3, 5, 70}}, COARSE},
};
#define SPECIMEN_COUNT (sizeof(specimens) / sizeof(specimens[0]))

static guarded make_specimen(const specimen *s, size_t *raw_nbytes, size_t *encoded_nbytes) {
  CHECK_OK(gpufi_chunk_raw_nbytes(&s->shape, raw_nbytes, &err));
  uint8_t *raw = malloc(*raw_nbytes);
  fill(raw, *raw_nbytes, value_nbytes_of(s->shape.dtype), s->kind);
  guarded encoded = encode(&s->shape, raw, false, encoded_nbytes, 1);
  free(raw);
  return encoded;
}

static void a_truncated_chunk_is_refused(void) {
  for (size_t s = 0; s < SPECIMEN_COUNT; s++) {
    size_t raw_nbytes, nbytes;
    guarded chunk = make_specimen(&specimens[s], &raw_nbytes, &nbytes);
    for (size_t cut = 0; cut < nbytes; cut++) {
      CHECK(decode(chunk.data, cut, raw_nbytes) == GPUF_ERR_CORRUPT);
      CHECK(strstr(err.message, "byte"));
    }
    guarded_free(&chunk);
  }
}

/* Also with the payload length and the checksum made to fit. */
static void a_truncated_and_resealed_chunk_is_refused(void) {
  for (size_t s = 0; s < SPECIMEN_COUNT; s++) {
    size_t raw_nbytes, nbytes;
    guarded chunk = make_specimen(&specimens[s], &raw_nbytes, &nbytes);
    for (size_t cut = 96; cut < nbytes; cut += 16) {
      const uint64_t payload_nbytes = cut - 96;
      memcpy(chunk.data + GPUFI_AT_PAYLOAD_NBYTES, &payload_nbytes, 8);
      gpufi_codec_seal(chunk.data, cut);
      CHECK(decode(chunk.data, cut, raw_nbytes) == GPUF_ERR_CORRUPT);
    }
    guarded_free(&chunk);
  }
}

static void bytes_after_the_chunk_are_refused(void) {
  for (size_t s = 0; s < SPECIMEN_COUNT; s++) {
    size_t raw_nbytes, nbytes;
    guarded chunk = make_specimen(&specimens[s], &raw_nbytes, &nbytes);
    uint8_t *longer = calloc(1, nbytes + 16);
    memcpy(longer, chunk.data, nbytes);
    CHECK(decode(longer, nbytes + 1, raw_nbytes) == GPUF_ERR_CORRUPT);
    const uint64_t payload_nbytes = nbytes + 16 - 96;
    memcpy(longer + GPUFI_AT_PAYLOAD_NBYTES, &payload_nbytes, 8);
    gpufi_codec_seal(longer, nbytes + 16);
    CHECK(decode(longer, nbytes + 16, raw_nbytes) == GPUF_ERR_CORRUPT);
    free(longer);
    guarded_free(&chunk);
  }
}

static void every_flipped_bit_is_refused(void) {
  for (size_t s = 0; s < SPECIMEN_COUNT; s++) {
    size_t raw_nbytes, nbytes;
    guarded chunk = make_specimen(&specimens[s], &raw_nbytes, &nbytes);
    guarded out = guarded_alloc(raw_nbytes, 1);
    for (size_t bit = 0; bit < 8 * nbytes; bit++) {
      chunk.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
      CHECK(gpufi_codec_decode(chunk.data, nbytes, out.data, raw_nbytes, &err) != GPUF_OK);
      chunk.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    CHECK_OK(gpufi_codec_decode(chunk.data, nbytes, out.data, raw_nbytes, &err));
    guarded_free(&chunk);
    guarded_free(&out);
  }
}

/* Damage that someone sealed with a right checksum: whatever decode answers, the guard pages
 * around input and output stay untouched. */
static void sealed_damage_stays_inside_the_buffers(void) {
  size_t refused_count = 0;
  for (size_t s = 0; s < SPECIMEN_COUNT; s++) {
    size_t raw_nbytes, nbytes;
    guarded chunk = make_specimen(&specimens[s], &raw_nbytes, &nbytes);
    guarded work = guarded_alloc(nbytes, 1);
    for (int round = 0; round < 4000; round++) {
      guarded out = guarded_alloc(raw_nbytes, round & 1);
      memcpy(work.data, chunk.data, nbytes);
      for (uint64_t hits = 1 + random_u64() % 3; hits > 0; hits--) {
        const size_t reach = round % 3 && nbytes > 160 ? 160 : nbytes;
        work.data[random_u64() % reach] = (uint8_t)random_u64();
      }
      gpufi_codec_seal(work.data, nbytes);
      refused_count += gpufi_codec_decode(work.data, nbytes, out.data, raw_nbytes, &err) != GPUF_OK;
      guarded_free(&out);
    }
    guarded_free(&work);
    guarded_free(&chunk);
  }
  CHECK(refused_count > 1000);
}

static void each_false_header_field_is_named(void) {
  static const struct {
    size_t at;
    uint8_t value;
    gpuf_status status;
    const char *text;
  } cases[] = {
      {0, 'X', GPUF_ERR_CORRUPT, "byte 0:"}, {4, 0, GPUF_ERR_UNSUPPORTED, "byte 4:"},
      {5, 0, GPUF_ERR_CORRUPT, "byte 5:"},   {5, 24, GPUF_ERR_CORRUPT, "byte 5:"},
      {5, 255, GPUF_ERR_CORRUPT, "byte 5:"}, {6, 4, GPUF_ERR_CORRUPT, "byte 6:"},
      {7, 1, GPUF_ERR_CORRUPT, "byte 7:"},   {8, 4, GPUF_ERR_CORRUPT, "byte 8:"},
      {9, 0, GPUF_ERR_CORRUPT, "byte 9:"},   {9, 9, GPUF_ERR_CORRUPT, "byte 9:"},
      {10, 2, GPUF_ERR_CORRUPT, "byte 10:"}, {11, 1, GPUF_ERR_CORRUPT, "byte 11:"},
      {15, 1, GPUF_ERR_CORRUPT, "byte 15:"}, {16, 1, GPUF_ERR_CORRUPT, "byte 16:"},
      {23, 1, GPUF_ERR_CORRUPT, "byte 16:"}, {24, 1, GPUF_ERR_CORRUPT, "byte 24:"},
      {31, 1, GPUF_ERR_CORRUPT, "byte 24:"}, {32, 21, GPUF_ERR_CORRUPT, "byte 16:"},
      {32, 0, GPUF_ERR_CORRUPT, "byte 32:"}, {39, 255, GPUF_ERR_CORRUPT, "byte 32:"},
      {40, 1, GPUF_ERR_CORRUPT, "byte 40:"}, {63, 1, GPUF_ERR_CORRUPT, "byte 60:"},
      {79, 1, GPUF_ERR_CORRUPT, "byte 79:"}, {80, 1, GPUF_ERR_CORRUPT, "byte 80:"},
  };
  const specimen s = {{GPUF_DTYPE_INT32, 2, {20, 61}}, SMOOTH};
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    size_t raw_nbytes, nbytes;
    guarded chunk = make_specimen(&s, &raw_nbytes, &nbytes);
    chunk.data[cases[i].at] = cases[i].value;
    if (cases[i].at < GPUFI_AT_CHECKSUM) {
      gpufi_codec_seal(chunk.data, nbytes);
    }
    CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), cases[i].status, cases[i].text);
    guarded_free(&chunk);
  }
}

static void a_wrong_output_size_is_refused(void) {
  size_t raw_nbytes, nbytes;
  guarded chunk = make_specimen(&specimens[1], &raw_nbytes, &nbytes);
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes - 8), GPUF_ERR_CORRUPT, "400");
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes + 8), GPUF_ERR_CORRUPT, "400");
  guarded_free(&chunk);
}

/* Change one descriptor of a W8 chunk of two blocks, seal it, and decode. */
static void check_descriptor(size_t index, uint32_t clear, uint32_t set, const char *text) {
  const specimen s = {{GPUF_DTYPE_INT32, 2, {20, 61}}, SMOOTH};
  size_t raw_nbytes, nbytes;
  guarded chunk = make_specimen(&s, &raw_nbytes, &nbytes);
  uint8_t *const at = chunk.data + GPUFI_HEADER_NBYTES + 4 * index;
  const uint32_t word = (gpufi_load_u32(at) & ~clear) | set;
  memcpy(at, &word, 4);
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), GPUF_ERR_CORRUPT, text);
  guarded_free(&chunk);
}

static void a_false_block_descriptor_is_refused(void) {
  check_descriptor(0, 0x3fff, 0x3fff, "byte 96: the block runs past the end");
  check_descriptor(1, 0x3fff, 0x3fff, "byte 100: the block runs past the end");
  check_descriptor(0, 0x3fff, 3, "byte 112: the block is shorter than its code table");
  check_descriptor(0, 0x3fff, 100, "byte 112: the widths of the groups do not add up");
  check_descriptor(0, 0x7fu << 14, 0, "byte 112: the block's width or form");
  check_descriptor(0, 0x7fu << 14, 33u << 14, "byte 112: the block's width or form");
  check_descriptor(0, 0x3fu << 21, 32u << 21, "byte 112: the block's shift");
  check_descriptor(0, 0, 1u << 27, "corrupt chunk at byte 1");
  check_descriptor(0, 0, 1u << 29, "byte 112: the");
  check_descriptor(0, 3u << 30, 3u << 30, "byte 112: the descriptor of a zero or raw block");
  check_descriptor(0, 3u << 30, 0, "byte 112: the descriptor of a zero or raw block");
}

static void padding_that_is_not_zero_is_refused(void) {
  size_t raw_nbytes, nbytes;
  guarded chunk = make_specimen(&specimens[2], &raw_nbytes, &nbytes);
  chunk.data[96 + 8] = 1; /* two descriptors, then eight bytes of padding */
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), GPUF_ERR_CORRUPT, "byte 104: a padding");
  guarded_free(&chunk);
  chunk = make_specimen(&specimens[0], &raw_nbytes, &nbytes);
  CHECK(chunk.data[GPUFI_AT_MODE] == GPUFI_MODE_RAW && raw_nbytes % 16 != 0);
  chunk.data[nbytes - 1] = 1;
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), GPUF_ERR_CORRUPT, "a padding byte");
  guarded_free(&chunk);
}

int main(void) {
  TEST(every_dtype_keeps_its_bits);
  TEST(every_rank_keeps_its_bits);
  TEST(sizes_round_a_group_block_or_run_keep_their_bits);
  TEST(every_width_of_a_group_keeps_its_bits);
  TEST(every_predictor_is_undone_exactly);
  TEST(the_same_input_gives_the_same_bytes);
  TEST(noise_grows_by_no_more_than_a_header);
  TEST(a_constant_chunk_is_a_header);
  TEST(a_row_start_does_not_widen_its_block);
  TEST(impossible_shapes_are_refused);
  TEST(a_buffer_below_the_bound_is_refused);
  TEST(a_truncated_chunk_is_refused);
  TEST(a_truncated_and_resealed_chunk_is_refused);
  TEST(bytes_after_the_chunk_are_refused);
  TEST(every_flipped_bit_is_refused);
  TEST(sealed_damage_stays_inside_the_buffers);
  TEST(each_false_header_field_is_named);
  TEST(a_wrong_output_size_is_refused);
  TEST(a_false_block_descriptor_is_refused);
  TEST(padding_that_is_not_zero_is_refused);
  return test_finish();
}
