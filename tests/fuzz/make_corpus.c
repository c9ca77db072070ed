/* Writes the seed corpora: make_corpus FOLDER fills FOLDER/corpus_codec, FOLDER/corpus_filter and
 * FOLDER/corpus_bitshuffle. The files are committed; run this again when the format changes. Those
 * of corpus_codec whose names begin with version_1 are what it wrote for that version; keep them.
 */
#include "../../hdf5_filter/filter.h"
#include "codec/bitshuffle.h"
#include "codec/bytes.h"
#include "codec/codec.h"
#include "codec/geometry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct seed {
  const char *name;
  gpufi_chunk_shape shape;
  uint64_t (*value)(size_t i);
  bool big_endian;
} seed;

static uint64_t noise(size_t i) {
  const uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
  return (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
}

static uint64_t smooth(size_t i) {
  return 1000 + 3 * i + i * i / 70 + noise(i) % 4;
}

static uint64_t sparse(size_t i) {
  return noise(i) % 40 == 0 ? noise(i + 7) : 0;
}

static uint64_t constant(size_t i) {
  return 0x4242424242424242u + 0 * i;
}

static uint64_t coarse(size_t i) {
  return (i % 90 + noise(i) % 3) << 4;
}

static uint64_t bits(size_t i) {
  return noise(i) >> 40 & 1;
}

static uint64_t steps(size_t i) {
  return 1234567 * i + noise(i) % 3;
}

static uint64_t few(size_t i) {
  return (noise(i) % 21 + 1) * 0x9e3779b97f4a7c15u;
}

static uint64_t runs(size_t i) {
  return few(i / 40);
}

static uint64_t geometric(size_t i) {
  return (uint64_t)__builtin_ctzll(noise(i) >> 3 | UINT64_C(1) << 40);
}

static uint64_t codes(size_t i) {
  return 37 * geometric(i);
}

/* Floats of either sign, each half as often as the next greater binary exponent. */
static uint64_t weight_bf16(size_t i) {
  return (noise(i + 1) & 0x807f) | (120 - geometric(i)) << 7;
}

static uint64_t pruned_f64(size_t i) {
  return i % 4 == 0 ? (noise(i + 1) & 0x800fffffffffffffu) | (1020 - geometric(i)) << 52 : 0;
}

static uint64_t weight_e5m2(size_t i) {
  return (noise(i + 1) & 0x83) | (20 - geometric(i) % 16) << 2;
}

static uint64_t pruned_f32(size_t i) {
  return i % 5 == 0 ? (noise(i + 1) & 0x807fffff) | (120 - geometric(i)) << 23 : 0;
}

static uint64_t spread_f32(size_t i) {
  return i % 1500 == 7 ? noise(i) : weight_bf16(i) << 16;
}

static uint64_t late(size_t i) {
  return i < 1500 ? 0 : smooth(i);
}

static uint64_t late_bf16(size_t i) {
  return i < 1500 ? 0 : weight_bf16(i);
}

static uint64_t rare(size_t i) {
  return 4 * (noise(i) % 60 == 0);
}

static uint64_t wide(size_t i) {
  return noise(i) >> 4;
}

/* Groups of all bits, and of far fewer. */
static uint64_t uneven(size_t i) {
  return noise(i) >> i / 8 % 2 * 36;
}

static uint64_t period(size_t i) {
  return noise(i % 331);
}

static uint64_t ramps(size_t i) {
  return i % 1009 * 0x1234567;
}

/* Noise in half of the bits. */
static uint64_t idle(size_t i) {
  return noise(i) & 0x9999999999999999u;
}

/* Seldom far more than otherwise: two ranges of widths. */
static uint64_t spikes(size_t i) {
  return noise(i) % 200 == 0 ? noise(i + 7) : noise(i) >> 20 & 1023;
}

/* The bits of a float32 that are a bfloat16's. */
static uint64_t held_bf16(size_t i) {
  return weight_bf16(i) << 16;
}

static uint64_t bits_f64(double number) {
  uint64_t bits;
  memcpy(&bits, &number, sizeof(bits));
  return bits;
}

static uint64_t bits_f32(double number) {
  const float narrow = (float)number;
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof(bits));
  return bits;
}

