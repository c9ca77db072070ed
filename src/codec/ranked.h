/* Ranked chunks: which bits of a value are its symbol, and which symbols have which codes.
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_RANKED_H
#define GPUFI_CODEC_RANKED_H

#include "codec/geometry.h"

/* The codes of a chunk. The first 2^first_bits - 1 symbols of the table have a first code, their
 * index. The greatest first code says that a second code follows: those of the next
 * 2^second_bits - 1 symbols. The greatest second code says that the symbol itself is stored. */
typedef struct gpufi_ranks {
  uint8_t symbol_at, symbol_bits; /* the symbol's lowest bit in a value, and its bits */
  uint8_t first_bits, second_bits;
  uint16_t symbols[GPUFI_SYMBOLS_MAX]; /* of the first codes, then of the second ones */
} gpufi_ranks;

/* A table with an entry for each first code. */
#define GPUFI_CODES_MAX (1 << GPUFI_FIRST_BITS_MAX)

/* Symbols that have a first code. */
static inline size_t gpufi_first_count(const gpufi_ranks *ranks) {
  return ((size_t)1 << ranks->first_bits) - 1;
}

/* Symbols that have a second code. */
static inline size_t gpufi_second_count(const gpufi_ranks *ranks) {
  return ((size_t)1 << ranks->second_bits) - 1;
}

/* Bytes of a symbol as it is stored, in the table and in a block. */
static inline size_t gpufi_symbol_nbytes(const gpufi_ranks *ranks) {
  return ranks->symbol_bits > 8 ? 2 : 1; /* 2 only in values of 8 bytes */
}

/* Bits of a value that are not its symbol. */
static inline unsigned gpufi_rest_bits(const gpufi_ranks *ranks, size_t value_nbytes) {
  return (unsigned)(8 * value_nbytes - ranks->symbol_bits);
}

/* Set where the symbol is in a value, and the rest to 0; false if such values are not ranked. */
bool gpufi_ranks_init(gpufi_ranks *ranks, gpuf_dtype dtype, size_t value_nbytes);

/* Choose code lengths and symbols by the sample; returns its cost in bits. */
uint64_t gpufi_ranks_choose(gpufi_ranks *ranks, const gpufi_geometry *g, const uint8_t *raw,
                            bool swap);

/* Entries of the symbol table, and its bytes. */
size_t gpufi_ranks_count(const gpufi_ranks *ranks);
size_t gpufi_ranks_table_nbytes(const gpufi_ranks *ranks);

void gpufi_ranks_write(const gpufi_ranks *ranks, uint8_t *table);

/* Returns the index of the first symbol that is out of range, or gpufi_ranks_count(). */
size_t gpufi_ranks_read(gpufi_ranks *ranks, const uint8_t *table);

#endif
