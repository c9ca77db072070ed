#include "codec_hostile.h"

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

/* Damage with a right checksum: whatever the verdict, the guard pages around input and output stay
 * untouched. */
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
      {0, 'X', GPUF_ERR_CORRUPT, "byte 0:"},   {4, 0, GPUF_ERR_UNSUPPORTED, "byte 4:"},
      {5, 0, GPUF_ERR_CORRUPT, "byte 5:"},     {5, 24, GPUF_ERR_CORRUPT, "byte 5:"},
      {5, 255, GPUF_ERR_CORRUPT, "byte 5:"},   {6, 5, GPUF_ERR_CORRUPT, "byte 6:"},
      {7, 1, GPUF_ERR_CORRUPT, "byte 7:"},     {8, 4, GPUF_ERR_CORRUPT, "byte 8:"},
      {9, 0, GPUF_ERR_CORRUPT, "byte 9:"},     {9, 9, GPUF_ERR_CORRUPT, "byte 9:"},
      {10, 2, GPUF_ERR_CORRUPT, "byte 10:"},   {11, 1, GPUF_ERR_CORRUPT, "byte 11:"},
      {4, 3, GPUF_ERR_UNSUPPORTED, "byte 4:"}, {13, 1, GPUF_ERR_CORRUPT, "byte 13:"},
      {14, 1, GPUF_ERR_CORRUPT, "byte 14:"},   {15, 1, GPUF_ERR_CORRUPT, "byte 15:"},
      {16, 1, GPUF_ERR_CORRUPT, "byte 16:"},   {23, 1, GPUF_ERR_CORRUPT, "byte 16:"},
      {24, 1, GPUF_ERR_CORRUPT, "byte 24:"},   {31, 1, GPUF_ERR_CORRUPT, "byte 24:"},
      {32, 21, GPUF_ERR_CORRUPT, "byte 16:"},  {32, 0, GPUF_ERR_CORRUPT, "byte 32:"},
      {39, 255, GPUF_ERR_CORRUPT, "byte 32:"}, {40, 1, GPUF_ERR_CORRUPT, "byte 40:"},
      {63, 1, GPUF_ERR_CORRUPT, "byte 60:"},   {79, 1, GPUF_ERR_CORRUPT, "byte 79:"},
      {80, 1, GPUF_ERR_CORRUPT, "byte 80:"},
  };
  const specimen s = {{GPUF_DTYPE_INT32, 2, {20, 61}}, SMOOTH, GPUFI_MODE_W8, 0};
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

/* Change one descriptor of a W8 chunk of two blocks. */
static void check_descriptor(size_t index, uint32_t clear, uint32_t set, const char *text) {
  const specimen s = {{GPUF_DTYPE_INT32, 2, {20, 61}}, SMOOTH, GPUFI_MODE_W8, 0};
  size_t raw_nbytes, nbytes;
  const guarded chunk = make_specimen(&s, &raw_nbytes, &nbytes);
  check_changed(chunk, nbytes, raw_nbytes, GPUFI_HEADER_NBYTES + 4 * index, clear, set, text);
}

static void a_false_block_descriptor_is_refused(void) {
  check_descriptor(0, 0x3fff, 0x3fff, "byte 96: the block runs past the end");
  check_descriptor(1, 0x3fff, 0x3fff, "byte 100: the block runs past the end");
  check_descriptor(0, 0x3fff, 3, "byte 112: the block is shorter than its code table");
  check_descriptor(0, 0x3fff, 100, "byte 112: the widths of the groups do not add up");
  check_descriptor(0, 0x7fu << 14, 0, "byte 112: the block's width");
  check_descriptor(0, 0x7fu << 14, 33u << 14, "byte 112: the block's width");
  check_descriptor(0, 0x3fu << 21, 32u << 21, "byte 112: the block's shift");
  check_descriptor(0, 0, 1u << 27, "corrupt chunk at byte 1");
  check_descriptor(0, 0, 1u << 29, "byte 112: the");
  check_descriptor(0, 3u << 30, 3u << 30, "byte 112: the descriptor of a zero or raw block");
  check_descriptor(0, 3u << 30, 0, "byte 112: the descriptor of a zero or raw block");
}

