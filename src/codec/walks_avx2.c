/* Ranked chunks with AVX2, 32 values at a time. */
#include "codec/masks_avx2.h"
#include "codec/scalar.h"
#include "codec/walks.h"
#include "codec/walks_x86.h"

#include <immintrin.h>

#include "codec/target_avx2.h"

GPUFI_INLINE __m256i load(const uint8_t *p) {
  return _mm256_loadu_si256((const __m256i *)p);
}

GPUFI_INLINE void store(uint8_t *p, __m256i x) {
  _mm256_storeu_si256((__m256i *)p, x);
}

/* table[code] for 32 codes up to `last`. A shuffle looks up the low 4 bits of a code in 16 entries,
 * so there is one for each 16 entries in use, and each result counts only for codes whose upper
 * bits name these entries. */
GPUFI_INLINE __m256i look_up(__m256i code, const uint8_t *table, unsigned last) {
  const __m256i upper = _mm256_and_si256(_mm256_srli_epi16(code, 4), _mm256_set1_epi8(15));
  const __m256i low = _mm256_and_si256(code, _mm256_set1_epi8(15));
  __m256i found = _mm256_setzero_si256();
  for (unsigned k = 0; k <= last >> 4; k++) {
    const __m128i some = _mm_loadu_si128((const __m128i *)(table + (size_t)16 * k));
    const __m256i x = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(some), low);
    const __m256i here = _mm256_cmpeq_epi8(upper, _mm256_set1_epi8((char)k));
    found = _mm256_or_si256(found, _mm256_and_si256(here, x));
  }
  return found;
}

/* 8 bytes by a mask: the next ones of `used` where it has a bit, else 0. */
GPUFI_INLINE __m128i expand_8(unsigned mask, const uint8_t *used) {
  return _mm_shuffle_epi8(_mm_loadl_epi64((const __m128i *)used),
                          _mm_loadl_epi64((const __m128i *)ranks[mask]));
}

/* The same 32 times; *used moves on past those that were taken. */
GPUFI_INLINE __m256i expand_32(uint32_t mask, const uint8_t **used) {
  __m128i part[4];
  for (unsigned k = 0; k < 4; k++, mask >>= 8) {
    part[k] = expand_8(mask & 255, *used);
    *used += __builtin_popcount(mask & 255);
  }
  return _mm256_set_m128i(_mm_unpacklo_epi64(part[2], part[3]),
                          _mm_unpacklo_epi64(part[0], part[1]));
}

/* The escaped ones go where the code is `last`, as the values of a sparse block go where its mask
 * has a bit; table[last] is 0, so that an OR puts the two together. */
void gpufi_symbols_avx2(const uint8_t *codes, size_t count, const uint8_t *table, unsigned last,
                        const uint8_t *escaped, uint8_t *out) {
  size_t i = 0;
  for (; last < 128 && i + 32 <= count; i += 32) {
    const __m256i code = load(codes + i);
    const __m256i escapes = _mm256_cmpeq_epi8(code, _mm256_set1_epi8((char)last));
    const __m256i more = expand_32((uint32_t)_mm256_movemask_epi8(escapes), &escaped);
    store(out + i, _mm256_or_si256(look_up(code, table, last), more));
  }
  gpufi_symbols_scalar(codes + i, count - i, table, last, escaped, out + i);
}

/* Of 256 entries or more a vector of lookups is no faster than the plain C. */
void gpufi_from_places_16_avx2(const uint16_t table[GPUFI_DICTIONARY_ENTRIES_MAX], size_t count,
                               uint8_t *values) {
  gpufi_from_places_16_scalar(table, count, values);
}

void gpufi_leaves_avx2(const gpufi_walk_tables *tables, const uint8_t *lower, const uint8_t *upper,
                       size_t count, uint8_t *leaves) {
  gpufi_leaves_scalar(tables, lower, upper, count, leaves);
}

/* For each mask of 8 bits: the place of its k-th bit, by counting the places that have at most k
 * bits up to them. */
