#include "codec/bitplanes.h"

#include <string.h>

#define GROUP GPUFI_BITPLANES_GROUP

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

void gpufi_bitplanes_split(size_t element_nbytes, const uint8_t *elements, size_t count,
                           uint8_t *planes, size_t plane_nbytes) {
  const size_t groups = count / GROUP;
  words w[GROUP * GPUFI_BITPLANES_ELEMENT_NBYTES_MAX], bits[GROUP];
  size_t g = 0;
  for (; groups - g >= STEP; g += STEP) {
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
  for (; g < groups; g++) {
    for (size_t b = 0; b < element_nbytes; b++) {
      const uint64_t x = gather(elements + g * GROUP * element_nbytes + b, element_nbytes);
      scatter(transpose_8x8(x), planes + b * 8 * plane_nbytes + g, plane_nbytes);
    }
  }
}

void gpufi_bitplanes_join(size_t element_nbytes, const uint8_t *planes, size_t plane_nbytes,
                          size_t count, uint8_t *elements) {
  const size_t groups = count / GROUP;
  words w[GROUP * GPUFI_BITPLANES_ELEMENT_NBYTES_MAX], bits[GROUP];
  size_t g = 0;
  for (; groups - g >= STEP; g += STEP) {
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
  for (; g < groups; g++) {
    for (size_t b = 0; b < element_nbytes; b++) {
      const uint64_t x = gather(planes + b * 8 * plane_nbytes + g, plane_nbytes);
      scatter(transpose_8x8(x), elements + g * GROUP * element_nbytes + b, element_nbytes);
    }
  }
}
