/* Writing whole chunks of a tensor on a device: they are gathered and encoded there, a batch at a
 * time, cross the link encoded, and go to H5Dwrite_chunk. While one batch is written the next one
 * crosses and the one after that is encoded. */
#include "base/error.h"
#include "hdf5/batches.h"
#include "hdf5/encoded_chunks.h"

#include <string.h>

typedef struct writer {
  gpufi_h5_batches all;
  gpufi_h5_left_chunks left;
} writer;

/* --- On the device ----------------------------------------------------------- */

/* The dataset's fill value to all elements of a chunk: one element is copied to all of them. */
static gpuf_status fill_chunk(const gpufi_h5_batches *all, const gpufi_h5_batch *b, void *d_raw,
                              gpuf_error *err) {
  const gpufi_h5_dataset *dataset = all->transfer->dataset;
  const gpuf_device device = b->channel->device;
  gpuf_tensor chunk, repeated;
  if (!dataset->has_fill) {
    return all->backend->clear(device.index, d_raw, all->chunks.raw_nbytes, b->channel->stream,
                               err);
  }
  const gpuf_status status =
      gpuf_tensor_init(&chunk, d_raw, device, dataset->dtype, dataset->ndim, dataset->chunk, err);
  repeated = chunk;
  repeated.data = b->d_fill;
  memset(repeated.strides_nbytes, 0, sizeof(repeated.strides_nbytes));
  return status == GPUF_OK ? gpufi_h5_batch_copy(all, b, &chunk, &repeated, err) : status;
}

/* Chunk `index` of the grid to `d_raw`; beyond the dataset's edge is its fill value. */
static gpuf_status gather_chunk(const gpufi_h5_batches *all, const gpufi_h5_batch *b, int64_t index,
                                void *d_raw, gpuf_error *err) {
  const gpuf_device device = b->channel->device;
  const size_t raw_nbytes = all->chunks.raw_nbytes;
  gpuf_tensor in_chunk, in_tensor;
  gpuf_status status =
      gpufi_h5_transfer_views(all->transfer, index, d_raw, device, &in_chunk, &in_tensor, err);
  if (status == GPUF_OK && gpuf_tensor_nbytes(&in_chunk) != raw_nbytes) {
    status = fill_chunk(all, b, d_raw, err);
  }
  return status == GPUF_OK ? gpufi_h5_batch_copy(all, b, &in_chunk, &in_tensor, err) : status;
}

gpuf_status gpufi_h5_batches_encode(const gpufi_h5_batches *all, gpufi_h5_batch *b,
                                    gpuf_error *err) {
  const gpufi_chunks *chunks = &b->chunks;
  gpuf_status status = gpufi_h5_batches_find_chunks(all, b, err);
  const size_t gathered = b->d_chunks == b->d_raw ? chunks->count : 0;
  for (size_t i = 0; i < gathered && status == GPUF_OK; i++) {
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

static gpuf_status put_batch(void *by, gpufi_h5_batch *b, size_t *left_count, gpuf_error *err) {
  writer *w = by;
  gpuf_status status = gpufi_h5_batch_wait(b, err);
  if (status == GPUF_OK) {
    w->left.count = 0;
    status = gpufi_h5_encoded_chunks_put(w->all.session, w->all.transfer, b->bytes, b->places,
                                         b->first, b->chunks.count, &w->left, err);
    *left_count += w->left.count;
  }
  return status;
}

gpuf_status gpufi_h5_batches_write(gpufi_h5_session *session, const gpufi_h5_transfer *transfer,
                                   int64_t *done, gpuf_error *err) {
  static const gpufi_h5_batch_steps steps = {start_batch, send_batch, put_batch};
  writer w = {.left = {NULL, NULL, 0}};
  gpuf_status status;
  *done = 0;
  if (!gpufi_h5_batches_suit(transfer)) {
    return GPUF_OK;
  }
  status = gpufi_h5_batches_init(&w.all, session, transfer, err);
  status = gpufi_h5_batches_run(&w.all, status, &steps, &w, done, err);
  status = gpufi_h5_chunks_settle(session, status, err);
  gpufi_h5_batches_fini(&w.all);
  gpufi_h5_left_chunks_fini(&w.left);
  return status;
}
