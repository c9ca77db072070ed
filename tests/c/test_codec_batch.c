/* Batches of chunks encoded and decoded by a device, against the codec for one chunk on the CPU. */
#include <dirent.h>

#include "codec/bitshuffle.h"
#include "codec/matches.h"
#include "codec/planes.h"
#include "codec/sample.h"
#include "codec_batch.h"

static void check_encoding_as_filled(fixture *f) {
  uint8_t *const expected = malloc(gpufi_codec_bound(f->chunks.raw_nbytes));
  encode(f);
  for (size_t i = 0; i < f->chunks.count; i++) {
    const gpufi_chunk_place place = f->places[i];
    const size_t nbytes = encode_on_cpu(f, i, expected);
    CHECK(place.offset % 16 == 0 && place.offset + place.nbytes <= f->encoded_nbytes);
    CHECK(place.nbytes == 0 ||
          (place.nbytes == nbytes && memcmp(f->encoded + place.offset, expected, nbytes) == 0));
    CHECK(test_device.kind == GPUF_DEVICE_CUDA || (place.nbytes == 0) == is_for_the_cpu(expected));
  }
  free(expected);
}

static void check_encoding_of(fixture *f, pattern kind) {
  fill(f, kind);
  check_encoding_as_filled(f);
}

static void check_encoding(fixture *f) {
  check_encoding_of(f, PATTERN_COUNT);
}

static void check_decoding_as_filled(fixture *f) {
  uint8_t *const raw = malloc(f->raw_nbytes);
  memcpy(raw, f->raw, f->raw_nbytes);
  encode_all_on_cpu(f);
  decode(f);
  for (size_t i = 0; i < f->chunks.count; i++) {
    const size_t at = i * f->chunks.raw_pitch_nbytes;
    if (f->verdicts[i] == GPUFI_CHUNK_LEFT) {
      CHECK(is_for_the_cpu(f->encoded + f->places[i].offset));
      continue;
    }
    CHECK(f->verdicts[i] == GPUFI_CHUNK_DONE);
    CHECK(memcmp(f->raw + at, raw + at, f->chunks.raw_nbytes) == 0);
  }
  free(raw);
}

static void check_decoding_of(fixture *f, pattern kind) {
  fill(f, kind);
  check_decoding_as_filled(f);
}

static void check_decoding(fixture *f) {
  check_decoding_of(f, PATTERN_COUNT);
}

static void check_bitshuffle(fixture *f) {
  const size_t element_nbytes = gpufi_chunk_element_nbytes(f->chunks.shape.dtype);
  uint8_t *const expected = malloc(gpufi_bitshuffle_bound(element_nbytes, f->chunks.raw_nbytes));
  void *const scratch = malloc(gpufi_bitshuffle_scratch_nbytes(f->chunks.raw_nbytes));
  fill(f, PATTERN_COUNT);
  encode(f);
  for (size_t i = 0; i < f->chunks.count; i++) {
    const gpufi_chunk_place place = f->places[i];
    const size_t nbytes =
        gpufi_bitshuffle_encode(element_nbytes, f->raw + i * f->chunks.raw_pitch_nbytes,
                                f->chunks.raw_nbytes, expected, scratch);
    CHECK(place.offset % 16 == 0 && place.offset + place.nbytes <= f->encoded_nbytes);
    CHECK(place.nbytes == nbytes && memcmp(f->encoded + place.offset, expected, nbytes) == 0);
  }
  free(expected);
  free(scratch);
}

static void with_random_batches(void (*check)(fixture *f), gpufi_coding coding, int rounds) {
  for (int round = 0; round < rounds * test_times() / test_every(); round++) {
    const gpufi_chunk_shape shape = random_shape(round % 8 ? 5000 : 50000);
    fixture f;
    fixture_init(&f, &shape, 1 + below(4), below(4) == 0, coding);
    check(&f);
    fixture_fini(&f);
  }
}

static void the_bytes_are_those_of_the_cpu(void) {
  with_random_batches(check_encoding, GPUFI_CODING_GPUFETCH, 150);
}

static void every_chunk_decodes_to_what_it_was(void) {
  with_random_batches(check_decoding, GPUFI_CODING_GPUFETCH, 150);
}

/* Rows that start anywhere in a block, in chunks of several runs, predicted along every axis. */
static void rows_of_every_alignment_keep_their_bits(void) {
  static const gpuf_dtype dtypes[] = {GPUF_DTYPE_UINT8, GPUF_DTYPE_BFLOAT16, GPUF_DTYPE_FLOAT32,
                                      GPUF_DTYPE_INT64, GPUF_DTYPE_COMPLEX64};
  for (uint32_t row = 30; row < 46; row++) {
    const gpufi_chunk_shape shape = {dtypes[row % 5], 3, {3, 230 + row, row}};
    fixture f;
    fixture_init(&f, &shape, 3, false, GPUFI_CODING_GPUFETCH);
    check_encoding(&f);
    check_decoding(&f);
    fixture_fini(&f);
  }
}

/* A value of a chunk that is predicted nearly right along the axes of `subset` (bit a for axis a),
 * and along no others: for each of these axes, a random function of the indices along all others.
 */
