/* What the kernels that read and write the codes of ranked blocks share. Thread-safety: re-entrant.
 */
#ifndef GPUFI_CODEC_WALKS_H
#define GPUFI_CODEC_WALKS_H

#include "codec/bytes.h"
#include "codec/kernels.h"

/* 64 bits from bit `at` on; reads 9 bytes from the one that it is in. */
static inline uint64_t gpufi_bits_at(const uint8_t *bits, size_t at) {
  const uint8_t *const p = bits + (at >> 3);
  const unsigned low = at & 7;
  return gpufi_load_u64(p) >> low | (uint64_t)p[8] << 1 << (63 - low);
}

/* A stream of bits, of which the last `fill` (below 64) are not written yet. */
typedef struct gpufi_bit_writer {
  uint8_t *next;
  uint64_t pending;
  unsigned fill;
} gpufi_bit_writer;

/* Append the lowest `count` (0 .. 64) bits of `x`, of which the others are 0. Without a branch:
 * what is pending is stored every time. */
static inline void gpufi_put_bits(gpufi_bit_writer *w, uint64_t x, unsigned count) {
  const uint64_t low = w->pending | x << w->fill, high = x >> 1 >> (63 - w->fill);
  const unsigned end = w->fill + count;
  memcpy(w->next, &low, sizeof(low));
  w->pending = low ^ ((low ^ high) & (0 - (uint64_t)(end >> 6)));
  w->next += end >> 6 << 3;
  w->fill = end & 63;
}

/* The end of the stream: writes 8 bytes. */
static inline void gpufi_put_last_bits(const gpufi_bit_writer *w) {
  memcpy(w->next, &w->pending, sizeof(w->pending));
}

/* `symbols` has one for each leaf but the last, of `symbol_bits` bits. */
void gpufi_walk_tables_init(gpufi_walk_tables *tables, const gpufi_tree *tree,
                            const uint16_t *symbols, unsigned symbol_bits);

/* The same for a decoder. */
void gpufi_leaf_tables_init(gpufi_leaf_tables *tables, const gpufi_tree *tree,
                            const uint16_t *symbols, unsigned symbol_bits);

#endif
