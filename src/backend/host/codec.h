/* Batches of chunks on the host backend: the reference of the CUDA kernels, one chunk after the
 * other through codec/codec.h. */
#ifndef GPUFI_BACKEND_HOST_CODEC_H
#define GPUFI_BACKEND_HOST_CODEC_H

#include "backend/backend.h"

/* As the backend's entries. */
size_t gpufi_host_encode_scratch_nbytes(const gpufi_chunks *chunks);
size_t gpufi_host_decode_scratch_nbytes(const gpufi_chunks *chunks);
gpuf_status gpufi_host_encode(int32_t device, const gpufi_chunks *chunks, const void *d_raw,
                              void *d_encoded, gpufi_chunk_place *d_places, void *d_scratch,
                              gpuf_stream stream, gpuf_error *err);
gpuf_status gpufi_host_decode(int32_t device, const gpufi_chunks *chunks, const void *d_encoded,
                              size_t encoded_nbytes, const gpufi_chunk_place *d_places, void *d_raw,
                              uint32_t *d_verdicts, void *d_scratch, gpuf_stream stream,
                              gpuf_error *err);

/* A batch and its memory: device addresses, or those at which the stream's thread may touch it. */
typedef struct gpufi_host_batch {
  gpufi_chunks chunks;
  void *raw, *encoded, *places, *verdicts, *scratch;
  size_t encoded_nbytes, scratch_nbytes;
} gpufi_host_batch;

/* Encodes or decodes a batch, which is in memory that may be touched. */
typedef gpuf_status (*gpufi_host_coder)(const gpufi_host_batch *batch, gpuf_error *err);

/* Call `coder` with the batch, which has device addresses, on the stream's thread. Only a batch to
 * decode has verdicts. */
gpuf_status gpufi_host_enqueue_batch(int32_t device, gpufi_host_coder coder,
                                     const gpufi_host_batch *batch, gpuf_stream stream,
                                     gpuf_error *err);

#endif
