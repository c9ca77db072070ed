/* Damaged chunks of which the values are ranked or places in a dictionary, and those of version 1.
 */
#include "codec_hostile.h"

static void impossible_codes_are_refused(void) {
  static const char text[] = "byte 11: no such codes";
  check_byte(BFLOAT16_RANKED, GPUFI_AT_LEVELS, 0x80, text); /* no level */
  check_byte(BFLOAT16_RANKED, GPUFI_AT_LEVELS, 0x8d, text); /* 13 levels */
  check_byte(BFLOAT16_RANKED, GPUFI_AT_LEVELS, 0x81, text); /* the tree goes on below the last */
  check_byte(BFLOAT16_RANKED, GPUFI_AT_LEVELS, 0x04, text); /* no bits of a symbol */
  check_byte(BFLOAT16_RANKED, GPUFI_AT_LEVELS, 0xc4, text); /* 12 of them */
  check_byte(BFLOAT16_RANKED, GPUFI_AT_SYMBOL, 15, text);   /* it ends outside the value */
  check_byte(BFLOAT16_RANKED, GPUFI_AT_SEED, 2, text);      /* nothing is below level 1 */
  check_byte(BFLOAT16_RANKED, GPUFI_AT_SEED, 3, text);      /* more leaves than nodes */
  check_byte(BFLOAT16_RANKED, GPUFI_AT_SHIFT, 10, text);    /* it reaches into the symbol */
  check_byte(FLOAT64_RANKED, GPUFI_AT_SEED + 1, 0, text);   /* too many leaves, or another sum */
}

/* Every level but the last without a leaf would have more than 255 of them. */
static void a_tree_of_too_many_leaves_is_refused(void) {
  size_t raw_nbytes, nbytes;
  guarded chunk = make_specimen(&specimens[BFLOAT16_RANKED], &raw_nbytes, &nbytes);
  memset(chunk.data + GPUFI_AT_SEED, 0, 16);
  chunk.data[GPUFI_AT_LEVELS] = 0x88;
  chunk.data[GPUFI_AT_SEED + 6] = 1;
  chunk.data[GPUFI_AT_SEED + 7] =
      254; /* 255 in all: a table of 254 symbols, for which others are */
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), GPUF_ERR_CORRUPT, "corrupt chunk");
  CHECK(strstr(err.message, "byte 11:") == NULL);
  chunk.data[GPUFI_AT_SEED + 6] = 0;
  chunk.data[GPUFI_AT_SEED + 7] = 0; /* 256 modulo 256 */
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), GPUF_ERR_CORRUPT, "byte 11: no such codes");
  guarded_free(&chunk);
}

/* A ranked chunk of version 1: eight bfloat16 values of which the exponents are 1, 2, 3, 1, 1, 1, 1
 * and 1, and all else 0. Codes of one bit and of one, for 1 and 2; 3 is stored. */
#define VERSION_1_NBYTES (96 + 16 + 16 + 16)

static const uint8_t version_1_block[] = {0, 0, 0, 0, 0, 0, 0, 0, 0x06, 0x02, 3};

static void make_version_1(uint8_t chunk[VERSION_1_NBYTES]) {
  const uint64_t raw_nbytes = 16, payload_nbytes = VERSION_1_NBYTES - 96;
  const uint32_t dim = 8, word = (uint32_t)sizeof(version_1_block) | 1u << 30;
  memset(chunk, 0, VERSION_1_NBYTES);
  memcpy(chunk, "GPFC", 4);
  chunk[GPUFI_AT_VERSION] = 1;
  chunk[GPUFI_AT_DTYPE] = GPUF_DTYPE_BFLOAT16;
  chunk[GPUFI_AT_MODE] = GPUFI_MODE_RANKED;
  chunk[GPUFI_AT_NDIM] = 1;
  chunk[GPUFI_AT_LEVELS] = 0x11;
  memcpy(chunk + GPUFI_AT_RAW_NBYTES, &raw_nbytes, 8);
  memcpy(chunk + GPUFI_AT_PAYLOAD_NBYTES, &payload_nbytes, 8);
  memcpy(chunk + GPUFI_AT_DIMS, &dim, 4);
  chunk[96] = 1;
  chunk[97] = 2;
  memcpy(chunk + 96 + 16, &word, 4);
  memcpy(chunk + 96 + 32, version_1_block, sizeof(version_1_block));
  gpufi_codec_seal(chunk, VERSION_1_NBYTES);
}

