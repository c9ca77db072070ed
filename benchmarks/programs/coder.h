/* The codec's passes over a tensor's chunks, on the device alone.
 *
 * The first axis of the tensor counts its chunks, which have the shape of the rest. */
#ifndef BENCHMARKS_CODER_H
#define BENCHMARKS_CODER_H

#include "backend/backend.h"

/* Used by one thread at a time. */
typedef struct coder {
  const gpufi_backend *backend;
  gpuf_tensor tensor;  /* on the device; packed. The coder owns its memory */
  gpufi_chunks chunks; /* all of them */
  gpuf_stream stream;
  size_t encoded_max_nbytes;
  void *d_encoded, *d_decoded, *d_places, *d_verdicts, *d_scratch;
  /* Pinned. Chunk i lies encoded at d_encoded + places[i].offset; if places[i].nbytes is 0, the
   * encoder left it to the CPU. */
  gpufi_chunk_place *places;
  uint32_t *verdicts;
} coder;

/* Copy the packed elements at `data` to the device and encode them there: every pass below has its
 * input then. Chunks have a multiple of 16 bytes. End the coder with coder_fini even when this
 * fails. */
gpuf_status coder_init(coder *c, gpuf_device device, gpuf_dtype dtype, int32_t ndim,
                       const int64_t *shape, void *data, gpuf_error *err);
void coder_fini(coder *c);

/* Bytes of all chunks when encoded; those that the encoder left to the CPU count as they are. */
size_t coder_encoded_nbytes(const coder *c);

/* Encode all chunks on the device, `repeats` times. */
gpuf_status coder_encode(coder *c, int64_t repeats, gpuf_error *err);
/* Decode what coder_encode left on the device, `repeats` times; a chunk that the encoder left to
 * the CPU is copied. GPUF_ERR_CORRUPT if a chunk is not decoded. */
gpuf_status coder_decode(coder *c, int64_t repeats, gpuf_error *err);

/* Copy what was decoded last to `data`, of the tensor's size. */
gpuf_status coder_decoded(const coder *c, void *data, gpuf_error *err);
/* Let the device do next to nothing and wait for it: it may have to turn to this process first. */
gpuf_status coder_wake(coder *c, gpuf_error *err);

#endif
