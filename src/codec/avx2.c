/* The codec's inner loops for x86-64 with AVX2. */
#include "codec/bytes.h"
#include "codec/scalar.h"
#include "codec/sparse.h"
#include "codec/unpack_tables.h"

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2,popcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,bmi,bmi2,popcnt")
#endif

#include "codec/codes_impl.h"

/* --- running sums ----------------------------------------------------------------------------- */

typedef uint8_t v8 __attribute__((vector_size(32)));
typedef uint16_t v16 __attribute__((vector_size(32)));
typedef uint32_t v32 __attribute__((vector_size(32)));
typedef uint64_t v64 __attribute__((vector_size(32)));

#define INLINE static inline __attribute__((always_inline))

/* The last 64, or 32, bits of the lower half on all of the upper half; the lower half 0. */
INLINE __m256i low_half_last_64(__m256i x) {
  return _mm256_permute2x128_si256(_mm256_shuffle_epi32(x, 0xee), x, 0x08);
}

INLINE __m256i low_half_last_32(__m256i x) {
  return _mm256_permute2x128_si256(_mm256_shuffle_epi32(x, 0xff), x, 0x08);
}

INLINE v64 prefix_64(v64 v, unsigned step) {
  __m256i x = (__m256i)v;
  if (step == 1) {
    x = _mm256_add_epi64(x, _mm256_slli_si256(x, 8));
    return (v64)_mm256_add_epi64(x, low_half_last_64(x));
  }
  return (v64)_mm256_add_epi64(x, _mm256_permute2x128_si256(x, x, 0x08));
}

INLINE v64 last_64(v64 v, unsigned step) {
  return step == 1 ? (v64)_mm256_permute4x64_epi64((__m256i)v, 0xff)
                   : (v64)_mm256_permute4x64_epi64((__m256i)v, 0xee);
}

INLINE v32 prefix_32(v32 v, unsigned step) {
  __m256i x = (__m256i)v;
  if (step == 1) {
    x = _mm256_add_epi32(x, _mm256_slli_si256(x, 4));
  }
  x = _mm256_add_epi32(x, _mm256_slli_si256(x, 8));
  return (v32)_mm256_add_epi32(x, step == 1 ? low_half_last_32(x) : low_half_last_64(x));
}

INLINE v32 last_32(v32 v, unsigned step) {
  return step == 1 ? (v32)_mm256_permutevar8x32_epi32((__m256i)v, _mm256_set1_epi32(7))
                   : (v32)_mm256_permute4x64_epi64((__m256i)v, 0xff);
}

INLINE v16 prefix_16(v16 v, unsigned step) {
  __m256i x = (__m256i)v;
  (void)step;
  x = _mm256_add_epi16(x, _mm256_slli_si256(x, 2));
  x = _mm256_add_epi16(x, _mm256_slli_si256(x, 4));
  x = _mm256_add_epi16(x, _mm256_slli_si256(x, 8));
  const __m256i ends = _mm256_shuffle_epi8(x, _mm256_set1_epi16(0x0f0e));
  return (v16)_mm256_add_epi16(x, _mm256_permute2x128_si256(ends, ends, 0x08));
}

INLINE v16 last_16(v16 v, unsigned step) {
  const __m256i last = _mm256_permute4x64_epi64((__m256i)v, 0xff);
  (void)step;
  return (v16)_mm256_shuffle_epi8(last, _mm256_set1_epi16(0x0706));
}

INLINE v8 prefix_8(v8 v, unsigned step) {
  __m256i x = (__m256i)v;
  if (step == 1) {
    x = _mm256_add_epi8(x, _mm256_slli_si256(x, 1));
  }
  x = _mm256_add_epi8(x, _mm256_slli_si256(x, 2));
  x = _mm256_add_epi8(x, _mm256_slli_si256(x, 4));
  x = _mm256_add_epi8(x, _mm256_slli_si256(x, 8));
  const __m256i ends = _mm256_shuffle_epi8(x, _mm256_set1_epi16(step == 1 ? 0x0f0f : 0x0f0e));
  return (v8)_mm256_add_epi8(x, _mm256_permute2x128_si256(ends, ends, 0x08));
}