/* Numbers behind floats: decimals with NaN and -0, integers by scale and offset with a few that are
 * a unit off, whole numbers, and floats in the upper half of wider ones. */
static double decimals(size_t i) {
  return i % 60 == 7 ? -0.0 : (double)(i * 7 % 900 + noise(i) % 9) / 100;
}

static uint64_t decimals_f64(size_t i) {
  return i % 9 == 4 ? UINT64_C(0x7ff8) << 48 : bits_f64(decimals(i));
}

static uint64_t decimals_f32(size_t i) {
  return bits_f32(decimals(i));
}

static uint64_t unpacked_f64(size_t i) {
  const double packed = (double)(i * 11 % 4000 + noise(i) % 90) * 0.001572704938045535;
  return bits_f64(packed + 26.96875) + (i % 300 == 8);
}

static uint64_t unpacked_f32(size_t i) {
  const float packed = (float)(i * 11 % 40000 + noise(i) % 90) * 0.00157f;
  return bits_f32((double)(packed + 26.96875f));
}

static uint64_t whole_f32(size_t i) {
  return bits_f32((double)(i % 500 + noise(i) % 40) - 200);
}

static uint64_t narrow_f64(size_t i) {
  const uint64_t upper = (UINT64_C(0x3ff) << 20) + 40 * smooth(i) + noise(i) % 64;
  return upper << 32 | noise(i + 5) % 2 << 63 | (i % 400 == 9);
}

static uint64_t mask_f32(size_t i) {
  return noise(i / 13) % 3 == 0 ? 0x7149f2ca : 0x43800000 + 9000 * (uint64_t)i + noise(i) % 500;
}

