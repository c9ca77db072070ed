/* Writing whole chunks: device → chunk buffer → encoder → H5Dwrite_chunk. */
#include "base/error.h"
#include "hdf5/internal.h"

#include <inttypes.h>
#include <string.h>

static const gpuf_copy_options one_thread = {.struct_nbytes = sizeof(one_thread),
                                             .thread_count = 1};

static gpuf_status begin_chunk(const gpufi_h5_move *move, gpufi_h5_slot *slot, void *scratch,
                               gpuf_error *err) {
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  gpuf_tensor part;
  gpuf_tensor view;
  const gpuf_status status =
      gpufi_h5_chunk_parts(move, slot->index, slot->raw, cpu, &part, &view, err);
  if (status != GPUF_OK) {
    return status;
  }
  if (gpuf_tensor_nbytes(&part) != move->dataset->chunk_nbytes) {
    memset(slot->raw, 0, move->dataset->chunk_nbytes); /* the chunk hangs over the edge */
  }
  return gpuf_copy_async(&part, &view, &one_thread, &slot->future, err);
}

static gpuf_status end_chunk(const gpufi_h5_move *move, gpufi_h5_slot *slot, void *scratch,
                             gpuf_error *err) {
  const gpufi_h5_dataset *dataset = move->dataset;
  const gpuf_status status = gpuf_future_wait(slot->future, -1, err);
  gpuf_future_destroy(slot->future);
  slot->future = NULL;
  if (status != GPUF_OK || !slot->encoded) {
    return status;
  }
  if (dataset->route == GPUFI_H5_ROUTE_BITSHUFFLE) {
    slot->encoded_nbytes = gpufi_bitshuffle_encode(gpuf_dtype_nbytes(dataset->dtype), slot->raw,
                                                   dataset->chunk_nbytes, slot->encoded, scratch);
    return GPUF_OK;
  }
  return gpufi_codec_encode(&dataset->chunk_shape, slot->raw, slot->encoded,
                            gpufi_codec_bound(dataset->chunk_nbytes), &slot->encoded_nbytes,
                            scratch, err);
}

static const gpufi_h5_work write_work = {begin_chunk, end_chunk, true};

gpuf_status gpufi_h5_chunk_put(gpufi_h5_session *session, const gpufi_h5_move *move, int64_t index,
                               const void *bytes, size_t nbytes, gpuf_error *err) {
  int64_t start[GPUF_NDIM_MAX];
  hsize_t offset[GPUF_NDIM_MAX];
  gpufi_h5_grid_origin(&move->grid, index, start);
  for (int32_t axis = 0; axis < move->grid.ndim; axis++) {
    offset[axis] = (hsize_t)start[axis];
  }
  if (session->api->Dwrite_chunk(move->dataset->id, H5P_DEFAULT, 0, offset, nbytes, bytes) < 0) {
    return gpufi_h5_fail(session, err,
                         "writing chunk %" PRId64 " of %" PRId64 " (%zu bytes) of dataset '%s' "
                         "failed",
                         index, move->grid.total, nbytes, move->dataset->name);
  }
  return GPUF_OK;
}

static gpuf_status put_slot(gpufi_h5_session *session, const gpufi_h5_move *move,
                            const gpufi_h5_slot *slot, gpuf_error *err) {
  const void *bytes = slot->encoded ? slot->encoded : slot->raw;
  const size_t nbytes = slot->encoded ? slot->encoded_nbytes : move->dataset->chunk_nbytes;
  return gpufi_h5_chunk_put(session, move, slot->index, bytes, nbytes, err);
}

/* Chunks from `first` on by the ring's workers. */
static gpuf_status write_by_ring(gpufi_h5_session *session, const gpufi_h5_move *move,
                                 int64_t first, gpuf_error *err) {
  gpufi_h5_ring ring;
  gpufi_h5_slot *slot;
  gpuf_status status = gpufi_h5_ring_init(&ring, move, &write_work, first,
                                          session->options.thread_count, NULL, 0, err);
  for (int64_t index = first; status == GPUF_OK && index < move->grid.total; index++) {
    /* The lock is kept over chunks that are ready one after another. */
    if (!gpufi_h5_ring_slot(&ring, index, GPUFI_H5_SLOT_READY, false, &slot)) {
      gpufi_h5_leave(session);
      if (!gpufi_h5_ring_slot(&ring, index, GPUFI_H5_SLOT_READY, true, &slot)) {
        status = gpufi_h5_ring_status(&ring, err);
        break;
      }
    }
    gpufi_h5_enter(session);
    status = put_slot(session, move, slot, err);
    gpufi_h5_ring_pass(&ring, slot, GPUFI_H5_SLOT_FREE);
  }
  gpufi_h5_leave(session);
  gpufi_h5_ring_fini(&ring);
  return status;
}

gpuf_status gpufi_h5_write_chunks(gpufi_h5_session *session, const gpufi_h5_dataset *dataset,
                                  const gpufi_h5_region *region, const gpuf_tensor *src,
                                  gpuf_error *err) {
  gpufi_h5_move move;
  int64_t done;
  gpufi_h5_move_init(&move, dataset, region, src);
  const gpuf_status status = gpufi_h5_write_batches(session, &move, &done, err);
  return status == GPUF_OK && done < move.grid.total ? write_by_ring(session, &move, done, err)
                                                     : status;
}