INLINE v8 last_8(v8 v, unsigned step) {
  const __m256i last = _mm256_permute4x64_epi64((__m256i)v, 0xff);
  return (v8)_mm256_shuffle_epi8(last, _mm256_set1_epi16(step == 1 ? 0x0707 : 0x0706));
}

#define GPUFI_EACH_WIDTH "codec/line_impl.h"
#include "codec/each_width.h"

/* --- checksum --------------------------------------------------------------------------------- */

INLINE uint64_t sum_of_64(__m256i x) {
  const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  return (uint64_t)_mm_cvtsi128_si64(half) + (uint64_t)_mm_extract_epi64(half, 1);
}

static void add_words(const uint8_t *encoded, size_t begin, size_t end, uint64_t sums[2]) {
  __m256i plain = _mm256_setzero_si256(), mixed = plain;
  const v64 first = {begin + 1, begin + 2, begin + 3, begin + 4};
  __m256i key = (__m256i)(first * GPUFI_WORD_KEY);
  const __m256i next = _mm256_set1_epi64x((int64_t)(4 * GPUFI_WORD_KEY));
  size_t i = begin;
  for (; i + 4 <= end; i += 4) {
    const __m256i words = _mm256_loadu_si256((const __m256i *)(encoded + 8 * i));
    const __m256i x = _mm256_xor_si256(words, key);
    plain = _mm256_add_epi64(plain, words);
    mixed = _mm256_add_epi64(mixed, _mm256_mul_epu32(x, _mm256_srli_epi64(x, 32)));
    key = _mm256_add_epi64(key, next);
  }
  sums[0] += sum_of_64(plain);
  sums[1] += sum_of_64(mixed);
  gpufi_add_words_scalar(encoded, i, end, sums);
}

/* --- codes ------------------------------------------------------------------------------------ */

/* 32 four-bit codes of 16 bytes, a byte each. */
INLINE __m256i spread_4(const uint8_t *in) {
  const __m128i x = _mm_loadu_si128((const __m128i *)in), low = _mm_set1_epi8(15);
  const __m128i even = _mm_and_si128(x, low), odd = _mm_and_si128(_mm_srli_epi16(x, 4), low);
  return _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));
}

/* 16 three-bit codes of 6 bytes, in the low bytes of 16-bit lanes; reads 8 bytes. Lane k takes the
 * two bytes around bit 3k, and a multiplication shifts the code to the top of the lane. */
INLINE __m256i spread_3_half(const uint8_t *in) {
  const __m256i x = _mm256_set1_epi64x((int64_t)gpufi_load_u64(in));
  const __m256i bytes = _mm256_setr_epi8(0, 1, 0, 1, 0, 1, 1, 2, 1, 2, 1, 2, 2, 3, 2, 3, 3, 4, 3, 4,
                                         3, 4, 4, 5, 4, 5, 4, 5, 5, 6, 5, 6);
  /* 2^(13 - low), low the bit within the first of the two bytes */
  const __m256i up =
      _mm256_setr_epi16(1 << 13, 1 << 10, 1 << 7, 1 << 12, 1 << 9, 1 << 6, 1 << 11, 1 << 8, 1 << 13,
                        1 << 10, 1 << 7, 1 << 12, 1 << 9, 1 << 6, 1 << 11, 1 << 8);
  return _mm256_srli_epi16(_mm256_mullo_epi16(_mm256_shuffle_epi8(x, bytes), up), 13);
}

/* 32 three-bit codes of 12 bytes, a byte each; reads 14. */
INLINE __m256i spread_3(const uint8_t *in) {
  const __m256i packed = _mm256_packus_epi16(spread_3_half(in), spread_3_half(in + 6));
  return _mm256_permute4x64_epi64(packed, 0xd8);
}

