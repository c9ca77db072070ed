/* Ranked chunks with AVX-512: their codes, 64 values at a time, of which a mask register names
 * those that take a step down the tree. */
#include "codec/scalar.h"
#include "codec/walks.h"
#include "codec/walks_x86.h"

#include <immintrin.h>

#include "codec/target_avx512.h"

/* The lowest `count` bits, or all 64. */
GPUFI_INLINE uint64_t first_bits(size_t count) {
  return _bzhi_u64(UINT64_MAX, count < 64 ? (unsigned)count : 64);
}

/* A table of 64, 128 or 256 bytes, in the registers that a permutation looks up 64 of them in. */
typedef struct table256 {
  __m512i quarters[4];
} table256;

GPUFI_INLINE table256 load_table(const uint8_t *bytes, unsigned quarters) {
  table256 t;
  for (unsigned k = 0; k < quarters; k++) {
    t.quarters[k] = _mm512_loadu_si512(bytes + (size_t)64 * k);
  }
  return t;
}

GPUFI_INLINE __m512i look_up(const table256 *t, __m512i index, unsigned quarters) {
  if (quarters == 1) {
    return _mm512_permutexvar_epi8(index, t->quarters[0]);
  }
  const __m512i low = _mm512_permutex2var_epi8(t->quarters[0], index, t->quarters[1]);
  if (quarters == 2) {
    return low;
  }
  const __m512i high = _mm512_permutex2var_epi8(t->quarters[2], index, t->quarters[3]);
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), low, high);
}

GPUFI_INLINE void symbols_in(const uint8_t *codes, size_t count, const uint8_t *bytes,
                             unsigned quarters, unsigned last, const uint8_t *escaped,
                             uint8_t *out) {
  const table256 all = load_table(bytes, quarters);
  const __m512i escape = _mm512_set1_epi8((char)last);
  for (size_t i = 0; i < count; i += 64) {
    const __mmask64 here = first_bits(count - i);
    const __m512i code = _mm512_maskz_loadu_epi8(here, codes + i);
    const __mmask64 escapes = _mm512_mask_cmpeq_epi8_mask(here, code, escape);
    const __m512i found = look_up(&all, code, quarters);
    const __m512i next = _mm512_loadu_si512(escaped);
    _mm512_mask_storeu_epi8(out + i, here, _mm512_mask_expand_epi8(found, escapes, next));
    escaped += _mm_popcnt_u64(escapes);
  }
}

/* The escaped ones are expanded into where the code is `last`. */
void gpufi_symbols_avx512(const uint8_t *codes, size_t count, const uint8_t *bytes, unsigned last,
                          const uint8_t *escaped, uint8_t *out) {
  if (last < 64) {
    symbols_in(codes, count, bytes, 1, last, escaped, out);
  } else if (last < 128) {
    symbols_in(codes, count, bytes, 2, last, escaped, out);
  } else {
    symbols_in(codes, count, bytes, 4, last, escaped, out);
  }
}

/* The leaves of 256 symbols, where `upper` is `page`, if symbols have more than 8 bits. */
GPUFI_INLINE void look_up_page(const uint8_t *table, unsigned page, bool wide, const uint8_t *lower,
                               const uint8_t *upper, size_t count, uint8_t *leaves) {
  const table256 all = load_table(table, 4);
  const __m512i number = _mm512_set1_epi8((char)page);
  for (size_t i = 0; i < count; i += 64) {
    __m512i leaf = look_up(&all, _mm512_loadu_si512(lower + i), 4);
    if (wide) {
      const __mmask64 here = _mm512_cmpeq_epi8_mask(_mm512_loadu_si512(upper + i), number);
      leaf = _mm512_mask_mov_epi8(_mm512_loadu_si512(leaves + i), here, leaf);
    }
    _mm512_storeu_si512(leaves + i, leaf);
  }
}

/* The symbols that have codes are mostly in one page or two. */
void gpufi_leaves_avx512(const gpufi_walk_tables *tables, const uint8_t *lower,
                         const uint8_t *upper, size_t count, uint8_t *leaves) {
  if (!tables->wide) {
    look_up_page(tables->leaves, 0, false, lower, upper, count, leaves);
    return;
  }
  memset(leaves, tables->last, count);
  for (unsigned pages = tables->pages; pages != 0; pages &= pages - 1) {
    const unsigned page = (unsigned)__builtin_ctz(pages);
    look_up_page(tables->leaves + (size_t)256 * page, page, true, lower, upper, count, leaves);
  }
}

/* The lower and the upper bytes are looked up apart. Unpacking joins them within each quarter of
 * the registers, so eight of them, a word of 64 bits, are then put in order. */
void gpufi_from_places_16_avx512(const uint16_t table[GPUFI_DICTIONARY_ENTRIES_MAX], size_t count,
                                 uint8_t *values) {
  uint8_t lower[GPUFI_DICTIONARY_ENTRIES_MAX], upper[GPUFI_DICTIONARY_ENTRIES_MAX];
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  for (size_t i = 0; i < GPUFI_DICTIONARY_ENTRIES_MAX; i++) {
    lower[i] = (uint8_t)table[i];
    upper[i] = (uint8_t)(table[i] >> 8);
  }
  const table256 low = load_table(lower, 4), high = load_table(upper, 4);
  for (size_t end = count; end > 0;) {
    const size_t i = (end - 1) / 64 * 64;
    const __mmask64 here = first_bits(end - i);
    const __m512i place = _mm512_maskz_loadu_epi8(here, values + i);
    const __m512i l = look_up(&low, place, 4), h = look_up(&high, place, 4);
    const __m512i a = _mm512_unpacklo_epi8(l, h), b = _mm512_unpackhi_epi8(l, h);
    _mm512_mask_storeu_epi16(values + 2 * i, (__mmask32)here,
                             _mm512_permutex2var_epi64(a, first, b));
    _mm512_mask_storeu_epi16(values + 2 * i + 64, (__mmask32)(here >> 32),
                             _mm512_permutex2var_epi64(a, second, b));
    end = i;
  }
}

