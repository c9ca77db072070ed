/* Ranked chunks with AVX-512: their codes, 64 values at a time, of which a mask register names
 * those that take a step down the tree. */
#include "codec/scalar.h"
#include "codec/table_avx512.h"
#include "codec/walks.h"
#include "codec/walks_x86.h"

#include "codec/target_avx512.h"

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

/* The first steps, of which a value has a bit in each of FIRST_STEPS planes of words, and each
 * value is in the bits of one number. What of a walk is behind its leaf is 0. */
#define FIRST_STEPS 8
#define WORDS (GPUFI_BLOCK_VALUES / 64)

typedef struct first_steps {
  unsigned depth;         /* planes that have been read */
  size_t left;            /* values that took the last of these steps */
  uint64_t active[WORDS]; /* those that take more */
  uint64_t planes[FIRST_STEPS][WORDS];
  uint64_t by_word[WORDS][FIRST_STEPS]; /* the same */
} first_steps;

/* Of eight words of a plane, those values that go on: whose steps so far, read as a number, are
 * `limit` or more. From the lowest bit of `limit` that is 1 on: a bit of a value is greater, or
 * less, or the bits below it decide. */
GPUFI_INLINE void go_on(first_steps *s, unsigned level, unsigned limit, size_t word) {
  unsigned k = (unsigned)__builtin_ctz(limit);
  __m512i more = _mm512_loadu_si512(&s->planes[level - 1 - k][word]);
  for (k++; k < level; k++) {
    const __m512i bit = _mm512_loadu_si512(&s->planes[level - 1 - k][word]);
    more = limit >> k & 1 ? _mm512_and_si512(more, bit) : _mm512_or_si512(more, bit);
  }
  more = _mm512_and_si512(more, _mm512_loadu_si512(&s->active[word]));
  _mm512_storeu_si512(&s->active[word], more);
}

/* The next bits, each in the place of a bit of `some`. Where not all values take a step, which is
 * so where this is called for, they are in eight bytes with few exceptions. */
GPUFI_INLINE uint64_t deposit_next(const uint8_t *bits, size_t *at, uint64_t some) {
  const uint8_t *const p = bits + (*at >> 3);
  const unsigned low = *at & 7, count = (unsigned)_mm_popcnt_u64(some);
  uint64_t next = gpufi_load_u64(p) >> low;
  if (low + count > 64) {
    next |= (uint64_t)p[8] << (64 - low);
  }
  *at += count;
  return _pdep_u64(next, some);
}

/* The steps to a level. */
GPUFI_INLINE size_t read_plane(const uint8_t *bits, size_t at, unsigned level, first_steps *s) {
  for (size_t i = 0; i < WORDS; i++) {
    const uint64_t some = s->active[i];
    const uint64_t steps = deposit_next(bits, &at, some);
    s->planes[level - 1][i] = steps;
    s->by_word[i][level - 1] = steps;
  }
  return at;
}

/* The same for all words of a level that every value takes a step to. */
GPUFI_INLINE size_t read_whole_plane(const uint8_t *bits, size_t at, size_t count, unsigned level,
                                     first_steps *s) {
  for (size_t i = 0; i < WORDS; i++) {
    const uint64_t next =
        at % 8 == 0 ? gpufi_load_u64(bits + at / 8 + 8 * i) : gpufi_bits_at(bits, at + 64 * i);
    const uint64_t steps = next & s->active[i];
    /* One by one: the compiler would do two, which take longer to be put in their places. */
    volatile uint64_t *const place = &s->by_word[i][level - 1];
    *place = steps;
    s->planes[level - 1][i] = steps;
  }
  return at + count;
}

/* Steps until a fifth of the values at most is expected to go on, by how many of the nodes of the
 * level have children. */
