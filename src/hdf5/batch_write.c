/* Writing whole chunks of a tensor on a device: they are gathered and encoded there, a batch at a
 * time, cross the link encoded, and go to H5Dwrite_chunk. While one batch is written the next one
 * crosses and the one after that is encoded. */
#include "core/error.h"
#include "hdf5/batch.h"

#include <stdlib.h>
#include <string.h>

typedef struct writer {
  gpufi_h5_session *session;
  gpufi_h5_batches all;
  /* For chunks that the device leaves to the CPU; NULL until there is one. */
  uint8_t *raw, *encoded, *scratch;
} writer;

/* --- On the device ----------------------------------------------------------------- */

/* Chunk `index` of the grid to `d_raw`; what hangs over the dataset's edge is 0. */
static gpuf_status gather_chunk(const writer *w, const gpufi_h5_batch *b, int64_t index,
                                void *d_raw, gpuf_error *err) {
  const gpuf_device device = b->lane->device;
  const size_t raw_nbytes = w->all.chunks.raw_nbytes;
  gpuf_tensor part, view;
  gpuf_status status = gpufi_h5_chunk_parts(w->all.move, index, d_raw, device, &part, &view, err);
  if (status == GPUF_OK && gpuf_tensor_nbytes(&part) != raw_nbytes) {
    status = w->all.backend->clear(device.index, d_raw, raw_nbytes, b->lane->stream, err);
  }
  return status == GPUF_OK ? gpufi_h5_batch_copy(&w->all, b, &part, &view, err) : status;
}

static gpuf_status start_batch(void *by, gpufi_h5_batch *b, gpuf_error *err) {
  const writer *const w = by;
  const gpufi_backend *const backend = w->all.backend;
  const int32_t device = b->lane->device.index;
  const gpufi_chunks chunks = gpufi_h5_batch_chunks(&w->all, b);
  gpuf_status status = GPUF_OK;
  for (size_t i = 0; i < b->count && status == GPUF_OK; i++) {
    status = gather_chunk(w, b, b->first + (int64_t)i, b->d_raw + i * chunks.raw_pitch_nbytes, err);
  }
  if (status == GPUF_OK) {
    status = backend->encode(device, &chunks, b->d_raw, b->d_encoded, b->d_places, b->d_scratch,
                             b->lane->stream, err);
  }
  if (status == GPUF_OK) {
    status = backend->copy(device, b->places, b->d_places,
                           GPUFI_CHUNKS_PLACE_COUNT(b->count) * sizeof(*b->places), GPUFI_TO_HOST,
                           b->lane->stream, err);
  }
  return status == GPUF_OK ? backend->event_record(device, b->lane->finished, b->lane->stream, err)
                           : status;
}

/* Once it is known how much there is: start the transfer of the encoded batch. */
static gpuf_status transfer_batch(void *by, gpufi_h5_batch *b, gpuf_error *err) {
  const writer *const w = by;
  const gpufi_backend *const backend = w->all.backend;
  const int32_t device = b->lane->device.index;
  gpuf_status status = backend->event_wait(device, b->lane->finished, err);
  if (status == GPUF_OK && b->places[b->count].offset != 0) {
    status = backend->copy(device, b->encoded, b->d_encoded, (size_t)b->places[b->count].offset,
                           GPUFI_TO_HOST, b->lane->stream, err);
  }
  return status == GPUF_OK ? backend->event_record(device, b->lane->finished, b->lane->stream, err)
                           : status;
}

/* --- On the host -------------------------------------------------------------------- */

static gpuf_status need_host_memory(writer *w, gpuf_error *err) {
  const size_t raw_nbytes = w->all.chunks.raw_nbytes;
  if (!w->raw) {
    w->raw = malloc(raw_nbytes);
    w->encoded = malloc(gpufi_codec_bound(raw_nbytes));
    w->scratch = aligned_alloc(64, gpufi_round_up(raw_nbytes, 64));
  }
  return w->raw && w->encoded && w->scratch
             ? GPUF_OK
             : gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0,
                          "no memory for a chunk of %zu bytes and its encoding: choose smaller "
                          "chunks",
                          raw_nbytes);
}

/* A chunk in a form that the device does not encode. */
static gpuf_status encode_left(writer *w, int64_t index, size_t *nbytes, gpuf_error *err) {
  const gpufi_chunks *const chunks = &w->all.chunks;
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  gpuf_tensor part, view;
  gpuf_status status = need_host_memory(w, err);
  if (status == GPUF_OK) {
    memset(w->raw, 0, chunks->raw_nbytes);
    status = gpufi_h5_chunk_parts(w->all.move, index, w->raw, cpu, &part, &view, err);
  }
  if (status == GPUF_OK) {
    status = gpuf_copy(&part, &view, NULL, err);
  }
  return status == GPUF_OK
             ? gpufi_codec_encode(&chunks->shape, w->raw, w->encoded,
                                  gpufi_codec_bound(chunks->raw_nbytes), nbytes, w->scratch, err)
             : status;
}

static gpuf_status put_batch(void *by, gpufi_h5_batch *b, size_t *left_count, gpuf_error *err) {
  writer *const w = by;
  gpuf_status status = w->all.backend->event_wait(b->lane->device.index, b->lane->finished, err);
  for (size_t i = 0; i < b->count && status == GPUF_OK; i++) {
    const int64_t index = b->first + (int64_t)i;
    const uint8_t *bytes = b->encoded + b->places[i].offset;
    size_t nbytes = (size_t)b->places[i].nbytes;
    if (nbytes == 0) {
      gpufi_h5_leave(w->session);
      status = encode_left(w, index, &nbytes, err);
      bytes = w->encoded;
      ++*left_count;
    }
    if (status == GPUF_OK) {
      gpufi_h5_enter(w->session);
      status = gpufi_h5_chunk_put(w->session, w->all.move, index, bytes, nbytes, err);
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
  free(w.raw);
  free(w.encoded);
  free(w.scratch);
  return status;
}
