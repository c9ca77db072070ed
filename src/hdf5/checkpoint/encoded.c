#include "hdf5/checkpoint/encoded.h"

#include "base/error.h"
#include "core/pool.h"
#include "hdf5/create.h"
#include "hdf5/encoded_chunks.h"
#include "hdf5/register.h"

/* Pinned memory. Zeroed: none. */
typedef struct staging {
  void *bytes;
  size_t nbytes;
} staging;

typedef struct writer {
  gpufi_h5_session *session;
  gpufi_checkpoint_snapshot *snapshot;
  gpufi_h5_dataset dataset;
  gpufi_h5_transfer transfer;
  gpufi_channel *channel; /* for what lies on the device; NULL until there is some */
  staging stagings[2];    /* for batches from there, in turns */
  int turn;
  gpufi_checkpoint_batch *begun; /* the batch whose chunks are being written; NULL: none */
  gpufi_h5_left_chunks left;
} writer;

/* --- From the device --------------------------------------------------------- */

static gpuf_status need_staging(writer *w, staging *s, size_t nbytes, gpuf_error *err) {
  const gpuf_device device = w->snapshot->device;
  gpuf_status status = GPUF_OK;
  if (!w->channel) {
    status = gpufi_channel_acquire(w->snapshot->backend, device, &w->channel, err);
  }
  if (status == GPUF_OK && nbytes > s->nbytes) {
    gpuf_pool_release(s->bytes, NULL);
    *s = (staging){NULL, 0};
    status = gpufi_pool_acquire_staging(device, nbytes, &s->bytes, err);
    s->nbytes = status == GPUF_OK ? nbytes : 0;
  }
  return status;
}

/* Have the batch's bytes in host memory: where those of the batch before are not, which are being
 * written. */
static gpuf_status bring(writer *w, const gpufi_checkpoint_batch *batch, uint8_t **bytes,
                         gpuf_error *err) {
  const gpufi_backend *const backend = w->snapshot->backend;
  staging *const s = &w->stagings[w->turn];
  *bytes = batch->bytes;
  if (batch->place == GPUFI_CHECKPOINT_ON_HOST) {
    return GPUF_OK;
  }
  gpuf_status status = need_staging(w, s, batch->nbytes, err);
  if (status == GPUF_OK) {
    status = backend->copy(w->channel->device.index, s->bytes, batch->bytes, batch->nbytes,
                           GPUFI_TO_HOST, w->channel->stream, err);
  }
  if (status == GPUF_OK) {
    status = backend->stream_synchronize(w->channel->device.index, w->channel->stream, err);
  }
  *bytes = s->bytes;
  return status;
}

/* --- To the file -------------------------------------------------------------- */

static gpuf_status settle(writer *w, gpuf_status status, gpuf_error *err) {
  status = gpufi_h5_chunks_settle(w->session, status, err);
  gpufi_checkpoint_queue_drop(&w->snapshot->queue, w->begun);
  w->begun = NULL;
  return status;
}

/* Begin to write the batch, which the writer takes over, once the one before is written. */
static gpuf_status write_batch(writer *w, const gpufi_checkpoint_item *item,
                               gpufi_checkpoint_batch *batch, gpuf_error *err) {
  uint8_t *bytes;
  gpuf_status status = bring(w, batch, &bytes, err);
  status = status == GPUF_OK
               ? gpufi_h5_encoded_chunks_put(w->session, &w->transfer, bytes, batch->chunks,
                                             batch->first - item->first_chunk, batch->count,
                                             &w->left, err)
               : gpufi_h5_chunks_settle(w->session, status, err);
  gpufi_checkpoint_queue_drop(&w->snapshot->queue, w->begun);
  w->begun = batch;
  w->turn = !w->turn;
  return status;
}

/* The next batch. While there is none, the committer may be waiting for the memory of the one that
 * is being written. */
static gpuf_status take(writer *w, const gpufi_checkpoint_item *item,
                        gpufi_checkpoint_batch **batch, gpuf_error *err) {
  gpufi_checkpoint_queue *const queue = &w->snapshot->queue;
  const gpuf_status status = gpufi_checkpoint_queue_has_next(queue, item->writer, item->position)
                                 ? GPUF_OK
                                 : settle(w, GPUF_OK, err);
  *batch = NULL;
  return status == GPUF_OK
             ? gpufi_checkpoint_queue_take(queue, item->writer, item->position, batch, err)
             : status;
}

static gpuf_status create(writer *w, hid_t file, const gpufi_checkpoint_item *item, hid_t *id,
                          gpuf_error *err) {
  gpufi_h5_path path;
  gpuf_status status = gpufi_h5_path_init(&path, item->name, err);
  if (status != GPUF_OK) {
    return status;
  }
  gpufi_h5_enter(w->session);
  status = gpufi_h5_register(w->session, err);
  if (status == GPUF_OK) {
    status = gpufi_h5_create(w->session, file, &path, &item->tensor, id, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_h5_dataset_init(&w->dataset, w->session, *id, err);
    w->dataset.is_new = true;
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
  gpuf_pool_release(w->stagings[0].bytes, NULL);
  gpuf_pool_release(w->stagings[1].bytes, NULL);
  gpufi_h5_left_chunks_fini(&w->left);
}

gpuf_status gpufi_checkpoint_write_encoded(gpufi_h5_session *session, hid_t file,
                                           const gpufi_checkpoint_item *item,
                                           gpufi_checkpoint_snapshot *snapshot,
                                           gpufi_checkpoint_batch *batch, gpuf_error *err) {
  writer w = {.session = session, .snapshot = snapshot};
  gpufi_h5_box box = {{0}, {0}};
  hid_t id = H5I_INVALID_HID;
  gpuf_status status = create(&w, file, item, &id, err);
  if (status == GPUF_OK) {
    status = gpufi_h5_dataset_box(&w.dataset, NULL, &item->tensor, "tensor", &box, err);
  }
  if (status == GPUF_OK) {
    gpufi_h5_transfer_init(&w.transfer, session, &w.dataset, &box, &item->tensor, true);
  }
  while (batch && status == GPUF_OK) {
    status = write_batch(&w, item, batch, err);
    batch = NULL;
    if (status == GPUF_OK) {
      status = take(&w, item, &batch, err);
    }
  }
  gpufi_checkpoint_queue_drop(&snapshot->queue, batch);
  status = settle(&w, status, err);
  release(&w, status != GPUF_OK);
  if (id >= 0) {
    const gpuf_status closed = close_dataset(&w, id, item->name, status == GPUF_OK ? err : NULL);
    status = status == GPUF_OK ? closed : status;
  }
  return status;
}
