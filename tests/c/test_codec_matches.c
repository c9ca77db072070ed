/* False chunks of mode matches, and of planes, are refused. */
#include "base/arithmetic.h"
#include "codec_fixture.h"

typedef struct specimen {
  gpufi_chunk_shape shape;
  pattern kind;
  int mode, flags;
} specimen;

static const specimen idle = {{GPUF_DTYPE_INT32, 1, {1703}}, IDLE, GPUFI_MODE_MATCHES, 0};
static const specimen period = {{GPUF_DTYPE_UINT64, 1, {4500}}, PERIOD, GPUFI_MODE_MATCHES, 0};
static const specimen ramps = {{GPUF_DTYPE_FLOAT64, 1, {5000}}, RAMPS, GPUFI_MODE_MATCHES, 0};
static const specimen planes = {
    {GPUF_DTYPE_FLOAT32, 3, {30, 1, 7}}, SMOOTH, GPUFI_MODE_W8, GPUFI_FLAG_PLANES};
static const specimen steps = {{GPUF_DTYPE_INT64, 1, {300}}, STEPS, GPUFI_MODE_W8, 0};

static guarded make_chunk(const specimen *s, size_t *raw_nbytes, size_t *encoded_nbytes) {
  guarded encoded = encode_pattern(&s->shape, s->kind, raw_nbytes, encoded_nbytes);
  CHECK(encoded.data[GPUFI_AT_MODE] == s->mode);
  CHECK(encoded.data[GPUFI_AT_FLAGS] == s->flags);
  return encoded;
}

/* Change one byte, seal the chunk, and decode it. */
static void check_byte(const specimen *s, size_t at, uint8_t value, const char *text) {
  size_t raw_nbytes, nbytes;
  guarded chunk = make_chunk(s, &raw_nbytes, &nbytes);
  CHECK(chunk.data[at] != value);
  chunk.data[at] = value;
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), GPUF_ERR_CORRUPT, text);
  guarded_free(&chunk);
}

static void fields_that_belong_to_another_mode_are_refused(void) {
  check_byte(&idle, GPUFI_AT_ENTRIES, 2, "byte 12: entries of a dictionary");
  check_byte(&idle, GPUFI_AT_TRANSFORM, 1, "byte 7: no such transform");
  check_byte(&idle, GPUFI_AT_TRANSFORM, 3, "byte 7: no such transform");
  check_byte(&idle, GPUFI_AT_AXES, 2, "byte 8: an axis");
  check_byte(&idle, GPUFI_AT_FLAGS, 2, "byte 10: a flag");
  check_byte(&idle, GPUFI_AT_SHIFT, 1, "byte 13: no such shift");
  check_byte(&idle, GPUFI_AT_SEED, 1, "byte 64: an unused seed byte");
  check_byte(&idle, GPUFI_AT_OFFSET + 4, 1, "byte 76: an unused seed byte");
  check_byte(&idle, GPUFI_AT_VERSION, 1, "byte 6: no such mode");
}

static void false_blocks_of_matches_are_refused(void) {
  check_byte(&idle, GPUFI_AT_LEVELS, 0xe3, "byte 11: no such codes or blocks");
  check_byte(&idle, GPUFI_AT_LEVELS, 0xb1, "byte 11: no such codes or blocks");
  check_byte(&idle, GPUFI_AT_LEVELS, 0xf1, "byte 11: no such codes or blocks");
  check_byte(&idle, GPUFI_AT_LEVELS, 0xc1, "corrupt chunk at byte");
  /* Three blocks: their sizes, 4 bytes of padding, the first block. */
  check_byte(&period, 96 + 3, 1, "byte 96: the block is empty or runs past the end");
  check_byte(&period, 100 + 3, 1, "byte 100: the block is empty or runs past the end");
  check_byte(&period, 96 + 12, 1, "byte 108: a padding byte is not 0");
  check_byte(&period, 112, 0x10, "corrupt chunk at byte 11");
  for (size_t k = 0; k < 3; k++) {
    size_t raw_nbytes, nbytes;
    guarded chunk = make_chunk(&period, &raw_nbytes, &nbytes);
    const uint32_t none = 0;
    memcpy(chunk.data + GPUFI_HEADER_NBYTES + 4 * k, &none, sizeof(none));
    gpufi_codec_seal(chunk.data, nbytes);
    CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), GPUF_ERR_CORRUPT, "the block is empty");
    guarded_free(&chunk);
  }
}

/* The second block's first match, made to begin before the first block, or where that does. */
static void a_match_before_the_first_block_is_refused(void) {
  size_t raw_nbytes, nbytes;
  guarded chunk = make_chunk(&period, &raw_nbytes, &nbytes);
  const uint32_t first_nbytes = gpufi_load_u32(chunk.data + GPUFI_HEADER_NBYTES);
  uint8_t *const second = chunk.data + GPUFI_HEADER_NBYTES + 16 + first_nbytes;
  const uint8_t literals = second[0] >> 4;
  CHECK(literals < 15);
  uint8_t *const offset = second + 1 + literals; /* it may be 16,384 and the literals at most */
  offset[0] = literals + 1;
  offset[1] = 0x40;
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), GPUF_ERR_CORRUPT,
              "an offset points before the block");
  offset[0] = literals; /* other values than those that were encoded, but a block */
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_OK(decode(chunk.data, nbytes, raw_nbytes));
  guarded_free(&chunk);
}

static void a_seed_and_a_first_residual_are_refused_together(void) {
  size_t raw_nbytes, nbytes;
  guarded chunk = make_chunk(&ramps, &raw_nbytes, &nbytes);
  const size_t blocks = 3, first = GPUFI_HEADER_NBYTES + gpufi_round_up_16(4 * blocks);
  uint8_t *const token = chunk.data + first;
  CHECK(*token >> 4 >= 1 && token[1] == 0); /* the first residual begins with a literal */
  token[1] = 1;
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), GPUF_ERR_CORRUPT,
              "the first element has both a seed and a residual");
  guarded_free(&chunk);
}

static void planes_of_no_axis_are_refused(void) {
  const size_t last = GPUFI_AT_DIMS + 8;
  size_t raw_nbytes, nbytes;
  guarded chunk = make_chunk(&planes, &raw_nbytes, &nbytes);
  CHECK(chunk.data[GPUFI_AT_DIMS] == 30 && chunk.data[last] == 7);
  CHECK_OK(decode(chunk.data, nbytes, raw_nbytes));
  chunk.data[GPUFI_AT_AXES] = 0;
  chunk.data[GPUFI_AT_DIMS] = 1; /* the last axis alone is longer than 1 */
  chunk.data[last] = 210;
  memset(chunk.data + GPUFI_AT_SEED, 0, 16);
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), GPUF_ERR_CORRUPT, "byte 10: a flag");
  chunk.data[GPUFI_AT_DIMS] = 3; /* 70 components are too many */
  chunk.data[last] = 70;
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), GPUF_ERR_CORRUPT, "byte 10: a flag");
  guarded_free(&chunk);
  check_byte(&steps, GPUFI_AT_FLAGS, GPUFI_FLAG_PLANES, "byte 10: a flag");
  check_byte(&planes, GPUFI_AT_VERSION, 1, "byte 10: a flag");
}

int main(void) {
  TEST(fields_that_belong_to_another_mode_are_refused);
  TEST(false_blocks_of_matches_are_refused);
  TEST(a_match_before_the_first_block_is_refused);
  TEST(a_seed_and_a_first_residual_are_refused_together);
  TEST(planes_of_no_axis_are_refused);
  return test_finish();
}
