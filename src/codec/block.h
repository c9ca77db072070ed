/* Blocks of mode W8, and lists of values at one width.
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_BLOCK_H
#define GPUFI_CODEC_BLOCK_H

#include "codec/sparse.h"

#include <gpufetch/gpufetch.h>

/* Pack `count` (1 .. 1024) residuals into `out` and return true, or false if that takes more
 * than `capacity` bytes. What follows block->nbytes, up to `capacity`, is indeterminate. */
bool gpufi_block_pack(size_t value_nbytes, const void *residuals, size_t count, uint8_t *out,
                      size_t capacity, gpufi_block *block);

/* Unpack the block at `in`, where `in_nbytes` >= block.nbytes are readable, at chunk offset `at`
 * (for the message). Neither reads past in_nbytes nor writes past `count` residuals, which are
 * indeterminate if it fails. The descriptor and `in` are untrusted. */
gpuf_status gpufi_block_unpack(size_t value_nbytes, const uint8_t *in, size_t in_nbytes, size_t at,
                               gpufi_block block, void *residuals, size_t count, gpuf_error *err);

/* `count` values: the next of `used` where the mask has a bit, else 0. `used` is readable for
 * GPUFI_EXPAND_READ_NBYTES more. */
void gpufi_mask_expand(size_t value_nbytes, const gpufi_mask *mask, const uint8_t *used,
                       size_t count, uint8_t *values);

/* Bytes of `count` values at one width, 0 to 8 * value_nbytes bits, in groups of 8 of which the
 * last is filled up with zeros. */
static inline size_t gpufi_fixed_nbytes(size_t count, unsigned width) {
  return (count + GPUFI_GROUP_VALUES - 1) / GPUFI_GROUP_VALUES * width;
}

/* Pack such values; `values` has capacity for whole groups and is filled up in place. Returns where
 * the bytes end, and may write GPUFI_GROUP_WRITE_NBYTES more. */
uint8_t *gpufi_fixed_pack(size_t value_nbytes, void *values, size_t count, unsigned width,
                          uint8_t *bytes);

/* Unpack them into `values`, which has capacity for whole groups. Reads gpufi_fixed_nbytes() bytes
 * and no more. False if the values that fill up the last group are not 0. */
bool gpufi_fixed_unpack(size_t value_nbytes, const uint8_t *bytes, size_t count, unsigned width,
                        void *values);

#endif
