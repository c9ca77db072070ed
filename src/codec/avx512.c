/* The codec's inner loops for x86-64 with AVX-512 (F, BW, DQ, VL, CD, VBMI, VBMI2) and GFNI. They
 * give the scalar's bytes for the reasons that avx2.c gives, which also explains what is not said
 * here. */
#include "codec/bitplanes.h"
#include "codec/bytes.h"
#include "codec/scalar.h"
#include "codec/sparse.h"
#include "codec/table_avx512.h"
#include "codec/unpack_tables.h"
#include "codec/walks_x86.h"

#include <immintrin.h>

#include "codec/target_avx512.h"

#include "codec/codes_impl.h"
#include "codec/x86_impl.h"

/* --- running sums --- */

typedef uint8_t v8 __attribute__((vector_size(64)));
typedef uint16_t v16 __attribute__((vector_size(64)));
typedef uint32_t v32 __attribute__((vector_size(64)));
typedef uint64_t v64 __attribute__((vector_size(64)));

/* x moved up by `count` 32-bit elements, zeros below. */
#define UP_32(x, count) _mm512_alignr_epi32(x, _mm512_setzero_si512(), 16 - (count))

GPUFI_INLINE v64 prefix_64(v64 v, unsigned step) {
  __m512i x = (__m512i)v;
  if (step == 1) {
    x = _mm512_add_epi64(x, UP_32(x, 2));
  }
  x = _mm512_add_epi64(x, UP_32(x, 4));
  return (v64)_mm512_add_epi64(x, UP_32(x, 8));
}

GPUFI_INLINE v64 last_64(v64 v, unsigned step) {
  return step == 1 ? (v64)_mm512_permutexvar_epi64(_mm512_set1_epi64(7), (__m512i)v)
                   : (v64)_mm512_shuffle_i64x2((__m512i)v, (__m512i)v, 0xff);
}

GPUFI_INLINE v32 prefix_32(v32 v, unsigned step) {
  __m512i x = (__m512i)v;
  if (step == 1) {
    x = _mm512_add_epi32(x, UP_32(x, 1));
  }
  x = _mm512_add_epi32(x, UP_32(x, 2));
  x = _mm512_add_epi32(x, UP_32(x, 4));
  return (v32)_mm512_add_epi32(x, UP_32(x, 8));
}

GPUFI_INLINE v32 last_32(v32 v, unsigned step) {
  return step == 1 ? (v32)_mm512_permutexvar_epi32(_mm512_set1_epi32(15), (__m512i)v)
                   : (v32)_mm512_permutexvar_epi64(_mm512_set1_epi64(7), (__m512i)v);
}

/* Bytes move only within quarters of 16 bytes. So the sums are taken within each, and then `ends`,
 * each quarter's last sum all over it, is moved up by one quarter, summed up over the quarters in
 * two steps, and added: quarter q gets the last sums of quarters 0 to q - 1.
 *
 * No element has two parts of 16 bits: the step is always 1. */
GPUFI_INLINE v16 prefix_16(v16 v, unsigned step) {
  __m512i x = (__m512i)v;
  (void)step;
  x = _mm512_add_epi16(x, _mm512_bslli_epi128(x, 2));
  x = _mm512_add_epi16(x, _mm512_bslli_epi128(x, 4));
  x = _mm512_add_epi16(x, _mm512_bslli_epi128(x, 8));
  __m512i ends = _mm512_shuffle_epi8(x, _mm512_set1_epi16(0x0f0e));
  ends = UP_32(ends, 4);
  ends = _mm512_add_epi16(ends, UP_32(ends, 4));
  return (v16)_mm512_add_epi16(x, _mm512_add_epi16(ends, UP_32(ends, 8)));
}

GPUFI_INLINE v16 last_16(v16 v, unsigned step) {
  (void)step;
  return (v16)_mm512_permutexvar_epi16(_mm512_set1_epi16(31), (__m512i)v);
}