GPUFI_INLINE size_t read_first(const uint8_t *bits, size_t count, const gpufi_tree *tree,
                               first_steps *s) {
  size_t at = 0, inner = 1;
  unsigned limit = 0;
  for (size_t i = 0; i < WORDS; i++) {
    s->active[i] = 64 * i < count ? first_bits(count - 64 * i) : 0;
  }
  for (unsigned j = 1;; j++) {
    const size_t before = at, nodes = 2 * inner;
    at = limit == 0 ? read_whole_plane(bits, at, count, j, s) : read_plane(bits, at, j, s);
    limit = 2 * limit + tree->leaves[j];
    inner = nodes - tree->leaves[j];
    for (size_t word = 0; word < WORDS && limit != 0 && inner != 0; word += 8) {
      go_on(s, j, limit, word);
    }
    s->depth = j;
    if (j == tree->depth || j == FIRST_STEPS || 5 * (at - before) * inner < count * nodes) {
      return at;
    }
  }
}

/* For a permutation: byte k of each of eight words, side by side, for each k. */
GPUFI_INLINE __m512i byte_of_each_word(void) {
  const __m512i word = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i each =
      _mm512_shuffle_epi8(word, _mm512_broadcast_i32x4(_mm_set_epi64x(0x0808080808080808, 0)));
  return _mm512_add_epi8(_mm512_set1_epi64(0x3830282018100800), each);
}

/* 64 values' steps: a byte each, of which the highest bit is the first step. The bytes of the eight
 * words are put side by side, and then each eight by eight bits transposed: byte i of the first
 * operand has bit i, and an inner product of bits with it takes bit i of each byte. */
GPUFI_INLINE __m512i steps_of_values(const uint64_t *words, unsigned depth) {
  const __m512i in = _mm512_maskz_loadu_epi64((__mmask8)((1u << depth) - 1), words);
  const __m512i x = _mm512_permutexvar_epi8(byte_of_each_word(), in);
  return _mm512_gf2p8affine_epi64_epi8(_mm512_set1_epi64((int64_t)0x8040201008040201), x, 0);
}

/* The rest of the walks of up to 64 * `words` values from the nodes of a level on, to leaves. They
 * stay in their places; a mask names those that have steps to take. */
GPUFI_INLINE size_t read_words(const uint8_t *bits, size_t at, size_t count, const unsigned words,
                               const gpufi_tree *tree, unsigned level, uint8_t *nodes) {
  __m512i node[WORDS];
  uint64_t active[WORDS];
  const __m512i one = _mm512_set1_epi8(1);
  for (unsigned k = 0; k < words; k++) {
    node[k] = _mm512_loadu_si512(nodes + (size_t)64 * k);
    active[k] = (size_t)64 * k < count ? first_bits(count - (size_t)64 * k) : 0;
  }
  for (unsigned j = level + 1; j <= tree->depth; j++) {
    const __m512i before = _mm512_set1_epi8((char)tree->before[j]);
    const __m512i least = _mm512_set1_epi8((char)(tree->before[j] + tree->leaves[j]));
    for (unsigned k = 0; k < words; k++) {
      const uint64_t right = deposit_next(bits, &at, active[k]);
      const __m512i down = _mm512_sub_epi8(node[k], before);
      node[k] = _mm512_mask_add_epi8(node[k], active[k], node[k], down);
      node[k] = _mm512_mask_add_epi8(node[k], right, node[k], one);
      active[k] = _mm512_mask_cmpge_epu8_mask(active[k], node[k], least);
    }
  }
  for (unsigned k = 0; k < words; k++) {
    _mm512_storeu_si512(nodes + (size_t)64 * k, node[k]);
  }
  return at;
}

static size_t read_last(const uint8_t *bits, size_t at, size_t count, const gpufi_tree *tree,
                        unsigned level, uint8_t *nodes) {
  return count <= 128   ? read_words(bits, at, count, 2, tree, level, nodes)
         : count <= 256 ? read_words(bits, at, count, 4, tree, level, nodes)
                        : read_words(bits, at, count, WORDS, tree, level, nodes);
}

/* Of the values that go on from `level`, to which their steps are in the upper bits of bytes, the
 * nodes: the steps as a number, less what is to the left of the leaves of the level, more the
 * leaves before. */
