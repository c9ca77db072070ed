#include "hdf5/checkpoint/encoded.h"

#include <stdlib.h>

#include "base/error.h"
#include "core/pool.h"
#include "hdf5/coding.h"
#include "hdf5/create.h"

typedef struct writer {
  gpufi_h5_session *session;
  const gpufi_checkpoint_snapshot *snapshot;
  gpufi_h5_dataset dataset;
  gpufi_h5_transfer transfer;
  gpufi_channel *channel; /* for what lies on the device; NULL until there is some */
  void *staging;          /* pinned, for a batch from there */
  size_t staging_nbytes;
  void *encoded; /* for chunks that the device left raw; NULL until there is one */
  void *scratch;
} writer;

/* --- From the device --------------------------------------------------------- */

static gpuf_status need_staging(writer *w, size_t nbytes, gpuf_error *err) {
  const gpuf_device device = w->snapshot->device;
  gpuf_status status = GPUF_OK;
  if (!w->channel) {
    status = gpufi_channel_acquire(w->snapshot->backend, device, &w->channel, err);
  }
  if (status == GPUF_OK && nbytes > w->staging_nbytes) {
    gpuf_pool_release(w->staging, NULL);
    w->staging = NULL;
    w->staging_nbytes = 0;
    status = gpufi_pool_acquire_staging(device, nbytes, &w->staging, err);
    w->staging_nbytes = status == GPUF_OK ? nbytes : 0;
  }
  return status;
}

/* Have the batch's bytes in host memory. */
static gpuf_status bring(writer *w, const gpufi_checkpoint_batch *batch, uint8_t **bytes,
                         gpuf_error *err) {
  const gpufi_backend *const backend = w->snapshot->backend;
  *bytes = batch->bytes;
  if (batch->place == GPUFI_CHECKPOINT_ON_HOST) {
    return GPUF_OK;
  }
  gpuf_status status = need_staging(w, batch->nbytes, err);
  if (status == GPUF_OK) {
    status = backend->copy(w->channel->device.index, w->staging, batch->bytes, batch->nbytes,
                           GPUFI_TO_HOST, w->channel->stream, err);
  }
  if (status == GPUF_OK) {
    status = backend->stream_synchronize(w->channel->device.index, w->channel->stream, err);
  }
  *bytes = w->staging;
  return status;
}

/* --- To the file -------------------------------------------------------------- */

/* Encode a chunk in a form that the device does not encode. */
static gpuf_status encode_left(writer *w, gpufi_h5_chunk *chunk, gpuf_error *err) {
  if (!w->encoded) {
    w->encoded = malloc(gpufi_h5_encoded_bound(&w->dataset));
  }
  if (!w->scratch) {
    w->scratch = gpufi_h5_scratch_create(&w->dataset);
  }
  if (!w->encoded || !w->scratch) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory to encode a chunk of %zu bytes",
                      w->dataset.chunk_nbytes);
  }
  chunk->encoded = w->encoded;
  return gpufi_h5_chunk_encode(&w->transfer, chunk, w->scratch, err);
}

static gpuf_status put_batch(writer *w, const gpufi_checkpoint_batch *batch, gpuf_error *err) {
  uint8_t *bytes;
  gpuf_status status = bring(w, batch, &bytes, err);
  for (size_t i = 0; i < batch->count && status == GPUF_OK; i++) {
    uint8_t *const at = bytes + batch->chunks[i].offset;
    gpufi_h5_chunk chunk = {.index = batch->first + (int64_t)i, .raw = at, .encoded = at};
    chunk.encoded_nbytes = (size_t)batch->chunks[i].nbytes;
    if (chunk.encoded_nbytes == 0) {
      gpufi_h5_leave(w->session);
      status = encode_left(w, &chunk, err);
    }
    if (status == GPUF_OK) {
      status = gpufi_h5_chunk_put(w->session, &w->transfer, &chunk, err);
    }
  }
  gpufi_h5_leave(w->session);
  return status;
}

static gpuf_status create(writer *w, hid_t file, const gpufi_checkpoint_tensor *t, hid_t *id,
                          gpuf_error *err) {
  gpufi_h5_path path;
  gpuf_status status = gpufi_h5_path_init(&path, t->name, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_h5_enter(w->session);
  status = gpufi_h5_register(w->session, err);
  if (status == GPUF_OK) {
    status = gpufi_h5_create(w->session, file, &path, &t->tensor, id, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_h5_dataset_init(&w->dataset, w->session, *id, err);
  }
  gpufi_h5_leave(w->session);
  gpufi_h5_path_fini(&path);
  return status;
}

static gpuf_status close_dataset(writer *w, hid_t id, const char *name, gpuf_error *err) {
  gpuf_status status = GPUF_OK;
  gpufi_h5_enter(w->session);
  if (w->session->api->Idec_ref(id) < 0) {
    status = gpufi_h5_fail(w->session, err, "closing dataset '%s' failed", name);
  }
  gpufi_h5_leave(w->session);
  return status;
}

static void release(writer *w, bool failed) {
  gpufi_channel_release(w->channel, failed);
  gpuf_pool_release(w->staging, NULL);
  free(w->encoded);
  free(w->scratch);
}

gpuf_status gpufi_checkpoint_write_encoded(gpufi_h5_session *session, hid_t file,
                                           const gpufi_checkpoint_tensor *t, size_t index,
                                           gpufi_checkpoint_snapshot *snapshot,
                                           gpufi_checkpoint_batch *batch, gpuf_error *err) {
  writer w = {.session = session, .snapshot = snapshot};
  gpufi_h5_box box = {{0}, {0}};
  hid_t id = H5I_INVALID_HID;
  gpuf_status status = create(&w, file, t, &id, err);
  if (status == GPUF_OK) {
    status = gpufi_h5_dataset_box(&w.dataset, NULL, &t->tensor, "tensor", &box, err);
  }
  if (status == GPUF_OK) {
    gpufi_h5_transfer_init(&w.transfer, session, &w.dataset, &box, &t->tensor, true);
  }
  while (batch && status == GPUF_OK) {
    status = put_batch(&w, batch, err);
    gpufi_checkpoint_queue_drop(&snapshot->queue, batch);
    batch = NULL;
    if (status == GPUF_OK) {
      status = gpufi_checkpoint_queue_take(&snapshot->queue, index, &batch, err);
    }
  }
  gpufi_checkpoint_queue_drop(&snapshot->queue, batch);
  release(&w, status != GPUF_OK);
  if (id >= 0) {
    const gpuf_status closed = close_dataset(&w, id, t->name, status == GPUF_OK ? err : NULL);
    status = status == GPUF_OK ? closed : status;
  }
  return status;
}
