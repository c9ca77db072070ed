/* Reading whole chunks into a tensor on a device: they cross the link encoded, a batch at a time,
 * are decoded there and put in place. While one batch is decoded the next one is read, by workers
 * where the file is a plain one, else through HDF5. */
#include "base/error.h"
#include "core/geometry.h"
#include "hdf5/batch.h"

#include <stdlib.h>

typedef struct reader {
  gpufi_h5_session *session;
  gpufi_h5_batches all;
  gpufi_h5_slot *slots; /* of every chunk of the batches in flight; `encoded` lies in its batch */
  void *raw;            /* a chunk that the device does not decode */
  bool has_workers;
  gpufi_h5_ring ring; /* of these slots, if there are workers */
} reader;

static gpufi_h5_slot *slot_of(const reader *r, const gpufi_h5_batch *b, size_t i) {
  return &r->slots[(size_t)(b - r->all.batches) * r->all.chunks.count + i];
}

/* --- From the file ---------------------------------------------------------------------- */

static gpuf_status load_chunk(const gpufi_h5_move *move, gpufi_h5_slot *slot, void *scratch,
                              gpuf_error *err) {
  return gpufi_h5_chunk_load(move, slot, err);
}

static const gpufi_h5_work load_work = {load_chunk, NULL, false};

/* The elements at slot->raw to the destination. */
static gpuf_status place_elements(const reader *r, const gpufi_h5_slot *slot, gpuf_error *err) {
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  gpuf_tensor part, view;
  const gpuf_status status =
      gpufi_h5_chunk_parts(r->all.move, slot->index, slot->raw, cpu, &part, &view, err);
  return status == GPUF_OK ? gpuf_copy(&view, &part, NULL, err) : status;
}

/* Have the encoded chunks read to where they cross the link from, end to end. What HDF5 gives the
 * elements of goes to the destination at once. */
static gpuf_status fill_batch(void *by, gpufi_h5_batch *b, gpuf_error *err) {
  reader *const r = by;
  gpuf_status status = GPUF_OK;
  b->encoded_nbytes = 0;
  for (size_t i = 0; i < b->on.chunks.count && status == GPUF_OK; i++) {
    gpufi_h5_slot *const slot = slot_of(r, b, i);
    slot->raw = r->raw;
    slot->encoded = b->on.own_bytes + b->encoded_nbytes;
    status = gpufi_h5_chunk_get(r->session, r->all.move, slot, b->first + (int64_t)i, err);
    if (status == GPUF_OK && slot->is_raw) {
      gpufi_h5_leave(r->session);
      status = place_elements(r, slot, err);
    }
    if (status == GPUF_OK) {
      const bool is_filtered = !(slot->filter_mask & GPUFI_H5_FILTER_SKIPPED);
      b->on.places[i] =
          (gpufi_chunk_place){b->encoded_nbytes, is_filtered ? slot->encoded_nbytes : 0};
      b->encoded_nbytes += gpufi_round_up(slot->encoded_nbytes, 16);
    }
    if (status == GPUF_OK && r->has_workers) {
      gpufi_h5_ring_pass(&r->ring, slot, GPUFI_H5_SLOT_READY);
    }
  }
  gpufi_h5_leave(r->session);
  return status;
}

/* Wait for the workers. */
static gpuf_status await_batch(reader *r, const gpufi_h5_batch *b, gpuf_error *err) {
  gpufi_h5_slot *slot;
  for (size_t i = 0; i < b->on.chunks.count && r->has_workers; i++) {
    if (!gpufi_h5_ring_slot(&r->ring, b->first + (int64_t)i, GPUFI_H5_SLOT_FREE, true, &slot)) {
      return gpufi_h5_ring_status(&r->ring, err);
    }
  }
  return GPUF_OK;
}

/* --- On the device ----------------------------------------------------------------------- */

static gpuf_status scatter_chunk(const reader *r, const gpufi_h5_batch *b, size_t i,
                                 gpuf_error *err) {
  uint8_t *const d_raw = b->on.d_chunks + i * r->all.chunks.raw_pitch_nbytes;
  gpuf_tensor part, view;
  const gpuf_status status = gpufi_h5_chunk_parts(r->all.move, b->first + (int64_t)i, d_raw,
                                                  b->on.channel->device, &part, &view, err);
  return status == GPUF_OK ? gpufi_h5_batch_copy(&r->all, b, &view, &part, err) : status;
}