/* In steps of 2: places in a dictionary of complex elements. */
GPUFI_INLINE v8 prefix_8(v8 v, unsigned step) {
  __m512i x = (__m512i)v;
  if (step == 1) {
    x = _mm512_add_epi8(x, _mm512_bslli_epi128(x, 1));
  }
  x = _mm512_add_epi8(x, _mm512_bslli_epi128(x, 2));
  x = _mm512_add_epi8(x, _mm512_bslli_epi128(x, 4));
  x = _mm512_add_epi8(x, _mm512_bslli_epi128(x, 8));
  __m512i ends = _mm512_shuffle_epi8(x, _mm512_set1_epi16(step == 1 ? 0x0f0f : 0x0f0e));
  ends = UP_32(ends, 4);
  ends = _mm512_add_epi8(ends, UP_32(ends, 4));
  return (v8)_mm512_add_epi8(x, _mm512_add_epi8(ends, UP_32(ends, 8)));
}

GPUFI_INLINE v8 last_8(v8 v, unsigned step) {
  return step == 1 ? (v8)_mm512_permutexvar_epi8(_mm512_set1_epi8(63), (__m512i)v)
                   : (v8)_mm512_permutexvar_epi16(_mm512_set1_epi16(31), (__m512i)v);
}

#define GPUFI_EACH_WIDTH "codec/line_impl.h"
#include "codec/each_width.h"

#define NUMBER_OF_INT64(x) (double)(x)
#define GPUFI_EACH_WIDTH "codec/number_impl.h"
#include "codec/each_width.h"
#define GPUFI_EACH_WIDTH "codec/sample_impl.h"
#include "codec/each_width.h"

/* --- checksum --- */

/* Modulo 2^64: the compiler's own reduction adds signed numbers, which must not overflow. */
static uint64_t sum_of(__m512i x) {
  const v64 v = (v64)x;
  return v[0] + v[1] + v[2] + v[3] + v[4] + v[5] + v[6] + v[7];
}

static void add_words(const uint8_t *encoded, size_t begin, size_t end, uint64_t sums[2]) {
  __m512i plain = _mm512_setzero_si512(), mixed = plain;
  const v64 index = {1, 2, 3, 4, 5, 6, 7, 8};
  __m512i key = (__m512i)((index + begin) * GPUFI_WORD_KEY);
  const __m512i next = _mm512_set1_epi64((int64_t)(8 * GPUFI_WORD_KEY));
  size_t i = begin;
  for (; i + 8 <= end; i += 8) {
    const __m512i words = _mm512_loadu_si512(encoded + 8 * i);
    const __m512i x = _mm512_xor_si512(words, key);
    plain = _mm512_add_epi64(plain, words);
    mixed = _mm512_add_epi64(mixed, _mm512_mul_epu32(x, _mm512_srli_epi64(x, 32)));
    key = _mm512_add_epi64(key, next);
  }
  sums[0] += sum_of(plain);
  sums[1] += sum_of(mixed);
  gpufi_add_words_scalar(encoded, i, end, sums);
}

/* --- codes --- */

/* 64 codes of 3 (24 bytes) or 4 bits (32 bytes), a byte each; reads 32. 8 codes take `bits` bytes,
 * so lane k of 64 bits gets 8 bytes from byte k * bits on; a multishift then puts 8 bits from any
 * bit of the lane into each of its bytes, and a mask leaves the code. */
GPUFI_INLINE __m512i spread_codes(const uint8_t *in, unsigned bits) {
  const __m512i x = _mm512_castsi256_si512(load_256(in));
  const __m512i lane = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i first = _mm512_mullo_epi64(lane, _mm512_set1_epi64(bits));
  const __m512i broadcast =
      _mm512_shuffle_epi8(first, _mm512_broadcast_i32x4(_mm_set_epi64x(0x0808080808080808, 0)));
  const __m512i bytes = _mm512_add_epi8(broadcast, _mm512_set1_epi64(0x0706050403020100));
  const __m512i shifts = _mm512_set1_epi64(bits == 3 ? 0x15120f0c09060300 : 0x1c1814100c080400);
  return _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, _mm512_permutexvar_epi8(bytes, x)),
                          _mm512_set1_epi8((char)((1 << bits) - 1)));
}