static bool read_codes(const uint8_t *in, const gpufi_block *block, size_t groups, uint8_t *widths,
                       size_t *total) {
  const unsigned bits = block->kind == GPUFI_BLOCK_CODE3 ? 3 : 4;
  const __m256i zero = _mm256_set1_epi8((char)((1 << bits) - 1));
  const __m256i widest = _mm256_set1_epi8((char)block->width);
  const __m256i number =
      _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                       22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
  __m256i sum = _mm256_setzero_si256(), bad = sum;
  for (size_t k = 0; k < groups; k += 32) {
    const size_t left = groups - k;
    const __m256i codes = bits == 3 ? spread_3(in + k / 8 * 3) : spread_4(in + k / 2);
    const __m256i here = _mm256_cmpgt_epi8(_mm256_set1_epi8(left < 32 ? (char)left : 32), number);
    const __m256i some = _mm256_andnot_si256(_mm256_cmpeq_epi8(codes, zero), here);
    const __m256i width = _mm256_and_si256(some, _mm256_sub_epi8(widest, codes));
    /* not above 0: both are below 128 */
    const __m256i low = _mm256_cmpgt_epi8(_mm256_set1_epi8(1), _mm256_sub_epi8(widest, codes));
    bad = _mm256_or_si256(bad, _mm256_and_si256(some, low));
    sum = _mm256_add_epi64(sum, _mm256_sad_epu8(width, _mm256_setzero_si256()));
    _mm256_storeu_si256((__m256i *)(widths + k), width);
  }
  *total = sum_of_64(sum);
  const size_t end = groups * bits;
  return _mm256_testz_si256(bad, bad) && (end % 8 == 0 || in[end / 8] >> (end % 8) == 0);
}

/* --- unpacking -------------------------------------------------------------------------------- */

/* 8 values of 32 bits: those of the lower half come from the group's first 16 bytes, those of the
 * upper half from the 16 that hold value 4's first bit and start half the width later. */
#define BASE(w, j) ((j) < 4 ? 0 : (w) >> 1)
#define BYTE_32(w, j, k) (uint8_t)((BIT(w, j) >> 3) - BASE(w, j) + (k))
#define BYTES_32(w, j) BYTE_32(w, j, 0), BYTE_32(w, j, 1), BYTE_32(w, j, 2), BYTE_32(w, j, 3)
#define ROW_BYTES_32(w) {EACH_8(BYTES_32, w)}
#define ROW_LOW(w) {EACH_8(LOW, w)}
#define MASK_32(w) (uint32_t)((UINT64_C(1) << (w)) - 1)

static const uint8_t bytes_32[33][32] = {ROWS_32(ROW_BYTES_32)};
static const uint32_t low_32[33][8] = {ROWS_32(ROW_LOW)};
static const uint32_t mask_32[33] = {ROWS_32(MASK_32)};

INLINE __m256i load_256(const void *p) {
  return _mm256_loadu_si256((const __m256i *)p);
}

/* How packed values become residuals: plus `bias`, down by one bit if the lowest is a sign, and up
 * by the shift. */
typedef struct restoring {
  unsigned bias, sign, shift;
  __m128i down, up; /* `sign` and `shift` again */
} restoring;

INLINE restoring restoring_of(const gpufi_block *block) {
  const unsigned zigzag = block->form & GPUFI_FORM_PLAIN ? 0 : 1;
  return (restoring){block->form & GPUFI_FORM_SPARSE ? 1 : 0, zigzag, block->shift,
                     _mm_cvtsi32_si128((int)zigzag), _mm_cvtsi32_si128((int)block->shift)};
}

INLINE __m256i restore_32(__m256i z, restoring how) {
  z = _mm256_add_epi32(z, _mm256_set1_epi32((int)how.bias));
  const __m256i sign = _mm256_and_si256(z, _mm256_set1_epi32((int)how.sign));
  const __m256i flips = _mm256_sub_epi32(_mm256_setzero_si256(), sign);
  return _mm256_sll_epi32(_mm256_xor_si256(_mm256_srl_epi32(z, how.down), flips), how.up);
}

/* `wide`: a value and its offset in its first byte may take 5 bytes, which widths to 26 never do.
 */