static uint64_t value_along(uint32_t subset, const gpufi_geometry *g, size_t value) {
  const size_t element = value / g->component_count;
  uint64_t sum = below(2);
  for (int32_t a = 0; a < g->ndim; a++) {
    const size_t stride = g->strides[a] / g->component_count;
    if (subset >> a & 1) {
      uint64_t random;
      fill_random(&random, sizeof(random),
                  value - element / stride % g->dims[a] * g->strides[a] + 1 +
                      (uint64_t)a * g->value_count);
      sum += random >> (64 - 8 * g->value_nbytes + 4);
    }
  }
  return sum;
}

/* In chunks of several runs, which begin anywhere in a row, a plane and what the planes make up. */
static void every_set_of_axes_is_undone(void) {
  static const gpufi_chunk_shape shapes[] = {
      {GPUF_DTYPE_UINT16, 4, {6, 9, 11, 45}}, {GPUF_DTYPE_FLOAT32, 4, {8, 9, 10, 33}},
      {GPUF_DTYPE_INT64, 4, {7, 6, 16, 32}},  {GPUF_DTYPE_COMPLEX64, 4, {7, 8, 10, 19}},
      {GPUF_DTYPE_UINT32, 4, {5, 7, 13, 24}}, {GPUF_DTYPE_FLOAT64, 4, {30, 40, 2, 5}}};
  uint32_t seen[2] = {0, 0}; /* of short and of long rows */
  for (size_t k = 0; k < 15 * sizeof(shapes) / sizeof(shapes[0]); k++) {
    const gpufi_chunk_shape *const shape = &shapes[k / 15];
    gpufi_geometry g;
    fixture f;
    gpufi_geometry_init(&g, shape);
    fixture_init(&f, shape, 1, k % 2, GPUFI_CODING_GPUFETCH);
    for (size_t i = 0; i < g.value_count; i++) {
      const uint64_t value = value_along(1 + k % 15, &g, i);
      memcpy(f.raw + i * g.value_nbytes, &value, g.value_nbytes);
    }
    check_decoding_as_filled(&f);
    const uint8_t *const chunk = f.encoded;
    seen[shape->dims[3] >= 32] |= 1u << chunk[GPUFI_AT_AXES];
    fixture_fini(&f);
  }
  CHECK((seen[0] & seen[1] & 0xfffe) == 0xfffe);
}

/* Rows of whole strips, for which the decoder has kernels of their own: rows and planes begin
 * anywhere in a run or with one, and rows are shorter and longer than a warp's part of it. */
static void rows_of_strips_are_undone_along_every_set_of_axes(void) {
  static const gpufi_chunk_shape shapes[] = {
      {GPUF_DTYPE_FLOAT32, 3, {3, 64, 64}},  {GPUF_DTYPE_FLOAT32, 2, {300, 32}},
      {GPUF_DTYPE_FLOAT32, 3, {3, 80, 96}},  {GPUF_DTYPE_FLOAT32, 3, {1, 70, 256}},
      {GPUF_DTYPE_FLOAT64, 3, {5, 64, 32}},  {GPUF_DTYPE_FLOAT64, 3, {2, 100, 160}},
      {GPUF_DTYPE_FLOAT32, 2, {9, 2080}},    {GPUF_DTYPE_FLOAT32, 3, {2, 3, 8224}},
      {GPUF_DTYPE_FLOAT64, 1, {20000}},      {GPUF_DTYPE_INT32, 3, {24, 32, 32}},
      {GPUF_DTYPE_UINT64, 2, {20, 1088}},    {GPUF_DTYPE_FLOAT32, 3, {40, 17, 32}},
      {GPUF_DTYPE_FLOAT64, 3, {2, 40, 512}}, {GPUF_DTYPE_FLOAT32, 2, {40, 544}}};
  const size_t shape_count = sizeof(shapes) / sizeof(shapes[0]);
  for (size_t k = 0; k < 7 * shape_count; k++) {
    const gpufi_chunk_shape *const shape = &shapes[k / 7];
    gpufi_geometry g;
    fixture f;
    gpufi_geometry_init(&g, shape);
    fixture_init(&f, shape, 2, false, GPUFI_CODING_GPUFETCH);
    for (size_t chunk = 0; chunk < 2; chunk++) {
      for (size_t i = 0; i < g.value_count; i++) {
        const uint64_t value = value_along(1 + (k + chunk) % 7, &g, i);
        memcpy(f.raw + chunk * f.chunks.raw_pitch_nbytes + i * g.value_nbytes, &value,
               g.value_nbytes);
      }
    }
    check_decoding_as_filled(&f);
    fixture_fini(&f);
  }
}

/* Damage one chunk; sealed with a right checksum or not. The CPU's answer is the device's, and the
 * other chunks are as they were. */
