/* Every implementation of the codec that this CPU can run, against the scalar one: the same bytes
 * when encoding, the same verdict, message and bytes when decoding. */
#include "codec/bytes.h"
#include "codec/codec.h"
#include "codec/cpu.h"
#include "codec/geometry.h"
#include "guarded.h"
#include "test.h"

static gpuf_error err;

static uint64_t random_state = 0x13198a2e03707344u;

static uint64_t random_u64(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state * 0x2545f4914f6cdd1du;
}

static size_t random_below(size_t end) {
  return (size_t)(random_u64() % end);
}

/* --- random chunks --- */

static size_t value_nbytes_of(gpuf_dtype dtype) {
  const size_t nbytes = gpufi_chunk_element_nbytes(dtype);
  return dtype == GPUF_DTYPE_COMPLEX64 || dtype == GPUF_DTYPE_COMPLEX128 ? nbytes / 2 : nbytes;
}

/* Up to about 8,000 elements; long and short last axes, and axes of 1. */
static gpufi_chunk_shape random_shape(void) {
  gpufi_chunk_shape shape = {.dtype = (gpuf_dtype)(1 + random_below(GPUF_DTYPE_MAX)),
                             .ndim = 1 + (int32_t)random_below(5)};
  static const uint32_t reach[] = {2, 4, 12, 70, 300, 5000};
  size_t count = 1;
  for (int32_t a = shape.ndim - 1; a >= 0; a--) {
    uint32_t dim = 1 + (uint32_t)random_below(reach[random_below(6)]);
    dim = count * dim > 8000 ? 1 + (uint32_t)(8000 / count) : dim;
    shape.dims[a] = dim;
    count *= dim;
  }
  return shape;
}

/* Noise under a top byte of few, uneven values, as floats of one magnitude have. */
static uint64_t skewed(unsigned bits) {
  const uint64_t top = 0x3f - (uint64_t)__builtin_ctzll(random_u64() | 1u << 6);
  return (random_u64() >> 8 | top << 56) >> (64 - bits);
}

/* Sums of ramps along the array, noise of a width that changes, zeros, and common trailing zeros;
 * or noise as of floats; and values of any size now and then: between them all modes and kinds of
 * block, and most predictors. */
static void fill_random(uint8_t *raw, size_t raw_nbytes, size_t value_nbytes) {
  const unsigned bits = 8 * (unsigned)value_nbytes;
  const unsigned trailing = random_below(3) == 0 ? (unsigned)random_below(bits) : 0;
  const unsigned noise = (unsigned)random_below(bits + 1), period = 1 + (unsigned)random_below(400);
  const uint64_t slope = random_below(3) == 0 ? 0 : random_u64() >> random_below(64);
  const unsigned gap = (unsigned)random_below(5) == 0 ? 700 : 0;
  const bool varies = random_below(2) == 0, floats = random_below(6) == 0;
  const uint64_t zeros = random_below(4) == 0 ? 1 + random_below(20) : 1;
  const uint64_t spikes = random_below(5) == 0 ? 30 + random_below(900) : 0;
  for (size_t i = 0; i * value_nbytes < raw_nbytes; i++) {
    const unsigned here = varies ? (unsigned)(i / 8 % (noise + 1)) : noise;
    uint64_t x = i % period * slope + (here ? random_u64() >> (64 - here) : 0);
    x = floats ? skewed(bits) : (gap && i / gap % 3 == 1) ? 0 : x << trailing;
    x = random_u64() % zeros == 0 ? x : 0;
    x = spikes != 0 && random_u64() % spikes == 0 ? random_u64() : x;
    memcpy(raw + i * value_nbytes, &x, value_nbytes);
  }
}

typedef struct chunk {
  gpufi_chunk_shape shape;
  size_t raw_nbytes, nbytes;
  uint8_t *raw, *encoded; /* encoded by the scalar code */
  bool big_endian;
} chunk;