static const seed seeds[] = {
    {"raw", {GPUF_DTYPE_UINT8, 1, {50}}, noise, false},
    {"constant", {GPUF_DTYPE_FLOAT64, 2, {9, 5}}, constant, false},
    {"smooth_i32", {GPUF_DTYPE_INT32, 2, {12, 25}}, smooth, false},
    {"smooth_f32", {GPUF_DTYPE_FLOAT32, 3, {4, 9, 11}}, smooth, false},
    {"smooth_u16_be", {GPUF_DTYPE_UINT16, 2, {12, 25}}, smooth, true},
    {"sparse_u64", {GPUF_DTYPE_UINT64, 1, {1100}}, sparse, false},
    {"sparse_i16", {GPUF_DTYPE_INT16, 1, {1100}}, sparse, false},
    {"coarse_i16", {GPUF_DTYPE_INT16, 4, {2, 3, 5, 17}}, coarse, false},
    {"complex", {GPUF_DTYPE_COMPLEX64, 2, {6, 15}}, smooth, false},
    {"late_i32", {GPUF_DTYPE_INT32, 1, {2500}}, late, false},
    {"late_bf16", {GPUF_DTYPE_BFLOAT16, 1, {2700}}, late_bf16, false},
    {"rare_u8", {GPUF_DTYPE_UINT8, 1, {1100}}, rare, false},
    {"rare_i16", {GPUF_DTYPE_INT16, 1, {1100}}, rare, false},
    {"rare_i32", {GPUF_DTYPE_INT32, 1, {1100}}, rare, false},
    {"rare_i64", {GPUF_DTYPE_INT64, 1, {1100}}, rare, false},
    {"wide_u64", {GPUF_DTYPE_UINT64, 1, {60}}, wide, false},
    {"uneven_u16", {GPUF_DTYPE_UINT16, 1, {2200}}, uneven, false},
    {"uneven_u32", {GPUF_DTYPE_UINT32, 1, {2200}}, uneven, false},
    {"uneven_u64", {GPUF_DTYPE_UINT64, 1, {1100}}, uneven, false},
    {"smooth_f64", {GPUF_DTYPE_FLOAT64, 3, {6, 9, 21}}, smooth, false},
    {"smooth_c128", {GPUF_DTYPE_COMPLEX128, 2, {20, 25}}, smooth, false},
    {"smooth_i8_thin", {GPUF_DTYPE_INT8, 4, {6, 13, 1, 20}}, smooth, false},
    {"bits_u8", {GPUF_DTYPE_UINT8, 1, {1100}}, bits, false},
    {"steps_i64", {GPUF_DTYPE_INT64, 1, {300}}, steps, false},
    {"few_f32", {GPUF_DTYPE_FLOAT32, 1, {1100}}, few, false},
    {"few_i32_be", {GPUF_DTYPE_INT32, 1, {1100}}, few, true},
    {"runs_f64", {GPUF_DTYPE_FLOAT64, 1, {1100}}, runs, false},
    {"runs_i16_be", {GPUF_DTYPE_INT16, 2, {30, 40}}, runs, true},
    {"weight_bf16", {GPUF_DTYPE_BFLOAT16, 1, {1100}}, weight_bf16, false},
    {"pruned_f64", {GPUF_DTYPE_FLOAT64, 1, {1100}}, pruned_f64, false},
    {"pruned_f64_be", {GPUF_DTYPE_FLOAT64, 1, {1100}}, pruned_f64, true},
    {"weight_e5m2", {GPUF_DTYPE_FLOAT8_E5M2, 1, {1100}}, weight_e5m2, false},
    {"pruned_f32", {GPUF_DTYPE_FLOAT32, 1, {1100}}, pruned_f32, false},
    {"spread_f32", {GPUF_DTYPE_FLOAT32, 1, {1100}}, spread_f32, false},
    {"codes_u8", {GPUF_DTYPE_UINT8, 1, {1100}}, codes, false},
    {"spikes_u32", {GPUF_DTYPE_UINT32, 1, {1100}}, spikes, false},
    {"spikes_u64", {GPUF_DTYPE_UINT64, 1, {1100}}, spikes, false},
    {"weight_u16", {GPUF_DTYPE_UINT16, 1, {1100}}, weight_bf16, false},
    {"weight_f16_be", {GPUF_DTYPE_FLOAT16, 1, {1100}}, weight_bf16, true},
    {"held_f32", {GPUF_DTYPE_FLOAT32, 1, {1100}}, held_bf16, false},
    {"period_u64", {GPUF_DTYPE_UINT64, 1, {4500}}, period, false},
    {"period_f32_be", {GPUF_DTYPE_FLOAT32, 1, {4500}}, period, true},
    {"decimals_f64", {GPUF_DTYPE_FLOAT64, 2, {11, 140}}, decimals_f64, false},
    {"decimals_f32_be", {GPUF_DTYPE_FLOAT32, 1, {1500}}, decimals_f32, true},
    {"unpacked_f64", {GPUF_DTYPE_FLOAT64, 1, {1900}}, unpacked_f64, false},
    {"unpacked_f32", {GPUF_DTYPE_FLOAT32, 1, {1900}}, unpacked_f32, false},
    {"whole_c64", {GPUF_DTYPE_COMPLEX64, 1, {900}}, whole_f32, false},
    {"narrow_f64", {GPUF_DTYPE_FLOAT64, 1, {1500}}, narrow_f64, false},
    {"mask_f32", {GPUF_DTYPE_FLOAT32, 2, {15, 90}}, mask_f32, false},
    {"ramps_f64", {GPUF_DTYPE_FLOAT64, 1, {2500}}, ramps, false},
    {"ramps_f32", {GPUF_DTYPE_FLOAT32, 2, {90, 50}}, ramps, false},
    {"idle_i32", {GPUF_DTYPE_INT32, 1, {1703}}, idle, false},
    {"planes_u8", {GPUF_DTYPE_UINT8, 3, {4, 40, 3}}, smooth, false},
    {"planes_f32_be", {GPUF_DTYPE_FLOAT32, 3, {30, 1, 7}}, smooth, true},
    {"planes_c128", {GPUF_DTYPE_COMPLEX128, 2, {40, 2}}, smooth, false},
    {"codes_c128", {GPUF_DTYPE_COMPLEX128, 1, {500}}, codes, false},
};

