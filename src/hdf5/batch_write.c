/* Writing whole chunks of a tensor on a device: they are gathered and encoded there, a batch at a
 * time, cross the link encoded, and go to H5Dwrite_chunk. While one batch is written the next one
 * crosses and the one after that is encoded. */
#include "base/error.h"
#include "hdf5/batches.h"
#include "hdf5/coding.h"

#include <stdlib.h>

typedef struct writer {
  gpufi_h5_batches all;
  /* For chunks that the device leaves to the CPU; NULL until there is one. */
  void *encoded;
  void *scratch;
} writer;

/* --- On the device ----------------------------------------------------------- */

/* Chunk `index` of the grid to `d_raw`; what lies beyond the dataset's edge is 0. */
static gpuf_status gather_chunk(const gpufi_h5_batches *all, const gpufi_h5_batch *b, int64_t index,
                                void *d_raw, gpuf_error *err) {
  const gpuf_device device = b->channel->device;
  const size_t raw_nbytes = all->chunks.raw_nbytes;
  gpuf_tensor in_chunk, in_tensor;
  gpuf_status status =
      gpufi_h5_transfer_views(all->transfer, index, d_raw, device, &in_chunk, &in_tensor, err);
  if (status == GPUF_OK && gpuf_tensor_nbytes(&in_chunk) != raw_nbytes) {
    status = all->backend->clear(device.index, d_raw, raw_nbytes, b->channel->stream, err);
  }
  return status == GPUF_OK ? gpufi_h5_batch_copy(all, b, &in_chunk, &in_tensor, err) : status;
}

gpuf_status gpufi_h5_batches_encode(const gpufi_h5_batches *all, gpufi_h5_batch *b,
                                    gpuf_error *err) {
  const gpufi_chunks *chunks = &b->chunks;
  gpuf_status status = GPUF_OK;
  for (size_t i = 0; i < chunks->count && status == GPUF_OK; i++) {
    uint8_t *const d_raw = b->d_raw + i * chunks->raw_pitch_nbytes;
    status = gather_chunk(all, b, b->first + (int64_t)i, d_raw, err);
  }
  return status == GPUF_OK ? gpufi_h5_batch_encode(b, err) : status;
}

static gpuf_status start_batch(void *by, gpufi_h5_batch *b, gpuf_error *err) {
  const writer *w = by;
  return gpufi_h5_batches_encode(&w->all, b, err);
}

static gpuf_status send_batch(void *by, gpufi_h5_batch *b, gpuf_error *err) {
  return gpufi_h5_batch_send(b, err);
}

/* --- On the host ------------------------------------------------------------- */

/* Encode a chunk in a form that the device does not encode, whose elements are at chunk->raw. */
static gpuf_status encode_left(writer *w, gpufi_h5_chunk *chunk, gpuf_error *err) {
  const gpufi_h5_dataset *dataset = w->all.transfer->dataset;
  if (!w->encoded) {
    w->encoded = malloc(gpufi_h5_encoded_bound(dataset));
  }
  if (!w->scratch) {
    w->scratch = gpufi_h5_scratch_create(dataset);
  }
  if (!w->encoded || !w->scratch) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0,
                      "no memory to encode a chunk of %zu bytes: choose smaller chunks",
                      dataset->chunk_nbytes);
  }
  chunk->encoded = w->encoded;
  return gpufi_h5_chunk_encode(w->all.transfer, chunk, w->scratch, err);
}

static gpuf_status put_batch(void *by, gpufi_h5_batch *b, size_t *left_count, gpuf_error *err) {
  writer *w = by;
  gpufi_h5_session *session = w->all.session;
  gpuf_status status = gpufi_h5_batch_wait(b, err);
  for (size_t i = 0; i < b->chunks.count && status == GPUF_OK; i++) {
    void *const bytes = b->bytes + b->places[i].offset;
    gpufi_h5_chunk chunk = {.index = b->first + (int64_t)i, .raw = bytes, .encoded = bytes};
    chunk.encoded_nbytes = (size_t)b->places[i].nbytes;
    if (chunk.encoded_nbytes == 0) {
      gpufi_h5_leave(session);
      status = encode_left(w, &chunk, err);
      ++*left_count;
    }
    if (status == GPUF_OK) {
      status = gpufi_h5_chunk_put(session, w->all.transfer, &chunk, err);
    }
  }
  gpufi_h5_leave(session);
  return status;
}

gpuf_status gpufi_h5_batches_write(gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
                                   int64_t *done, gpuf_error *err) {
  static const gpufi_h5_batch_steps steps = {start_batch, send_batch, put_batch};
  writer w = {.encoded = NULL};
  gpuf_status status;
  *done = 0;
  if (!gpufi_h5_batches_suit(transfer)) {
    return GPUF_OK;
  }
  status = gpufi_h5_batches_init(&w.all, session, transfer, err);
  status = gpufi_h5_batches_run(&w.all, status, &steps, &w, done, err);
  gpufi_h5_batches_fini(&w.all);
  free(w.encoded);
  free(w.scratch);
  return status;
}
