#include "hdf5/encoded_chunks.h"

#include <stdlib.h>

#include "base/error.h"
#include "hdf5/coding.h"

/* Encode a chunk in a form that the device does not encode, whose elements are at chunk->raw. */
static gpuf_status encode_left(const gpufi_h5_transfer *transfer, gpufi_h5_chunk *chunk,
                               gpufi_h5_left_chunks *left, gpuf_error *err) {
  const gpufi_h5_dataset *const dataset = transfer->dataset;
  if (!left->encoded) {
    left->encoded = malloc(gpufi_h5_encoded_bound(dataset));
  }
  if (!left->scratch) {
    left->scratch = gpufi_h5_scratch_create(dataset);
  }
  if (!left->encoded || !left->scratch) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0,
                      "no memory to encode a chunk of %zu bytes: choose smaller chunks",
                      dataset->chunk_nbytes);
  }
  left->count++;
  chunk->encoded = left->encoded;
  return gpufi_h5_chunk_encode(transfer, chunk, left->scratch, err);
}

gpuf_status gpufi_h5_encoded_chunks_put(gpufi_h5_session *session,
                                        const gpufi_h5_transfer *transfer, uint8_t *bytes,
                                        const gpufi_chunk_place *places, int64_t first,
                                        size_t count, gpufi_h5_left_chunks *left, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  session->defers = true;
  for (size_t i = 0; i < count && status == GPUF_OK; i++) {
    uint8_t *const at = bytes + places[i].offset;
    gpufi_h5_chunk chunk = {.index = first + (int64_t)i, .raw = at, .encoded = at};
    chunk.encoded_nbytes = (size_t)places[i].nbytes;
    if (chunk.encoded_nbytes == 0) { /* the one before may wait at left->encoded to be written */
      gpufi_h5_leave(session);
      status = gpufi_h5_chunks_settle(session, status, err);
      status = status == GPUF_OK ? encode_left(transfer, &chunk, left, err) : status;
    }
    if (status == GPUF_OK) {
      status = gpufi_h5_chunk_put(session, transfer, &chunk, err);
    }
  }
  gpufi_h5_leave(session);
  session->defers = false;
  return gpufi_h5_chunks_begin(session, status, err);
}

void gpufi_h5_left_chunks_fini(gpufi_h5_left_chunks *left) {
  free(left->encoded);
  free(left->scratch);
}