static void a_ranked_chunk_of_version_1_is_read(void) {
  static const uint16_t want[8] = {1 << 7, 2 << 7, 3 << 7, 1 << 7, 1 << 7, 1 << 7, 1 << 7, 1 << 7};
  uint8_t chunk[VERSION_1_NBYTES];
  uint16_t values[8];
  make_version_1(chunk);
  CHECK_OK(gpufi_codec_decode(chunk, sizeof(chunk), values, sizeof(values), &err));
  CHECK(memcmp(values, want, sizeof(want)) == 0);
}

static void check_version_1(size_t at, uint8_t value, const char *text) {
  uint8_t chunk[VERSION_1_NBYTES];
  make_version_1(chunk);
  CHECK(chunk[at] != value);
  chunk[at] = value;
  gpufi_codec_seal(chunk, sizeof(chunk));
  CHECK_FAILS(decode(chunk, sizeof(chunk), 16), GPUF_ERR_CORRUPT, text);
}

static void a_false_ranked_chunk_of_version_1_is_refused(void) {
  check_version_1(GPUFI_AT_LEVELS, 0x20, "byte 11: no such codes");
  check_version_1(GPUFI_AT_LEVELS, 0x07, "byte 11: no such codes");
  check_version_1(GPUFI_AT_LEVELS, 0x52, "byte 11: no such codes");
  check_version_1(GPUFI_AT_SYMBOL, 7, "byte 14: a symbol");
  check_version_1(GPUFI_AT_SHIFT, 1, "byte 13: no such shift");
  check_version_1(GPUFI_AT_SEED, 1, "byte 64: an unused seed byte");
  check_version_1(GPUFI_AT_OFFSET, 1, "byte 72: an unused seed byte");
  check_version_1(98, 1, "byte 98: a padding byte");
  /* No second codes; two stored symbols; more second codes than there are. */
  check_version_1(96 + 32 + 8, 0x00, "the sections of a ranked block do not fit it");
  check_version_1(96 + 32 + 9, 0x03, "the sections of a ranked block do not fit it");
  check_version_1(96 + 32 + 9, 0x06, "the sections of a ranked block do not fit it");
  check_version_1(96 + 16, 10, "the sections of a ranked block do not fit it");
  check_version_1(96 + 16, 12, "the sections of a ranked block do not fit it");
  uint8_t chunk[VERSION_1_NBYTES];
  make_version_1(chunk);
  chunk[GPUFI_AT_DTYPE] = GPUF_DTYPE_FLOAT16;
  chunk[GPUFI_AT_LEVELS] = 0x46; /* 63 + 15 symbols, where there are only 32 */
  gpufi_codec_seal(chunk, sizeof(chunk));
  CHECK_FAILS(decode(chunk, sizeof(chunk), 16), GPUF_ERR_CORRUPT, "byte 11: no such codes");
  make_version_1(chunk);
  chunk[GPUFI_AT_DTYPE] = GPUF_DTYPE_UINT16; /* such values had to have a dictionary */
  gpufi_codec_seal(chunk, sizeof(chunk));
  CHECK_FAILS(decode(chunk, sizeof(chunk), 16), GPUF_ERR_CORRUPT, "byte 11: no such codes");
  make_version_1(chunk);
  chunk[GPUFI_AT_DTYPE] = GPUF_DTYPE_FLOAT16;
  chunk[96 + 32 + 10] = 32; /* a stored symbol of more than 5 bits */
  gpufi_codec_seal(chunk, sizeof(chunk));
  CHECK(decode(chunk, sizeof(chunk), 16) == GPUF_ERR_CORRUPT);
}

