/* Values of ranked blocks with AVX-512, from packed rests, leaves and stored symbols, and back.
 *
 * Decoding, a register holds 64, 32, 16 or 8 values, of which the rests take at most its 64 bytes.
 * A permutation of bytes brings those of a value's rest, or of all the rests that are in a word of
 * 64 bits, to where it belongs; then one rotation moves the bits below the symbol to their place,
 * and another one those above it:
 *
 *   rest       S MMMM            in some bits of a byte, or of two
 *   rotated    .... MMMM         and masked
 *   rotated    S ... ....        and masked
 *   value      S EEE MMMM        with the symbol, which a table gives */
#include "codec/bytes.h"
#include "codec/table_avx512.h"
#include "codec/walks_x86.h"

#include "codec/target_avx512.h"

/* How rests become values; the same for all registers of a block. */
typedef struct rebuilding {
  __m512i bytes, down, up; /* bytes of the rests, and rotations */
  __m512i below, above;    /* masks of the bits below and above the symbol */
  __m128i at;              /* the symbol's place */
} rebuilding;

/* The bits below and above the symbol, in each lane of `bits` bits. */
GPUFI_INLINE void set_masks(rebuilding *r, const gpufi_cut *cut, unsigned bits) {
  const uint64_t ones = UINT64_MAX / (UINT64_MAX >> (64 - bits)); /* the lowest bit of each lane */
  const uint64_t all = UINT64_MAX >> (64 - bits), unit = UINT64_C(1) << cut->at;
  const uint64_t below = (unit - 1) & ~((UINT64_C(1) << cut->shift) - 1);
  const unsigned end = (unsigned)cut->at + cut->bits;
  const uint64_t above = end < 64 ? all & ~((UINT64_C(1) << end) - 1) : 0;
  r->below = _mm512_set1_epi64((int64_t)(below * ones));
  r->above = _mm512_set1_epi64((int64_t)(above * ones));
  r->at = _mm_cvtsi32_si128(cut->at);
}

/* For lanes of `lane` bytes, each of `each` values of `rest` bits: lane k has value k * each and
 * those after it, in the eight or four bytes from the one on that it begins in; rotations are for
 * values one by one, or, with more than one value a lane, for the bytes of each. */
GPUFI_INLINE void set_places(rebuilding *r, const gpufi_cut *cut, unsigned rest, unsigned lane,
                             unsigned each) {
  uint8_t bytes[64], down[64] = {0}, up[64] = {0};
  const unsigned value = lane / each;
  for (unsigned k = 0; k < 64; k++) {
    const unsigned first = k / lane * each * rest; /* bit of the lane's first value */
    const unsigned in = k % lane, own = (first & 7) + in / value * rest;
    bytes[k] = (uint8_t)((first >> 3) + in);
    if (each > 1) {
      down[k] = (uint8_t)(own + 8 * (in % value) - cut->shift);
      up[k] = (uint8_t)(down[k] - cut->bits);
    } else if (in == 0) {
      down[k] = (uint8_t)((own - cut->shift) & (8 * lane - 1));
      up[k] = (uint8_t)((own - cut->shift - cut->bits) & (8 * lane - 1));
    }
  }
  r->bytes = _mm512_loadu_si512(bytes);
  r->down = _mm512_loadu_si512(down);
  r->up = _mm512_loadu_si512(up);
}

/* A register of values. */
#define REBUILD_REST(BITS, ROTATE)                                                                 \
  GPUFI_INLINE __m512i rests_##BITS(const rebuilding *r, const uint8_t *rests, __m512i symbols) {  \
    const __m512i x = _mm512_permutexvar_epi8(r->bytes, _mm512_loadu_si512(rests));                \
    const __m512i low = _mm512_and_si512(ROTATE(x, r->down), r->below);                            \
    const __m512i high = _mm512_and_si512(ROTATE(x, r->up), r->above);                             \
    return _mm512_or_si512(_mm512_or_si512(low, high), symbols);                                   \
  }