static void check_damage(fixture *f) {
  uint8_t *const raw = malloc(f->raw_nbytes), *const out = malloc(f->chunks.raw_nbytes);
  fill(f, PATTERN_COUNT);
  memcpy(raw, f->raw, f->raw_nbytes);
  encode_all_on_cpu(f);
  const size_t hurt = below(f->chunks.count), nbytes = f->places[hurt].nbytes;
  uint8_t *const chunk = f->encoded + f->places[hurt].offset;
  for (uint64_t hits = 1 + below(3); hits > 0; hits--) {
    chunk[below(below(3) && nbytes > 160 ? 160 : nbytes)] ^= (uint8_t)(1 << below(8));
  }
  if (below(3)) {
    gpufi_codec_seal(chunk, nbytes);
  }
  decode(f);
  for (size_t i = 0; i < f->chunks.count; i++) {
    const size_t at = i * f->chunks.raw_pitch_nbytes;
    gpufi_chunk_shape shape;
    size_t raw_nbytes;
    bool good = i != hurt;
    memcpy(out, raw + at, f->chunks.raw_nbytes);
    if (i == hurt && gpufi_codec_inspect(chunk, nbytes, &shape, &raw_nbytes, NULL) == GPUF_OK) {
      good = memcmp(&shape, &f->chunks.shape, sizeof(shape)) == 0 &&
             gpufi_codec_decode(chunk, nbytes, out, raw_nbytes, NULL) == GPUF_OK;
    }
    if (f->verdicts[i] != GPUFI_CHUNK_LEFT) {
      CHECK(f->verdicts[i] == (good ? GPUFI_CHUNK_DONE : GPUFI_CHUNK_REFUSED));
      CHECK(!good || memcmp(f->raw + at, out, f->chunks.raw_nbytes) == 0);
    }
  }
  free(raw);
  free(out);
}

static void damage_is_refused_and_hurts_no_other_chunk(void) {
  with_random_batches(check_damage, GPUFI_CODING_GPUFETCH, 150);
}

/* One chunk of the fuzzers' corpus, as a batch: the device's answer is the CPU's. True if the
 * device decoded it. */
static bool check_seed(const uint8_t *chunk, size_t nbytes) {
  gpufi_chunk_shape shape;
  size_t raw_nbytes;
  fixture f;
  if (gpufi_codec_inspect(chunk, nbytes, &shape, &raw_nbytes, NULL) != GPUF_OK ||
      raw_nbytes > 1 << 20) {
    return false;
  }
  uint8_t *const out = malloc(raw_nbytes);
  const bool good = gpufi_codec_decode(chunk, nbytes, out, raw_nbytes, NULL) == GPUF_OK;
  bool decoded = false;
  fixture_init(&f, &shape, 1, false, GPUFI_CODING_GPUFETCH);
  if (nbytes <= f.encoded_nbytes) { /* there are valid chunks that no encoder makes so long */
    memcpy(f.encoded, chunk, nbytes);
    f.places[0] = (gpufi_chunk_place){0, nbytes};
    decode(&f);
    decoded = f.verdicts[0] == GPUFI_CHUNK_DONE;
    if (f.verdicts[0] == GPUFI_CHUNK_LEFT) {
      CHECK(!good || is_for_the_cpu(chunk));
    } else {
      CHECK(f.verdicts[0] == (good ? GPUFI_CHUNK_DONE : GPUFI_CHUNK_REFUSED));
      CHECK(!good || memcmp(f.raw, out, raw_nbytes) == 0);
    }
  }
  fixture_fini(&f);
  free(out);
  return decoded;
}

/* As they are, which of some is a wrong checksum, and with the right one. */
static void seeds_of_both_versions_are_read_as_on_the_cpu(void) {
  size_t counts[GPUFI_CHUNK_VERSION + 1][GPUFI_MODE_MAX + 1] = {0};
  const struct dirent *entry;
  DIR *const folder = opendir(TEST_CODEC_CORPUS);
  CHECK(folder != NULL);
  while ((entry = readdir(folder)) != NULL) {
    char path[4096];
    uint8_t *const chunk = malloc(1 << 20);
    snprintf(path, sizeof(path), TEST_CODEC_CORPUS "/%s", entry->d_name);
    FILE *const file = fopen(path, "rb");
    CHECK(file != NULL);
    const size_t nbytes = fread(chunk, 1, 1 << 20, file);
    CHECK(fclose(file) == 0);
    if (nbytes >= GPUFI_HEADER_NBYTES && nbytes % GPUFI_CHUNK_ALIGN == 0) {
      check_seed(chunk, nbytes);
      gpufi_codec_seal(chunk, nbytes);
      if (check_seed(chunk, nbytes)) {
        counts[chunk[GPUFI_AT_VERSION]][chunk[GPUFI_AT_MODE]]++;
      }
    }
    free(chunk);
  }
  closedir(folder);
  CHECK(counts[1][GPUFI_MODE_RAW] != 0 && counts[1][GPUFI_MODE_CONSTANT] != 0);
  CHECK(counts[1][GPUFI_MODE_W8] > 8 && counts[2][GPUFI_MODE_W8] > 8);
  CHECK(counts[1][GPUFI_MODE_RANKED] > 4 && counts[2][GPUFI_MODE_RANKED] > 4);
  CHECK(counts[2][GPUFI_MODE_MATCHES] > 4);
}

static void a_place_outside_the_buffer_is_refused(void) {
  static const gpufi_chunk_place wrong[] = {
      {0, 95},          {8, 4096},           {UINT64_MAX - 15, 112}, {0, UINT64_MAX},
      {1u << 30, 4096}, {UINT64_MAX / 2, 0}, {16, UINT64_MAX - 16},  {0, 0}};
  const size_t count = sizeof(wrong) / sizeof(wrong[0]);
  const gpufi_chunk_shape shape = {GPUF_DTYPE_FLOAT32, 2, {40, 50}};
  fixture f;
  fixture_init(&f, &shape, count, false, GPUFI_CODING_GPUFETCH);
  fill(&f, PATTERN_COUNT);
  encode_all_on_cpu(&f);
  memcpy(f.places, wrong, sizeof(wrong));
  decode(&f);
  for (size_t i = 0; i < count; i++) {
    CHECK(f.verdicts[i] == GPUFI_CHUNK_REFUSED);
  }
  fixture_fini(&f);
}