/* Of a chunk whose first block has two ranges of widths: the descriptor is at byte 96 and the block
 * at 112. The other block is of the same kind. */
static void check_ranges(uint32_t clear, uint32_t set, int second, const char *text) {
  const specimen s = {{GPUF_DTYPE_UINT32, 1, {2048}}, SPIKES, GPUFI_MODE_W8, 0};
  size_t raw_nbytes, nbytes;
  const guarded chunk = make_specimen(&s, &raw_nbytes, &nbytes);
  const gpufi_block block = gpufi_block_from_word(gpufi_load_u32(chunk.data + 96));
  CHECK(block.kind == GPUFI_BLOCK_CODE4 && (block.form & GPUFI_FORM_RANGES));
  CHECK(chunk.data[112] > 0 && chunk.data[112] < block.width);
  chunk.data[112] = second < 0 ? chunk.data[112] : (uint8_t)second;
  check_changed(chunk, nbytes, raw_nbytes, 96, clear, set, text);
}

static void false_ranges_of_widths_are_refused(void) {
  check_ranges(0, 0, 0, "byte 112: the second range of the block's widths");
  check_ranges(0, 0, 32, "byte 112: the second range of the block's widths");
  check_ranges(0, 0, 255, "byte 112: the second range of the block's widths");
  check_ranges(0, 0, 1, "byte 112: a code of the block is out of range");
  check_ranges(0x7fu << 14, 1u << 14, -1, "byte 112: the second range of the block's widths");
  check_ranges(0x3fff, 64, -1, "byte 112: the block is shorter than its code table");
  check_ranges(0x3fff, 65, -1, "byte 112: the widths of the groups do not add up");
  check_ranges(1u << 29, 0, -1, "byte 112: ");
  check_ranges(3u << 30, 3u << 30, -1, "byte 112: the descriptor of a zero or raw block");
}

static void ranges_of_widths_in_version_1_are_refused(void) {
  const specimen s = {{GPUF_DTYPE_UINT32, 1, {2048}}, SPIKES, GPUFI_MODE_W8, 0};
  size_t raw_nbytes, nbytes;
  guarded chunk = make_specimen(&s, &raw_nbytes, &nbytes);
  chunk.data[GPUFI_AT_VERSION] = 1;
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), GPUF_ERR_CORRUPT,
              "byte 96: two ranges of widths in a chunk of version 1");
  guarded_free(&chunk);
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

static void fields_that_belong_to_another_mode_are_refused(void) {
  check_byte(INT64_STEPS, GPUFI_AT_LEVELS, 2, "byte 11: no such codes");
  check_byte(INT64_STEPS, GPUFI_AT_SYMBOL, 2, "byte 14: a symbol in a chunk that is not ranked");
  check_byte(INT64_STEPS, GPUFI_AT_ENTRIES, 2, "byte 12: entries of a dictionary");
  check_byte(INT64_STEPS, GPUFI_AT_TRANSFORM, 1, "byte 7: no such transform");
  check_byte(INT64_STEPS, GPUFI_AT_MODE, 3, "byte 8: an axis");
  check_byte(BFLOAT16_RANKED, GPUFI_AT_ENTRIES, 2, "byte 12: entries of a dictionary");
  check_byte(BFLOAT16_RANKED, GPUFI_AT_TRANSFORM, 1, "byte 7: no such transform");
  check_byte(BFLOAT16_RANKED, GPUFI_AT_TRANSFORM, 4, "byte 7: no such transform");
  check_byte(BFLOAT16_RANKED, GPUFI_AT_AXES, 1, "byte 8: an axis");
  check_byte(BFLOAT16_RANKED, GPUFI_AT_SEED + 12, 1, "byte 76: an unused seed byte");
  check_byte(BFLOAT16_RANKED, GPUFI_AT_SEED + 15, 1, "byte 79: an unused seed byte");
  check_byte(FLOAT64_PLACES, GPUFI_AT_SEED + 1, 1, "byte 65: an unused seed byte");
  check_byte(FLOAT64_PLACES, GPUFI_AT_OFFSET + 1, 1, "byte 73: an unused seed byte");
}