#define ROTATE_BYTES(x, by) _mm512_multishift_epi64_epi8(by, x)

REBUILD_REST(8, ROTATE_BYTES)
REBUILD_REST(16, ROTATE_BYTES)
REBUILD_REST(32, _mm512_rorv_epi32)
REBUILD_REST(64, _mm512_rorv_epi64)

/* The next symbols: 64 bytes, or, if wide, also two registers of pairs of bytes. */
typedef struct symbols_64 {
  __m512i lower, pairs[2];
} symbols_64;

typedef struct symbol_source {
  table256 lower, upper;
  unsigned quarters;
  bool wide;
  __m512i last;
  const uint8_t *stored;
} symbol_source;

GPUFI_INLINE symbol_source source_of(const gpufi_leaf_tables *tables, const uint8_t *stored) {
  symbol_source s = {.wide = tables->wide, .stored = stored};
  s.quarters = tables->last < 64 ? 1 : tables->last < 128 ? 2 : 4;
  s.lower = load_table(tables->lower, 4);
  s.upper = load_table(tables->upper, 4);
  s.last = _mm512_set1_epi8((char)tables->last);
  return s;
}

/* Of the bytes of two registers, lower ones and upper ones, pairs. */
GPUFI_INLINE void interleave(__m512i lower, __m512i upper, __m512i pairs[2]) {
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  const __m512i a = _mm512_unpacklo_epi8(lower, upper), b = _mm512_unpackhi_epi8(lower, upper);
  pairs[0] = _mm512_permutex2var_epi64(a, first, b);
  pairs[1] = _mm512_permutex2var_epi64(a, second, b);
}

GPUFI_INLINE symbols_64 next_symbols(symbol_source *s, __m512i leaf, uint64_t here,
                                     const unsigned quarters) {
  symbols_64 out;
  const uint64_t escapes = _mm512_mask_cmpeq_epi8_mask(here, leaf, s->last);
  out.lower = look_up(&s->lower, leaf, quarters);
  if (!s->wide) {
    if (escapes != 0) {
      out.lower = _mm512_mask_expand_epi8(out.lower, escapes, _mm512_loadu_si512(s->stored));
      s->stored += _mm_popcnt_u64(escapes);
    }
    return out;
  }
  interleave(out.lower, look_up(&s->upper, leaf, quarters), out.pairs);
  for (unsigned k = 0; k < 2 && escapes != 0; k++) {
    const uint32_t half = (uint32_t)(escapes >> 32 * k);
    out.pairs[k] = _mm512_mask_expand_epi16(out.pairs[k], half, _mm512_loadu_si512(s->stored));
    s->stored += 2 * (size_t)_mm_popcnt_u32(half);
  }
  return out;
}

/* Symbols number k * (64 * 8 / BITS) on, each in a lane of BITS bits, in their place. */
GPUFI_INLINE __m512i lanes_8(const symbols_64 *s, bool wide, unsigned k, __m128i at) {
  (void)wide;
  (void)k;
  return _mm512_sll_epi16(s->lower, at); /* which does not move a bit into another byte */
}

GPUFI_INLINE __m512i lanes_16(const symbols_64 *s, bool wide, unsigned k, __m128i at) {
  const __m256i half =
      k == 0 ? _mm512_castsi512_si256(s->lower) : _mm512_extracti64x4_epi64(s->lower, 1);
  return _mm512_sll_epi16(wide ? s->pairs[k] : _mm512_cvtepu8_epi16(half), at);
}

GPUFI_INLINE __m512i lanes_32(const symbols_64 *s, bool wide, unsigned k, __m128i at) {
  uint8_t bytes[64];
  uint16_t pairs[64];
  if (wide) {
    memcpy(pairs, s->pairs, sizeof(pairs));
    return _mm512_sll_epi32(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(pairs + (size_t)16 * k))), at);
  }
  memcpy(bytes, &s->lower, sizeof(bytes));
  return _mm512_sll_epi32(
      _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(bytes + (size_t)16 * k))), at);
}