static void a_chunk_of_another_shape_is_refused(void) {
  const gpufi_chunk_shape shape = {GPUF_DTYPE_FLOAT32, 2, {40, 50}};
  static const gpufi_chunk_shape others[] = {{GPUF_DTYPE_INT32, 2, {40, 50}},
                                             {GPUF_DTYPE_FLOAT32, 2, {50, 40}},
                                             {GPUF_DTYPE_FLOAT32, 1, {2000}}};
  fixture f;
  for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
    fixture_init(&f, &shape, 1, false, GPUFI_CODING_GPUFETCH);
    fill(&f, WAVES); /* no dictionary, with which the CPU would refuse it */
    encode_all_on_cpu(&f);
    f.chunks.shape = others[i];
    decode(&f);
    CHECK(f.verdicts[0] == GPUFI_CHUNK_REFUSED);
    fixture_fini(&f);
  }
}

static void one_element_is_a_chunk_in_every_dtype(void) {
  for (int dtype = 1; dtype <= GPUF_DTYPE_MAX; dtype++) {
    const gpufi_chunk_shape shape = {(gpuf_dtype)dtype, 1, {1}};
    fixture f;
    fixture_init(&f, &shape, 2, false, GPUFI_CODING_GPUFETCH);
    check_encoding_of(&f, CONSTANT);
    check_encoding_of(&f, NOISE);
    check_decoding_of(&f, NOISE);
    fixture_fini(&f);
  }
}

/* Weights and counts, in chunks of one and of several runs. */
static void ranked_chunks_keep_their_bits(void) {
  static const gpuf_dtype dtypes[] = {
      GPUF_DTYPE_UINT8,   GPUF_DTYPE_FLOAT16,   GPUF_DTYPE_BFLOAT16,      GPUF_DTYPE_FLOAT32,
      GPUF_DTYPE_FLOAT64, GPUF_DTYPE_COMPLEX64, GPUF_DTYPE_FLOAT8_E4M3FN, GPUF_DTYPE_FLOAT8_E5M2,
      GPUF_DTYPE_UINT16,  GPUF_DTYPE_INT32,     GPUF_DTYPE_INT64};
  size_t made_count = 0, read_count = 0;
  for (size_t k = 0; k < 2 * sizeof(dtypes) / sizeof(dtypes[0]); k++) {
    const gpufi_chunk_shape shape = {dtypes[k / 2], 2, {k % 2 ? 7 : 70, 301}};
    fixture f;
    fixture_init(&f, &shape, 3, k % 3 == 0, GPUFI_CODING_GPUFETCH);
    const pattern kind = dtypes[k / 2] <= GPUF_DTYPE_UINT64 ? COUNTS : k % 4 < 2 ? WEIGHTS : PRUNED;
    check_encoding_of(&f, kind);
    for (size_t i = 0; i < f.chunks.count; i++) {
      const uint8_t *const chunk = f.encoded + f.places[i].offset;
      made_count += f.places[i].nbytes != 0 && chunk[GPUFI_AT_MODE] == GPUFI_MODE_RANKED;
    }
    check_decoding_of(&f, kind);
    for (size_t i = 0; i < f.chunks.count; i++) { /* the CPU's chunks, which were decoded */
      read_count += f.encoded[f.places[i].offset + GPUFI_AT_MODE] == GPUFI_MODE_RANKED;
    }
    fixture_fini(&f);
  }
  CHECK(made_count > 10 && read_count > 20);
}

/* Floats that the CPU codes by way of a base: those of every transform, with a shift, with
 * corrections and with a fill, in chunks of one and of several runs. */
static void chunks_with_a_base_keep_their_bits(void) {
  static const gpuf_dtype dtypes[] = {GPUF_DTYPE_BFLOAT16, GPUF_DTYPE_FLOAT32, GPUF_DTYPE_FLOAT64,
                                      GPUF_DTYPE_COMPLEX64, GPUF_DTYPE_COMPLEX128};
  size_t shifted = 0, quotients = 0, others = 0, corrected = 0, filled = 0;
  size_t made[2] = {0, 0}; /* by the device: with corrections, with a fill */
  for (size_t k = 0; k < 8 * sizeof(dtypes) / sizeof(dtypes[0]); k++) {
    const gpufi_chunk_shape shape = {dtypes[k / 8], 2, {k % 2 ? 9 : 70, 301}};
    fixture f;
    fixture_init(&f, &shape, 2, k % 3 == 0, GPUFI_CODING_GPUFETCH);
    check_encoding_of(&f, (pattern)(DECIMALS + k % 8 / 2));
    for (size_t i = 0; i < f.chunks.count; i++) {
      const uint8_t *const chunk = f.encoded + f.places[i].offset;
      const bool is_made = f.places[i].nbytes != 0;
      made[0] += is_made && (chunk[GPUFI_AT_FLAGS] & GPUFI_FLAG_CORRECTIONS) != 0;
      made[1] += is_made && (chunk[GPUFI_AT_FLAGS] & GPUFI_FLAG_FILL) != 0;
    }
    check_decoding_of(&f, (pattern)(DECIMALS + k % 8 / 2));
    for (size_t i = 0; i < f.chunks.count; i++) {
      const uint8_t *const chunk = f.encoded + f.places[i].offset;
      shifted += chunk[GPUFI_AT_SHIFT] != 0 && chunk[GPUFI_AT_MODE] == GPUFI_MODE_W8;
      quotients += chunk[GPUFI_AT_TRANSFORM] == GPUFI_TRANSFORM_QUOTIENT;
      others += chunk[GPUFI_AT_TRANSFORM] > GPUFI_TRANSFORM_QUOTIENT;
      corrected += (chunk[GPUFI_AT_FLAGS] & GPUFI_FLAG_CORRECTIONS) != 0;
      filled += (chunk[GPUFI_AT_FLAGS] & GPUFI_FLAG_FILL) != 0;
    }
    fixture_fini(&f);
  }
  CHECK(shifted > 5 && quotients > 5 && others > 5 && corrected > 20 && filled > 5);
  CHECK(made[0] > corrected - corrected / 4 && made[1] > filled - filled / 4);
}

