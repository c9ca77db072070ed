#include "base/arithmetic.h"
#include "codec/predict.h"
#include "codec_fixture.h"

/* --- round trips --- */

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

/* Every size of element with every number of components, in rows of which the lengths are and are
 * not multiples of what the kernels take at once. */
static void components_keep_their_bits(void) {
  static const gpuf_dtype dtypes[] = {GPUF_DTYPE_UINT8, GPUF_DTYPE_INT16, GPUF_DTYPE_FLOAT32,
                                      GPUF_DTYPE_FLOAT64, GPUF_DTYPE_COMPLEX128};
  for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
    for (uint32_t planes = 2; planes <= GPUFI_PLANES_MAX + 1; planes += planes < 18 ? 1 : 23) {
      const uint32_t length = planes == 5 ? 1035 : planes == 3 ? 64 : 16 + planes;
      const gpufi_chunk_shape shape = {dtypes[d], 4, {3, length, 1, planes}};
      size_t raw_nbytes, nbytes;
      CHECK_OK(gpufi_chunk_raw_nbytes(&shape, &raw_nbytes, &err));
      uint8_t *raw = malloc(raw_nbytes);
      fill(raw, raw_nbytes, value_nbytes_of(dtypes[d]), SMOOTH);
      check_round_trip(&shape, raw, false);
      check_round_trip(&shape, raw, true);
      guarded encoded = encode(&shape, raw, false, &nbytes, 1);
      const bool expected = planes <= (dtypes[d] == GPUF_DTYPE_UINT8 ? GPUFI_PLANES_MAX : 16);
      CHECK(((encoded.data[GPUFI_AT_FLAGS] & GPUFI_FLAG_PLANES) != 0) == expected);
      guarded_free(&encoded);
      free(raw);
    }
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
  const size_t scratch_nbytes = gpufi_codec_scratch_nbytes(&shape);
  uint8_t *raw = malloc(nbytes), *scratch = aligned_alloc(64, gpufi_round_up(scratch_nbytes, 64));
  uint8_t *first = malloc(gpufi_codec_bound(nbytes)), *second = malloc(gpufi_codec_bound(nbytes));
  fill(raw, nbytes, 4, SMOOTH);
  memset(scratch, 0x11, scratch_nbytes);
  memset(first, 0x22, gpufi_codec_bound(nbytes));
  memset(second, 0x33, gpufi_codec_bound(nbytes));
  CHECK_OK(gpufi_codec_encode(&shape, raw, first, gpufi_codec_bound(nbytes), &first_nbytes, scratch,
                              &err));
  memset(scratch, 0x44, scratch_nbytes);
  CHECK_OK(gpufi_codec_encode(&shape, raw, second, gpufi_codec_bound(nbytes), &second_nbytes,
                              scratch, &err));
  CHECK(first_nbytes == second_nbytes && memcmp(first, second, first_nbytes) == 0);
  free(raw);
  free(scratch);
  free(first);
  free(second);
}

/* --- size --- */

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

/* --- refusals --- */

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
  uint8_t raw[400] = {0}, out[496], scratch[64];
  size_t encoded_nbytes;
  CHECK(gpufi_codec_bound(400) == 496);
  CHECK_FAILS(gpufi_codec_encode(&shape, raw, out, 495, &encoded_nbytes, scratch, &err),
              GPUF_ERR_INVALID, "495");
}

int main(void) {
  TEST(every_dtype_keeps_its_bits);
  TEST(components_keep_their_bits);
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
  return test_finish();
}