GPUFI_INLINE __m512i lanes_64(const symbols_64 *s, bool wide, unsigned k, __m128i at) {
  uint8_t bytes[64];
  uint16_t pairs[64];
  if (wide) {
    memcpy(pairs, s->pairs, sizeof(pairs));
    return _mm512_sll_epi64(
        _mm512_cvtepu16_epi64(_mm_loadu_si128((const __m128i *)(pairs + (size_t)8 * k))), at);
  }
  memcpy(bytes, &s->lower, sizeof(bytes));
  return _mm512_sll_epi64(
      _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)(bytes + (size_t)8 * k))), at);
}

/* LANE bytes of a lane of rests, of EACH values; `quarters` of the tables of symbols are in use. */
#define REBUILD(BITS, LANE, EACH)                                                                  \
  GPUFI_INLINE void rebuild_in_##BITS(const rebuilding *r, symbol_source *s, const uint8_t *rests, \
                                      unsigned rest, const uint8_t *leaves, size_t count,          \
                                      uint8_t *values, bool wide, unsigned quarters) {             \
    const size_t lanes = 512 / BITS;                                                               \
    s->wide = wide;                                                                                \
    for (size_t i = 0; i < count; i += 64) {                                                       \
      const symbols_64 next =                                                                      \
          next_symbols(s, _mm512_loadu_si512(leaves + i), first_bits(count - i), quarters);        \
      for (unsigned k = 0; k < BITS / 8; k++, rests += rest * lanes / 8) {                         \
        const size_t first = i + k * lanes;                                                        \
        const __m512i x = rests_##BITS(r, rests, lanes_##BITS(&next, wide, k, r->at));             \
        if (first + lanes <= count) {                                                              \
          _mm512_storeu_si512(values + first * (BITS / 8), x);                                     \
        } else {                                                                                   \
          const size_t left = first < count ? count - first : 0;                                   \
          _mm512_mask_storeu_epi8(values + first * (BITS / 8), first_bits(left * (BITS / 8)), x);  \
          return;                                                                                  \
        }                                                                                          \
      }                                                                                            \
    }                                                                                              \
  }                                                                                                \
  bool gpufi_rebuild_##BITS##_avx512(const gpufi_cut *cut, const gpufi_leaf_tables *tables,        \
                                     const uint8_t *rests, const uint8_t *leaves,                  \
                                     const uint8_t *stored, size_t count, uint8_t *values) {       \
    const unsigned rest = (unsigned)(BITS - cut->bits - cut->shift);                               \
    rebuilding r;                                                                                  \
    symbol_source s = source_of(tables, stored);                                                   \
    if (rest > GPUFI_REBUILD_BITS(BITS)) {                                                         \
      return false;                                                                                \
    }                                                                                              \
    set_masks(&r, cut, BITS);                                                                      \
    set_places(&r, cut, rest, LANE, EACH);                                                         \
    if (!tables->wide) {                                                                           \
      if (s.quarters == 1) {                                                                       \
        rebuild_in_##BITS(&r, &s, rests, rest, leaves, count, values, false, 1);                   \
      } else {                                                                                     \
        rebuild_in_##BITS(&r, &s, rests, rest, leaves, count, values, false, 4);                   \
      }                                                                                            \
    } else if (s.quarters == 1) {                                                                  \
      rebuild_in_##BITS(&r, &s, rests, rest, leaves, count, values, true, 1);                      \
    } else {                                                                                       \
      rebuild_in_##BITS(&r, &s, rests, rest, leaves, count, values, true, 4);                      \
    }                                                                                              \
    return true;                                                                                   \
  }

REBUILD(8, 8, 8)
REBUILD(16, 8, 4)
REBUILD(32, 4, 1)
REBUILD(64, 8, 1)

/* --- encoding --- */