/* Of a block that is all fill, what is predicted has the fill as its base: still, it is the
 * correction that says so. */
static void a_fill_that_is_its_own_base_keeps_its_bits(void) {
  const gpufi_chunk_shape shape = {GPUF_DTYPE_FLOAT64, 1, {60000}};
  const double fill = 5;
  fixture f;
  fixture_init(&f, &shape, 1, false, GPUFI_CODING_GPUFETCH);
  double *const values = (double *)f.raw;
  for (size_t i = 0; i < 60000; i++) {
    const bool is_fill = i / GPUFI_BLOCK_VALUES == 3 || below(3) == 0;
    values[i] = is_fill ? fill : (double)(1000000 + below(1 << 12)) / 10;
  }
  values[0] = nextafter(fill, 6); /* the first probe, whose integer has the base 5 */
  check_encoding_as_filled(&f);
  CHECK(f.places[0].nbytes != 0 && f.encoded[GPUFI_AT_TRANSFORM] == GPUFI_TRANSFORM_QUOTIENT);
  CHECK((f.encoded[GPUFI_AT_FLAGS] & GPUFI_FLAG_FILL) != 0);
  check_decoding_as_filled(&f);
  fixture_fini(&f);
}

#ifdef TEST_CUDA_EMULATION
/* Of a GPU that lacks the shared memory that two streams of 64-bit values take, while one stream
 * fits. */
static void corrections_are_left_where_they_do_not_fit(void) {
  const gpufi_chunk_shape shape = {GPUF_DTYPE_FLOAT64, 1, {30000}};
  for (int32_t device = 0; device < 2; device++) {
    fixture f;
    test_device.index = device;
    fixture_init(&f, &shape, 2, false, GPUFI_CODING_GPUFETCH);
    fill(&f, WAVES);
    double *const values = (double *)f.raw;
    for (size_t i = 0; i < 30000; i++) {
      values[i] = i % 1000 == 7 ? NAN : (double)below(1 << 24) / 10;
    }
    check_encoding_as_filled(&f);
    CHECK((f.places[0].nbytes != 0) == (device == 0) && f.places[1].nbytes != 0);
    CHECK(device == 1 || (f.encoded[f.places[0].offset + GPUFI_AT_FLAGS] & GPUFI_FLAG_CORRECTIONS));
    check_decoding_as_filled(&f);
    CHECK(f.verdicts[0] == GPUFI_CHUNK_DONE && f.verdicts[1] == GPUFI_CHUNK_DONE);
    fixture_fini(&f);
  }
}
#endif

/* Noise in the sampled groups of chunk i, whatever the others are. */
static void hide_from_the_sample(fixture *f, size_t i) {
  gpufi_geometry g;
  gpufi_geometry_init(&g, &f->chunks.shape);
  for (size_t k = 0; k < gpufi_sample_count(&g); k++) {
    const size_t past = gpufi_sample_first(&g, k) * g.value_nbytes;
    size_t nbytes = GPUFI_GROUP_VALUES * g.value_nbytes;
    nbytes = f->chunks.raw_nbytes - past < nbytes ? f->chunks.raw_nbytes - past : nbytes;
    fill_random(f->raw + i * f->chunks.raw_pitch_nbytes + past, nbytes, ++random_state);
  }
}

/* Records of noise with a tag, which matches are expected to make smaller, and mostly do not; alone
 * in their batch. */
static void matches_that_do_not_shrink_are_raw(void) {
  size_t raw_count = 0;
  for (uint32_t length = 32; length <= 64; length += 4) {
    const gpufi_chunk_shape shape = {GPUF_DTYPE_UINT8, 1, {length % 8 == 0 ? 2048 : 8192}};
    fixture f;
    fixture_init(&f, &shape, 1, false, GPUFI_CODING_GPUFETCH);
    fill(&f, NOISE);
    for (size_t i = 0; i + 4 <= f.chunks.raw_nbytes; i += length) {
      memcpy(f.raw + i, "TAG:", 4);
    }
    check_encoding_as_filled(&f);
    raw_count += f.places[0].nbytes != 0 && f.encoded[GPUFI_AT_MODE] == GPUFI_MODE_RAW;
    check_decoding_as_filled(&f);
    fixture_fini(&f);
  }
  CHECK(raw_count > 3);
}