static void false_tables_are_refused(void) {
  check_byte(FLOAT32_PLACES, 96 + 7, 0xff, "an entry of the dictionary is not above");
  check_byte(FLOAT64_PLACES, GPUFI_AT_ENTRIES, 255, "byte 24: the payload length");
  check_byte(FLOAT64_PLACES, GPUFI_AT_ENTRIES, 24, "an entry of the dictionary is not above");
  check_byte(FLOAT64_RANKED, 96 + 1, 0x08, "byte 96: an entry of the symbol table");
  size_t raw_nbytes, nbytes;
  guarded chunk = make_specimen(&specimens[FLOAT32_PLACES], &raw_nbytes, &nbytes);
  const size_t entries = chunk.data[GPUFI_AT_ENTRIES] + 1u, table = 96 + 4 * entries;
  CHECK(entries % 4 != 0);
  chunk.data[table] = 1;
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), GPUF_ERR_CORRUPT, "a padding byte");
  guarded_free(&chunk);
}

static void a_place_outside_the_dictionary_is_refused(void) {
  size_t raw_nbytes, nbytes;
  guarded chunk = make_specimen(&specimens[FLOAT64_PLACES], &raw_nbytes, &nbytes);
  chunk.data[GPUFI_AT_SEED] = 250; /* the first place; the others count from it */
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), GPUF_ERR_CORRUPT,
              "a value is outside the dictionary");
  guarded_free(&chunk);
}

/* Change the first descriptor of a ranked chunk; its symbol table is before it. */
static void check_ranked_descriptor(uint32_t clear, uint32_t set, const char *text) {
  size_t raw_nbytes, nbytes;
  const guarded chunk = make_specimen(&specimens[BFLOAT16_RANKED], &raw_nbytes, &nbytes);
  size_t leaves = 0;
  for (size_t k = 0; k < GPUFI_TREE_DEPTH_MAX; k++) {
    leaves += chunk.data[GPUFI_AT_SEED + k];
  }
  const size_t each = chunk.data[GPUFI_AT_LEVELS] >> 4 > 8 ? 2 : 1;
  const size_t at = GPUFI_HEADER_NBYTES + gpufi_round_up_16((leaves - 1) * each);
  check_changed(chunk, nbytes, raw_nbytes, at, clear, set, text);
}

static void a_false_descriptor_of_a_ranked_block_is_refused(void) {
  check_ranked_descriptor(0, 1u << 14, "none of those allowed");
  check_ranked_descriptor(0, 1u << 21, "none of those allowed");
  check_ranked_descriptor(0, 1u << 28, "none of those allowed");
  check_ranked_descriptor(0, 1u << 29, "none of those allowed");
  check_ranked_descriptor(3u << 30, 2u << 30, "none of those allowed");
  check_ranked_descriptor(3u << 30, 1u << 27, "none of those allowed");
  check_ranked_descriptor(3u << 30, 0, "a zero or raw block does not fit");
  check_ranked_descriptor(0, 3u << 30, "a zero or raw block does not fit");
  check_ranked_descriptor(0x3fff, 0x3fff, "runs past the end");
  check_ranked_descriptor(0x3fff, 1400, "sections of a ranked block");
  check_ranked_descriptor(0x3fff, 100, "sections of a ranked block");
}

int main(void) {
  TEST(impossible_codes_are_refused);
  TEST(a_tree_of_too_many_leaves_is_refused);
  TEST(a_ranked_chunk_of_version_1_is_read);
  TEST(a_false_ranked_chunk_of_version_1_is_refused);
  TEST(false_tables_are_refused);
  TEST(a_place_outside_the_dictionary_is_refused);
  TEST(a_false_descriptor_of_a_ranked_block_is_refused);
  return test_finish();
}