/* 64 codes at a time; those beyond the last group are masked off. */
static bool read_codes(const uint8_t *in, const gpufi_block *block, size_t groups, uint8_t *widths,
                       size_t *total) {
  const unsigned bits = block->kind == GPUFI_BLOCK_CODE3 ? 3 : 4;
  const __m512i zero = _mm512_set1_epi8((char)((1 << bits) - 1));
  const __m512i widest = _mm512_set1_epi8((char)block->width);
  const __m512i after = _mm512_set1_epi8((char)(block->second + 1));
  __m512i sum = _mm512_setzero_si512();
  __mmask64 bad = 0;
  for (size_t k = 0; k < groups; k += 64) {
    const __mmask64 here = _bzhi_u64(UINT64_MAX, groups - k < 64 ? (unsigned)(groups - k) : 64);
    const __m512i codes = spread_codes(in + k / 8 * bits, bits);
    const __mmask64 some = _mm512_mask_cmpneq_epi8_mask(here, codes, zero);
    const __m512i lower = _mm512_maskz_sub_epi8(some, after, codes);
    const __m512i width =
        _mm512_mask_mov_epi8(lower, _mm512_mask_testn_epi8_mask(here, codes, codes), widest);
    bad |= _mm512_mask_cmpge_epu8_mask(some, codes, after);
    sum = _mm512_add_epi64(sum, _mm512_sad_epu8(width, _mm512_setzero_si512()));
    _mm512_storeu_si512(widths + k, width);
  }
  *total = (size_t)sum_of(sum);
  const size_t end = groups * bits;
  return bad == 0 && (end % 8 == 0 || in[end / 8] >> (end % 8) == 0);
}

/* --- unpacking --- */

/* 8 values of 32 bits at width w, which take at most 32 bytes: one load has them all, and a
 * permutation of bytes takes any byte to any lane.
 *
 * For w <= 30, by pairs. Lane j of 64 bits gets the 8 bytes that values 2j and 2j + 1 are in, and a
 * multishift, which gives each byte of a lane 8 bits from any bit of it, moves both values to where
 * they belong. A pair and its place in its first byte take at most 64 bits: that place is even, for
 * it is a multiple of 2w, 0 or 4 for w = 30, and at most 6 for w = 29. For w = 31 it is up to 6,
 * and 6 + 62 bits need a ninth byte. What a byte of a lane gets from beyond the value is masked
 * off.
 *
 *   lane 3   ..666666 66666777 77777777 ........     lowest bit first, by value, for w = 11
 *   shifts   2, 10, 18, 26 for value 6, and 13, 21, 29, 37 for value 7; then the mask
 */
#define BYTE(w, bit, k) (uint8_t)(((bit) >> 3) + (k))
#define BYTES_4(w, bit) BYTE(w, bit, 0), BYTE(w, bit, 1), BYTE(w, bit, 2), BYTE(w, bit, 3)
#define BYTES_8(w, bit) BYTES_4(w, bit), BYTES_4(w, (bit) + 32)
#define SHIFTS_2(bit) (uint8_t)(bit), (uint8_t)((bit) + 8)
#define SHIFTS_4(bit) SHIFTS_2(bit), SHIFTS_2((bit) + 16)
#define PAIR(w, j) ((w) * 2 * (j))
#define PAIR_BYTES(w, j) BYTES_8(w, PAIR(w, j))
#define PAIR_SHIFTS(w, j) SHIFTS_4(PAIR(w, j) & 7), SHIFTS_4((PAIR(w, j) & 7) + (w))
#define ROW_PAIR_BYTES(w) {PAIR_BYTES(w, 0), PAIR_BYTES(w, 1), PAIR_BYTES(w, 2), PAIR_BYTES(w, 3)}
#define ROW_PAIR_SHIFTS(w)                                                                         \
  {PAIR_SHIFTS(w, 0), PAIR_SHIFTS(w, 1), PAIR_SHIFTS(w, 2), PAIR_SHIFTS(w, 3)}