/* Start transfer and decoding, and putting in place what may be the chunks' elements: where they
 * are not, end_batch does it again. */
static gpuf_status decode_batch(void *by, gpufi_h5_batch *b, gpuf_error *err) {
  reader *const r = by;
  gpuf_status status = await_batch(r, b, err);
  if (status != GPUF_OK || b->encoded_nbytes == 0) {
    return status;
  }
  status = gpufi_batch_decode(&b->on, b->on.own_bytes, b->encoded_nbytes, b->on.d_chunks, err);
  for (size_t i = 0; i < b->on.chunks.count && status == GPUF_OK; i++) {
    status = b->on.places[i].nbytes != 0 ? scatter_chunk(r, b, i, err) : GPUF_OK;
  }
  return status == GPUF_OK ? gpufi_batch_mark(&b->on, err) : status;
}

/* Chunks that the device did not decode are for the CPU: it has all forms, and its words for what
 * is wrong with a chunk. */
static gpuf_status end_batch(void *by, gpufi_h5_batch *b, size_t *left_count, gpuf_error *err) {
  reader *const r = by;
  gpuf_status status = gpufi_batch_wait(&b->on, err);
  for (size_t i = 0; i < b->on.chunks.count && status == GPUF_OK; i++) {
    gpufi_h5_slot *const slot = slot_of(r, b, i);
    if (b->on.places[i].nbytes != 0 && b->on.verdicts[i] == GPUFI_CHUNK_DONE) {
      continue;
    }
    ++*left_count;
    if (!slot->is_raw) {
      status = gpufi_h5_chunk_decode(r->all.move, slot, NULL, err);
      status = status == GPUF_OK ? place_elements(r, slot, err) : status;
    }
  }
  return status;
}

static const gpufi_h5_batch_steps read_steps = {fill_batch, decode_batch, end_batch};

/* --- The whole ------------------------------------------------------------------------------ */

static gpuf_status reader_init(reader *r, const gpufi_h5_move *move, gpuf_error *err) {
  gpuf_status status = gpufi_h5_batches_init(&r->all, move, false, err);
  if (status != GPUF_OK) {
    return status;
  }
  const size_t slot_count = (size_t)r->all.count * r->all.chunks.count;
  r->slots = calloc(slot_count, sizeof(*r->slots));
  r->raw = malloc(r->all.chunks.raw_nbytes);
  if (!r->slots || !r->raw) {
    return gpufi_fail(err, GPUF_ERR_NO_MEMORY, 0, "no memory for %zu chunks in flight", slot_count);
  }
  r->has_workers = move->direct.fd >= 0;
  return r->has_workers
             ? gpufi_h5_ring_init(&r->ring, move, &load_work, 0, r->session->options.thread_count,
                                  r->slots, (int64_t)slot_count, err)
             : GPUF_OK;
}

static void reader_fini(reader *r) {
  if (r->has_workers) {
    gpufi_h5_ring_fini(&r->ring);
  }
  gpufi_h5_batches_fini(&r->all);
  free(r->slots);
  free(r->raw);
}

gpuf_status gpufi_h5_read_batches(gpufi_h5_session *session, const gpufi_h5_move *move,
                                  int64_t *done, gpuf_error *err) {
  reader r = {.session = session};
  *done = 0;
  if (!gpufi_h5_batches_suit(move, false) || gpufi_tensor_repeats_elements(move->tensor)) {
    return GPUF_OK;
  }
  gpuf_status status = reader_init(&r, move, err);
  if (status == GPUF_OK) {
    status = gpufi_h5_batches_run(&r.all, &read_steps, &r, done, err);
  } else if (status == GPUF_ERR_NO_DEVICE_MEMORY || status == GPUF_ERR_NO_MEMORY) {
    status = GPUF_OK; /* the other way takes less */
  }
  reader_fini(&r);
  return status;
}
