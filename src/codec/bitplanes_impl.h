/* Elements to bit planes and back for one instruction set; included by bitplanes.c, avx2.c and
 * avx512.c, which define LANES, words of 64 bits side by side. Each has a byte of each of eight
 * groups, so that STEP groups are transposed at once. */

#define GROUP GPUFI_BITPLANES_GROUP
#define STEP ((size_t)GROUP * LANES)
typedef uint64_t words __attribute__((vector_size(8 * LANES)));

/* Each lane holds the eight rows of 8x8 matrices, a row a word. With `unit` 8 it is one matrix of
 * bytes; with `unit` 1 it is one matrix of bits for each byte of the words. Three stages swap the
 * off-diagonal quarters of squares of 2x2, 4x4 and 8x8 units. */
GPUFI_INLINE void transpose(words w[GROUP], int unit) {
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

GPUFI_INLINE words load_words(const uint8_t *from, size_t stride) {
  words w;
  for (size_t lane = 0; lane < LANES; lane++) {
    uint64_t word;
    memcpy(&word, from + lane * stride, sizeof(word));
    w[lane] = word;
  }
  return w;
}

GPUFI_INLINE void store_words(words w, uint8_t *to, size_t stride) {
  for (size_t lane = 0; lane < LANES; lane++) {
    const uint64_t word = w[lane];
    memcpy(to + lane * stride, &word, sizeof(word));
  }
}

/* The bytes of STEP groups of elements to w, and back: word j * element_nbytes + b is byte b of
 * element j of each group. */
GPUFI_INLINE void load_groups(const size_t element_nbytes, const uint8_t *elements, words *w) {
  const size_t group_nbytes = GROUP * element_nbytes;
  for (size_t i = 0; i < group_nbytes; i += GROUP) {
    for (size_t t = 0; t < GROUP; t++) {
      w[i + t] = load_words(elements + t * group_nbytes + i, GROUP * group_nbytes);
    }
    transpose(w + i, 8);
  }
}

GPUFI_INLINE void store_groups(const size_t element_nbytes, words *w, uint8_t *elements) {
  const size_t group_nbytes = GROUP * element_nbytes;
  for (size_t i = 0; i < group_nbytes; i += GROUP) {
    transpose(w + i, 8);
    for (size_t t = 0; t < GROUP; t++) {
      store_words(w[i + t], elements + t * group_nbytes + i, GROUP * group_nbytes);
    }
  }
}

/* `w` has capacity for the words of STEP groups. */
GPUFI_INLINE size_t split_steps(const size_t element_nbytes, const uint8_t *elements, size_t groups,
                                uint8_t *planes, size_t plane_nbytes, words *w) {
  words bits[GROUP];
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
  return g;
}

GPUFI_INLINE size_t join_steps(const size_t element_nbytes, const uint8_t *planes,
                               size_t plane_nbytes, size_t groups, uint8_t *elements, words *w) {
  words bits[GROUP];
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
  return g;
}

/* With the usual sizes as constants, so that the words stay in registers. */
static size_t split_bits(size_t element_nbytes, const uint8_t *elements, size_t groups,
                         uint8_t *planes, size_t plane_nbytes) {
  words w[8 * GROUP];
  switch (element_nbytes) {
  case 1:
    return split_steps(1, elements, groups, planes, plane_nbytes, w);
  case 2:
    return split_steps(2, elements, groups, planes, plane_nbytes, w);
  case 4:
    return split_steps(4, elements, groups, planes, plane_nbytes, w);
  default:
    return split_steps(8, elements, groups, planes, plane_nbytes, w);
  }
}

static size_t join_bits(size_t element_nbytes, const uint8_t *planes, size_t plane_nbytes,
                        size_t groups, uint8_t *elements) {
  words w[8 * GROUP];
  switch (element_nbytes) {
  case 1:
    return join_steps(1, planes, plane_nbytes, groups, elements, w);
  case 2:
    return join_steps(2, planes, plane_nbytes, groups, elements, w);
  case 4:
    return join_steps(4, planes, plane_nbytes, groups, elements, w);
  default:
    return join_steps(8, planes, plane_nbytes, groups, elements, w);
  }
}

#undef STEP
#undef GROUP