/* Where by the sample nothing makes the chunk smaller, nothing is tried. */
static void noise_by_the_sample_is_raw(void) {
  const gpufi_chunk_shape shape = {GPUF_DTYPE_UINT8, 1, {200000}};
  fixture f;
  fixture_init(&f, &shape, 1, false, GPUFI_CODING_GPUFETCH);
  fill(&f, SPARSE);
  hide_from_the_sample(&f, 0);
  check_encoding_as_filled(&f);
  CHECK(f.places[0].nbytes != 0 && f.encoded[GPUFI_AT_MODE] == GPUFI_MODE_RAW);
  check_decoding_as_filled(&f);
  fixture_fini(&f);
}

/* Of each batch some chunks are raw, some only seem so, and some do not; in rows of any length, and
 * with a last run that is not whole. With planes the sample is of other groups. */
static void chunks_that_seem_raw_keep_their_bits(void) {
  const gpufi_chunk_shape shapes[] = {
      {GPUF_DTYPE_UINT8, 2, {97, 1001}},          {GPUF_DTYPE_INT16, 3, {3, 157, 160}},
      {GPUF_DTYPE_FLOAT32, 2, {256, 256}},        {GPUF_DTYPE_FLOAT32, 1, {40003}},
      {GPUF_DTYPE_FLOAT64, 3, {5, 63, 129}},      {GPUF_DTYPE_COMPLEX64, 2, {129, 129}},
      {GPUF_DTYPE_COMPLEX128, 4, {3, 5, 33, 17}}, {GPUF_DTYPE_BFLOAT16, 2, {255, 256}},
      {GPUF_DTYPE_UINT32, 2, {8192, 3}},
  };
  for (size_t k = 0; k < sizeof(shapes) / sizeof(*shapes); k++) {
    fixture f;
    size_t seeming_count = 0;
    fixture_init(&f, &shapes[k], 7, k % 3 == 1, GPUFI_CODING_GPUFETCH);
    for (size_t i = 0; i < f.chunks.count; i++) {
      const pattern kind = i % 3 == 0 ? NOISE : i % 3 == 1 ? SPARSE : WAVES;
      fill_chunk(f.raw + i * f.chunks.raw_pitch_nbytes, &shapes[k], kind);
      if (i % 3 == 1) {
        hide_from_the_sample(&f, i);
      }
    }
    check_encoding_as_filled(&f);
    for (size_t i = 0; i < f.chunks.count; i++) {
      const uint8_t *const chunk = f.encoded + f.places[i].offset;
      seeming_count +=
          i % 3 == 1 && f.places[i].nbytes != 0 && chunk[GPUFI_AT_MODE] == GPUFI_MODE_RAW;
    }
    CHECK(seeming_count == (gpufi_planes_pay(&shapes[k]) ? 0 : 2));
    check_decoding_as_filled(&f);
    fixture_fini(&f);
  }
}

/* By the sample the values are decimals, or a fill; between the sampled groups is noise, and
 * corrections take as much as it. Such chunks take twice the bytes of raw ones, until it is known
 * that they are to be raw: those for which the buffer has no place are left. */
static void corrected_chunks_that_do_not_shrink_fit_the_buffer(void) {
  const gpufi_chunk_shape shape = {GPUF_DTYPE_FLOAT64, 1, {40000}};
  size_t raw_count = 0, made_count = 0;
  gpufi_geometry g;
  fixture f;
  gpufi_geometry_init(&g, &shape);
  fixture_init(&f, &shape, 5, false, GPUFI_CODING_GPUFETCH);
  for (size_t i = 0; i < f.chunks.count * f.chunks.raw_pitch_nbytes / sizeof(double); i++) {
    ((double *)f.raw)[i] = (double)below(1 << 24) / 10;
  }
  for (size_t i = 0; i + 1 < f.chunks.count; i++) {
    uint8_t *const raw = f.raw + i * f.chunks.raw_pitch_nbytes;
    uint8_t *const copy = malloc(f.chunks.raw_nbytes);
    memcpy(copy, raw, f.chunks.raw_nbytes);
    fill_random(raw, f.chunks.raw_nbytes, ++random_state);
    for (size_t k = 0; k < gpufi_sample_count(&g); k++) {
      const size_t at = gpufi_sample_first(&g, k) * g.value_nbytes;
      memcpy(raw + at, copy + at, GPUFI_GROUP_VALUES * g.value_nbytes);
    }
    free(copy);
  }
  check_encoding_as_filled(&f);
  for (size_t i = 0; i < f.chunks.count; i++) {
    const bool is_made = f.places[i].nbytes != 0;
    made_count += is_made;
    raw_count += is_made && f.encoded[f.places[i].offset + GPUFI_AT_MODE] == GPUFI_MODE_RAW;
  }
  CHECK(raw_count >= 2 && raw_count == made_count - 1);
  fixture_fini(&f);
}

/* Vectors, colours and records of every type: of rows that are short, and of rows that are long
 * beside what a thread block takes at once. */
