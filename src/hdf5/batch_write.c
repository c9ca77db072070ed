/* Writing whole chunks of a tensor on a device: they are gathered and encoded there, a batch at a
 * time, cross the link encoded, and go to H5Dwrite_chunk. While one batch is written the next one
 * crosses and the one after that is encoded. */
#include "base/error.h"
#include "hdf5/batch.h"

#include <stdlib.h>

typedef struct writer {
  gpufi_h5_session *session;
  gpufi_h5_batches all;
  /* For chunks that the device leaves to the CPU; NULL until there is one. */
  uint8_t *encoded, *scratch;
} writer;

/* --- On the device ----------------------------------------------------------------- */

/* Chunk `index` of the grid to `d_raw`; what hangs over the dataset's edge is 0. */
static gpuf_status gather_chunk(const writer *w, const gpufi_h5_batch *b, int64_t index,
                                void *d_raw, gpuf_error *err) {
  const gpuf_device device = b->on.channel->device;
  const size_t raw_nbytes = w->all.chunks.raw_nbytes;
  gpuf_tensor part, view;
  gpuf_status status = gpufi_h5_chunk_parts(w->all.move, index, d_raw, device, &part, &view, err);
  if (status == GPUF_OK && gpuf_tensor_nbytes(&part) != raw_nbytes) {
    status = w->all.backend->clear(device.index, d_raw, raw_nbytes, b->on.channel->stream, err);
  }
  return status == GPUF_OK ? gpufi_h5_batch_copy(&w->all, b, &part, &view, err) : status;
}

static gpuf_status start_batch(void *by, gpufi_h5_batch *b, gpuf_error *err) {
  const writer *const w = by;
  const gpufi_chunks *const chunks = &b->on.chunks;
  gpuf_status status = GPUF_OK;
  for (size_t i = 0; i < chunks->count && status == GPUF_OK; i++) {
    uint8_t *const d_raw = b->on.d_chunks + i * chunks->raw_pitch_nbytes;
    status = gather_chunk(w, b, b->first + (int64_t)i, d_raw, err);
  }
  return status == GPUF_OK ? gpufi_batch_encode(&b->on, b->on.d_chunks, err) : status;
}

static gpuf_status transfer_batch(void *by, gpufi_h5_batch *b, gpuf_error *err) {
  return gpufi_batch_send(&b->on, NULL, err);
}

/* --- On the host -------------------------------------------------------------------- */

/* A chunk in a form that the device does not encode, at `raw`, to w->encoded. */
static gpuf_status encode_left(writer *w, const uint8_t *raw, size_t *nbytes, gpuf_error *err) {
  const gpufi_chunks *const chunks = &w->all.chunks;
  const size_t bound = gpufi_codec_bound(chunks->raw_nbytes);
  if (!w->encoded) {
    w->encoded = malloc(bound);
  }
  if (!w->scratch) {
    w->scratch = aligned_alloc(64, gpufi_round_up(chunks->raw_nbytes, 64));
  }
  return w->encoded && w->scratch
             ? gpufi_codec_encode(&chunks->shape, raw, w->encoded, bound, nbytes, w->scratch, err)
             : gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0,
                          "no memory to encode a chunk of %zu bytes: choose smaller chunks",
                          chunks->raw_nbytes);
}

static gpuf_status put_batch(void *by, gpufi_h5_batch *b, size_t *left_count, gpuf_error *err) {
  writer *const w = by;
  gpuf_status status = gpufi_batch_wait(&b->on, err);
  for (size_t i = 0; i < b->on.chunks.count && status == GPUF_OK; i++) {
    const uint8_t *bytes = b->on.bytes + b->on.places[i].offset;
    size_t nbytes = (size_t)b->on.places[i].nbytes;
    if (nbytes == 0) {
      gpufi_h5_leave(w->session);
      status = encode_left(w, bytes, &nbytes, err);
      bytes = w->encoded;
      ++*left_count;
    }
    if (status == GPUF_OK) {
      gpufi_h5_enter(w->session);
      status =
          gpufi_h5_chunk_put(w->session, w->all.move, b->first + (int64_t)i, bytes, nbytes, err);
    }
  }
  gpufi_h5_leave(w->session);
  return status;
}

static const gpufi_h5_batch_steps write_steps = {start_batch, transfer_batch, put_batch};

gpuf_status gpufi_h5_write_batches(gpufi_h5_session *session, const gpufi_h5_move *move,
                                   int64_t *done, gpuf_error *err) {
  writer w = {.session = session};
  *done = 0;
  if (!gpufi_h5_batches_suit(move, true)) {
    return GPUF_OK;
  }
  gpuf_status status = gpufi_h5_batches_init(&w.all, move, true, err);
  if (status == GPUF_OK) {
    status = gpufi_h5_batches_run(&w.all, &write_steps, &w, done, err);
  } else if (status == GPUF_ERR_NO_DEVICE_MEMORY || status == GPUF_ERR_NO_MEMORY) {
    status = GPUF_OK; /* the other way takes less */
  }
  gpufi_h5_batches_fini(&w.all);
  free(w.encoded);
  free(w.scratch);
  return status;
}
