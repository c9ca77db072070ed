#include "codec/bitshuffle.h"
#include "base/error.h"
#include "codec/lz4.h"

#include <string.h>

#define BLOCK_ELEMENTS_MIN 128
#define GROUP 8 /* elements that share a byte of each bit plane */

_Static_assert(BLOCK_ELEMENTS_MIN *GPUFI_BITSHUFFLE_ELEMENT_NBYTES_MAX <= GPUFI_LZ4_RAW_NBYTES_MAX,
               "the LZ4 encoder takes every block");

/* --- bits --- */

/* Bit k of byte j becomes bit j of byte k. */
static uint64_t transpose_8x8(uint64_t x) {
  uint64_t t = (x ^ x >> 7) & 0x00aa00aa00aa00aau;
  x ^= t ^ t << 7;
  t = (x ^ x >> 14) & 0x0000cccc0000ccccu;
  x ^= t ^ t << 14;
  t = (x ^ x >> 28) & 0x00000000f0f0f0f0u;
  return x ^ t ^ t << 28;
}

/* Eight bytes `stride` apart as one word, and back. */
static uint64_t gather(const uint8_t *from, size_t stride) {
  uint64_t x = 0;
  for (size_t j = 0; j < GROUP; j++) {
    x |= (uint64_t)from[j * stride] << (8 * j);
  }
  return x;
}

static void scatter(uint64_t x, uint8_t *to, size_t stride) {
  for (size_t j = 0; j < GROUP; j++) {
    to[j * stride] = (uint8_t)(x >> (8 * j));
  }
}

/* Two words of 64 bits side by side, and in each of them a byte of each of eight groups: STEP
 * groups are transposed at once. */
#define LANES 2
#define STEP ((size_t)GROUP * LANES)
typedef uint64_t words __attribute__((vector_size(8 * LANES)));

/* Each lane holds the eight rows of 8x8 matrices, a row a word. With `unit` 8 it is one matrix of
 * bytes; with `unit` 1 it is one matrix of bits for each byte of the words. Three stages swap the
 * off-diagonal quarters of squares of 2x2, 4x4 and 8x8 units. */
static inline void transpose(words w[GROUP], int unit) {
  static const uint64_t masks[2][3] = {
      {0x5555555555555555u, 0x3333333333333333u, 0x0f0f0f0f0f0f0f0fu},
      {0x00ff00ff00ff00ffu, 0x0000ffff0000ffffu, 0x00000000ffffffffu},
  };
  for (int stage = 0; stage < 3; stage++) {
    const uint64_t mask = masks[unit == 8][stage];
    const int apart = 1 << stage, by = unit << stage;
    for (int k = 0; k < GROUP; k++) {
      if (k & apart) {
        continue;
      }
      const words t = (w[k] >> by ^ w[k + apart]) & mask;
      w[k] ^= t << by;
      w[k + apart] ^= t;
    }
  }
}

static inline words load_words(const uint8_t *from, size_t stride) {
  words w;
  for (size_t lane = 0; lane < LANES; lane++) {
    uint64_t word;
    memcpy(&word, from + lane * stride, sizeof(word));
    w[lane] = word;
  }
  return w;
}

static inline void store_words(words w, uint8_t *to, size_t stride) {
  for (size_t lane = 0; lane < LANES; lane++) {
    const uint64_t word = w[lane];
    memcpy(to + lane * stride, &word, sizeof(word));
  }
}

/* The bytes of STEP groups of elements to w, and back: word j * element_nbytes + b is byte b of
 * element j of each group. */
static void load_groups(size_t element_nbytes, const uint8_t *elements, words *w) {
  const size_t group_nbytes = GROUP * element_nbytes;
  for (size_t i = 0; i < group_nbytes; i += GROUP) {
    for (size_t t = 0; t < GROUP; t++) {
      w[i + t] = load_words(elements + t * group_nbytes + i, GROUP * group_nbytes);
    }
    transpose(w + i, 8);
  }
}

static void store_groups(size_t element_nbytes, words *w, uint8_t *elements) {
  const size_t group_nbytes = GROUP * element_nbytes;
  for (size_t i = 0; i < group_nbytes; i += GROUP) {
    transpose(w + i, 8);
    for (size_t t = 0; t < GROUP; t++) {
      store_words(w[i + t], elements + t * group_nbytes + i, GROUP * group_nbytes);
    }
  }
}