static void planes_keep_their_bits(void) {
  static const uint32_t lengths[] = {16, 77, 3001};
  size_t made_count = 0, read_count = 0, modes[GPUFI_MODE_MAX + 1] = {0};
  for (int dtype = 1; dtype <= GPUF_DTYPE_MAX; dtype++) {
    for (size_t k = (size_t)dtype % 2; k < 6; k += 2) {
      const uint32_t length = lengths[k / 2];
      const bool is_byte = gpufi_chunk_element_nbytes((gpuf_dtype)dtype) == 1;
      const uint32_t most = is_byte && length >= 64 ? 64 : 16;
      const uint32_t planes = dtype % 3 ? 2 + (uint32_t)below(4) : 2 + (uint32_t)below(most - 1);
      const uint32_t rows = 1 + (uint32_t)below(12000 / length / planes + 1);
      const gpufi_chunk_shape shape = {(gpuf_dtype)dtype, 4, {rows, length, 1, planes}};
      fixture f;
      fixture_init(&f, &shape, 2, k % 3 == 0, GPUFI_CODING_GPUFETCH);
      check_encoding(&f);
      for (size_t i = 0; i < f.chunks.count; i++) {
        const uint8_t *const chunk = f.encoded + f.places[i].offset;
        made_count += f.places[i].nbytes != 0 && (chunk[GPUFI_AT_FLAGS] & GPUFI_FLAG_PLANES) != 0;
      }
      check_decoding(&f);
      for (size_t i = 0; i < f.chunks.count; i++) {
        const uint8_t *const chunk = f.encoded + f.places[i].offset;
        const bool is_read = f.verdicts[i] == GPUFI_CHUNK_DONE;
        const bool has_planes = (chunk[GPUFI_AT_FLAGS] & GPUFI_FLAG_PLANES) != 0;
        read_count += is_read && has_planes;
        modes[chunk[GPUFI_AT_MODE]] += is_read && has_planes;
      }
      fixture_fini(&f);
    }
  }
  CHECK(made_count > 40 && read_count > 50);
  CHECK(modes[GPUFI_MODE_W8] > 20 && modes[GPUFI_MODE_RANKED] > 5 && modes[GPUFI_MODE_MATCHES] > 5);
}

/* Of so many blocks, several are tried. */
static void matches_of_many_blocks_keep_their_bits(void) {
  static const gpufi_chunk_shape shapes[] = {{GPUF_DTYPE_UINT8, 1, {400001}},
                                             {GPUF_DTYPE_FLOAT32, 2, {1000, 101}}};
  for (size_t k = 0; k < 2; k++) {
    fixture f;
    fixture_init(&f, &shapes[k], 1, k == 1, GPUFI_CODING_GPUFETCH);
    fill(&f, k == 0 ? WORDS : PERIODIC);
    check_encoding_as_filled(&f);
    for (size_t i = 0; i < f.chunks.count; i++) {
      CHECK(f.places[i].nbytes != 0);
      CHECK(f.encoded[f.places[i].offset + GPUFI_AT_MODE] == GPUFI_MODE_MATCHES);
    }
    check_decoding_as_filled(&f);
    fixture_fini(&f);
  }
}

/* What repeats, of every type, in chunks of one block, of two and of several. */
static void matches_keep_their_bits(void) {
  static const uint32_t nbytes[] = {3000, 20000, 40000};
  size_t read_count = 0, predicted_count = 0, arranged[GPUFI_ARRANGED_MAX + 1] = {0};
  size_t made_count = 0, made[GPUFI_ARRANGED_MAX + 1] = {0};
  for (int dtype = 1; dtype <= GPUF_DTYPE_MAX; dtype++) {
    for (size_t k = (size_t)dtype % 2; k < 9; k += 2) {
      const size_t element_nbytes = gpufi_chunk_element_nbytes((gpuf_dtype)dtype);
      const uint32_t elements = nbytes[k % 3] / (uint32_t)element_nbytes;
      const gpufi_chunk_shape shape = {(gpuf_dtype)dtype, 2, {elements / 301 + 1, 301}};
      fixture f;
      fixture_init(&f, &shape, 1, k % 4 == 0, GPUFI_CODING_GPUFETCH);
      check_encoding_of(&f, (pattern)(PERIODIC + k / 3));
      for (size_t i = 0; i < f.chunks.count; i++) {
        const uint8_t *const chunk = f.encoded + f.places[i].offset;
        const bool is_made = f.places[i].nbytes != 0 && chunk[GPUFI_AT_MODE] == GPUFI_MODE_MATCHES;
        made_count += is_made;
        made[is_made ? chunk[GPUFI_AT_LEVELS] & 15 : 0] += is_made;
      }
      check_decoding_of(&f, (pattern)(PERIODIC + k / 3));
      for (size_t i = 0; i < f.chunks.count; i++) {
        const uint8_t *const chunk = f.encoded + f.places[i].offset;
        const bool is_read =
            f.verdicts[i] == GPUFI_CHUNK_DONE && chunk[GPUFI_AT_MODE] == GPUFI_MODE_MATCHES;
        read_count += is_read;
        predicted_count += is_read && chunk[GPUFI_AT_AXES] != 0;
        arranged[is_read ? chunk[GPUFI_AT_LEVELS] & 15 : 0] += is_read;
      }
      fixture_fini(&f);
    }
  }
  CHECK(read_count > 60 && predicted_count > 10);
  CHECK(made_count > read_count - read_count / 8);
  for (size_t k = 0; k <= GPUFI_ARRANGED_MAX; k++) {
    CHECK(arranged[k] > 4 && made[k] > 4);
  }
}

static size_t count_ranges(const uint8_t *chunk, size_t block_count) {
  size_t count = 0;
  for (size_t b = 0; b < block_count; b++) {
    uint32_t word;
    memcpy(&word, chunk + GPUFI_HEADER_NBYTES + 4 * b, sizeof(word));
    count += word >> 30 == GPUFI_BLOCK_CODE4 && (word >> 27 & GPUFI_FORM_RANGES) != 0;
  }
  return count;
}

