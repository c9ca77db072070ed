/* The codec's inner loops for x86-64 with AVX2. They give the scalar's bytes: everything is integer
 * arithmetic modulo 2^8 to 2^64 on lanes as wide as the values, and sums may be taken in any order.
 */
#include "codec/bitplanes.h"
#include "codec/bytes.h"
#include "codec/masks_avx2.h"
#include "codec/scalar.h"
#include "codec/sparse.h"
#include "codec/unpack_tables.h"
#include "codec/walks_x86.h"

#include <immintrin.h>

#include "codec/target_avx2.h"

#include "codec/codes_impl.h"
#include "codec/x86_impl.h"

/* --- running sums --- */

typedef uint8_t v8 __attribute__((vector_size(32)));
typedef uint16_t v16 __attribute__((vector_size(32)));
typedef uint32_t v32 __attribute__((vector_size(32)));
typedef uint64_t v64 __attribute__((vector_size(32)));

/* The vectors of line_impl.h, their running sums, and their last elements. In steps of 2 (complex
 * elements) the sums of even and of odd elements are separate.
 *
 * Sums take log2(elements) additions of x to itself moved up by 1, 2, 4 ... elements. AVX2 moves
 * bytes only within each half of 16 bytes, so this gives the sums within each half; then the last
 * sum of the lower half is added to all of the upper half.
 *
 *   x                a b c d   e f g h
 *   + moved by 1     a ab bc cd   e ef fg gh
 *   + moved by 2     a ab abc abcd   e ef efg efgh
 *   + abcd           a ab abc abcd   abcde ... */

/* The last 64, or 32, bits of the lower half on all of the upper half; the lower half 0. */
GPUFI_INLINE __m256i low_half_last_64(__m256i x) {
  return _mm256_permute2x128_si256(_mm256_shuffle_epi32(x, 0xee), x, 0x08);
}

GPUFI_INLINE __m256i low_half_last_32(__m256i x) {
  return _mm256_permute2x128_si256(_mm256_shuffle_epi32(x, 0xff), x, 0x08);
}

GPUFI_INLINE v64 prefix_64(v64 v, unsigned step) {
  __m256i x = (__m256i)v;
  if (step == 1) {
    x = _mm256_add_epi64(x, _mm256_slli_si256(x, 8));
    return (v64)_mm256_add_epi64(x, low_half_last_64(x));
  }
  return (v64)_mm256_add_epi64(x, _mm256_permute2x128_si256(x, x, 0x08));
}

GPUFI_INLINE v64 last_64(v64 v, unsigned step) {
  return step == 1 ? (v64)_mm256_permute4x64_epi64((__m256i)v, 0xff)
                   : (v64)_mm256_permute4x64_epi64((__m256i)v, 0xee);
}

GPUFI_INLINE v32 prefix_32(v32 v, unsigned step) {
  __m256i x = (__m256i)v;
  if (step == 1) {
    x = _mm256_add_epi32(x, _mm256_slli_si256(x, 4));
  }
  x = _mm256_add_epi32(x, _mm256_slli_si256(x, 8));
  return (v32)_mm256_add_epi32(x, step == 1 ? low_half_last_32(x) : low_half_last_64(x));
}

GPUFI_INLINE v32 last_32(v32 v, unsigned step) {
  return step == 1 ? (v32)_mm256_permutevar8x32_epi32((__m256i)v, _mm256_set1_epi32(7))
                   : (v32)_mm256_permute4x64_epi64((__m256i)v, 0xff);
}

/* No element has two parts of 16 bits: the step is always 1. */
GPUFI_INLINE v16 prefix_16(v16 v, unsigned step) {
  __m256i x = (__m256i)v;
  (void)step;
  x = _mm256_add_epi16(x, _mm256_slli_si256(x, 2));
  x = _mm256_add_epi16(x, _mm256_slli_si256(x, 4));
  x = _mm256_add_epi16(x, _mm256_slli_si256(x, 8));
  const __m256i ends = _mm256_shuffle_epi8(x, _mm256_set1_epi16(0x0f0e));
  return (v16)_mm256_add_epi16(x, _mm256_permute2x128_si256(ends, ends, 0x08));
}

GPUFI_INLINE v16 last_16(v16 v, unsigned step) {
  const __m256i last = _mm256_permute4x64_epi64((__m256i)v, 0xff);
  (void)step;
  return (v16)_mm256_shuffle_epi8(last, _mm256_set1_epi16(0x0706));
}

