/* Packing groups, for avx2.c and avx512.c, which both do it with AVX2, but for what is in the file
 * that they define as GPUFI_GROUPS: the widths of groups, and packing those of 8 and 16 bits.
 *
 * The heart of it packs 8 values of 32 bits, in two halves of 4. Neighbours are joined to pairs of
 * twice the width w in 64-bit lanes, a shift and an OR:
 *
 *   pair     value 0 | value 1 << w
 *
 * Then a half is put together from the bytes of its two pairs. Each is first shifted up to the bit
 * of its first byte that it starts at in the output, so that only whole bytes remain to be moved,
 * which a shuffle does; a byte that both pairs have bits in is the OR of two. For w = 10, lowest
 * bit first, with the number of the pair for each bit:
 *
 *   half     00000000 00000000 00001111 11111111 11111111
 *
 * Values of 8 and 16 bits are widened to 32, and those of 64 bits narrowed where their width allows
 * it. Every store is of 16 bytes, and what it writes too far the next group overwrites. */

/* Bit at which pair p (0 or 1) of half h starts, counted from the byte that the half starts in. The
 * upper half starts at bit 4w of the group: for odd w in the middle of a byte. */
#define PAIR_START(w, h, p) (((h) ? (4 * (w)) & 7 : 0) + (p) * 2 * (w))
#define PAIR_LOW(w, h, p) (uint64_t)(PAIR_START(w, h, p) & 7)
#define ROW_PAIR_LOW(w) {PAIR_LOW(w, 0, 0), PAIR_LOW(w, 0, 1), PAIR_LOW(w, 1, 0), PAIR_LOW(w, 1, 1)}

/* Byte b of half h comes from pair 1 from that pair's first byte on, else from pair 0. */
#define START(w, h) (PAIR_START(w, h, 1) >> 3)
#define FIRST(w, h, b)                                                                             \
  (uint8_t)((b) < START(w, h) ? (b) : (b) - START(w, h) < 8 ? 8 + (b) - START(w, h) : 0x80)
/* In pair 1's first byte there may also be the last bits of pair 0. */
#define SECOND(w, h, b)                                                                            \
  (uint8_t)((b) == START(w, h) && (PAIR_START(w, h, 1) & 7) != 0 && (b) < 8 ? (b) : 0x80)
#define HALF_4(f, w, h, b) f(w, h, b), f(w, h, (b) + 1), f(w, h, (b) + 2), f(w, h, (b) + 3)
#define HALF(f, w, h)                                                                              \
  HALF_4(f, w, h, 0), HALF_4(f, w, h, 4), HALF_4(f, w, h, 8), HALF_4(f, w, h, 12)
#define ROW_FIRST(w) {HALF(FIRST, w, 0), HALF(FIRST, w, 1)}
#define ROW_SECOND(w) {HALF(SECOND, w, 0), HALF(SECOND, w, 1)}
/* For odd widths the halves share a byte: the last of the lower half, as the first of 16. */
#define SEAM(w) (uint8_t)((w) & 1 ? (w) >> 1 : 0x80)
#define ROW_SEAM(w)                                                                                \
  {SEAM(w), 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,                                              \
   0x80,    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80}

static const uint64_t placed_low[33][4] = {ROWS_32(ROW_PAIR_LOW)};
static const uint8_t placed_first[33][32] = {ROWS_32(ROW_FIRST)};
static const uint8_t placed_second[33][32] = {ROWS_32(ROW_SECOND)};
static const uint8_t seam[33][16] = {ROWS_32(ROW_SEAM)};

/* A pair takes 2w bits and starts at bit 0, 2, 4 or 6. Only at w = 31 can that be more than the 64
 * of its lane (6 + 62, 4 + 62), and the bits that the shift lost are a ninth byte: of the lower
 * half's pair 1 for byte 15, of the upper half's pair 0 for byte 8. */
GPUFI_INLINE __m256i ninth_bytes(__m256i pairs, __m256i low) {
  const __m256i bytes =
      _mm256_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 8, -1, -1, -1,
                       -1, -1, -1, -1, -1, 0, -1, -1, -1, -1, -1, -1, -1);
  const __m256i over = _mm256_srlv_epi64(pairs, _mm256_sub_epi64(_mm256_set1_epi64x(64), low));
  return _mm256_shuffle_epi8(over, bytes);
}

