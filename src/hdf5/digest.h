/* A checksum of what is stored of a dataset: which chunks there are, their places, sizes and bytes.
 * The order in which chunks are added does not matter. Thread-safety: re-entrant. */
#ifndef GPUFI_HDF5_DIGEST_H
#define GPUFI_HDF5_DIGEST_H

#include "hdf5/dataset.h"

/* Zeroed: of no chunk. */
typedef struct gpufi_h5_digest {
  uint64_t sum; /* modulo 2^64 */
  int64_t chunk_count;
  uint64_t stored_nbytes;
} gpufi_h5_digest;

/* A checksum of any bytes, of 64 bits; not for forged ones. */
uint64_t gpufi_h5_hash(const void *bytes, size_t nbytes);

/* Add chunk `index` of the dataset's grid, which is stored as `nbytes` bytes. Chunks of the
 * gpufetch filter have a checksum in them: with `is_trusted`, it is taken from there, and otherwise
 * computed from the bytes and compared with it. False, and nothing is added, where the bytes are no
 * such chunk. */
bool gpufi_h5_digest_add(gpufi_h5_digest *digest, const gpufi_h5_dataset *dataset, int64_t index,
                         const void *bytes, size_t nbytes, bool is_trusted);

#endif