/* In steps of 2: places in a dictionary of complex elements. */
GPUFI_INLINE v8 prefix_8(v8 v, unsigned step) {
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

GPUFI_INLINE v8 last_8(v8 v, unsigned step) {
  const __m256i last = _mm256_permute4x64_epi64((__m256i)v, 0xff);
  return (v8)_mm256_shuffle_epi8(last, _mm256_set1_epi16(step == 1 ? 0x0707 : 0x0706));
}

#define GPUFI_EACH_WIDTH "codec/line_impl.h"
#include "codec/each_width.h"

/* --- bases --- */

/* AVX2 has no such conversion. Each half of the integer becomes the low bits of a double of a fixed
 * exponent; less these exponents' own values, the upper half is exact, and the sum is rounded once:
 *
 *   upper   2^84 + (upper half + 2^31) * 2^32
 *   lower   2^52 + lower half */
GPUFI_INLINE double double_of_int64(int64_t x) {
  const uint64_t upper = (uint64_t)x >> 32 ^ 0x4530000080000000u;
  const uint64_t lower = ((uint64_t)x & UINT32_MAX) | 0x4330000000000000u;
  const double fixed = 0x1p84 + 0x1p63 + 0x1p52;
  return gpufi_double_of_bits(upper) - fixed + gpufi_double_of_bits(lower);
}

#define NUMBER_OF_INT64(x) double_of_int64(x)
#define GPUFI_EACH_WIDTH "codec/number_impl.h"
#include "codec/each_width.h"
#define GPUFI_EACH_WIDTH "codec/sample_impl.h"
#include "codec/each_width.h"

/* --- checksum --- */

GPUFI_INLINE uint64_t sum_of_64(__m256i x) {
  const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  return (uint64_t)_mm_cvtsi128_si64(half) + (uint64_t)_mm_extract_epi64(half, 1);
}

/* The keys of four words at a time: (i + 1) * K for each, then plus 4 * K. */
static void add_words(const uint8_t *encoded, size_t begin, size_t end, uint64_t sums[2]) {
  __m256i plain = _mm256_setzero_si256(), mixed = plain;
  const v64 first = {begin + 1, begin + 2, begin + 3, begin + 4};
  __m256i key = (__m256i)(first * GPUFI_WORD_KEY);
  const __m256i next = _mm256_set1_epi64x((int64_t)(4 * GPUFI_WORD_KEY));
  size_t i = begin;
  for (; i + 4 <= end; i += 4) {
    const __m256i words = load_256(encoded + 8 * i);
    const __m256i x = _mm256_xor_si256(words, key);
    plain = _mm256_add_epi64(plain, words);
    mixed = _mm256_add_epi64(mixed, _mm256_mul_epu32(x, _mm256_srli_epi64(x, 32)));
    key = _mm256_add_epi64(key, next);
  }
  sums[0] += sum_of_64(plain);
  sums[1] += sum_of_64(mixed);
  gpufi_add_words_scalar(encoded, i, end, sums);
}

/* --- codes --- */

/* 32 four-bit codes of 16 bytes, a byte each: the low and the high nibbles, interleaved. */
GPUFI_INLINE __m256i spread_4(const uint8_t *in) {
  const __m128i x = load_128(in), low = _mm_set1_epi8(15);
  const __m128i even = _mm_and_si128(x, low), odd = _mm_and_si128(_mm_srli_epi16(x, 4), low);
  return _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));
}

/* 16 three-bit codes of 6 bytes, in the low bytes of 16-bit lanes; reads 8 bytes. Lane k takes the
 * two bytes that bit 3k is in and after. There are no shifts by lane of 16 bits, so a
 * multiplication by a power of two moves the code to the top of the lane, where the bits above it
 * are lost, and a shift that is the same for all moves it down. */
GPUFI_INLINE __m256i spread_3_half(const uint8_t *in) {
  const __m256i x = _mm256_set1_epi64x((int64_t)gpufi_load_u64(in));
  const __m256i bytes = _mm256_setr_epi8(0, 1, 0, 1, 0, 1, 1, 2, 1, 2, 1, 2, 2, 3, 2, 3, 3, 4, 3, 4,
                                         3, 4, 4, 5, 4, 5, 4, 5, 5, 6, 5, 6);
  /* 2^(13 - low), low the bit within the first of the two bytes */
  const __m256i up =
      _mm256_setr_epi16(1 << 13, 1 << 10, 1 << 7, 1 << 12, 1 << 9, 1 << 6, 1 << 11, 1 << 8, 1 << 13,
                        1 << 10, 1 << 7, 1 << 12, 1 << 9, 1 << 6, 1 << 11, 1 << 8);
  return _mm256_srli_epi16(_mm256_mullo_epi16(_mm256_shuffle_epi8(x, bytes), up), 13);
}

