/* One chunk between the file and the CPU's memory. */
#ifndef GPUFI_HDF5_CHUNK_H
#define GPUFI_HDF5_CHUNK_H

#include "hdf5/transfer.h"

/* Bit of the filter mask that says that the first filter was skipped. */
#define GPUFI_H5_FILTER_SKIPPED 1u

/* The buffers are its user's. Used by one thread at a time. */
typedef struct gpufi_h5_chunk {
  int64_t index;
  void *raw;     /* the elements: all of the chunk's, also those beyond the dataset's edge */
  void *encoded; /* gpufi_h5_encoded_bound() bytes; NULL where the route encodes nothing */
  size_t encoded_nbytes;
  uint32_t filter_mask;
  /* Reading: HDF5 has put the elements at `raw` already, and encoded_nbytes is 0. */
  bool has_elements;
  /* Reading: where gpufi_h5_chunk_load finds encoded_nbytes bytes in the file; else negative. */
  int64_t file_offset;
} gpufi_h5_chunk;

/* Reading takes three steps: get, load and gpufi_h5_chunk_decode. This one sets the chunk's place
 * in the file; or it enters and has HDF5 read the chunk's bytes, or its elements where only HDF5
 * knows them (those of chunks never written). The calling thread's. */
gpuf_status gpufi_h5_chunk_get(gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
                               gpufi_h5_chunk *chunk, int64_t index, gpuf_error *err);
/* Read what is still in the file. Thread-safety: any thread. */
gpuf_status gpufi_h5_chunk_load(const gpufi_h5_transfer *transfer, const gpufi_h5_chunk *chunk,
                                gpuf_error *err);

/* Writing takes two steps: gpufi_h5_chunk_encode and this one, which enters and hands the encoded
 * bytes, or the elements where the route encodes nothing, to H5Dwrite_chunk. A chunk that was
 * stored past the filter is stored so again: there it writes the elements. The calling thread's. */
gpuf_status gpufi_h5_chunk_put(gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
                               const gpufi_h5_chunk *chunk, gpuf_error *err);

/* Begin to write the chunks that were put while session->defers was set, once those of the call
 * before are written: the memory of these is the caller's again, after a failure too. Returns
 * `status` if that is one already. Not entered. */
gpuf_status gpufi_h5_chunks_begin(const gpufi_h5_session *session, gpuf_status status,
                                  gpuf_error *err);
/* Have all chunks written that were put; the memory of all is the caller's again. As
 * gpufi_h5_chunks_begin. */
gpuf_status gpufi_h5_chunks_settle(const gpufi_h5_session *session, gpuf_status status,
                                   gpuf_error *err);

#endif