/* Rests of values of one byte: a bit extract leaves those of eight. */
static void put_rests_8(const gpufi_cut *cut, const uint8_t *values, size_t count, uint8_t *out) {
  const unsigned rest = 8u - cut->bits - cut->shift;
  const unsigned symbol = ((1u << cut->bits) - 1) << cut->at;
  const uint64_t mask = (0xff & ~symbol & ~((1u << cut->shift) - 1)) * UINT64_C(0x0101010101010101);
  size_t i = 0;
  for (; i + 8 <= count; i += 8, out += rest) {
    const uint64_t bits = _pext_u64(gpufi_load_u64(values + i), mask);
    memcpy(out, &bits, sizeof(bits));
  }
  if (i < count) {
    const uint64_t bits = _pext_u64(gpufi_load_value(values + i, count - i), mask);
    memcpy(out, &bits, sizeof(bits));
  }
}

/* How 32 rests of two bytes are packed: neighbours are joined to words of 32 and then of 64 bits,
 * of which the lower bits are those of one and the upper ones those of the other; a group has two
 * of these words. The second one is moved to the end of the first, by bits and then by bytes, and
 * the bytes that groups take are put side by side. */
typedef struct packing_16 {
  __m512i below, above;         /* masks of the bits of a value that make its rest */
  __m128i cut, shift;           /* how far they move */
  __m512i pair, quad;           /* masks of one's bits in words of two */
  __m128i pair_down, quad_down; /* how far the other one moves */
  __m512i second_up, second; /* bits that a second word moves up, and which bytes go to a place */
  __mmask64 seconds, bytes;  /* places of a second word's bytes, and those of a group */
} packing_16;

static packing_16 packing_of_16(const gpufi_cut *cut, unsigned rest) {
  const unsigned unit = 1u << cut->at, half = 4 * rest;
  const __m512i place =
      _mm512_broadcast_i32x4(_mm_set_epi64x(0x0f0e0d0c0b0a0908, 0x0706050403020100));
  packing_16 p;
  p.below = _mm512_set1_epi16((short)(unit - 1));
  p.above = _mm512_set1_epi16((short)(0xffffu >> cut->bits & ~(unit - 1)));
  p.cut = _mm_cvtsi32_si128(cut->bits);
  p.shift = _mm_cvtsi32_si128(cut->shift);
  p.pair = _mm512_set1_epi32((int)((1u << rest) - 1));
  p.quad = _mm512_set1_epi64((int64_t)((UINT64_C(1) << 2 * rest) - 1));
  p.pair_down = _mm_cvtsi32_si128((int)(16 - rest));
  p.quad_down = _mm_cvtsi32_si128((int)(32 - 2 * rest));
  p.second_up = _mm512_broadcast_i32x4(_mm_set_epi64x(half % 8, 0));
  p.second = _mm512_add_epi8(place, _mm512_set1_epi8((char)(8 - half / 8)));
  p.seconds = _mm512_cmpge_epu8_mask(place, _mm512_set1_epi8((char)(half / 8)));
  p.bytes = _mm512_cmplt_epu8_mask(place, _mm512_set1_epi8((char)rest));
  return p;
}

/* `a` where the mask has a bit, else `b`. */
GPUFI_INLINE __m512i select_bits(__m512i mask, __m512i a, __m512i b) {
  return _mm512_ternarylogic_epi64(mask, a, b, 0xca);
}

GPUFI_INLINE __m512i pack_32_rests(const packing_16 *p, __m512i x) {
  const __m512i rest =
      _mm512_srl_epi16(_mm512_or_si512(_mm512_and_si512(x, p->below),
                                       _mm512_and_si512(_mm512_srl_epi16(x, p->cut), p->above)),
                       p->shift);
  const __m512i pairs = select_bits(p->pair, rest, _mm512_srl_epi32(rest, p->pair_down));
  const __m512i quads = select_bits(p->quad, pairs, _mm512_srl_epi64(pairs, p->quad_down));
  const __m512i words = _mm512_sllv_epi64(quads, p->second_up);
  const __m512i second = _mm512_maskz_shuffle_epi8(p->seconds, words, p->second);
  return _mm512_maskz_compress_epi8(p->bytes, _mm512_mask_or_epi64(second, 0x55, second, words));
}