/* 8 values of 32 bits, none wider than `width`; returns the end, and writes up to 32 bytes: 16 for
 * the lower half, and 16 for the upper one from byte width / 2 on. */
GPUFI_INLINE uint8_t *pack_values(__m256i x, unsigned width, uint8_t *out) {
  const __m256i even = _mm256_and_si256(x, _mm256_set1_epi64x(0xffffffff));
  const __m256i odd = _mm256_sll_epi64(_mm256_srli_epi64(x, 32), _mm_cvtsi32_si128((int)width));
  const __m256i pairs = _mm256_or_si256(even, odd), low = load_256(placed_low[width]);
  const __m256i placed = _mm256_sllv_epi64(pairs, low);
  __m256i halves = _mm256_or_si256(_mm256_shuffle_epi8(placed, load_256(placed_first[width])),
                                   _mm256_shuffle_epi8(placed, load_256(placed_second[width])));
  if (width == 31) {
    halves = _mm256_or_si256(halves, ninth_bytes(pairs, low));
  }
  const __m128i lower = _mm256_castsi256_si128(halves);
  const __m128i shared = _mm_shuffle_epi8(lower, load_128(seam[width]));
  _mm_storeu_si128((__m128i *)out, lower);
  _mm_storeu_si128((__m128i *)(out + (width >> 1)),
                   _mm_or_si128(_mm256_extracti128_si256(halves, 1), shared));
  return out + width;
}

/* 8 values of 64 bits at a width of 8 or more. Each is stored as 8 bytes, with the bits before it
 * that did not fill a byte; the next store begins at the first byte that this one does not fill,
 * and writes at most 8 bytes past the group's end. */
GPUFI_INLINE uint8_t *pack_wide(const uint8_t *z, unsigned width, uint8_t *out) {
  uint64_t pending = 0; /* `fill` bits, fewer than 8, of the byte at `out` */
  unsigned fill = 0;
  for (unsigned j = 0; j < GPUFI_GROUP_VALUES; j++) {
    const uint64_t value = gpufi_load_u64(z + (size_t)8 * j), bits = pending | value << fill;
    memcpy(out, &bits, sizeof(bits));
    out += (fill + width) >> 3;
    fill = (fill + width) & 7;
    pending = fill != 0 ? value >> (width - fill) : 0;
  }
  return out;
}

/* --- groups --- */

#include GPUFI_GROUPS

GPUFI_INLINE uint8_t *pack_group_32(const uint8_t *z, unsigned width, uint8_t *out) {
  return pack_values(load_256(z), width, out);
}

/* The low half of each value, where the width allows it. The shuffle takes those of two values from
 * each register and half, and the permutation puts them in order. */
GPUFI_INLINE uint8_t *pack_group_64(const uint8_t *z, unsigned width, uint8_t *out) {
  if (width > 32) {
    return pack_wide(z, width, out);
  }
  const __m256i lower = load_256(z), upper = load_256(z + 32);
  const __m256 both =
      _mm256_shuffle_ps(_mm256_castsi256_ps(lower), _mm256_castsi256_ps(upper), 0x88);
  return pack_values(_mm256_permute4x64_epi64(_mm256_castps_si256(both), 0xd8), width, out);
}

#define GROUPS(BITS)                                                                               \
  static uint8_t *pack_groups_##BITS(const void *values, const uint8_t *widths, size_t groups,     \
                                     uint8_t *out) {                                               \
    const uint8_t *const z = values;                                                               \
    for (size_t k = 0; k < groups; k++) {                                                          \
      out = pack_group_##BITS(z + k * BITS, widths[k], out); /* BITS: the bytes of 8 values */     \
    }                                                                                              \
    return out;                                                                                    \
  }

GROUPS(8)
GROUPS(16)
GROUPS(32)
GROUPS(64)

#define GPUFI_EACH_WIDTH "codec/pack_impl.h"
#include "codec/each_width.h"
