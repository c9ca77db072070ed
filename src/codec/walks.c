/* Ranked chunks in plain C. The bits of the codes of a block are in the order of the tree's levels,
 * and within a level in the order of the values that take a step to it:
 *
 *   leaves                2   0   1   0         of the tree in tree.h
 *   steps to level 1      1   0   1   0
 *   steps to level 2      1       0
 *   steps to level 3      0
 *   bits                  1 0 1 0  1 0  0
 */
#include "codec/walks.h"
#include "codec/scalar.h"

void gpufi_walk_tables_init(gpufi_walk_tables *tables, const gpufi_tree *tree,
                            const uint16_t *symbols, unsigned symbol_bits) {
  const size_t last = (size_t)tree->leaf_count - 1;
  *tables = (gpufi_walk_tables){.wide = symbol_bits > 8, .last = (uint8_t)last};
  memset(tables->leaves, (int)last, sizeof(tables->leaves));
  for (size_t i = last; i-- > 0;) {
    tables->pages |= (uint8_t)(1u << (symbols[i] >> 8));
    tables->leaves[symbols[i]] = (uint8_t)i;
  }
  for (size_t leaf = 0; leaf <= last; leaf++) {
    unsigned steps = 0, node = (unsigned)leaf;
    const unsigned level = gpufi_tree_level(tree, leaf);
    for (unsigned j = level; j > 0; j--) {
      const unsigned place = node - tree->before[j];
      steps |= (place & 1) << (j - 1);
      node = tree->before[j] + (place >> 1);
    }
    tables->lower[leaf] = (uint8_t)steps;
    tables->upper[leaf] = (uint8_t)(steps >> 8);
    tables->levels[leaf] = (uint8_t)((1u << level) - 1);
  }
}

void gpufi_leaf_tables_init(gpufi_leaf_tables *tables, const gpufi_tree *tree,
                            const uint16_t *symbols, unsigned symbol_bits) {
  const size_t last = (size_t)tree->leaf_count - 1;
  size_t at = 0; /* the first eight steps of leaves in order are numbers in order */
  *tables = (gpufi_leaf_tables){.wide = symbol_bits > 8, .last = (uint8_t)last};
  for (size_t leaf = 0; leaf < last; leaf++) {
    tables->lower[leaf] = (uint8_t)symbols[leaf];
    tables->upper[leaf] = (uint8_t)(symbols[leaf] >> 8);
  }
  for (unsigned j = 1; j <= tree->depth && j <= 8; j++) {
    const size_t each = (size_t)1 << (8 - j);
    for (size_t k = 0; k < tree->leaves[j]; k++, at += each) {
      memset(tables->leaves + at, (int)(tree->before[j] + k), each);
    }
  }
}

void gpufi_from_places_16_scalar(const uint16_t table[GPUFI_DICTIONARY_ENTRIES_MAX], size_t count,
                                 uint8_t *values) {
  for (size_t i = count; i-- > 0;) {
    memcpy(values + 2 * i, &table[values[i]], 2);
  }
}

void gpufi_symbols_scalar(const uint8_t *codes, size_t count, const uint8_t *table, unsigned last,
                          const uint8_t *escaped, uint8_t *symbols) {
  for (size_t i = 0; i < count; i++) { /* without a branch, which would be mispredicted often */
    const bool escapes = codes[i] == last;
    symbols[i] = (uint8_t)(table[codes[i]] | (*escaped & (0 - (unsigned)escapes)));
    escaped += escapes;
  }
}

void gpufi_leaves_scalar(const gpufi_walk_tables *tables, const uint8_t *lower,
                         const uint8_t *upper, size_t count, uint8_t *leaves) {
  if (tables->wide) {
    for (size_t i = 0; i < count; i++) {
      leaves[i] = tables->leaves[lower[i] | (unsigned)upper[i] << 8];
    }
  } else {
    for (size_t i = 0; i < count; i++) {
      leaves[i] = tables->leaves[lower[i]];
    }
  }
}

/* Level by level, with the values that are left. */
size_t gpufi_write_walks_scalar(const uint8_t *leaves, size_t count, const gpufi_tree *tree,
                                const gpufi_walk_tables *tables, uint8_t *bits) {
  gpufi_bit_writer w = {bits, 0, 0};
  uint8_t left[GPUFI_BLOCK_VALUES];
  memcpy(left, leaves, count);
  for (unsigned j = 1; j <= tree->depth; j++) {
    const uint8_t *const steps = j <= 8 ? tables->lower : tables->upper;
    const unsigned end = (unsigned)tree->before[j] + tree->leaves[j], bit = (j - 1) % 8;
    size_t more = 0;
    for (size_t i = 0; i < count; i++) {
      const uint8_t leaf = left[i];
      gpufi_put_bits(&w, steps[leaf] >> bit & 1, 1);
      left[more] = leaf;
      more += leaf >= end;
    }
    count = more;
  }
  gpufi_put_last_bits(&w);
  return 8 * (size_t)(w.next - bits) + w.fill;
}

/* `active` has the places of those values whose walk is not at its end. */
size_t gpufi_read_walks_scalar(const uint8_t *bits, size_t count, const gpufi_tree *tree,
                               const gpufi_leaf_tables *tables, uint8_t *leaves,
                               size_t *last_count) {
  uint16_t active[GPUFI_BLOCK_VALUES];
  size_t at = 0, left = count;
  memset(leaves, 0, count); /* the root */
  for (size_t i = 0; i < count; i++) {
    active[i] = (uint16_t)i;
  }
  for (unsigned j = 1; j <= tree->depth; j++) {
    const unsigned before = tree->before[j], end = before + tree->leaves[j];
    size_t more = 0;
    for (size_t k = 0; k < left; k++, at++) {
      const uint16_t i = active[k];
      const unsigned node = 2u * leaves[i] - before + (bits[at >> 3] >> (at & 7) & 1u);
      leaves[i] = (uint8_t)node;
      active[more] = i;
      more += node >= end;
    }
    left = more;
  }
  *last_count = gpufi_count_byte(leaves, count, tables->last);
  return at;
}

/* gpufi_split_8_scalar and so on. */
#define WALK(name) JOIN(name, _, JOIN(BITS, _, scalar))
#define GPUFI_EACH_WIDTH "codec/walk_impl.h"
#include "codec/each_width.h"