INLINE void unpack_32_groups(const uint8_t *in, const uint8_t *widths, size_t groups, bool wide,
                             const gpufi_block *block, uint8_t *residuals) {
  const restoring how = restoring_of(block);
  for (size_t k = 0; k < groups; k++) {
    const unsigned width = widths[k];
    const __m128i first = _mm_loadu_si128((const __m128i *)in);
    const __m128i second = _mm_loadu_si128((const __m128i *)(in + (width >> 1)));
    const __m256i x = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
    const __m256i bytes = load_256(bytes_32[width]), low = load_256(low_32[width]);
    __m256i z = _mm256_srlv_epi32(_mm256_shuffle_epi8(x, bytes), low);
    if (wide) { /* the fifth byte; where the shuffle wraps round, no bit of the value is there */
      const __m256i more = _mm256_shuffle_epi8(x, _mm256_add_epi8(bytes, _mm256_set1_epi8(4)));
      const __m256i high = _mm256_sub_epi32(_mm256_set1_epi32(32), low);
      z = _mm256_or_si256(z, _mm256_sllv_epi32(more, high));
    }
    z = _mm256_and_si256(z, _mm256_set1_epi32((int)mask_32[width]));
    _mm256_storeu_si256((__m256i *)(residuals + 32 * k), restore_32(z, how));
    in += width;
  }
}

static void unpack_32(const uint8_t *in, const uint8_t *widths, size_t groups,
                      const gpufi_block *block, uint8_t *residuals) {
  if (block->width <= 26) {
    unpack_32_groups(in, widths, groups, false, block, residuals);
  } else {
    unpack_32_groups(in, widths, groups, true, block, residuals);
  }
}

/* 8 values of 16 bits, each by way of 32. */
#define BYTE_16(w, j, k) (uint8_t)((BIT(w, j) >> 3) + (k) < 16 ? (BIT(w, j) >> 3) + (k) : 0x80)
#define BYTES_16(w, j) BYTE_16(w, j, 0), BYTE_16(w, j, 1), BYTE_16(w, j, 2), 0x80
#define ROW_BYTES_16(w) {EACH_8(BYTES_16, w)}

static const uint8_t bytes_16[17][32] = {ROWS_16(ROW_BYTES_16)};

INLINE __m256i spread_16(const uint8_t *in, unsigned width) {
  const __m256i x = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)in));
  const __m256i z =
      _mm256_srlv_epi32(_mm256_shuffle_epi8(x, load_256(bytes_16[width])), load_256(low_32[width]));
  return _mm256_and_si256(z, _mm256_set1_epi32((int)mask_32[width]));
}

INLINE __m256i restore_16(__m256i z, restoring how) {
  z = _mm256_add_epi16(z, _mm256_set1_epi16((short)how.bias));
  const __m256i sign = _mm256_and_si256(z, _mm256_set1_epi16((short)how.sign));
  const __m256i flips = _mm256_sub_epi16(_mm256_setzero_si256(), sign);
  return _mm256_sll_epi16(_mm256_xor_si256(_mm256_srl_epi16(z, how.down), flips), how.up);
}

static void unpack_16(const uint8_t *in, const uint8_t *widths, size_t groups,
                      const gpufi_block *block, uint8_t *residuals) {
  const restoring how = restoring_of(block);
  for (size_t k = 0; k < groups; k += 2) {
    const unsigned width = widths[k], next = k + 1 < groups ? widths[k + 1] : 0;
    const __m256i z = _mm256_permute4x64_epi64(
        _mm256_packus_epi32(spread_16(in, width), spread_16(in + width, next)), 0xd8);
    const __m256i r = restore_16(z, how);
    if (k + 1 < groups) {
      _mm256_storeu_si256((__m256i *)(residuals + 16 * k), r);
    } else {
      _mm_storeu_si128((__m128i *)(residuals + 16 * k), _mm256_castsi256_si128(r));
    }
    in += width + next;
  }
}

/* 8 values of 8 bits, each by way of 16: up to the lane's top, which cuts off what is above the
 * value, and down again. */
