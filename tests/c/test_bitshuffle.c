/* LZ4 blocks and bitshuffle chunks: what goes in comes out, and untrusted bytes do no harm. */
#include "codec/bitshuffle.h"
#include "codec/lz4.h"
#include "guarded.h"
#include "test.h"

static gpuf_error err;

static uint64_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

/* Bytes that repeat now and then, as `kind` says: 0 noise, 1 one value, 2 runs, 3 a slow ramp. */
static void fill(uint8_t *bytes, size_t nbytes, int kind, uint64_t seed) {
  uint64_t state = seed;
  for (size_t i = 0; i < nbytes; i++) {
    const uint8_t drawn = (uint8_t)next_random(&state);
    bytes[i] = kind == 0   ? drawn
               : kind == 1 ? 0x3c
               : kind == 2 ? (drawn % 16 || i < 9 ? bytes[i > 8 ? i - 9 : 0] : drawn)
                           : (uint8_t)(i / 37);
  }
}

/* --- LZ4 --- */

static void check_block(size_t nbytes, int kind) {
  guarded raw = guarded_alloc(nbytes, 1), encoded = guarded_alloc(gpufi_lz4_bound(nbytes), 1);
  fill(raw.data, nbytes, kind, nbytes + 1);
  const size_t used = gpufi_lz4_encode(raw.data, nbytes, encoded.data);
  CHECK(used <= gpufi_lz4_bound(nbytes));
  CHECK(kind != 1 || nbytes < 100 || used < 20 + nbytes / 250);
  guarded exact = guarded_alloc(used, 1), back = guarded_alloc(nbytes, 1);
  memcpy(exact.data, encoded.data, used);
  CHECK_OK(gpufi_lz4_decode(exact.data, used, 0, 0, back.data, nbytes, &err));
  CHECK(memcmp(back.data, raw.data, nbytes) == 0);
  guarded_free(&raw);
  guarded_free(&encoded);
  guarded_free(&exact);
  guarded_free(&back);
}

static void blocks_of_every_size_come_back_and_stay_inside_their_buffers(void) {
  for (int kind = 0; kind < 4; kind++) {
    for (size_t nbytes = 1; nbytes < 300; nbytes++) {
      check_block(nbytes, kind);
    }
    check_block(8192, kind);
    check_block(GPUFI_LZ4_RAW_NBYTES_MAX, kind);
  }
}

/* A block by the words of the format: "abcd" 5 times, then its last five bytes as literals. */
static void a_block_written_by_hand_is_read(void) {
  static const uint8_t block[] = {0x4c, 'a', 'b', 'c', 'd', 4, 0, 0x50, 'v', 'w', 'x', 'y', 'z'};
  char out[25];
  CHECK_OK(gpufi_lz4_decode(block, sizeof(block), 0, 0, (uint8_t *)out, sizeof(out), &err));
  CHECK(memcmp(out, "abcdabcdabcdabcdabcdvwxyz", 25) == 0);
}

static void the_end_of_a_block_is_as_every_decoder_relies_on(void) {
  uint8_t raw[200], encoded[300];
  fill(raw, sizeof(raw), 1, 0);
  for (size_t nbytes = 1; nbytes <= sizeof(raw); nbytes++) {
    const size_t used = gpufi_lz4_encode(raw, nbytes, encoded);
    CHECK(nbytes >= 13 || used == nbytes + 1); /* too short for a match: one token, literals */
    CHECK(nbytes < 13 || used < nbytes);
    CHECK(nbytes < 13 || encoded[used - 6] == 0x50); /* the last sequence: five literals */
  }
}

/* Encoded after another one, a block may have matches in it, and is decoded after it. */
static void a_block_may_have_matches_in_the_one_before(void) {
  for (int kind = 0; kind < 4; kind++) {
    for (size_t begin = 1; begin < 5000; begin += 611) {
      for (size_t nbytes = 1; nbytes < 5000; nbytes += 457) {
        guarded raw = guarded_alloc(begin + nbytes, 1), back = guarded_alloc(begin + nbytes, 1);
        guarded encoded = guarded_alloc(gpufi_lz4_bound(nbytes), 1);
        gpufi_lz4_table table = {{0}};
        uint8_t *const first = malloc(gpufi_lz4_bound(begin));
        fill(raw.data, begin, kind, begin);
        for (size_t i = 0; i < nbytes; i++) {
          raw.data[begin + i] = raw.data[i % begin];
        }
        gpufi_lz4_encode_after(&table, raw.data, 0, begin, first);
        const size_t used =
            gpufi_lz4_encode_after(&table, raw.data, begin, begin + nbytes, encoded.data);
        CHECK(begin < 700 || nbytes < 900 || used < nbytes / 8 + 100);
        memcpy(back.data, raw.data, begin);
        CHECK_OK(gpufi_lz4_decode(encoded.data, used, 0, begin, back.data + begin, nbytes, &err));
        CHECK(memcmp(back.data, raw.data, begin + nbytes) == 0);
        free(first);
        guarded_free(&raw);
        guarded_free(&back);
        guarded_free(&encoded);
      }
    }
  }
}