/* Groups of few bits with some of many among them, so that a code does not reach from one width to
 * the other. */
static void two_ranges_of_widths_keep_their_bits(void) {
  static const gpuf_dtype dtypes[] = {GPUF_DTYPE_INT32, GPUF_DTYPE_UINT32, GPUF_DTYPE_INT64};
  size_t made_count = 0, read_count = 0; /* blocks with two ranges */
  for (size_t k = 0; k < sizeof(dtypes) / sizeof(dtypes[0]); k++) {
    const gpufi_chunk_shape shape = {dtypes[k], 1, {20001}};
    const size_t block_count = (20001 + GPUFI_BLOCK_VALUES - 1) / GPUFI_BLOCK_VALUES;
    fixture f;
    fixture_init(&f, &shape, 2, false, GPUFI_CODING_GPUFETCH);
    check_encoding_of(&f, SPIKES);
    for (size_t i = 0; i < f.chunks.count; i++) {
      const uint8_t *const chunk = f.encoded + f.places[i].offset;
      made_count += f.places[i].nbytes != 0 ? count_ranges(chunk, block_count) : 0;
    }
    check_decoding_of(&f, SPIKES);
    for (size_t i = 0; i < f.chunks.count; i++) { /* the CPU's chunks, which were decoded */
      const uint8_t *const chunk = f.encoded + f.places[i].offset;
      CHECK(chunk[GPUFI_AT_MODE] == GPUFI_MODE_W8 && f.verdicts[i] == GPUFI_CHUNK_DONE);
      read_count += count_ranges(chunk, block_count);
    }
    fixture_fini(&f);
  }
  CHECK(made_count > 20 && read_count > 20);
}

/* By the sample the codes of many symbols pay, but no block gets smaller by them: what is between
 * the sampled groups is noise. Such chunks take the most bytes until it is known that they are to
 * be raw. */
static void ranked_chunks_that_do_not_shrink_fit_the_buffer(void) {
  const gpufi_chunk_shape shape = {GPUF_DTYPE_UINT16, 1, {20000}};
  fixture f;
  gpufi_geometry g;
  fixture_init(&f, &shape, 3, false, GPUFI_CODING_GPUFETCH);
  gpufi_geometry_init(&g, &shape);
  fill(&f, NOISE);
  for (size_t i = 0; i < f.chunks.count; i++) {
    uint16_t *const values = (uint16_t *)(f.raw + i * f.chunks.raw_pitch_nbytes);
    for (size_t k = 0; k < gpufi_sample_count(&g); k++) {
      for (size_t t = 0; t < GPUFI_GROUP_VALUES; t++) {
        const uint64_t symbol = below(4) != 0 ? below(200) : 200 + below(300);
        values[gpufi_sample_first(&g, k) + t] = (uint16_t)(symbol << 7);
      }
    }
  }
  check_encoding_as_filled(&f);
  for (size_t i = 0; i < f.chunks.count; i++) {
    CHECK(f.encoded[f.places[i].offset + GPUFI_AT_MODE] == GPUFI_MODE_RAW);
  }
  fixture_fini(&f);
}

static void bitshuffle_chunks_are_those_of_the_cpu(void) {
  with_random_batches(check_bitshuffle, GPUFI_CODING_BITSHUFFLE, 150);
}

int main(void) {
  TEST_ON_DEVICES(the_bytes_are_those_of_the_cpu);
  TEST_ON_DEVICES(every_chunk_decodes_to_what_it_was);
  TEST_ON_DEVICES(rows_of_every_alignment_keep_their_bits);
  TEST_ON_DEVICES(every_set_of_axes_is_undone);
  TEST_ON_DEVICES(rows_of_strips_are_undone_along_every_set_of_axes);
  TEST_ON_DEVICES(damage_is_refused_and_hurts_no_other_chunk);
  TEST_ON_DEVICES(seeds_of_both_versions_are_read_as_on_the_cpu);
  TEST_ON_DEVICES(a_place_outside_the_buffer_is_refused);
  TEST_ON_DEVICES(a_chunk_of_another_shape_is_refused);
  TEST_ON_DEVICES(one_element_is_a_chunk_in_every_dtype);
  TEST_ON_DEVICES(ranked_chunks_keep_their_bits);
  TEST_ON_DEVICES(two_ranges_of_widths_keep_their_bits);
  TEST_ON_DEVICES(ranked_chunks_that_do_not_shrink_fit_the_buffer);
  TEST_ON_DEVICES(chunks_with_a_base_keep_their_bits);
  TEST_ON_DEVICES(a_fill_that_is_its_own_base_keeps_its_bits);
  TEST_ON_DEVICES(noise_by_the_sample_is_raw);
  TEST_ON_DEVICES(matches_that_do_not_shrink_are_raw);
  TEST_ON_DEVICES(chunks_that_seem_raw_keep_their_bits);
  TEST_ON_DEVICES(planes_keep_their_bits);
  TEST_ON_DEVICES(matches_keep_their_bits);
  TEST_ON_DEVICES(matches_of_many_blocks_keep_their_bits);
  TEST_ON_DEVICES(corrected_chunks_that_do_not_shrink_fit_the_buffer);
#ifdef TEST_CUDA_EMULATION
  TEST_ON_DEVICES(corrections_are_left_where_they_do_not_fit);
#endif
  TEST_ON_DEVICES(bitshuffle_chunks_are_those_of_the_cpu);
  return test_finish();
}