/* `count`, a multiple of 8, elements to their bit planes, each of count / 8 bytes. */
static void shuffle(size_t element_nbytes, const uint8_t *elements, size_t count, uint8_t *planes) {
  const size_t plane_nbytes = count / GROUP;
  words w[GROUP * GPUFI_BITSHUFFLE_ELEMENT_NBYTES_MAX], bits[GROUP];
  size_t g = 0;
  for (; plane_nbytes - g >= STEP; g += STEP) {
    load_groups(element_nbytes, elements + g * GROUP * element_nbytes, w);
    for (size_t b = 0; b < element_nbytes; b++) {
      for (size_t j = 0; j < GROUP; j++) {
        bits[j] = w[j * element_nbytes + b];
      }
      transpose(bits, 1);
      for (size_t k = 0; k < GROUP; k++) {
        store_words(bits[k], planes + (b * 8 + k) * plane_nbytes + g, GROUP);
      }
    }
  }
  for (; g < plane_nbytes; g++) {
    for (size_t b = 0; b < element_nbytes; b++) {
      const uint64_t x = gather(elements + g * GROUP * element_nbytes + b, element_nbytes);
      scatter(transpose_8x8(x), planes + b * 8 * plane_nbytes + g, plane_nbytes);
    }
  }
}

static void unshuffle(size_t element_nbytes, const uint8_t *planes, size_t count,
                      uint8_t *elements) {
  const size_t plane_nbytes = count / GROUP;
  words w[GROUP * GPUFI_BITSHUFFLE_ELEMENT_NBYTES_MAX], bits[GROUP];
  size_t g = 0;
  for (; plane_nbytes - g >= STEP; g += STEP) {
    for (size_t b = 0; b < element_nbytes; b++) {
      for (size_t k = 0; k < GROUP; k++) {
        bits[k] = load_words(planes + (b * 8 + k) * plane_nbytes + g, GROUP);
      }
      transpose(bits, 1);
      for (size_t j = 0; j < GROUP; j++) {
        w[j * element_nbytes + b] = bits[j];
      }
    }
    store_groups(element_nbytes, w, elements + g * GROUP * element_nbytes);
  }
  for (; g < plane_nbytes; g++) {
    for (size_t b = 0; b < element_nbytes; b++) {
      const uint64_t x = gather(planes + b * 8 * plane_nbytes + g, plane_nbytes);
      scatter(transpose_8x8(x), elements + g * GROUP * element_nbytes + b, element_nbytes);
    }
  }
}

/* --- sizes --- */

static void store_be(uint8_t *at, uint64_t value, size_t nbytes) {
  for (size_t i = 0; i < nbytes; i++) {
    at[i] = (uint8_t)(value >> (8 * (nbytes - 1 - i)));
  }
}

static uint64_t load_be(const uint8_t *at, size_t nbytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < nbytes; i++) {
    value = value << 8 | at[i];
  }
  return value;
}

size_t gpufi_bitshuffle_block_elements(size_t element_nbytes) {
  const size_t fit = GPUFI_BITSHUFFLE_BLOCK_NBYTES / element_nbytes / GROUP * GROUP;
  return fit > BLOCK_ELEMENTS_MIN ? fit : BLOCK_ELEMENTS_MIN;
}

/* Bytes of the elements that are transposed: whole groups. */
static size_t grouped_nbytes(size_t element_nbytes, size_t raw_nbytes) {
  return raw_nbytes / element_nbytes / GROUP * GROUP * element_nbytes;
}

size_t gpufi_bitshuffle_bound(size_t element_nbytes, size_t raw_nbytes) {
  const size_t block_nbytes = gpufi_bitshuffle_block_elements(element_nbytes) * element_nbytes;
  const size_t block_count = raw_nbytes / block_nbytes + 1;
  return GPUFI_BITSHUFFLE_HEADER_NBYTES +
         block_count * (GPUFI_BITSHUFFLE_SIZE_NBYTES + gpufi_lz4_bound(0)) + raw_nbytes +
         raw_nbytes / 255;
}

size_t gpufi_bitshuffle_scratch_nbytes(size_t raw_nbytes) {
  return raw_nbytes;
}

/* --- chunks --- */