static void a_base_where_there_can_be_none_is_refused(void) {
  check_byte(INT64_STEPS, GPUFI_AT_SHIFT, 2, "byte 13: no such shift");
  check_byte(INT64_STEPS, GPUFI_AT_FLAGS, 2, "byte 10: a flag");
  check_byte(INT64_STEPS, GPUFI_AT_FLAGS, 10, "byte 10: a flag");
  check_byte(INT64_STEPS, GPUFI_AT_TRANSFORM, 4, "byte 7: no such transform");
  check_byte(BFLOAT16_RANKED, GPUFI_AT_FLAGS, 2, "byte 10: a flag");
  check_byte(FLOAT64_PLACES, GPUFI_AT_SHIFT, 2, "byte 13: no such shift");
  check_byte(FLOAT64_PLACES, GPUFI_AT_FLAGS, 2, "byte 10: a flag");
  check_byte(FLOAT64_RAMPS, GPUFI_AT_SHIFT, 2, "byte 13: no such shift");
  check_byte(FLOAT64_RAMPS, GPUFI_AT_FLAGS, 2, "byte 10: a flag");
  check_byte(FLOAT64_DECIMALS, GPUFI_AT_SHIFT, 2, "byte 13: no such shift");
  check_byte(FLOAT64_DECIMALS, GPUFI_AT_FLAGS, 8, "byte 10: a flag");
  check_byte(FLOAT64_DECIMALS, GPUFI_AT_FLAGS, 14, "byte 10: a flag");
  check_byte(FLOAT64_DECIMALS, GPUFI_AT_TRANSFORM, 6, "byte 7: no such transform");
  check_byte(FLOAT64_NARROW, GPUFI_AT_SHIFT, 63, "byte 13: no such shift");
  check_byte(FLOAT64_NARROW, GPUFI_AT_FLAGS, 4, "byte 10: a flag");
  check_byte(FLOAT64_DECIMALS, GPUFI_AT_VERSION, 1, "byte 7: no such transform");
  check_byte(FLOAT64_NARROW, GPUFI_AT_VERSION, 1, "byte 13: no such shift");
}

/* Put `value` in place of the parameter at byte `at` of specimen `index`, and decode. */
static void check_parameter(size_t index, size_t at, double value) {
  size_t raw_nbytes, nbytes;
  guarded chunk = make_specimen(&specimens[index], &raw_nbytes, &nbytes);
  memcpy(chunk.data + at, &value, sizeof(value));
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), GPUF_ERR_CORRUPT,
              "byte 96: the parameters of the transform are not in their range");
  guarded_free(&chunk);
}

static void parameters_out_of_range_are_refused(void) {
  static const double wrong[] = {0.0, -0.0, -1.0, 0x1p-61, 0x1p61, 0x1p-1030, INFINITY, NAN};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
    check_parameter(FLOAT64_DECIMALS, 96, wrong[i]);
    check_parameter(FLOAT32_UNPACKED, 96, wrong[i]);
  }
  for (size_t i = 3; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
    check_parameter(FLOAT32_UNPACKED, 104, wrong[i]);
    check_parameter(FLOAT32_UNPACKED, 104, -wrong[i]);
  }
  check_parameter(FLOAT32_UNPACKED, 104, -0.0);
  check_parameter(FLOAT64_DECIMALS, 104, 1.0);
}

/* Transform single has the parameters of linear if these are floats. */
static void parameters_wider_than_single_are_refused(void) {
  size_t raw_nbytes, nbytes;
  guarded chunk = make_specimen(&specimens[FLOAT32_UNPACKED], &raw_nbytes, &nbytes);
  const double narrow[2] = {0.25, 26.96875}, wide[2] = {0.1, 26.96875};
  chunk.data[GPUFI_AT_TRANSFORM] = GPUFI_TRANSFORM_SINGLE;
  memcpy(chunk.data + 96, wide, sizeof(wide));
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), GPUF_ERR_CORRUPT, "byte 96: the parameters");
  memcpy(chunk.data + 96, narrow, sizeof(narrow));
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_OK(decode(chunk.data, nbytes, raw_nbytes));
  guarded_free(&chunk);
}

