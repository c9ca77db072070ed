#include "backend.h"

#include "backend/cuda/codec/codec.h"
#include "backend/host/codec.h"

static gpuf_status encode_batch(const gpufi_host_batch *b, gpuf_error *err) {
  gpufi_cuda_encode(&b->chunks, b->raw, b->encoded, b->places, b->scratch, NULL);
  return GPUF_OK;
}

static gpuf_status decode_batch(const gpufi_host_batch *b, gpuf_error *err) {
  gpufi_cuda_decode(&b->chunks, b->encoded, b->encoded_nbytes, b->places, b->raw, b->verdicts,
                    b->scratch, NULL);
  return GPUF_OK;
}

static gpuf_status encode(int32_t device, const gpufi_chunks *chunks, const void *d_raw,
                          void *d_encoded, gpufi_chunk_place *d_places, void *d_scratch,
                          gpuf_stream stream, gpuf_error *err) {
  const gpufi_host_batch batch = {.chunks = *chunks,
                                  .raw = (void *)d_raw,
                                  .encoded = d_encoded,
                                  .encoded_nbytes = gpufi_chunks_encoded_nbytes(chunks),
                                  .places = d_places,
                                  .scratch = d_scratch,
                                  .scratch_nbytes = gpufi_cuda_encode_scratch_nbytes(chunks)};
  return gpufi_host_enqueue_batch(device, encode_batch, &batch, stream, err);
}

static gpuf_status decode(int32_t device, const gpufi_chunks *chunks, const void *d_encoded,
                          size_t encoded_nbytes, const gpufi_chunk_place *d_places, void *d_raw,
                          uint32_t *d_verdicts, void *d_scratch, gpuf_stream stream,
                          gpuf_error *err) {
  const gpufi_host_batch batch = {.chunks = *chunks,
                                  .raw = d_raw,
                                  .encoded = (void *)d_encoded,
                                  .encoded_nbytes = encoded_nbytes,
                                  .places = (void *)d_places,
                                  .verdicts = d_verdicts,
                                  .scratch = d_scratch,
                                  .scratch_nbytes = gpufi_cuda_decode_scratch_nbytes(chunks)};
  return gpufi_host_enqueue_batch(device, decode_batch, &batch, stream, err);
}

const gpufi_backend *simt_backend(void) {
  static gpufi_backend backend;
  backend = gpufi_backend_host;
  backend.encode_scratch_nbytes = gpufi_cuda_encode_scratch_nbytes;
  backend.decode_scratch_nbytes = gpufi_cuda_decode_scratch_nbytes;
  backend.encode = encode;
  backend.decode = decode;
  return &backend;
}
