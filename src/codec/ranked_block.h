/* Blocks of ranked chunks.
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_RANKED_BLOCK_H
#define GPUFI_CODEC_RANKED_BLOCK_H

#include "codec/ranked.h"

#include <gpufetch/gpufetch.h>

/* As gpufi_block_pack, for values. `tables` is that of gpufi_walk_tables_init. */
bool gpufi_ranked_pack(const gpufi_ranks *ranks, const gpufi_walk_tables *tables,
                       size_t value_nbytes, const uint8_t *values, size_t count, uint8_t *out,
                       size_t capacity, gpufi_block *block);

/* As gpufi_block_unpack, for values. `tables` is that of gpufi_leaf_tables_init, and not read for
 * ranks of version 1. Reads the `in_nbytes` at `in`, of which the
 * block has block.nbytes, and no more. */
gpuf_status gpufi_ranked_unpack(const gpufi_ranks *ranks, const gpufi_leaf_tables *tables,
                                size_t value_nbytes, const uint8_t *in, size_t in_nbytes, size_t at,
                                gpufi_block block, uint8_t *values, size_t count, gpuf_error *err);

#endif