static void put_rests_16(const gpufi_cut *cut, const uint8_t *values, size_t count, uint8_t *out) {
  const unsigned rest = 16u - cut->bits - cut->shift;
  const packing_16 p = packing_of_16(cut, rest);
  for (size_t i = 0; i < count; i += 32, out += (size_t)4 * rest) {
    const __mmask32 here = (__mmask32)first_bits(count - i);
    const __m512i x = _mm512_maskz_loadu_epi16(here, values + 2 * i);
    _mm512_storeu_si512(out, pack_32_rests(&p, x));
  }
}

/* Symbols of 64 values of one byte. */
GPUFI_INLINE void put_symbols_8(const gpufi_cut *cut, const uint8_t *values, size_t left,
                                uint8_t *lower, const uint8_t *upper) {
  const __m512i x = _mm512_maskz_loadu_epi8(first_bits(left), values);
  const __m512i mask = _mm512_set1_epi8((char)((1u << cut->bits) - 1));
  (void)upper;
  _mm512_storeu_si512(lower,
                      _mm512_and_si512(_mm512_srl_epi16(x, _mm_cvtsi32_si128(cut->at)), mask));
}

/* The lower and the upper bytes of two registers. */
GPUFI_INLINE void put_symbols_16(const gpufi_cut *cut, const uint8_t *values, size_t left,
                                 uint8_t *lower, uint8_t *upper) {
  const __m512i byte = _mm512_set_epi8(
      126, 124, 122, 120, 118, 116, 114, 112, 110, 108, 106, 104, 102, 100, 98, 96, 94, 92, 90, 88,
      86, 84, 82, 80, 78, 76, 74, 72, 70, 68, 66, 64, 62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42,
      40, 38, 36, 34, 32, 30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i mask = _mm512_set1_epi16((short)((1u << cut->bits) - 1));
  const __m128i at = _mm_cvtsi32_si128(cut->at);
  const uint64_t here = first_bits(left);
  const __m512i a = _mm512_maskz_loadu_epi16((__mmask32)here, values);
  const __m512i b = _mm512_maskz_loadu_epi16((__mmask32)(here >> 32), values + 64);
  const __m512i x = _mm512_and_si512(_mm512_srl_epi16(a, at), mask);
  const __m512i y = _mm512_and_si512(_mm512_srl_epi16(b, at), mask);
  _mm512_storeu_si512(lower, _mm512_permutex2var_epi8(x, byte, y));
  if (cut->bits > 8) {
    const __m512i next = _mm512_add_epi8(byte, _mm512_set1_epi8(1));
    _mm512_storeu_si512(upper, _mm512_permutex2var_epi8(x, next, y));
  }
}

static size_t count_leaves(const uint8_t *leaves, size_t count, uint8_t leaf) {
  size_t total = 0;
  for (size_t i = 0; i < count; i += 64) {
    const __m512i x = _mm512_loadu_si512(leaves + i);
    total += (size_t)_mm_popcnt_u64(
        _mm512_mask_cmpeq_epi8_mask(first_bits(count - i), x, _mm512_set1_epi8((char)leaf)));
  }
  return total;
}

#define TAKE_APART(BITS)                                                                           \
  size_t gpufi_take_apart_##BITS##_avx512(const gpufi_cut *cut, const gpufi_walk_tables *tables,   \
                                          const uint8_t *values, size_t count, uint8_t *rests,     \
                                          uint8_t *lower, uint8_t *upper, uint8_t *leaves) {       \
    for (size_t i = 0; i < count; i += 64) {                                                       \
      put_symbols_##BITS(cut, values + i * (BITS / 8), count - i, lower + i, upper + i);           \
    }                                                                                              \
    gpufi_leaves_avx512(tables, lower, upper, count, leaves);                                      \
    if (cut->bits + cut->shift < BITS) {                                                           \
      put_rests_##BITS(cut, values, count, rests);                                                 \
    }                                                                                              \
    return count_leaves(leaves, count, tables->last);                                              \
  }

TAKE_APART(8)
TAKE_APART(16)

#include "codec/target_end.h"
