/* Reading whole chunks: on a device, as far as it decodes them; else file → decoder → chunk buffer
 * → device or host memory, by workers. */
#include "base/error.h"
#include "hdf5/internal.h"

static const gpuf_copy_options one_thread = {.struct_nbytes = sizeof(one_thread),
                                             .thread_count = 1};

static gpuf_status begin_chunk(const gpufi_h5_move *move, gpufi_h5_slot *slot, void *scratch,
                               gpuf_error *err) {
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  gpuf_tensor part;
  gpuf_tensor view;
  gpuf_status status = gpufi_h5_chunk_load(move, slot, err);
  if (status == GPUF_OK) {
    status = gpufi_h5_chunk_decode(move, slot, scratch, err);
  }
  if (status == GPUF_OK) {
    status = gpufi_h5_chunk_parts(move, slot->index, slot->raw, cpu, &part, &view, err);
  }
  return status == GPUF_OK ? gpuf_copy_async(&view, &part, &one_thread, &slot->future, err)
                           : status;
}

static gpuf_status end_chunk(const gpufi_h5_move *move, gpufi_h5_slot *slot, void *scratch,
                             gpuf_error *err) {
  const gpuf_status status = gpuf_future_wait(slot->future, -1, err);
  gpuf_future_destroy(slot->future);
  slot->future = NULL;
  return status;
}

static const gpufi_h5_work read_work = {begin_chunk, end_chunk, false};

/* Wait until every chunk has left its slot. */
static gpuf_status drain(gpufi_h5_ring *ring, gpuf_error *err) {
  gpufi_h5_slot *slot;
  for (int64_t i = 0; i < ring->slot_count; i++) {
    if (!gpufi_h5_ring_slot(ring, i, GPUFI_H5_SLOT_FREE, true, &slot)) {
      return gpufi_h5_ring_status(ring, err);
    }
  }
  return GPUF_OK;
}

/* Chunks from `first` on by the ring's workers. */
static gpuf_status read_by_ring(gpufi_h5_session *session, const gpufi_h5_move *move, int64_t first,
                                gpuf_error *err) {
  gpufi_h5_ring ring;
  gpufi_h5_slot *slot;
  gpuf_status status = gpufi_h5_ring_init(&ring, move, &read_work, first,
                                          session->options.thread_count, NULL, 0, err);
  for (int64_t index = first; status == GPUF_OK && index < move->grid.total; index++) {
    /* The lock is kept over slots that are free one after another. */
    if (!gpufi_h5_ring_slot(&ring, index, GPUFI_H5_SLOT_FREE, false, &slot)) {
      gpufi_h5_leave(session);
      if (!gpufi_h5_ring_slot(&ring, index, GPUFI_H5_SLOT_FREE, true, &slot)) {
        status = gpufi_h5_ring_status(&ring, err);
        break;
      }
    }
    status = gpufi_h5_chunk_get(session, move, slot, index, err);
    if (status == GPUF_OK) {
      gpufi_h5_ring_pass(&ring, slot, GPUFI_H5_SLOT_READY);
    }
  }
  gpufi_h5_leave(session);
  if (status == GPUF_OK) {
    status = drain(&ring, err);
  }
  gpufi_h5_ring_fini(&ring);
  return status;
}

gpuf_status gpufi_h5_read_chunks(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                 const gpufi_h5_region *region, const gpuf_tensor *dst,
                                 gpuf_error *err) {
  gpufi_h5_move move;
  int64_t done;
  gpuf_status status;
  gpufi_h5_move_init(&move, dataset, region, dst);
  gpufi_h5_enter(session);
  gpufi_h5_direct_init(&move.direct, session, dataset, &move.grid);
  gpufi_h5_leave(session);
  status = gpufi_h5_read_batches(session, &move, &done, err);
  if (status == GPUF_OK && done < move.grid.total) {
    status = read_by_ring(session, &move, done, err);
  }
  gpufi_h5_direct_fini(&move.direct);
  return status;
}
