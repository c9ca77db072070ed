/* Dictionaries: a chunk of at most 256 distinct values is coded as places in a table of them.
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_DICTIONARY_H
#define GPUFI_CODEC_DICTIONARY_H

#include "codec/geometry.h"

#define GPUFI_DICTIONARY_BUCKETS 4096 /* a power of two */

typedef struct gpufi_dictionary {
  gpuf_dtype dtype; /* decides the order of the entries */
  size_t value_nbytes;
  size_t count;
  uint64_t values[GPUFI_DICTIONARY_ENTRIES_MAX];
  uint16_t buckets[GPUFI_DICTIONARY_BUCKETS]; /* by hash: index + 1 of an entry, 0 if free; used
                                                 only while collecting */
} gpufi_dictionary;

/* The distinct values of a chunk, in order, and the place of each value among them. False, with
 * `places` (value_count bytes) indeterminate, if there are too many to be worth it; with
 * `gaps_only` also if those of the sample are integers with hardly a gap between them. */
bool gpufi_dictionary_collect(gpufi_dictionary *d, gpuf_dtype dtype, const gpufi_geometry *g,
                              const uint8_t *raw, bool swap, bool gaps_only, uint8_t *places);

/* Write count * value_nbytes bytes. */
void gpufi_dictionary_write(const gpufi_dictionary *d, uint8_t *table);

/* With dtype, value_nbytes and count set, read the entries. Returns the index of the first that is
 * not above the one before, or `count`. */
size_t gpufi_dictionary_read(gpufi_dictionary *d, const uint8_t *table);

/* Places (value_count bytes at `values`) to values, in place; false if one is not below `count`. */
bool gpufi_dictionary_expand(const gpufi_dictionary *d, size_t value_count, bool swap,
                             uint8_t *values);

#endif