GPUFI_INLINE void to_nodes(const gpufi_tree *tree, unsigned level, size_t count, uint8_t *steps) {
  unsigned left = 0;
  for (unsigned j = 1; j < level; j++) {
    left = 2 * (left + tree->leaves[j]);
  }
  const __m512i add = _mm512_set1_epi8((char)(tree->before[level] - left));
  const __m512i mask = _mm512_set1_epi8((char)(0xff >> (8 - level)));
  for (size_t i = 0; i < count; i += 64) {
    const __m512i x = _mm512_loadu_si512(steps + i);
    const __m512i number = _mm512_and_si512(_mm512_srli_epi16(x, 8 - level), mask);
    _mm512_storeu_si512(steps + i, _mm512_add_epi8(number, add));
  }
}

GPUFI_INLINE size_t count_of(__m512i x, __m512i byte, uint64_t here) {
  return (size_t)_mm_popcnt_u64(_mm512_mask_cmpeq_epi8_mask(here, x, byte));
}

/* The steps of values to bytes, which tell the leaf of a value that does not go on. Those that do
 * are listed. Returns how many. */
GPUFI_INLINE size_t list_steps(const first_steps *s, const table256 *all, size_t count,
                               uint8_t *leaves, uint8_t *list) {
  size_t listed = 0;
  for (size_t i = 0; i < count; i += 64) {
    const __m512i x = steps_of_values(s->by_word[i / 64], s->depth);
    _mm512_storeu_si512(leaves + i, look_up(all, x, 4));
    _mm512_storeu_si512(list + listed, _mm512_maskz_compress_epi8(s->active[i / 64], x));
    listed += (size_t)_mm_popcnt_u64(s->active[i / 64]);
  }
  return listed;
}

/* The last leaf is on the last level: among those that were listed, or else among all. */
size_t gpufi_read_walks_avx512(const uint8_t *bits, size_t count, const gpufi_tree *tree,
                               const gpufi_leaf_tables *tables, uint8_t *leaves,
                               size_t *last_count) {
  first_steps s;
  uint8_t list[GPUFI_BLOCK_VALUES + GPUFI_WALK_NBYTES];
  size_t at = read_first(bits, count, tree, &s), lasts = 0;
  const table256 all = load_table(tables->leaves, 4);
  const __m512i last = _mm512_set1_epi8((char)tables->last);
  if (s.depth == tree->depth) {
    for (size_t i = 0; i < count; i += 64) {
      const __m512i leaf = look_up(&all, steps_of_values(s.by_word[i / 64], s.depth), 4);
      _mm512_storeu_si512(leaves + i, leaf);
      lasts += count_of(leaf, last, first_bits(count - i));
    }
    *last_count = lasts;
    return at;
  }
  const size_t listed = list_steps(&s, &all, count, leaves, list);
  const uint8_t *next = list;
  to_nodes(tree, s.depth, listed, list);
  at = read_last(bits, at, listed, tree, s.depth, list);
  for (size_t i = 0; i < listed; i += 64) {
    lasts += count_of(_mm512_loadu_si512(list + i), last, first_bits(listed - i));
  }
  *last_count = lasts;
  for (size_t i = 0; i < count; i += 64) {
    const __m512i leaf = _mm512_loadu_si512(leaves + i);
    const __m512i deep = _mm512_loadu_si512(next);
    _mm512_storeu_si512(leaves + i, _mm512_mask_expand_epi8(leaf, s.active[i / 64], deep));
    next += (size_t)_mm_popcnt_u64(s.active[i / 64]);
  }
  return at;
}

/* The inverse of steps_of_values, with the lowest bits first: word k has bit k of 64 bytes. */
GPUFI_INLINE __m512i words_of_bytes(__m512i bytes) {
  const __m512i reversed = _mm512_shuffle_epi8(
      bytes, _mm512_broadcast_i32x4(_mm_set_epi64x(0x08090a0b0c0d0e0f, 0x0001020304050607)));
  const __m512i bits =
      _mm512_gf2p8affine_epi64_epi8(_mm512_set1_epi64((int64_t)0x8040201008040201), reversed, 0);
  return _mm512_permutexvar_epi8(byte_of_each_word(), bits);
}

/* Of 64 values in a row: word j - 1 has their steps to level j, and which of them take one. */
typedef struct levels_of_values {
  uint64_t steps[WORDS][FIRST_STEPS], active[WORDS][FIRST_STEPS];
} levels_of_values;

