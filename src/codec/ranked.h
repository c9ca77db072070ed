/* Ranked chunks: which bits of a value are its symbol, and which symbols have which codes.
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_RANKED_H
#define GPUFI_CODEC_RANKED_H

#include "codec/sample.h"
#include "codec/walks.h"

/* The codes of a chunk. A symbol's index in the table is the leaf whose code it has; the last leaf
 * says that the symbol itself is stored. In version 1 the first 2^first_bits - 1 symbols of the
 * table have a first code, their index; the greatest first code says that a second code follows:
 * those of the next 2^second_bits - 1 symbols; and the greatest of these that the symbol is
 * stored. */
typedef struct gpufi_ranks {
  gpufi_cut cut;
  gpufi_tree tree;                 /* not in version 1 */
  uint8_t first_bits, second_bits; /* version 1, where first_bits is not 0 */
  uint16_t symbols[GPUFI_TREE_LEAVES_MAX];
} gpufi_ranks;

/* Where symbols may be, from few bits to many: bits `at` to `at + bits - 1`, and then up to `more`
 * bits below them, `step` at a time; at most GPUFI_CUTS_MAX places. */
typedef struct gpufi_cuts {
  uint8_t at, bits, more, step;
} gpufi_cuts;

#define GPUFI_CUTS_MAX 4

/* Those of values of a dtype. */
gpufi_cuts gpufi_ranks_cuts(gpuf_dtype dtype, size_t value_nbytes);

/* Bytes of a symbol as it is stored, in the table and in a block. */
static inline size_t gpufi_symbol_nbytes(const gpufi_ranks *ranks) {
  return ranks->cut.bits > 8 ? 2 : 1; /* 2 only in values of 2 bytes or more */
}

/* Bits of a value that are neither its symbol nor 0. */
static inline unsigned gpufi_rest_bits(const gpufi_ranks *ranks, size_t value_nbytes) {
  return (unsigned)(8 * value_nbytes - ranks->cut.bits - ranks->cut.shift);
}

/* Choose symbols and codes by the sample; returns their cost in bits, or UINT64_MAX where it is
 * certain to be `limit` or more. */
uint64_t gpufi_ranks_choose(gpufi_ranks *ranks, const gpufi_sampled *of, uint64_t limit);

/* Entries of the symbol table, and its bytes. */
size_t gpufi_ranks_count(const gpufi_ranks *ranks);
size_t gpufi_ranks_table_nbytes(const gpufi_ranks *ranks);

void gpufi_ranks_write(const gpufi_ranks *ranks, uint8_t *table);

/* Returns the index of the first symbol that is out of range, or gpufi_ranks_count(). */
size_t gpufi_ranks_read(gpufi_ranks *ranks, const uint8_t *table);

#endif
