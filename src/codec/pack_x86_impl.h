/* Packing with AVX2, for avx2.c and avx512.c. The heart of it packs 8 values of 32 bits in 16-byte
 * halves of 4: pairs are joined to pieces of twice the width, and each half of the group is then
 * put together from the bytes of two pieces. Other types of value go through it where they fit. */

/* Bit at which piece p (0 or 1) of half h starts, from the byte on that the half starts in. */
#define PIECE(w, h, p) (((h) ? (4 * (w)) & 7 : 0) + (p) * 2 * (w))
#define PIECE_LOW(w, h, p) (uint64_t)(PIECE(w, h, p) & 7)
#define ROW_PIECE_LOW(w)                                                                           \
  {PIECE_LOW(w, 0, 0), PIECE_LOW(w, 0, 1), PIECE_LOW(w, 1, 0), PIECE_LOW(w, 1, 1)}

/* Byte b of half h comes from piece 1 from that piece's first byte on, else from piece 0. */
#define START(w, h) (PIECE(w, h, 1) >> 3)
#define FIRST(w, h, b)                                                                             \
  (uint8_t)((b) < START(w, h) ? (b) : (b) - START(w, h) < 8 ? 8 + (b) - START(w, h) : 0x80)
/* In piece 1's first byte there may also be the last bits of piece 0. */
#define SECOND(w, h, b)                                                                            \
  (uint8_t)((b) == START(w, h) && (PIECE(w, h, 1) & 7) != 0 && (b) < 8 ? (b) : 0x80)
#define HALF_4(f, w, h, b) f(w, h, b), f(w, h, (b) + 1), f(w, h, (b) + 2), f(w, h, (b) + 3)
#define HALF(f, w, h)                                                                              \
  HALF_4(f, w, h, 0), HALF_4(f, w, h, 4), HALF_4(f, w, h, 8), HALF_4(f, w, h, 12)
#define ROW_FIRST(w) {HALF(FIRST, w, 0), HALF(FIRST, w, 1)}
#define ROW_SECOND(w) {HALF(SECOND, w, 0), HALF(SECOND, w, 1)}
/* For odd widths the halves share a byte: the one of the lower half, as the first of 16. */
#define SEAM(w) (uint8_t)((w) & 1 ? (w) >> 1 : 0x80)
#define ROW_SEAM(w)                                                                                \
  {SEAM(w), 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,                                              \
   0x80,    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80}

static const uint64_t piece_low[33][4] = {ROWS_32(ROW_PIECE_LOW)};
static const uint8_t piece_first[33][32] = {ROWS_32(ROW_FIRST)};
static const uint8_t piece_second[33][32] = {ROWS_32(ROW_SECOND)};
static const uint8_t seam[33][16] = {ROWS_32(ROW_SEAM)};

/* The ninth bytes that pieces have at width 31 only: of the lower half's piece 1 in byte 15, of the
 * upper half's piece 0 in byte 8. */
INLINE __m256i ninth_bytes(__m256i pieces, __m256i low) {
  const __m256i bytes =
      _mm256_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 8, -1, -1, -1,
                       -1, -1, -1, -1, -1, 0, -1, -1, -1, -1, -1, -1, -1);
  const __m256i over = _mm256_srlv_epi64(pieces, _mm256_sub_epi64(_mm256_set1_epi64x(64), low));
  return _mm256_shuffle_epi8(over, bytes);
}

/* 8 values of 32 bits at `width`; returns the end, and writes up to 32 bytes. */
INLINE uint8_t *pack_values(__m256i x, unsigned width, uint8_t *out) {
  const __m256i even = _mm256_and_si256(x, _mm256_set1_epi64x(0xffffffff));
  const __m256i odd = _mm256_sll_epi64(_mm256_srli_epi64(x, 32), _mm_cvtsi32_si128((int)width));
  const __m256i pieces = _mm256_or_si256(even, odd), low = load_256(piece_low[width]);
  const __m256i placed = _mm256_sllv_epi64(pieces, low);
  __m256i halves = _mm256_or_si256(_mm256_shuffle_epi8(placed, load_256(piece_first[width])),
                                   _mm256_shuffle_epi8(placed, load_256(piece_second[width])));
  if (width == 31) {
    halves = _mm256_or_si256(halves, ninth_bytes(pieces, low));
  }
  const __m128i lower = _mm256_castsi256_si128(halves);
  const __m128i shared = _mm_shuffle_epi8(lower, _mm_loadu_si128((const __m128i *)seam[width]));
  _mm_storeu_si128((__m128i *)out, lower);
  _mm_storeu_si128((__m128i *)(out + (width >> 1)),
                   _mm_or_si128(_mm256_extracti128_si256(halves, 1), shared));
  return out + width;
}