static const uint8_t pair_bytes[33][32] = {ROWS_32(ROW_PAIR_BYTES)};
static const uint8_t pair_shifts[33][32] = {ROWS_32(ROW_PAIR_SHIFTS)};

/* For any w, one by one: lane j of 32 bits gets the four bytes from the one on that value j starts
 * in, another register the four after these, and a funnel shift takes 32 bits out of the two from
 * bit `low` on. Indices past byte 31 wrap round to bytes of which no bit is taken, for the group
 * ends at byte w. */
#define VALUE_BYTES_32(w, j) BYTES_4(w, BIT(w, j))
#define ROW_BYTES_32(w) {EACH_8(VALUE_BYTES_32, w)}

static const uint8_t bytes_32[33][32] = {ROWS_32(ROW_BYTES_32)};

#define NARROW_32 30

GPUFI_INLINE __m256i spread_32(const uint8_t *in, unsigned width, bool narrow) {
  const __m256i x = load_256(in);
  __m256i z;
  if (narrow) {
    z = _mm256_multishift_epi64_epi8(load_256(pair_shifts[width]),
                                     _mm256_permutexvar_epi8(load_256(pair_bytes[width]), x));
  } else {
    const __m256i bytes = load_256(bytes_32[width]);
    const __m256i after = _mm256_add_epi8(bytes, _mm256_set1_epi8(4));
    z = _mm256_shrdv_epi32(_mm256_permutexvar_epi8(bytes, x), _mm256_permutexvar_epi8(after, x),
                           load_256(low_32[width]));
  }
  return _mm256_and_si256(z, _mm256_set1_epi32((int)mask_32[width]));
}

/* 8 values of 16 bits as 2 quadruples, in the same way. A quadruple starts at bit 0 or 4 of its
 * first byte, at 4 only for odd w <= 15, and so never needs a ninth byte. */
#define QUAD(w, j) ((w) * 4 * (j))
#define QUAD_SHIFTS(w, j)                                                                          \
  SHIFTS_2(QUAD(w, j) & 7), SHIFTS_2((QUAD(w, j) & 7) + (w)),                                      \
      SHIFTS_2((QUAD(w, j) & 7) + 2 * (w)), SHIFTS_2((QUAD(w, j) & 7) + 3 * (w))
#define ROW_QUAD_BYTES(w) {BYTES_8(w, 0), BYTES_8(w, QUAD(w, 1))}
#define ROW_QUAD_SHIFTS(w) {QUAD_SHIFTS(w, 0), QUAD_SHIFTS(w, 1)}
#define MASK_16(w) (uint16_t)((1u << (w)) - 1)

static const uint8_t quad_bytes[17][16] = {ROWS_16(ROW_QUAD_BYTES)};
static const uint8_t quad_shifts[17][16] = {ROWS_16(ROW_QUAD_SHIFTS)};
static const uint16_t mask_16[17] = {ROWS_16(MASK_16)};

GPUFI_INLINE __m128i spread_16_group(const uint8_t *in, unsigned width) {
  const __m128i x = _mm_shuffle_epi8(load_128(in), load_128(quad_bytes[width]));
  return _mm_and_si128(_mm_multishift_epi64_epi8(load_128(quad_shifts[width]), x),
                       _mm_set1_epi16((short)mask_16[width]));
}

GPUFI_INLINE __m256i spread_16(const uint8_t *in, unsigned width, unsigned next) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(spread_16_group(in, width)),
                                 spread_16_group(in + width, next), 1);
}

#include "codec/unpack_x86_impl.h"

/* As RESTORE. There are no shifts of lanes of 8 bits: those of 16 carry bits from one byte into the
 * next, and a mask takes them off. */