/* `out` holds the bound; returns the size. */
static size_t encode_with(const gpufi_cpu *cpu, const chunk *c, const uint8_t *raw, uint8_t *out) {
  size_t nbytes = 0;
  void *scratch = aligned_alloc(64, (gpufi_codec_scratch_nbytes(&c->shape) + 63) & ~(size_t)63);
  gpufi_cpu_use(cpu);
  const gpuf_status status = (c->big_endian ? gpufi_codec_encode_big_endian : gpufi_codec_encode)(
      &c->shape, raw, out, gpufi_codec_bound(c->raw_nbytes), &nbytes, scratch, &err);
  free(scratch);
  CHECK(status == GPUF_OK);
  return nbytes;
}

static chunk random_chunk(void) {
  chunk c = {.shape = random_shape(), .big_endian = random_below(4) == 0};
  CHECK_OK(gpufi_chunk_raw_nbytes(&c.shape, &c.raw_nbytes, &err));
  c.raw = malloc(c.raw_nbytes);
  c.encoded = malloc(gpufi_codec_bound(c.raw_nbytes));
  fill_random(c.raw, c.raw_nbytes, value_nbytes_of(c.shape.dtype));
  c.nbytes = encode_with(&gpufi_cpu_scalar, &c, c.raw, c.encoded);
  return c;
}

static void free_chunk(chunk *c) {
  free(c->raw);
  free(c->encoded);
}

/* --- comparisons --- */

static void check_encoders(const chunk *c) {
  const gpufi_cpu *cpu;
  for (size_t i = 1; (cpu = gpufi_cpu_at(i)) != NULL; i++) {
    for (int at_end = 0; at_end < 2; at_end++) {
      guarded in = guarded_alloc(c->raw_nbytes, at_end);
      guarded out = guarded_alloc(gpufi_codec_bound(c->raw_nbytes), at_end);
      memcpy(in.data, c->raw, c->raw_nbytes);
      const size_t nbytes = encode_with(cpu, c, in.data, out.data);
      CHECK(nbytes == c->nbytes && memcmp(out.data, c->encoded, nbytes) == 0);
      guarded_free(&in);
      guarded_free(&out);
    }
  }
}

/* Decode any bytes with `cpu` between guard pages. `raw` takes what a chunk that was accepted
 * holds, and `err` the message. */
static gpuf_status decode_with(const gpufi_cpu *cpu, const uint8_t *encoded, size_t nbytes,
                               uint8_t *raw, size_t raw_nbytes, int at_end) {
  guarded in = guarded_alloc(nbytes, at_end), out = guarded_alloc(raw_nbytes, at_end);
  memcpy(in.data, encoded, nbytes);
  gpufi_cpu_use(cpu);
  const gpuf_status status = gpufi_codec_decode(in.data, nbytes, out.data, raw_nbytes, &err);
  memcpy(raw, out.data, raw_nbytes);
  guarded_free(&in);
  guarded_free(&out);
  return status;
}

static void check_decoders(const uint8_t *encoded, size_t nbytes, size_t raw_nbytes) {
  const gpufi_cpu *cpu;
  uint8_t *const want = malloc(raw_nbytes), *const raw = malloc(raw_nbytes);
  gpuf_error first = {0};
  const gpuf_status verdict = decode_with(&gpufi_cpu_scalar, encoded, nbytes, want, raw_nbytes, 1);
  if (verdict != GPUF_OK) {
    first = err;
  }
  for (size_t i = 1; (cpu = gpufi_cpu_at(i)) != NULL; i++) {
    for (int at_end = 0; at_end < 2; at_end++) {
      CHECK(decode_with(cpu, encoded, nbytes, raw, raw_nbytes, at_end) == verdict);
      CHECK(verdict != GPUF_OK || memcmp(raw, want, raw_nbytes) == 0);
      CHECK(verdict == GPUF_OK || strcmp(err.message, first.message) == 0);
    }
  }
  free(want);
  free(raw);
}

/* --- tests --- */