/* A chunk with one byte changed, so that the refusals have seeds, too; at CUT it is cut off after
 * `value` bytes instead, or filled up to that with zeros. The fuzz targets make the checksum right
 * again. */
#define CUT SIZE_MAX

typedef struct damage {
  const char *name, *seed;
  size_t at, value;
} damage;

static const damage damages[] = {
    {"bad_frame", "raw", CUT, 80},
    {"bad_magic", "raw", 0, 0},
    {"bad_version_old", "raw", GPUFI_AT_VERSION, 0},
    {"bad_version_new", "raw", GPUFI_AT_VERSION, 3},
    {"bad_payload_odd", "raw", CUT, 100},
    {"bad_payload_raw", "raw", CUT, 112},
    {"bad_payload_constant", "smooth_i32", GPUFI_AT_MODE, GPUFI_MODE_CONSTANT},
    {"bad_payload_w8", "few_f32", CUT, 96},
    {"bad_dtype", "raw", GPUFI_AT_DTYPE, 99},
    {"bad_mode", "raw", GPUFI_AT_MODE, 9},
    {"bad_transform", "raw", GPUFI_AT_TRANSFORM, 1},
    {"bad_transform_number", "raw", GPUFI_AT_TRANSFORM, 7},
    {"bad_axes", "raw", GPUFI_AT_AXES, 1},
    {"bad_ndim", "raw", GPUFI_AT_NDIM, 0},
    {"bad_flags", "raw", GPUFI_AT_FLAGS, 1},
    {"bad_levels", "raw", GPUFI_AT_LEVELS, 1},
    {"bad_levels_ranked", "weight_bf16", GPUFI_AT_LEVELS, 0x57},
    {"bad_tree", "weight_bf16", GPUFI_AT_SEED + 1, 7},
    {"bad_symbol_at", "weight_bf16", GPUFI_AT_SYMBOL, 15},
    {"bad_symbol_mode", "smooth_i32", GPUFI_AT_SYMBOL, 1},
    {"bad_shift_ranked", "held_f32", GPUFI_AT_SHIFT, 30},
    {"bad_version_ranked", "weight_bf16", GPUFI_AT_VERSION, 1},
    {"bad_parameter", "decimals_f64", 96 + 7, 0xff},
    {"bad_fill_padding", "decimals_f64", 96 + 25, 1},
    {"bad_fill_flag", "unpacked_f64", GPUFI_AT_FLAGS, GPUFI_FLAG_FILL},
    {"bad_fill_wide", "mask_f32", 96 + 7, 1},
    {"bad_shift", "narrow_f64", GPUFI_AT_SHIFT, 63},
    {"bad_shift_block", "narrow_f64", GPUFI_AT_SHIFT, 60},
    {"bad_corrections", "decimals_f64", 128 + 8 + 1, 0x3f},
    {"bad_version_numbers", "decimals_f64", GPUFI_AT_VERSION, 1},
    {"bad_version_ranges", "spikes_u32", GPUFI_AT_VERSION, 1},
    {"bad_ranges", "spikes_u32", 112, 0},
    {"bad_ranges_code", "spikes_u32", 112, 1},
    {"bad_ranked_dtype", "smooth_i32", GPUFI_AT_MODE, GPUFI_MODE_RANKED},
    {"bad_entries", "raw", GPUFI_AT_ENTRIES, 1},
    {"bad_reserved", "raw", GPUFI_AT_RESERVED, 1},
    {"bad_raw_nbytes", "raw", GPUFI_AT_RAW_NBYTES, 51},
    {"bad_dims", "raw", GPUFI_AT_DIMS, 0},
    {"bad_dims_unused", "raw", GPUFI_AT_DIMS + 4, 1},
    {"bad_seed", "raw", GPUFI_AT_SEED, 1},
    {"bad_seed_w8", "steps_i64", GPUFI_AT_SEED + 8, 1},
    {"bad_seed_offset", "smooth_i32", GPUFI_AT_OFFSET + 4, 1},
    {"bad_padding", "raw", 96 + 50, 1},
    {"bad_padding_table", "smooth_i32", 96 + 4, 1},
    {"bad_left_over", "bits_u8", CUT, 272},
    {"bad_block_end", "smooth_i32", 96 + 1, 0x7f},
    {"bad_block_kind", "smooth_i32", 96 + 3, 0xc0},
    {"bad_block_zero", "smooth_i32", 96 + 3, 0},
    {"bad_block_width", "smooth_i32", 96 + 2, 0x0f},
    {"bad_block_shift", "smooth_i32", 96 + 3, 0x47},
    {"bad_block_codes", "smooth_i32", 96, 0},
    {"bad_code", "smooth_i32", 98, 0},
    {"bad_width_sum", "coarse_i16", 96, 0},
    {"bad_first_residual", "smooth_i32", 127, 1},
    {"bad_fill", "coarse_i16", 415, 0xff},
    {"bad_mask", "sparse_u64", 112, 0},
    {"bad_mask_bit", "sparse_u64", 112 + 2, 0},
    {"bad_dictionary", "few_f32", 96 + 7, 0xff},
    {"bad_place", "runs_f64", GPUFI_AT_SEED, 200},
    {"bad_symbol", "pruned_f64", 96 + 1, 0xff},
    {"bad_planes", "smooth_i32", GPUFI_AT_FLAGS, GPUFI_FLAG_PLANES},
    {"bad_planes_axis", "steps_i64", GPUFI_AT_FLAGS, GPUFI_FLAG_PLANES},
    {"bad_matches_levels", "idle_i32", GPUFI_AT_LEVELS, 0xe3},
    {"bad_matches_size", "period_u64", 96, 0xff},
    {"bad_matches_size_zero", "period_u64", 96 + 8, 0},
    {"bad_matches_token", "period_u64", 112, 0x1f},
    {"bad_matches_bits", "idle_i32", 112 + 1, 0xff},
    {"bad_ranked_kind", "weight_bf16", 112 + 3, 0x80},
    {"bad_ranked_zero", "weight_bf16", 112 + 3, 0x00},
    {"bad_ranked_raw", "weight_bf16", 112 + 3, 0xc0},
    {"bad_ranked_size", "weight_bf16", 112 + 1, 1},
    {"bad_ranked_cut", "weight_bf16", 112, 0x10},
    {"bad_ranked_codes", "weight_bf16", 128 + 1100, 0xff},
    {"bad_ranked_mask", "pruned_f32", 128, 0},
};