/* 32 three-bit codes of 12 bytes, a byte each; reads 14. Packing two registers interleaves their
 * halves, which the permutation puts in order. */
GPUFI_INLINE __m256i spread_3(const uint8_t *in) {
  const __m256i packed = _mm256_packus_epi16(spread_3_half(in), spread_3_half(in + 6));
  return _mm256_permute4x64_epi64(packed, 0xd8);
}

/* 32 codes at a time; `widths` has capacity for all of the last 32. Codes that do not exist (beyond
 * the last group) are whatever bytes follow, and count neither as widths nor as errors. */
static bool read_codes(const uint8_t *in, const gpufi_block *block, size_t groups, uint8_t *widths,
                       size_t *total) {
  const unsigned bits = block->kind == GPUFI_BLOCK_CODE3 ? 3 : 4;
  const __m256i zero = _mm256_set1_epi8((char)((1 << bits) - 1));
  const __m256i widest = _mm256_set1_epi8((char)block->width);
  const __m256i after = _mm256_set1_epi8((char)(block->second + 1));
  const __m256i number =
      _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                       22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
  __m256i sum = _mm256_setzero_si256(), bad = sum;
  for (size_t k = 0; k < groups; k += 32) {
    const size_t left = groups - k;
    const __m256i codes = bits == 3 ? spread_3(in + k / 8 * 3) : spread_4(in + k / 2);
    const __m256i here = _mm256_cmpgt_epi8(_mm256_set1_epi8(left < 32 ? (char)left : 32), number);
    const __m256i some = _mm256_andnot_si256(_mm256_cmpeq_epi8(codes, zero), here);
    const __m256i first = _mm256_cmpeq_epi8(codes, _mm256_setzero_si256());
    const __m256i lower = _mm256_sub_epi8(after, codes);
    const __m256i width = _mm256_and_si256(some, _mm256_blendv_epi8(lower, widest, first));
    /* Widths and codes are below 128, so that the difference is right as a signed number. */
    const __m256i low = _mm256_cmpgt_epi8(_mm256_set1_epi8(1), lower);
    bad = _mm256_or_si256(bad, _mm256_and_si256(some, low));
    sum = _mm256_add_epi64(sum, _mm256_sad_epu8(width, _mm256_setzero_si256()));
    _mm256_storeu_si256((__m256i *)(widths + k), width);
  }
  *total = sum_of_64(sum);
  const size_t end = groups * bits;
  return _mm256_testz_si256(bad, bad) && (end % 8 == 0 || in[end / 8] >> (end % 8) == 0);
}

/* --- unpacking --- */

/* 8 values of 32 bits at width w. A byte shuffle gives each lane the four bytes from the one on
 * that its value starts in, and a shift by lane moves the value's first bit down to bit 0:
 *
 *   bytes    .......v vvvvvvvv vvvv.... ........     lowest bit first; low = 7
 *   >> low   vvvvvvvv vvvvv... ........ ........     and a mask takes off what is above
 *
 * Shuffles do not cross halves of a register, so each half gets its own 16 bytes: values 0 to 3 are
 * in the group's first 16 bytes (4w <= 128 bits), and values 4 to 7 in the 16 that start at byte
 * w / 2, where value 4 starts, and which reach beyond the group's w bytes.
 *
 * With w > 26 a value may reach into a fifth byte. It is shuffled on its own, which is the same
 * shuffle 4 bytes on, and moved up to where it belongs. Where its index is past the 16th byte the
 * shuffle takes a wrong one, but then no bit of the value is there: all four of a half's values lie
 * within its 16 bytes. A value that starts at bit 0 has its fifth byte shifted by 32, which gives
 * 0.
 */
#define BASE(w, j) ((j) < 4 ? 0 : (w) >> 1)
#define BYTE_32(w, j, k) (uint8_t)((BIT(w, j) >> 3) - BASE(w, j) + (k))
#define BYTES_32(w, j) BYTE_32(w, j, 0), BYTE_32(w, j, 1), BYTE_32(w, j, 2), BYTE_32(w, j, 3)
#define ROW_BYTES_32(w) {EACH_8(BYTES_32, w)}

