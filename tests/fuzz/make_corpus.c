/* Writes the seed corpora: make_corpus FOLDER fills FOLDER/corpus_codec, FOLDER/corpus_filter and
 * FOLDER/corpus_bitshuffle.
 * The files are committed; run this again when the format changes. */
#include "../../hdf5_filter/filter.h"
#include "codec/bitshuffle.h"
#include "codec/codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct seed {
  const char *name;
  gpufi_chunk_shape shape;
  uint64_t (*value)(size_t i);
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

static const seed seeds[] = {
    {"raw", {GPUF_DTYPE_UINT8, 1, {50}}, noise},
    {"constant", {GPUF_DTYPE_FLOAT64, 2, {9, 5}}, constant},
    {"smooth_i32", {GPUF_DTYPE_INT32, 2, {12, 25}}, smooth},
    {"smooth_f32", {GPUF_DTYPE_FLOAT32, 3, {4, 9, 11}}, smooth},
    {"sparse_u64", {GPUF_DTYPE_UINT64, 1, {1100}}, sparse},
    {"coarse_i16", {GPUF_DTYPE_INT16, 4, {2, 3, 5, 17}}, coarse},
    {"complex", {GPUF_DTYPE_COMPLEX64, 2, {6, 15}}, smooth},
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
  const size_t written =
      fwrite(first, 1, first_nbytes, file) + fwrite(second, 1, second_nbytes, file);
  return fclose(file) != 0 || written != first_nbytes + second_nbytes;
}

static int write_seed(const char *folder, const seed *s) {
  uint8_t raw[16384] = {0}, chunk[17000], scratch[16384], head[2 + 4 * GPUFI_CD_COUNT_MAX];
  unsigned int cd_values[GPUFI_CD_COUNT_MAX];
  char name[64];
  size_t raw_nbytes, nbytes;
  if (gpufi_chunk_raw_nbytes(&s->shape, &raw_nbytes, NULL) != GPUF_OK) {
    return 1;
  }
  const size_t width = s->shape.dtype == GPUF_DTYPE_COMPLEX64     ? 4
                       : s->shape.dtype == GPUF_DTYPE_UINT8       ? 1
                       : s->shape.dtype == GPUF_DTYPE_INT16       ? 2
                       : raw_nbytes % 8 != 0 || s->shape.ndim > 1 ? 4
                                                                  : 8;
  for (size_t i = 0; i < raw_nbytes / width; i++) {
    const uint64_t value = s->value(i);
    memcpy(raw + i * width, &value, width);
  }
  if (gpufi_codec_encode(&s->shape, raw, chunk, sizeof(chunk), &nbytes, scratch, NULL) != GPUF_OK) {
    return 1;
  }
  const size_t cd_count = gpufi_filter_cd_values(&s->shape, false, cd_values);
  head[1] = (uint8_t)cd_count;
  memcpy(head + 2, cd_values, 4 * cd_count);
  int failed = write_file(folder, "corpus_codec", s->name, chunk, nbytes, NULL, 0);
  head[0] = 3; /* decode, sealed */
  snprintf(name, sizeof(name), "decode_%s", s->name);
  failed |= write_file(folder, "corpus_filter", name, head, 2 + 4 * cd_count, chunk, nbytes);
  const size_t count = raw_nbytes / width;
  const uint8_t decoded[] = {(uint8_t)(2 * (width - 1)), (uint8_t)count, (uint8_t)(count >> 8)};
  uint8_t shuffled[20000];
  failed |= write_file(folder, "corpus_bitshuffle", s->name, decoded, sizeof(decoded), shuffled,
                       gpufi_bitshuffle_encode(width, raw, raw_nbytes, shuffled, scratch));
  head[0] = 0; /* encode */
  snprintf(name, sizeof(name), "encode_%s", s->name);
  failed |= write_file(folder, "corpus_filter", name, head, 2 + 4 * cd_count, raw, raw_nbytes);
  return failed;
}

int main(int argc, char **argv) {
  int failed = argc != 2;
  for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]) && !failed; i++) {
    failed = write_seed(argv[1], &seeds[i]);
  }
  return failed;
}