/* 8 values of 64 bits at a width of 8 or more; the stores overlap. */
INLINE uint8_t *pack_wide(const uint64_t *z, unsigned width, uint8_t *out) {
  uint64_t pending = 0; /* `fill` bits, fewer than 8, of the byte at `out` */
  unsigned fill = 0;
  for (unsigned j = 0; j < GPUFI_GROUP_VALUES; j++) {
    const uint64_t bits = pending | z[j] << fill;
    memcpy(out, &bits, sizeof(bits));
    out += (fill + width) >> 3;
    fill = (fill + width) & 7;
    pending = fill != 0 ? z[j] >> (width - fill) : 0;
  }
  return out;
}

INLINE uint8_t bit_width(uint64_t x) {
  return (uint8_t)(x != 0 ? 64 - __builtin_clzll(x) : 0);
}

INLINE uint64_t or_of_64(__m128i x) {
  return (uint64_t)_mm_cvtsi128_si64(_mm_or_si128(x, _mm_unpackhi_epi64(x, x)));
}

static void group_widths_8(const uint8_t *z, size_t groups, uint8_t *widths) {
  for (size_t k = 0; k < groups; k++) {
    uint64_t x = gpufi_load_u64(z + 8 * k);
    x |= x >> 32;
    x |= x >> 16;
    widths[k] = bit_width((x | x >> 8) & 0xff);
  }
}

static void group_widths_16(const uint16_t *z, size_t groups, uint8_t *widths) {
  for (size_t k = 0; k < groups; k++) {
    uint64_t x = or_of_64(_mm_loadu_si128((const __m128i *)(z + 8 * k)));
    x |= x >> 32;
    widths[k] = bit_width((x | x >> 16) & 0xffff);
  }
}

static void group_widths_32(const uint32_t *z, size_t groups, uint8_t *widths) {
  for (size_t k = 0; k < groups; k++) {
    const __m256i x = load_256(z + 8 * k);
    const uint64_t pair =
        or_of_64(_mm_or_si128(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
    widths[k] = bit_width((pair | pair >> 32) & 0xffffffff);
  }
}

static void group_widths_64(const uint64_t *z, size_t groups, uint8_t *widths) {
  for (size_t k = 0; k < groups; k++) {
    const __m256i x = _mm256_or_si256(load_256(z + 8 * k), load_256(z + 8 * k + 4));
    widths[k] = bit_width(
        or_of_64(_mm_or_si128(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1))));
  }
}

static uint8_t *pack_groups_8(const void *values, const uint8_t *widths, size_t groups,
                              uint8_t *out) {
  const uint8_t *const z = values;
  for (size_t k = 0; k < groups; k++) {
    const __m128i x = _mm_loadl_epi64((const __m128i *)(z + 8 * k));
    out = pack_values(_mm256_cvtepu8_epi32(x), widths[k], out);
  }
  return out;
}

static uint8_t *pack_groups_16(const void *values, const uint8_t *widths, size_t groups,
                               uint8_t *out) {
  const uint16_t *const z = values;
  for (size_t k = 0; k < groups; k++) {
    const __m128i x = _mm_loadu_si128((const __m128i *)(z + 8 * k));
    out = pack_values(_mm256_cvtepu16_epi32(x), widths[k], out);
  }
  return out;
}

static uint8_t *pack_groups_32(const void *values, const uint8_t *widths, size_t groups,
                               uint8_t *out) {
  const uint32_t *const z = values;
  for (size_t k = 0; k < groups; k++) {
    out = pack_values(load_256(z + 8 * k), widths[k], out);
  }
  return out;
}

static uint8_t *pack_groups_64(const void *values, const uint8_t *widths, size_t groups,
                               uint8_t *out) {
  const uint64_t *const z = values;
  for (size_t k = 0; k < groups; k++) {
    if (widths[k] > 32) {
      out = pack_wide(z + 8 * k, widths[k], out);
      continue;
    }
    const __m256i lower = load_256(z + 8 * k), upper = load_256(z + 8 * k + 4);
    const __m256 both = _mm256_shuffle_ps(_mm256_castsi256_ps(lower), _mm256_castsi256_ps(upper),
                                          0x88); /* the low half of each value */
    const __m256i x = _mm256_permute4x64_epi64(_mm256_castps_si256(both), 0xd8);
    out = pack_values(x, widths[k], out);
  }
  return out;
}

#define GPUFI_EACH_WIDTH "codec/pack_impl.h"
#include "codec/each_width.h"
