/* Chunks that a device encoded, on their way to the file. */
#ifndef GPUFI_HDF5_ENCODED_CHUNKS_H
#define GPUFI_HDF5_ENCODED_CHUNKS_H

#include "backend/codec.h"
#include "hdf5/chunk.h"

/* For chunks that the device leaves to the CPU; zeroed, for one thread. */
typedef struct gpufi_h5_left_chunks {
  void *encoded; /* NULL until there is one, as is the scratch */
  void *scratch;
  size_t count; /* so far */
} gpufi_h5_left_chunks;

/* Encode those that lie raw (their place has no bytes), and begin to write the `count` chunks from
 * `first` on: chunk i is at bytes + places[i].offset, which stays so until the next
 * gpufi_h5_chunks_begin or gpufi_h5_chunks_settle. Not entered. */
gpuf_status gpufi_h5_encoded_chunks_put(gpufi_h5_session *session,
                                        const gpufi_h5_transfer *transfer, uint8_t *bytes,
                                        const gpufi_chunk_place *places, int64_t first,
                                        size_t count, gpufi_h5_left_chunks *left, gpuf_error *err);

void gpufi_h5_left_chunks_fini(gpufi_h5_left_chunks *left);

#endif