GPUFI_INLINE __m512i restore_8(__m512i z, restoring how) {
  z = _mm512_add_epi8(z, _mm512_set1_epi8((char)how.bias));
  const __m512i odd = _mm512_and_si512(z, _mm512_set1_epi8((char)how.zigzag));
  const __m512i flips = _mm512_sub_epi8(_mm512_setzero_si512(), odd);
  const __m512i low = _mm512_set1_epi8((char)(0xff >> how.zigzag));
  const __m512i r = _mm512_xor_si512(_mm512_and_si512(_mm512_srl_epi16(z, how.down), low), flips);
  return _mm512_and_si512(_mm512_sll_epi16(r, how.up), _mm512_set1_epi8((char)(0xff << how.shift)));
}

/* 8 values of 8 bits by a bit deposit, which puts the lowest bits of a word where a mask has bits:
 * `w` of them into each byte. Every CPU with VBMI has a fast one. */
#define MASK_8(w) (((UINT64_C(1) << (w)) - 1) * UINT64_C(0x0101010101010101))

static const uint64_t mask_8[9] = {ROWS_8(MASK_8)};

/* Residuals are deposited as packed values, and then restored in place 64 at a time. */
static void unpack_8(const uint8_t *in, const uint8_t *widths, size_t groups,
                     const gpufi_block *block, uint8_t *residuals) {
  const restoring how = restoring_of(block);
  for (size_t k = 0; k < groups; k++) {
    const uint64_t z = _pdep_u64(gpufi_load_u64(in), mask_8[widths[k]]);
    memcpy(residuals + 8 * k, &z, sizeof(z));
    in += widths[k];
  }
  for (size_t i = 0; i < 8 * groups; i += 64) {
    const size_t left = 8 * groups - i;
    const __mmask64 here = _bzhi_u64(UINT64_MAX, left < 64 ? (unsigned)left : 64);
    const __m512i z = _mm512_maskz_loadu_epi8(here, residuals + i);
    _mm512_mask_storeu_epi8(residuals + i, here, restore_8(z, how));
  }
}

/* 8 values of 64 bits by a funnel shift, like those of 32 bits: the group takes at most the 64
 * bytes of the load, and byte indices past the last wrap round to bytes of which no bit is taken.
 */
#define BYTES_64(w, j) BYTES_8(w, BIT(w, j))
#define ROW_BYTES_64(w) {EACH_8(BYTES_64, w)}

static const uint8_t bytes_64[65][64] = {ROWS_64(ROW_BYTES_64)};
static const uint64_t low_64[65][8] = {ROWS_64(ROW_LOW)};

GPUFI_INLINE __m512i restore_64(__m512i z, restoring how) {
  z = _mm512_add_epi64(z, _mm512_set1_epi64(how.bias));
  const __m512i odd = _mm512_and_si512(z, _mm512_set1_epi64(how.zigzag));
  const __m512i flips = _mm512_sub_epi64(_mm512_setzero_si512(), odd);
  return _mm512_sll_epi64(_mm512_xor_si512(_mm512_srl_epi64(z, how.down), flips), how.up);
}

static void unpack_64(const uint8_t *in, const uint8_t *widths, size_t groups,
                      const gpufi_block *block, uint8_t *residuals) {
  const restoring how = restoring_of(block);
  for (size_t k = 0; k < groups; k++) {
    const unsigned width = widths[k];
    const __m512i x = _mm512_loadu_si512(in), bytes = _mm512_loadu_si512(bytes_64[width]);
    const __m512i after = _mm512_add_epi8(bytes, _mm512_set1_epi8(8));
    const __m512i all =
        _mm512_shrdv_epi64(_mm512_permutexvar_epi8(bytes, x), _mm512_permutexvar_epi8(after, x),
                           _mm512_loadu_si512(low_64[width]));
    const uint64_t mask = _bzhi_u64(UINT64_MAX, width);
    const __m512i z = _mm512_and_si512(all, _mm512_set1_epi64((int64_t)mask));
    _mm512_storeu_si512(residuals + 64 * k, restore_64(z, how));
    in += width;
  }
}