#define BYTES_8(w, j) (uint8_t)(BIT(w, j) >> 3), (uint8_t)((BIT(w, j) >> 3) + 1)
#define UP_8(w, j) (uint16_t)(1u << ((16 - (w) - LOW(w, j)) & 15))
#define ROW_BYTES_8(w) {EACH_8(BYTES_8, w)}
#define ROW_UP_8(w) {EACH_8(UP_8, w)}

static const uint8_t bytes_8[9][16] = {ROWS_8(ROW_BYTES_8)};
static const uint16_t up_8[9][8] = {ROWS_8(ROW_UP_8)};

INLINE __m128i spread_8(const uint8_t *in, unsigned width) {
  const __m128i x = _mm_loadl_epi64((const __m128i *)in);
  const __m128i bytes = _mm_loadu_si128((const __m128i *)bytes_8[width]);
  const __m128i up = _mm_loadu_si128((const __m128i *)up_8[width]);
  const __m128i z = _mm_mullo_epi16(_mm_shuffle_epi8(x, bytes), up);
  return _mm_srl_epi16(z, _mm_cvtsi32_si128(16 - (int)width)); /* by 16: 0 */
}

/* There are no shifts of 8 bits: what crosses into the next byte is cut off. */
INLINE __m128i restore_8(__m128i z, restoring how) {
  z = _mm_add_epi8(z, _mm_set1_epi8((char)how.bias));
  const __m128i sign = _mm_and_si128(z, _mm_set1_epi8((char)how.sign));
  const __m128i flips = _mm_sub_epi8(_mm_setzero_si128(), sign);
  const __m128i low = _mm_set1_epi8((char)(0xff >> how.sign));
  const __m128i half = _mm_and_si128(_mm_srl_epi16(z, how.down), low);
  const __m128i r = _mm_xor_si128(half, flips);
  return _mm_and_si128(_mm_sll_epi16(r, how.up), _mm_set1_epi8((char)(0xff << how.shift)));
}

static void unpack_8(const uint8_t *in, const uint8_t *widths, size_t groups,
                     const gpufi_block *block, uint8_t *residuals) {
  const restoring how = restoring_of(block);
  for (size_t k = 0; k < groups; k += 2) {
    const unsigned width = widths[k], next = k + 1 < groups ? widths[k + 1] : 0;
    const __m128i r =
        restore_8(_mm_packus_epi16(spread_8(in, width), spread_8(in + width, next)), how);
    if (k + 1 < groups) {
      _mm_storeu_si128((__m128i *)(residuals + 8 * k), r);
    } else {
      _mm_storel_epi64((__m128i *)(residuals + 8 * k), r);
    }
    in += width + next;
  }
}

/* 4 of a group's values of 64 bits, from value j on. */
INLINE __m256i spread_64(const uint8_t *in, unsigned width, unsigned j, bool wide) {
  const unsigned a = j * width, b = a + width, c = b + width, d = c + width;
  const uint8_t *const pa = in + (a >> 3), *const pb = in + (b >> 3), *const pc = in + (c >> 3),
                       *const pd = in + (d >> 3);
  const v64 low = {a & 7, b & 7, c & 7, d & 7};
  const v64 x = {gpufi_load_u64(pa), gpufi_load_u64(pb), gpufi_load_u64(pc), gpufi_load_u64(pd)};
  __m256i z = _mm256_srlv_epi64((__m256i)x, (__m256i)low);
  if (wide) {
    const v64 more = {pa[8], pb[8], pc[8], pd[8]};
    z = _mm256_or_si256(z, _mm256_sllv_epi64((__m256i)more, (__m256i)(64 - low)));
  }
  const int64_t mask = width == 64 ? -1 : (int64_t)((UINT64_C(1) << width) - 1);
  return _mm256_and_si256(z, _mm256_set1_epi64x(mask));
}