GPUFI_INLINE void look_up_all(const uint8_t *leaves, size_t count, const uint8_t *bytes,
                              unsigned quarters, uint8_t *out) {
  const table256 all = load_table(bytes, quarters);
  for (size_t i = 0; i < count; i += 64) {
    _mm512_storeu_si512(out + i, look_up(&all, _mm512_loadu_si512(leaves + i), quarters));
  }
}

static void steps_of(const uint8_t *leaves, size_t count, const gpufi_tree *tree,
                     const uint8_t *bytes, uint8_t *out) {
  if (tree->leaf_count <= 64) {
    look_up_all(leaves, count, bytes, 1, out);
  } else if (tree->leaf_count <= 128) {
    look_up_all(leaves, count, bytes, 2, out);
  } else {
    look_up_all(leaves, count, bytes, 4, out);
  }
}

/* The steps to a level, bit `bit` of `steps`. Returns how many values are left: all. */
GPUFI_INLINE size_t write_steps(const uint8_t *steps, size_t count, unsigned bit,
                                gpufi_bit_writer *w) {
  const __m512i test = _mm512_set1_epi8((char)(1u << bit));
  for (size_t i = 0; i < count; i += 64) {
    const __mmask64 right =
        _mm512_mask_test_epi8_mask(first_bits(count - i), _mm512_loadu_si512(steps + i), test);
    gpufi_put_bits(w, right, count - i < 64 ? (unsigned)(count - i) : 64);
  }
  return count;
}

/* The same for a level that has leaves, which are below `inner` and are dropped. */
GPUFI_INLINE size_t write_level(uint8_t *leaves, uint8_t *steps, size_t count, unsigned bit,
                                unsigned inner, gpufi_bit_writer *w) {
  const __m512i test = _mm512_set1_epi8((char)(1u << bit));
  const __m512i least = _mm512_set1_epi8((char)inner);
  size_t left = 0;
  for (size_t i = 0; i < count; i += 64) {
    const __mmask64 here = first_bits(count - i);
    const __m512i leaf = _mm512_loadu_si512(leaves + i), step = _mm512_loadu_si512(steps + i);
    const __mmask64 more = _mm512_mask_cmpge_epu8_mask(here, leaf, least);
    gpufi_put_bits(w, _mm512_mask_test_epi8_mask(here, step, test),
                   count - i < 64 ? (unsigned)(count - i) : 64);
    _mm512_storeu_si512(leaves + left, _mm512_maskz_compress_epi8(more, leaf));
    _mm512_storeu_si512(steps + left, _mm512_maskz_compress_epi8(more, step));
    left += (size_t)_mm_popcnt_u64(more);
  }
  return left;
}

/* One level down, which `nodes` gets: node -> 2 * node - before + bit. */
GPUFI_INLINE void read_steps(const uint8_t *bits, size_t at, size_t count, unsigned before,
                             uint8_t *nodes) {
  const __m512i base = _mm512_set1_epi8((char)before), one = _mm512_set1_epi8(1);
  for (size_t i = 0; i < count; i += 64) {
    __m512i node = _mm512_loadu_si512(nodes + i);
    node = _mm512_add_epi8(node, _mm512_sub_epi8(node, base));
    node = _mm512_mask_add_epi8(node, gpufi_bits_at(bits, at + i), node, one);
    _mm512_storeu_si512(nodes + i, node);
  }
}

/* List those that are not leaves, from `inner` on. Returns how many. */
GPUFI_INLINE size_t list_inner(const uint8_t *nodes, size_t count, unsigned inner, uint8_t *list) {
  const __m512i least = _mm512_set1_epi8((char)inner);
  size_t listed = 0;
  for (size_t i = 0; i < count; i += 64) {
    const __m512i node = _mm512_loadu_si512(nodes + i);
    const __mmask64 more = _mm512_mask_cmpge_epu8_mask(first_bits(count - i), node, least);
    _mm512_storeu_si512(list + listed, _mm512_maskz_compress_epi8(more, node));
    listed += (size_t)_mm_popcnt_u64(more);
  }
  return listed;
}

/* Back up: the leaves that `below` has, in the places of the nodes that have children. */
GPUFI_INLINE void put_back(const uint8_t *below, size_t count, unsigned inner, uint8_t *nodes) {
  const __m512i least = _mm512_set1_epi8((char)inner);
  for (size_t i = 0; i < count; i += 64) {
    const __m512i node = _mm512_loadu_si512(nodes + i);
    const __mmask64 more = _mm512_mask_cmpge_epu8_mask(first_bits(count - i), node, least);
    _mm512_storeu_si512(nodes + i, _mm512_mask_expand_epi8(node, more, _mm512_loadu_si512(below)));
    below += (size_t)_mm_popcnt_u64(more);
  }
}

#define WALKS_OF(name) name##_avx512
#include "codec/walks_x86_impl.h"

/* gpufi_split_8_avx512 and so on. */
#define WALK(name) JOIN(name, _, JOIN(BITS, _, avx512))
#define GPUFI_EACH_WIDTH "codec/walk_impl.h"
#include "codec/each_width.h"

#include "codec/target_end.h"