GPUFI_INLINE void look_up_levels(const uint8_t *leaves, size_t count,
                                 const gpufi_walk_tables *tables, const unsigned quarters,
                                 levels_of_values *out) {
  const table256 lower = load_table(tables->lower, quarters);
  const table256 levels = load_table(tables->levels, quarters);
  for (size_t i = 0; i < count; i += 64) {
    const __m512i leaf = _mm512_loadu_si512(leaves + i);
    const __m512i steps = look_up(&lower, leaf, quarters);
    const __m512i taken =
        _mm512_maskz_mov_epi8(first_bits(count - i), look_up(&levels, leaf, quarters));
    _mm512_storeu_si512(out->steps[i / 64], words_of_bytes(steps));
    _mm512_storeu_si512(out->active[i / 64], words_of_bytes(taken));
  }
}

/* The first levels, until a fifth of the values at most is expected to go on. Returns the level. */
GPUFI_INLINE unsigned write_first(const uint8_t *leaves, size_t count, const gpufi_tree *tree,
                                  const gpufi_walk_tables *tables, gpufi_bit_writer *w) {
  levels_of_values l;
  size_t inner = 1;
  if (tables->last < 64) {
    look_up_levels(leaves, count, tables, 1, &l);
  } else if (tables->last < 128) {
    look_up_levels(leaves, count, tables, 2, &l);
  } else {
    look_up_levels(leaves, count, tables, 4, &l);
  }
  for (unsigned j = 1;; j++) {
    /* In whole words, as all are up to then, where every value takes a step. */
    const bool whole = tree->before[j] == 0 && count % 64 == 0;
    for (size_t i = 0; i < count && whole; i += 64, w->next += 8) {
      memcpy(w->next, &l.steps[i / 64][j - 1], 8);
    }
    for (size_t i = 0; i < count && !whole; i += 64) {
      const uint64_t active = l.active[i / 64][j - 1];
      gpufi_put_bits(w, _pext_u64(l.steps[i / 64][j - 1], active),
                     (unsigned)_mm_popcnt_u64(active));
    }
    inner = 2 * inner - tree->leaves[j];
    if (j == tree->depth || j == FIRST_STEPS || 5 * inner < (size_t)1 << j) {
      return j;
    }
  }
}

/* The leaves that are below a level, of which the least is `inner`. Returns how many. */
GPUFI_INLINE size_t list_below(const uint8_t *leaves, size_t count, unsigned inner, uint8_t *list) {
  const __m512i least = _mm512_set1_epi8((char)inner);
  size_t listed = 0;
  for (size_t i = 0; i < count; i += 64) {
    const __m512i leaf = _mm512_loadu_si512(leaves + i);
    const __mmask64 more = _mm512_mask_cmpge_epu8_mask(first_bits(count - i), leaf, least);
    _mm512_storeu_si512(list + listed, _mm512_maskz_compress_epi8(more, leaf));
    listed += (size_t)_mm_popcnt_u64(more);
  }
  return listed;
}

#include "codec/walks_x86_impl.h"

/* The values that go on after the first levels are listed. */
size_t gpufi_write_walks_avx512(const uint8_t *leaves, size_t count, const gpufi_tree *tree,
                                const gpufi_walk_tables *tables, uint8_t *bits) {
  gpufi_bit_writer w = {bits, 0, 0};
  uint8_t list[GPUFI_BLOCK_VALUES + GPUFI_WALK_NBYTES];
  const unsigned first = write_first(leaves, count, tree, tables, &w);
  if (first < tree->depth) {
    const size_t listed = list_below(leaves, count, tree->before[first + 1], list);
    write_levels(list, listed, tree, tables, first + 1, &w);
  }
  gpufi_put_last_bits(&w);
  return 8 * (size_t)(w.next - bits) + w.fill;
}

/* gpufi_split_8_avx512 and so on. */
#define WALK(name) JOIN(name, _, JOIN(BITS, _, avx512))
#define GPUFI_EACH_WIDTH "codec/walk_impl.h"
#include "codec/each_width.h"

#include "codec/target_end.h"