#define UP_TO(m, p, k) (__builtin_popcount((m) & ((2 << (p)) - 1)) <= (k))
#define PLACE(m, k)                                                                                \
  (uint8_t)((UP_TO(m, 0, k) + UP_TO(m, 1, k) + UP_TO(m, 2, k) + UP_TO(m, 3, k) + UP_TO(m, 4, k) +  \
             UP_TO(m, 5, k) + UP_TO(m, 6, k) + UP_TO(m, 7, k)) &                                   \
            7)
#define PLACES(m)                                                                                  \
  {PLACE(m, 0), PLACE(m, 1), PLACE(m, 2), PLACE(m, 3),                                             \
   PLACE(m, 4), PLACE(m, 5), PLACE(m, 6), PLACE(m, 7)}

static const uint8_t places[256][8] = {ALL_256(PLACES)};

/* Those of 8 bytes whose bit is set, one after the other; writes 8. */
GPUFI_INLINE void compress_8(unsigned mask, const uint8_t *bytes, uint8_t *out) {
  const __m128i x = _mm_shuffle_epi8(_mm_loadl_epi64((const __m128i *)bytes),
                                     _mm_loadl_epi64((const __m128i *)places[mask]));
  _mm_storel_epi64((__m128i *)out, x);
}

/* The first `count` bits, or all 32. */
GPUFI_INLINE uint32_t first_bits(size_t count) {
  return _bzhi_u32(UINT32_MAX, count < 32 ? (unsigned)count : 32);
}

/* Those of the next 32 bytes that are `least` or above, and exist: `count` are left. */
GPUFI_INLINE uint32_t not_below(__m256i x, __m256i least, size_t count) {
  const __m256i more = _mm256_cmpeq_epi8(_mm256_max_epu8(x, least), x);
  return (uint32_t)_mm256_movemask_epi8(more) & first_bits(count);
}

static void steps_of(const uint8_t *leaves, size_t count, const gpufi_tree *tree,
                     const uint8_t *table, uint8_t *out) {
  const unsigned last = tree->leaf_count - 1u;
  size_t i = 0;
  for (; last < 128 && i + 32 <= count; i += 32) {
    store(out + i, look_up(load(leaves + i), table, last));
  }
  for (; i < count; i++) {
    out[i] = table[leaves[i]];
  }
}

/* The steps to a level, bit `bit` of `steps`, which a shift makes the top bits of the bytes.
 * Returns how many values are left: all. */
GPUFI_INLINE size_t write_steps(const uint8_t *steps, size_t count, unsigned bit,
                                gpufi_bit_writer *w) {
  const __m128i up = _mm_cvtsi32_si128((int)(7 - bit));
  for (size_t i = 0; i < count; i += 32) {
    const uint32_t right = (uint32_t)_mm256_movemask_epi8(_mm256_sll_epi16(load(steps + i), up));
    gpufi_put_bits(w, right & first_bits(count - i), count - i < 32 ? (unsigned)(count - i) : 32);
  }
  return count;
}

/* Drop those that have ended in a leaf, which is below `inner`. Returns how many are left. */
GPUFI_INLINE size_t drop_leaves(uint8_t *leaves, uint8_t *steps, size_t count, unsigned inner) {
  const __m256i least = _mm256_set1_epi8((char)inner);
  size_t left = 0;
  for (size_t i = 0; i < count; i += 32) {
    uint32_t more = not_below(load(leaves + i), least, count - i);
    for (size_t k = i; k < i + 32; k += 8, more >>= 8) {
      compress_8(more & 255, leaves + k, leaves + left);
      compress_8(more & 255, steps + k, steps + left);
      left += (size_t)__builtin_popcount(more & 255);
    }
  }
  return left;
}

/* The steps to a level that has leaves, which are below `inner` and are dropped. */
GPUFI_INLINE size_t write_level(uint8_t *leaves, uint8_t *steps, size_t count, unsigned bit,
                                unsigned inner, gpufi_bit_writer *w) {
  write_steps(steps, count, bit, w);
  return drop_leaves(leaves, steps, count, inner);
}

/* 32 bits, as a byte each: all ones where the bit is 1. */
GPUFI_INLINE __m256i spread_bits(uint32_t bits) {
  const __m256i bytes = _mm256_shuffle_epi8(
      _mm256_set1_epi32((int)bits),
      _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0));
  const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
  return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
}