/* --- sparse blocks --- */

/* Bits i .. i + 63 of a mask over `count` values. */
GPUFI_INLINE uint64_t mask_word(const uint8_t *bits, size_t i, size_t count) {
  const size_t left = (count - i + 7) / 8;
  return gpufi_load_value(bits + i / 8, left < 8 ? left : 8);
}

/* The CPU's own expansion: a register's worth of values (64 of 8 bits to 8 of 64) by as many bits
 * of the mask. Each load reads 64 bytes of `used`, and the stores are masked to the values that
 * exist. */
#define EXPAND(BITS, MASK)                                                                         \
  static void expand_##BITS(const uint8_t *bits, const uint8_t *used, size_t count,                \
                            uint8_t *values) {                                                     \
    for (size_t i = 0; i < count; i += 64) {                                                       \
      uint64_t word = mask_word(bits, i, count), here = first_bits(count - i);                     \
      for (size_t j = 0; j < 64 && here != 0; j += 512 / BITS) {                                   \
        const MASK some = (MASK)word;                                                              \
        const __m512i x = _mm512_maskz_expand_epi##BITS(some, _mm512_loadu_si512(used));           \
        _mm512_mask_storeu_epi##BITS(values + (i + j) * BITS / 8, (MASK)here, x);                  \
        used += (size_t)_mm_popcnt_u64(some) * BITS / 8;                                           \
        word = BITS == 8 ? 0 : word >> (512 / BITS & 63);                                          \
        here = BITS == 8 ? 0 : here >> (512 / BITS & 63);                                          \
      }                                                                                            \
    }                                                                                              \
  }

EXPAND(8, __mmask64)
EXPAND(16, __mmask32)
EXPAND(32, __mmask16)
EXPAND(64, __mmask8)

/* What is not 0 of each vector is brought together and stored with the rest of the vector, which
 * the next one overwrites. */
#define COMPACT(BITS, lanes)                                                                       \
  static void compact_##BITS(const uint8_t *values, size_t count, gpufi_mask *mask,                \
                             uint8_t *used) {                                                      \
    mask->used_count = 0;                                                                          \
    for (size_t i = 0; i < count; i += (lanes)) {                                                  \
      const size_t left = count - i < (lanes) ? count - i : (lanes);                               \
      const __mmask64 here = _bzhi_u64(UINT64_MAX, (unsigned)(left * (BITS / 8)));                 \
      const __m512i x = _mm512_maskz_loadu_epi8(here, values + i * (BITS / 8));                    \
      const __mmask##lanes some = _mm512_test_epi##BITS##_mask(x, x);                              \
      memcpy(mask->bits + i / 8, &some, sizeof(some));                                             \
      _mm512_storeu_si512(used + mask->used_count * (BITS / 8),                                    \
                          _mm512_maskz_compress_epi##BITS(some, x));                               \
      mask->used_count += (size_t)__builtin_popcountll(some);                                      \
    }                                                                                              \
  }

COMPACT(8, 64)
COMPACT(16, 32)
COMPACT(32, 16)
COMPACT(64, 8)

#define VECTOR_NBYTES 64
#define GPUFI_GROUPS "codec/groups_avx512.h"
#include "codec/pack_x86_impl.h"

#define LANES 8
#include "codec/bitplanes_impl.h"

#define GPUFI_EACH_WIDTH "codec/planes_impl.h"
#include "codec/each_width.h"

#define REBUILD_KERNELS WALKS(rebuild, avx512)
#define TAKE_APART_KERNELS {gpufi_take_apart_8_avx512, gpufi_take_apart_16_avx512, NULL, NULL}
CPU_TABLE(avx512, TAKE_APART_KERNELS, REBUILD_KERNELS);

#include "codec/target_end.h"