INLINE __m256i restore_64(__m256i z, restoring how) {
  z = _mm256_add_epi64(z, _mm256_set1_epi64x(how.bias));
  const __m256i sign = _mm256_and_si256(z, _mm256_set1_epi64x(how.sign));
  const __m256i flips = _mm256_sub_epi64(_mm256_setzero_si256(), sign);
  return _mm256_sll_epi64(_mm256_xor_si256(_mm256_srl_epi64(z, how.down), flips), how.up);
}

INLINE void unpack_64_groups(const uint8_t *in, const uint8_t *widths, size_t groups, bool wide,
                             const gpufi_block *block, uint8_t *residuals) {
  const restoring how = restoring_of(block);
  for (size_t k = 0; k < groups; k++) {
    for (unsigned j = 0; j < 8; j += 4) {
      const __m256i z = spread_64(in, widths[k], j, wide);
      _mm256_storeu_si256((__m256i *)(residuals + 64 * k + (size_t)8 * j), restore_64(z, how));
    }
    in += widths[k];
  }
}

static void unpack_64(const uint8_t *in, const uint8_t *widths, size_t groups,
                      const gpufi_block *block, uint8_t *residuals) {
  if (block->width <= 57) {
    unpack_64_groups(in, widths, groups, false, block, residuals);
  } else {
    unpack_64_groups(in, widths, groups, true, block, residuals);
  }
}

/* --- sparse blocks ---------------------------------------------------------------------------- */

/* For each mask of 8 bits: where the value of each bit is among those used; 0x80 where it is 0. */
#define RANK(m, j) (uint8_t)((m) >> (j) & 1 ? __builtin_popcount((m) & ((1 << (j)) - 1)) : 0x80)
#define RANKS(m)                                                                                   \
  {RANK(m, 0), RANK(m, 1), RANK(m, 2), RANK(m, 3), RANK(m, 4), RANK(m, 5), RANK(m, 6), RANK(m, 7)}
#define RANKS_4(m) RANKS(m), RANKS((m) + 1), RANKS((m) + 2), RANKS((m) + 3)
#define RANKS_16(m) RANKS_4(m), RANKS_4((m) + 4), RANKS_4((m) + 8), RANKS_4((m) + 12)
#define RANKS_64(m) RANKS_16(m), RANKS_16((m) + 16), RANKS_16((m) + 32), RANKS_16((m) + 48)

static const uint8_t ranks[256][8] = {RANKS_64(0), RANKS_64(64), RANKS_64(128), RANKS_64(192)};

INLINE __m128i ranks_of(unsigned mask) {
  return _mm_loadl_epi64((const __m128i *)ranks[mask]);
}

INLINE void expand_group_8(unsigned mask, const uint8_t *used, uint8_t *values) {
  const __m128i x = _mm_loadl_epi64((const __m128i *)used);
  _mm_storel_epi64((__m128i *)values, _mm_shuffle_epi8(x, ranks_of(mask)));
}

INLINE void expand_group_16(unsigned mask, const uint8_t *used, uint8_t *values) {
  const __m128i x = _mm_loadu_si128((const __m128i *)used);
  const __m128i rank = _mm_cvtepi8_epi16(ranks_of(mask));
  const __m128i bytes =
      _mm_add_epi16(_mm_mullo_epi16(rank, _mm_set1_epi16(0x0202)), _mm_set1_epi16(0x0100));
  const __m128i none = _mm_srai_epi16(rank, 15);
  _mm_storeu_si128((__m128i *)values, _mm_shuffle_epi8(x, _mm_or_si128(bytes, none)));
}

INLINE void expand_group_32(unsigned mask, const uint8_t *used, uint8_t *values) {
  const __m256i rank = _mm256_cvtepi8_epi32(ranks_of(mask));
  const __m256i x = _mm256_permutevar8x32_epi32(load_256(used), rank);
  _mm256_storeu_si256((__m256i *)values, _mm256_andnot_si256(_mm256_srai_epi32(rank, 31), x));
}