static void false_blocks_are_refused_with_their_offset(void) {
  static const struct {
    uint8_t bytes[8];
    size_t nbytes, raw_nbytes;
    const char *message;
  } cases[] = {
      {{0}, 0, 5, "the block is empty"},
      {{0x50, 1, 2}, 3, 5, "byte 1001: literals run past the end of the block"},
      {{0x50, 1, 2, 3, 4, 5}, 6, 4, "literals run past the end of the decoded block"},
      {{0x30, 1, 2, 3}, 4, 4, "the block ends too early"},
      {{0xf0, 255, 255}, 3, 900, "byte 1003: a length runs past the end"},
      {{0x10, 1, 0, 0, 0x10, 2}, 6, 9, "an offset points before the block"},
      {{0x10, 1, 2, 0, 0x10, 2}, 6, 9, "an offset points before the block"},
      {{0x10, 1, 1, 0, 0x10, 2}, 6, 4, "a match runs past the end of the decoded block"},
      {{0x10, 1, 1}, 3, 9, "an offset runs past the end of the block"},
      {{0x10, 1, 1, 0}, 4, 5, "the block ends with a match"},
      {{0x1f, 1, 1, 0, 255}, 5, 900, "a length runs past the end"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    guarded in = guarded_alloc(cases[i].nbytes, 1), out = guarded_alloc(cases[i].raw_nbytes, 1);
    memcpy(in.data, cases[i].bytes, cases[i].nbytes);
    CHECK_FAILS(
        gpufi_lz4_decode(in.data, cases[i].nbytes, 1000, 0, out.data, cases[i].raw_nbytes, &err),
        GPUF_ERR_CORRUPT, cases[i].message);
    guarded_free(&in);
    guarded_free(&out);
  }
}

/* --- Bitshuffle --- */

typedef struct coded {
  guarded raw, encoded, scratch, back;
  size_t used;
} coded;

static coded encode(size_t element_nbytes, size_t count, int kind) {
  const size_t nbytes = element_nbytes * count;
  coded c = {guarded_alloc(nbytes, 1), {0}, guarded_alloc(nbytes, 1), guarded_alloc(nbytes, 1), 0};
  guarded all = guarded_alloc(gpufi_bitshuffle_bound(element_nbytes, nbytes), 1);
  fill(c.raw.data, nbytes, kind, count);
  c.used = gpufi_bitshuffle_encode(element_nbytes, c.raw.data, nbytes, all.data, c.scratch.data);
  c.encoded = guarded_alloc(c.used, 1);
  memcpy(c.encoded.data, all.data, c.used);
  guarded_free(&all);
  return c;
}

static void coded_free(coded *c) {
  guarded_free(&c->raw);
  guarded_free(&c->encoded);
  guarded_free(&c->scratch);
  guarded_free(&c->back);
}

static void chunks_of_every_element_size_come_back(void) {
  static const size_t elements[] = {1, 2, 3, 4, 8, 12, 16, 64};
  static const size_t counts[] = {1, 7, 8, 9, 127, 1024, 1030, 5000};
  for (size_t e = 0; e < sizeof(elements) / sizeof(elements[0]); e++) {
    for (size_t n = 0; n < sizeof(counts) / sizeof(counts[0]); n++) {
      for (int kind = 0; kind < 4; kind++) {
        const size_t nbytes = elements[e] * counts[n];
        coded c = encode(elements[e], counts[n], kind);
        CHECK(c.used <= gpufi_bitshuffle_bound(elements[e], nbytes));
        CHECK_OK(gpufi_bitshuffle_decode(elements[e], c.encoded.data, c.used, c.back.data, nbytes,
                                         c.scratch.data, &err));
        CHECK(memcmp(c.back.data, c.raw.data, nbytes) == 0);
        coded_free(&c);
      }
    }
  }
}

/* 8 elements of 2 bytes: element i is 1 << i, so bit plane i is 1 << i too, for the low bytes. */
static void bit_planes_are_where_the_filter_has_them(void) {
  uint8_t raw[16] = {0}, encoded[64], scratch[16], planes[16];
  for (int i = 0; i < 8; i++) {
    raw[2 * i] = (uint8_t)(1 << i);
    raw[2 * i + 1] = i == 3 ? 0x80 : 0;
  }
  const size_t used = gpufi_bitshuffle_encode(2, raw, 16, encoded, scratch);
  CHECK(memcmp(encoded, (uint8_t[]){0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0x20, 0}, 12) == 0);
  CHECK(used == 12 + 4 + (size_t)encoded[15]);
  CHECK_OK(gpufi_lz4_decode(encoded + 16, used - 16, 16, 0, planes, 16, &err));
  for (int i = 0; i < 8; i++) {
    CHECK(planes[i] == 1 << i);
    CHECK(planes[8 + i] == (i == 7 ? 1 << 3 : 0));
  }
}

/* The same bit by bit, for numbers of groups that vectors of them do and do not divide. */
static void every_bit_of_every_group_is_in_its_plane(void) {
  static const size_t elements[] = {1, 2, 4, 8, 12, 16};
  for (size_t e = 0; e < sizeof(elements) / sizeof(elements[0]); e++) {
    for (size_t groups = 1; groups < 64; groups += 6) {
      const size_t size = elements[e], nbytes = 8 * groups * size;
      uint8_t planes[64 * 8 * 16];
      coded c = encode(size, 8 * groups, 0);
      CHECK_OK(gpufi_lz4_decode(c.encoded.data + 16, c.used - 16, 16, 0, planes, nbytes, &err));
      for (size_t bit = 0; bit < 8 * nbytes; bit++) {
        const size_t element = bit / (8 * size), in_element = bit % (8 * size);
        const int is_set = planes[in_element * groups + element / 8] >> element % 8 & 1;
        CHECK(is_set == (c.raw.data[bit / 8] >> bit % 8 & 1));
      }
      coded_free(&c);
    }
  }
}

static void every_truncation_is_refused(void) {
  coded c = encode(4, 3001, 2);
  for (size_t nbytes = 0; nbytes < c.used; nbytes += nbytes < 40 || nbytes > c.used - 40 ? 1 : 61) {
    guarded cut = guarded_alloc(nbytes, 1);
    memcpy(cut.data, c.encoded.data, nbytes);
    CHECK_FAILS(
        gpufi_bitshuffle_decode(4, cut.data, nbytes, c.back.data, 12004, c.scratch.data, &err),
        GPUF_ERR_CORRUPT, "");
    guarded_free(&cut);
  }
  coded_free(&c);
}

static void altered_bytes_stay_inside_the_buffers(void) {
  coded c = encode(4, 3001, 2);
  uint64_t state = 5;
  for (int turn = 0; turn < 20000; turn++) {
    const size_t at = turn < 400 ? (size_t)turn / 8 : next_random(&state) % c.used;
    const uint8_t before = c.encoded.data[at];
    c.encoded.data[at] ^= (uint8_t)(1 << next_random(&state) % 8);
    gpufi_bitshuffle_decode(4, c.encoded.data, c.used, c.back.data, 12004, c.scratch.data, &err);
    c.encoded.data[at] = before;
  }
  CHECK_OK(
      gpufi_bitshuffle_decode(4, c.encoded.data, c.used, c.back.data, 12004, c.scratch.data, &err));
  coded_free(&c);
}

static void false_headers_are_refused(void) {
  static const struct {
    size_t at;
    uint8_t byte;
    const char *message;
  } cases[] = {
      {0, 1, "decodes to 72057594037939940 bytes, but 12004 are expected"},
      {7, 0, "but 12004 are expected"},
      {11, 4, "byte 8: a block of 8196 bytes is not a multiple"},
      {10, 0, "byte 8: a block of 0 bytes"},
      {12, 0x7f, "byte 12: the block runs past the end of the chunk"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    coded c = encode(4, 3001, 2);
    c.encoded.data[cases[i].at] = cases[i].byte;
    CHECK_FAILS(gpufi_bitshuffle_decode(4, c.encoded.data, c.used, c.back.data, 12004,
                                        c.scratch.data, &err),
                GPUF_ERR_CORRUPT, cases[i].message);
    coded_free(&c);
  }
}

int main(void) {
  TEST(blocks_of_every_size_come_back_and_stay_inside_their_buffers);
  TEST(a_block_written_by_hand_is_read);
  TEST(the_end_of_a_block_is_as_every_decoder_relies_on);
  TEST(a_block_may_have_matches_in_the_one_before);
  TEST(false_blocks_are_refused_with_their_offset);
  TEST(chunks_of_every_element_size_come_back);
  TEST(bit_planes_are_where_the_filter_has_them);
  TEST(every_bit_of_every_group_is_in_its_plane);
  TEST(every_truncation_is_refused);
  TEST(altered_bytes_stay_inside_the_buffers);
  TEST(false_headers_are_refused);
  return test_finish();
}