static const uint8_t bytes_32[33][32] = {ROWS_32(ROW_BYTES_32)};

#define NARROW_32 26

GPUFI_INLINE __m256i spread_32(const uint8_t *in, unsigned width, bool narrow) {
  const __m128i first = load_128(in), second = load_128(in + (width >> 1));
  const __m256i x = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
  const __m256i bytes = load_256(bytes_32[width]), low = load_256(low_32[width]);
  __m256i z = _mm256_srlv_epi32(_mm256_shuffle_epi8(x, bytes), low);
  if (!narrow) {
    const __m256i more = _mm256_shuffle_epi8(x, _mm256_add_epi8(bytes, _mm256_set1_epi8(4)));
    const __m256i high = _mm256_sub_epi32(_mm256_set1_epi32(32), low);
    z = _mm256_or_si256(z, _mm256_sllv_epi32(more, high));
  }
  return _mm256_and_si256(z, _mm256_set1_epi32((int)mask_32[width]));
}

/* 8 values of 16 bits, each in a lane of 32, for there are no shifts by lane of 16. A value and its
 * place in its first byte take at most 7 + 16 bits, three bytes, and the group at most 16 bytes, of
 * which both halves get a copy. Index 0x80 shuffles in a 0. */
#define BYTE_16(w, j, k) (uint8_t)((BIT(w, j) >> 3) + (k) < 16 ? (BIT(w, j) >> 3) + (k) : 0x80)
#define BYTES_16(w, j) BYTE_16(w, j, 0), BYTE_16(w, j, 1), BYTE_16(w, j, 2), 0x80
#define ROW_BYTES_16(w) {EACH_8(BYTES_16, w)}

static const uint8_t bytes_16[17][32] = {ROWS_16(ROW_BYTES_16)};

GPUFI_INLINE __m256i spread_16_by_32(const uint8_t *in, unsigned width) {
  const __m256i x = _mm256_broadcastsi128_si256(load_128(in));
  const __m256i z =
      _mm256_srlv_epi32(_mm256_shuffle_epi8(x, load_256(bytes_16[width])), load_256(low_32[width]));
  return _mm256_and_si256(z, _mm256_set1_epi32((int)mask_32[width]));
}

/* Values fit 16 bits, so that the saturation of the packing changes none. */
GPUFI_INLINE __m256i spread_16(const uint8_t *in, unsigned width, unsigned next) {
  const __m256i packed =
      _mm256_packus_epi32(spread_16_by_32(in, width), spread_16_by_32(in + width, next));
  return _mm256_permute4x64_epi64(packed, 0xd8);
}

#include "codec/unpack_x86_impl.h"

/* 8 values of 8 bits, each in a lane of 16, for there are no shifts by lane at all below 32: a
 * multiplication by a power of two moves the value to the top of its lane, which cuts off what is
 * above it, and a shift that is the same for all moves it down. */
#define BYTES_8(w, j) (uint8_t)(BIT(w, j) >> 3), (uint8_t)((BIT(w, j) >> 3) + 1)
#define UP_8(w, j) (uint16_t)(1u << ((16 - (w) - LOW(w, j)) & 15))
#define ROW_BYTES_8(w) {EACH_8(BYTES_8, w)}
#define ROW_UP_8(w) {EACH_8(UP_8, w)}

static const uint8_t bytes_8[9][16] = {ROWS_8(ROW_BYTES_8)};
static const uint16_t up_8[9][8] = {ROWS_8(ROW_UP_8)};

GPUFI_INLINE __m128i spread_8(const uint8_t *in, unsigned width) {
  const __m128i x = _mm_loadl_epi64((const __m128i *)in); /* zeros above: value 7's second byte */
  const __m128i z =
      _mm_mullo_epi16(_mm_shuffle_epi8(x, load_128(bytes_8[width])), load_128(up_8[width]));
  return _mm_srl_epi16(z, _mm_cvtsi32_si128(16 - (int)width)); /* width 0: by 16, which gives 0 */
}

/* As RESTORE. There are no shifts of lanes of 8 bits: those of 16 carry bits from one byte into the
 * next, and a mask takes them off. */