static int write_file(const char *folder, const char *corpus, const char *name, const void *first,
                      size_t first_nbytes, const void *second, size_t second_nbytes) {
  char path[4096];
  snprintf(path, sizeof(path), "%s/%s/%s", folder, corpus, name);
  FILE *file = fopen(path, "wb");
  if (file == NULL) {
    perror(path);
    return 1;
  }
  size_t written = fwrite(first, 1, first_nbytes, file);
  if (second_nbytes != 0) {
    written += fwrite(second, 1, second_nbytes, file);
  }
  return fclose(file) != 0 || written != first_nbytes + second_nbytes;
}

#define RAW_NBYTES_MAX 40000
#define CHUNK_NBYTES_MAX (RAW_NBYTES_MAX + GPUFI_HEADER_NBYTES)

static int make_chunk(const seed *s, uint8_t *raw, size_t *raw_nbytes, uint8_t *chunk,
                      size_t *nbytes) {
  gpufi_geometry geometry;
  if (gpufi_chunk_raw_nbytes(&s->shape, raw_nbytes, NULL) != GPUF_OK ||
      *raw_nbytes > RAW_NBYTES_MAX) {
    return 1;
  }
  gpufi_geometry_init(&geometry, &s->shape);
  const size_t width = geometry.value_nbytes;
  for (size_t i = 0; i < *raw_nbytes / width; i++) {
    const uint64_t value = s->value(i);
    const uint64_t swapped = gpufi_load_swapped((const uint8_t *)&value, width);
    memcpy(raw + i * width, s->big_endian ? &swapped : &value, width);
  }
  void *const scratch =
      aligned_alloc(64, (gpufi_codec_scratch_nbytes(&s->shape) + 63) & ~(size_t)63);
  const gpuf_status status = (s->big_endian ? gpufi_codec_encode_big_endian : gpufi_codec_encode)(
      &s->shape, raw, chunk, CHUNK_NBYTES_MAX, nbytes, scratch, NULL);
  free(scratch);
  return status != GPUF_OK;
}