/* Bits for the modes, and for the forms of blocks of W8 without a dictionary. */
static unsigned features(const chunk *c) {
  const unsigned mode = c->encoded[GPUFI_AT_MODE];
  const bool dictionary = c->encoded[GPUFI_AT_TRANSFORM] == GPUFI_TRANSFORM_DICTIONARY;
  const bool planes = (c->encoded[GPUFI_AT_FLAGS] & GPUFI_FLAG_PLANES) != 0;
  unsigned seen = 1u << mode | (unsigned)dictionary << 12 | (unsigned)planes << 13;
  if (mode == GPUFI_MODE_W8 && !dictionary) {
    gpufi_geometry g;
    gpufi_geometry_init(&g, &c->shape);
    for (size_t b = 0; b < gpufi_block_count(&g); b++) {
      const gpufi_block block =
          gpufi_block_from_word(gpufi_load_u32(c->encoded + GPUFI_HEADER_NBYTES + 4 * b));
      const bool ranges = block.kind == GPUFI_BLOCK_CODE4 && (block.form & GPUFI_FORM_RANGES);
      seen |= (ranges ? 1u << 14 : block.form << 5) | 1u << (8 + block.kind);
    }
  }
  return seen;
}

static void random_chunks_encode_to_the_same_bytes_and_back(void) {
  unsigned seen = 0;
  for (int round = 0; round < 2000; round++) {
    chunk c = random_chunk();
    seen |= features(&c);
    check_encoders(&c);
    check_decoders(c.encoded, c.nbytes, c.raw_nbytes);
    free_chunk(&c);
  }
  /* five modes, four forms, four kinds of block, dictionaries, planes */
  CHECK(seen == 0x7fff);
}

/* Set transform and axes of a W8 chunk to others that its header allows. What it then decodes to
 * is different values, but the same ones from every implementation. */
static void every_predictor_is_undone_alike(void) {
  for (int round = 0; round < 800; round++) {
    chunk c = random_chunk();
    if (c.encoded[GPUFI_AT_MODE] == GPUFI_MODE_W8) {
      gpufi_geometry g;
      gpufi_geometry_init(&g, &c.shape);
      const uint32_t axes = gpufi_geometry_axes(&g) & (uint32_t)random_u64();
      c.encoded[GPUFI_AT_AXES] = (uint8_t)axes;
      if (gpufi_chunk_dtype_is_float(c.shape.dtype)) {
        c.encoded[GPUFI_AT_TRANSFORM] = (uint8_t)random_below(3);
      }
      if (axes == 0) {
        memset(c.encoded + GPUFI_AT_SEED, 0, 16);
      }
      gpufi_codec_seal(c.encoded, c.nbytes);
      check_decoders(c.encoded, c.nbytes, c.raw_nbytes);
    }
    free_chunk(&c);
  }
}

/* Move the symbol of a ranked chunk to another place of the values: different values again. */
static void symbols_are_put_in_every_place_alike(void) {
  uint64_t seen = 0;
  for (int round = 0; round < 1500; round++) {
    chunk c = random_chunk();
    if (c.encoded[GPUFI_AT_MODE] == GPUFI_MODE_RANKED) {
      const bool places = c.encoded[GPUFI_AT_TRANSFORM] == GPUFI_TRANSFORM_DICTIONARY;
      const size_t bits = places ? 8 : 8 * value_nbytes_of(c.shape.dtype);
      const size_t shift = c.encoded[GPUFI_AT_SHIFT], symbol = c.encoded[GPUFI_AT_LEVELS] >> 4;
      const size_t at = shift + random_below(bits - symbol - shift + 1);
      c.encoded[GPUFI_AT_SYMBOL] = (uint8_t)at;
      gpufi_codec_seal(c.encoded, c.nbytes);
      check_decoders(c.encoded, c.nbytes, c.raw_nbytes);
      seen |= UINT64_C(1) << at;
    }
    free_chunk(&c);
  }
  CHECK(__builtin_popcountll(seen) > 30);
}

/* A byte changed, and sealed again in most rounds, so that what lies behind the checksum is
 * reached: mostly in descriptors, codes and the chunk's end. */
