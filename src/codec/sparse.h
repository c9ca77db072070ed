/* The mask of a sparse block: which of up to 1,024 values are not 0.
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_SPARSE_H
#define GPUFI_CODEC_SPARSE_H

#include "codec/format.h"

#include <gpufetch/gpufetch.h>

typedef struct gpufi_mask {
  uint8_t bits[GPUFI_BLOCK_GROUPS]; /* bit i % 8 of byte i / 8: value i is not 0 */
  size_t used_count;                /* bits set */
  size_t nbytes;                    /* as it is stored */
} gpufi_mask;

/* Bits and used_count of `count` (1 .. 1024) values. */
void gpufi_mask_of(size_t value_nbytes, const uint8_t *values, size_t count, gpufi_mask *mask);

/* A kernel: the bits and used_count of the mask of `count` (1 .. 1024) values, and those of them
 * that are not 0, to `used`, which has capacity for GPUFI_COMPACT_WRITE_NBYTES more than these. */
#define GPUFI_COMPACT_WRITE_NBYTES 64
typedef void gpufi_compact_fn(const uint8_t *values, size_t count, gpufi_mask *mask, uint8_t *used);

/* The mask as a block has it, to `out`, which has capacity for GPUFI_MASK_WRITE_NBYTES; returns its
 * bytes. `compact` is for values of one byte. */
#define GPUFI_MASK_WRITE_NBYTES                                                                    \
  (2 + GPUFI_MASK_MIDDLE_NBYTES + GPUFI_BLOCK_GROUPS + GPUFI_COMPACT_WRITE_NBYTES)
size_t gpufi_mask_write(gpufi_compact_fn *compact, const gpufi_mask *mask, size_t count,
                        uint8_t *out);

/* A kernel: `count` values, the next of `used` where the bit is set, else 0. `used` is readable for
 * GPUFI_EXPAND_READ_NBYTES more, and bits from `count` on are 0. */
#define GPUFI_EXPAND_READ_NBYTES 64
typedef void gpufi_expand_fn(const uint8_t *bits, const uint8_t *used, size_t count,
                             uint8_t *values);

/* Read the mask over `count` values at `in`, of which `in_nbytes` are readable, at chunk offset
 * `at` (for the message). `in` is untrusted. `expand` is for values of one byte. */
gpuf_status gpufi_mask_read(gpufi_expand_fn *expand, const uint8_t *in, size_t in_nbytes, size_t at,
                            size_t count, gpufi_mask *mask, gpuf_error *err);

/* The values that are not 0, to `used`, which has capacity for one more than these. */
void gpufi_mask_compact(size_t value_nbytes, const uint8_t *values, size_t count, uint8_t *used);

/* Worth trying: at least a quarter of the values are 0, but not all. */
static inline bool gpufi_mask_pays(size_t used_count, size_t count) {
  return used_count != 0 && 4 * used_count <= 3 * count;
}

#endif