INLINE void expand_half_64(unsigned mask, const uint8_t *used, uint8_t *values) {
  const __m256i rank = _mm256_cvtepi8_epi64(ranks_of(mask));
  const __m256i low = _mm256_add_epi64(rank, rank); /* the value as two of 32 bits */
  const __m256i high = _mm256_slli_epi64(_mm256_add_epi64(low, _mm256_set1_epi64x(1)), 32);
  const __m256i pair = _mm256_blend_epi32(low, high, 0xaa);
  const __m256i x = _mm256_permutevar8x32_epi32(load_256(used), pair);
  const __m256i none = _mm256_cmpgt_epi64(_mm256_setzero_si256(), rank);
  _mm256_storeu_si256((__m256i *)values, _mm256_andnot_si256(none, x));
}

INLINE void expand_group_64(unsigned mask, const uint8_t *used, uint8_t *values) {
  const unsigned low = mask & 15;
  expand_half_64(low, used, values);
  expand_half_64(mask >> 4, used + (size_t)8 * (unsigned)__builtin_popcount(low), values + 32);
}

#define EXPAND(BITS)                                                                               \
  static void expand_##BITS(const uint8_t *bits, const uint8_t *used, size_t count,                \
                            uint8_t *values) {                                                     \
    size_t i = 0;                                                                                  \
    for (; i + 8 <= count; i += 8) {                                                               \
      expand_group_##BITS(bits[i / 8], used, values + i * (BITS / 8));                             \
      used += (size_t)(BITS / 8) * (unsigned)__builtin_popcount(bits[i / 8]);                      \
    }                                                                                              \
    gpufi_expand_##BITS##_scalar(bits + i / 8, used, count - i, values + i * (BITS / 8));          \
  }

EXPAND(8)
EXPAND(16)
EXPAND(32)
EXPAND(64)

/* --- ranked chunks ---------------------------------------------------------------------------- */

/* table[code] for 32 codes up to `last`: 16 entries at a time, those of other codes 0. */
INLINE __m256i look_up(__m256i code, const uint8_t *table, unsigned last) {
  const __m256i part = _mm256_and_si256(_mm256_srli_epi16(code, 4), _mm256_set1_epi8(15));
  __m256i found = _mm256_setzero_si256();
  for (unsigned k = 0; k <= last >> 4; k++) {
    const __m128i some = _mm_loadu_si128((const __m128i *)(table + (size_t)16 * k));
    const __m256i x = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(some), code);
    const __m256i here = _mm256_cmpeq_epi8(part, _mm256_set1_epi8((char)k));
    found = _mm256_or_si256(found, _mm256_and_si256(here, x));
  }
  return found;
}

static void symbols(const uint8_t *codes, size_t count, const uint8_t *table, unsigned last,
                    const uint8_t *escaped, uint8_t *out) {
  size_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m256i code = load_256(codes + i);
    const __m256i escapes = _mm256_cmpeq_epi8(code, _mm256_set1_epi8((char)last));
    uint32_t mask = (uint32_t)_mm256_movemask_epi8(escapes);
    uint8_t more[32];
    for (size_t k = 0; k < 32; k += 8, mask >>= 8) {
      expand_group_8(mask & 255, escaped, more + k);
      escaped += __builtin_popcount(mask & 255);
    }
    const __m256i x = _mm256_or_si256(look_up(code, table, last), load_256(more));
    _mm256_storeu_si256((__m256i *)(out + i), x);
  }
  gpufi_symbols_scalar(codes + i, count - i, table, last, escaped, out + i);
}

/* --- packing ---------------------------------------------------------------------------------- */

#include "codec/pack_x86_impl.h"

const gpufi_cpu gpufi_cpu_avx2 = {
    .name = "avx2",
    .add_words = add_words,
    .read_codes = read_codes,
    .unpack = {unpack_8, unpack_16, unpack_32, unpack_64},
    .pack = {pack_8, pack_16, pack_32, pack_64},
    .pack_groups = {pack_groups_8, pack_groups_16, pack_groups_32, pack_groups_64},
    .expand = {expand_8, expand_16, expand_32, expand_64},
    .symbols = symbols,
    .inverse = {inverse_8, inverse_16, inverse_32, inverse_64},
    .forward = {forward_8, forward_16, forward_32, forward_64},
};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