static void damaged_chunks_get_the_same_verdict(void) {
  size_t refused_count = 0;
  for (int round = 0; round < 400; round++) {
    chunk c = random_chunk();
    for (int hits = 0; hits < 8; hits++) {
      uint8_t *const damaged = malloc(c.nbytes);
      memcpy(damaged, c.encoded, c.nbytes);
      const size_t reach = hits % 2 && c.nbytes > 200 ? 200 : c.nbytes;
      const size_t at = hits % 3 ? random_below(reach)
                                 : c.nbytes - 1 - random_below(c.nbytes < 40 ? c.nbytes : 40);
      damaged[at] ^= (uint8_t)(1u << random_below(8));
      if (hits != 7) {
        gpufi_codec_seal(damaged, c.nbytes);
      }
      check_decoders(damaged, c.nbytes, c.raw_nbytes);
      refused_count += gpufi_codec_decode(damaged, c.nbytes, c.raw, c.raw_nbytes, &err) != GPUF_OK;
      free(damaged);
    }
    free_chunk(&c);
  }
  CHECK(refused_count > 300);
}

static void truncated_chunks_get_the_same_verdict(void) {
  for (int round = 0; round < 20; round++) {
    chunk c = random_chunk();
    for (size_t nbytes = 0; nbytes < c.nbytes; nbytes += 16 + random_below(100) * 16) {
      if (nbytes >= GPUFI_HEADER_NBYTES) {
        const uint64_t payload_nbytes = nbytes - GPUFI_HEADER_NBYTES;
        memcpy(c.encoded + GPUFI_AT_PAYLOAD_NBYTES, &payload_nbytes, 8);
        gpufi_codec_seal(c.encoded, nbytes);
      }
      check_decoders(c.encoded, nbytes, c.raw_nbytes);
    }
    free_chunk(&c);
  }
}

static void checksums_agree_at_every_length(void) {
  const gpufi_cpu *cpu;
  uint8_t words[8 * 100];
  for (size_t i = 0; i < sizeof(words); i++) {
    words[i] = (uint8_t)random_u64();
  }
  for (size_t begin = 0; begin < 20; begin++) {
    for (size_t end = begin; end < 100; end++) {
      uint64_t want[2] = {3, 4}, sums[2];
      gpufi_cpu_scalar.add_words(words, begin, end, want);
      for (size_t i = 1; (cpu = gpufi_cpu_at(i)) != NULL; i++) {
        sums[0] = 3;
        sums[1] = 4;
        cpu->add_words(words, begin, end, sums);
        CHECK(sums[0] == want[0] && sums[1] == want[1]);
      }
    }
  }
}

static void implementations_are_found_by_their_names(void) {
  size_t count = 0;
  for (const gpufi_cpu *cpu; (cpu = gpufi_cpu_at(count)) != NULL; count++) {
    CHECK(gpufi_cpu_find(cpu->name) == cpu);
    printf("# this CPU runs: %s\n", cpu->name);
  }
  CHECK(count >= 1 && gpufi_cpu_at(0) == &gpufi_cpu_scalar);
  CHECK(gpufi_cpu_find("8086") == NULL);
}

/* In a test program of its own only: the variable is read at the first use. */
static void an_unknown_name_in_the_environment_is_refused(void) {
  const gpufi_chunk_shape shape = {GPUF_DTYPE_UINT8, 1, {1}};
  uint8_t raw[1] = {0}, encoded[112], scratch[64];
  size_t nbytes;
  setenv("GPUFETCH_CPU", "8086", 1);
  CHECK_FAILS(gpufi_codec_encode(&shape, raw, encoded, sizeof(encoded), &nbytes, scratch, &err),
              GPUF_ERR_INVALID, "GPUFETCH_CPU=8086");
  CHECK_FAILS(gpufi_codec_decode(encoded, 96, raw, 1, &err), GPUF_ERR_INVALID, "auto");
}

int main(int argc, char **argv) {
  if (argc > 1) {
    TEST(an_unknown_name_in_the_environment_is_refused);
    return test_finish();
  }
  TEST(implementations_are_found_by_their_names);
  TEST(checksums_agree_at_every_length);
  TEST(random_chunks_encode_to_the_same_bytes_and_back);
  TEST(every_predictor_is_undone_alike);
  TEST(symbols_are_put_in_every_place_alike);
  TEST(damaged_chunks_get_the_same_verdict);
  TEST(truncated_chunks_get_the_same_verdict);
  return test_finish();
}
