/* Batches of chunks on the host backend: the reference of the CUDA kernels, one chunk after the
 * other through codec/codec.h. */
#ifndef GPUFI_BACKEND_HOST_CODEC_H
#define GPUFI_BACKEND_HOST_CODEC_H

#include "backend/backend.h"

/* As the backend's entries. No chunk is left to the CPU: this is it. */
size_t gpufi_host_encode_scratch_nbytes(const gpufi_chunks *chunks);
size_t gpufi_host_decode_scratch_nbytes(const gpufi_chunks *chunks);
gpuf_status gpufi_host_encode(int32_t device, const gpufi_chunks *chunks, const void *d_raw,
                              void *d_encoded, gpufi_chunk_place *d_places, void *d_scratch,
                              gpuf_stream stream, gpuf_error *err);
gpuf_status gpufi_host_decode(int32_t device, const gpufi_chunks *chunks, const void *d_encoded,
                              size_t encoded_nbytes, const gpufi_chunk_place *d_places, void *d_raw,
                              uint32_t *d_verdicts, void *d_scratch, gpuf_stream stream,
                              gpuf_error *err);

#endif