GPUFI_INLINE __m128i restore_8(__m128i z, restoring how) {
  z = _mm_add_epi8(z, _mm_set1_epi8((char)how.bias));
  const __m128i odd = _mm_and_si128(z, _mm_set1_epi8((char)how.zigzag));
  const __m128i flips = _mm_sub_epi8(_mm_setzero_si128(), odd);
  const __m128i low = _mm_set1_epi8((char)(0xff >> how.zigzag));
  const __m128i half = _mm_and_si128(_mm_srl_epi16(z, how.down), low);
  const __m128i r = _mm_xor_si128(half, flips);
  return _mm_and_si128(_mm_sll_epi16(r, how.up), _mm_set1_epi8((char)(0xff << how.shift)));
}

/* Groups in pairs, as in unpack_16. */
static void unpack_8(const uint8_t *in, const uint8_t *widths, size_t groups,
                     const gpufi_block *block, uint8_t *residuals) {
  const restoring how = restoring_of(block);
  for (size_t k = 0; k < groups; k += 2) {
    const unsigned width = widths[k], next = k + 1 < groups ? widths[k + 1] : 0;
    const __m128i z = _mm_packus_epi16(spread_8(in, width), spread_8(in + width, next));
    const __m128i r = restore_8(z, how);
    if (k + 1 < groups) {
      _mm_storeu_si128((__m128i *)(residuals + 8 * k), r);
    } else {
      _mm_storel_epi64((__m128i *)(residuals + 8 * k), r);
    }
    in += width + next;
  }
}

/* 4 of a group's values of 64 bits, from value j on: 8 bytes each from the one on that the value
 * starts in. With widths above 57 a value may reach into a ninth byte; a value that starts at bit 0
 * has it shifted by 64, which gives 0. The last value's ninth byte is byte 64 of a group of width
 * 64: no unpacking reads further, and GPUFI_GROUP_READ_NBYTES is that rounded up. */
GPUFI_INLINE __m256i spread_64(const uint8_t *in, unsigned width, unsigned j, bool narrow) {
  const unsigned a = j * width, b = a + width, c = b + width, d = c + width;
  const uint8_t *const pa = in + (a >> 3), *const pb = in + (b >> 3), *const pc = in + (c >> 3),
                       *const pd = in + (d >> 3);
  const v64 low = {a & 7, b & 7, c & 7, d & 7};
  const v64 x = {gpufi_load_u64(pa), gpufi_load_u64(pb), gpufi_load_u64(pc), gpufi_load_u64(pd)};
  __m256i z = _mm256_srlv_epi64((__m256i)x, (__m256i)low);
  if (!narrow) {
    const v64 more = {pa[8], pb[8], pc[8], pd[8]};
    z = _mm256_or_si256(z, _mm256_sllv_epi64((__m256i)more, (__m256i)(64 - low)));
  }
  const int64_t mask = width == 64 ? -1 : (int64_t)((UINT64_C(1) << width) - 1);
  return _mm256_and_si256(z, _mm256_set1_epi64x(mask));
}

#define SET1_64(x) _mm256_set1_epi64x((int64_t)(x))

RESTORE(64, SET1_64)

GPUFI_INLINE void unpack_64_groups(const uint8_t *in, const uint8_t *widths, size_t groups,
                                   bool narrow, const gpufi_block *block, uint8_t *residuals) {
  const restoring how = restoring_of(block);
  for (size_t k = 0; k < groups; k++) {
    for (unsigned j = 0; j < 8; j += 4) {
      const __m256i z = spread_64(in, widths[k], j, narrow);
      _mm256_storeu_si256((__m256i *)(residuals + 64 * k + (size_t)8 * j), restore_64(z, how));
    }
    in += widths[k];
  }
}

static void unpack_64(const uint8_t *in, const uint8_t *widths, size_t groups,
                      const gpufi_block *block, uint8_t *residuals) {
  if (block->width <= 57) {
    unpack_64_groups(in, widths, groups, true, block, residuals);
  } else {
    unpack_64_groups(in, widths, groups, false, block, residuals);
  }
}

/* --- sparse blocks --- */

GPUFI_INLINE __m128i ranks_of(unsigned mask) {
  return _mm_loadl_epi64((const __m128i *)ranks[mask]);
}

/* 8 values from the next ones of `used`, of which it reads 8, whatever the mask: at most 64 bytes
 * (GPUFI_EXPAND_READ_NBYTES) past the last. */
GPUFI_INLINE void expand_group_8(unsigned mask, const uint8_t *used, uint8_t *values) {
  const __m128i x = _mm_loadl_epi64((const __m128i *)used);
  _mm_storel_epi64((__m128i *)values, _mm_shuffle_epi8(x, ranks_of(mask)));
}

