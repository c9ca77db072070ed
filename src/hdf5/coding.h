/* Chunks encoded and decoded by the CPU. Thread-safety: every function, from any thread. */
#ifndef GPUFI_HDF5_CODING_H
#define GPUFI_HDF5_CODING_H

#include "hdf5/chunk.h"

/* Largest size of an encoded chunk that gpufetch writes; 0 for plain chunks. */
size_t gpufi_h5_encoded_bound(const gpufi_h5_dataset *dataset);

/* What coding a chunk needs beside its buffers; NULL if there is no memory. Free it with free(). */
void *gpufi_h5_scratch_create(const gpufi_h5_dataset *dataset);

/* From chunk->raw to chunk->encoded. Does nothing where the route encodes nothing. */
gpuf_status gpufi_h5_chunk_encode(const gpufi_h5_transfer *transfer, gpufi_h5_chunk *chunk,
                                  void *scratch, gpuf_error *err);
/* From chunk->encoded to chunk->raw, unless the elements are there already. `scratch` may be NULL
 * for chunks of gpufetch. */
gpuf_status gpufi_h5_chunk_decode(const gpufi_h5_transfer *transfer, gpufi_h5_chunk *chunk,
                                  void *scratch, gpuf_error *err);

/* The elements of an encoded chunk in memory of their own, which the caller frees. */
gpuf_status gpufi_h5_chunk_elements(const gpufi_h5_transfer *transfer, const gpufi_h5_chunk *chunk,
                                    void **raw, gpuf_error *err);

#endif