/* One level down, which `nodes` gets: node -> 2 * node - before + bit. */
GPUFI_INLINE void read_steps(const uint8_t *bits, size_t at, size_t count, unsigned before,
                             uint8_t *nodes) {
  const __m256i base = _mm256_set1_epi8((char)before);
  for (size_t i = 0; i < count; i += 32) {
    const __m256i node = load(nodes + i);
    const __m256i right = spread_bits((uint32_t)gpufi_bits_at(bits, at + i));
    const __m256i twice = _mm256_add_epi8(node, _mm256_sub_epi8(node, base));
    store(nodes + i, _mm256_sub_epi8(twice, right));
  }
}

/* List those that are not leaves, from `inner` on. Returns how many. */
GPUFI_INLINE size_t list_inner(const uint8_t *nodes, size_t count, unsigned inner, uint8_t *list) {
  const __m256i least = _mm256_set1_epi8((char)inner);
  size_t listed = 0;
  for (size_t i = 0; i < count; i += 32) {
    uint32_t more = not_below(load(nodes + i), least, count - i);
    for (size_t k = i; k < i + 32; k += 8, more >>= 8) {
      compress_8(more & 255, nodes + k, list + listed);
      listed += (size_t)__builtin_popcount(more & 255);
    }
  }
  return listed;
}

/* Back up: the leaves that `below` has, in the places of the nodes that have children. */
GPUFI_INLINE void put_back(const uint8_t *below, size_t count, unsigned inner, uint8_t *nodes) {
  const __m256i least = _mm256_set1_epi8((char)inner);
  for (size_t i = 0; i < count; i += 32) {
    const __m256i node = load(nodes + i);
    const __m256i more = _mm256_cmpeq_epi8(_mm256_max_epu8(node, least), node);
    const uint32_t mask = (uint32_t)_mm256_movemask_epi8(more) & first_bits(count - i);
    store(nodes + i, _mm256_blendv_epi8(node, expand_32(mask, &below), more));
  }
}

#include "codec/walks_x86_impl.h"

size_t gpufi_write_walks_avx2(const uint8_t *leaves, size_t count, const gpufi_tree *tree,
                              const gpufi_walk_tables *tables, uint8_t *bits) {
  gpufi_bit_writer w = {bits, 0, 0};
  uint8_t list[GPUFI_BLOCK_VALUES + GPUFI_WALK_NBYTES];
  memcpy(list, leaves, count);
  write_levels(list, count, tree, tables, 1, &w);
  gpufi_put_last_bits(&w);
  return 8 * (size_t)(w.next - bits) + w.fill;
}

size_t gpufi_read_walks_avx2(const uint8_t *bits, size_t count, const gpufi_tree *tree,
                             const gpufi_leaf_tables *tables, uint8_t *leaves, size_t *last_count) {
  uint8_t lists[GPUFI_TREE_DEPTH_MAX][GPUFI_BLOCK_VALUES + GPUFI_WALK_NBYTES];
  size_t counts[GPUFI_TREE_DEPTH_MAX + 1] = {count}, at = 0;
  unsigned inner[GPUFI_TREE_DEPTH_MAX + 1], k = 0; /* the list that is in use; 0 is `leaves` */
  memset(leaves, 0, count);                        /* the root */
  for (unsigned j = 1; counts[k] > 0; j++) {
    uint8_t *const nodes = k == 0 ? leaves : lists[k - 1];
    read_steps(bits, at, counts[k], tree->before[j], nodes);
    at += counts[k];
    if (j == tree->depth) {
      break;
    }
    if (tree->leaves[j] != 0) {
      inner[k] = (unsigned)tree->before[j] + tree->leaves[j];
      counts[k + 1] = list_inner(nodes, counts[k], inner[k], lists[k]);
      k++;
    }
  }
  while (k-- > 0) {
    put_back(lists[k], counts[k], inner[k], k == 0 ? leaves : lists[k - 1]);
  }
  *last_count = gpufi_count_byte(leaves, count, tables->last);
  return at;
}

/* gpufi_split_8_avx2 and so on. */
#define WALK(name) JOIN(name, _, JOIN(BITS, _, avx2))
#define GPUFI_EACH_WIDTH "codec/walk_impl.h"
#include "codec/each_width.h"

#include "codec/target_end.h"