/* Value r is bytes 2r and 2r + 1. */
GPUFI_INLINE void expand_group_16(unsigned mask, const uint8_t *used, uint8_t *values) {
  const __m128i rank = _mm_cvtepi8_epi16(ranks_of(mask));
  const __m128i bytes =
      _mm_add_epi16(_mm_mullo_epi16(rank, _mm_set1_epi16(0x0202)), _mm_set1_epi16(0x0100));
  const __m128i none = _mm_srai_epi16(rank, 15); /* all bits set, which is an index above 0x7f */
  _mm_storeu_si128((__m128i *)values, _mm_shuffle_epi8(load_128(used), _mm_or_si128(bytes, none)));
}

GPUFI_INLINE void expand_group_32(unsigned mask, const uint8_t *used, uint8_t *values) {
  const __m256i rank = _mm256_cvtepi8_epi32(ranks_of(mask));
  const __m256i x = _mm256_permutevar8x32_epi32(load_256(used), rank);
  _mm256_storeu_si256((__m256i *)values, _mm256_andnot_si256(_mm256_srai_epi32(rank, 31), x));
}

/* 4 values by 4 bits of mask. There is no permutation of 64-bit lanes by a register: value r is the
 * 32-bit lanes 2r and 2r + 1. */
GPUFI_INLINE void expand_half_64(unsigned mask, const uint8_t *used, uint8_t *values) {
  const __m256i rank = _mm256_cvtepi8_epi64(ranks_of(mask));
  const __m256i low = _mm256_add_epi64(rank, rank);
  const __m256i high = _mm256_slli_epi64(_mm256_add_epi64(low, _mm256_set1_epi64x(1)), 32);
  const __m256i pair = _mm256_blend_epi32(low, high, 0xaa);
  const __m256i x = _mm256_permutevar8x32_epi32(load_256(used), pair);
  const __m256i none = _mm256_cmpgt_epi64(_mm256_setzero_si256(), rank);
  _mm256_storeu_si256((__m256i *)values, _mm256_andnot_si256(none, x));
}

GPUFI_INLINE void expand_group_64(unsigned mask, const uint8_t *used, uint8_t *values) {
  const unsigned low = mask & 15;
  expand_half_64(low, used, values);
  expand_half_64(mask >> 4, used + (size_t)8 * (unsigned)__builtin_popcount(low), values + 32);
}

/* Whole groups, whose stores fill exactly 8 values; what is left by the scalar code. */
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

/* Bytes are brought together eight at a time; what is stored too far the next eight overwrite. */
static void compact_8(const uint8_t *values, size_t count, gpufi_mask *mask, uint8_t *used) {
  mask->used_count = 0;
  for (size_t i = 0; i < count; i += 8) {
    const uint64_t x = gpufi_load_value(values + i, count - i < 8 ? count - i : 8);
    const __m128i zeros = _mm_cmpeq_epi8(_mm_cvtsi64_si128((int64_t)x), _mm_setzero_si128());
    const unsigned some = ~(unsigned)_mm_movemask_epi8(zeros) & 255;
    const uint64_t bytes = _pdep_u64(some, UINT64_C(0x0101010101010101)) * 255;
    const uint64_t together = _pext_u64(x, bytes);
    mask->bits[i / 8] = (uint8_t)some;
    memcpy(used + mask->used_count, &together, sizeof(together));
    mask->used_count += (size_t)__builtin_popcount(some);
  }
}

#define COMPACT(BITS)                                                                              \
  static void compact_##BITS(const uint8_t *values, size_t count, gpufi_mask *mask,                \
                             uint8_t *used) {                                                      \
    gpufi_mask_of(BITS / 8, values, count, mask);                                                  \
    gpufi_mask_compact(BITS / 8, values, count, used);                                             \
  }

COMPACT(16)
COMPACT(32)
COMPACT(64)

#define VECTOR_NBYTES 32
#define GPUFI_GROUPS "codec/groups_avx2.h"
#include "codec/pack_x86_impl.h"

#define LANES 4
#include "codec/bitplanes_impl.h"

#define GPUFI_EACH_WIDTH "codec/planes_impl.h"
#include "codec/each_width.h"

#define NO_KERNELS {NULL}
CPU_TABLE(avx2, NO_KERNELS, NO_KERNELS);

#include "codec/target_end.h"