/* The chunk as it is for the codec, and behind its cd_values for the filter. */
static int write_chunk(const char *folder, const char *name, const seed *s, const uint8_t *chunk,
                       size_t nbytes, const uint8_t *raw, size_t raw_nbytes) {
  uint8_t head[2 + 4 * GPUFI_CD_COUNT_MAX];
  unsigned int cd_values[GPUFI_CD_COUNT_MAX];
  char path[64];
  const size_t cd_count = gpufi_filter_cd_values(&s->shape, s->big_endian, cd_values);
  head[1] = (uint8_t)cd_count;
  memcpy(head + 2, cd_values, 4 * cd_count);
  int failed = write_file(folder, "corpus_codec", name, chunk, nbytes, NULL, 0);
  if (raw != NULL) {
    head[0] = 3; /* decode, sealed */
    snprintf(path, sizeof(path), "decode_%s", name);
    failed |= write_file(folder, "corpus_filter", path, head, 2 + 4 * cd_count, chunk, nbytes);
    head[0] = 0; /* encode */
    snprintf(path, sizeof(path), "encode_%s", name);
    failed |= write_file(folder, "corpus_filter", path, head, 2 + 4 * cd_count, raw, raw_nbytes);
  }
  return failed;
}

static int write_shuffled(const char *folder, const seed *s, const uint8_t *raw,
                          size_t raw_nbytes) {
  uint8_t shuffled[RAW_NBYTES_MAX + RAW_NBYTES_MAX / 4], scratch[2 * RAW_NBYTES_MAX];
  gpufi_geometry geometry;
  gpufi_geometry_init(&geometry, &s->shape);
  const size_t width = geometry.value_nbytes, count = raw_nbytes / width;
  const uint8_t decoded[] = {(uint8_t)(2 * (width - 1)), (uint8_t)count, (uint8_t)(count >> 8)};
  if (gpufi_bitshuffle_bound(width, raw_nbytes) > sizeof(shuffled) ||
      gpufi_bitshuffle_scratch_nbytes(raw_nbytes) > sizeof(scratch)) {
    return 1;
  }
  return write_file(folder, "corpus_bitshuffle", s->name, decoded, sizeof(decoded), shuffled,
                    gpufi_bitshuffle_encode(width, raw, raw_nbytes, shuffled, scratch));
}

static int write_seed(const char *folder, const seed *s) {
  uint8_t raw[RAW_NBYTES_MAX], chunk[CHUNK_NBYTES_MAX + 16] = {0};
  size_t raw_nbytes, nbytes;
  int failed = make_chunk(s, raw, &raw_nbytes, chunk, &nbytes);
  failed = failed || write_shuffled(folder, s, raw, raw_nbytes);
  memset(chunk + nbytes, 0, sizeof(chunk) - nbytes); /* the encoder may have tried more */
  failed = failed || write_chunk(folder, s->name, s, chunk, nbytes, raw, raw_nbytes);
  for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]) && !failed; i++) {
    const damage *const d = &damages[i];
    if (strcmp(d->seed, s->name) != 0) {
      continue;
    }
    if (d->at == CUT) {
      failed = write_chunk(folder, d->name, s, chunk, d->value, NULL, 0);
      continue;
    }
    const uint8_t before = chunk[d->at];
    chunk[d->at] = (uint8_t)d->value;
    failed = before == d->value || write_chunk(folder, d->name, s, chunk, nbytes, NULL, 0);
    chunk[d->at] = before;
  }
  return failed;
}

int main(int argc, char **argv) {
  int failed = argc != 2;
  for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]) && !failed; i++) {
    failed = write_seed(argv[1], &seeds[i]);
  }
  return failed;
}