/* The last byte of a specimen's parameters with a fill, which is one of a float64: NaN. */
static void a_false_fill_is_refused(void) {
  size_t raw_nbytes, nbytes;
  guarded chunk = make_specimen(&specimens[FLOAT64_DECIMALS], &raw_nbytes, &nbytes);
  CHECK(chunk.data[GPUFI_AT_FLAGS] == (GPUFI_FLAG_CORRECTIONS | GPUFI_FLAG_FILL));
  CHECK(chunk.data[96 + 23] == 0x7f);
  chunk.data[96 + 24] = 1;
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), GPUF_ERR_CORRUPT, "byte 120: a padding");
  guarded_free(&chunk);
}

/* The descriptors of the corrections come after those of the values. */
static void a_false_descriptor_of_corrections_is_refused(void) {
  size_t raw_nbytes, nbytes;
  guarded chunk = make_specimen(&specimens[FLOAT64_DECIMALS], &raw_nbytes, &nbytes);
  const size_t first = 96 + 32, blocks = 2;
  check_changed(chunk, nbytes, raw_nbytes, first + 4 * blocks, 0x3fff, 0x3fff,
                "byte 136: the block runs past the end");
  chunk = make_specimen(&specimens[FLOAT64_DECIMALS], &raw_nbytes, &nbytes);
  check_changed(chunk, nbytes, raw_nbytes, first + 4 * blocks + 4, 0x3fff, 0x3fff,
                "byte 140: the block runs past the end");
  chunk = make_specimen(&specimens[FLOAT64_DECIMALS], &raw_nbytes, &nbytes);
  check_changed(chunk, nbytes, raw_nbytes, first + 4 * blocks, 0x7fu << 14, 0x7fu << 14, "corrupt");
}

static void bits_below_the_shift_are_refused(void) {
  size_t raw_nbytes, nbytes;
  guarded chunk = make_specimen(&specimens[FLOAT64_NARROW], &raw_nbytes, &nbytes);
  CHECK(chunk.data[GPUFI_AT_SHIFT] == 32);
  check_changed(chunk, nbytes, raw_nbytes, 96, 0x3fu << 21, 31u << 21,
                "a residual has bits below the chunk's shift");
  chunk = make_specimen(&specimens[FLOAT64_NARROW], &raw_nbytes, &nbytes);
  CHECK(chunk.data[GPUFI_AT_AXES] == 1);
  chunk.data[GPUFI_AT_SEED + 3] |= 0x80;
  gpufi_codec_seal(chunk.data, nbytes);
  CHECK_FAILS(decode(chunk.data, nbytes, raw_nbytes), GPUF_ERR_CORRUPT,
              "byte 64: the seed has bits below the chunk's shift");
  guarded_free(&chunk);
}

/* Symbol and tree of a ranked chunk. */
int main(void) {
  TEST(a_truncated_chunk_is_refused);
  TEST(a_truncated_and_resealed_chunk_is_refused);
  TEST(bytes_after_the_chunk_are_refused);
  TEST(every_flipped_bit_is_refused);
  TEST(sealed_damage_stays_inside_the_buffers);
  TEST(each_false_header_field_is_named);
  TEST(a_wrong_output_size_is_refused);
  TEST(a_false_block_descriptor_is_refused);
  TEST(false_ranges_of_widths_are_refused);
  TEST(ranges_of_widths_in_version_1_are_refused);
  TEST(padding_that_is_not_zero_is_refused);
  TEST(fields_that_belong_to_another_mode_are_refused);
  TEST(a_base_where_there_can_be_none_is_refused);
  TEST(parameters_out_of_range_are_refused);
  TEST(parameters_wider_than_single_are_refused);
  TEST(a_false_fill_is_refused);
  TEST(a_false_descriptor_of_corrections_is_refused);
  TEST(bits_below_the_shift_are_refused);
  return test_finish();
}