size_t gpufi_bitshuffle_encode(size_t element_nbytes, const void *raw, size_t raw_nbytes,
                               void *encoded, void *scratch) {
  const uint8_t *const bytes = raw;
  const size_t block_nbytes = gpufi_bitshuffle_block_elements(element_nbytes) * element_nbytes;
  const size_t grouped = grouped_nbytes(element_nbytes, raw_nbytes);
  uint8_t *out = encoded;
  store_be(out, raw_nbytes, 8);
  store_be(out + 8, block_nbytes, 4);
  out += GPUFI_BITSHUFFLE_HEADER_NBYTES;
  for (size_t at = 0; at < grouped;) {
    const size_t nbytes = grouped - at < block_nbytes ? grouped - at : block_nbytes;
    shuffle(element_nbytes, bytes + at, nbytes / element_nbytes, scratch);
    const size_t encoded_nbytes =
        gpufi_lz4_encode(scratch, nbytes, out + GPUFI_BITSHUFFLE_SIZE_NBYTES);
    store_be(out, encoded_nbytes, GPUFI_BITSHUFFLE_SIZE_NBYTES);
    out += GPUFI_BITSHUFFLE_SIZE_NBYTES + encoded_nbytes;
    at += nbytes;
  }
  memcpy(out, bytes + grouped, raw_nbytes - grouped);
  return (size_t)(out - (uint8_t *)encoded) + raw_nbytes - grouped;
}

/* Check the header, and set *block_nbytes from it, at most what there is to transpose. */
static gpuf_status read_header(size_t element_nbytes, const uint8_t *in, size_t encoded_nbytes,
                               size_t raw_nbytes, size_t *block_nbytes, gpuf_error *err) {
  const size_t grouped = grouped_nbytes(element_nbytes, raw_nbytes);
  if (encoded_nbytes < GPUFI_BITSHUFFLE_HEADER_NBYTES) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "corrupt chunk: %zu bytes are too few for the header of %d", encoded_nbytes,
                      GPUFI_BITSHUFFLE_HEADER_NBYTES);
  }
  if (load_be(in, 8) != raw_nbytes) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "byte 0: the chunk decodes to %llu bytes, but %zu are expected",
                      (unsigned long long)load_be(in, 8), raw_nbytes);
  }
  *block_nbytes = (size_t)load_be(in + 8, 4);
  if (*block_nbytes == 0 || *block_nbytes % (GROUP * element_nbytes) != 0) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "corrupt chunk at byte 8: a block of %zu bytes is not a multiple of %d "
                      "elements of %zu bytes",
                      *block_nbytes, GROUP, element_nbytes);
  }
  if (*block_nbytes > grouped) {
    *block_nbytes = grouped;
  }
  return GPUF_OK;
}

gpuf_status gpufi_bitshuffle_decode(size_t element_nbytes, const void *encoded,
                                    size_t encoded_nbytes, void *raw, size_t raw_nbytes,
                                    void *scratch, gpuf_error *err) {
  const uint8_t *const in = encoded;
  uint8_t *const out = raw;
  const size_t grouped = grouped_nbytes(element_nbytes, raw_nbytes);
  size_t at = GPUFI_BITSHUFFLE_HEADER_NBYTES;
  size_t block_nbytes = 0;
  gpuf_status status =
      read_header(element_nbytes, in, encoded_nbytes, raw_nbytes, &block_nbytes, err);
  for (size_t done = 0; status == GPUF_OK && done < grouped;) {
    const size_t nbytes = grouped - done < block_nbytes ? grouped - done : block_nbytes;
    if (encoded_nbytes - at < GPUFI_BITSHUFFLE_SIZE_NBYTES ||
        load_be(in + at, GPUFI_BITSHUFFLE_SIZE_NBYTES) >
            encoded_nbytes - at - GPUFI_BITSHUFFLE_SIZE_NBYTES) {
      return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                        "corrupt chunk at byte %zu: the block runs past the end of the chunk", at);
    }
    const size_t size = (size_t)load_be(in + at, GPUFI_BITSHUFFLE_SIZE_NBYTES);
    at += GPUFI_BITSHUFFLE_SIZE_NBYTES;
    status = gpufi_lz4_decode(in + at, size, at, scratch, nbytes, err);
    if (status == GPUF_OK) {
      unshuffle(element_nbytes, scratch, nbytes / element_nbytes, out + done);
    }
    at += size;
    done += nbytes;
  }
  if (status == GPUF_OK && encoded_nbytes - at != raw_nbytes - grouped) {
    return gpufi_fail(err, GPUF_ERR_CORRUPT, 0,
                      "corrupt chunk at byte %zu: %zu bytes are left for the last %zu", at,
                      encoded_nbytes - at, raw_nbytes - grouped);
  }
  if (status == GPUF_OK) {
    memcpy(out + grouped, in + at, raw_nbytes - grouped);
  }
  return status;
}
